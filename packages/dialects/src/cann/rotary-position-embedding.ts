/** aclnnRotaryPositionEmbedding rotates one tensor by tables of full width. Its gradients are here too. @module */
import type { Runner, Tensor } from 'ropewalk';
import { checkRunner, withFresh } from 'ropewalk/internal';
import { type AclnnFloat, checkBroadcast, checkLike, rotateByTables, tableGradients } from './tables.js';

/**
 * `aclnnRotaryPositionEmbedding(x, cos, sin, mode, out)`: rotates by the caller's tables.
 *
 * As in aclnn, the dimensions in which the tables are 1 give the layout: BSND has `[1, S, 1, D]` or `[B, S, 1, D]`,
 * BNSD `[1, 1, S, D]` or `[B, 1, S, D]`, SBND `[S, 1, 1, D]` or `[S, B, 1, D]`; a full table has x's shape. With three
 * dimensions x is TND, with tables `[T, 1, D]` or `[T, N, D]`.
 *
 * @param rw - runs the plans
 * @param x - three or four dimensions, the last one D; f32, f16 or bf16, any strides
 * @param cos - x's dtype, in host memory. Each pair's cosine is at both of its dimensions
 * @param sin - as cos
 * @param mode - one of {@link ACLNN_ROTARY_MODE}
 * @returns a fresh dense tensor of x's shape
 * @throws {RopewalkError} UNSUPPORTED when the two values of a pair differ, which is not a rotation; SHAPE, DTYPE or
 *   RANGE
 * @see hicann/ops-transformer@04193abe posembedding/rotary_position_embedding
 */
export function aclnnRotaryPositionEmbedding<D extends AclnnFloat>(
  rw: Runner,
  x: Tensor<D>,
  cos: Tensor<D>,
  sin: Tensor<D>,
  mode: number,
): Tensor<D> {
  const op = 'aclnnRotaryPositionEmbedding';
  checkRunner(rw, `${op}: rw`);
  checkBroadcast(op, 'x', x, { cos, sin }, mode);
  return withFresh(rw, x.dtype, x.shape, (out) => {
    rotateByTables(rw, op, [{ x, out }], { cos, sin }, mode);
    return out;
  });
}

/** The gradients of x, cos and sin. The last two are there only where the caller gave x. */
export interface RotaryGradients<D extends AclnnFloat> {
  /** It has dy's shape. */
  readonly dxOut: Tensor<D>;
  /** It has the tables' shape. */
  readonly dcosOut: Tensor<D> | undefined;
  /** It has the tables' shape. */
  readonly dsinOut: Tensor<D> | undefined;
}

/**
 * `aclnnRotaryPositionEmbeddingGrad(dy, cos, sin, xOptional, mode, dxOut, dcosOut, dsinOut)`: the gradients of
 * {@link aclnnRotaryPositionEmbedding}.
 *
 * dx is the rotation backwards. dcos and dsin are sums over the dimensions in which the tables are 1: products and sums
 * in f32 (float64 on the reference), rounded once to dy's dtype.
 *
 * @param rw - runs the plans
 * @param dy - the gradient of the output, with the shapes and dtypes of the forward call's x
 * @param cos - as in the forward call
 * @param sin - as cos
 * @param xOptional - the forward call's x; without it dcos and dsin are not computed
 * @param mode - one of {@link ACLNN_ROTARY_MODE}
 * @returns fresh dense tensors in dy's dtype
 * @throws {RopewalkError} as {@link aclnnRotaryPositionEmbedding}
 * @see hicann/ops-transformer@827a6040 posembedding/rotary_position_embedding_grad
 */
export function aclnnRotaryPositionEmbeddingGrad<D extends AclnnFloat>(
  rw: Runner,
  dy: Tensor<D>,
  cos: Tensor<D>,
  sin: Tensor<D>,
  xOptional: Tensor<D> | undefined | null,
  mode: number,
): RotaryGradients<D> {
  const op = 'aclnnRotaryPositionEmbeddingGrad';
  checkRunner(rw, `${op}: rw`);
  checkBroadcast(op, 'dy', dy, { cos, sin }, mode);
  const x = xOptional ?? undefined;
  if (x !== undefined) checkLike(x, `${op}: xOptional`, dy);
  return withFresh(rw, dy.dtype, dy.shape, (dxOut) => {
    rotateByTables(rw, op, [{ x: dy, out: dxOut }], { cos, sin }, mode, 'backward');
    if (x === undefined) return { dxOut, dcosOut: undefined, dsinOut: undefined };
    const [dcosOut, dsinOut] = tableGradients(rw, op, [{ dy, x }], cos, mode);
    return { dxOut, dcosOut, dsinOut };
  });
}
