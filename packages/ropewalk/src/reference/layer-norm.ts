/** Layer norm in float64. @module */
import type { LayerNormPlan } from '../ops/layer-norm.js';
import { readAll, writeAll } from './elements.js';

/** Computes `out = weight · (x − mean) / √(var + eps) + bias` row by row, rounded once. */
export function layerNormReference({ x, weight, bias, eps, out }: LayerNormPlan): void {
  const d = x.shape.at(-1)!;
  const xs = readAll(x, 'layer_norm: x'); // […, d]
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
