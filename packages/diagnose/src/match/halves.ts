/**
 * cos and sin apart: where one of them is right in every pair and the other is not, says what the other holds: 0, another
 * pair's, another position's. Where both are wrong, they may come from a table that is read in another layout. A sentence is
 * made only if its claim holds in every row. @module
 */
import { ranges } from 'ropewalk/internal';
import type { Claim, ClaimedPair } from '../claims/claim.js';
import { evidenceOf, holds, narrowed } from '../claims/holds.js';
import type { RightRows } from '../kernel/right-rows.js';
import { signed } from '../measure/position-fit.js';
import { sampleRows, spread } from '../measure/sample.js';
import { positionsOf } from '../read/observation.js';
import { MOST_PADDING } from './strides.js';

/** A number, or cos or sin of a pair at positions; undefined where nothing is said of the token. */
type Content = number | { readonly positions: readonly number[]; readonly pair: number } | undefined;

interface Rule {
  readonly words: string;
  of(half: 'cos' | 'sin', token: number, j: number): Content;
}

/** The farthest that positions of one half are looked for. */
const FARTHEST = 8;
/** More rules that all give y say nothing. */
const MOST = 3;

/** Says which half is wrong and how, in one sentence; empty where no rule gives y. */
export function describeHalves(right: RightRows): string[] {
  const { heads, steps } = right;
  const { offByDim } = right.compare();
  if (offByDim.some((count, i) => count > 0 && right.pairOf[i]! < 0)) return [];
  if (heads.y.every((value) => value === 0)) return []; // where sin is 0 too
  const whole = evidenceOf(right.normalized());
  const sample = { ...whole, rows: sampleRows(heads) };
  const pairs = pairsOf(right);
  const angle = (positions: readonly number[], j: number): number =>
    Math.abs(steps.angle(positions[steps.axisOfPair(j)]!, j));
  const angleAt = (r: number, j: number): number => angle(positionsOf(heads, Math.floor(r / heads.heads)), j);
  /** The claim that one half is a rule's in some pairs, and that all else is right. */
  const claimOf = (half?: 'cos' | 'sin', rule?: Rule, of?: ReadonlySet<number>): Extract<Claim, { kind: 'terms' }> => ({
    kind: 'terms',
    pairs,
    terms(r, j) {
      const token = Math.floor(r / heads.heads);
      const positions = positionsOf(heads, token);
      const { cos, sin } = right.anglesOf(token);
      const here = angle(positions, j);
      if (!rule || of?.has(j) === false) return [cos[j]!, sin[j]!, here];
      const content = rule.of(half!, token, j) ?? Number.NaN;
      const isNumber = typeof content === 'number';
      const value = isNumber ? content : right.anglesAt(content.positions)[half!][content.pair]!;
      const there = isNumber ? here : Math.max(here, angle(content.positions, content.pair));
      return half === 'cos' ? [value, sin[j]!, there] : [cos[j]!, value, there];
    },
  });
  const trueOf = (claim: ReturnType<typeof claimOf>): ReadonlySet<number> =>
    new Set(narrowed(claim, sample)?.pairs.map(({ number }) => number));
  const asExpected = trueOf(claimOf());
  const wrongPairs = pairs.filter(({ number }) => !asExpected.has(number));
  const wrong = wrongPairs.map(({ number }) => number);
  if (wrong.length === 0) return [];
  // Where the cosine is nearly 1 as well, the pairs are told as not rotated.
  const still: ReturnType<typeof claimOf> = { kind: 'terms', pairs, terms: (r, j) => [1, 0, angleAt(r, j)] };
  const unrotated = trueOf(still);
  if (wrong.every((j) => unrotated.has(j))) return [];
  const ofWrong = `${wrong.length > 1 ? 'pairs' : 'pair'} ${ranges(wrong)}`;
  // Beside right pairs: cos = 1 and sin = angle, whatever the angle.
  const { attentionFactor } = steps.frequencies();
  const small = (of: readonly ClaimedPair[]): ReturnType<typeof claimOf> => ({
    ...{ kind: 'terms', pairs: of },
    terms: (r, j) => {
      const position = positionsOf(heads, Math.floor(r / heads.heads))[steps.axisOfPair(j)]!;
      const turn = steps.angle(position, j) * steps.sign;
      return [attentionFactor, turn * attentionFactor, Math.abs(turn)];
    },
  });
  if (holds(small(wrongPairs), sample) && holds(small(wrongPairs), whole))
    return [`In ${ofWrong}, cos is 1 and sin is the angle, as for small angles; all other pairs are right.`];
  const told = (rules: readonly Rule[]) =>
    (['sin', 'cos'] as const).flatMap((half) =>
      rules.flatMap((rule) => {
        const claim = claimOf(half, rule);
        if (!holds({ ...claim, pairs: wrongPairs }, sample)) return [];
        const everywhere = holds(claim, sample);
        if (!holds(claimOf(half, rule, everywhere ? undefined : new Set(wrong)), whole)) return [];
        return [
          {
            half,
            words: rule.words,
            of: everywhere ? 'every pair' : ofWrong,
          },
        ];
      }),
    );
  // The simplest rules that give y are told.
  const [found = []] = rulesOf(right)
    .map(told)
    .filter((some) => some.length > 0);
  const [first] = found;
  if (!first || found.length > MOST || found.some(({ half, of }) => half !== first.half || of !== first.of)) return [];
  const [is, other] = first.half === 'sin' ? ['sine', 'cosine'] : ['cosine', 'sine'];
  const says = found.map(({ words }) => words).join(', or ');
  return [`The ${other} of every pair is right; the ${is} of ${first.of} is ${says}.`];
}

