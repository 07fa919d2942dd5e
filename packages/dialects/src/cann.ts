/**
 * CANN: RoPE on Ascend NPUs as seed document 003 specifies it, for `[B, S, N, D]`, and aclnn's operator with tables.
 *
 * The parameters are ggml's. The order of dimensions and the form of the call differ.
 *
 * ```
 * mode 0   n_dims = 4 of 8 → [c s c s . . . .]   pairs (2j, 2j+1)
 * mode 2   n_dims = 4 of 8 → [c c s s . . . .]   pairs (j, j + n_dims/2)
 * ```
 *
 * @module
 * @see seed document 003; CANN aclnnRotaryPositionEmbedding
 */

import type { Dtype, Pairing, RopeCall, Runner, Tensor } from 'ropewalk';
import { bindRope, planRopeWithTable, tableFromTensors } from 'ropewalk';
import {
  checkApart,
  checkDims,
  checkDtype,
  checkFloat,
  checkOutput,
  checkRunner,
  checkTensor,
  hostOf,
  readIntegers,
  readOptions,
  refuse,
  withFresh,
} from 'ropewalk/backend';
import { type GgmlRopeWords, ropePlanFromGgml } from './ggml.js';

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
  const { src0, pos, freq_factors, forward, dst: given, ...args } = readOptions(options, 'cann_rope: arguments');
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

const PAIRINGS: readonly Pairing[] = ['half', 'interleaved', 'half', 'interleaved-to-half']; // by mode

/**
 * `aclnnRotaryPositionEmbedding(x, cos, sin, mode, out)`: rotation by given tables.
 *
 * As in aclnn, the dimensions in which the tables are 1 give the layout: BSND has `[1, S, 1, D]` or `[B, S, 1, D]`,
 * BNSD `[1, 1, S, D]` or `[B, 1, S, D]`, SBND `[S, 1, 1, D]` or `[S, B, 1, D]`; a full table has x's shape.
 *
 * @param rw - runs the plans
 * @param x - four dimensions, the last one D; f32, f16 or bf16, any strides
 * @param cos - each dimension 1 or x's, the last one D; x's dtype, in host memory. Each pair's cosine is at both of its
 *   dimensions
 * @param sin - as cos
 * @param mode - one of {@link ACLNN_ROTARY_MODE}
 * @returns a fresh dense tensor of x's shape
 * @throws {RopewalkError} UNSUPPORTED when the two values of a pair differ, which is not a rotation; SHAPE, DTYPE or
 *   RANGE
 */
