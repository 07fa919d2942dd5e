/**
 * An ONNX graph while it grows: values have names, nodes are appended, constants are initializers.
 *
 * It knows no operator of ours; emitters call it.
 *
 * @module
 */
import type { Dtype } from '../core/dtypes.js';
import { type Tensor, tensorFrom } from '../core/tensor.js';
import { type OnnxAttribute, type OnnxModel, type OnnxNode, type OnnxValue, onnxDataType } from '../formats/onnx.js';

/** RotaryEmbedding, RMSNormalization and Attention as they came with opset 23. */
export const OPSET = 23;
/** The IR version that goes with opset 23. */
const IR_VERSION = 11;

/** A graph under construction. Values are passed around by name. */
export class GraphBuilder {
  readonly nodes: OnnxNode[] = [];
  readonly initializers = new Map<string, Tensor>();
  readonly inputs: OnnxValue[] = [];
  readonly outputs: OnnxValue[] = [];
  private count = 0;

  /** Declares an input of the graph. */
  input(name: string, dtype: Dtype, shape: readonly number[]): string {
    this.inputs.push({ name, dtype, shape });
    return name;
  }

  /** A constant of the graph; in host memory. */
  constant(name: string, tensor: Tensor): string {
    this.initializers.set(name, tensor);
    return name;
  }

  /** A constant vector of i64, as shapes, axes and indices are given. */
  integers(name: string, values: ArrayLike<number>): string {
    return this.constant(name, tensorFrom(BigInt64Array.from(Array.from(values), BigInt)));
  }

  /** A constant without dimensions. */
  scalar(name: string, dtype: 'f32' | 'f64', value: number): string {
    return this.constant(name, tensorFrom(dtype === 'f64' ? Float64Array.of(value) : Float32Array.of(value), { shape: [] }));
  }

  /** Appends a node with one output. */
  add(opType: string, inputs: readonly string[], attributes: Readonly<Record<string, OnnxAttribute>> = {}): string {
    return this.addMany(opType, inputs, attributes, 1)[0]!;
  }

  /** Appends a node with several outputs. */
  addMany(
    opType: string,
    inputs: readonly string[],
    attributes: Readonly<Record<string, OnnxAttribute>>,
    outputs: number,
  ): readonly string[] {
    const names = Array.from({ length: outputs }, (_, n) => `v${this.count}${outputs > 1 ? `_${n}` : ''}`);
    this.count++;
    this.nodes.push({ opType, inputs, outputs: names, attributes });
    return names;
  }

  cast(value: string, to: Dtype): string {
    return this.add('Cast', [value], { to: { i: onnxDataType(to) } });
  }

  /** 16-bit floats as f32, so that what follows rounds once at the end. */
  widen(value: string, dtype: Dtype): string {
    return dtype === 'f16' || dtype === 'bf16' ? this.cast(value, 'f32') : value;
  }

  /** The end of what {@link widen} began. */
  narrow(value: string, dtype: Dtype): string {
    return dtype === 'f16' || dtype === 'bf16' ? this.cast(value, dtype) : value;
  }

  /** Hands a value out of the graph. The last node writes it under its name; any other value goes through Identity. */
  output(value: string, name: string, dtype: Dtype, shape: readonly number[]): void {
    const node = this.nodes.at(-1);
    if (node?.outputs.includes(value))
      this.nodes[this.nodes.length - 1] = { ...node, outputs: node.outputs.map((o) => (o === value ? name : o)) };
    else this.nodes.push({ opType: 'Identity', inputs: [value], outputs: [name] });
    this.outputs.push({ name, dtype, shape });
  }

  /**
   * Closes the graph.
   *
   * @param name - the graph's name
   * @param producer - the program that wrote it
   * @param doc - a line for people
   */
  model(name: string, producer: string, doc?: string): OnnxModel {
    const { inputs, outputs, initializers, nodes } = this;
    return {
      name,
      ...(doc === undefined ? {} : { doc }),
      opset: OPSET,
      irVersion: IR_VERSION,
      producer,
      inputs,
      outputs,
      initializers,
      nodes,
    };
  }
}
