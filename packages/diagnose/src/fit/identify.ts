/** What a kernel did, from x, y and positions alone. What the data cannot tell stays open. @module */
import type { FloatDtype, RopeAxes } from 'ropewalk';
import { UNIT_ROUNDOFF } from 'ropewalk/internal';
import type { Tier } from '../kernel/noise.js';
import { fitPairs, type PairFit, type PositionOf } from '../measure/frequency-fit.js';
import { findGeometry, type Geometry, type PairLayout } from '../measure/geometry.js';
import {
  AS_GIVEN,
  explainPositions,
  type FoundPosition,
  findPositions,
  type PositionRule,
} from '../measure/position-fit.js';
import { type Sample, type SampleToken, takeSample } from '../measure/sample.js';
import { measureTurns, type Turns, type TurnUnit } from '../measure/turns.js';
import { everyRow, type Heads, type Observation, readObservation, refuseZeros } from '../read/observation.js';
import { provenFamilies, twoGains } from './frequency-families.js';
import { type FrequencyLaw, fitLaw } from './frequency-law.js';
import type { FoundPair, Identification, Outcome } from './identification.js';
import { rebuild } from './rebuild.js';
import { axesRules, basesOf, usualDenominators } from './spec-fit.js';
import { measuredOf, type Resolved, resolveTurns } from './whole-turns.js';

/**
 * Identifies the rotation that turned x into y, without an expectation.
 *
 * @param observation - x, y and positions; tensors in host memory, only read
 * @throws {RopewalkError} SHAPE, DTYPE or RANGE for parts that do not fit together
 * @example const { layout, bases } = identify({ x, y, positions: [0, 1, 2] });
 */
export function identify(observation: Observation): Identification {
  const heads = readObservation(observation);
  refuseZeros(heads);
  return identifyHeads(heads);
}

/**
 * Noise beyond rounding y, relative to the head's largest element: none; sines of a fast instruction; cos, sin and
 * products in a 16-bit dtype.
 */
const SLACKS = [0, 2 ** -19, 5 * UNIT_ROUNDOFF.f16, 5 * UNIT_ROUNDOFF.bf16];
/** Relative error of angles that were computed in f32. */
const ANGLE_SLACK = 12 * UNIT_ROUNDOFF.f32;

/**
 * {@link identify} for an observation that is already read.
 *
 * @param hint - the expected frequency of each pair, signed; with it, positions are found even where no rule of
 *   frequencies is
 */
export function identifyHeads(heads: Heads, hint?: ArrayLike<number>): Identification {
  const early = withoutTurns(heads);
  if (early) return early;
  let best: Identification | undefined;
  for (const slack of SLACKS) {
    const sample = takeSample(heads, slack);
    const geometry = findGeometry(sample);
    if (geometry.dims.every((kind) => kind !== 'turned'))
      return best ?? { ...nothing(heads, 'unchanged'), geometry, gain: plainGain(sample) };
    const all = geometry.layouts.slice(0, 4).map((layout) => describe(heads, sample, geometry, layout, hint));
    // The bounds hold only if the sample has the noise that explains y.
    const proven = all.filter(
      ({ outcome, explains, gains }) =>
        outcome === 'rotation' && (gains || (explains && slack >= leastSlack(explains, heads.dtype))),
    );
    if (proven.length > 0) return { ...proven[0]!, layouts: proven.map(({ layout }) => layout!) };
    for (const found of all) best = best && rank(best) >= rank(found) ? best : found;
    best ??= { ...nothing(heads, 'no rotation'), geometry };
  }
  return best!;
}

function leastSlack(tier: Tier, dtype: FloatDtype): number {
  if (tier === 'arithmetic') return 5 * UNIT_ROUNDOFF[dtype];
  return tier === 'sines' ? SLACKS[1]! : 0;
}

function rank({ outcome, explains, positions }: Identification): number {
  const order: Outcome[] = ['no rotation', 'odd rotation', 'mirrored', 'rotation'];
  return order.indexOf(outcome) * 4 + (explains ? 2 : 0) + (positions.length > 0 ? 1 : 0);
}

