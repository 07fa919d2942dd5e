/**
 * Scores test vectors by the known wrong kernels (mutants) that they notice.
 *
 * Each mutant runs every case in which it could go wrong, the small ones first, until one fails. A mutant that fails no
 * case was missed for one of three reasons: it cannot happen in the cases' operator, no case has what it needs, or the
 * difference is within the tolerance.
 *
 * @module
 */
import type { Mutant } from '@ropewalk/diagnose';
import {
  changed,
  mutantRunner,
  RopeSteps,
  readMutants,
  ropeRunner,
  runSteps,
  whyNever,
} from '@ropewalk/diagnose/internal';
import type { Runner } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { readList } from 'ropewalk/internal';
import { referenceRunner } from 'ropewalk/reference';
import { nmse } from '../judge.js';
import { type ConformanceCase, readCase, runCases } from '../runner.js';

/** The score of one mutant. */
export type MutantScore = {
  readonly mutant: Mutant;
  /** The number of cases in which it could go wrong. */
  readonly applies: number;
} & (
  | {
      readonly outcome: 'killed';
      /** The first case that failed. */
      readonly by: { readonly suite: string; readonly label: string; readonly detail: string };
    }
  | {
      /** `idle` could go wrong in no case; `survived` could, but every case passes. */
      readonly outcome: 'idle' | 'survived';
      /** No case of this operator could show it, another case would, or the cases tolerate the difference. */
      readonly reason: 'cannot-happen' | 'no-case' | 'tolerance';
      /** The reason in words. */
      readonly why: string;
    }
);

/** The score of a set of cases. */
export interface VectorScore {
  /** The number of all cases. */
  readonly cases: number;
  /** The number of cases that rotate. Only these can notice a mutant. */
  readonly rotating: number;
  /** Cases that even the right kernel does not pass, so that they prove nothing about a wrong one. */
  readonly leftOut: readonly { readonly suite: string; readonly label: string; readonly why: string }[];
  /** The scores in the order of the mutants. */
  readonly mutants: readonly MutantScore[];
}

type LeftOut = VectorScore['leftOut'][number];

/** A case that the right kernel passes. */
interface Examined {
  readonly one: ConformanceCase;
  /** The number of elements that it rotates, which measures its running time. */
  readonly cost: number;
  /** The mutants that could go wrong in it. */
  readonly applies: ReadonlySet<Mutant>;
  /** The largest position, or row where the table came with the call. */
  readonly largestPosition: number;
  /** True where the table came with the call, so that its spec is unknown. */
  readonly given: boolean;
}

/**
 * Scores cases by the mutants that they notice.
 *
 * @param cases - the cases; those of other operators cannot notice anything
 * @param mutants - MUTANTS, or some of them
 * @param onProgress - is called after each case and each mutant: `cases.length + mutants.length` times
 * @throws {RopewalkError} FORMAT when a case's files are unreadable
 */
export async function scoreVectors(
  cases: readonly ConformanceCase[],
  mutants: readonly Mutant[],
  onProgress: () => void = () => {},
): Promise<VectorScore> {
  if (typeof onProgress !== 'function') refuse('RANGE', 'mutants: onProgress', 'a function', onProgress);
  const leftOut: LeftOut[] = [];
  const usable: Examined[] = [];
  const all = Array.from(readList(cases, 'mutants: cases'), (one, n) => readCase(one, `mutants: cases[${n}]`));
  const known = readMutants(mutants, 'mutants: mutants');
  for (const one of all) {
    const examined = await examine(one, known);
    if (examined && 'why' in examined) leftOut.push(examined);
    else if (examined) usable.push(examined);
    onProgress();
  }
  usable.sort((a, b) => a.cost - b.cost);
  const scores: MutantScore[] = [];
  for (const mutant of known) {
    scores.push(await scoreMutant(mutant, usable));
    onProgress();
  }
  return { cases: all.length, rotating: usable.length + leftOut.length, leftOut, mutants: scores };
}

