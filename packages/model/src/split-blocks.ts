/**
 * Splits blocks into integers and factors, for programs whose products take these: weight = scale · code + offset.
 *
 * @module
 */
import { half, i8, scaleOf } from 'ropewalk/internal';
import { type BlockReader, WIDENED } from './dequantize.js';

/** A block format whose weights are integers times scales, perhaps with an offset. */
export interface BlockSplit {
  readonly reader: BlockReader;
  /** The bits of a code, which has a sign: −8 … 7, or −128 … 127. */
  readonly bits: 4 | 8;
  /** The number of neighbours with one scale and one offset. */
  readonly group: 16 | 32;
  readonly hasOffset: boolean;
  /** Writes scale and offset of each group of the block at byte `at`. All are exact in float64. */
  readonly factors: (b: Uint8Array, at: number, scales: Float64Array, offsets: Float64Array) => void;
}

type Factors = BlockSplit['factors'];

const one: Factors = (b, at, scales) => {
  scales[0] = half(b, at);
};

/** d and m; codes are `middle` less than the integers of the file. */
const withMinimum =
  (middle: number): Factors =>
  (b, at, scales, offsets) => {
    scales[0] = half(b, at);
    offsets[0] = half(b, at + 2) + middle * scales[0];
  };

/** q4_K and q5_K: d, dmin, then eight scales and minima of six bits. */
const superBlock =
  (middle: number): Factors =>
  (b, at, scales, offsets) => {
    const [d, dmin] = [half(b, at), half(b, at + 2)];
    for (let s = 0; s < 8; s++) {
      const [scale, minimum] = scaleOf(b, at + 4, s);
      scales[s] = d * scale;
      offsets[s] = middle * scales[s]! - dmin * minimum;
    }
  };

/** A power of two for twice the values of E2M1. */
const MXFP4: Factors = (b, at, scales) => {
  scales[0] = 2 ** (b[at]! - 128);
};

const Q2_K: Factors = (b, at, scales, offsets) => {
  const [d, dmin] = [half(b, at + 80), half(b, at + 82)];
  for (let s = 0; s < 16; s++) {
    scales[s] = d * (b[at + s]! & 15);
    offsets[s] = -dmin * (b[at + s]! >> 4);
  }
};

const Q3_K: Factors = (b, at, scales) => {
  const d = half(b, at + 108);
  for (let s = 0; s < 16; s++) {
    const low = (b[at + 96 + (s & 7)]! >> (s < 8 ? 0 : 4)) & 15;
    scales[s] = d * ((low | (((b[at + 104 + (s & 3)]! >> (2 * (s >> 2))) & 3) << 4)) - 32);
  }
};

const Q6_K: Factors = (b, at, scales) => {
  const d = half(b, at + 208);
  for (let s = 0; s < 16; s++) scales[s] = d * i8(b, at + 192 + s);
};

const IQ4_XS: Factors = (b, at, scales) => {
  const d = half(b, at);
  for (let s = 0; s < 8; s++) {
    const low = (b[at + 4 + (s >> 1)]! >> (4 * (s & 1))) & 15;
    const high = ((b[at + 2 + (s >> 2)]! >> (2 * (s & 3))) & 3) << 4;
    scales[s] = d * ((low | high) - 32);
  }
};

/** Types whose blocks q8_0 holds exactly: 32 integers of 8 bits or fewer, and one f16. */
export const IN_Q8: ReadonlySet<string> = /* @__PURE__ */ new Set(['Q5_0', 'IQ4_NL']);

/** Writes blocks of a type of {@link IN_Q8} as q8_0. A quotient is off by much less than a half; 256 is cut off. */
export function writeQ8(type: string, piece: Uint8Array, out: Uint8Array): void {
  const { bytes, widen } = WIDENED.get(type)!;
  const y = new Float64Array(32);
  for (let from = 0, to = 0; from < piece.length; from += bytes) {
    widen(piece, from, y);
    const d = half(piece, from);
    const inverse = d === 0 ? 0 : 1 / d;
    out[to++] = piece[from]!;
    out[to++] = piece[from + 1]!;
    for (let i = 0; i < 32; i++) out[to++] = y[i]! * inverse + 256.5;
  }
}

function split(name: SplitFormat, bits: 4 | 8, group: 16 | 32, factors: Factors, hasOffset = false) {
  return [name, { reader: WIDENED.get(name.toUpperCase())!, bits, group, hasOffset, factors }] as const;
}

/** The formats, by ggml's names. */
export const SPLIT_FORMATS = [
  ...(['q8_0', 'q4_0', 'q4_1', 'q5_0', 'q5_1', 'iq4_nl', 'mxfp4'] as const),
  ...(['q2_K', 'q3_K', 'q4_K', 'q5_K', 'q6_K', 'iq4_xs'] as const),
] as const;

export type SplitFormat = (typeof SPLIT_FORMATS)[number];

/** How blocks of each format are split. */
export const SPLITS: ReadonlyMap<string, BlockSplit> = /* @__PURE__ */ new Map([
  split('q8_0', 8, 32, one),
  split('q4_0', 4, 32, one),
  split('q4_1', 4, 32, withMinimum(8), true),
  split('q5_0', 8, 32, one),
  split('q5_1', 8, 32, withMinimum(16), true),
  split('iq4_nl', 8, 32, one),
  split('mxfp4', 8, 32, MXFP4),
  split('q2_K', 4, 16, Q2_K, true),
  split('q3_K', 4, 16, Q3_K),
  split('q4_K', 4, 32, superBlock(8), true),
  split('q5_K', 8, 32, superBlock(16), true),
  split('q6_K', 8, 16, Q6_K),
  split('iq4_xs', 8, 32, IQ4_XS),
]);
