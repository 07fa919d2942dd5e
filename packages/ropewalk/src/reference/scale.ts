/** Multiplication by factors in float64. @module */
import type { ScalePlan } from '../ops/scale.js';
import { readAll, writeAll } from './elements.js';

/** Computes `out = x · factor` and the soft cap, rounded once. */
export function scaleReference({ x, factor, softcap, out }: ScalePlan): void {
  const d = x.shape.at(-1) ?? 1;
  const factors = typeof factor === 'number' ? undefined : readAll(factor, 'scale: factor'); // one for each row
  const values = readAll(x, 'scale: x').map((value, i) => {
    const product = value * (factors ? factors[Math.floor(i / d)]! : (factor as number));
    return softcap === undefined ? product : softcap * Math.tanh(product / softcap);
  });
  writeAll(out, values, 'scale: out');
}
