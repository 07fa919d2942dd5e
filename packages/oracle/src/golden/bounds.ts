/**
 * How far off a right kernel may be, element by element.
 *
 * Each bound is an error analysis of arithmetic in f32 (in float64 for float64 data) with sums in any order and one
 * rounding at the store. docs/vectors.md lists the formulas, in which u is the unit roundoff. Bounds are about the
 * exact float64 result; {@link storedSlack} is added for an expected output that was itself rounded.
 *
 * @module
 */
import {
  type BlockTensor,
  type Dtype,
  type FloatDtype,
  type HostArray,
  isFloat,
  type OpPlan,
  planExpertLinear,
  planGelu,
  planLinear,
  planRoute,
  type RopeCall,
  type RopePlan,
  type Tensor,
  tensorFrom,
} from 'ropewalk';
import { unknownPlan } from 'ropewalk/backend';
import {
  type ExpertLinearPlan,
  type GegluPlan,
  type LayerNormPlan,
  type LinearPlan,
  type RopePart,
  type RoutePlan,
  readBlocks,
  type ScalePlan,
  type SelfAttentionPlan,
  type SwigluPlan,
  UNIT_ROUNDOFF,
} from 'ropewalk/internal';
import { referenceRunner } from 'ropewalk/reference';
import type { ExpectedOutput } from '../judge.js';
import { bindGolden, FORMULA_OF, floats, type GoldenQuestion, isExact, type ToleranceRecord } from './case.js';
import { convErrors, deltaErrors, STEP_UNITS, scanErrors } from './recurrent-bounds.js';

/** Marks an element that is copied, and so has no error. */
const COPIED = -1;
/** Marks an element of {@link ExpectedOutput.unsettled}. */
const UNSETTLED = -2;

/** The error near 0: half the smallest subnormal of f16; any subnormal of f32 and bf16, which WGSL may take for 0. */
const NEAR_ZERO: Readonly<Record<FloatDtype, number>> = { f64: 0, f32: 2 ** -126, f16: 2 ** -25, bf16: 2 ** -126 };

// The units below count roundings.
/** The gate has an e^x within 4 ulp, a sum, a quotient and products. */
const GATE_UNITS = 16;
/** GELU is x/2 · (1 + erf(…)) with an erf or tanh within 4 ulp. The units are relative to x, as the sum may cancel. */
const GELU_UNITS = 16;
/** xIELU has an e^x within 4 ulp below 0, from which 1 is subtracted. */
const XIELU_UNITS = 2;
/** A soft cap has a tanh within 4 ulp. */
const CAP_UNITS = 8;
/** The norm has eps, mean, root, quotient and weight, beside its sum. */
const NORM_UNITS = 8;
/** Softmax has the scores' scale, an e^x within 4 ulp, a quotient and a product, beside its sums. */
const SOFTMAX_UNITS = 16;
/** A router's score is a gate's sigmoid or a softmax. */
const SCORE_UNITS = 16;
/** Below this e^−|gate| is no normal f32, and may be rounded to zero. */
const GATE_TINY = 2 ** -126;
/**
 * Below this an exponential may be rounded to zero: twice the smallest normal number of f32, or of f16 where
 * probabilities may be f16 (verify/model.ts).
 */
const MAY_VANISH: Readonly<Record<FloatDtype, number>> = { f64: 0, f32: 2 ** -125, f16: 2 ** -13, bf16: 2 ** -125 };

/** Computes a case's exact outputs and their bounds. */
export function exactWithBounds(c: GoldenQuestion): Map<string, ExpectedOutput> {
  const runner = referenceRunner();
  const { plan, outputs, dtypes } = bindGolden(c, runner, true);
  const errors = errorsOf(c, plan); // The run may overwrite inputs.
  runner.run(plan);
  return new Map(
    [...outputs].map(([name, tensor]): [string, ExpectedOutput] => {
      const dtype = dtypes.get(name)!;
      const values = tensor.read() as HostArray;
      const error = errors.get(name);
      const computed = error && isFloat(dtype);
      const bounds = computed ? error.map((e, n) => rounded(e, values[n] as number, dtype)) : undefined;
      const unsettled = new Set<number>();
      error?.forEach((e, n) => {
        if (e === UNSETTLED && !Number.isFinite(values[n])) unsettled.add(n);
      });
      return [name, { dtype, shape: tensor.shape, values, bounds, unsettled }];
    }),
  );
}

