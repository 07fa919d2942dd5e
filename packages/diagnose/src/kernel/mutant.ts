/** A wrong kernel: the reference with one step changed. @module */
import { type RopeCall, type Runner, zeros } from 'ropewalk';
import { checkPlan, refuse } from 'ropewalk/backend';
import { reading, readList, whyNotFloatCaches } from 'ropewalk/internal';
import { runReference } from 'ropewalk/reference';
import { type Change, changed, type RopeSteps, runSteps } from './steps.js';

/** The causes of RoPE bugs in public threads, by their letters in docs/diagnose.md. */
export const CAUSES = {
  A: 'pairing, and the permutation of q and k weights',
  B: 'partial rotary',
  C: 'proportional frequencies',
  D: 'YaRN magnitude',
  E: 'YaRN frequencies',
  F: 'llama3 scaling and freq_factors',
  G: 'LongRoPE and dynamic NTK',
  H: 'base, exponents, and parameters of each layer',
  I: 'precision',
  J: 'positions',
  K: 'layout, memory, batch and heads',
  L: 'M-RoPE and vision',
  M: 'order with norms',
  N: 'K-shift and reuse of a cache',
  O: 'order of arguments',
} as const;

/** The letter of a cause in {@link CAUSES}. */
export type Cause = keyof typeof CAUSES;

/** A feature that a call must have for a mutant to go wrong. */
export interface Need {
  /** The feature in words that complete `no case has …`. */
  readonly words: string;
  /** Another need, which every call that meets this one also meets. */
  readonly implies?: Need;
  /** Called with the right steps, and only if the needs before it are met. */
  holds(steps: RopeSteps): boolean;
}

/** A known way to get RoPE wrong. */
export interface Mutant {
  /** Unique, words joined by hyphens: `pairs-interleaved-for-half`. */
  readonly id: string;
  readonly cause: Cause;
  /** A sentence for its author: `Rotates pairs (2j, 2j+1) instead of (j, j + rotary_dim/2).` */
  readonly does: string;
  /** The public threads that report it: `huggingface/transformers#25199`. */
  readonly threads: readonly string[];
  /** How many parameters of the model it has other values for; undefined for a bug of the catalogue. */
  readonly parameters?: number;
  /** The needs in words: `YaRN and rotary_dim < head_dim`; undefined if it goes wrong in any rotation. */
  readonly needs?: string;
  /** The needs one by one. */
  readonly requires?: readonly Need[];
  /**
   * Changes the steps that it gets wrong.
   *
   * @param steps - the right steps
   * @returns undefined if it cannot go wrong: YaRN's ramp in a call without YaRN, frequencies if the table is given
   */
  change(steps: RopeSteps): Change | undefined;
}

/**
 * Runs a call as a mutant would.
 *
 * @param call - a checked call, tensors in host memory
 * @returns whether the mutant could go wrong in it; if not, it ran like the right kernel
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

/** Makes a runner with the RoPE of a mutant. Its other operators are the reference's. Test suites should notice it. */
export function mutantRunner(mutant: Mutant): Runner {
  return ropeRunner(mutant.id, (call) => runMutant(mutant, call));
}

/**
 * Makes a runner with another RoPE. Its other operators are the reference's, and so is a RoPE that copies heads or writes
 * caches in 8 bits or blocks, which the steps cannot do.
 */
export function ropeRunner(name: string, rotate: (call: RopeCall) => void): Runner {
  return {
    name,
    allocate: zeros,
    whyNot: () => undefined,
    run(plan) {
      checkPlan(plan);
      if (plan.op === 'rope' && whyNotFloatCaches(plan) === undefined) rotate(plan);
      else runReference(plan);
    },
    async finish() {},
  };
}

/** Checks the known bugs of a caller. @throws {RopewalkError} SHAPE for no list, RANGE for something else in it */
export function readMutants(mutants: readonly Mutant[], where: string): Mutant[] {
  return Array.from(readList(mutants, where, 'a list of known bugs'), (mutant, n) => {
    const at = `${where}[${n}]`;
    if (!reading(at, () => typeof mutant?.id === 'string' && typeof mutant.change === 'function'))
      refuse('RANGE', at, 'a known bug, such as those in MUTANTS', mutant);
    return mutant;
  });
}
