/** How kernels go through tensors of any strides. @module */
import { countElements, isRowMajor, type Layout } from '../core/shape.js';

/** Dimensions that several tensors share, and the strides of each. */
export interface Walk {
  readonly dims: number[];
  /** For each tensor, as many as dims. */
  readonly strides: number[][];
}

/**
 * Joins dimensions that all tensors step through as one, slowest first; at least one dimension is left.
 *
 * @param layouts - layouts of one shape; the first decides the order: its smallest stride comes last
 */
export function joinDims(layouts: readonly Layout[]): Walk {
  // Most calls end here; the general way takes a third of a microsecond.
  if (layouts.every(isRowMajor)) return { dims: [countElements(layouts[0]!.shape)], strides: layouts.map(() => [1]) };
  const order = layouts[0]!.shape
    .map((_, d) => d)
    .filter((d) => layouts[0]!.shape[d] !== 1)
    .sort((p, q) => Math.abs(layouts[0]!.strides[q]!) - Math.abs(layouts[0]!.strides[p]!));
  const dims: number[] = [];
  const strides: number[][] = layouts.map(() => []);
  for (const d of order) {
    const size = layouts[0]!.shape[d]!;
    const last = dims.length - 1;
    if (last >= 0 && layouts.every((layout, t) => strides[t]![last] === layout.strides[d]! * size)) {
      dims[last]! *= size;
      for (const [t, layout] of layouts.entries()) strides[t]![last] = layout.strides[d]!;
    } else {
      dims.push(size);
      for (const [t, layout] of layouts.entries()) strides[t]!.push(layout.strides[d]!);
    }
  }
  if (dims.length === 0) {
    dims.push(1);
    for (const list of strides) list.push(1);
  }
  return { dims, strides };
}

/**
 * Walks the rows of tensors that share all dimensions but the last. Dimensions of size 1 are left out, so that at most
 * 53 remain; at least one is left.
 */
export function rowsOf(layouts: readonly Layout[]): Walk {
  // Rows keep their order, because kernels number them.
  const { shape } = layouts[0]!;
  const order: number[] = [];
  for (let d = 0; d < shape.length - 1; d++) if (shape[d] !== 1) order.push(d);
  if (order.length === 0) return { dims: [1], strides: layouts.map(() => [0]) };
  return { dims: order.map((d) => shape[d]!), strides: layouts.map(({ strides }) => order.map((d) => strides[d]!)) };
}
