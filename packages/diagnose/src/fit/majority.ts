/** Rows that share one rotation, where others of the observation have another. @module */
import { findGeometry } from '../measure/geometry.js';
import { takeSample } from '../measure/sample.js';
import { fitPairs, type PositionOf } from '../measure/slope.js';
import { measureTurns } from '../measure/turns.js';
import type { Heads } from '../read/observation.js';
import { SLACKS } from './identify.js';
import { ANGLE_SLACK, countAgainst } from './placement.js';

/** Fewer positions are on one line, or explained, by chance. */
export const LEAST_POSITIONS = 6;
/** A unit is another one if this share of its pairs is off the line of the others. */
const SHARE = 1 / 8;

/**
 * Finds most of the tokens that were measured, or heads of them, whose angles are proportional to the positions as given
 * though all together are not; undefined if there are none.
 *
 * @returns rows
 */
export function majorityRows(heads: Heads): number[] | undefined {
  if (heads.numAxes > 1) return undefined;
  for (const slack of SLACKS) {
    const sample = takeSample(heads, slack);
    const geometry = findGeometry(sample);
    for (const layout of geometry.layouts.slice(0, 2)) {
      const turns = measureTurns(sample, layout, geometry);
      const { units, pairs, mirrored } = turns;
      for (const relative of mirrored ? [] : [0, ANGLE_SLACK]) {
        const off = new Uint32Array(units.length);
        const given: PositionOf = (unit) => unit.positions[0]!;
        for (const { against } of fitPairs(turns, 1, given, relative, true)) for (const u of against) off[u]!++;
        const kept = new Set(units.filter((_unit, u) => off[u]! <= SHARE * pairs));
        if (kept.size === units.length) return undefined;
        if (2 * kept.size < units.length || new Set([...kept].map((unit) => unit.positions[0])).size < LEAST_POSITIONS)
          continue;
        const some = fitPairs(turns, 1, (unit) => (kept.has(unit) ? unit.positions[0]! : Number.NaN), relative, true);
        if (countAgainst(some) > 0) continue;
        return [...kept].flatMap(({ batch, seq, head }) => {
          const first = (batch * heads.seq + seq) * heads.heads;
          return head === undefined ? sample.heads.map((h) => first + h) : [first + head];
        });
      }
    }
  }
  return undefined;
}
