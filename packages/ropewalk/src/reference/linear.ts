/** The linear layer, and that of experts, in float64. @module */
import { type BlockTensor, expertOf, isBlocks, readBlocks } from '../core/blocks.js';
import type { Tensor } from '../core/tensor.js';
import { type ExpertLinearPlan, readExperts } from '../ops/expert-linear.js';
import type { LinearPlan } from '../ops/linear.js';
import { readAll, writeAll } from './elements.js';

/** Computes `out = x·Wᵀ + bias`: sums in float64, in order of k, rounded once. The plan may round x to 8 bits first. */
export function linearReference(plan: LinearPlan): void {
  const { x, weight, bias, out, m, n, k } = plan;
  const xs = readAll(x, 'linear: x'); // [m, k]
  roundActivations(xs, plan);
  const ws = readWeight(weight, 'linear: weight'); // [n, k]
  const bs = bias ? readAll(bias, 'linear: bias') : new Float64Array(n); // [n]
  const y = new Float64Array(m * n); // [m, n]
  for (let row = 0; row < m; row++) {
    for (let column = 0; column < n; column++) {
      let sum = 0;
      for (let i = 0; i < k; i++) sum += xs[row * k + i]! * ws[column * k + i]!;
      y[row * n + column] = sum + bs[column]!;
    }
  }
  writeAll(out, y, 'linear: out');
}

/** Multiplies each row by its experts' matrices: sums in float64, in order of k and of the experts, rounded once. */
export function expertLinearReference(plan: ExpertLinearPlan): void {
  const { x, weight, bias, indices, weights, out } = plan;
  const [tokens, chosen] = indices.shape as [number, number];
  const [, n, k] = weight.shape as [number, number, number];
  const xs = readAll(x, 'expert_linear: x'); // [tokens, k] or [tokens, chosen, k]
  roundActivations(xs, plan);
  const ids = readExperts(plan);
  const biases = bias && readAll(bias, 'expert_linear: bias'); // [experts, n]
  const factors = weights && readAll(weights, 'expert_linear: weights'); // [tokens, chosen]
  const matrices = new Map<number, Float64Array>(); // [n, k] of each expert that is chosen
  const y = new Float64Array(factors ? tokens * n : tokens * chosen * n);
  for (let pair = 0; pair < ids.length; pair++) {
    const e = ids[pair]!;
    const matrix = matrices.get(e) ?? readWeight(expertOf(weight, e), 'expert_linear: weight');
    matrices.set(e, matrix);
    const token = Math.floor(pair / chosen);
    const row = (x.rank === 3 ? pair : token) * k;
    const target = (factors ? token : pair) * n;
    for (let column = 0; column < n; column++) {
      let sum = biases ? biases[e * n + column]! : 0;
      for (let i = 0; i < k; i++) sum += xs[row + i]! * matrix[column * k + i]!;
      y[target + column]! += (factors ? factors[pair]! : 1) * sum;
    }
  }
  writeAll(out, y, 'expert_linear: out');
}

function readWeight(weight: Tensor | BlockTensor, where: string): Float64Array {
  return isBlocks(weight) ? readBlocks(weight, where) : readAll(weight, where);
}

/** The number of neighbours that share a scale when activations are rounded. */
const GROUP = 32;

/** Rounds rows of x, `[rows, k]`, in place, where the plan says so: see `LinearOptions.activations`. */
function roundActivations(xs: Float64Array, { weight, activations }: LinearPlan | ExpertLinearPlan): void {
  if (activations !== 'q8' || !isBlocks(weight)) return;
  const k = weight.shape.at(-1)!;
  for (let at = 0; at < xs.length; at += k) {
    const row = xs.subarray(at, at + k);
    if (!row.every((x) => Number.isFinite(Math.fround(x)))) continue;
    for (let i = 0; i < k; i += GROUP) roundGroup(row.subarray(i, i + GROUP));
  }
}

function roundGroup(group: Float64Array): void {
  const largest = group.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
  const d = Math.fround(Math.fround(largest) / 127);
  for (const [i, x] of group.entries()) {
    const q = d === 0 ? 0 : nearestEven(Math.fround(Math.fround(x) / d));
    group[i] = d * Math.min(127, Math.max(-127, q));
  }
}

/** Adding 1.5 · 2^52 rounds a number that is far smaller to an integer, and a tie to the even one. */
function nearestEven(x: number): number {
  const large = 1.5 * 2 ** 52;
  return x + large - large;
}
