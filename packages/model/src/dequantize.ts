/**
 * Widens weights in ggml's block formats when a model is loaded, if the backend does not read the format.
 *
 * @module
 * @see ggml-org/ggml@d99724f src/ggml-quants.c, dequantize_row_NAME; gguf-py/gguf/quants.py of
 *   ggml-org/llama.cpp@150f157
 */

import { BLOCK_FORMATS, bf16FromNumber, f16FromNumber } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import {
  BLOCK_FORMAT_NAMES,
  type BlockSizes,
  E2M1,
  half,
  u16,
  WIDEN_BLOCK,
  type WidenBlock,
  writeHalves,
} from 'ropewalk/internal';
import * as iq from './dequantize-iq.js';

/** A block format: its sizes, and the function that widens one block. */
export interface BlockReader extends BlockSizes {
  readonly widen: WidenBlock;
  /** The 16-bit type that holds every weight exactly, if there is one. */
  readonly exact?: 'f16' | 'bf16';
}

/**
 * Blocks of 32 weights of `bits` each: d, then m for formats with a minimum, then the fifth bits of 5-bit formats, then
 * 16 bytes of two halves. Weight j is the low half of byte j, weight j + 16 the high half. A weight is d·q + m, or
 * without m d·(q − 2^(bits−1)).
 */
function small(bits: 4 | 5, hasMinimum: boolean): BlockReader {
  const fifths = hasMinimum ? 4 : 2;
  const halves = fifths + (bits === 5 ? 4 : 0);
  return {
    weights: 32,
    bytes: halves + 16,
    widen(b, at, y) {
      const d = half(b, at);
      const m = hasMinimum ? half(b, at + 2) : -0; // which leaves the sign of a zero
      const middle = hasMinimum ? 0 : 2 ** (bits - 1);
      const high = bits === 5 ? u16(b, at + fifths) | (u16(b, at + fifths + 2) << 16) : 0;
      for (let j = 0; j < 16; j++) {
        const byte = b[at + halves + j]!;
        y[j] = d * (((byte & 15) | (((high >> j) & 1) << 4)) - middle) + m;
        y[j + 16] = d * (((byte >> 4) | (((high >> (j + 16)) & 1) << 4)) - middle) + m;
      }
    },
  };
}

/**
 * 256 weights in 16 sub-blocks of 16: 16 bytes of scale and minimum, 4 bits each; 64 bytes of weights, d, dmin. In each
 * half of 128, quarter c of 32 is bits 2c of its 32 bytes. Weight: d·scale·q − dmin·minimum.
 */
const Q2_K: WidenBlock = (b, at, y) => {
  const d = half(b, at + 80);
  const dmin = half(b, at + 82);
  for (let s = 0; s < 16; s++) {
    const scale = d * (b[at + s]! & 15);
    const offset = dmin * (b[at + s]! >> 4);
    for (let i = 0; i < 16; i++) y[16 * s + i] = scale * quarterOf(b, at + 16, 16 * s + i) - offset;
  }
};

/**
 * 256 weights in 16 sub-blocks of 16: 32 bytes of high bits (bit s of byte i for weight i of the eighth s), 64 bytes of
 * low bits as in Q2_K, 12 bytes of scales, 6 bits each, d. Weight: d·(scale − 32)·(q − 4).
 */
const Q3_K: WidenBlock = (b, at, y) => {
  const d = half(b, at + 108);
  for (let s = 0; s < 16; s++) {
    const low = (b[at + 96 + (s & 7)]! >> (s < 8 ? 0 : 4)) & 15;
    const high = (b[at + 104 + (s & 3)]! >> (2 * (s >> 2))) & 3;
    const scale = d * ((low | (high << 4)) - 32);
    for (let n = 16 * s; n < 16 * s + 16; n++) {
      const third = (b[at + (n & 31)]! >> (n >> 5)) & 1;
      y[n] = scale * (quarterOf(b, at + 32, n) + 4 * third - 4);
    }
  }
};

/** Reads weight n of 64 bytes of two bits: in each half of 128, quarter c of 32 is bits 2c of its 32 bytes. */
function quarterOf(b: Uint8Array, at: number, n: number): number {
  return (b[at + 32 * (n >> 7) + (n & 31)]! >> (2 * ((n >> 5) & 3))) & 3;
}

/** 64 weights in 4 sub-blocks of 16: 4 scales, unsigned E4M3, then 32 bytes of E2M1. Scale 127 is 0, as in ggml. */
const NVFP4: WidenBlock = (b, at, y) => {
  for (let s = 0; s < 4; s++) {
    const [exponent, mantissa] = [(b[at + s]! >> 3) & 15, b[at + s]! & 7];
    const scale = exponent === 0 ? mantissa * 2 ** -10 : (1 + mantissa / 8) * 2 ** (exponent - 8);
    writeHalves(y, 16 * s, b[at + s] === 127 ? 0 : scale, E2M1, b, at + 4 + 8 * s, 16);
  }
};

/** Powers of three modulo 256, which move digit n of a byte of five ternary digits to the front. */
const TO_FRONT = [1, 3, 9, 27, 81];

/**
 * 256 weights of -1, 0 or 1: 48 bytes of five ternary digits (first 32 bytes for weights 0 … 159, then 16 for 160 …
 * 239; digit n of all bytes, then digit n + 1), 4 bytes of four, d.
 */
