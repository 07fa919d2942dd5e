/**
 * The cos and sin that a found rotation uses, computed from positions by the graph's own arithmetic.
 *
 * @module
 */
import { rowMajorStrides } from 'ropewalk/backend';
import { countElements } from 'ropewalk/internal';
import type { Factor } from '../operators/forms.js';
import { broadcastShape, broadcastStrides, CannotEvaluate, type Value } from '../operators/values.js';
import type { Evaluation } from './evaluate.js';
import type { FoundArithmetic } from './find.js';

/** cos and sin of every pair at every place of the outer dimensions. */
interface OuterTables {
  /** Dimensions of the tables in front of their channels; they broadcast to those of x, from the right. */
  readonly outer: readonly number[];
  readonly pairs: number;
  /** `[...outer, pairs]`, dense. */
  readonly cos: Float64Array;
  readonly sin: Float64Array;
  /** Whether the tables are f64; f32 holds the numbers of all other dtypes. */
  readonly wide: boolean;
}

/** What is written as a rotation rotates the members of a pair by different angles: it is none. */
export class MembersDiffer extends CannotEvaluate {}

/**
 * Computes the tables of a rotation.
 *
 * @throws {CannotEvaluate} when something is missing, or when the two members of a pair rotate by different angles
 */
export function tablesOf({ rotation, trails }: FoundArithmetic, evaluation: Evaluation): OuterTables {
  const leaves = new Map<string, ReturnType<typeof leafOf>>();
  for (const { cos, sin } of rotation.tables)
    for (const { leaf } of [...cos, ...sin])
      if (!leaves.has(leaf)) leaves.set(leaf, leafOf(leaf, evaluation.value(leaf), trails.get(leaf)!));
  const all = [...leaves.values()];
  const outers = all.map((leaf) => leaf.outer);
  const outer = broadcastShape(outers);
  if (!outer) throw new CannotEvaluate(`cos and sin have the shapes ${outers.map((one) => `[${one}]`).join(' and ')}`);
  const places = countElements(outer);
  const pairs = rotation.tables.length;
  // Four factors are read for each pair; cos and sin may broadcast to more than either holds.
  evaluation.fits([...outer, pairs, 4]);
  const readers = new Map(Array.from(leaves, ([name, leaf]) => [name, reader(leaf, outer)]));
  const at = (factor: Factor, place: number): number => readers.get(factor.leaf)!(place, factor.at);
  const cos = new Float64Array(places * pairs);
  const sin = new Float64Array(places * pairs);
  for (let place = 0; place < places; place++) {
    for (const [j, table] of rotation.tables.entries()) {
      const n = place * pairs + j;
      const both = ([first, second]: readonly [Factor, Factor]): number => {
        const [a, b] = [at(first, place), at(second, place)];
        if (a !== b && !(Number.isNaN(a) && Number.isNaN(b)))
          throw new MembersDiffer(`the two members of pair ${j} are rotated by different numbers, ${a} and ${b}`);
        return a * rotation.scale;
      };
      cos[n] = both(table.cos);
      sin[n] = both(table.sin);
    }
  }
  return { outer, pairs, cos, sin, wide: all.some(({ value }) => value.dtype === 'f64') };
}

/** A computed table as `[...outer, width]`: the factors of the rotation count its last dimensions, the trail. */
function leafOf(name: string, value: Value, trail: readonly number[]) {
  const width = countElements(trail);
  const outer = value.shape.slice(0, value.shape.length - trail.length);
  if (countElements(value.shape.slice(outer.length)) !== width || countElements(outer) * width !== value.data.length)
    throw new CannotEvaluate(`${name} has the shape [${value.shape}], and its last dimensions should be [${trail}]`);
  return { value, outer, width };
}

/** Reads a table at a flat place of the outer dimensions that it broadcasts to. */
function reader({ value, outer, width }: ReturnType<typeof leafOf>, to: readonly number[]) {
  const strides = broadcastStrides(outer, to);
  const full = rowMajorStrides(to);
  return (place: number, channel: number): number => {
    let row = 0;
    for (const [axis, stride] of strides.entries()) row += (Math.floor(place / full[axis]!) % to[axis]!) * stride;
    return value.data[row * width + channel]!;
  };
}
