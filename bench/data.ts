/**
 * Seeded data, block-quantised weights, and the comparison of two results.
 *
 * @module
 */

import { UNIT_ROUNDOFF } from '../packages/oracle/src/tolerance.js';
import { randomFrom } from '../packages/ropewalk/src/core/random.js';
import {
  type ArrayOf,
  type FloatDtype,
  f16FromNumber,
  loadNumber,
  newArray,
  numberFromF16,
  storeNumber,
} from './ropewalk.js';

/** Elements of random data before it repeats. A prime, so that rows of two matrices do not repeat in step. */
const PERIOD = 65_521;

/**
 * Makes uniform numbers in [-1, 1), the same in every process.
 *
 * @param seed - any text
 * @param dtype - of the result; f16 and bf16 as bits
 * @param length - elements; they repeat after 65,521, since drawing 16 million would take longer than measuring
 */
export function randomArray<D extends FloatDtype>(seed: string, dtype: D, length: number): ArrayOf[D] {
  const random = randomFrom(seed);
  const data = newArray(dtype, length);
  const drawn = Math.min(length, PERIOD);
  for (let at = 0; at < drawn; at++) storeNumber(data, dtype, at, random.uniform(-1, 1));
  for (let at = PERIOD; at < length; at += PERIOD) data.copyWithin(at, 0, Math.min(PERIOD, length - at));
  return data;
}

/** Block-quantised weights `[n, k]`, in GGUF's layout and in ONNX Runtime's, with the same values. */
export interface QuantisedWeight {
  readonly kind: 'q8_0' | 'q4_0';
  /** Blocks of 32 weights: an f16 scale, then 32 signed bytes (q8_0) or 16 bytes of two nibbles (q4_0). */
  readonly bytes: Uint8Array;
  /** Row r as exact numbers. */
  row(r: number): Float64Array;
  /** `[n, k / 32, 32 or 16]` for MatMulNBits: neighbours share a byte, low nibble first; q8_0 as quant + 128. */
  readonly onnxQuants: () => Uint8Array;
  /** `[n · k / 32]`, f32. */
  readonly onnxScales: () => Float32Array;
}

/**
 * Makes random block-quantised weights.
 *
 * @param kind - q8_0 or q4_0, blocks of 32
 * @param n - rows
 * @param k - columns, a multiple of 32
 */
export function quantisedWeight(kind: 'q8_0' | 'q4_0', n: number, k: number): QuantisedWeight {
  const quantBytes = kind === 'q8_0' ? 32 : 16;
  const blockBytes = 2 + quantBytes;
  const blocks = (n * k) / 32;
  const random = randomFrom(`${kind} ${n} ${k}`);
  const pattern = Uint8Array.from({ length: PERIOD }, () => random.integer(256));
  const scales = Uint16Array.from({ length: 251 }, () => f16FromNumber(random.uniform(0.002, 0.02)));
  const bytes = new Uint8Array(blocks * blockBytes);
  for (let at = 0; at < bytes.length; at += PERIOD)
    bytes.set(pattern.subarray(0, Math.min(PERIOD, bytes.length - at)), at);
  const view = new DataView(bytes.buffer);
  for (let block = 0; block < blocks; block++) view.setUint16(block * blockBytes, scales[block % scales.length]!, true);
  const scaleOf = (block: number): number => numberFromF16(view.getUint16(block * blockBytes, true));
  /** Quant i of a block, as stored: signed for q8_0, 0 … 15 for q4_0. */
  const quantOf = (block: number, i: number): number => {
    const first = block * blockBytes + 2;
    if (kind === 'q8_0') return view.getInt8(first + i);
    return i < 16 ? bytes[first + i]! & 15 : bytes[first + i - 16]! >> 4;
  };
  const zero = kind === 'q8_0' ? 0 : 8;
  return {
    kind,
    bytes,
    row(r) {
      return Float64Array.from({ length: k }, (_, column) => {
        const block = (r * k) / 32 + Math.floor(column / 32);
        return scaleOf(block) * (quantOf(block, column % 32) - zero);
      });
    },
    onnxQuants() {
      const quants = new Uint8Array(blocks * quantBytes);
      for (let block = 0; block < blocks; block++) {
        for (let i = 0; i < quantBytes; i++) {
          quants[block * quantBytes + i] =
            kind === 'q8_0' ? quantOf(block, i) + 128 : quantOf(block, 2 * i) | (quantOf(block, 2 * i + 1) << 4);
        }
      }
      return quants;
    },
    onnxScales: () => Float32Array.from({ length: blocks }, (_, block) => scaleOf(block)),
  };
}

