/**
 * Compares two readings of one layer's RoPE: what differs, from which position on, and with which effect.
 *
 * @module
 */
import { type FrequencyOptions, type Pairing, type RopeSpec, RopewalkError, type TableRecipe } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import type { AngleRecipe } from 'ropewalk/internal';
import { ggmlRecipe, hfRecipe, readList, readName, readOptions, sharePairs } from 'ropewalk/internal';
import { describeScaling } from '../describe-layers.js';
import { convertRope } from './convert.js';
import { type EffectiveRope, effectiveRope, relative, STANDSTILL } from './effective.js';

/** The file that a record comes from. The pairing may differ between huggingface and gguf. */
export type ReadingSource = 'huggingface' | 'gguf' | 'record';

/** One side of a comparison. */
export interface RopeReading {
  readonly spec: RopeSpec;
  readonly source: ReadingSource;
  /** The arithmetic of the angles. */
  readonly recipe: TableRecipe;
}

/** Says how the layouts of two sides fit together. */
export type LayoutVerdict =
  | 'same'
  /** HuggingFace has half pairing and GGUF interleaved: the weights are permuted, so the scores are the same. */
  | 'permuted weights'
  /** Both read interleaved pairs, and one writes halves, for q and for k: the scores are the same. */
  | 'same scores'
  | 'different';

/** A property of both sides, as text. */
export interface ComparedRow {
  readonly name: string;
  readonly a: string;
  readonly b: string;
  readonly differs: boolean;
}

/** The first position where an angle is more than `rad` apart; undefined when there is none. */
export interface Apart {
  readonly rad: number;
  readonly position: number | undefined;
  readonly pair: number | undefined;
}

/** How far two sides agree: to the last bit, but for rounding, or not. */
export type Agreement = 'exact' | 'rounding' | 'parts';

/** The result of `compareRope`. */
export interface RopeComparison {
  readonly agreement: Agreement;
  /** Says in one sentence why: where the two part and because of what, or which rounding differs. */
  readonly reason: string;
  /** A model gives the same with either, up to rounding and an expected permutation of the weights. */
  readonly same: boolean;
  readonly layout: LayoutVerdict;
  readonly rows: readonly ComparedRow[];
  /** The largest |Δ inv_freq| / inv_freq. */
  readonly maxRelInvFreq: number;
  /** The pair of maxRelInvFreq. */
  readonly worstPair: number;
  /** Each threshold has the first position of a text token where an angle is further apart, and the pair. */
  readonly apart: readonly Apart[];
  /** The search for `apart` ended at this position. */
  readonly searched: number;
  /** The NMSE of one random vector rotated by both, for a text token, and with several axes for an image token. */
  readonly nmse: readonly { readonly position: number; readonly text: number; readonly image?: number }[];
  /** The effect, in full texts. */
  readonly verdict: readonly string[];
}

/** A relative difference up to this is the rounding of f32, in which GGUF stores factors. */
const ROUNDING = 2 ** -21;
/** ggml's limit for a RoPE kernel (tests/test-backend-ops.cpp): two correct kernels may differ by as much. */
const NMSE_LIMIT = 1e-7;
/** The thresholds of `apart`, in radians: 0.01 is the error of bf16 tables, 1 is another direction. */
const THRESHOLDS = [0.01, 0.1, 1] as const;
/** Recipes are compared at every position up to this one. */
const SCAN = 2 ** 20;
/** Positions are i32. */
const LAST_POSITION = 2 ** 31 - 1;

/**
 * Compares two sides of one layer.
 *
 * @param first - one side, a in the result
 * @param second - the other, b in the result
 * @param positions - where a random vector is rotated by both; integers
 * @throws {RopewalkError} RANGE, SHAPE or UNSUPPORTED for a record that is not a RoPE, or that a peer cannot express
 */
