/** What a kernel may have done: the expected rotation, peers' arithmetic of it, and known bugs. @module */
import { type RopeCall, RopewalkError, type TableRecipe } from 'ropewalk';
import type { Mutant } from '../kernel/mutant.js';
import { type Change, changed } from '../kernel/steps.js';
import { type Hypothesis, rightOf } from '../kernel/trial.js';
import { callOf, type Expected } from '../read/expected.js';
import type { Heads } from '../read/observation.js';

/** The right kernel first, then the peers' recipes of it, then every bug that can happen with this input. */
export function hypothesesOf(expected: Expected, heads: Heads, mutants: readonly Mutant[]): Hypothesis[] {
  const right = rightOf(callOf(expected, heads));
  const list: Hypothesis[] = [right];
  for (const recipe of ['hf-f32', 'ggml-f32'] as const) {
    const call = recipeCall(expected, heads, recipe);
    if (call) list.push({ ...rightOf(call), id: `recipe:${recipe}`, kind: 'recipe' });
  }
  for (const mutant of mutants) {
    const change = mutant.change(right.steps);
    if (change) list.push(wrong(right, [mutant], [change]));
  }
  return list;
}

function wrong({ steps, control }: Hypothesis, mutants: readonly Mutant[], changes: readonly Change[]): Hypothesis {
  const id = mutants.map((mutant) => mutant.id).join('+');
  const own = changes.flatMap(Object.keys);
  return { id, kind: 'known-bug', mutants, steps: control.mutant(changes.reduce(changed, steps), own), control };
}

/** Two bugs at once, of those that change different steps. */
export function* pairsOf(right: Hypothesis, mutants: readonly Mutant[]): Generator<Hypothesis> {
  for (const [n, first] of mutants.entries()) {
    const one = first.change(right.steps);
    if (!one) continue;
    for (const second of mutants.slice(n + 1)) {
      const other = second.change(right.steps);
      if (!other || Object.keys(one).some((step) => step in other)) continue; // one would hide the other
      yield wrong(right, [first, second], [one, other]);
    }
  }
}

/** Undefined where the peer does not have the scaling. */
function recipeCall(expected: Expected, heads: Heads, recipe: TableRecipe): RopeCall | undefined {
  try {
    return callOf(expected, heads, recipe);
  } catch (error) {
    if (error instanceof RopewalkError && error.code === 'UNSUPPORTED') return undefined;
    throw error;
  }
}
