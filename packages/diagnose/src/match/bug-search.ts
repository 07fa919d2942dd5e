/** The hypotheses about one input, judged by any y: the bug that gives it within rounding is named. @module */
import type { FloatDtype } from 'ropewalk';
import type { Mutant } from '../kernel/mutant.js';
import { farthest, TIERS, type Tier } from '../kernel/noise.js';
import { type Compared, RightRows } from '../kernel/right-rows.js';
import {
  ARITHMETIC,
  glanceAt,
  type Hypothesis,
  hypothesesOf,
  pairsOf,
  runRows,
  seenRows,
  Trial,
  wrong,
} from '../kernel/trial.js';
import { quantisedWords } from '../measure/quantised.js';
import { explainResiduals, isBiased, lostPrecision } from '../measure/residuals.js';
import { sampleRows } from '../measure/sample.js';
import { callsOf, type Expected } from '../read/expected.js';
import { type Heads, positionsOf, type RowAt } from '../read/observation.js';

/** A known bug, or two at once, that give y. */
export interface Named {
  /** The ids of its mutants, joined by `+`. */
  readonly id: string;
  readonly mutants: readonly Mutant[];
}

/** The element of y that is farthest from what was expected, of all elements. */
export interface WorstElement extends RowAt {
  readonly dim: number;
  /** The given position on each axis. */
  readonly positions: readonly number[];
  readonly y: number;
  readonly expected: number;
}

/** The comparison of one y with the right kernel and its known bugs. */
export interface Findings {
  /** The noise within which y is explained; undefined when nothing explains it. */
  readonly tier: Tier | undefined;
  /** The bugs that give y, which this input cannot tell apart, or the precision bugs of a less precise kernel. */
  readonly named: readonly Named[];
  /**
   * The arithmetic of a right kernel: `hf-f32` or `ggml-f32`, a peer's angles, where no other arithmetic gives y; `tf32`, cos
   * and sin of a matrix unit; `norm` or `norm-twice`, a norm that is stored in 16 bits once, or before its weight too.
   */
  readonly recipes: readonly string[];
  /** Sentences on systematic errors of a kernel that is right within the noise of each element. */
  readonly measured: readonly string[];
  /** How many known bugs, and pairs of them, were tried where none gives y. */
  readonly tried: { readonly bugs: number; readonly pairs: number };
  /** The bugs that this input would not have shown, where y is as expected. */
  readonly notRuledOut: readonly Named[];
}

export interface Judged extends Findings {
  /** Undefined when no hypothesis gives y; `different` when the right kernel does but for what was measured. */
  readonly verdict: 'as expected' | 'less precise' | 'known bug' | 'different' | undefined;
  /** The hypotheses that this input cannot tell apart. */
  readonly together: readonly Hypothesis[];
  /** The observation with the norm applied to x. */
  readonly normalized: Heads;
}

/** The most rows that are compared with every hypothesis. The right kernel is compared with all rows. */
const MAX_ROWS = 512;
/** The number of rows that decide whether the others need to be compared. */
const FEW_ROWS = 8;

const NONE = { bugs: 0, pairs: 0 };
/** The findings where nothing was tried. */
export const NOTHING = {
  tier: undefined,
  named: [],
  recipes: [],
  measured: [],
  tried: NONE,
  notRuledOut: [],
} as const;

/** The hypotheses about one input and their outputs, ready for any y of the same x, positions and norm. */
export class BugSearch {
  readonly #kept = new Map<string, unknown>();
  readonly #rightRows = new WeakMap<Heads, RightRows>();

  constructor(
    readonly expected: Expected,
    readonly mutants: readonly Mutant[],
  ) {}

  #once<T>(key: string, make: () => T): T {
    if (!this.#kept.has(key)) this.#kept.set(key, make());
    return this.#kept.get(key) as T;
  }

