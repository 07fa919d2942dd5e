/**
 * Seeded data, block-quantised weights, and the comparison of two results.
 *
 * @module
 */

import { type ArrayOf, BLOCK_FORMATS, type BlockFormat, blocksFrom, type FloatDtype, f16FromNumber } from 'ropewalk';
import { loadNumber, newArray, storeNumber } from 'ropewalk/backend';
import { blockBytes, randomFrom, readBlocks, UNIT_ROUNDOFF } from 'ropewalk/internal';

/** The period of random data. It is a prime, so that rows of two matrices do not repeat in step. */
const PERIOD = 65_521;

/**
 * Makes uniform numbers in [-1, 1), the same in every process.
 *
 * @param seed - any text
 * @param dtype - the dtype of the result; f16 and bf16 are bits
 * @param length - the number of elements. They repeat after 65,521: drawing 16 million takes longer than measuring
 */
export function randomArray<D extends FloatDtype>(seed: string, dtype: D, length: number): ArrayOf[D] {
  const random = randomFrom(seed);
  const data = newArray(dtype, length);
  const drawn = Math.min(length, PERIOD);
  for (let at = 0; at < drawn; at++) storeNumber(data, dtype, at, random.uniform(-1, 1));
  for (let at = PERIOD; at < length; at += PERIOD) data.copyWithin(at, 0, Math.min(PERIOD, length - at));
  return data;
}

/** Block-quantised weights `[n, k]`. */
export interface QuantizedWeight {
  /** The blocks in GGUF's layout. */
  readonly bytes: Uint8Array;
  /** Decodes row r exactly. */
  row(r: number): Float64Array;
}

/**
 * Makes random block-quantised weights.
 *
 * @param n - rows
 * @param k - columns: whole blocks
 */
export function quantizedWeight(kind: BlockFormat, n: number, k: number): QuantizedWeight {
  const { bytes: unit, scales: places } = BLOCK_FORMATS[kind];
  const random = randomFrom(`${kind} ${n} ${k}`);
  const pattern = Uint8Array.from({ length: PERIOD }, () => random.integer(256));
  const scales = Uint16Array.from({ length: 251 }, () => f16FromNumber(random.uniform(0.002, 0.02)));
  const bytes = new Uint8Array(blockBytes(kind, n * k));
  for (let at = 0; at < bytes.length; at += PERIOD)
    bytes.set(pattern.subarray(0, Math.min(PERIOD, bytes.length - at)), at);
  const view = new DataView(bytes.buffer);
  for (let at = 0, block = 0; at < bytes.length; at += unit, block++) {
    if (kind === 'mxfp4') bytes[at] = 118 + (block % 4);
    for (const place of places) view.setUint16(at + place, scales[block % scales.length]!, true);
  }
  const rowBytes = bytes.length / n;
  return {
    bytes,
    row: (r) => readBlocks(blocksFrom(kind, bytes.slice(r * rowBytes, (r + 1) * rowBytes), [1, k]), 'bench'),
  };
}

/** The error of a result, and its limit. */
export interface Agreement {
  /** The largest |got − want| divided by the root mean square of `want`. */
  readonly error: number;
  readonly limit: number;
}

/**
 * Returns the largest error that passes, divided by the root mean square of the expected result.
 *
 * It allows one rounding to the dtype of an element that is 8 times the root mean square, and 5e-5 for f32 arithmetic:
 * a sum of 4096 products, added one by one, had an error of at most 1e-5.
 *
 * @param dtype - the dtype of the output
 */
export function errorLimit(dtype: FloatDtype): number {
  return 8 * UNIT_ROUNDOFF[dtype] + 5e-5;
}

/**
 * Measures the error of a result.
 *
 * @param got - the result
 * @param want - the expected result, as long as `got`
 * @returns the largest |got − want| divided by the root mean square of `want`, and its index; NaN counts as largest
 */
export function worstError(got: Float64Array, want: Float64Array): { error: number; at: number } {
  if (got.length !== want.length) throw new Error(`bench: expected ${want.length} numbers, got ${got.length}`);
  let squares = 0;
  let worst = 0;
  let worstAt = 0;
  for (let at = 0; at < want.length; at++) {
    squares += want[at]! ** 2;
    const off = Math.abs(got[at]! - want[at]!);
    // The comparison is false for NaN, which so counts as the worst.
    if (!(off <= worst)) {
      worst = off;
      worstAt = at;
      if (Number.isNaN(off)) break;
    }
  }
  return { error: worst === 0 ? 0 : worst / Math.sqrt(squares / want.length), at: worstAt };
}

/**
 * Refuses a wrong result, so that it is never timed.
 *
 * @param got - the result
 * @param want - the expected result, as long as `got`
 * @param dtype - the dtype of the output
 * @param what - names the case in the message
 * @param limit - the largest error. Default: {@link errorLimit}
 * @throws Error when they differ by more
 */
export function agreement(
  got: Float64Array,
  want: Float64Array,
  dtype: FloatDtype,
  what: string,
  limit: number = errorLimit(dtype),
): Agreement {
  const { error, at } = worstError(got, want);
  if (!(error <= limit)) {
    const where = `element ${at} is ${got[at]}, expected ${want[at]}`;
    throw new Error(`${what}: expected an error <= ${limit.toExponential(1)}, got ${error.toExponential(1)}: ${where}`);
  }
  return { error, limit };
}

/**
 * Takes about 65,000 elements that are spread over an array.
 *
 * @param data - the array
 * @param dtype - the dtype of its elements
 */
export function sampleNumbers(data: ArrayOf[FloatDtype], dtype: FloatDtype): Float64Array {
  const step = Math.floor(data.length / PERIOD) | 1; // odd, so that even and odd elements both occur
  return Float64Array.from({ length: Math.ceil(data.length / step) }, (_, n) => loadNumber(data, dtype, n * step));
}
