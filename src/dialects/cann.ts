/**
 * CANN: RoPE on Ascend NPUs as seed 003 specifies it, dimensions in the order `[B, S, N, D]`, and aclnn's table-driven operator.
 *
 * The parameters are ggml's; only the order of dimensions and the form of the call differ, so the translation is ggml's too.
 *
 * @module
 * @see seed document 003; CANN aclnnRotaryPositionEmbedding
 */
import { refuse } from '../core/errors.js';
import { readIntegers, type Tensor } from '../core/tensor.js';
import { bindRope } from '../ops/rope/call.js';
import { type Pairing, planRopeWithTable } from '../ops/rope/plan.js';
import { tableFromTensors } from '../ops/rope/table.js';
import { checkDims, checkDtype, checkFloat, type Runner } from '../ops/runner.js';
import { ropePlanFromGgml } from './ggml.js';

/** The arguments of the operator, under the names of seed 003. */
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
  /** YaRN's extrapolation mix; seed 003's own NPU decomposition ignores it, this does not. */
  readonly ext_factor: number;
  readonly attn_factor: number;
  readonly beta_fast: number;
  readonly beta_slow: number;
  /** Pairs of time, height, width and extra, for the multi modes. */
  readonly sections?: readonly number[];
  /** false turns the other way, for gradients. */
  readonly forward: boolean;
  /** `[B, S, N, D]`, src0's dtype; may be src0 itself. A fresh dense tensor unless given. */
  readonly dst?: Tensor<D>;
}

/**
 * Rotates `src0` into `dst`.
 *
 * @param rw - who computes
 * @param args - under the names of seed 003
 * @returns dst
 * @throws {RopewalkError} SHAPE, DTYPE, RANGE or ALIAS, in these names
 */
export function rope<D extends 'f32' | 'f16'>(rw: Runner, args: CannRopeArguments<D>): Tensor<D> {
  const { src0, pos, freq_factors, forward } = args;
  if (src0.rank !== 4) refuse('SHAPE', 'cann_rope: src0', '[B, S, N, D]', [...src0.shape]);
  if (src0.dtype !== 'f32' && src0.dtype !== 'f16') refuse('DTYPE', 'cann_rope: src0', 'F32 or F16', src0.dtype);
  checkDtype(pos, 'cann_rope: pos', 'i32');
  if (pos.rank !== 1) refuse('SHAPE', 'cann_rope: pos', 'one dimension', [...pos.shape]);
  if (typeof forward !== 'boolean') refuse('RANGE', 'cann_rope: forward', 'true or false', forward);
  if (freq_factors) {
    checkDtype(freq_factors, 'cann_rope: freq_factors', 'f32');
    if (freq_factors.rank !== 1) refuse('SHAPE', 'cann_rope: freq_factors', 'one dimension', [...freq_factors.shape]);
  }
  const [B, S, N, D] = src0.shape as [number, number, number, number];
  const { sections, n_dims, mode, n_ctx_orig, freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow } = args;
  const plan = ropePlanFromGgml({
    ne: [D, N, S, B],
    n_dims,
    mode,
    n_ctx_orig,
    freq_base,
    freq_scale,
    ext_factor,
    attn_factor,
    beta_fast,
    beta_slow,
    ...(sections ? { sections } : {}),
    positions: Int32Array.from(readIntegers(pos, 'cann_rope: pos')),
    freq_factors: freq_factors ? (freq_factors.read() as Float32Array) : undefined,
    direction: forward ? 'forward' : 'backward',
  });
  const dst = args.dst ?? rw.allocate(src0.dtype, src0.shape);
  rw.run(bindRope(plan, src0, dst));
  return dst;
}

/** Modes of aclnnRotaryPositionEmbedding. */
export const ACLNN_ROTARY_MODE = /* @__PURE__ */ Object.freeze({
  /** Pairs (j, j + D/2). */
  half: 0,
  /** Pairs (2j, 2j+1). */
  interleave: 1,
  /** Half pairing inside each half of D: 2-D vision. */
  quarter: 2,
  /** Reads pairs (2j, 2j+1), writes (j, j + D/2). */
  interleaveHalf: 3,
} as const);

/**
 * `aclnnRotaryPositionEmbedding(x, cos, sin, mode, out)`: rotation by given tables.
 *
 * @param rw - who computes
 * @param x - `[B, S, N, D]` (BSND), any float dtype
 * @param cos - `[1, S, 1, D]` or `[B, S, 1, D]`, x's dtype: full width, each pair's cosine at both its places
 * @param sin - as cos
 * @param mode - one of {@link ACLNN_ROTARY_MODE}
 * @returns a fresh dense tensor of x's shape
 * @throws {RopewalkError} UNSUPPORTED when the two places of a pair hold different values: that is no rotation; SHAPE, DTYPE or RANGE
 */
