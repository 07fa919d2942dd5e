/**
 * What an entry of the table of operators says, and what it is asked with.
 *
 * One entry serves four readers: the shapes of a graph (of a stranger's, where much is unknown, and of our own, which
 * are checked), the evaluation of tables, the trace from a rotation's output back to its input, and the search for
 * positions. An entry has only the parts that some exporter needs.
 *
 * @module
 */

import type { Dtype } from 'ropewalk';
import type { OnnxGraph, OnnxModelNode, OnnxTensor } from '../format/onnx-model.js';
import type { Forms } from './forms.js';
import type { Value, ValueDtype } from './values.js';

/** A dimension: its size, or the name of a size that is not known. Equal names are equal sizes. */
export type Dim = number | string;
/** The dimensions of a value. */
export type Shape = readonly Dim[];

/** Integer vectors longer than this are data, not shapes. */
export const MAX_ENTRIES = 64;

/** A node, and integers that some opsets give as an attribute and later ones as an input. */
interface NodeReader {
  readonly node: OnnxModelNode;
  /** undefined where the integers are absent or not known. */
  list(attribute: string, input: number): readonly number[] | undefined;
}

/** What shapes are inferred from. */
export interface ShapeReader extends NodeReader {
  shape(input: number): Shape | undefined;
  /** The entries of a small integer scalar or vector, as far as they are known. */
  content(input: number): Shape | undefined;
  /** {@link content} where every entry is a number. */
  numbers(input: number): readonly number[] | undefined;
  /** {@link content}, with names for the entries where only their count is known. */
  entries(input: number): Shape | undefined;
  /** The entries of a small tensor of integers in an attribute. */
  integersOf(tensor: OnnxTensor): readonly number[] | undefined;
  /** A name for the size of an output's axis that is not known. */
  fresh(axis: number, output?: number): string;
  /** Shapes of the outputs of a graph inside the node. */
  inside(graph: OnnxGraph): readonly (Shape | undefined)[];
  /** Our own graphs are refused where `fits` is false; a stranger's are not: who runs them checks. */
  check(fits: boolean, what: string): void;
}

/** What dtypes are inferred from. */
export interface DtypeReader {
  readonly node: OnnxModelNode;
  /** The dtype of these inputs; in our own graphs they must be alike and among those allowed. */
  dtype(inputs: readonly number[], allowed?: readonly ValueDtype[]): ValueDtype | undefined;
}

/** What values are computed from. */
export interface ValueReader extends NodeReader {
  has(input: number): boolean;
  /** An input that is read through: its elements are counted as work. */
  input(input: number): Value;
  /** An input of which no more is read than is written, and written elements are counted by {@link fits}. */
  part(input: number): Value;
  /** The elements of a short vector of sizes or axes. */
  integers(input: number): readonly number[];
  /** The shape of an input, which need not be computed for that. */
  shape(input: number): readonly number[];
  /** The attribute `axis`, counted from the front. */
  axis(rank: number, missing: number): number;
  /** A tensor of the file. */
  read(tensor: OnnxTensor): Value;
  /** Counts a shape's elements before memory is taken for them. */
  fits(shape: readonly number[]): void;
  spend(steps: number): void;
  /** The outputs of a graph inside the node. */
  inside(graph: OnnxGraph): readonly Value[];
  /** Whether a Slice whose end cannot be computed takes everything: caches are cut to the length in use. */
  readonly wholeCaches: boolean;
  /** Refuses the node, with the reason. */
  cannot(why: string): never;
}

/** What an output is traced from, channel by channel of its last dimensions. */
export interface TraceReader extends NodeReader {
  /** Which of the node's outputs is traced. */
  readonly output: number;
  /** The sizes of the output's last dimensions. */
  readonly trail: readonly number[];
  shape(input: number): Shape | undefined;
  /** The shape of the output that is traced. */
  outputShape(): Shape | undefined;
  numbers(input: number): readonly number[] | undefined;
  /** The value of an input that depends on constants alone. */
  constant(input: number): Value | undefined;
  /** The channels of an input's last dimensions, of these sizes. */
  forms(input: number, trail: readonly number[]): Forms;
  spend(steps: number): void;
}

