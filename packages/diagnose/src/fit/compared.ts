/** A rotation that was measured in a sample of rows, held to all of them. @module */
import type { Claim, ClaimedPair, ClaimedPosition } from '../claims/claim.js';
import { evidenceOf, holds, narrowed } from '../claims/holds.js';
import { type Heads, positionsOf, type RowAt } from '../read/observation.js';
import type { Identification } from './identification.js';

/** The measurements, and which claims about them are true of all rows. */
export interface Compared extends Identification {
  /** Pairs for a claim, by their numbers. Default: with the frequencies that were measured. */
  claimed(pairs: readonly number[], frequency?: (j: number) => number): ClaimedPair[];
  /** The position that a row was given, and the one by which it was found to rotate. */
  readonly given: ClaimedPosition;
  readonly used: ClaimedPosition;
  /** The numbers of the pairs that rotate by their frequency times `used`, and by nothing else. */
  turning(pairs: readonly number[], frequency?: (j: number) => number): number[];
  /** The numbers of the pairs of which a claim is true. */
  true(claim: OfPairs): number[];
  /** Whether a claim is true of all that it names. */
  all(claim: Claim): boolean;
  /** The dimensions of which a claim is true. */
  dims(claim: Extract<Claim, { dims: unknown }>): readonly number[];
  place(r: number): RowAt;
}

type OfPairs = Extract<Claim, { pairs: unknown }>;

/** The evidence of an observation, and the pairs that keep their length, which several measurements of it share. */
const EVIDENCE = new WeakMap<Heads, { evidence: ReturnType<typeof evidenceOf>; lengths: Map<string, boolean> }>();

/** @param heads - the rows that claims are held to, with the norm applied to x */
export function compared(found: Identification, heads: Heads): Compared {
  const shared = EVIDENCE.get(heads) ?? { evidence: evidenceOf(heads), lengths: new Map<string, boolean>() };
  EVIDENCE.set(heads, shared);
  const { evidence, lengths } = shared;
  const place = (r: number): RowAt => {
    const token = Math.floor(r / heads.heads);
    return { batch: Math.floor(token / heads.seq), seq: token % heads.seq, head: r % heads.heads };
  };
  const tokens = heads.batch * heads.seq;
  const given = (r: number, j: number): number =>
    heads.positions[(found.pairs[j]!.axes[0] ?? 0) * tokens + Math.floor(r / heads.heads)]!;
  const [rule] = found.positions;
  const ruled = (r: number): number => {
    const positions = positionsOf(heads, Math.floor(r / heads.heads));
    return heads.numAxes > 1 ? Number.NaN : (rule?.map(positions[0]!, { ...place(r), positions }) ?? Number.NaN);
  };
  const moved =
    rule && !rule.asGiven ? Float64Array.from({ length: tokens * heads.heads }, (_, r) => ruled(r)) : undefined;
  const used: ClaimedPosition = moved ? (r) => moved[r]! : given;
  const claimed: Compared['claimed'] = (pairs, frequency) =>
    pairs.map((j) => {
      const { read, write, low, high, ...pair } = found.pairs[j]!;
      const own = { frequency: pair.frequency, error: (high - low) / 2 + 1e-6 * Math.abs(pair.frequency) };
      return { number: j, read, write, ...(frequency ? { frequency: frequency(j), error: 0 } : own) };
    });
  const turned = new Map<string, boolean>();
  /** The pairs of which a claim is true. Claims that are made again and again are held to the rows once. */
  const truePairs = (claim: OfPairs): readonly ClaimedPair[] => {
    const known =
      claim.kind === 'lengths' && claim.gain === undefined
        ? lengths
        : claim.kind === 'turns' && claim.position === used
          ? turned
          : undefined;
    if (!known) return narrowed(claim, evidence)?.pairs ?? [];
    return claim.pairs.filter((pair) => {
      const { number, read, write, frequency, error } = pair;
      const key = known === lengths ? `${read} ${write}` : `${number} ${read} ${write} ${frequency} ${error}`;
      const is = known.get(key) ?? narrowed({ ...claim, pairs: [pair] }, evidence) !== undefined;
      known.set(key, is);
      return is;
    });
  };
  return {
    ...found,
    place,
    given,
    claimed,
    used,
    turning(pairs, frequency) {
      // With one factor of cos and another of sin, all pairs were held to them already.
      if (found.gains && !frequency) return [...pairs];
      const left = truePairs({ kind: 'lengths', pairs: claimed(pairs, frequency) });
      return truePairs({ kind: 'turns', pairs: left, position: used }).map(({ number }) => number);
    },
    true: (claim) => truePairs(claim).map(({ number }) => number),
    all: (claim) =>
      'pairs' in claim
        ? claim.pairs.length > 0 && truePairs(claim).length === claim.pairs.length
        : holds(claim, evidence),
    dims: (claim) => narrowed(claim, evidence)?.dims ?? [],
  };
}

/** Keeps of a rotation that was found in a sample only the parts that are so in every row. */
export function heldToAll(found: Identification, heads: Heads): Identification {
  const { gain, gains, geometry, explains, outcome, numAxes, positions } = found;
  const of = compared(found, heads);
  const dims = (some: readonly number[], value: 'x' | 'zero' | 'not finite'): readonly number[] =>
    of.dims({ kind: 'holds', dims: some, value });
  const copied = dims(geometry!.copied, 'x');
  const lost = [...geometry!.lost];
  const isLost = lost.every((i) =>
    of.all({ kind: 'holds', dims: [i], value: geometry!.dims[i] === 'zero' ? 'zero' : 'not finite' }),
  );
  // A pair that the sample does not show may rotate in other rows.
  const unseen = found.pairs.flatMap(({ turns, seen }, j) => (turns || seen ? [] : [j]));
  const still = of.true({ kind: 'turns', pairs: of.claimed(unseen, () => 0), position: () => 1 });
  const moving = of.true({ kind: 'turns otherwise', pairs: of.claimed(unseen, () => 0), position: () => 0 });
  const pairsSeen = found.pairs.map((pair, j) => ({
    ...pair,
    seen: pair.seen || (unseen.includes(j) && !still.includes(j)),
    moves: pair.turns || moving.includes(j),
  }));
  const own = { ...found, pairs: pairsSeen, geometry: { ...geometry!, copied } };
  if (outcome !== 'rotation' || (!explains && !gains)) return own;
  const whole = found.pairs.flatMap(({ write }, j) => (write.some((i) => geometry!.lost.has(i)) ? [] : [j]));
  const pairs = of.claimed(whole);
  const { used: position } = of;
  const withGains = (r: number, j: number) => {
    const angle = position(r, j) * found.pairs[j]!.frequency;
    return [gains!.cos * Math.cos(angle), gains!.sin * Math.sin(angle), angle] as const;
  };
  const isSo = gains
    ? of.all({ kind: 'terms', pairs, terms: withGains })
    : of.all({ kind: 'lengths', pairs, gain }) &&
      (of.all({ kind: 'turns', pairs, position }) || (numAxes > 1 && !positions[0]?.asGiven));
  if (isSo && isLost) return own;
  return { ...own, outcome: 'odd rotation', explains: undefined, gains: undefined, expected: undefined };
}
