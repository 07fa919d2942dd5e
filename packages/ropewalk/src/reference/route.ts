/** The choice of experts in float64. @module */
import { walk } from '../core/shape.js';
import { hostOf } from '../core/tensor.js';
import { LEAST_SUM, type RouteGroups, type RoutePlan } from '../ops/route.js';
import { readAll, writeAll } from './elements.js';

/** Chooses each token's experts; the weights are rounded once. */
export function routeReference(plan: RoutePlan): void {
  const { logits, gate, jitter, bias, groups, normalize, scale, indices, weights } = plan;
  const [tokens, experts] = logits.shape as [number, number];
  const chosen = indices.shape[1]!;
  const all = readAll(logits, 'route: logits'); // [tokens, experts]
  const biases = bias && readAll(bias, 'route: bias'); // [experts]
  const ids = new Int32Array(tokens * chosen);
  const values = new Float64Array(tokens * chosen);
  for (let t = 0; t < tokens; t++) {
    const row = all.subarray(t * experts, (t + 1) * experts);
    const scores =
      gate === 'softmax' ? softmax(row) : gate === 'sigmoid' ? row.map((z) => 1 / (1 + Math.exp(-z))) : row;
    const ranked = scores.map((score, e) => (biases ? score + biases[e]! : score));
    if (groups) leaveGroups(ranked, groups);
    const best = byValue(ranked).slice(0, chosen);
    let picked = Float64Array.from(best, (e) => scores[e]!);
    if (gate === 'softmax-of-chosen') picked = softmax(picked);
    if (gate === 'sparsemixer') picked = sparsemixer(row, best, jitter);
    const total = picked.reduce((sum, weight) => sum + weight, 0);
    const sum = normalize ? Math.max(LEAST_SUM, total) : 1;
    const weighted = picked.map((weight) => (weight / sum) * scale);
    ids.set(best, t * chosen);
    values.set(weighted, t * chosen);
  }
  const host = hostOf(indices, 'route: indices');
  walk(indices, (at, n) => (host[at] = ids[n]!));
  writeAll(weights, values, 'route: weights');
}

/** Sorts the places of values: the largest value first, and of equal values the lower place first. */
function byValue(values: Float64Array): number[] {
  return Array.from(values.keys()).sort((a, b) => values[b]! - values[a]! || a - b);
}

/** Sets the scores of all but the best groups to −∞. */
function leaveGroups(scores: Float64Array, { count, used, best }: RouteGroups): void {
  const size = scores.length / count;
  const groups = Array.from({ length: count }, (_group, g) => scores.subarray(g * size, (g + 1) * size));
  const sums = Float64Array.from(groups, (group) => {
    const largest = group.toSorted().slice(-best);
    return largest.reduce((sum, score) => sum + score, 0);
  });
  for (const g of byValue(sums).slice(used)) groups[g]!.fill(Number.NEGATIVE_INFINITY);
}

/** The two weights of PhiMoE: the softmax of each choice over the experts that are near it and not chosen before. */
function sparsemixer(row: Float64Array, [first, second]: number[], jitter: number): Float64Array<ArrayBuffer> {
  const weight = (choice: number, left: Float64Array): number => {
    const m = row[choice]!;
    // 0 / 0, of a zero beside a zero, is no distance.
    const near = left.map((s) => ((m - s) / Math.max(Math.abs(s), m) > 2 * jitter ? Number.NEGATIVE_INFINITY : s));
    return softmax(near)[choice]!;
  };
  const left = row.with(first!, Number.NEGATIVE_INFINITY);
  return Float64Array.of(weight(first!, row), weight(second!, left));
}

function softmax(row: Float64Array): Float64Array<ArrayBuffer> {
  const max = row.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  const powers = Float64Array.from(row, (z) => Math.exp(z - max));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}
