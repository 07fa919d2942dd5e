/**
 * Translates the nodes of {@link emitPlan}, in form `primitives`, to calls of WebNN's builder.
 *
 * There is no i64 here: integers of shapes and axes are read as numbers, and indices are int32. 16-bit floats are f32,
 * which holds them exactly. A Cast to f16 rounds in the graph; WebNN has no bf16, so the reader of the output rounds to
 * it.
 *
 * @module
 */
import type { Dtype, HostArray, Tensor } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import { bitsOf, countElements } from 'ropewalk/internal';
import type { GraphBuilder } from '../export/builder.js';
import { DTYPE_OF, type OnnxNode } from '../format/onnx.js';
import type { MlBuilder, MlDtype, MlOperand } from './api.js';
import { checkTensorBytes } from './graphs.js';

/** WebNN's dtype for each of ours. Dtypes without an entry stay on the host. */
export type MlDtypes = Readonly<Partial<Record<Dtype, MlDtype>>>;

export interface Casts {
  readonly types: MlDtypes;
  /** True if a Cast to f16 can round in the graph. */
  readonly rounds16: boolean;
}

export function keyOfNodes({ nodes, initializers, inputs }: GraphBuilder): string {
  const constants = Array.from(initializers, ([name, tensor]) => {
    return [name, tensor.dtype, tensor.shape, bitsOf(tensor.read() as HostArray).join()];
  });
  return JSON.stringify([nodes, constants, inputs]);
}

interface Reader {
  readonly ml: MlBuilder;
  readonly types: MlDtypes;
  readonly rounds16: boolean;
  readonly node: OnnxNode;
  x(input: number): MlOperand;
  /** Returns a constant input as numbers. */
  numbers(input: number): readonly number[];
  int(name: string): number | undefined;
  /** Returns an attribute that is a list of integers. */
  ints(name: string): readonly number[] | undefined;
  /** Returns the matrix of which an input is the transpose, if a Transpose makes it. */
  untransposed(input: number): MlOperand | undefined;
}

type Translation = (n: Reader) => MlOperand | readonly MlOperand[];

/**
 * Translates the nodes of a graph.
 *
 * @returns the values of the graph's outputs, by name
 * @throws {RopewalkError} UNSUPPORTED for an operator without a translation; DEVICE for a value that is larger than a
 *   tensor may be; a TypeError of WebNN for one that this browser does not take
 */
export function writeNodes(
  ml: MlBuilder,
  graph: GraphBuilder,
  given: ReadonlyMap<string, MlOperand>,
  { types, rounds16 }: Casts,
): ReadonlyMap<string, MlOperand> {
  const values = new Map(given);
  const transposes = new Map<string, OnnxNode>();
  const operand = (name: string): MlOperand => {
    const found = values.get(name);
    if (found) return found;
    const made = constantOf(ml, graph.initializers.get(name)!, types);
    values.set(name, made);
    return made;
  };
  for (const node of graph.nodes) {
    const { inputs, attributes = {} } = node;
    const translate = Object.hasOwn(TRANSLATIONS, node.opType) ? TRANSLATIONS[node.opType] : undefined;
    if (!translate) fail('UNSUPPORTED', 'webnn', `WebNN has no operator for ${node.opType}.`);
    const attribute = (name: string): unknown => Object.values(attributes[name] ?? {})[0];
    const made = translate({
      ml,
      types,
      rounds16,
      node,
      x: (input) => operand(inputs[input]!),
      numbers: (input) => Array.from(graph.initializers.get(inputs[input]!)!.read() as ArrayLike<number>, Number),
      int: (name) => attribute(name) as number | undefined,
      ints: (name) => attribute(name) as readonly number[] | undefined,
      untransposed: (input) => {
        const maker = transposes.get(inputs[input]!);
        return maker && operand(maker.inputs[0]!);
      },
    });
    for (const [n, value] of (Array.isArray(made) ? made : [made]).entries()) {
      checkTensorBytes(value, node.opType);
      values.set(node.outputs[n]!, value);
    }
    if (node.opType === 'Transpose' && operand(inputs[0]!).shape.length === 2) transposes.set(node.outputs[0]!, node);
  }
  return new Map(graph.outputs.map(({ name }) => [name, operand(name)]));
}