/** Adds the error of the store. Copied elements, NaN and infinities have the bound 0: only the same value passes. */
function rounded(error: number, exact: number, dtype: FloatDtype): number {
  if (error < 0 || !Number.isFinite(exact)) return 0;
  return error + UNIT_ROUNDOFF[dtype] * (Math.abs(exact) + error) + NEAR_ZERO[dtype];
}

/** Computes the bound about an expected output that was rounded to its dtype; `error` is one of {@link planErrors}. */
export function boundAboutStored(error: number, stored: number, dtype: FloatDtype): number {
  return error < 0 ? 0 : rounded(error, stored, dtype) + storedSlack(dtype, stored);
}

/** The part of a bound that allows for the rounding of the expected output. */
export function storedSlack(dtype: FloatDtype, stored: number): number {
  return UNIT_ROUNDOFF[dtype] * Math.abs(stored) * (1 + 2 ** -7) + NEAR_ZERO[dtype];
}

/** Computes the errors before the store, by output. Copied outputs have none. */
function errorsOf(c: GoldenQuestion, plan: OpPlan): Map<string, Float64Array> {
  if (isExact(c.op)) return new Map();
  const dtypeOf = (name: string): Dtype => c.inputs.get(name)!.dtype;
  // The plan's outputs are float64, so that it does not show which parts are copied.
  const parts = c.rope?.parts.map(({ x, out, cache }) => ({
    out,
    copies: cache === undefined || dtypeOf(cache) === dtypeOf(x),
  }));
  const data = isDouble(c) ? 'f64' : ((c.inputs.get('q')?.dtype as FloatDtype | undefined) ?? 'f32');
  return planErrors(plan, data, parts);
}

/**
 * Computes how far off an operator's outputs may be before they are rounded to their dtype.
 *
 * @param data - the dtype of the data, of q for attention; the plan's tensors may be float64 all the same
 * @param parts - the names of a rotation's outputs, and whether dimensions that do not rotate are copied. Default: they
 *   are copied where x and the output have one dtype
 * @returns the errors by output, negative for an element that is copied or not settled; empty for an operator that
 *   copies
 */
