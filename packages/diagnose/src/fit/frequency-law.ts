/**
 * The rule behind frequencies: the line of their logarithms gives the base, and deviations from it give the scaling.
 * @module
 */
import type { RopeAxes } from 'ropewalk';
import { UNIT_ROUNDOFF } from 'ropewalk/internal';
import type { PairFit } from '../measure/slope.js';
import { BASES } from '../read/expected.js';

/** A measured frequency with its bounds, all >= 0. */
export interface Measured {
  /** The exponent in `base^(−2·exponent / denominator)`. */
  readonly exponent: number;
  readonly frequency: number;
  readonly low: number;
  readonly high: number;
}

/** The scaling rule that frequencies follow, by their deviations from the straight line. */
export type FoundScaling =
  | { readonly kind: 'none' }
  | { readonly kind: 'linear'; readonly factor: number; readonly factorError: number }
  | {
      readonly kind: 'yarn';
      readonly factor: number;
      /** Relative. */
      readonly factorError: number;
      /** The pairs where the ramp starts and ends. */
      readonly ramp: readonly [number, number];
      /** Whether both edges are whole pairs, as truncation leaves them. */
      readonly wholeEdges: boolean;
    }
  | {
      readonly kind: 'llama3';
      readonly factor: number;
      readonly factorError: number;
      /** Wavelengths in tokens: slower pairs are divided, faster ones kept. */
      readonly divideFrom: number;
      readonly keepUpTo: number;
    };

/** The rule of some frequencies. */
export interface FrequencyLaw {
  /** The fall of ln frequency from exponent to exponent: `2·ln base / denominator`. */
  readonly step: number;
  /** The standard error of `step`. */
  readonly stepError: number;
  /** The largest error that `step` can have, also for frequencies that were computed in f32. */
  readonly stepBound: number;
  readonly scaling: FoundScaling;
  /** The frequency of each measurement by the rule. */
  readonly fitted: Float64Array;
}

/** The relative errors of frequencies: exact, f32 by pow and a division, f32 by repeated products over 64 pairs. */
const DRIFTS = [0, 1e-6, 8e-6];

/** Finds the simplest rule that fits all measurements; undefined for free factors, or too few pairs. */
export function fitLaw(measured: readonly Measured[]): FrequencyLaw | undefined {
  for (const drift of DRIFTS) {
    const wide = measured.map((m) => ({ ...m, low: m.low * (1 - drift), high: m.high * (1 + drift) }));
    const usable = wide.filter(({ frequency, low }) => frequency > 0 && low > 0);
    if (usable.length < 2) return undefined;
    for (const fit of [fitPlain, fitLinear, fitLlama3, fitYarn]) {
      const law = fit(wide, usable);
      if (law && runsThrough(law, wide)) return { ...law, stepBound: boundOf(law, usable) };
    }
  }
  return undefined;
}

type Fitted = Omit<FrequencyLaw, 'stepBound'>;

/**
 * The bound of a step. Any two frequencies, or one and that of pair 0, bound the step by their errors; the best two are
 * taken. A frequency in f32, by powers or by repeated products, is off by up to 8 + 2j roundings.
 */
function boundOf({ step, scaling }: Fitted, usable: readonly Measured[]): number {
  const straight = usable.filter(
    (m) =>
      scaling.kind === 'none' ||
      scaling.kind === 'linear' ||
      Math.abs(m.frequency * Math.exp(step * m.exponent) - 1) < 1e-3,
  );
  const start = scaling.kind === 'linear' ? -Math.log(scaling.factor) : 0;
  const widths = straight.map((m) => {
    const line = start - step * m.exponent;
    const f32 = (8 + 2 * m.exponent) * UNIT_ROUNDOFF.f32;
    return Math.max(Math.log(m.high) - line, line - Math.log(m.low), 0) + f32;
  });
  let bound = Infinity;
  for (const [a, m] of straight.entries()) {
    if (scaling.kind !== 'linear' && m.exponent > 0) bound = Math.min(bound, widths[a]! / m.exponent);
    for (let b = 0; b < a; b++) {
      const apart = Math.abs(m.exponent - straight[b]!.exponent);
      if (apart > 0) bound = Math.min(bound, (widths[a]! + widths[b]!) / apart);
    }
  }
  return bound;
}

function runsThrough({ fitted, step, stepError }: Fitted, measured: readonly Measured[]): boolean {
  return measured.every((m, n) => inside(m, fitted[n]!, 2 * stepError * (m.exponent + 1 / step)));
}

