/** Operators with a state, in float64: the causal convolution, the gated delta rule and the selective scan. @module */
import type { CausalConvPlan } from '../ops/causal-conv.js';
import type { GatedDeltaPlan } from '../ops/gated-delta.js';
import type { SsmScanPlan } from '../ops/ssm-scan.js';
import { readAll, writeAll } from './elements.js';

/** Convolves each channel over time. The outputs and the new state are rounded once. */
export function causalConvReference({ x, weight, state, bias, before, after, silu, fresh, out }: CausalConvPlan): void {
  const [tokens, channels] = x.shape as [number, number];
  const width = weight.shape[1]!;
  const past = width - 1;
  const weights = readAll(weight, 'causal_conv: weight'); // [channels, width]
  const biases = bias && readAll(bias, 'causal_conv: bias');
  const gates = before && readAll(before, 'causal_conv: before');
  const factors = after && readAll(after, 'causal_conv: after');
  // The rows of the state, then those of this call.
  const rows = new Float64Array((past + tokens) * channels);
  if (!fresh) rows.set(readAll(state, 'causal_conv: state'));
  const now = readAll(x, 'causal_conv: x').map((value, i) => value * (gates?.[i] ?? 1));
  rows.set(now, past * channels);
  const values = new Float64Array(tokens * channels);
  for (let t = 0; t < tokens; t++)
    for (let c = 0; c < channels; c++) {
      let sum = biases?.[c] ?? 0;
      for (let j = 0; j < width; j++) sum += weights[c * width + j]! * rows[(t + j) * channels + c]!;
      if (silu) sum /= 1 + Math.exp(-sum);
      values[t * channels + c] = sum * (factors?.[t * channels + c] ?? 1);
    }
  writeAll(out, values, 'causal_conv: out');
  writeAll(state, rows.subarray(tokens * channels), 'causal_conv: state');
}

/** Runs the gated delta rule token by token. The outputs and the new state are rounded once. */
export function gatedDeltaReference(plan: GatedDeltaPlan): void {
  const { state, eps, scale, tiled, fresh, out } = plan;
  const [tokens, keyHeads, d] = plan.q.shape as [number, number, number];
  const [, heads, dv] = plan.v.shape as [number, number, number];
  const read = (name: 'q' | 'k' | 'v' | 'decay' | 'beta' | 'rate' | 'bias') =>
    readAll(plan[name], `gated_delta: ${name}`);
  const [q, k, v] = [read('q'), read('k'), read('v')];
  const [decay, beta, rate, bias] = [read('decay'), read('beta'), read('rate'), read('bias')];
  const states = fresh ? new Float64Array(state.size) : readAll(state, 'gated_delta: state');
  const values = new Float64Array(out.size);
  for (let h = 0; h < heads; h++) {
    const s = states.subarray(h * d * dv, (h + 1) * d * dv); // [d, dv]
    const keyHead = tiled ? h % keyHeads : Math.floor(h / (heads / keyHeads));
    for (let t = 0; t < tokens; t++) {
      const key = unit(k, (t * keyHeads + keyHead) * d, d, eps);
      const query = unit(q, (t * keyHeads + keyHead) * d, d, eps);
      const gamma = Math.exp(rate[h]! * softplus(decay[t * heads + h]! + bias[h]!));
      const strength = 1 / (1 + Math.exp(-beta[t * heads + h]!));
      for (let j = 0; j < dv; j++) {
        let held = 0;
        for (let i = 0; i < d; i++) held += gamma * s[i * dv + j]! * key[i]!;
        const correction = strength * (v[(t * heads + h) * dv + j]! - held);
        let sum = 0;
        for (let i = 0; i < d; i++) {
          s[i * dv + j] = gamma * s[i * dv + j]! + key[i]! * correction;
          sum += s[i * dv + j]! * query[i]!;
        }
        values[(t * heads + h) * dv + j] = scale * sum;
      }
    }
  }
  writeAll(out, values, 'gated_delta: out');
  writeAll(state, states, 'gated_delta: state');
}

/** Runs the selective scan token by token. The outputs and the new state are rounded once. */
export function ssmScanReference(plan: SsmScanPlan): void {
  const { skip, state, min, max, fresh, out } = plan;
  const [tokens, heads, dv] = plan.x.shape as [number, number, number];
  const [, groups, d] = plan.b.shape as [number, number, number];
  const read = (name: 'x' | 'b' | 'c' | 'dt' | 'rate' | 'bias') => readAll(plan[name], `ssm_scan: ${name}`);
  const [x, b, c, dt, rate, bias] = [read('x'), read('b'), read('c'), read('dt'), read('rate'), read('bias')];
  const skips = skip && readAll(skip, 'ssm_scan: skip');
  const states = fresh ? new Float64Array(state.size) : readAll(state, 'ssm_scan: state');
  const values = new Float64Array(out.size);
  for (let h = 0; h < heads; h++) {
    const group = Math.floor(h / (heads / groups));
    for (let t = 0; t < tokens; t++) {
      const step = Math.min(Math.max(softplus(dt[t * heads + h]! + bias[h]!), min), max);
      const gamma = Math.exp(rate[h]! * step);
      for (let j = 0; j < dv; j++) {
        const value = x[(t * heads + h) * dv + j]!;
        let sum = skips ? skips[h]! * value : 0;
        for (let i = 0; i < d; i++) {
          const [at, row] = [(h * d + i) * dv + j, (t * groups + group) * d + i];
          states[at] = gamma * states[at]! + b[row]! * (step * value);
          sum += states[at]! * c[row]!;
        }
        values[(t * heads + h) * dv + j] = sum;
      }
    }
  }
  writeAll(out, values, 'ssm_scan: out');
  writeAll(state, states, 'ssm_scan: state');
}

/** Divides a vector by the root of its sum of squares and eps. */
function unit(values: Float64Array, at: number, d: number, eps: number): Float64Array {
  const vector = values.slice(at, at + d);
  const size = Math.sqrt(vector.reduce((sum, x) => sum + x * x, eps));
  return vector.map((x) => x / size);
}

/** Computes ln(1 + e^x) without overflow. */
function softplus(x: number): number {
  return Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
}