export function planErrors(
  plan: OpPlan,
  data: FloatDtype,
  parts?: readonly { readonly out: string; readonly copies: boolean }[],
): Map<string, Float64Array> {
  const double = data === 'f64';
  const u = double ? UNIT_ROUNDOFF.f64 : UNIT_ROUNDOFF.f32;
  switch (plan.op) {
    case 'rope':
      return new Map(
        plan.parts.map((part, p) => {
          const { out, copies } = parts?.[p] ?? { out: `out${p}`, copies: part.x.dtype === part.out.dtype };
          return [out, rotationErrors(plan, part, copies, u)];
        }),
      );
    case 'add': {
      const [a, b] = [floats(plan.a), floats(plan.b)];
      return new Map([['c', a.map((v, n) => u * Math.abs(v + b[n]!))]]);
    }
    case 'swiglu':
      return new Map([['out', gateErrors(plan, u, double)]]);
    case 'gelu':
      return new Map([['out', floats(plan.x).map((x) => GELU_UNITS * u * Math.abs(x))]]);
    case 'geglu': {
      const [gate, up, gated] = [floats(plan.gate), floats(plan.up), floats(exactGelu(plan))];
      const errors = gate.map((g, n) => {
        const error = GELU_UNITS * u * Math.abs(g);
        // Far below 0, 1 + erf may be 0 in f32, and 0 times an infinity is NaN.
        if (!Number.isFinite(up[n]!) && Math.abs(gated[n]!) <= error) return UNSETTLED;
        return error * Math.abs(up[n]!);
      });
      return new Map([['out', errors]]);
    }
    case 'xielu': {
      const { positive, negative, beta } = plan;
      const errors = floats(plan.x).map((x) => {
        const curve = x > 0 ? Math.abs(positive * x * x) : XIELU_UNITS * Math.abs(negative) * (1 - x);
        return u * (4 * curve + 3 * Math.abs(beta * x));
      });
      return new Map([['out', errors]]);
    }
    case 'scale':
      return new Map([['out', scaleErrors(plan, u)]]);
    case 'layer_norm':
      return new Map([['y', layerNormErrors(plan, u)]]);
    case 'rms_norm': {
      const [x, weight] = [floats(plan.x), floats(plan.weight)];
      const d = weight.length;
      const errors = new Float64Array(x.length);
      for (let row = 0; row < x.length; row += d) {
        let squares = 0;
        for (let i = 0; i < d; i++) squares += x[row + i]! ** 2;
        const rms = Math.sqrt(squares / d + plan.eps);
        for (let i = 0; i < d; i++)
          errors[row + i] = rms === 0 ? 0 : (d / 2 + NORM_UNITS) * u * Math.abs((x[row + i]! * weight[i]!) / rms);
      }
      return new Map([['y', errors]]);
    }
    case 'linear':
      return new Map([['y', dotErrors(plan, u)]]);
    case 'self_attention':
      return new Map([['attn_val', attentionErrors(plan, u, MAY_VANISH[data])]]);
    case 'argmax':
    case 'embedding':
    case 'rearrange':
      return new Map();
    case 'causal_conv':
      return convErrors(plan, u);
    case 'gated_delta':
      return deltaErrors(plan, u);
    case 'ssm_scan':
      return scanErrors(plan, u);
    case 'expert_linear':
      return new Map([['out', dotErrors(plan, u)]]);
    case 'route': // the indices are exact
      return new Map([['weights', routeErrors(plan, u, double ? 0 : MAY_VANISH.f32)]]);
    default:
      return unknownPlan(plan satisfies never);
  }
}

function isDouble(c: GoldenQuestion): boolean {
  return [...c.inputs.values()].some((tensor) => tensor.dtype === 'f64');
}

/**
 * The output is the gate times its sigmoid, times up; with relu it is one product. In the clamped form w = alpha · g is rounded three times, which
 * costs the sigmoid up to |w| (1 − sigmoid(w)) of itself, and the sum with the offset may cancel.
 */
function gateErrors(
  { gate, up, limit = Number.POSITIVE_INFINITY, alpha, offset, activation }: SwigluPlan,
  u: number,
  double: boolean,
): Float64Array {
  const ups = floats(up);
  return floats(gate).map((given, n) => {
    if (activation === 'relu') return u * Math.abs(ups[n]! * Math.max(given, 0));
    const g = Math.min(given, limit);
    const w = alpha * g;
    const gated = (activation === 'sigmoid' ? 1 : g) / (1 + Math.exp(-w));
    const factor = Math.min(Math.abs(ups[n]!), limit) + Math.abs(offset);
    if (!double && Math.abs(gated) < MAY_VANISH.f32 && !Number.isFinite(factor)) return UNSETTLED;
    const ofW = alpha === 1 ? 0 : 3 * Math.abs(w) * (1 - 1 / (1 + Math.exp(-w)));
    // At most e^−|w| itself is lost; otherwise a huge gate would allow anything.
    const lost = double ? 0 : Math.min(GATE_TINY, Math.exp(-Math.abs(w)));
    return (
      (GATE_UNITS + ofW) * u * Math.abs(factor * gated) + lost * Math.abs(factor * (activation === 'sigmoid' ? 1 : g))
    );
  });
}

/** Computes GELU of the gate in float64. */
function exactGelu({ gate, approximate }: GegluPlan): Tensor {
  const runner = referenceRunner();
  const out = runner.allocate('f64', gate.shape);
  runner.run(planGelu(gate, out, { approximate }));
  return out;
}

