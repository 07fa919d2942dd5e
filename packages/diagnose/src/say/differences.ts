/** The differences between a measured rotation and the expected one, in sentences with numbers. @module */
import { frequenciesOf } from 'ropewalk';
import { ranges, sharePairs } from 'ropewalk/internal';
import { factorWords } from '../fit/frequency-families.js';
import {
  asWritten,
  basesOf,
  type FoundBase,
  type FoundScaling,
  type FrequencyLaw,
  isSharp,
} from '../fit/frequency-law.js';
import type { FoundPair, Identification } from '../fit/identification.js';
import type { DimKind, PairAt, PairLayout } from '../measure/geometry.js';
import { short } from '../measure/residuals.js';
import type { Expected } from '../read/expected.js';

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
  /** A sentence about what the kernel does and what is expected. */
  readonly words: string;
}

/** Whether the measurements, run as a rotation, give y. */
export function isProven({ explains, gains }: Identification): boolean {
  return explains !== undefined || gains !== undefined;
}

/** Lists the differences that were measured. */
export function differencesOf(expected: Expected, found: Identification): Difference[] {
  const odd = withoutPairs(found);
  if (odd !== undefined) return [{ what: 'no rotation', words: odd }];
  return (Object.keys(COMPARE) as (keyof typeof COMPARE)[]).flatMap((what) => {
    // Another magnitude may be noise whose size is not known.
    const words = what === 'magnitude' && !isProven(found) ? undefined : COMPARE[what](expected, found);
    return words === undefined ? [] : [{ what, words }];
  });
}

/** A sentence on a y in which no pairs were rotated. */
export function withoutPairs({ outcome, gain, geometry }: Identification): string | undefined {
  switch (outcome) {
    case 'not finite':
      return 'y has values that are not finite.';
    case 'zero':
    case 'nan': {
      const [value, how] =
        outcome === 'nan'
          ? ['NaN', 'NaN was computed, such as from a table with NaN or by a division by 0']
          : ['0', 'it was multiplied by 0, such as by a magnitude (attn_factor) of 0'];
      return `y is ${value} everywhere: nothing wrote it (the kernel did not run, or y was dumped before it ran), or ${how}.`;
    }
    case 'unchanged': {
      if (gain !== undefined && Math.abs(gain - 1) > 1e-6) return `y is x times ${short(gain)}: nothing was rotated.`;
      return 'y is x: nothing was rotated. The kernel did not run, or x was dumped after it ran in place.';
    }
    case 'no rotation': {
      const { dims, matched = [] } = geometry!;
      if (matched.length === 0)
        return 'In y, no two dimensions of a head keep their joint length, as the members of a rotated pair do.';
      const turned = dims.flatMap((kind, i) => (kind === 'turned' ? [i] : []));
      const lonely = turned.filter((i) => !matched.includes(i));
      if (lonely.length === 0)
        return 'In y, the pairs of dimensions that keep their joint length are of no one layout.';
      return `In y, dimensions ${ranges(lonely)} keep their joint length with no other dimension; dimensions ${ranges(matched)} do.`;
    }
    default:
      return undefined;
  }
}

export const MIRRORED = 'Pairs are mirrored, not only rotated: one of the four products has the wrong sign.';

type Compare = (expected: Expected, found: Identification) => string | undefined;

/** The first dimension that should rotate, and the one after the last. */
function windowOf({ headDim, rotaryDim = headDim, rotaryOffset = 0 }: Expected['spec']): [first: number, end: number] {
  return [rotaryOffset, rotaryOffset + rotaryDim];
}

