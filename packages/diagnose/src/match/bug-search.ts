/** The hypotheses about one input, judged by any y: the bug that gives it within rounding is named. @module */
import { type FloatDtype, roundTo } from 'ropewalk';
import { sampleRows, seenRows } from '../fit/rebuild.js';
import type { Mutant } from '../kernel/mutant.js';
import { TIERS, type Tier } from '../kernel/noise.js';
import { RightRows } from '../kernel/right-rows.js';
import { farthest, Glance, type Hypothesis, type Seen, Trial } from '../kernel/trial.js';
import { residualsOf } from '../measure/residuals.js';
import type { Expected } from '../read/expected.js';
import { describeRow, everyRow, type Heads, type RowAt } from '../read/observation.js';
import { explainByOne, explainResiduals } from './explain.js';
import { hypothesesOf, pairsOf } from './hypotheses.js';

/** A known bug, or two at once, that give y. */
export interface Named {
  /** The ids of its mutants, joined by `+`. */
  readonly id: string;
  readonly mutants: readonly Mutant[];
}

/** The element of y that is farthest from what was expected, in units of its noise. */
export interface WorstElement extends RowAt {
  readonly dim: number;
  /** The given position on each axis. */
  readonly positions: readonly number[];
  readonly y: number;
  readonly expected: number;
}

/** Heads that are compared with every hypothesis; the right kernel is compared with all heads. */
const MAX_ROWS = 512;
/** Heads that decide whether the others need to be compared. */
const FEW_ROWS = 8;

/** What {@link BugSearch} says of one y. */
export interface Judged {
  /** Undefined when no hypothesis gives y; `different` when the right kernel does but for what is {@link measured}. */
  readonly verdict: 'as expected' | 'less precise' | 'known bug' | 'different' | undefined;
  /** The noise within which it was judged. */
  readonly tier: Tier | undefined;
  /** Bugs that give y, or the precision bugs of a less precise kernel. */
  readonly named: readonly Named[];
  /** The peer whose arithmetic of angles gives y, where that of float64 and of other peers does not. */
  readonly recipes: readonly string[];
  /** Sentences: systematic errors of a kernel that is right within the noise of each element. */
  readonly measured: readonly string[];
  /** Where nothing gives y: how many known bugs, and pairs of them, were tried. */
  readonly tried: { readonly bugs: number; readonly pairs: number };
  /** Bugs that this input would not have shown. */
  readonly notRuledOut: readonly Named[];
  readonly worst: WorstElement | undefined;
  /** Hypotheses that this input cannot tell apart. */
  readonly together: readonly Hypothesis[];
  /** The observation with the norm applied to x, where there is one. */
  readonly normalised: Heads;
}

/** The hypotheses about one input and their outputs, ready for any y that came of the same x, positions and norm. */
export class BugSearch {
  readonly #expected: Expected;
  readonly #mutants: readonly Mutant[];
  readonly #kept = new Map<string, unknown>();

  constructor(expected: Expected, mutants: readonly Mutant[]) {
    this.#expected = expected;
    this.#mutants = mutants;
  }

  #once<T>(key: string, make: () => T): T {
    if (!this.#kept.has(key)) this.#kept.set(key, make());
    return this.#kept.get(key) as T;
  }

