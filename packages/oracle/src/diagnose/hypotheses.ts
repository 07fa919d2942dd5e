/** What a kernel may have done, as steps to run: the expected rotation, peers' arithmetic, known bugs. @module */
import {
  bindRopeParts,
  type FloatDtype,
  planRope,
  planRopeWithTable,
  type RopeCall,
  type RopePlan,
  type RopeSpec,
  RopewalkError,
  roundTo,
  type TableRecipe,
  tensorFrom,
  zeros,
} from 'ropewalk';
import { Dial, type Manner, MOVES, type Move, mannersOf } from './manner.js';
import type { Mutant } from './mutant.js';
import { storedNoise, type Tier } from './noise.js';
import { type Heads, type RowAt, rowAt } from './observation.js';
import { type Change, changed, RopeSteps } from './steps.js';

/** The RoPE that a kernel should compute. */
export interface Expected {
  readonly spec: RopeSpec;
  /** `forward` unless given. */
  readonly direction?: 'forward' | 'backward';
}

/** What a kernel may have done. */
export interface Hypothesis {
  /** `right`, `recipe:hf-f32`, or the ids of its mutants joined by `+`. */
  readonly id: string;
  readonly kind: 'right' | 'recipe' | 'known-bug';
  /** Empty for the right kernel and recipes. */
  readonly mutants: readonly Mutant[];
  readonly steps: RopeSteps;
  /** Turns the arithmetic of the steps. */
  readonly dial: Dial;
}

/**
 * Binds an expectation to x and positions.
 *
 * @param recipe - whose arithmetic of angles; float64 unless given
 * @throws {RopewalkError} from planRope, for a spec that is wrong or does not fit x
 */
export function callOf(expected: Expected, heads: Heads, recipe: TableRecipe = 'float64'): RopeCall {
  const { spec, direction = 'forward' } = expected;
  const { batch, seq, ownPositions, numAxes } = heads;
  // Shared positions stay shared, because some mutants depend on it.
  const own = ownPositions ? heads.positions : sharedPositions(heads);
  const shape = [...(numAxes > 1 ? [numAxes] : []), ...(ownPositions ? [batch] : []), seq];
  const positions = tensorFrom(BigInt64Array.from(own, BigInt), { shape });
  const plan = planRope({ ...spec, positions, direction, recipe, tableDtype: 'f64' });
  return bindHeads(recipe === 'float64' ? plan : asGivenTable(plan, expected, positions, recipe), heads);
}

function sharedPositions({ numAxes, batch, seq, positions }: Heads): Float64Array {
  const shared = new Float64Array(numAxes * seq);
  for (let a = 0; a < numAxes; a++) shared.set(positions.subarray(a * batch * seq, a * batch * seq + seq), a * seq);
  return shared;
}

function bindHeads(plan: RopePlan, { batch, seq, heads, headDim, x, norm, dtype }: Heads): RopeCall {
  const tensor = tensorFrom<'f64'>(x, { shape: [batch, seq, heads, headDim] });
  // Nothing is written to out; some bugs depend on its dtype.
  return bindRopeParts(plan, [{ x: tensor, out: zeros(dtype, tensor.shape), norm }]);
}

/** Steps compute angles in float64 unless their plan has only a table, so a recipe is given as a table. */
function asGivenTable(
  plan: RopePlan,
  { spec, direction = 'forward' }: Expected,
  positions: ReturnType<typeof tensorFrom>,
  recipe: TableRecipe,
): RopePlan {
  const { table } = planRope({ ...spec, positions, recipe, tableDtype: 'f64' });
  const { headDim, rotaryDim, rotaryOffset, pairing, seqLen, batch, tableRows } = plan;
  return planRopeWithTable({ headDim, rotaryDim, rotaryOffset, pairing, direction, table, seqLen, tableRows, batch });
}

/** The right kernel first, then the peers' recipes of it, then every bug that can happen with this input. */
export function hypothesesOf(expected: Expected, heads: Heads, mutants: readonly Mutant[]): Hypothesis[] {
  const right = rightOf(callOf(expected, heads));
  const list: Hypothesis[] = [right];
  for (const recipe of ['hf-f32', 'ggml-f32'] as const) {
    const call = recipeCall(expected, heads, recipe);
    if (call) list.push({ ...rightOf(call), id: `recipe:${recipe}`, kind: 'recipe' });
  }
  for (const mutant of mutants) {
    const change = mutant.change(right.steps);
    if (change) list.push(wrong(right, [mutant], [change]));
  }
  return list;
}

