/**
 * Computes frequencies from cos and sin, and the rule that they follow.
 *
 * @module
 */

/** Returns cos and sin at positions, `[positions, pairs]`, from the graph's arithmetic or from rows of a cache. */
export type Sampler = (positions: readonly number[]) => { readonly cos: Float64Array; readonly sin: Float64Array };

/** The frequencies behind cos and sin. */
export interface FoundFrequencies {
  /** Radians per position, one number per pair; negative if the tables rotate backward. */
  readonly invFreq: readonly number[];
  /** The relative error of each frequency that the rounding of the tables allows. */
  readonly within: readonly number[];
  /** The factor of cos and sin. */
  readonly magnitude: number;
  readonly law: FrequencyRule;
  /**
   * Set if later angles are not position × frequency, as in a graph made for shorter contexts: the first sampled
   * position, a power of two, at which some pairs differ, and the number of these pairs. Later positions are not used.
   */
  readonly departs?: { readonly position: number; readonly pairs: number };
}

/** How the frequencies fall from pair to pair: `invFreq[j] = base^(−2j / rotaryDim)`, divided by something. */
export type FrequencyRule =
  /** Divided by nothing, or all by one factor (linear scaling). */
  | { readonly kind: 'power'; readonly base: number; readonly factor: number }
  /** The fast pairs follow the base, and the slow ones are divided, as for Llama 3 and YaRN. */
  | { readonly kind: 'scaled'; readonly base: number; readonly plainPairs: number; readonly factors: readonly number[] }
  | { readonly kind: 'other' };

/** The reason why tables cannot be read as angles of positions. */
export interface NoFrequencies {
  readonly because: string;
  /** Set if cos holds sines and sin holds cosines. */
  readonly swapped?: true;
}

/** Positions after this add nothing: an f32 angle of 65536 radians has an error of up to 0.004. */
export const FAR = 65536;

/**
 * Computes frequencies from position 1 and from ever larger positions, each of which adds digits. A pair is followed as
 * long as its angles are position × frequency; a position that contradicts the nearer ones ends it. Positions are
 * powers of two, whose products with a frequency round in the same way.
 *
 * @param rows - the number of positions that the sampler knows
 * @param unit - the rounding of the tables: 2^-24 for f32, 2^-11 for f16, 2^-8 for bf16
 */
export function recoverFrequencies(
  sample: Sampler,
  rows: number,
  pairs: number,
  unit: number,
): FoundFrequencies | NoFrequencies {
  if (rows < 2) return { because: 'a table of one row has no angle per position' };
  const positions = [0];
  for (let position = 1; position < Math.min(rows, FAR + 1); position *= 2) positions.push(position);
  const { cos, sin } = sample(positions);
  const lengths = cos.map((c, n) => Math.hypot(c, sin[n]!));
  // Positions 0 and 1 give the radius of the circle.
  const magnitude = lengths.subarray(0, 2 * pairs).reduce((sum, length) => sum + length, 0) / (2 * pairs);
  const onCircle = (n: number): boolean => Math.abs(lengths[n]! / magnitude - 1) < 8 * unit;
  if (!(magnitude > 0) || !lengths.subarray(0, 2 * pairs).every((_, n) => onCircle(n))) {
    return { because: 'cos and sin lie on no circle: they belong to no angles' };
  }
  const bound = 4 * unit;
  const atZero = Array.from({ length: pairs }, (_, j) => [cos[j]! / magnitude, sin[j]! / magnitude] as const);
  if (atZero.every(([c, s]) => Math.abs(c) < bound && Math.abs(s - 1) < bound))
    return { because: 'cos and sin are swapped: at position 0 the one is 0 and the other 1', swapped: true };
  if (!atZero.every(([c, s]) => Math.abs(c - 1) < bound && Math.abs(s) < bound))
    return { because: 'position 0 is rotated' };

  const invFreq: number[] = [];
  const within: number[] = [];
  const departures: number[] = [];
  for (let j = 0; j < pairs; j++) {
    let frequency = 0;
    let error = Number.POSITIVE_INFINITY;
    for (const [n, position] of positions.entries()) {
      if (position === 0) continue;
      const measured = Math.atan2(sin[n * pairs + j]!, cos[n * pairs + j]!);
      const predicted = frequency * position;
      if (n > 1 && error * position > 0.5) break;
      const off = n === 1 ? 0 : wrap(measured - predicted);
      const turn = n === 1 ? measured : predicted + off;
      // The table rounds cos and sin. A table made in f32 has a rounded angle too.
      const uncertainty = (2 * unit + Math.abs(turn) * 2 ** -23) / position;
      if (n > 1 && !(onCircle(n * pairs + j) && Math.abs(off) <= (error + uncertainty) * position)) {
        departures.push(position);
        break;
      }
      if (uncertainty >= error) continue;
      frequency = turn / position;
      error = uncertainty;
    }
    invFreq.push(frequency);
    within.push(frequency === 0 ? error : error / Math.abs(frequency));
  }
  const law = lawOf(invFreq.map(Math.abs), within);
  const found = { invFreq, within, magnitude: snap(magnitude, 4 * unit), law };
  if (departures.length === 0) return found;
  const position = Math.min(...departures);
  return { ...found, departs: { position, pairs: departures.filter((one) => one === position).length } };
}

function wrap(angle: number): number {
  return angle - 2 * Math.PI * Math.round(angle / (2 * Math.PI));
}

/** Finds the rule of frequencies, which are sorted from fast to slow. */
function lawOf(invFreq: readonly number[], within: readonly number[]): FrequencyRule {
  const pairs = invFreq.length;
  const fits = (base: number, factor: number, j: number): boolean => {
    const ratio = (invFreq[j]! * factor) / base ** (-j / pairs);
    return Math.abs(ratio - 1) <= 2 * (within[j]! + within[0]!) + 1e-6;
  };
  if (pairs < 2 || !(invFreq[0]! > 0)) return { kind: 'other' };
  const factor = snap(1 / invFreq[0]!, 2 * within[0]! + 1e-7);
  const baseOf = (j: number): number => (invFreq[j]! * factor) ** (-pairs / j);
  const whole = invFreq.every((frequency) => frequency > 0)
    ? baseFrom(baseOf(pairs - 1), (base) => invFreq.every((_, j) => fits(base, factor, j)))
    : undefined;
  if (whole !== undefined && whole > 1) return { kind: 'power', base: whole, factor };
  if (factor !== 1) return { kind: 'other' };

  // Take the longest run of fast pairs that one base explains.
  let best: { base: number; plainPairs: number } | undefined;
  for (let last = 1; last < pairs && invFreq[last]! > 0; last++) {
    const prefix = baseFrom(baseOf(last), (base) => invFreq.slice(0, last + 1).every((_, j) => fits(base, 1, j)));
    if (prefix === undefined) break;
    best = { base: prefix, plainPairs: last + 1 };
  }
  if (!best || best.plainPairs < 3 || best.base <= 1) return { kind: 'other' };
  const factors = invFreq.map((frequency, j) => (j < best.plainPairs ? 1 : best.base ** (-j / pairs) / frequency));
  return { kind: 'scaled', ...best, factors };
}

/** Returns the shortest number near a base that still explains the frequencies. */
function baseFrom(base: number, explains: (base: number) => boolean): number | undefined {
  for (let digits = 1; digits <= 9; digits++) {
    const short = Number(base.toPrecision(digits));
    if (explains(short)) return short;
  }
  return explains(base) ? base : undefined;
}

function snap(value: number, within: number): number {
  return baseFrom(value, (short) => Math.abs(short / value - 1) <= within) ?? value;
}
