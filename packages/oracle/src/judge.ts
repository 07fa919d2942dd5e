/**
 * Compares outputs with the expected values, element by element. `ropewalk check` makes a verdict of the measurements
 * ({@link judgeClose}, {@link judgeOutput}), `ropewalk verify` a report (verify/judge.ts).
 *
 * @module
 */
import { type Dtype, type FloatDtype, type HostArray, isFloat } from 'ropewalk';
import { loadNumber, refuse } from 'ropewalk/backend';
import {
  bitsOf,
  checkFields,
  checkName,
  isDtype,
  readField,
  reading,
  readList,
  UNIT_ROUNDOFF,
} from 'ropewalk/internal';
import { numbersOf } from './host.js';
import type { CaseVerdict } from './runner.js';

/** The least number that rounds to infinity, half a unit past the largest one. In float64 it is infinity itself. */
export const OVERFLOW: Readonly<Record<FloatDtype, number>> = /* @__PURE__ */ Object.freeze({
  f64: Number.POSITIVE_INFINITY,
  f32: (2 - 2 ** -24) * 2 ** 127,
  f16: 65520,
  bf16: (2 - 2 ** -8) * 2 ** 127,
});

/** The most wrong elements that a {@link Comparison} lists. */
const FIRST_WRONG = 10;

/**
 * Says whether a value is accepted for an exact one: NaN for NaN, an infinity for the same infinity, otherwise a number
 * within the bound.
 *
 * @param got - the value
 * @param exact - the exact value, not rounded
 * @param bound - how far off it may be; a bound that is not finite counts as 0
 * @param dtype - the output's dtype, if known: a value that rounds past its largest number may be infinite
 */
export function within(got: number, exact: number, bound: number, dtype?: Dtype): boolean {
  if (got === exact) return true;
  if (typeof got !== 'number') return false;
  if (!Number.isFinite(exact)) return Number.isNaN(exact) && Number.isNaN(got);
  const limit = Number.isFinite(bound) ? bound : 0;
  if (Number.isFinite(got)) return Math.abs(got - exact) <= limit;
  // An infinity has to have the right sign, and the exact value or one within the bound has to round to it.
  if (dtype === undefined || !isFloat(dtype)) return false;
  return Math.sign(got) === Math.sign(exact) && Math.abs(exact) + limit >= OVERFLOW[dtype];
}

/** The measured differences between an output and the expected values. */
export interface Comparison {
  /** The numbers that were compared, row-major. */
  readonly got: ArrayLike<number>;
  readonly want: ArrayLike<number>;
  /** The number of elements outside their bound. */
  readonly wrong: number;
  /** The number of these that are NaN or infinite where a finite number is expected, or the other way round. */
  readonly nonFinite: number;
  /** The indices of the first ten wrong elements. */
  readonly first: readonly number[];
  /** The largest |got − want|, over the elements that are finite on both sides. */
  readonly maxAbs: number;
  /** The largest |got − want| / |want|, where want is not 0. */
  readonly maxRel: number;
  /** Σ(got − want)² / Σ want². */
  readonly nmse: number;
  /** The factor g for which g·want is nearest to the output; NaN where all of want is 0. */
  readonly gain: number;
  /** The largest |got − want| / bound: at most 1 when nothing is wrong. */
  readonly maxRatio: number;
  /** The index of the element with that ratio; −1 when every element is exact. */
  readonly worst: number;
}

/** Gets the error of each element, Infinity where the two cannot be subtracted, and the two numbers. */
export type ElementVisitor = (error: number, got: number, want: number) => void;

