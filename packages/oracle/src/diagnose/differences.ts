/** How a measured rotation differs from the expected one, in sentences with numbers. @module */
import { frequenciesOf } from 'ropewalk';
import { ranges, sharePairs } from 'ropewalk/backend';
import type { PairAt } from './geometry.js';
import type { Expected } from './hypotheses.js';
import type { FoundPair, Identification } from './identification.js';
import { basesOf } from './spec-fit.js';

/** One difference. */
export interface Difference {
  readonly what:
    | 'dimensions'
    | 'pairing'
    | 'direction'
    | 'frequencies'
    | 'magnitude'
    | 'positions'
    | 'axes'
    | 'heads'
    | 'no rotation';
  /** A sentence: what the kernel does, and what is expected. */
  readonly words: string;
}

/** Lists the differences, as far as they were measured. */
export function differencesOf(expected: Expected, found: Identification): Difference[] {
  const odd = withoutPairs(found);
  if (odd !== undefined) return [{ what: 'no rotation', words: odd }];
  return (Object.keys(COMPARE) as (keyof typeof COMPARE)[]).flatMap((what) => {
    const words = COMPARE[what](expected, found);
    return words === undefined ? [] : [{ what, words }];
  });
}

/** What happened to x where no pairs were rotated, as a sentence. */
export function withoutPairs({ outcome, gain }: Identification): string | undefined {
  switch (outcome) {
    case 'not finite':
      return 'y has values that are not finite.';
    case 'zero':
      return 'y is 0 everywhere: nothing was written.';
    case 'unchanged': {
      const times = gain === undefined || Math.abs(gain - 1) < 1e-6 ? '' : ` times ${short(gain)}`;
      return `y is x${times}: nothing was rotated.`;
    }
    case 'no rotation':
      return 'In y, no two dimensions of a head keep their joint length: the members of a pair rotate by different angles, or heads were mixed up.';
    default:
      return undefined;
  }
}

/** What a mirrored rotation does. */
export const MIRRORED = 'Pairs are mirrored, not only rotated: one of the four products has the wrong sign.';

type Compare = (expected: Expected, found: Identification) => string | undefined;

/** First dimension that should rotate, and one past the last. */
function windowOf({ headDim, rotaryDim = headDim, rotaryOffset = 0 }: Expected['spec']): [first: number, end: number] {
  return [rotaryOffset, rotaryOffset + rotaryDim];
}

const pairing: Compare = ({ spec, direction }, { layout, headDim }) => {
  const { name, distance, pairs } = layout!;
  const want = expectedPairs(spec, direction);
  const [have, wanted] = [pairs, want].map((list) => list.map(({ read, write }) => `${read}>${write}`));
  // Pairs that rotate too little to be seen are missing in the layout: that is not a difference.
  if (wanted!.every((key) => have!.includes(key))) return undefined;
  if (wanted!.slice(0, have!.length).every((key, n) => key === have![n])) return undefined;
  const says = ({ read, write }: PairAt): string =>
    read.join() === write.join() ? `(${read.join(', ')})` : `(${read.join(', ')}) written to (${write.join(', ')})`;
  const names: Partial<Record<typeof name, string>> = {
    half: `half, ${distance} apart${2 * distance === headDim ? ' (head_dim / 2)' : ''}`,
    quarter: `half inside each half, ${distance} apart`,
    free: 'of no usual layout',
  };
  return `Pairs are ${names[name] ?? name}, such as ${says(pairs[0]!)}; expected is ${spec.pairing}, such as ${says(want[0]!)}.`;
};

/** Where the members of each pair are expected. */
function expectedPairs(spec: Expected['spec'], direction: Expected['direction']): PairAt[] {
  const [first, end] = windowOf(spec);
  const half = (end - first) / 2;
  const adjacent = (j: number): PairAt['read'] => [first + 2 * j, first + 2 * j + 1];
  const apart = (j: number): PairAt['read'] => [first + j, first + j + half];
  return Array.from({ length: half }, (_what, j) => {
    const from = spec.pairing.startsWith('interleaved') ? adjacent(j) : apart(j);
    const to = spec.pairing === 'interleaved' ? adjacent(j) : apart(j);
    return direction === 'backward' ? { read: to, write: from } : { read: from, write: to };
  });
}

