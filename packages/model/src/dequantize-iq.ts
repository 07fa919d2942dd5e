/**
 * Widens ggml's formats whose weights come in groups from a grid: IQ1, IQ2 and IQ3. A code picks 8 (IQ3: 4) absolute
 * values at once, and signs are stored beside it; IQ1's grid holds -1, 0 and 1 itself. All blocks have 256 weights in 8
 * sub-blocks of 32, of 4 groups of 8.
 *
 * @module
 * @see ggml-org/ggml@d99724f src/ggml-quants.c, dequantize_row_iqNAME; src/ggml-common.h for the structs and the grids
 */
import { half, u16, type WidenBlock } from 'ropewalk/internal';
import * as packed from './iq-grids.generated.js';

/** Returns a grid's values, entry after entry. They are unpacked at the first use. */
function grid(text: string, values: readonly number[]): () => Float64Array {
  let unpacked: Float64Array | undefined;
  return () => (unpacked ??= unpack(text, values));
}

/** Unpacks codes of 2 bits for up to 4 values, of 3 bits for 8; lowest bits first. */
function unpack(text: string, values: readonly number[]): Float64Array {
  const bits = values.length > 4 ? 3 : 2;
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  return Float64Array.from({ length: (bytes.length * 8) / bits }, (_value, n) => {
    const at = n * bits;
    return values[((bytes[at >> 3]! | ((bytes[(at >> 3) + 1] ?? 0) << 8)) >> (at & 7)) & (2 ** bits - 1)]!;
  });
}

const TWO_BIT = [8, 25, 43];
const IQ2XXS = /* @__PURE__ */ grid(packed.IQ2XXS, TWO_BIT);
const IQ2XS = /* @__PURE__ */ grid(packed.IQ2XS, TWO_BIT);
const IQ2S = /* @__PURE__ */ grid(packed.IQ2S, TWO_BIT);
const IQ3XXS = /* @__PURE__ */ grid(packed.IQ3XXS, [4, 12, 20, 28, 36, 44, 52, 62]);
const IQ3S = /* @__PURE__ */ grid(packed.IQ3S, [1, 3, 5, 7, 9, 11, 13, 15]);
const IQ1S = /* @__PURE__ */ grid(packed.IQ1S, [-1, 0, 1]);

/** Returns eight signs from seven bits: the number of minus signs is even. */
function evenSigns(bits: number): number {
  let parity = bits ^ (bits >> 4);
  parity ^= parity >> 2;
  return bits | (((parity ^ (parity >> 1)) & 1) << 7);
}

/** Writes `count` weights: the grid's values times the scale, negative where a bit of `signs` is set. */
function signed(
  y: Float64Array,
  to: number,
  scale: number,
  values: Float64Array,
  entry: number,
  count: number,
  signs: number,
): void {
  for (let j = 0; j < count; j++) y[to + j] = scale * values[entry * count + j]! * ((signs >> j) & 1 ? -1 : 1);
}

/** d, then for each sub-block 4 codes of 8 bits and a word: 4 × 7 bits of signs, 4 bits of scale. */
export const IQ2_XXS: WidenBlock = (b, at, y) => {
  const d = half(b, at);
  for (let s = 0; s < 8; s++) {
    const codes = at + 2 + 8 * s;
    const word = u16(b, codes + 4) | (u16(b, codes + 6) << 16);
    const scale = d * (0.5 + (word >>> 28)) * 0.25;
    for (let l = 0; l < 4; l++)
      signed(y, 32 * s + 8 * l, scale, IQ2XXS(), b[codes + l]!, 8, evenSigns((word >>> (7 * l)) & 127));
  }
};

/** d, then 32 codes of 9 bits with 7 bits of signs above them, then 8 bytes of two scales, each for 16 weights. */
export const IQ2_XS: WidenBlock = (b, at, y) => {
  const d = half(b, at);
  for (let group = 0; group < 32; group++) {
    const code = u16(b, at + 2 + 2 * group);
    const scale = d * (0.5 + nibble(b, at + 66, group >> 1)) * 0.25;
    signed(y, 8 * group, scale, IQ2XS(), code & 511, 8, evenSigns(code >> 9));
  }
};

