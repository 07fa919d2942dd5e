/**
 * The differences between a measured rotation and the expected one, in sentences with numbers. Measurements of a sample of
 * rows propose claims; a sentence says what is left of them when all rows are looked at. @module
 */
import { frequenciesOf, roundTo } from 'ropewalk';
import { dynamicNtkBase, ranges, sharePairs, yarnRampEdges } from 'ropewalk/internal';
import { type Compared, compared } from '../fit/compared.js';
import { factorWords } from '../fit/frequency-families.js';
import {
  asWritten,
  basesOf,
  type FoundBase,
  type FoundScaling,
  type FrequencyLaw,
  isSharp,
} from '../fit/frequency-law.js';
import { type FoundPair, type Identification, isClear } from '../fit/identification.js';
import { byAxis, otherAxes } from '../match/pair-terms.js';
import type { DimKind, PairAt, PairLayout } from '../measure/geometry.js';
import { sentence, short } from '../measure/residuals.js';
import type { Expected } from '../read/expected.js';
import type { Heads } from '../read/observation.js';

/** One difference, in words and as numbers. */
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
  /** The numbers of the pairs, or the dimensions of a head, that it is about; undefined for all. */
  readonly pairs?: readonly number[];
  readonly dims?: readonly number[];
  /** The first tokens, or heads of tokens, that rotate as if at other positions than those given. */
  readonly rows?: readonly {
    readonly batch: number;
    readonly token: number;
    /** Undefined for all heads. */
    readonly head: number | undefined;
    readonly found: number;
    readonly expected: number;
  }[];
  /**
   * The value that was found, and the expected one: the frequency of each of `pairs` in radians a position, negative for
   * backward, with NaN for one that is not known; a magnitude, or those of cos and sin; or the pairing, the direction or
   * the rule of the positions, in words.
   */
  readonly found?: number | string | readonly number[];
  readonly expected?: number | string | readonly number[];
}

type MovedRow = NonNullable<Difference['rows']>[number];

/** A difference without its kind. */
type Told = Omit<Difference, 'what'>;

/** The most tokens at other positions that are listed. */
const MOST_ROWS = 64;

/** Whether the measurements, run as a rotation, give y. */
export function isProven({ explains, gains }: Identification): boolean {
  return explains !== undefined || gains !== undefined;
}

/**
 * Lists the differences that are so in every row.
 *
 * @param heads - the rows that were measured, with the norm applied to x
 */
export function differencesOf(expected: Expected, measured: Identification, heads: Heads): Difference[] {
  const found = aligned(expected, measured);
  const of = compared(found, heads);
  const odd = withoutPairs(found);
  if (odd !== undefined) return [{ what: 'no rotation', words: odd }];
  if (!found.layout) return [];
  return (Object.keys(COMPARE) as (keyof typeof COMPARE)[]).flatMap((what) => {
    // Another magnitude may be noise whose size is not known.
    const isSure = what !== 'magnitude' || isProven(found) || isOneLength(of);
    const told = isSure ? COMPARE[what](expected, of) : undefined;
    return told === undefined ? [] : [{ what, ...told }];
  });
}

/** Whether pairs have one magnitude in every row. */
function isOneLength({ gain, pairs, ...found }: Compared): boolean {
  const seen = found.claimed(pairs.flatMap((pair, j) => (pair.seen ? [j] : [])));
  return gain !== undefined && found.all({ kind: 'lengths', pairs: seen, gain });
}

/** Adds the first expected pairs to those that were found, if only they are missing: they may turn by whole turns. */
function aligned({ spec, direction }: Expected, found: Identification): Identification {
  const { layout, numAxes } = found;
  const want = expectedPairs(spec, direction);
  // A window of the same size that starts later ends with pairs that are none.
  const pairs = found.pairs.filter((pair) => pair.turns || want.some((one) => keyOf(one) === keyOf(pair)));
  const start = layout ? want.findIndex((pair) => keyOf(pair) === keyOf(layout.pairs[0]!)) : 0;
  if (
    start < 1 ||
    numAxes > 1 ||
    pairs.length === 0 ||
    pairs.some((pair, j) => !want[start + j] || keyOf(pair) !== keyOf(want[start + j]!))
  )
    return found;
  const unknown = { ...pairs[0]!, frequency: 0, low: 0, high: 0, others: [], turns: true, known: false, moves: false };
  const missing = want.slice(0, start).map((pair): FoundPair => ({ ...unknown, ...pair }));
  const all = [...missing, ...pairs];
  return { ...found, layout: { ...layout!, first: windowOf(spec)[0], pairs: all }, layouts: [], pairs: all };
}