/** The right kernel of a call: its first part. */
export function rightOf({ plan, parts }: RopeCall): Hypothesis {
  const dial = new Dial();
  return { id: 'right', kind: 'right', mutants: [], steps: dial.base(new RopeSteps(plan, parts[0]!)), dial };
}

function wrong({ steps, dial }: Hypothesis, mutants: readonly Mutant[], changes: readonly Change[]): Hypothesis {
  const id = mutants.map((mutant) => mutant.id).join('+');
  const own = changes.flatMap(Object.keys);
  return { id, kind: 'known-bug', mutants, steps: dial.mutant(changes.reduce(changed, steps), own), dial };
}

/** Two bugs at once, of those that change different steps. */
export function* pairsOf(right: Hypothesis, mutants: readonly Mutant[]): Generator<Hypothesis> {
  for (const [n, first] of mutants.entries()) {
    const one = first.change(right.steps);
    if (!one) continue;
    for (const second of mutants.slice(n + 1)) {
      const other = second.change(right.steps);
      if (!other || Object.keys(one).some((step) => step in other)) continue; // one would hide the other
      yield wrong(right, [first, second], [one, other]);
    }
  }
}

/** Undefined where the peer does not have the scaling. */
function recipeCall(expected: Expected, heads: Heads, recipe: TableRecipe): RopeCall | undefined {
  try {
    return callOf(expected, heads, recipe);
  } catch (error) {
    if (error instanceof RopewalkError && error.code === 'UNSUPPORTED') return undefined;
    throw error;
  }
}

/** Some rows of an observation, compared with hypotheses, tier by tier. Outputs are kept for the next y. */
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

  /** Whether a hypothesis gives y within a tier's noise. */
  fits(hypothesis: Hypothesis, tier: Tier): boolean {
    const made = this.made(hypothesis);
    if (misfit(this.seen, made, undefined, 1) <= 1) return true;
    if (tier === 'stored') return false;
    const parts = MOVES[tier].map((move) =>
      this.#once(`${hypothesis.id} ${move}`, () =>
        slackOf(hypothesis, made, this.heads.dtype, move, () => runRows(hypothesis.steps, this.heads, this.rows)),
      ),
    );
    const slack = parts.length > 1 ? parts[0]!.map((one, n) => one + parts[1]![n]!) : parts[0];
    return misfit(this.seen, made, slack, 1) <= 1;
  }
}

/**
 * Some elements of one row, compared with hypotheses that rotate it pair by pair: most are out without a run of the
 * row. Nothing is kept.
 */
export class Glance {
  readonly #heads: Heads;
  readonly #row: number;
  readonly #dims: readonly number[];
  readonly #seen: Seen;

  /** @param seen - the row's y and size */
  constructor(heads: Heads, row: number, seen: Seen, dims: readonly number[]) {
    this.#heads = heads;
    this.#row = row;
    this.#dims = dims;
    const y = Float64Array.from(dims, (i) => seen.y[i]!);
    this.#seen = { y, dtype: seen.dtype, sizes: new Float64Array(dims.length).fill(seen.sizes[0]!) };
  }

