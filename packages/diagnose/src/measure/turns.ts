/** The angle and gain of every pair: with a pair as a complex number, y = gain · e^(i·angle) · x. @module */
import { type Ellipse, type EllipsePoint, ellipseThrough } from './ellipse.js';
import type { Geometry, PairLayout } from './geometry.js';
import type { Sample, SampleToken } from './sample.js';

/** One token whose heads rotate alike, or one head of one token where they do not. */
export interface TurnUnit extends SampleToken {
  /** The head; undefined for a whole token. */
  readonly head: number | undefined;
}

export interface Turns {
  readonly units: readonly TurnUnit[];
  readonly pairs: number;
  /** `[unit, pair]`, radians in (−π, π]. */
  readonly angle: Float64Array;
  /** `[unit, pair]`, radians: how far noise may have moved the angle; Infinity for a pair that is 0. */
  readonly tolerance: Float64Array;
  /** `[unit, pair]` */
  readonly gain: Float64Array;
  /** Whether all heads of a token rotate by the same angle. */
  readonly headsAgree: boolean;
  /** Whether pairs are also mirrored, y = gain · e^(i·angle) · conj(x): one product has the wrong sign. */
  readonly mirrored: boolean;
}

/** Heads count as different when they differ by more than this many times the rounding error. */
const AGREE = 2;

/** Measures all pairs of a layout that were written. */
export function measureTurns(sample: Sample, layout: PairLayout, { lost }: Geometry): Turns {
  const all = sample.heads.map((_, h) => h);
  const together = [{ head: undefined, places: all }];
  const plain = measure(sample, layout, lost, together, false);
  if (plain.headsAgree || sample.heads.length < 2) return plain;
  const mirrored = measure(sample, layout, lost, together, true);
  if (mirrored.headsAgree) return mirrored;
  const one = all.map((h) => ({ head: sample.heads[h]!, places: [h] }));
  return { ...measure(sample, layout, lost, one, false), headsAgree: false };
}

/** Heads that are measured as one, by their places in the sample. */
interface HeadGroup {
  readonly head: number | undefined;
  readonly places: readonly number[];
}

function measure(
  sample: Sample,
  layout: PairLayout,
  lost: ReadonlySet<number>,
  groups: readonly HeadGroup[],
  mirrored: boolean,
): Turns {
  const units = sample.tokens.flatMap((token) => groups.map(({ head }) => ({ ...token, head })));
  const pairs = layout.pairs.length;
  const angle = new Float64Array(units.length * pairs);
  const tolerance = new Float64Array(units.length * pairs);
  const gain = new Float64Array(units.length * pairs);
  let headsAgree = true;
  for (const u of units.keys()) {
    const from = Math.floor(u / groups.length) * sample.heads.length;
    for (const [j, { read, write }] of layout.pairs.entries()) {
      const isLost = lost.has(write[0]) || lost.has(write[1]);
      const sums = groups[u % groups.length]!.places.map((h) =>
        isLost ? NOTHING : pairSum(sample, (from + h) * sample.headDim, read, write, mirrored),
      );
      const all = sums.reduce((a, b) => ({
        re: a.re + b.re,
        im: a.im + b.im,
        power: a.power + b.power,
        noise: a.noise + b.noise,
      }));
      const at = u * pairs + j;
      const length = Math.hypot(all.re, all.im);
      angle[at] = Math.atan2(all.im, all.re);
      gain[at] = all.power > 0 ? length / all.power : Number.NaN;
      tolerance[at] = all.power > 0 && length > all.noise ? Math.asin(all.noise / length) : Infinity;
      for (const one of sums) {
        // |y − z·x| of this head, against the noise of the head and of z.
        const off = Math.hypot(one.re - (all.re / all.power) * one.power, one.im - (all.im / all.power) * one.power);
        if (one.power > 0 && off > AGREE * (one.noise + (all.noise / all.power) * one.power)) headsAgree = false;
      }
    }
  }
  return { units, pairs, angle, tolerance, gain, headsAgree, mirrored };
}

