/**
 * ggml's block formats that the operators read as they lie in a GGUF file: sizes, and how one block becomes numbers.
 *
 * The names are those of ggml (`ggml_type_name`); a GGUF's own, in capitals, are the same.
 *
 * @module
 * @see ggml-org/ggml@d99724f src/ggml-quants.c, dequantize_row_NAME
 */
import { numberFromF16 } from './float16.js';

/** A block format. */
export type BlockFormat = 'q8_0' | 'q4_0' | 'iq4_nl' | 'mxfp4' | 'q4_K' | 'q5_K' | 'q6_K' | 'iq4_xs';

/** The sizes of a block. */
export interface BlockSizes {
  /** The number of weights, which are neighbours in a row. */
  readonly weights: number;
  readonly bytes: number;
}

/** The layout of a block of a {@link BlockFormat}. */
export interface BlockLayout extends BlockSizes {
  /** The offsets of its f16 scales, in bytes; mxfp4 has none, as its first byte is a power of two. */
  readonly scales: readonly number[];
}

const layout = (weights: number, bytes: number, ...scales: readonly number[]): BlockLayout =>
  Object.freeze({ weights, bytes, scales });

/** The block formats that `linear`, `embedding` and `expertLinear` read. */
export const BLOCK_FORMATS: Readonly<Record<BlockFormat, BlockLayout>> = /* @__PURE__ */ Object.freeze({
  q8_0: /* @__PURE__ */ layout(32, 34, 0),
  q4_0: /* @__PURE__ */ layout(32, 18, 0),
  iq4_nl: /* @__PURE__ */ layout(32, 18, 0),
  mxfp4: /* @__PURE__ */ layout(32, 17),
  q4_K: /* @__PURE__ */ layout(256, 144, 0, 2),
  q5_K: /* @__PURE__ */ layout(256, 176, 0, 2),
  q6_K: /* @__PURE__ */ layout(256, 210, 208),
  iq4_xs: /* @__PURE__ */ layout(256, 136, 0),
});

/** The names of the block formats. */
export const BLOCK_FORMAT_NAMES: readonly BlockFormat[] = /* @__PURE__ */ Object.freeze(
  Object.keys(BLOCK_FORMATS) as BlockFormat[],
);

/**
 * Writes the weights of the block at byte `at` of `b` to `y`, from index 0 on. Every weight is exact in float64, so
 * rounding it to f32 gives the bits of ggml's `to_float`, including the sign of zero.
 */
export type WidenBlock = (b: Uint8Array, at: number, y: Float64Array) => void;

/** Reads a little-endian u16. */
export function u16(b: Uint8Array, at: number): number {
  return b[at]! | (b[at + 1]! << 8);
}

/** Reads a little-endian f16. */
export function half(b: Uint8Array, at: number): number {
  return numberFromF16(u16(b, at));
}

/** Reads a signed byte. */
export function i8(b: Uint8Array, at: number): number {
  return (b[at]! << 24) >> 24;
}

/** The values of q4_0's codes. */
const Q4 = /* @__PURE__ */ Array.from({ length: 16 }, (_, code) => code - 8);
/** The values of IQ4's codes. */
const IQ4 = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
/** Twice the values of E2M1: a sign, two bits of exponent, one of mantissa. Code 8 is plain zero in ggml. */
export const E2M1: readonly number[] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/** Writes weights of 4 bits from `count / 2` bytes in two halves: byte j holds weights j and j + count / 2. */
export function writeHalves(
  y: Float64Array,
  to: number,
  scale: number,
  values: readonly number[],
  b: Uint8Array,
  at: number,
  count: 16 | 32,
): void {
  const middle = count / 2;
  for (let j = 0; j < middle; j++) {
    y[to + j] = scale * values[b[at + j]! & 15]!;
    y[to + middle + j] = scale * values[b[at + j]! >> 4]!;
  }
}

/** Reads scale and minimum of sub-block s of 8: six bits each, packed into twelve bytes. */
export function scaleOf(b: Uint8Array, at: number, s: number): [scale: number, minimum: number] {
  if (s < 4) return [b[at + s]! & 63, b[at + s + 4]! & 63];
  const both = b[at + s + 4]!;
  return [(both & 15) | ((b[at + s - 4]! >> 6) << 4), (both >> 4) | ((b[at + s]! >> 6) << 4)];
}

