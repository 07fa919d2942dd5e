/** Scales of KV caches in 8 bits. @module */
import { readList } from '../core/arguments.js';
import type { Dtype } from '../core/dtypes.js';
import { fail, refuse } from '../core/errors.js';
import { isEightBits } from './checks.js';

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
