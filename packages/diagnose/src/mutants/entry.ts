/**
 * The parts that the files of the catalogue share: the form of an entry, the needs of a mutant, and the usual changes.
 * @module
 */
import { frequenciesOf, type RopeScaling, type RopeSpec } from 'ropewalk';
import { hostOf, loadNumber } from 'ropewalk/backend';
import { dynamicNtkBase, type PairGeometry, yarnMagnitude } from 'ropewalk/internal';
import type { Cause, Mutant, Need } from '../kernel/mutant.js';
import { type Change, changed, type RopeSteps } from '../kernel/steps.js';
import type { RowAt } from '../read/observation.js';

/** A mutant as the catalogue writes it. Its id is its key, and its group has the cause. */
export interface Entry {
  readonly does: string;
  readonly threads: readonly string[];
  /** The needs that a call must meet, the more general first. */
  readonly needs?: readonly (keyof typeof NEEDS | Need)[];
  /** Called only if every need is met. */
  change(steps: RopeSteps): Change;
}

/**
 * Makes mutants of entries, in their order. A mutant changes nothing in a call that lacks one of its needs.
 *
 * @param usual - the needs of an entry that lists none
 */
export function mutantsOf(
  cause: Cause,
  usual: NonNullable<Entry['needs']>,
  entries: Readonly<Record<string, Entry>>,
): readonly Mutant[] {
  return Object.entries(entries).map(([id, { does, threads, needs = usual, change }]) => {
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

/** Every position of a call, or the rows of a table that was given. */
export function positionsOf(steps: RopeSteps): Float64Array | Int32Array {
  return steps.source?.positions ?? steps.plan.tableRows;
}

/** Makes a need. The words complete `no case has …`. */
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
  interleavedPairs: need(
    'interleaved pairs',
    ({ plan, pairs }) => (adjacent(plan.read) || adjacent(plan.write)) && pairs > 1,
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

/** The need that axes follow one of these rules. */
export function axesBy(rules: readonly string[], words: string): Need {
  return need(words, ({ source }) => rules.includes(source?.spec.axes?.rule ?? ''), NEEDS.axes);
}

/** The need of a position past the largest at which nothing goes wrong. */
export function beyond(limit: number): Need {
  return need(`a position beyond ${limit}`, (steps) => positionsOf(steps).some((position) => position > limit));
}

function once<T>(make: () => T): () => T {
  let made: T | undefined;
  return () => (made ??= make());
}

export function withSpec(steps: RopeSteps, other: Partial<RopeSpec>): Change {
  return { frequencies: once(() => frequenciesOf({ ...steps.spec, ...other })) };
}

/** Takes the frequencies of another scaling rule, with the right magnitude, because magnitudes have mutants of their own. */
export function withScaling(steps: RopeSteps, scaling: RopeScaling): Change {
  const { attentionFactor } = steps.frequencies();
  return withSpec(steps, { scaling, attentionFactor });
}

/** Takes the frequency `of(j, right)` for pair j, with the right magnitude. */
export function withInvFreq(steps: RopeSteps, of: (j: number, right: Float64Array) => number): Change {
  const { invFreq, attentionFactor } = steps.frequencies();
  return { frequencies: once(() => ({ invFreq: invFreq.map((_, j) => of(j, invFreq)), attentionFactor })) };
}

/** The frequencies of a spec without its scaling rule and its factors. */
export function plainFrequencies(steps: RopeSteps): Float64Array {
  return frequenciesOf({ ...steps.spec, scaling: { kind: 'none' }, freqFactors: undefined }).invFreq;
}

/**
 * Takes other frequencies before the scaling rule, which then works on them, as in code with one wrong line.
 *
 * @param of - computes one from the plain frequency, which is base^(−2e/dim) for the exponent e of pair j
 */
export function withPlain(steps: RopeSteps, of: (plain: number, base: number, dim: number) => number): Change {
  const spec = steps.spec;
  const dim = steps.exponentDim;
  const base = spec.scaling?.kind === 'dynamicNtk' ? dynamicNtkBase(spec.base, dim, spec.scaling) : spec.base;
  const plain = frequenciesOf({ ...spec, base, scaling: { kind: 'none' }, freqFactors: undefined }).invFreq;
  // Factors divide the frequencies before the rule sees them.
  return withSpec(steps, { freqFactors: plain.map((f, j) => ((spec.freqFactors?.[j] ?? 1) * f) / of(f, base, dim)) });
}

/** Takes another magnitude, computed from the right one. */
export function withMagnitude(steps: RopeSteps, of: (right: number) => number): Change {
  const magnitude = of(steps.frequencies().attentionFactor);
  return { magnitude: () => magnitude };
}

/** Reads the members of pairs from other places, or writes them there. Default: the right places. */
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

/** The kind of pairs that the plan has, in a window of another size. */
export function geometryOf({ plan }: RopeSteps, pairs: number): PairGeometry {
  return adjacent(plan.read) ? plan.read : { step: 1, gap: pairs };
}

/** Takes the position of another row. The places that `from` returns replace those of the row. */
export const atPositionOf =
  (from: (at: RowAt, steps: RopeSteps) => Partial<RowAt>): Entry['change'] =>
  (steps) =>
    withPosition(steps, (_, at, axis) => steps.position({ ...at, ...from(at, steps) }, axis));

/** Takes another position, computed from the right one. It is whole, because it is an index of a table that was given. */
export function withPosition(steps: RopeSteps, of: (right: number, at: RowAt, axis: number) => number): Change {
  return { position: (at, axis) => of(steps.position(at, axis), at, axis) };
}

/** Takes member 0 of each pair from one kernel and member 1 from another, which is no rotation. */
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

const insteadOfSome =
  (make: (head: Float64Array) => Float64Array) =>
  (of: (steps: RopeSteps, at: RowAt) => boolean) =>
  (steps: RopeSteps): Change => ({
    rotate(this: RopeSteps, head, at) {
      return of(steps, at) ? make(head) : steps.rotate.call(this, head, at);
    },
  });

/** Some heads are copied from x. */
export const copied = insteadOfSome((head) => head.slice());

/** Some heads are left as zeros. */
export const unwritten = insteadOfSome((head) => new Float64Array(head.length));

/** Writes the right output of another row in the place of each. */
export const exchanged =
  (from: (steps: RopeSteps, at: RowAt) => RowAt) =>
  (steps: RopeSteps): Change => ({
    head(this: RopeSteps, _x, at) {
      const other = from(steps, at);
      return steps.head.call(this, rowOf(steps, other), other);
    },
  });

/** The index with which n of a count changes places, two by two. The last one of an odd count stays. */
export function swapped(n: number, count: number): number {
  return (n ^ 1) < count ? n ^ 1 : n;
}

function rowOf({ part, headDim }: RopeSteps, { batch, seq, head }: RowAt): Float64Array {
  const { dtype, offset, strides } = part.x;
  const host = hostOf(part.x, 'rope: x');
  const from = offset + batch * strides[0]! + seq * strides[1]! + head * strides[2]!;
  return Float64Array.from({ length: headDim }, (_, i) => loadNumber(host, dtype, from + i * strides[3]!));
}
