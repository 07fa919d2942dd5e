/**
 * Floats → ggml's blocks of 32 weights, as ggml's reference functions round them, bit for bit.
 *
 * Each operation rounds to f32, as C's do. A build of ggml that fuses `x·id + 8.5` into one operation may differ by one
 * in a code of q4_0.
 *
 * @module
 * @see ggml-org/ggml@d99724f src/ggml-quants.c, quantize_row_q8_0_ref and quantize_row_q4_0_ref
 */
import { BLOCK_FORMATS, f16FromNumber } from 'ropewalk';
import { refuse } from 'ropewalk/backend';

/** The block formats that floats are rounded to. */
export const QUANTISED_FORMATS = ['q8_0', 'q4_0'] as const;

/** One of them. */
export type QuantisedFormat = (typeof QUANTISED_FORMATS)[number];

const BLOCK = 32;
/** A scale that would become an infinite f16. */
const LIMIT = 65520;

/**
 * Rounds floats to blocks.
 *
 * @param x - whole blocks of numbers
 * @param out - the blocks, one after the other
 * @param where - names the weight in messages
 * @throws {RopewalkError} FORMAT for a number that is not finite, or so large that its block has no scale
 */
export function quantise(x: Float32Array, format: QuantisedFormat, out: Uint8Array, where: string): void {
  const { bytes } = BLOCK_FORMATS[format];
  const codes = format === 'q8_0' ? codesOf8 : codesOf4;
  for (let from = 0, to = 0; from < x.length; from += BLOCK, to += bytes) {
    // The number of the largest magnitude, the first of equals, with its sign.
    let largest = 0;
    let size = 0;
    for (let n = from; n < from + BLOCK; n++) {
      const magnitude = Math.abs(x[n]!);
      if (magnitude > size) [largest, size] = [x[n]!, magnitude];
      else if (Number.isNaN(magnitude)) [largest, size] = [NaN, Infinity];
    }
    const scale = Math.fround(format === 'q8_0' ? size / 127 : largest / -8);
    // `>=` would let NaN pass.
    if (!(Math.abs(scale) < LIMIT)) {
      const next = 'The file is damaged, or has weights that are not to be quantised.';
      refuse('FORMAT', where, `numbers that ${format} holds`, largest, next);
    }
    const bits = f16FromNumber(scale);
    out[to] = bits & 255;
    out[to + 1] = bits >> 8;
    codes(x, from, scale === 0 ? 0 : Math.fround(1 / scale), out, to + 2);
  }
}

/** C's roundf: halves away from 0. */
function codesOf8(x: Float32Array, from: number, inverse: number, out: Uint8Array, to: number): void {
  for (let j = 0; j < BLOCK; j++) {
    const q = Math.fround(x[from + j]! * inverse);
    out[to + j] = q < 0 ? -Math.floor(0.5 - q) : Math.floor(q + 0.5);
  }
}

/** Byte j has weight j in its low half, weight j + 16 in its high half. */
function codesOf4(x: Float32Array, from: number, inverse: number, out: Uint8Array, to: number): void {
  const code = (n: number): number => Math.min(15, Math.fround(Math.fround(x[n]! * inverse) + 8.5) | 0);
  for (let j = 0; j < BLOCK / 2; j++) out[to + j] = code(from + j) | (code(from + j + BLOCK / 2) << 4);
}
