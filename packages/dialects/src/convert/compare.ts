/**
 * Two readings of one layer's RoPE, side by side: what differs, from which position on, and what would come of it.
 *
 * @module
 */

import { type FrequencyOptions, type RopeSpec, RopewalkError, type TableRecipe } from 'ropewalk';
import {
  type AngleRecipe,
  ggmlRecipe,
  hfRecipe,
  type PairAxes,
  readList,
  readName,
  readOptions,
  refuse,
  sharePairs,
} from 'ropewalk/backend';
import { convertRope } from './convert.js';
import { type EffectiveRope, effectiveRope, STANDSTILL } from './effective.js';

/** Where a record is from: a pairing that differs between these two is no mistake. */
export type ReadingSource = 'huggingface' | 'gguf' | 'record';

/** One side. */
export interface RopeReading {
  readonly spec: RopeSpec;
  readonly source: ReadingSource;
  /** How angles are computed. */
  readonly recipe: TableRecipe;
}

/** How the layouts of two sides go together. */
export type LayoutVerdict =
  | 'same'
  /** Half in HuggingFace and interleaved in GGUF: the weights are permuted, and the scores are the same. */
  | 'permuted weights'
  /** Both read neighbours, and one writes halves: q and k alike, and the scores are the same. */
  | 'same scores'
  | 'different';

/** A property of both sides, as text. */
export interface ComparedRow {
  readonly name: string;
  readonly a: string;
  readonly b: string;
  readonly differs: boolean;
}

/** What {@link compareRope} finds. */
export interface RopeComparison {
  /** Whether a model would give the same with either, up to rounding and an expected permutation of the weights. */
  readonly same: boolean;
  readonly layout: LayoutVerdict;
  readonly rows: readonly ComparedRow[];
  /** Largest |Δ inv_freq| / inv_freq, and its pair. */
  readonly maxRelInvFreq: number;
  readonly worstPair: number;
  /** First position of a text token where some angle is further apart than this; undefined when none up to `searched` is. */
  readonly apart: readonly {
    readonly rad: number;
    readonly position: number | undefined;
    readonly pair: number | undefined;
  }[];
  /** Positions up to which `apart` was searched. */
  readonly searched: number;
  /** NMSE of one random vector turned by both, at positions of a text token, and where a side has axes of an image token. */
  readonly nmse: readonly { readonly position: number; readonly text: number; readonly image?: number }[];
  /** Full sentences: what would happen. */
  readonly verdict: readonly string[];
}

/** Relative difference of frequency or magnitude that is rounding to f32, as GGUF stores factors, and no more. */
const ROUNDING = 2 ** -21;
/** ggml's own limit for a RoPE kernel (tests/test-backend-ops.cpp), and so what two right kernels may differ by. */
const NMSE_LIMIT = 1e-7;
/** The thresholds of `apart`, in radians: 0.01 is what bf16 tables lose, 1 is another direction. */
const THRESHOLDS = [0.01, 0.1, 1] as const;
/** Where recipes differ, every position up to here is tried. */
const SCAN = 2 ** 20;
/** Positions are i32. */
const LAST_POSITION = 2 ** 31 - 1;

/**
 * Compares two sides of one layer.
 *
 * @param first - one side, a in the result
 * @param second - the other, b in the result
 * @param positions - where a random vector is turned by both; integers
 * @throws {RopewalkError} RANGE, SHAPE or UNSUPPORTED for a record that is no RoPE, or that a recipe's peer cannot say
 */