/** Factor and product are each rounded once. A soft cap, whose slope is at most 1, adds its units. */
function scaleErrors({ x, factor, softcap }: ScalePlan, u: number): Float64Array {
  const d = x.shape.at(-1) ?? 1;
  const factors = typeof factor === 'number' ? undefined : floats(factor);
  return floats(x).map((value, n) => {
    const product = Math.abs(value * (factors ? factors[Math.floor(n / d)]! : (factor as number)));
    return softcap === undefined ? 2 * u * product : u * (2 * Math.min(product, softcap) + CAP_UNITS * softcap);
  });
}

/**
 * A mean is a sum of d terms in any order, off by d u · mean |x|. The variance may be a difference of means of squares,
 * and is off by d u of these; the root halves that.
 */
function layerNormErrors({ x, weight, bias, eps }: LayerNormPlan, u: number): Float64Array {
  const [xs, weights, shifts] = [floats(x), floats(weight), bias && floats(bias)];
  const d = weights.length;
  const errors = new Float64Array(xs.length);
  for (let row = 0; row < xs.length; row += d) {
    const values = xs.subarray(row, row + d);
    const mean = values.reduce((sum, v) => sum + v, 0) / d;
    const size = values.reduce((sum, v) => sum + Math.abs(v), 0) / d;
    const squares = values.reduce((sum, v) => sum + v * v, 0) / d;
    const spread = values.reduce((sum, v) => sum + (v - mean) ** 2, 0) / d + eps;
    for (let i = 0; i < d; i++) {
      const normed = Math.abs(values[i]! - mean) / Math.sqrt(spread);
      const ofNormed = ((d / 2) * (squares / spread) + NORM_UNITS) * normed + (d * size) / Math.sqrt(spread);
      const product = Math.abs(weights[i]!) * u;
      errors[row + i] = ofNormed * product + u * (Math.abs(weights[i]!) * normed + Math.abs(shifts?.[i] ?? 0));
    }
  }
  return errors;
}

/**
 * A rotation is two products and a sum, each with one rounding, from cos and sin that were rounded once from exact
 * angles: 3 u · (|x0 cos| + |x1 sin|). A norm before it adds its units, relative to the normed values.
 */
function rotationErrors({ plan }: RopeCall, part: RopePart, copies: boolean, u: number): Float64Array {
  const { x, out, rows, norm } = part;
  const [batch, seq, heads, headDim] = x.shape as [number, number, number, number];
  const weight = norm && floats(norm.weight);
  const units = norm ? 3 + headDim / 2 + NORM_UNITS : 3;
  const values = floats(x);
  // The errors are laid out like `out`. Rows of a cache that no token is written to do not change.
  const errors = new Float64Array(out.size).fill(COPIED);
  const magnitudes = new Float64Array(headDim);
  for (let b = 0; b < batch; b++) {
    for (let s = 0; s < seq; s++) {
      for (let h = 0; h < heads; h++) {
        const from = ((b * seq + s) * heads + h) * headDim;
        const head = values.slice(from, from + headDim);
        if (norm && weight) {
          const rms = Math.sqrt(head.reduce((sum, v) => sum + v * v, 0) / headDim + norm.eps);
          for (let i = 0; i < headDim; i++) head[i] = (head[i]! * weight[i]!) / rms;
        }
        const copied = !norm && copies;
        for (let i = 0; i < headDim; i++) magnitudes[i] = copied ? COPIED : norm ? Math.abs(head[i]!) : 0;
        pairMagnitudes(plan, head, plan.batch === undefined ? s : b * seq + s, magnitudes);
        const row = rows ? rows[b * seq + s]! : s;
        const at = out.offset + b * out.strides[0]! + row * out.strides[1]! + h * out.strides[2]!;
        for (let i = 0; i < headDim; i++)
          errors[at + i * out.strides[3]!] = magnitudes[i]! < 0 ? COPIED : units * u * magnitudes[i]!;
      }
    }
  }
  return errors;
}