function fitPlain(measured: readonly Measured[], usable: readonly Measured[]): Fitted | undefined {
  const line = throughOrigin(usable);
  return (
    line && {
      ...line,
      scaling: { kind: 'none' },
      fitted: Float64Array.from(measured, (m) => Math.exp(-line.step * m.exponent)),
    }
  );
}

function fitLinear(measured: readonly Measured[], usable: readonly Measured[]): Fitted | undefined {
  const line = leastSquares(usable.map((m) => ({ x: m.exponent, y: Math.log(m.frequency), weight: weightOf(m) })));
  if (!line || Math.abs(line.start) < 1e-5) return undefined; // an f32 base
  return {
    step: -line.slope,
    stepError: line.slopeError,
    scaling: { kind: 'linear', factor: Math.exp(-line.start), factorError: line.errorAt(0) },
    fitted: Float64Array.from(measured, (m) => Math.exp(line.start + line.slope * m.exponent)),
  };
}

/** A step between fast frequencies, which are kept, and slow ones, which are divided. Rules differ between the two. */
interface Stepped {
  readonly step: number;
  readonly stepError: number;
  readonly factor: number;
  readonly factorError: number;
  /** The kept share, 0 to 1, of the frequencies between the two. */
  readonly between: readonly { readonly m: Measured; readonly keep: number; readonly weight: number }[];
}

function findStep(usable: readonly Measured[]): Stepped | undefined {
  // The longest leading run on a line through frequency 1 at exponent 0.
  let lead = 0;
  let line: { step: number; stepError: number } | undefined;
  for (let n = 2; n <= usable.length; n++) {
    const tried = throughOrigin(usable.slice(0, n));
    if (!tried || !usable.slice(0, n).every((m) => inside(m, Math.exp(-tried.step * m.exponent)))) break;
    [lead, line] = [n, tried];
  }
  // Without a slope, every frequency could be a slow or a fast one.
  if (!line || lead === usable.length || line.step < 1e-3) return undefined;
  const { step, stepError } = line;
  // The remaining share of each frequency, with bounds.
  const left = usable.map((m): [low: number, high: number] => {
    const times = Math.exp(step * m.exponent);
    const slack = 2 * stepError * m.exponent + 1e-12;
    return [m.low * times * (1 - slack), m.high * times * (1 + slack)];
  });
  // The slow pairs share one divisor: the longest trailing run whose bounds meet.
  let tail = usable.length;
  let [low, high] = [0, Infinity];
  while (tail > lead && Math.max(low, left[tail - 1]![0]) <= Math.min(high, left[tail - 1]![1])) {
    tail--;
    [low, high] = [Math.max(low, left[tail]![0]), Math.min(high, left[tail]![1])];
  }
  const divided = (low + high) / 2;
  if (!(divided < 0.99)) return undefined; // noise can look like a small step
  const between = usable.slice(lead, tail).map((m, n) => {
    const [from, to] = left[lead + n]!;
    const width = (to - from + (high - low)) / (1 - divided);
    return { m, keep: ((from + to) / 2 - divided) / (1 - divided), weight: 1 / width ** 2 };
  });
  // The neighbours of these may be on the ramp by less than their bounds, so they are not used.
  return { ...line, factor: 1 / divided, factorError: (high - low) / divided, between };
}

function fitLlama3(measured: readonly Measured[], usable: readonly Measured[]): Fitted | undefined {
  const found = findStep(usable);
  if (!found || found.between.length < 2) return undefined;
  const { step, stepError, factor, factorError, between } = found;
  // keep = (frequency · original / 2π − low) / (high − low): a line over the unscaled frequency.
  const line = leastSquares(
    between.map(({ m, keep, weight }) => ({ x: Math.exp(-step * m.exponent), y: keep, weight })),
  );
  if (!line || !(line.slope > 0) || !(line.start < 0)) return undefined;
  const divideFrom = 2 * Math.PI * (line.slope / -line.start);
  const keepUpTo = 2 * Math.PI * (line.slope / (1 - line.start));
  const fitted = mixed(measured, found, (_, plain) => line.start + line.slope * plain);
  return { step, stepError, scaling: { kind: 'llama3', factor, factorError, divideFrom, keepUpTo }, fitted };
}