const TQ1_0: WidenBlock = (b, at, y) => {
  const d = half(b, at + 52);
  let to = 0;
  for (const [start, count, digits] of [
    [0, 32, 5],
    [32, 16, 5],
    [48, 4, 4],
  ] as const) {
    for (let n = 0; n < digits; n++) {
      for (let j = 0; j < count; j++) {
        const fraction = (b[at + start + j]! * TO_FRONT[n]!) & 255;
        y[to++] = d * (((fraction * 3) >> 8) - 1);
      }
    }
  }
};

/** 256 weights of -1, 0, 1 or 2: 64 bytes as in Q2_K, d. */
const TQ2_0: WidenBlock = (b, at, y) => {
  const d = half(b, at + 64);
  for (let n = 0; n < 256; n++) y[n] = d * (quarterOf(b, at, n) - 1);
};

/** 128 weights of -d or d: d, then a bit each, set for d. */
const Q1_0: WidenBlock = (b, at, y) => {
  const d = half(b, at);
  for (let n = 0; n < 128; n++) y[n] = (b[at + 2 + (n >> 3)]! >> (n & 7)) & 1 ? d : -d;
};

/** 64 weights of -d, 0, d or 2d: d, then two bits each. */
const Q2_0: WidenBlock = (b, at, y) => {
  const d = half(b, at);
  for (let n = 0; n < 64; n++) y[n] = d * (((b[at + 2 + (n >> 2)]! >> (2 * (n & 3))) & 3) - 1);
};

/** The formats that backends read as they are stored, by GGUF's names. */
const KERNELS = /* @__PURE__ */ BLOCK_FORMAT_NAMES.map((name): [string, BlockReader] => {
  const reader = { ...BLOCK_FORMATS[name], widen: WIDEN_BLOCK[name] };
  return [name.toUpperCase(), name === 'mxfp4' ? { ...reader, exact: 'bf16' } : reader];
});

/** All formats, by GGUF's names. */
export const WIDENED: ReadonlyMap<string, BlockReader> = /* @__PURE__ */ new Map<string, BlockReader>([
  ...KERNELS,
  ['Q4_1', small(4, true)],
  ['Q5_0', small(5, false)],
  ['Q5_1', small(5, true)],
  ['Q2_K', { weights: 256, bytes: 84, widen: Q2_K }],
  ['Q3_K', { weights: 256, bytes: 110, widen: Q3_K }],
  ['NVFP4', { weights: 64, bytes: 36, widen: NVFP4, exact: 'bf16' }],
  ['TQ1_0', { weights: 256, bytes: 54, widen: TQ1_0, exact: 'f16' }],
  ['TQ2_0', { weights: 256, bytes: 66, widen: TQ2_0, exact: 'f16' }],
  ['Q1_0', { weights: 128, bytes: 18, widen: Q1_0, exact: 'f16' }],
  ['Q2_0', { weights: 64, bytes: 18, widen: Q2_0, exact: 'f16' }],
  ['IQ1_S', { weights: 256, bytes: 50, widen: iq.IQ1_S }],
  ['IQ1_M', { weights: 256, bytes: 56, widen: iq.IQ1_M }],
  ['IQ2_XXS', { weights: 256, bytes: 66, widen: iq.IQ2_XXS }],
  ['IQ2_XS', { weights: 256, bytes: 74, widen: iq.IQ2_XS }],
  ['IQ2_S', { weights: 256, bytes: 82, widen: iq.IQ2_S }],
  ['IQ3_XXS', { weights: 256, bytes: 98, widen: iq.IQ3_XXS }],
  ['IQ3_S', { weights: 256, bytes: 110, widen: iq.IQ3_S }],
]);

/** The rounding to each type, and the smallest magnitude that becomes infinite. */
export const ROUND = {
  f16: { from: f16FromNumber, limit: 65520 },
  bf16: { from: bf16FromNumber, limit: 2 ** 128 - 2 ** 119 },
  f32: { from: Math.fround, limit: 2 ** 128 - 2 ** 103 },
} as const;

/** Refuses a weight that a type cannot hold. */
export function refuseUnheld(where: string, held: keyof typeof ROUND, value: unknown): never {
  const next = held === 'f16' ? 'Take bf16 or f32, unless the file is damaged.' : 'The file is damaged or forged.';
  return refuse('FORMAT', where, `weights that ${held} holds`, value, next);
}

/** Widens whole blocks to `held`, rounding each weight once. @throws {RopewalkError} FORMAT for a forged scale */
export function widenBlocks(
  format: BlockReader,
  bytes: Uint8Array,
  where: string,
  held: keyof typeof ROUND,
  out: Uint16Array | Float32Array,
): void {
  const { from, limit } = ROUND[held];
  const y = new Float64Array(format.weights);
  for (let at = 0, to = 0; at + format.bytes <= bytes.length; at += format.bytes, to += format.weights) {
    format.widen(bytes, at, y);
    for (let i = 0; i < y.length; i++) {
      // `>=` would let NaN pass.
      if (!(Math.abs(y[i]!) < limit)) refuseUnheld(where, held, y[i]);
      out[to + i] = from(y[i]!);
    }
  }
}
