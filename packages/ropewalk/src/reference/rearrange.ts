/** Copying between layouts, bit for bit, and between float dtypes. @module */
import type { FloatDtype } from '../core/dtypes.js';
import { copyElements, type Tensor } from '../core/tensor.js';
import type { RearrangePlan } from '../ops/rearrange.js';
import { readAll, writeAll } from './elements.js';

/** Copies elements, each rounded once where the dtype changes. */
export function rearrangeReference({ x, out }: RearrangePlan): void {
  if (x.dtype === out.dtype) copyElements(x, out);
  else writeAll(out as Tensor<FloatDtype>, readAll(x, 'rearrange: x'), 'rearrange: out');
}