  /** Compares y with every hypothesis, tier by tier, and then with pairs of bugs unless `pairs` is false. */
  judge(heads: Heads, progress: (done: number) => void = () => {}, { pairs = true } = {}): Judged {
    const { dtype } = heads;
    // Some bugs depend on y's dtype.
    const hypotheses = this.#once(dtype, () => hypothesesOf(this.#expected, heads, this.#mutants));
    const right = hypotheses[0]!;
    const normalised = normalisedHeads(right, heads);
    const rows = chooseRows(right, heads);
    const trialOf = (some: readonly number[]): Trial => {
      const kept = this.#once(`${dtype} ${some.join()}`, () => new Map<string, Float64Array>());
      return new Trial(heads, some, seenRows(heads, some, this.#expected, normalised), kept);
    };
    const all = trialOf(rows);
    const worst = worstOf(all.seen, all.made(right), heads, rows);
    const far = worst && (worst.batch * heads.seq + worst.seq) * heads.heads + worst.head;
    const few = trialOf(rows.filter((r, n) => r === far || n % Math.ceil(rows.length / FEW_ROWS) === 0));
    const one = trialOf([far ?? rows.at(-1)!]);
    const glance = new Glance(heads, one.rows[0]!, one.seen, glancedDims(heads.headDim, worst?.dim));
    const fits = (h: Hypothesis, tier: Tier): boolean =>
      glance.mayFit(h, tier) && [one, few, all].every((trial) => trial.fits(h, tier));
    const common = { worst, normalised };
    // Rows that were chosen because they are wrong would move the means.
    const fair = everyRow(heads).length === rows.length ? rows : sampleRows(heads);
    const biases = new Map<Hypothesis, boolean>();
    /** Whether its residuals have a mean that no right arithmetic gives, whatever the noise of the tier. */
    const biased = (h: Hypothesis): boolean => {
      const known = biases.get(h);
      if (known !== undefined) return known;
      const like = h !== right && h.kind === 'known-bug' && alike(all.made(h), all.made(right)) ? right : undefined;
      const answer = like ? biased(like) : (residualsOf(h, heads, fair)?.systematic.length ?? 0) > 0;
      biases.set(h, answer);
      return answer;
    };
    const fitsRight = (): boolean => TIERS.some((one) => fits(right, one)) && !biased(right);
    for (const [t, tier] of TIERS.entries()) {
      let fitting = hypotheses.filter((h, n) => {
        progress((0.6 * (t + n / hypotheses.length)) / TIERS.length);
        return fits(h, tier);
      });
      const rightFits = fitting.includes(right) && !biased(right);
      if (!rightFits) fitting = fitting.filter((h) => !biased(h));
      if (fitting.length === 0) continue;
      if (rightFits) fitting.push(...idleBugs(hypotheses, this.#mutants));
      const settled = settle(fitting, tier, fitsRight);
      const lost = settled.verdict === 'known bug' ? undefined : lostPrecision(heads, all.made(right));
      if (lost) return { ...NOTHING, verdict: 'different', tier, measured: [lost], ...common };
      return { ...settled, ...common };
    }
    if (TIERS.some((tier) => fits(right, tier))) {
      const measured = explainResiduals(this.#expected, right, heads, fair);
      const tried = { bugs: hypotheses.filter(({ kind }) => kind === 'known-bug').length, pairs: 0 };
      return { ...NOTHING, verdict: 'different', measured, tried, ...common };
    }
    const able = new Set(hypotheses.map(({ id }) => id));
    const bugs = this.#mutants.filter(({ id }) => able.has(id));
    if (!pairs) return { ...NOTHING, tried: { bugs: bugs.length, pairs: 0 }, ...common };
    const two = findPair(right, bugs, glance, [one, few, all], progress);
    if (two.pairs.length > 0) {
      const single = { bugs: bugs.length, pairs: 0 };
      return { ...settle(two.pairs, two.tier, () => false), tried: single, ...common };
    }
    const measured = explainByOne(this.#expected, right, heads, fair) ?? [];
    const verdict = measured.length > 0 ? 'different' : undefined;
    return { ...NOTHING, verdict, measured, tried: { bugs: bugs.length, pairs: two.tried }, ...common };
  }
}

/** The arithmetic of a tier beyond `stored`. */
export function arithmeticWords(tier: Tier | undefined, dtype: FloatDtype): string {
  if (tier === 'sines') return 'cos and sin are off by up to 4.8e-7, as fast sines are';
  return tier === 'arithmetic' ? `intermediate results in ${dtype}, such as cos, sin or products` : 'angles in f32';
}

function settle(
  fitting: readonly Hypothesis[],
  tier: Tier,
  rightFits: () => boolean,
): Omit<Judged, 'worst' | 'normalised'> {
  const bugs = fitting.filter(({ kind }) => kind === 'known-bug').map(({ id, mutants }): Named => ({ id, mutants }));
  const recipes = fitting.filter(({ kind }) => kind === 'recipe').map(({ id }) => id.replace('recipe:', ''));
  const together = fitting.filter(({ kind }) => kind !== 'recipe');
  if (fitting.some(({ kind }) => kind === 'right')) {
    const verdict = tier === 'stored' ? 'as expected' : 'less precise';
    return { tier, tried: NONE, measured: [], verdict, named: [], recipes: [], notRuledOut: bugs, together };
  }
  // Whose arithmetic it is, only where no other gives y.
  const common = { tier, tried: NONE, measured: [], recipes: recipes.length === 1 && bugs.length === 0 ? recipes : [] };
  // A kernel whose only bug is its precision is right as far as its dtype allows.
  const precise = bugs.filter(({ mutants }) => mutants.every(({ cause }) => cause === 'I'));
  if (recipes.length > 0 || (precise.length === bugs.length && rightFits()))
    return { ...common, verdict: 'less precise', named: precise, notRuledOut: [], together: [] };
  return { ...common, verdict: 'known bug', named: bugs, notRuledOut: [], together };
}

const NONE = { bugs: 0, pairs: 0 };
const NOTHING = {
  verdict: undefined,
  tier: undefined,
  named: [],
  recipes: [],
  notRuledOut: [],
  together: [],
  measured: [],
  tried: NONE,
} as const;

/** Whether two outputs differ by so little that no mean of their residuals can differ. */
function alike(one: Float64Array, other: Float64Array): boolean {
  return one.every((value, n) => Math.abs(value - other[n]!) <= 1e-9 * Math.abs(value));
}

/** A y of f16 that holds only values of bf16, where the right results in f16 do not. */
function lostPrecision({ dtype, storage }: Heads, made: Float64Array): string | undefined {
  if (storage !== 'f16' || dtype !== 'bf16') return undefined;
  const finer = made.filter((value) => roundTo('bf16', roundTo('f16', value)) !== roundTo('f16', value)).length;
  return finer > 0
    ? 'y holds only values of bf16, although its dtype is f16: the results went through bf16.'
    : undefined;
}

/** Bugs that cannot happen with these positions: this input would not have shown them. */
function idleBugs(hypotheses: readonly Hypothesis[], mutants: readonly Mutant[]): Hypothesis[] {
  const { steps, control } = hypotheses[0]!;
  const able = new Set(hypotheses.map(({ id }) => id));
  return mutants
    .filter(({ id }) => !able.has(id))
    .map((mutant) => ({ id: mutant.id, kind: 'known-bug', mutants: [mutant], steps, control }));
}

/** Some dimensions of a row, `worst` among them. */
function glancedDims(headDim: number, worst = 0): number[] {
  return [...new Set([0, 1, 2, 3].map((n) => (worst + Math.floor((n * headDim) / 4)) % headDim))];
}

/** Two bugs at once, to the last bit or with angles in f32: tried on a few elements first, because there are many pairs. */
function findPair(
  right: Hypothesis,
  mutants: readonly Mutant[],
  glance: Glance,
  trials: readonly Trial[],
  progress: (done: number) => void,
): { tier: Tier; pairs: Hypothesis[]; tried: number } {
  let tried = 0;
  const left: Hypothesis[] = [];
  for (const pair of pairsOf(right, mutants)) {
    if (!Object.is(pair.steps.all, right.steps.all)) continue; // it would run whole tensors, hundreds of times
    if (tried++ % 64 === 0) progress(0.6 + 0.3 * Math.min(1, tried / (mutants.length * mutants.length * 0.5)));
    // What fits to the last bit also fits with angles in f32.
    if (glance.mayFit(pair, 'angles')) left.push(pair);
  }
  for (const tier of ['stored', 'angles'] as const) {
    // Nothing is kept of so many.
    const pairs = left.filter((pair) =>
      trials.every(({ heads, rows, seen }) => new Trial(heads, rows, seen).fits(pair, tier)),
    );
    if (pairs.length > 0) return { tier, pairs, tried };
  }
  return { tier: 'angles', pairs: [], tried };
}

/** All rows of a small observation. Of a large one, a sample and the rows that are farthest from right. */
function chooseRows(right: Hypothesis, heads: Heads): number[] {
  const all = everyRow(heads);
  if (all.length <= MAX_ROWS) return all;
  const errors = new RightRows(right.steps, heads).storedErrors();
  const worst = all
    .map((r) => ({ r, off: errors[r]! }))
    .filter(({ off }) => off > 1)
    .sort((a, b) => b.off - a.off || a.r - b.r);
  return [...new Set([...sampleRows(heads), ...worst.slice(0, MAX_ROWS / 4).map(({ r }) => r)])].sort((a, b) => a - b);
}

function worstOf(seen: Seen, made: Float64Array, heads: Heads, rows: readonly number[]): WorstElement | undefined {
  const { headDim } = heads;
  const { ratio, at } = farthest(seen, made);
  if (ratio <= 1) return undefined;
  const r = rows[Math.floor(at / headDim)]!;
  const dim = at % headDim;
  return { ...describeRow(heads, r), dim, y: heads.y[r * headDim + dim]!, expected: made[at]! };
}

/** Applies the norm to x, so that pairs can be looked for. */
function normalisedHeads(right: Hypothesis, heads: Heads): Heads {
  if (!heads.norm) return heads;
  const { headDim } = heads;
  const weight = heads.norm.weight.readNumbers() as Float64Array;
  const x = new Float64Array(heads.x.length);
  for (let at = 0; at < x.length; at += headDim)
    x.set(right.steps.normalise(heads.x.subarray(at, at + headDim), weight, heads.norm.eps), at);
  return { ...heads, x, norm: undefined };
}
