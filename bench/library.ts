/**
 * Ropewalk as the benchmark uses it.
 *
 * @module
 */
import type { ArrayOf, Dtype, FloatDtype, Tensor } from '../src/core/index.js';
import { type Ropewalk, type RopewalkOptions, ropewalk } from '../src/ropewalk.js';

/** Opening and upload, as far as this build has them: the reference keeps everything in host memory and needs neither. */
interface Uploading {
  upload?<D extends Dtype>(data: ArrayOf[D], options: { dtype: D; shape: readonly number[] }): Tensor<D>;
  uploadQuantised?(kind: 'q8_0' | 'q4_0', bytes: Uint8Array, shape: readonly number[]): Tensor<'f32'>;
}

/**
 * Opens a backend with a number of threads.
 *
 * @param backend - its name
 * @param threads - that may compute
 */
export function openLibrary(backend: string, threads: number): Promise<Ropewalk> {
  return ropewalk((backend === 'reference' ? { backend } : { backend, threads }) as RopewalkOptions);
}

/**
 * Puts data where the backend computes.
 *
 * @param rw - an open library
 * @param data - the elements, dense
 * @param dtype - of the elements
 * @param shape - of the tensor
 */
export function place<D extends FloatDtype>(rw: Ropewalk, data: ArrayOf[D], dtype: D, shape: readonly number[]): Tensor<D> {
  const { upload } = rw as unknown as Uploading;
  if (upload) return upload.call(rw, data, { dtype, shape }) as Tensor<D>;
  return rw.tensor(data as Uint16Array, { dtype: dtype as 'f16', shape }) as unknown as Tensor<D>;
}

/**
 * Puts block-quantised weights where the backend computes.
 *
 * @param rw - an open library
 * @param kind - q8_0 or q4_0
 * @param bytes - blocks as GGUF has them
 * @param shape - `[n, k]`
 * @returns a weight for `rw.linear`
 * @throws Error on a build or a backend without quantised weights
 */
export function placeQuantised(rw: Ropewalk, kind: 'q8_0' | 'q4_0', bytes: Uint8Array, shape: readonly number[]): Tensor<'f32'> {
  const { uploadQuantised } = rw as unknown as Uploading;
  if (!uploadQuantised) throw new Error(`this build has no uploadQuantised, which ${kind} needs`);
  return uploadQuantised.call(rw, kind, bytes, shape);
}

/**
 * Gives tensors back.
 *
 * @param tensors - of any backend; host tensors have nothing to give back
 */
export function release(...tensors: readonly object[]): void {
  for (const tensor of tensors) (tensor as { dispose?(): void }).dispose?.();
}
