/** Chooses experts, with one workgroup for each token. @module */
import type { RouteOptions } from '../../../ops/route.js';
import type { Kernel } from '../shader.js';
import { expText, GROUP, MAIN, SUM, threadsFor } from './common.js';

/** The parts of the text that vary. */
interface RouteVariant {
  readonly gate: RouteOptions['gate'];
  readonly bias: boolean;
  readonly groups: boolean;
  readonly normalize: boolean;
}

const SIZES = ['tokens', 'experts', 'chosen', 'groups', 'used', 'best', 'scale', 'leastSum', 'twiceJitter'] as const;
const OPERANDS = ['logits', 'bias', 'indices', 'weights'] as const;
const STRIDES = ['logitsRow', 'logitsStep', 'biasStep', 'indexRow', 'indexStep', 'weightRow', 'weightStep'] as const;

/** A parameter of the kernel. */
type RouteParam = (typeof SIZES | typeof OPERANDS | typeof STRIDES)[number];

/**
 * Operands logits, indices (u32), weights, work, bias where there is one. `work` holds f32 for each token: the ranks of
 * its experts, the scores of its groups, the scores of the chosen experts.
 *
 * An expert is chosen if fewer than `chosen` experts are better; their number is its place. Ranks are compared as
 * integers, because WGSL promises nothing for infinities, and ties must go to the lower expert.
 *
 * Parameters: groups, used and best of the options; leastSum: the sum of weights counts as at least this; twiceJitter:
 * how far experts are near each other; logits, bias, indices, weights: first elements; …Row: from token to token; …Step:
 * from expert to expert.
 */
export function routeKernel(experts: number): Kernel<RouteParam, RouteVariant> {
  const threads = threadsFor(experts, 256);
  return {
    name: `route_by_${threads}`,
    params: [...SIZES, ...OPERANDS, ...STRIDES],
    floats: ['scale', 'leastSum', 'twiceJitter'],
    threads,
    code: routeText,
  };
}

