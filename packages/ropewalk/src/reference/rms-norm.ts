/** RMS normalisation in float64. @module */
import type { RmsNormPlan } from '../ops/rms-norm.js';
import { readAll, writeAll } from './elements.js';

/**
 * Computes `out = weight · x / √(mean(x²) + eps)` row by row, rounded once. Squares of f16 data cannot overflow
 * float64.
 */
export function rmsNormReference({ x, weight, eps, out }: RmsNormPlan): void {
  const d = x.shape.at(-1)!;
  const xs = readAll(x, 'rms_norm: x'); // [rows, d]
  const ws = readAll(weight, 'rms_norm: weight'); // [d]
  const y = new Float64Array(xs.length);
  for (let row = 0; row < xs.length; row += d) {
    let squares = 0;
    for (let i = 0; i < d; i++) squares += xs[row + i]! * xs[row + i]!;
    const norm = Math.sqrt(squares / d + eps);
    for (let i = 0; i < d; i++) y[row + i] = (ws[i]! * xs[row + i]!) / norm;
  }
  writeAll(out, y, 'rms_norm: out');
}
