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
  type TableRecipe,
  tensorFrom,
  zeros,
} from 'ropewalk';
import type { Mutant } from './mutant.js';
import { angleNoise, arithmeticNoise, storedNoise, type Tier } from './noise.js';
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
  const right = stepsOf(callOf(expected, heads));
  const list: Hypothesis[] = [{ id: 'right', kind: 'right', mutants: [], steps: right }];
  for (const recipe of ['hf-f32', 'ggml-f32'] as const) {
    const call = recipeCall(expected, heads, recipe);
    if (call) list.push({ id: `recipe:${recipe}`, kind: 'recipe', mutants: [], steps: stepsOf(call) });
  }
  for (const mutant of mutants) {
    const change = mutant.change(right);
    if (change) list.push({ id: mutant.id, kind: 'known-bug', mutants: [mutant], steps: changed(right, change) });
  }
  return list;
}

/** Two bugs at once, of those that change different steps. */
export function* pairsOf(right: RopeSteps, mutants: readonly Mutant[]): Generator<Hypothesis> {
  for (const [n, first] of mutants.entries()) {
    const one = first.change(right);
    if (!one) continue;
    for (const second of mutants.slice(n + 1)) {
      const both = [first, second];
      const other = second.change(right);
      if (!other || Object.keys(one).some((step) => step in other)) continue; // one would hide the other
      yield {
        id: both.map(({ id }) => id).join('+'),
        kind: 'known-bug',
        mutants: both,
        steps: changed(changed(right, one), other),
      };
    }
  }
}

function stepsOf(call: RopeCall): RopeSteps {
  return new RopeSteps(call.plan, call.parts[0]!);
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
    if (Object.is(seen.y[n], made[n])) continue; // also NaN and infinities: a bug may give them
    const noise = storedNoise(seen.dtype, made[n]!, seen.sizes[Math.floor(n / headDim)]!) + (slack ? slack[n]! : 0);
    const error = Math.abs(seen.y[n]! - made[n]!);
    const ratio = error === 0 ? 0 : error / noise;
    if (ratio <= worst.ratio) continue;
    worst = { ratio: Number.isFinite(ratio) ? ratio : Infinity, at: n };
    if (worst.ratio > enough) return worst;
  }
  return worst;
}

/**
 * The noise of a tier beyond `stored`, for each element: the steps run with the lengths of pairs instead of rotated
 * pairs.
 */
export function slackOf(
  steps: RopeSteps,
  right: RopeSteps,
  heads: Heads,
  rows: readonly number[],
  tier: Tier,
): Float64Array {
  const own = probe(steps, heads, rows, tier);
  if (own) return own;
  // A bug that rotates whole heads bypasses the probe: it gets twice the largest noise of each row.
  const { headDim } = heads;
  const of = probe(right, heads, rows, tier)!;
  return of.map(
    (_what, n) => 2 * of.subarray(n - (n % headDim), n - (n % headDim) + headDim).reduce((a, b) => Math.max(a, b), 0),
  );
}

/** Undefined where the steps do not rotate every pair once by {@link RopeSteps.turn}. */
function probe(steps: RopeSteps, heads: Heads, rows: readonly number[], tier: Tier): Float64Array | undefined {
  const arithmetic = tier === 'arithmetic' ? arithmeticNoise(heads.dtype) : 0;
  let radians = 0;
  let turned = 0;
  const change: Change = {
    angle(position: number, j: number) {
      const angle = steps.angle(position, j);
      radians = angleNoise(angle, j);
      return angle;
    },
    turn(x0: number, x1: number, cos: number, sin: number) {
      turned++;
      const length = Math.hypot(x0, x1) * Math.hypot(cos, sin) * (radians + arithmetic);
      radians = 0; // a given table has no angles
      return [length, length];
    },
    beside: () => 0,
  };
  const probed = changed(steps, change);
  const whole = !Object.is(steps.all, RopeSteps.prototype.all);
  const slack = runRows(probed, heads, rows).map(Math.abs);
  return turned === (whole ? heads.batch * heads.seq * heads.heads : rows.length) * steps.pairs ? slack : undefined;
}

/** The numbers of all head rows. */
export function everyRow({ batch, seq, heads }: Heads): number[] {
  return Array.from({ length: batch * seq * heads }, (_what, r) => r);
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