/** Returns the 4 bits of number n from byte `at` on, low half first. */
function nibble(b: Uint8Array, at: number, n: number): number {
  return (b[at + (n >> 1)]! >> (4 * (n & 1))) & 15;
}

/** d, 32 low bytes of codes, 32 bytes of signs, 8 bytes of four pairs of high bits, 8 bytes of two scales. */
export const IQ2_S: WidenBlock = (b, at, y) => {
  const d = half(b, at);
  for (let group = 0; group < 32; group++) {
    const high = (b[at + 66 + (group >> 2)]! >> (2 * (group & 3))) & 3;
    const scale = d * (0.5 + nibble(b, at + 74, group >> 1)) * 0.25;
    signed(y, 8 * group, scale, IQ2S(), b[at + 2 + group]! | (high << 8), 8, b[at + 34 + group]!);
  }
};

/** d, 64 codes of 4 weights, then a word for each sub-block: 4 × 7 bits of signs, 4 bits of scale. */
export const IQ3_XXS: WidenBlock = (b, at, y) => {
  const d = half(b, at);
  for (let s = 0; s < 8; s++) {
    const word = u16(b, at + 66 + 4 * s) | (u16(b, at + 68 + 4 * s) << 16);
    const scale = d * (0.5 + (word >>> 28)) * 0.5;
    for (let l = 0; l < 4; l++) {
      const [to, codes] = [32 * s + 8 * l, at + 2 + 8 * s + 2 * l];
      const signs = evenSigns((word >>> (7 * l)) & 127);
      signed(y, to, scale, IQ3XXS(), b[codes]!, 4, signs);
      signed(y, to + 4, scale, IQ3XXS(), b[codes + 1]!, 4, signs >> 4);
    }
  }
};

/** d, 64 low bytes of codes of 4 weights, 8 bytes of their ninth bits, 32 bytes of signs, 4 bytes of two scales. */
export const IQ3_S: WidenBlock = (b, at, y) => {
  const d = half(b, at);
  for (let n = 0; n < 64; n++) {
    const ninth = (b[at + 66 + (n >> 3)]! >> (n & 7)) & 1;
    const scale = d * (1 + 2 * nibble(b, at + 106, n >> 3));
    signed(y, 4 * n, scale, IQ3S(), b[at + 2 + n]! | (ninth << 8), 4, b[at + 74 + (n >> 1)]! >> (4 * (n & 1)));
  }
};

/** Writes IQ1's group of eight: (value ± 1/8) times the scale. */
function shifted(y: Float64Array, to: number, scale: number, entry: number, negative: boolean): void {
  const values = IQ1S();
  const shift = negative ? -0.125 : 0.125;
  for (let j = 0; j < 8; j++) y[to + j] = scale * (values[entry * 8 + j]! + shift);
}

/** d, 32 low bytes of codes, then a u16 for each sub-block: 4 × 3 high bits, 3 bits of scale, the sign of the shift. */
export const IQ1_S: WidenBlock = (b, at, y) => {
  const d = half(b, at);
  for (let group = 0; group < 32; group++) {
    const bits = u16(b, at + 34 + 2 * (group >> 2));
    const high = (bits >> (3 * (group & 3))) & 7;
    shifted(y, 8 * group, d * (2 * ((bits >> 12) & 7) + 1), b[at + 2 + group]! | (high << 8), bits >= 0x8000);
  }
};

/**
 * 32 low bytes of codes, 32 halves of bytes with 3 high bits and the sign of the shift, then four u16: each 4 scales of
 * 3 bits for 16 weights, and 4 bits of d.
 */
export const IQ1_M: WidenBlock = (b, at, y) => {
  const scales = [48, 50, 52, 54].map((byte) => u16(b, at + byte));
  const bits = scales.reduce((sum, word, n) => sum | ((word >> 12) << (4 * n)), 0);
  const d = half(Uint8Array.of(bits & 255, bits >> 8), 0);
  for (let group = 0; group < 32; group++) {
    const high = nibble(b, at + 32, group);
    const scale = 2 * ((scales[group >> 3]! >> (3 * ((group >> 1) & 3))) & 7) + 1;
    shifted(y, 8 * group, d * scale, b[at + group]! | ((high & 7) << 8), high >= 8);
  }
};
