/**
 * The cos and sin that a found rotation uses, computed from positions by the graph's own arithmetic.
 *
 * @module
 */
import { countElements, rowMajorStrides } from 'ropewalk/backend';
import type { Factor } from '../operators/forms.js';
import { CannotEvaluate, type Value } from '../operators/values.js';
import type { Evaluation } from './evaluate.js';
import type { FoundArithmetic } from './find.js';

/** cos and sin of every pair at every place of the outer dimensions. */
export interface OuterTables {
  /** Dimensions of the tables in front of their channels; they broadcast to those of x, from the right. */
  readonly outer: readonly number[];
  readonly pairs: number;
  /** `[...outer, pairs]`, dense. */
  readonly cos: Float64Array;
  readonly sin: Float64Array;
  /** The tables' dtype: f64, or one that f32 holds. */
  readonly wide: boolean;
}

/**
 * Computes the tables of a rotation.
 *
 * @throws {CannotEvaluate} when something is missing, or when the two members of a pair turn by different angles
 */
export function tablesOf({ rotation, trails }: FoundArithmetic, evaluation: Evaluation): OuterTables {
  const leaves = new Map<string, { value: Value; outer: readonly number[]; width: number }>();
  const need = (leaf: string): void => {
    if (leaves.has(leaf)) return;
    const value = evaluation.value(leaf);
    const trail = trails.get(leaf)!;
    const width = countElements(trail);
    const outer = value.shape.slice(0, value.shape.length - trail.length);
    if (countElements(value.shape.slice(outer.length)) !== width || countElements(outer) * width !== value.data.length)
      throw new CannotEvaluate(`${leaf} has the shape [${value.shape}], and its last dimensions should be [${trail}]`);
    leaves.set(leaf, { value, outer, width });
  };
  for (const { cos, sin } of rotation.tables) for (const { leaf } of [...cos, ...sin]) need(leaf);
  const outer = commonShape([...leaves.values()].map((leaf) => leaf.outer));
  const places = countElements(outer);
  const pairs = rotation.tables.length;
  // Four factors are read for each pair; cos and sin may broadcast to more than either holds.
  evaluation.fits([...outer, pairs, 4]);
  const read = new Map([...leaves].map(([name, leaf]) => [name, reader(leaf, outer)]));
  const at = (factor: Factor, place: number): number => read.get(factor.leaf)!(place, factor.at);
  const cos = new Float64Array(places * pairs);
  const sin = new Float64Array(places * pairs);
  for (let place = 0; place < places; place++) {
    for (const [j, table] of rotation.tables.entries()) {
      for (const [target, [first, second]] of [
        [cos, table.cos],
        [sin, table.sin],
      ] as const) {
        const [a, b] = [at(first, place), at(second, place)];
        if (a !== b && !(Number.isNaN(a) && Number.isNaN(b)))
          throw new MembersDiffer(`the two members of pair ${j} are turned by different numbers, ${a} and ${b}`);
        target[place * pairs + j] = a * rotation.scale;
      }
    }
  }
  return { outer, pairs, cos, sin, wide: [...leaves.values()].some(({ value }) => value.dtype === 'f64') };
}

/** What is written as a rotation turns the members of a pair by different angles: it is none. */
export class MembersDiffer extends CannotEvaluate {}

function commonShape(shapes: readonly (readonly number[])[]): number[] {
  const rank = Math.max(0, ...shapes.map((shape) => shape.length));
  return Array.from({ length: rank }, (_, axis) => {
    const dims = shapes.map((shape) => shape[axis - rank + shape.length] ?? 1).filter((dim) => dim !== 1);
    if (dims.some((dim) => dim !== dims[0]))
      throw new CannotEvaluate(`cos and sin have the shapes ${shapes.map((shape) => `[${shape}]`).join(' and ')}`);
    return dims[0] ?? 1;
  });
}

function reader(
  { value, outer, width }: { value: Value; outer: readonly number[]; width: number },
  to: readonly number[],
): (place: number, channel: number) => number {
  const own = rowMajorStrides(outer);
  const strides = to.map((_, axis) => {
    const d = axis - to.length + outer.length;
    return d < 0 || outer[d] === 1 ? 0 : own[d]!;
  });
  const full = rowMajorStrides(to);
  return (place, channel) => {
    let row = 0;
    for (const [axis, stride] of strides.entries()) row += (Math.floor(place / full[axis]!) % to[axis]!) * stride;
    return value.data[row * width + channel]!;
  };
}
