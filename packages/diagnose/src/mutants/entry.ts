/**
 * What the files of the catalogue share: the form of an entry, what calls must have for a mutant to go wrong, and the
 * usual changes. @module
 */
import { frequenciesOf, type PairGeometry, type RopeScaling, type RopeSpec } from 'ropewalk';
import { hostOf, loadNumber } from 'ropewalk/backend';
import { dynamicNtkBase, yarnMagnitude } from 'ropewalk/internal';
import type { Cause, Mutant, Need } from '../kernel/mutant.js';
import { type Change, changed, type RopeSteps } from '../kernel/steps.js';
import type { RowAt } from '../read/observation.js';

/** A mutant as the catalogue writes it: its id is its key, and its cause is given once for many. */
export interface Entry {
  readonly does: string;
  readonly threads: readonly string[];
  /** The needs of a call in which it goes wrong, the more general first. */
  readonly needs?: readonly (keyof typeof NEEDS | Need)[];
  /** Called only if every need is met. */
  change(steps: RopeSteps): Change;
}

/** Makes mutants of entries, in their order. A mutant changes nothing in a call that lacks one of its needs. */
export function mutantsOf(cause: Cause, entries: Readonly<Record<string, Entry>>): readonly Mutant[] {
  return Object.entries(entries).map(([id, { does, threads, needs = [], change }]) => {
    const requires = needs.map((one) => (typeof one === 'string' ? NEEDS[one] : one));
    const words = requires.map((one) => one.words);
    return {
      id,
      cause,
      does,
      threads,
      needs: words.length > 1 ? `${words.slice(0, -1).join(', ')} and ${words.at(-1)}` : words[0],
      requires,
      change: (steps) => (requires.every((one) => one.holds(steps)) ? change(steps) : undefined),
    };
  });
}

/** The scaling of a call that has this kind of scaling. */
export function scalingOf<K extends RopeScaling['kind']>(
  steps: RopeSteps,
  _kind: K,
): Extract<RopeScaling, { kind: K }> {
  return steps.spec.scaling as Extract<RopeScaling, { kind: K }>;
}

/** Every position of a call; the rows, where a table was given. */
export function positionsOf(steps: RopeSteps): Float64Array | Int32Array {
  return steps.source?.positions ?? steps.plan.tableRows;
}

/** A need: the words complete `no case has …`. */
export function need(words: string, holds: (steps: RopeSteps) => boolean, implies?: Need): Need {
  return { words, holds, implies };
}

const adjacent = ({ step }: PairGeometry): boolean => step === 2;
const computed = need('a table that the kernel computes', ({ source }) => source !== undefined);
const scaledBy = (kind: RopeScaling['kind'], words: string): Need =>
  need(words, ({ source }) => source?.spec.scaling?.kind === kind, computed);
const longrope = scaledBy('longrope', 'LongRoPE');
const yarn = need(
  'YaRN',
  ({ source }) => source?.spec.scaling?.kind === 'yarn' && (source.spec.scaling.extFactor ?? 1) !== 0,
  computed,
);
const partial = need('rotary_dim < head_dim', ({ rotaryDim, headDim }) => rotaryDim < headDim);
const batches = need('more than one batch', ({ batch }) => batch > 1);

