/**
 * Values for the evaluation: dense tensors of float64 numbers that are rounded to their dtype.
 *
 * @module
 */
import { type Dtype, isFloat, roundTo, type Tensor } from 'ropewalk';
import { rowMajorStrides } from 'ropewalk/backend';
import { countElements, isFloat8 } from 'ropewalk/internal';
import { DTYPE_OF } from '../format/onnx.js';

/** The dtype of a value in a graph. */
export type ValueDtype = Dtype | 'bool';

/** A tensor of numbers. bool is 0 and 1; i64 is exact up to 2^53. */
export interface Value {
  readonly dtype: ValueDtype;
  readonly shape: readonly number[];
  readonly data: Float64Array;
}

/** The limit for all results of one evaluation: 2^27 numbers take 1 GiB. Tables of 2^20 positions × 64 fit. */
export const MAX_ELEMENTS = 2 ** 27;
/** The limit of numpy. A file with more dimensions is forged. */
export const MAX_RANK = 64;
const BOOL = 9;

export class CannotEvaluate extends Error {
  /** @param missing - the graph input that is missing, if that is the reason */
  constructor(
    message: string,
    readonly missing?: string,
  ) {
    super(message);
  }
}

/** Returns the dtype for a TensorProto.DataType; undefined for types that are not read. */
export function valueDtype(dataType: number): ValueDtype | undefined {
  return dataType === BOOL ? 'bool' : DTYPE_OF.get(dataType);
}

export function isIntegral(dtype: ValueDtype): boolean {
  return dtype === 'bool' || !(isFloat(dtype) || isFloat8(dtype));
}

export function fromTensor(tensor: Tensor): Value {
  return { dtype: tensor.dtype, shape: tensor.shape, data: tensor.readNumbers() as Float64Array };
}

export function vector(values: readonly number[]): Value {
  return { dtype: 'i64', shape: [values.length], data: Float64Array.from(values) };
}

/** Makes a value of a dtype. It rounds the numbers in place. */
export function rounded(dtype: ValueDtype, shape: readonly number[], data: Float64Array): Value {
  if (dtype !== 'bool' && dtype !== 'f64' && (isFloat(dtype) || isFloat8(dtype)))
    for (let n = 0; n < data.length; n++) data[n] = roundTo(dtype, data[n]!);
  return { dtype, shape, data };
}

export function castTo(x: Value, dtype: ValueDtype): Value {
  if (dtype === 'bool') return { ...x, dtype, data: x.data.map((value) => Number(value !== 0)) };
  return isFloat(dtype) || isFloat8(dtype)
    ? rounded(dtype, x.shape, x.data.slice())
    : { ...x, dtype, data: x.data.map(Math.trunc) };
}

/** Refuses forged and too large shapes. Dimensions of 0 count as 1, because outer and inner loops are separate. */
export function checkSizes(shape: readonly number[]): void {
  if (shape.length > MAX_RANK || !shape.every((dim) => Number.isSafeInteger(dim) && dim >= 0))
    throw new CannotEvaluate(`[${shape.slice(0, MAX_RANK)}] is no shape`);
  if (shape.reduce((product, dim) => product * Math.max(1, dim), 1) > MAX_ELEMENTS)
    throw new CannotEvaluate(`it takes more than ${MAX_ELEMENTS} numbers`);
}

/** Returns the shape to which shapes broadcast, or undefined if they do not fit. */
export function broadcastShape(shapes: readonly (readonly number[])[]): number[] | undefined {
  const rank = Math.max(0, ...shapes.map((shape) => shape.length));
  const result = new Array<number>(rank).fill(1);
  for (const shape of shapes)
    for (const [n, dim] of shape.entries()) {
      const axis = n + rank - shape.length;
      if (dim === 1) continue;
      if (result[axis] !== 1 && result[axis] !== dim) return undefined;
      result[axis] = dim;
    }
  return result;
}

/** Returns the strides that read a dense tensor as a shape to which it broadcasts. */
export function broadcastStrides(shape: readonly number[], to: readonly number[]): number[] {
  const strides = rowMajorStrides(shape);
  return to.map((_, axis) => {
    const own = axis - to.length + shape.length;
    return own < 0 || shape[own] === 1 ? 0 : strides[own]!;
  });
}

/** Reads elements by strides into a dense value. */
export function gather(x: Value, shape: readonly number[], strides: readonly number[], offset = 0): Value {
  const data = new Float64Array(countElements(shape));
  // Without dimensions of 1, an element takes two steps at most on average, for any rank.
  const axes = shape.flatMap((dim, axis) => (dim === 1 ? [] : [axis]));
  const [sizes, steps] = [axes.map((axis) => shape[axis]!), axes.map((axis) => strides[axis]!)];
  const index = new Array<number>(axes.length).fill(0);
  let at = offset;
  for (let n = 0; n < data.length; n++) {
    data[n] = x.data[at]!;
    for (let d = axes.length - 1; d >= 0; d--) {
      at += steps[d]!;
      if (++index[d]! < sizes[d]!) break;
      at -= steps[d]! * sizes[d]!;
      index[d] = 0;
    }
  }
  return { dtype: x.dtype, shape, data };
}

/** Returns the elements of a value in a shape to which it broadcasts. */
export function spreadTo(x: Value, shape: readonly number[]): Value {
  return gather(x, shape, broadcastStrides(x.shape, shape));
}