const keyOf = ({ read, write }: PairAt): string => `${read}>${write}`;

/** A sentence on a y in which no pairs were rotated. */
export function withoutPairs({ outcome, gain }: Identification): string | undefined {
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
      return 'y is x: nothing was rotated. The kernel did not run, all angles are 0, or x was dumped after it ran in place.';
    }
    default:
      return undefined;
  }
}

export const MIRRORED =
  'Pairs are mirrored, not only rotated: one member has the opposite sign, or the two are exchanged.';

type Compare = (expected: Expected, found: Compared) => Told | undefined;

/** The first dimension that should rotate, and the one after the last. */
function windowOf({ headDim, rotaryDim = headDim, rotaryOffset = 0 }: Expected['spec']): [first: number, end: number] {
  return [rotaryOffset, rotaryOffset + rotaryDim];
}

const pairing: Compare = ({ spec, direction }, { layout, layouts, headDim, ...found }) => {
  const want = expectedPairs(spec, direction);
  const keys = (list: readonly PairAt[]): string[] => list.map(keyOf);
  const wanted = keys(want);
  // Pairs that rotate too little to be seen are missing in the layout, which is no difference.
  const asWanted = ({ pairs }: PairLayout): boolean => {
    const have = keys(pairs);
    return wanted.every((key) => have.includes(key)) || wanted.slice(0, have.length).every((key, n) => key === have[n]);
  };
  if ([layout!, ...layouts].some(asWanted)) return undefined;
  const seen = found.pairs.flatMap((pair, j) => (pair.seen ? [j] : []));
  if (!found.gains && !found.all({ kind: 'lengths', pairs: found.claimed(seen) })) return undefined;
  const { name, distance, pairs } = layout!;
  const says = ({ read, write }: PairAt): string =>
    read.join() === write.join() ? `(${read.join(', ')})` : `(${read.join(', ')}) written to (${write.join(', ')})`;
  const names: Partial<Record<typeof name, string>> = {
    half: `half, ${distance} apart${2 * distance === headDim ? ' (head_dim / 2)' : ''}`,
    quarter: `half inside each half, ${distance} apart`,
    free: 'of no usual layout',
  };
  const words = `Pairs are ${names[name] ?? name}, such as ${says(pairs[0]!)}; expected is ${spec.pairing}, such as ${says(want[0]!)}.`;
  return { words, found: name, expected: spec.pairing };
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

const dimensions: Compare = ({ spec }, { geometry, layout, ...found }) => {
  const [first, end] = windowOf(spec);
  const of = (wanted: DimKind): number[] => geometry!.dims.flatMap((kind, i) => (kind === wanted ? [i] : []));
  const parts: string[] = [];
  const named: number[] = [];
  for (const [kind, value, words] of [
    ['zero', 'zero', 'hold 0 in every row'],
    ['nan', 'not finite', 'hold no finite number in any row'],
  ] as const) {
    const dims = found.dims({ kind: 'holds', dims: of(kind), value });
    if (dims.length > 0) parts.push(`Dimensions ${ranges(dims)} ${words}.`);
    named.push(...dims);
  }
  const isOutside = (i: number): boolean => i < first || i >= end;
  const turned = found.pairs.some(({ write }) => write.some(isOutside)) ? turnedDims(found) : [];
  if (turned.some(isOutside)) {
    parts.push(`Dimensions ${ranges(turned)} rotate; only ${first}-${end - 1} should (rotary_dim ${end - first}).`);
    named.push(...turned.filter(isOutside));
  } else if (layout!.first > first && found.dims({ kind: 'holds', dims: [first], value: 'x' }).length > 0) {
    parts.push(`The first dimension that rotates is ${layout!.first}; expected is dimension ${first}.`);
    named.push(first);
  }
  return parts.length > 0 ? { words: parts.join(' '), dims: named } : undefined;
};

/** The dimensions of pairs that rotate and keep their length, in every row. */
function turnedDims(found: Omit<Compared, 'geometry' | 'layout'>): number[] {
  const all = found.claimed([...found.pairs.keys()], () => 0);
  const turning = found.true({ kind: 'turns otherwise', pairs: all, position: () => 0 });
  const kept = found.true({ kind: 'lengths', pairs: found.claimed(turning) });
  return kept.flatMap((j) => found.pairs[j]!.write).sort((a, b) => a - b);
}

/** The pairs that are known to turn one way: 1 for forward, −1 for backward. */
export function pairsTurning(pairs: readonly FoundPair[], way: 1 | -1): number[] {
  return [...pairs.keys()].filter((j) => pairs[j]!.turns && pairs[j]!.known && pairs[j]!.frequency * way > 0);
}

const direction: Compare = ({ direction = 'forward' }, found) => {
  const { sign, pairs, formulas } = found;
  const [ahead, back] = ([1, -1] as const).map((way) => found.turning(pairsTurning(pairs, way))) as [
    number[],
    number[],
  ];
  if (sign === undefined) {
    if (ahead.length === 0 || back.length === 0) return undefined;
    const words = `${sentence(pairsWords(ahead))} ${ahead.length === 1 ? 'rotates' : 'rotate'} forward, ${pairsWords(back)} backward.`;
    return { words, pairs: direction === 'forward' ? back : ahead, expected: direction };
  }
  const way = sign < 0 ? 'backward' : 'forward';
  if (way === direction || formulas.length > 0 || ahead.length + back.length < pairsTurning(pairs, sign).length)
    return undefined;
  const words = `It rotates ${way}; expected is ${direction} (sin has the opposite sign).`;
  return { words, found: way, expected: direction };
};

const frequencies: Compare = ({ spec, direction: way }, found) => {
  const { invFreq } = frequenciesOf(spec);
  const sign = way === 'backward' ? -1 : 1;
  const told = (words: string, of: readonly number[]): Told => ({
    words,
    pairs: of,
    found: of.map((j) => (found.pairs[j]!.known ? found.pairs[j]!.frequency : found.pairs[j]!.turns ? Number.NaN : 0)),
    expected: of.map((j) => sign * (invFreq[j] ?? 0)),
  });
  const known = found.pairs.flatMap(({ turns, known }, j) => (turns && known ? [j] : []));
  if (found.formulas.length > 0) {
    if (found.turning(known).length < known.length) return undefined;
    return told(
      `The frequency of pair j is ${found.formulas.join(', or ')}; expected is ${expectedWords(spec)}.`,
      known,
    );
  }
  if (invFreq.every((f) => f === 0)) {
    const turning = found.turning(known);
    return turning.length > 0 ? told(`${sentence(pairsWords(turning))} rotate; none should.`, turning) : undefined;
  }
  const factor = factorOfAll(found, invFreq, found.sign ?? sign);
  if (factor !== undefined) {
    const unit = factorWords(factor, 1e-6);
    return told(
      `The frequency of every pair is ${short(factor)} times the expected one${unit ? ` (${unit})` : ''}.`,
      Array.from(invFreq.keys()),
    );
  }
  const table = tableWords(spec, found, sign);
  if (table) return told(`The frequency of pair j is ${table}; expected is ${expectedWords(spec)}.`, known);
  const pairs = found.pairs.slice(0, invFreq.length);
  const off = pairs.flatMap((pair, j) => (outside(pair, invFreq[j]!) ? [j] : []));
  const more = found.turning(known.filter((j) => j >= invFreq.length));
  const still = found.turning(
    off.filter((j) => !pairs[j]!.turns),
    () => 0,
  );
  const turning = found.turning(off.filter((j) => pairs[j]!.turns && pairs[j]!.known));
  const otherwise = found.claimed(
    off.filter((j) => pairs[j]!.turns && !pairs[j]!.known),
    (j) => sign * invFreq[j]!,
  );
  // Where pairs have no one length, an angle may be that of cos or sin alone with another factor.
  const unknown =
    found.gain === undefined ? [] : found.true({ kind: 'turns otherwise', pairs: otherwise, position: found.given });
  // Where other pairs are not understood, what looks like another frequency may be something else.
  const others = pairs.flatMap((pair, j) => ((pair.turns || pair.seen) && !off.includes(j) ? [j] : []));
  const clearly = found.turning(others).length + turning.length + unknown.length + still.length;
  if (8 * clearly < 7 * (others.length + off.length)) return undefined;
  // A frequency that is known to a few per cent only has no factor.
  const clear = turning.filter((j) => invFreq[j]! > 0 && isClear(pairs[j]!));
  const ratios = clear.map((j) => Math.abs(pairs[j]!.frequency) / invFreq[j]!);
  const parts: string[] = [];
  // One position shows only angles.
  const [noun, nouns] = found.onePosition ? ['angle', 'angles'] : ['frequency', 'frequencies'];
  const one = Number(short(ratios[0] ?? 1));
  const same =
    ratios.length === turning.length &&
    ratios.every((r) => Math.abs(r / one - 1) < 1e-3) &&
    clear.every((j) => isWithin(pairs[j]!, one * invFreq[j]!));
  // The record that gives y says how many whole turns pairs make that the positions do not show.
  const record = recorded(found);
  const byRecord = found.turning(record.length < invFreq.length ? [] : unknown, (j) => sign * record[j]!);
  const law = turning.length + still.length + byRecord.length === off.length ? lawWords(spec, found) : undefined;
  const moved =
    off.length > 1 && turning.length === off.length ? borrowed(found, invFreq, found.sign ?? sign) : undefined;
  if (ratios.length > 0 && same && !moved) {
    const which = ratios.length === invFreq.length ? 'every pair' : pairsWords(turning);
    const unit = factorWords(ratios[0]!, 1e-6);
    parts.push(`The ${noun} of ${which} is ${short(one)} times the expected one${unit ? ` (${unit})` : ''}`);
  } else if (moved) parts.push(moved);
  else if (turning.length > 0) {
    const of = clear.length < turning.length ? `, of ${pairsWords(clear)}` : '';
    const factors = factorsWords(clear.map((j, n) => [ratios[n]!, pairs[j]!]));
    parts.push(
      ...(law ? [law] : []),
      `the ${turning.length === 1 ? noun : nouns} of ${pairsWords(turning)} ${turning.length === 1 ? 'differs' : 'differ'}${factors && `${factors}${of}`}`,
    );
  }
  if (unknown.length > 0)
    parts.push(
      `${parts.length > 0 ? 'the' : 'The'} angles of ${pairsWords(unknown)} are not the expected ones; these positions do not show how many whole turns they made`,
    );
  if (still.length > 0) {
    const dims = found.claimed(still).flatMap(({ write }) => write);
    const isX = found.dims({ kind: 'holds', dims, value: 'x' }).length === dims.length;
    const does = still.length === 1 ? 'does' : 'do';
    parts.push(
      isX
        ? `${pairsWords(still)} ${does} not rotate: y is x in dimensions ${ranges(dims.sort((a, b) => a - b))}`
        : `${pairsWords(still)} ${does} not rotate, or by whole turns, or too little to measure`,
    );
  }
  // Others may rotate too little to measure.
  if (more.length > 0)
    parts.push(`at least ${more.length} more ${more.length === 1 ? 'pair rotates' : 'pairs rotate'} than expected`);
  const all = [...turning, ...unknown, ...still, ...more].sort((a, b) => a - b);
  return parts.length > 0 ? told(`${sentence(parts.join('; '))}.`, all) : undefined;
};

/** The least and the largest factor, each in the digits to which its pair is known; empty without pairs. */
function factorsWords(factors: readonly (readonly [ratio: number, pair: FoundPair])[]): string {
  const words = factors
    .toSorted(([a], [b]) => a - b)
    .map(([ratio, { low, high, frequency }]) => {
      const digits = Math.ceil(-Math.log10((high - low) / 2 / Math.abs(frequency)));
      return String(Number(ratio.toPrecision(Math.min(7, Math.max(3, digits)))));
    });
  const [least, most] = [words[0], words.at(-1)];
  if (least === undefined) return '';
  return least === most ? `, by a factor of ${least}` : `, by factors from ${least} to ${most}`;
}

/** The frequencies of the record that gives y, if they are those of a rule; empty if not. */
function recorded({ explains, expected }: Compared): number[] {
  return explains && expected && !expected.spec.freqFactors ? Array.from(frequenciesOf(expected.spec).invFreq) : [];
}

/** The factor of all frequencies in the record that gives y; undefined if they have not one, or it is 1. */
function factorOfAll(found: Compared, invFreq: Float64Array, sign: number): number | undefined {
  const { onePosition } = found;
  const own = recorded(found);
  const factor = own[0]! / invFreq[0]!;
  const isOne = own.length === invFreq.length && own.every((f, j) => Math.abs(f / invFreq[j]! / factor - 1) < 1e-6);
  if (!isOne || onePosition || found.pairs.length < own.length || Math.abs(factor - 1) < 1e-5) return undefined;
  const pairs = Array.from(invFreq.keys());
  return found.turning(pairs, (j) => sign * factor * invFreq[j]!).length === pairs.length ? factor : undefined;
}

/** A table that a kernel may make of the model's parameters and that gives every angle; undefined if none does. */
function tableWords(spec: Expected['spec'], found: Compared, sign: number): string | undefined {
  const { freqFactors, scaling } = spec;
  const { invFreq } = frequenciesOf(spec);
  const all = [...invFreq.keys()];
  const gives = (frequency: (j: number) => number): boolean =>
    found.turning(all, (j) => sign * frequency(j)).length === all.length;
  if (found.pairs.length !== all.length || gives((j) => invFreq[j]!)) return undefined;
  const tables: [words: string, frequency: (j: number) => number][] = [];
  if (freqFactors)
    tables.push(
      ['freq_factors[j] itself, which should divide base^(−2j/dim)', (j) => freqFactors[j]!],
      ['1/freq_factors[j], without base^(−2j/dim)', (j) => 1 / freqFactors[j]!],
    );
  if (scaling?.kind === 'longrope')
    for (const [words, context] of [
      ['short', scaling.originalContext],
      ['long', scaling.originalContext + 1],
    ] as const) {
      const other = frequenciesOf({ ...spec, scaling: { ...scaling, context } }).invFreq;
      tables.push([`LongRoPE’s with its ${words} factors`, (j) => other[j]!]);
    }
  if (scaling?.kind === 'yarn') {
    const { factor, extFactor = 1 } = scaling;
    const plain = frequenciesOf({ ...spec, scaling: { kind: 'none' } }).invFreq;
    const [low, high] = yarnRampEdges(scaling, spec.base, spec.frequencyDim ?? spec.rotaryDim ?? spec.headDim);
    const mixed = (j: number, mix: number): number => plain[j]! * (mix + (1 - mix) / factor);
    const ramp = (j: number): number => (j - low) / Math.max(0.001, high - low);
    for (const [words, least, most] of [
      ['not limited to 0 … 1', -Infinity, Infinity],
      ['not limited to 1 at its end', 0, Infinity],
      ['not limited to 0 at its start', -Infinity, 1],
    ] as const)
      tables.push([
        `YaRN’s with a ramp that is ${words}`,
        (j) => mixed(j, extFactor * (1 - Math.min(most, Math.max(least, ramp(j))))),
      ]);
    for (let times = 1 / 8; times <= 128; times *= 2)
      tables.push([
        `YaRN’s with ${short(times)} times the expected mix (ext_factor)`,
        (j) => mixed(j, times * extFactor * (1 - Math.min(1, Math.max(0, ramp(j))))),
      ]);
  }
  const words = tables.filter(([, frequency]) => gives(frequency)).map(([first]) => first);
  return words.length > 0 && words.length <= 2 ? words.join(', or ') : undefined;
}

/** The pairs whose expected frequencies the pairs have, by a rule in words; undefined if there is no such rule. */
function borrowed(found: Compared, invFreq: ArrayLike<number>, sign: number): string | undefined {
  const count = invFreq.length;
  const rules: [words: string, from: (j: number) => number][] = [
    ['the pairs have the expected frequencies in reverse order', (j) => count - 1 - j],
    ['every pair has the expected frequency of pair 0', () => 0],
  ];
  for (let n = 2; 2 * n <= count; n *= 2) {
    rules.push([`pair j has the expected frequency of pair j mod ${n}`, (j) => j % n]);
    rules.push([`pair j has the expected frequency of pair j − j mod ${n}`, (j) => j - (j % n)]);
  }
  const pairs = Array.from({ length: count }, (_, j) => j);
  return rules.find(
    ([, from]) =>
      pairs.every((j) => isWithin(found.pairs[j]!, invFreq[from(j)]!)) &&
      found.turning(pairs, (j) => sign * invFreq[from(j)]!).length === count,
  )?.[0];
}

/** Whether a pair may have a frequency, within what was measured and the rounding of f32. */
function isWithin({ low, high, frequency }: FoundPair, wanted: number): boolean {
  const [a, b] = frequency < 0 ? [-high, -low] : [low, high];
  return wanted >= a - 1e-6 * wanted && wanted <= b + 1e-6 * wanted;
}

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
  // The exponents of a vision tower start again at each section.
  if (!isProven(measured) || (law && !isSharp(law.scaling)) || spec.axes?.rule === 'vision') return undefined;
  if (!law)
    // A pair of another axis than it seems has another frequency than it seems.
    return measured.numAxes === 1 && pairs.every((pair) => pair.known || !pair.turns)
      ? 'the frequencies are not those of one base, with or without linear, llama3 or YaRN scaling'
      : undefined;
  if (law.step < 0) return `the frequency of each pair is ${short(Math.exp(-law.step))} times that of the pair before`;
  const denominator = spec.frequencyDim ?? spec.rotaryDim ?? spec.headDim;
  const bases = basesOf(law, [denominator, spec.headDim]);
  const over = (dim: number): FoundBase => bases.find((one) => one.denominator === dim)!;
  const expected = ({ base, error }: FoundBase): boolean =>
    error < 0.05 && Math.abs(base / spec.base - 1) < Math.max(1e-4, error);
  const { scaling } = law;
  const or = measured.onePosition && scaling.kind === 'linear' ? ', or positions divided,' : '';
  const scaled = scaling.kind === 'none' ? '' : ` with ${scaling.kind} scaling${or} by ${scalingFactor(scaling)}`;
  if (denominator !== spec.headDim && expected(over(spec.headDim)))
    return `the frequencies are those of base ${short(spec.base)} with exponents over head_dim=${spec.headDim} instead of ${denominator}${scaled}`;
  const found = over(denominator);
  if (expected(found))
    return `the frequencies are those of the expected base, ${short(spec.base)},${scaled || ' without scaling'}`;
  if (!(found.error < 0.5)) return undefined;
  const about = found.error > 1e-4 ? ` (± ${short(Number((100 * found.error).toPrecision(1)))} %)` : '';
  const ntk = spec.scaling?.kind === 'dynamicNtk' ? dynamicNtkBase(spec.base, denominator, spec.scaling) : spec.base;
  const wanted = ntk === spec.base ? short(ntk) : `${short(ntk)} (${short(spec.base)} by dynamic NTK)`;
  const reading = ntkContext(spec, found) ?? otherReading(law, denominator, spec.base);
  return `the frequencies are those of base ${short(found.base)}${about} instead of ${wanted}${scaled}${reading}`;
}

