/** Two faults at once: most rows are explained by one, and what others hold is told beside it. @module */
import { identifyHeads } from '../fit/identify.js';
import { LEAST_POSITIONS, majorityRows } from '../fit/majority.js';
import { RightRows } from '../kernel/right-rows.js';
import type { RopeSteps } from '../kernel/steps.js';
import { rightOf } from '../kernel/trial.js';
import { quantisedValues } from '../measure/quantised.js';
import { sentence, short } from '../measure/residuals.js';
import { sampleRows, spread } from '../measure/sample.js';
import { callOf } from '../read/expected.js';
import { type Heads, positionsOf } from '../read/observation.js';
import { NEARLY } from './pair-errors.js';
import { groupRows, type Nouns } from './row-contents.js';
import { type RowSummary, summarizeRows } from './wrong-rows.js';

/** Rows that one rotation gives, and what the others hold beside it. */
export interface Composed {
  readonly rows: readonly number[];
  /** The contents of the others; undefined if there are none. */
  readonly summary: (RowSummary & { readonly shown: string }) | undefined;
  /** Sentences on the rows, where they are no rotation of their own but near the right one. */
  readonly measured: readonly string[];
}

const THAT: Nouns = {
  result: 'that rotation',
  rotated: 'that rotation',
  rotationOf: (row) => `that rotation of the row of x of ${row}`,
};

/** The smallest share of rows that one rotation must give, and the largest of rows that nothing explains. */
const [LEAST, UNKNOWN] = [1 / 4, 1 / 2];
/** The largest share of rows that are not explained beside nearly right ones, and with which larger noise is not tried. */
const [MOST, CLEAR] = [1 / 8, 1 / 32];
/** The smallest share of rows that are nearly right. */
const FEW = 1 / 24;
const [TRIED_HEADS, TRIED_ROWS] = [4, 64];
/** The most elements that the search for the contents of rows looks at, many times. */
const BUDGET = 2e6;
/** The noise of a kernel with 16-bit tables, or a cache of 8 or 4 bits, relative to the largest |x| of a head. */
const NOISE = [2 ** -10, 2 ** -8, 2 ** -6, 0.1, 0.25];
/** How much the lengths of pairs of y are at least like those of x where rows are rotated. Of random numbers they are 0.79. */
const LIKE = 0.95;

/**
 * Finds a rotation of many rows beside which few rows are not explained; undefined if there is none.
 *
 * @param right - the right rows, none of which explains y
 * @param frequency - the expected frequency of each pair, signed
 * @param isWrong - whether rows that one rotation gives are wrong in a way that can be told
 */
export function composed(
  right: RightRows,
  frequency: ArrayLike<number>,
  isWrong: (rows: readonly number[]) => boolean,
): Composed | undefined {
  const heads = right.normalized();
  let best: Composed | undefined;
  const unknown = ({ summary }: Pick<Composed, 'summary'>): number => (summary ? unknownIn(summary) : 0);
  for (const rows of partsOf(heads)) {
    if (best && unknown(best) === 0) break;
    if (rows.length === heads.rows.length || !hasLengths(new RightRows(right.steps, { ...heads, rows }))) continue;
    const { expected, explains, positions, outcome } = identifyHeads({ ...heads, rows }, frequency);
    if (!expected || !explains || !positions[0]?.asGiven || outcome !== 'rotation') continue;
    const other = contentsOf(new RightRows(rightOf(callOf(expected, heads)).steps, heads), THAT);
    if (other?.isEnough && (!best || unknown(other) < unknown(best)) && isWrong(other.rows))
      best = { rows: other.rows, summary: other.summary, measured: [] };
  }
  return best ?? nearlyRight(right);
}

/** Parts of the rows that may be rotated in one way though all are not: most of them, the first tokens, batches, heads. */
function* partsOf(heads: Heads): Generator<readonly number[]> {
  const { batch, seq, heads: count, headDim, numAxes, y } = heads;
  if (numAxes > 1) return; // a part of the tokens does not show the axes
  // Rows that nothing wrote are no rotation.
  const live = heads.rows.filter((r) =>
    y.subarray(r * headDim, (r + 1) * headDim).some((v) => v !== 0 && Number.isFinite(v)),
  );
  const majority = majorityRows({ ...heads, rows: live });
  if (majority) yield majority;
  const tokenOf = (r: number): number => Math.floor(r / count) % seq;
  const batchOf = (r: number): number => Math.floor(r / (count * seq));
  for (const [from, to] of [
    [0, seq / 4],
    [0, seq / 2],
    [seq / 2, seq],
  ] as const)
    yield live.filter((r) => tokenOf(r) >= from && tokenOf(r) < to);
  for (const one of batch > 1 ? [0, batch - 1] : []) yield live.filter((r) => batchOf(r) === one);
  const some = Array.from({ length: count }, (_, h) => h);
  for (const head of count > 1 ? spread(some, TRIED_HEADS) : [])
    yield live.filter((r) => r % count === head && tokenOf(r) < seq / 2);
}