const pairing: Compare = ({ spec, direction }, { layout, layouts, headDim }) => {
  const want = expectedPairs(spec, direction);
  const keys = (list: readonly PairAt[]): string[] => list.map(({ read, write }) => `${read}>${write}`);
  const wanted = keys(want);
  // Pairs that rotate too little to be seen are missing in the layout, which is no difference.
  const asWanted = ({ pairs }: PairLayout): boolean => {
    const have = keys(pairs);
    return wanted.every((key) => have.includes(key)) || wanted.slice(0, have.length).every((key, n) => key === have[n]);
  };
  if (layouts.some(asWanted)) return undefined;
  const { name, distance, pairs } = layout!;
  const says = ({ read, write }: PairAt): string =>
    read.join() === write.join() ? `(${read.join(', ')})` : `(${read.join(', ')}) written to (${write.join(', ')})`;
  const names: Partial<Record<typeof name, string>> = {
    half: `half, ${distance} apart${2 * distance === headDim ? ' (head_dim / 2)' : ''}`,
    quarter: `half inside each half, ${distance} apart`,
    free: 'of no usual layout',
  };
  return `Pairs are ${names[name] ?? name}, such as ${says(pairs[0]!)}; expected is ${spec.pairing}, such as ${says(want[0]!)}.`;
};

/** The dimensions that each pair is expected to be read from and written to. */
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
  const of = (wanted: DimKind): number[] => geometry!.dims.flatMap((kind, i) => (kind === wanted ? [i] : []));
  const turned = of('turned');
  const parts: string[] = [];
  for (const [kind, words] of [
    ['zero', 'hold 0 in every row'],
    ['nan', 'hold no finite number in any row'],
  ] as const)
    if (of(kind).length > 0) parts.push(`Dimensions ${ranges(of(kind))} ${words}.`);
  if (turned.some((i) => i < first || i >= end))
    parts.push(`Dimensions ${ranges(turned)} rotate; only ${first}-${end - 1} should (rotary_dim ${end - first}).`);
  else if (layout!.first > first && geometry!.dims[first] === 'still')
    parts.push(`The first dimension that rotates is ${layout!.first}; expected is dimension ${first}.`);
  return parts.length > 0 ? parts.join(' ') : undefined;
};

/** The pairs that are known to turn one way: 1 for forward, −1 for backward. */
export function pairsTurning(pairs: readonly FoundPair[], way: 1 | -1): number[] {
  return [...pairs.keys()].filter((j) => pairs[j]!.turns && pairs[j]!.known && pairs[j]!.frequency * way > 0);
}

const direction: Compare = ({ direction = 'forward' }, { sign, pairs, formulas }) => {
  if (sign === undefined) {
    const [ahead, back] = [pairsTurning(pairs, 1), pairsTurning(pairs, -1)];
    if (ahead.length === 0 || back.length === 0) return undefined;
    return `${sentence(pairsWords(ahead))} ${ahead.length === 1 ? 'rotates' : 'rotate'} forward, ${pairsWords(back)} backward.`;
  }
  const found = sign < 0 ? 'backward' : 'forward';
  if (found === direction || formulas.length > 0) return undefined;
  return `It rotates ${found}; expected is ${direction} (sin has the opposite sign).`;
};