  /** Whether a hypothesis may give the row within a tier's noise. */
  mayFit(hypothesis: Hypothesis, tier: Tier): boolean {
    const made = this.#made(hypothesis);
    if (!made || misfit(this.#seen, made, undefined, 1) <= 1) return true;
    const slack = new Float64Array(made.length);
    for (const move of MOVES[tier]) {
      const part = slackOf(hypothesis, made, this.#heads.dtype, move, () => this.#made(hypothesis)!);
      for (const [n, one] of part.entries()) slack[n]! += one;
    }
    return misfit(this.#seen, made, slack, 1) <= 1;
  }

  /** Undefined for steps that do more to a row than to rotate its pairs. */
  #made({ steps }: Hypothesis): Float64Array | undefined {
    const { all, head, rotate } = RopeSteps.prototype;
    if (steps.all !== all || steps.head !== head || steps.rotate !== rotate || steps.part.norm) return undefined;
    const { headDim, x } = this.#heads;
    const row = x.subarray(this.#row * headDim, (this.#row + 1) * headDim);
    const at = rowAt(this.#heads, this.#row);
    return Float64Array.from(this.#dims, (i) => {
      // Where several pairs write a dimension, the last one counts.
      for (let j = steps.pairs - 1; j >= 0; j--) {
        if (steps.writeIndex(j, 1) === i) return steps.pair(row, j, at)[1];
        if (steps.writeIndex(j, 0) === i) return steps.pair(row, j, at)[0];
      }
      return steps.beside(row[i]!, i, at);
    });
  }
}

/** Runs steps on some rows of `[batch, seq, head]`: `[rows, head_dim]`. */
export function runRows(steps: RopeSteps, heads: Heads, rows: readonly number[]): Float64Array {
  const { headDim, x } = heads;
  const y = new Float64Array(rows.length * headDim);
  // Steps that mix rows cannot be run for one of them.
  const whole = Object.is(steps.all, RopeSteps.prototype.all) ? undefined : steps.all(x);
  for (const [n, r] of rows.entries()) {
    const from = r * headDim;
    y.set(
      whole ? whole.subarray(from, from + headDim) : steps.head(x.subarray(from, from + headDim), rowAt(heads, r)),
      n * headDim,
    );
  }
  return y;
}

/** What {@link misfit} compares with. */
export interface Seen {
  /** `[rows, head_dim]` of y. */
  readonly y: Float64Array;
  readonly dtype: FloatDtype;
  /** The largest |x| of each row, times the largest magnitude that is found. */
  readonly sizes: Float64Array;
}

/**
 * The largest error of a hypothesis in units of its noise: at most 1 where it explains y, Infinity where y is not
 * finite.
 *
 * @param made - the output of the hypothesis, `[rows, head_dim]`
 * @param slack - noise beyond `stored`, for each element of made
 * @param enough - stop beyond this
 */
export function misfit(seen: Seen, made: Float64Array, slack?: Float64Array, enough = Infinity): number {
  return farthest(seen, made, slack, enough).ratio;
}

/** {@link misfit}, and the element of `made` where it is; −1 when all are equal. */
export function farthest(
  seen: Seen,
  made: Float64Array,
  slack?: Float64Array,
  enough = Infinity,
): { ratio: number; at: number } {
  const headDim = made.length / seen.sizes.length;
  let worst = { ratio: 0, at: -1 };
  for (let n = 0; n < made.length; n++) {
    // Also NaN and infinities: a bug may give them, or values that y's dtype cannot hold.
    if (Object.is(seen.y[n], made[n]) || overflowed(seen.y[n]!, made[n]!, seen.dtype)) continue;
    const noise = storedNoise(seen.dtype, made[n]!, seen.sizes[Math.floor(n / headDim)]!) + (slack ? slack[n]! : 0);
    const error = Math.abs(seen.y[n]! - made[n]!);
    const ratio = error === 0 ? 0 : error / noise;
    if (ratio <= worst.ratio) continue;
    worst = { ratio: Number.isFinite(ratio) ? ratio : Infinity, at: n };
    if (worst.ratio > enough) return worst;
  }
  return worst;
}

function overflowed(y: number, made: number, dtype: FloatDtype): boolean {
  return Math.abs(y) === Infinity && roundTo(dtype, made) === y;
}

/** Runs a hypothesis on some rows in a manner: `[rows, head_dim]`. */
export function runAs(
  { steps, dial }: Hypothesis,
  manner: Manner,
  heads: Heads,
  rows: readonly number[],
): Float64Array {
  return dial.as(manner, () => runRows(steps, heads, rows));
}

/**
 * How far each element of a hypothesis moves when angles, cos and sin, or products are off by as much as a right
 * kernel's may be: its slack. The same errors for every hypothesis, so that none fits more loosely than another.
 *
 * @param made - the output of the hypothesis
 * @param make - makes it again
 */
export function slackOf(
  { dial }: Hypothesis,
  made: Float64Array,
  dtype: FloatDtype,
  move: Move,
  make: () => Float64Array,
): Float64Array {
  const slack = new Float64Array(made.length);
  for (const manner of mannersOf(move, dtype, dial.loosest)) {
    const moved = dial.as(manner, make);
    for (let n = 0; n < made.length; n++) {
      const far = Math.abs(moved[n]! - made[n]!);
      if (far > slack[n]!) slack[n] = far; // not where the hypothesis gives NaN
    }
  }
  return slack;
}

/** The numbers of all live head rows. */
export function everyRow({ batch, seq, heads, live }: Heads): number[] {
  const all = Array.from({ length: batch * seq * heads }, (_what, r) => r);
  return live ? all.filter((r) => live[r]) : all;
}

/** The place of a head row, and its given position on each axis. */
export function describeRow(heads: Heads, r: number): RowAt & { readonly positions: readonly number[] } {
  const at = rowAt(heads, r);
  const positions = Array.from(
    { length: heads.numAxes },
    (_what, a) => heads.positions[(a * heads.batch + at.batch) * heads.seq + at.seq]!,
  );
  return { ...at, positions };
}
