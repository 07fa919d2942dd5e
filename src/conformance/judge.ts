/**
 * Comparing what came with what was expected.
 *
 * @module
 */
import { readField } from '../core/arguments.js';
import { bitsOf, type Dtype, type FloatDtype, type HostArray, isFloat, loadNumber } from '../core/dtypes.js';
import { refuse } from '../core/errors.js';
import type { Verdict } from './runner.js';
import { UNIT_ROUNDOFF } from './tolerance.js';

/** Where rounding to a dtype begins to give infinity: half a unit past its largest number. In float64 the number itself is infinite by then. */
const OVERFLOW: Readonly<Record<FloatDtype, number>> = /* @__PURE__ */ Object.freeze({
  f64: Number.POSITIVE_INFINITY,
  f32: (2 - 2 ** -24) * 2 ** 127,
  f16: 65520,
  bf16: (2 - 2 ** -8) * 2 ** 127,
});

/**
 * Says whether a value may stand for an exact one: NaN for NaN, an infinity for the same infinity, else a number that is near enough.
 *
 * @param got - what came
 * @param exact - what should have come, unrounded
 * @param bound - how far off it may be; one that is not finite allows nothing
 * @param dtype - of the output, where it is known: what rounds past its largest number may be infinite
 */
export function within(got: number, exact: number, bound: number, dtype?: Dtype): boolean {
  if (got === exact) return true;
  if (!Number.isFinite(exact)) return Number.isNaN(exact) && Number.isNaN(got);
  const limit = Number.isFinite(bound) ? bound : 0;
  if (Number.isFinite(got)) return Math.abs(got - exact) <= limit;
  // An infinity of the right sign, where the exact value or one that is near enough rounds to it.
  return (
    dtype !== undefined &&
    isFloat(dtype) &&
    Math.sign(got) === Math.sign(exact) &&
    Math.abs(exact) + limit >= OVERFLOW[dtype]
  );
}

/**
 * Normalised mean squared error: `Σ(got − want)² / Σ want²`, the field's measure for RoPE (test-backend-ops). Elements that are alike and
 * not finite count for nothing: NaN and NaN, an infinity and the same one.
 *
 * @param got - what came
 * @param want - what was expected, as many elements
 * @param dtype - of `got`, where it is known: what rounds past its largest number may be infinite
 * @returns 0 for equal; NaN when one side of an element is not finite and the other is not alike
 */
export function nmse(got: ArrayLike<number>, want: ArrayLike<number>, dtype?: FloatDtype): number {
  // Squares of huge numbers overflow and those of tiny ones vanish; a power of two takes nothing from the others' precision.
  const unit = powerOfTwoBelow(want);
  let error = 0;
  let power = 0;
  for (let i = 0; i < want.length; i++) {
    const [a, b] = [got[i]!, want[i]!];
    if (!Number.isFinite(a) || !Number.isFinite(b)) {
      if (!within(a, b, dtype === undefined ? 0 : UNIT_ROUNDOFF[dtype] * Math.abs(b), dtype)) return Number.NaN;
      continue;
    }
    const [difference, size] = [(a - b) / unit, b / unit];
    error += difference * difference;
    power += size * size;
  }
  return error === 0 ? 0 : error / power;
}

/**
 * The power of two at or just below the largest finite magnitude; 1 where all are 0.
 *
 * @param values - any numbers
 */
export function powerOfTwoBelow(values: ArrayLike<number>): number {
  let largest = 0;
  for (let i = 0; i < values.length; i++)
    if (Number.isFinite(values[i]!)) largest = Math.max(largest, Math.abs(values[i]!));
  return largest === 0 ? 1 : 2 ** Math.min(1023, Math.floor(Math.log2(largest)));
}

/**
 * Judges by NMSE.
 *
 * @param op - the operator's name, printed as `[ROPE]`
 * @param got - what came
 * @param want - what was expected
 * @param limit - the largest NMSE that passes, a finite number >= 0
 * @param dtype - as for {@link nmse}
 * @throws {RopewalkError} RANGE for any other limit: one that is not finite decides nothing
 */
