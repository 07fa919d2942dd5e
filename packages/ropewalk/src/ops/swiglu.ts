/** The gated activation of Llama's feed-forward layer. @module */
import type { FloatDtype } from '../core/dtypes.js';
import { checkTensor, type Tensor } from '../core/tensor.js';
import { CHECKED, checkApart, checkDims, checkedPlan, checkFloat, checkOutput } from './checks.js';

/** A checked SwiGLU. Frozen. */
export interface SwigluPlan {
  readonly op: 'swiglu';
  readonly gate: Tensor<FloatDtype>;
  readonly up: Tensor<FloatDtype>;
  readonly out: Tensor<FloatDtype>;
}

/**
 * Checks `out = up · gate / (1 + exp(−gate))`.
 *
 * @param gate - any shape and strides, any float dtype; only read
 * @param up - same shape and dtype; only read
 * @param out - same shape and dtype; written; may be exactly `gate` or `up`
 * @throws {RopewalkError} SHAPE, DTYPE or ALIAS
 * @see seed document 001, swiglu; arXiv:2002.05202
 */
export function planSwiglu(gate: Tensor, up: Tensor, out: Tensor): SwigluPlan {
  checkTensor(gate, 'swiglu: gate');
  checkDims(up, 'swiglu: up', gate.shape);
  checkDims(out, 'swiglu: out', gate.shape);
  checkFloat(gate, 'swiglu: gate');
  checkFloat(up, 'swiglu: up', gate.dtype);
  checkFloat(out, 'swiglu: out', gate.dtype);
  checkOutput(out, 'swiglu: out');
  checkApart(out, 'swiglu: out', 'gate', gate, true);
  checkApart(out, 'swiglu: out', 'up', up, true);
  return checkedPlan({ checked: CHECKED, op: 'swiglu', gate, up, out });
}