/** Writes |x0 cos| + |x1 sin| and |x0 sin| + |x1 cos| to the places where each pair is written. */
function pairMagnitudes(plan: RopePlan, head: Float64Array, token: number, magnitudes: Float64Array): void {
  const { table, read, write, rotaryOffset } = plan;
  const row = plan.tableRows[token]! * table.pairs;
  for (let j = 0; j < table.pairs; j++) {
    const i0 = rotaryOffset + j * read.step;
    const o0 = rotaryOffset + j * write.step;
    const [x0, x1] = [Math.abs(head[i0]!), Math.abs(head[i0 + read.gap]!)];
    const [cos, sin] = [Math.abs(table.cos[row + j]!), Math.abs(table.sin[row + j]!)];
    magnitudes[o0] = x0 * cos + x1 * sin;
    magnitudes[o0 + write.gap] = x0 * sin + x1 * cos;
  }
}

/**
 * A sum of k products in any order is off by (k + 2) u · (Σ |x w| + |bias|). Where experts' sums are weighted, each
 * adds a product and a sum over the chosen experts: (k + chosen + 3) u · Σ |weight| (Σ |x w| + |bias|).
 */
function dotErrors(plan: LinearPlan | ExpertLinearPlan, u: number): Float64Array {
  const sizes = (tensor: Tensor | BlockTensor): Tensor => {
    const values = 'format' in tensor ? readBlocks(tensor, 'golden: weight') : floats(tensor);
    return tensorFrom(values.map(Math.abs), { shape: tensor.shape });
  };
  const runner = referenceRunner();
  const [x, weight, bias] = [sizes(plan.x), sizes(plan.weight), plan.bias && sizes(plan.bias)];
  const out = runner.allocate('f64', plan.out.shape);
  let terms = x.shape.at(-1)! + 2;
  if (plan.op === 'linear') runner.run(planLinear(x, weight, out, { bias }));
  else {
    const weights = plan.weights && sizes(plan.weights);
    if (weights) terms += plan.indices.shape[1]! + 1;
    runner.run(planExpertLinear(x, weight, plan.indices, out, { bias, weights }));
  }
  return floats(out).map((sum) => terms * u * sum);
}

/**
 * A score is off by a share of itself: (2 s + 2 n + 16) u for a softmax over n logits that are at most s apart, as for
 * attention's probabilities; sparsemixer has some of them; 16 u for a sigmoid. Normalising divides by a sum of scores,
 * which doubles the share and adds chosen + 2 roundings. The scale adds one. Below `mayVanish` an exponential may be zero.
 */
function routeErrors(plan: RoutePlan, u: number, mayVanish: number): Float64Array {
  const { logits, gate, jitter, bias, groups, normalize, scale, indices, weights } = plan;
  const [experts, chosen] = [logits.shape[1]!, indices.shape[1]!];
  const all = floats(logits);
  const runner = referenceRunner();
  const out = runner.allocate('f64', weights.shape);
  const options = { gate, jitter, bias, groups, normalize, scale };
  runner.run(planRoute(logits, runner.allocate('i32', indices.shape), out, options));
  const lost = mayVanish * Math.abs(scale) * (normalize ? 2 ** 14 : 1);
  return floats(out).map((weight, n) => {
    const row = all.subarray(Math.floor(n / chosen) * experts, (Math.floor(n / chosen) + 1) * experts);
    const spread = Math.max(...row) - Math.min(...row);
    const terms = gate === 'softmax' || gate === 'sparsemixer' ? experts : chosen;
    const score = gate === 'sigmoid' ? SCORE_UNITS : 2 * spread + 2 * terms + SCORE_UNITS;
    return ((normalize ? 2 * score + chosen + 2 : score) + 1) * u * Math.abs(weight) + lost;
  });
}

/**
 * A score is off by δ = (d + 2) u · scale · Σ |q k|, and by 8 u · softcap more where there is a cap. A probability is
 * off by a share: twice the largest δ of the row, and its roundings. The output is off by that share of Σ p |v|.
 */