function withoutTurns(heads: Heads): Identification | undefined {
  const { headDim, x, y } = heads;
  const rows = everyRow(heads);
  const odd = new Uint32Array(headDim);
  let [zero, nan, dark] = [true, true, true];
  for (const r of rows) {
    for (let i = 0, at = r * headDim; i < headDim; i++, at++) {
      if (!Number.isFinite(y[at])) odd[i]!++;
      if (y[at] !== 0) zero = false;
      if (!Number.isNaN(y[at])) nan = false;
      if (x[at] !== 0) dark = false;
    }
  }
  if (nan) return nothing(heads, 'nan');
  // A dimension that is not finite in every row is told as such.
  if (odd.some((count) => count > 0 && count < rows.length) || odd.every((count) => count > 0))
    return nothing(heads, 'not finite');
  return zero && !dark ? nothing(heads, 'zero') : undefined;
}

function nothing(heads: Heads, outcome: Outcome): Identification {
  return {
    outcome,
    headDim: heads.headDim,
    dtype: heads.dtype,
    numAxes: heads.numAxes,
    geometry: undefined,
    layout: undefined,
    layouts: [],
    pairs: [],
    sign: undefined,
    formulas: [],
    gain: undefined,
    gainRange: undefined,
    gains: undefined,
    law: undefined,
    bases: [],
    axes: [],
    positions: [],
    foundPositions: [],
    headsAgree: true,
    headsSeen: [0, heads.heads],
    expected: undefined,
    explains: undefined,
    open: [],
  };
}

/** The gain of y = gain · x. */
function plainGain({ x, y }: Sample): number | undefined {
  let [above, below] = [0, 0];
  for (let n = 0; n < x.length; n++) {
    above += x[n]! * y[n]!;
    below += x[n]! ** 2;
  }
  return below > 0 ? above / below : undefined;
}

function describe(
  heads: Heads,
  sample: Sample,
  geometry: Geometry,
  layout: PairLayout,
  hint: ArrayLike<number> | undefined,
): Identification {
  const measured = measureTurns(sample, layout, geometry.dims);
  const common = commonGain(measured);
  const two =
    common.gain === undefined && heads.numAxes === 1
      ? twoGains(measured, (unit) => unit.positions[0]!, hint, heads.headDim)
      : undefined;
  const turns = two ? { ...measured, angle: two.angle } : measured;
  const { fits, known, rules, found, ...placed } = fitWithPositions(turns, heads, hint);
  const pairs = fits.map((fit, j) => foundPair(fit, known[j]!, layout, turns, j));
  const clean = fits.every(({ against }) => against.length === 0);
  const sign = signOf(pairs);
  const axes =
    heads.numAxes > 1
      ? axesRules(
          pairs.map((pair) => pair.axes),
          heads.numAxes,
        )
      : [];
  const { law, exponents } = lawOf(pairs, axes);
  // Frequencies of no base may still have a formula.
  const rule = rules[0];
  const formulas =
    !law && rule && heads.numAxes === 1 && placed.formulas.length === 0 && known.every(Boolean)
      ? provenFamilies(turns, (unit) => rule.map(unit.positions[0]!, unit) ?? Number.NaN, {
          fits,
          hint,
          headDim: heads.headDim,
        }).flatMap(({ words }) => words ?? [])
      : placed.formulas;
  const windowDim = 2 * layout.pairs.length;
  const shown = 2 * pairs.filter((pair) => pair.turns).length;
  const denominators = [...(exponents === 'restart' ? [windowDim / 2] : []), windowDim, shown, heads.headDim];
  const bases = law ? basesOf(law, usualDenominators(law, denominators, heads.headDim)) : [];
  const partial: Identification = {
    ...nothing(
      heads,
      turns.mirrored ? 'mirrored' : clean && turns.headsAgree && sign !== 'mixed' ? 'rotation' : 'odd rotation',
    ),
    geometry,
    layout,
    layouts: geometry.layouts,
    pairs,
    sign: sign === 'mixed' ? undefined : sign,
    formulas,
    ...common,
    gains: two?.gains,
    law,
    bases,
    axes,
    positions: rules,
    foundPositions: found,
    headsAgree: turns.headsAgree,
    headsSeen: [sample.heads.length, heads.heads],
  };
  const built = rebuild(partial, heads);
  const { base, frequencyDim } = built.expected?.spec ?? {};
  // A round base that gives y is the likeliest of those within the error.
  const named = bases.map((one) =>
    one.denominator === frequencyDim && Math.abs(base! / one.base - 1) <= one.error ? { ...one, base: base! } : one,
  );
  // A record of one base that gives y at the positions as given proves them.
  const positions = built.explains && law && rules.length === 0 ? [AS_GIVEN] : rules;
  const whole = { ...partial, ...built, bases: named, positions };
  return { ...whole, open: openQuestions(whole, heads, sample) };
}

