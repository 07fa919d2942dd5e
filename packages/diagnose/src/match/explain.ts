/** What a systematic error of an otherwise right kernel is: measured, and proven by what is left without it. @module */
import { frequenciesOf } from 'ropewalk';
import { ranges } from 'ropewalk/internal';
import type { Rounding } from '../kernel/rounding.js';
import type { Hypothesis } from '../kernel/trial.js';
import { type Residuals, residualsOf, type Store, type Systematic } from '../measure/residuals.js';
import type { Expected } from '../read/expected.js';
import type { Heads } from '../read/observation.js';

/** Standard errors that a printed bound is wide. */
const BOUND = 4;
const ROUNDS = 8;
const STORES = ['toward zero', 'down', 'up'] as const;

/**
 * Sentences on the systematic errors of the right kernel.
 *
 * First one cause is looked for that leaves nothing: how y is stored, another magnitude, base, factor of all
 * frequencies or shift of all positions. Otherwise the clearest means are listed.
 *
 * @param rows - chosen without looking at y
 * @returns empty where y has none
 */
export function explainResiduals(
  expected: Expected | undefined,
  right: Hypothesis,
  heads: Heads,
  rows: readonly number[],
): readonly string[] {
  const first = residualsOf(right, heads, rows);
  if (!first || first.systematic.length === 0) return [];
  return explainByOne(expected, right, heads, rows, first) ?? means(first);
}

/** The one cause that leaves no systematic error; undefined where there is none. */
export function explainByOne(
  expected: Expected | undefined,
  right: Hypothesis,
  heads: Heads,
  rows: readonly number[],
  first = residualsOf(right, heads, rows),
): readonly string[] | undefined {
  if (!first || first.systematic.length === 0) return undefined;
  const stores = first.systematic.some(({ kind }) => kind === 'store') ? STORES : [];
  for (const store of stores) {
    const other = residualsOf(right, heads, rows, {}, store)!;
    if (other.distance < first.distance && other.systematic.length === 0) return [storeWords(store, first)];
  }
  for (const one of expected ? causesOf(expected, heads) : []) {
    if (!first.systematic.some(({ kind }) => kind === one.kind)) continue;
    const fit = solve(one, right, heads, rows, first);
    // Nothing is left but roundings, each of a last place or two.
    if (fit && fit.left.systematic.length === 0 && fit.left.distance < 2)
      return [one.words(fit.value, BOUND * fit.error)];
  }
  return undefined;
}

/** One number that may be wrong. */
interface Cause {
  readonly kind: Systematic['kind'];
  rounding(value: number): Rounding;
  words(value: number, error: number): string;
}

function causesOf({ spec }: Expected, heads: Heads): Cause[] {
  const { invFreq, attentionFactor } = frequenciesOf(spec);
  const offBase = (value: number): ArrayLike<number> =>
    frequenciesOf({ ...spec, base: spec.base * Math.exp(value), attentionFactor }).invFreq;
  const sign = heads.numAxes > 1 ? undefined : 1;
  return [
    {
      kind: 'magnitude',
      rounding: (value) => ({ gain: 1 + value }),
      words: (value, error) =>
        `The magnitude is ${measured(attentionFactor * (1 + value), attentionFactor * error)}; expected is ${short(attentionFactor)}.`,
    },
    {
      kind: 'base',
      rounding: (value) => {
        const other = offBase(value);
        return { angle: (angle, j) => (invFreq[j]! > 0 ? (angle * other[j]!) / invFreq[j]! : angle) };
      },
      words: (value, error) =>
        `The base is ${measured(spec.base * Math.exp(value), spec.base * error)}; expected is ${short(spec.base)}.`,
    },
    {
      kind: 'frequency',
      rounding: (value) => ({ angle: (angle) => angle * (1 + value) }),
      words: (value, error) => `Every frequency is ${measured(1 + value, error)} times the expected one.`,
    },
    ...(sign
      ? [
          {
            kind: 'position',
            rounding: (value) => ({ angle: (angle, j) => angle + value * (invFreq[j] ?? 0) }),
            words: (value, error) => `Every position is off by ${measured(value, error)}.`,
          } satisfies Cause,
        ]
      : []),
  ];
}

