/**
 * A small ONNX graph that a peer runs, and its bytes as a model file.
 *
 * @module
 */
import { writeOnnxModel } from '@ropewalk/onnx';
import type { OnnxAttribute } from '@ropewalk/onnx/internal';
import { type Dtype, type FloatDtype, tensorFrom } from 'ropewalk';

/** Element types that these graphs use. */
export type GraphDtype = FloatDtype | 'i64' | 'i32' | 'u8';

/** A tensor that is an input of a graph or a constant in the model. */
export interface GraphTensor {
  readonly name: string;
  readonly dtype: GraphDtype;
  readonly dims: readonly number[];
  readonly data: Float32Array | Float64Array | Uint16Array | BigInt64Array | Int32Array | Uint8Array;
}

/** A node. Attributes that are integers become ONNX integers, lists of integers become lists, and others floats. */
export interface GraphNode {
  readonly op: string;
  /** The domain of the operator. Default: ONNX's own. */
  readonly domain?: 'com.microsoft';
  /** The names of the inputs. An empty name leaves an optional input out. */
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
  /** The weights. They are part of the model, so that the peer can rearrange them once. */
  readonly constants?: readonly GraphTensor[];
  readonly output: { readonly name: string; readonly dtype: FloatDtype; readonly dims: readonly number[] };
  /** Outputs of four dimensions besides the one that is compared, such as a KV cache. */
  readonly extraOutputs?: readonly { readonly name: string; readonly dtype: FloatDtype }[];
  /** Marks a graph for peers that lack the operator. ONNX Runtime has the operator and does not run this graph. */
  readonly substitute?: true;
}

const PRIMITIVES = ['Add', 'Sub', 'Mul', 'Sigmoid', 'MatMul', 'Split', 'Concat'] as const;

/**
 * A library's functions for ONNX operators, for peers that cannot read models. Split and Concat have two parts along
 * the last axis, and MatMul's second factor is a weight.
 */
export type Primitives<T> = Readonly<Record<(typeof PRIMITIVES)[number], (inputs: readonly T[]) => readonly T[]>>;

/** Says whether {@link evaluate} can compute a graph. */
export function isPrimitive({ nodes, output }: PeerGraph): boolean {
  return output.dtype === 'f32' && nodes.every(({ op }) => (PRIMITIVES as readonly string[]).includes(op));
}

/**
 * Computes a graph node by node.
 *
 * @param graph - {@link isPrimitive} must be true for it
 * @param values - the inputs and constants by name; the results of the nodes are added
 * @param primitives - the functions of a library
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

/** The opset in which RotaryEmbedding, RMSNormalization and Attention appeared or got their final form. */
const OPSET = 23;
/** The ONNX file version that came with opset 23. */
const IR_VERSION = 11;

/**
 * Writes a graph as an ONNX model.
 *
 * @param graph - the graph
 * @returns the bytes of a model file
 */
export function encodeModel({ name, nodes, inputs, constants = [], output, extraOutputs = [] }: PeerGraph): Uint8Array {
  return writeOnnxModel({
    name,
    opset: OPSET,
    domains: { 'com.microsoft': 1 },
    irVersion: IR_VERSION,
    producer: 'ropewalk-bench',
    nodes: nodes.map(({ op, domain, inputs, outputs, attributes = {} }) => ({
      opType: op,
      domain,
      inputs,
      outputs,
      attributes: Object.fromEntries(Object.entries(attributes).map(([key, value]) => [key, attributeOf(value)])),
    })),
    initializers: new Map(
      constants.map(({ name, dtype, dims, data }) => [name, tensorFrom<Dtype>(data, { dtype, shape: dims })]),
    ),
    inputs: inputs.map(({ name, dtype, dims }) => ({ name, dtype, shape: dims })),
    outputs: [
      { ...output, shape: output.dims },
      // The sizes are names, because ONNX Runtime's inference for a growing KV cache expects the shape of the past.
      ...extraOutputs.map(({ name, dtype }) => ({ name, dtype, shape: [0, 1, 2, 3].map((dim) => `${name}_${dim}`) })),
    ],
  });
}

function attributeOf(value: number | readonly number[]): OnnxAttribute {
  if (typeof value !== 'number') return { ints: value };
  return Number.isInteger(value) ? { i: value } : { f: value };
}
