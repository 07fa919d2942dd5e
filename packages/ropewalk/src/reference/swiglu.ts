/** SwiGLU in float64. @module */
import type { SwigluPlan } from '../ops/swiglu.js';
import { readAll, writeAll } from './elements.js';

/**
 * Computes `out = up · gate / (1 + exp(−gate))`, rounded once. A gate of −∞ gives NaN, as the formula says and torch
 * does.
 */
export function swigluReference({ gate, up, out }: SwigluPlan): void {
  const gates = readAll(gate, 'swiglu: gate');
  const ups = readAll(up, 'swiglu: up');
  writeAll(
    out,
    gates.map((g, i) => ups[i]! * (g / (1 + Math.exp(-g)))),
    'swiglu: out',
  );
}
