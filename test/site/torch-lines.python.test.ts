/** The lines in torch on the pages of bugs: the right ones give the reference's y, and the wrong ones the bug's. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { MUTANTS, readHeads } from '@ropewalk/diagnose';
import { mutantExample } from '@ropewalk/oracle';
import { TORCH_LINES } from '../../site/build/torch-lines.js';
import { noPython, runPython } from '../support/python.js';

/** The largest error of rounding to a dtype, relative to the number. */
const ROUNDING = { f64: 2 ** -53, f32: 2 ** -24, f16: 2 ** -11, bf16: 2 ** -8 } as const;

/** The names that lines use: numbers and lists of a spec in snake case. */
function namesOf(spec: object): { numbers: Record<string, number>; lists: Record<string, number[]> } {
  const numbers: Record<string, number> = {};
  const lists: Record<string, number[]> = {};
  const { scaling, ...rest } = spec as { scaling?: object };
  for (const [name, value] of Object.entries({ ...rest, ...scaling })) {
    const snake = name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
    if (typeof value === 'number') numbers[snake] = value;
    else if (Array.isArray(value) || ArrayBuffer.isView(value)) lists[snake] = Array.from(value as ArrayLike<number>);
  }
  return { numbers, lists };
}

test('the lines in torch of each bug do what they say', { skip: noPython }, () => {
  assert.equal(TORCH_LINES.size, MUTANTS.length);
  const models: Record<string, object> = {};
  const cases = [...TORCH_LINES].map(([id, { right, wrong, programs }]) => {
    assert.ok(right && wrong && right !== wrong, id);
    const mutant = MUTANTS.find((one) => one.id === id);
    assert.ok(mutant, id);
    const { observation, expected, from } = mutantExample(mutant);
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
    // Some lines compute in f32, and torch's sums are in another order. Its powers may differ in the last bit.
    const bound = (value: number, reach: number): number =>
      ROUNDING[y.dtype as keyof typeof ROUNDING] * Math.abs(value) + (2 ** -22 + 2 ** -52 * reach) * largest;
    const wanted = { right: readHeads(observation, expected).right!, wrong: y.readNumbers() as Float64Array };
    return { id, from, programs, bound, wanted };
  });
  const folder = mkdtempSync(join(tmpdir(), 'torch-lines-'));
  try {
    const path = join(folder, 'cases.json');
    const runs = cases.flatMap(({ from, programs }) => [
      { model: from, program: programs.right },
      { model: from, program: programs.wrong },
    ]);
    writeFileSync(path, JSON.stringify({ models, runs }));
    const printed = JSON.parse(runPython('torch_lines.py', [path])) as { y: string; reach: number }[];
    const got = printed.map(({ y, reach }) => {
      return { y: new Float64Array(Uint8Array.from(Buffer.from(y, 'base64')).buffer), reach };
    });
    const faults: string[] = [];
    for (const [n, { id, bound, wanted }] of cases.entries()) {
      for (const [k, which] of (['right', 'wrong'] as const).entries()) {
        const { y, reach } = got[2 * n + k]!;
        const off = y.findIndex((value, i) => {
          const want = wanted[which][i]!;
          // A number beyond f32 is infinite in y, and cos of an infinite angle is NaN.
          return !(Math.abs(value - want) <= bound(want, reach)) && !Object.is(Math.fround(value), want);
        });
        if (off >= 0) faults.push(`${id}, ${which}: element ${off} is ${y[off]}, not ${wanted[which][off]}`);
      }
      const { y, reach } = got[2 * n]!;
      if (wanted.wrong.every((value, i) => Math.abs(value - y[i]!) <= bound(value, reach)))
        faults.push(`${id}: the wrong lines do what the right ones do`);
    }
    assert.deepEqual(faults, []);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
