/** The right results of an observation, row by row, with the noise of each element. @module */
import { type Heads, positionsOf, widened } from '../read/observation.js';
import { angleNoise, arithmeticNoise, SINE_NOISE, storedNoise } from './noise.js';
import type { RopeSteps } from './steps.js';

/** cos and sin of each pair, times the magnitude and the direction. */
export interface Angles {
  readonly cos: Float64Array;
  readonly sin: Float64Array;
  /** The noise of a pair of length 1 beyond its rounding: angles in f32, fast sines, arithmetic in 16 bits. */
  readonly noise: Float64Array;
}

/** Every row of y against the right result. */
export interface Compared {
  /** Rows in which all elements are as expected, and rows with wrong elements. */
  readonly right: readonly number[];
  readonly wrong: readonly number[];
  /** By row: the number of wrong elements, and the largest error in units of its noise. */
  readonly off: Uint32Array;
  readonly error: Float32Array;
  /** In the order of the rows: the largest error in units of `stored` noise, Infinity where y is not finite. */
  readonly stored: Float64Array;
  /** By dimension: in how many rows it is wrong. */
  readonly offByDim: Float64Array;
  /** The element of y that is farthest from the right one; undefined if none is wrong. */
  readonly largest: { readonly row: number; readonly dim: number; readonly expected: number } | undefined;
}

/** The most tokens, and positions, whose angles are kept. */
const MAX_KEPT = 2 ** 14;

function kept<K>(all: Map<K, Angles>, key: K, compute: () => Angles): Angles {
  const known = all.get(key);
  if (known) return known;
  if (all.size >= MAX_KEPT) all.clear();
  const angles = compute();
  all.set(key, angles);
  return angles;
}

export class RightRows {
  readonly pairs: number;
  /** The pair that writes each dimension; −1 where no pair does. */
  readonly pairOf: Int32Array;
  /** The member of its pair that each dimension is, 0 or 1. */
  readonly memberOf: Uint8Array;
  readonly #read: readonly [Int32Array, Int32Array];
  readonly #tokens = new Map<number, Angles>();
  readonly #positions = new Map<number | string, Angles>();
  readonly #input: Float64Array;
  readonly #weight: Float64Array | undefined;
  readonly #magnitude: number;
  #rms = { row: -1, value: 1 };
  #compared: Compared | undefined;

  /**
   * @param steps - the steps of the right kernel, from a spec
   * @param slack - further noise of each element, relative to the largest |x| of its head
   */
  constructor(
    readonly steps: RopeSteps,
    readonly heads: Heads,
    readonly slack = 0,
  ) {
    const { pairs } = steps;
    this.pairs = pairs;
    this.#read = [new Int32Array(pairs), new Int32Array(pairs)];
    this.pairOf = new Int32Array(heads.headDim).fill(-1);
    this.memberOf = new Uint8Array(heads.headDim);
    for (let j = 0; j < pairs; j++) {
      for (const k of [0, 1] as const) {
        this.#read[k][j] = steps.readIndex(j, k);
        this.pairOf[steps.writeIndex(j, k)] = j;
        this.memberOf[steps.writeIndex(j, k)] = k;
      }
    }
    this.#input = new Float64Array(heads.headDim);
    this.#weight = heads.norm && (heads.norm.weight.readNumbers() as Float64Array);
    this.#magnitude = Math.max(1, Math.abs(steps.frequencies().attentionFactor));
  }

