/** Error bounds of the operators with a state: see bounds.ts. @module */
import { type CausalConvPlan, countElements, type GatedDeltaPlan, type SsmScanPlan } from 'ropewalk/internal';
import { floats } from './case.js';

/** A sigmoid or an exponential within 4 ulp, a softplus, sums, quotients and products. */
export const STEP_UNITS = 24;

/**
 * A row u is a product; the sum of `width` products and a bias is off by (width + 3) u of their sizes. SiLU's slope is
 * at most 1.1; it and the last product add their units.
 */
export function convErrors(plan: CausalConvPlan, u: number): Map<string, Float64Array> {
  const { x, weight, state, bias, before, after, silu, fresh } = plan;
  const [tokens, channels] = x.shape as [number, number];
  const width = weight.shape[1]!;
  const [weights, biases, gates, factors] = [
    floats(weight),
    bias && floats(bias),
    before && floats(before),
    after && floats(after),
  ];
  const held = fresh ? new Float64Array(state.size) : floats(state);
  const rows = [...held, ...floats(x).map((value, i) => value * (gates?.[i] ?? 1))];
  const out = new Float64Array(x.size);
  for (let t = 0; t < tokens; t++)
    for (let c = 0; c < channels; c++) {
      let size = Math.abs(biases?.[c] ?? 0);
      for (let j = 0; j < width; j++) size += Math.abs(weights[c * width + j]! * rows[(t + j) * channels + c]!);
      const units = (silu ? 1.1 : 1) * (width + 3) + (silu ? STEP_UNITS : 0) + 1;
      out[t * channels + c] = units * u * size * Math.abs(factors?.[t * channels + c] ?? 1);
    }
  // Rows of the old state are copied.
  const last = rows.slice(tokens * channels).map((value, i) => (i < state.size - x.size ? -1 : u * Math.abs(value)));
  return new Map([
    ['out', out],
    ['new_state', Float64Array.from(last)],
  ]);
}

/**
 * A running error analysis: E is the error of the state S. A unit vector is off by a = (d / 2 + 8) u of itself, γ by a
 * share g = (24 + 24 |ln γ|) u, and a sum over d by (d + 2) u of the sizes of its terms.
 */
export function deltaErrors(plan: GatedDeltaPlan, u: number): Map<string, Float64Array> {
  const { state, eps, scale, tiled, fresh, out } = plan;
  const [tokens, keyHeads, d] = plan.q.shape as [number, number, number];
  const [, heads, dv] = plan.v.shape as [number, number, number];
  const [q, k, v] = [floats(plan.q), floats(plan.k), floats(plan.v)];
  const [decay, beta, rate, bias] = [floats(plan.decay), floats(plan.beta), floats(plan.rate), floats(plan.bias)];
  const states = fresh ? new Float64Array(state.size) : floats(state).slice();
  const errors = new Float64Array(countElements(state.shape));
  const outs = new Float64Array(out.size);
  const unit = (values: Float64Array, at: number): Float64Array => {
    const vector = values.slice(at, at + d);
    const size = Math.sqrt(vector.reduce((sum, x) => sum + x * x, eps));
    return vector.map((x) => x / size);
  };
  const ofSum = (d + 2 + 2 * (d / 2 + 8)) * u; // the sum, and the unit vectors of both factors
  for (let h = 0; h < heads; h++)
    for (let t = 0; t < tokens; t++) {
      const group = tiled ? h % keyHeads : Math.floor(h / (heads / keyHeads));
      const [key, query] = [unit(k, (t * keyHeads + group) * d), unit(q, (t * keyHeads + group) * d)];
      const x = decay[t * heads + h]! + bias[h]!;
      const exponent = rate[h]! * (Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x))));
      // The sum in softplus may cancel.
      const inExponent = Math.abs(rate[h]!) * (Math.abs(decay[t * heads + h]!) + Math.abs(bias[h]!));
      const [gamma, ofGamma] = [Math.exp(exponent), (STEP_UNITS * (1 + Math.abs(exponent)) + 2 * inExponent) * u];
      const strength = 1 / (1 + Math.exp(-beta[t * heads + h]!));
      for (let j = 0; j < dv; j++) {
        let [held, size, error] = [0, 0, 0];
        for (let i = 0; i < d; i++) {
          const at = (h * d + i) * dv + j;
          held += gamma * states[at]! * key[i]!;
          size += Math.abs(gamma * states[at]! * key[i]!);
          error += gamma * errors[at]! * Math.abs(key[i]!);
        }
        const value = v[(t * heads + h) * dv + j]!;
        const correction = strength * (value - held);
        const ofCorrection =
          strength * (error + (ofSum + ofGamma) * size) + STEP_UNITS * u * strength * (Math.abs(value) + size);
        let [sum, ofOut] = [0, 0];
        for (let i = 0; i < d; i++) {
          const at = (h * d + i) * dv + j;
          const [old, added] = [gamma * states[at]!, key[i]! * correction];
          states[at] = old + added;
          errors[at] =
            gamma * errors[at]! +
            Math.abs(key[i]!) * ofCorrection +
            (ofGamma + 3 * u) * Math.abs(old) +
            (d / 2 + 10) * u * Math.abs(added);
          // Kernels may add k·q times the correction to the old state's part.
          sum += (Math.abs(old) + Math.abs(added)) * Math.abs(query[i]!);
          ofOut += errors[at]! * Math.abs(query[i]!);
        }
        outs[(t * heads + h) * dv + j] = Math.abs(scale) * (ofOut + (ofSum + 4 * u) * sum);
      }
    }
  return new Map([
    ['out', outs],
    ['new_state', errors],
  ]);
}

