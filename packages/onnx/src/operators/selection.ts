/**
 * Operators that take parts of tensors, join parts, and look up rows.
 *
 * @module
 */
import { rowMajorStrides } from 'ropewalk/backend';
import { countElements } from 'ropewalk/internal';
import { flatten, NoForm, spread } from './forms.js';
import { pick } from './layout.js';
import type {
  Dim,
  DtypeReader,
  Operator,
  Operators,
  Shape,
  ShapeReader,
  TraceReader,
  ValueReader,
} from './operator.js';
import { axisAt, FLOATS, INDICES, NUMBERS, numberAttribute, sameShape } from './operator.js';
import { CannotEvaluate, gather, type Value, type ValueDtype } from './values.js';

interface Taken {
  readonly first: number;
  readonly step: number;
  readonly length: number;
}

function clampIndex(index: number, size: number): number {
  return Math.min(size, Math.max(0, index < 0 ? index + size : index));
}

/** Computes the part of a Slice: negative indices count from the end, and indices outside are clamped. */
function taken(size: number, start: number, end: number, step: number): Taken {
  // Backwards, the end is before the first element.
  const clamp = (index: number): number =>
    step > 0 ? clampIndex(index, size) : Math.min(size - 1, Math.max(-1, index < 0 ? index + size : index));
  const [first, last] = [clamp(start), clamp(end)];
  return { first, step, length: Math.max(0, Math.ceil((last - first) / step)) };
}

/** Reads the known parameters of a Slice. Without axes, the starts belong to the first axes. */
function slices(n: ShapeReader | TraceReader): { [K in 'starts' | 'ends' | 'axes' | 'steps']?: readonly number[] } {
  const starts = n.list('starts', 1);
  const axes = n.list('axes', 3) ?? starts?.map((_, at) => at);
  return { starts, ends: n.list('ends', 2), axes, steps: n.list('steps', 4) };
}

/** No dimension is longer than this. Exporters write such an end for "all". */
const TO_THE_END = 2 ** 31 - 1;

/** Returns the size of a sliced dimension, or the dimension itself if the Slice takes all of it. */
function slicedDim(dim: Dim, start?: number, end?: number, step?: number): Dim | undefined {
  if (start === undefined || end === undefined || step === undefined || step === 0) return undefined;
  if (typeof dim === 'number') return taken(dim, start, end, step).length;
  return step === 1 && start === 0 && end >= TO_THE_END ? dim : undefined;
}

function sliceAxis(n: ValueReader, x: Value, axis: number, { first, step, length }: Taken): Value {
  if (first === 0 && step === 1 && length === x.shape[axis]) return x;
  const shape = x.shape.with(axis, length);
  n.fits(shape);
  const strides = rowMajorStrides(x.shape);
  return gather(x, shape, strides.with(axis, strides[axis]! * step), length === 0 ? 0 : first * strides[axis]!);
}

/** Returns the sizes of a Split: an attribute, an input, or equal parts. */
function splitSizes(n: ShapeReader | TraceReader | ValueReader, shape: Shape): readonly number[] | undefined {
  const given = n.list('split', 1);
  if (given) return given;
  const size = shape.at(numberAttribute(n.node, 'axis', 0));
  if (typeof size !== 'number' || n.node.inputs[1]) return undefined;
  const part = Math.ceil(size / n.node.outputs.length);
  return n.node.outputs.map((_, at) => Math.max(0, Math.min(part, size - at * part)));
}

/** Returns the place of an axis among the last dimensions of the trace; undefined if it is not one of them. */
function placeOf(axis: number, rank: number, trail: readonly number[]): number | undefined {
  const place = (axis < 0 ? axis : axis - rank) + trail.length;
  return place >= 0 && place < trail.length ? place : undefined;
}

/** Returns the shape of a look-up: the dimensions of the indices replace the axis. */
function lookedUp<T extends Dim>(shape: readonly T[], axis: number, indices: readonly T[]): T[] {
  return [...shape.slice(0, axis), ...indices, ...shape.slice(axis + 1)];
}

/** Operators that write at indices. The result has the shape of the first input. */
function scatter(updates: (n: ShapeReader) => Shape | undefined): Operator {
  return {
    shapes: (n) => {
      n.check(updates(n)?.join() === n.shape(2)?.join(), 'updates');
      return sameShape(n);
    },
    dtype: (n) => {
      n.dtype([1], ['i64']);
      return n.dtype([0, 2], NUMBERS);
    },
  };
}

/** Returns the dtype of a table, and checks that of its indices. */
function indexed(n: DtypeReader): ValueDtype | undefined {
  n.dtype([1], INDICES);
  return n.dtype([0]);
}