  anglesOf(token: number): Angles {
    const at = this.heads.ownPositions ? token : token % this.heads.seq;
    return kept(this.#tokens, at, () => this.#computed(positionsOf(this.heads, token)));
  }

  /** The angles of a position on each axis. */
  anglesAt(positions: readonly number[]): Angles {
    const key = positions.length === 1 ? positions[0]! : positions.join();
    return kept(this.#positions, key, () => this.#computed(positions));
  }

  #computed(positions: readonly number[]): Angles {
    const { steps, pairs } = this;
    const cos = new Float64Array(pairs);
    const sin = new Float64Array(pairs);
    const noise = new Float64Array(pairs);
    const { attentionFactor } = steps.frequencies();
    const arithmetic = Math.max(SINE_NOISE, arithmeticNoise(this.heads.dtype));
    for (let j = 0; j < pairs; j++) {
      const position = positions[steps.axisOfPair(j)]!;
      const angle = steps.angle(position, j);
      cos[j] = Math.cos(angle) * attentionFactor;
      sin[j] = Math.sin(angle) * attentionFactor * steps.sign;
      noise[j] = (angleNoise(angle, j, position) + arithmetic) * Math.abs(attentionFactor);
    }
    return { cos, sin, noise };
  }

  /** Row r of x, after the norm if there is one. The next call overwrites the array. */
  input(r: number): Float64Array {
    const { headDim, x, norm } = this.heads;
    const row = this.#input;
    for (let i = 0, at = r * headDim; i < headDim; i++) row[i] = norm ? this.#inputAt(r, i) : x[at + i]!;
    return row;
  }

  /** The observation with the norm applied to x, so that pairs can be looked for. */
  normalized(): Heads {
    const { heads } = this;
    if (!heads.norm) return heads;
    const x = new Float64Array(heads.x.length);
    for (let at = 0; at < x.length; at += heads.headDim) x.set(this.input(at / heads.headDim), at);
    return { ...heads, x, norm: undefined };
  }

  /**
   * Rotates one row into `y`, and writes the noise of each element into `noise`, and the part of it that storing makes into
   * `stored`; all are `[head_dim]`.
   */
  rotate(
    input: Float64Array,
    { cos, sin, noise: loose }: Angles,
    y: Float64Array,
    noise: Float64Array,
    stored?: Float64Array,
  ): void {
    const { dtype, headDim } = this.heads;
    const [read0, read1] = this.#read;
    let size = 0;
    for (let i = 0; i < headDim; i++) size = Math.max(size, Math.abs(input[i]!));
    size *= this.#magnitude;
    const more = this.slack * size;
    for (let i = 0; i < headDim; i++) {
      const j = this.pairOf[i]!;
      if (j < 0) {
        y[i] = input[i]!;
        noise[i] = storedNoise(dtype, input[i]!, size) + more;
        if (stored) stored[i] = noise[i]!;
        continue;
      }
      const x0 = input[read0[j]!]!;
      const x1 = input[read1[j]!]!;
      const [c, s] = [cos[j]!, sin[j]!];
      const value = this.memberOf[i] === 0 ? x0 * c - x1 * s : x0 * s + x1 * c;
      y[i] = value;
      const least = storedNoise(dtype, value, size);
      noise[i] = least + Math.sqrt(x0 * x0 + x1 * x1) * loose[j]! + more;
      if (stored) stored[i] = least;
    }
  }

  /** Computes one element of what {@link rotate} writes for row r. */
  element(r: number, { cos, sin }: Angles, i: number): number {
    const j = this.pairOf[i]!;
    if (j < 0) return this.#inputAt(r, i);
    const [x0, x1] = [this.#inputAt(r, this.#read[0][j]!), this.#inputAt(r, this.#read[1][j]!)];
    return this.memberOf[i] === 0 ? x0 * cos[j]! - x1 * sin[j]! : x0 * sin[j]! + x1 * cos[j]!;
  }

  #inputAt(r: number, i: number): number {
    const { headDim, x, norm } = this.heads;
    const value = x[r * headDim + i]!;
    if (!norm) return value;
    if (this.#rms.row !== r) {
      const row = widened(x.subarray(r * headDim, (r + 1) * headDim));
      const squares = row.reduce((sum, v) => sum + v * v, 0);
      this.#rms = { row: r, value: Math.sqrt(squares / headDim + norm.eps) };
    }
    return (this.#weight![i]! * value) / this.#rms.value;
  }

  /** The dimensions that pair j is read from and written to. */
  membersOf(j: number): { read: readonly [number, number]; write: readonly [number, number] } {
    return {
      read: [this.#read[0][j]!, this.#read[1][j]!],
      write: [this.steps.writeIndex(j, 0), this.steps.writeIndex(j, 1)],
    };
  }

  fill(r: number, y: Float64Array, noise: Float64Array, stored?: Float64Array): void {
    const angles = this.anglesOf(Math.floor(r / this.heads.heads));
    this.rotate(this.input(r), angles, y, noise, stored);
  }

  /** The dimensions of row r that are not as expected. */
  wrongDims(r: number): number[] {
    const { headDim, y } = this.heads;
    const [made, noise] = [new Float64Array(headDim), new Float64Array(headDim)];
    this.fill(r, made, noise);
    return [...made.keys()].filter((i) => !(Math.abs(y[r * headDim + i]! - made[i]!) <= noise[i]!));
  }

  /** Compares every row of y with the right one. */
  compare(): Compared {
    this.#compared ??= this.#compareAll();
    return this.#compared;
  }

  #compareAll(): Compared {
    const { headDim, y, rows } = this.heads;
    const [made, noise, least] = [new Float64Array(headDim), new Float64Array(headDim), new Float64Array(headDim)];
    const [right, wrong]: [number[], number[]] = [[], []];
    const off = new Uint32Array(y.length / headDim);
    const error = new Float32Array(y.length / headDim);
    const stored = new Float64Array(rows.length);
    const offByDim = new Float64Array(headDim);
    let largest: Compared['largest'];
    let farthest = 0;
    for (const [n, r] of rows.entries()) {
      this.fill(r, made, noise, least);
      let [worst, ofStored] = [0, 0];
      for (let i = 0, at = r * headDim; i < headDim; i++) {
        if (y[at + i] === made[i]) continue; // their noise may be 0
        const difference = Math.abs(y[at + i]! - made[i]!);
        if (!(difference <= farthest) && farthest < Infinity) {
          largest = { row: r, dim: i, expected: made[i]! };
          farthest = Number.isNaN(difference) ? Infinity : difference;
        }
        const inStored = difference / least[i]!;
        if (!(inStored <= ofStored)) ofStored = Number.isNaN(inStored) ? Infinity : inStored;
        if (difference <= noise[i]!) continue;
        off[r]!++;
        offByDim[i]!++;
        const ratio = difference / noise[i]!;
        worst = Math.max(worst, Number.isNaN(ratio) ? Infinity : ratio);
      }
      [error[r], stored[n]] = [worst, ofStored];
      (off[r] === 0 ? right : wrong).push(r);
    }
    return { right, wrong, off, error, stored, offByDim, largest: wrong.length > 0 ? largest : undefined };
  }

  /** The largest given position of row r, without its sign. */
  reach(r: number): number {
    return Math.max(...positionsOf(this.heads, Math.floor(r / this.heads.heads)).map(Math.abs));
  }
}
