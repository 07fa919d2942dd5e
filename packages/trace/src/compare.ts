/** How far two tensors are apart, row by row, and how much of that rounding explains. @module */
import { NOT_GIVEN } from './dump.js';
import type { Kind } from './names.js';
import type { Rows } from './side.js';

/** The differences of two matrices. Those of a row are relative to the first side's row. */
export interface Difference {
  readonly tokens: number;
  /** The root mean square of all elements, as a share of the first side's. */
  readonly rms: number;
  /** The error of the row that is farthest apart. */
  readonly worst: number;
  readonly worstRow: number;
  readonly rows: Float64Array;
  /** The root of the mean square of the first side, and of the difference. */
  readonly size: number;
  readonly absolute: number;
  /** The first row of each side with NaN or an infinity. */
  readonly notFinite: readonly [a: number | undefined, b: number | undefined];
  /** The rows of which both sides have values. */
  readonly given: readonly boolean[];
  /** The first row where both sides have NaN at one place, which is no difference. */
  readonly bothNaN: number | undefined;
}

/** Rows that are much smaller than the others are judged as if they had this share of the usual size: a sink's v is near 0. */
const LEAST_ROW = 0.25;

/** A mask is -Infinity or the least number of f32, bf16 or f16. */
const isMask = (x: number): boolean => x < -3.38e38 || x === -65504;

/** Says whether values are alike of which no difference can be taken. */
export const areAlike = (x: number, y: number): boolean =>
  x === NOT_GIVEN ||
  y === NOT_GIVEN ||
  (x === y && !Number.isFinite(x)) ||
  (x !== x && y !== y) ||
  (isMask(x) && isMask(y));

/**
 * Compares two matrices of one shape.
 *
 * @param resolution - the difference of two values up to which they may be printed alike
 */
export function compare(a: Rows, b: Rows, resolution = 0): Difference {
  const { tokens, width } = a;
  const [norms, parts] = [new Float64Array(tokens), new Float64Array(tokens)];
  const notFinite: [number | undefined, number | undefined] = [undefined, undefined];
  let bothNaN: number | undefined;
  for (let t = 0; t < tokens; t++) {
    let [own, apart] = [0, 0];
    for (let n = t * width; n < (t + 1) * width; n++) {
      const [x, y] = [a.data[n]!, b.data[n]!];
      if (areAlike(x, y)) {
        if (x !== x) bothNaN ??= t;
        continue;
      }
      own += x * x;
      const off = Math.abs(x - y);
      if (!(off <= resolution)) apart += (off - resolution) ** 2;
    }
    norms[t] = Math.sqrt(own);
    parts[t] = Math.sqrt(apart);
    if (Number.isFinite(own + apart)) continue;
    for (const [side, rows] of [a, b].entries())
      if (notFinite[side] === undefined && !rows.data.subarray(t * width, (t + 1) * width).every(Number.isFinite))
        notFinite[side] = t;
  }
  const given = Array.from(norms, (_, t) => hasValues(a, t) && hasValues(b, t));
  const least = LEAST_ROW * medianOf(norms.filter((_, t) => given[t]));
  const rows = parts.map((part, t) =>
    part === 0 ? 0 : Number.isFinite(part) ? part / Math.max(norms[t]!, least) : Infinity,
  );
  const worstRow = rows.reduce((best, error, t) => (error > rows[best]! ? t : best), 0);
  const mean = (values: Float64Array): number =>
    Math.sqrt(values.reduce((sum, x) => sum + x * x, 0) / Math.max(1, tokens * width));
  const [size, absolute] = [mean(norms), mean(parts)];
  return {
    tokens,
    rms: absolute === 0 ? 0 : absolute / size,
    worst: rows[worstRow] ?? 0,
    worstRow,
    rows,
    size,
    absolute,
    notFinite,
    given,
    bothNaN,
  };
}

const hasValues = ({ data, width }: Rows, row: number): boolean => {
  for (let n = row * width; n < (row + 1) * width; n++) if (data[n] !== NOT_GIVEN) return true;
  return width === 0;
};

export function medianOf(values: Float64Array | readonly number[]): number {
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.floor(sorted.length / 2)] ?? 0;
}

/** The dtypes whose rounding is told by the bits that their values leave free in f32. */
const HELD = [
  ['bf16', 0xffff, 2 ** -9],
  ['f16', 0x1fff, 2 ** -12],
  ['f32', 0, 2 ** -25],
] as const;

export type Held = (typeof HELD)[number][0];

/** Finds the dtype that all values fit: frameworks widen dumps. Few values, or zeros, tell nothing. */
export function heldDtype({ data }: Rows): Held | undefined {
  const bits = new Uint32Array(data.buffer, data.byteOffset, data.length);
  const step = Math.max(1, Math.floor(data.length / 4096));
  let [all, seen] = [0, 0];
  for (let n = 0; n < bits.length; n += step) {
    if (data[n] === 0) continue;
    all |= bits[n]!;
    seen++;
  }
  return seen < 64 ? undefined : HELD.find(([, free]) => (all & free) === 0)![0];
}

export const roundoffOf = (held: Held): number => HELD.find(([name]) => name === held)![2];

