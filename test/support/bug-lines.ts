/** The vectors on which the lines of known bugs run, in torch and in C, and the comparison of what they give. */
import assert from 'node:assert/strict';
import { MUTANTS, type ReadHeads, readHeads } from '@ropewalk/diagnose';
import { mutantExample } from '@ropewalk/oracle';
import type { BugLines } from '../../site/build/bug-lines.js';

/** The largest error of rounding to a dtype, relative to the number. */
const ROUNDING = { f64: 2 ** -53, f32: 2 ** -24, f16: 2 ** -11, bf16: 2 ** -8 } as const;

/** The input of a kernel: x and positions in rows, and the names that lines use. */
export interface BugModel {
  readonly x: readonly number[];
  /** `[batch, tokens, heads, head_dim]`. */
  readonly shape: readonly number[];
  readonly positions: readonly number[];
  readonly positionsShape: readonly number[];
  readonly numbers: Readonly<Record<string, number>>;
  readonly lists: Readonly<Record<string, readonly number[]>>;
}

/** A bug on the model that shows it. */
export interface BugCase {
  readonly id: string;
  /** The model's name in {@link bugCases}. */
  readonly from: string;
  readonly programs: BugLines['programs'];
  readonly heads: ReadHeads;
  readonly wanted: { readonly right: Float64Array; readonly wrong: Float64Array };
  /** How far an element may be from `value`, where the largest angle is `reach`. */
  readonly bound: (value: number, reach: number) => number;
}

/** The output of a program: y, and its largest finite angle. */
export interface BugOutput {
  readonly y: ArrayLike<number>;
  readonly reach: number;
}

/** The names that lines use: numbers and lists of a spec in snake case. */
function namesOf(spec: object): { numbers: Record<string, number>; lists: Record<string, number[]> } {
  const numbers: Record<string, number> = {};
  const lists: Record<string, number[]> = {};
  const { scaling, axes, ...rest } = spec as { scaling?: object; axes?: object };
  for (const [name, value] of Object.entries({ ...rest, ...scaling, ...axes })) {
    const snake = name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
    if (typeof value === 'number') numbers[snake] = value;
    else if (Array.isArray(value) || ArrayBuffer.isView(value)) lists[snake] = Array.from(value as ArrayLike<number>);
  }
  return { numbers, lists };
}

/** Every known bug in one language, and the models on which they run by their names. */
export function bugCases(lines: ReadonlyMap<string, BugLines>): {
  readonly models: Readonly<Record<string, BugModel>>;
  readonly cases: readonly BugCase[];
} {
  assert.deepEqual(new Set(lines.keys()), new Set(MUTANTS.map(({ id }) => id)));
  const models: Record<string, BugModel> = {};
  const cases = [...lines].map(([id, { right, wrong, programs }]): BugCase => {
    assert.ok(right && wrong && right !== wrong, id);
    const { observation, expected, from } = mutantExample(MUTANTS.find((one) => one.id === id)!);
    const { x, y, positions, norm } = observation;
    const { spec } = expected as { spec: { headDim: number; rotaryDim?: number } };
    const { numbers, lists } = namesOf(spec);
    const { headDim, rotaryDim = headDim } = spec;
    const [batch, tokens] = x.shape as [number, number];
    const own = { rotary_dim: rotaryDim, partial_rotary_factor: rotaryDim / headDim };
    const nemo = { hidden_size: 5120, num_heads: 32 }; // Mistral Nemo, which says head_dim 128
    const yarn = { beta_fast: 32, beta_slow: 1, ext_factor: 1, attn_factor: 1 }; // where a model does not say
    const { weight, eps } = (norm ?? {}) as { weight?: { readNumbers(): ArrayLike<number> }; eps?: number };
    const given = positions as unknown as { shape: number[]; readNumbers(): ArrayLike<number> };
    const values = Array.from(given.readNumbers(), Number);
    const row = given.shape.length === 1; // one row for all batches
    const numbersOfX = Array.from(x.readNumbers() as Float64Array);
    models[from] ??= {
      x: numbersOfX,
      shape: x.shape,
      positions: row ? Array.from({ length: batch }, () => values).flat() : values,
      positionsShape: row ? [batch, tokens] : given.shape,
      numbers: { ...yarn, ...numbers, ...own, ...nemo, ...(eps !== undefined && { eps }) },
      lists: { ...lists, ...(weight && { weight: Array.from(weight.readNumbers()) }) },
    };
    const largest = numbersOfX.reduce((most, one) => Math.max(most, Math.abs(one)), 0);
    // Some lines compute in f32, and sums are in another order. Powers may differ in the last bit.
    const bound = (value: number, reach: number): number =>
      ROUNDING[y.dtype as keyof typeof ROUNDING] * Math.abs(value) + (2 ** -22 + 2 ** -52 * reach) * largest;
    const heads = readHeads(observation, expected);
    const wanted = { right: heads.right!, wrong: y.readNumbers() as Float64Array };
    return { id, from, programs, heads, bound, wanted };
  });
  return { models, cases };
}

/** Says where what the lines of a bug gave is not the reference's y and the bug's, or is the same. */
export function bugFaults({ id, bound, wanted }: BugCase, got: { right: BugOutput; wrong: BugOutput }): string[] {
  const faults: string[] = [];
  for (const which of ['right', 'wrong'] as const) {
    const { y, reach } = got[which];
    const off = wanted[which].findIndex((want, i) => {
      // A number beyond f32 is infinite in y, and cos of an infinite angle is NaN.
      return !(Math.abs(y[i]! - want) <= bound(want, reach)) && !Object.is(Math.fround(y[i]!), want);
    });
    if (off >= 0) faults.push(`${id}, ${which}: element ${off} is ${y[off]}, not ${wanted[which][off]}`);
  }
  const { y, reach } = got.right;
  if (wanted.wrong.every((value, i) => Math.abs(value - y[i]!) <= bound(value, reach)))
    faults.push(`${id}: the wrong lines do what the right ones do`);
  return faults;
}
