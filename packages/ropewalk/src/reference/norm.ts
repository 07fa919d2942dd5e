/** RMS norm and layer norm in float64. Squares of f16 data cannot overflow there. @module */
import type { LayerNormPlan } from '../ops/layer-norm.js';
import type { RmsNormPlan } from '../ops/rms-norm.js';
import { readAll, writeAll } from './elements.js';

/** Computes `out = weight · x / √(mean(x²) + eps)` row by row, rounded once. */
export function rmsNormReference({ x, weight, eps, out }: RmsNormPlan): void {
  const d = x.shape.at(-1)!;
  const xs = readAll(x, 'rms_norm: x'); // [rows, d]
  const ws = readAll(weight, 'rms_norm: weight'); // [d]
  for (let row = 0; row < xs.length; row += d) {
    let squares = 0;
    for (let i = 0; i < d; i++) squares += xs[row + i]! * xs[row + i]!;
    const norm = Math.sqrt(squares / d + eps);
    for (let i = 0; i < d; i++) xs[row + i] = (ws[i]! * xs[row + i]!) / norm;
  }
  writeAll(out, xs, 'rms_norm: out');
}

/** Computes `out = weight · (x − mean) / √(var + eps) + bias` row by row, rounded once. */
export function layerNormReference({ x, weight, bias, eps, out }: LayerNormPlan): void {
  const d = x.shape.at(-1)!;
  const xs = readAll(x, 'layer_norm: x'); // [rows, d]
  const gains = readAll(weight, 'layer_norm: weight'); // [d]
  const shifts = bias ? readAll(bias, 'layer_norm: bias') : new Float64Array(d); // [d]
  for (let row = 0; row < xs.length; row += d) {
    let sum = 0;
    for (let i = 0; i < d; i++) sum += xs[row + i]!;
    const mean = sum / d;
    let squares = 0;
    for (let i = 0; i < d; i++) squares += (xs[row + i]! - mean) ** 2;
    const scale = 1 / Math.sqrt(squares / d + eps);
    for (let i = 0; i < d; i++) xs[row + i] = gains[i]! * (xs[row + i]! - mean) * scale + shifts[i]!;
  }
  writeAll(out, xs, 'layer_norm: out');
}
