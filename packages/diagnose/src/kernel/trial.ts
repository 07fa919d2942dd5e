/**
 * The hypotheses about a kernel, as steps to run, and whether one gives y: the expected rotation, the arithmetic of peers,
 * known bugs. @module
 */
import { type RopeCall, type RopeScaling, roundTo } from 'ropewalk';
import type { YarnScaling } from 'ropewalk/internal';
import { yarnMagnitude } from 'ropewalk/internal';
import type { Calls, Expected } from '../read/expected.js';
import { type Heads, type RowAt, widened } from '../read/observation.js';
import type { Mutant } from './mutant.js';
import { misfit, mostMoved, movesOf, type Seen, slackOf, type Tier } from './noise.js';
import { type Change, changed, narrowTable, RopeSteps, RoundingControl } from './steps.js';

export interface Hypothesis {
  /** `right`, `recipe:hf-f32`, or the ids of its mutants joined by `+`. */
  readonly id: string;
  readonly kind: 'right' | 'recipe' | 'known-bug';
  /** The known bugs; empty for the right kernel and recipes. */
  readonly mutants: readonly Mutant[];
  readonly steps: RopeSteps;
  /** Sets the errors of the steps. */
  readonly control: RoundingControl;
}

/** The right kernel of a call, for its first part. */
export function rightOf({ plan, parts }: RopeCall): Hypothesis {
  const control = new RoundingControl();
  return { id: 'right', kind: 'right', mutants: [], steps: control.base(new RopeSteps(plan, parts[0]!)), control };
}

/** The right kernel first, then its recipes by peers, then every bug that can happen with this input. */
export function hypothesesOf({ right, recipes }: Calls, mutants: readonly Mutant[]): Hypothesis[] {
  const first = rightOf(right);
  const list: Hypothesis[] = [first];
  for (const [name, call] of recipes) list.push({ ...rightOf(call), id: `recipe:${name}`, kind: 'recipe' });
  for (const mutant of mutants) {
    const change = mutant.change(first.steps);
    if (change) list.push(wrong(first, [mutant], [change]));
  }
  return [...list, ...modulesOf(first, mutants), ...matrixUnitsOf(first), ...normsOf(first)];
}

/** The steps that a module rounds which computes in 16 bits throughout. */
const ROUNDED = ['position', 'frequencies', 'angle'] as const;

/** Modules that round two or three of those steps, and cos and sin too: of a 16-bit y the tier `arithmetic` allows that. */
function modulesOf(right: Hypothesis, mutants: readonly Mutant[]): Hypothesis[] {
  const wide = right.steps.part.out.dtype === 'f32';
  return (['bf16', 'f16'] as const).flatMap((dtype) => {
    const bugOf = (step: string): Mutant[] => mutants.filter(({ id }) => id === `${step}-in-${dtype}`);
    const some = [ROUNDED, ...ROUNDED.map((one) => ROUNDED.filter((other) => other !== one))];
    return [...some, ...(wide ? some.map((steps) => [...steps, 'table']) : [])].flatMap((steps) => {
      const bugs = steps.flatMap(bugOf);
      return bugs.length === steps.length ? (composed(right, bugs) ?? []) : [];
    });
  });
}

/** The steps with the changes of bugs, each made to those of the bugs before it; undefined if one of them cannot happen. */
function composed({ steps: right, control }: Hypothesis, mutants: readonly Mutant[]): Hypothesis | undefined {
  const names: string[] = [];
  let steps = right;
  for (const mutant of mutants) {
    const change = mutant.change(steps);
    if (!change) return undefined;
    names.push(...Object.keys(change));
    steps = changed(steps, change);
  }
  const id = mutants.map((mutant) => mutant.id).join('+');
  return { id, kind: 'known-bug', mutants, steps: control.mutant(steps, names), control };
}

/** The recipes that are not a peer's angles, in words. */
export const ARITHMETIC: Readonly<Record<string, string>> = {
  tf32: 'cos and sin in tf32, as a matrix unit takes them',
  norm: 'the norm’s result rounded to 16 bits before the rotation',
  'norm-twice': 'the norm rounded to 16 bits before its weight, and after it',
};

/** Bits of the significand after the leading one that a matrix unit takes of an f32. */
const TF32_BITS = 10;