  #hypotheses(heads: Heads): Hypothesis[] {
    // Some bugs depend on the dtype of y.
    return this.#once(heads.dtype, () => hypothesesOf(callsOf(this.expected, heads), this.mutants));
  }

  rightRows(heads: Heads): RightRows {
    const known = this.#rightRows.get(heads) ?? new RightRows(this.#hypotheses(heads)[0]!.steps, heads);
    this.#rightRows.set(heads, known);
    return known;
  }

  /** Compares y with every hypothesis, tier by tier, and then with pairs of bugs unless `pairs` is false. */
  judge(heads: Heads, progress: (done: number) => void = () => {}, { pairs = true } = {}): Judged {
    const { dtype } = heads;
    const hypotheses = this.#hypotheses(heads);
    const right = hypotheses[0]!;
    const rightRows = this.rightRows(heads);
    const normalized = rightRows.normalized();
    const sample = heads.rows.length > MAX_ROWS ? sampleRows(heads) : undefined;
    const rows = sample ? withWorst(sample, rightRows) : heads.rows;
    const trialOf = (some: readonly number[]): Trial => {
      const kept = this.#once(`${dtype} ${some.join()}`, () => new Map<string, Float64Array>());
      return new Trial(heads, some, seenRows(heads, some, this.expected, normalized), kept);
    };
    const all = trialOf(rows);
    const made = all.made(right);
    // The element with the largest error in units of its noise: most hypotheses fail there.
    const { ratio, at: worst } = farthest(all.seen, made);
    const far = ratio > 1 ? rows[Math.floor(worst / heads.headDim)]! : undefined;
    const few = trialOf(rows.filter((r, n) => r === far || n % Math.ceil(rows.length / FEW_ROWS) === 0));
    const one = trialOf([far ?? rows.at(-1)!]);
    const mayFit = glanceAt(one, far === undefined ? 0 : worst % heads.headDim);
    const fits = (h: Hypothesis, tier: Tier): boolean =>
      mayFit(h, tier) && [one, few, all].every((trial) => trial.fits(h, tier));
    const common = { ...NOTHING, together: [], normalized };
    // Rows that were chosen because they are wrong would move the means.
    const fair = sample ?? rows;
    const biases = new Map<Hypothesis, boolean>();
    const biased = (h: Hypothesis): boolean => {
      const known = biases.get(h);
      if (known !== undefined) return known;
      const like = h !== right && h.kind === 'known-bug' && alike(all.made(h), made);
      const answer = like ? biased(right) : isBiased(h, heads, fair);
      biases.set(h, answer);
      return answer;
    };
    const rightFits = (mayBias: boolean): boolean =>
      TIERS.some((tier) => fits(right, tier)) && (mayBias || !biased(right));
    for (const [t, tier] of TIERS.entries()) {
      const fitting = hypotheses.filter((h, n) => {
        progress((0.6 * (t + n / hypotheses.length)) / TIERS.length);
        return fits(h, tier);
      });
      const isRight = fitting.includes(right) && !biased(right);
      const left = isRight ? [...fitting, ...idleBugs(hypotheses, this.mutants)] : fitting.filter((h) => !biased(h));
      if (left.length === 0) continue;
      const kept = simplest(left, all);
      // A store toward zero is off by less than a last place, as conversions to f16 may be. The mean shows it all the same.
      const faithful = dtype === 'f16' && kept.every(({ id }) => id === 'output-rounded-toward-zero');
      const settled = settle(kept, tier, () => rightFits(faithful));
      const lost = settled.verdict === 'known bug' ? undefined : lostPrecision(heads, made);
      if (lost) return { ...common, verdict: 'different', tier, measured: [lost] };
      return { ...common, ...settled };
    }
    const able = new Set(hypotheses.map(({ id }) => id));
    const bugs = this.mutants.filter(({ id, parameters }) => able.has(id) && !parameters);
    const single = { ...common, tried: { bugs: bugs.length, pairs: 0 } };
    if (TIERS.some((tier) => fits(right, tier))) {
      const measured = explainResiduals(this.expected, right, heads, fair, false);
      return { ...single, verdict: 'different', measured };
    }
    const quantised = pairs ? quantisedWords(rightRows) : undefined;
    if (quantised) return { ...single, verdict: 'different', measured: [quantised] };
    if (!pairs) return { ...single, verdict: undefined };
    // At one position only the product with a frequency shows, and many two bugs give the same one.
    const isOne = heads.positions.every((p) => p === heads.positions[0]);
    const two = findPair(right, isOne ? [] : bugs, mayFit, [one, few, all], progress);
    if (two.pairs.length > 0) return { ...single, ...settle(two.pairs, two.tier, () => false) };
    const measured = explainResiduals(this.expected, right, heads, fair, true);
    const verdict = measured.length > 0 ? 'different' : undefined;
    return { ...single, verdict, measured, tried: { bugs: bugs.length, pairs: two.tried } };
  }
}

