/**
 * Builds ONNX models by hand in the messages themselves, with domains, functions and subgraphs, which our own writer
 * does not write.
 */

import type { Tensor } from 'ropewalk';
import { onnxDataType } from '../../src/format/onnx.js';
import { encodeFile } from '../../src/format/onnx-messages.js';

type Attribute =
  | number
  | string
  | readonly number[]
  | { f: number }
  | { tensor: Tensor }
  | { graph: GraphMessage }
  | { ref: string };
type Dims = readonly (number | string | undefined)[];

export interface GraphMessage {
  readonly message: Record<string, unknown>;
}

/** A graph under construction. Values are passed around by name. */
export class Graph {
  private readonly nodes: unknown[] = [];
  private readonly initializers: unknown[] = [];
  private readonly inputs: unknown[] = [];
  private readonly outputs: unknown[] = [];
  private readonly types: unknown[] = [];
  private count = 0;

  constructor(readonly prefix = 'v') {}

  private value(name: string, dtype: string, shape?: Dims): unknown {
    const dim = shape?.map((size) =>
      typeof size === 'number' ? { dimValue: size } : size === undefined ? {} : { dimParam: size },
    );
    return { name, type: { tensorType: { elemType: onnxDataType(dtype as 'f32'), ...(dim && { shape: { dim } }) } } };
  }
  input(name: string, dtype: string, shape?: Dims): string {
    this.inputs.push(this.value(name, dtype, shape));
    return name;
  }
  output(name: string, dtype: string, shape?: Dims): string {
    this.outputs.push(this.value(name, dtype, shape));
    return name;
  }
  declare(name: string, dtype: string, shape?: Dims): string {
    this.types.push(this.value(name, dtype, shape));
    return name;
  }
  constant(tensor: Tensor, name = `c${this.count++}`): string {
    this.initializers.push(tensorMessage(tensor, name));
    return name;
  }
  external(name: string, dtype: string, dims: readonly number[], entries: Readonly<Record<string, string>>): string {
    const externalData = Object.entries(entries).map(([key, value]) => ({ key, value }));
    this.initializers.push({ name, dims, dataType: onnxDataType(dtype as 'f32'), dataLocation: 1, externalData });
    return name;
  }
  node(
    opType: string,
    inputs: readonly string[],
    attributes: Readonly<Record<string, Attribute>> = {},
    more: NodeOptions = {},
  ): string {
    return this.nodeOf(opType, inputs, attributes, { outputs: 1, ...more })[0]!;
  }
  nodeOf(
    opType: string,
    inputs: readonly string[],
    attributes: Readonly<Record<string, Attribute>>,
    { outputs = 1, domain, name, to }: NodeOptions,
  ): string[] {
    const output =
      to !== undefined ? [to].flat() : Array.from({ length: outputs }, () => `${this.prefix}${this.count++}`);
    this.nodes.push({
      opType,
      input: inputs,
      output,
      name: name ?? '',
      ...(domain ? { domain } : {}),
      attribute: Object.entries(attributes).map(([key, given]) => attributeMessage(key, given)),
    });
    return output;
  }
  message(name = 'graph'): Record<string, unknown> {
    return {
      name,
      node: this.nodes,
      initializer: this.initializers,
      input: this.inputs,
      output: this.outputs,
      valueInfo: this.types,
    };
  }
  get graph(): GraphMessage {
    return { message: this.message() };
  }
  function(name: string, domain: string, inputs: readonly string[], outputs: readonly string[]): unknown {
    return { name, domain, input: inputs, output: outputs, node: this.nodes };
  }
  model(more: { opset?: number; functions?: readonly unknown[]; ir?: number } = {}): Uint8Array {
    return encodeFile('ModelProto', {
      irVersion: more.ir ?? 10,
      producerName: 'ropewalk-test',
      opsetImport: [
        { domain: '', version: more.opset ?? 23 },
        { domain: 'com.microsoft', version: 1 },
        { domain: 'local', version: 1 },
      ],
      graph: this.message(),
      functions: more.functions ?? [],
    });
  }
}

interface NodeOptions {
  readonly outputs?: number;
  readonly domain?: string;
  readonly name?: string;
  /** The names of its outputs. */
  readonly to?: string | readonly string[];
}

function tensorMessage(tensor: Tensor, name: string): Record<string, unknown> {
  const data = tensor.read() as Uint8Array;
  return {
    dims: [...tensor.shape],
    dataType: onnxDataType(tensor.dtype),
    name,
    rawData: new Uint8Array(data.buffer, data.byteOffset, data.byteLength),
  };
}

function attributeMessage(name: string, given: Attribute): unknown {
  if (typeof given === 'number') return { name, i: given, type: 2 };
  if (typeof given === 'string') return { name, s: new TextEncoder().encode(given), type: 3 };
  if (Array.isArray(given)) return { name, ints: given, type: 7 };
  if ('f' in given) return { name, f: given.f, type: 1 };
  if ('ref' in given) return { name, refAttrName: given.ref, type: 2 };
  if ('tensor' in given) return { name, t: tensorMessage(given.tensor, ''), type: 4 };
  return { name, g: (given as { graph: GraphMessage }).graph.message, type: 5 };
}
