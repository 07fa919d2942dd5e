/**
 * Copies of elements: between layouts, and rows of a table; bit for bit, or from one float dtype to another. @module
 */
import type { Kernel } from '../shader.js';
import { MAIN, UNIT, WALK } from './common.js';
import { type WeightLoad, weightText } from './linear.js';

/** Copies elements. Operands x and out, bits or, where it converts, floats; the walk has their strides. */
export const COPY: Kernel<'n' | 'rank' | 'x' | 'out', { readonly converts: boolean }> = {
  name: 'copy',
  /** n: loads of x; rank: of the walk; x, out: first elements. */
  params: ['n', 'rank', 'x', 'out'],
  threads: 64,
  code: ({ converts }) => /* wgsl */ `
${WALK}
${MAIN} {
  let t = ${UNIT};
  if (t >= params.n) { return; }
  let at = walk(t, 0u, params.rank);
  ${converts ? 'store_out(params.out + at.y, load_x(params.x + at.x));' : 'put_out(params.out + at.y, bits_x(params.x + at.x));'}
}`,
};

/** Copies rows of a table. Operands rows (u32), weight and out; the walk has the strides of their columns. */
export const GATHER: Kernel<'n' | 'rank' | 'width' | 'rows' | 'weight' | 'weightRow' | 'out' | 'outRow', undefined> = {
  name: 'gather',
  /**
   * n: loads of all rows; rank: of the walk; width: loads of a row; rows, weight, out: first elements; weightRow,
   * outRow: strides.
   */
  params: ['n', 'rank', 'width', 'rows', 'weight', 'weightRow', 'out', 'outRow'],
  threads: 64,
  code: () => /* wgsl */ `
${WALK}
${MAIN} {
  let t = ${UNIT};
  if (t >= params.n) { return; }
  let row = t / params.width;
  let at = walk(t % params.width, 0u, params.rank);
  let source = params.weight + bits_rows(params.rows + row) * params.weightRow;
  put_out(params.out + row * params.outRow + at.y, bits_weight(source + at.x));
}`,
};

/**
 * Widens rows of a table. Operands rows (u32), weight, with scale where it is in blocks, as in linear, and out (f32).
 */
export const GATHER_WIDE: Kernel<
  'units' | 'fours' | 'k' | 'weight' | 'weightRow' | 'weightStep' | 'out' | 'outRow' | 'outStep',
  { readonly weight: WeightLoad; readonly out: 1 | 4 }
> = {
  name: 'gather_wide',
  /**
   * units: fours of all rows; fours of a row; k: its elements; weight (of blocks, in halves), out: first elements;
   * …Row, …Step: strides.
   */
  params: ['units', 'fours', 'k', 'weight', 'weightRow', 'weightStep', 'out', 'outRow', 'outStep'],
  threads: 64,
  code: ({ weight, out }) => /* wgsl */ `
${weightText(weight)}
${MAIN} {
  let t = ${UNIT};
  if (t >= params.units) { return; }
  let row = t / params.fours;
  let i = t % params.fours * 4u;
  let v = weight_four(weight_row(bits_rows(row)), i);
  let at = params.out + row * params.outRow;
  ${
    out === 4
      ? 'store_out(at + i, v);'
      : 'for (var e = 0u; e < 4u && i + e < params.k; e++) { store_out(at + (i + e) * params.outStep, v[e]); }'
  }
}`,
};