/** How far a result is from what was expected. */
export interface Agreement {
  /** Largest |got − want| over the root mean square of `want`. */
  readonly error: number;
  readonly limit: number;
}

/**
 * The largest error that passes, over the root mean square of the expected result.
 *
 * One rounding to the dtype of an element up to 8 times the root mean square; and 5e-5 for f32 arithmetic: a sum of
 * 4096 products, added one by one, measured at most 1e-5.
 *
 * @param dtype - of the output
 */
export function errorLimit(dtype: FloatDtype): number {
  return 8 * UNIT_ROUNDOFF[dtype] + 5e-5;
}

/**
 * Measures how far numbers are from what they should be.
 *
 * @param got - what is judged
 * @param want - what is believed; as long as `got`
 * @returns the largest |got − want| over the root mean square of `want`, and where; NaN counts as the largest
 */
export function worstError(got: Float64Array, want: Float64Array): { error: number; at: number } {
  if (got.length !== want.length) throw new Error(`bench: expected ${want.length} numbers, got ${got.length}`);
  let squares = 0;
  let worst = 0;
  let worstAt = 0;
  for (let at = 0; at < want.length; at++) {
    squares += want[at]! ** 2;
    const off = Math.abs(got[at]! - want[at]!);
    // Written so that NaN is the worst of all.
    if (!(off <= worst)) {
      worst = off;
      worstAt = at;
      if (Number.isNaN(off)) break;
    }
  }
  return { error: worst === 0 ? 0 : worst / Math.sqrt(squares / want.length), at: worstAt };
}

/**
 * Requires that a result is right: nothing that is wrong gets timed.
 *
 * @param got - what is judged
 * @param want - what is believed; as long as `got`
 * @param dtype - of the output
 * @param what - for the message
 * @throws Error when they differ by more than {@link errorLimit}
 */
export function agreement(got: Float64Array, want: Float64Array, dtype: FloatDtype, what: string): Agreement {
  const { error, at } = worstError(got, want);
  const limit = errorLimit(dtype);
  if (!(error <= limit)) {
    const where = `element ${at} is ${got[at]}, expected ${want[at]}`;
    throw new Error(`${what}: expected an error <= ${limit.toExponential(1)}, got ${error.toExponential(1)}: ${where}`);
  }
  return { error, limit };
}

/**
 * Takes about 65,000 elements from all over an array.
 *
 * @param data - elements of a dtype
 * @param dtype - how to read them
 */
export function sampleNumbers(data: ArrayOf[FloatDtype], dtype: FloatDtype): Float64Array {
  const step = Math.floor(data.length / PERIOD) | 1; // odd, so that even and odd elements both occur
  return Float64Array.from({ length: Math.ceil(data.length / step) }, (_, n) => loadNumber(data, dtype, n * step));
}

/**
 * Turns `[n, k]` to `[k, n]`.
 *
 * @param data - dense
 * @param n - rows
 * @param k - columns
 */
export function transposed<A extends Float32Array | Uint16Array>(data: A, n: number, k: number): A {
  const turned = data.slice() as A;
  for (let row = 0; row < n; row++)
    for (let column = 0; column < k; column++) turned[column * n + row] = data[row * k + column]!;
  return turned;
}