export function compareRope(first: RopeReading, second: RopeReading, positions: readonly number[]): RopeComparison {
  // Both readings are checked before one is used.
  const [a, b] = [readReading(first, 'diff: a'), readReading(second, 'diff: b')].map(sideOf) as [Side, Side];
  const layout = layoutOf(a, b);
  const { maxRelInvFreq, worstPair } = worstFrequency(a.rope, b.rope);
  const rows = rowsOf(a, b, layout, maxRelInvFreq > ROUNDING);
  const exact = a.recipe === 'float64' && b.recipe === 'float64';
  const apart = exact ? apartExactly(a.rope, b.rope) : apartByScan(a, b);
  const imaged = a.rope.numAxes > 1 || b.rope.numAxes > 1;
  const at = (...axes: number[]): number => nmseAt(a, b, layout, [...axes, 0]);
  const nmse = Array.from(readList(positions, 'diff: positions', 'a list of integers'), checkPosition).map(
    (position) => ({
      position,
      text: at(position, position, position),
      // An image token has a time, a row and a column.
      image: imaged ? at(position, Math.trunc(position / 2), Math.trunc(position / 3)) : undefined,
    }),
  );
  const magnitude = relative(a.rope.attentionFactor, b.rope.attentionFactor);
  const differing = rows.filter((row) => row.differs && row.name !== 'recipe');
  const rounding = maxRelInvFreq <= ROUNDING && magnitude <= ROUNDING;
  const arithmetic = a.recipe !== b.recipe && nmse.some(isAboveLimit);
  const same = layout !== 'different' && differing.length === 0 && rounding && !arithmetic;
  const found = { same, layout, rows, maxRelInvFreq, worstPair, apart, searched: exact ? LAST_POSITION : SCAN, nmse };
  const agreed = agreementOf(found, a, b, differing, magnitude);
  return { ...found, ...agreed, verdict: verdictOf(found, a, b, { ...agreed, rounding, magnitude, arithmetic }) };
}

function agreementOf(
  { layout, maxRelInvFreq, apart }: Found,
  a: Side,
  b: Side,
  differing: readonly ComparedRow[],
  magnitude: number,
): Pick<RopeComparison, 'agreement' | 'reason'> {
  const parts = causesOf(differing);
  if (parts.length > 0 || maxRelInvFreq > ROUNDING) {
    const because =
      parts.map(({ name, a: own, b: other }) => `${name}: ${own} in A, ${other} in B`).join('; ') ||
      'the factors of the pairs';
    return { agreement: 'parts', reason: `They part ${whereApart(parts, apart)} because of ${because}.` };
  }
  if (a.recipe !== b.recipe)
    return {
      agreement: 'rounding',
      reason: `The same RoPE but for rounding: A computes angles as ${a.recipe}, B as ${b.recipe}.`,
    };
  if (magnitude > 0 || maxRelInvFreq > 0)
    return { agreement: 'rounding', reason: 'The same RoPE but for rounding, as f32 differs from float64.' };
  if (a.recipe !== 'float64' && (describeScaling(a.spec) !== describeScaling(b.spec) || a.spec.base !== b.spec.base))
    return { agreement: 'rounding', reason: `The same RoPE but for the rounding of ${a.recipe}.` };
  const moved = layout === 'same' ? '' : ', in another order of dimensions';
  return { agreement: 'exact', reason: `The same RoPE to the last bit${moved}.` };
}

/** The rows that make a difference of their own: another head size also changes the dimensions that rotate. */
function causesOf(differing: readonly ComparedRow[]): ComparedRow[] {
  const has = (name: string): boolean => differing.some((row) => row.name === name);
  return differing.filter(
    ({ name }) => !(name === 'rotary_dim' && has('head_dim')) && !(name === 'magnitude' && has('scaling')),
  );
}

function whereApart(parts: readonly ComparedRow[], apart: RopeComparison['apart']): string {
  const names = parts.map(({ name }) => name);
  if (names.some((name) => name === 'head_dim' || name === 'rotary_dim' || name === 'pairing'))
    return 'from position 1 on';
  if (names.includes('magnitude')) return 'at every position';
  const far = apart[1]!.position;
  if (far !== undefined) return `from position ${far} on (0.1 rad)`;
  return names.includes('axes') ? 'for image and video tokens' : 'by less than 0.1 rad at any position';
}

function isAboveLimit({ text, image = 0 }: RopeComparison['nmse'][number]): boolean {
  return Math.max(text, image) > NMSE_LIMIT;
}

type Found = Omit<RopeComparison, 'verdict' | 'agreement' | 'reason'>;

interface Side extends RopeReading {
  readonly rope: EffectiveRope;
  readonly angles: AngleRecipe;
}

function readReading(given: RopeReading, where: string): RopeReading {
  const { spec, source, recipe } = readOptions(given, where);
  return {
    spec: readOptions(spec, `${where}: spec`),
    source: readName(source, ['huggingface', 'gguf', 'record'], `${where}: source`),
    recipe: readName(recipe, ['float64', 'hf-f32', 'ggml-f32'], `${where}: recipe`),
  };
}

function checkPosition(position: number, n: number): number {
  const inRange = Number.isInteger(position) && Math.abs(position) <= LAST_POSITION;
  return inRange ? position : refuse('RANGE', `diff: positions[${n}]`, 'an integer of 32 bits', position);
}

