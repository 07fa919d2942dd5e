/**
 * The changes that a probe tries, each with the sentence that is printed when the data prove it.
 *
 * @module
 */
import { frequenciesOf, type RopeScaling, type RopeSpec } from 'ropewalk';
import type { Change } from './change.js';

/** The kinds of hypotheses. Two of the same kind differ only in their numbers. */
export type Kind =
  | 'base'
  | 'linear'
  | 'scaling'
  | 'scores'
  | 'temperature'
  | 'penalty'
  | 'partial'
  | 'pairing'
  | 'direction'
  | 'none'
  | 'window'
  | 'restart'
  | 'lost'
  | 'gap'
  | 'layers'
  | 'sinks'
  | 'cache';

/** A change, and what it means. */
export interface Hypothesis {
  readonly kind: Kind;
  /** The deed of the server, if it is so: `rotates with base 500,000`. */
  readonly says: string;
  /** The parameter, of kinds that have one. */
  readonly value?: number | undefined;
  readonly change: Change;
  /** The first token that it changes, of kinds that have one. */
  readonly at?: number;
  /** Whether the parameter is fitted, not chosen from a list. */
  readonly fitted?: boolean;
  /** The same kind with other values of its number, which may be fitted. */
  readonly scale?: Scale;
  /** A name that other values of the same whole number share: neighbours that fit as well are no other cause. */
  readonly family?: string;
  /** Other values of a whole number, to be tried if this one is the best and leaves too much. */
  around?(): readonly Hypothesis[];
}

/** A kind with one number, which is fitted. */
export interface Scale {
  /** The number of the model itself. */
  readonly own: number;
  /** The values of the first search, ascending. */
  readonly grid: readonly number[];
  /** The tokens of the first search, where fewer than usual are needed for answers that are smooth in the number. */
  readonly first?: number;
  at(value: number): Hypothesis;
  /** Returns the same kind with other values of a second number. */
  around?(): Scale[];
}

/** Writes a number of a hypothesis with four digits: the nearest that is tried beside it is half a percent away. */
export const number = (value: number): string => Number(value.toPrecision(4)).toLocaleString('en');

const steps = (low: number, high: number, step: number): number[] => {
  const grid: number[] = [];
  for (let value = low; value < high * 1.001; value *= step) grid.push(value);
  return grid;
};

/** The temperature. */
export const TEMPERATURE: Scale = {
  own: 1,
  grid: steps(1 / 4, 4, 2 ** 0.5),
  at: (temperature) => {
    return {
      kind: 'temperature',
      value: temperature,
      fitted: true,
      says: `divides logits by a temperature of ${number(temperature)}, and was asked for none`,
      change: { temperature },
    };
  },
};

/** The tokens back that llama.cpp's penalties count, unless it is told another number. */
const PENALTY_LAST = 64;

/** Penalties. Those of presence and frequency that count all tokens count answers only, so that prompts show none. */
const PENALTIES: readonly Scale[] = (
  [
    ['repetition', undefined],
    ['repetition', PENALTY_LAST],
    ['presence', PENALTY_LAST],
    ['frequency', PENALTY_LAST],
  ] as const
).map(([kind, last]) => ({
  own: 1,
  grid: steps(1 / 4, 4, 2 ** 0.5),
  at(by) {
    const tokens = last === undefined ? 'tokens that came before' : `the last ${last} tokens`;
    const says =
      kind === 'repetition'
        ? `divides the logits of ${tokens} by a repetition penalty of ${number(by)}`
        : `multiplies the odds of ${tokens} by ${number(by)}${kind === 'frequency' ? ' for each time that they came' : ''}, as a ${kind} penalty of ${number(-Math.log(by))}`;
    return { kind: 'penalty', value: by, fitted: true, says, change: { penalty: { kind, by, ...(last && { last }) } } };
  },
}));