/** Names the arithmetic that a tier allows beyond `stored`. */
export function arithmeticWords(tier: Tier | undefined, dtype: FloatDtype): string {
  if (tier === 'sines') return 'cos and sin are off by up to 4.8e-7, as fast sines are';
  return tier === 'arithmetic' ? `intermediate results in ${dtype}, such as cos, sin or products` : 'angles in f32';
}

function settle(fitting: readonly Hypothesis[], tier: Tier, rightFits: () => boolean) {
  const bugs = fitting.filter(({ kind }) => kind === 'known-bug').map(({ id, mutants }): Named => ({ id, mutants }));
  const recipes = fitting.filter(({ kind }) => kind === 'recipe').map(({ id }) => id.replace('recipe:', ''));
  const together = fitting.filter(({ kind }) => kind !== 'recipe');
  if (fitting.some(({ kind }) => kind === 'right')) {
    const verdict = tier === 'stored' ? 'as expected' : 'less precise';
    return { verdict, tier, notRuledOut: bugs, together } as const;
  }
  // The arithmetic of a peer is named only if no other gives y.
  const alone = recipes.filter((one) => one in ARITHMETIC || (recipes.length === 1 && bugs.length === 0));
  const common = { tier, recipes: alone };
  // A kernel whose only bug is its precision is right as far as its dtype allows.
  const precise = bugs.filter(({ mutants }) => mutants.every(({ cause }) => cause === 'I'));
  if (recipes.length > 0 || (precise.length === bugs.length && rightFits()))
    return { ...common, verdict: 'less precise', named: precise } as const;
  return { ...common, verdict: 'known bug', named: bugs, together } as const;
}

/** Leaves out bugs that need others where fewer give y, and wrong parameters that a known bug gives too, or that are more than others need. */
function simplest(every: readonly Hypothesis[], all: Trial): readonly Hypothesis[] {
  // Several bugs are not named where fewer give y.
  const least = Math.min(...every.filter(({ kind }) => kind === 'known-bug').map(({ mutants }) => mutants.length));
  const fitting = every.filter(({ mutants }) => mutants.length <= least);
  const parametersOf = ({ mutants }: Hypothesis): number => mutants[0]?.parameters ?? 0;
  if (fitting.some(({ kind }) => kind === 'right')) return fitting.filter((one) => parametersOf(one) === 0);
  const fewest = Math.min(...fitting.map((one) => parametersOf(one) || 1));
  const bugs = fitting.filter((one) => one.kind === 'known-bug' && parametersOf(one) === 0);
  return fitting.filter((one) => {
    const count = parametersOf(one);
    return count === 0 || (count === fewest && !bugs.some((bug) => alike(all.made(bug), all.made(one))));
  });
}

/** Whether two outputs differ by so little that no mean of their residuals can differ. */
function alike(one: Float64Array, other: Float64Array): boolean {
  return one.every((value, n) => Math.abs(value - other[n]!) <= 1e-9 * Math.abs(value));
}

