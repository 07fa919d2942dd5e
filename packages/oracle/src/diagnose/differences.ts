/**
 * In what a rotation that was found differs from the one that was expected, in words with numbers.
 *
 * @module
 */

import { frequenciesOf } from 'ropewalk';
import { ranges, sharePairs } from 'ropewalk/backend';
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
  /** A sentence: what it does, where what was meant. */
  readonly words: string;
}

/**
 * Lists differences.
 *
 * @param expected - what was meant
 * @param found - what was measured
 * @returns empty when what was measured agrees as far as it goes
 */
export function differencesOf(expected: Expected, found: Identification): Difference[] {
  const odd = withoutPairs(found);
  if (odd) return [odd];
  return [pairing, dimensions, direction, frequencies, magnitude, positions, axes, heads].flatMap(
    (compare) => compare(expected, found) ?? [],
  );
}

function withoutPairs(found: Identification): Difference | undefined {
  const { outcome, gain } = found;
  if (outcome === 'not finite') return { what: 'no rotation', words: 'y holds values that are not finite.' };
  if (outcome === 'zero') return { what: 'no rotation', words: 'y is 0 everywhere: nothing was written.' };
  if (outcome === 'unchanged')
    return {
      what: 'no rotation',
      words:
        gain === undefined || Math.abs(gain - 1) < 1e-6
          ? 'y is x: nothing turned.'
          : `y is x times ${short(gain)}: nothing turned.`,
    };
  if (outcome === 'no rotation')
    return {
      what: 'no rotation',
      words:
        'No two dimensions of a head keep their length together: the members of a pair turn by different angles, or heads were mixed up.',
    };
  return undefined;
}

type Compare = (expected: Expected, found: Identification) => Difference | undefined;

const pairing: Compare = ({ spec, direction }, { layout, headDim }) => {
  const want = expectedPair(spec, direction);
  const have = layout!.pairs.map(({ read, write }) => `${read}>${write}`);
  const [j] = [...want.keys()].filter((at) => !have.includes(want[at]!.key));
  if (j === undefined) return undefined;
  // Pairs that turn too little to be seen are not in the layout; they are no difference in pairing.
  const starts = layout!.pairs[0]!;
  const first = want[0]!;
  if (layout!.name === 'interleaved' && want.slice(0, layout!.pairs.length).every(({ key }, n) => key === have[n]))
    return undefined;
  if (
    `${starts.read}>${starts.write}` === first.key &&
    layout!.pairs.length < want.length &&
    want.slice(0, have.length).every(({ key }, n) => key === have[n])
  )
    return undefined;
  const says = (read: readonly number[], write: readonly number[]): string =>
    read.join() === write.join() ? `(${read.join(', ')})` : `(${read.join(', ')}) written to (${write.join(', ')})`;
  return {
    what: 'pairing',
    words: `Pairs are ${nameOf(layout!.name, layout!.distance, headDim)}, such as ${says(starts.read, starts.write)}, where ${spec.pairing} is expected, such as ${says(first.read, first.write)}.`,
  };
};

function nameOf(name: string, distance: number, headDim: number): string {
  if (name === 'half') return `half, ${distance} apart${2 * distance === headDim ? ' (head_dim / 2)' : ''}`;
  return name === 'quarter'
    ? `half inside each half, ${distance} apart`
    : name === 'free'
      ? 'of no usual layout'
      : name;
}

/** Where the members of each pair are expected. */
function expectedPair(
  { pairing, headDim, rotaryDim = headDim, rotaryOffset = 0 }: Expected['spec'],
  direction: Expected['direction'],
) {
  const half = rotaryDim / 2;
  const adjacent = (j: number): [number, number] => [rotaryOffset + 2 * j, rotaryOffset + 2 * j + 1];
  const apart = (j: number): [number, number] => [rotaryOffset + j, rotaryOffset + j + half];
  return Array.from({ length: half }, (_, j) => {
    const from = pairing === 'interleaved' || pairing === 'interleaved-to-half' ? adjacent(j) : apart(j);
    const to = pairing === 'interleaved' ? adjacent(j) : apart(j);
    const [read, write] = direction === 'backward' ? [to, from] : [from, to];
    return { read, write, key: `${read}>${write}` };
  });
}

