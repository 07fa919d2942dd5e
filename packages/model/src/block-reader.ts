/**
 * What every reader of a block format has.
 *
 * @module
 */
import { numberFromF16 } from 'ropewalk';

/** A block format: its sizes, and how one block is widened. */
export interface BlockReader {
  readonly weights: number;
  readonly bytes: number;
  /** A 16-bit type that holds every weight exactly, where there is one. */
  readonly exact?: 'f16' | 'bf16';
  /**
   * Writes the weights of the block at byte `at` of `b` to `y` from 0 on. Every one is exact in float64, so rounding it to f32 gives the
   * bits of ggml's `to_float`, the sign of zero included.
   */
  readonly widen: (b: Uint8Array, at: number, y: Float64Array) => void;
}

/** A little-endian u16. */
export function u16(b: Uint8Array, at: number): number {
  return b[at]! | (b[at + 1]! << 8);
}

/** A little-endian f16. */
export function half(b: Uint8Array, at: number): number {
  return numberFromF16(u16(b, at));
}