function fitYarn(measured: readonly Measured[], usable: readonly Measured[]): Fitted | undefined {
  const found = findStep(usable);
  if (!found) return undefined;
  const { step, stepError, factor, factorError, between } = found;
  const edges = between.length >= 2 ? rampThrough(between) : undefined;
  const ramp = edges ?? rampBetween(usable, found);
  if (!ramp || !(ramp[1] > ramp[0])) return undefined;
  const whole = ramp.map((edge) => Math.round(edge)) as [number, number];
  const wholeEdges = Math.abs(whole[0] - ramp[0]) < 0.02 && Math.abs(whole[1] - ramp[1]) < 0.02;
  const [low, high] = wholeEdges ? whole : ramp;
  const fitted = mixed(measured, found, ({ exponent }) => 1 - (exponent - low) / (high - low));
  return { step, stepError, scaling: { kind: 'yarn', factor, factorError, ramp: [low, high], wholeEdges }, fitted };
}

/** The frequencies of which a share is kept and the rest is divided. */
function mixed(
  measured: readonly Measured[],
  { step, factor }: Stepped,
  keepOf: (m: Measured, plain: number) => number,
): Float64Array {
  return Float64Array.from(measured, (m) => {
    const plain = Math.exp(-step * m.exponent);
    const keep = Math.min(1, Math.max(0, keepOf(m, plain)));
    return plain * ((1 - keep) / factor + keep);
  });
}

function rampThrough(between: Stepped['between']): [number, number] | undefined {
  const line = leastSquares(between.map(({ m, keep, weight }) => ({ x: m.exponent, y: keep, weight })));
  if (!line || !(line.slope < 0)) return undefined;
  return [(1 - line.start) / line.slope, -line.start / line.slope];
}

/** The ramp that lies between two neighbouring pairs. */
function rampBetween(usable: readonly Measured[], { step, factor }: Stepped): [number, number] | undefined {
  const first = usable.findIndex((m) => m.frequency * Math.exp(step * m.exponent) < 0.5 + 0.5 / factor);
  return first > 0 ? [usable[first - 1]!.exponent, usable[first]!.exponent] : undefined;
}

function inside({ low, high }: Measured, frequency: number, relative = 0): boolean {
  const slack = (1e-12 + relative) * high + 0.01 * (high - low);
  return frequency >= low - slack && frequency <= high + slack;
}

/** Fits ln frequency = −step · exponent. */
function throughOrigin(usable: readonly Measured[]): { step: number; stepError: number } | undefined {
  let [above, below] = [0, 0];
  for (const m of usable) {
    const weight = weightOf(m);
    above -= weight * m.exponent * Math.log(m.frequency);
    below += weight * m.exponent ** 2;
  }
  return below > 0 ? { step: above / below, stepError: 1 / Math.sqrt(below) } : undefined;
}

function weightOf({ frequency, low, high }: Measured): number {
  return (frequency / Math.max(high - low, 1e-15 * frequency)) ** 2;
}

/** The line through weighted points; undefined if they are all at one x. */
export function leastSquares(points: readonly { x: number; y: number; weight: number }[]) {
  let [w, wx, wy] = [0, 0, 0];
  for (const { x, y, weight } of points) {
    w += weight;
    wx += weight * x;
    wy += weight * y;
  }
  const [mx, my] = [wx / w, wy / w];
  let [sxx, sxy] = [0, 0];
  for (const { x, y, weight } of points) {
    sxx += weight * (x - mx) ** 2;
    sxy += weight * (x - mx) * (y - my);
  }
  if (!(sxx > 0)) return undefined;
  const slope = sxy / sxx;
  return {
    start: my - slope * mx,
    slope,
    slopeError: 1 / Math.sqrt(sxx),
    at: (x: number): number => my + slope * (x - mx),
    errorAt: (x: number): number => Math.sqrt(1 / w + (x - mx) ** 2 / sxx),
  };
}

/** A base, by one reading of the exponent. */
export interface FoundBase {
  readonly base: number;
  /** The largest relative error that the base can have. */
  readonly error: number;
  /** The exponent's denominator for which this base holds: only `base^(1/denominator)` can be measured. */
  readonly denominator: number;
  /** Whether it is a round number within its error. */
  readonly round: boolean;
}

/** The base of a law for each possible denominator, round ones first. */
export function basesOf(law: FrequencyLaw, denominators: readonly number[]): FoundBase[] {
  const list = [...new Set(denominators)].map((denominator): FoundBase => {
    const measured = Math.exp((law.step * denominator) / 2);
    const near = roundNear(measured, (law.stepError * denominator) / 2);
    const base = near ?? measured;
    const error = Math.expm1((law.stepBound * denominator) / 2) + Math.abs(measured / base - 1);
    return { base, error, denominator, round: near !== undefined };
  });
  return list.sort((a, b) => Number(b.round) - Number(a.round));
}

