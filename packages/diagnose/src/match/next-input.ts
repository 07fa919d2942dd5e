/** The next input to try: positions that tell apart the hypotheses that the data did not tell apart. @module */
import { roundTo } from 'ropewalk';
import { randomFrom } from 'ropewalk/internal';
import type { Mutant } from '../kernel/mutant.js';
import { misfit } from '../kernel/noise.js';
import { type Hypothesis, hypothesesOf, magnitudeOf, pairsOf, runRows } from '../kernel/trial.js';
import { callsOf, type Expected } from '../read/expected.js';
import { type Heads, widened } from '../read/observation.js';

export interface NextInput {
  /** The special feature of its positions, in words. */
  readonly why: string;
  /** `[batch, seq, head, head_dim]`; every number is exact in bf16, f16 and f32. */
  readonly x: Float64Array;
  readonly shape: readonly [batch: number, seq: number, heads: number, headDim: number];
  /** `[numAxes, batch, seq]` */
  readonly positions: Float64Array;
  readonly numAxes: number;
  /**
   * The ids of the hypotheses, in groups that this input tells apart; `right` stands for the right kernel and all bugs that
   * this input does not show.
   */
  readonly groups: readonly (readonly string[])[];
}

const HEADS = 4;
/** A difference must be this many times its noise, so that an f32 kernel shows it too. */
const CLEAR = 16;

/**
 * Finds the input, of those that are tried, that splits the hypotheses into most groups; undefined if none splits them.
 */
export function nextInput(
  expected: Expected,
  together: readonly Hypothesis[],
  like: Heads,
  mutants: readonly Mutant[],
): NextInput | undefined {
  let best: NextInput | undefined;
  for (const { why, rows } of candidates(expected)) {
    const heads = makeHeads(like, rows);
    const groups = groupsOn(expected, together, heads, mutants);
    if (groups.length > Math.max(1, best?.groups.length ?? 1)) {
      const { batch, seq, headDim, positions, numAxes } = heads;
      best = { why, x: widened(heads.x), shape: [batch, seq, HEADS, headDim], positions, numAxes, groups };
    }
    if (best?.groups.length === together.length) break;
  }
  return best;
}

/** The positions to try, for two batches, the most ordinary first. */
function candidates({ spec }: Expected): { why: string; rows: [number[], number[]] }[] {
  const scaling = spec.scaling;
  const context =
    scaling && 'originalContext' in scaling && scaling.originalContext > 0 ? Math.round(scaling.originalContext) : 4096;
  const mirrored = (row: number[]): [number[], number[]] => [row, row.map((p) => p + 7).reverse()];
  return [
    { why: 'positions from 0 to 1048575', rows: mirrored([0, 1, 2, 40, 511, 8191, 131071, 1048575]) },
    { why: 'small positions', rows: mirrored([0, 1, 2, 3, 5, 8, 13, 40]) },
    {
      why: `positions about the original context, ${context}`,
      rows: mirrored([0, 1, context - 1, context, context + 1, 2 * context, 4 * context, 8 * context]),
    },
    { why: 'positions about powers of two', rows: mirrored([127, 128, 255, 257, 2049, 32768, 65536, 65537]) },
    {
      why: 'negative positions, as in a shift of cached keys',
      rows: mirrored([-1, -40, -511, -8191, -1023, 0, 1, 40]),
    },
    { why: 'positions of a continued sequence', rows: mirrored([100, 101, 102, 103, 104, 105, 106, 107]) },
  ];
}

function makeHeads(like: Heads, given: readonly [number[], number[]]): Heads {
  const { headDim, numAxes, dtype, storage, norm } = like;
  const [batch, seq] = [given.length, given[0].length];
  const random = randomFrom(`next input ${given.join()}`);
  // x has no zeros, and no equal magnitudes in a pair.
  const x = Float64Array.from({ length: batch * seq * HEADS * headDim }, () =>
    roundTo('bf16', random.uniform(0.25, 1) * (random.integer(2) ? 1 : -1)),
  );
  const positions = Float64Array.from({ length: numAxes * batch * seq }, (_what, n) => {
    const axis = Math.floor(n / (batch * seq));
    const p = given[Math.floor(n / seq) % batch]![n % seq]!;
    return axis === 0 ? p : Math.trunc(p / (axis + 1)) + 3 * axis; // each axis has its own
  });
  const rows = Array.from({ length: batch * seq * HEADS }, (_, r) => r);
  const sizes = { batch, seq, heads: HEADS, headDim, numAxes };
  return { ...sizes, x, y: x, dtype, storage, ownPositions: true, positions, norm, rows };
}

function groupsOn(
  expected: Expected,
  together: readonly Hypothesis[],
  heads: Heads,
  mutants: readonly Mutant[],
): string[][] {
  const magnitude = Math.max(1, expected.spec.attentionFactor ?? magnitudeOf(expected.spec.scaling));
  const dtype = heads.dtype === 'f64' ? 'f32' : heads.dtype;
  // The same hypotheses on this input; one that cannot happen here becomes the right kernel.
  const here = hypothesesOf(callsOf(expected, heads), mutants);
  const right = here[0]!;
  const again = together.map(({ id, mutants: of }) => {
    const pair = of.length > 1 ? [...pairsOf(right, of)] : [];
    return { id, steps: (here.find((one) => one.id === id) ?? pair[0] ?? right).steps };
  });
  const split = (list: readonly Group['list'][number][], rows: readonly number[]): Group[] => {
    const sizes = new Float64Array(rows.length).fill(magnitude);
    const groups: Group[] = [];
    const made = new Map<Hypothesis['steps'], Float64Array>();
    for (const one of list) {
      const y = made.get(one.steps) ?? runRows(one.steps, heads, rows);
      made.set(one.steps, y); // bugs that cannot happen here all have the steps of the right kernel
      const known = groups.find((group) => misfit({ y, dtype, sizes }, group.made, undefined, CLEAR) <= CLEAR);
      if (known) known.list.push(one);
      else groups.push({ list: [one], made: y });
    }
    return groups;
  };
  // One head of each token tells most of them apart. Only the others need all heads.
  const few = heads.rows.filter((r) => r % HEADS === Math.floor(r / HEADS) % HEADS);
  return split(again, few)
    .flatMap((group) => (group.list.length > 1 ? split(group.list, heads.rows) : [group]))
    .map(({ list }) => list.map(({ id }) => id))
    .map((ids) => (ids.includes('right') ? ['right'] : ids));
}

interface Group {
  readonly list: { readonly id: string; readonly steps: Hypothesis['steps'] }[];
  readonly made: Float64Array;
}
