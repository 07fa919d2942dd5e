/**
 * Computes the types and shapes of every value of a graph that this package writes, checks them against the definitions
 * of the operators, and counts the cost of a graph.
 *
 * @module
 * @see https://onnx.ai/onnx/operators/
 */
import { sizeBytes } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { checkInteger, countElements, reading, readOptions } from 'ropewalk/internal';
import type { OnnxAttribute, OnnxDtype, OnnxModel, OnnxNode } from '../format/onnx.js';
import type { AttributeValue, OnnxModelNode } from '../format/onnx-model.js';
import { operatorNamed } from '../operators/index.js';
import { type DtypeReader, intsAttribute, type Shape, type ShapeReader } from '../operators/operator.js';
import type { ValueDtype } from '../operators/values.js';

interface ValueType {
  readonly dtype: ValueDtype | OnnxDtype;
  readonly shape: readonly number[];
}

export function bytesOf({ dtype, shape }: ValueType): number {
  const size = dtype === 'bool' ? 1 : dtype === 'i4' ? 0.5 : sizeBytes(dtype);
  return countElements(shape) * size;
}

/**
 * Computes the type and shape of every value: inputs, constants and the outputs of nodes.
 *
 * @param sizes - the sizes of open dimensions
 * @param given - integers of inputs that decide sizes
 * @throws {RopewalkError} FORMAT for a value that is used before it exists or written twice, types that an operator
 *   does not take, shapes that do not fit, or outputs that differ from their declaration; RANGE for an open dimension
 *   without a size
 */
export function valueTypes(
  model: Pick<OnnxModel, 'inputs' | 'outputs' | 'nodes' | 'initializers' | 'external'>,
  sizes: Readonly<Record<string, number>> = {},
  given: Readonly<Record<string, readonly number[]>> = {},
) {
  const types = new Map<string, ValueType>();
  /** Integers that the graph computes from shapes. */
  const contents = new Map<string, Shape>(Object.entries(given));
  const define = (name: string, type: ValueType): void => {
    if (types.has(name)) fail('FORMAT', `graph: ${name}`, 'two values have this name');
    types.set(name, type);
  };
  const find = (name: string, where: string): ValueType =>
    types.get(name) ?? fail('FORMAT', where, `no value ${name} is made before this`);
  const sized = (shape: readonly (number | string)[]): number[] =>
    shape.map((dim) =>
      typeof dim === 'number' ? dim : (sizes[dim] ?? fail('RANGE', `graph: ${dim}`, 'this dimension needs a size')),
    );
  for (const { name, dtype, shape } of model.inputs) define(name, { dtype, shape: sized(shape) });
  for (const [name, { dtype, shape }] of [...model.initializers, ...(model.external ?? [])])
    define(name, { dtype, shape });
  for (const [n, node] of model.nodes.entries()) {
    const where = `graph: node ${n}, ${node.opType}`;
    const inputs = node.inputs.map((name) => (name === '' ? undefined : find(name, where)));
    const { results, content } = resultsOf(model, node, inputs, contents, where);
    if (results.length !== node.outputs.length)
      refuse('FORMAT', where, `${results.length} outputs`, node.outputs.length);
    for (const [o, name] of node.outputs.entries()) define(name, results[o]!);
    if (content) contents.set(node.outputs[0]!, content);
  }
  for (const { name, dtype, shape } of model.outputs) {
    const where = `graph: output ${name}`;
    const type = find(name, where);
    const wanted = sized(shape);
    if (type.dtype !== dtype || type.shape.join() !== wanted.join())
      fail('FORMAT', where, `expected ${dtype} [${wanted}], got ${type.dtype} [${type.shape}]`);
  }
  return types;
}

function resultsOf(
  model: Pick<OnnxModel, 'initializers'>,
  written: OnnxNode,
  inputs: readonly (ValueType | undefined)[],
  contents: ReadonlyMap<string, Shape>,
  where: string,
): { readonly results: ValueType[]; readonly content: Shape | undefined } {
  const node = asRead(written);
  const operator = operatorNamed(node.opType) ?? fail('FORMAT', where, 'the table of operators does not have it');
  const wrong = (what: string): never => {
    const given = inputs.map((input) => (input ? `${input.dtype} [${input.shape}]` : 'none')).join(', ');
    return fail('FORMAT', `${where}: ${what}`, `the operator does not take this; its inputs are ${given}`);
  };
  const content = (input: number): Shape | undefined => {
    const name = node.inputs[input] ?? '';
    const tensor = model.initializers.get(name);
    return tensor?.dtype === 'i64' ? [...(tensor.readNumbers() as Float64Array)] : contents.get(name);
  };
  const numbers = (input: number): readonly number[] | undefined => {
    const known = content(input);
    return known?.every((entry) => typeof entry === 'number') ? (known as readonly number[]) : undefined;
  };
  const shapes: ShapeReader = {
    node,
    list: (attribute, input) => intsAttribute(node, attribute) ?? numbers(input),
    shape: (input) => inputs[input]?.shape,
    content,
    numbers,
    entries: content,
    integersOf: () => undefined,
    fresh: () => wrong('shape'),
    inside: () => wrong('graph'),
    check: (fits, what) => void (fits || wrong(what)),
  };
  const dtypes: DtypeReader = {
    node,
    dtype: (which, allowed) => {
      const found = new Set(which.map((input) => (inputs[input] ?? wrong('inputs')).dtype));
      const [dtype] = found;
      if (found.size !== 1 || (allowed && !allowed.includes(dtype as ValueDtype)))
        refuse('FORMAT', `${where}: dtypes`, `one of ${allowed?.join(', ')}`, [...found]);
      return dtype as ValueDtype;
    },
  };
  const dtype = (operator.dtype ? operator.dtype(dtypes) : inputs[0]?.dtype) ?? wrong('dtype');
  const shaped = operator.shapes?.(shapes) ?? wrong('shape');
  const results = shaped.map((shape, output) => ({
    dtype: (output > 0 ? operator.further?.[output - 1] : undefined) ?? dtype,
    shape: (shape ?? wrong('shape')) as readonly number[],
  }));
  return { results, content: operator.content?.(shapes) };
}

