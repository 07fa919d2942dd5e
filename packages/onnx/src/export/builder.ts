/**
 * Builds an ONNX graph node by node. It knows no operator.
 *
 * @module
 */
import { type Dtype, type Tensor, tensorFrom } from 'ropewalk';
import { newArray, refuse, storeNumber } from 'ropewalk/backend';
import type { OnnxAttribute, OnnxExternalTensor, OnnxModel, OnnxNode, OnnxValue } from '../format/onnx.js';
import { onnxDataType } from '../format/onnx.js';

/** RotaryEmbedding, RMSNormalization and Attention came with this opset. */
export const OPSET = 23;
/** TensorProto.DataType of conditions inside a graph. Tensors here have no such dtype. */
const ONNX_BOOL = 9;
/** The oldest opset with all primitives: Split with num_outputs, and ReduceMean with axes as an input. */
export const OLDEST_OPSET = 18;

/** The IR version of each opset, from the oldest on. */
const IR_VERSION: ReadonlyMap<number, number> = /* @__PURE__ */ new Map(
  /* @__PURE__ */ [8, 9, 9, 10, 10, 11].map((version, n) => [OLDEST_OPSET + n, version]),
);

/** An attribute of a new node. A plain number is an integer; undefined is left out. */
type NewAttribute = OnnxAttribute | number | string | readonly number[] | undefined;

function attributeOf(value: NonNullable<NewAttribute>): OnnxAttribute {
  if (typeof value === 'number') return { i: value };
  if (typeof value === 'string') return { s: value };
  return 'length' in value ? { ints: value } : value;
}

/** A graph under construction. Values are passed around by name. */
export class GraphBuilder {
  readonly nodes: OnnxNode[] = [];
  readonly initializers = new Map<string, Tensor>();
  readonly external = new Map<string, OnnxExternalTensor>();
  readonly inputs: OnnxValue[] = [];
  readonly outputs: OnnxValue[] = [];
  #count = 0;

  /** @param opset - the default of {@link model} */
  constructor(readonly opset: number = OPSET) {}

  /** Declares an input of the graph. */
  input(name: string, dtype: Dtype, shape: readonly (number | string)[]): string {
    this.inputs.push({ name, dtype, shape });
    return name;
  }

  /**
   * Adds a constant.
   *
   * @param name - gets a number behind it if a constant or an input has this name already
   * @param tensor - in host memory
   * @returns its name in the graph
   */
  constant(name: string, tensor: Tensor): string {
    const taken = (wanted: string): boolean =>
      this.initializers.has(wanted) || this.inputs.some((input) => input.name === wanted);
    let free = name;
    for (let n = 1; taken(free); n++) free = `${name}_${n}`;
    this.initializers.set(free, tensor);
    return free;
  }

  /** Adds a constant vector of i64: a shape, axes or indices. */
  integers(name: string, values: ArrayLike<number>): string {
    return this.constant(name, tensorFrom(BigInt64Array.from(Array.from(values), BigInt)));
  }

  /** Adds a constant without dimensions. */
  scalar(name: string, dtype: 'f32' | 'f64' | 'f16', value: number): string {
    const data = newArray(dtype, 1);
    storeNumber(data, dtype, 0, value);
    return this.constant(name, tensorFrom(data, { dtype, shape: [] }));
  }

  /** Appends a node with one output, like {@link addMany}. */
  add(
    opType: string,
    inputs: readonly (string | undefined)[],
    attributes: Readonly<Record<string, NewAttribute>> = {},
    domain?: string,
  ): string {
    return this.addMany(opType, inputs, attributes, 1, domain)[0]!;
  }

  /**
   * Appends a node with several outputs. Inputs and attributes that are undefined are left out. The input '' keeps the
   * place of an optional input before others.
   */
  addMany(
    opType: string,
    inputs: readonly (string | undefined)[],
    attributes: Readonly<Record<string, NewAttribute>>,
    count: number,
    domain?: string,
  ): readonly string[] {
    const outputs = Array.from({ length: count }, (_, n) => `v${this.#count}${count > 1 ? `_${n}` : ''}`);
    this.#count++;
    this.nodes.push({
      opType,
      domain,
      inputs: inputs.filter((name) => name !== undefined),
      outputs,
      attributes: Object.fromEntries(
        Object.entries(attributes).flatMap(([name, value]) =>
          value === undefined ? [] : [[name, attributeOf(value)]],
        ),
      ),
    });
    return outputs;
  }

  /** Appends a conversion to another dtype. */
  cast(value: string, to: Dtype | 'bool'): string {
    return this.add('Cast', [value], { to: to === 'bool' ? ONNX_BOOL : onnxDataType(to) });
  }

  /** Declares an output of the graph. The last node writes it under its name; any other value goes through Identity. */
  output(value: string, name: string, dtype: Dtype, shape: readonly (number | string)[]): void {
    const node = this.nodes.at(-1);
    if (node?.outputs.includes(value))
      this.nodes[this.nodes.length - 1] = { ...node, outputs: node.outputs.map((o) => (o === value ? name : o)) };
    else this.nodes.push({ opType: 'Identity', inputs: [value], outputs: [name] });
    this.outputs.push({ name, dtype, shape });
  }

  /**
   * Finishes the graph.
   *
   * @param name - the name of the graph
   * @param producer - the program that writes it
   * @param doc - a line for people
   * @param opset - in [`OLDEST_OPSET`, `OPSET`]; below OPSET for graphs of primitives only
   */
  model(name: string, producer: string, doc?: string, opset = this.opset): OnnxModel {
    const { inputs, outputs, initializers, external, nodes } = this;
    const irVersion =
      IR_VERSION.get(opset) ?? refuse('RANGE', 'graph: opset', `an integer in [${OLDEST_OPSET}, ${OPSET}]`, opset);
    const others = new Set(nodes.flatMap(({ domain }) => domain ?? []));
    const domains = Object.fromEntries(Array.from(others, (domain) => [domain, 1]));
    return { name, doc, opset, domains, irVersion, producer, inputs, outputs, initializers, external, nodes };
  }
}
