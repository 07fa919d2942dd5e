/** Multiplication by a weight matrix. @module */
import { type OptionNames, readName, readOptions } from '../core/arguments.js';
import { type BlockTensor, checkWeight, isBlocks } from '../core/blocks.js';
import type { FloatDtype } from '../core/dtypes.js';
import { refuse } from '../core/errors.js';
import { checkTensor, type Tensor } from '../core/tensor.js';
import { CHECKED, checkApart, checkDims, checkedPlan, checkFloat, checkOutput, checkStored } from './checks.js';

/** The form in which products with blocks read their activations. */
export type Activations = (typeof ACTIVATIONS)[number];

/** The names of {@link Activations}. */
export const ACTIVATIONS = ['f32', 'q8'] as const;

/** How a linear layer computes. */
export interface LinearOptions {
  /** `[n]`, in the dtype of x, or in f16 or bf16 where x is f32. */
  readonly bias?: Tensor | undefined;
  /**
   * `f32` (the default) rounds nothing. `q8` rounds x to 8 bits beside a weight in blocks, as llama.cpp does, which is
   * faster: each 32 neighbours of a row become d·q, where d = largest magnitude / 127 in f32, and q in −127 … 127 is
   * the integer nearest to x / d, computed in f32, ties to even. (llama.cpp also rounds d to f16, where the smallest and
   * the largest rows are lost.) Products of rounded numbers are as exact as others. A row with an element that is no
   * finite f32 is not rounded, nor is x beside other weights. cpu and the reference compute `q8`; other backends refuse
   * it, or pass it to the reference as they do f64.
   */
  readonly activations?: Activations;
}

/** Reads the option `activations`. @throws {RopewalkError} UNSUPPORTED for an unknown name */
export function readActivations(form: unknown, op: string): Activations {
  return form === undefined ? 'f32' : readName(form, ACTIVATIONS, `${op}: activations`);
}

const NAMES: OptionNames<LinearOptions> = { bias: true, activations: true };

/** A checked linear layer. Frozen. */
export interface LinearPlan {
  readonly op: 'linear';
  /** `[…, k]` */
  readonly x: Tensor<FloatDtype>;
  /** `[n, k]` */
  readonly weight: Tensor<FloatDtype> | BlockTensor;
  /** `[n]` */
  readonly bias: Tensor<FloatDtype> | undefined;
  /** `[…, n]` */
  readonly out: Tensor<FloatDtype>;
  /** The number of rows of x: the product of all dimensions but the last. */
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly activations: Activations;
}

/**
 * Checks `out = x·Wᵀ + bias`.
 *
 * @param x - `[…, k]`, any strides, any float dtype; only read
 * @param weight - `[n, k]`, as in torch and GGUF, in x's dtype, or in f16 or bf16 where x is f32; or blocks
 *   with any dtype of x
 * @param out - `[…, n]`, the dtype of x; written; shares no memory with the inputs
 * @param options - bias, and how activations are rounded
 * @throws {RopewalkError} SHAPE, DTYPE or ALIAS; UNSUPPORTED for an unknown form of activations
 * @see InfiniTensor/llaisys@7740d46f, linear
 */
export function planLinear(
  x: Tensor,
  weight: Tensor | BlockTensor,
  out: Tensor,
  options: LinearOptions = {},
): LinearPlan {
  const { bias, activations: form } = readOptions(options, 'linear: options', NAMES);
  const activations = readActivations(form, 'linear');
  checkTensor(x, 'linear: x');
  checkWeight(weight, 'linear: weight');
  if (x.rank === 0) refuse('SHAPE', 'linear: x', 'at least one dimension', x.shape);
  if (weight.shape.length !== 2) refuse('SHAPE', 'linear: weight', 'two dimensions [n, k]', weight.shape);
  const k = x.shape.at(-1)!;
  const n = weight.shape[0]!;
  if (weight.shape[1] !== k) refuse('SHAPE', 'linear: weight', `shape [${n},${k}]`, weight.shape);
  if (bias !== undefined) checkDims(bias, 'linear: bias', [n]);
  checkDims(out, 'linear: out', x.shape.with(-1, n));
  checkFloat(x, 'linear: x');
  if (!isBlocks(weight)) checkStored(weight, 'linear: weight', x.dtype);
  if (bias) checkStored(bias, 'linear: bias', x.dtype);
  checkFloat(out, 'linear: out', x.dtype);
  checkOutput(out, 'linear: out');
  checkApart(out, 'linear: out', 'x', x);
  checkApart(out, 'linear: out', 'weight', isBlocks(weight) ? weight.bytes : weight);
  if (bias) checkApart(out, 'linear: out', 'bias', bias);
  const m = x.shape.slice(0, -1).reduce((rows, dim) => rows * dim, 1);
  return checkedPlan<LinearPlan>({ checked: CHECKED, op: 'linear', x, weight, bias, out, m, n, k, activations });
}