/** Compares element n with `bound(n)`, or with `isRight(n)`, which then decides instead. */
function compareElements(
  got: ArrayLike<number>,
  want: ArrayLike<number>,
  bound: Bound,
  { dtype, isRight, visit }: { dtype?: Dtype; isRight?: (n: number) => boolean; visit?: ElementVisitor },
): Comparison {
  const unit = powerOfTwoBelow(want); // See nmse.
  const first: number[] = [];
  let [wrong, nonFinite, worst] = [0, 0, -1];
  let [maxAbs, maxRel, maxRatio] = [0, 0, 0];
  let [squares, power, along] = [0, 0, 0];
  for (let n = 0; n < want.length; n++) {
    const [a, b, given] = [got[n]!, want[n]!, bound(n)];
    const limit = Number.isFinite(given) ? given : 0;
    const right = isRight ? isRight(n) : within(a, b, limit, dtype);
    let error = a === b || (Number.isNaN(a) && Number.isNaN(b)) ? 0 : Math.abs(a - b);
    // An allowed overflow is no error. Any other error that is not finite is infinite.
    if (!Number.isFinite(error)) error = right ? 0 : Number.POSITIVE_INFINITY;
    const share = error === 0 ? (right ? 0 : Number.POSITIVE_INFINITY) : error / limit;
    const ratio = Number.isNaN(share) ? Number.POSITIVE_INFINITY : share;
    if (!right) {
      wrong++;
      if (!Number.isFinite(error)) nonFinite++;
      if (first.length < FIRST_WRONG) first.push(n);
    }
    if (ratio > maxRatio) {
      maxRatio = ratio;
      worst = n;
    }
    if (Number.isFinite(error)) {
      maxAbs = Math.max(maxAbs, error);
      if (b !== 0) maxRel = Math.max(maxRel, error / Math.abs(b));
      if (Number.isFinite(a) && Number.isFinite(b)) {
        squares += (error / unit) ** 2;
        power += (b / unit) ** 2;
        along += (a / unit) * (b / unit);
      }
    }
    visit?.(error, a, b);
  }
  const [nmse, gain] = [squares === 0 ? 0 : squares / power, along / power];
  return { got, want, wrong, nonFinite, first, maxAbs, maxRel, nmse, gain, maxRatio, worst };
}

/** An expected output, and how far off each element may be. */
export interface ExpectedOutput {
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  /** The values in float64 where the operator computes, and in the output's dtype where it copies. */
  readonly values: HostArray;
  /** A bound for each element, finite and >= 0; undefined where the bits must be equal. */
  readonly bounds: Float64Array | undefined;
  /**
   * Elements for which anything that is not finite passes. Right kernels differ there: 0 · ∞ is NaN where f32 takes the
   * other factor for zero, and ∞ otherwise.
   */
  readonly unsettled: ReadonlySet<number>;
}

/** Compares an output with an expected one that has as many elements and the same dtype. */
export function compareOutput(
  got: HostArray,
  { dtype, values, bounds, unsettled }: ExpectedOutput,
  visit?: ElementVisitor,
): Comparison {
  const came = numbersOf(got, dtype);
  if (!bounds) {
    const [a, b] = [bitsOf(got), bitsOf(values)];
    return compareElements(came, numbersOf(values, dtype), () => 0, { isRight: (n) => a[n] === b[n], visit });
  }
  const exact = values as Float64Array;
  const wanted = (value: number, n: number) => (unsettled.has(n) && !Number.isFinite(came[n]) ? came[n]! : value);
  const want = unsettled.size === 0 ? exact : exact.map(wanted);
  return compareElements(came, want, (n) => bounds[n]!, { dtype, visit });
}

/** Judges an output by an expected one with the same dtype. */
export function judgeOutput(label: string, got: HostArray, expected: ExpectedOutput): CaseVerdict {
  const { bounds, values } = expected;
  if (!bounds) return judgeBits(label, got, values);
  if (got.length !== values.length) return otherLength(label, got, values);
  return verdictOf(label, compareOutput(got, expected), (n) => bounds[n]!);
}