/** The needs that several mutants have. */
export const NEEDS = {
  computed,
  longrope,
  yarn,
  partial,
  batches,
  // A single pair is (0, 1) in every pairing.
  half: need('half pairing', ({ plan, pairs }) => !adjacent(plan.read) && !adjacent(plan.write) && pairs > 1),
  interleaved: need(
    'interleaved pairing',
    ({ plan, pairs }) => adjacent(plan.read) && adjacent(plan.write) && pairs > 1,
  ),
  interleavedToHalf: need('pairs that are read interleaved and written as halves', ({ plan, pairs }) => {
    return plan.pairing === 'interleaved-to-half' && pairs > 1;
  }),
  offset: need('a rotated window that starts past dimension 0', ({ rotaryOffset }) => rotaryOffset > 0, partial),
  backward: need('the backward direction', ({ sign }) => sign === -1),
  llama3: scaledBy('llama3', 'llama3 scaling'),
  dynamicNtk: scaledBy('dynamicNtk', 'dynamic NTK scaling'),
  linear: scaledBy('linear', 'linear scaling'),
  proportional: scaledBy('proportional', 'proportional frequencies'),
  freqFactors: need('freq_factors', ({ source }) => source?.spec.freqFactors !== undefined, computed),
  // LongRoPE's magnitude has mutants of its own.
  magnitude: need(
    'a magnitude other than 1',
    (steps) => computed.holds(steps) && !longrope.holds(steps) && steps.frequencies().attentionFactor !== 1,
    computed,
  ),
  mscales: need('mscale and mscale_all_dim', (steps) => {
    const { mscale, mscaleAllDim } = scalingOf(steps, 'yarn');
    return Boolean(mscale && mscaleAllDim) && steps.spec.attentionFactor === undefined;
  }),
  attentionFactor: need('an attention_factor that the formula does not give', (steps) => {
    const { attentionFactor } = steps.spec;
    return attentionFactor !== undefined && attentionFactor !== yarnMagnitude(scalingOf(steps, 'yarn'));
  }),
  untruncated: need('truncate=false', (steps) => scalingOf(steps, 'yarn').truncate === false),
  norm: need('a norm before the rotation', ({ part }) => part.norm !== undefined),
  tokens: need('more than one token', ({ seq }) => seq > 1),
  heads: need('more than one head', ({ heads }) => heads > 1),
  batchPositions: need(
    'batches with positions of their own',
    ({ plan, batch }) => plan.batch !== undefined && batch > 1,
    batches,
  ),
  axes: need('more than one position axis', ({ source }) => source?.spec.axes !== undefined),
  negative: need('a negative position, as a shift of cached keys has', (steps) =>
    positionsOf(steps).some((position) => position < 0),
  ),
} satisfies Record<string, Need>;

/** A call whose axes follow one of these rules. */
export function axesBy(rules: readonly string[], words: string): Need {
  return need(words, ({ source }) => rules.includes(source?.spec.axes?.rule ?? ''), NEEDS.axes);
}

/** A call with a position past the largest at which nothing goes wrong. */
export function beyond(limit: number): Need {
  return need(`a position beyond ${limit}`, (steps) => positionsOf(steps).some((position) => position > limit));
}

/** Calls a function once, when its value is first needed. */
function once<T>(make: () => T): () => T {
  let made: T | undefined;
  return () => (made ??= make());
}

/** Frequencies of another spec. */
export function withSpec(steps: RopeSteps, other: Partial<RopeSpec>): Change {
  return { frequencies: once(() => frequenciesOf({ ...steps.spec, ...other })) };
}

/** Frequencies of another scaling rule, with the right magnitude: magnitudes have their own mutants. */
export function withScaling(steps: RopeSteps, scaling: RopeScaling): Change {
  const { attentionFactor } = steps.frequencies();
  return withSpec(steps, { scaling, attentionFactor });
}

/** The frequency `of(j, right)` for pair j, with the right magnitude. */
export function withInvFreq(steps: RopeSteps, of: (j: number, right: Float64Array) => number): Change {
  const { invFreq, attentionFactor } = steps.frequencies();
  return { frequencies: once(() => ({ invFreq: invFreq.map((_, j) => of(j, invFreq)), attentionFactor })) };
}

/** Frequencies of a spec without its scaling rule and its factors. */
export function plainFrequencies(steps: RopeSteps): Float64Array {
  return frequenciesOf({ ...steps.spec, scaling: { kind: 'none' }, freqFactors: undefined }).invFreq;
}

/**
 * Other frequencies before the scaling rule, which then works on them: the code has one wrong line and the others are
 * right.
 *
 * @param of - from the plain frequency, which is base^(−2e/dim) for the exponent e of pair j
 */
