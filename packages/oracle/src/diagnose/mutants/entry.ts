/**
 * What the files of the catalogue share: how a mutant is written down, what calls it may need, and the usual changes.
 *
 * @module
 */
import { frequenciesOf, type PairGeometry, type RopeFrequencies, type RopeScaling, type RopeSpec } from 'ropewalk';
import type { Cause, Mutant } from '../mutant.js';
import type { Change, HeadAt, RopeSteps } from '../steps.js';

/** Something that a call must have for a mutant to go wrong. */
export interface Need {
  /** Completes `no case has …`. */
  readonly words: string;
  holds(steps: RopeSteps): boolean;
}

/** A mutant as the catalogue writes it: of which cause is said once for many. */
export interface Entry {
  readonly id: string;
  readonly does: string;
  readonly threads: readonly string[];
  readonly needs?: readonly Need[];
  /** Only asked where every need is met, so that the needs alone say where it cannot go wrong, and can be told. */
  change(steps: RopeSteps): Change;
}

/**
 * Makes mutants of entries: a mutant changes nothing in a call that lacks one of its needs.
 *
 * @param cause - of all of them
 * @param entries - in the order in which they are to be listed
 */
export function mutantsOf(cause: Cause, entries: readonly Entry[]): readonly Mutant[] {
  return entries.map(({ id, does, threads, needs = [], change }) => ({
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

/** RoPE of a call whose table is computed. */
export function specOf(steps: RopeSteps): RopeSpec {
  return steps.source!.spec;
}

/** The scaling rule of a call, as the kind it is known to have. */
export function scalingOf<K extends RopeScaling['kind']>(
  steps: RopeSteps,
  _kind: K,
): Extract<RopeScaling, { kind: K }> {
  return specOf(steps).scaling as Extract<RopeScaling, { kind: K }>;
}

const scaledBy = (steps: RopeSteps, kind: RopeScaling['kind']): boolean => steps.source?.spec.scaling?.kind === kind;
const adjacent = (geometry: PairGeometry): boolean => geometry.step === 2;

/**
 * A need of one mutant alone.
 *
 * @param words - completes `no case has …`
 * @param holds - of the right steps; asked only where the needs before it are met
 */
export function need(words: string, holds: (steps: RopeSteps) => boolean): Need {
  return { words, holds };
}

/** cos and sin come from frequencies, not from a table that the caller gave. */
export const COMPUTED: Need = {
  words: 'a table that the kernel computes',
  holds: (steps) => steps.source !== undefined,
};
/** One pair is (0, 1) in every pairing. */
export const HALF: Need = {
  words: 'half pairing',
  holds: ({ plan, pairs }) => !adjacent(plan.read) && !adjacent(plan.write) && pairs > 1,
};
export const INTERLEAVED: Need = {
  words: 'interleaved pairing',
  holds: ({ plan, pairs }) => adjacent(plan.read) && adjacent(plan.write) && pairs > 1,
};
export const READ_ONE_WRITTEN_OTHER: Need = {
  words: 'pairs that are read interleaved and written as halves',
  holds: ({ plan, pairs }) => plan.pairing === 'interleaved-to-half' && pairs > 1,
};
export const PARTIAL: Need = { words: 'rotary_dim < head_dim', holds: ({ rotaryDim, headDim }) => rotaryDim < headDim };
export const OFFSET: Need = {
  words: 'a rotated window that starts past dimension 0',
  holds: ({ rotaryOffset }) => rotaryOffset > 0,
};
export const BACKWARD: Need = { words: 'the backward direction', holds: ({ sign }) => sign === -1 };
export const YARN: Need = {
  words: 'YaRN',
  holds: (steps) => scaledBy(steps, 'yarn') && (scalingOf(steps, 'yarn').extFactor ?? 1) !== 0,
};
export const LLAMA3: Need = { words: 'llama3 scaling', holds: (steps) => scaledBy(steps, 'llama3') };
export const LONGROPE: Need = { words: 'LongRoPE', holds: (steps) => scaledBy(steps, 'longrope') };
export const DYNAMIC_NTK: Need = { words: 'dynamic NTK scaling', holds: (steps) => scaledBy(steps, 'dynamicNtk') };
export const LINEAR: Need = { words: 'linear scaling', holds: (steps) => scaledBy(steps, 'linear') };
export const PROPORTIONAL: Need = {
  words: 'proportional frequencies',
  holds: (steps) => scaledBy(steps, 'proportional'),
};
export const FREQ_FACTORS: Need = {
  words: 'freq_factors',
  holds: (steps) => steps.source?.spec.freqFactors !== undefined,
};
/** LongRoPE's magnitude has mutants of its own. */
export const MAGNITUDE: Need = {
  words: 'a magnitude other than 1',
  holds: (steps) =>
    steps.source !== undefined && !scaledBy(steps, 'longrope') && steps.frequencies().attentionFactor !== 1,
};
export const NORM: Need = { words: 'a norm before the rotation', holds: ({ part }) => part.norm !== undefined };
export const TOKENS: Need = { words: 'more than one token', holds: ({ seq }) => seq > 1 };
export const HEADS: Need = { words: 'more than one head', holds: ({ heads }) => heads > 1 };
export const BATCHES: Need = { words: 'more than one batch', holds: ({ batch }) => batch > 1 };
export const OWN_POSITIONS: Need = {
  words: 'batches with positions of their own',
  holds: ({ plan, batch }) => plan.batch !== undefined && batch > 1,
};
export const AXES: Need = {
  words: 'more than one position axis',
  holds: (steps) => steps.source?.spec.axes !== undefined,
};

/**
 * A call whose axes follow a rule.
 *
 * @param rules - of which one is enough
 * @param words - completes `no case has …`
 */
export function axesBy(rules: readonly string[], words: string): Need {
  return { words, holds: (steps) => rules.includes(steps.source?.spec.axes?.rule ?? '') };
}

/**
 * A call with a position past a limit.
 *
 * @param limit - the largest position at which nothing goes wrong
 */
export function beyond(limit: number): Need {
  return {
    words: `a position beyond ${limit}`,
    holds: (steps) => positionsOf(steps).some((position) => position > limit),
  };
}

export const NEGATIVE: Need = {
  words: 'a negative position, as a shift of cached keys has',
  holds: (steps) => positionsOf(steps).some((position) => position < 0),
};

/**
 * Every position of a call; of a given table, the rows.
 *
 * @param steps - the right ones
 */
export function positionsOf(steps: RopeSteps): Float64Array | Int32Array {
  return steps.source?.positions ?? steps.plan.tableRows;
}

/** Does it once, when it is first asked for. */
export function once<T>(make: () => T): () => T {
  let made: T | undefined;
  return () => (made ??= make());
}

/**
 * Frequencies from another spec.
 *
 * @param steps - the right ones
 * @param other - what is different in it
 */
export function withSpec(steps: RopeSteps, other: Partial<RopeSpec>): Change {
  return { frequencies: once(() => frequenciesOf({ ...specOf(steps), ...other })) };
}

/**
 * Frequencies from another scaling rule, under the right magnitude: magnitudes have mutants of their own.
 *
 * @param steps - the right ones
 * @param scaling - the rule that it takes
 */
export function withScaling(steps: RopeSteps, scaling: RopeScaling): Change {
  return {
    frequencies: once(() =>
      frequenciesOf({ ...specOf(steps), scaling, attentionFactor: steps.frequencies().attentionFactor }),
    ),
  };
}

/**
 * Other frequencies under the right magnitude.
 *
 * @param steps - the right ones
 * @param of - the frequency that it takes for pair j, from all the right ones
 */
export function withInvFreq(steps: RopeSteps, of: (j: number, right: Float64Array) => number): Change {
  return {
    frequencies: once((): RopeFrequencies => {
      const { invFreq, attentionFactor } = steps.frequencies();
      return { invFreq: invFreq.map((_, j) => of(j, invFreq)), attentionFactor };
    }),
  };
}

/**
 * Frequencies of a spec without its scaling rule and its factors.
 *
 * @param steps - the right ones
 */
export function plainFrequencies(steps: RopeSteps): Float64Array {
  const spec: RopeSpec = { ...specOf(steps), scaling: { kind: 'none' } };
  return frequenciesOf({ ...spec, freqFactors: undefined }).invFreq;
}

/**
 * Another magnitude.
 *
 * @param of - from the right one
 */
export function withMagnitude(steps: RopeSteps, of: (right: number) => number): Change {
  const magnitude = of(steps.frequencies().attentionFactor);
  return { magnitude: () => magnitude };
}

/**
 * Another place to read pair members from, or to write them to.
 *
 * @param steps - the right ones
 * @param read - where members are read; the right place unless given
 * @param write - where they are written; the right place unless given
 * @param offset - where the window starts; the right place unless given
 */
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

/**
 * Another position.
 *
 * @param of - from the right one; whole numbers, as given tables are indexed by them
 */
export function withPosition(steps: RopeSteps, of: (right: number, at: HeadAt, axis: number) => number): Change {
  return { position: (at, axis) => of(steps.position(at, axis), at, axis) };
}

/**
 * Two kernels' pairs in one: member 0 as the first turns it, member 1 as the second does. Not a rotation.
 *
 * @param first - whose member 0 is written
 * @param second - whose member 1 is written
 */
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
