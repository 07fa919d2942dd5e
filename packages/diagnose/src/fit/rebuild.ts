/** From measurements to a RoPE that can be run, and the proof that it gives y. @module */
import { type Pairing, type RopeAxes, type RopeSpec, RopewalkError } from 'ropewalk';
import { TIERS, type Tier } from '../kernel/noise.js';
import { rightOf, type Seen, Trial } from '../kernel/trial.js';
import { residualsOf } from '../measure/residuals.js';
import { takeSample } from '../measure/sample.js';
import { callOf, type Expected } from '../read/expected.js';
import type { Heads } from '../read/observation.js';
import type { Identification } from './identification.js';
import { type FoundBase, magnitudeOf, scalingOf } from './spec-fit.js';

/** The rotation as a record that can be run, and the noise within which it explains y; empty when no record does. */
export function rebuild(found: Identification, heads: Heads): { expected?: Expected; explains?: Tier } {
  const moved = withPositions(found, heads);
  if (!moved) return {};
  const lost = found.geometry!.dims.map((kind) => kind === 'zero' || kind === 'nan');
  let best: { expected: Expected; explains: Tier } | undefined;
  for (const expected of recordsOf(found)) {
    // Frequencies one by one only where no law gives y.
    if (best && expected.spec.freqFactors) break;
    try {
      callOf(expected, moved);
    } catch (error) {
      if (error instanceof RopewalkError) continue; // measured, but no plan accepts it
      throw error;
    }
    const explains = tierOf(expected, moved, lost);
    if (explains && (!best || TIERS.indexOf(explains) < TIERS.indexOf(best.explains))) best = { expected, explains };
    if (explains === 'stored') break;
  }
  return best ?? {};
}

/** The observation with the positions that the kernel was found to use. */
function withPositions(found: Identification, heads: Heads): Heads | undefined {
  const rule = found.positions[0];
  if (!found.headsAgree || found.outcome !== 'rotation') return undefined;
  if (!rule || rule.asGiven) return heads;
  if (heads.numAxes > 1) return undefined;
  const { batch, seq } = heads;
  const at = (b: number, s: number): number | undefined => {
    const here = found.foundPositions.find(({ unit }) => unit.batch === b && unit.seq === s)?.intervals[0];
    return here && Math.round((here[0] + here[1]) / 2);
  };
  const positions = heads.positions.map((p, n) => {
    const [b, s] = [Math.floor(n / seq), n % seq];
    return rule.map(p, { batch: b, seq: s, positions: [p], head: undefined }) ?? at(b, s) ?? p;
  });
  return positions.every(Number.isInteger) ? { ...heads, positions, ownPositions: batch > 1 } : undefined;
}

/** Records that may describe it, the simplest first. */
function* recordsOf(found: Identification): Generator<Expected> {
  const { layout, headDim, pairs, axes } = found;
  // An unknown direction is taken as the one that the layout can have.
  const sign = found.sign ?? (layout?.name === 'half-to-interleaved' ? -1 : 1);
  const geometry = layout && pairingOf(layout.name, sign);
  if (!layout || !geometry) return;
  const turning = pairs.findLastIndex((pair) => pair.turns) + 1;
  if (turning === 0) return;
  const { first } = layout;
  const record = (count: number, base: FoundBase, scaling: RopeSpec['scaling'], shared: RopeAxes | undefined) => {
    const spec: RopeSpec = {
      headDim,
      rotaryDim: 2 * count,
      rotaryOffset: first,
      base: base.base,
      frequencyDim: base.denominator,
      pairing: shared?.rule === 'vision' && geometry.pairing === 'half' ? 'vision' : geometry.pairing,
      scaling,
      axes: shared,
    };
    return { spec: withGain(spec, found), direction: geometry.direction };
  };
  // Interleaved pairs that do not rotate could as well be copied. Halves are always half a window apart.
  const interleaved = layout.name === 'interleaved';
  const all = interleaved ? turning : pairs.length;
  const usual = found.formulas.length === 0 ? found.law : undefined;
  for (const base of usual ? roundedBases(found.bases) : []) {
    const scaling = scalingOf(usual!, base.base, base.denominator);
    for (const shared of found.numAxes > 1 ? axes : [undefined]) {
      if (turning === all) yield record(all, base, scaling, shared);
      else if (!scaling || scaling.kind === 'linear') {
        const factor = scaling?.kind === 'linear' ? scaling.factor : undefined;
        yield record(all, base, { kind: 'proportional', rotatedPairs: turning, factor }, shared);
      }
      // Slow pairs may rotate by less than what is seen of one pair, but not by nothing.
      const whole = interleaved ? Math.floor((headDim - first) / 2) : all;
      for (const count of new Set([pairs.length, whole]))
        if (count > turning) yield record(count, base, scaling, shared);
    }
  }
  yield* freeRecords(found, sign, { headDim, rotaryDim: 2 * all, rotaryOffset: first }, geometry);
}

