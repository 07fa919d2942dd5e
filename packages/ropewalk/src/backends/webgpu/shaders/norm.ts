/** Normalises rows by the root mean square, or by mean and variance, with one workgroup for each row. @module */
import type { Kernel } from '../shader.js';
import { GROUP, MAIN, RMS, SUM, threadsFor, WALK } from './common.js';

const SIZES = ['rows', 'rank', 'width', 'd', 'eps', 'smallEps'] as const;
const OPERANDS = ['x', 'xStep', 'weight', 'weightStep', 'bias', 'biasStep', 'out', 'outStep'] as const;

interface NormVariant {
  readonly lanes: 1 | 4;
  /** Says whether the mean is subtracted. */
  readonly centered: boolean;
  /** Says whether there is an operand bias. */
  readonly biased: boolean;
}

/**
 * Operands x, weight, out and maybe bias; the walk has the strides of x's and out's rows.
 *
 * Parameters: width: loads of a row; d: its elements; eps, smallEps: see epsParams; x, weight, bias, out: first
 * elements; …Step: elements from one load to the next.
 */
export function normKernel(width: number): Kernel<(typeof SIZES | typeof OPERANDS)[number], NormVariant> {
  const threads = threadsFor(width, 128);
  return {
    name: `norm_by_${threads}`,
    params: [...SIZES, ...OPERANDS],
    floats: ['eps', 'smallEps'],
    threads,
    code: normText,
  };
}

function normText({ lanes, centered, biased }: NormVariant): string {
  const added = (v: string): string => (lanes === 4 ? `dot(${v}, vec4<f32>(1.0))` : v);
  return /* wgsl */ `
${WALK}
${SUM}
${RMS}
${centered ? meanText(added) : ''}
/// Sums the squares of the row times \`scale\`${centered ? ', less its mean' : ''}.
fn squares(x: u32, lane: u32, scale: f32${centered ? ', mean: vec2<f32>' : ''}) -> f32 {
  var squares = 0.0;
  for (var i = lane; i < params.width; i += THREADS) {
    let v = load_x(x + i * params.xStep) * scale${centered ? ' - mean.x - mean.y' : ''};
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
${centered ? '  var mean = mean_of(x, lane, 1.0);' : ''}
  var square = squares(x, lane, 1.0${centered ? ', mean' : ''}) / d;
  let scale = rescale(square + params.eps);
  if (scale != 1.0) {
${centered ? '    mean = mean_of(x, lane, scale);' : ''}
    square = squares(x, lane, scale${centered ? ', mean' : ''}) / d;
  }
  let root = root_of(square, scale, params.eps, params.smallEps);
  for (var i = lane; i < params.width; i += THREADS) {
    let v = ${centered ? '(load_x(x + i * params.xStep) * root.y - mean.x - mean.y)' : 'load_x(x + i * params.xStep) * root.y'} / root.x;
    let y = load_weight(params.weight + i * params.weightStep) * v;
    store_out(out + i * params.outStep, y${biased ? ' + load_bias(params.bias + i * params.biasStep)' : ''});
  }
}`;
}

/**
 * Computes the mean of the row times \`scale\` as two numbers: the second is the mean of the differences from the first,
 * so that a row of almost equal numbers loses nothing. Each element is divided before it is added, so no sum overflows.
 */
function meanText(added: (v: string) => string): string {
  return /* wgsl */ `
fn sum_less(x: u32, lane: u32, scale: f32, mean: f32) -> f32 {
  let share = 1.0 / f32(params.d);
  var sums = 0.0;
  for (var i = lane; i < params.width; i += THREADS) {
    let v = (load_x(x + i * params.xStep) * scale - mean) * share;
    sums += ${added('v')};
  }
  return sum(sums, lane);
}
fn mean_of(x: u32, lane: u32, scale: f32) -> vec2<f32> {
  let mean = sum_less(x, lane, scale, 0.0);
  return vec2<f32>(mean, sum_less(x, lane, scale, mean));
}
`;
}