/** Runs a case on the right kernel. Returns undefined for a case that rotates nothing. */
async function examine(one: ConformanceCase, mutants: readonly Mutant[]): Promise<Examined | LeftOut | undefined> {
  const applies = new Set<Mutant>();
  let rotates = false;
  let cost = 0;
  let largestPosition = 0;
  let given = false;
  let recipe = 'float64';
  const looker = ropeRunner('mutants', (call) => {
    rotates = true;
    given ||= call.plan.source === undefined;
    recipe = call.plan.source?.recipe ?? recipe;
    for (const position of call.plan.source?.positions ?? call.plan.tableRows) {
      largestPosition = Math.max(largestPosition, Math.abs(position));
    }
    for (const part of call.parts) {
      cost += part.x.size;
      const steps = new RopeSteps(call.plan, part);
      for (const mutant of mutants) if (!applies.has(mutant) && mutant.change(steps)) applies.add(mutant);
    }
    runSteps(call, (steps) => steps);
  });
  const because = (why: string): LeftOut => ({ suite: one.suite, label: one.label, why });
  const problem = await problemOf(one, looker);
  if (!rotates) return undefined;
  // Such a case tests tables against a peer's f32 arithmetic. A float64 case with the same vector tests kernels.
  if (recipe !== 'float64') return because(`about ${recipe}, a peer’s own arithmetic`);
  if (problem !== undefined) return because(`the right kernel does not pass it: ${problem}`);
  const onReference = await problemOf(one, referenceRunner());
  if (onReference !== undefined) return because(`the reference does not pass it: ${onReference}`);
  return { one, cost, applies, largestPosition, given };
}

/** Returns the reason why a case does not pass, or undefined. */
async function problemOf(one: ConformanceCase, runner: Runner): Promise<string | undefined> {
  for await (const { verdict } of runCases([one], runner)) {
    if (verdict.status === 'fail') return verdict.detail;
    if (verdict.status === 'not_supported') return verdict.reason;
  }
  return undefined;
}

async function scoreMutant(mutant: Mutant, all: readonly Examined[]): Promise<MutantScore> {
  const cases = all.filter((one) => one.applies.has(mutant));
  const applies = cases.length;
  if (applies === 0) return { mutant, applies, outcome: 'idle', ...whyIdle(mutant, all) };
  const measures = new Map<Examined, string>();
  for (const examined of cases) {
    const { one } = examined;
    // An error that a mutant throws is a bug of ours, and is not caught.
    const verdict = await one.run(mutantRunner(mutant));
    if (verdict.status === 'fail')
      return { mutant, applies, outcome: 'killed', by: { suite: one.suite, label: one.label, detail: verdict.detail } };
    if (verdict.status === 'ok') measures.set(examined, verdict.measure);
  }
  const { difference, at } = await largestDifference(mutant, cases);
  const largest = cases.reduce((max, { largestPosition }) => Math.max(max, largestPosition), 0);
  const positions = cases.every(({ given }) => given) ? 'table rows' : 'positions';
  const where = `it applies in ${applies} of ${all.length} cases, with ${positions} up to ${largest}`;
  const survived = { mutant, applies, outcome: 'survived' } as const;
  if (at === undefined) return { ...survived, reason: 'no-case', why: `${where}, and changes nothing there` };
  const changes = `${where}, and changes their output by an NMSE of at most ${difference.toExponential(1)}`;
  return {
    ...survived,
    reason: 'tolerance',
    why: `${changes}, which they tolerate (judged there: ${measures.get(at)})`,
  };
}

type WhyIdle = { reason: 'cannot-happen' | 'no-case'; why: string };

function whyIdle(mutant: Mutant, all: readonly Examined[]): WhyIdle {
  if (all.length === 0) return { reason: 'no-case', why: 'no case rotates' };
  const never = all.map(({ one, given }) => whyNever(mutant, one.suite, given));
  if (never.every((why) => why !== undefined))
    return { reason: 'cannot-happen', why: `it cannot happen: ${[...new Set(never)].join('; ')}` };
  const able = never.filter((why) => why === undefined).length;
  const others = able === all.length ? '' : ` (in ${all.length - able} of ${all.length} it cannot happen)`;
  return { reason: 'no-case', why: `no case has ${mutant.needs ?? 'what it takes'}${others}` };
}

/** Finds the case with the largest NMSE between a mutant's float64 output and the right one; undefined if all are 0. */
async function largestDifference(
  mutant: Mutant,
  cases: readonly Examined[],
): Promise<{ difference: number; at: Examined | undefined }> {
  let largest = 0;
  let at: Examined | undefined;
  const comparer = ropeRunner('mutants', (call) => {
    for (const part of call.parts) {
      const steps = new RopeSteps(call.plan, part);
      const change = mutant.change(steps);
      if (!change) continue;
      const x = part.x.readNumbers() as Float64Array;
      largest = Math.max(largest, nmse(changed(steps, change).all(x), steps.all(x)));
    }
    runSteps(call, (steps) => steps);
  });
  for (const examined of cases) {
    const before = largest;
    await examined.one.run(comparer);
    if (largest > before) at = examined;
  }
  return { difference: largest, at };
}
