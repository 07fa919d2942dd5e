/** The checks that every operator's plan shares, and the mark of a plan that has passed them. @module */
import { type CacheDtype, type Dtype, type FloatDtype, isFloat, isFloat8 } from '../core/dtypes.js';
import { fail, refuse } from '../core/errors.js';
import { checkTensor, overlapOf, selfOverlaps, type Tensor } from '../core/tensor.js';

/**
 * Marks a checked plan, as its field `checked`; a spread copy keeps it. Write the field in the plan's literal: adding
 * it afterwards, or naming the field with a symbol, costs a fifth of a microsecond.
 */
export const CHECKED: unique symbol = /* @__PURE__ */ Symbol('checked');

type AnyDtype<T> = T extends Tensor ? Tensor : T;

/** Freezes a plan. Its tensors are typed by the dtypes in P, because the caller has checked them. */
export function checkedPlan<P>(plan: { readonly checked: typeof CHECKED } & { [K in keyof P]: AnyDtype<P[K]> }): P {
  return Object.freeze(plan) as P;
}

/** Says whether a value is a plan: of an operator, or of RoPE. */
export function isPlan(plan: unknown): boolean {
  try {
    return typeof plan === 'object' && plan !== null && (plan as { checked?: unknown }).checked === CHECKED;
  } catch {
    return false; // This is a proxy that throws.
  }
}

/**
 * Checks that a tensor has a floating dtype, or exactly the dtype `same`.
 *
 * @throws {RopewalkError} DTYPE
 */
export function checkFloat(tensor: Tensor, where: string, same?: Dtype): asserts tensor is Tensor<FloatDtype> {
  checkTensor(tensor, where);
  if (!isFloat(tensor.dtype)) refuse('DTYPE', where, 'f64, f32, f16 or bf16', tensor.dtype);
  if (same !== undefined) checkDtype(tensor, where, same);
}

/**
 * The dtypes in which weights and KV caches may be stored beside activations of dtype D: D itself; beside f32 also f16
 * and bf16.
 */
export type StoredDtype<D extends FloatDtype> = D extends 'f32' ? 'f32' | 'f16' | 'bf16' : D;

/** The dtypes in which KV caches may be read beside queries of dtype D: as {@link StoredDtype}, or in 8 bits. */
export type StoredCacheDtype<D extends FloatDtype> = StoredDtype<D> | Exclude<CacheDtype, FloatDtype>;

/**
 * Checks the dtype of a weight or KV cache: that of the activations, or f16 or bf16 beside f32, which kernels convert
 * exactly as they read.
 *
 * @throws {RopewalkError} DTYPE
 */
export function checkStored(tensor: Tensor, where: string, beside: FloatDtype): asserts tensor is Tensor<FloatDtype> {
  checkFloat(tensor, where);
  if (tensor.dtype === beside) return;
  if (beside !== 'f32') checkDtype(tensor, where, beside);
  if (!isHalf(tensor.dtype)) refuse('DTYPE', where, 'dtype f32, f16 or bf16, as the activations are f32', tensor.dtype);
}

/**
 * Checks that a tensor has a dtype of KV caches: a floating one, or i8, f8_e4m3 or f8_e5m2.
 *
 * @throws {RopewalkError} DTYPE
 */
export function checkCache(tensor: Tensor, where: string): asserts tensor is Tensor<CacheDtype> {
  checkTensor(tensor, where);
  if (!isFloat(tensor.dtype) && !isEightBits(tensor.dtype))
    refuse('DTYPE', where, 'f64, f32, f16, bf16, i8, f8_e4m3 or f8_e5m2', tensor.dtype);
}

/** Says whether a dtype is one of the 8-bit ones of KV caches, which have scales. */
export function isEightBits(dtype: Dtype): dtype is Exclude<CacheDtype, FloatDtype> {
  return dtype === 'i8' || isFloat8(dtype);
}

/** Says whether a dtype is one of the two 16-bit floats. */
export function isHalf(dtype: Dtype): dtype is 'f16' | 'bf16' {
  return dtype === 'f16' || dtype === 'bf16';
}