export function aclnnRotaryPositionEmbedding<D extends 'f32' | 'f16' | 'bf16'>(
  rw: Runner,
  x: Tensor<D>,
  cos: Tensor<D>,
  sin: Tensor<D>,
  mode: number,
): Tensor<D> {
  const op = 'aclnnRotaryPositionEmbedding';
  checkFloat(x, `${op}: x`);
  if (x.rank !== 4) refuse('SHAPE', `${op}: x`, '[B, S, N, D]', [...x.shape]);
  const [B, S, , D] = x.shape as [number, number, number, number];
  const divisor = mode === ACLNN_ROTARY_MODE.quarter ? 4 : 2;
  if (D === 0 || D % divisor !== 0) refuse('SHAPE', `${op}: x`, `D to be a multiple of ${divisor} in mode ${mode}`, D);
  checkFloat(cos, `${op}: cos`, x.dtype);
  checkFloat(sin, `${op}: sin`, x.dtype);
  if (cos.rank !== 4 || (cos.shape[0] !== 1 && cos.shape[0] !== B))
    refuse('SHAPE', `${op}: cos`, `[1, ${S}, 1, ${D}] or [${B}, ${S}, 1, ${D}]`, [...cos.shape]);
  checkDims(cos, `${op}: cos`, [cos.shape[0]!, S, 1, D]);
  checkDims(sin, `${op}: sin`, cos.shape);
  const pairing = pairingOf(mode, op);
  const width = mode === ACLNN_ROTARY_MODE.quarter ? D / 2 : D;
  const out = rw.allocate(x.dtype, x.shape);
  // quarter is two rotations side by side; each is checked before the first one runs.
  const calls = Array.from({ length: D / width }, (_, part) => {
    const [start, end] = [part * width, (part + 1) * width];
    const window = (t: Tensor<D>): Tensor<D> => t.slice(3, start, end);
    const table = tableFromTensors(firstOfPairs(window(cos), mode, `${op}: cos`), firstOfPairs(window(sin), mode, `${op}: sin`), op);
    const perBatch = cos.shape[0] !== 1;
    const tableRows = Int32Array.from({ length: (perBatch ? B : 1) * S }, (_, row) => row);
    const plan = planRopeWithTable({ headDim: width, pairing, table, seqLen: S, ...(perBatch ? { batch: B } : {}), tableRows });
    return bindRope(plan, window(x), window(out));
  });
  for (const call of calls) rw.run(call);
  return out;
}

function pairingOf(mode: number, op: string): Pairing {
  switch (mode) {
    case ACLNN_ROTARY_MODE.half:
    case ACLNN_ROTARY_MODE.quarter:
      return 'half';
    case ACLNN_ROTARY_MODE.interleave:
      return 'interleaved';
    case ACLNN_ROTARY_MODE.interleaveHalf:
      return 'interleaved-to-half';
    default:
      return refuse('UNSUPPORTED', `${op}: mode`, '0 (half), 1 (interleave), 2 (quarter) or 3 (interleave-half)', mode);
  }
}

/**
 * One column a pair of a full-width table. The operator multiplies element by element, so a table whose two places differ is no rotation.
 * Interleave-half multiplies after the dimensions have moved to halves, so there the table lies in halves too.
 */
function firstOfPairs(table: Tensor, mode: number, where: string): Tensor {
  const [batch, seq, , width] = table.shape as [number, number, number, number];
  const [shape, dim] = mode === ACLNN_ROTARY_MODE.interleave ? [[batch * seq, width / 2, 2], 2] : [[batch * seq, 2, width / 2], 1];
  const pairs = table.reshape(shape);
  const [first, second] = [pairs.slice(dim, 0, 1), pairs.slice(dim, 1, 2)].map((half) => half.readNumbers() as Float64Array) as [
    Float64Array,
    Float64Array,
  ];
  const differs = first.findIndex((value, i) => !Object.is(value, second[i]));
  if (differs >= 0)
    refuse(
      'UNSUPPORTED',
      where,
      `the same value at both places of a pair`,
      [first[differs], second[differs]],
      'A table like that scales and shears; it is no rotation.',
    );
  return pairs.slice(dim, 0, 1).reshape([batch * seq, width / 2]);
}