/** The kinds whose number is fitted: base, linear scaling, scores, temperature, penalties. */
export function scalesOf(rope: RopeSpec): Scale[] {
  return [
    {
      own: rope.base,
      grid: steps(1e-3, 1e4, 10 ** 0.5).map((factor) => rope.base * factor),
      at: (base) => {
        return {
          kind: 'base',
          value: base,
          fitted: true,
          says: `rotates with base ${number(base)}, and the model's is ${number(rope.base)}`,
          change: { rope: (spec) => ({ ...spec, base: spec.base * (base / rope.base) }) },
        };
      },
    },
    // An eighth of an octave moves the angle of the first pair at token 8 by a third of a radian, with factor 2.
    { own: 1, grid: steps(1 / 16, 40, 2 ** 0.125), first: 8, at: linear },
    {
      own: 1,
      grid: steps(1 / 8, 8, 2 ** 0.5),
      at: (scores) => {
        return {
          kind: 'scores',
          value: scores,
          fitted: true,
          says: `multiplies the scores of attention by ${number(scores)}: another scale, or a magnitude of cos and sin of ${number(Math.sqrt(scores))}`,
          change: { scores },
        };
      },
    },
    TEMPERATURE,
    ...PENALTIES,
  ];
}

function linear(factor: number): Hypothesis {
  return {
    kind: 'linear',
    value: factor,
    fitted: true,
    says: `turns every pair ${factor >= 1 ? `${number(factor)} times as slowly` : `${number(1 / factor)} times as fast`} as the model: positions divided by ${number(factor)}, or linear scaling`,
    change: { rope: (spec) => slower(spec, factor) },
  };
}

/** Divides the frequency of each pair by a factor, under the rule that the model has. */
export function slower(spec: RopeSpec, factor: number): RopeSpec {
  const pairs = (spec.rotaryDim ?? spec.headDim) / 2;
  const { freqFactors, scaling = { kind: 'none' } } = spec;
  if (scaling.kind === 'none')
    return { ...spec, freqFactors: Array.from({ length: pairs }, (_, j) => (freqFactors?.[j] ?? 1) * factor) };
  if (scaling.kind === 'proportional')
    return { ...spec, scaling: { ...scaling, factor: (scaling.factor ?? 1) * factor } };
  // The rule of a scaling looks at frequencies, so it is applied first: what it gives is kept as factors.
  const { attentionFactor } = frequenciesOf(spec);
  const factors = factorsOf(spec).map((one) => one * factor);
  return { ...spec, scaling: { kind: 'none' }, attentionFactor, freqFactors: factors };
}

/** By how much a scaling divides the frequency of each pair. */
function factorsOf(spec: RopeSpec): number[] {
  const { freqFactors: _factors, attentionFactor: _attention, ...plain } = spec;
  const { invFreq } = frequenciesOf({ ...plain, scaling: { kind: 'none' } });
  return Array.from(frequenciesOf(spec).invFreq, (scaled, j) => invFreq[j]! / scaled);
}

/** The factors of scalings that published models and servers have. */
const FACTORS = [2, 4, 8, 16, 32];

/** The scalings that say something of each pair. */
const OWN_PAIRS: readonly (string | undefined)[] = ['longrope', 'proportional'];