/** One operator. */
export interface Operator {
  /** Shapes of the outputs; undefined for those that are not known. */
  shapes?(n: ShapeReader): readonly (Shape | undefined)[] | undefined;
  /** The entries of the first output, where that is a small integer vector. */
  content?(n: ShapeReader): Shape | undefined;
  /** The dtype of the outputs; that of the first data input unless given. */
  dtype?(n: DtypeReader): ValueDtype | undefined;
  /** The dtypes of the outputs after the first, where they have their own. */
  readonly further?: readonly ValueDtype[];
  /** The outputs, computed. */
  compute?(n: ValueReader): Value | readonly Value[];
  /** The channels of an output; undefined where the operator does something that is not traced. */
  trace?(n: TraceReader): Forms | undefined;
  /** The inputs that are data, from the first to before the second; others are sizes and indices. All unless given. */
  readonly data?: readonly [start: number, end: number];
  /**
   * What becomes of positions: `same` integers in another shape or dtype, or others made `one-by-one` (limbs, axes,
   * offsets). Sums over tokens are neither.
   */
  readonly positions?: 'same' | 'one-by-one';
  /** What a device does: a `view` is a name for the same bytes, a `lookup` reads as much of its table as it writes. */
  readonly cost?: 'view' | 'lookup';
}

/** Some operators by their names. */
export type Operators = Readonly<Record<string, Operator>>;

/** Dtypes of data. */
export const FLOATS = ['f64', 'f32', 'f16', 'bf16'] as const;
/** Dtypes of numbers. */
export const NUMBERS = [...FLOATS, 'i32', 'i64', 'u8', 'u16', 'i8', 'i16', 'u32', 'u64'] as const;
/** Dtypes of indices. */
export const INDICES = ['i32', 'i64'] as const;

/** An axis counted from the front; undefined where there is none such. */
export function axisAt(given: number, rank: number): number | undefined {
  const axis = given < 0 ? given + rank : given;
  return Number.isInteger(axis) && axis >= 0 && axis < rank ? axis : undefined;
}

/** Axes counted from the front, as a set; what lies outside stays outside. */
export function axisSet(axes: readonly number[], rank: number): ReadonlySet<number> {
  return new Set(axes.map((axis) => (axis < 0 ? axis + rank : axis)));
}

/** The shape of the first input, as the only output's. */
export function sameShape(n: ShapeReader): readonly (Shape | undefined)[] {
  return [n.shape(0)];
}

/** A number in an attribute, or `missing`, the operator's default. */
export function numberAttribute<T extends number | undefined>(node: OnnxModelNode, name: string, missing: T) {
  const given = node.attributes.get(name);
  return given?.kind === 'int' || given?.kind === 'float' ? given.value : missing;
}

/** A list of integers in an attribute. */
export function intsAttribute(node: OnnxModelNode, name: string): readonly number[] | undefined {
  const given = node.attributes.get(name);
  return given?.kind === 'ints' ? given.value : undefined;
}

/** Numbers that a Constant node holds as attributes. */
interface ConstantNumbers {
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  readonly values: readonly number[];
}

/** What a Constant node holds, in whichever of its attributes: numbers, or a tensor of the file. */
export function constantOfNode(node: OnnxModelNode): OnnxTensor | ConstantNumbers | undefined {
  const value = node.attributes.get('value');
  if (value?.kind === 'tensor') return value.value;
  for (const [kind, dtype] of [
    ['int', 'i64'],
    ['float', 'f32'],
  ] as const) {
    const scalar = numberAttribute(node, `value_${kind}`, undefined);
    if (scalar !== undefined) return { dtype, shape: [], values: [scalar] };
  }
  for (const [kind, dtype] of [
    ['ints', 'i64'],
    ['floats', 'f32'],
  ] as const) {
    const list = node.attributes.get(`value_${kind}`);
    if (list?.kind === 'ints' || list?.kind === 'floats')
      return { dtype, shape: [list.value.length], values: list.value };
  }
  return undefined;
}