const dimensions: Compare = ({ spec }, { geometry, layout }) => {
  const [first, end] = windowOf(spec);
  const turned = geometry!.dims.flatMap((kind, i) => (kind === 'turned' ? [i] : []));
  if (turned.some((i) => i < first || i >= end))
    return `Dimensions ${ranges(turned)} rotate; only ${first}-${end - 1} should (rotary_dim ${end - first}).`;
  if (layout!.first > first)
    return `The first dimension that rotates is ${layout!.first}; expected is dimension ${first}.`;
  return undefined;
};

const direction: Compare = ({ direction = 'forward' }, { sign }) => {
  if (sign === undefined) return 'Some pairs rotate forward and some backward.';
  const found = sign < 0 ? 'backward' : 'forward';
  if (found === direction) return undefined;
  return `It rotates ${found}; expected is ${direction} (sin has the opposite sign).`;
};

const frequencies: Compare = ({ spec }, found) => {
  const { invFreq } = frequenciesOf(spec);
  const pairs = found.pairs.slice(0, invFreq.length);
  const off = pairs.flatMap((pair, j) => (outside(pair, invFreq[j]!) ? [j] : []));
  const more = found.pairs.slice(invFreq.length).filter((pair) => pair.turns).length;
  if (off.length === 0 && more === 0) return undefined;
  const still = off.filter((j) => !pairs[j]!.turns);
  const turning = off.filter((j) => pairs[j]!.turns);
  const ratios = turning.flatMap((j) => (invFreq[j]! > 0 ? [Math.abs(pairs[j]!.frequency) / invFreq[j]!] : []));
  const parts: string[] = [];
  if (ratios.length > 0 && ratios.every((r) => Math.abs(r / ratios[0]! - 1) < 1e-3)) {
    const which = ratios.length === invFreq.length ? 'every pair' : `pairs ${ranges(turning)}`;
    parts.push(`The frequency of ${which} is ${short(ratios[0]!)} times the expected one`);
  } else if (ratios.length > 0) {
    const factors = `from ${short(Math.min(...ratios))} to ${short(Math.max(...ratios))}`;
    parts.push(`The frequencies of pairs ${ranges(off)} differ, by factors ${factors}`, lawWords(spec, found));
  }
  if (still.length > 0) parts.push(`pairs ${ranges(still)} do not rotate`);
  if (more > 0) parts.push(`${more} more pairs rotate than expected`);
  return `${parts.join('; ')}.`;
};

/** Whether a pair's frequency differs by more than f32 rounding. */
function outside({ frequency, low, high, turns }: FoundPair, wanted: number): boolean {
  const slack = 1e-5 * wanted;
  if (!turns) return wanted > Math.max(Math.abs(low), Math.abs(high)) + slack;
  const [a, b] = frequency < 0 ? [-high, -low] : [low, high];
  return wanted < a - slack || wanted > b + slack;
}

function lawWords(spec: Expected['spec'], { law }: Identification): string {
  if (!law) return 'they follow no rule with one base';
  const denominator = spec.frequencyDim ?? spec.rotaryDim ?? spec.headDim;
  const bases = basesOf(law, [denominator, spec.headDim]);
  const baseOver = (dim: number): number => bases.find((one) => one.denominator === dim)!.base;
  const expected = (base: number): boolean => Math.abs(base / spec.base - 1) < 1e-4;
  const { scaling } = law;
  const scaled = scaling.kind === 'none' ? '' : ` with ${scaling.kind} scaling by ${short(scaling.factor)}`;
  if (denominator !== spec.headDim && expected(baseOver(spec.headDim)))
    return `they are those of base ${short(spec.base)} with exponents over head_dim=${spec.headDim} instead of ${denominator}${scaled}`;
  const base = baseOver(denominator);
  if (expected(base)) return `they are those of the expected base, ${short(spec.base)},${scaled || ' without scaling'}`;
  return `they are those of base ${short(base)} instead of ${short(spec.base)}${scaled}`;
}

