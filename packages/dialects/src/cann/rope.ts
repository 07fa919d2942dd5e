/**
 * The RoPE operator of ggml's CANN backend on Ascend NPUs, for `[B, S, N, D]`.
 *
 * The parameters are ggml's. The order of dimensions and the form of the call differ.
 *
 * ```
 * mode 0   n_dims = 4 of 8 → [c s c s . . . .]   pairs (2j, 2j+1)
 * mode 2   n_dims = 4 of 8 → [c c s s . . . .]   pairs (j, j + n_dims/2)
 * ```
 *
 * @module
 */
import { bindRope, type Runner, type Tensor } from 'ropewalk';
import { hostOf, refuse } from 'ropewalk/backend';
import {
  checkDims,
  checkDtype,
  checkRunner,
  checkTensor,
  type OptionNames,
  optionNames,
  readIntegers,
  readOptions,
} from 'ropewalk/internal';
import { checkWritten, runInto } from '../calls.js';
import { type GgmlRopeWords, ropePlanFromGgml } from '../ggml.js';

const WORDS: GgmlRopeWords = { op: 'cann_rope', positions: 'pos', freq_factors: 'freq_factors', ne0: 'D', ne2: 'S' };

/** The arguments of the operator, with its names. */
export interface CannRopeArguments<D extends 'f32' | 'f16'> {
  /** `[B, S, N, D]`, F32 or F16, any strides. */
  readonly src0: Tensor<D>;
  /** The positions are i32 `[S]`, in the multi modes `[4 · S]` axis by axis. */
  readonly pos: Tensor<'i32'>;
  /** Each pair has a factor: f32 `[D / 2]`, or at least one for each pair. */
  readonly freq_factors?: Tensor<'f32'> | null;
  /** So many dimensions rotate; even, at most D. */
  readonly n_dims: number;
  /** The modes are 0 normal, 2 neox, 8 mrope, 24 vision and 40 imrope. */
  readonly mode: number;
  readonly n_ctx_orig: number;
  readonly freq_base: number;
  readonly freq_scale: number;
  /** YaRN's extrapolation mix, which the backend's decomposition for NPUs ignores. */
  readonly ext_factor: number;
  readonly attn_factor: number;
  readonly beta_fast: number;
  readonly beta_slow: number;
  /** The multi modes give so many pairs to time, height, width and extra. */
  readonly sections?: readonly number[];
  /** The value false rotates by the negative angle, for gradients. */
  readonly forward: boolean;
  /** The output, with src0's shape and dtype; may be src0 itself. Default: a fresh dense tensor. */
  readonly dst?: Tensor<D>;
}

const NAMES: OptionNames<CannRopeArguments<'f32' | 'f16'>> = /* @__PURE__ */ optionNames(
  'src0 pos freq_factors n_dims mode n_ctx_orig freq_base freq_scale ext_factor attn_factor beta_fast beta_slow',
  'sections forward dst',
);

const NUMBERS = 'n_dims mode n_ctx_orig freq_base freq_scale ext_factor attn_factor beta_fast beta_slow'.split(' ');

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
  const { src0, pos, freq_factors, sections, forward, dst, ...numbers } = readOptions(
    options,
    'cann_rope: arguments',
    NAMES,
  );
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
  // ropePlanFromGgml has defaults; this operator has none.
  for (const name of NUMBERS as (keyof typeof numbers)[])
    if (typeof numbers[name] !== 'number') refuse('RANGE', `cann_rope: ${name}`, 'a number', numbers[name]);
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
  if (dst !== undefined) {
    checkDtype(dst, 'cann_rope: dst', src0.dtype);
    checkDims(dst, 'cann_rope: dst', src0.shape);
    checkWritten('cann_rope', 'dst', dst, { src0, pos, ...(freq_factors ? { freq_factors } : undefined) }, 'src0');
  }
  return runInto(rw, src0, (out) => bindRope(plan, src0, out), dst);
}
