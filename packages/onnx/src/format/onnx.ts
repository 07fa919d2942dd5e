/**
 * Reads and writes ONNX tensors, and writes ONNX models. onnx-model.ts reads models.
 *
 * A `TensorProto` is written with its elements in raw_data and read from all encodings; a `ModelProto` has one graph.
 *
 * @module
 * @see https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
 */

import { type Dtype, type Tensor, tensorFrom } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import {
  checkBytes,
  checkNamedTensors,
  checkTensor,
  nameForMessage,
  reading,
  readList,
  readOptions,
} from 'ropewalk/internal';
import { decodeFile, dimensionsOf, elementsOf, encodeFile, type Message } from './onnx-messages.js';

/** The dtype of each TensorProto.DataType. It is a map and not a record because the numbers come from files. */
export const DTYPE_OF: ReadonlyMap<number, Dtype> = /* @__PURE__ */ new Map<number, Dtype>([
  [1, 'f32'],
  [2, 'u8'],
  [3, 'i8'],
  [4, 'u16'],
  [5, 'i16'],
  [6, 'i32'],
  [7, 'i64'],
  [10, 'f16'],
  [11, 'f64'],
  [12, 'u32'],
  [13, 'u64'],
  [16, 'bf16'],
  [17, 'f8_e4m3'],
  [19, 'f8_e5m2'],
]);

/** A dtype of a model's constants. i4 exists only in files: two elements per byte, the first in its low half. */
export type OnnxDtype = Dtype | 'i4';

const ONNX_I4 = 22;

/** Returns the number of a dtype in ONNX: bf16 is 16, f16 is 10. */
export function onnxDataType(dtype: OnnxDtype): number {
  if (dtype === 'i4') return ONNX_I4;
  for (const [code, name] of DTYPE_OF) if (name === dtype) return code;
  return refuse('DTYPE', 'onnx: dtype', 'a dtype', dtype);
}

/** The value of an attribute: an integer, a float, a text, or integers. */
export type OnnxAttribute =
  | { readonly i: number }
  | { readonly f: number }
  | { readonly s: string }
  | { readonly ints: readonly number[] };

/** A node of a graph. */
export interface OnnxNode {
  readonly opType: string;
  /** The domain of the operator. Default: ONNX's standard domain. */
  readonly domain?: string;
  /** The names of values. '' leaves an optional input out. */
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly attributes?: Readonly<Record<string, OnnxAttribute>>;
}

/** An input or output of a graph. */
export interface OnnxValue {
  readonly name: string;
  readonly dtype: Dtype;
  /** A name stands for a size that each call chooses; equal names are equal sizes. */
  readonly shape: readonly (number | string)[];
}

/** A constant whose dense, little-endian elements are in a file beside the model. */
export interface OnnxExternalTensor {
  readonly dtype: OnnxDtype;
  readonly shape: readonly number[];
  /** The path of the file, relative to the model's folder. */
  readonly location: string;
  /** The offset from the start of the file, in bytes. */
  readonly byteOffset: number;
  readonly sizeBytes: number;
}

/** A model with one graph. */
export interface OnnxModel {
  readonly name: string;
  readonly doc?: string;
  readonly opset: number;
  /** The versions of other domains, by their names. */
  readonly domains?: Readonly<Record<string, number>>;
  readonly irVersion: number;
  readonly producer: string;
  readonly inputs: readonly OnnxValue[];
  readonly outputs: readonly OnnxValue[];
  /** Constants by name, in host memory. */
  readonly initializers: ReadonlyMap<string, Tensor>;
  /** Constants in other files, by name. */
  readonly external?: ReadonlyMap<string, OnnxExternalTensor>;
  readonly nodes: readonly OnnxNode[];
}

/**
 * Writes a `TensorProto`, such as `input_0.pb`, with little-endian raw_data.
 *
 * @param tensor - in host memory
 * @param name - the name of the value in the graph
 * @throws {RopewalkError} DEVICE when the tensor is not in host memory
 */
export function writeOnnxTensor(tensor: Tensor, name: string): Uint8Array {
  if (typeof name !== 'string') refuse('RANGE', 'onnx: name', 'a string', name);
  return encodeFile('TensorProto', tensorMessage(tensor, name));
}