const magnitude: Compare = ({ spec }, { gain, gainRange, geometry }) => {
  const { attentionFactor } = frequenciesOf(spec);
  if (gain === undefined || !gainRange) return 'Not all pairs are lengthened by the same factor.';
  if (attentionFactor < gainRange[0] - 1e-6 || attentionFactor > gainRange[1] + 1e-6) {
    const square = Math.abs(gain / attentionFactor ** 2 - 1) < 1e-3 ? ', the square of the expected factor' : '';
    return `Pairs become ${short(gain)} times as long${square}; expected is ${short(attentionFactor)}.`;
  }
  const [first, end] = windowOf(spec);
  const beside = geometry!.dims.flatMap((kind, i) => (kind === 'scaled' && (i < first || i >= end) ? [i] : []));
  return beside.length > 0 ? `Dimensions ${ranges(beside)} are scaled; they should be copied.` : undefined;
};

const positions: Compare = (_what, { positions: rules, foundPositions }) => {
  if (rules.some(({ asGiven }) => asGiven)) return undefined;
  if (rules.length > 0)
    return `It rotates by ${rules.map(({ words }) => words).join(', or by ')}; expected is the position as given.`;
  const elsewhere = foundPositions.filter(
    ({ given, intervals }) =>
      intervals.length > 0 && !intervals.some(([low, high]) => given > low - 0.5 && given < high + 0.5),
  );
  const start = 'The angles are not proportional to the positions as given';
  if (elsewhere.length === 0) return `${start}.`;
  const shown = elsewhere.slice(0, 4).map(({ unit, given, intervals }) => {
    const [low, high] = intervals[0]!;
    const head = unit.head === undefined ? '' : ` head ${unit.head}`;
    const at = intervals.length > 1 ? 'one of several' : short(Math.round((low + high) * 50) / 100);
    return `batch ${unit.batch} token ${unit.seq}${head} at ${at} instead of ${given}`;
  });
  const units = foundPositions.some(({ unit }) => unit.head !== undefined) ? 'heads' : 'tokens';
  const rest = elsewhere.length > 4 ? ', …' : '';
  return `${start}; ${elsewhere.length} of ${foundPositions.length} ${units} rotate as if at other positions: ${shown.join(', ')}${rest}.`;
};

const axes: Compare = ({ spec }, { pairs, numAxes }) => {
  if (numAxes < 2) return undefined;
  const { axisOfPair } = sharePairs(spec.axes, (spec.rotaryDim ?? spec.headDim) / 2);
  const off = pairs.flatMap((pair, j) =>
    pair.turns && j < axisOfPair.length && !pair.axes.includes(axisOfPair[j]!) ? [j] : [],
  );
  if (off.length === 0) return undefined;
  const name = (a: number): string => 'thwe'[a]!;
  const shown = off
    .slice(0, 4)
    .map((j) => `pair ${j} by ${pairs[j]!.axes.map(name).join('/')} instead of ${name(axisOfPair[j]!)}`);
  return `${off.length} pairs are rotated by another axis: ${shown.join(', ')}${off.length > 4 ? ', …' : ''}.`;
};

const heads: Compare = (_what, { headsAgree, outcome }) => {
  if (outcome === 'mirrored') return MIRRORED;
  return headsAgree ? undefined : 'The heads of one token rotate by different angles.';
};

/** In the order in which differences are listed. */
const COMPARE = { pairing, dimensions, direction, frequencies, magnitude, positions, axes, heads };

/** A number for a sentence. */
export function short(value: number): string {
  return String(Number(value.toPrecision(7)));
}
