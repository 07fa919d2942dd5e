/**
 * A small ONNX graph: what a peer is asked to run, and its bytes as a model file.
 *
 * @module
 */
import type { FloatDtype } from 'ropewalk';

/** Element types that these graphs use. */
export type GraphDtype = FloatDtype | 'i64' | 'i32' | 'u8';

/** A tensor that goes into a graph: as an input, or as a constant in the model. */
export interface GraphTensor {
  readonly name: string;
  readonly dtype: GraphDtype;
  readonly dims: readonly number[];
  readonly data: Float32Array | Float64Array | Uint16Array | BigInt64Array | Int32Array | Uint8Array;
}

/** A node; attributes that are integers in JavaScript become ONNX integers, lists of them lists, others floats. */
export interface GraphNode {
  readonly op: string;
  /** Of the operator; ONNX's own unless given. */
  readonly domain?: 'com.microsoft';
  /** Names; an empty name leaves an optional input out. */
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly attributes?: Readonly<Record<string, number | readonly number[]>>;
}

/** One way for a peer to compute a case. */
export interface PeerGraph {
  /** The operators as ONNX names them, for the report. */
  readonly name: string;
  readonly nodes: readonly GraphNode[];
  readonly inputs: readonly GraphTensor[];
  /** Weights: part of the model, so that the peer may rearrange them once. */
  readonly constants?: readonly GraphTensor[];
  readonly output: { readonly name: string; readonly dtype: FloatDtype; readonly dims: readonly number[] };
  /** Outputs beside the one that is compared, such as a KV cache. */
  readonly extraOutputs?: readonly { readonly name: string; readonly dtype: FloatDtype }[];
  /** Written for peers that lack the operator; ONNX Runtime, which has it, is not asked. */
  readonly substitute?: true;
}

const PRIMITIVES = ['Add', 'Sub', 'Mul', 'Sigmoid', 'MatMul', 'Split', 'Concat'] as const;

/**
 * A library's functions for ONNX operators, for peers that read no models. Split and Concat are those of two parts
 * along the last axis, MatMul's second factor is a weight.
 */
export type Primitives<T> = Readonly<Record<(typeof PRIMITIVES)[number], (inputs: readonly T[]) => readonly T[]>>;

/** Whether {@link evaluate} can compute a graph. */
export function isPrimitive({ nodes, output }: PeerGraph): boolean {
  return output.dtype === 'f32' && nodes.every(({ op }) => (PRIMITIVES as readonly string[]).includes(op));
}

/**
 * Computes a graph node by node.
 *
 * @param graph - {@link isPrimitive}
 * @param values - inputs and constants by name; gets what the nodes compute
 * @param primitives - of a library
 * @returns the output
 */
export function evaluate<T>(graph: PeerGraph, values: Map<string, T>, primitives: Primitives<T>): T {
  for (const { op, inputs, outputs } of graph.nodes) {
    const results = primitives[op as keyof Primitives<T>](inputs.map((name) => values.get(name)!));
    outputs.forEach((name, at) => {
      values.set(name, results[at]!);
    });
  }
  return values.get(graph.output.name)!;
}

/** ONNX TensorProto.DataType. */
const ELEMENT_TYPE: Readonly<Record<GraphDtype, number>> = {
  f32: 1,
  u8: 2,
  i32: 6,
  i64: 7,
  f16: 10,
  f64: 11,
  bf16: 16,
};
/** ONNX AttributeProto.AttributeType. */
const ATTRIBUTE = { float: 1, int: 2, ints: 7 } as const;
/** RotaryEmbedding, RMSNormalization and Attention entered or settled at 23. */
const OPSET = 23;
/** The ONNX file version that came with opset 23. */
const IR_VERSION = 11;

/** A message of Protocol Buffers: each field is a key, then a varint, four bytes, or the length of what follows. */
class Message {
  private readonly parts: Uint8Array[] = [];
  private length = 0;

  integer(field: number, value: number): this {
    return this.push(varint(field * 8), varint(value));
  }

