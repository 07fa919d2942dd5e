/**
 * What the files of the catalogue share: the form of an entry, what calls must have for a mutant to go wrong, and the
 * usual changes. @module
 */
import { frequenciesOf, type PairGeometry, type RopeScaling, type RopeSpec } from 'ropewalk';
import type { Cause, Mutant } from '../mutant.js';
import type { RowAt } from '../observation.js';
import type { Change, RopeSteps } from '../steps.js';

/** Something that a call must have for a mutant to go wrong. */
export interface Need {
  /** Completes `no case has …`. */
  readonly words: string;
  /** Called with the right steps, and only where the needs before it are met. */
  holds(steps: RopeSteps): boolean;
}

/** A mutant as the catalogue writes it: its id is its key, and its cause is given once for many. */
export interface Entry {
  readonly does: string;
  readonly threads: readonly string[];
  readonly needs?: readonly Need[];
  /** Called only where every need is met. */
  change(steps: RopeSteps): Change;
}

/** Makes mutants of entries, in their order: a mutant changes nothing in a call that lacks one of its needs. */
export function mutantsOf(cause: Cause, entries: Readonly<Record<string, Entry>>): readonly Mutant[] {
  return Object.entries(entries).map(([id, { does, threads, needs = [], change }]) => ({
    id,
    cause,
    does,
    threads,
    needs: wordsOf(needs),
    change: (steps) => (needs.every((one) => one.holds(steps)) ? change(steps) : undefined),
  }));
}

/** `YaRN, a factor other than 1 and half pairing`. */
function wordsOf(needs: readonly Need[]): string | undefined {
  const words = needs.map((one) => one.words);
  return words.length > 1 ? `${words.slice(0, -1).join(', ')} and ${words.at(-1)}` : words[0];
}

/** The RoPE of a call whose table is computed. */
export function specOf(steps: RopeSteps): RopeSpec {
  return steps.source!.spec;
}

/** The scaling of a call that has this kind of scaling. */
export function scalingOf<K extends RopeScaling['kind']>(
  steps: RopeSteps,
  _kind: K,
): Extract<RopeScaling, { kind: K }> {
  return specOf(steps).scaling as Extract<RopeScaling, { kind: K }>;
}

/** What the exponent is divided by. */
export function exponentDim(steps: RopeSteps): number {
  const { frequencyDim, pairing } = specOf(steps);
  return frequencyDim ?? (pairing === 'vision' ? steps.rotaryDim / 2 : steps.rotaryDim);
}

/** Every position of a call; the rows, where a table was given. */
export function positionsOf(steps: RopeSteps): Float64Array | Int32Array {
  return steps.source?.positions ?? steps.plan.tableRows;
}

/** A need: the words complete `no case has …`. */
export function need(words: string, holds: (steps: RopeSteps) => boolean): Need {
  return { words, holds };
}

const scaledBy = (kind: RopeScaling['kind']) => (steps: RopeSteps) => steps.source?.spec.scaling?.kind === kind;
const adjacent = ({ step }: PairGeometry): boolean => step === 2;