/** The usual denominators. If none of them gives the base of a model, those that give one come first. */
export function usualDenominators(law: FrequencyLaw, usual: readonly number[], headDim: number): number[] {
  const known = basesOf(law, usual).some(({ base }) => BASES.includes(base));
  if (known || !(law.stepBound < 1e-4 * law.step)) return [...usual];
  const more = [10000, 500000, 1000000].flatMap((base) => {
    const exact = (2 * Math.log(base)) / law.step;
    const even = 2 * Math.round(exact / 2);
    const near = Math.abs(even - exact) <= (2 * law.stepBound * exact) / law.step;
    return near && even >= 2 && even <= 2 * headDim ? [even] : [];
  });
  return [...more, ...usual];
}

/** The round number within the relative error of a measurement, of at most five digits, or two if it is uncertain. */
function roundNear(value: number, error: number): number | undefined {
  // Numbers of two digits are 1 % to 10 % apart: a coarser measurement would always find one.
  if (!(value > 0) || !(error < 2e-3)) return undefined;
  for (const digits of error < 1e-5 ? [1, 2, 3, 4, 5] : error < 1e-4 ? [1, 2, 3] : [1, 2]) {
    const near = Number(value.toPrecision(digits));
    if (Math.abs(value / near - 1) <= Math.max(2 * error, 1e-9)) return near;
  }
  return undefined;
}

/** Beyond this relative error of a factor, several rules give the frequencies. */
const SHARP = 2e-3;

/** Whether the parameters of a scaling are known. If not, several laws fit. */
export function isSharp(found: FoundScaling): boolean {
  return found.kind === 'none' || found.factorError < SHARP;
}

/** A factor as it is usually written: round, or one over a round number. */
export function asWritten(factor: number, error: number): number {
  const inverse = roundNear(1 / factor, error);
  return roundNear(factor, error) ?? (inverse === undefined ? factor : 1 / inverse);
}

/** Frequencies and their errors, by the rule that fits them all if there is one, because that is sharper. */
export function sharpened(fits: readonly PairFit[]): { frequency: number[]; error: number[] } {
  const frequency = fits.map(({ slope }) => slope);
  const error = fits.map(({ low, high }) => (high - low) / 2);
  const turning = [...fits.keys()].filter((j) => fits[j]!.low > 0 || fits[j]!.high < 0);
  const law = fitLaw(turning.map((j) => measuredOf(fits[j]!, j)));
  if (law?.scaling.kind !== 'none' && law?.scaling.kind !== 'linear') return { frequency, error };
  // A round base over the pairs that are there is taken as exact, and so is a round factor.
  const base = basesOf(law, [2 * fits.length])[0]!;
  const step = base.round ? (2 * Math.log(base.base)) / base.denominator : law.step;
  const { factor, factorError } = law.scaling.kind === 'linear' ? law.scaling : { factor: 1, factorError: 0 };
  const written = asWritten(factor, factorError);
  const inexact = written === factor ? factorError : 0;
  for (const j of turning) {
    const { slope, low, high } = fits[j]!;
    const value = (Math.exp(-step * j) / written) * Math.sign(slope);
    if (value < low || value > high) continue;
    frequency[j] = value;
    error[j] = Math.min(error[j]!, ((base.round ? 0 : law.stepError * j) + inexact) * Math.abs(value));
  }
  return { frequency, error };
}

/** The rule of the pairs whose frequency is known, and whether the exponent restarts at each section of the axes. */
export function lawOfPairs(
  pairs: readonly { turns: boolean; known: boolean; frequency: number; low: number; high: number }[],
  axes: readonly RopeAxes[],
): { law: FrequencyLaw | undefined; restarts: boolean } {
  const turning = [...pairs.keys()].filter((j) => pairs[j]!.turns && pairs[j]!.known);
  const fit = (exponentOf: (j: number) => number): FrequencyLaw | undefined =>
    fitLaw(turning.map((j) => measuredOf({ ...pairs[j]!, slope: pairs[j]!.frequency }, exponentOf(j))));
  const law = fit((j) => j);
  const vision = axes.find(({ rule }) => rule === 'vision');
  if (law || !vision) return { law, restarts: false };
  // A kernel that rotates by one axis only may restart all the same.
  const half = pairs.length / 2;
  for (const sections of [vision.sections, [half, half]]) {
    const exponents = sections.flatMap((count) => Array.from({ length: Math.ceil(count) }, (_, e) => e));
    const restarted = fit((j) => exponents[j % exponents.length]!);
    if (restarted) return { law: restarted, restarts: true };
  }
  return { law: undefined, restarts: false };
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
