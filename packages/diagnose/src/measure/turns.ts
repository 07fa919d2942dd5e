/** The angle and gain of every pair: with a pair as a complex number, y = gain · e^(i·angle) · x. @module */
import type { Geometry, PairLayout } from './geometry.js';
import type { Sample, SampleToken } from './sample.js';

/** One token whose heads rotate alike, or one head of one token where they do not. */
export interface TurnUnit extends SampleToken {
  /** Undefined for a whole token. */
  readonly head: number | undefined;
}

/** Angles and gains. */
export interface Turns {
  readonly units: readonly TurnUnit[];
  readonly pairs: number;
  /** `[unit, pair]`, radians in (−π, π]. */
  readonly angle: Float64Array;
  /** `[unit, pair]`, radians: how far noise may have moved the angle; Infinity where the pair is 0. */
  readonly tolerance: Float64Array;
  /** `[unit, pair]` */
  readonly gain: Float64Array;
  /** Whether all heads of a token rotate by the same angle. */
  readonly headsAgree: boolean;
  /** Whether pairs are also mirrored: y = gain · e^(i·angle) · conj(x). One product has the wrong sign. */
  readonly mirrored: boolean;
}

/** Heads count as different when they differ by more than this many times the rounding error. */
const AGREE = 2;

interface Measuring {
  readonly sample: Sample;
  readonly layout: PairLayout;
  /** Dimensions of y that hold nothing. */
  readonly lost: ReadonlySet<number>;
}

/** Measures all pairs of a layout, but those that were not written. */
export function measureTurns(sample: Sample, layout: PairLayout, dims: Geometry['dims']): Turns {
  const lost = new Set(dims.flatMap((kind, i) => (kind === 'zero' || kind === 'nan' ? [i] : [])));
  const of = { sample, layout, lost };
  const plain = measure(of, false);
  if (plain.headsAgree || sample.heads.length < 2) return plain;
  const mirrored = measure(of, true);
  return mirrored.headsAgree ? mirrored : perHead(of);
}

interface PairSum {
  /** Σ conj(x)·y, or Σ x·y where mirrored. */
  re: number;
  im: number;
  /** Σ |x|² */
  power: number;
  /** Σ |x| · noise */
  noise: number;
}

function measure(of: Measuring, mirrored: boolean): Turns {
  const { layout } = of;
  const { tokens, heads } = of.sample;
  const turns = emptyTurns(
    tokens.map((token) => ({ ...token, head: undefined })),
    layout.pairs.length,
    mirrored,
  );
  let agree = true;
  for (let t = 0; t < tokens.length; t++) {
    for (let j = 0; j < layout.pairs.length; j++) {
      const sums = heads.map((_what, h) => pairSum(of, t, h, j, mirrored));
      const all = sums.reduce((a, b) => ({
        re: a.re + b.re,
        im: a.im + b.im,
        power: a.power + b.power,
        noise: a.noise + b.noise,
      }));
      store(turns, t * turns.pairs + j, all);
      for (const one of sums) {
        // |y − z·x| of this head, against the noise of the head and of z.
        const off = Math.hypot(one.re - (all.re / all.power) * one.power, one.im - (all.im / all.power) * one.power);
        if (one.power > 0 && off > AGREE * (one.noise + (all.noise / all.power) * one.power)) agree = false;
      }
    }
  }
  return { ...turns, headsAgree: agree };
}

function perHead(of: Measuring): Turns {
  const { sample, layout } = of;
  const units = sample.tokens.flatMap((token) => sample.heads.map((head) => ({ ...token, head })));
  const turns = emptyTurns(units, layout.pairs.length, false);
  for (let u = 0; u < units.length; u++) {
    const [t, h] = [Math.floor(u / sample.heads.length), u % sample.heads.length];
    for (let j = 0; j < turns.pairs; j++) store(turns, u * turns.pairs + j, pairSum(of, t, h, j, false));
  }
  return { ...turns, headsAgree: false };
}

function emptyTurns(units: TurnUnit[], pairs: number, mirrored: boolean): Turns {
  const size = units.length * pairs;
  const [angle, tolerance, gain] = [new Float64Array(size), new Float64Array(size), new Float64Array(size)];
  return { units, pairs, angle, tolerance, gain, headsAgree: true, mirrored };
}

function store(turns: Turns, at: number, { re, im, power, noise }: PairSum): void {
  const length = Math.hypot(re, im);
  turns.angle[at] = Math.atan2(im, re);
  turns.gain[at] = power > 0 ? length / power : Number.NaN;
  turns.tolerance[at] = power > 0 && length > noise ? Math.asin(noise / length) : Infinity;
}

function pairSum({ sample, layout, lost }: Measuring, t: number, h: number, j: number, mirrored: boolean): PairSum {
  const { x, y, noise, headDim, heads } = sample;
  const { read, write } = layout.pairs[j]!;
  const at = (t * heads.length + h) * headDim;
  const x0 = x[at + read[0]]!;
  const x1 = (mirrored ? -1 : 1) * x[at + read[1]]!;
  const [y0, y1] = [y[at + write[0]]!, y[at + write[1]]!];
  const length = Math.hypot(x0, x1);
  if (!Number.isFinite(y0) || !Number.isFinite(y1) || lost.has(write[0]) || lost.has(write[1]))
    return { re: 0, im: 0, power: 0, noise: 0 };
  return {
    re: x0 * y0 + x1 * y1,
    im: x0 * y1 - x1 * y0,
    power: length * length,
    noise: length * Math.hypot(noise[at + write[0]]!, noise[at + write[1]]!),
  };
}
