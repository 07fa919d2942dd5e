/**
 * Operators that give elements another shape or order, and operators that read shapes.
 *
 * @module
 */
import { rowMajorStrides } from 'ropewalk/backend';
import { countElements } from 'ropewalk/internal';
import { broadcastDims, broadcastValues } from './elementwise.js';
import { type Forms, flatten, spread } from './forms.js';
import type { Dim, Operator, Operators, Shape, ShapeReader, TraceReader, ValueReader } from './operator.js';
import { axisSet, intsAttribute, numberAttribute, sameShape } from './operator.js';
import { gather, MAX_RANK, spreadTo, type Value, vector } from './values.js';

/** For operators of which only the first input is data. */
const FIRST = { data: [0, 1] } as const;

const VIEW: Operator = { ...FIRST, content: (n) => n.content(0), positions: 'same', cost: 'view' };

/**
 * Returns the channels of a traced output as channels of its first input.
 *
 * @param wide - the last dimensions of the input
 * @param move - converts an index of the output to one of the input
 */
export function pick(
  n: TraceReader,
  wide: readonly number[],
  move: (index: readonly number[]) => readonly number[],
): Forms {
  const source = n.forms(0, wide);
  return Array.from({ length: countElements(n.trail) }, (_, at) => source[flatten(wide, move(spread(n.trail, at)))]!);
}

/** Computes the shape that a Reshape makes: 0 copies a dimension, and -1 is the rest. */
function reshaped(n: ShapeReader | ValueReader, shape: Shape | undefined, target: Shape, fresh: (axis: number) => Dim) {
  const literal = numberAttribute(n.node, 'allowzero', 0) !== 0;
  const copied = target.map((dim, axis) => (dim === 0 && !literal ? (shape?.[axis] ?? fresh(axis)) : dim));
  const at = copied.indexOf(-1);
  if (at < 0) return copied;
  if (shape) {
    // The value of -1 is known if every name on one side is also on the other.
    const names = shape.filter((dim) => typeof dim === 'string');
    let numbers = shape.reduce<number>((product, dim) => (typeof dim === 'number' ? product * dim : product), 1);
    let fits = true;
    for (const [axis, dim] of copied.entries()) {
      if (axis === at) continue;
      if (typeof dim === 'number') numbers /= dim;
      else if (names.includes(dim)) names.splice(names.indexOf(dim), 1);
      else fits = false;
    }
    if (fits && names.length === 0 && Number.isInteger(numbers) && numbers > 0) return copied.with(at, numbers);
    if (fits && names.length === 1 && numbers === 1) return copied.with(at, names[0]!);
  }
  return copied.with(at, fresh(at));
}

/** Inserts dimensions of 1. The axes count dimensions of the result. */
function unsqueezed<T extends Dim>(shape: readonly T[], axes: readonly number[]): (T | 1)[] {
  const rank = shape.length + axes.length;
  const fresh = axisSet(axes, rank);
  let at = 0;
  return Array.from({ length: rank }, (_, axis) => (fresh.has(axis) ? 1 : (shape[at++] ?? 1)));
}

function partOf<T extends Dim>({ node }: ShapeReader | ValueReader, shape: readonly T[]): readonly T[] {
  return shape.slice(numberAttribute(node, 'start', 0), numberAttribute(node, 'end', undefined));
}

function permutation(n: ShapeReader | ValueReader, shape: Shape): readonly number[] {
  return intsAttribute(n.node, 'perm') ?? shape.map((_, axis) => shape.length - 1 - axis);
}

function isPermutation(order: readonly number[], rank: number): boolean {
  return order.length === rank && [...order].sort((a, b) => a - b).every((axis, n) => axis === n);
}

