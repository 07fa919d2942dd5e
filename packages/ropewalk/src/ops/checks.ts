/**
 * The checks that every operator's plan shares, and the mark of a plan that has passed them.
 *
 * @module
 */
import { type Dtype, type FloatDtype, isFloat } from '../core/dtypes.js';
import { refuse } from '../core/errors.js';
import { checkTensor, overlapOf, selfOverlaps, type Tensor } from '../core/tensor.js';

/**
 * Marks a plan that was checked, as its field `checked`; a spread copy of one keeps it. A plan's literal names the field: one that is added
 * afterwards, or whose name is a symbol, costs a fifth of a microsecond.
 */
export const CHECKED: unique symbol = /* @__PURE__ */ Symbol('checked');

/**
 * Freezes a plan whose every part has been checked.
 *
 * @param plan - the plan, with its mark
 */
export function checkedPlan<const T extends { readonly checked: typeof CHECKED }>(plan: T): Readonly<T> {
  return Object.freeze(plan);
}

/**
 * Says whether a value is a plan: of an operator, or of RoPE.
 *
 * @param plan - anything
 */
export function isPlan(plan: unknown): boolean {
  try {
    return typeof plan === 'object' && plan !== null && (plan as { checked?: unknown }).checked === CHECKED;
  } catch {
    return false; // a proxy that throws
  }
}

/**
 * Checks that a tensor has a floating dtype, and the same one as another where that is asked.
 *
 * @param tensor - what came
 * @param where - operator and argument
 * @param same - the dtype it must have
 * @throws {RopewalkError} DTYPE
 */
export function checkFloat(tensor: Tensor, where: string, same?: Dtype): asserts tensor is Tensor<FloatDtype> {
  checkTensor(tensor, where);
  if (!isFloat(tensor.dtype)) refuse('DTYPE', where, 'f64, f32, f16 or bf16', tensor.dtype);
  if (same !== undefined && tensor.dtype !== same) refuseDtype(tensor, where, same);
}

/** The dtypes that weights, or keys and values in a cache, may be stored in beside activations of dtype D: see `checkStored`. */
export type StoredDtype<D extends FloatDtype> = D extends 'f32' ? 'f32' | 'f16' | 'bf16' : D;

/**
 * Checks the dtype of a tensor that is kept in memory in its stored type: that of the activations, or f16 or bf16 beside f32. Those two widen to
 * f32 exactly, so a kernel widens them as they stream by; no other mix is taken.
 *
 * @param tensor - what came
 * @param where - operator and argument
 * @param beside - the dtype of the activations
 * @throws {RopewalkError} DTYPE
 */
export function checkStored(tensor: Tensor, where: string, beside: FloatDtype): asserts tensor is Tensor<FloatDtype> {
  checkFloat(tensor, where);
  if (tensor.dtype === beside) return;
  if (beside !== 'f32') checkDtype(tensor, where, beside);
  if (!isHalf(tensor.dtype)) refuse('DTYPE', where, 'dtype f32, f16 or bf16 beside f32', tensor.dtype);
}

/** Says whether a dtype is one of the two 16-bit floats. */
export function isHalf(dtype: Dtype): dtype is 'f16' | 'bf16' {
  return dtype === 'f16' || dtype === 'bf16';
}

/**
 * Checks a tensor's dtype.
 *
 * @throws {RopewalkError} DTYPE
 */
export function checkDtype(tensor: Tensor, where: string, wanted: Dtype): void {
  checkTensor(tensor, where);
  if (tensor.dtype !== wanted) refuseDtype(tensor, where, wanted);
}

function refuseDtype(tensor: Tensor, where: string, wanted: Dtype): never {
  refuse('DTYPE', where, `dtype ${wanted}`, tensor.dtype);
}

/**
 * Checks a tensor's shape.
 *
 * @throws {RopewalkError} SHAPE
 */
export function checkDims(tensor: Tensor, where: string, wanted: readonly number[]): void {
  checkTensor(tensor, where);
  const { shape } = tensor;
  let same = shape.length === wanted.length;
  for (let d = 0; same && d < shape.length; d++) same = shape[d] === wanted[d];
  if (!same) refuse('SHAPE', where, `shape [${wanted}]`, [...shape]);
}

/**
 * Checks that an output can be written: no two of its elements are one, and it shares no memory with an input,
 * except as exactly the same view where the operator can work in place.
 *
 * @param out - the output
 * @param where - operator and argument of the output
 * @param inputs - each input, its name, and whether `out` may be that same view
 * @throws {RopewalkError} ALIAS
 */
export function checkOutput(
  out: Tensor,
  where: string,
  inputs: readonly { tensor: Tensor; name: string; inPlace: boolean }[],
): void {
  if (selfOverlaps(out))
    refuse('ALIAS', where, 'a tensor whose elements are distinct', `strides [${out.strides}] over [${out.shape}]`);
  for (const { tensor, name, inPlace } of inputs) {
    const overlap = overlapOf(out, tensor);
    if (overlap === 'none' || (overlap === 'same' && inPlace)) continue;
    const allowed = inPlace ? `memory apart from ${name}, or exactly ${name} itself` : `memory apart from ${name}`;
    refuse(
      'ALIAS',
      where,
      allowed,
      overlap === 'same' ? `${name} itself` : `a view that overlaps it in part`,
      'Give out its own memory.',
    );
  }
}
