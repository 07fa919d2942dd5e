/** Frequency by pair, found and expected, as a self-contained SVG. @module */

import { reading, readList } from 'ropewalk/internal';

const WIDTH = 640;
const HEIGHT = 360;
const LEFT = 64;
const RIGHT = 16;
const TOP = 40;
const BOTTOM = 48;

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
  const all = [...Array.from(found), ...Array.from(expected ?? [])]
    .map(Math.abs)
    .filter((f) => f > 0 && Number.isFinite(f));
  const top = Math.ceil(Math.max(...all.map(Math.log10), 0));
  const bottom = Math.min(top - 1, Math.floor(Math.min(...all.map(Math.log10), top - 1)));
  const pairs = Math.max(found.length, expected?.length ?? 0, 1);
  const x = (j: number): number => LEFT + ((WIDTH - LEFT - RIGHT) * (j + 0.5)) / pairs;
  const y = (f: number): number => {
    const size = Math.abs(f);
    return size > 0 && Number.isFinite(size)
      ? TOP + ((HEIGHT - TOP - BOTTOM) * (top - Math.log10(size))) / (top - bottom)
      : HEIGHT - BOTTOM + 8;
  };
  const at = (values: ArrayLike<number>): string[] =>
    Array.from(values, (f, j) => `${x(j).toFixed(1)},${y(f).toFixed(1)}`);
  const parts = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" width="${WIDTH}" height="${HEIGHT}" font-family="sans-serif" font-size="12">`,
    `<rect width="${WIDTH}" height="${HEIGHT}" fill="#fff"/>`,
    `<text x="${LEFT}" y="20">frequency by pair, radians a position: <tspan fill="#c0392b">found ●</tspan>${expected ? ' <tspan fill="#2c6fbb">expected —</tspan>' : ''}</text>`,
  ];
  for (let e = bottom; e <= top; e++) {
    const level = y(10 ** e).toFixed(1);
    parts.push(`<line x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${level}" y2="${level}" stroke="#ddd"/>`);
    parts.push(`<text x="${LEFT - 8}" y="${level}" text-anchor="end" dominant-baseline="middle">1e${e}</text>`);
  }
  const step = Math.max(1, Math.ceil(pairs / 8));
  for (let j = 0; j < pairs; j += step)
    parts.push(`<text x="${x(j).toFixed(1)}" y="${HEIGHT - 16}" text-anchor="middle">${j}</text>`);
  if (expected)
    parts.push(`<polyline points="${at(expected).join(' ')}" fill="none" stroke="#2c6fbb" stroke-width="1.5"/>`);
  for (const point of at(found))
    parts.push(`<circle cx="${point.split(',')[0]}" cy="${point.split(',')[1]}" r="2.5" fill="#c0392b"/>`);
  return `${parts.join('\n')}\n</svg>\n`;
}
