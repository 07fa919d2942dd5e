/** GELU, alone and as a gate. @module */
import { type OptionNames, readName, readOptions } from '../core/arguments.js';
import type { FloatDtype } from '../core/dtypes.js';
import type { Tensor } from '../core/tensor.js';
import { CHECKED, checkElementwise, checkedPlan, labelsOf } from './checks.js';

/** Options of GELU. */
export interface GeluOptions {
  /**
   * `none`: x · (1 + erf(x/√2)) / 2. `tanh`: x · (1 + tanh(√(2/π) · (x + 0.044715·x³))) / 2, as Gemma and
   * transformers' `gelu_pytorch_tanh` have it. Default: `none`, as in torch and ONNX.
   */
  readonly approximate?: 'none' | 'tanh';
}

const NAMES: OptionNames<GeluOptions> = { approximate: true };

/** A checked GELU. Frozen. */
export interface GeluPlan {
  readonly op: 'gelu';
  readonly x: Tensor<FloatDtype>;
  readonly out: Tensor<FloatDtype>;
  readonly approximate: 'none' | 'tanh';
}

/** A checked GeGLU. Frozen. */
export interface GegluPlan {
  readonly op: 'geglu';
  readonly gate: Tensor<FloatDtype>;
  readonly up: Tensor<FloatDtype>;
  readonly out: Tensor<FloatDtype>;
  readonly approximate: 'none' | 'tanh';
}

const GELU_LABELS = /* @__PURE__ */ labelsOf('gelu', 'out', 'x');

/**
 * Checks `out = gelu(x)`.
 *
 * @param x - any shape and strides, any float dtype; only read
 * @param out - same shape and dtype; written; may be exactly `x`
 * @param options - which GELU
 * @throws {RopewalkError} SHAPE, DTYPE, RANGE, UNSUPPORTED or ALIAS
 * @see arXiv:1606.08415; torch.nn.functional.gelu
 */
export function planGelu(x: Tensor, out: Tensor, options: GeluOptions = {}): GeluPlan {
  const approximate = readApproximate(options, 'gelu');
  checkElementwise(GELU_LABELS, out, 'x', x);
  return checkedPlan<GeluPlan>({ checked: CHECKED, op: 'gelu', x, out, approximate });
}

const GEGLU_LABELS = /* @__PURE__ */ labelsOf('geglu', 'out', 'gate', 'up');

/**
 * Checks `out = up · gelu(gate)`.
 *
 * @param gate - any shape and strides, any float dtype; only read
 * @param up - same shape and dtype; only read
 * @param out - same shape and dtype; written; may be exactly `gate` or `up`
 * @param options - which GELU
 * @throws {RopewalkError} SHAPE, DTYPE, RANGE, UNSUPPORTED or ALIAS
 * @see arXiv:2002.05202
 */
export function planGeglu(gate: Tensor, up: Tensor, out: Tensor, options: GeluOptions = {}): GegluPlan {
  const approximate = readApproximate(options, 'geglu');
  checkElementwise(GEGLU_LABELS, out, 'gate', gate, 'up', up);
  return checkedPlan<GegluPlan>({ checked: CHECKED, op: 'geglu', gate, up, out, approximate });
}

function readApproximate(options: GeluOptions, op: string): 'none' | 'tanh' {
  const { approximate = 'none' } = readOptions(options, `${op}: options`, NAMES);
  return readName(approximate, ['none', 'tanh'], `${op}: approximate`);
}
