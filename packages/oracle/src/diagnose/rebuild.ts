/** From measurements to a RoPE that can be run, and the proof that it gives y. @module */
import { type Pairing, type RopeSpec, RopewalkError } from 'ropewalk';
import { callOf, type Expected, rightOf, type Seen, Trial } from './hypotheses.js';
import type { Identification } from './identification.js';
import { TIERS, type Tier } from './noise.js';
import type { Heads } from './observation.js';
import { takeSample } from './sample.js';
import { magnitudeOf, scalingOf } from './spec-fit.js';

/** The rotation as a record that can be run, and the noise within which it explains y; empty when no record does. */
export function rebuild(found: Identification, heads: Heads): { expected?: Expected; explains?: Tier } {
  const moved = withPositions(found, heads);
  if (!moved) return {};
  for (const expected of recordsOf(found)) {
    try {
      callOf(expected, moved);
    } catch (error) {
      if (error instanceof RopewalkError) continue; // measured, but no plan accepts it
      throw error;
    }
    const explains = tierOf(expected, moved);
    if (explains) return { expected, explains };
  }
  return {};
}

/** The observation with the positions that the kernel was found to use. */
function withPositions(found: Identification, heads: Heads): Heads | undefined {
  const rule = found.positions[0];
  if (!rule || !found.headsAgree || found.sign === undefined || found.outcome === 'mirrored') return undefined;
  if (rule.asGiven) return heads;
  if (heads.numAxes > 1) return undefined;
  const { batch, seq } = heads;
  const positions = heads.positions.map((p, n) =>
    rule.map(p, { batch: Math.floor(n / seq), seq: n % seq, positions: [p], head: undefined }),
  );
  return positions.every(Number.isInteger) ? { ...heads, positions, ownPositions: batch > 1 } : undefined;
}

/** Records that may describe it, the simplest first. */
function* recordsOf(found: Identification): Generator<Expected> {
  const { layout, headDim, pairs, sign, law, bases, axes } = found;
  const geometry = layout && pairingOf(layout.name, sign!);
  if (!layout || !geometry) return;
  const turning = pairs.findLastIndex((pair) => pair.turns) + 1;
  if (turning === 0) return;
  // Interleaved pairs that do not rotate could as well be copied. Halves are always half a window apart.
  const all = layout.name === 'interleaved' ? turning : pairs.length;
  const window = { headDim, rotaryDim: 2 * all, rotaryOffset: layout.first };
  const idle = turning < all;
  for (const base of law ? bases : []) {
    const scaling = scalingOf(law!, base.base, base.denominator);
    if (idle && scaling && scaling.kind !== 'linear') continue;
    const rule: RopeSpec['scaling'] = idle
      ? {
          kind: 'proportional',
          rotatedPairs: turning,
          factor: scaling?.kind === 'linear' ? scaling.factor : undefined,
        }
      : scaling;
    for (const shared of found.numAxes > 1 ? axes : [undefined]) {
      const spec: RopeSpec = {
        ...window,
        base: base.base,
        frequencyDim: base.denominator,
        pairing: shared?.rule === 'vision' && geometry.pairing === 'half' ? 'vision' : geometry.pairing,
        scaling: rule,
        axes: shared,
      };
      yield { spec: withGain(spec, found), direction: geometry.direction };
    }
  }
  yield* freeRecords(found, window, geometry);
}

/** Every frequency on its own: freq_factors with a base of 1. */
function* freeRecords(
  found: Identification,
  window: Pick<RopeSpec, 'headDim' | 'rotaryDim' | 'rotaryOffset'>,
  { pairing, direction }: { pairing: Pairing; direction: 'forward' | 'backward' },
): Generator<Expected> {
  const { pairs, axes, numAxes } = found;
  const freqFactors = pairs
    .slice(0, window.rotaryDim! / 2)
    .map((pair) => 1 / (pair.turns ? Math.abs(pair.frequency) : 1e-300));
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

function tierOf(expected: Expected, heads: Heads): Tier | undefined {
  const rows = sampleRows(heads);
  const right = rightOf(callOf(expected, heads));
  const trial = new Trial(heads, rows, seenRows(heads, rows, expected));
  return TIERS.find((tier) => trial.fits(right, tier));
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