function attentionErrors(plan: SelfAttentionPlan, u: number, mayVanish: number): Float64Array {
  const { q, k, v, scale, causal, window, softcap, sinks } = plan;
  const [batch, seq, heads, d] = q.shape as [number, number, number, number];
  const [, total, kvHeads, dv] = v.shape as [number, number, number, number];
  const [qs, ks, vs] = [floats(q), floats(k), floats(v)];
  const sinkScores = sinks && floats(sinks);
  const errors = new Float64Array(batch * seq * heads * dv);
  const group = heads / kvHeads;
  for (let b = 0; b < batch; b++) {
    for (let s = 0; s < seq; s++) {
      for (let h = 0; h < heads; h++) {
        const kv = Math.floor(h / group);
        const position = total - seq + s;
        const last = causal ? position : total - 1;
        const first = window === undefined ? 0 : Math.max(0, position - window + 1);
        const scores: number[] = [];
        let delta = 0;
        for (let t = first; t <= last; t++) {
          let dot = 0;
          let size = 0;
          for (let i = 0; i < d; i++) {
            const product = qs[((b * seq + s) * heads + h) * d + i]! * ks[((b * total + t) * kvHeads + kv) * d + i]!;
            dot += product;
            size += Math.abs(product);
          }
          scores.push(softcap === undefined ? dot * scale : softcap * Math.tanh((dot * scale) / softcap));
          // A score of ±∞ is ±∞ in any order of summation: with a cap it is the cap, without one −∞ gives the
          // probability 0.
          const slack = Number.isFinite(dot) ? (d + 2) * u * size * Math.abs(scale) : 0;
          delta = Math.max(delta, slack + 8 * u * (softcap ?? 0));
        }
        // A sink is a score without a value.
        const sink = sinkScores?.[h] ?? -Infinity;
        const top = Math.max(...scores, sink);
        const weights = scores.map((score) => Math.exp(score - top));
        const sum = weights.reduce((a, w) => a + w, Math.exp(sink - top));
        // In e^(score − top) the difference is rounded too, which costs u of its size.
        const spread = Math.max(...[...scores, sink].map((score) => (score === -Infinity ? 0 : Math.abs(score - top))));
        const roundings = (2 * (scores.length + (sinks ? 1 : 0)) + SOFTMAX_UNITS) * u;
        const share = 2 * delta + 2 * spread * u + roundings;
        for (let i = 0; i < dv; i++) {
          let size = 0;
          let largest = 0;
          let vanishes = false;
          for (const [n, w] of weights.entries()) {
            const v = Math.abs(vs[((b * total + first + n) * kvHeads + kv) * dv + i]!);
            size += (w / sum) * v;
            largest = Math.max(largest, v);
            vanishes ||= v === Number.POSITIVE_INFINITY && w / sum < mayVanish;
          }
          // However wrong the scores are, the output is a mean of the values.
          const error = Math.min(share * size, (2 + roundings) * largest);
          errors[((b * seq + s) * heads + h) * dv + i] = vanishes ? UNSETTLED : error;
        }
      }
    }
  }
  return errors;
}

/** The reason of each formula. A folder that another program wrote may name other formulas. */
export const FORMULAS = {
  rotation:
    'Error analysis of two f32 products and a sum from cos and sin rounded once from exact angles, then one rounding to the output. A kernel that computes angles in f32 may be further off: see the bounds of each output.',
  norm: 'Error analysis of f32 sums in any order under a root, then one rounding to the output.',
  sum: 'One f32 sum, then one rounding to the output.',
  dot: 'Error analysis of an f32 sum of products in any order, then one rounding to the output.',
  attention: 'Error analysis of f32 scores, softmax and sums in any order, then one rounding to the output.',
  route:
    'Error analysis of f32 scores with exponentials within 4 units of the last place, then one rounding to the output.',
  gate: 'Error analysis with an f32 exponential within 4 units of the last place, then one rounding to the output.',
  gelu: 'Error analysis with an f32 erf or tanh within 4 units of the last place, then one rounding to the output.',
  xielu: 'Error analysis with an f32 exponential within 4 units of the last place, then one rounding to the output.',
  conv: 'Error analysis of f32 sums of products in any order, and of a sigmoid, then one rounding to the output.',
  delta: 'Running error analysis of the state in f32, then one rounding to the output.',
  scan: 'Running error analysis of the state in f32, then one rounding to the output.',
  scale:
    'One f32 product by a rounded factor, and a tanh within 4 units of the last place, then one rounding to the output.',
  layer_norm: 'Error analysis of f32 sums in any order for mean and variance, then one rounding to the output.',
  bits: 'Elements are copied: every bit must be equal.',
};

