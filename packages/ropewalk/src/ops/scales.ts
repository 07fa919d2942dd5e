/** Scales of KV caches in 8 bits. @module */
import { readList } from '../core/arguments.js';
import type { Dtype } from '../core/dtypes.js';
import { fail, refuse } from '../core/errors.js';
import type { Tensor } from '../core/tensor.js';
import { checkDims, checkDtype, isEightBits } from './checks.js';

/**
 * The scale of an 8-bit KV cache: **value = stored · scale**, and stored = round(value / scale). One number, or a list of
 * one for each KV head, or of one for each KV head and dimension (`[head, head_dim]`, flat). Each is rounded to f32.
 *
 * vLLM's k_scale and v_scale, for a tensor or for each head, and TensorRT-LLM's kv_cache_scaling_factor mean the same.
 *
 * @see vllm-project/vllm@693083a csrc/cache_kernels.cu (k_scale, v_scale, slot_mapping);
 *   https://nvidia.github.io/TensorRT-LLM/reference/precision.html
 */
export type CacheScale = number | ArrayLike<number>;

/** Scales within these bounds can be used in f32 kernels without overflow or underflow of the products. */
const LEAST = 2 ** -64;
const LARGEST = 2 ** 64;
/** A row whose largest magnitude is below this has the scale 0. */
export const LEAST_ROW = 2 ** -100;

/**
 * Reads the scale of a cache of this dtype.
 *
 * @returns `[heads, headDim]`, or undefined where stored values are the values
 * @throws {RopewalkError} UNSUPPORTED for a scale of a floating cache, RANGE for a missing one of an i8 cache and for a
 *   bad number, SHAPE for a bad length
 */
export function readScale(
  scale: CacheScale | undefined,
  dtype: Dtype,
  heads: number,
  headDim: number,
  where: string,
): Float32Array | undefined {
  if (scale === undefined) {
    if (dtype === 'i8') refuse('RANGE', where, 'the scale of an i8 cache (value = stored · scale)', scale);
    return undefined;
  }
  const only = 'only i8, f8_e4m3 and f8_e5m2 caches have a scale';
  if (!isEightBits(dtype)) fail('UNSUPPORTED', where, `${only}, and this one is ${dtype}. Leave it out.`);
  const all = new Float32Array(heads * headDim);
  const check = (value: number, at: string): number => {
    if (typeof value !== 'number' || !(value >= LEAST && value <= LARGEST))
      refuse('RANGE', at, 'a number in [2^-64, 2^64]', value);
    return value;
  };
  if (typeof scale === 'number') return all.fill(check(scale, where));
  const given = readList(scale, where, 'a number or a list of numbers');
  if (given.length !== heads && given.length !== all.length) {
    const lengths = `a number, ${heads} numbers (one for each head), or ${heads} × ${headDim}`;
    refuse('SHAPE', where, lengths, given.length);
  }
  const each = all.length / given.length;
  for (let n = 0; n < given.length; n++) all.fill(check(given[n]!, `${where}[${n}]`), n * each, (n + 1) * each);
  return all;
}

/**
 * Checks the scales of an i8 cache's rows, one for each row and head.
 *
 * @param scales - f32, the shape of `cache` without its last dimension
 * @returns them with a last dimension of 1
 * @throws {RopewalkError} UNSUPPORTED for another dtype of the cache, or beside a scale; SHAPE or DTYPE
 */
export function readRowScales(
  scales: Tensor | undefined,
  cache: Tensor,
  scale: CacheScale | undefined,
  where: string,
): Tensor<'f32'> | undefined {
  if (scales === undefined) return undefined;
  checkDims(scales, where, cache.shape.slice(0, -1));
  checkDtype(scales, where, 'f32');
  if (cache.dtype !== 'i8')
    fail('UNSUPPORTED', where, `the cache is ${cache.dtype}. Give scales of rows to an i8 one.`);
  if (scale !== undefined) fail('UNSUPPORTED', where, 'the cache has a fixed scale too. Give one of the two.');
  const order = Array.from({ length: cache.rank }, (_, n) => (n + 1) % cache.rank);
  return scales.unsqueeze().permute(order) as Tensor<'f32'>;
}
