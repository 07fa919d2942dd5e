/**
 * Ropewalk as the benchmark uses it.
 *
 * @module
 */
import {
  type ArrayOf,
  type BlockFormat,
  type BlockTensor,
  blocksFrom,
  type Dtype,
  type Ropewalk,
  type RopewalkOptions,
  ropewalk,
  type Tensor,
  tensorFrom,
} from 'ropewalk';

/**
 * Opens a backend with a number of threads.
 *
 * @param backend - its name
 * @param threads - that may compute; as many as the backend takes unless given
 */
export function openLibrary(backend: string, threads?: number): Promise<Ropewalk> {
  return ropewalk({ backend, threads } as RopewalkOptions);
}

/**
 * Puts data where the backend computes.
 *
 * @param rw - an open library
 * @param data - the elements, dense
 * @param dtype - of the elements
 * @param shape - of the tensor
 */
export function place<D extends Dtype>(rw: Ropewalk, data: ArrayOf[D], dtype: D, shape: readonly number[]): Tensor<D> {
  return rw.upload(tensorFrom<D>(data, { dtype, shape }));
}

/**
 * Puts block-quantised weights where the backend computes.
 *
 * @param rw - an open library
 * @param kind - the format
 * @param bytes - blocks as GGUF has them
 * @param shape - `[n, k]`, or `[experts, n, k]`
 * @returns a weight for `rw.linear` or `rw.expertLinear`
 */
export function placeQuantised(
  rw: Ropewalk,
  kind: BlockFormat,
  bytes: Uint8Array,
  shape: readonly number[],
): BlockTensor {
  return rw.name === 'reference' ? blocksFrom(kind, bytes, shape) : rw.uploadBlocks(kind, bytes, shape);
}

/**
 * Gives tensors back.
 *
 * @param tensors - of any backend
 */
export function release(...tensors: readonly { dispose(): void }[]): void {
  for (const tensor of tensors) tensor.dispose();
}
