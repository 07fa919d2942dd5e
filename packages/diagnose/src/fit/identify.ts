/** Identifies what a kernel did from x, y and positions alone. Questions that the data cannot answer stay open. @module */
import type { FloatDtype } from 'ropewalk';
import { UNIT_ROUNDOFF } from 'ropewalk/internal';
import { storedNoise, type Tier } from '../kernel/noise.js';
import { findGeometry, type Geometry, type PairLayout } from '../measure/geometry.js';
import { AS_GIVEN } from '../measure/position-fit.js';
import { type Sample, type SampleToken, takeSample } from '../measure/sample.js';
import { commonGain, gainsOfPairs, measureTurns, twoGains } from '../measure/turns.js';
import { type Heads, type Observation, readObservation, refuseZeros, widened } from '../read/observation.js';
import { heldToAll } from './compared.js';
import { provenFamilies } from './frequency-families.js';
import { basesOf, lawOfPairs, usualDenominators } from './frequency-law.js';
import type { FoundPair, Identification, Outcome } from './identification.js';
import { foundPairs, placePairs } from './placement.js';
import { axesRules, rebuild } from './rebuild.js';

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
 * The noise beyond rounding y, relative to the largest element of a head: none, the sines of a fast instruction, or cos, sin
 * and products in a 16-bit dtype.
 */
export const SLACKS = [0, 2 ** -19, 5 * UNIT_ROUNDOFF.f16, 5 * UNIT_ROUNDOFF.bf16];

/**
 * Identifies the rotation of an observation that is already read, as {@link identify} does.
 *
 * @param hint - the expected frequency of each pair, signed; with it, positions are found even where frequencies follow
 *   no rule
 */
export function identifyHeads(heads: Heads, hint?: ArrayLike<number>): Identification {
  const nothing = unexplained(heads);
  const outcome = outcomeWithoutTurns(heads);
  if (outcome) return { ...nothing, outcome };
  let best: Identification | undefined;
  for (const slack of SLACKS) {
    const sample = takeSample(heads, slack);
    const geometry = findGeometry(sample);
    if (!geometry.dims.includes('turned')) {
      if (best) return best;
      const gain = plainGain(sample);
      return { ...nothing, geometry, ...(isTimes(gain, heads, slack) && { outcome: 'unchanged', gain }) };
    }
    const all = geometry.layouts.slice(0, 4).map((layout) => describe(heads, sample, geometry, layout, hint));
    // The bounds hold only if the sample has the noise that explains y.
    const proven = all
      .filter(
        ({ outcome, explains, gains }) =>
          outcome === 'rotation' && (gains || (explains && slack >= leastSlack(explains, heads.dtype))),
      )
      .map((found) => heldToAll(found, heads))
      .filter(({ outcome }) => outcome === 'rotation');
    if (proven.length > 0) return { ...proven[0]!, layouts: proven.map(({ layout }) => layout!) };
    for (const found of all) best = best && rank(best) >= rank(found) ? best : found;
    best ??= { ...nothing, geometry };
  }
  // A sample may show more than the other rows do.
  return best!.layout ? heldToAll(best!, heads) : best!;
}

function leastSlack(tier: Tier, dtype: FloatDtype): number {
  if (tier === 'arithmetic') return 5 * UNIT_ROUNDOFF[dtype];
  return tier === 'sines' ? SLACKS[1]! : 0;
}

function rank({ outcome, explains, positions }: Identification): number {
  const order: Outcome[] = ['no rotation', 'odd rotation', 'mirrored', 'rotation'];
  return order.indexOf(outcome) * 4 + (explains ? 2 : 0) + (positions.length > 0 ? 1 : 0);
}

function outcomeWithoutTurns({ headDim, x, y, rows }: Heads): Outcome | undefined {
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
  if (nan) return 'nan';
  // A dimension that is not finite in every row is reported as such.
  if (odd.some((count) => count > 0 && count < rows.length) || odd.every((count) => count > 0)) return 'not finite';
  return zero && !dark ? 'zero' : undefined;
}

function unexplained({ headDim, dtype, numAxes, heads }: Heads): Identification {
  return {
    outcome: 'no rotation',
    headDim,
    dtype,
    numAxes,
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
    onePosition: false,
    headsAgree: true,
    headsSeen: [0, heads],
    expected: undefined,
    explains: undefined,
    open: [],
  };
}

/** The gain of y = gain · x. */
function plainGain({ x, y }: Sample): number | undefined {
  let [above, below] = [0, 0];
  for (const [n, value] of x.entries()) {
    above += value * y[n]!;
    below += value ** 2;
  }
  return below > 0 ? above / below : undefined;
}

/** Whether y is x times a gain, or 0 where x is 0 everywhere. */
function isTimes(gain = 0, { x, y, headDim, rows, dtype }: Heads, slack: number): boolean {
  return rows.every((r) => {
    const [from, to] = [r * headDim, (r + 1) * headDim];
    const size = widened(x.subarray(from, to)).reduce((most, v) => Math.max(most, Math.abs(v)), 0);
    for (let n = from; n < to; n++) {
      const noise = storedNoise(dtype, y[n]!, size) + slack * size + 1e-6 * Math.abs(y[n]!);
      if (!(Math.abs(y[n]! - gain * x[n]!) <= 4 * noise)) return false;
    }
    return true;
  });
}