export function withPlain(steps: RopeSteps, of: (plain: number, base: number, dim: number) => number): Change {
  const spec = steps.spec;
  const dim = steps.exponentDim;
  const base = spec.scaling?.kind === 'dynamicNtk' ? dynamicNtkBase(spec.base, dim, spec.scaling) : spec.base;
  const plain = frequenciesOf({ ...spec, base, scaling: { kind: 'none' }, freqFactors: undefined }).invFreq;
  // Factors divide the frequencies before the rule sees them.
  return withSpec(steps, { freqFactors: plain.map((f, j) => ((spec.freqFactors?.[j] ?? 1) * f) / of(f, base, dim)) });
}

/** Another magnitude, computed from the right one. */
export function withMagnitude(steps: RopeSteps, of: (right: number) => number): Change {
  const magnitude = of(steps.frequencies().attentionFactor);
  return { magnitude: () => magnitude };
}

/** Other places to read pair members from, or to write them to; the right places unless given. */
export function withGeometry(
  steps: RopeSteps,
  read: PairGeometry = steps.plan.read,
  write: PairGeometry = steps.plan.write,
  offset = steps.rotaryOffset,
): Change {
  return {
    readIndex: (j, k) => offset + j * read.step + k * read.gap,
    writeIndex: (j, k) => offset + j * write.step + k * write.gap,
  };
}

/** Pairs of the plan's own kind in a window of another size. */
export function geometryOf({ plan }: RopeSteps, pairs: number): PairGeometry {
  return adjacent(plan.read) ? plan.read : { step: 1, gap: pairs };
}

/** The position of another row: the places that are returned replace those of the row. */
export const atPositionOf =
  (from: (at: RowAt, steps: RopeSteps) => Partial<RowAt>): Entry['change'] =>
  (steps) =>
    withPosition(steps, (_, at, axis) => steps.position({ ...at, ...from(at, steps) }, axis));

/** Another position, computed from the right one; a whole number, because given tables are indexed by it. */
export function withPosition(steps: RopeSteps, of: (right: number, at: RowAt, axis: number) => number): Change {
  return { position: (at, axis) => of(steps.position(at, axis), at, axis) };
}

/** The member 0 of each pair from one kernel, the member 1 from another. Not a rotation. */
export function memberwise(steps: RopeSteps, first: Change, second: Change): Change {
  const { rotate } = steps;
  return {
    rotate(this: RopeSteps, head, at) {
      const y = changed(this, { ...first, rotate }).rotate(head, at);
      const other = changed(this, { ...second, rotate }).rotate(head, at);
      for (let j = 0; j < this.pairs; j++) y[this.writeIndex(j, 1)] = other[this.writeIndex(j, 1)]!;
      return y;
    },
  };
}

/** Some heads copied from x instead of rotated. */
export const copied =
  (of: (steps: RopeSteps, at: RowAt) => boolean) =>
  (steps: RopeSteps): Change => ({
    rotate(this: RopeSteps, head, at) {
      return of(steps, at) ? head.slice() : steps.rotate.call(this, head, at);
    },
  });

/** Some heads left as zeros. */
export const unwritten =
  (of: (steps: RopeSteps, at: RowAt) => boolean) =>
  (steps: RopeSteps): Change => ({
    rotate(this: RopeSteps, head, at) {
      return of(steps, at) ? new Float64Array(head.length) : steps.rotate.call(this, head, at);
    },
  });

/** The right output of another row in the place of each. */
export const exchanged =
  (from: (steps: RopeSteps, at: RowAt) => RowAt) =>
  (steps: RopeSteps): Change => ({
    head(this: RopeSteps, _x, at) {
      const other = from(steps, at);
      return steps.head.call(this, rowOf(steps, other), other);
    },
  });

/** Index n of a count whose members change places two by two; of an odd count, the last one stays. */
export function swapped(n: number, count: number): number {
  return (n ^ 1) < count ? n ^ 1 : n;
}

/** One head of x. */
function rowOf({ part, headDim }: RopeSteps, { batch, seq, head }: RowAt): Float64Array {
  const { dtype, offset, strides } = part.x;
  const host = hostOf(part.x, 'rope: x');
  const from = offset + batch * strides[0]! + seq * strides[1]! + head * strides[2]!;
  return Float64Array.from({ length: headDim }, (_, i) => loadNumber(host, dtype, from + i * strides[3]!));
}