/** Undefined where no frequency is known. */
function signOf(pairs: readonly FoundPair[]): 1 | -1 | 'mixed' | undefined {
  const signs = new Set(pairs.flatMap((pair) => (pair.turns && pair.known ? [Math.sign(pair.frequency)] : [])));
  return signs.size > 1 ? 'mixed' : ([...signs][0] as 1 | -1 | undefined);
}

/** Frequencies, and the positions that give them. */
interface Placed extends Resolved {
  readonly rules: readonly PositionRule[];
  readonly found: readonly FoundPosition[];
}

const against = (fits: readonly PairFit[]): number => fits.reduce((sum, fit) => sum + fit.against.length, 0);
const turnsKnown = ({ fits, known }: Resolved): boolean =>
  fits.some(({ low, high }, j) => known[j] && (low > 0 || high < 0));

/**
 * Frequencies depend on positions and the reverse: positions as given first, then those that the expected frequencies
 * show, then frequencies from small positions, which most mistakes leave as they are.
 */
function fitWithPositions(turns: Turns, heads: Heads, hint: ArrayLike<number> | undefined): Placed {
  const { numAxes, headDim } = heads;
  const given: PositionOf = (unit, axis) => unit.positions[axis]!;
  // The simplest line first: exact and through 0, then shifted, then with the errors of f32 angles.
  let [slack, zero] = [0, true];
  let fits = fitPairs(turns, numAxes, given, 0, true);
  for (const [relative, fromZero] of [
    [0, false],
    [ANGLE_SLACK, true],
    [ANGLE_SLACK, false],
  ] as const) {
    if (against(fits) === 0) break;
    const other = fitPairs(turns, numAxes, given, relative, fromZero);
    if (against(other) < against(fits)) [fits, slack, zero] = [other, relative, fromZero];
  }
  if (numAxes > 1) {
    const known = fits.map(({ others, period }) => others.length === 0 && period > Math.PI);
    return { fits, known, formulas: [], ...positionsBy(turns, heads, fits, slack) };
  }
  const resolved = resolveTurns(turns, (unit) => (zero ? unit.positions[0]! : Number.NaN), { fits, hint, headDim });
  const clean = against(fits) === 0 && turnsKnown(resolved);
  const own = clean ? positionsBy(turns, heads, resolved.fits, slack) : { rules: [], found: [] };
  // Lines through 0 need no other positions.
  if (clean && zero) own.rules = [AS_GIVEN];
  const one = new Set(turns.units.map(({ positions }) => positions[0])).size === 1;
  // At one position the expected frequencies may belong to another position; few pairs could by chance.
  const asExpected = (way: number): boolean =>
    resolved.fits.every(({ low, high }, j) => way * hint![j]! >= low - 1e-6 && way * hint![j]! <= high + 1e-6);
  // With the errors of f32 angles, one position more is one frequency that is a little faster.
  const another =
    (one || slack > 0) && hint && hint.length >= turns.pairs && turns.pairs >= 8 && !asExpected(1) && !asExpected(-1);
  if (own.rules[0]?.asGiven && (!another || resolved.formulas.length > 0)) return { ...resolved, ...own };
  const expected =
    hint && hint.length >= turns.pairs && (!one || turns.pairs >= 8)
      ? positionsFrom(turns, heads, hint, new Float64Array(turns.pairs), ANGLE_SLACK)
      : undefined;
  if (expected?.rules[0]?.asGiven === false) {
    const placed = atPositions(turns, heads, expected, hint);
    if (placed) return placed;
  }
  if (own.rules.length > 0) return { ...resolved, ...own };
  for (const tried of bySmallPositions(turns, heads, hint)) {
    const placed = tried.rules[0]?.asGiven === false && atPositions(turns, heads, tried, hint);
    if (placed) return placed;
  }
  // Every token fits the expected frequencies, at positions that follow no rule; few pairs could by chance.
  if (turns.pairs >= 8 && expected?.rules.length === 0 && expected.found.every(hasIndex)) {
    return {
      fits: fits.map((fit, j) => ({
        ...fit,
        slope: hint![j]!,
        low: hint![j]!,
        high: hint![j]!,
        others: [],
        against: [],
      })),
      known: fits.map(() => true),
      formulas: [],
      ...expected,
    };
  }
  return { ...resolved, ...own };
}