/** The rows that are right but for noise that is larger than rounding, and what the others hold. */
function nearlyRight({ steps, heads }: RightRows): Composed | undefined {
  const sample = { ...heads, rows: sampleRows(heads) };
  if (!hasLengths(new RightRows(steps, sample))) return undefined;
  for (const slack of NOISE) {
    const tried = contentsOf(new RightRows(steps, sample, slack));
    const isScaled = tried !== undefined && scaledIn(tried);
    // With more noise fewer rows may be left unexplained.
    const isClear =
      tried?.isEnough && (slack === NOISE.at(-1) || unknownIn(tried.summary) <= CLEAR * sample.rows.length);
    const near = isScaled || isClear ? contentsOf(new RightRows(steps, heads, slack)) : undefined;
    if (near && scaledIn(near)) {
      const within = `to within ${short(Number((100 * slack).toPrecision(2)))} % of the largest |x| of a head`;
      const measured = near.summary.wrong.map(({ where, holds }) => `${sentence(where)}: ${holds}, ${within}.`);
      return { rows: heads.rows, summary: undefined, measured };
    }
    if (!isClear || !near?.isEnough) continue;
    const values = quantisedValues(heads);
    const share = Number((100 * largestError(steps, { ...heads, rows: near.rows })).toPrecision(2));
    const words = `${NEARLY}: errors are at most ${short(share)} % of the largest |x| of a head.`;
    return { rows: near.rows, summary: near.summary, measured: [words, ...(values ? [`y has ${values}.`] : [])] };
  }
  return undefined;
}

function unknownIn({ wrong }: RowSummary): number {
  return wrong.reduce((sum, { what, rows }) => sum + (what === 'unknown' ? rows : 0), 0);
}

/** Whether the pairs of most rows have about the lengths of those of x. */
function hasLengths(right: RightRows): boolean {
  const { heads, pairs } = right;
  const isLike = (r: number): boolean => {
    const input = right.input(r);
    let [both, before, after] = [0, 0, 0];
    for (let j = 0; j < pairs; j++) {
      const { read, write } = right.membersOf(j);
      const long = Math.hypot(input[read[0]]!, input[read[1]]!);
      const y = Math.hypot(heads.y[r * heads.headDim + write[0]]!, heads.y[r * heads.headDim + write[1]]!);
      both += long * y;
      before += long ** 2;
      after += y ** 2;
    }
    return both > LIKE * Math.sqrt(before * after);
  };
  const rows = spread(heads.rows, TRIED_ROWS);
  return 2 * rows.filter(isLike).length > rows.length;
}

/** Whether rows are right results times a factor of each. */
function scaledIn({ rows, summary, count }: Contents): boolean {
  return summary.wrong.every(({ what }) => what === 'scaled by row') && 8 * rows.length < count;
}

interface Contents extends Omit<Composed, 'measured'> {
  readonly summary: NonNullable<Composed['summary']>;
  /** The number of all rows. */
  readonly count: number;
  /** Whether they are enough rows, and few others are not explained. */
  readonly isEnough: boolean;
}

/** The rows of a rotation, and what the others hold; undefined if there are no others. */
function contentsOf(base: RightRows, nouns?: Nouns): Contents | undefined {
  const { heads } = base;
  const seen = base.compare();
  const count = heads.rows.length;
  const at = (r: number): number => positionsOf(heads, Math.floor(r / heads.heads))[0]!;
  const isSome =
    seen.right.length >= (nouns ? LEAST : FEW) * count && new Set(seen.right.map(at)).size >= LEAST_POSITIONS;
  if (nouns && !isSome) return undefined;
  const { rowSummary } = summarizeRows(base, seen, groupRows(base, seen, nouns, BUDGET)) ?? {};
  if (!rowSummary) return undefined;
  const isEnough = isSome && unknownIn(rowSummary) <= (nouns ? UNKNOWN : MOST) * count;
  return { rows: seen.right, summary: { ...rowSummary, right: '', shown: rowSummary.right! }, count, isEnough };
}

/** The largest error of some rows, relative to the largest |x| of its head. */
function largestError(steps: RopeSteps, heads: Heads): number {
  const { headDim, rows, y } = heads;
  const right = new RightRows(steps, heads);
  const [made, noise] = [new Float64Array(headDim), new Float64Array(headDim)];
  let most = 0;
  for (const r of rows) {
    const size = right.input(r).reduce((largest, value) => Math.max(largest, Math.abs(value)), 0);
    right.fill(r, made, noise);
    for (let i = 0; i < headDim; i++) most = Math.max(most, Math.abs(y[r * headDim + i]! - made[i]!) / size);
  }
  return most;
}