  float(field: number, value: number): this {
    return this.push(varint(field * 8 + 5), new Uint8Array(Float32Array.of(value).buffer));
  }

  bytes(field: number, value: Uint8Array): this {
    return this.push(varint(field * 8 + 2), varint(value.length), value);
  }

  text(field: number, value: string): this {
    return this.bytes(field, new TextEncoder().encode(value));
  }

  message(field: number, value: Message): this {
    return this.push(varint(field * 8 + 2), varint(value.length), ...value.parts);
  }

  /** Adds a field once for each item. */
  each<T>(items: Iterable<T>, add: (item: T) => void): this {
    for (const item of items) add(item);
    return this;
  }

  /** All of it, copied once: weights are large. */
  finish(): Uint8Array {
    const whole = new Uint8Array(this.length);
    let at = 0;
    for (const part of this.parts) {
      whole.set(part, at);
      at += part.length;
    }
    return whole;
  }

  private push(...parts: Uint8Array[]): this {
    for (const part of parts) this.length += part.length;
    this.parts.push(...parts);
    return this;
  }
}

/** Seven bits a byte, the lowest first; negative numbers as 64 bits. */
function varint(value: number): Uint8Array {
  const bytes: number[] = [];
  let left = BigInt.asUintN(64, BigInt(value));
  for (; left > 127n; left >>= 7n) bytes.push(Number(left & 127n) | 128);
  return Uint8Array.of(...bytes, Number(left));
}

/**
 * Writes a graph as an ONNX model.
 *
 * @param graph - the graph
 * @returns the bytes of a model file
 * @see https://github.com/onnx/onnx/blob/main/onnx/onnx.proto, which numbers the fields
 */
export function encodeModel(graph: PeerGraph): Uint8Array {
  const opset = (domain: string, version: number): Message => new Message().text(1, domain).integer(2, version);
  const content = new Message().text(2, graph.name);
  content.each(graph.nodes, (node) => content.message(1, encodeNode(node)));
  content.each(graph.constants ?? [], (constant) => content.message(5, encodeTensor(constant)));
  content.each(graph.inputs, (input) => content.message(11, encodeValue(input)));
  // Extra outputs have no shape: ONNX Runtime's inference for a growing KV cache expects that of the past.
  content.each([graph.output, ...(graph.extraOutputs ?? [])], (output) => content.message(12, encodeValue(output)));
  const model = new Message().integer(1, IR_VERSION).message(7, content);
  return model.message(8, opset('', OPSET)).message(8, opset('com.microsoft', 1)).finish();
}

function encodeNode({ op, domain, inputs, outputs, attributes = {} }: GraphNode): Message {
  const node = new Message();
  node.each(inputs, (name) => node.text(1, name));
  node.each(outputs, (name) => node.text(2, name));
  node.text(4, op).text(7, domain ?? '');
  return node.each(Object.entries(attributes), ([name, value]) => {
    const attribute = new Message().text(1, name);
    if (typeof value !== 'number')
      attribute.each(value, (item) => attribute.integer(8, item)).integer(20, ATTRIBUTE.ints);
    else if (Number.isInteger(value)) attribute.integer(3, value).integer(20, ATTRIBUTE.int);
    else attribute.float(2, value).integer(20, ATTRIBUTE.float);
    node.message(5, attribute);
  });
}

function encodeTensor({ name, dtype, dims, data }: GraphTensor): Message {
  const tensor = new Message();
  tensor.each(dims, (dim) => tensor.integer(1, dim));
  tensor.integer(2, ELEMENT_TYPE[dtype]).text(8, name);
  return tensor.bytes(9, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
}

function encodeValue({ name, dtype, dims }: { name: string; dtype: GraphDtype; dims?: readonly number[] }): Message {
  const type = new Message().integer(1, ELEMENT_TYPE[dtype]);
  if (dims) {
    const shape = new Message();
    type.message(
      2,
      shape.each(dims, (dim) => shape.message(1, new Message().integer(1, dim))),
    );
  }
  return new Message().text(1, name).message(2, new Message().message(1, type));
}