export const SELECTION: Operators = {
  Concat: {
    dtype: (n) => n.dtype([...n.node.inputs.keys()], NUMBERS),
    shapes: (n) => {
      const shapes = n.node.inputs.map((_, input) => n.shape(input));
      const known = shapes.find((shape) => shape);
      const axis = known && axisAt(numberAttribute(n.node, 'axis', 0), known.length);
      if (axis === undefined) return undefined;
      const others = (shape?: Shape): string | undefined => shape?.toSpliced(axis, 1).join();
      const alike = shapes.every((shape) => others(shape) === others(known));
      n.check(alike, 'shapes');
      const sizes = shapes.map((shape) => shape?.[axis]);
      const sum = sizes.every((size) => typeof size === 'number')
        ? (sizes as number[]).reduce((total, size) => total + size, 0)
        : n.fresh(axis);
      const sizeOf = (d: number) => shapes.map((shape) => shape?.[d]).find((size) => typeof size === 'number');
      const best = known!.map((dim, d) => sizeOf(d) ?? dim);
      return [best.with(axis, sum)];
    },
    content: (n) => {
      const parts = n.node.inputs.map((_, input) => n.entries(input));
      return parts.every((part) => part) ? (parts as Shape[]).flat() : undefined;
    },
    compute: (n) => {
      const parts = n.node.inputs.map((_, input) => n.part(input));
      const [first] = parts;
      if (!first) return n.cannot('has no inputs');
      n.fits([parts.reduce((sum, part) => sum + part.data.length, 0)]);
      return concatenated(n, parts, n.axis(first.shape.length, 0));
    },
    trace: (n) => {
      const shapes = n.node.inputs.map((_, input) => n.shape(input));
      const rank = shapes.find((shape) => shape)?.length;
      const place = rank === undefined ? undefined : placeOf(numberAttribute(n.node, 'axis', 0), rank, n.trail);
      if (place === undefined) return undefined;
      const sizes = shapes.map((shape) => shape?.at(place - n.trail.length));
      // One part of unknown size takes the rest.
      const known = sizes.reduce<number>((total, size) => total + (typeof size === 'number' ? size : 0), 0);
      if (sizes.filter((size) => typeof size !== 'number').length > 1) return undefined;
      const rest = n.trail[place]! - known;
      const parts = sizes.map((size, input) => ({ size: typeof size === 'number' ? size : rest, input }));
      if (parts.reduce((total, part) => total + part.size, 0) !== n.trail[place] || parts.some(({ size }) => size < 0))
        throw new NoForm();
      const traced = parts
        .filter(({ size }) => size > 0)
        .map((part) => ({ ...part, forms: n.forms(part.input, n.trail.with(place, part.size)) }));
      return Array.from({ length: countElements(n.trail) }, (_, at) => {
        const index = spread(n.trail, at);
        let from = index[place]!;
        for (const { size, forms } of traced) {
          if (from < size) return forms[flatten(n.trail.with(place, size), index.with(place, from))]!;
          from -= size;
        }
        throw new NoForm();
      });
    },
  },
  Slice: {
    data: [0, 1],
    positions: 'one-by-one',
    shapes: (n) => {
      const shape = n.shape(0);
      const { starts, ends, axes, steps } = slices(n);
      if (!shape || !axes) return undefined;
      let result = shape;
      for (const [at, given] of axes.entries()) {
        const axis = axisAt(given, shape.length);
        if (axis === undefined) return undefined;
        const step = steps?.[at] ?? (n.node.inputs[4] ? undefined : 1);
        result = result.with(axis, slicedDim(shape[axis]!, starts?.[at], ends?.[at], step) ?? n.fresh(axis));
      }
      return [result];
    },
    content: (n) => {
      const [data, start, end] = [n.content(0), n.list('starts', 1), n.list('ends', 2)];
      if (!data || start?.length !== 1 || end?.length !== 1 || (n.list('steps', 4)?.[0] ?? 1) !== 1) return undefined;
      return data.slice(clampIndex(start[0]!, data.length), clampIndex(end[0]!, data.length));
    },
    compute: (n) => {
      const x = n.part(0);
      const starts = n.list('starts', 1) ?? n.cannot('has no starts');
      let ends: readonly number[];
      try {
        ends = n.list('ends', 2) ?? n.cannot('has no ends');
      } catch (error) {
        if (!(error instanceof CannotEvaluate) || !n.wholeCaches) throw error;
        ends = starts.map(() => Number.MAX_SAFE_INTEGER);
      }
      const axes = n.list('axes', 3) ?? starts.map((_, at) => at);
      const steps = n.list('steps', 4) ?? starts.map(() => 1);
      let result = x;
      for (const [at, given] of axes.entries()) {
        const axis = given < 0 ? given + x.shape.length : given;
        const size = x.shape[axis];
        if (size === undefined || steps[at] === 0) return n.cannot('has an axis or a step that is none');
        result = sliceAxis(n, result, axis, taken(size, starts[at]!, ends[at]!, steps[at]!));
      }
      return result;
    },
    trace: (n) => {
      const shape = n.shape(0);
      const { starts, ends, axes, steps } = slices(n);
      if (!shape || !starts || !ends || !axes || (n.node.inputs[4] && !steps)) return undefined;
      let wide = n.trail;
      const take = n.trail.map(() => ({ first: 0, step: 1 }));
      for (const [at, axis] of axes.entries()) {
        const place = placeOf(axis, shape.length, n.trail);
        const step = steps?.[at] ?? 1;
        const dim = shape.at(axis < 0 ? axis : axis - shape.length);
        if (place === undefined) {
          const end = ends[at]!;
          if (step !== 1 || starts[at] !== 0 || !(end >= TO_THE_END || (typeof dim === 'number' && end >= dim)))
            return undefined;
          continue;
        }
        if (typeof dim !== 'number' || step === 0) return undefined;
        const part = taken(dim, starts[at]!, ends[at]!, step);
        if (part.length !== n.trail[place]) throw new NoForm();
        wide = wide.with(place, dim);
        take[place] = part;
      }
      return pick(n, wide, (index) => index.map((i, axis) => take[axis]!.first + i * take[axis]!.step));
    },
  },
  Split: {
    data: [0, 1],
    positions: 'one-by-one',
    shapes: (n) => {
      const shape = n.shape(0);
      const axis = shape && axisAt(numberAttribute(n.node, 'axis', 0), shape.length);
      if (axis === undefined) return undefined;
      const sizes = splitSizes(n, shape!);
      n.check(sizes?.reduce((sum, size) => sum + size, 0) === shape![axis], 'sizes');
      return n.node.outputs.map((_, output) => shape!.with(axis, sizes?.[output] ?? n.fresh(axis, output)));
    },
    compute: (n) => {
      const x = n.part(0);
      const axis = n.axis(x.shape.length, 0);
      const sizes = splitSizes(n, x.shape) ?? n.cannot('has no sizes');
      let start = 0;
      return sizes.map((length) => {
        if (!(length >= 0) || start + length > x.shape[axis]!) n.cannot('has sizes past the dimension');
        start += length;
        return sliceAxis(n, x, axis, { first: start - length, step: 1, length });
      });
    },
    trace: (n) => {
      const shape = n.shape(0);
      const place = shape && placeOf(numberAttribute(n.node, 'axis', 0), shape.length, n.trail);
      const sizes = shape && splitSizes(n, shape);
      if (place === undefined || !sizes) return undefined;
      const total = (parts: readonly number[]): number => parts.reduce((sum, size) => sum + size, 0);
      const start = total(sizes.slice(0, n.output));
      if (sizes[n.output] !== n.trail[place]) throw new NoForm();
      return pick(n, n.trail.with(place, total(sizes)), (index) => index.with(place, index[place]! + start));
    },
  },
  Gather: {
    cost: 'lookup',
    positions: 'one-by-one',
    dtype: indexed,
    shapes: (n) => {
      const [shape, indices] = [n.shape(0), n.shape(1)];
      const axis = shape && indices && axisAt(numberAttribute(n.node, 'axis', 0), shape.length);
      return axis === undefined ? undefined : [lookedUp(shape!, axis, indices!)];
    },
    content: (n) => {
      const [data, at] = [n.content(0), n.numbers(1)];
      if (!data || !at) return undefined;
      const entries = at.map((index) => data[index < 0 ? index + data.length : index]);
      return entries.every((entry) => entry !== undefined) ? (entries as Dim[]) : undefined;
    },
    compute: (n) => {
      const [x, indices] = [n.part(0), n.part(1)];
      const axis = n.axis(x.shape.length, 0);
      const size = x.shape[axis]!;
      const shape = lookedUp(x.shape, axis, indices.shape);
      n.fits(shape);
      const inner = countElements(x.shape.slice(axis + 1));
      const outer = countElements(x.shape.slice(0, axis));
      n.spend(outer * indices.data.length); // a run may be empty
      const data = new Float64Array(countElements(shape));
      for (let o = 0; o < outer; o++) {
        for (const [at, given] of indices.data.entries()) {
          const row = given < 0 ? given + size : given;
          if (!(row >= 0 && row < size))
            throw new CannotEvaluate(`position ${given} lies outside the table of ${size} rows`);
          const from = (o * size + row) * inner;
          data.set(x.data.subarray(from, from + inner), (o * indices.data.length + at) * inner);
        }
      }
      return { dtype: x.dtype, shape, data };
    },
    trace: (n) => {
      const [shape, rank, given] = [n.shape(0), n.shape(1)?.length, n.numbers(1)];
      if (!shape || !given || rank === undefined || rank > 1) return undefined;
      const axis = numberAttribute(n.node, 'axis', 0);
      const size = shape.at(axis < 0 ? axis : axis - shape.length);
      if (typeof size !== 'number') return undefined;
      const chosen = given.map((index) => (index < 0 ? index + size : index));
      if (chosen.some((index) => index < 0 || index >= size)) throw new NoForm();
      // A scalar index removes its axis, so the input has one more of the last dimensions.
      const scalar = rank === 0;
      const length = scalar ? n.trail.length + 1 : n.trail.length;
      const place = (axis < 0 ? axis : axis - shape.length) + length;
      if (place < 0 || place >= length) return undefined;
      return scalar
        ? pick(n, n.trail.toSpliced(place, 0, size), (index) => index.toSpliced(place, 0, chosen[0]!))
        : pick(n, n.trail.with(place, size), (index) => index.with(place, chosen[index[place]!]!));
    },
  },
  TopK: {
    data: [0, 1],
    dtype: (n) => {
      n.dtype([1], ['i64']);
      return n.dtype([0], FLOATS);
    },
    further: ['i64'],
    shapes: (n) => {
      const [shape, count] = [n.shape(0), n.content(1)?.[0]];
      const axis = shape && axisAt(numberAttribute(n.node, 'axis', -1), shape.length);
      if (axis === undefined || count === undefined) return undefined;
      const [dim, taken] = [shape![axis]!, shape!.with(axis, count)];
      if (typeof dim === 'number' && typeof count === 'number') n.check(count <= dim, 'K');
      return [taken, taken];
    },
  },
  GatherND: {
    data: [0, 1],
    dtype: indexed,
    shapes: (n) => {
      const [data, indices] = [n.shape(0), n.shape(1)];
      const depth = indices?.at(-1);
      const lead = numberAttribute(n.node, 'batch_dims', 0);
      if (!data || typeof depth !== 'number') return undefined;
      n.check(data.slice(0, lead).join() === indices!.slice(0, lead).join() && lead + depth <= data.length, 'indices');
      return [[...indices!.slice(0, -1), ...data.slice(lead + depth)]];
    },
  },
  GatherElements: { cost: 'lookup', shapes: (n) => [n.shape(1)], dtype: indexed },
  ScatterElements: scatter((n) => n.shape(1)),
  ScatterND: {
    ...scatter((n) => {
      const [x, indices] = [n.shape(0), n.shape(1)];
      return x && indices && [...indices.slice(0, -1), ...x.slice(Number(indices.at(-1)))];
    }),
    compute: (n) => {
      const reduction = n.node.attributes.get('reduction');
      if (reduction?.kind === 'string' && reduction.value !== 'none') n.cannot('adds up');
      return scattered(n, n.input(0), n.input(1), n.input(2));
    },
  },
};