/** cos and sin come from frequencies, not from a table of the caller. */
export const COMPUTED = need('a table that the kernel computes', ({ source }) => source !== undefined);
// A single pair is (0, 1) in every pairing.
export const HALF = need('half pairing', ({ plan, pairs }) => {
  return !adjacent(plan.read) && !adjacent(plan.write) && pairs > 1;
});
export const INTERLEAVED = need('interleaved pairing', ({ plan, pairs }) => {
  return adjacent(plan.read) && adjacent(plan.write) && pairs > 1;
});
export const READ_ONE_WRITTEN_OTHER = need('pairs that are read interleaved and written as halves', (steps) => {
  return steps.plan.pairing === 'interleaved-to-half' && steps.pairs > 1;
});
export const PARTIAL = need('rotary_dim < head_dim', ({ rotaryDim, headDim }) => rotaryDim < headDim);
export const OFFSET = need('a rotated window that starts past dimension 0', ({ rotaryOffset }) => rotaryOffset > 0);
export const BACKWARD = need('the backward direction', ({ sign }) => sign === -1);
export const YARN = need('YaRN', (steps) => {
  return scaledBy('yarn')(steps) && (scalingOf(steps, 'yarn').extFactor ?? 1) !== 0;
});
export const LLAMA3 = need('llama3 scaling', scaledBy('llama3'));
export const LONGROPE = need('LongRoPE', scaledBy('longrope'));
export const DYNAMIC_NTK = need('dynamic NTK scaling', scaledBy('dynamicNtk'));
export const LINEAR = need('linear scaling', scaledBy('linear'));
export const PROPORTIONAL = need('proportional frequencies', scaledBy('proportional'));
export const FREQ_FACTORS = need('freq_factors', ({ source }) => source?.spec.freqFactors !== undefined);
/** LongRoPE's magnitude has its own mutants. */
export const MAGNITUDE = need('a magnitude other than 1', (steps) => {
  return COMPUTED.holds(steps) && !LONGROPE.holds(steps) && steps.frequencies().attentionFactor !== 1;
});
export const NORM = need('a norm before the rotation', ({ part }) => part.norm !== undefined);
export const TOKENS = need('more than one token', ({ seq }) => seq > 1);
export const HEADS = need('more than one head', ({ heads }) => heads > 1);
export const BATCHES = need('more than one batch', ({ batch }) => batch > 1);
export const OWN_POSITIONS = need('batches with positions of their own', ({ plan, batch }) => {
  return plan.batch !== undefined && batch > 1;
});
export const AXES = need('more than one position axis', ({ source }) => source?.spec.axes !== undefined);
export const NEGATIVE = need('a negative position, as a shift of cached keys has', (steps) => {
  return positionsOf(steps).some((position) => position < 0);
});

/** A call whose axes follow one of these rules. */
export function axesBy(rules: readonly string[], words: string): Need {
  return need(words, ({ source }) => rules.includes(source?.spec.axes?.rule ?? ''));
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
  return { frequencies: once(() => frequenciesOf({ ...specOf(steps), ...other })) };
}

/** Frequencies of another scaling rule, with the right magnitude: magnitudes have their own mutants. */
export function withScaling(steps: RopeSteps, scaling: RopeScaling): Change {
  const { attentionFactor } = steps.frequencies();
  return withSpec(steps, { scaling, attentionFactor });
}

/** The frequency `of(j, right)` for pair j, with the right magnitude. */
export function withInvFreq(steps: RopeSteps, of: (j: number, right: Float64Array) => number): Change {
  const { invFreq, attentionFactor } = steps.frequencies();
  return { frequencies: once(() => ({ invFreq: invFreq.map((_what, j) => of(j, invFreq)), attentionFactor })) };
}

/** Frequencies of a spec without its scaling rule and its factors. */
export function plainFrequencies(steps: RopeSteps): Float64Array {
  return frequenciesOf({ ...specOf(steps), scaling: { kind: 'none' }, freqFactors: undefined }).invFreq;
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

/** Another position, computed from the right one; a whole number, because given tables are indexed by it. */
export function withPosition(steps: RopeSteps, of: (right: number, at: RowAt, axis: number) => number): Change {
  return { position: (at, axis) => of(steps.position(at, axis), at, axis) };
}

/** The member 0 of each pair from one kernel, the member 1 from another. Not a rotation. */
export function memberwise(steps: RopeSteps, first: RopeSteps, second: RopeSteps): Change {
  return {
    rotate(head, at) {
      const y = first.rotate(head, at);
      const other = second.rotate(head, at);
      for (let j = 0; j < steps.pairs; j++) y[steps.writeIndex(j, 1)] = other[steps.writeIndex(j, 1)]!;
      return y;
    },
  };
}
