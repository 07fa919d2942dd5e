/**
 * A parameter with another value: the base, the scaling, or both, as other models have it, or the size of a table or chunk
 * of positions. @module
 */
import { frequenciesOf, type RopeScaling, type RopeSpec, RopewalkError } from 'ropewalk';
import type { Cause, Mutant } from '../kernel/mutant.js';
import type { RopeSteps } from '../kernel/steps.js';
import { BASES, type Expected } from '../read/expected.js';
import { positionsOf, withPosition, withSpec } from './entry.js';

const FACTORS: readonly number[] = [2, 4, 8, 16, 32, 40, 64];
const CONTEXTS: readonly number[] = [2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144];

/** The numbers of each scaling rule that configs give, and the values that models have. */
const VALUES: Partial<Record<RopeScaling['kind'], Readonly<Record<string, readonly number[]>>>> = {
  linear: { factor: FACTORS },
  dynamicNtk: { factor: FACTORS, originalContext: CONTEXTS },
  llama3: { factor: FACTORS, originalContext: CONTEXTS, lowFreqFactor: [1, 2], highFreqFactor: [2, 4, 8] },
  yarn: { factor: FACTORS, originalContext: CONTEXTS, betaFast: [8, 16, 32, 64], betaSlow: [1, 2, 4] },
};
const CAUSE: Partial<Record<RopeScaling['kind'], Cause>> = { dynamicNtk: 'G', llama3: 'F', yarn: 'E' };

interface Other {
  /** As in `base=500000`, one for each parameter. */
  readonly ids: readonly string[];
  readonly words: string;
  readonly cause: Cause;
  readonly spec: Partial<RopeSpec>;
}

/** The sizes of tables and chunks of positions. */
const SIZES = Array.from({ length: 14 }, (_, n) => 2 ** (n + 4));

/** The kernels that are right but for one or two parameters of the model. */
export function wrongParameters({ spec }: Expected): Mutant[] {
  if (spec.scaling?.kind === 'proportional' && spec.scaling.rotatedPairs === 0) return rotationsByBases(spec.base);
  // The square root is the known bug exponent-without-two.
  const bases = BASES.filter((base) => base !== spec.base && base ** 2 !== spec.base).map((base): Other => {
    const words = `base ${base} instead of ${spec.base}`;
    return { ids: [`base=${base}`], words, cause: 'H', spec: { base } };
  });
  const scalings = [...otherScalings(spec)];
  const both = bases.flatMap((one) =>
    scalings.map((other): Other => {
      const words = `${one.words} and ${other.words}`;
      return { ids: [...one.ids, ...other.ids], words, cause: 'H', spec: { ...one.spec, ...other.spec } };
    }),
  );
  // Where several are the same for this model, the simplest counts.
  const known = new Set([frequenciesIn(spec)]);
  return [...bases, ...scalings, ...both]
    .flatMap(({ ids, words, cause, spec: other }): Mutant[] => {
      const frequencies = frequenciesIn({ ...spec, ...other });
      if (frequencies === undefined || known.has(frequencies)) return [];
      known.add(frequencies);
      const does = `Uses ${words}.`;
      const id = ids.join(',');
      return [{ id, cause, does, threads: [], parameters: ids.length, change: (steps) => withSpec(steps, other) }];
    })
    .concat(spec.axes ? [] : otherPositions());
}

/** The rotations of a layer that should have none. */
function rotationsByBases(own: number): Mutant[] {
  return [own, ...BASES.filter((base) => base !== own)].map((base) => ({
    id: `rotates,base=${base}`,
    cause: 'H',
    does: `Rotates, with base ${base}, where no pair should rotate.`,
    threads: [],
    parameters: 1,
    change: (steps) => withSpec(steps, { base, scaling: undefined }),
  }));
}

function otherPositions(): Mutant[] {
  const one = (id: string, does: string, change: Mutant['change']): Mutant => {
    return { id: `positions.${id}`, cause: 'J', does, threads: [], parameters: 1, change };
  };
  const beyond = (steps: RopeSteps, last: number): boolean => positionsOf(steps).some((p) => p > last);
  return SIZES.flatMap((size) => [
    ...[size - 1, size].map((last) =>
      one(`at_most=${last}`, `Uses positions of at most ${last}.`, (steps) =>
        beyond(steps, last) ? withPosition(steps, (p) => Math.min(p, last)) : undefined,
      ),
    ),
    one(`modulo=${size}`, `Uses positions modulo ${size}.`, (steps) =>
      beyond(steps, size - 1) ? withPosition(steps, (p) => ((p % size) + size) % size) : undefined,
    ),
    one(`chunk=${size}`, `Starts positions again every ${size} tokens.`, (steps) =>
      steps.seq > size
        ? withPosition(steps, (p, at, axis) => p - steps.position({ ...at, seq: at.seq - (at.seq % size) }, axis))
        : undefined,
    ),
  ]);
}

/** The frequencies and the magnitude as a text; undefined for what is no spec. */
function frequenciesIn(spec: RopeSpec): string | undefined {
  try {
    const { invFreq, attentionFactor } = frequenciesOf(spec);
    return `${invFreq.join()} ${attentionFactor}`;
  } catch (error) {
    if (error instanceof RopewalkError) return undefined;
    throw error;
  }
}

function* otherScalings({ scaling = { kind: 'none' }, freqFactors }: RopeSpec): Generator<Other> {
  const { kind } = scaling;
  if (kind === 'none' && !freqFactors)
    for (const factor of FACTORS) {
      const words = `linear scaling by ${factor}, where there is none`;
      yield { ids: [`linear.factor=${factor}`], words, cause: 'H', spec: { scaling: { kind: 'linear', factor } } };
    }
  if (kind !== 'none')
    yield {
      ids: ['scaling=none'],
      words: `no ${kind} scaling`,
      cause: CAUSE[kind] ?? 'H',
      spec: { scaling: undefined },
    };
  for (const [key, values] of Object.entries(VALUES[kind] ?? {})) {
    const own = (scaling as unknown as Record<string, number | undefined>)[key];
    const name = key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
    for (const value of values) {
      const words = `${kind} scaling with ${name} ${value} instead of ${own ?? 'the default'}`;
      const cause = CAUSE[kind] ?? 'H';
      yield { ids: [`${kind}.${name}=${value}`], words, cause, spec: { scaling: { ...scaling, [key]: value } } };
    }
  }
}