function concatenated(n: ValueReader, parts: readonly Value[], axis: number): Value {
  const { dtype, shape: first } = parts[0]!;
  const sum = parts.reduce((total, part) => total + (part.shape[axis] ?? 0), 0);
  for (const { shape } of parts)
    if (shape.length !== first.length || shape.some((dim, d) => d !== axis && dim !== first[d]))
      n.cannot(`cannot join ${parts.map((part) => `[${part.shape}]`).join(' and ')}`);
  const shape = first.with(axis, sum);
  const data = new Float64Array(countElements(shape));
  const outer = countElements(shape.slice(0, axis));
  n.spend(outer * parts.length); // a run may be empty
  let at = 0;
  for (let o = 0; o < outer; o++) {
    for (const part of parts) {
      const run = part.data.length / outer;
      data.set(part.data.subarray(o * run, (o + 1) * run), at);
      at += run;
    }
  }
  return { dtype, shape, data };
}

/** Exporters of M-RoPE write the frequencies of one axis over those of another. */
function scattered(n: ValueReader, x: Value, indices: Value, updates: Value): Value {
  const depth = indices.shape.at(-1) ?? 0;
  const strides = rowMajorStrides(x.shape);
  const run = countElements(x.shape.slice(depth));
  const data = x.data.slice();
  const count = depth === 0 ? 0 : indices.data.length / depth;
  if (updates.data.length !== count * run) n.cannot('has updates that do not fit its indices');
  for (let row = 0; row < count; row++) {
    let at = 0;
    for (let d = 0; d < depth; d++) {
      const given = indices.data[row * depth + d]!;
      const index = given < 0 ? given + x.shape[d]! : given;
      if (!(index >= 0 && index < x.shape[d]!)) n.cannot('has an index outside');
      at += index * strides[d]!;
    }
    data.set(updates.data.subarray(row * run, (row + 1) * run), at);
  }
  return { dtype: x.dtype, shape: x.shape, data };
}