/** Σ conj(x)·y (Σ x·y where mirrored), Σ |x|², and Σ |x| · noise. */
interface PairSum {
  readonly re: number;
  readonly im: number;
  readonly power: number;
  readonly noise: number;
}

const NOTHING: PairSum = { re: 0, im: 0, power: 0, noise: 0 };

function pairSum(
  { x, y, noise }: Sample,
  at: number,
  read: readonly [number, number],
  write: readonly [number, number],
  mirrored: boolean,
): PairSum {
  const x0 = x[at + read[0]]!;
  const x1 = (mirrored ? -1 : 1) * x[at + read[1]]!;
  const [y0, y1] = [y[at + write[0]]!, y[at + write[1]]!];
  if (!Number.isFinite(y0) || !Number.isFinite(y1)) return NOTHING;
  const length = Math.hypot(x0, x1);
  return {
    re: x0 * y0 + x1 * y1,
    im: x0 * y1 - x1 * y0,
    power: length * length,
    noise: length * Math.hypot(noise[at + write[0]]!, noise[at + write[1]]!),
  };
}

/** The gain that all pairs and tokens share, and its bounds; undefined where they do not share one. */
export function commonGain(turns: Turns): { gain: number; gainRange: [low: number, high: number] } | undefined {
  let [low, high] = [0, Infinity];
  for (let at = 0; at < turns.gain.length; at++) {
    const gain = turns.gain[at]!;
    const tolerance = turns.tolerance[at]!;
    if (!(tolerance < 1)) continue;
    low = Math.max(low, gain * (1 - 1.5 * tolerance));
    high = Math.min(high, gain * (1 + 1.5 * tolerance));
  }
  const mean = meanGain(turns, turns.gain.keys());
  if (!(low <= high) || Number.isNaN(mean)) return undefined;
  return { gain: low <= 1 && high >= 1 ? 1 : Math.min(high, Math.max(low, mean)), gainRange: [low, high] };
}

/**
 * Finds one factor of cos and another of sin for all pairs and tokens, and the angles without them; undefined where there
 * are none, or they are too vague.
 */
export function twoGains({
  angle,
  tolerance,
  gain,
}: Turns): { gains: Ellipse; turns: Pick<Turns, 'angle' | 'tolerance'> } | undefined {
  const points = [...angle.keys()].flatMap((at): EllipsePoint[] =>
    tolerance[at]! < 1
      ? [[gain[at]! * Math.cos(angle[at]!), gain[at]! * Math.sin(angle[at]!), gain[at]! * tolerance[at]!]]
      : [],
  );
  const gains = ellipseThrough(points);
  if (!gains || !(gains.error < 0.01)) return undefined;
  const { cos, sin } = gains;
  const apart = Math.max(cos, sin) / Math.min(cos, sin);
  return {
    gains,
    turns: {
      angle: angle.map((one) => Math.atan2(Math.sin(one) / sin, Math.cos(one) / cos)),
      tolerance: tolerance.map((one) => apart * one),
    },
  };
}

/** The mean gain of each pair; NaN for a pair that is 0. */
export function gainsOfPairs(turns: Turns): number[] {
  const { units, pairs } = turns;
  return Array.from({ length: pairs }, (_, j) =>
    meanGain(
      turns,
      units.map((_unit, u) => u * pairs + j),
    ),
  );
}

/** The mean gain at some places of {@link Turns}, weighted by how well each is known; NaN if none is. */
function meanGain({ gain, tolerance }: Turns, places: Iterable<number>): number {
  let [sum, weight] = [0, 0];
  for (const at of places) {
    if (!(tolerance[at]! < 1)) continue;
    const one = 1 / Math.max(tolerance[at]!, 1e-12) ** 2;
    sum += one * gain[at]!;
    weight += one;
  }
  return weight > 0 ? sum / weight : Number.NaN;
}