export const LAYOUT: Operators = {
  Reshape: {
    ...VIEW,
    shapes: (n) => {
      const [shape, target] = [n.shape(0), n.content(1)];
      const fresh = (axis: number): string => n.fresh(axis);
      if (target) {
        const result = reshaped(n, shape, target, fresh);
        n.check(shape !== undefined && countElements(shape as number[]) === countElements(result as number[]), 'shape');
        return [result];
      }
      const rank = n.shape(1)?.[0];
      return typeof rank === 'number' && rank <= MAX_RANK
        ? [Array.from({ length: rank }, (_, axis) => fresh(axis))]
        : undefined;
    },
    compute: (n) => {
      const [x, target] = [n.part(0), n.integers(1)];
      const shape = reshaped(n, x.shape, target, () => 0) as number[];
      const fits = countElements(shape) === x.data.length && shape.every((dim) => Number.isInteger(dim) && dim >= 0);
      return fits ? { ...x, shape } : n.cannot(`cannot give [${x.shape}] the shape [${target}]`);
    },
    trace: (n) => {
      const [from, to] = [n.shape(0), n.outputShape()];
      if (!from || !to) return undefined;
      const wanted = countElements(n.trail);
      let start = from.length;
      let product = 1;
      while (start > 0 && product < wanted) {
        const dim = from[--start]!;
        if (typeof dim !== 'number') return undefined;
        product *= dim;
      }
      if (product !== wanted) return undefined;
      // Dimensions of 1 belong to the side that makes the outer dimensions alike.
      const outer = to.length - n.trail.length;
      while (start > outer && from[start - 1] === 1) start--;
      if (start !== outer) return undefined;
      for (let d = 0; d < outer; d++) {
        const [a, b] = [from[d]!, to[d]!];
        if (typeof a === 'number' && typeof b === 'number' && a !== b) return undefined;
      }
      return n.forms(0, from.slice(start) as number[]);
    },
  },
  Flatten: {
    ...FIRST,
    positions: 'same',
    compute: (n) => {
      const x = n.part(0);
      const lead = countElements(x.shape.slice(0, numberAttribute(n.node, 'axis', 1)));
      return { ...x, shape: [lead, lead === 0 ? 0 : x.data.length / lead] };
    },
  },
  Unsqueeze: {
    ...VIEW,
    shapes: (n) => {
      const [shape, axes] = [n.shape(0), n.list('axes', 1)];
      return shape && [axes && unsqueezed(shape, axes)];
    },
    compute: (n) => {
      const x = n.part(0);
      return { ...x, shape: unsqueezed(x.shape, n.list('axes', 1) ?? n.cannot('has no axes')) };
    },
    trace: (n) => {
      const [shape, axes] = [n.shape(0), n.list('axes', 1)];
      if (!shape || !axes) return undefined;
      const rank = shape.length + axes.length;
      const places = axes.map((axis) => (axis < 0 ? axis : axis - rank) + n.trail.length);
      if (places.some((place) => place < 0)) return undefined;
      const inner = n.trail.filter((_, axis) => !places.includes(axis));
      return n.forms(0, inner);
    },
  },
  Squeeze: {
    ...VIEW,
    shapes: (n) => {
      const [shape, axes] = [n.shape(0), n.list('axes', 1)];
      if (!shape) return undefined;
      if (axes) {
        const gone = axisSet(axes, shape.length);
        const ones = [...gone].every((axis) => shape[axis] === 1);
        n.check(ones, 'axes');
        return [shape.filter((_, axis) => !gone.has(axis))];
      }
      const known = n.node.inputs.length < 2 && shape.every((dim) => typeof dim === 'number');
      return [known ? shape.filter((dim) => dim !== 1) : undefined];
    },
    compute: (n) => {
      const x = n.part(0);
      const axes = n.list('axes', 1);
      const gone = axes && axisSet(axes, x.shape.length);
      const shape = x.shape.filter((dim, axis) => (gone ? !gone.has(axis) : dim !== 1));
      return countElements(shape) === x.data.length
        ? { ...x, shape }
        : n.cannot('takes a dimension away that is not 1');
    },
    trace: (n) => {
      const [shape, axes] = [n.shape(0), n.list('axes', 1)];
      if (!shape || !axes) return undefined;
      // Each squeezed axis among the last dimensions is one more of them.
      const places = axes.map((axis) => (axis < 0 ? axis : axis - shape.length)).sort((a, b) => b - a);
      let inner = n.trail;
      for (const place of places) {
        const where = inner.length + 1 + place;
        if (where <= 0) return undefined;
        inner = inner.toSpliced(where, 0, 1);
      }
      return n.forms(0, inner);
    },
  },
  Transpose: {
    shapes: (n) => {
      const shape = n.shape(0);
      if (!shape) return undefined;
      const order = permutation(n, shape);
      n.check(isPermutation(order, shape.length), 'perm');
      return [order.every((axis) => shape[axis] !== undefined) ? order.map((axis) => shape[axis]!) : undefined];
    },
    compute: (n) => {
      const x = n.input(0);
      const order = permutation(n, x.shape);
      if (!isPermutation(order, x.shape.length)) n.cannot('has a perm that is none');
      const strides = rowMajorStrides(x.shape);
      const ordered = (list: readonly number[]): number[] => order.map((axis) => list[axis]!);
      return gather(x, ordered(x.shape), ordered(strides));
    },
    trace: (n) => {
      const order = intsAttribute(n.node, 'perm');
      if (!order) return undefined;
      const start = order.length - n.trail.length;
      const inner = order.slice(start).map((axis) => axis - start);
      if (inner.some((axis) => axis < 0) || order.slice(0, start).some((axis, at) => axis !== at)) return undefined;
      const moved = (index: readonly number[]): number[] => {
        const result = new Array<number>(index.length);
        for (const [at, axis] of inner.entries()) result[axis] = index[at]!;
        return result;
      };
      return pick(n, moved(n.trail), moved);
    },
    positions: 'one-by-one',
  },
  Expand: {
    ...FIRST,
    shapes: (n) => {
      const target = n.entries(1);
      return [target && broadcastDims(n, [n.shape(0), target])];
    },
    compute: (n) => {
      const x = n.part(0);
      return spreadTo(x, broadcastValues(n, [x, { shape: n.integers(1) }]));
    },
    positions: 'same',
  },
  Tile: {
    ...FIRST,
    shapes: (n) => {
      const [shape, repeats] = [n.shape(0), n.content(1)];
      if (!shape || repeats?.length !== shape.length) return undefined;
      return [
        shape.map((dim, axis) => {
          const times = repeats[axis]!;
          if (times === 1) return dim;
          return typeof dim === 'number' && typeof times === 'number' ? dim * times : n.fresh(axis);
        }),
      ];
    },
    compute: (n) => {
      const [x, repeats] = [n.part(0), n.integers(1)];
      const shape = x.shape.map((dim, axis) => dim * (repeats[axis] ?? 1));
      n.fits(shape);
      return tiled(x, shape);
    },
  },
  Shape: {
    dtype: () => 'i64',
    shapes: (n) => {
      const shape = n.shape(0);
      return [shape && [partOf(n, shape).length]];
    },
    content: (n) => {
      const shape = n.shape(0);
      return shape && partOf(n, shape);
    },
    compute: (n) => vector(partOf(n, n.shape(0))),
  },
  Size: {
    dtype: () => 'i64',
    compute: (n) => ({ ...vector([countElements(n.shape(0))]), shape: [] }),
  },
  NonZero: { dtype: () => 'i64' },
  Trilu: { shapes: sameShape },
};

function tiled(x: Value, shape: readonly number[]): Value {
  const strides = rowMajorStrides(x.shape);
  const repeated = x.shape.flatMap((dim, axis) => [dim === 0 ? 0 : shape[axis]! / dim, dim]);
  const { data } = gather(
    x,
    repeated,
    strides.flatMap((stride) => [0, stride]),
  );
  return { dtype: x.dtype, shape, data };
}