export function judgeNmse(
  op: string,
  got: ArrayLike<number>,
  want: ArrayLike<number>,
  limit: number,
  dtype?: FloatDtype,
): Verdict {
  checkLimit(limit, `${op}: limit`);
  if (got.length !== want.length)
    return { status: 'fail', detail: `[${op}] ${got.length} elements, expected ${want.length}` };
  const error = nmse(got, want, dtype);
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
 * Judges element by element, as numpy's allclose with equal_nan does.
 *
 * @param op - the operator's name
 * @param got - what came
 * @param want - what was expected
 * @param tolerance - absolute and relative, finite numbers >= 0; or a bound for each element
 * @param dtype - as for {@link within}
 * @throws {RopewalkError} RANGE for any other tolerance
 */
export function judgeClose(
  op: string,
  got: ArrayLike<number>,
  want: ArrayLike<number>,
  tolerance: Tolerance | ((i: number) => number),
  dtype?: Dtype,
): Verdict {
  const bound = boundOf(tolerance, want, `${op}: tolerance`);
  if (got.length !== want.length)
    return { status: 'fail', detail: `[${op}] ${got.length} elements, expected ${want.length}` };
  let worst = 0;
  let worstAt = -1;
  let wrong = 0;
  let firstWrong = -1;
  for (let i = 0; i < want.length; i++) {
    const good = within(got[i]!, want[i]!, bound(i), dtype);
    if (!good) {
      wrong++;
      if (firstWrong < 0) firstWrong = i;
    }
    const distance = Math.abs(got[i]! - want[i]!);
    // Not finite: alike, or as far off as can be.
    const error = Number.isFinite(distance) ? distance : good ? 0 : Number.POSITIVE_INFINITY;
    if (error > worst) {
      worst = error;
      worstAt = i;
    }
  }
  if (wrong > 0) {
    const expected = want[firstWrong]!;
    const detail =
      `[${op}] ${wrong} of ${want.length} outside tolerance; first at ${firstWrong}: got ${got[firstWrong]}, ` +
      `expected ${expected}${Number.isFinite(expected) ? ` ± ${bound(firstWrong).toExponential(2)}` : ''}; worst at ${worstAt}: off by ${worst}`;
    return { status: 'fail', detail };
  }
  return { status: 'ok', measure: `max error ${worst.toExponential(1)}` };
}

function boundOf(
  tolerance: Tolerance | ((i: number) => number),
  want: ArrayLike<number>,
  where: string,
): (i: number) => number {
  if (typeof tolerance === 'function') return tolerance;
  const atol = readField(tolerance, 'atol', where);
  const rtol = readField(tolerance, 'rtol', where);
  checkLimit(atol, `${where}.atol`);
  checkLimit(rtol, `${where}.rtol`);
  return (i) => atol + rtol * Math.abs(want[i]!);
}

function checkLimit(limit: number, where: string): void {
  if (!(Number.isFinite(limit) && limit >= 0)) refuse('RANGE', where, 'a finite number >= 0', limit);
}

/**
 * Judges bit for bit: NaN payloads, signs of zero, and what lies between strided rows.
 *
 * @param op - the operator's name
 * @param got - what came
 * @param want - what was expected, same element size
 * @param computed - the dtype of elements that were computed, not copied: a NaN among them has no payload of its own, and any passes for it
 */
export function judgeBits(op: string, got: HostArray, want: HostArray, computed?: Dtype): Verdict {
  const a = bitsOf(got);
  const b = bitsOf(want);
  if (a.length !== b.length || a.BYTES_PER_ELEMENT !== b.BYTES_PER_ELEMENT) {
    return {
      status: 'fail',
      detail: `[${op}] ${a.length} × ${a.BYTES_PER_ELEMENT} bytes, expected ${b.length} × ${b.BYTES_PER_ELEMENT}`,
    };
  }
  let wrong = 0;
  let first = -1;
  for (let i = 0; i < a.length; i++) {
    if (a[i] === b[i]) continue;
    if (computed && Number.isNaN(loadNumber(got, computed, i)) && Number.isNaN(loadNumber(want, computed, i))) continue;
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
