/**
 * ggml's block formats that no kernel multiplies: widened once, at load.
 *
 * They become f16. A block's own step is coarse (a Q6_K weight has 6 bits), so f16's 11 add less than a thousandth of it, and take half the
 * memory of f32. Weights beyond f16 (65504) do not exist in real models and are refused.
 *
 * @module
 * @see ggml-org/ggml@d99724f src/ggml-quants.c, dequantize_row_NAME; gguf-py/gguf/quants.py of ggml-org/llama.cpp@150f157
 */
import { refuse } from '../core/errors.js';
import { f16FromNumber, numberFromF16 } from '../core/float16.js';

/** A block format: its sizes, and how one block is widened. */
export interface BlockReader {
  readonly weights: number;
  readonly bytes: number;
  /** Writes the weights of the block at byte `at` of `b` to `y` from `to` on. */
  readonly widen: (b: Uint8Array, at: number, y: Float64Array, to: number) => void;
}

/** A little-endian f16. */
function half(b: Uint8Array, at: number): number {
  return numberFromF16(b[at]! | (b[at + 1]! << 8));
}

function signed(byte: number): number {
  return (byte << 24) >> 24;
}

/**
 * 32 weights of `bits` each: d, then m where the format has one, then the fifth bits where it has those, then 16 bytes of two halves. Weight
 * j is the low half of byte j, weight j + 16 the high half. With m: d·q + m. Without: d·(q − 2^(bits−1)).
 */
function small(bits: 4 | 5, hasMinimum: boolean): BlockReader {
  const fifths = hasMinimum ? 4 : 2;
  const halves = fifths + (bits === 5 ? 4 : 0);
  return {
    weights: 32,
    bytes: halves + 16,
    widen(b, at, y, to) {
      const d = half(b, at);
      const m = hasMinimum ? half(b, at + 2) : -d * 2 ** (bits - 1);
      for (let j = 0; j < 32; j++) {
        const byte = b[at + halves + (j % 16)]!;
        const low = j < 16 ? byte & 15 : byte >> 4;
        const high = bits === 5 ? (b[at + fifths + (j >> 3)]! >> (j & 7)) & 1 : 0;
        y[to + j] = d * (low + 16 * high) + m;
      }
    },
  };
}

/** Scale and minimum of sub-block s of 8: six bits each, packed into twelve bytes. */
function scaleOf(b: Uint8Array, at: number, s: number): [scale: number, minimum: number] {
  if (s < 4) return [b[at + s]! & 63, b[at + s + 4]! & 63];
  const both = b[at + s + 4]!;
  return [(both & 15) | ((b[at + s - 4]! >> 6) << 4), (both >> 4) | ((b[at + s]! >> 6) << 4)];
}

/**
 * 256 weights in 8 sub-blocks of 32: d, dmin, 12 bytes of scales, the fifth bits where the format has them (bit s of byte i for weight i of
 * sub-block s), then 128 bytes: sub-blocks 2c and 2c + 1 are the low and the high halves of bytes 32c … 32c + 31. Weight: d·scale·q − dmin·minimum.
 */
function superBlock(bits: 4 | 5): BlockReader {
  const fifths = 16;
  const halves = fifths + (bits === 5 ? 32 : 0);
  return {
    weights: 256,
    bytes: halves + 128,
    widen(b, at, y, to) {
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
          y[to + 32 * s + i] = step * (low + 16 * high) - offset;
        }
      }
    },
  };
}

/**
 * 256 weights in 16 sub-blocks of 16: 128 bytes of low halves, 64 of high pairs, 16 signed scales, d. In each half of 128, quarter c of 32:
 * low bits from byte 32·(c mod 2) + i, low half for c < 2; high bits 2c of byte i. Weight: d·scale·(q − 32).
 */
const Q6_K: BlockReader = {
  weights: 256,
  bytes: 210,
  widen(b, at, y, to) {
    const d = half(b, at + 208);
    for (let n = 0; n < 2; n++) {
      for (let c = 0; c < 4; c++) {
        for (let i = 0; i < 32; i++) {
          const byte = b[at + 64 * n + 32 * (c % 2) + i]!;
          const low = c < 2 ? byte & 15 : byte >> 4;
          const high = (b[at + 128 + 32 * n + i]! >> (2 * c)) & 3;
          const scale = signed(b[at + 192 + 8 * n + 2 * c + (i >> 4)]!);
          y[to + 128 * n + 32 * c + i] = d * scale * ((low | (high << 4)) - 32);
        }
      }
    }
  },
};

/** 32 weights: d, then signed bytes. Only vectors are widened from this; matrices stay as they are. */
const Q8_0: BlockReader = {
  weights: 32,
  bytes: 34,
  widen(b, at, y, to) {
    const d = half(b, at);
    for (let j = 0; j < 32; j++) y[to + j] = d * signed(b[at + 2 + j]!);
  },
};

/** By GGUF's names. */
export const WIDENED: ReadonlyMap<string, BlockReader> = /* @__PURE__ */ new Map([
  ['Q4_0', small(4, false)],
  ['Q4_1', small(4, true)],
  ['Q5_0', small(5, false)],
  ['Q5_1', small(5, true)],
  ['Q8_0', Q8_0],
  ['Q4_K', superBlock(4)],
  ['Q5_K', superBlock(5)],
  ['Q6_K', Q6_K],
]);

/**
 * Widens whole blocks.
 *
 * @param format - of {@link WIDENED}
 * @param bytes - whole blocks
 * @param where - file and tensor, for the message
 * @param out - f16 bits, or f32; one element a weight
 * @throws {RopewalkError} FORMAT for a weight that the result cannot hold: a forged scale
 */
export function widenBlocks(format: BlockReader, bytes: Uint8Array, where: string, out: Uint16Array | Float32Array): void {
  const y = new Float64Array(format.weights);
  for (let at = 0, to = 0; at + format.bytes <= bytes.length; at += format.bytes, to += format.weights) {
    format.widen(bytes, at, y, 0);
    if (out instanceof Float32Array) out.set(y, to);
    else for (let i = 0; i < y.length; i++) out[to + i] = f16FromNumber(y[i]!);
    for (let i = 0; i < y.length; i++) {
      if (Math.abs(y[i]!) < 65520) continue; // NaN is no less
      refuse('FORMAT', where, 'weights within ±65504', y[i], 'The file is damaged or forged.');
    }
  }
}
