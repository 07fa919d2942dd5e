/** From measurements to a RoPE that can be run: its scaling and axes, and the proof that it gives y. @module */
import { type Pairing, type RopeAxes, type RopeCall, type RopeScaling, type RopeSpec, RopewalkError } from 'ropewalk';
import { sharePairs, yarnRampEdges } from 'ropewalk/internal';
import { TIERS, type Tier } from '../kernel/noise.js';
import { magnitudeOf } from '../kernel/trial.js';
import { tierOf } from '../measure/residuals.js';
import { callOf, type Expected } from '../read/expected.js';
import type { Heads } from '../read/observation.js';
import { asWritten, type FoundBase, type FoundScaling, type FrequencyLaw } from './frequency-law.js';
import type { Identification } from './identification.js';

/** The rotation as a record that can be run, and the noise within which it explains y; empty when no record does. */
export function rebuild(found: Identification, heads: Heads): { expected?: Expected; explains?: Tier } {
  const moved = withPositions(found, heads);
  if (!moved) return {};
  const { lost } = found.geometry!;
  let best: { expected: Expected; explains: Tier } | undefined;
  for (const expected of recordsOf(found)) {
    // Frequencies one by one are tried only where no law gives y.
    if (best && expected.spec.freqFactors) break;
    const call = callFor(expected, moved);
    const explains = call && tierOf(call, expected, moved, lost);
    if (explains && (!best || TIERS.indexOf(explains) < TIERS.indexOf(best.explains))) best = { expected, explains };
    if (explains === 'stored') break;
  }
  return best ?? {};
}

/** Undefined for a record that was measured, but that no plan accepts. */
function callFor(expected: Expected, heads: Heads): RopeCall | undefined {
  try {
    return callOf(expected, heads);
  } catch (error) {
    if (error instanceof RopewalkError) return undefined;
    throw error;
  }
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

/** The records that may describe the rotation, the simplest first. */
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
  // Interleaved pairs that do not rotate may be copied instead. Halves are always half a window apart.
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

/** The round numbers within the error of each base, and the base as measured, without repeats of a step from pair to pair. */
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

/** Records with every frequency by itself, as freq_factors with a base of 1. */
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
    return 1 / (pair.turns ? (frequency > 0 ? frequency : frequency + pair.period) : 1e-30);
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

/** The original contexts of models are powers of two. */
const CONTEXTS = Array.from({ length: 13 }, (_what, n) => 2 ** (n + 9));

/** The original contexts whose YaRN ramp, with beta 32 and 1, is the measured one. */
export function yarnContexts(
  found: Extract<FoundScaling, { kind: 'yarn' }>,
  base: number,
  denominator: number,
): number[] {
  return CONTEXTS.filter((originalContext) => {
    const [low, high] = yarnRampEdges(
      { kind: 'yarn', factor: found.factor, originalContext, truncate: found.wholeEdges },
      base,
      denominator,
    );
    return Math.abs(low - found.ramp[0]) < 0.02 && Math.abs(high - found.ramp[1]) < 0.02;
  });
}

/** The scaling rule of a law, with the usual parameters where several fit; undefined for no scaling. */
export function scalingOf(law: FrequencyLaw, base: number, denominator: number): RopeScaling | undefined {
  const found = law.scaling;
  const factor = found.kind === 'none' ? 1 : asWritten(found.factor, found.factorError);
  switch (found.kind) {
    case 'none':
      return undefined;
    case 'linear':
      return { kind: 'linear', factor };
    case 'llama3': {
      const originalContext = near(found.divideFrom);
      const highFreqFactor = near(originalContext / found.keepUpTo);
      return { kind: 'llama3', factor, lowFreqFactor: 1, highFreqFactor, originalContext };
    }
    case 'yarn': {
      const known = yarnContexts(found, base, denominator)[0];
      if (known !== undefined) return { kind: 'yarn', factor, originalContext: known, truncate: found.wholeEdges };
      const originalContext = 32768;
      const beta = (edge: number): number => originalContext / (2 * Math.PI * base ** ((2 * edge) / denominator));
      return {
        kind: 'yarn',
        factor,
        originalContext,
        betaFast: beta(found.ramp[0]),
        betaSlow: beta(found.ramp[1]),
        truncate: false,
      };
    }
  }
}

/** The integer near a measurement, if it is within 0.1 %. */
function near(value: number): number {
  return Math.abs(value / Math.round(value) - 1) < 1e-3 ? Math.round(value) : value;
}

/**
 * The rules that distribute pairs among axes as measured, the simplest first.
 *
 * @param axesOfPairs - the possible axes of each pair
 */
export function axesRules(axesOfPairs: readonly (readonly number[])[], numAxes: number): RopeAxes[] {
  const pairs = axesOfPairs.length;
  const fits = (axes: RopeAxes): boolean => {
    if (axes.sections[0]! + axes.sections[1]! + axes.sections[2]! === 0) return false;
    const shared = sharePairs(axes, pairs);
    return shared.numAxes <= numAxes && axesOfPairs.every((of, j) => of.includes(shared.axisOfPair[j]!));
  };
  const runs = sectionRuns(axesOfPairs);
  const count = (axis: number): number => axesOfPairs.filter((of) => of.length === 1 && of[0] === axis).length;
  const turns = [pairs - count(1) - count(2) - count(3), count(1), count(2), ...(numAxes > 3 ? [count(3)] : [])];
  const contiguous = Array.from({ length: Math.max(3, Math.min(4, numAxes)) }, (_, a) => runs?.[a] ?? 0);
  const rules: RopeAxes[] = [
    ...(runs ? (['sections', 'vision'] as const) : []).map((rule) => ({ rule, sections: contiguous })),
    ...(turns[0]! >= 0 ? (['interleaved', 'interleaved-ggml'] as const) : []).map((rule) => ({
      rule,
      sections: turns,
    })),
  ];
  return rules.filter(fits);
}

/**
 * The lengths of the first run of each axis, in the order t, h, w, e. Pairs that fit several axes go with their neighbours.
 */
function sectionRuns(axesOfPairs: readonly (readonly number[])[]): number[] | undefined {
  const runs = [0, 0, 0, 0];
  let axis = -1;
  for (const of of axesOfPairs) {
    if (axis < 0 || !of.includes(axis)) {
      const next = of.find((a) => a > axis);
      if (next === undefined) return runs; // a second round
      axis = next;
    }
    runs[axis]!++;
  }
  return runs;
}
