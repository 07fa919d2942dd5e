/** Copying between layouts. @module */
import type { Tensor } from '../core/tensor.js';
import { checkDims, checkDtype, checkOutput } from './runner.js';

/** A checked copy. Frozen. */
export interface RearrangePlan {
  readonly op: 'rearrange';
  readonly x: Tensor;
  readonly out: Tensor;
}

/**
 * Checks a bit-for-bit copy of elements from one layout to another; what lies between out's elements stays as it is.
 *
 * @param x - any shape, strides and dtype; only read
 * @param out - same shape and dtype, any strides; written; exactly `x` itself is allowed and changes nothing
 * @throws {RopewalkError} SHAPE, DTYPE or ALIAS
 * @see seed document 001, rearrange
 */
export function planRearrange(x: Tensor, out: Tensor): RearrangePlan {
  checkDims(out, 'rearrange: out', x.shape);
  checkDtype(out, 'rearrange: out', x.dtype);
  checkOutput(out, 'rearrange: out', [{ tensor: x, name: 'x', inPlace: true }]);
  return Object.freeze({ op: 'rearrange', x, out });
}