function constantOf(ml: MlBuilder, tensor: Tensor, types: MlDtypes): MlOperand {
  const elements = tensor.read() as ArrayBufferView & ArrayLike<number>;
  const data = tensor.dtype === 'i64' ? Int32Array.from(elements, Number) : elements;
  return ml.constant({ dataType: types[tensor.dtype]!, shape: tensor.shape }, data);
}

const unary =
  (op: 'abs' | 'erf' | 'identity' | 'isNaN' | 'neg' | 'sqrt' | 'tanh'): Translation =>
  ({ ml, x }) =>
    ml[op](x(0));
const binary =
  (op: 'add' | 'div' | 'equal' | 'lesser' | 'max' | 'min' | 'mul' | 'sub'): Translation =>
  ({ ml, x }) =>
    ml[op](x(0), x(1));
const reduction =
  (op: 'reduceMean' | 'reduceSum'): Translation =>
  ({ ml, x, numbers, int }) => {
    const rank = x(0).shape.length;
    return ml[op](x(0), {
      axes: numbers(1).map((axis) => fromFront(axis, rank)),
      keepDimensions: int('keepdims') !== 0,
    });
  };

function fromFront(axis: number, rank: number): number {
  return axis < 0 ? axis + rank : axis;
}

function axisOf({ int, x }: Reader, missing = 0): number {
  return fromFront(int('axis') ?? missing, x(0).shape.length);
}

function indices(ml: MlBuilder, values: Int32Array, shape: readonly number[]): MlOperand {
  return ml.constant({ dataType: 'int32', shape }, values);
}

