/** Reads numbers in nested arrays, as they are written in code: `[[1, 2], [3, 4]]`. @module */
import { reading } from './arguments.js';
import { type ArrayOf, type Dtype, isFloat, isFloat8, newArray, storeNumber } from './dtypes.js';
import { fail, refuse } from './errors.js';

/** Numbers, or arrays of one length that hold them. */
export type NestedNumbers = readonly number[] | readonly NestedNumbers[];

/** The most numbers: more belong into a typed array, which takes a fifth of the memory. */
const MAX_NUMBERS = 2 ** 20;
const MAX_RANK = 32;

/**
 * Reads nested arrays.
 *
 * @param list - arrays of arrays of numbers; all arrays of one level have one length
 * @param dtype - a float is rounded once, to nearest even; an integer must be one that the dtype holds
 * @returns the elements in row-major order, and their shape
 * @throws {RopewalkError} SHAPE for arrays of several lengths, RANGE for what is no number or does not fit the dtype
 */
export function readNested<D extends Dtype>(
  list: NestedNumbers,
  dtype: D,
): { readonly data: ArrayOf[D]; readonly shape: readonly number[] } {
  const shape: number[] = [];
  const numbers: number[] = [];
  reading('tensor: data', () => {
    for (let first: unknown = list; Array.isArray(first); first = first[0]) {
      if (shape.length === MAX_RANK) fail('SHAPE', 'tensor: data', `arrays in more than ${MAX_RANK} arrays`);
      shape.push(first.length);
      if (first.length === 0) break;
    }
    collect(list, shape, 0, 'tensor: data', numbers);
  });
  const data = newArray(dtype, numbers.length);
  const float = isFloat(dtype) || isFloat8(dtype);
  for (const [n, value] of numbers.entries()) {
    if (float) storeNumber(data, dtype, n, value);
    else {
      data[n] = data instanceof BigInt64Array || data instanceof BigUint64Array ? toBigInt(value) : value;
      if (Number(data[n]) !== value) refuse('RANGE', `tensor: data, element ${n}`, `an integer of ${dtype}`, value);
    }
  }
  return { data, shape };
}

function toBigInt(value: number): bigint {
  return Number.isSafeInteger(value) ? BigInt(value) : 0n; // 0 differs from the value, which is therefore refused.
}

function collect(given: unknown, shape: readonly number[], depth: number, where: string, numbers: number[]): void {
  if (depth === shape.length) {
    if (typeof given !== 'number') refuse('RANGE', where, 'a number', given);
    if (numbers.push(given) > MAX_NUMBERS)
      fail('RANGE', 'tensor: data', `more than ${MAX_NUMBERS} numbers in arrays. Give a typed array.`);
    return;
  }
  const length = shape[depth]!;
  if (!Array.isArray(given) || given.length !== length)
    refuse('SHAPE', where, `an array of ${length}, as the first one of its level is`, given);
  for (let n = 0; n < length; n++) collect(given[n], shape, depth + 1, `${where}[${n}]`, numbers);
}
