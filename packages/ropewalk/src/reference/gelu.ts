/** GELU and GeGLU in float64. @module */
import type { GegluPlan, GeluPlan } from '../ops/gelu.js';
import { readAll, writeAll } from './elements.js';

/** Computes `out = gelu(x)`, rounded once. */
export function geluReference({ x, out, approximate }: GeluPlan): void {
  writeAll(out, readAll(x, 'gelu: x').map(GELU[approximate]), 'gelu: out');
}

/** Computes `out = up · gelu(gate)`, rounded once. */
export function gegluReference({ gate, up, out, approximate }: GegluPlan): void {
  const ups = readAll(up, 'geglu: up');
  const gated = readAll(gate, 'geglu: gate').map((g, i) => ups[i]! * GELU[approximate](g));
  writeAll(out, gated, 'geglu: out');
}

const GELU = {
  none: (x: number): number => (x === Number.NEGATIVE_INFINITY ? Number.NaN : (x / 2) * erfc(-x / Math.SQRT2)),
  tanh: (x: number): number => {
    // 1 + tanh(z) as 2 / (1 + exp(−2z)): nothing cancels where x is far below 0.
    const z = Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3);
    return x / (1 + Math.exp(-2 * z));
  },
} as const;

/**
 * The complementary error function, to some units of float64's last place, and beyond 1 some more: e^(−x²) is as wrong
 * as x².
 *
 * Up to 1 the series of erf, whose terms all have one sign; beyond, the continued fraction of erfc.
 *
 * @see NIST DLMF 7.6.2 and 7.9.1
 */
function erfc(x: number): number {
  if (x < 0) return 2 - erfc(-x);
  if (x < 1) {
    let term = (2 / Math.sqrt(Math.PI)) * x * Math.exp(-x * x);
    let sum = 0;
    for (let n = 0; sum + term !== sum; n++) {
      sum += term;
      term *= (2 * x * x) / (2 * n + 3);
    }
    return 1 - sum;
  }
  let fraction = x;
  for (let n = 200; n > 0; n--) fraction = x + n / 2 / fraction;
  return Math.exp(-x * x) / Math.sqrt(Math.PI) / fraction;
}