/** Whether a token may be at an integer position on the side of the given one. */
function hasIndex({ given, intervals }: FoundPosition): boolean {
  return intervals.some(([low, high]) => {
    const p = Math.ceil(low - 1e-6 * Math.abs(low) - 1e-9);
    return p <= high + 1e-6 * Math.abs(high) + 1e-9 && p * given >= 0;
  });
}

/** The frequencies at the positions of a rule, if all angles are proportional to them. */
function atPositions(
  turns: Turns,
  heads: Heads,
  placed: { rules: readonly PositionRule[]; found: readonly FoundPosition[] },
  hint: ArrayLike<number> | undefined,
): Placed | undefined {
  const { map } = placed.rules[0]!;
  const positionOf = (unit: TurnUnit): number => map(unit.positions[0]!, unit) ?? Number.NaN;
  for (const relative of [0, ANGLE_SLACK]) {
    const fits = fitPairs(turns, 1, positionOf, relative, true);
    if (against(fits) > 0) continue;
    const resolved = resolveTurns(turns, positionOf, { fits, hint, headDim: heads.headDim });
    if (turnsKnown(resolved)) return { ...resolved, ...placed };
  }
  return undefined;
}

/** Rounded, wrapped or clamped positions are right while they are small: frequencies from small positions alone. */
function* bySmallPositions(turns: Turns, heads: Heads, hint: ArrayLike<number> | undefined) {
  const first = turns.units[0]?.head;
  for (const limit of [65535, 4095, 255, 63, 1]) {
    const small = turns.units.map(
      ({ positions, head }) => head === first && positions.every((p) => Math.abs(p) <= limit),
    );
    const tolerance = turns.tolerance.map((value, at) => (small[Math.floor(at / turns.pairs)] ? value : Infinity));
    const part = { ...turns, tolerance };
    const fits = fitPairs(part, 1, (unit, axis) => unit.positions[axis]!, 0, true);
    if (against(fits) > 0) continue;
    const resolved = resolveTurns(part, (unit) => unit.positions[0]!, { fits, hint, headDim: heads.headDim });
    if (turnsKnown(resolved)) yield positionsBy(turns, heads, resolved.fits, 0);
  }
}

function positionsBy(turns: Turns, heads: Heads, fits: readonly PairFit[], slack: number) {
  const sharp = sharpened(fits);
  const frequency = sharp.map(({ frequency }) => frequency);
  const error = sharp.map(({ error }) => error);
  if (heads.numAxes === 1) return positionsFrom(turns, heads, frequency, error, slack);
  const found: FoundPosition[] = [];
  const rules: PositionRule[] = [];
  for (let axis = 0; axis < heads.numAxes; axis++) {
    const own = fits.flatMap((fit, j) => (fit.axes.length === 1 && fit.axes[0] === axis ? [j] : []));
    if (own.length === 0) continue;
    const here = findPositions(turns, frequency, error, own, axis, slack);
    const rule = explainPositions(here, heads, axis);
    if (rule.length === 0) return { rules: [], found: here };
    if (!rule[0]!.asGiven) rules.push({ ...rule[0]!, words: `on axis ${axis}, ${rule[0]!.words}` });
    found.push(...here);
  }
  return {
    rules: rules.length > 0 ? rules : [AS_GIVEN],
    found,
  };
}