/** The right kernel of f32 data with cos and sin rounded to tf32. */
function matrixUnitsOf({ steps, control }: Hypothesis): Hypothesis[] {
  if (steps.part.out.dtype !== 'f32' || !steps.source) return [];
  const rounded = (value: number): number => {
    const unit = 2 ** (Math.floor(Math.log2(Math.abs(value) || 1)) - TF32_BITS);
    return Math.round(value / unit) * unit;
  };
  const narrow = changed(steps, narrowTable(steps, rounded));
  return [{ id: 'recipe:tf32', kind: 'recipe', mutants: [], steps: control.mutant(narrow, ['cosSin']), control }];
}

/** The right kernel of 16-bit data that stores the norm's result in that dtype, as modules do that are not fused. */
function normsOf({ steps, control }: Hypothesis): Hypothesis[] {
  const { norm, out } = steps.part;
  const { dtype } = out;
  if (!norm || (dtype !== 'f16' && dtype !== 'bf16')) return [];
  const rounded = (values: Float64Array): Float64Array => values.map((value) => roundTo(dtype, value));
  return ['norm', 'norm-twice'].map((name): Hypothesis => {
    const normalize: RopeSteps['normalize'] = (head, weight, eps) => {
      const plain = steps.normalize(head, new Float64Array(weight.length).fill(1), eps);
      return rounded((name === 'norm' ? plain : rounded(plain)).map((value, i) => value * weight[i]!));
    };
    const narrow = control.mutant(changed(steps, { normalize }), ['normalize']);
    return { id: `recipe:${name}`, kind: 'recipe', mutants: [], steps: narrow, control };
  });
}

/** The steps of the right kernel with the changes of bugs. */
export function wrong(
  { steps, control }: Hypothesis,
  mutants: readonly Mutant[],
  changes: readonly Change[],
): Hypothesis {
  const id = mutants.map((mutant) => mutant.id).join('+');
  const names = changes.flatMap(Object.keys);
  return { id, kind: 'known-bug', mutants, steps: control.mutant(changes.reduce(changed, steps), names), control };
}

/** Two bugs of the catalogue at once, of those that change different steps. */
export function* pairsOf(right: Hypothesis, mutants: readonly Mutant[]): Generator<Hypothesis> {
  const bugs = mutants.filter(({ parameters }) => !parameters);
  for (const [n, first] of bugs.entries()) {
    const one = first.change(right.steps);
    if (!one) continue;
    for (const second of bugs.slice(n + 1)) {
      const other = second.change(right.steps);
      if (!other || Object.keys(one).some((step) => step in other)) continue; // one would hide the other
      yield wrong(right, [first, second], [one, other]);
    }
  }
}

/** Whether steps change a head after its pairs were rotated, as a rounding does. */
const rounds = ({ head }: RopeSteps): boolean => head !== RopeSteps.prototype.head;

/** Some rows of an observation, compared with hypotheses tier by tier. The outputs are kept for the next y. */
export class Trial {
  constructor(
    readonly heads: Heads,
    readonly rows: readonly number[],
    readonly seen: Seen,
    readonly kept: Map<string, Float64Array> = new Map(),
  ) {}

  #once(key: string, make: () => Float64Array): Float64Array {
    const known = this.kept.get(key);
    if (known) return known;
    const made = make();
    this.kept.set(key, made);
    return made;
  }

  /** The output of a hypothesis for these rows, `[rows, head_dim]`. */
  made(hypothesis: Hypothesis): Float64Array {
    return this.#once(hypothesis.id, () => runRows(hypothesis.steps, this.heads, this.rows));
  }

  /** Whether a hypothesis gives y within the noise of a tier. */
  fits(hypothesis: Hypothesis, tier: Tier): boolean {
    const { id, steps, control } = hypothesis;
    const run = (): Float64Array => runRows(steps, this.heads, this.rows);
    const made = this.made(hypothesis);
    if (misfit(this.seen, made, undefined, 1) <= 1) return true;
    const moves = movesOf(tier, this.heads.dtype, rounds(steps), steps.narrowTable);
    if (moves.length === 0) return false;
    const largest = [...this.seen.sizes, ...made].reduce((a, b) => (Math.abs(b) > a ? Math.abs(b) : a), 0); // NaN is no size
    const most = mostMoved(this.heads.dtype, control.loosest, largest);
    if (misfit(this.seen, made, new Float64Array(made.length).fill(most), 1) > 1) return false;
    const parts = moves.map((move) =>
      this.#once(`${id} ${move}`, () => slackOf(control, made, this.heads.dtype, move, run)),
    );
    const slack = parts.reduce((sum, part) => sum.map((one, n) => one + part[n]!));
    return misfit(this.seen, made, slack, 1) <= 1;
  }
}