function routeText({ gate, bias, groups, normalize }: RouteVariant): string {
  // The gates rise with the logits. Different logits may have equal scores in f32, so logits rank, unless scores are added
  // up.
  const ranksScores = bias || groups;
  return /* wgsl */ `
${expText(1)}
${gate === 'softmax' ? SUM : ''}
const DROPPED = 0xff800000u; // -infinity, below every rank
/// Ranks numbers in their order; both zeros are equal.
fn order_of(bits: u32) -> u32 {
  let magnitude = bits & 0x7fffffffu;
  return select(0x80000000u + magnitude, 0x80000000u - magnitude, bits > 0x7fffffffu);
}
/// Counts the elements of a list in work that are better than its element i.
fn better(list: u32, count: u32, i: u32) -> u32 {
  let mine = order_of(bits_work(list + i));
  var more = 0u;
  for (var n = 0u; n < count; n++) {
    let other = order_of(bits_work(list + n));
    if (other > mine || (other == mine && n < i)) { more++; }
  }
  return more;
}
${gate === 'softmax' ? 'var<workgroup> tops: array<f32, THREADS>;' : ''}
${
  gate === 'sparsemixer'
    ? /* wgsl */ `/// The softmax of chosen expert n, whose logit is m, over the experts near it.
fn mixed(logits: u32, n: u32, m: f32) -> f32 {
  var all = 0.0;
  for (var e = 0u; e < params.experts; e++) {
    let s = load_logits(logits + e * params.logitsStep);
    if (m - s <= params.twiceJitter * max(abs(s), m)) { all += exp_below_zero(min(s - m, 0.0)); }
  }
  // The first expert takes no part in the second's softmax, and has added 1 to its sum.
  return 1.0 / (all - f32(n));
}`
    : ''
}

${MAIN} {
  let token = ${GROUP};
  if (token >= params.tokens) { return; }
  let logits = params.logits + token * params.logitsRow;
  let ranks = token * (params.experts + params.groups + params.chosen);
  let group_scores = ranks + params.experts;
  let scores = group_scores + params.groups;
${
  gate === 'softmax'
    ? /* wgsl */ `  var top = -3e38;
  for (var e = lane; e < params.experts; e += THREADS) { top = max(top, load_logits(logits + e * params.logitsStep)); }
  tops[lane] = top;
  workgroupBarrier();
  for (var n = 0u; n < THREADS; n++) { top = max(top, tops[n]); }
  var some = 0.0;
  for (var e = lane; e < params.experts; e += THREADS) {
    some += exp_below_zero(load_logits(logits + e * params.logitsStep) - top);
  }
  let total = sum(some, lane);`
    : ''
}
  for (var e = lane; e < params.experts; e += THREADS) {
    let z = load_logits(logits + e * params.logitsStep);
    store_work(ranks + e, ${ranksScores ? scoreText(gate) : 'z'}${bias ? ' + load_bias(params.bias + e * params.biasStep)' : ''});
  }
  storageBarrier();
${
  groups
    ? /* wgsl */ `  let size = params.experts / params.groups;
  for (var g = lane; g < params.groups; g += THREADS) {
    var first = -3e38;
    var second = -3e38;
    for (var e = g * size; e < (g + 1u) * size; e++) {
      let score = load_work(ranks + e);
      second = max(second, min(first, score));
      first = max(first, score);
    }
    store_work(group_scores + g, select(first, first + second, params.best == 2u && size > 1u));
  }
  storageBarrier();
  for (var g = lane; g < params.groups; g += THREADS) {
    if (better(group_scores, params.groups, g) < params.used) { continue; }
    for (var e = g * size; e < (g + 1u) * size; e++) { put_work(ranks + e, DROPPED); }
  }
  storageBarrier();`
    : ''
}
  for (var e = lane; e < params.experts; e += THREADS) {
    let place = better(ranks, params.experts, e);
    if (place >= params.chosen) { continue; }
    put_indices(params.indices + token * params.indexRow + place * params.indexStep, e);
    let z = load_logits(logits + e * params.logitsStep);
    store_work(scores + place, ${scoreText(gate)});
  }
  storageBarrier();
${
  gate === 'softmax-of-chosen'
    ? /* wgsl */ `  var most = -3e38;
  for (var n = 0u; n < params.chosen; n++) { most = max(most, load_work(scores + n)); }
  var all = 0.0;
  for (var n = 0u; n < params.chosen; n++) { all += exp_below_zero(load_work(scores + n) - most); }`
    : ''
}
  var divisor = 1.0;
${
  normalize
    ? /* wgsl */ `  divisor = 0.0;
  for (var n = 0u; n < params.chosen; n++) { divisor += ${weightText(gate)}; }
  divisor = max(divisor, params.leastSum);`
    : ''
}
  for (var n = lane; n < params.chosen; n += THREADS) {
    let weight = ${weightText(gate)} / divisor * params.scale;
    store_weights(params.weights + token * params.weightRow + n * params.weightStep, weight);
  }
}`;
}

/** The score of a logit z; for softmax-of-chosen the logit itself. */
function scoreText(gate: RouteVariant['gate']): string {
  if (gate === 'softmax') return 'exp_below_zero(z - top) / total';
  // The sigmoid uses e^-|z|, which cannot overflow.
  return gate === 'sigmoid' ? 'select(1.0, exp_below_zero(-abs(z)), z < 0.0) / (1.0 + exp_below_zero(-abs(z)))' : 'z';
}

/** The weight of chosen expert n, before it is normalised. */
function weightText(gate: RouteVariant['gate']): string {
  if (gate === 'sparsemixer') return 'mixed(logits, n, load_work(scores + n))';
  return gate === 'softmax-of-chosen' ? 'exp_below_zero(load_work(scores + n) - most) / all' : 'load_work(scores + n)';
}
