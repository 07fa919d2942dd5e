/** Which frequencies are known: integer positions show each only up to whole turns. @module */
import type { PairFit } from '../measure/frequency-fit.js';
import type { Turns, TurnUnit } from '../measure/turns.js';
import { provenFamilies } from './frequency-families.js';
import { fitLaw, type Measured } from './frequency-law.js';

/** Frequencies with the whole turns added that a proof says. */
export interface Resolved {
  readonly fits: readonly PairFit[];
  /** Whether the number of whole turns of each pair is known. */
  readonly known: readonly boolean[];
  /** Formulas of the frequencies, where they are none of the usual ones; several when the data cannot tell. */
  readonly formulas: readonly string[];
}

/** RoPE's frequencies are at most about 1. */
const USUAL = 1.6;
/** So many pairs on the same side, all slow, are not there by chance. */
const MANY = 6;

/**
 * Decides which readings are known. Either every pair has one reading below half a turn a position and all go together,
 * or a family of frequencies gives every angle.
 *
 * @param positionOf - the position by which a unit is rotated
 */
export function resolveTurns(
  turns: Turns,
  positionOf: (unit: TurnUnit) => number,
  { fits, hint, headDim }: { fits: readonly PairFit[]; hint: ArrayLike<number> | undefined; headDim: number },
): Resolved {
  const plain = readPlainly(fits, hint);
  if (plain) return { fits, known: plain, formulas: [] };
  const families = provenFamilies(turns, positionOf, { fits, hint, headDim });
  if (families.length === 0) return { fits, known: fits.map(() => false), formulas: [] };
  const readings = families.map(({ frequency }) => fits.map((fit, j) => nearest(fit, frequency[j]!)));
  const all = families.flatMap(({ words }) => words ?? []);
  return {
    fits: readings[0]!,
    known: fits.map((_what, j) => readings.every((one) => Math.abs(one[j]!.slope - readings[0]![j]!.slope) < 1e-9)),
    formulas: all.length === families.length ? all : [],
  };
}

/** Undefined where the slowest readings do not prove themselves. */
function readPlainly(fits: readonly PairFit[], hint: ArrayLike<number> | undefined): boolean[] | undefined {
  const turning = fits.filter(({ low, high }) => low > 0 || high < 0);
  if (turning.length === 0) return fits.map(() => false);
  if (fits.some(({ period }) => period < 2 * Math.PI - 1e-9)) return undefined;
  const single = fits.map(({ others, against }) => others.length === 0 && against.length === 0);
  const clear = fits.flatMap((fit, j) => (single[j] && (fit.low > 0 || fit.high < 0) ? [{ fit, j }] : []));
  if (2 * clear.length < turning.length) return undefined;
  const sides = new Set(clear.map(({ fit }) => Math.sign(fit.slope)));
  const slow = clear.every(({ fit }) => Math.abs(fit.slope) < USUAL);
  if (sides.size === 1 && slow && clear.length >= MANY) return single;
  const kind = fitLaw(clear.map(({ fit, j }) => measuredOf(fit, j)))?.scaling.kind;
  const asExpected = hint && clear.every(({ fit, j }) => within(fit, hint[j] ?? 0) || within(fit, -(hint[j] ?? 0)));
  return slow && (asExpected || (kind === 'none' && clear.length > 2) || (kind === 'linear' && clear.length > 3))
    ? single
    : undefined;
}

function within({ low, high }: PairFit, frequency: number): boolean {
  const slack = 1e-5 * Math.abs(frequency);
  return frequency >= low - slack && frequency <= high + slack;
}

/** The reading of a pair that is nearest to a frequency, with its whole turns. */
function nearest(fit: PairFit, frequency: number): PairFit {
  const readings = [[fit.low, fit.high] as const, ...fit.others].map(([low, high], n) => {
    const middle = n === 0 ? fit.slope : (low + high) / 2;
    const added = fit.period * Math.round((frequency - middle) / fit.period);
    return { slope: middle + added, low: low + added, high: high + added };
  });
  const best = readings.reduce((a, b) => (Math.abs(b.slope - frequency) < Math.abs(a.slope - frequency) ? b : a));
  return { ...fit, ...best, others: [] };
}

/** A frequency without its sign. */
export function measuredOf(
  { slope, low, high }: { slope: number; low: number; high: number },
  exponent: number,
): Measured {
  return slope < 0
    ? { exponent, frequency: -slope, low: Math.max(0, -high), high: -low }
    : { exponent, frequency: slope, low: Math.max(0, low), high };
}
