/** Frequency by pair, found and expected, as a self-contained SVG. @module */

import { COLORS, chartSvg, powersOfTen, reading, readList } from 'ropewalk/internal';

/**
 * Draws frequencies on a logarithmic scale: expected as a line, found as dots. Pairs that do not rotate are below the
 * axis.
 *
 * @param found - radians a position, any sign, one for each pair
 * @param expected - the same; without it there are only dots
 * @returns a whole SVG document without scripts or links
 */
export function frequencySvg(found: ArrayLike<number>, expected?: ArrayLike<number>): string {
  const own = readList(found, 'found', 'a list of numbers');
  const wanted = expected === undefined ? undefined : readList(expected, 'expected', 'a list of numbers');
  return reading('frequencies', () => drawn(own, wanted));
}

function drawn(found: ArrayLike<number>, expected?: ArrayLike<number>): string {
  const power = (f: number): number => {
    const size = Math.log10(Math.abs(f));
    return Number.isFinite(size) ? size : -Infinity;
  };
  const points = (values: ArrayLike<number>) => Array.from(values, (f, j) => [j, power(f)] as const);
  const powers = [...points(found), ...points(expected ?? [])].map(([, at]) => at).filter(Number.isFinite);
  const top = Math.ceil(Math.max(...powers, 0));
  const bottom = Math.min(top - 1, Math.floor(Math.min(...powers, top - 1)));
  const pairs = Math.max(found.length, expected?.length ?? 0, 1);
  const step = Math.max(1, Math.ceil(pairs / 8));
  const [judged, held] = COLORS;
  return chartSvg({
    heading: [
      { text: 'frequency by pair, radians a position' },
      { text: '● found', color: judged },
      ...(expected ? [{ text: '— expected', color: held }] : []),
    ],
    x: {
      from: -0.5,
      to: pairs - 0.5,
      ticks: Array.from({ length: Math.ceil(pairs / step) }, (_, n) => [n * step, `${n * step}`]),
    },
    y: { from: bottom, to: top, ticks: powersOfTen(bottom, top) },
    series: [
      ...(expected ? [{ color: held, points: points(expected), joined: true }] : []),
      { color: judged, points: points(found) },
    ],
  });
}
