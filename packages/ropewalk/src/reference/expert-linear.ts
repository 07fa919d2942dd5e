/** The experts' linear layer in float64. @module */
import { expertOf, isBlocks, readBlocks } from '../core/blocks.js';
import { refuse } from '../core/errors.js';
import { readIntegers } from '../core/tensor.js';
import type { ExpertLinearPlan } from '../ops/expert-linear.js';
import { readAll, writeAll } from './elements.js';

/** Multiplies each row by its experts' matrices: sums in float64, in order of k and of the experts, rounded once. */
export function expertLinearReference({ x, weight, bias, indices, weights, out }: ExpertLinearPlan): void {
  const [tokens, chosen] = indices.shape as [number, number];
  const [experts, n, k] = weight.shape as [number, number, number];
  const xs = readAll(x, 'expert_linear: x'); // [tokens, k] or [tokens, chosen, k]
  const ids = readExperts(indices, experts);
  const biases = bias ? readAll(bias, 'expert_linear: bias') : new Float64Array(experts * n); // [experts, n]
  const factors = weights && readAll(weights, 'expert_linear: weights'); // [tokens, chosen]
  const matrices = new Map<number, Float64Array>(); // [n, k] of each expert that is chosen
  const y = new Float64Array(factors ? tokens * n : tokens * chosen * n);
  for (let pair = 0; pair < ids.length; pair++) {
    const e = ids[pair]!;
    const matrix = matrices.get(e) ?? read(expertOf(weight, e));
    matrices.set(e, matrix);
    const token = Math.floor(pair / chosen);
    const row = (x.rank === 3 ? pair : token) * k;
    const target = (factors ? token : pair) * n;
    for (let column = 0; column < n; column++) {
      let sum = biases[e * n + column]!;
      for (let i = 0; i < k; i++) sum += xs[row + i]! * matrix[column * k + i]!;
      y[target + column]! += (factors ? factors[pair]! : 1) * sum;
    }
  }
  writeAll(out, y, 'expert_linear: out');
}

function read(weight: ReturnType<typeof expertOf>): Float64Array {
  return isBlocks(weight) ? readBlocks(weight, 'expert_linear: weight') : readAll(weight, 'expert_linear: weight');
}

function readExperts(indices: ExpertLinearPlan['indices'], experts: number): Float64Array {
  const ids = readIntegers(indices, 'expert_linear: indices');
  for (const id of ids)
    if (id < 0 || id >= experts) refuse('RANGE', 'expert_linear: indices', `experts in [0, ${experts - 1}]`, id);
  return ids;
}
