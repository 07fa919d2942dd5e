/** aclnnRotaryPositionEmbedding: one tensor by tables of full width; and its gradients. @module */
import type { Runner, Tensor } from 'ropewalk';
import { checkDims, checkRunner, withFresh } from 'ropewalk/internal';
import {
  type AclnnFloat,
  bindByTables,
  checkAclnnFloat,
  checkBroadcast,
  inFour,
  type Tables,
  tableGradients,
} from './tables.js';

/**
 * `aclnnRotaryPositionEmbedding(x, cos, sin, mode, out)`: rotation by given tables.
 *
 * As in aclnn, the dimensions in which the tables are 1 give the layout: BSND has `[1, S, 1, D]` or `[B, S, 1, D]`,
 * BNSD `[1, 1, S, D]` or `[B, 1, S, D]`, SBND `[S, 1, 1, D]` or `[S, B, 1, D]`; a full table has x's shape. x of three
 * dimensions is TND, with tables `[T, 1, D]` or `[T, N, D]`.
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
  return rotated(rw, op, x, { cos, sin }, mode, 'forward');
}

/** The gradients of x, cos and sin; the last two only where x was given. */
export interface RotaryGradients<D extends AclnnFloat> {
  /** dy's shape. */
  readonly dxOut: Tensor<D>;
  /** The tables' shape. */
  readonly dcosOut: Tensor<D> | undefined;
  /** The tables' shape. */
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
 * @param dy - the gradient of the output: the shapes and dtypes of the forward call's x
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
  if (x !== undefined) {
    checkAclnnFloat(x, `${op}: xOptional`, [dy.dtype]);
    checkDims(x, `${op}: xOptional`, dy.shape);
  }
  const dxOut = rotated(rw, op, dy, { cos, sin }, mode, 'backward');
  if (x === undefined) return { dxOut, dcosOut: undefined, dsinOut: undefined };
  try {
    const parts = [{ dy: inFour(dy), x: inFour(x) }];
    const gradients = tableGradients(rw, op, parts, inFour(cos).shape, mode);
    const [dcosOut, dsinOut] = gradients.map((tensor) => tensor.view(cos.shape) as Tensor<D>) as [Tensor<D>, Tensor<D>];
    return { dxOut, dcosOut, dsinOut };
  } catch (error) {
    dxOut.dispose();
    throw error;
  }
}

function rotated<D extends AclnnFloat>(
  rw: Runner,
  op: string,
  x: Tensor<D>,
  { cos, sin }: Tables,
  mode: number,
  direction: 'forward' | 'backward',
): Tensor<D> {
  return withFresh(rw, x.dtype, x.shape, (out) => {
    const tables = { cos: inFour(cos), sin: inFour(sin) };
    // Every call is checked before the first one runs.
    for (const call of bindByTables(op, [{ x: inFour(x), out: inFour(out) }], tables, mode, direction)) rw.run(call);
    return out;
  });
}
