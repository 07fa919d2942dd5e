/**
 * ONNX's protobuf messages: tensors read and written, models written; onnx-model.ts reads models by the same messages.
 *
 * `TensorProto` with its elements in raw_data (other encodings are read, never written), and `ModelProto` of one graph. Field numbers and types are those of onnx.proto.
 *
 * @module
 * @see https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
 */
import protobuf from 'protobufjs/light.js';
import { type Dtype, type HostArray, newArray, sizeBytes } from '../core/dtypes.js';
import { RopewalkError, refuse } from '../core/errors.js';
import { countElements } from '../core/shape.js';
import { type Tensor, tensorFrom } from '../core/tensor.js';
import { countClaimed, elementsAt } from './bytes.js';

/** ONNX has at most this many dimensions in practice; numpy has 64. */
const MAX_RANK = 64;

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
]);

/**
 * The number of a dtype in ONNX: bf16 is 16, f16 is 10.
 *
 * @param dtype - any dtype
 */
export function onnxDataType(dtype: Dtype): number {
  for (const [code, name] of DTYPE_OF) if (name === dtype) return code;
  return refuse('DTYPE', 'onnx: dtype', 'a dtype', dtype);
}

/** A value of a node's attribute: an integer, a float, a text, or integers. */
export type OnnxAttribute = { readonly i: number } | { readonly f: number } | { readonly s: string } | { readonly ints: readonly number[] };

