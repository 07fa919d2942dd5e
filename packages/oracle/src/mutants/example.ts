/** Runs a known bug on a model for which it is wrong. @module */
import type { Expected, Mutant, Observation } from '@ropewalk/diagnose';
import {
  callOf,
  changed,
  type Heads,
  type RopeSteps,
  readObservation,
  rightOf,
  widened,
} from '@ropewalk/diagnose/internal';
import { type FloatDtype, type HeadNorm, roundTo } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { reading } from 'ropewalk/internal';
import {
  distinctRows,
  GOLDEN_POSITIONS,
  GOLDEN_ROPE,
  GOLDEN_SEED,
  type GoldenRopeDefinition,
  goldenRopeQuestion,
  numbersFor,
} from '../golden/rope.js';
import { hostTensor } from '../host.js';
import { nmse } from '../judge.js';

/** A run of a kernel with one known bug. */
export interface MutantExample {
  /** x, positions, and the wrong y. */
  readonly observation: Observation;
  /** The rotation that the kernel should have computed. */
  readonly expected: Expected;
  /** The golden case with the same model, such as `llama-2-half`. */
  readonly from: string;
  /** One sentence about the model. */
  readonly about: string;
}

/** Positions of two batches: near, near the contexts of models, and far. */
const POSITIONS: readonly (readonly number[])[] = [
  [0, 1, 2, 3, 5, 8, 13, 40, 127, 511, 2047, 4097, 8192, 32769, 131072, 1048575],
  [1, 0, 3, 2, 7, 9, 37, 12, 128, 600, 2050, 4095, 9001, 40003, 200003, 1048574],
];
const HEADS = 4;
/** The NMSE from which a bug is seen in a picture. The first model that reaches it is taken. */
const PLAIN = 1e-2;
/** The models whose heads make a picture. */
const MODELS = GOLDEN_ROPE.filter(({ spec }) => spec.headDim > 2);

/** A model with its inputs and its right steps. */
interface Stage {
  readonly definition: GoldenRopeDefinition;
  readonly input: Omit<Observation, 'y'>;
  readonly expected: Expected;
  readonly heads: Heads;
  readonly steps: RopeSteps;
  /** Computes the right y, once. */
  readonly right: () => Float64Array;
}

const stages = new Map<GoldenRopeDefinition, Stage>();

/** Makes the stage of a model when it is first needed, as most bugs show in the first models. */
function stageOf(definition: GoldenRopeDefinition): Stage {
  const known = stages.get(definition);
  if (known) return known;
  const { id, dtype, spec, direction } = definition;
  const golden = definition.positions;
  const positions = golden === undefined ? POSITIONS : golden === GOLDEN_POSITIONS[0] ? POSITIONS[0]! : golden;
  const name = 'example x';
  const parts = [{ name, heads: HEADS }];
  const { inputs } = goldenRopeQuestion({ ...definition, layout: 'bsnh', positions, positionDtype: 'i32', parts });
  const eps = definition.parts?.[0]?.normEps;
  const norm: HeadNorm | undefined =
    eps === undefined
      ? undefined
      : { weight: distinctRows(dtype, [spec.headDim], numbersFor(GOLDEN_SEED, id, 'example weight')), eps };
  const x = inputs.get(name)!;
  const input = { x, positions: inputs.get('positions')!, layout: 'bsnh', norm } as const;
  const expected: Expected = { spec, direction: direction ?? 'forward' };
  const heads = readObservation({ ...input, y: x }, spec.axes?.sections.length ?? 1);
  const { steps } = rightOf(callOf(expected, heads));
  let made: Float64Array | undefined;
  const right = (): Float64Array => (made ??= steps.all(widened(heads.x)));
  const stage = { definition, input, expected, heads, steps, right };
  stages.set(definition, stage);
  return stage;
}

/**
 * Runs a known bug on the first model of the golden cases that shows it plainly, or else on the one that shows it most.
 *
 * @throws {RopewalkError} UNSUPPORTED for a bug that no golden model shows
 */
export function mutantExample(mutant: Mutant): MutantExample {
  return reading('mutantExample: mutant', () => exampleOf(mutant));
}

function exampleOf(mutant: Mutant): MutantExample {
  let most: { stage: Stage; y: Float64Array; error: number } | undefined;
  for (const definition of MODELS) {
    const stage = stageOf(definition);
    const change = mutant.change(stage.steps);
    if (!change) continue;
    const { dtype } = stage.input.x;
    const made = changed(stage.steps, change).all(widened(stage.heads.x));
    const y = made.map((value) => roundTo(dtype as FloatDtype, value));
    const error = errorOf(y, stage.right(), dtype as FloatDtype);
    if (error > (most?.error ?? 0)) most = { stage, y, error };
    if (error >= PLAIN) break;
  }
  if (!most) return refuse('UNSUPPORTED', 'mutantExample: mutant', 'a bug that a golden model shows', mutant.id);
  const { stage, y } = most;
  const { definition, input, expected } = stage;
  const { dtype, shape } = input.x;
  const observation = { ...input, y: hostTensor(dtype as FloatDtype, shape, (n) => y[n]!) };
  return { observation, expected, from: definition.id, about: definition.about };
}

/**
 * Names the steps of the rotation that a known bug changes, such as `position` or `readIndex`, in the first of those
 * models in which it can go wrong.
 */
export function mutantSteps(mutant: Mutant): readonly string[] {
  return reading('mutantSteps: mutant', () => {
    for (const definition of MODELS) {
      const change = mutant.change(stageOf(definition).steps);
      if (change) return Object.keys(change);
    }
    return [];
  });
}

/** Computes the NMSE against the right y, rounded once; Infinity where y is not finite. */
function errorOf(y: Float64Array, right: Float64Array, dtype: FloatDtype): number {
  const error = nmse(
    y,
    right.map((value) => roundTo(dtype, value)),
  );
  return Number.isNaN(error) ? Infinity : error;
}