/**
 * Widens 256 weights in 8 sub-blocks of 32: d, dmin, 12 bytes of scales, the fifth bits where the format has them (bit s of
 * byte i for weight i of sub-block s), then 128 bytes: sub-blocks 2c and 2c + 1 are the low and the high halves of
 * bytes 32c … 32c + 31. Weight: d·scale·q − dmin·minimum.
 */
function superBlock(b: Uint8Array, at: number, y: Float64Array, bits: 4 | 5): void {
  const fifths = 16;
  const halves = fifths + (bits === 5 ? 32 : 0);
  const d = half(b, at);
  const dmin = half(b, at + 2);
  for (let s = 0; s < 8; s++) {
    const [scale, minimum] = scaleOf(b, at + 4, s);
    const step = d * scale;
    const offset = dmin * minimum;
    for (let i = 0; i < 32; i++) {
      const byte = b[at + halves + (s >> 1) * 32 + i]!;
      const low = s % 2 === 0 ? byte & 15 : byte >> 4;
      const high = bits === 5 ? (b[at + fifths + i]! >> s) & 1 : 0;
      y[32 * s + i] = step * (low + 16 * high) - offset;
    }
  }
}

/** Functions that widen a block of each format. */
export const WIDEN_BLOCK: Readonly<Record<BlockFormat, WidenBlock>> = {
  /** d, then 32 signed bytes. Weight: d·q. */
  q8_0(b, at, y) {
    const d = half(b, at);
    for (let j = 0; j < 32; j++) y[j] = d * i8(b, at + 2 + j);
  },

  /** d, then 16 bytes: weight j is the low half of byte j, weight j + 16 its high half. Weight: d·(q − 8). */
  q4_0: (b, at, y) => writeHalves(y, 0, half(b, at), Q4, b, at + 2, 32),

  /** The layout of q4_0, with codes. */
  iq4_nl: (b, at, y) => writeHalves(y, 0, half(b, at), IQ4, b, at + 2, 32),

  /** A power of two, E8M0 (255, NaN in the specification, is 2^128 as in ggml), then 16 bytes of E2M1. */
  mxfp4: (b, at, y) => writeHalves(y, 0, 2 ** (b[at]! - 128), E2M1, b, at + 1, 32),

  q4_K: (b, at, y) => superBlock(b, at, y, 4),

  q5_K: (b, at, y) => superBlock(b, at, y, 5),

  /**
   * 16 sub-blocks of 16: 128 bytes of low halves, 64 of high pairs, 16 signed scales, d. In each half of 128, quarter c
   * of 32: low bits from byte 32·(c mod 2) + i, low half for c < 2; high bits 2c of byte i. Weight: d·scale·(q − 32).
   */
  q6_K(b, at, y) {
    const d = half(b, at + 208);
    for (let n = 0; n < 2; n++) {
      for (let c = 0; c < 4; c++) {
        for (let i = 0; i < 32; i++) {
          const byte = b[at + 64 * n + 32 * (c % 2) + i]!;
          const low = c < 2 ? byte & 15 : byte >> 4;
          const high = (b[at + 128 + 32 * n + i]! >> (2 * c)) & 3;
          const scale = i8(b, at + 192 + 8 * n + 2 * c + (i >> 4));
          y[128 * n + 32 * c + i] = d * scale * ((low | (high << 4)) - 32);
        }
      }
    }
  },

  /**
   * 8 sub-blocks of 32: d, a u16 of the scales' two high bits, 4 bytes of their low bits, 128 bytes of codes as in
   * iq4_nl. Weight: d·(scale − 32)·value.
   */
  iq4_xs(b, at, y) {
    const d = half(b, at);
    for (let s = 0; s < 8; s++) {
      const low = (b[at + 4 + (s >> 1)]! >> (4 * (s & 1))) & 15;
      const high = (u16(b, at + 2) >> (2 * s)) & 3;
      writeHalves(y, 32 * s, d * ((low | (high << 4)) - 32), IQ4, b, at + 8 + 16 * s, 32);
    }
  },
};
