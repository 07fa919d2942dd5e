/**
 * From what was measured to a RoPE that can be run, and the proof that it makes y.
 *
 * @module
 */
import { type Pairing, type RopeSpec, RopewalkError } from 'ropewalk';
import { callOf, type Expected, hypothesesOf, misfit, runRows, type Seen, slackOf } from './hypotheses.js';
import type { Identification } from './identification.js';
import { TIERS, type Tier } from './noise.js';
import type { Heads } from './observation.js';
import { takeSample } from './sample.js';
import { magnitudeOf, scalingOf } from './spec-fit.js';

/**
 * Rebuilds the rotation and runs it.
 *
 * @param found - measured; a rotation or not
 * @param heads - what it was measured on
 * @returns the record, and up to which noise it explains y; empty when no record can say it
 */
export function rebuild(found: Identification, heads: Heads): { expected?: Expected; explains?: Tier } {
  const moved = withPositions(found, heads);
  if (!moved) return {};
  for (const expected of recordsOf(found)) {
    try {
      callOf(expected, moved);
    } catch (error) {
      if (error instanceof RopewalkError) continue; // measured, but nothing a plan accepts
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

/** Records that may say it, the simplest first. */
function* recordsOf(found: Identification): Generator<Expected> {
  const { layout, headDim, pairs, sign, law, bases, axes } = found;
  const geometry = layout && pairingOf(layout.name, sign!);
  if (!layout || !geometry) return;
  const turning = lastTurning(found) + 1;
  if (turning === 0) return;
  // Interleaved pairs that do not turn are as good as copied; halves are as far apart as the window is wide.
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
          ...(scaling?.kind === 'linear' ? { factor: scaling.factor } : {}),
        }
      : scaling;
    for (const shared of found.numAxes > 1 ? axes : [undefined]) {
      const spec: RopeSpec = {
        ...window,
        base: base.base,
        frequencyDim: base.denominator,
        pairing: shared?.rule === 'vision' && geometry.pairing === 'half' ? 'vision' : geometry.pairing,
        ...(rule ? { scaling: rule } : {}),
        ...(shared ? { axes: shared } : {}),
      };
      yield { spec: withGain(spec, found), direction: geometry.direction };
    }
  }
  yield* freeRecords(found, window, geometry);
}

/** Every frequency by itself: freq_factors over a base of 1. */
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
    const spec: RopeSpec = { ...window, base: 1, pairing, freqFactors, ...(shared ? { axes: shared } : {}) };
    yield { spec: withGain(spec, found), direction };
  }
}

/** A gain of its own, unless it is the one that the scaling brings. */
function withGain(spec: RopeSpec, { gain, gainRange }: Identification): RopeSpec {
  const usual = magnitudeOf(spec.scaling);
  if (gain === undefined || !gainRange || (usual >= gainRange[0] && usual <= gainRange[1])) return spec;
  return { ...spec, attentionFactor: gain };
}

function pairingOf(name: string, sign: 1 | -1): { pairing: Pairing; direction: 'forward' | 'backward' } | undefined {
  const direction = sign === 1 ? 'forward' : 'backward';
  if (name === 'interleaved' || name === 'half') return { pairing: name, direction };
  if (name === 'interleaved-to-half' && sign === 1) return { pairing: name, direction };
  // The transpose reads halves, writes pairs, and turns backwards.
  if (name === 'half-to-interleaved' && sign === -1) return { pairing: 'interleaved-to-half', direction };
  return undefined;
}

function lastTurning({ pairs }: Identification): number {
  return pairs.findLastIndex((pair) => pair.turns);
}

function tierOf(expected: Expected, heads: Heads): Tier | undefined {
  const rows = sampleRows(heads);
  const [right] = hypothesesOf(expected, heads, []);
  const made = runRows(right!.steps, heads, rows);
  const seen = seenRows(heads, rows, expected);
  return TIERS.find(
    (tier) =>
      misfit(seen, made, tier === 'stored' ? undefined : slackOf(right!.steps, right!.steps, heads, rows, tier), 1) <=
      1,
  );
}

/** The rows of a sample's tokens and heads. */
export function sampleRows(heads: Heads): number[] {
  const { tokens, heads: some } = takeSample(heads);
  return tokens.flatMap(({ batch, seq }) => some.map((head) => (batch * heads.seq + seq) * heads.heads + head));
}

/**
 * What was seen of some rows.
 *
 * @param heads - the observation
 * @param rows - which
 * @param expected - whose magnitude scales the noise
 */
export function seenRows(heads: Heads, rows: readonly number[], expected: Expected): Seen {
  const { headDim, dtype } = heads;
  const y = new Float64Array(rows.length * headDim);
  const magnitude = Math.max(1, Math.abs(expected.spec.attentionFactor ?? magnitudeOf(expected.spec.scaling)));
  const sizes = Float64Array.from(rows, (r, n) => {
    y.set(heads.y.subarray(r * headDim, (r + 1) * headDim), n * headDim);
    return magnitude * heads.x.subarray(r * headDim, (r + 1) * headDim).reduce((a, b) => Math.max(a, Math.abs(b)), 0);
  });
  return { y, dtype, sizes };
}
