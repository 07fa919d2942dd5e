/**
 * A small ONNX graph: what a peer is asked to run, and its bytes as a model file.
 *
 * @module
 */
import { createRequire } from 'node:module';
import type { FloatDtype } from '../ropewalk.js';

/** Element types that these graphs use. */
export type GraphDtype = FloatDtype | 'i64' | 'i32' | 'u8';

/** A tensor that goes into a graph: as an input, or as a constant in the model. */
export interface GraphTensor {
  readonly name: string;
  readonly dtype: GraphDtype;
  readonly dims: readonly number[];
  readonly data: Float32Array | Float64Array | Uint16Array | BigInt64Array | Int32Array | Uint8Array;
}

/** A node; attributes that are integers in JavaScript become ONNX integers, others floats. */
export interface GraphNode {
  readonly op: string;
  /** Of the operator; ONNX's own unless given. */
  readonly domain?: 'com.microsoft';
  /** Names; an empty name leaves an optional input out. */
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly attributes?: Readonly<Record<string, number>>;
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
 * A library's functions for ONNX operators, for peers that read no models. Split and Concat are those of two parts along the last
 * axis, MatMul's second factor is a weight.
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
const ELEMENT_TYPE: Readonly<Record<GraphDtype, number>> = { f32: 1, u8: 2, i32: 6, i64: 7, f16: 10, f64: 11, bf16: 16 };
/** ONNX AttributeProto.AttributeType. */
const ATTRIBUTE_FLOAT = 1;
const ATTRIBUTE_INT = 2;
/** RotaryEmbedding, RMSNormalization and Attention entered or settled at 23. */
const OPSET = 23;
/** The ONNX file version that came with opset 23. */
const IR_VERSION = 11;

/**
 * Writes a graph as an ONNX model.
 *
 * @param graph - the graph
 * @returns the bytes of a model file
 */
export function encodeModel(graph: PeerGraph): Uint8Array {
  const { onnx } = createRequire(import.meta.url)('onnx-proto');
  const valueInfo = ({ name, dtype, dims }: { name: string; dtype: GraphDtype; dims: readonly number[] }) => ({
    name,
    type: { tensorType: { elemType: ELEMENT_TYPE[dtype], shape: { dim: dims.map((dimValue) => ({ dimValue })) } } },
  });
  const model = onnx.ModelProto.fromObject({
    irVersion: IR_VERSION,
    opsetImport: [
      { domain: '', version: OPSET },
      { domain: 'com.microsoft', version: 1 },
    ],
    graph: {
      name: graph.name,
      node: graph.nodes.map(({ op, domain, inputs, outputs, attributes = {} }) => ({
        opType: op,
        domain: domain ?? '',
        input: inputs,
        output: outputs,
        attribute: Object.entries(attributes).map(([name, value]) =>
          Number.isInteger(value) ? { name, type: ATTRIBUTE_INT, i: value } : { name, type: ATTRIBUTE_FLOAT, f: value },
        ),
      })),
      input: graph.inputs.map(valueInfo),
      output: [
        valueInfo(graph.output),
        // Without a shape: ONNX Runtime's inference for a growing KV cache expects that of the past.
        ...(graph.extraOutputs ?? []).map(({ name, dtype }) => ({ name, type: { tensorType: { elemType: ELEMENT_TYPE[dtype] } } })),
      ],
      initializer: (graph.constants ?? []).map(({ name, dtype, dims, data }) => ({
        name,
        dataType: ELEMENT_TYPE[dtype],
        dims,
        rawData: new Uint8Array(data.buffer, data.byteOffset, data.byteLength),
      })),
    },
  });
  return onnx.ModelProto.encode(model).finish();
}