export function compareRope(first: RopeReading, second: RopeReading, positions: readonly number[]): RopeComparison {
  const [a, b] = [readReading(first, 'diff: a'), readReading(second, 'diff: b')];
  const [sideA, sideB] = [sideOf(a), sideOf(b)];
  const layout = layoutOf(a, b, sideA.rope, sideB.rope);
  const { maxRelInvFreq, worstPair } = worstFrequency(sideA.rope, sideB.rope);
  const rows = rowsOf(a, b, sideA.rope, sideB.rope, { layout, frequenciesDiffer: maxRelInvFreq > ROUNDING });
  const exact = a.recipe === 'float64' && b.recipe === 'float64';
  const apart = exact ? apartExactly(sideA.rope, sideB.rope) : apartByScan(sideA, sideB);
  const imaged = sideA.rope.numAxes > 1 || sideB.rope.numAxes > 1;
  const nmse = Array.from(readList(positions, 'diff: positions', 'a list of integers'), checkPosition).map(
    (position) => ({
      position,
      text: nmseAt(sideA, sideB, layout, [position, position, position, 0]),
      // An image token: its time, and a row and column of its own.
      ...(imaged
        ? { image: nmseAt(sideA, sideB, layout, [position, Math.trunc(position / 2), Math.trunc(position / 3), 0]) }
        : {}),
    }),
  );
  const magnitude = relative(sideA.rope.attentionFactor, sideB.rope.attentionFactor);
  const differing = rows.filter((row) => row.differs && row.name !== 'recipe');
  const rounding = maxRelInvFreq <= ROUNDING && magnitude <= ROUNDING;
  const arithmetic = a.recipe !== b.recipe && nmse.some(({ text, image = 0 }) => Math.max(text, image) > NMSE_LIMIT);
  const same = layout !== 'different' && differing.length === 0 && rounding && !arithmetic;
  const found = { same, layout, rows, maxRelInvFreq, worstPair, apart, searched: exact ? LAST_POSITION : SCAN, nmse };
  return { ...found, verdict: verdictOf(found, sideA, sideB, { rounding, magnitude, arithmetic }) };
}