function pairsOf(right: RightRows): ClaimedPair[] {
  const { invFreq } = right.steps.frequencies();
  return Array.from(invFreq, (frequency, number) => ({ number, ...right.membersOf(number), frequency, error: 0 }));
}

type Axis = 'token' | 'cos or sin' | 'pair';

/** The layouts in which a table of cos and sin may lie. */
const TABLES: readonly (readonly Axis[])[] = [
  ['token', 'cos or sin', 'pair'],
  ['token', 'pair', 'cos or sin'],
  ['cos or sin', 'token', 'pair'],
  ['cos or sin', 'pair', 'token'],
];

/** Says in which layout a table of cos and sin lies and in which it is read, in one sentence; empty if none gives y. */
export function describeTables(right: RightRows): string[] {
  const { heads, steps, pairs } = right;
  if (right.compare().offByDim.some((off, i) => off > 0 && right.pairOf[i]! < 0)) return [];
  const evidence = evidenceOf(right.normalized());
  const sample = { ...evidence, rows: sampleRows(heads) };
  const tokens = heads.ownPositions ? heads.batch * heads.seq : heads.seq;
  const sizes: Record<Axis, number> = { token: tokens, 'cos or sin': 2, pair: pairs };
  const claimOf = (lies: readonly Axis[], read: readonly Axis[]): Claim => ({
    kind: 'terms',
    pairs: pairsOf(right),
    terms(r, j) {
      const token = Math.floor(r / heads.heads) % tokens;
      let largest = 0;
      const [cos, sin] = [0, 1].map((half) => {
        const at: Record<Axis, number> = { token, 'cos or sin': half, pair: j };
        let place = 0;
        for (const axis of read) place = place * sizes[axis] + at[axis];
        for (const axis of lies.toReversed()) {
          at[axis] = place % sizes[axis];
          place = Math.floor(place / sizes[axis]);
        }
        const angles = right.anglesOf(at.token);
        const position = positionsOf(heads, at.token)[steps.axisOfPair(at.pair)]!;
        largest = Math.max(largest, Math.abs(steps.angle(position, at.pair)));
        return (at['cos or sin'] === 0 ? angles.cos : angles.sin)[at.pair]!;
      });
      return [cos!, sin!, largest];
    },
  });
  const found = TABLES.flatMap((lies) =>
    TABLES.filter((read) => {
      if (read === lies) return false;
      const claim = claimOf(lies, read);
      return holds(claim, sample) && holds(claim, evidence);
    }).map((read) => `[${read.join(', ')}], and it lies as [${lies.join(', ')}]`),
  );
  if (found.length > 0 && found.length <= MOST)
    return [`The table of cos and sin is read as ${found.join(', or as ')}.`];
  const apart = Array.from({ length: MOST_PADDING }, (_, n) => pairs + n + 1)
    .flatMap((padded) => [[padded, pairs] as const, [pairs, padded] as const])
    .find(([lie, read]) => {
      const claim = strided(right, lie, read);
      return saysMost(right, lie, read) && holds(claim, sample) && holds(claim, evidence);
    });
  if (apart)
    return [
      `The table of cos and sin has the rows of its positions ${apart[0]} elements apart, and is read as if they were ${apart[1]} apart.`,
    ];
  const beside = ([-1, 1] as const).find((by) => {
    const claim = between(right, by);
    return holds(claim, sample) && holds(claim, evidence);
  });
  if (beside !== undefined)
    return [
      `cos and sin are the means of those of the position and of the one ${beside < 0 ? 'before' : 'after'} it, as where a texture is read half a texel off.`,
    ];
  const step = STEPS.find((n) => {
    const claim = interpolated(right, n);
    return holds(claim, sample) && holds(claim, evidence);
  });
  return step === undefined
    ? []
    : [
        `cos and sin lie on straight lines between those of position 0, ${step}, ${2 * step}, …, as in a table with interpolation.`,
      ];
}

/** Whether cos and sin of most pairs are no padding, at most positions but 0. */
function saysMost({ heads, pairs }: RightRows, lie: number, read: number): boolean {
  if (heads.numAxes > 1) return false;
  const places = Array.from({ length: heads.batch * heads.seq }, (_, token) => positionsOf(heads, token)[0]!)
    .filter((p) => p !== 0)
    .map((p) => {
      if (p < 0) return 0; // a table has no such row
      return Array.from({ length: pairs }, (_, j) => (p * read + j) % lie).filter((pair) => pair < pairs).length;
    });
  return 2 * places.filter((told) => 2 * told > pairs).length > places.length && places.length > 1;
}

