/** Operators with a state: the causal convolution, a thread a channel; the gated delta rule and the selective scan, a thread a column. @module */
import type { Kernel } from '../shader.js';
import { expText, MAIN, UNIT } from './common.js';

/** The parts of the text of the convolution that vary. */
interface ConvVariant {
  readonly before: boolean;
  readonly after: boolean;
  readonly bias: boolean;
  readonly silu: boolean;
  readonly fresh: boolean;
}

const CONV_PARAMS = [
  ...(['tokens', 'channels', 'width', 'x', 'xRow', 'xStep', 'out', 'outRow', 'outStep'] as const),
  ...(['before', 'beforeRow', 'beforeStep', 'after', 'afterRow', 'afterStep'] as const),
  ...(['weight', 'weightRow', 'weightStep', 'bias', 'biasStep', 'state'] as const),
] as const;

const SIGMOID = /* wgsl */ `
${expText(1)}
fn sigmoid(x: f32) -> f32 {
  let power = exp_below_zero(-abs(x)); // which cannot overflow
  return select(1.0, power, x < 0.0) / (1.0 + power);
}`;

/** Operands x, weight, state, out, and before, after, bias where there are such; …Row: from row to row. */
export const CAUSAL_CONV: Kernel<(typeof CONV_PARAMS)[number], ConvVariant> = {
  name: 'causal_conv',
  params: CONV_PARAMS,
  threads: 64,
  code: ({ before, after, bias, silu, fresh }) => /* wgsl */ `
${SIGMOID}
/// Row t of x times its gate, or a row of the state where t is before the first.
fn row_of(t: i32, c: u32) -> f32 {
  if (t < 0) { return ${fresh ? '0.0' : 'load_state(params.state + u32(t + i32(params.width) - 1) * params.channels + c)'}; }
  let value = load_x(params.x + u32(t) * params.xRow + c * params.xStep);
  return value${before ? ' * load_before(params.before + u32(t) * params.beforeRow + c * params.beforeStep)' : ''};
}

${MAIN} {
  let c = ${UNIT};
  if (c >= params.channels) { return; }
  let past = i32(params.width) - 1;
  for (var t = 0; t < i32(params.tokens); t++) {
    var sum = ${bias ? 'load_bias(params.bias + c * params.biasStep)' : '0.0'};
    for (var j = 0; j <= past; j++) {
      sum += load_weight(params.weight + c * params.weightRow + u32(j) * params.weightStep) * row_of(t - past + j, c);
    }
    ${silu ? 'sum *= sigmoid(sum);' : ''}
    ${after ? 'sum *= load_after(params.after + u32(t) * params.afterRow + c * params.afterStep);' : ''}
    store_out(params.out + u32(t) * params.outRow + c * params.outStep, sum);
  }
  // Oldest first: a row of the state is read before it is written.
  for (var j = 0; j < past; j++) {
    store_state(params.state + u32(j) * params.channels + c, row_of(i32(params.tokens) - past + j, c));
  }
}`,
};

/** It needs {@link expText}. */
const SOFTPLUS = /* wgsl */ `
/// ln(1 + y) for 0 <= y <= 1, by 2·atanh(z) with z = y / (2 + y) <= 1/3.
fn log_one_plus(y: f32) -> f32 {
  let z = y / (2.0 + y);
  let w = z * z;
  var p = fma(w, 1.0 / 15.0, 1.0 / 13.0);
  p = fma(p, w, 1.0 / 11.0);
  p = fma(p, w, 1.0 / 9.0);
  p = fma(p, w, 1.0 / 7.0);
  p = fma(p, w, 1.0 / 5.0);
  p = fma(p, w, 1.0 / 3.0);
  return 2.0 * fma(z * w, p, z);
}
fn softplus(x: f32) -> f32 {
  return max(x, 0.0) + log_one_plus(exp_below_zero(-abs(x)));
}`;

/**
 * The start of a kernel whose threads each compute one column of one head's state `[d, dv]`.
 *
 * @param group - the head of what several heads share, by the head h
 */
const columnOf = (group: string, fresh: boolean): string => /* wgsl */ `
  let unit = ${UNIT};
  if (unit >= params.heads * params.dv) { return; }
  let h = unit / params.dv;
  let column = unit % params.dv;
  let group = ${group};
  let state = params.state + h * params.d * params.dv + column;
  let rate = load_rate(params.rate + h * params.rateStep);
  let bias = load_bias(params.bias + h * params.biasStep);
  ${fresh ? 'for (var i = 0u; i < params.d; i++) { store_state(state + i * params.dv, 0.0); }' : ''}`;

/** The parts of the text of the gated delta rule that vary. */
interface DeltaVariant {
  readonly tiled: boolean;
  readonly fresh: boolean;
}

