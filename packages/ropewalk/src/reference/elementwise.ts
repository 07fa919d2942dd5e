/** Addition, scale and the activations in float64. Each rounds once. @module */
import { erfc } from '../core/erfc.js';
import type { AddPlan } from '../ops/add.js';
import type { GegluPlan, GeluPlan } from '../ops/gelu.js';
import type { ScalePlan } from '../ops/scale.js';
import type { SwigluPlan } from '../ops/swiglu.js';
import type { XieluPlan } from '../ops/xielu.js';
import { readAll, writeAll } from './elements.js';

/** Computes `out = a + b`. */
export function addReference({ a, b, out }: AddPlan): void {
  const right = readAll(b, 'add: b');
  const sums = readAll(a, 'add: a').map((value, i) => value + right[i]!);
  writeAll(out, sums, 'add: out');
}

/** Computes `out = x · factor` and the soft cap. */
export function scaleReference({ x, factor, softcap, out }: ScalePlan): void {
  const d = x.shape.at(-1) ?? 1;
  const factors = typeof factor === 'number' ? undefined : readAll(factor, 'scale: factor'); // one for each row
  const values = readAll(x, 'scale: x').map((value, i) => {
    const product = value * (factors ? factors[Math.floor(i / d)]! : (factor as number));
    return softcap === undefined ? product : softcap * Math.tanh(product / softcap);
  });
  writeAll(out, values, 'scale: out');
}

/**
 * Computes `out = (u + offset) · g / (1 + exp(−alpha·g))` of the clamped gate and up. A gate of −∞ gives NaN, as the
 * formula says and torch does.
 */
export function swigluReference(plan: SwigluPlan): void {
  const { gate, up, out, limit = Number.POSITIVE_INFINITY, alpha, offset, activation } = plan;
  const ups = readAll(up, 'swiglu: up');
  const values = readAll(gate, 'swiglu: gate').map((unclamped, i) => {
    const g = Math.min(unclamped, limit);
    const u = Math.min(Math.max(ups[i]!, -limit), limit);
    if (activation === 'relu') return u * Math.max(g, 0);
    return (u + offset) * ((activation === 'sigmoid' ? 1 : g) / (1 + Math.exp(-alpha * g)));
  });
  writeAll(out, values, 'swiglu: out');
}

/** Computes xIELU. −∞ gives NaN, as the formula says and torch does. */
export function xieluReference({ x, out, positive, negative, beta }: XieluPlan): void {
  const values = readAll(x, 'xielu: x').map((value) => {
    const [above, below] = [Math.max(value, 0), Math.min(value, 0)];
    return positive * above * above + negative * (Math.expm1(below) - below) + beta * value;
  });
  writeAll(out, values, 'xielu: out');
}

/** Computes `out = gelu(x)`. */
export function geluReference({ x, out, approximate }: GeluPlan): void {
  writeAll(out, readAll(x, 'gelu: x').map(GELU[approximate]), 'gelu: out');
}

/** Computes `out = up · gelu(gate)`. */
export function gegluReference({ gate, up, out, approximate }: GegluPlan): void {
  const ups = readAll(up, 'geglu: up');
  const gated = readAll(gate, 'geglu: gate').map((g, i) => ups[i]! * GELU[approximate](g));
  writeAll(out, gated, 'geglu: out');
}

const GELU = {
  none: (x: number): number => (x === Number.NEGATIVE_INFINITY ? Number.NaN : (x / 2) * erfc(-x / Math.SQRT2)),
  tanh: (x: number): number => {
    // 1 + tanh(z) is computed as 2 / (1 + exp(−2z)), where nothing cancels for x far below 0.
    const z = Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3);
    return x / (1 + Math.exp(-2 * z));
  },
} as const;
