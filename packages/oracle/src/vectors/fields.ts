/**
 * Fields that several peers' manifests have.
 *
 * @module
 */
import { type Dtype, isDtype } from 'ropewalk';
import { type Fields, refuse } from 'ropewalk/backend';
import type { Tolerance } from '../judge.js';

/**
 * Reads a record's field `dtype`.
 *
 * @param f - a tensor's record
 * @throws {RopewalkError} FORMAT when it is missing or unknown
 */
export function readDtype(f: Fields): Dtype {
  const dtype = f.text('dtype');
  return isDtype(dtype) ? dtype : refuse('FORMAT', f.path('dtype'), 'a dtype such as f32, bf16 or i64', dtype);
}

/**
 * Reads a record's fields `atol` and `rtol`.
 *
 * @param f - a record of tolerances
 * @throws {RopewalkError} FORMAT when one is missing or no number
 */
export function readTolerance(f: Fields): Tolerance {
  return { atol: f.number('atol'), rtol: f.number('rtol') };
}
