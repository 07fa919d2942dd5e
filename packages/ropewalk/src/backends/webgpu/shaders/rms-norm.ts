/** Normalisation by the root mean square: a workgroup for each row. @module */
import type { Kernel } from '../shader.js';
import { GROUP, MAIN, RMS, SUM, threadsFor, WALK } from './common.js';

const SIZES = ['rows', 'rank', 'width', 'd', 'eps', 'smallEps'] as const;
const OPERANDS = ['x', 'xStep', 'weight', 'weightStep', 'out', 'outStep'] as const;

/**
 * Operands x, weight and out; the walk has the strides of x's and out's rows.
 *
 * Parameters: width: loads of a row; d: its elements; eps, smallEps: see epsParams; x, weight, out: first elements;
 * …Step: elements from one load to the next.
 *
 * @param width - loads of a row
 */
export function rmsNormKernel(
  width: number,
): Kernel<(typeof SIZES | typeof OPERANDS)[number], { readonly lanes: 1 | 4 }> {
  const threads = threadsFor(width, 128);
  return {
    name: `rms_norm_by_${threads}`,
    params: [...SIZES, ...OPERANDS],
    floats: ['eps', 'smallEps'],
    threads,
    code: rmsNormText,
  };
}

function rmsNormText({ lanes }: { readonly lanes: 1 | 4 }): string {
  return /* wgsl */ `
${WALK}
${SUM}
${RMS}
fn squares(x: u32, lane: u32, scale: f32) -> f32 {
  var squares = 0.0;
  for (var i = lane; i < params.width; i += THREADS) {
    let v = load_x(x + i * params.xStep) * scale;
    squares += ${lanes === 4 ? 'dot(v, v)' : 'v * v'};
  }
  return sum(squares, lane);
}
${MAIN} {
  let row = ${GROUP};
  if (row >= params.rows) { return; }
  let at = walk(row, 0u, params.rank);
  let x = params.x + at.x;
  let out = params.out + at.y;
  let d = f32(params.d);
  var mean = squares(x, lane, 1.0) / d;
  let scale = rescale(mean + params.eps);
  if (scale != 1.0) { mean = squares(x, lane, scale) / d; }
  let root = root_of(mean, scale, params.eps, params.smallEps);
  for (var i = lane; i < params.width; i += THREADS) {
    let v = load_x(x + i * params.xStep) * root.y / root.x;
    store_out(out + i * params.outStep, load_weight(params.weight + i * params.weightStep) * v);
  }
}`;
}
