/**
 * Opens Ropewalk for the benchmark, and moves data to and from it.
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
 * @param threads - the threads that compute. Default: as many as the backend takes
 */
export function openLibrary(backend: string, threads?: number): Promise<Ropewalk> {
  return ropewalk({ backend, threads } as RopewalkOptions);
}

/**
 * Copies data into the memory of a backend.
 *
 * @param rw - an open library
 * @param data - the elements in row-major order
 */
export function place<D extends Dtype>(rw: Ropewalk, data: ArrayOf[D], dtype: D, shape: readonly number[]): Tensor<D> {
  return rw.upload(tensorFrom<D>(data, { dtype, shape }));
}

/**
 * Copies block-quantised weights into the memory of a backend.
 *
 * @param rw - an open library
 * @param bytes - blocks in GGUF's layout
 * @param shape - `[n, k]`, or `[experts, n, k]`
 * @returns a weight for `rw.linear` or `rw.expertLinear`
 */
export function placeQuantized(
  rw: Ropewalk,
  kind: BlockFormat,
  bytes: Uint8Array,
  shape: readonly number[],
): BlockTensor {
  return rw.name === 'reference' ? blocksFrom(kind, bytes, shape) : rw.uploadBlocks(kind, bytes, shape);
}

/** Disposes tensors. */
export function release(...tensors: readonly { dispose(): void }[]): void {
  for (const tensor of tensors) tensor.dispose();
}