const TRANSLATIONS: Readonly<Record<string, Translation>> = /* @__PURE__ */ Object.freeze({
  Abs: unary('abs'),
  Erf: unary('erf'),
  Exp: exponential,
  Identity: unary('identity'),
  IsNaN: unary('isNaN'),
  Neg: unary('neg'),
  Sqrt: unary('sqrt'),
  Tanh: unary('tanh'),
  Add: binary('add'),
  Div: binary('div'),
  Equal: binary('equal'),
  Less: binary('lesser'),
  Max: binary('max'),
  Min: binary('min'),
  Mul: binary('mul'),
  Sub: binary('sub'),
  ReduceMean: reduction('reduceMean'),
  ReduceSum: reduction('reduceSum'),
  Where: ({ ml, x }) => ml.where(x(0), x(1), x(2)),
  // WebNN's clamp takes only numbers as bounds, and no integer data.
  Clip: ({ ml, x }) => ml.min(ml.max(x(0), x(1)), x(2)),
  Cast: ({ ml, x, int, types, rounds16 }) => {
    const to = DTYPE_OF.get(int('to')!);
    if (to === undefined) return ml.notEqual(x(0), zeroOf(ml, x(0).dataType)); // bool
    const type = types[to] ?? fail('UNSUPPORTED', 'webnn', `WebNN has no ${to}.`);
    if (to === 'f16' && rounds16) return ml.cast(ml.cast(x(0), 'float16'), type);
    return x(0).dataType === type ? x(0) : ml.cast(x(0), type);
  },
  Reshape: ({ ml, x, numbers }) => {
    const { shape } = x(0);
    const wanted = numbers(1).map((size, d) => (size === 0 ? shape[d]! : size));
    const known = wanted.reduce((product, size) => (size < 0 ? product : product * size), 1);
    return ml.reshape(
      x(0),
      wanted.map((size) => (size < 0 ? countElements(shape) / known : size)),
    );
  },
  Unsqueeze: ({ ml, x, numbers }) => {
    const { shape } = x(0);
    const axes = numbers(1).map((axis) => fromFront(axis, shape.length + numbers(1).length));
    const sizes = [...shape];
    for (const axis of axes.toSorted((a, b) => a - b)) sizes.splice(axis, 0, 1);
    return ml.reshape(x(0), sizes);
  },
  Split: (n) => {
    const [x, axis] = [n.x(0), axisOf(n)];
    const parts = n.int('num_outputs');
    const sizes = parts === undefined ? n.numbers(1) : Array.from({ length: parts }, () => x.shape[axis]! / parts);
    return isColumns(axis, sizes, x.shape) ? columnsOf(n.ml, x) : n.ml.split(x, sizes, { axis });
  },
  Concat: (n) => {
    const [axis, parts] = [axisOf(n), n.node.inputs.map((_, input) => n.x(input))];
    const sizes = parts.map(({ shape }) => shape[axis]!);
    return isColumns(axis, sizes, parts[0]!.shape) ? fromColumns(n.ml, parts) : n.ml.concat(parts, axis);
  },
  Slice: ({ ml, x, numbers }) => {
    const { shape } = x(0);
    const [starts, ends] = [shape.map(() => 0), [...shape]];
    for (const [n, given] of numbers(3).entries()) {
      const axis = fromFront(given, shape.length);
      starts[axis] = numbers(1)[n]!;
      ends[axis] = Math.min(shape[axis]!, numbers(2)[n]!);
    }
    return ml.slice(
      x(0),
      starts,
      ends.map((end, d) => end - starts[d]!),
    );
  },
  Transpose: ({ ml, x, ints }) => ml.transpose(x(0), { permutation: ints('perm')! }),
  Gather: (n) => n.ml.gather(n.x(0), n.x(1), { axis: axisOf(n) }),
  // WebNN's own operator refuses computed indices. Along the last dimension a place is row · size + index.
  GatherElements: ({ ml, x }) => {
    const shape = x(0).shape;
    const size = shape.at(-1)!;
    const rows = countElements(shape) / size;
    const starts = indices(
      ml,
      Int32Array.from({ length: rows }, (_, row) => row * size),
      [...shape.slice(0, -1), 1],
    );
    return ml.gather(ml.reshape(x(0), [rows * size]), ml.add(x(1), starts), { axis: 0 });
  },
  Expand: ({ ml, x, numbers }) => ml.expand(x(0), numbers(1)),
  // As a gemm, a product with a transposed matrix leaves the matrix in its order, which is twice as fast for a
  // constant.
  MatMul: ({ ml, x, untransposed }) => {
    const [a, matrix] = [x(0), untransposed(1)];
    if (!matrix) return ml.matmul(a, x(1));
    const [n, k] = matrix.shape as [number, number];
    const flat = ml.reshape(a, [countElements(a.shape) / k, k]);
    return ml.reshape(ml.gemm(flat, matrix, { bTranspose: true }), [...a.shape.slice(0, -1), n]);
  },
  Softmax: (n) => n.ml.softmax(n.x(0), axisOf(n, -1)),
  // An argMax that keeps dimensions confuses the shapes of later operators in Chromium 147.
  ArgMax: (n) => {
    const { shape } = n.x(0);
    return n.ml.reshape(n.ml.argMax(n.x(0), axisOf(n), { outputDataType: 'int32' }), [...shape.slice(0, -1), 1]);
  },
  TopK: topK,
});

/** True if the last dimension is cut into single elements, which WebNN would move one by one. */
function isColumns(axis: number, sizes: readonly number[], { length }: readonly number[]): boolean {
  return axis === length - 1 && length <= MAX_RANK && sizes.every((size) => size === 1);
}

/** The most dimensions of a slice. */
const MAX_RANK = 5;

