/**
 * The calls of an operator library such as aclnn, and the buffers between them: what they move is counted without
 * running them, and they run on the same description.
 *
 * @module
 */
import { roundTo } from 'ropewalk';

/** Element types that the steps use. */
export type BufferDtype = 'f32' | 'f16' | 'i32';

/** A tensor of a step. Its values are made when they are first asked for: counting asks for none. */
export class Buffer {
  readonly length: number;
  readonly dtype: BufferDtype;
  #values: Float32Array | undefined;

  /** @param values - what an input holds; zeros unless given */
  constructor(length: number, dtype: BufferDtype, values?: Float32Array) {
    this.length = length;
    this.dtype = dtype;
    this.#values = values;
  }

  get bytes(): number {
    return this.length * (this.dtype === 'f16' ? 2 : 4);
  }

  /** Every f16 is an f32, and so is every integer below 2^24. */
  get values(): Float32Array {
    this.#values ??= new Float32Array(this.length);
    return this.#values;
  }

  /** Computes in f32 and rounds to the buffer's type at the store, as aclnn's operators do. */
  fill(value: (n: number) => number): void {
    const { values, dtype, length } = this;
    for (let n = 0; n < length; n++) {
      const computed = Math.fround(value(n));
      values[n] = dtype === 'f16' ? roundTo('f16', computed) : computed;
    }
  }
}

/** One call of an operator. */
export interface OperatorCall {
  readonly reads: readonly Buffer[];
  readonly writes: readonly Buffer[];
  /** Computes `writes` from `reads`. */
  run(): void;
}

/** Describes an operator that computes element n of `out` on its own. */
export function elementwise(out: Buffer, reads: readonly Buffer[], value: (n: number) => number): OperatorCall {
  return { reads, writes: [out], run: () => out.fill(value) };
}
