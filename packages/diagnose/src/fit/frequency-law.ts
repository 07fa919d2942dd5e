/** The rule behind frequencies: the line of their logarithms gives the base, deviations the scaling. @module */
import { UNIT_ROUNDOFF } from 'ropewalk/internal';

/** A measured frequency with its bounds; all >= 0. */
export interface Measured {
  /** The exponent's numerator: `base^(−2·exponent / denominator)`. */
  readonly exponent: number;
  readonly frequency: number;
  readonly low: number;
  readonly high: number;
}

/** How frequencies deviate from the straight line. */
export type FoundScaling =
  | { readonly kind: 'none' }
  | { readonly kind: 'linear'; readonly factor: number; readonly factorError: number }
  | {
      readonly kind: 'yarn';
      readonly factor: number;
      /** Relative error. */
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

/** The rule that was found. */
export interface FrequencyLaw {
  /** ln frequency falls by this from exponent to exponent: `2·ln base / denominator`. */
  readonly step: number;
  /** Standard error of `step`. */
  readonly stepError: number;
  /** How far `step` can be from the truth at most, also for frequencies computed in f32. */
  readonly stepBound: number;
  readonly scaling: FoundScaling;
  /** What the rule says for each measurement. */
  readonly fitted: Float64Array;
}

/** Relative errors of frequencies: exact; f32 by pow and a division; f32 by repeated products over 64 pairs. */
const DRIFTS = [0, 1e-6, 8e-6];

/** The simplest rule that fits all measurements; undefined where none does: free factors, or too few pairs. */
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

/** A law before its bound. */
type Fitted = Omit<FrequencyLaw, 'stepBound'>;

/**
 * Any two frequencies, or one and pair 0's, bound the step by their own errors; the best two are taken. A frequency in
 * f32, by powers or by repeated products, is off by up to 8 + 2j roundings.
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
  const line = straightLine(usable);
  if (!line) return undefined;
  const factor = Math.exp(-line.start);
  if (Math.abs(line.start) < 1e-5) return undefined; // an f32 base
  const fitted = Float64Array.from(measured, (m) => Math.exp(line.start - line.step * m.exponent));
  return {
    step: line.step,
    stepError: line.stepError,
    scaling: { kind: 'linear', factor, factorError: line.startError },
    fitted,
  };
}

/** Fast frequencies are kept, slow ones are divided, and between them each rule has its own straight line. */
interface Stepped {
  readonly step: number;
  readonly stepError: number;
  readonly factor: number;
  readonly factorError: number;
  /** The kept share, 0 to 1, of the frequencies between. */
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
  // With no slope to speak of, every frequency could be of the slow or of the fast ones.
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
  const fitted = Float64Array.from(measured, (m) => {
    const plain = Math.exp(-step * m.exponent);
    const keep = clamp01(line.start + line.slope * plain);
    return plain * ((1 - keep) / factor + keep);
  });
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
  const fitted = Float64Array.from(measured, (m) => {
    const plain = Math.exp(-step * m.exponent);
    const keep = 1 - clamp01((m.exponent - low) / (high - low));
    return plain * ((1 - keep) / factor + keep);
  });
  return { step, stepError, scaling: { kind: 'yarn', factor, factorError, ramp: [low, high], wholeEdges }, fitted };
}

function rampThrough(between: Stepped['between']): [number, number] | undefined {
  const line = leastSquares(between.map(({ m, keep, weight }) => ({ x: m.exponent, y: keep, weight })));
  if (!line || !(line.slope < 0)) return undefined;
  return [(1 - line.start) / line.slope, -line.start / line.slope];
}

/** A ramp between two neighbouring pairs. */
function rampBetween(usable: readonly Measured[], { step, factor }: Stepped): [number, number] | undefined {
  const first = usable.findIndex((m) => m.frequency * Math.exp(step * m.exponent) < 0.5 + 0.5 / factor);
  return first > 0 ? [usable[first - 1]!.exponent, usable[first]!.exponent] : undefined;
}

function inside({ low, high }: Measured, frequency: number, relative = 0): boolean {
  const slack = (1e-12 + relative) * high + 0.01 * (high - low);
  return frequency >= low - slack && frequency <= high + slack;
}

/** ln frequency = −step · exponent */
function throughOrigin(usable: readonly Measured[]): { step: number; stepError: number } | undefined {
  let [above, below] = [0, 0];
  for (const m of usable) {
    const weight = weightOf(m);
    above -= weight * m.exponent * Math.log(m.frequency);
    below += weight * m.exponent ** 2;
  }
  return below > 0 ? { step: above / below, stepError: 1 / Math.sqrt(below) } : undefined;
}

/** ln frequency = start − step · exponent */
function straightLine(
  usable: readonly Measured[],
): { start: number; startError: number; step: number; stepError: number } | undefined {
  const line = leastSquares(usable.map((m) => ({ x: m.exponent, y: Math.log(m.frequency), weight: weightOf(m) })));
  return line && { start: line.start, startError: line.startError, step: -line.slope, stepError: line.slopeError };
}

/** One over the square of the relative error. */
function weightOf({ frequency, low, high }: Measured): number {
  return (frequency / Math.max(high - low, 1e-15 * frequency)) ** 2;
}

function leastSquares(points: readonly { x: number; y: number; weight: number }[]) {
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
    startError: Math.sqrt(1 / w + mx ** 2 / sxx),
    slope,
    slopeError: 1 / Math.sqrt(sxx),
  };
}

function clamp01(x: number): number {
  return Math.min(1, Math.max(0, x));
}
