/** An RMS norm of each head before the rotation, which nobody told of: its weight is fitted to y. @module */
import { type HeadNorm, Tensor, tensorFrom } from 'ropewalk';
import { rightOf, runRows } from '../kernel/trial.js';
import { axesOf, callOf, type Expected, readExpected } from '../read/expected.js';
import { type Heads, type Observation, readObservation, widened } from '../read/observation.js';
import { BugSearch } from './bug-search.js';

/** The epsilons that models have. */
const EPSILONS = [1e-6, 1e-5] as const;
/** A fit that leaves more of the mean square is none. The right kernel behind the norm has to give y within its noise. */
const LEFT = 1e-4;

/** Rows that are looked at first. */
const MAX_ROWS = 512;

const some = ({ rows }: Heads): readonly number[] => rows.filter((_, n) => n % Math.ceil(rows.length / MAX_ROWS) === 0);

/** Takes the first tokens of a long observation, so that the fit does not widen all of it. */
function firstTokens(observation: Observation): Observation {
  const { x, y, layout, positions: given } = observation;
  const positions = Tensor.isTensor(given) ? given : tensorFrom(Float64Array.from(given));
  const [tokensAt, headsAt] = layout === 'bnsh' ? [x.rank - 2, x.rank - 3] : [x.rank - 3, x.rank - 2];
  const [tokens, last] = [x.shape[tokensAt]!, positions.rank - 1];
  const count = Math.max(2, Math.ceil(MAX_ROWS / x.shape[headsAt]!));
  if (tokens <= count || positions.shape[last] !== tokens) return observation;
  const [fewX, fewY] = [x.slice(tokensAt, 0, count), y.slice(tokensAt, 0, count)];
  return { ...observation, x: fewX, y: fewY, positions: positions.slice(last, 0, count) };
}

/** Whether the expected kernel gives y within noise. */
export function isAsExpected(observation: Observation, expected: Expected): boolean {
  const meant = readExpected(expected);
  const heads = readObservation(observation, axesOf(meant));
  const search = new BugSearch(meant, []);
  return [some(heads), heads.rows].every((rows) => {
    const { verdict } = search.judge({ ...heads, rows }, undefined, { pairs: false });
    return verdict === 'as expected' || verdict === 'less precise';
  });
}

/**
 * Finds the norm with which the expected kernel gives y.
 *
 * @returns undefined where no weight does, or one token leaves every weight possible
 */
export function hiddenNorm(observation: Observation, expected: Expected): HeadNorm | undefined {
  const meant = readExpected(expected);
  const heads = readObservation(firstTokens(observation), axesOf(meant));
  const { headDim, x, y, norm } = heads;
  const rows = some(heads);
  if (norm || rows.length < 2) return undefined;
  // y is turned back: then each dimension is that of the norm, times its weight.
  const back = { ...meant, direction: meant.direction === 'backward' ? 'forward' : 'backward' } as const;
  const { steps } = rightOf(callOf(back, heads));
  const turned = runRows(steps, { ...heads, x: y }, rows);
  const { rotaryOffset, pairs } = steps;
  const gain = steps.frequencies().attentionFactor ** 2;
  const [sums, squares] = [new Float64Array(headDim), new Float64Array(headDim)];
  for (const eps of EPSILONS) {
    let all = 0;
    sums.fill(0);
    squares.fill(0);
    for (const [k, r] of rows.entries()) {
      const row = widened(x.subarray(r * headDim, (r + 1) * headDim));
      const rms = Math.sqrt(row.reduce((sum, v) => sum + v * v, 0) / headDim + eps);
      for (const [i, value] of row.entries()) {
        const isTurned = i >= rotaryOffset && i < rotaryOffset + 2 * pairs;
        const [u, z] = [value / rms, turned[k * headDim + i]! / (isTurned ? gain : 1)];
        sums[i]! += u * z;
        squares[i]! += u * u;
        all += z * z;
      }
    }
    const weight = sums.map((sum, i) => sum / squares[i]!);
    const left = all - sums.reduce((total, sum, i) => total + sum * weight[i]!, 0);
    if (!(left < LEFT * all)) return undefined; // a weight of 0 would explain a y of zeros
    const found = { weight: tensorFrom<'f64'>(weight, { shape: [headDim] }), eps };
    if (isAsExpected({ ...observation, norm: found }, expected)) return found;
  }
  return undefined;
}
