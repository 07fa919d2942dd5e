/**
 * The type of an entry in the table of operators, and the readers that an entry gets.
 *
 * One entry serves four purposes: the shapes of a graph (of a file, where much is unknown, or of our own, which is
 * checked), the evaluation of tables, the trace from a rotation's output back to its input, and the search for
 * positions. An entry has only the parts that some exporter needs.
 *
 * @module
 */

import type { Dtype } from 'ropewalk';
import type { OnnxGraph, OnnxModelNode, OnnxTensor } from '../format/onnx-model.js';
import type { Forms } from './forms.js';
import type { Value, ValueDtype } from './values.js';

/** A dimension: its size, or a name for an unknown size. Equal names are equal sizes. */
export type Dim = number | string;
export type Shape = readonly Dim[];

/** Integer vectors longer than this are data, not shapes. */
export const MAX_ENTRIES = 64;

/** A node, and integers that some opsets have as an attribute and later ones as an input. */
interface NodeReader {
  readonly node: OnnxModelNode;
  /** Undefined if the integers are absent or unknown. */
  list(attribute: string, input: number): readonly number[] | undefined;
}

export interface ShapeReader extends NodeReader {
  shape(input: number): Shape | undefined;
  /** Returns the entries of a small integer scalar or vector, with names for unknown ones. */
  content(input: number): Shape | undefined;
  /** Returns {@link content} if every entry is a number. */
  numbers(input: number): readonly number[] | undefined;
  /** Returns {@link content}, or names for the entries if only their count is known. */
  entries(input: number): Shape | undefined;
  /** Returns the entries of a small integer tensor in an attribute. */
  integersOf(tensor: OnnxTensor): readonly number[] | undefined;
  /** Makes a name for the unknown size of an output's axis. */
  fresh(axis: number, output?: number): string;
  /** Returns the shapes of the outputs of a graph inside the node. */
  inside(graph: OnnxGraph): readonly (Shape | undefined)[];
  /** Refuses our own graphs if `fits` is false. For files nothing happens, because their runtime checks them. */
  check(fits: boolean, what: string): void;
}

export interface DtypeReader {
  readonly node: OnnxModelNode;
  /** Returns the dtype of these inputs. In our own graphs they must be equal and among `allowed`. */
  dtype(inputs: readonly number[], allowed?: readonly ValueDtype[]): ValueDtype | undefined;
}

export interface ValueReader extends NodeReader {
  has(input: number): boolean;
  /** Returns an input that is read completely; its elements count as work. */
  input(input: number): Value;
  /** Returns an input of which no more is read than is written; {@link fits} counts the written elements. */
  part(input: number): Value;
  /** Returns the elements of a short vector of sizes or axes. */
  integers(input: number): readonly number[];
  /** Returns the shape of an input, without computing it if possible. */
  shape(input: number): readonly number[];
  /** Returns the attribute `axis`, counted from the front. */
  axis(rank: number, missing: number): number;
  read(tensor: OnnxTensor): Value;
  /** Counts the elements of a shape before memory is allocated for them. */
  fits(shape: readonly number[]): void;
  spend(steps: number): void;
  /** Returns the outputs of a graph inside the node. */
  inside(graph: OnnxGraph): readonly Value[];
  /** Lets a Slice whose end cannot be computed take everything, because caches are cut to the length in use. */
  readonly wholeCaches: boolean;
  cannot(why: string): never;
}

/** The source for tracing an output, channel by channel of its last dimensions. */
export interface TraceReader extends NodeReader {
  /** The index of the traced output. */
  readonly output: number;
  /** The sizes of the output's last dimensions. */
  readonly trail: readonly number[];
  shape(input: number): Shape | undefined;
  /** Returns the shape of the traced output. */
  outputShape(): Shape | undefined;
  numbers(input: number): readonly number[] | undefined;
  /** Returns the value of an input that depends on constants alone. */
  constant(input: number): Value | undefined;
  /** Returns the channels of an input's last dimensions, which have these sizes. */
  forms(input: number, trail: readonly number[]): Forms;
  spend(steps: number): void;
}

export interface Operator {
  /** Returns the shapes of the outputs, undefined for unknown ones. */
  shapes?(n: ShapeReader): readonly (Shape | undefined)[] | undefined;
  /** Returns the entries of the first output if it is a small integer vector. */
  content?(n: ShapeReader): Shape | undefined;
  /** Returns the dtype of the outputs. Default: the dtype of the first data input. */
  dtype?(n: DtypeReader): ValueDtype | undefined;
  /** The dtypes of the outputs after the first, if they differ from it. */
  readonly further?: readonly ValueDtype[];
  compute?(n: ValueReader): Value | readonly Value[];
  /** Returns the channels of an output; undefined if they cannot be traced. */
  trace?(n: TraceReader): Forms | undefined;
  /** The range of inputs that are data; the others are sizes and indices. Default: all. */
  readonly data?: readonly [start: number, end: number];
  /**
   * The effect on positions: `same` integers in another shape or dtype, or others made `one-by-one` (limbs, axes,
   * offsets). A sum over tokens is neither.
   */
  readonly positions?: 'same' | 'one-by-one';
  /** The work of a device: a `view` moves no bytes, and a `lookup` reads as much of its table as it writes. */
  readonly cost?: 'view' | 'lookup';
}

export type Operators = Readonly<Record<string, Operator>>;

export const FLOATS = ['f64', 'f32', 'f16', 'bf16'] as const;
export const NUMBERS = [...FLOATS, 'i32', 'i64', 'u8', 'u16', 'i8', 'i16', 'u32', 'u64'] as const;
export const INDICES = ['i32', 'i64'] as const;

/** Counts an axis from the front; undefined if there is no such axis. */
export function axisAt(given: number, rank: number): number | undefined {
  const axis = given < 0 ? given + rank : given;
  return Number.isInteger(axis) && axis >= 0 && axis < rank ? axis : undefined;
}

/** Counts axes from the front and returns them as a set. Invalid axes stay invalid. */
export function axisSet(axes: readonly number[], rank: number): ReadonlySet<number> {
  return new Set(axes.map((axis) => (axis < 0 ? axis + rank : axis)));
}

/** Returns the shape of the first input as that of the only output. */
export function sameShape(n: ShapeReader): readonly (Shape | undefined)[] {
  return [n.shape(0)];
}

/** Reads a number from an attribute, or returns `missing`, the operator's default. */
export function numberAttribute<T extends number | undefined>(node: OnnxModelNode, name: string, missing: T) {
  const given = node.attributes.get(name);
  return given?.kind === 'int' || given?.kind === 'float' ? given.value : missing;
}

export function intsAttribute(node: OnnxModelNode, name: string): readonly number[] | undefined {
  const given = node.attributes.get(name);
  return given?.kind === 'ints' ? given.value : undefined;
}

interface ConstantNumbers {
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  readonly values: readonly number[];
}

/** Reads the value of a Constant node from any of its attributes: numbers, or a tensor of the file. */
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
