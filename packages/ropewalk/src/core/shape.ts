/**
 * Shapes and strides: arithmetic on lists of integers. A layout is a shape, strides in elements (any sign, 0 for
 * broadcasting) and the offset of element 0.
 *
 * @module
 */
import { reading } from './arguments.js';
import { refuse } from './errors.js';

/** The places of a tensor's elements: element `[i0, i1, …]` is at `offset + Σ i·stride`, counted in elements. */
export interface Layout {
  readonly shape: readonly number[];
  readonly strides: readonly number[];
  readonly offset: number;
}

/** Counts the elements of a shape: the product of its dimensions, 1 for a scalar's empty shape. */
export function countElements(shape: readonly number[]): number {
  let count = 1;
  for (const dim of shape) count *= dim;
  return count;
}

/**
 * Computes row-major strides, in which the last dimension is dense.
 *
 * @param shape - the dimensions
 * @returns strides in elements; dimensions of size 0 count as 1, so that no stride is 0
 */
export function rowMajorStrides(shape: readonly number[]): number[] {
  const strides = new Array<number>(shape.length);
  let stride = 1;
  for (let d = shape.length - 1; d >= 0; d--) {
    strides[d] = stride;
    stride *= Math.max(1, shape[d]!);
  }
  return strides;
}

/**
 * Says whether a layout is dense and row-major, at any offset. Strides of dimensions of size 1 do not matter.
 *
 * @param layout - shape and strides
 */
export function isRowMajor(layout: Pick<Layout, 'shape' | 'strides'>): boolean {
  if (layout.shape.includes(0)) return true;
  let stride = 1;
  for (let d = layout.shape.length - 1; d >= 0; d--) {
    const dim = layout.shape[d]!;
    if (dim !== 1 && layout.strides[d] !== stride) return false;
    stride *= dim;
  }
  return true;
}

/** Finds the first and the last storage index that a layout touches; undefined when it has no elements. */
export function extentOf(layout: Layout): [low: number, high: number] | undefined {
  let low = layout.offset;
  let high = layout.offset;
  for (const [d, dim] of layout.shape.entries()) {
    if (dim === 0) return undefined;
    const reach = (dim - 1) * layout.strides[d]!;
    if (reach < 0) low += reach;
    else high += reach;
  }
  return [low, high];
}

/**
 * Checks that a value is a shape: a list of integers >= 0. The product of those above 0 must be a safe integer, so that
 * strides are too.
 *
 * @returns a frozen copy
 * @throws {RopewalkError} SHAPE when it is not
 */
export function checkShape(shape: unknown, where: string): readonly number[] {
  const dims: number[] = [];
  let count = 1;
  reading(where, () => {
    if (!Array.isArray(shape)) refuse('SHAPE', where, 'a list of dimensions such as [2, 3]', shape);
    for (const dim of shape) {
      if (!Number.isSafeInteger(dim) || dim < 0) refuse('SHAPE', where, 'integers >= 0', shape);
      count *= Math.max(1, dim);
      dims.push(dim + 0); // −0 becomes 0
    }
  });
  if (!Number.isSafeInteger(count)) refuse('SHAPE', where, 'fewer than 2^53 elements', dims);
  return Object.freeze(dims);
}

/**
 * Computes the strides that give the same elements, in the same order, another shape of as many elements; undefined when
 * no strides can express it.
 */
export function stridesForView(
  layout: Pick<Layout, 'shape' | 'strides'>,
  shape: readonly number[],
): number[] | undefined {
  if (countElements(shape) === 0) return rowMajorStrides(shape);
  // Old dimensions of size 1 do not matter. The others form contiguous runs; from the last run to the first, whole new
  // dimensions must fill each.
  const dims: { size: number; stride: number }[] = [];
  for (const [d, size] of layout.shape.entries()) {
    if (size === 1) continue;
    const stride = layout.strides[d]!;
    const last = dims.at(-1);
    if (last && last.stride === stride * size) {
      last.size *= size;
      last.stride = stride;
    } else dims.push({ size, stride });
  }
  const strides = new Array<number>(shape.length).fill(1);
  let run = dims.pop();
  let room = run?.size ?? 1;
  let stride = run?.stride ?? 1;
  for (let d = shape.length - 1; d >= 0; d--) {
    const size = shape[d]!;
    if (size === 1) {
      strides[d] = stride;
      continue;
    }
    if (room === 1) {
      run = dims.pop();
      if (!run) return undefined;
      room = run.size;
      stride = run.stride;
    }
    if (room % size !== 0) return undefined;
    strides[d] = stride;
    stride *= size;
    room /= size;
  }
  return strides;
}

/** Walks two layouts of one shape together, in row-major order, and calls `visit` with the storage index in each. */
export function walkPair(
  shape: readonly number[],
  a: Omit<Layout, 'shape'>,
  b: Omit<Layout, 'shape'>,
  visit: (atA: number, atB: number) => void,
): void {
  if (countElements(shape) === 0) return;
  const rank = shape.length;
  const index = new Array<number>(rank).fill(0);
  let atA = a.offset;
  let atB = b.offset;
  for (;;) {
    visit(atA, atB);
    let d = rank - 1;
    for (; d >= 0; d--) {
      atA += a.strides[d]!;
      atB += b.strides[d]!;
      if (++index[d]! < shape[d]!) break;
      atA -= a.strides[d]! * shape[d]!;
      atB -= b.strides[d]! * shape[d]!;
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

/**
 * Walks one layout in row-major order.
 *
 * @param layout - any layout
 * @param visit - is called with the storage index of each element and the element's number
 */
export function walk(layout: Layout, visit: (at: number, n: number) => void): void {
  let n = 0;
  walkPair(layout.shape, layout, layout, (at) => visit(at, n++));
}