/**
 * Compares hypotheses with some dimensions of the one row of a trial. Most hypotheses fail there, without a run of the row.
 *
 * @param worst - a dimension that is compared
 * @returns whether a hypothesis may give the row within the noise of a tier
 */
export function glanceAt({ heads, rows, seen }: Trial, worst = 0) {
  const { headDim, dtype } = heads;
  const dims = [...new Set([0, 1, 2, 3].map((n) => (worst + Math.floor((n * headDim) / 4)) % headDim))];
  const [r] = rows as [number];
  const x = widened(heads.x.subarray(r * headDim, (r + 1) * headDim));
  const parts = dims.map((i): Seen => ({ y: seen.y.slice(i, i + 1), dtype, sizes: seen.sizes.slice(0, 1) }));
  const { all, head, rotate } = RopeSteps.prototype;
  return ({ steps, control }: Hypothesis, tier: Tier): boolean => {
    // Steps that do more to a row than to normalize it and rotate its pairs need the whole row.
    if (steps.all !== all || steps.head !== head || steps.rotate !== rotate) return true;
    const row = steps.input(x);
    const moves = movesOf(tier, dtype, false, steps.narrowTable);
    return dims.every((i, n) => {
      const make = dimOf(steps, row, i, steps.placeOf(r));
      const made = make();
      if (misfit(parts[n]!, made, undefined, 1) <= 1) return true;
      const slack = moves.map((move) => slackOf(control, made, dtype, move, make));
      return misfit(parts[n]!, made, Float64Array.of(slack.reduce((sum, [one]) => sum + one!, 0)), 1) <= 1;
    });
  };
}

/** Computes one dimension of a row. */
function dimOf(steps: RopeSteps, row: Float64Array, i: number, at: RowAt): () => Float64Array {
  // Where several pairs write a dimension, the last one counts.
  for (let j = steps.pairs - 1; j >= 0; j--)
    for (const k of [1, 0] as const)
      if (steps.writeIndex(j, k) === i) return () => Float64Array.of(steps.pair(row, j, at)[k]);
  return () => Float64Array.of(steps.beside(row[i]!, i, at));
}

/** Runs steps on some rows of `[batch, seq, head]`: `[rows, head_dim]`. */
export function runRows(steps: RopeSteps, { headDim, x }: Heads, rows: readonly number[]): Float64Array {
  const y = new Float64Array(rows.length * headDim);
  // Steps that mix rows cannot run for one of them.
  const whole = Object.is(steps.all, RopeSteps.prototype.all) ? undefined : steps.all(widened(x));
  for (const [n, r] of rows.entries()) {
    const [from, end] = [r * headDim, (r + 1) * headDim];
    y.set(
      whole ? whole.subarray(from, end) : steps.head(widened(x.subarray(from, end)), steps.placeOf(r)),
      n * headDim,
    );
  }
  return y;
}

/**
 * Some rows of y. The magnitude is that of `expected`.
 *
 * @param normalised - the observation with the norm applied to x, if there is a norm
 */
export function seenRows(heads: Heads, rows: readonly number[], { spec }: Expected, normalized = heads): Seen {
  const { headDim, dtype } = heads;
  const y = new Float64Array(rows.length * headDim);
  const magnitude = Math.max(1, Math.abs(spec.attentionFactor ?? magnitudeOf(spec.scaling)));
  const largest = ({ x }: Heads, r: number): number =>
    widened(x.subarray(r * headDim, (r + 1) * headDim)).reduce((a, b) => Math.max(a, Math.abs(b)), 0);
  const sizes = Float64Array.from(rows, (r, n) => {
    y.set(heads.y.subarray(r * headDim, (r + 1) * headDim), n * headDim);
    return magnitude * Math.max(largest(heads, r), normalized === heads ? 0 : largest(normalized, r));
  });
  return { y, dtype, sizes };
}

/** The magnitude of a scaling rule, except LongRoPE's. */
export function magnitudeOf(scaling: RopeScaling | undefined): number {
  return scaling?.kind === 'yarn' ? yarnMagnitude(scaling as YarnScaling) : 1;
}