/** Checks that a tensor has this dtype. @throws {RopewalkError} DTYPE */
export function checkDtype(tensor: Tensor, where: string, wanted: Dtype): void {
  checkTensor(tensor, where);
  if (tensor.dtype !== wanted) refuse('DTYPE', where, `dtype ${wanted}`, tensor.dtype);
}

/** Checks that a tensor has this shape. @throws {RopewalkError} SHAPE */
export function checkDims(tensor: Tensor, where: string, wanted: readonly number[]): void {
  checkTensor(tensor, where);
  const { shape } = tensor;
  let same = shape.length === wanted.length;
  for (let d = 0; same && d < shape.length; d++) same = shape[d] === wanted[d];
  if (!same) refuse('SHAPE', where, `shape [${wanted}]`, shape);
}

/**
 * Checks the state that an operator carries from call to call: dense, and f32, or f64 beside f64.
 *
 * @throws {RopewalkError} DTYPE or SHAPE
 */
export function checkState(state: Tensor, where: string, beside: FloatDtype): asserts state is Tensor<'f32' | 'f64'> {
  checkDtype(state, where, beside === 'f64' ? 'f64' : 'f32');
  if (!state.isContiguous())
    fail('SHAPE', where, `its strides are [${state.strides}], and a state is dense. Copy it with contiguous().`);
}

/** Checks that an output can be written: its elements are distinct. @throws {RopewalkError} ALIAS */
export function checkOutput(out: Tensor, where: string): void {
  if (!selfOverlaps(out)) return;
  const layout = `strides [${out.strides}] over [${out.shape}]`;
  const sentence = `two indices name the same element (${layout}), so it cannot be written. Give it distinct elements.`;
  fail('ALIAS', where, sentence);
}

/**
 * Checks that an output shares no memory with an input, except as exactly the same view where the operator works in
 * place.
 *
 * @param where - operator and argument of the output, for the message
 * @param name - name of the input, for the message
 * @param inPlace - whether `out` may be the same view as the input
 * @throws {RopewalkError} ALIAS
 */
export function checkApart(out: Tensor, where: string, name: string, input: Tensor, inPlace = false): void {
  const overlap = overlapOf(out, input);
  if (overlap === 'none' || (overlap === 'same' && inPlace)) return;
  const share = overlap === 'same' ? 'all' : 'some';
  const allowed = inPlace ? `, or exactly ${name} itself` : '';
  fail('ALIAS', where, `it shares ${share} of its memory with ${name}. Give it memory of its own${allowed}.`);
}

/** The names of an operator's tensors in messages, made once: joined in each call they would cost a small call a tenth. */
export const labelsOf = <const Names extends string>(op: string, ...names: Names[]): Readonly<Record<Names, string>> =>
  Object.fromEntries(names.map((name) => [name, `${op}: ${name}`])) as Record<Names, string>;

/**
 * Checks the tensors of an operator that computes element by element: one shape, one float dtype, and an output that
 * may be exactly an input. Errors come in the order SHAPE, DTYPE, ALIAS.
 *
 * @param labels - of `out`, and of each name
 * @throws {RopewalkError} SHAPE, DTYPE or ALIAS
 */
export function checkElementwise<Name extends string>(
  labels: Readonly<Record<Name | 'out', string>>,
  out: Tensor,
  name: Name,
  input: Tensor,
  secondName?: Name,
  second?: Tensor,
): void {
  checkTensor(input, labels[name]);
  if (secondName) checkDims(second!, labels[secondName], input.shape);
  checkDims(out, labels.out, input.shape);
  checkFloat(input, labels[name]);
  if (secondName) checkFloat(second!, labels[secondName], input.dtype);
  checkFloat(out, labels.out, input.dtype);
  checkOutput(out, labels.out);
  checkApart(out, labels.out, name, input, true);
  if (secondName) checkApart(out, labels.out, secondName, second!, true);
}
