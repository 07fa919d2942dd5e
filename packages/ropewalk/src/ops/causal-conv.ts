/** A causal convolution of each channel by itself, with gates: the short convolution of LFM2, and that of delta nets. @module */
import { type OptionNames, readOptions } from '../core/arguments.js';
import type { FloatDtype } from '../core/dtypes.js';
import { refuse } from '../core/errors.js';
import { checkTensor, type Tensor } from '../core/tensor.js';
import {
  CHECKED,
  checkApart,
  checkDims,
  checkedPlan,
  checkFloat,
  checkOutput,
  checkState,
  checkStored,
} from './checks.js';

/** Options of a causal convolution. */
export interface CausalConvOptions {
  /** `[channels]`; is added to the sums. Default: none. */
  readonly bias?: Tensor;
  /** `[tokens, channels]`; multiplies x. Default: none. */
  readonly before?: Tensor;
  /** `[tokens, channels]`; multiplies the result. Default: none. */
  readonly after?: Tensor;
  /** Default: none. */
  readonly activation?: 'silu';
  /** Whether the sequence starts here: the state counts as zeros. Default: false. */
  readonly fresh?: boolean;
}

const NAMES: OptionNames<CausalConvOptions> = { bias: true, before: true, after: true, activation: true, fresh: true };

/** A checked causal convolution. Frozen. */
export interface CausalConvPlan {
  readonly op: 'causal_conv';
  /** `[tokens, channels]` */
  readonly x: Tensor<FloatDtype>;
  /** `[channels, width]` */
  readonly weight: Tensor<FloatDtype>;
  /** `[width − 1, channels]` */
  readonly state: Tensor<'f32' | 'f64'>;
  /** `[channels]` */
  readonly bias: Tensor<FloatDtype> | undefined;
  /** `[tokens, channels]` */
  readonly before: Tensor<FloatDtype> | undefined;
  /** `[tokens, channels]` */
  readonly after: Tensor<FloatDtype> | undefined;
  readonly silu: boolean;
  readonly fresh: boolean;
  /** `[tokens, channels]` */
  readonly out: Tensor<FloatDtype>;
}

/**
 * Checks `out[t] = act(bias + Σ weight[·, j] · u[t − width + 1 + j]) · after[t]` with `u = before · x`. The rows of u
 * before the first are the state, oldest first; afterwards it has the last rows of u.
 *
 * @param x - `[tokens, channels]`, any strides, any float dtype; only read
 * @param weight - `[channels, width]`, in x's dtype, or in f16 or bf16 where x is f32; the last column is for the token
 *   itself
 * @param state - `[width − 1, channels]`, dense, f32, or f64 where x is f64; read and written
 * @param out - same shape and dtype as x; written
 * @param options - bias, gates before and after, activation, fresh
 * @throws {RopewalkError} SHAPE, DTYPE, RANGE or ALIAS
 * @see huggingface/transformers@v5.24.0 src/transformers/models/lfm2/modeling_lfm2.py
 */
export function planCausalConv(
  x: Tensor,
  weight: Tensor,
  state: Tensor,
  out: Tensor,
  options: CausalConvOptions = {},
): CausalConvPlan {
  const { bias, before, after, activation, fresh = false } = readOptions(options, 'causal_conv: options', NAMES);
  checkTensor(x, 'causal_conv: x');
  if (x.rank !== 2) refuse('SHAPE', 'causal_conv: x', 'two dimensions [tokens, channels]', x.shape);
  const channels = x.shape[1]!;
  checkTensor(weight, 'causal_conv: weight');
  const width = weight.shape[1] ?? 0;
  if (width < 1) refuse('SHAPE', 'causal_conv: weight', `shape [${channels}, width] with width >= 1`, weight.shape);
  checkDims(weight, 'causal_conv: weight', [channels, width]);
  checkDims(state, 'causal_conv: state', [width - 1, channels]);
  checkDims(out, 'causal_conv: out', x.shape);
  const gates = Object.entries({ before, after }).filter(([, gate]) => gate !== undefined) as [string, Tensor][];
  for (const [name, gate] of gates) checkDims(gate, `causal_conv: ${name}`, x.shape);
  if (bias !== undefined) checkDims(bias, 'causal_conv: bias', [channels]);
  checkFloat(x, 'causal_conv: x');
  checkStored(weight, 'causal_conv: weight', x.dtype);
  if (bias !== undefined) checkStored(bias, 'causal_conv: bias', x.dtype);
  for (const [name, gate] of gates) checkFloat(gate, `causal_conv: ${name}`, x.dtype);
  checkFloat(out, 'causal_conv: out', x.dtype);
  if (activation !== undefined && activation !== 'silu')
    refuse('RANGE', 'causal_conv: activation', 'silu, or nothing', activation);
  if (typeof fresh !== 'boolean') refuse('RANGE', 'causal_conv: fresh', 'true or false', fresh);
  checkState(state, 'causal_conv: state', x.dtype);
  checkOutput(out, 'causal_conv: out');
  checkApart(out, 'causal_conv: out', 'state', state);
  for (const [name, input] of Object.entries({ x, weight, bias, before, after })) {
    if (!input) continue;
    checkApart(out, 'causal_conv: out', name, input);
    checkApart(state, 'causal_conv: state', name, input);
  }
  const plan = { x, weight, state, bias, before, after, silu: activation === 'silu', fresh, out };
  return checkedPlan<CausalConvPlan>({ checked: CHECKED, op: 'causal_conv', ...plan });
}