function sideOf(reading: RopeReading): Side {
  const { spec, recipe } = reading;
  const rope = effectiveRope(spec);
  const axes = sharePairs(spec.axes, rope.rotaryDim / 2);
  if (recipe === 'float64') {
    const fillAngles: AngleRecipe['fillAngles'] = (position, angles) => {
      for (let j = 0; j < angles.length; j++) angles[j] = position[axes.axisOfPair[j]!]! * rope.invFreq[j]!;
    };
    return { ...reading, rope, angles: { magnitude: rope.attentionFactor, fillAngles } };
  }
  const make = recipe === 'ggml-f32' ? ggmlRecipe : hfRecipe;
  const target = recipe === 'ggml-f32' ? 'ggml' : 'huggingface';
  try {
    return { ...reading, rope, angles: make(axes, optionsOf(spec)) };
  } catch (error) {
    if (!(error instanceof RopewalkError) || error.code !== 'UNSUPPORTED') throw error;
    // A scaling that the peer lacks becomes factors, one for each pair.
    return { ...reading, rope, angles: make(axes, optionsOf(convertRope(spec, target).readBack)) };
  }
}

function optionsOf(spec: RopeSpec): FrequencyOptions {
  const rotaryDim = spec.rotaryDim ?? spec.headDim;
  const frequencyDim = spec.frequencyDim ?? (spec.pairing === 'vision' ? rotaryDim / 2 : rotaryDim);
  return { ...spec, rotaryDim, frequencyDim };
}

function layoutOf(a: Side, b: Side): LayoutVerdict {
  if (a.rope.pairing === b.rope.pairing) return 'same';
  const pair = [a.rope.pairing, b.rope.pairing];
  if (pair.includes('interleaved') && pair.includes('interleaved-to-half')) return 'same scores';
  const [hf, gguf] = a.source === 'huggingface' ? [a, b] : [b, a];
  const files = hf.source === 'huggingface' && gguf.source === 'gguf';
  const expected = files && hf.spec.pairing === 'half' && gguf.spec.pairing === 'interleaved';
  return expected ? 'permuted weights' : 'different';
}

function rowsOf(a: Side, b: Side, layout: LayoutVerdict, frequenciesDiffer: boolean): ComparedRow[] {
  const row = (name: string, of: (side: Side) => string, differs?: boolean): ComparedRow => {
    const [x, y] = [of(a), of(b)];
    return { name, a: x, b: y, differs: differs ?? x !== y };
  };
  // Different bases and rules may give the same frequencies, and those decide.
  const written = (name: string, of: (side: Side) => string): ComparedRow =>
    row(name, of, frequenciesDiffer && of(a) !== of(b));
  const magnitude = relative(a.rope.attentionFactor, b.rope.attentionFactor);
  const rows = [
    row('head_dim', ({ rope }) => String(rope.headDim)),
    row('rotary_dim', ({ rope }) => windowOf(rope)),
    row('pairing', ({ rope }) => rope.pairing, layout === 'different'),
    written('base', ({ spec }) => String(spec.base)),
    written('scaling', ({ spec }) => describeScaling(spec)),
    row('magnitude', ({ rope }) => brief(rope.attentionFactor), magnitude > ROUNDING),
  ];
  if (a.rope.numAxes > 1 || b.rope.numAxes > 1)
    rows.push(row('axes', ({ spec }) => axesOf(spec), otherAxes(a.rope, b.rope).length > 0));
  if (a.recipe !== 'float64' || b.recipe !== 'float64') rows.push(row('recipe', ({ recipe }) => recipe));
  return rows;
}

function windowOf({ rotaryDim, rotaryOffset }: EffectiveRope): string {
  return rotaryOffset ? `${rotaryDim} from ${rotaryOffset}` : String(rotaryDim);
}

function axesOf({ axes }: RopeSpec): string {
  return axes ? `${axes.rule} ${axes.sections.join('+')}` : 'one';
}

/** Finds the pairs that rotate by different axes. */
function otherAxes(a: EffectiveRope, b: EffectiveRope): number[] {
  const pairs = Math.min(a.invFreq.length, b.invFreq.length);
  return Array.from({ length: pairs }, (_item, j) => j).filter(
    (j) => a.axisOfPair[j] !== b.axisOfPair[j] && !standsStill(a.invFreq[j]!, b.invFreq[j]!),
  );
}

function standsStill(x: number, y: number): boolean {
  return Math.max(Math.abs(x), Math.abs(y)) <= STANDSTILL;
}

