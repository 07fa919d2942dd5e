/**
 * Comparing what came with what was expected.
 *
 * @module
 */
import { bitsOf, type HostArray } from '../core/dtypes.js';
import type { Verdict } from './case.js';

/**
 * Normalised mean squared error: `Σ(got − want)² / Σ want²`, the field's measure for RoPE (test-backend-ops).
 *
 * @param got - what came
 * @param want - what was expected, as many elements
 * @returns 0 for equal; NaN when either side holds one that the other does not
 */
export function nmse(got: ArrayLike<number>, want: ArrayLike<number>): number {
  let error = 0;
  let power = 0;
  for (let i = 0; i < want.length; i++) {
    const difference = got[i]! - want[i]!;
    error += difference * difference;
    power += want[i]! * want[i]!;
  }
  return error === 0 ? 0 : error / power;
}

/**
 * Judges by NMSE.
 *
 * @param op - the operator's name, printed as `[ROPE]`
 * @param got - what came
 * @param want - what was expected
 * @param limit - the largest NMSE that passes
 */
export function judgeNmse(op: string, got: ArrayLike<number>, want: ArrayLike<number>, limit: number): Verdict {
  if (got.length !== want.length) return { status: 'fail', detail: `[${op}] ${got.length} elements, expected ${want.length}` };
  const error = nmse(got, want);
  // Not `error > limit`: NaN must fail.
  if (!(error <= limit)) return { status: 'fail', detail: `[${op}] NMSE = ${error.toFixed(9)} > ${limit.toFixed(9)}` };
  return { status: 'ok', measure: `NMSE ${error.toExponential(1)}` };
}

/** An absolute and a relative tolerance: `|got − want| <= atol + rtol·|want|`. */
export interface Tolerance {
  readonly atol: number;
  readonly rtol: number;
}

/**
 * Judges element by element, as torch.allclose and numpy do.
 *
 * @param op - the operator's name
 * @param got - what came
 * @param want - what was expected
 * @param tolerance - absolute and relative; or a bound for each element
 * @param equalNan - whether NaN equals NaN
 */
export function judgeClose(
  op: string,
  got: ArrayLike<number>,
  want: ArrayLike<number>,
  tolerance: Tolerance | ((i: number) => number),
  equalNan = false,
): Verdict {
  if (got.length !== want.length) return { status: 'fail', detail: `[${op}] ${got.length} elements, expected ${want.length}` };
  const bound = typeof tolerance === 'function' ? tolerance : (i: number) => tolerance.atol + tolerance.rtol * Math.abs(want[i]!);
  let worst = 0;
  let worstAt = -1;
  let wrong = 0;
  let firstWrong = -1;
  for (let i = 0; i < want.length; i++) {
    if (got[i] === want[i] || (equalNan && Number.isNaN(got[i]) && Number.isNaN(want[i]))) continue; // infinities too
    const error = Math.abs(got[i]! - want[i]!);
    if (!(error <= bound(i))) {
      wrong++;
      if (firstWrong < 0) firstWrong = i;
    }
    if (error > worst || Number.isNaN(error)) {
      worst = error;
      worstAt = i;
    }
  }
  if (wrong > 0) {
    const detail =
      `[${op}] ${wrong} of ${want.length} outside tolerance; first at ${firstWrong}: got ${got[firstWrong]}, expected ${want[firstWrong]} ± ${bound(firstWrong).toExponential(2)}` +
      `; worst at ${worstAt}: off by ${worst}`;
    return { status: 'fail', detail };
  }
  return { status: 'ok', measure: `max error ${worst.toExponential(1)}` };
}

/**
 * Judges bit for bit: NaN payloads, signs of zero, and what lies between strided rows.
 *
 * @param op - the operator's name
 * @param got - what came
 * @param want - what was expected, same element size
 */
export function judgeBits(op: string, got: HostArray, want: HostArray): Verdict {
  const a = bitsOf(got);
  const b = bitsOf(want);
  if (a.length !== b.length || a.BYTES_PER_ELEMENT !== b.BYTES_PER_ELEMENT) {
    return { status: 'fail', detail: `[${op}] ${a.length} × ${a.BYTES_PER_ELEMENT} bytes, expected ${b.length} × ${b.BYTES_PER_ELEMENT}` };
  }
  let wrong = 0;
  let first = -1;
  for (let i = 0; i < a.length; i++) {
    if (a[i] === b[i]) continue;
    wrong++;
    if (first < 0) first = i;
  }
  if (wrong > 0) {
    const hex = (v: number | bigint): string => `0x${v.toString(16)}`;
    return {
      status: 'fail',
      detail: `[${op}] ${wrong} of ${a.length} elements differ in bits; first at ${first}: got ${hex(a[first]!)}, expected ${hex(b[first]!)}`,
    };
  }
  return { status: 'ok', measure: 'equal to the bit' };
}

/**
 * Joins verdicts: the first that is not OK decides; otherwise all measures are told.
 *
 * @param verdicts - at least one
 */
export function allOf(...verdicts: Verdict[]): Verdict {
  const bad = verdicts.find((v) => v.status !== 'ok');
  if (bad) return bad;
  return { status: 'ok', measure: verdicts.map((v) => (v.status === 'ok' ? v.measure : '')).join(', ') };
}
