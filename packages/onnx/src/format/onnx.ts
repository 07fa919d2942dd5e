/**
 * ONNX files: tensors read and written, models written; onnx-model.ts reads models.
 *
 * `TensorProto` with its elements in raw_data (other encodings are read, never written), and `ModelProto` of one graph.
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

/** TensorProto.DataType. A map, not a record: numbers come from files. */
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

/** A dtype, or one that only constants of models in files have: i4, two elements a byte, the first in its low half. */
export type OnnxDtype = Dtype | 'i4';

const ONNX_I4 = 22;

/** The number of a dtype in ONNX: bf16 is 16, f16 is 10. */
export function onnxDataType(dtype: OnnxDtype): number {
  if (dtype === 'i4') return ONNX_I4;
  for (const [code, name] of DTYPE_OF) if (name === dtype) return code;
  return refuse('DTYPE', 'onnx: dtype', 'a dtype', dtype);
}

/** A value of a node's attribute: an integer, a float, a text, or integers. */
export type OnnxAttribute =
  | { readonly i: number }
  | { readonly f: number }
  | { readonly s: string }
  | { readonly ints: readonly number[] };

/** A node of a graph. */
export interface OnnxNode {
  readonly opType: string;
  /** Whose operator it is; ONNX's own unless given. */
  readonly domain?: string;
  /** Names of values; '' leaves an optional input out. */
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly attributes?: Readonly<Record<string, OnnxAttribute>>;
}

/** A graph's input or output. */
export interface OnnxValue {
  readonly name: string;
  readonly dtype: Dtype;
  /** A name stands for a size that each call chooses; equal names are equal sizes. */
  readonly shape: readonly (number | string)[];
}

/** A constant whose elements are in a file beside the model: dense, little-endian. */
export interface OnnxExternalTensor {
  readonly dtype: OnnxDtype;
  readonly shape: readonly number[];
  /** The file's path, relative to the model's folder. */
  readonly location: string;
  /** Bytes from the start of the file. */
  readonly byteOffset: number;
  readonly sizeBytes: number;
}

/** A model of one graph. */
export interface OnnxModel {
  readonly name: string;
  readonly doc?: string;
  readonly opset: number;
  /** Versions of other domains, by their names. */
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
 * Writes a `TensorProto`, as `input_0.pb` holds it: little-endian raw_data.
 *
 * @param tensor - in host memory
 * @param name - the value's name in the graph
 * @throws {RopewalkError} DEVICE when it is not in host memory
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
 * Reads a `TensorProto`: raw_data, or the typed fields that other writers use.
 *
 * @param bytes - the whole file
 * @param where - names it in messages
 * @returns its name and a dense tensor
 * @throws {RopewalkError} FORMAT when it is malformed, its elements are not as many as its dimensions say, or they are
 *   in another file; UNSUPPORTED for a type without a dtype here
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
 * @returns `model.onnx`
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

/** TensorProto.DataLocation: EXTERNAL 1. */
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

/** AttributeProto.type: FLOAT 1, INT 2, STRING 3, INTS 7. */
function attributeMessage(name: string, given: OnnxAttribute): unknown {
  if ('f' in given) return { name, f: given.f, type: 1 };
  if ('i' in given) return { name, i: given.i, type: 2 };
  if ('s' in given) return { name, s: new TextEncoder().encode(given.s), type: 3 };
  return { name, ints: Array.from(readList(given.ints, 'onnx: attribute')), type: 7 };
}