function worstFrequency(a: EffectiveRope, b: EffectiveRope): { maxRelInvFreq: number; worstPair: number } {
  let [maxRelInvFreq, worstPair] = [0, 0];
  for (let j = 0; j < Math.min(a.invFreq.length, b.invFreq.length); j++) {
    const [x, y] = [a.invFreq[j]!, b.invFreq[j]!];
    const off = standsStill(x, y) ? 0 : Math.abs(x - y) / (Math.abs(x) || Math.abs(y));
    if (off > maxRelInvFreq) [maxRelInvFreq, worstPair] = [off, j];
  }
  return { maxRelInvFreq, worstPair };
}

/** Gives the frequency of a pair for a text token, whose positions are equal on all axes, but 0 on e. */
function textFrequency(rope: EffectiveRope, j: number): number {
  return rope.axisOfPair[j] === 3 ? 0 : (rope.invFreq[j] ?? 0);
}

function apartExactly(a: EffectiveRope, b: EffectiveRope): Apart[] {
  let [largest, pair] = [0, 0];
  for (let j = 0; j < Math.max(a.invFreq.length, b.invFreq.length); j++) {
    const step = Math.abs(textFrequency(a, j) - textFrequency(b, j));
    if (step > largest) [largest, pair] = [step, j];
  }
  return THRESHOLDS.map((rad) => {
    const position = Math.floor(rad / largest) + 1;
    return position <= LAST_POSITION ? { rad, position, pair } : { rad, position: undefined, pair: undefined };
  });
}

function apartByScan(a: Side, b: Side): Apart[] {
  const found = THRESHOLDS.map((rad): Apart => ({ rad, position: undefined, pair: undefined }));
  const [anglesA, anglesB] = [new Float64Array(a.rope.invFreq.length), new Float64Array(b.rope.invFreq.length)];
  const pairs = Math.max(anglesA.length, anglesB.length);
  let open = 0;
  for (let position = 0; position <= SCAN && open < found.length; position++) {
    const where = Float64Array.of(position, position, position, 0);
    a.angles.fillAngles(where, anglesA);
    b.angles.fillAngles(where, anglesB);
    for (let j = 0; j < pairs && open < found.length; j++) {
      const off = Math.abs((anglesA[j] ?? 0) - (anglesB[j] ?? 0));
      while (open < found.length && off > found[open]!.rad)
        found[open] = { rad: found[open++]!.rad, position, pair: j };
    }
  }
  return found;
}

/** Computes the NMSE of one random vector, rotated by both. If the layouts differ as expected, b uses a's layout. */
function nmseAt(a: Side, b: Side, layout: LayoutVerdict, position: readonly number[]): number {
  const headDim = Math.max(a.rope.headDim, b.rope.headDim);
  const x = randomVector(headDim);
  const ya = rotate(a, a.rope.pairing, x, position);
  const yb = rotate(b, layout === 'different' ? b.rope.pairing : a.rope.pairing, x, position);
  let [error, size] = [0, 0];
  for (let i = 0; i < headDim; i++) {
    error += (yb[i]! - ya[i]!) ** 2;
    size += ya[i]! ** 2;
  }
  return error / size;
}

function rotate(side: Side, pairing: Pairing, x: Float64Array, position: readonly number[]): Float64Array {
  const { rotaryDim, rotaryOffset } = side.rope;
  const half = rotaryDim / 2;
  const angles = new Float64Array(half);
  side.angles.fillAngles(Float64Array.from(position), angles);
  const y = Float64Array.from(x);
  const interleaved = (j: number): [number, number] => [rotaryOffset + 2 * j, rotaryOffset + 2 * j + 1];
  const halves = (j: number): [number, number] => [rotaryOffset + j, rotaryOffset + j + half];
  const read = pairing === 'half' ? halves : interleaved;
  const write = pairing === 'interleaved' ? interleaved : halves;
  for (let j = 0; j < half; j++) {
    const [c, s] = [Math.cos(angles[j]!) * side.angles.magnitude, Math.sin(angles[j]!) * side.angles.magnitude];
    const [i0, i1] = read(j);
    const [o0, o1] = write(j);
    y[o0] = x[i0]! * c - x[i1]! * s;
    y[o1] = x[i0]! * s + x[i1]! * c;
  }
  return y;
}

/** Makes a vector of numbers in [−1, 1), the same in every run. */
function randomVector(size: number): Float64Array {
  let state = 12345;
  return Float64Array.from({ length: size }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 31 - 1;
  });
}

