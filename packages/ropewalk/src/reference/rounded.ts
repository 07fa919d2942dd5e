/** Activations rounded to 8 bits, in float64. @module */
import { isBlocks } from '../core/blocks.js';
import type { ExpertLinearPlan } from '../ops/expert-linear.js';
import type { LinearPlan } from '../ops/linear.js';

/** Neighbours that share a scale. */
const GROUP = 32;

/** Rounds rows of x, `[rows, k]`, in place, where a plan asks for it: see `LinearOptions.activations`. */
export function roundActivations(xs: Float64Array, { weight, activations }: LinearPlan | ExpertLinearPlan): void {
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

/** Adding 1.5 · 2^52 rounds what is far smaller to an integer, a tie to the even one. */
function nearestEven(x: number): number {
  const large = 1.5 * 2 ** 52;
  return x + large - large;
}