/** Hypotheses without a number to fit, for a model with this RoPE. */
export function plainHypotheses(rope: RopeSpec, maxContext: number): Hypothesis[] {
  const { headDim, rotaryDim = headDim, pairing, scaling, freqFactors } = rope;
  const all: Hypothesis[] = [];
  const add = (kind: Kind, says: string, change: Change, value?: number): void =>
    void all.push({ kind, says, change, value });
  const other = pairing === 'half' ? 'interleaved' : 'half';
  add('pairing', `pairs dimensions as ${other}, and the model's pairing is ${pairing}`, {
    rope: (spec) => ({ ...spec, pairing: spec.pairing === 'half' ? 'interleaved' : 'half' }),
  });
  add('none', 'does not rotate at all', { rope: () => undefined });
  if (!rope.axes) {
    add('direction', 'rotates in the other direction', {
      positions: (count) => Array.from({ length: count }, (_, n) => count - 1 - n),
    });
  }
  for (const share of [0.25, 0.5, 0.75, 1]) {
    const dim = 2 * Math.round((headDim * share) / 2);
    if (dim === rotaryDim || dim === 0 || rope.axes || rope.rotaryOffset || OWN_PAIRS.includes(scaling?.kind)) continue;
    if (freqFactors && freqFactors.length < dim / 2) continue;
    const model = `and the model ${rotaryDim}`;
    for (const frequencyDim of new Set([dim, rotaryDim]))
      add(
        'partial',
        `rotates ${dim} dimensions of a head, ${model}${frequencyDim === dim ? '' : `; frequencies are those of ${frequencyDim}`}`,
        { rope: (spec) => ({ ...spec, rotaryDim: dim, frequencyDim }) },
        dim,
      );
    // A GGUF with another dimension count: its rows are in the order of interleaved pairs, so the same pairs still meet.
    if (dim < rotaryDim && pairing === 'half' && !freqFactors && (scaling?.kind ?? 'none') === 'none')
      add(
        'partial',
        `rotates the first ${dim / 2} pairs of a head with the frequencies of ${dim} dimensions, ${model} dimensions`,
        { rope: (spec) => ({ ...spec, frequencyDim: dim, scaling: { kind: 'proportional', rotatedPairs: dim / 2 } }) },
        dim,
      );
  }
  if (freqFactors)
    add('scaling', 'ignores the frequency factors of the file', { rope: ({ freqFactors: _, ...spec }) => spec });
  if (scaling && scaling.kind !== 'none') addScaled(all, rope, scaling);
  else {
    for (const kind of ['yarn', 'llama3'] as const)
      for (const context of new Set([maxContext, ...CONTEXTS])) {
        const scale = scalingScale(kind, context);
        for (const factor of [4, 16]) all.push(scale.at(factor));
      }
    if (rope.base !== DEFAULT_BASE) addReplaced(all, rope, maxContext);
  }
  return all;
}

/** The base of readers that find none. */
const DEFAULT_BASE = 10000;

/**
 * Adds scalings that have come in place of a record with the base, so that the base is the default one.
 *
 * @see vllm-project/vllm@v0.32.0 vllm/config/model.py (`_apply_dict_overrides`): `--hf-overrides` with rope_parameters
 */
function addReplaced(all: Hypothesis[], { base }: RopeSpec, maxContext: number): void {
  const add = (scale: (factor: number) => Hypothesis, factors: readonly number[]): void => {
    const replaced: Scale = {
      own: 1,
      grid: [],
      at: (factor) => {
        const { says, change, value } = scale(factor);
        return {
          kind: 'scaling',
          value,
          says: `rotates with base ${number(DEFAULT_BASE)}, and the model's is ${number(base)}; and it ${says}`,
          change: { rope: (spec) => change.rope!({ ...spec, base: DEFAULT_BASE }) },
          scale: replaced,
        };
      },
    };
    all.push(...factors.map((factor) => replaced.at(factor)));
  };
  add(linear, FACTORS);
  for (const context of new Set([maxContext, ...CONTEXTS])) add(scalingScale('yarn', context).at, [4, 16]);
}

/** The least original context that is fitted: with a few tokens every pair is scaled, which is linear scaling. */
const LEAST_CONTEXT = 16;
/** The original contexts of scalings that are tried. */
const CONTEXTS = Array.from({ length: 10 }, (_, n) => 32 * 2 ** n);

/** The factors of a scaling that a model without one does not have. */
function scalingScale(kind: 'yarn' | 'llama3', context: number): Scale {
  const scale: Scale = {
    own: 1,
    grid: [],
    at: (factor) => ({ ...added(kind, Math.max(1, factor), context), scale }),
    around: () =>
      [context / 2, 2 * context].filter((one) => one >= LEAST_CONTEXT).map((one) => scalingScale(kind, one)),
  };
  return scale;
}

