import { type Heads, rowAt } from '../read/observation.js';
import { angleNoise, arithmeticNoise, SINE_NOISE, storedNoise } from './noise.js';
import type { RopeSteps } from './steps.js';

/** cos and sin of each pair, times the magnitude and the direction. */
export interface Angles {
  readonly cos: Float64Array;
  readonly sin: Float64Array;
  /** The noise of a pair of length 1 beyond its rounding: angles in f32, fast sines, arithmetic in 16 bits. */
  readonly noise: Float64Array;
}

/** Tokens whose angles are kept. */
const MAX_KEPT = 2 ** 14;

/** Rows that a right kernel writes, and the noise of each element. */
export class RightRows {
  readonly pairs: number;
  /** The pair that writes each dimension; −1 where none does. */
  readonly pairOf: Int32Array;
  /** Which member of its pair each dimension is. */
  readonly memberOf: Uint8Array;
  readonly #steps: RopeSteps;
  readonly #heads: Heads;
  readonly #read: readonly [Int32Array, Int32Array];
  readonly #tokens = new Map<number, Angles>();
  readonly #input: Float64Array;
  readonly #weight: Float64Array | undefined;
  readonly #magnitude: number;
  #rms = { row: -1, value: 1 };

  /** @param steps - of the right kernel, from a spec */
  constructor(steps: RopeSteps, heads: Heads) {
    this.#steps = steps;
    this.#heads = heads;
    this.pairs = steps.pairs;
    const list = Array.from({ length: steps.pairs }, (_what, j) => j);
    this.#read = [
      Int32Array.from(list, (j) => steps.readIndex(j, 0)),
      Int32Array.from(list, (j) => steps.readIndex(j, 1)),
    ];
    this.pairOf = new Int32Array(heads.headDim).fill(-1);
    this.memberOf = new Uint8Array(heads.headDim);
    for (const j of list) {
      for (const k of [0, 1] as const) {
        this.pairOf[steps.writeIndex(j, k)] = j;
        this.memberOf[steps.writeIndex(j, k)] = k;
      }
    }
    this.#input = new Float64Array(heads.headDim);
    this.#weight = heads.norm && (heads.norm.weight.readNumbers() as Float64Array);
    this.#magnitude = Math.max(1, Math.abs(steps.frequencies().attentionFactor));
  }

  /** The angles of a token of `[batch, seq]`. */
  anglesOf(token: number): Angles {
    const at = this.#heads.ownPositions ? token : token % this.#heads.seq;
    const known = this.#tokens.get(at);
    if (known) return known;
    if (this.#tokens.size >= MAX_KEPT) this.#tokens.clear();
    const angles = this.anglesAt(this.positionsOf(token));
    this.#tokens.set(at, angles);
    return angles;
  }

  /** The given position of a token of `[batch, seq]` on each axis. */
  positionsOf(token: number): number[] {
    const { numAxes, batch, seq, positions } = this.#heads;
    return Array.from({ length: numAxes }, (_what, a) => positions[a * batch * seq + token]!);
  }

  /** The angles of a position. */
  anglesAt(positions: readonly number[]): Angles {
    const steps = this.#steps;
    const [cos, sin, noise] = [0, 1, 2].map(() => new Float64Array(this.pairs)) as [
      Float64Array,
      Float64Array,
      Float64Array,
    ];
    const { attentionFactor } = steps.frequencies();
    const arithmetic = Math.max(SINE_NOISE, arithmeticNoise(this.#heads.dtype));
    for (let j = 0; j < this.pairs; j++) {
      const angle = steps.angle(positions[steps.axisOfPair(j)]!, j);
      cos[j] = Math.cos(angle) * attentionFactor;
      sin[j] = Math.sin(angle) * attentionFactor * steps.sign;
      noise[j] = (angleNoise(angle, j) + arithmetic) * Math.abs(attentionFactor);
    }
    return { cos, sin, noise };
  }

  /** Row r of x, after the norm where there is one. The array is overwritten by the next call. */
  input(r: number): Float64Array {
    const { headDim, x, norm } = this.#heads;
    const row = this.#input;
    for (let i = 0, at = r * headDim; i < headDim; i++) row[i] = x[at + i]!;
    if (norm) row.set(this.#steps.normalise(row, this.#weight!, norm.eps));
    return row;
  }

  /** Rotates one row into `y`, and the noise of each element into `noise`: `[head_dim]` each. */
  rotate(input: Float64Array, { cos, sin, noise: loose }: Angles, y: Float64Array, noise: Float64Array): void {
    const { dtype, headDim } = this.#heads;
    const [read0, read1] = this.#read;
    let size = 0;
    for (let i = 0; i < headDim; i++) size = Math.max(size, Math.abs(input[i]!));
    size *= this.#magnitude;
    for (let i = 0; i < headDim; i++) {
      const j = this.pairOf[i]!;
      if (j < 0) {
        y[i] = input[i]!;
        noise[i] = storedNoise(dtype, input[i]!, size);
        continue;
      }
      const x0 = input[read0[j]!]!;
      const x1 = input[read1[j]!]!;
      const [c, s] = [cos[j]!, sin[j]!];
      const value = this.memberOf[i] === 0 ? x0 * c - x1 * s : x0 * s + x1 * c;
      y[i] = value;
      noise[i] = storedNoise(dtype, value, size) + Math.sqrt(x0 * x0 + x1 * x1) * loose[j]!;
    }
  }

  /** One element of what {@link rotate} makes of row r. */
  element(r: number, { cos, sin }: Angles, i: number): number {
    const j = this.pairOf[i]!;
    if (j < 0) return this.#inputAt(r, i);
    const [x0, x1] = [this.#inputAt(r, this.#read[0][j]!), this.#inputAt(r, this.#read[1][j]!)];
    return this.memberOf[i] === 0 ? x0 * cos[j]! - x1 * sin[j]! : x0 * sin[j]! + x1 * cos[j]!;
  }

  #inputAt(r: number, i: number): number {
    const { headDim, x, norm } = this.#heads;
    const value = x[r * headDim + i]!;
    if (!norm) return value;
    if (this.#rms.row !== r) {
      let squares = 0;
      for (let at = r * headDim; at < (r + 1) * headDim; at++) squares += x[at]! * x[at]!;
      this.#rms = { row: r, value: Math.sqrt(squares / headDim + norm.eps) };
    }
    return (this.#weight![i]! * value) / this.#rms.value;
  }

  /** The dimensions that pair j is read from and written to. */
  membersOf(j: number): { read: readonly [number, number]; write: readonly [number, number] } {
    const steps = this.#steps;
    return {
      read: [this.#read[0][j]!, this.#read[1][j]!],
      write: [steps.writeIndex(j, 0), steps.writeIndex(j, 1)],
    };
  }

  /** What a right kernel writes to row r. */
  fill(r: number, y: Float64Array, noise: Float64Array): void {
    this.rotate(this.input(r), this.anglesOf(Math.floor(r / this.#heads.heads)), y, noise);
  }

  /** By row: the largest error of y in units of `stored` noise, Infinity where y is not finite. */
  storedErrors(): Float64Array {
    const { heads, headDim, y } = this.#heads;
    const [made, noise] = [new Float64Array(headDim), new Float64Array(headDim)];
    const none = new Float64Array(this.pairs);
    return Float64Array.from({ length: y.length / headDim }, (_what, r) => {
      const angles = this.anglesOf(Math.floor(r / heads));
      this.rotate(this.input(r), { ...angles, noise: none }, made, noise);
      let worst = 0;
      for (let i = 0, at = r * headDim; i < headDim; i++) {
        if (y[at + i] === made[i]) continue; // their noise may be 0
        const ratio = Math.abs(y[at + i]! - made[i]!) / noise[i]!;
        if (!(ratio <= worst)) worst = Number.isNaN(ratio) ? Infinity : ratio;
      }
      return worst;
    });
  }

  /** The largest given position of row r, without its sign. */
  reach(r: number): number {
    const { batch, seq } = rowAt(this.#heads, r);
    return Math.max(...this.positionsOf(batch * this.#heads.seq + seq).map(Math.abs));
  }
}
