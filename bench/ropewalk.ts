/**
 * The library as it is published: what the build made of it, with the types of its sources. Measured through tsx,
 * sources would carry that tool's own wrappers around every function: a microsecond in a call of two.
 *
 * @module
 */
import type { WebgpuBackend } from '../packages/ropewalk/src/backends/webgpu/host.js';
import type { Dtype, Ropewalk, Tensor, TensorOptions, TensorStorage } from '../packages/ropewalk/src/index.js';

export type {
  ArrayOf,
  BlockFormat,
  BlockTensor,
  Capabilities,
  Dtype,
  FloatDtype,
  Ropewalk,
  RopewalkOptions,
  Tensor,
} from '../packages/ropewalk/src/index.js';

const at = (file: string): string => new URL(`../packages/ropewalk/dist/${file}`, import.meta.url).href;
const built = (await import(at('index.js'))) as typeof import('../packages/ropewalk/src/index.js');
export const {
  BLOCK_FORMAT_NAMES,
  BLOCK_FORMATS,
  blocksFrom,
  f16FromNumber,
  numberFromF16,
  ropewalk,
  sizeBytes,
  tensorFrom,
} = built;
const contract = (await import(at('backend.js'))) as typeof import('../packages/ropewalk/src/backend.js');
export const { blockBytes, loadNumber, newArray, readBlocks, storeNumber } = contract;

/** A tensor over storage that exists. */
export function layOver<D extends Dtype>(storage: TensorStorage<D>, options: TensorOptions): Tensor<D> {
  return new built.Tensor(storage, options);
}

/** The webnn backend; its package is built too. */
export async function openWebnn(): Promise<Ropewalk> {
  const onnx = new URL('../packages/onnx/dist/index.js', import.meta.url).href;
  const { openWebnn }: typeof import('../packages/onnx/src/index.js') = await import(onnx);
  return built.ropewalk({ backend: await openWebnn() });
}

/** The webgpu backend, and its device, which the library keeps to itself. */
export async function openGpu(): Promise<{ rw: Ropewalk; device: GPUDevice }> {
  const backend = (await built.openBackend('webgpu')) as WebgpuBackend;
  return { rw: new built.Ropewalk(backend), device: backend.home.device };
}