function added(kind: 'yarn' | 'llama3', factor: number, originalContext: number): Hypothesis {
  const llama3 = { lowFreqFactor: 1, highFreqFactor: 4 };
  const scaling: RopeScaling =
    kind === 'yarn' ? { kind, factor, originalContext } : { kind, factor, originalContext, ...llama3 };
  const name = kind === 'yarn' ? 'with YaRN' : 'as Llama 3';
  return {
    kind: 'scaling',
    value: factor,
    says: `scales ${name}, factor ${number(factor)}, original context ${number(originalContext)}, and the model has no scaling`,
    change: { rope: (spec) => ({ ...spec, scaling }) },
  };
}

/** Adds what is lost or changed where a model has a scaling. */
function addScaled(all: Hypothesis[], model: RopeSpec, scaling: Exclude<RopeScaling, { kind: 'none' }>): void {
  const { kind } = scaling;
  const scaled = (says: string, rope: (spec: RopeSpec) => RopeSpec): void =>
    void all.push({ kind: 'scaling', says, change: { rope } });
  const name = {
    linear: 'linear',
    dynamicNtk: 'dynamic',
    yarn: 'YaRN',
    longrope: 'LongRoPE',
    llama3: 'Llama 3',
    proportional: 'proportional',
  }[kind];
  const to =
    (next: RopeScaling) =>
    (spec: RopeSpec): RopeSpec =>
      spec.scaling?.kind === kind ? { ...spec, scaling: next } : spec;
  const { base } = model;
  const lost = (spec: RopeSpec): RopeSpec => {
    if (spec.scaling?.kind !== kind) return spec;
    const { attentionFactor: _, ...others } = spec;
    return { ...others, scaling: { kind: 'none' } };
  };
  scaled(`lost the ${name} scaling of the model`, lost);
  // A record with both, as transformers 4 reads those of 5.
  if (base !== DEFAULT_BASE)
    scaled(
      `lost the ${name} scaling of the model, and rotates with base ${number(DEFAULT_BASE)}, and the model's is ${number(base)}`,
      (spec) => ({ ...lost(spec), base: DEFAULT_BASE }),
    );
  if (kind === 'proportional') return; // Pairs that do not rotate have no factor.
  scaled(`applies the ${name} scaling of the model twice`, (spec) => {
    return spec.scaling?.kind === kind ? { ...spec, freqFactors: factorsOf(spec) } : spec;
  });
  const factor = 'factor' in scaling ? scaling.factor : undefined;
  if (factor !== undefined && kind !== 'linear')
    scaled(`scales linearly by ${number(factor)}, and the model with ${name}`, to({ kind: 'linear', factor }));
  if (frequenciesOf(model).attentionFactor !== 1) {
    scaled(`has the frequencies of ${name}, but not its magnitude`, (spec) =>
      spec.scaling?.kind === kind ? { ...spec, attentionFactor: 1 } : spec,
    );
    scaled(`has the magnitude of ${name}, but not its frequencies`, (spec) =>
      spec.scaling?.kind === kind
        ? { ...spec, attentionFactor: frequenciesOf(spec).attentionFactor, scaling: { kind: 'none' } }
        : spec,
    );
  }
  if (kind === 'longrope')
    for (const [which, context] of [
      ['short', 1],
      ['long', scaling.originalContext + 1],
    ] as const)
      if (context > scaling.originalContext !== scaling.context > scaling.originalContext)
        scaled(`has LongRoPE's ${which} factors here`, to({ ...scaling, context }));
  if (factor === undefined) return;
  const scale: Scale = {
    own: factor,
    grid: [],
    at: (other) => {
      return {
        kind: 'scaling',
        value: other,
        says: `scales with ${name} by factor ${number(other)}, and the model by ${number(factor)}`,
        change: { rope: to({ ...scaling, factor: other }) },
        scale,
      };
    },
  };
  for (const other of new Set([...FACTORS, ...FACTORS.map((by) => factor * by), ...FACTORS.map((by) => factor / by)]))
    if (other > 1 && Math.abs(other / factor - 1) > 0.01) all.push(scale.at(other));
}