const dimensions: Compare = ({ spec }, { geometry, layout }) => {
  const rotaryDim = spec.rotaryDim ?? spec.headDim;
  const offset = spec.rotaryOffset ?? 0;
  const turned = geometry!.dims.flatMap((kind, i) => (kind === 'turned' ? [i] : []));
  const outside = turned.filter((i) => i < offset || i >= offset + rotaryDim);
  if (outside.length > 0) {
    return {
      what: 'dimensions',
      words: `Dimensions ${ranges(turned)} turn, where only ${offset}-${offset + rotaryDim - 1} should (rotary_dim ${rotaryDim}).`,
    };
  }
  if (layout!.first > offset)
    return {
      what: 'dimensions',
      words: `The first dimension that turns is ${layout!.first}, where ${offset} is expected.`,
    };
  return undefined;
};

const direction: Compare = ({ direction = 'forward' }, { sign }) => {
  const want = direction === 'forward' ? 1 : -1;
  if (sign === want) return undefined;
  if (sign === undefined) return { what: 'direction', words: 'Some pairs turn one way and some the other.' };
  return {
    what: 'direction',
    words: `It turns the other way: ${sign < 0 ? 'backward' : 'forward'}, where ${direction} is expected (sin has the other sign).`,
  };
};

const frequencies: Compare = (expected, found) => {
  const { spec } = expected;
  const { invFreq } = frequenciesOf(spec);
  const pairs = found.pairs.slice(0, invFreq.length);
  const off = pairs.flatMap((pair, j) => (outside(pair, invFreq[j]!) ? [j] : []));
  const more = found.pairs.slice(invFreq.length).filter((pair) => pair.turns).length;
  if (off.length === 0 && more === 0) return undefined;
  return { what: 'frequencies', words: describeFrequencies(expected, found, invFreq, off, more) };
};

/** An f32 frequency is not another frequency. */
function outside({ frequency, low, high, turns }: FoundPair, wanted: number): boolean {
  const slack = 1e-5 * wanted;
  if (!turns) return wanted > Math.max(Math.abs(low), Math.abs(high)) + slack;
  const [a, b] = frequency < 0 ? [-high, -low] : [low, high];
  return wanted < a - slack || wanted > b + slack;
}

function describeFrequencies(
  { spec }: Expected,
  found: Identification,
  invFreq: Float64Array,
  off: readonly number[],
  more: number,
): string {
  const ratios = off.flatMap((j) =>
    found.pairs[j]!.turns && invFreq[j]! > 0 ? [Math.abs(found.pairs[j]!.frequency) / invFreq[j]!] : [],
  );
  const still = off.filter((j) => !found.pairs[j]!.turns);
  const parts: string[] = [];
  const same = ratios.length > 0 && ratios.every((r) => Math.abs(r / ratios[0]! - 1) < 1e-3);
  if (same && ratios.length > 0) {
    const which =
      ratios.length === invFreq.length ? 'every pair' : `pairs ${ranges(off.filter((j) => found.pairs[j]!.turns))}`;
    parts.push(`The frequency of ${which} is ${short(ratios[0]!)} times the expected one`);
  } else if (ratios.length > 0) {
    parts.push(
      `The frequencies of pairs ${ranges(off)} differ, by factors from ${short(Math.min(...ratios))} to ${short(Math.max(...ratios))}`,
    );
    const law = lawWords(spec, found);
    if (law) parts.push(law);
  }
  if (still.length > 0) parts.push(`pairs ${ranges(still)} do not turn`);
  if (more > 0) parts.push(`${more} more pairs turn than expected`);
  return `${parts.join('; ')}.`;
}

