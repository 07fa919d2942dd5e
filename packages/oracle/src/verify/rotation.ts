/** Judges rotations as `ropewalk diagnose` does, so that verify and diagnose agree. @module */
import { diagnose, MUTANTS, type Observation } from '@ropewalk/diagnose';
import { axesOf, BugSearch, type Heads, type Judged, precision, readObservation } from '@ropewalk/diagnose/internal';
import { type FloatDtype, RopewalkError, type Tensor } from 'ropewalk';
import type { GoldenCase, GoldenRopePart } from '../golden/case.js';

/** The judgement of one output by {@link judgeRotation}. */
export interface RotationJudgement {
  readonly verdict: 'as expected' | 'less precise' | 'different';
  /** The reason of a loss of precision: `angles in f32`. */
  readonly words: string;
  /** A narrower dtype than the output's that has all its values. */
  readonly narrower: FloatDtype | undefined;
  /** The known bugs that give a different rotation. There are several where the case cannot tell them apart. */
  readonly bugs: readonly string[];
}

/**
 * Judges one rotated output of a case.
 *
 * @param output - a tensor in host memory with the shape of the expected one
 * @param named - looks for the known bugs of a different rotation
 * @returns undefined where diagnose does not read the output: inputs that are not finite, or no elements
 */
export function judgeRotation(
  golden: GoldenCase,
  part: GoldenRopePart,
  output: Tensor,
  named: boolean,
): RotationJudgement | undefined {
  const { spec, direction, layout } = golden.rope!;
  const weight = part.weight === undefined ? undefined : golden.inputs.get(part.weight)!;
  const observation: Observation = {
    x: golden.inputs.get(part.x)!,
    y: output,
    positions: golden.inputs.get('positions')!,
    layout,
    norm: weight && { weight: weight as Tensor<FloatDtype>, eps: part.eps ?? 0 },
  };
  let heads: Heads;
  try {
    heads = readObservation(observation, axesOf({ spec }));
  } catch (error) {
    if (error instanceof RopewalkError) return undefined;
    throw error;
  }
  const narrower = heads.dtype === output.dtype ? undefined : heads.dtype;
  const judge = (mutants: typeof MUTANTS): Judged => new BugSearch({ spec, direction }, mutants).judge(heads);
  // Only a known bug that fits better than a less precise kernel changes the answer, and there are many to try.
  let judged = judge([]);
  if (judged.verdict === 'less precise') judged = judge(MUTANTS);
  const common = { words: '', narrower, bugs: [] };
  if (judged.verdict === 'as expected') return { verdict: 'as expected', ...common };
  if (judged.verdict === 'less precise')
    return { verdict: 'less precise', ...common, words: precision({ ...judged, dtype: heads.dtype }) };
  if (!named || heads.x.every((value) => value === 0)) return { verdict: 'different', ...common };
  const found = diagnose(observation, { spec, direction });
  const ids = found.verdict === 'known bug' ? found.named.map(({ mutants }) => mutants.map(({ id }) => id)) : [];
  return { verdict: 'different', ...common, bugs: ids.map((both) => both.join(' and ')) };
}
