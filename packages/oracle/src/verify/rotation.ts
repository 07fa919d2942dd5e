/** Whether an output is the rotation of its case: the judgement of `ropewalk diagnose`, so that both say the same. @module */
import { type FloatDtype, RopewalkError, type Tensor } from 'ropewalk';
import { Bench, type Judged } from '../diagnose/bench.js';
import { MUTANTS } from '../diagnose/catalogue.js';
import { axesOf } from '../diagnose/diagnose.js';
import { type Heads, readObservation } from '../diagnose/observation.js';
import { precision } from '../diagnose/words.js';
import type { GoldenCase, GoldenRopePart } from '../golden/case.js';

/** What {@link judgeRotation} says of one output. */
export interface RotationJudgement {
  readonly verdict: 'as expected' | 'less precise' | 'different';
  /** How it was computed less precisely: `angles in f32`. */
  readonly words: string;
  /** The dtype that all its values fit, where that is narrower than its own. */
  readonly narrower: FloatDtype | undefined;
}

/**
 * Judges one rotated output of a case.
 *
 * @param output - in host memory, with the shape of the case's
 * @returns undefined where diagnose does not read it: caches, inputs that are not finite, no elements
 */
export function judgeRotation(golden: GoldenCase, part: GoldenRopePart, output: Tensor): RotationJudgement | undefined {
  const { spec, direction, layout } = golden.rope!;
  const weight = part.weight === undefined ? undefined : golden.inputs.get(part.weight)!;
  let heads: Heads;
  try {
    heads = readObservation(
      {
        x: golden.inputs.get(part.x)!,
        y: output,
        positions: golden.inputs.get('positions')!,
        layout,
        norm: weight && { weight: weight as Tensor<FloatDtype>, eps: part.eps ?? 0 },
      },
      axesOf({ spec }),
    );
  } catch (error) {
    if (error instanceof RopewalkError) return undefined;
    throw error;
  }
  const narrower = heads.dtype === output.dtype ? undefined : heads.dtype;
  const judge = (mutants: typeof MUTANTS): Judged => new Bench({ spec, direction }, mutants).judge(heads);
  // The known bugs are many; only one that fits better than a less precise kernel changes the answer.
  let judged = judge([]);
  if (judged.verdict === 'less precise') judged = judge(MUTANTS);
  if (judged.verdict === 'as expected') return { verdict: 'as expected', words: '', narrower };
  if (judged.verdict !== 'less precise') return { verdict: 'different', words: '', narrower };
  return { verdict: 'less precise', words: precision({ ...judged, dtype: heads.dtype }), narrower };
}
