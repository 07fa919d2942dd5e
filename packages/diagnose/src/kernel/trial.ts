/** What a kernel may have done, as steps to run: the expected rotation, peers' arithmetic, known bugs. @module */
import { type FloatDtype, type RopeCall, roundTo } from 'ropewalk';
import { type Heads, rowAt } from '../read/observation.js';
import type { Mutant } from './mutant.js';
import { storedNoise, type Tier } from './noise.js';
import { MOVES, type Move, type Rounding, RoundingControl, roundingsOf } from './rounding.js';
import { RopeSteps } from './steps.js';

/** What a kernel may have done. */
export interface Hypothesis {
  /** `right`, `recipe:hf-f32`, or the ids of its mutants joined by `+`. */
  readonly id: string;
  readonly kind: 'right' | 'recipe' | 'known-bug';
  /** Empty for the right kernel and recipes. */
  readonly mutants: readonly Mutant[];
  readonly steps: RopeSteps;
  /** Turns the arithmetic of the steps. */
  readonly control: RoundingControl;
}

/** The right kernel of a call: its first part. */
export function rightOf({ plan, parts }: RopeCall): Hypothesis {
  const control = new RoundingControl();
  return { id: 'right', kind: 'right', mutants: [], steps: control.base(new RopeSteps(plan, parts[0]!)), control };
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

/** Runs a hypothesis on some rows with the given rounding errors: `[rows, head_dim]`. */
export function runAs(
  { steps, control }: Hypothesis,
  rounding: Rounding,
  heads: Heads,
  rows: readonly number[],
): Float64Array {
  return control.as(rounding, () => runRows(steps, heads, rows));
}

/**
 * How far each element of a hypothesis moves when angles, cos and sin, or products are off by as much as a right
 * kernel's may be: its slack. The same errors for every hypothesis, so that none fits more loosely than another.
 *
 * @param made - the output of the hypothesis
 * @param make - makes it again
 */
export function slackOf(
  { control }: Hypothesis,
  made: Float64Array,
  dtype: FloatDtype,
  move: Move,
  make: () => Float64Array,
): Float64Array {
  const slack = new Float64Array(made.length);
  for (const rounding of roundingsOf(move, dtype, control.loosest)) {
    const moved = control.as(rounding, make);
    for (let n = 0; n < made.length; n++) {
      const far = Math.abs(moved[n]! - made[n]!);
      if (far > slack[n]!) slack[n] = far; // not where the hypothesis gives NaN
    }
  }
  return slack;
}
