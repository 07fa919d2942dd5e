/** The order of the rows of q and k weights under each pairing. @module */
import { refuse } from 'ropewalk/backend';
import { readName } from 'ropewalk/internal';

/** The two ways that the rows of q and k weights are laid out. */
export type WeightPairing = 'half' | 'interleaved';

/** Bounds forged counts before memory is taken. Rows of real heads are at most 576. */
const MAX_HEAD_ROWS = 2 ** 16;

/**
 * Lists, for each row of a head that rotates, the row that it comes from under the other pairing.
 *
 * @param rotaryDim - how many rows rotate, even
 * @param to - the new pairing; the rows have the other one
 * @returns `[rotaryDim]`: the old row of each new row
 * @throws {RopewalkError} RANGE for an odd or absurd size; UNSUPPORTED for another pairing
 */
export function permutedRows(rotaryDim: number, to: WeightPairing): Uint32Array {
  if (!Number.isInteger(rotaryDim) || rotaryDim < 2 || rotaryDim % 2 !== 0 || rotaryDim > MAX_HEAD_ROWS)
    refuse('RANGE', 'permute: rotary_dim', `an even integer in [2, ${MAX_HEAD_ROWS}]`, rotaryDim);
  readName(to, ['half', 'interleaved'], 'permute: to');
  const half = rotaryDim / 2;
  return Uint32Array.from({ length: rotaryDim }, (_item, row) => {
    if (to === 'interleaved') return row % 2 === 0 ? row / 2 : (row - 1) / 2 + half;
    return row < half ? 2 * row : 2 * (row - half) + 1;
  });
}