/**
 * Computes the normalised mean squared error `Σ(got − want)² / Σ want²`, which test-backend-ops uses for RoPE. An
 * element that is NaN on both sides, or the same infinity, does not count.
 *
 * @param want - the expected output, with as many elements
 * @param dtype - the output's dtype, if known: a value that rounds past its largest number may be infinite
 * @returns 0 for equal outputs; NaN when an element is not finite on one side and not the same on the other
 * @throws {RopewalkError} SHAPE or DTYPE for anything but lists of numbers
 */
export function nmse(got: ArrayLike<number>, want: ArrayLike<number>, dtype?: FloatDtype): number {
  if (dtype !== undefined && !isFloat(dtype)) refuse('DTYPE', 'nmse: dtype', 'a floating dtype', dtype);
  [got, want] = [readNumbers(got, 'nmse: got'), readNumbers(want, 'nmse: want')];
  // Squares of huge numbers overflow, and those of tiny ones vanish. Dividing by a power of two loses no precision.
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

/** Returns the power of two at or just below the largest finite magnitude; 1 where all are 0. */
function powerOfTwoBelow(values: ArrayLike<number>): number {
  let largest = 0;
  for (let i = 0; i < values.length; i++)
    if (Number.isFinite(values[i]!)) largest = Math.max(largest, Math.abs(values[i]!));
  return largest === 0 ? 1 : 2 ** Math.min(1023, Math.floor(Math.log2(largest)));
}

/**
 * Judges by NMSE.
 *
 * @param op - the operator's name, printed as `[ROPE]`
 * @param limit - the largest NMSE that passes, a finite number >= 0
 * @param dtype - as for {@link nmse}
 * @throws {RopewalkError} RANGE for any other limit; SHAPE or DTYPE for anything but lists of numbers
 */
export function judgeNmse(
  op: string,
  got: ArrayLike<number>,
  want: ArrayLike<number>,
  limit: number,
  dtype?: FloatDtype,
): CaseVerdict {
  checkName(op, 'judge: op', 'the operator');
  checkLimit(limit, `${op}: limit`);
  const [a, b] = [readNumbers(got, `${op}: got`), readNumbers(want, `${op}: want`)];
  if (a.length !== b.length) return otherLength(op, a, b);
  const error = nmse(a, b, dtype);
  // `error > limit` would let NaN pass.
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
 * @param tolerance - absolute and relative, finite numbers >= 0; or a function that returns the bound of element i
 * @param dtype - as for `within`
 * @throws {RopewalkError} RANGE for any other tolerance; SHAPE or DTYPE for anything but lists of numbers
 */
export function judgeClose(
  op: string,
  got: ArrayLike<number>,
  want: ArrayLike<number>,
  tolerance: Tolerance | ((i: number) => number),
  dtype?: Dtype,
): CaseVerdict {
  checkName(op, 'judge: op', 'the operator');
  const [a, b] = [readNumbers(got, `${op}: got`), readNumbers(want, `${op}: want`)];
  const bound = boundOf(tolerance, b, `${op}: tolerance`);
  if (dtype !== undefined && !isDtype(dtype)) refuse('DTYPE', `${op}: dtype`, 'a dtype', dtype);
  if (a.length !== b.length) return otherLength(op, a, b);
  return verdictOf(op, compareElements(a, b, bound, { dtype }), bound);
}

/** Reads a caller's numbers: a typed array is taken as it is, any other list is copied. */
function readNumbers(given: ArrayLike<number>, where: string): ArrayLike<number> {
  const list = readList(given, where, 'a list of numbers');
  // All elements of a typed array have one type.
  const count = ArrayBuffer.isView(list) ? Math.min(1, (list as ArrayLike<number>).length) : list.length;
  for (let n = 0; n < count; n++)
    if (typeof list[n] !== 'number') refuse('DTYPE', `${where}[${n}]`, 'a number', list[n]);
  return list;
}

type Bound = (i: number) => number;

function boundOf(tolerance: Tolerance | Bound, want: ArrayLike<number>, where: string): Bound {
  if (typeof tolerance === 'function') return tolerance;
  checkFields(tolerance, { atol: true, rtol: true }, where);
  const atol = readField(tolerance, 'atol', where);
  const rtol = readField(tolerance, 'rtol', where);
  checkLimit(atol, `${where}.atol`);
  checkLimit(rtol, `${where}.rtol`);
  return (i) => atol + rtol * Math.abs(want[i]!);
}

function checkLimit(limit: number, where: string): void {
  if (!(Number.isFinite(limit) && limit >= 0)) refuse('RANGE', where, 'a finite number >= 0', limit);
}

function verdictOf(op: string, comparison: Comparison, bound: (n: number) => number): CaseVerdict {
  const { got, want, wrong, first, worst, maxAbs } = comparison;
  if (wrong === 0) return { status: 'ok', measure: `max error ${maxAbs.toExponential(1)}` };
  const at = first[0]!;
  const limit = Number.isFinite(want[at]) ? ` ± ${bound(at).toExponential(2)}` : '';
  const off = Math.abs(got[worst]! - want[worst]!);
  const detail =
    `[${op}] ${wrong} of ${want.length} outside tolerance; first at ${at}: got ${got[at]}, expected ${want[at]}${limit}; ` +
    `worst at ${worst}: off by ${Number.isFinite(off) ? off : Number.POSITIVE_INFINITY}`;
  return { status: 'fail', detail };
}

function otherLength(op: string, got: ArrayLike<unknown>, want: ArrayLike<unknown>): CaseVerdict {
  return { status: 'fail', detail: `[${op}] ${got.length} elements, expected ${want.length}` };
}

/**
 * Judges bit for bit: payloads of NaN, signs of zero, and the elements between strided rows count.
 *
 * @param want - the expected output, with the same element size
 * @param computed - the dtype, if the elements were computed and not copied: any NaN then passes for NaN
 * @throws {RopewalkError} RANGE for anything but typed arrays
 */
export function judgeBits(op: string, got: HostArray, want: HostArray, computed?: Dtype): CaseVerdict {
  checkName(op, 'judge: op', 'the operator');
  if (computed !== undefined && !isDtype(computed)) refuse('DTYPE', `${op}: computed`, 'a dtype', computed);
  const a = reading(`${op}: got`, () => bitsOf(got));
  const b = reading(`${op}: want`, () => bitsOf(want));
  if (a.BYTES_PER_ELEMENT !== b.BYTES_PER_ELEMENT || a.length !== b.length) {
    const size = (bits: typeof a): string => `${bits.length} × ${bits.BYTES_PER_ELEMENT}`;
    return { status: 'fail', detail: `[${op}] ${size(a)} bytes, expected ${size(b)}` };
  }
  let wrong = 0;
  let first = -1;
  for (let i = 0; i < a.length; i++) {
    if (a[i] === b[i]) continue;
    if (computed && Number.isNaN(loadNumber(got, computed, i)) && Number.isNaN(loadNumber(want, computed, i))) continue;
    wrong++;
    if (first < 0) first = i;
  }
  if (wrong === 0) return { status: 'ok', measure: 'equal to the bit' };
  const hex = (v: number | bigint): string => `0x${v.toString(16)}`;
  const values = `got ${hex(a[first]!)}, expected ${hex(b[first]!)}`;
  const detail = `[${op}] ${wrong} of ${a.length} elements differ in bits; first at ${first}: ${values}`;
  return { status: 'fail', detail };
}

/** Joins verdicts: the first that is not ok decides, otherwise all measures are listed. */
export function allOf(...verdicts: CaseVerdict[]): CaseVerdict {
  const bad = verdicts.find((v) => v.status !== 'ok');
  if (bad) return bad;
  return { status: 'ok', measure: verdicts.map((v) => (v.status === 'ok' ? v.measure : '')).join(', ') };
}