export function aclnnRotaryPositionEmbedding<D extends 'f32' | 'f16' | 'bf16'>(
  rw: Runner,
  x: Tensor<D>,
  cos: Tensor<D>,
  sin: Tensor<D>,
  mode: number,
): Tensor<D> {
  const op = 'aclnnRotaryPositionEmbedding';
  checkRunner(rw, `${op}: rw`);
  for (const [name, tensor] of Object.entries({ x, cos, sin })) checkTensor(tensor, `${op}: ${name}`);
  const modes = '0 (half), 1 (interleave), 2 (quarter) or 3 (interleave-half)';
  const pairing = PAIRINGS.find((_item, n) => n === mode) ?? refuse('UNSUPPORTED', `${op}: mode`, modes, mode);
  checkFloat(x, `${op}: x`);
  if (x.rank !== 4) refuse('SHAPE', `${op}: x`, 'four dimensions: BSND, BNSD or SBND', [...x.shape]);
  const D = x.shape[3]!;
  const divisor = mode === ACLNN_ROTARY_MODE.quarter ? 4 : 2;
  if (D === 0 || D % divisor !== 0) refuse('SHAPE', `${op}: x`, `a multiple of ${divisor} as D in mode ${mode}`, D);
  checkFloat(cos, `${op}: cos`, x.dtype);
  checkFloat(sin, `${op}: sin`, x.dtype);
  if (cos.rank !== 4 || cos.shape.some((size, d) => size !== x.shape[d] && (d === 3 || size !== 1))) {
    refuse('SHAPE', `${op}: cos`, `each dimension 1 or x's, of [${x.shape}], and the last one D=${D}`, [...cos.shape]);
  }
  checkDims(sin, `${op}: sin`, cos.shape);
  return withFresh(rw, x.dtype, x.shape, (out) => {
    // Quarter is two rotations side by side. Every call is checked before the first one runs.
    const width = mode === ACLNN_ROTARY_MODE.quarter ? D / 2 : D;
    const calls: RopeCall[] = [];
    for (let start = 0; start < D; start += width) {
      const part = (tensor: Tensor<D>): Tensor<D> => tensor.slice(3, start, start + width);
      const cosTable = firstOfPairs(part(cos), mode, `${op}: cos`);
      const sinTable = firstOfPairs(part(sin), mode, `${op}: sin`);
      for (const [xs, outs, cosines, sines] of tokenMajor(part(x), part(out), cosTable, sinTable)) {
        const [batch, seqLen] = xs.shape as [number, number];
        const [tableBatch, tableSeq] = cosines.shape as [number, number];
        const tableRows = Int32Array.from({ length: batch * seqLen }, (_item, token) => {
          const [b, s] = [Math.floor(token / seqLen), token % seqLen];
          return (tableBatch === 1 ? 0 : b) * tableSeq + (tableSeq === 1 ? 0 : s);
        });
        const table = tableFromTensors(cosines, sines, op);
        calls.push(bindRope(planRopeWithTable({ headDim: width, pairing, table, seqLen, batch, tableRows }), xs, outs));
      }
    }
    for (const call of calls) rw.run(call);
    return out;
  });
}

/**
 * Views everything as `[batch, seq, head, last]`. The head dimension is the one in which the tables are 1.
 * Where there is none, each slice of the first dimension is a call with one head.
 */
function tokenMajor<D extends Dtype>(
  ...tensors: [x: Tensor<D>, out: Tensor<D>, cos: Tensor<D>, sin: Tensor<D>]
): (typeof tensors)[] {
  const [x, , cos] = tensors;
  const move = (parts: typeof tensors, head: number): typeof tensors => {
    const order = [...[0, 1, 2].filter((d) => d !== head), head, 3];
    return parts.map((tensor) => tensor.permute(order)) as typeof tensors;
  };
  const shared = [2, 1, 0].find((d) => cos.shape[d] === 1);
  if (shared !== undefined) return [move(tensors, shared)];
  return Array.from({ length: x.shape[0]! }, (_item, b) =>
    move(tensors.map((tensor) => tensor.slice(0, b, b + 1)) as typeof tensors, 0),
  );
}

/**
 * Takes one column a pair out of a full-width table. A table whose two columns of a pair differ is not a rotation.
 * Interleave-half multiplies after moving the dimensions to halves, so its table is in halves too.
 */
function firstOfPairs<D extends Dtype>(table: Tensor<D>, mode: number, where: string): Tensor<D> {
  hostOf(table, where);
  const [d0, d1, d2, width] = table.shape as [number, number, number, number];
  const interleave = mode === ACLNN_ROTARY_MODE.interleave;
  const pairs = table.reshape([d0 * d1 * d2, ...(interleave ? [width / 2, 2] : [2, width / 2])]);
  const place = (k: number): Tensor<D> => pairs.slice(interleave ? 2 : 1, k, k + 1);
  const [first, second] = [place(0).readNumbers() as Float64Array, place(1).readNumbers() as Float64Array];
  // +0 and −0 give the same rotation.
  const differs = first.findIndex((a, i) => a !== second[i] && !(Number.isNaN(a) && Number.isNaN(second[i])));
  const got = [first[differs], second[differs]];
  const next = 'This table scales and shears; it is no rotation.';
  if (differs >= 0) refuse('UNSUPPORTED', where, 'the same value at both dimensions of a pair', got, next);
  return place(0).reshape([d0, d1, d2, width / 2]);
}
