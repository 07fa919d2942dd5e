/** Copying between layouts and float dtypes. @module */
import { isFloat } from '../core/dtypes.js';
import { refuse } from '../core/errors.js';
import { checkTensor, type Tensor } from '../core/tensor.js';
import { CHECKED, checkApart, checkDims, checkDtype, checkedPlan, checkOutput } from './checks.js';

/** A checked copy. Frozen. */
export interface RearrangePlan {
  readonly op: 'rearrange';
  readonly x: Tensor;
  /** Its dtype is that of x, or both are floats. */
  readonly out: Tensor;
}

/**
 * Checks a copy of elements from one layout to another. Memory between the elements of out is not changed.
 *
 * With one dtype the copy is bit for bit. Between two float dtypes each value is rounded once, to nearest even: values
 * can go into their rows of an f16 KV cache like this, as keys do with `rows` of {@link bindRopeParts}.
 *
 * @param x - any shape, strides and dtype; only read
 * @param out - same shape, any strides; x's dtype, or any float where x is a float; written; may be exactly `x`, or lie
 *   exactly in x's place with another float dtype of the same size
 * @throws {RopewalkError} SHAPE, DTYPE or ALIAS
 * @see InfiniTensor/llaisys@7740d46f, rearrange
 */
export function planRearrange(x: Tensor, out: Tensor): RearrangePlan {
  checkTensor(x, 'rearrange: x');
  checkDims(out, 'rearrange: out', x.shape);
  if (!isFloat(x.dtype)) checkDtype(out, 'rearrange: out', x.dtype);
  else if (!isFloat(out.dtype)) refuse('DTYPE', 'rearrange: out', `dtype ${x.dtype} or another float`, out.dtype);
  checkOutput(out, 'rearrange: out');
  checkApart(out, 'rearrange: out', 'x', x, true);
  return checkedPlan<RearrangePlan>({ checked: CHECKED, op: 'rearrange', x, out });
}
