/**
 * What a wrong kernel is: the reference with one step changed.
 *
 * @module
 */
import { type RopeCall, type Runner, zeros } from 'ropewalk';
import { checkPlan } from 'ropewalk/backend';
import { runReference } from 'ropewalk/reference';
import { type Change, changed, type RopeSteps, runSteps } from './steps.js';

/** The causes of RoPE bugs in the field, lettered as in docs/diagnose.md. */
export const CAUSES = {
  A: 'pairing, and the permutation of q and k weights',
  B: 'partial rotary',
  C: 'proportional frequencies',
  D: 'YaRN magnitude',
  E: 'YaRN frequencies',
  F: 'llama3 scaling and freq_factors',
  G: 'LongRoPE and dynamic NTK',
  H: 'base, and parameters of each layer',
  I: 'precision',
  J: 'positions',
  K: 'layout, batch and heads',
  L: 'M-RoPE and vision',
  M: 'order with norms',
  N: 'K-shift and reuse of a cache',
  O: 'order of arguments',
} as const;

/** The letter of a cause. */
export type Cause = keyof typeof CAUSES;

/** A known way to get RoPE wrong. */
export interface Mutant {
  /** Unique, in words joined by hyphens: `pairs-interleaved-for-half`. */
  readonly id: string;
  readonly cause: Cause;
  /** What it does wrong, as one would tell its author: `Takes pairs (2j, 2j+1) where (j, j + R/2) is meant.` */
  readonly does: string;
  /** Public threads that tell of it: `huggingface/transformers#25199`. */
  readonly threads: readonly string[];
  /** What a call must have for it to go wrong, in words: `YaRN and rotary_dim < head_dim`; undefined where any rotation will do. */
  readonly needs?: string;
  /**
   * The steps that it does otherwise.
   *
   * @param steps - the right ones
   * @returns undefined where it cannot go wrong in its way: YaRN's ramp in a call without YaRN, frequencies where the table is given
   */
  change(steps: RopeSteps): Change | undefined;
}

/**
 * Runs a call as a mutant would.
 *
 * @param mutant - which
 * @param call - a checked call, tensors in host memory
 * @returns whether the mutant could go wrong in it; if not, it ran rightly
 */
export function runMutant(mutant: Mutant, call: RopeCall): boolean {
  let could = false;
  runSteps(call, (steps) => {
    const change = mutant.change(steps);
    if (!change) return steps;
    could = true;
    return changed(steps, change);
  });
  return could;
}

/**
 * A runner whose RoPE is a mutant's, and all else the reference's: for suites that should notice.
 *
 * @param mutant - which
 */
export function mutantRunner(mutant: Mutant): Runner {
  return {
    name: mutant.id,
    allocate: zeros,
    whyNot: () => undefined,
    run(plan) {
      checkPlan(plan);
      if (plan.op === 'rope') runMutant(mutant, plan);
      else runReference(plan);
    },
    async finish() {},
  };
}
