/** Copying between layouts, bit for bit. @module */
import { copyElements } from '../core/tensor.js';
import type { RearrangePlan } from '../ops/rearrange.js';

/**
 * Copies elements; what lies between out's elements stays as it is.
 *
 * @param plan - from planRearrange
 */
export function rearrangeReference({ x, out }: RearrangePlan): void {
  copyElements(x, out);
}
