/**
 * Rounds floats to ggml's blocks of 32 weights, as ggml's reference functions do, bit for bit.
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
export const QUANTIZED_FORMATS = ['q8_0', 'q4_0'] as const;

export type QuantizedFormat = (typeof QUANTIZED_FORMATS)[number];

const BLOCK = 32;
/** A scale from here on would become an infinite f16. */
const LIMIT = 65520;

/**
 * @param x - whole blocks of numbers
 * @throws {RopewalkError} FORMAT for a number that is not finite, or so large that its block has no scale
 */
export function quantize(x: Float32Array, format: QuantizedFormat, out: Uint8Array, where: string): void {
  const { bytes } = BLOCK_FORMATS[format];
  const codes = format === 'q8_0' ? codesOf8 : codesOf4;
  const bits = new Int32Array(x.buffer, x.byteOffset, x.length);
  for (let from = 0, to = 0; from < x.length; from += BLOCK, to += bytes) {
    // This finds the number of the largest magnitude, the first of equals. Without their sign, bits are in the order of
    // magnitudes, and NaN is above all.
    let size = 0;
    let at = from;
    for (let n = from; n < from + BLOCK; n++) {
      const magnitude = bits[n]! & 0x7fffffff;
      if (magnitude > size) {
        size = magnitude;
        at = n;
      }
    }
    const largest = size > 0 ? x[at]! : 0; // never −0, whose scale would have another sign
    const scale = Math.fround(format === 'q8_0' ? Math.abs(largest) / 127 : largest / -8);
    // `>=` would let NaN pass.
    if (!(Math.abs(scale) < LIMIT)) {
      const next = 'The file is damaged, or has weights that are not to be quantised.';
      refuse('FORMAT', where, `numbers that ${format} holds`, largest, next);
    }
    const half = f16FromNumber(scale);
    out[to] = half & 255;
    out[to + 1] = half >> 8;
    codes(x, bits, from, scale === 0 ? 0 : Math.fround(1 / scale), out, to + 2);
  }
}

// Both functions have no branch in their loops: signs and halves of weights cannot be foreseen.

/** Rounds as C's roundf, halves away from 0: it rounds the magnitude, which then gets the sign of the number. */
function codesOf8(x: Float32Array, bits: Int32Array, from: number, inverse: number, out: Uint8Array, to: number): void {
  for (let j = 0; j < BLOCK; j++) {
    const minus = bits[from + j]! >> 31; // 0 or −1
    out[to + j] = ((Math.fround(Math.abs(x[from + j]!) * inverse) + 0.5) ^ minus) - minus;
  }
}

/** Packs weight j into the low half of byte j, and weight j + 16 into its high half. */
function codesOf4(x: Float32Array, _: Int32Array, from: number, inverse: number, out: Uint8Array, to: number): void {
  for (let j = 0; j < BLOCK / 2; j++) {
    const low = Math.fround(Math.fround(x[from + j]! * inverse) + 8.5) | 0;
    const high = Math.fround(Math.fround(x[from + j + BLOCK / 2]! * inverse) + 8.5) | 0;
    out[to + j] = (low - (low >> 4)) | ((high - (high >> 4)) << 4); // 16 becomes 15
  }
}
