/** What the readers of block formats share. @module */
import { numberFromF16 } from 'ropewalk';

/**
 * Writes the weights of the block at byte `at` of `b` to `y`, from index 0 on. Every weight is exact in float64, so
 * rounding it to f32 gives the bits of ggml's `to_float`, including the sign of zero.
 */
export type Widen = (b: Uint8Array, at: number, y: Float64Array) => void;

/** A block format: its sizes, and how one block is widened. */
export interface BlockReader {
  readonly weights: number;
  readonly bytes: number;
  readonly widen: Widen;
  /** A 16-bit type that holds every weight exactly, if there is one. */
  readonly exact?: 'f16' | 'bf16';
}

/** A little-endian u16. */
export function u16(b: Uint8Array, at: number): number {
  return b[at]! | (b[at + 1]! << 8);
}

/** A little-endian f16. */
export function half(b: Uint8Array, at: number): number {
  return numberFromF16(u16(b, at));
}
