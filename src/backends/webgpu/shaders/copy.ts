/** Copies of elements, bit for bit: between layouts, and rows of a table. @module */
import type { Kernel } from '../shader.js';
import { MAIN, UNIT, WALK } from './common.js';

/** Operands x and out; the walk has their strides. */
export const COPY: Kernel<'n' | 'rank' | 'x' | 'out', undefined> = {
  name: 'copy',
  /** n: loads of x; rank: of the walk; x, out: first elements. */
  params: ['n', 'rank', 'x', 'out'],
  threads: 64,
  code: () => /* wgsl */ `
${WALK}
${MAIN} {
  let t = ${UNIT};
  if (t >= params.n) { return; }
  let at = walk(t, 0u, params.rank);
  put_out(params.out + at.y, bits_x(params.x + at.x));
}`,
};

/** Operands rows (u32), weight and out; the walk has the strides of weight's and out's columns. */
export const GATHER: Kernel<'n' | 'rank' | 'width' | 'rows' | 'weight' | 'weightRow' | 'out' | 'outRow', undefined> = {
  name: 'gather',
  /** n: loads of all rows; rank: of the walk; width: loads of a row; rows, weight, out: first elements; weightRow, outRow: strides. */
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