/** The value that leaves no mean of its kind. Rounding hides part of an error, so it is approached in steps. */
function solve(
  { kind, rounding }: Cause,
  right: Hypothesis,
  heads: Heads,
  rows: readonly number[],
  first: Residuals,
): { value: number; error: number; left: Residuals } | undefined {
  const meanIn = ({ means: all }: Residuals): Systematic | undefined =>
    all.find(
      (mean) =>
        mean.kind === kind && mean.token === undefined && mean.pairs[1] - mean.pairs[0] + 1 === right.steps.pairs,
    );
  let left = first;
  let value = 0;
  let error = meanIn(first)?.error;
  let step = Number.POSITIVE_INFINITY;
  if (error === undefined) return undefined;
  for (let n = 0; n < ROUNDS; n++) {
    const mean = meanIn(left);
    if (!mean || Math.abs(mean.value) < 0.3 * mean.error) break;
    if (n > 2 && Math.abs(mean.value) > 0.9 * step) break; // it comes no nearer
    step = Math.abs(mean.value);
    value += mean.value;
    if (!(Math.abs(value) < 0.5)) return undefined;
    const { table, products } = left.rounding;
    // Once the value is nearly right, the arithmetic that is nearest to y is known.
    left = residualsOf(right, heads, rows, rounding(value), 'nearest', n < 2 ? undefined : [{ table, products }])!;
    error = Math.max(error, meanIn(left)?.error ?? 0); // without a residual there is no scatter to take it from
  }
  if (left.systematic.length > 0) left = residualsOf(right, heads, rows, rounding(value))!;
  return { value, error, left };
}

function storeWords(store: Store, { means: all }: Residuals): string {
  const places = (side: number): string => {
    const mean = all.filter(({ kind }) => kind === 'store')[side];
    return mean ? ` (mean ${mean.value.toFixed(2)} of a last place)` : '';
  };
  if (store === 'toward zero')
    return `Every result is a little closer to 0 than the rotation: the store truncates${places(0)}.`;
  return `Every result is rounded ${store} instead of to nearest${places(1)}.`;
}

/** The clearest means, at most four that say different things. */
function means({ systematic }: Residuals): string[] {
  const sentences: string[] = [];
  const said = new Set<string>();
  // Last places are left out where something larger is known: another magnitude moves them too.
  const larger = systematic.filter(({ kind }) => kind !== 'store');
  for (const { kind, value, error, pairs, token } of larger.length > 0 ? larger : systematic) {
    const what = `${kind} ${token ?? 'all'}`;
    if (said.has(what) && kind !== 'frequency') continue;
    said.add(what);
    const where =
      token !== undefined
        ? `token ${token} of y`
        : pairs[0] === pairs[1]
          ? `pair ${pairs[0]}`
          : `pairs ${ranges(Array.from({ length: pairs[1] - pairs[0] + 1 }, (_what, n) => pairs[0] + n))}`;
    const bound = BOUND * error;
    const words: Record<Systematic['kind'], string> = {
      store: `The results are off by ${measured(value, bound)} of a last place, in the mean.`,
      magnitude: `The results of ${where} are ${measured(1 + value, bound)} times as large as expected, in the mean.`,
      frequency: `The angles of ${where} are ${measured(1 + value, bound)} times the expected ones, in the mean.`,
      base: `The angles differ as if the base were ${measured(1 + value, bound)} times the expected one.`,
      position: `The angles of ${where} differ as if positions were off by ${measured(value, bound)}.`,
      angle: `The angles of ${where} are off by ${measured(value, bound)} radians, in the mean.`,
    };
    sentences.push(words[kind]);
    if (sentences.length === 4) break;
  }
  return sentences;
}

/** A value to the digits that its bound leaves: `1.0040 ± 0.0002`. */
function measured(value: number, bound: number): string {
  const digits = Math.max(0, Math.min(12, Math.ceil(-Math.log10(bound || 1e-12))));
  const up = Math.ceil(bound * 10 ** digits) / 10 ** digits;
  return `${value.toFixed(digits)} ± ${up.toFixed(digits)}`;
}

function short(value: number): string {
  return String(Number(value.toPrecision(7)));
}