/** A step's output may be so many times as far apart as its inputs: attention and norms enlarge a difference. */
const ENLARGES = 8;
/** Sums of thousands of products in f32, in another order, differ by about so many roundings. */
const ROUNDINGS = 32;
/** Sums are f32 too where values are stored in 16 bits: a step rounds its few inputs and outputs. */
const FEW_ROUNDINGS = 8;
/** No noise moves a row by more. */
const MOST = 0.7;
const MOST_OF_WEIGHTS = 0.95;
/** A cause is computed anew, so that it rounds as if so many steps had. */
const STEPS_OF_CAUSE = 8;
/** A cause leaves at most so many times the noise that was measured: a step as a whole may enlarge it more. */
const PROVES = 3;

/**
 * The ruler: the difference that rounding explains at a step.
 *
 * Each step rounds its rows once more, independently, so that differences grow as the root of the number of steps; the
 * coarsest dtype that either side has shown counts. The differences measured at the steps before, which were accepted,
 * are enlarged by at most {@link ENLARGES}. From RoPE on, angles that were made in f32 add position × 2^-24 radians.
 */
export class Ruler {
  #held: Held;
  #steps = 0;
  #lately: number[] = [];
  /** The differences that were accepted though no dtype explains them, once they were found to be noise. */
  adopted: { readonly step: string; readonly rms: number; readonly isEven: boolean } | undefined;

  /** @param held - the coarsest dtype that is known beforehand */
  constructor(held: Held = 'f32') {
    this.#held = held;
  }

  get held(): Held {
    return this.#held;
  }

  /** The largest difference of the steps before that were accepted lately. */
  get measured(): number {
    return Math.max(0, ...this.#lately);
  }

  /** Takes note of the dtypes of a step. */
  sees(...rows: readonly Rows[]): void {
    for (const one of rows) {
      const held = heldDtype(one);
      if (held !== undefined && roundoffOf(held) > roundoffOf(this.#held)) this.#held = held;
    }
  }

  /**
   * @param lastPosition - the largest position, from RoPE on; else 0
   * @param weights - embeddings, whose dtype is that of weights and says nothing of later steps
   * @param kind - `act` is a product of two tensors, and has the noise of both
   */
  bound(lastPosition: number, weights: readonly Rows[] = [], kind?: Kind): number {
    const both = this.adopted && kind === 'act' ? 2 : 1;
    return both * this.#boundOf(lastPosition, weights, ENLARGES, this.#steps);
  }

  /** The largest difference of a row that a cause may leave. */
  proof(lastPosition: number, rows: readonly Rows[]): number {
    return this.#boundOf(lastPosition, rows, PROVES, Math.max(this.#steps, STEPS_OF_CAUSE));
  }

  #boundOf(lastPosition: number, weights: readonly Rows[], enlarges: number, steps: number): number {
    const roundoff = Math.max(...[this.#held, ...weights.map((rows) => heldDtype(rows) ?? 'f32')].map(roundoffOf));
    const rounding = (roundoff < 1e-7 ? ROUNDINGS : FEW_ROUNDINGS) * roundoff * Math.sqrt(1 + steps);
    // Weights in few bits move some rows by nearly as much as they have.
    const most = this.adopted ? Math.max(MOST_OF_WEIGHTS, 1.5 * this.measured) : MOST;
    return Math.min(most, Math.max(rounding + lastPosition * 2 ** -24, enlarges * this.measured));
  }

  /** The largest difference of rows that agree but for the noise that was measured, which is not enlarged. */
  near(lastPosition: number): number {
    const roundoff = roundoffOf(this.#held);
    const once = (roundoff < 1e-7 ? ROUNDINGS : FEW_ROUNDINGS) * roundoff + lastPosition * 2 ** -24;
    return Math.min(MOST, Math.max(once, PROVES * this.measured));
  }

  accept(worst: number): void {
    // A step that gives the same bits has not rounded otherwise.
    if (worst > 0) this.#steps++;
    // Two layers of the usual names: an old difference may have been one of a tensor that nothing reads.
    this.#lately = [...this.#lately.slice(-24), worst];
  }
}

/** Noise of fewer bits is at most this much. */
const MOST_NOISE = 0.2;

/**
 * Says whether a difference is noise: as large in every token and in every part of the row, as that of weights in fewer
 * bits. A fault has a place.
 *
 * @param printed - whether a few values of each row are known, which may be apart by chance, as those of a few tokens
 */
export function isFlat(a: Rows, b: Rows, { rms, rows }: Difference, printed = false): boolean {
  if (rms > MOST_NOISE || (!printed && a.tokens >= 4 && !isEven(rows))) return false;
  const blocks = Math.min(16, a.width);
  let [along, norm, off] = [0, 0, 0];
  const shares = Array.from({ length: blocks }, (_, block) => {
    let [own, apart] = [0, 0];
    for (let t = 0; t < a.tokens; t++)
      for (let c = Math.floor((block * a.width) / blocks); c < Math.floor(((block + 1) * a.width) / blocks); c++) {
        const [x, y] = [a.data[t * a.width + c]!, b.data[t * a.width + c]!];
        if (areAlike(x, y)) continue;
        own += x ** 2;
        apart += (x - y) ** 2;
        along += x * (x - y);
      }
    [norm, off] = [norm + own, off + apart];
    return Math.sqrt(apart / Math.max(own, 1e-30));
  });
  // Noise does not follow the values, as another scale does.
  return (printed || isEven(shares)) && along ** 2 <= 0.8 * norm * off;
}

function isEven(errors: Float64Array | readonly number[]): boolean {
  const middle = medianOf(errors);
  return errors.every((error) => error <= 5 * middle && error >= middle / 5);
}