const DELTA_PARAMS = [
  ...(['tokens', 'keyHeads', 'heads', 'd', 'dv', 'scale', 'eps', 'state'] as const),
  ...(['q', 'qRow', 'qHead', 'qStep', 'k', 'kRow', 'kHead', 'kStep'] as const),
  ...(['v', 'vRow', 'vHead', 'vStep', 'out', 'outRow', 'outHead', 'outStep'] as const),
  ...([
    'decay',
    'decayRow',
    'decayHead',
    'beta',
    'betaRow',
    'betaHead',
    'rate',
    'rateStep',
    'bias',
    'biasStep',
  ] as const),
] as const;

/**
 * Operands q, k, v, decay, beta, rate, bias, state, out; …Row: from token to token. A thread computes one column of one
 * head's state, so that no thread waits for another.
 */
export const GATED_DELTA: Kernel<(typeof DELTA_PARAMS)[number], DeltaVariant> = {
  name: 'gated_delta',
  params: DELTA_PARAMS,
  floats: ['scale', 'eps'],
  threads: 64,
  code: ({ tiled, fresh }) => /* wgsl */ `
${SIGMOID}
${SOFTPLUS}

${MAIN} {
${columnOf(tiled ? 'h % params.keyHeads' : 'h / (params.heads / params.keyHeads)', fresh)}
  for (var t = 0u; t < params.tokens; t++) {
    let q = params.q + t * params.qRow + group * params.qHead;
    let k = params.k + t * params.kRow + group * params.kHead;
    let x = load_decay(params.decay + t * params.decayRow + h * params.decayHead) + bias;
    let gamma = exp_below_zero(rate * softplus(x));
    var qq = params.eps;
    var kk = params.eps;
    var held = 0.0;
    for (var i = 0u; i < params.d; i++) {
      let key = load_k(k + i * params.kStep);
      let query = load_q(q + i * params.qStep);
      kk = fma(key, key, kk);
      qq = fma(query, query, qq);
      held = fma(load_state(state + i * params.dv), key, held);
    }
    let unit_key = 1.0 / sqrt(kk);
    let value = load_v(params.v + t * params.vRow + h * params.vHead + column * params.vStep);
    let strength = sigmoid(load_beta(params.beta + t * params.betaRow + h * params.betaHead));
    let correction = strength * (value - gamma * (held * unit_key)) * unit_key;
    var sum = 0.0;
    for (var i = 0u; i < params.d; i++) {
      let now = fma(load_k(k + i * params.kStep), correction, gamma * load_state(state + i * params.dv));
      store_state(state + i * params.dv, now);
      sum = fma(now, load_q(q + i * params.qStep), sum);
    }
    store_out(
      params.out + t * params.outRow + h * params.outHead + column * params.outStep,
      sum * (params.scale / sqrt(qq)),
    );
  }
}`,
};

/** The parts of the text of the selective scan that vary. */
interface ScanVariant {
  readonly skip: boolean;
  readonly fresh: boolean;
}

const SCAN_PARAMS = [
  ...(['tokens', 'heads', 'groups', 'd', 'dv', 'min', 'max', 'state'] as const),
  ...(['x', 'xRow', 'xHead', 'xStep', 'out', 'outRow', 'outHead', 'outStep'] as const),
  ...(['b', 'bRow', 'bGroup', 'bStep', 'c', 'cRow', 'cGroup', 'cStep'] as const),
  ...(['dt', 'dtRow', 'dtHead', 'rate', 'rateStep', 'bias', 'biasStep', 'skip', 'skipStep'] as const),
] as const;

/** Operands x, b, c, dt, rate, bias, state, out, and skip where there is one. A thread computes one column, as above. */
export const SSM_SCAN: Kernel<(typeof SCAN_PARAMS)[number], ScanVariant> = {
  name: 'ssm_scan',
  params: SCAN_PARAMS,
  floats: ['min', 'max'],
  threads: 64,
  code: ({ skip, fresh }) => /* wgsl */ `
${expText(1)}
${SOFTPLUS}

${MAIN} {
${columnOf('h / (params.heads / params.groups)', fresh)}
  for (var t = 0u; t < params.tokens; t++) {
    let b = params.b + t * params.bRow + group * params.bGroup;
    let c = params.c + t * params.cRow + group * params.cGroup;
    let step = clamp(softplus(load_dt(params.dt + t * params.dtRow + h * params.dtHead) + bias), params.min, params.max);
    let gamma = exp_below_zero(rate * step);
    let value = load_x(params.x + t * params.xRow + h * params.xHead + column * params.xStep);
    var sum = ${skip ? 'value * load_skip(params.skip + h * params.skipStep)' : '0.0'};
    for (var i = 0u; i < params.d; i++) {
      let added = load_b(b + i * params.bStep) * (step * value);
      let now = fma(gamma, load_state(state + i * params.dv), added);
      store_state(state + i * params.dv, now);
      sum = fma(now, load_c(c + i * params.cStep), sum);
    }
    store_out(params.out + t * params.outRow + h * params.outHead + column * params.outStep, sum);
  }
}`,
};