/** The gaps between positions that are tried. */
const GAPS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
/** The gaps of which each is tried where nothing explains what begins at a place. */
const MOST_GAP = 128;

/**
 * Hypotheses about the place where differences begin.
 *
 * @param near - about the first token that is not as it should be: a window shows some tokens late, because the first
 *   that it hides may weigh little
 * @param count - the tokens of the text
 * @param windows - those of the model's layers
 */
export function placeHypotheses(
  near: number,
  count: number,
  hasAxes: boolean,
  windows: readonly (number | undefined)[],
): Hypothesis[] {
  const all: Hypothesis[] = [];
  const own = windows.find((one) => one !== undefined);
  const some = windows.includes(undefined) ? own : undefined;
  if (own !== undefined && own < count) all.push(windowsOf(own, count, count));
  for (let at = Math.max(1, near - 8); at <= Math.min(count - 1, near + 2); at++) {
    const add = (kind: Kind, says: string, change: Change): void =>
      void all.push({ kind, at, value: at, says, change });
    all.push(windowAt(at));
    if (some !== undefined && at < some) all.push(windowsOf(some, at, count));
    add('lost', `forgets at token ${at}, and at its multiples, what came before`, { chunk: at });
    if (hasAxes || Math.abs(at - near) > 1) continue;
    const placed = (kind: Kind, says: string, of: (n: number) => number): void =>
      add(kind, says, { positions: (length) => Array.from({ length }, (_, n) => of(n)) });
    placed(
      'restart',
      `starts positions again from 0 at token ${at}${2 * at < count ? ' and at its multiples' : ''}`,
      (n) => n % at,
    );
    if (2 * at < count)
      placed('restart', `starts positions again from 0 at token ${at}, once`, (n) => (n < at ? n : n - at));
    all.push(...cachesAt(at));
    for (const [n, gap] of GAPS.entries()) {
      for (const sign of [1, -1]) {
        const around = () => gapsBetween(at, sign, GAPS[n - 1] ?? 0, GAPS[n + 1] ?? 2 * gap);
        if (gap < at || sign > 0) all.push({ ...gapAt(at, sign * gap), around });
      }
    }
  }
  return all;
}

/** All smaller gaps about a place, for models whose answers do not say which gap is near. */
export function allGaps(near: number): Hypothesis[] {
  return [near, near - 1, near + 1].flatMap((at) => {
    return [1, -1].flatMap((sign) => gapsBetween(at, sign, 0, sign > 0 ? MOST_GAP : Math.min(at, MOST_GAP)));
  });
}

/** How much smaller a window may be than it seems: the first tokens that it hides may weigh little. */
const HIDDEN = 16;

function windowAt(at: number): Hypothesis {
  const says = `lets a token see ${at} tokens only`;
  const least = Math.max(1, at - HIDDEN);
  const around = () => Array.from({ length: at - least }, (_, n) => windowAt(least + n));
  return { kind: 'window', family: 'all', at, value: at, says, change: { window: at }, around };
}

/** Another window of the layers that have one, or none: one of all tokens. */
function windowsOf(own: number, size: number, count: number): Hypothesis {
  const layers = `the layers with a window, which see ${own} in the model`;
  const says =
    size < count ? `lets a token see ${size} tokens in ${layers}` : `lets a token see all tokens in ${layers}`;
  const larger = () => Array.from({ length: count - own - 1 }, (_, n) => windowsOf(own, own + 1 + n, count));
  const one: Hypothesis = {
    ...{ kind: 'window', family: 'some', at: Math.min(own, size), value: size },
    ...{ says, change: { windows: size } },
  };
  return size < count ? one : { ...one, around: larger };
}

