/** The experts' linear layer in float64. @module */
import { expertOf, isBlocks, readBlocks } from '../core/blocks.js';
import { type ExpertLinearPlan, readExperts } from '../ops/expert-linear.js';
import { readAll, writeAll } from './elements.js';
import { roundActivations } from './rounded.js';

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
    const matrix = matrices.get(e) ?? read(expertOf(weight, e));
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

function read(weight: ReturnType<typeof expertOf>): Float64Array {
  return isBlocks(weight) ? readBlocks(weight, 'expert_linear: weight') : readAll(weight, 'expert_linear: weight');
}
