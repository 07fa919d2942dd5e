/** Multiplication of each token by the matrices of its experts only. @module */
import { type OptionNames, readOptions } from '../core/arguments.js';
import { type BlockTensor, checkWeight, isBlocks } from '../core/blocks.js';
import type { FloatDtype } from '../core/dtypes.js';
import { refuse } from '../core/errors.js';
import { checkTensor, readIntegers, type Tensor } from '../core/tensor.js';
import {
  CHECKED,
  checkApart,
  checkDims,
  checkDtype,
  checkedPlan,
  checkFloat,
  checkOutput,
  checkStored,
} from './checks.js';
import { type Activations, type LinearOptions, readActivations } from './linear.js';

/** Options of the experts' linear layer. */
export interface ExpertLinearOptions extends LinearOptions {
  /** `[experts, n]`; is added to each product before it is weighted. Default: none. */
  readonly bias?: Tensor;
  /** `[tokens, chosen]`: the products of a token are multiplied by these and added up. */
  readonly weights?: Tensor;
}

const NAMES: OptionNames<ExpertLinearOptions> = { bias: true, weights: true, activations: true };

/** A checked linear layer of experts. Frozen. */
export interface ExpertLinearPlan {
  readonly op: 'expert_linear';
  /** `[tokens, k]`, which all experts of a token read; or `[tokens, chosen, k]`, a row for each. */
  readonly x: Tensor<FloatDtype>;
  /** `[experts, n, k]` */
  readonly weight: Tensor<FloatDtype> | BlockTensor;
  /** `[experts, n]` */
  readonly bias: Tensor<FloatDtype> | undefined;
  /** `[tokens, chosen]`, each in [0, experts). */
  readonly indices: Tensor<'i32'>;
  /** `[tokens, chosen]` */
  readonly weights: Tensor<FloatDtype> | undefined;
  /** `[tokens, chosen, n]`; with weights `[tokens, n]`. */
  readonly out: Tensor<FloatDtype>;
  readonly activations: Activations;
}

/**
 * Checks `out[t, s] = W[e]·x[t] + bias[e]` with `e = indices[t, s]`; with weights
 * `out[t] = Σ_s weights[t, s] · (W[e]·x[t, s] + bias[e])`. Only the chosen experts' matrices are read.
 *
 * The indices are read when the plan runs, so that they may come from {@link planRoute} on the same device. cpu and
 * the reference then refuse an index outside [0, experts); webgpu and ONNX graphs take the nearest expert.
 *
 * @param x - `[tokens, k]` or `[tokens, chosen, k]`, any strides, any float dtype; only read
 * @param weight - `[experts, n, k]`, in x's dtype, or in f16 or bf16 where x is f32; or blocks with any dtype of x
 * @param indices - `[tokens, chosen]`, i32
 * @param out - `[tokens, chosen, n]`, or `[tokens, n]` beside weights; the dtype of x; written; shares no memory with
 *   the inputs
 * @param options - bias `[experts, n]`, in the dtypes of weight; weights `[tokens, chosen]`, in x's dtype;
 *   activations as in linear
 * @throws {RopewalkError} SHAPE, DTYPE or ALIAS; UNSUPPORTED for an unknown form of activations
 * @see ggml-org/llama.cpp@de3ff815 src/llama-graph.cpp build_moe_ffn (ggml_mul_mat_id)
 */
export function planExpertLinear(
  x: Tensor,
  weight: Tensor | BlockTensor,
  indices: Tensor,
  out: Tensor,
  options: ExpertLinearOptions = {},
): ExpertLinearPlan {
  const { bias, weights, activations: form } = readOptions(options, 'expert_linear: options', NAMES);
  const activations = readActivations(form, 'expert_linear');
  checkTensor(x, 'expert_linear: x');
  checkWeight(weight, 'expert_linear: weight');
  checkTensor(indices, 'expert_linear: indices');
  if (weight.shape.length !== 3)
    refuse('SHAPE', 'expert_linear: weight', 'three dimensions [experts, n, k]', weight.shape);
  if (indices.rank !== 2) refuse('SHAPE', 'expert_linear: indices', 'two dimensions [tokens, chosen]', indices.shape);
  const [tokens, chosen] = indices.shape as [number, number];
  const [experts, n, k] = weight.shape as [number, number, number];
  if (x.rank === 3) checkDims(x, 'expert_linear: x', [tokens, chosen, k]);
  else checkDims(x, 'expert_linear: x', [tokens, k]);
  if (bias !== undefined) checkDims(bias, 'expert_linear: bias', [experts, n]);
  if (weights !== undefined) checkDims(weights, 'expert_linear: weights', [tokens, chosen]);
  checkDims(out, 'expert_linear: out', weights === undefined ? [tokens, chosen, n] : [tokens, n]);
  if (experts === 0 && indices.size > 0) refuse('SHAPE', 'expert_linear: weight', 'at least one expert', weight.shape);
  checkFloat(x, 'expert_linear: x');
  if (!isBlocks(weight)) checkStored(weight, 'expert_linear: weight', x.dtype);
  if (bias) checkStored(bias, 'expert_linear: bias', x.dtype);
  checkDtype(indices, 'expert_linear: indices', 'i32');
  if (weights) checkFloat(weights, 'expert_linear: weights', x.dtype);
  checkFloat(out, 'expert_linear: out', x.dtype);
  checkOutput(out, 'expert_linear: out');
  const inputs = { x, weight: isBlocks(weight) ? weight.bytes : weight, bias, indices, weights };
  for (const [name, input] of Object.entries(inputs)) if (input) checkApart(out, 'expert_linear: out', name, input);
  const plan = { x, weight, bias, indices, weights, out, activations };
  return checkedPlan<ExpertLinearPlan>({ checked: CHECKED, op: 'expert_linear', ...plan });
}

/**
 * Reads the indices of a plan when it runs.
 *
 * @returns an expert for each pair of `[tokens, chosen]`
 * @throws {RopewalkError} RANGE for an index outside [0, experts); DEVICE when they are not in host memory
 */
export function readExperts({ indices, weight }: ExpertLinearPlan): Float64Array {
  const ids = readIntegers(indices, 'expert_linear: indices');
  const experts = weight.shape[0]!;
  for (const id of ids)
    if (id < 0 || id >= experts) refuse('RANGE', 'expert_linear: indices', `experts in [0, ${experts - 1}]`, id);
  return ids;
}