/** The claim that a table with a row for each position lies at another distance of rows than it is read. */
function strided(right: RightRows, lie: number, read: number): Claim {
  const { heads, steps, pairs } = right;
  return {
    kind: 'terms',
    pairs: pairsOf(right),
    terms(r, j) {
      const place = positionsOf(heads, Math.floor(r / heads.heads))[0]! * read + j;
      const [row, pair] = [Math.floor(place / lie), place % lie];
      if (place < 0 || pair >= pairs) return [Number.NaN, Number.NaN, 0]; // padding may hold anything
      const { cos, sin } = right.anglesAt([row]);
      return [cos[pair]!, sin[pair]!, Math.abs(steps.angle(row, pair))];
    },
  };
}

/** The steps of tables that are tried. */
const STEPS = [2, 4, 8, 10, 16, 32, 64, 100, 128, 256];

/** The claim that cos and sin are interpolated between multiples of a position. */
function interpolated(right: RightRows, step: number): Claim {
  const { heads, steps } = right;
  return {
    kind: 'terms',
    pairs: pairsOf(right),
    terms(r, j) {
      const positions = positionsOf(heads, Math.floor(r / heads.heads));
      const starts = positions.map((p) => step * Math.floor(p / step));
      const [from, to] = [right.anglesAt(starts), right.anglesAt(starts.map((p) => p + step))];
      const axis = steps.axisOfPair(j);
      const share = (positions[axis]! - starts[axis]!) / step;
      const mix = (half: 'cos' | 'sin'): number => (1 - share) * from[half][j]! + share * to[half][j]!;
      return [mix('cos'), mix('sin'), Math.abs(steps.angle(positions[axis]!, j))];
    },
  };
}

/** The claim that cos and sin are the means of those of two neighbouring positions; the first row of a table has none before it. */
function between(right: RightRows, by: 1 | -1): Claim {
  const { heads, steps } = right;
  return {
    kind: 'terms',
    pairs: pairsOf(right),
    terms(r, j) {
      const positions = positionsOf(heads, Math.floor(r / heads.heads));
      const [here, there] = [right.anglesAt(positions), right.anglesAt(positions.map((p) => Math.max(0, p + by)))];
      const angle = Math.abs(steps.angle(positions[steps.axisOfPair(j)]!, j));
      return [(here.cos[j]! + there.cos[j]!) / 2, (here.sin[j]! + there.sin[j]!) / 2, angle];
    },
  };
}

/** Rules by how simple they are. */
function rulesOf(right: RightRows): Rule[][] {
  const { heads, pairs, steps } = right;
  const { seq, batch } = heads;
  const fromPair = (words: string, of: (j: number) => number): Rule => ({
    words,
    of(_half, token, j) {
      const pair = of(j);
      return pair >= 0 && pair < pairs ? { positions: positionsOf(heads, token), pair } : 0;
    },
  });
  const fromToken = (words: string, by: 1 | -1): Rule => ({
    words,
    of(_half, token, j) {
      const isThere = by < 0 ? token % seq > 0 : token % seq < seq - 1;
      return isThere ? { positions: positionsOf(heads, token + by), pair: j } : undefined;
    },
  });
  const fromPosition = (words: string, of: (position: number) => number): Rule => ({
    words,
    of: (_half, token, j) => ({ positions: positionsOf(heads, token).map(of), pair: j }),
  });
  const { attentionFactor } = steps.frequencies();
  const upTo = (most: number): number[] =>
    Array.from({ length: 2 * most + 1 }, (_, n) => n - most).filter((by) => by !== 0);
  const at = new Set(Array.from({ length: batch * seq }, (_, token) => positionsOf(heads, token)[0]!));
  at.delete(0); // sin of position 0 is 0
  return [
    [
      { words: '0', of: () => 0 },
      {
        words: attentionFactor === 1 ? '1' : 'the magnitude alone',
        of: (half) => (half === 'cos' ? attentionFactor : undefined),
      },
      { words: 'its absolute value', of: (half, token, j) => Math.abs(right.anglesOf(token)[half][j]!) },
    ],
    [
      fromToken('that of the token before', -1),
      fromToken('that of the next token', 1),
      ...upTo(FARTHEST).map((by) => fromPosition(`that of position${signed(by)}`, (position) => position + by)),
      ...spread([...at], 64).map((p) => fromPosition(`that of position ${p} in every token`, () => p)),
    ],
    [
      fromPair('that of the pairs in reverse order', (j) => pairs - 1 - j),
      ...upTo(pairs - 1).map((by) =>
        fromPair(`that of pair j${signed(by)}, and 0 where there is no such pair`, (j) => j + by),
      ),
    ],
  ];
}
