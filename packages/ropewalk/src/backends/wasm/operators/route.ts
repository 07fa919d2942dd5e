/**
 * The choice of experts, in float64 on the host: the few hundred logits of a token are less work than the first rows of
 * its experts. @module
 */
import { loadNumber, storeNumber } from '../../../core/dtypes.js';
import { hostOf } from '../../../core/tensor.js';
import { LEAST_SUM, type RouteGroups, type RoutePlan } from '../../../ops/route.js';

/** Runs a choice of experts. */
export function runRoute(plan: RoutePlan): void {
  const { logits, gate, jitter, bias, groups, normalize, scale, indices, weights } = plan;
  if (indices.size === 0) return;
  const [tokens, experts] = logits.shape as [number, number];
  const chosen = indices.shape[1]!;
  const from = hostOf(logits, 'route: logits');
  const ids = hostOf(indices, 'route: indices');
  const to = hostOf(weights, 'route: weights');
  const biases = bias && hostOf(bias, 'route: bias');
  const scores = new Float64Array(experts);
  const ranks = new Float64Array(experts);
  const best = new Int32Array(chosen);
  for (let t = 0; t < tokens; t++) {
    const row = logits.offset + t * logits.strides[0]!;
    for (let e = 0; e < experts; e++) scores[e] = loadNumber(from, logits.dtype, row + e * logits.strides[1]!);
    if (gate === 'softmax') softmax(scores);
    if (gate === 'sigmoid') for (let e = 0; e < experts; e++) scores[e] = 1 / (1 + Math.exp(-scores[e]!));
    ranks.set(scores);
    if (bias)
      for (let e = 0; e < experts; e++)
        ranks[e]! += loadNumber(biases!, bias.dtype, bias.offset + e * bias.strides[0]!);
    if (groups) leaveGroups(ranks, groups);
    takeBest(best, ranks);
    const picked = Float64Array.from(best, (e) => scores[e]!);
    if (gate === 'softmax-of-chosen') softmax(picked);
    if (gate === 'sparsemixer') mixSparsely(picked, best[0]!, scores, jitter);
    let sum = 0;
    for (const score of picked) sum += score;
    const factor = normalize ? scale / Math.max(LEAST_SUM, sum) : scale;
    for (let s = 0; s < chosen; s++) {
      ids[indices.offset + t * indices.strides[0]! + s * indices.strides[1]!] = best[s]!;
      const at = weights.offset + t * weights.strides[0]! + s * weights.strides[1]!;
      storeNumber(to, weights.dtype, at, picked[s]! * factor);
    }
  }
}

/** Finds the places of the largest values: the largest value first, and of equal values the lower place first. */
function takeBest(places: Int32Array, values: Float64Array): void {
  const taken = new Uint8Array(values.length);
  for (let s = 0; s < places.length; s++) {
    let best = -1;
    for (let e = 0; e < values.length; e++) if (taken[e] === 0 && (best < 0 || values[e]! > values[best]!)) best = e;
    taken[best] = 1;
    places[s] = best;
  }
}

/** Sets the scores of all but the best groups to −∞. */
function leaveGroups(scores: Float64Array, { count, used, best }: RouteGroups): void {
  const size = scores.length / count;
  const sums = new Float64Array(count);
  for (let g = 0; g < count; g++) {
    let [first, second] = [-Infinity, -Infinity];
    for (const score of scores.subarray(g * size, (g + 1) * size)) {
      if (score > first) [first, second] = [score, first];
      else if (score > second) second = score;
    }
    sums[g] = best === 2 && size > 1 ? first + second : first;
  }
  const kept = new Int32Array(used);
  takeBest(kept, sums);
  for (let g = 0; g < count; g++) if (!kept.includes(g)) scores.fill(-Infinity, g * size, (g + 1) * size);
}

/** Replaces the logits of the two chosen experts by their softmax over the experts near each; `scores` are all logits. */
function mixSparsely(picked: Float64Array, first: number, scores: Float64Array, jitter: number): void {
  for (const [n, m] of picked.entries()) {
    let sum = 0;
    for (let e = 0; e < scores.length; e++) {
      const s = scores[e]!;
      if ((n === 1 && e === first) || (m - s) / Math.max(Math.abs(s), m) > 2 * jitter) continue;
      sum += Math.exp(s - m);
    }
    picked[n] = 1 / sum;
  }
}

function softmax(row: Float64Array): void {
  let max = -Infinity;
  for (const z of row) max = Math.max(max, z);
  let sum = 0;
  for (let e = 0; e < row.length; e++) sum += row[e] = Math.exp(row[e]! - max);
  for (let e = 0; e < row.length; e++) row[e]! /= sum;
}
