/**
 * RoPE on Ascend NPUs as seed document 003 specifies it, for `[B, S, N, D]`.
 *
 * The parameters are ggml's. The order of dimensions and the form of the call differ.
 *
 * ```
 * mode 0   n_dims = 4 of 8 → [c s c s . . . .]   pairs (2j, 2j+1)
 * mode 2   n_dims = 4 of 8 → [c c s s . . . .]   pairs (j, j + n_dims/2)
 * ```
 *
 * @module
 * @see seed document 003
 */

import { bindRope, type Runner, type Tensor } from 'ropewalk';
import { hostOf, refuse } from 'ropewalk/backend';
import {
  checkApart,
  checkDims,
  checkDtype,
  checkOutput,
  checkRunner,
  checkTensor,
  type OptionNames,
  readIntegers,
  readOptions,
  withFresh,
} from 'ropewalk/internal';
import { type GgmlRopeWords, ropePlanFromGgml } from '../ggml.js';

const WORDS: GgmlRopeWords = { op: 'cann_rope', positions: 'pos', freq_factors: 'freq_factors', ne0: 'D', ne2: 'S' };

/** The arguments of the operator, with the names of seed document 003. */
export interface CannRopeArguments<D extends 'f32' | 'f16'> {
  /** `[B, S, N, D]`, F32 or F16, any strides. */
  readonly src0: Tensor<D>;
  /** i32 `[S]`; `[4 · S]` axis by axis in the multi modes. */
  readonly pos: Tensor<'i32'>;
  /** f32 `[D / 2]`, one a pair at least; absent for none. */
  readonly freq_factors?: Tensor<'f32'> | null;
  /** Dimensions that rotate, even, at most D. */
  readonly n_dims: number;
  /** 0 normal, 2 neox, 8 mrope, 24 vision, 40 imrope. */
  readonly mode: number;
  readonly n_ctx_orig: number;
  readonly freq_base: number;
  readonly freq_scale: number;
  /** YaRN's extrapolation mix; the document's own NPU decomposition ignores it. */
  readonly ext_factor: number;
  readonly attn_factor: number;
  readonly beta_fast: number;
  readonly beta_slow: number;
  /** Pairs of time, height, width and extra, for the multi modes. */
  readonly sections?: readonly number[];
  /** false rotates by the negative angle, for gradients. */
  readonly forward: boolean;
  /** `[B, S, N, D]`, src0's dtype; may be src0 itself. A fresh dense tensor unless given. */
  readonly dst?: Tensor<D>;
}

const NAMES: OptionNames<CannRopeArguments<'f32' | 'f16'>> = {
  src0: true,
  pos: true,
  freq_factors: true,
  n_dims: true,
  mode: true,
  n_ctx_orig: true,
  freq_base: true,
  freq_scale: true,
  ext_factor: true,
  attn_factor: true,
  beta_fast: true,
  beta_slow: true,
  sections: true,
  forward: true,
  dst: true,
};

/**
 * Rotates `src0` into `dst`.
 *
 * @param rw - runs the plan
 * @param options - the arguments
 * @returns dst
 * @throws {RopewalkError} SHAPE, DTYPE, RANGE or ALIAS, naming the argument
 */
export function rope<D extends 'f32' | 'f16'>(rw: Runner, options: CannRopeArguments<D>): Tensor<D> {
  checkRunner(rw, 'cann_rope: rw');
  const { src0, pos, freq_factors, forward, dst: given, ...args } = readOptions(options, 'cann_rope: arguments', NAMES);
  checkTensor(src0, 'cann_rope: src0');
  checkTensor(pos, 'cann_rope: pos');
  if (src0.rank !== 4) refuse('SHAPE', 'cann_rope: src0', '[B, S, N, D]', [...src0.shape]);
  if (src0.dtype !== 'f32' && src0.dtype !== 'f16') refuse('DTYPE', 'cann_rope: src0', 'F32 or F16', src0.dtype);
  checkDtype(pos, 'cann_rope: pos', 'i32');
  if (pos.rank !== 1) refuse('SHAPE', 'cann_rope: pos', 'one dimension', [...pos.shape]);
  if (typeof forward !== 'boolean') refuse('RANGE', 'cann_rope: forward', 'true or false', forward);
  if (freq_factors !== undefined && freq_factors !== null) {
    checkDtype(freq_factors, 'cann_rope: freq_factors', 'f32');
    if (freq_factors.rank !== 1) refuse('SHAPE', 'cann_rope: freq_factors', 'one dimension', [...freq_factors.shape]);
    hostOf(freq_factors, 'cann_rope: freq_factors');
  }
  const [B, S, N, D] = src0.shape as [number, number, number, number];
  const { sections, n_dims, mode, n_ctx_orig, freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow } =
    args;
  const numbers = { n_dims, mode, n_ctx_orig, freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow };
  // ropePlanFromGgml has defaults; this operator has none.
  for (const [name, value] of Object.entries(numbers)) {
    if (typeof value !== 'number') refuse('RANGE', `cann_rope: ${name}`, 'a number', value);
  }
  const plan = ropePlanFromGgml(
    {
      ne: [D, N, S, B],
      ...numbers,
      sections,
      positions: Int32Array.from(readIntegers(pos, 'cann_rope: pos')),
      freq_factors: freq_factors ? (freq_factors.read() as Float32Array) : undefined,
      direction: forward ? 'forward' : 'backward',
    },
    WORDS,
  );
  if (given !== undefined) {
    checkDtype(given, 'cann_rope: dst', src0.dtype);
    checkDims(given, 'cann_rope: dst', src0.shape);
    const inputs = Object.entries({ src0, pos, freq_factors }).filter(([, tensor]) => tensor) as [string, Tensor][];
    checkOutput(given, 'cann_rope: dst');
    for (const [name, tensor] of inputs) checkApart(given, 'cann_rope: dst', name, tensor, name === 'src0');
  }
  const into = (dst: Tensor<D>): Tensor<D> => {
    rw.run(bindRope(plan, src0, dst));
    return dst;
  };
  return given === undefined ? withFresh(rw, src0.dtype, src0.shape, into) : into(given);
}