function positionsFrom(
  turns: Turns,
  heads: Heads,
  frequency: ArrayLike<number>,
  error: ArrayLike<number>,
  slack: number,
) {
  const all = Array.from({ length: turns.pairs }, (_what, j) => j);
  const found = findPositions(turns, frequency, error, all, 0, slack);
  return { rules: explainPositions(found, heads), found };
}

/** Frequencies and errors; those of a rule that fits them all, because they are sharper. */
function sharpened(fits: readonly PairFit[]): { frequency: number; error: number }[] {
  const plain = fits.map(({ slope, low, high }) => ({ frequency: slope, error: (high - low) / 2 }));
  const turning = fits.flatMap((fit, j) => (fit.low > 0 || fit.high < 0 ? [j] : []));
  const law = fitLaw(turning.map((j) => measuredOf(fits[j]!, j)));
  if (law?.scaling.kind !== 'none') return plain;
  // A round base over the pairs that are there is taken as exact.
  const base = basesOf(law, [2 * fits.length])[0]!;
  const step = base.round ? (2 * Math.log(base.base)) / base.denominator : law.step;
  for (const j of turning) {
    const value = Math.exp(-step * j) * Math.sign(fits[j]!.slope);
    if (value >= fits[j]!.low && value <= fits[j]!.high)
      plain[j] = {
        frequency: value,
        error: base.round ? 0 : Math.min(plain[j]!.error, law.stepError * j * Math.abs(value)),
      };
  }
  return plain;
}

function foundPair(fit: PairFit, known: boolean, layout: PairLayout, turns: Turns, j: number): FoundPair {
  const { read, write } = layout.pairs[j]!;
  const turned = turns.units.some(
    (_what, u) => Math.abs(turns.angle[u * turns.pairs + j]!) > turns.tolerance[u * turns.pairs + j]!,
  );
  let [sum, weight] = [0, 0];
  for (let u = 0; u < turns.units.length; u++) {
    const at = u * turns.pairs + j;
    if (!(turns.tolerance[at]! < 1)) continue;
    const w = 1 / Math.max(turns.tolerance[at]!, 1e-12) ** 2;
    sum += w * turns.gain[at]!;
    weight += w;
  }
  const { slope, low, high, axes, others, period } = fit;
  return {
    read,
    write,
    frequency: slope,
    low,
    high,
    known,
    others,
    period,
    gain: weight > 0 ? sum / weight : Number.NaN,
    axes,
    // Whole turns from position to position are not seen.
    turns: (turned || Math.abs(slope) > period / 2) && (low > 0 || high < 0),
    seen: turned,
  };
}

/** The gain that all pairs and tokens share; undefined where they do not. */
function commonGain(turns: Turns): Pick<Identification, 'gain' | 'gainRange'> {
  let [low, high, sum, weight] = [0, Infinity, 0, 0];
  for (let at = 0; at < turns.gain.length; at++) {
    const tolerance = turns.tolerance[at]!;
    if (!(tolerance < 1)) continue;
    const gain = turns.gain[at]!;
    low = Math.max(low, gain * (1 - 1.5 * tolerance));
    high = Math.min(high, gain * (1 + 1.5 * tolerance));
    const w = 1 / Math.max(tolerance, 1e-12) ** 2;
    sum += w * gain;
    weight += w;
  }
  if (!(low <= high) || weight === 0) return { gain: undefined, gainRange: undefined };
  return { gain: low <= 1 && high >= 1 ? 1 : Math.min(high, Math.max(low, sum / weight)), gainRange: [low, high] };
}