/** The bugs that cannot happen with these positions, which this input would not have shown. */
function idleBugs(hypotheses: readonly Hypothesis[], mutants: readonly Mutant[]): Hypothesis[] {
  const { steps, control } = hypotheses[0]!;
  const able = new Set(hypotheses.map(({ id }) => id));
  const idle = mutants.filter(({ id, parameters }) => !able.has(id) && !parameters);
  return idle.map((mutant) => ({ id: mutant.id, kind: 'known-bug', mutants: [mutant], steps, control }));
}

/** Finds two bugs at once, to the last bit or with angles in f32. The many pairs are tried on a few elements first. */
function findPair(
  right: Hypothesis,
  mutants: readonly Mutant[],
  mayFit: (hypothesis: Hypothesis, tier: Tier) => boolean,
  trials: readonly Trial[],
  progress: (done: number) => void,
): { tier: Tier; pairs: Hypothesis[]; tried: number } {
  let tried = 0;
  const left: Hypothesis[] = [];
  for (const pair of pairsOf(right, mutants)) {
    if (!Object.is(pair.steps.all, right.steps.all)) continue; // it would run whole tensors, hundreds of times
    if (tried++ % 64 === 0) progress(0.6 + 0.3 * Math.min(1, tried / (mutants.length * mutants.length * 0.5)));
    // A pair that fits to the last bit also fits with angles in f32.
    if (mayFit(pair, 'angles')) left.push(pair);
  }
  // There are so many that no outputs are kept.
  const fits = (pair: Hypothesis, tier: Tier): boolean =>
    trials.every(({ heads, rows, seen }) => new Trial(heads, rows, seen).fits(pair, tier));
  const fitting = left.filter((pair) => fits(pair, 'angles'));
  for (const tier of ['stored', 'angles'] as const) {
    const pairs = fitting.filter((pair) => fits(pair, tier) && showsBoth(right, pair, tier, trials.at(-1)!));
    if (pairs.length > 0) return { tier, pairs, tried };
  }
  return { tier: 'angles', pairs: [], tried };
}

/** Whether each bug of a pair shows by itself, and neither alone gives what the two give, within the noise in which they give y. */
function showsBoth(right: Hypothesis, pair: Hypothesis, tier: Tier, { heads, rows, seen }: Trial): boolean {
  const gives = (one: Hypothesis, y: Float64Array): boolean => new Trial(heads, rows, { ...seen, y }).fits(one, tier);
  const both = runRows(pair.steps, heads, rows);
  return pair.mutants.every((one) => {
    const alone = wrong(right, [one], [one.change(right.steps)!]);
    return !gives(alone, both) && !gives(right, runRows(alone.steps, heads, rows));
  });
}

/** A sample of a large observation, and the rows that are farthest from right. */
function withWorst(sample: readonly number[], right: RightRows): number[] {
  const errors = right.compare().stored;
  const worst = right.heads.rows
    .map((r, n) => ({ r, off: errors[n]! }))
    .filter(({ off }) => off > 1)
    .sort((a, b) => b.off - a.off || a.r - b.r);
  return [...new Set([...sample, ...worst.slice(0, MAX_ROWS / 4).map(({ r }) => r)])].sort((a, b) => a - b);
}

/** The element that is farthest from right, and its place. */
export function worstOf({ y, headDim, ...heads }: Heads, { largest }: Compared): WorstElement | undefined {
  if (!largest) return undefined;
  const { row, dim, expected } = largest;
  const token = Math.floor(row / heads.heads);
  const [batch, seq] = [Math.floor(token / heads.seq), token % heads.seq];
  const positions = positionsOf({ y, headDim, ...heads }, token);
  return { batch, seq, head: row % heads.heads, positions, dim, y: y[row * headDim + dim]!, expected };
}
