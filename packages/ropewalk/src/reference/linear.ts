/** A linear layer in float64. @module */
import { isBlocks, readBlocks } from '../core/blocks.js';
import type { LinearPlan } from '../ops/linear.js';
import { readAll, writeAll } from './elements.js';
import { roundActivations } from './rounded.js';

/** Computes `out = x·Wᵀ + bias`: sums in float64, in order of k, rounded once; x is rounded to 8 bits first where asked. */
export function linearReference(plan: LinearPlan): void {
  const { x, weight, bias, out, m, n, k } = plan;
  const xs = readAll(x, 'linear: x'); // [m, k]
  roundActivations(xs, plan);
  const ws = isBlocks(weight) ? readBlocks(weight, 'linear: weight') : readAll(weight, 'linear: weight'); // [n, k]
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