function tensorMessage(tensor: Tensor, name: string): Message {
  checkTensor(tensor, `onnx: ${nameForMessage(name)}`);
  const data = tensor.read();
  const { owner } = tensor.storage;
  if (data instanceof Promise)
    fail('DEVICE', `onnx: ${name}`, `this tensor is in the memory of ${owner}. Read it into host memory first.`);
  const rawData = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return { dims: [...tensor.shape], dataType: onnxDataType(tensor.dtype), name, rawData };
}

/**
 * Reads a `TensorProto` from raw_data, or from the typed fields that other writers use.
 *
 * @param bytes - the whole file
 * @param where - the name of the file in messages
 * @returns its name and a dense tensor
 * @throws {RopewalkError} FORMAT when it is malformed, has more or fewer elements than its dimensions, or has them in
 *   another file; UNSUPPORTED for a type without a dtype here
 */
export function parseOnnxTensor(bytes: Uint8Array, where = 'onnx'): { readonly name: string; readonly tensor: Tensor } {
  checkBytes(bytes, where);
  const message = decodeFile('TensorProto', bytes, where);
  const { shape, count } = dimensionsOf(message, where);
  if (message.dataLocation) fail('FORMAT', where, 'its elements lie in another file. Read the tensor from its model.');
  const code = Number(message.dataType ?? 0);
  const dtype =
    DTYPE_OF.get(code) ??
    refuse('UNSUPPORTED', `${where}: data_type`, `one of ${[...DTYPE_OF.keys()].join(', ')}`, code);
  const tensor = tensorFrom(elementsOf(message, dtype, count, where), { dtype, shape });
  return { name: String(message.name ?? ''), tensor };
}

/**
 * Writes a model.
 *
 * @param model - its graph
 * @returns the bytes of `model.onnx`
 */
export function writeOnnxModel(model: OnnxModel): Uint8Array {
  return reading('onnx: model', () => encodeFile('ModelProto', modelMessage(readOptions(model, 'onnx: model'))));
}

function modelMessage(model: OnnxModel): Message {
  checkNamedTensors(model.initializers, 'onnx: initializers');
  const list = <T>(given: readonly T[], what: string): T[] => Array.from(readList(given, `onnx: ${what}`));
  const value = ({ name, dtype, shape }: OnnxValue): unknown => ({
    name,
    type: { tensorType: { elemType: onnxDataType(dtype), shape: { dim: list(shape, 'shape').map(dimension) } } },
  });
  return {
    irVersion: model.irVersion,
    producerName: model.producer,
    opsetImport: Object.entries({ '': model.opset, ...model.domains }).map(([domain, version]) => ({
      domain,
      version,
    })),
    graph: {
      name: model.name,
      docString: model.doc,
      node: list(model.nodes, 'nodes').map((node, n) => ({
        name: `${node.opType}_${n}`,
        opType: node.opType,
        domain: node.domain,
        input: list(node.inputs, 'inputs of a node'),
        output: list(node.outputs, 'outputs of a node'),
        attribute: Object.entries(node.attributes ?? {}).map(([name, given]) => attributeMessage(name, given)),
      })),
      initializer: [
        ...Array.from(model.initializers, ([name, tensor]) => tensorMessage(tensor, name)),
        ...Array.from(model.external ?? [], ([name, tensor]) => externalMessage(tensor, name)),
      ],
      input: list(model.inputs, 'inputs').map(value),
      output: list(model.outputs, 'outputs').map(value),
    },
  };
}

function externalMessage({ dtype, shape, location, byteOffset, sizeBytes }: OnnxExternalTensor, name: string): Message {
  const externalData = Object.entries({ location, offset: byteOffset, length: sizeBytes }).map(([key, value]) => ({
    key,
    value: String(value),
  }));
  return { dims: [...shape], dataType: onnxDataType(dtype), name, externalData, dataLocation: 1 };
}

function dimension(size: number | string): unknown {
  return typeof size === 'number' ? { dimValue: size } : { dimParam: size };
}

function attributeMessage(name: string, given: OnnxAttribute): unknown {
  if ('f' in given) return { name, f: given.f, type: 1 };
  if ('i' in given) return { name, i: given.i, type: 2 };
  if ('s' in given) return { name, s: new TextEncoder().encode(given.s), type: 3 };
  return { name, ints: Array.from(readList(given.ints, 'onnx: attribute')), type: 7 };
}