function verdictOf(
  found: Found,
  a: Side,
  b: Side,
  {
    agreement,
    rounding,
    magnitude,
    arithmetic,
  }: { agreement: Agreement; rounding: boolean; magnitude: number; arithmetic: boolean },
): string[] {
  const { layout, apart, maxRelInvFreq } = found;
  const [pairingA, pairingB] = [a.rope.pairing, b.rope.pairing];
  const sameHead = a.rope.headDim === b.rope.headDim;
  const sameWindow = (['headDim', 'rotaryDim', 'rotaryOffset'] as const).every((key) => a.rope[key] === b.rope[key]);
  let frequencies = 'Other frequencies';
  if (sameWindow && maxRelInvFreq === 0) frequencies = 'Same frequencies';
  else if (sameWindow && rounding) frequencies = 'Same frequencies up to the rounding of f32';
  const axes = otherAxes(a.rope, b.rope);
  const factor = (b.rope.attentionFactor / a.rope.attentionFactor) ** 2;
  const effect = `attention is ${factor > 1 ? 'sharper' : 'flatter'} than in training`;
  const texts = [
    layout === 'permuted weights' &&
      `${frequencies}. Pairing ${pairingA} and ${pairingB} is expected: q and k weights are permuted in GGUF.`,
    layout === 'same scores' &&
      `${frequencies}. One side writes halves, the other interleaved pairs, for q and for k: q·k is the same.`,
    layout === 'different' &&
      `Pairing ${pairingA} and ${pairingB}: with the same weights q·k is wrong from position 1 on, and the output is ` +
        'noise. Permute q and k (ropewalk permute), or correct the pairing.',
    !sameHead && 'The head sizes differ: no weights fit both.',
    sameHead &&
      !sameWindow &&
      'Different dimensions rotate: one side rotates dimensions that the other leaves alone, from position 1 on. ' +
        'With the same weights the output is noise.',
    sameWindow && !rounding && maxRelInvFreq > ROUNDING && apartSentence(apart, layout === 'different'),
    axes.length > 0 && axesSentence(axes, a.rope, b.rope),
    magnitude > ROUNDING && `Attention scores of B are those of A times ${brief(factor)} at every length: ${effect}.`,
    // Beside another difference, NMSE and angles are not those of the arithmetic.
    agreement === 'rounding' && a.recipe !== b.recipe && arithmeticSentence(found, a, b, arithmetic),
  ].filter((text) => text !== false);
  if (texts.length > 0) return texts;
  if (rounding && maxRelInvFreq > 0)
    return ['The same RoPE up to rounding: frequencies differ as f32 differs from float64.'];
  return ['The same RoPE: both rotate every pair alike.'];
}

/** @param isNoise - whether another difference makes the output noise at any length */
function apartSentence(apart: RopeComparison['apart'], isNoise: boolean): string {
  const at = (rad: number): number | undefined => apart.find((one) => one.rad === rad)?.position;
  const [small, large] = [at(0.1), at(1)];
  if (small === undefined) return 'Frequencies differ, but no angle is 0.1 rad apart at any position of an i32.';
  const far = large === undefined ? '' : ` and 1 rad apart from ${large} on`;
  const from = `Angles are 0.1 rad apart from position ${small} on${far}`;
  if (isNoise) return `${from}.`;
  const prompt =
    small > 16
      ? `prompts shorter than about ${small} tokens work, and longer ones give worse and worse output`
      : 'even short prompts give wrong output';
  return `${from}: with the same weights ${prompt}.`;
}

function axesSentence(pairs: readonly number[], a: EffectiveRope, b: EffectiveRope): string {
  const some = (list: readonly number[]): string => `${list.slice(0, 6).join(', ')}${list.length > 6 ? ', …' : ''}`;
  const extra = pairs.filter((j) => a.axisOfPair[j] === 3 || b.axisOfPair[j] === 3);
  const text =
    extra.length > 0
      ? `text tokens differ too at pairs ${some(extra)}, which one side rotates by axis e, 0 for text in llama.cpp`
      : 'text tokens do not show it, as their positions are the same on every axis';
  return `Pairs ${some(pairs)} rotate by another axis: image and video tokens get wrong positions; ${text}.`;
}

function arithmeticSentence({ nmse, apart }: Found, a: Side, b: Side, arithmetic: boolean): string {
  const first = nmse.find(isAboveLimit);
  const near = apart[0]!.position === undefined ? `up to position ${SCAN}` : `before position ${apart[0]!.position}`;
  const size = arithmetic
    ? `at position ${first!.position} NMSE is above ggml's limit of 1e-7`
    : "NMSE is within ggml's limit of 1e-7 at these positions";
  return `${a.recipe} and ${b.recipe} differ in rounding: ${size}; no angle is more than 0.01 rad apart ${near}.`;
}

function brief(value: number): string {
  return String(Number(value.toPrecision(9)));
}