function lawOf(
  pairs: readonly FoundPair[],
  axes: readonly RopeAxes[],
): { law: FrequencyLaw | undefined; exponents: 'pair' | 'restart' } {
  const turning = pairs.flatMap((pair, j) => (pair.turns && pair.known ? [{ pair, j }] : []));
  const one = fitLaw(turning.map(({ pair, j }) => measuredOf({ ...pair, slope: pair.frequency }, j)));
  const vision = axes.find(({ rule }) => rule === 'vision');
  if (one || !vision) return { law: one, exponents: 'pair' };
  // A kernel that rotates by one axis only may restart all the same.
  const half = pairs.length / 2;
  for (const sections of [vision.sections, [half, half]]) {
    const restarted = restartsOf(pairs.length, sections);
    const law = fitLaw(turning.map(({ pair, j }) => measuredOf({ ...pair, slope: pair.frequency }, restarted[j]!)));
    if (law) return { law, exponents: 'restart' };
  }
  return { law: undefined, exponents: 'pair' };
}

function restartsOf(pairs: number, sections: readonly number[]): number[] {
  const list: number[] = [];
  while (list.length < pairs) {
    for (const count of sections) for (let e = 0; e < count && list.length < pairs; e++) list.push(e);
    if (sections.every((count) => count === 0)) break;
  }
  return list;
}

/** What this input cannot show. */
function openQuestions(found: Identification, heads: Heads, sample: Sample): string[] {
  const open: string[] = [];
  const rule = heads.numAxes === 1 ? found.positions[0] : undefined;
  const used = ({ positions, ...token }: SampleToken): readonly number[] =>
    rule
      ? sample.heads.map((head) => rule.map(positions[0]!, { ...token, positions, head }) ?? positions[0]!)
      : positions;
  const reach = Math.max(...sample.tokens.flatMap((token) => used(token).map(Math.abs)));
  const distinct = new Set(sample.tokens.map(({ positions }) => positions.join()));
  if (found.geometry!.layouts.length > 1)
    open.push(
      `The pairing: ${found.geometry!.layouts.map(({ name, distance }) => (name === 'half' ? `half at distance ${distance}` : name)).join(' or ')} give the same lengths.`,
    );
  if (found.geometry!.dark.length > 0)
    open.push(`Dimensions ${found.geometry!.dark.join(', ')}: x is 0 there in every row.`);
  if (distinct.size < 2)
    open.push('Whether frequencies or positions differ: there is only one position, which shows only their product.');
  const idle = found.pairs.filter((pair) => !pair.turns && !pair.seen && !Number.isNaN(pair.gain)).length;
  if (idle > 0 && found.explains)
    open.push(
      `${idle} of ${found.pairs.length} pairs ${idle === 1 ? 'rotates' : 'rotate'} by less than the noise up to position ${reach}, or not at all.`,
    );
  const unknown = found.pairs.filter((pair) => (pair.turns ? !pair.known : pair.seen)).length;
  if (unknown > 0)
    open.push(
      `How many whole turns ${unknown === 1 ? '1 pair makes' : `${unknown} pairs make`} from position to position, and so the frequency and direction.`,
    );
  const vague = found.pairs.filter(
    (pair) => pair.turns && pair.known && pair.high - pair.low > 1e-2 * Math.abs(pair.frequency),
  ).length;
  if (vague > 0)
    open.push(
      `The frequency of ${vague} ${vague === 1 ? 'pair' : 'pairs'}, to better than 1 %: positions reach only ${reach}.`,
    );
  if (heads.heads < 2) open.push('Whether heads differ: there is only one.');
  if (heads.batch < 2) open.push('Whether batches differ: there is only one.');
  const shared = found.pairs.filter((pair) => pair.axes.length > 1).length;
  if (heads.numAxes > 1 && shared > 0) open.push(`The axis of ${shared} ${shared === 1 ? 'pair' : 'pairs'}.`);
  else if (found.axes.length > 1)
    open.push(`The axes: ${found.axes.map(({ rule, sections }) => `${rule} ${sections.join('+')}`).join(' or ')}.`);
  return open;
}
