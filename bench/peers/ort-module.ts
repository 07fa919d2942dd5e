/**
 * ONNX Runtime's JavaScript interface, which is the same in all its builds.
 *
 * @module
 */
import type { ArrayOf, FloatDtype } from 'ropewalk';
import type { GraphDtype, GraphTensor } from './graph.js';

/** The part of the peer's interface that is used here, so that the types do not need an installed peer. */
export interface OrtModule {
  readonly env: {
    logLevel?: string;
    wasm: { numThreads?: number; wasmBinary?: Uint8Array; wasmPaths?: string };
  };
  readonly Tensor: new (type: string, data: ArrayBufferView, dims: readonly number[]) => OrtTensor;
  readonly InferenceSession: { create(model: Uint8Array, options: object): Promise<OrtSession> };
}
/** A tensor of the runtime. */
export interface OrtTensor {
  readonly data: ArrayOf[FloatDtype];
  dispose(): void;
}
/** Tensors by their names in a graph. */
export type OrtTensors = Record<string, OrtTensor>;
/** A loaded model. */
export interface OrtSession {
  run(feeds: OrtTensors, fetches?: OrtTensors): Promise<OrtTensors>;
  release(): Promise<void>;
}

const ORT_TYPE: Readonly<Record<GraphDtype, string | undefined>> = {
  f64: 'float64',
  f32: 'float32',
  f16: 'float16',
  bf16: undefined, // the runtime knows bfloat16, but its JavaScript interface has no such tensor
  i64: 'int64',
  i32: 'int32',
  u8: 'uint8',
};

/**
 * Makes a tensor of the runtime that shares the memory of the data.
 *
 * @throws Error for a dtype that the interface lacks
 */
export function ortTensor(ort: OrtModule, { dtype, dims, data }: Omit<GraphTensor, 'name'>): OrtTensor {
  const type = ORT_TYPE[dtype];
  if (type === undefined) throw new Error(`no ${dtype} tensors in its JavaScript interface`);
  return new ort.Tensor(type, data, dims);
}