function lawWords(spec: Expected['spec'], { law }: Identification): string | undefined {
  if (!law) return 'they follow no rule of one base';
  const denominator = spec.frequencyDim ?? spec.rotaryDim ?? spec.headDim;
  const bases = basesOf(law, [denominator, spec.headDim]);
  const usual = bases.find((one) => one.denominator === denominator)!;
  const over = bases.find((one) => one.denominator === spec.headDim)!;
  const scaled = law.scaling.kind === 'none' ? '' : ` with ${law.scaling.kind} scaling by ${short(law.scaling.factor)}`;
  if (denominator !== spec.headDim && Math.abs(over.base / spec.base - 1) < 1e-4)
    return `they are those of base ${short(spec.base)} with exponents over head_dim=${spec.headDim} instead of ${denominator}${scaled}`;
  if (Math.abs(usual.base / spec.base - 1) < 1e-4)
    return `they are those of the base expected, ${short(spec.base)}, ${scaled === '' ? 'without scaling' : scaled.trim()}`;
  return `they are those of base ${short(usual.base)} instead of ${short(spec.base)}${scaled}`;
}

const magnitude: Compare = ({ spec }, { gain, gainRange, geometry }) => {
  const { attentionFactor } = frequenciesOf(spec);
  if (gain === undefined || !gainRange)
    return { what: 'magnitude', words: 'Not all pairs are lengthened by the same factor.' };
  if (attentionFactor < gainRange[0] - 1e-6 || attentionFactor > gainRange[1] + 1e-6) {
    const squared = Math.abs(gain / attentionFactor ** 2 - 1) < 1e-3 ? ', its square' : '';
    return {
      what: 'magnitude',
      words: `Pairs become ${short(gain)} times as long${squared}, where ${short(attentionFactor)} is expected.`,
    };
  }
  const scaled = geometry!.dims.flatMap((kind, i) => (kind === 'scaled' ? [i] : []));
  const window = (i: number): boolean =>
    i >= (spec.rotaryOffset ?? 0) && i < (spec.rotaryOffset ?? 0) + (spec.rotaryDim ?? spec.headDim);
  const beside = scaled.filter((i) => !window(i));
  return beside.length > 0
    ? { what: 'magnitude', words: `Dimensions ${ranges(beside)} are scaled, which should be copied.` }
    : undefined;
};

const positions: Compare = (_, { positions: rules, foundPositions }) => {
  if (rules.some(({ asGiven }) => asGiven)) return undefined;
  if (rules.length > 0)
    return {
      what: 'positions',
      words: `It turns by ${rules.map(({ words }) => words).join(', or by ')}, where the position as given is expected.`,
    };
  const elsewhere = foundPositions.filter(
    ({ given, intervals }) =>
      intervals.length > 0 && !intervals.some(([low, high]) => given > low - 0.5 && given < high + 0.5),
  );
  const shown = elsewhere.slice(0, 4).map(({ unit, given, intervals }) => {
    const [low, high] = intervals[0]!;
    const head = unit.head === undefined ? '' : ` head ${unit.head}`;
    return `batch ${unit.batch} token ${unit.seq}${head} at ${intervals.length > 1 ? 'one of several' : short(Math.round((low + high) * 50) / 100)} instead of ${given}`;
  });
  const all = `${elsewhere.length} of ${foundPositions.length} ${foundPositions.some(({ unit }) => unit.head !== undefined) ? 'heads' : 'tokens'}`;
  const as =
    shown.length > 0
      ? `; ${all} turn as if at other positions: ${shown.join(', ')}${elsewhere.length > 4 ? ', …' : ''}`
      : '';
  return { what: 'positions', words: `Angles are no line over the positions as given${as}.` };
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
  return {
    what: 'axes',
    words: `${off.length} pairs are turned by another axis: ${shown.join(', ')}${off.length > 4 ? ', …' : ''}.`,
  };
};

const heads: Compare = (_, { headsAgree, outcome }) => {
  if (outcome === 'mirrored')
    return {
      what: 'heads',
      words: 'Pairs are mirrored, not only turned: one of the four products has the wrong sign.',
    };
  return headsAgree ? undefined : { what: 'heads', words: 'The heads of one token turn by different angles.' };
};

/** A number for a sentence. */
export function short(value: number): string {
  return String(Number(value.toPrecision(7)));
}