/** Converts a node to the form in which a file is read. */
function asRead({ opType, inputs, outputs, attributes = {} }: OnnxNode): OnnxModelNode {
  const read = Object.entries(attributes).map(([name, value]) => [name, attributeAsRead(value)] as const);
  return { name: '', opType, domain: '', inputs, outputs, attributes: new Map(read) };
}

function attributeAsRead(given: OnnxAttribute): AttributeValue {
  if ('i' in given) return { kind: 'int', value: given.i };
  if ('f' in given) return { kind: 'float', value: given.f };
  return 's' in given ? { kind: 'string', value: given.s } : { kind: 'ints', value: given.ints };
}

/** The operators of a graph, and the bytes that they move. */
export interface GraphCost {
  /** The number of operators that touch data, by type. */
  readonly calls: ReadonlyMap<string, number>;
  readonly count: number;
  /** The number of operators that only give the same bytes another shape. */
  readonly views: number;
  readonly bytesRead: number;
  readonly bytesWritten: number;
  /** The bytes of all values between nodes. */
  readonly bytesBuffered: number;
}

/**
 * Counts what a graph costs an accelerator that runs it operator by operator. Each node reads its inputs, with
 * constants, and writes its outputs. A look-up reads as much of the table as it writes; a RotaryEmbedding with
 * position_ids and a GroupQueryAttention read the rows of the tokens. Constants that are shapes or axes are not
 * counted.
 *
 * @param model - a graph that this package built
 * @param sizes - the sizes of open dimensions
 * @param given - integers of inputs that decide sizes, such as num_logits_to_keep of a decoder
 * @throws {RopewalkError} RANGE for something that is no graph, or no sizes
 */
export function graphCost(
  model: OnnxModel,
  sizes: Readonly<Record<string, number>> = {},
  given: Readonly<Record<string, readonly number[]>> = {},
): GraphCost {
  const own = readOptions(sizes, 'sizes');
  for (const [name, size] of Object.entries(own)) checkInteger(size, `sizes: ${name}`, 0);
  return reading('graph', () => costOf(model, own, given));
}

function costOf(
  model: OnnxModel,
  sizes: Readonly<Record<string, number>>,
  given: Readonly<Record<string, readonly number[]>>,
): GraphCost {
  const types = valueTypes(model, sizes, given);
  const calls = new Map<string, number>();
  let [count, views, bytesRead, bytesWritten, bytesBuffered] = [0, 0, 0, 0, 0];
  const outputs = new Set(model.outputs.map(({ name }) => name));
  // An output that a view only reshapes is not a separate buffer.
  for (const node of model.nodes.toReversed())
    if (operatorNamed(node.opType)?.cost === 'view' && outputs.has(node.outputs[0]!)) outputs.add(node.inputs[0]!);
  const size = (name: string): number => (name === '' ? 0 : bytesOf(types.get(name)!));
  for (const node of model.nodes) {
    const cost = operatorNamed(node.opType)?.cost;
    if (cost === 'view') {
      views++;
      continue;
    }
    count++;
    calls.set(node.opType, (calls.get(node.opType) ?? 0) + 1);
    const written = node.outputs.reduce((sum, name) => sum + size(name), 0);
    bytesWritten += written;
    for (const name of node.outputs) if (!outputs.has(name)) bytesBuffered += size(name);
    const readOf = (name: string, n: number): number => {
      const lookup = cost === 'lookup';
      if (model.initializers.get(name)?.dtype === 'i64' && !lookup) return 0;
      if (lookup && n === 0) return Math.min(written, size(name));
      const { dtype, shape } = types.get(name) ?? { dtype: 'u8', shape: [0] };
      const rotates = node.opType === 'RotaryEmbedding' && node.inputs.length > 3 && (n === 1 || n === 2);
      const isTable = rotates || (node.opType === 'GroupQueryAttention' && (n === 7 || n === 8));
      if (!isTable) return size(name);
      // position_ids or the query, `[batch, seq, …]`, tell how many rows the tokens read.
      const rows = countElements(types.get(node.inputs[rotates ? 3 : 0]!)!.shape.slice(0, 2));
      return Math.min(size(name), rows * bytesOf({ dtype, shape: shape.slice(1) }));
    };
    for (const [n, name] of node.inputs.entries()) bytesRead += readOf(name, n);
  }
  return { calls, count, views, bytesRead, bytesWritten, bytesBuffered };
}
