/** The selective scan of Mamba-2: a state that each token decays and adds to. @module */
import { type OptionNames, readList, readOptions } from '../core/arguments.js';
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

/** How the selective scan computes. */
export interface SsmScanOptions {
  /** `[heads]`: x times it is added to the output, D in the paper. Default: none. */
  readonly skip?: Tensor;
  /** The smallest and the largest time step: min in [0, 2⁶⁴], and max >= min. Default: 0 and Infinity. */
  readonly limits?: readonly [min: number, max: number];
  /** Whether the sequence starts here: the state counts as zeros. Default: false. */
  readonly fresh?: boolean;
}

const NAMES: OptionNames<SsmScanOptions> = { skip: true, limits: true, fresh: true };

/** The tensors that say how far a time step goes: Δ = softplus(dt + bias), within the limits. */
export interface SsmScanSteps {
  /** `[tokens, heads]` */
  readonly dt: Tensor;
  /** `[heads]`, negative: the state is multiplied by exp(rate · Δ). A in the paper, −exp(A_log) in files. */
  readonly rate: Tensor;
  /** `[heads]` */
  readonly bias: Tensor;
}

const STEP_NAMES: OptionNames<SsmScanSteps> = { dt: true, rate: true, bias: true };

/** A checked selective scan. Frozen. */
export interface SsmScanPlan {
  readonly op: 'ssm_scan';
  /** `[tokens, heads, dv]` */
  readonly x: Tensor<FloatDtype>;
  /** `[tokens, groups, d]` */
  readonly b: Tensor<FloatDtype>;
  readonly c: Tensor<FloatDtype>;
  /** `[tokens, heads]` */
  readonly dt: Tensor<FloatDtype>;
  /** `[heads]` */
  readonly rate: Tensor<FloatDtype>;
  readonly bias: Tensor<FloatDtype>;
  readonly skip: Tensor<FloatDtype> | undefined;
  /** `[heads, d, dv]` */
  readonly state: Tensor<'f32' | 'f64'>;
  readonly min: number;
  readonly max: number;
  readonly fresh: boolean;
  /** `[tokens, heads, dv]` */
  readonly out: Tensor<FloatDtype>;
}

/**
 * Checks, for each head and token, `S ← exp(rate · Δ)·S + b ⊗ (Δ·x); out = Sᵀc + skip·x`, where Δ = softplus(dt + bias)
 * within the limits. Head h reads b and c of group ⌊h / (heads / groups)⌋.
 *
 * @param x - `[tokens, heads, dv]`, any strides, any float dtype; only read
 * @param b - `[tokens, groups, d]`, same dtype; heads is a multiple of groups; only read
 * @param c - same shape and dtype as b; only read
 * @param steps - dt, in the same dtype; rate and bias, in it, or in f16 or bf16 where it is f32
 * @param state - `[heads, d, dv]`, dense, f32, or f64 where x is f64; read and written
 * @param out - the shape and dtype of x; written
 * @param options - skip, limits, fresh
 * @throws {RopewalkError} SHAPE, DTYPE, RANGE or ALIAS
 * @see arXiv:2405.21060, §3; huggingface/transformers@v5.24.0 src/transformers/models/mamba2/modeling_mamba2.py
 */
export function planSsmScan(
  x: Tensor,
  b: Tensor,
  c: Tensor,
  steps: SsmScanSteps,
  state: Tensor,
  out: Tensor,
  options: SsmScanOptions = {},
): SsmScanPlan {
  const { skip, limits, fresh = false } = readOptions(options, 'ssm_scan: options', NAMES);
  const { dt, rate, bias } = readOptions(steps, 'ssm_scan: steps', STEP_NAMES);
  checkTensor(x, 'ssm_scan: x');
  if (x.rank !== 3) refuse('SHAPE', 'ssm_scan: x', 'three dimensions [tokens, heads, dv]', x.shape);
  const [tokens, heads, dv] = x.shape as [number, number, number];
  checkTensor(b, 'ssm_scan: b');
  const [, groups = 0, d = 0] = b.shape;
  checkDims(b, 'ssm_scan: b', [tokens, groups, d]);
  if (groups === 0 ? heads > 0 : heads % groups !== 0)
    refuse('SHAPE', 'ssm_scan: x', `a multiple of the ${groups} groups of b as heads`, heads);
  checkDims(c, 'ssm_scan: c', b.shape);
  checkDims(dt, 'ssm_scan: dt', [tokens, heads]);
  const vectors = Object.entries({ rate, bias, ...(skip !== undefined && { skip }) });
  for (const [name, vector] of vectors) checkDims(vector, `ssm_scan: ${name}`, [heads]);
  checkDims(state, 'ssm_scan: state', [heads, d, dv]);
  checkDims(out, 'ssm_scan: out', x.shape);
  checkFloat(x, 'ssm_scan: x');
  for (const [name, one] of Object.entries({ b, c, dt, out })) checkFloat(one, `ssm_scan: ${name}`, x.dtype);
  for (const [name, vector] of vectors) checkStored(vector, `ssm_scan: ${name}`, x.dtype);
  const [min, max] = readLimits(limits);
  if (typeof fresh !== 'boolean') refuse('RANGE', 'ssm_scan: fresh', 'true or false', fresh);
  checkState(state, 'ssm_scan: state', x.dtype);
  checkOutput(out, 'ssm_scan: out');
  checkApart(out, 'ssm_scan: out', 'state', state);
  const inputs = { x, b, c, dt, rate, bias, skip };
  for (const [name, input] of Object.entries(inputs)) {
    if (!input) continue;
    checkApart(out, 'ssm_scan: out', name, input);
    checkApart(state, 'ssm_scan: state', name, input);
  }
  return checkedPlan<SsmScanPlan>({ checked: CHECKED, op: 'ssm_scan', ...inputs, state, min, max, fresh, out });
}

/** The largest lower limit of a time step: above it, and times an input, f32 would overflow. */
const LARGEST_MIN = 2 ** 64;

function readLimits(limits: SsmScanOptions['limits']): readonly [min: number, max: number] {
  if (limits === undefined) return [0, Number.POSITIVE_INFINITY];
  const { length, 0: min, 1: max } = readList<unknown>(limits, 'ssm_scan: limits', 'two numbers');
  if (
    length !== 2 ||
    typeof min !== 'number' ||
    typeof max !== 'number' ||
    !(min >= 0 && min <= LARGEST_MIN && max >= min)
  )
    refuse('RANGE', 'ssm_scan: limits', '[min, max] with 0 <= min <= 2^64 and max >= min', limits);
  return [min, max];
}
