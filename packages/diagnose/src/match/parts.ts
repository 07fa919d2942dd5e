/** Batches, heads, or near and far positions that are computed each in another way. @module */
import { groupBy } from 'ropewalk/internal';
import { LEAST_POSITIONS } from '../fit/majority.js';
import { spread } from '../measure/sample.js';
import { type Heads, positionsOf } from '../read/observation.js';
import { rowsWords } from './wrong-rows.js';

/** The explanation of some rows. */
export interface Told {
  /** `named` where a known bug gives every element, `read` where another rotation does. */
  readonly as: 'right' | 'named' | 'read' | 'unread';
  readonly words: string;
}

/** Each part is looked at by so many of its rows, then those that say the same by all of theirs. */
const PART_ROWS = 64;
/** Fewer rows are explained by chance. */
const LEAST_ROWS = 8;
const MOST_PARTS = 64;
/** More different parts are no rule. */
const MOST_TOLD = 4;

/**
 * Describes parts that an explanation gives where none gives the whole; empty if there are none, or they are less than half
 * of the rows.
 *
 * @param tell - explains rows
 */
export function describeParts(heads: Heads, tell: (rows: readonly number[]) => Told): string[] {
  const { rows } = heads;
  const at = (r: number): number => positionsOf(heads, Math.floor(r / heads.heads))[0]!;
  const farthest = rows.reduce((most, r) => Math.max(most, at(r)), 1);
  const size = 2 ** Math.floor(Math.log2(farthest));
  const partsOf: readonly ((r: number) => number)[] = [
    (r) => Math.floor(r / (heads.seq * heads.heads)),
    (r) => r % heads.heads,
    // Tables and rules often change at a power of two.
    ...(heads.numAxes === 1 ? [(r: number) => Number(at(r) >= size)] : []),
  ];
  for (const partOf of partsOf) {
    const parts = [...groupBy(rows, partOf).values()];
    const isEnough = (part: readonly number[]): boolean =>
      part.length >= LEAST_ROWS && new Set(part.map(at)).size >= LEAST_POSITIONS;
    if (parts.length < 2 || parts.length > MOST_PARTS || !parts.every(isEnough)) continue;
    const told = new Map<readonly number[], Told>();
    const tellOf = (part: readonly number[]): Told => {
      const known = told.get(part) ?? tell(spread(part, PART_ROWS));
      told.set(part, known);
      return known;
    };
    // If none of three is explained, half of them are hardly.
    if (spread(parts, 3).every((part) => tellOf(part).as === 'unread')) continue;
    const groups = new Map<string, number[]>();
    for (const part of parts) {
      const { words } = tellOf(part);
      groups.set(words, [...(groups.get(words) ?? []), ...part]);
      if (groups.size > MOST_TOLD) break;
    }
    if (groups.size < 2 || groups.size > MOST_TOLD) continue;
    const all = [...groups.values()].map((group) => {
      const rows = group.sort((a, b) => a - b);
      return { ...tell(rows), rows };
    });
    const unread = all.reduce((sum, { as, rows }) => sum + (as === 'unread' ? rows.length : 0), 0);
    const isSome = (one: Told['as']): boolean => all.some(({ as }) => as === one);
    // Without a part that is sure, one rule of positions may look like a rotation of each part.
    if (2 * unread > rows.length || !(isSome('named') || (isSome('right') && isSome('read')))) continue;
    return all.map(({ rows, words }) => `${rowsWords(rows, heads)}: ${words}`);
  }
  return [];
}