interface Side {
  readonly rope: EffectiveRope;
  readonly axes: PairAxes;
  readonly angles: AngleRecipe;
  readonly recipe: TableRecipe;
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

function sideOf({ spec, recipe }: RopeReading): Side {
  const rope = effectiveRope(spec);
  const axes = sharePairs(spec.axes, rope.rotaryDim / 2);
  if (recipe === 'float64') {
    const fillAngles: AngleRecipe['fillAngles'] = (position, angles) => {
      for (let j = 0; j < angles.length; j++) angles[j] = position[axes.axisOfPair[j]!]! * rope.invFreq[j]!;
    };
    return { rope, axes, recipe, angles: { magnitude: rope.attentionFactor, fillAngles } };
  }
  const make = recipe === 'ggml-f32' ? ggmlRecipe : hfRecipe;
  const target = recipe === 'ggml-f32' ? 'ggml' : 'huggingface';
  try {
    return { rope, axes, recipe, angles: make(axes, optionsOf(spec)) };
  } catch (error) {
    if (!(error instanceof RopewalkError) || error.code !== 'UNSUPPORTED') throw error;
    // What the peer has no name for it computes from factors, one a pair.
    const said = convertRope(spec, target).readBack;
    return { rope, axes, recipe, angles: make(axes, optionsOf(said)) };
  }
}

function optionsOf(spec: RopeSpec): FrequencyOptions {
  const rotaryDim = spec.rotaryDim ?? spec.headDim;
  return {
    ...spec,
    rotaryDim,
    frequencyDim: spec.frequencyDim ?? (spec.pairing === 'vision' ? rotaryDim / 2 : rotaryDim),
  };
}

function layoutOf(a: RopeReading, b: RopeReading, ropeA: EffectiveRope, ropeB: EffectiveRope): LayoutVerdict {
  if (ropeA.pairing === ropeB.pairing) return 'same';
  const pair = [ropeA.pairing, ropeB.pairing];
  if (pair.includes('interleaved') && pair.includes('interleaved-to-half')) return 'same scores';
  const [hf, gguf] = a.source === 'huggingface' ? [a, b] : [b, a];
  const expected =
    hf.source === 'huggingface' &&
    gguf.source === 'gguf' &&
    hf.spec.pairing === 'half' &&
    gguf.spec.pairing === 'interleaved';
  return expected ? 'permuted weights' : 'different';
}

function rowsOf(
  a: RopeReading,
  b: RopeReading,
  ropeA: EffectiveRope,
  ropeB: EffectiveRope,
  { layout, frequenciesDiffer }: { layout: LayoutVerdict; frequenciesDiffer: boolean },
): ComparedRow[] {
  const row = (name: string, x: string, y: string, differs = x !== y): ComparedRow => ({ name, a: x, b: y, differs });
  const rows = [
    row('head_dim', String(ropeA.headDim), String(ropeB.headDim)),
    row('rotary_dim', windowOf(ropeA), windowOf(ropeB)),
    row('pairing', ropeA.pairing, ropeB.pairing, layout === 'different'),
    // A base or a rule may differ in words and give the same frequencies: those decide.
    row('base', String(a.spec.base), String(b.spec.base), frequenciesDiffer && a.spec.base !== b.spec.base),
    row('scaling', scalingOf(a.spec), scalingOf(b.spec), frequenciesDiffer && scalingOf(a.spec) !== scalingOf(b.spec)),
    row(
      'magnitude',
      brief(ropeA.attentionFactor),
      brief(ropeB.attentionFactor),
      relative(ropeA.attentionFactor, ropeB.attentionFactor) > ROUNDING,
    ),
  ];
  if (ropeA.numAxes > 1 || ropeB.numAxes > 1)
    rows.push(row('axes', axesOf(a.spec), axesOf(b.spec), otherAxes(ropeA, ropeB).length > 0));
  if (a.recipe !== 'float64' || b.recipe !== 'float64') rows.push(row('recipe', a.recipe, b.recipe));
  return rows;
}

function windowOf({ rotaryDim, rotaryOffset }: EffectiveRope): string {
  return rotaryOffset ? `${rotaryDim} from ${rotaryOffset}` : String(rotaryDim);
}

function scalingOf(spec: RopeSpec): string {
  const { kind, ...rest } = spec.scaling ?? { kind: 'none' as const };
  const items = Object.entries(rest)
    .filter(([, value]) => value !== undefined)
    .map(
      ([name, value]) =>
        `${name}=${typeof value === 'object' ? `${(value as ArrayLike<number>).length} values` : value}`,
    );
  return [kind, ...items, ...(spec.freqFactors ? [`freqFactors=${spec.freqFactors.length} values`] : [])].join(' ');
}

function axesOf({ axes }: RopeSpec): string {
  return axes ? `${axes.rule} ${axes.sections.join('+')}` : 'one';
}

/** Pairs that another axis turns. */
function otherAxes(a: EffectiveRope, b: EffectiveRope): number[] {
  const pairs = Math.min(a.invFreq.length, b.invFreq.length);
  return Array.from({ length: pairs }, (_, j) => j).filter(
    (j) =>
      a.axisOfPair[j] !== b.axisOfPair[j] && Math.max(Math.abs(a.invFreq[j]!), Math.abs(b.invFreq[j]!)) > STANDSTILL,
  );
}

function worstFrequency(a: EffectiveRope, b: EffectiveRope): { maxRelInvFreq: number; worstPair: number } {
  let [maxRelInvFreq, worstPair] = [0, 0];
  for (let j = 0; j < Math.min(a.invFreq.length, b.invFreq.length); j++) {
    const [x, y] = [a.invFreq[j]!, b.invFreq[j]!];
    const off = Math.max(Math.abs(x), Math.abs(y)) <= STANDSTILL ? 0 : Math.abs(x - y) / (Math.abs(x) || Math.abs(y));
    if (off > maxRelInvFreq) [maxRelInvFreq, worstPair] = [off, j];
  }
  return { maxRelInvFreq, worstPair };
}

/** A text token's frequency: all axes count with it, but e, where llama.cpp says 0. A pair that is not there does not turn. */
function textFrequency(rope: EffectiveRope, j: number): number {
  return rope.axisOfPair[j] === 3 ? 0 : (rope.invFreq[j] ?? 0);
}

function apartExactly(a: EffectiveRope, b: EffectiveRope): RopeComparison['apart'] {
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

function apartByScan(a: Side, b: Side): RopeComparison['apart'] {
  const found = THRESHOLDS.map((rad): { rad: number; position: number | undefined; pair: number | undefined } => ({
    rad,
    position: undefined,
    pair: undefined,
  }));
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

/** NMSE of one random vector, turned by both. Where the layouts differ as expected, b's vector lies in a's layout. */
function nmseAt(a: Side, b: Side, layout: LayoutVerdict, position: readonly number[]): number {
  const headDim = Math.max(a.rope.headDim, b.rope.headDim);
  const x = randomVector(headDim);
  const [ya, yb] = [
    turn(a, a.rope.pairing, x, position),
    turn(b, layout === 'different' ? b.rope.pairing : a.rope.pairing, x, position),
  ];
  let [error, size] = [0, 0];
  for (let i = 0; i < headDim; i++) {
    error += (yb[i]! - ya[i]!) ** 2;
    size += ya[i]! ** 2;
  }
  return error / size;
}

function turn(
  side: Side,
  pairing: EffectiveRope['pairing'],
  x: Float64Array,
  position: readonly number[],
): Float64Array {
  const { rotaryDim, rotaryOffset } = side.rope;
  const half = rotaryDim / 2;
  const angles = new Float64Array(half);
  side.angles.fillAngles(Float64Array.from(position), angles);
  const y = Float64Array.from(x);
  const neighbours = (j: number): [number, number] => [rotaryOffset + 2 * j, rotaryOffset + 2 * j + 1];
  const halves = (j: number): [number, number] => [rotaryOffset + j, rotaryOffset + j + half];
  const read = pairing === 'half' ? halves : neighbours;
  const write = pairing === 'interleaved' ? neighbours : halves;
  for (let j = 0; j < half; j++) {
    const [c, s] = [Math.cos(angles[j]!) * side.angles.magnitude, Math.sin(angles[j]!) * side.angles.magnitude];
    const [i0, i1] = read(j);
    const [o0, o1] = write(j);
    y[o0] = x[i0]! * c - x[i1]! * s;
    y[o1] = x[i0]! * s + x[i1]! * c;
  }
  return y;
}

/** The same on every machine and in every run: a linear congruence, mapped to [−1, 1). */
function randomVector(size: number): Float64Array {
  let state = 12345;
  return Float64Array.from({ length: size }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 31 - 1;
  });
}

function relative(a: number, b: number): number {
  const size = Math.max(Math.abs(a), Math.abs(b));
  return size === 0 ? 0 : Math.abs(a - b) / size;
}

function verdictOf(
  found: Omit<RopeComparison, 'verdict'>,
  a: Side,
  b: Side,
  { rounding, magnitude, arithmetic }: { rounding: boolean; magnitude: number; arithmetic: boolean },
): string[] {
  const said: string[] = [];
  const { layout, apart, maxRelInvFreq } = found;
  const sameWindow =
    a.rope.headDim === b.rope.headDim &&
    a.rope.rotaryDim === b.rope.rotaryDim &&
    a.rope.rotaryOffset === b.rope.rotaryOffset;
  const frequencies = !sameWindow
    ? undefined
    : maxRelInvFreq === 0
      ? 'Same frequencies'
      : rounding
        ? 'Same frequencies up to the rounding of f32'
        : undefined;
  if (layout === 'permuted weights')
    said.push(
      `${frequencies ?? 'Other frequencies'}; pairing ${a.rope.pairing} and ${b.rope.pairing}: as expected, q and k weights are permuted in GGUF.`,
    );
  else if (layout === 'same scores')
    said.push(
      `${frequencies ?? 'Other frequencies'}; one writes halves where the other writes neighbours: q and k alike, so that q·k is the same.`,
    );
  else if (layout === 'different')
    said.push(
      `Pairing ${a.rope.pairing} and ${b.rope.pairing}: with the same weights q·k is wrong from position 1 on, and the output is noise at once. Permute q and k (ropewalk permute), or correct the pairing.`,
    );
  if (a.rope.headDim !== b.rope.headDim) said.push('The heads differ in size: no weights fit both.');
  else if (!sameWindow)
    said.push(
      'Other dimensions turn: dimensions that one side leaves alone are rotated by the other, from position 1 on. With the same weights the output is noise.',
    );
  else if (!rounding && maxRelInvFreq > ROUNDING) said.push(apartSentence(apart));
  const axes = otherAxes(a.rope, b.rope);
  if (axes.length > 0) said.push(axesSentence(axes, a.rope, b.rope));
  if (magnitude > ROUNDING) {
    const factor = (b.rope.attentionFactor / a.rope.attentionFactor) ** 2;
    said.push(
      `Attention scores of B are those of A times ${brief(factor)} at every length: attention is ${factor > 1 ? 'sharper' : 'flatter'} than the model was trained for.`,
    );
  }
  if (a.recipe !== b.recipe) said.push(arithmeticSentence(found, a, b, arithmetic));
  if (said.length === 0)
    said.push(
      rounding && maxRelInvFreq > 0
        ? 'Nothing would change but rounding: frequencies differ as f32 differs from float64.'
        : 'Nothing would change: both turn every pair alike.',
    );
  return said;
}

function apartSentence(apart: RopeComparison['apart']): string {
  const at = (rad: number): number | undefined => apart.find((one) => one.rad === rad)?.position;
  const [small, large] = [at(0.1), at(1)];
  if (small === undefined)
    return 'Frequencies differ, but no angle is 0.1 rad apart at any position that an i32 can hold.';
  const far = large === undefined ? '' : ` and 1 rad apart from ${large} on`;
  const prompt =
    small > 16
      ? `prompts shorter than about ${small} tokens look right, longer ones lose their thread`
      : 'even short prompts come out wrong';
  return `Angles are 0.1 rad apart from position ${small} on${far}: with the same weights ${prompt}.`;
}

function axesSentence(pairs: readonly number[], a: EffectiveRope, b: EffectiveRope): string {
  const list = `${pairs.slice(0, 6).join(', ')}${pairs.length > 6 ? ', …' : ''}`;
  const extra = pairs.filter((j) => a.axisOfPair[j] === 3 || b.axisOfPair[j] === 3);
  const text =
    extra.length > 0
      ? `text tokens differ too at pairs ${extra.slice(0, 6).join(', ')}, which one side turns by the fourth axis, 0 for text in llama.cpp`
      : 'text tokens, whose positions are the same on every axis, do not show it';
  return `Pairs ${list} turn by another axis: image and video tokens are misplaced; ${text}.`;
}

function arithmeticSentence(
  { nmse, apart }: Omit<RopeComparison, 'verdict'>,
  a: Side,
  b: Side,
  arithmetic: boolean,
): string {
  const first = nmse.find(({ text, image = 0 }) => Math.max(text, image) > NMSE_LIMIT);
  const near = apart[0]!.position === undefined ? `up to position ${SCAN}` : `before position ${apart[0]!.position}`;
  const words = `${a.recipe} and ${b.recipe} differ in rounding`;
  if (arithmetic)
    return `${words}: at position ${first!.position} NMSE is above ggml's own limit of 1e-7; no angle is more than 0.01 rad apart ${near}.`;
  return `${words} only: NMSE stays within ggml's own limit of 1e-7 at these positions; no angle is more than 0.01 rad apart ${near}.`;
}

function brief(value: number): string {
  return String(Number(value.toPrecision(9)));
}