/**
 * A running error analysis, as of the delta rule: a time step is off by 24 u of itself and by the rounding of its sum,
 * which may cancel, γ by 24 u and by the error of its exponent, and a sum over d by (d + 2) u of the sizes of its terms.
 */
export function scanErrors(plan: SsmScanPlan, u: number): Map<string, Float64Array> {
  const { skip, state, min, max, fresh, out } = plan;
  const [tokens, heads, dv] = plan.x.shape as [number, number, number];
  const [, groups, d] = plan.b.shape as [number, number, number];
  const [x, b, c, dt] = [floats(plan.x), floats(plan.b), floats(plan.c), floats(plan.dt)];
  const [rate, bias, skips] = [floats(plan.rate), floats(plan.bias), skip && floats(skip)];
  const states = fresh ? new Float64Array(state.size) : floats(state).slice();
  const errors = new Float64Array(countElements(state.shape));
  const outs = new Float64Array(out.size);
  for (let h = 0; h < heads; h++)
    for (let t = 0; t < tokens; t++) {
      const group = Math.floor(h / (heads / groups));
      const [term, shift] = [dt[t * heads + h]!, bias[h]!];
      const softplus = Math.max(term + shift, 0) + Math.log1p(Math.exp(-Math.abs(term + shift)));
      const step = Math.min(Math.max(softplus, min), max);
      const ofStep = (STEP_UNITS * softplus + 2 * (Math.abs(term) + Math.abs(shift)) + step) * u + SMALLEST_NORMAL;
      const gamma = Math.exp(rate[h]! * step);
      const ofGamma = gamma * (Math.abs(rate[h]!) * (ofStep + 2 * u * step) + STEP_UNITS * u) + SMALLEST_NORMAL;
      for (let j = 0; j < dv; j++) {
        const value = x[(t * heads + h) * dv + j]!;
        const skipped = Math.abs((skips?.[h] ?? 0) * value);
        let [size, error] = [skipped, u * skipped];
        for (let i = 0; i < d; i++) {
          const [at, row] = [(h * d + i) * dv + j, (t * groups + group) * d + i];
          const [old, added] = [gamma * states[at]!, b[row]! * step * value];
          errors[at] =
            (gamma + ofGamma) * errors[at]! +
            ofGamma * Math.abs(states[at]!) +
            Math.abs(b[row]! * value) * ofStep +
            4 * u * (Math.abs(old) + Math.abs(added));
          states[at] = old + added;
          size += Math.abs(states[at]! * c[row]!);
          error += errors[at]! * Math.abs(c[row]!);
        }
        outs[(t * heads + h) * dv + j] = error + (d + 2) * u * (size + error);
      }
    }
  return new Map([
    ['out', outs],
    ['new_state', errors],
  ]);
}

/** A smaller number may be 0 on a GPU. */
const SMALLEST_NORMAL = 2 ** -126;