const frequencies: Compare = ({ spec }, found) => {
  const { invFreq } = frequenciesOf(spec);
  if (found.formulas.length > 0)
    return `The frequency of pair j is ${found.formulas.join(', or ')}; expected is ${expectedWords(spec)}.`;
  const pairs = found.pairs.slice(0, invFreq.length);
  const off = pairs.flatMap((pair, j) => (outside(pair, invFreq[j]!) ? [j] : []));
  const more = found.pairs.slice(invFreq.length).filter((pair) => pair.turns).length;
  if (off.length === 0 && more === 0) return undefined;
  const still = off.filter((j) => !pairs[j]!.turns);
  const turning = off.filter((j) => pairs[j]!.turns && pairs[j]!.known);
  const unknown = off.filter((j) => pairs[j]!.turns && !pairs[j]!.known);
  // A frequency that is known to a few per cent only has no factor.
  const clear = turning.filter((j) => {
    const { low, high, frequency } = pairs[j]!;
    return invFreq[j]! > 0 && high - low < 0.02 * Math.abs(frequency);
  });
  const ratios = clear.map((j) => Math.abs(pairs[j]!.frequency) / invFreq[j]!);
  const parts: string[] = [];
  const same = ratios.length === turning.length && ratios.every((r) => Math.abs(r / ratios[0]! - 1) < 1e-3);
  if (ratios.length > 0 && same) {
    const which = ratios.length === invFreq.length ? 'every pair' : pairsWords(turning);
    const unit = factorWords(ratios[0]!, 1e-6);
    parts.push(`The frequency of ${which} is ${short(ratios[0]!)} times the expected one${unit ? ` (${unit})` : ''}`);
  } else if (turning.length > 0) {
    const of = clear.length < turning.length ? `, of ${pairsWords(clear)}` : '';
    const factors =
      ratios.length > 0 ? `, by factors from ${short(Math.min(...ratios))} to ${short(Math.max(...ratios))}${of}` : '';
    const law = lawWords(spec, found);
    const one = turning.length === 1;
    parts.push(
      `The ${one ? 'frequency' : 'frequencies'} of ${pairsWords(turning)} ${one ? 'differs' : 'differ'}${factors}`,
      ...(law ? [law] : []),
    );
  }
  if (unknown.length > 0)
    parts.push(
      `${parts.length > 0 ? 'the' : 'The'} angles of ${pairsWords(unknown)} are not those of the expected frequencies; these positions do not show how many whole turns they made`,
    );
  if (still.length > 0)
    parts.push(`${pairsWords(still)} ${still.length === 1 ? 'does' : 'do'} not rotate, or by less than the noise`);
  // Others may rotate by less than the noise.
  if (more > 0) parts.push(`at least ${more} more ${more === 1 ? 'pair rotates' : 'pairs rotate'} than expected`);
  return `${sentence(parts.join('; '))}.`;
};

/** `pair 2` or `pairs 2-5`. */
function pairsWords(pairs: readonly number[]): string {
  return `${pairs.length === 1 ? 'pair' : 'pairs'} ${ranges(pairs)}`;
}

function expectedWords({ base, frequencyDim, rotaryDim, headDim, scaling }: Expected['spec']): string {
  const scaled = scaling && scaling.kind !== 'none' ? `, with ${scaling.kind} scaling` : '';
  return `${short(base)}^(−2j/${frequencyDim ?? rotaryDim ?? headDim})${scaled}`;
}

/** Whether a pair's frequency differs by more than f32 rounding, however many whole turns it may have made. */
function outside({ frequency, low, high, turns, known, others, period }: FoundPair, wanted: number): boolean {
  const slack = 1e-5 * wanted;
  if (!turns) return wanted > Math.max(Math.abs(low), Math.abs(high)) + slack;
  if (known) {
    const [a, b] = frequency < 0 ? [-high, -low] : [low, high];
    return wanted < a - slack || wanted > b + slack;
  }
  return [[low, high] as const, ...others].every(([a, b]) => {
    const middle = (a + b) / 2;
    const nearest = (way: number): number =>
      Math.abs(way * wanted - middle - period * Math.round((way * wanted - middle) / period));
    return Math.min(nearest(1), nearest(-1)) > (b - a) / 2 + slack;
  });
}

/** The law of the frequencies in words; undefined if there may be one that was not measured well enough. */
function lawWords(spec: Expected['spec'], measured: Identification): string | undefined {
  const { law, pairs } = measured;
  if (!isProven(measured) || (law && !isSharp(law.scaling))) return undefined;
  if (!law)
    return pairs.every((pair) => pair.known || !pair.turns)
      ? 'they are not those of one base, with or without linear, llama3 or YaRN scaling'
      : undefined;
  const denominator = spec.frequencyDim ?? spec.rotaryDim ?? spec.headDim;
  const bases = basesOf(law, [denominator, spec.headDim]);
  const over = (dim: number): FoundBase => bases.find((one) => one.denominator === dim)!;
  const expected = ({ base, error }: FoundBase): boolean =>
    error < 0.05 && Math.abs(base / spec.base - 1) < Math.max(1e-4, error);
  const { scaling } = law;
  const scaled = scaling.kind === 'none' ? '' : ` with ${scaling.kind} scaling by ${scalingFactor(scaling)}`;
  if (denominator !== spec.headDim && expected(over(spec.headDim)))
    return `they are those of base ${short(spec.base)} with exponents over head_dim=${spec.headDim} instead of ${denominator}${scaled}`;
  const found = over(denominator);
  if (expected(found))
    return `they are those of the expected base, ${short(spec.base)},${scaled || ' without scaling'}`;
  if (!(found.error < 0.5)) return undefined;
  const about = found.error > 1e-4 ? ` (± ${short(Number((100 * found.error).toPrecision(1)))} %)` : '';
  return `they are those of base ${short(found.base)}${about} instead of ${short(spec.base)}${scaled}${otherReading(law, denominator, spec.base)}`;
}