/** Cuts `[…, k]` into k values of `[…, 1]`. */
function columnsOf(ml: MlBuilder, x: MlOperand): readonly MlOperand[] {
  const lead = x.shape.slice(0, -1);
  const last = lead.length;
  const apart = ml.transpose(x, { permutation: [last, ...lead.keys()] });
  return Array.from({ length: x.shape[last]! }, (_, n) =>
    ml.reshape(ml.slice(apart, [n, ...lead.map(() => 0)], [1, ...lead]), [...lead, 1]),
  );
}

/** Joins k values of `[…, 1]` to `[…, k]`. */
function fromColumns(ml: MlBuilder, parts: readonly MlOperand[]): MlOperand {
  const lead = parts[0]!.shape.slice(0, -1);
  const apart = ml.concat(
    parts.map((part) => ml.reshape(part, [1, ...lead])),
    0,
  );
  return ml.transpose(apart, { permutation: [...lead.map((_, d) => d + 1), 0] });
}

function zeroOf(ml: MlBuilder, dataType: MlDtype): MlOperand {
  const Elements = { float32: Float32Array, float16: Uint16Array, int32: Int32Array, uint8: Uint8Array }[dataType];
  return ml.constant({ dataType, shape: [] }, new Elements(1));
}

/** The product of this number and log2(e) is nearly exact in f32. */
const EXP_STEP = 21.90625;
const EXP_STEPS = 3;

/**
 * Computes `exp(x)` as a product of exponentials of parts of x. Chromium's own is 2 to the rounded x · log2(e), with an
 * error of 3.8e-6 at −86 (measured). The exponential of −{@link EXP_STEP} is exact, and that of the rest has an error
 * of 1e-6 at most. Reducing x by multiples of ln 2 is exact as well, but took fifteen times as long, because it needs a
 * gather.
 */
function exponential({ ml, x }: Reader): MlOperand {
  const least = ml.constant({ dataType: 'float32', shape: [] }, Float32Array.of(-EXP_STEP));
  let rest = x(0);
  let product: MlOperand | undefined;
  for (let n = 0; n < EXP_STEPS; n++) {
    const part = ml.max(rest, least);
    const power = ml.exp(part);
    product = product ? ml.mul(product, power) : power;
    rest = ml.sub(rest, part);
  }
  return ml.mul(product!, ml.exp(rest));
}

/**
 * Finds the largest values along the last dimension, one after the other: each time the first that equals the largest
 * left. Flags exclude the earlier ones, because a value may be −∞ like the mark for them.
 */
function topK({ ml, x, numbers }: Reader): readonly MlOperand[] {
  const values = x(0);
  const count = numbers(1)[0]!;
  const last = values.shape.length - 1;
  const size = values.shape[last]!;
  const number = (value: number): MlOperand => ml.constant({ dataType: 'float32', shape: [] }, Float32Array.of(value));
  const places = indices(
    ml,
    Int32Array.from({ length: size }, (_, n) => n),
    [size],
  );
  const [lowest, zero, one] = [number(-Infinity), number(0), number(1)];
  let left: MlOperand | undefined;
  const found = { values: [] as MlOperand[], indices: [] as MlOperand[] };
  for (let n = 0; n < count; n++) {
    const candidates: MlOperand = left ? ml.where(left, values, lowest) : values;
    const largest = ml.reduceMax(candidates, { axes: [last], keepDimensions: true });
    const equal = ml.equal(candidates, largest);
    const hits = ml.where(equal, one, zero);
    const free: MlOperand = left ? ml.where(left, hits, zero) : hits;
    const index = ml.reshape(ml.argMax(free, last, { outputDataType: 'int32' }), largest.shape);
    found.values.push(largest);
    found.indices.push(index);
    if (n === count - 1) break;
    const other = ml.notEqual(places, index);
    left = left ? ml.logicalAnd(left, other) : other;
  }
  return [ml.concat(found.values, last), ml.concat(found.indices, last)];
}
