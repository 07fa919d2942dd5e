/** The .npy files that options name. @module */
import { type NpyArray, parseNpy, tensorFromNpy } from '@ropewalk/formats';
import { readFileBytes } from '@ropewalk/formats/internal/node';
import type { Dtype, Tensor } from 'ropewalk';
import { refuse } from 'ropewalk/backend';

/** Node cannot read more at once. One layer's activations take less. */
const MAX_NPY_BYTES = 2 ** 31 - 1;

/**
 * Reads a .npy file.
 *
 * @param flag - the option that named it
 * @param u16 - the dtype of a u16 file: npy has no bf16, so that its bits are stored as u16
 */
export function readNpy(path: string, flag: string, u16?: 'bf16'): Tensor {
  const npy = parse(path, flag);
  return tensorFromNpy<Dtype>(npy, npy.dtype === 'u16' && u16 ? u16 : npy.dtype);
}

/**
 * Reads a .npy file of integers of any width.
 *
 * @param flag - the option that named it
 * @returns its shape, and its elements row by row
 * @throws {RopewalkError} DTYPE for another dtype
 */
export function readIntegers(path: string, flag: string): { shape: readonly number[]; values: readonly number[] } {
  const npy = parse(path, flag);
  // Booleans would be read as u8, so that a mask in place of ids would become the ids 0 and 1.
  const dtype = npy.descr.includes('b1') ? 'bool' : npy.dtype;
  if (!/^[iu]/.test(dtype)) refuse('DTYPE', `${flag}: ${path}`, 'integers', dtype);
  return { shape: npy.shape, values: Array.from(tensorFromNpy(npy).readNumbers() as Float64Array) };
}

function parse(path: string, flag: string): NpyArray {
  return parseNpy(readFileBytes(path, MAX_NPY_BYTES, `${flag}: ${path}`), path);
}