/** The factor of a scaling, with its bound if that is more than rounding. */
export function scalingFactor({ factor, factorError }: Exclude<FoundScaling, { kind: 'none' }>): string {
  const bound = factorError > 1e-5 ? ` (± ${upwards(factorError)} relative)` : '';
  return `${short(asWritten(factor, factorError))}${bound}`;
}

/** Names a denominator with which the base is the expected one. Twice the expected one is j for 2j. */
function otherReading({ step, stepBound }: FrequencyLaw, denominator: number, wanted: number): string {
  const exact = (2 * Math.log(wanted)) / step;
  const even = 2 * Math.round(exact / 2);
  const slack = Math.max(1e-5 * exact, (2 * stepBound * exact) / step);
  if (!(slack < 0.1) || even < 2 || Math.abs(even - exact) > slack) return '';
  const half = even === 2 * denominator ? ` (j/${denominator})` : '';
  return `, or of the expected base with exponents over ${even}${half} instead of ${denominator}`;
}

const magnitude: Compare = ({ spec }, { gain, gainRange, gains, geometry }) => {
  const { attentionFactor } = frequenciesOf(spec);
  if (gains)
    return `cos is multiplied by ${short(gains.cos)} and sin by ${short(gains.sin)}; expected is ${short(attentionFactor)} for both.`;
  if (gain === undefined || !gainRange) return 'Not all pairs of all tokens are lengthened by the same factor.';
  if (attentionFactor < gainRange[0] - 1e-6 || attentionFactor > gainRange[1] + 1e-6) {
    const square =
      attentionFactor !== 1 && Math.abs(gain / attentionFactor ** 2 - 1) < 1e-3
        ? ', the square of the expected factor'
        : '';
    return `Pairs become ${short(gain)} times as long${square}; expected is ${short(attentionFactor)}.`;
  }
  const [first, end] = windowOf(spec);
  const beside = geometry!.dims.flatMap((kind, i) => (kind === 'scaled' && (i < first || i >= end) ? [i] : []));
  return beside.length > 0 ? `Dimensions ${ranges(beside)} are scaled; they should be copied.` : undefined;
};

const positions: Compare = (_what, { positions: rules, foundPositions }) => {
  if (rules.some(({ asGiven }) => asGiven)) return undefined;
  if (rules.length > 0) {
    const given = new Set(foundPositions.map((one) => one.given));
    const used = rules[0]!.map(foundPositions[0]!.given, foundPositions[0]!.unit);
    // One position shows only its product with the frequencies.
    const or =
      given.size === 1 && used !== undefined && !given.has(0)
        ? `, or every frequency is ${short(used / [...given][0]!)} times the expected one`
        : '';
    return `It rotates by ${rules.map(({ words }) => words).join(', or by ')}${or}; expected is the position as given.`;
  }
  if (foundPositions.length === 0) return undefined;
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

/** The comparisons, in the order in which differences are listed. */
const COMPARE = { pairing, dimensions, direction, frequencies, magnitude, positions, axes, heads };

export function sentence(words: string): string {
  return `${words[0]!.toUpperCase()}${words.slice(1)}`;
}

/** A bound with one digit, rounded up. */
export function upwards(error: number): string {
  const step = 10 ** Math.floor(Math.log10(error));
  return (Math.ceil(error / step - 1e-9) * step).toExponential(0);
}
