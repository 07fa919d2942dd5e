/** SwiGLU in float64. @module */
import type { SwigluPlan } from '../ops/swiglu.js';
import { readAll, writeAll } from './elements.js';

/**
 * Computes `out = (u + offset) · g / (1 + exp(−alpha·g))` of the clamped gate and up, rounded once. A gate of −∞ gives
 * NaN, as the formula says and torch does.
 */
export function swigluReference({ gate, up, out, limit = Number.POSITIVE_INFINITY, alpha, offset }: SwigluPlan): void {
  const gates = readAll(gate, 'swiglu: gate');
  const ups = readAll(up, 'swiglu: up');
  const values = gates.map((given, i) => {
    const g = Math.min(given, limit);
    const u = Math.min(Math.max(ups[i]!, -limit), limit);
    return (u + offset) * (g / (1 + Math.exp(-alpha * g)));
  });
  writeAll(out, values, 'swiglu: out');
}
