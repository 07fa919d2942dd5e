/** aclnnInplacePartialRotaryMul rotates a slice of each head in place. Tables in f32 may go with f16 and bf16. @module */
import type { Runner, Tensor } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { checkDims, checkInteger, checkRunner, checkTensor, readList } from 'ropewalk/internal';
import { checkWritten } from '../calls.js';
import { ACLNN_ROTARY_MODE, type AclnnFloat, checkAclnnFloat, rotateByTables, type Tables } from './tables.js';

/**
 * `aclnnInplacePartialRotaryMul(xRef, cos, sin, rotary_mode, partialSlice)`: rotates dimensions `[start, end)` of each
 * head in place. The other dimensions stay as they are.
 *
 * @param rw - runs the plans
 * @param xRef - `[B, S, N, D]`, f32, f16 or bf16, any strides; rotated in place
 * @param cos - `[B, S, N, end − start]`, where each of the first three may be 1; xRef's dtype or f32, in host memory.
 *   Each pair's cosine is at both of its dimensions
 * @param sin - as cos
 * @param rotary_mode - 1 (interleave)
 * @param partialSlice - `[start, end]`; nothing rotates where both are the same. Default: all of D
 * @throws {RopewalkError} UNSUPPORTED, SHAPE, DTYPE, RANGE or ALIAS, naming the argument; nothing is written then
 * @see hicann/ops-transformer@116f7221 posembedding/inplace_partial_rotary_mul
 */
export function aclnnInplacePartialRotaryMul<D extends AclnnFloat>(
  rw: Runner,
  xRef: Tensor<D>,
  cos: Tensor<D | 'f32'>,
  sin: Tensor<D | 'f32'>,
  rotary_mode: number,
  partialSlice?: readonly number[] | null,
): void {
  rotateSlice(rw, 'aclnnInplacePartialRotaryMul', 'xRef', xRef, { cos, sin }, rotary_mode, partialSlice, 'forward');
}

/**
 * `aclnnInplacePartialRotaryMulGrad(dyRef, cos, sin, rotaryMode, partialSlice)`: turns a gradient back in place. There
 * are no gradients of cos and sin.
 *
 * @param rw - runs the plans
 * @param dyRef - the gradient of the output, with the shapes and dtypes of {@link aclnnInplacePartialRotaryMul}'s xRef;
 *   becomes that of the input
 * @param cos - as in the forward call
 * @param sin - as cos
 * @param rotaryMode - 1 (interleave)
 * @param partialSlice - as in the forward call
 * @throws {RopewalkError} as {@link aclnnInplacePartialRotaryMul}
 * @see hicann/ops-transformer@2b888cdb posembedding/inplace_partial_rotary_mul_grad
 */
export function aclnnInplacePartialRotaryMulGrad<D extends AclnnFloat>(
  rw: Runner,
  dyRef: Tensor<D>,
  cos: Tensor<D | 'f32'>,
  sin: Tensor<D | 'f32'>,
  rotaryMode: number,
  partialSlice?: readonly number[] | null,
): void {
  const op = 'aclnnInplacePartialRotaryMulGrad';
  rotateSlice(rw, op, 'dyRef', dyRef, { cos, sin }, rotaryMode, partialSlice, 'backward');
}

function rotateSlice(
  rw: Runner,
  op: string,
  name: 'xRef' | 'dyRef',
  x: Tensor,
  { cos, sin }: Tables,
  mode: number,
  partialSlice: readonly number[] | undefined | null,
  direction: 'forward' | 'backward',
): void {
  checkRunner(rw, `${op}: rw`);
  for (const [key, tensor] of Object.entries({ [name]: x, cos, sin })) checkTensor(tensor, `${op}: ${key}`);
  const modeName = name === 'xRef' ? 'rotary_mode' : 'rotaryMode';
  if (mode !== ACLNN_ROTARY_MODE.interleave) refuse('UNSUPPORTED', `${op}: ${modeName}`, '1 (interleave)', mode);
  checkAclnnFloat(x, `${op}: ${name}`);
  if (x.rank !== 4 || x.size === 0)
    refuse('SHAPE', `${op}: ${name}`, 'four dimensions, BSND, none of them 0', [...x.shape]);
  const D = x.shape[3]!;
  const [start, end] = readSlice(partialSlice ?? [0, D], D, `${op}: partialSlice`);
  checkAclnnFloat(cos, `${op}: cos`, x.dtype === 'f32' ? ['f32'] : [x.dtype, 'f32']);
  checkAclnnFloat(sin, `${op}: sin`, [cos.dtype]);
  const sizes = [...x.shape.slice(0, 3), end - start];
  if (cos.rank !== 4 || cos.shape.some((size, d) => size !== sizes[d] && (d === 3 || size !== 1)))
    refuse('SHAPE', `${op}: cos`, `each dimension 1 or that of [${sizes}], and the last one ${sizes[3]}`, [
      ...cos.shape,
    ]);
  checkDims(sin, `${op}: sin`, cos.shape);
  checkWritten(op, name, x, { cos, sin });
  if (start === end) return;
  const slice = x.slice(3, start, end);
  rotateByTables(rw, op, [{ x: slice, out: slice }], { cos, sin }, mode, direction);
}

function readSlice(given: readonly number[], D: number, where: string): [start: number, end: number] {
  const [start, end, ...more] = Array.from(readList(given, where, '[start, end]'));
  if (end === undefined || more.length > 0) refuse('SHAPE', where, '[start, end]', given);
  checkInteger(start, `${where}[0]`, 0);
  checkInteger(end, `${where}[1]`, start!, D, 'D');
  if ((end - start!) % 2 !== 0) refuse('RANGE', where, 'an even length', [start, end]);
  return [start!, end];
}
