/**
 * Tests claims against the data: every element of every row, in float64, by the plainest loop. It shares no code with what
 * proposes claims. @module
 */
import { type FloatDtype, roundTo } from 'ropewalk';
import { UNIT_ROUNDOFF } from 'ropewalk/internal';
import type { Claim, ClaimedPair, Evidence } from './claim.js';

/** The largest error of rounding, 16-bit arithmetic and fast sines to a pair of length 1. */
const loose = (dtype: FloatDtype): number => Math.max(6 * UNIT_ROUNDOFF[dtype], 2 ** -19);
/** The least error that is a difference. */
const tight = (dtype: FloatDtype): number => 2 * UNIT_ROUNDOFF[dtype] + 8 * UNIT_ROUNDOFF.f32;
/** The error of an angle in f32, relative to the angle. */
const angleError = (number: number): number => (8 + 2 * number) * UNIT_ROUNDOFF.f32;

/** The evidence of an observation. */
export function evidenceOf({ x, y, headDim, rows, dtype }: Omit<Evidence, 'sizes'>): Evidence {
  const sizes = new Float64Array(x.length / headDim);
  for (let r = 0, at = 0; r < sizes.length; r++) {
    let size = 0;
    for (let i = 0; i < headDim; i++, at++) size = Math.max(size, Math.abs(x[at]!));
    sizes[r] = size;
  }
  return { x, y, headDim, rows, dtype, sizes };
}

/**
 * Narrows a claim to the pairs or dimensions of which it is true.
 *
 * @returns undefined if it is true of none
 */
export function narrowed<C extends Claim>(claim: C, evidence: Evidence): C | undefined {
  if ('dims' in claim) {
    const dims = claim.dims.filter((i) => holdsIn(i, claim, evidence));
    return dims.length > 0 ? { ...claim, dims } : undefined;
  }
  const pairs = claim.pairs.filter((pair) => pairHolds(pair, claim, evidence));
  return pairs.length > 0 ? { ...claim, pairs } : undefined;
}

/** Whether a claim is true of everything that it names, and names anything. */
export function holds(claim: Claim, evidence: Evidence): boolean {
  if ('dims' in claim) return claim.dims.length > 0 && claim.dims.every((i) => holdsIn(i, claim, evidence));
  return claim.pairs.length > 0 && claim.pairs.every((pair) => pairHolds(pair, claim, evidence));
}

function pairHolds(
  pair: ClaimedPair,
  claim: Of<'turns' | 'turns otherwise' | 'lengths' | 'terms'>,
  evidence: Evidence,
) {
  switch (claim.kind) {
    case 'turns':
      return turns(pair, claim, evidence);
    case 'turns otherwise':
      return turnsOtherwise(pair, claim, evidence);
    case 'lengths':
      return keepsFactor(pair, claim, evidence);
    case 'terms':
      return hasTerms(pair, claim, evidence);
  }
}

type Of<K extends Claim['kind']> = Extract<Claim, { kind: K }>;

/** x and y of a pair in a row. */
function pairAt({ x, y, headDim }: Evidence, { read, write }: ClaimedPair, r: number) {
  const at = r * headDim;
  return { x0: x[at + read[0]]!, x1: x[at + read[1]]!, y0: y[at + write[0]]!, y1: y[at + write[1]]! };
}

const length = (a: number, b: number): number => Math.sqrt(a * a + b * b);

function turns(pair: ClaimedPair, { position }: Of<'turns'>, evidence: Evidence): boolean {
  const { dtype, rows, sizes } = evidence;
  const [fine, error] = [loose(dtype), angleError(pair.number)];
  let told = false;
  let last = Number.NaN;
  let cos = 1;
  let sin = 0;
  for (const r of rows) {
    const p = position(r, pair.number);
    const angle = p * pair.frequency;
    const slack = Math.abs(p) * pair.error + error * Math.abs(angle) + fine;
    if (!(slack < 1)) continue; // so large an error says nothing
    told ||= p !== 0; // at position 0 every frequency gives x
    if (angle !== last) {
      last = angle; // heads share it
      cos = Math.cos(angle);
      sin = Math.sin(angle);
    }
    const { x0, x1, y0, y1 } = pairAt(evidence, pair, r);
    const to0 = x0 * cos - x1 * sin;
    const to1 = x0 * sin + x1 * cos;
    const long = length(x0, x1);
    const noise = (slack * length(y0, y1) + fine * sizes[r]!) * long;
    if (!(Math.abs(to0 * y1 - to1 * y0) <= noise && to0 * y0 + to1 * y1 >= -noise)) return false;
  }
  return told;
}

function turnsOtherwise(pair: ClaimedPair, { position }: Of<'turns otherwise'>, evidence: Evidence): boolean {
  const { dtype, rows, sizes } = evidence;
  return rows.some((r) => {
    const angle = position(r, pair.number) * pair.frequency;
    const { x0, x1, y0, y1 } = pairAt(evidence, pair, r);
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    const [to0, to1] = [x0 * cos - x1 * sin, x0 * sin + x1 * cos];
    const slack = tight(dtype) + angleError(pair.number) * Math.abs(angle);
    const noise = slack * (length(y0, y1) + sizes[r]!) * length(x0, x1);
    return Math.abs(to0 * y1 - to1 * y0) > noise || to0 * y0 + to1 * y1 < -noise;
  });
}

function keepsFactor(pair: ClaimedPair, { gain }: Of<'lengths'>, evidence: Evidence): boolean {
  const { dtype, rows, sizes } = evidence;
  const fine = loose(dtype);
  let low = gain === undefined ? 0 : gain * (1 - 1e-6);
  let high = gain === undefined ? Infinity : gain * (1 + 1e-6);
  for (const r of rows) {
    const { x0, x1, y0, y1 } = pairAt(evidence, pair, r);
    const long = length(x0, x1);
    const made = length(y0, y1);
    const noise = fine * (made + sizes[r]!);
    if (!(made - noise <= high * long && made + noise >= low * long)) return false;
    if (gain !== undefined || long === 0) continue;
    low = Math.max(low, (made - noise) / long);
    high = Math.min(high, (made + noise) / long);
  }
  return true;
}

function hasTerms(pair: ClaimedPair, { terms }: Of<'terms'>, evidence: Evidence): boolean {
  const { dtype, rows, sizes } = evidence;
  let told = false;
  for (const r of rows) {
    const [cos, sin, angle] = terms(r, pair.number);
    if (Number.isNaN(cos) || Number.isNaN(sin)) continue;
    const slack = 4 * loose(dtype) + angleError(pair.number) * Math.abs(angle);
    if (!(slack < 0.5)) continue; // so large an error says nothing
    told = true;
    const { x0, x1, y0, y1 } = pairAt(evidence, pair, r);
    const noise = slack * sizes[r]! * Math.max(1, Math.abs(cos) + Math.abs(sin));
    if (!(Math.abs(y0 - (x0 * cos - x1 * sin)) <= noise && Math.abs(y1 - (x0 * sin + x1 * cos)) <= noise)) return false;
  }
  return told;
}

function holdsIn(i: number, { value }: Of<'holds'>, { x, y, headDim, rows, dtype }: Evidence): boolean {
  return rows.every((r) => {
    const [from, to] = [x[r * headDim + i]!, y[r * headDim + i]!];
    if (value === 'x') return to === roundTo(dtype, from);
    return value === 'zero' ? to === 0 : !Number.isFinite(to);
  });
}