/** Round numbers within the error of each base, and the base as measured; each step from pair to pair once. */
function roundedBases(bases: readonly FoundBase[]): FoundBase[] {
  const all = bases.flatMap((one) => {
    const near = [1, 2].map((digits) => Number(one.base.toPrecision(digits)));
    return [
      ...near.filter((base) => Math.abs(base / one.base - 1) <= one.error).map((base) => ({ ...one, base })),
      one,
    ];
  });
  const steps = new Map<string, FoundBase>();
  for (const one of all) {
    const step = (Math.log(one.base) / one.denominator).toPrecision(12);
    if (!steps.has(step)) steps.set(step, one);
  }
  return [...steps.values()];
}

/** Every frequency on its own: freq_factors with a base of 1. */
function* freeRecords(
  found: Identification,
  sign: 1 | -1,
  window: Pick<RopeSpec, 'headDim' | 'rotaryDim' | 'rotaryOffset'>,
  { pairing, direction }: { pairing: Pairing; direction: 'forward' | 'backward' },
): Generator<Expected> {
  const { pairs, axes, numAxes } = found;
  const freqFactors = pairs.slice(0, window.rotaryDim! / 2).map((pair) => {
    // Where the direction is not known, whole turns make it the one that is asked for.
    const frequency = sign * pair.frequency;
    return 1 / (pair.turns ? (frequency > 0 ? frequency : frequency + pair.period) : 1e-300);
  });
  for (const shared of numAxes > 1 ? axes.filter(({ rule }) => rule !== 'vision') : [undefined]) {
    const spec: RopeSpec = { ...window, base: 1, pairing, freqFactors, axes: shared };
    yield { spec: withGain(spec, found), direction };
  }
}

/** Adds the measured gain, unless the scaling already has it. */
function withGain(spec: RopeSpec, { gain, gainRange }: Identification): RopeSpec {
  const usual = magnitudeOf(spec.scaling);
  if (gain === undefined || !gainRange || (usual >= gainRange[0] && usual <= gainRange[1])) return spec;
  return { ...spec, attentionFactor: gain };
}

function pairingOf(name: string, sign: 1 | -1): { pairing: Pairing; direction: 'forward' | 'backward' } | undefined {
  const direction = sign === 1 ? 'forward' : 'backward';
  if (name === 'interleaved' || name === 'half') return { pairing: name, direction };
  if (name === 'interleaved-to-half' && sign === 1) return { pairing: name, direction };
  // The transpose reads halves, writes interleaved pairs, and rotates backward.
  if (name === 'half-to-interleaved' && sign === -1) return { pairing: 'interleaved-to-half', direction };
  return undefined;
}

function tierOf(expected: Expected, heads: Heads, lost: readonly boolean[]): Tier | undefined {
  const rows = sampleRows(heads);
  const right = rightOf(callOf(expected, heads));
  const seen = seenRows(heads, rows, expected);
  const trial = new Trial(heads, rows, seen);
  // What was never written is not explained, and is said.
  const made = trial.made(right);
  for (const [n] of made.entries()) if (lost[n % heads.headDim]) seen.y[n] = made[n]!;
  const tier = TIERS.find((one) => trial.fits(right, one));
  return tier && (residualsOf(right, heads, rows)?.systematic.length ?? 0) === 0 ? tier : undefined;
}

/** The rows of the tokens and heads in a sample. */
export function sampleRows(heads: Heads): number[] {
  const { tokens, heads: some } = takeSample(heads);
  return tokens.flatMap(({ batch, seq }) => some.map((head) => (batch * heads.seq + seq) * heads.heads + head));
}

/**
 * Some rows of y, with the sizes that scale their noise; `expected` gives the magnitude.
 *
 * @param normalised - the heads with the norm applied, where there is one
 */
export function seenRows(heads: Heads, rows: readonly number[], expected: Expected, normalised = heads): Seen {
  const { headDim, dtype } = heads;
  const y = new Float64Array(rows.length * headDim);
  const magnitude = Math.max(1, Math.abs(expected.spec.attentionFactor ?? magnitudeOf(expected.spec.scaling)));
  const largest = ({ x }: Heads, r: number): number =>
    x.subarray(r * headDim, (r + 1) * headDim).reduce((a, b) => Math.max(a, Math.abs(b)), 0);
  const sizes = Float64Array.from(rows, (r, n) => {
    y.set(heads.y.subarray(r * headDim, (r + 1) * headDim), n * headDim);
    return magnitude * Math.max(largest(heads, r), normalised === heads ? 0 : largest(normalised, r));
  });
  return { y, dtype, sizes };
}