/** The context for which dynamic NTK gives a base; undefined where it gives none, or by another rule. */
function ntkContext({ scaling, base, ...spec }: Expected['spec'], found: FoundBase): string | undefined {
  if (scaling?.kind !== 'dynamicNtk' || !(found.base > base) || found.error > 1e-3) return undefined;
  const dim = found.denominator;
  const ratio = ((found.base / base) ** ((dim - 2) / dim) + scaling.factor - 1) / scaling.factor;
  const exact = ratio * scaling.originalContext;
  const context = Math.round(exact);
  const error = 2 * found.error * exact;
  const isWhole = error < 0.2 && Math.abs(exact - context) < 0.02 + error;
  if (!isWhole || context <= scaling.originalContext || context === scaling.context) return undefined;
  const given = dynamicNtkBase(base, spec.rotaryDim ?? spec.headDim, { ...scaling, context });
  return Math.abs(given / found.base - 1) < Math.max(1e-5, 2 * found.error)
    ? `, as dynamic NTK gives for a context of ${context} tokens`
    : undefined;
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

const magnitude: Compare = ({ spec }, { gain, gainRange, gains, geometry, layout }) => {
  const { attentionFactor: expected } = frequenciesOf(spec);
  if (gains) {
    const words = `cos is multiplied by ${short(gains.cos)} and sin by ${short(gains.sin)}; expected is ${short(expected)} for both.`;
    return { words, found: [gains.cos, gains.sin], expected };
  }
  if (gain === undefined || !gainRange)
    return { words: 'Not all pairs of all tokens are lengthened by the same factor.', expected };
  if (expected < gainRange[0] - 1e-6 || expected > gainRange[1] + 1e-6) {
    const isPower = (power: number): boolean => expected !== 1 && Math.abs(gain / expected ** power - 1) < 1e-3;
    const square = isPower(2)
      ? ', the square of the expected factor'
      : isPower(-1)
        ? ', which is 1 / the expected factor'
        : '';
    const narrow = (['f16', 'bf16'] as const).find((dtype) => {
      const rounded = roundTo(dtype, expected);
      return rounded >= gainRange[0] && rounded <= gainRange[1];
    });
    const formula = square || (narrow ? `, which is the expected factor in ${narrow}` : magnitudeFormula(gain, spec));
    const words =
      short(gain) === '1'
        ? `Pairs keep their length; expected is ${short(expected)} times it.`
        : `Pairs become ${short(gain)} times as long${formula}; expected is ${short(expected)}.`;
    return { words, found: gain, expected };
  }
  const [first, end] = windowOf(spec);
  // A dimension of a slow pair looks scaled.
  const inPairs = new Set(layout!.pairs.flatMap(({ write }) => write));
  const beside = geometry!.dims.flatMap((kind, i) =>
    kind === 'scaled' && (i < first || i >= end) && !inPairs.has(i) ? [i] : [],
  );
  if (beside.length === 0) return undefined;
  return { words: `Dimensions ${ranges(beside)} are scaled; they should be copied.`, dims: beside };
};

/** A formula that gives a magnitude, and is not the expected one. */
function magnitudeFormula(gain: number, { headDim, scaling }: Expected['spec']): string {
  const formulas: [words: string, value: number][] = [
    ['1/√head_dim', headDim ** -0.5],
    ['√head_dim', headDim ** 0.5],
    ['1/head_dim', 1 / headDim],
  ];
  const factor = scaling && 'factor' in scaling ? (scaling.factor ?? 1) : 1;
  if (factor > 1)
    formulas.push(
      ['0.1·log2(factor) + 1', 0.1 * Math.log2(factor) + 1],
      ['0.1·log10(factor) + 1', 0.1 * Math.log10(factor) + 1],
      ['0.1·ln(factor)', 0.1 * Math.log(factor)],
      ['factor', factor],
      ['√factor', Math.sqrt(factor)],
    );
  if (factor > 1 && scaling && 'originalContext' in scaling) {
    const { originalContext } = scaling;
    const [inner, outer] = [Math.log(originalContext), Math.log(originalContext * factor)];
    formulas.push(
      ['√(1 + ln(factor) / ln(original context))', Math.sqrt(1 + Math.log(factor) / inner)],
      ['√(1 + ln(factor) / ln(context))', Math.sqrt(1 + Math.log(factor) / outer)],
    );
  }
  const found = formulas.find(([, value]) => Math.abs(gain / value - 1) < 1e-4);
  return found ? `, which is ${found[0]}` : '';
}

const positions: Compare = ({ spec }, found) => {
  const { positions: rules, foundPositions, numAxes } = found;
  const { invFreq } = frequenciesOf(spec);
  if (rules.some(({ asGiven }) => asGiven)) return undefined;
  const known = found.pairs.flatMap(({ turns, known }, j) => (turns && known ? [j] : []));
  if (rules.length > 0) {
    if (numAxes === 1 && found.turning(known).length < known.length) return undefined;
    const given = new Set(foundPositions.map((one) => one.given));
    const all = new Set(foundPositions.map((one) => rules[0]!.map(one.given, one.unit)));
    // One position shows only its product with the frequencies.
    if (given.size > 1 && all.size === 1)
      return {
        words: `All tokens rotate alike, as if at position ${[...all][0]} by the expected frequencies; expected is the position as given.`,
        found: [...all][0]!,
      };
    const [at, from] = [[...all][0], [...given][0]!];
    const or =
      given.size === 1 && all.size === 1 && at !== undefined && from !== 0
        ? `, or every frequency is ${short(at / from)} times the expected one`
        : '';
    const words = `It rotates by ${rules.map((one) => one.words).join(', or by ')}${or}; expected is the position as given.`;
    return { words, found: rules[0]!.words, expected: 'the position as given' };
  }
  if (foundPositions.length === 0 || known.length === 0 || known.some((j) => j >= invFreq.length)) return undefined;
  // Where other pairs are not understood, what looks like another position may be something else.
  if (8 * known.length < 7 * found.pairs.filter((pair) => pair.turns || pair.seen).length) return undefined;
  const elsewhere = foundPositions.flatMap(({ unit, given, intervals: [first, ...others] }) => {
    if (!first || others.length > 0 || (given > first[0] - 0.5 && given < first[1] + 0.5)) return [];
    const at = Math.round((first[0] + first[1]) * 50) / 100;
    const isHere = (r: number): boolean => {
      const { batch, seq, head } = found.place(r);
      return batch === unit.batch && seq === unit.seq && (unit.head === undefined || head === unit.head);
    };
    const middle = (first[0] + first[1]) / 2;
    const error = (first[1] - first[0]) / 2 / Math.abs(middle) + 1e-6;
    // A position is told by the expected frequencies: by others it would be another one.
    const turning = found
      .claimed(known, (j) => Math.sign(found.pairs[j]!.frequency) * invFreq[j]!)
      .map((pair) => ({ ...pair, error: error * Math.abs(pair.frequency) }));
    const position = (r: number): number => (isHere(r) ? middle : Number.NaN);
    const isSo =
      found.all({ kind: 'lengths', pairs: turning }) && found.all({ kind: 'turns', pairs: turning, position });
    return isSo ? [{ unit, given, at }] : [];
  });
  if (elsewhere.length === 0) return undefined;
  const [ratio] = elsewhere.map(({ given, at }) => Number((at / given).toPrecision(4)));
  const isFactor = ({ given, at }: { given: number; at: number }): boolean => Math.abs(at - ratio! * given) < 0.01 * at;
  const moved = elsewhere.map(
    ({ unit: { batch, seq, head }, given, at }): MovedRow => ({ batch, token: seq, head, found: at, expected: given }),
  );
  const rows = moved.slice(0, MOST_ROWS);
  if (elsewhere.length === foundPositions.filter(({ given }) => given !== 0).length && elsewhere.every(isFactor)) {
    const words = `It rotates by ${ratio} times the position, or every frequency is ${ratio} times the expected one; expected is the position as given.`;
    return { words, rows };
  }
  const shown = moved
    .slice(0, 4)
    .map(
      ({ batch, token, head, found, expected }) =>
        `batch ${batch} token ${token}${head === undefined ? '' : ` head ${head}`} at ${short(found)} instead of ${expected}`,
    );
  const units = foundPositions.some(({ unit }) => unit.head !== undefined) ? 'heads' : 'tokens';
  const rest = elsewhere.length > 4 ? ', …' : '';
  const words = `The angles are not proportional to the positions as given; ${elsewhere.length} of the ${foundPositions.length} ${units} that were measured rotate as if at other positions: ${shown.join(', ')}${rest}.`;
  return { words, rows };
};

const axes: Compare = ({ spec }, found) => {
  const { pairs, numAxes, sign = 1 } = found;
  if (numAxes < 2) return undefined;
  const { axisOfPair } = sharePairs(spec.axes, (spec.rotaryDim ?? spec.headDim) / 2);
  const differ = pairs.flatMap((pair, j) =>
    pair.turns && j < axisOfPair.length && !pair.axes.includes(axisOfPair[j]!) ? [j] : [],
  );
  // With another frequency it may be a position that differs.
  const { invFreq } = frequenciesOf(spec);
  const off = found.turning(differ, (j) => sign * invFreq[j]!);
  if (off.length === 0) return undefined;
  return { words: otherAxes(off.map((j) => [j, byAxis(pairs[j]!.axes, axisOfPair[j]!)])), pairs: off };
};

const heads: Compare = (_what, found) => {
  const seen = found.pairs.flatMap((pair, j) => (pair.seen ? [j] : []));
  if (found.outcome === 'mirrored')
    return found.all({ kind: 'lengths', pairs: found.claimed(seen) }) ? { words: MIRRORED } : undefined;
  return found.headsAgree ? undefined : { words: 'The heads of one token rotate by different angles.' };
};

/** The comparisons, in the order in which differences are listed. */
const COMPARE = { pairing, dimensions, direction, frequencies, magnitude, positions, axes, heads };

/** A bound with one digit, rounded up. */
export function upwards(error: number): string {
  const step = 10 ** Math.floor(Math.log10(error));
  return (Math.ceil(error / step - 1e-9) * step).toExponential(0);
}