/** A node of a graph. */
export interface OnnxNode {
  readonly opType: string;
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

/** A model of one graph. */
export interface OnnxModel {
  readonly name: string;
  readonly doc?: string;
  readonly opset: number;
  readonly irVersion: number;
  readonly producer: string;
  readonly inputs: readonly OnnxValue[];
  readonly outputs: readonly OnnxValue[];
  /** Constants by name, in host memory. */
  readonly initializers: ReadonlyMap<string, Tensor>;
  readonly nodes: readonly OnnxNode[];
}

/** The messages, as onnx.proto numbers their fields. */
const TYPES: Readonly<Record<string, protobuf.IType>> = {
  TensorProto: {
    fields: {
      dims: { rule: 'repeated', type: 'int64', id: 1 },
      dataType: { type: 'int32', id: 2 },
      floatData: { rule: 'repeated', type: 'float', id: 4, options: { packed: true } },
      int32Data: { rule: 'repeated', type: 'int32', id: 5, options: { packed: true } },
      stringData: { rule: 'repeated', type: 'bytes', id: 6 },
      int64Data: { rule: 'repeated', type: 'int64', id: 7, options: { packed: true } },
      name: { type: 'string', id: 8 },
      rawData: { type: 'bytes', id: 9 },
      doubleData: { rule: 'repeated', type: 'double', id: 10, options: { packed: true } },
      uint64Data: { rule: 'repeated', type: 'uint64', id: 11, options: { packed: true } },
      externalData: { rule: 'repeated', type: 'StringStringEntryProto', id: 13 },
      dataLocation: { type: 'int32', id: 14 },
    },
  },
  StringStringEntryProto: { fields: { key: { type: 'string', id: 1 }, value: { type: 'string', id: 2 } } },
  AttributeProto: {
    fields: {
      name: { type: 'string', id: 1 },
      f: { type: 'float', id: 2 },
      i: { type: 'int64', id: 3 },
      s: { type: 'bytes', id: 4 },
      t: { type: 'TensorProto', id: 5 },
      g: { type: 'GraphProto', id: 6 },
      floats: { rule: 'repeated', type: 'float', id: 7 },
      ints: { rule: 'repeated', type: 'int64', id: 8 },
      strings: { rule: 'repeated', type: 'bytes', id: 9 },
      tensors: { rule: 'repeated', type: 'TensorProto', id: 10 },
      graphs: { rule: 'repeated', type: 'GraphProto', id: 11 },
      type: { type: 'int32', id: 20 },
      refAttrName: { type: 'string', id: 21 },
    },
  },
  NodeProto: {
    fields: {
      input: { rule: 'repeated', type: 'string', id: 1 },
      output: { rule: 'repeated', type: 'string', id: 2 },
      name: { type: 'string', id: 3 },
      opType: { type: 'string', id: 4 },
      attribute: { rule: 'repeated', type: 'AttributeProto', id: 5 },
      domain: { type: 'string', id: 7 },
    },
  },
  Dimension: { fields: { dimValue: { type: 'int64', id: 1 }, dimParam: { type: 'string', id: 2 } } },
  TensorShapeProto: { fields: { dim: { rule: 'repeated', type: 'Dimension', id: 1 } } },
  TensorType: { fields: { elemType: { type: 'int32', id: 1 }, shape: { type: 'TensorShapeProto', id: 2 } } },
  TypeProto: { fields: { tensorType: { type: 'TensorType', id: 1 } } },
  ValueInfoProto: { fields: { name: { type: 'string', id: 1 }, type: { type: 'TypeProto', id: 2 } } },
  GraphProto: {
    fields: {
      node: { rule: 'repeated', type: 'NodeProto', id: 1 },
      name: { type: 'string', id: 2 },
      initializer: { rule: 'repeated', type: 'TensorProto', id: 5 },
      docString: { type: 'string', id: 10 },
      input: { rule: 'repeated', type: 'ValueInfoProto', id: 11 },
      output: { rule: 'repeated', type: 'ValueInfoProto', id: 12 },
      valueInfo: { rule: 'repeated', type: 'ValueInfoProto', id: 13 },
    },
  },
  FunctionProto: {
    fields: {
      name: { type: 'string', id: 1 },
      input: { rule: 'repeated', type: 'string', id: 4 },
      output: { rule: 'repeated', type: 'string', id: 5 },
      attribute: { rule: 'repeated', type: 'string', id: 6 },
      node: { rule: 'repeated', type: 'NodeProto', id: 7 },
      opsetImport: { rule: 'repeated', type: 'OperatorSetIdProto', id: 9 },
      domain: { type: 'string', id: 10 },
      valueInfo: { rule: 'repeated', type: 'ValueInfoProto', id: 12 },
    },
  },
  OperatorSetIdProto: { fields: { domain: { type: 'string', id: 1 }, version: { type: 'int64', id: 2 } } },
  ModelProto: {
    fields: {
      irVersion: { type: 'int64', id: 1 },
      producerName: { type: 'string', id: 2 },
      graph: { type: 'GraphProto', id: 7 },
      opsetImport: { rule: 'repeated', type: 'OperatorSetIdProto', id: 8 },
      functions: { rule: 'repeated', type: 'FunctionProto', id: 25 },
    },
  },
};

/** The two messages that files hold. */
export interface Messages {
  readonly tensor: protobuf.Type;
  readonly model: protobuf.Type;
}

let messages: Messages | undefined;

/** The messages, for the reader of models beside this file. Built on the first use: loading this file does nothing. */
export function messagesOf(): Messages {
  if (messages) return messages;
  // onnx.proto is proto2: an attribute whose value is 0 is written, or ONNX's checker takes it for missing.
  const nested = Object.fromEntries(Object.entries(TYPES).map(([name, type]) => [name, { edition: 'proto2', ...type }]));
  const root = protobuf.Root.fromJSON({ nested });
  messages = { tensor: root.lookupType('TensorProto'), model: root.lookupType('ModelProto') };
  return messages;
}

/**
 * Writes a `TensorProto`, as `input_0.pb` holds it: little-endian raw_data.
 *
 * @param tensor - in host memory
 * @param name - the value's name in the graph
 * @throws {RopewalkError} DEVICE when it is not in host memory
 */
export function writeOnnxTensor(tensor: Tensor, name: string): Uint8Array {
  const { tensor: type } = messagesOf();
  return type.encode(type.create(tensorMessage(tensor, name))).finish();
}

function tensorMessage(tensor: Tensor, name: string): Record<string, unknown> {
  const data = tensor.read();
  if (data instanceof Promise) refuse('DEVICE', `onnx: ${name}`, 'a tensor in host memory', tensor.storage.owner, 'Read it first.');
  return {
    dims: [...tensor.shape],
    dataType: onnxDataType(tensor.dtype),
    name,
    rawData: new Uint8Array(data.buffer, data.byteOffset, data.byteLength),
  };
}

/**
 * Reads a `TensorProto`: raw_data, or the typed fields that other writers use.
 *
 * @param bytes - the whole file
 * @param where - names it in messages
 * @returns its name and a dense tensor
 * @throws {RopewalkError} FORMAT when it is malformed, its elements are not as many as its dimensions say, or they lie in another file;
 *   UNSUPPORTED for a type that is no dtype of ours
 */
export function parseOnnxTensor(bytes: Uint8Array, where = 'onnx'): { readonly name: string; readonly tensor: Tensor } {
  const message = decode(bytes, where);
  const dims = (message.dims ?? []) as unknown[];
  if (dims.length > MAX_RANK) refuse('FORMAT', `${where}: dims`, `at most ${MAX_RANK} dimensions`, dims.length);
  const shape = dims.map(Number);
  if (!shape.every((dim) => Number.isSafeInteger(dim) && dim >= 0)) refuse('FORMAT', `${where}: dims`, 'integers >= 0', shape);
  const count = countClaimed(shape) ?? refuse('FORMAT', `${where}: dims`, 'fewer than 2^50 elements', shape);
  if (message.dataLocation) refuse('FORMAT', `${where}: data_location`, 'elements in the file itself', message.dataLocation);
  const code = Number(message.dataType ?? 0);
  const dtype = DTYPE_OF.get(code) ?? refuse('UNSUPPORTED', `${where}: data_type`, `one of ${[...DTYPE_OF.keys()].join(', ')}`, code);
  const data = elementsOf(message, dtype, count, where);
  if (countElements(shape) !== data.length)
    refuse('FORMAT', where, `${countElements(shape)} elements of ${dtype} for dims [${shape}]`, data.length);
  return { name: String(message.name ?? ''), tensor: tensorFrom(data, { dtype, shape }) };
}

/** A decoded message by its fields; those of value default are absent. */
export type Fields = Readonly<Record<string, unknown>>;

function decode(bytes: Uint8Array, where: string): Fields {
  const { tensor: type } = messagesOf();
  try {
    // 64-bit integers as text: a number would round them.
    return type.toObject(type.decode(bytes), { longs: String, arrays: false, defaults: false }) as Fields;
  } catch (cause) {
    if (cause instanceof RopewalkError) throw cause;
    return refuse('FORMAT', where, 'a TensorProto', cause instanceof Error ? cause.message : 'other bytes');
  }
}

/**
 * The elements of a decoded TensorProto: raw_data, or the typed field of its dtype.
 *
 * @throws {RopewalkError} FORMAT when there are not `count` of them
 */
export function elementsOf(message: Fields, dtype: Dtype, count: number, where: string): HostArray {
  const raw = message.rawData as Uint8Array | undefined;
  if (raw !== undefined && raw.length > 0) {
    if (raw.length !== count * sizeBytes(dtype))
      refuse('FORMAT', `${where}: raw_data`, `${count * sizeBytes(dtype)} bytes for ${count} elements of ${dtype}`, raw.length);
    return elementsAt(raw, 0, dtype, count);
  }
  const field =
    { f64: 'doubleData', f32: 'floatData', i64: 'int64Data', u64: 'uint64Data', u32: 'uint64Data' }[dtype as string] ?? 'int32Data';
  const values = (message[field] ?? []) as readonly (number | string)[];
  if (values.length !== count) refuse('FORMAT', `${where}: ${field}`, `${count} elements of ${dtype}`, values.length);
  const data = newArray(dtype, count);
  for (const [n, value] of values.entries()) {
    // f16 and bf16 travel as bits in int32_data; typed arrays wrap what does not fit, as a C reader's cast does.
    if (data instanceof BigInt64Array || data instanceof BigUint64Array) data[n] = BigInt(value);
    else data[n] = Number(value);
  }
  return data;
}

/**
 * Writes a model.
 *
 * @param model - its graph
 * @returns `model.onnx`
 */
export function writeOnnxModel(model: OnnxModel): Uint8Array {
  const { model: type } = messagesOf();
  const value = ({ name, dtype, shape }: OnnxValue): unknown => ({
    name,
    type: { tensorType: { elemType: onnxDataType(dtype), shape: { dim: shape.map(dimension) } } },
  });
  const message = type.fromObject({
    irVersion: model.irVersion,
    producerName: model.producer,
    opsetImport: [{ domain: '', version: model.opset }],
    graph: {
      name: model.name,
      ...(model.doc === undefined ? {} : { docString: model.doc }),
      node: model.nodes.map((node, n) => ({
        name: `${node.opType}_${n}`,
        opType: node.opType,
        input: node.inputs,
        output: node.outputs,
        attribute: Object.entries(node.attributes ?? {}).map(([name, given]) => attributeMessage(name, given)),
      })),
      initializer: [...model.initializers].map(([name, tensor]) => tensorMessage(tensor, name)),
      input: model.inputs.map(value),
      output: model.outputs.map(value),
    },
  });
  return type.encode(message).finish();
}

function dimension(size: number | string): unknown {
  return typeof size === 'number' ? { dimValue: size } : { dimParam: size };
}

/** AttributeProto.type: FLOAT 1, INT 2, STRING 3, INTS 7. */
function attributeMessage(name: string, given: OnnxAttribute): unknown {
  if ('f' in given) return { name, f: given.f, type: 1 };
  if ('i' in given) return { name, i: given.i, type: 2 };
  if ('s' in given) return { name, s: new TextEncoder().encode(given.s), type: 3 };
  return { name, ints: given.ints, type: 7 };
}