/** Says how far a right kernel may be from a case's stored outputs. */
export function toleranceOf(c: GoldenQuestion, exact: ReadonlyMap<string, ExpectedOutput>): ToleranceRecord {
  const formula = FORMULA_OF[c.op];
  let atol = 0;
  let rtol = 0;
  const parameters: Record<string, number> = {};
  for (const { dtype, values, bounds } of exact.values()) {
    if (!bounds || !isFloat(dtype)) continue;
    rtol = Math.max(rtol, 2 * UNIT_ROUNDOFF[dtype]);
    for (const [n, bound] of bounds.entries()) {
      const size = Math.abs(values[n] as number);
      // A copied element has no error, so any atol is enough for it.
      if (bound > 0 && Number.isFinite(size))
        atol = Math.max(atol, bound + storedSlack(dtype, size) - 2 * UNIT_ROUNDOFF[dtype] * size);
    }
    parameters.output_roundoff = Math.max(parameters.output_roundoff ?? 0, UNIT_ROUNDOFF[dtype]);
  }
  if (formula !== 'bits') parameters.arithmetic_roundoff = isDouble(c) ? UNIT_ROUNDOFF.f64 : UNIT_ROUNDOFF.f32;
  Object.assign(parameters, unitsOf(c, formula));
  return { formula, parameters, from: FORMULAS[formula], atol: roundUp(atol), rtol };
}

/** The counts that a formula multiplies roundoff by. */
function unitsOf(c: GoldenQuestion, formula: keyof typeof FORMULAS): Record<string, number> {
  const width = (name: string): number => c.inputs.get(name)?.shape.at(-1) ?? 0;
  const normed = c.rope?.parts.some((part) => part.weight !== undefined);
  return {
    rotation: { units: 3, ...(normed ? { norm_units: c.rope!.spec.headDim / 2 + NORM_UNITS } : {}) },
    norm: { units: width('weight') / 2 + NORM_UNITS },
    dot: { units: width('x') + 2 + (c.inputs.has('weights') ? width('weights') + 1 : 0) },
    attention: { score_units: width('q') + 2, softmax_units: SOFTMAX_UNITS },
    gate: { units: GATE_UNITS },
    gelu: { units: GELU_UNITS },
    xielu: { units: 4 * XIELU_UNITS },
    scale: { units: 2, ...(c.attributes.softcap === undefined ? {} : { cap_units: CAP_UNITS }) },
    layer_norm: { units: width('weight') / 2 + NORM_UNITS, mean_units: width('weight') },
    route: { score_units: SCORE_UNITS },
    conv: { units: width('weight') + 4, gate_units: c.attributes.activation === undefined ? 0 : STEP_UNITS },
    delta: { sum_units: 2 * width('q') + 18, step_units: STEP_UNITS },
    scan: { sum_units: width('b') + 2, step_units: STEP_UNITS },
    sum: { units: 1 },
    bits: {},
  }[formula];
}

/** Rounds up to three significant digits, as people read tolerances. */
export function roundUp(x: number): number {
  if (x === 0) return 0;
  const step = 10 ** (Math.floor(Math.log10(x)) - 2);
  return Number((Math.ceil(x / step) * step).toPrecision(3));
}