function describe(
  heads: Heads,
  sample: Sample,
  geometry: Geometry,
  layout: PairLayout,
  hint: ArrayLike<number> | undefined,
): Identification {
  const { numAxes, headDim } = heads;
  const nothing = unexplained(heads);
  const measured = measureTurns(sample, layout, geometry);
  const common = commonGain(measured);
  const gains = gainsOfPairs(measured);
  const two = common ? undefined : twoGains(measured);
  const turns = two ? { ...measured, ...two.turns } : measured;
  const placed = placePairs({ turns, heads, hint });
  const pairs = foundPairs(placed, layout, turns, gains);
  const axesOfPairs = pairs.map((pair) => pair.axes);
  const axes = numAxes > 1 ? axesRules(axesOfPairs, numAxes) : [];
  const { law, restarts } = lawOfPairs(pairs, axes);
  const windowDim = 2 * layout.pairs.length;
  const shown = 2 * pairs.filter((pair) => pair.turns).length;
  const denominators = [...(restarts ? [windowDim / 2] : []), windowDim, shown, headDim];
  const bases = law ? basesOf(law, usualDenominators(law, denominators, headDim)) : [];
  // Frequencies of no base may still have a formula.
  const [rule] = placed.rules;
  const formulas =
    !law && rule && numAxes === 1 && placed.formulas.length === 0 && placed.known.every(Boolean)
      ? provenFamilies(
          turns,
          (unit) => rule.map(unit.positions[0]!, unit) ?? Number.NaN,
          placed.fits,
          hint,
          headDim,
        ).flatMap(({ words }) => words ?? [])
      : placed.formulas;
  const signs = new Set(pairs.flatMap((pair) => (pair.turns && pair.known ? [Math.sign(pair.frequency)] : [])));
  const clean = placed.fits.every(({ against }) => against.length === 0) && turns.headsAgree && signs.size < 2;
  const partial: Identification = {
    ...nothing,
    outcome: turns.mirrored ? 'mirrored' : clean ? 'rotation' : 'odd rotation',
    geometry,
    layout,
    layouts: geometry.layouts,
    pairs,
    sign: signs.size === 1 ? ([...signs][0] as 1 | -1) : undefined,
    formulas,
    ...common,
    // Pairs of an unknown axis may have other frequencies than they seem to.
    gains: numAxes === 1 || axes.length > 0 ? two?.gains : undefined,
    law,
    bases,
    axes,
    positions: placed.rules,
    foundPositions: placed.found,
    onePosition: new Set(sample.tokens.map(({ positions }) => positions.join())).size < 2,
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
  const positions = built.explains && law && placed.rules.length === 0 ? [AS_GIVEN] : placed.rules;
  const whole = { ...partial, ...built, bases: named, positions };
  return { ...whole, open: openQuestions(whole, heads, sample) };
}

/** The questions that this input cannot answer. */
function openQuestions(found: Identification, heads: Heads, sample: Sample): string[] {
  const open: string[] = [];
  const { dark, layouts } = found.geometry!;
  const rule = heads.numAxes === 1 ? found.positions[0] : undefined;
  const used = ({ positions, ...token }: SampleToken): readonly number[] =>
    rule
      ? sample.heads.map((head) => rule.map(positions[0]!, { ...token, positions, head }) ?? positions[0]!)
      : positions;
  const reach = Math.max(...sample.tokens.flatMap((token) => used(token).map(Math.abs)));
  const count = (test: (pair: FoundPair) => boolean): number => found.pairs.filter(test).length;
  if (layouts.length > 1) {
    const names = layouts.map(({ name, distance }) => (name === 'half' ? `half at distance ${distance}` : name));
    open.push(`The pairing: ${names.join(' or ')} give the same lengths.`);
  }
  if (dark.length > 0) open.push(`Dimensions ${dark.join(', ')}: x is 0 there in every row.`);
  if (found.onePosition)
    open.push(
      'Whether frequencies or positions differ: the tokens that were measured have one position, which shows only their product.',
    );
  const idle = count((pair) => !pair.turns && !pair.seen && !Number.isNaN(pair.gain));
  if (idle > 0 && found.explains)
    open.push(
      `${idle} of ${found.pairs.length} pairs ${idle === 1 ? 'rotates' : 'rotate'} too little to measure up to position ${reach}, ${found.onePosition ? 'by whole turns, ' : ''}or not at all.`,
    );
  const unknown = count((pair) => (pair.turns ? !pair.known : pair.seen));
  if (unknown > 0)
    open.push(
      `How many whole turns ${unknown === 1 ? '1 pair makes' : `${unknown} pairs make`} from position to position, and so the frequency and direction.`,
    );
  const vague = count((pair) => pair.turns && pair.known && pair.high - pair.low > 1e-2 * Math.abs(pair.frequency));
  if (vague > 0)
    open.push(
      `The frequency of ${vague} ${vague === 1 ? 'pair' : 'pairs'}, to better than 1 %: positions reach only ${reach}.`,
    );
  if (heads.heads < 2) open.push('Whether heads differ: there is only one.');
  if (heads.batch < 2) open.push('Whether batches differ: there is only one.');
  const shared = count((pair) => pair.axes.length > 1);
  if (heads.numAxes > 1 && shared > 0) open.push(`The axis of ${shared} ${shared === 1 ? 'pair' : 'pairs'}.`);
  else if (found.axes.length > 1)
    open.push(`The axes: ${found.axes.map(({ rule, sections }) => `${rule} ${sections.join('+')}`).join(' or ')}.`);
  return open;
}
