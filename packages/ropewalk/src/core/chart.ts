/** Values over a number line, as a self-contained SVG without scripts or links. @module */
import { escapeMarkup } from './text.js';

const [WIDTH, HEIGHT, LEFT, RIGHT, BOTTOM, LINE] = [720, 360, 64, 16, 40, 18];

/** The colors of what is judged and of what it is held against; further series take the others. */
export const COLORS = ['#c0392b', '#2c6fbb', '#2e8b57', '#8e44ad', '#b9770e', '#34495e'] as const;

/** The marks of an axis from its first to its last: where, and with which words. */
export type Ticks = readonly (readonly [at: number, label: string])[];

export interface Chart {
  /** Lines above the chart, in the colors of what they are about. */
  readonly heading: readonly { readonly text: string; readonly color?: string }[];
  /** The range and the marks of each axis. A logarithmic one takes logarithms everywhere. */
  readonly x: { readonly from: number; readonly to: number; readonly ticks: Ticks };
  readonly y: { readonly from: number; readonly to: number; readonly ticks: Ticks };
  /** Values below y.from are drawn a little below it. */
  readonly series: readonly {
    readonly color: string;
    readonly points: readonly (readonly [x: number, y: number])[];
    /** Whether points are joined by a line instead of drawn as dots. */
    readonly joined?: boolean;
  }[];
  /** A gray line at this value of y. */
  readonly level?: number;
}

/** Draws a chart. */
export function chartSvg({ heading, x, y, series, level }: Chart): string {
  const top = LINE * heading.length + 14;
  const toX = (at: number): string =>
    (LEFT + ((WIDTH - LEFT - RIGHT) * (at - x.from)) / (x.to - x.from || 1)).toFixed(1);
  const toY = (at: number): string =>
    (at < y.from ? HEIGHT - BOTTOM + 8 : top + ((HEIGHT - top - BOTTOM) * (y.to - at)) / (y.to - y.from || 1)).toFixed(
      1,
    );
  const across = (at: number, color: string): string =>
    `<line x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${toY(at)}" y2="${toY(at)}" stroke="${color}"/>`;
  const parts = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" width="${WIDTH}" height="${HEIGHT}" font-family="sans-serif" font-size="12">`,
    `<rect width="${WIDTH}" height="${HEIGHT}" fill="#fff"/>`,
    ...heading.map(
      ({ text, color = '#222' }, n) =>
        `<text x="${LEFT}" y="${LINE * (n + 1)}" fill="${color}">${escapeMarkup(text)}</text>`,
    ),
  ];
  for (const [at, label] of y.ticks) {
    parts.push(across(at, '#ddd'));
    parts.push(`<text x="${LEFT - 8}" y="${toY(at)}" text-anchor="end" dominant-baseline="middle">${label}</text>`);
  }
  for (const [at, label] of x.ticks)
    parts.push(`<text x="${toX(at)}" y="${HEIGHT - 14}" text-anchor="middle">${label}</text>`);
  if (level !== undefined) parts.push(across(level, '#777'));
  for (const { color, points, joined } of series) {
    const corners = points.map(([a, b]) => `${toX(a)},${toY(b)}`).join(' ');
    if (joined) parts.push(`<polyline points="${corners}" fill="none" stroke="${color}" stroke-width="1.5"/>`);
    else parts.push(...points.map(([a, b]) => `<circle cx="${toX(a)}" cy="${toY(b)}" r="2.5" fill="${color}"/>`));
  }
  return `${parts.join('\n')}\n</svg>\n`;
}

/** The marks of a logarithmic axis: each power of ten from one to another. */
export const powersOfTen = (from: number, to: number): Ticks =>
  Array.from({ length: to - from + 1 }, (_, n) => [from + n, `1e${from + n}`]);
