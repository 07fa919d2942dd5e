/**
 * A RoPE plan bound to the tensors of one call.
 *
 * @module
 */
import type { FloatDtype } from '../../core/dtypes.js';
import { refuse } from '../../core/errors.js';
import type { Tensor } from '../../core/tensor.js';
import { checkDims, checkFloat, checkOutput } from '../runner.js';
import type { RopePlan } from './plan.js';

/**
 * The order of dimensions: b batch, s token in sequence, n head, h head_dim. Without batch the first letter falls away.
 */
export type RopeLayout = 'bsnh' | 'bnsh';

/** A plan and the tensors it turns, checked. Frozen. */
export interface RopeCall {
  readonly op: 'rope';
  readonly plan: RopePlan;
  /** `[batch, seq, head, head_dim]` by strides, whatever the caller's layout was. */
  readonly x: Tensor<FloatDtype>;
  /** Same shape and dtype; may be `x` itself. */
  readonly out: Tensor<FloatDtype>;
}

/**
 * Checks tensors against a plan.
 *
 * @param plan - from {@link planRope}
 * @param x - `[batch, seq, head, head_dim]` or `[seq, head, head_dim]` (in `layout`'s order), any float dtype, any strides; only read
 * @param out - same shape and dtype, any strides; written; may be exactly `x` (in place)
 * @param layout - bsnh unless given
 * @returns a frozen call
 * @throws {RopewalkError} SHAPE, DTYPE or ALIAS, naming the argument; nothing is written then
 */
export function bindRope(plan: RopePlan, x: Tensor, out: Tensor, layout: RopeLayout = 'bsnh'): RopeCall {
  checkFloat(x, 'rope: x');
  checkFloat(out, 'rope: out', x.dtype);
  checkDims(out, 'rope: out', x.shape);
  const xb = asBatchSeqHead(x, layout);
  const [batch, seqLen, , headDim] = xb.shape as [number, number, number, number];
  if (headDim !== plan.headDim) refuse('SHAPE', 'rope: x', `head_dim ${plan.headDim} in the last dimension`, [...x.shape]);
  if (seqLen !== plan.seqLen) refuse('SHAPE', 'rope: x', `${plan.seqLen} tokens, as the plan's positions have`, [...x.shape]);
  if (plan.batch !== undefined && batch !== plan.batch) {
    refuse('SHAPE', 'rope: x', `batch ${plan.batch}, as the plan's positions have`, [...x.shape]);
  }
  // A pair is read whole before it is written, so in place is safe, unless it is written where another pair is still to be read.
  const inPlace = plan.read.step === plan.write.step;
  checkOutput(out, 'rope: out', [{ tensor: x, name: 'x', inPlace }]);
  return Object.freeze({ op: 'rope', plan, x: xb, out: asBatchSeqHead(out, layout) });
}

function asBatchSeqHead(tensor: Tensor<FloatDtype>, layout: RopeLayout): Tensor<FloatDtype> {
  if (layout !== 'bsnh' && layout !== 'bnsh') refuse('UNSUPPORTED', 'rope: layout', 'bsnh or bnsh', layout);
  if (tensor.rank !== 3 && tensor.rank !== 4) {
    refuse('SHAPE', 'rope: x', 'three dimensions [seq, head, head_dim], or four with batch in front', [...tensor.shape]);
  }
  const four = tensor.rank === 4 ? tensor : tensor.view([1, ...tensor.shape]);
  return layout === 'bsnh' ? four : four.permute([0, 2, 1, 3]);
}
