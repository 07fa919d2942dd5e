/** The next input to try: positions that tell apart the hypotheses which the data could not. @module */
import { roundTo } from 'ropewalk';
import { randomFrom } from 'ropewalk/internal';
import { magnitudeOf } from '../fit/spec-fit.js';
import type { Mutant } from '../kernel/mutant.js';
import { type Hypothesis, misfit, runRows } from '../kernel/trial.js';
import type { Expected } from '../read/expected.js';
import { everyRow, type Heads } from '../read/observation.js';
import { hypothesesOf, pairsOf } from './hypotheses.js';

/** A small input for the kernel. */
export interface NextInput {
  /** What is special about its positions. */
  readonly why: string;
  /** `[batch, seq, head, head_dim]`; every number is exact in bf16, f16 and f32. */
  readonly x: Float64Array;
  readonly shape: readonly [batch: number, seq: number, heads: number, headDim: number];
  /** `[numAxes, batch, seq]` */
  readonly positions: Float64Array;
  readonly numAxes: number;
  /**
   * Ids of the hypotheses, in groups that this input tells apart; `right` stands for the right kernel and all that it
   * does not show.
   */
  readonly groups: readonly (readonly string[])[];
}

const HEADS = 4;
/** How many times its noise a difference must be, so that an f32 kernel shows it too. */
const CLEAR = 16;

/**
 * Of the inputs that are tried, the one that splits the hypotheses into most groups; undefined when none separates any.
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
      const { batch, seq, headDim, x, positions, numAxes } = heads;
      best = { why, x, shape: [batch, seq, HEADS, headDim], positions, numAxes, groups };
    }
    if (best?.groups.length === together.length) break;
  }
  return best;
}

/** Positions of two batches, the most ordinary first. */
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

function makeHeads(like: Heads, rows: readonly [number[], number[]]): Heads {
  const { headDim, numAxes, dtype, storage, norm } = like;
  const [batch, seq] = [rows.length, rows[0].length];
  const random = randomFrom(`next input ${rows.join()}`);
  // No zero, no equal magnitudes in a pair.
  const x = Float64Array.from({ length: batch * seq * HEADS * headDim }, () =>
    roundTo('bf16', random.uniform(0.25, 1) * (random.integer(2) ? 1 : -1)),
  );
  const positions = Float64Array.from({ length: numAxes * batch * seq }, (_what, n) => {
    const axis = Math.floor(n / (batch * seq));
    const p = rows[Math.floor(n / seq) % batch]![n % seq]!;
    return axis === 0 ? p : Math.trunc(p / (axis + 1)) + 3 * axis; // each axis its own
  });
  return { batch, seq, heads: HEADS, headDim, x, y: x, dtype, storage, numAxes, ownPositions: true, positions, norm };
}

function groupsOn(
  expected: Expected,
  together: readonly Hypothesis[],
  heads: Heads,
  mutants: readonly Mutant[],
): string[][] {
  const magnitude = Math.max(1, expected.spec.attentionFactor ?? magnitudeOf(expected.spec.scaling));
  const dtype = heads.dtype === 'f64' ? 'f32' : heads.dtype;
  type Group = { members: { id: string; steps: Hypothesis['steps'] }[]; made: Float64Array };
  const split = (members: Group['members'], rows: readonly number[]): Group[] => {
    const sizes = new Float64Array(rows.length).fill(magnitude);
    const groups: Group[] = [];
    const made = new Map<Hypothesis['steps'], Float64Array>();
    for (const one of members) {
      const y = made.get(one.steps) ?? runRows(one.steps, heads, rows);
      made.set(one.steps, y); // those that cannot happen here are all the right kernel
      const known = groups.find((group) => misfit({ y, dtype, sizes }, group.made, undefined, CLEAR) <= CLEAR);
      if (known) known.members.push(one);
      else groups.push({ members: [one], made: y });
    }
    return groups;
  };
  // One head of each token tells most of them apart; only the others need all heads.
  const rows = everyRow(heads);
  const few = rows.filter((r) => r % HEADS === Math.floor(r / HEADS) % HEADS);
  return split(again(expected, together, heads, mutants), few)
    .flatMap((group) => (group.members.length > 1 ? split(group.members, rows) : [group]))
    .map(({ members }) => members.map(({ id }) => id))
    .map((ids) => (ids.includes('right') ? ['right'] : ids));
}

/** The same hypotheses on another input; one that cannot happen there becomes the right kernel. */
function again(
  expected: Expected,
  together: readonly Hypothesis[],
  heads: Heads,
  mutants: readonly Mutant[],
): { id: string; steps: Hypothesis['steps'] }[] {
  const list = hypothesesOf(expected, heads, mutants);
  const right = list[0]!;
  return together.map(({ id, mutants: of }) => {
    const known =
      list.find((one) => one.id === id) ??
      (of.length > 1 ? [...pairsOf(right, of)].find((one) => one.id === id) : undefined);
    return { id, steps: (known ?? right).steps };
  });
}