/** The tokens at the beginning that caches keep: none, a BOS, StreamingLLM's four, a template's. */
const KEPT = [0, 1, 4, 16, 64];

/** Caches that are full at a token. */
function cachesAt(size: number): Hypothesis[] {
  const all: Hypothesis[] = [];
  const add = (says: string, cache: NonNullable<Change['cache']>, change: Change = {}): void =>
    void all.push({ kind: 'cache', at: size, value: size, says, change: { ...change, cache } });
  for (const keep of KEPT.filter((one) => 2 * one < size)) {
    const first = keep === 0 ? '' : `, behind the first ${keep === 1 ? 'one' : keep}`;
    const half = `drops half of its ${size} tokens${first}, when they are full,`;
    add(`${half} and rotates the keys of the rest back, as llama.cpp's context shift does`, {
      ...{ size, keep, drops: 'half', turns: 1 },
    });
    add(`${half} and counts positions from there, but does not rotate the keys of the rest`, {
      ...{ size, keep, drops: 'half', turns: 0 },
    });
    add(`${half} and rotates the keys of the rest back twice`, { size, keep, drops: 'half', turns: 2 });
    if (keep === 0) continue; // That is a window.
    const some = `lets a token see the first ${keep === 1 ? 'one' : keep} and the last ${size - keep}`;
    add(`${some}, at the positions that they have in the cache`, { size, keep, drops: 'one', turns: 1 });
    add(
      `${some}, at their own positions`,
      { size, keep, drops: 'one', turns: 0 },
      { positions: (length) => Array.from({ length }, (_, n) => n) },
    );
  }
  return all;
}

/** At most 100 gaps between two sizes; each knows those between its neighbours. */
function gapsBetween(at: number, sign: number, low: number, high: number): Hypothesis[] {
  const step = Math.max(1, Math.ceil((high - low) / 100));
  const all: Hypothesis[] = [];
  for (let gap = low + 1; gap < high; gap += step) {
    const around = step > 1 ? () => gapsBetween(at, sign, gap - step, gap + step) : undefined;
    all.push({ ...gapAt(at, sign * gap), ...(around && { around }) });
  }
  return all;
}

function gapAt(at: number, gap: number): Hypothesis {
  const size = Math.abs(gap);
  const positions = size === 1 ? 'a position' : `${size} positions`;
  return {
    kind: 'gap',
    at,
    value: at,
    says: gap > 0 ? `leaves out ${positions} at token ${at}` : `uses ${positions} twice at token ${at}`,
    change: { positions: (length) => Array.from({ length }, (_, n) => (n < at ? n : Math.max(0, n + gap))) },
  };
}

/** Hypotheses about the learned attention sinks of a model that has them. */
export const SINKS: readonly Hypothesis[] = [
  { kind: 'sinks', says: 'leaves out the attention sinks of the model', change: { sinks: 'none' } },
  { kind: 'sinks', says: 'has attention sinks of 0, and the model learned ones', change: { sinks: 'zero' } },
];

/** Hypotheses that one layer does not rotate. */
export function layerHypotheses(ropes: readonly (RopeSpec | undefined)[]): Hypothesis[] {
  const still = ropes.filter((rope) => !rope).length;
  const says = `rotates in every layer, and ${still} of the model's ${ropes.length} have no RoPE`;
  const all: Hypothesis[] =
    still > 0 && still < ropes.length ? [{ kind: 'layers', says, change: { allRotate: true } }] : [];
  for (const [layer, rope] of ropes.entries()) {
    const change: Change = { rope: () => undefined, only: (one) => one === layer };
    if (rope) all.push({ kind: 'layers', value: layer, says: `does not rotate in layer ${layer}`, change });
  }
  return all;
}
