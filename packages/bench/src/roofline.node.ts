/**
 * The roofline as a picture: the speed of each operator, below the limits of copying and of multiplying.
 *
 * @module
 */
import { escapeMarkup } from 'ropewalk/internal';
import { buildOf, gigaflopsPerSecond, type Machine } from './report.node.js';
import type { SessionResult } from './session.js';

const WIDTH = 960;
const HEIGHT = 600;
const PLOT = { left: 70, right: WIDTH - 24, top: 64, bottom: HEIGHT - 60 };
const FONT_SIZE = 12;
/** The average width of a character over the font's size, which is exact enough to keep labels apart. */
const CHARACTER_WIDTH = 0.56;

interface Point {
  readonly name: string;
  readonly x: number;
  readonly y: number;
  readonly tip: string;
}

interface Box {
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
}

/**
 * Draws arithmetic intensity against GFLOP/s, both logarithmic.
 *
 * @param session - the results with one number of threads
 * @param machine - described in the caption
 * @returns an SVG document that follows the reader's light or dark theme
 */
export function rooflinePicture(session: SessionResult & { readonly peakGflops: number }, machine: Machine): string {
  const drawn = session.results.flatMap((result) => (result.point ? [{ ...result, point: result.point }] : []));
  const copies = session.results.map(({ bytes, copy }) => ({ bytes, rate: bytes / copy.medianNs }));
  const most = (of: 'bytes' | 'rate') => copies.toSorted((a, b) => b[of] - a[of])[0] ?? { bytes: 0, rate: 1 };
  const [largest, fastest] = [most('bytes'), most('rate')];
  const intensities = drawn.map(({ flops, bytes }) => flops / bytes);
  const speeds = drawn.map(gigaflopsPerSecond);
  const xDecades = decades([...intensities, 1]);
  const yDecades = decades([...speeds, session.peakGflops]);
  const toX = scale(xDecades, PLOT.left, PLOT.right);
  const toY = scale(yDecades, PLOT.bottom, PLOT.top);
  const points = drawn.map((result, n): Point => {
    const tip = `${result.label}: ${intensities[n]!.toPrecision(3)} FLOP/byte, ${speeds[n]!.toPrecision(3)} GFLOP/s`;
    return { name: result.point, x: toX(intensities[n]!), y: toY(speeds[n]!), tip };
  });
  const roof = (rate: number, className: string): string => {
    const ridge = session.peakGflops / rate;
    const corners = [xDecades[0], ridge, xDecades[1]].map(
      (x) => `${round(toX(x))},${round(toY(Math.min(x * rate, session.peakGflops)))}`,
    );
    return `<polyline class="${className}" points="${corners.join(' ')}"/>`;
  };
  const threads = session.threads === 1 ? '1 thread' : `${session.threads} threads`;
  return `${[
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" width="${WIDTH}" height="${HEIGHT}" role="img" aria-labelledby="title">`,
    STYLE,
    `<rect class="paper" width="${WIDTH}" height="${HEIGHT}"/>`,
    `<text id="title" class="title" x="${PLOT.left}" y="26">Ropewalk, ${escapeMarkup(session.capabilities.backend)} backend, ${threads}</text>`,
    `<text class="quiet" x="${PLOT.left}" y="45">${escapeMarkup(`${machine.cpu}, Node ${machine.node}, ${buildOf(machine)}, ${machine.date.slice(0, 10)}`)}</text>`,
    ...gridLines(
      xDecades,
      (at) => `<line class="grid" x1="${round(toX(at))}" x2="${round(toX(at))}" y1="${PLOT.top}" y2="${PLOT.bottom}"/>`,
    ),
    ...gridLines(
      yDecades,
      (at) => `<line class="grid" x1="${PLOT.left}" x2="${PLOT.right}" y1="${round(toY(at))}" y2="${round(toY(at))}"/>`,
    ),
    ...gridLines(
      xDecades,
      (at) => `<text class="quiet middle" x="${round(toX(at))}" y="${PLOT.bottom + 18}">${at}</text>`,
    ),
    ...gridLines(
      yDecades,
      (at) => `<text class="quiet end" x="${PLOT.left - 8}" y="${round(toY(at) + 4)}">${at}</text>`,
    ),
    `<text class="middle" x="${(PLOT.left + PLOT.right) / 2}" y="${HEIGHT - 16}">arithmetic intensity, FLOP/byte</text>`,
    `<text class="middle" transform="translate(20 ${(PLOT.top + PLOT.bottom) / 2}) rotate(-90)">GFLOP/s</text>`,
    `<clipPath id="plot"><rect x="${PLOT.left}" y="${PLOT.top}" width="${PLOT.right - PLOT.left}" height="${PLOT.bottom - PLOT.top}"/></clipPath>`,
    `<g clip-path="url(#plot)">${roof(largest.rate, 'roof')}${roof(fastest.rate, 'roof cached')}</g>`,
    ...captions(session.peakGflops, largest, fastest),
    ...points.map(
      ({ x, y, tip }) =>
        `<circle cx="${round(x)}" cy="${round(y)}" r="4.5"><title>${escapeMarkup(tip)}</title></circle>`,
    ),
    ...placeLabels(points),
    '</svg>',
  ].join('\n')}\n`;
}

const STYLE = `<style>
  svg { color-scheme: light dark; --paper: #fff; --ink: #1c1f24; --quiet: #5d6673; --grid: #e3e6ea; --roof: #b4540a; --point: #1f5fbf; }
  @media (prefers-color-scheme: dark) {
    svg { --paper: #14171c; --ink: #e8eaee; --quiet: #9aa4b2; --grid: #2a2f37; --roof: #f0a050; --point: #7db1ff; }
  }
  text { font: ${FONT_SIZE}px system-ui, sans-serif; fill: var(--ink); }
  .label { paint-order: stroke; stroke: var(--paper); stroke-width: 3px; stroke-linejoin: round; }
  .paper { fill: var(--paper); }
  .title { font-size: 16px; font-weight: 600; }
  .quiet { fill: var(--quiet); }
  .middle { text-anchor: middle; }
  .end { text-anchor: end; }
  .grid { stroke: var(--grid); }
  .roof { fill: none; stroke: var(--roof); stroke-width: 2; }
  .cached { stroke-dasharray: 6 4; }
  .roof-text { fill: var(--roof); }
  .leader { stroke: var(--quiet); stroke-width: 0.75; }
  circle { fill: var(--point); stroke: var(--paper); }
</style>`;

/** Draws the key in the lower right corner, where no operator can be: much arithmetic at little speed. */
function captions(
  peak: number,
  largest: { bytes: number; rate: number },
  fastest: { bytes: number; rate: number },
): string[] {
  const entries = [
    ['roof', `copy of ${bytesInWords(largest.bytes / 2)}: ${largest.rate.toFixed(0)} GB/s`],
    ['roof cached', `fastest copy, ${bytesInWords(fastest.bytes / 2)}: ${fastest.rate.toFixed(0)} GB/s`],
    ['', `flat: multiply and add, ${peak.toFixed(0)} GFLOP/s`],
  ] as const;
  return entries.flatMap(([line, text], n) => {
    const y = PLOT.bottom - 18 * (entries.length - n) + 4;
    return [
      ...(line
        ? [`<line class="${line}" x1="${PLOT.right - 262}" x2="${PLOT.right - 232}" y1="${y - 4}" y2="${y - 4}"/>`]
        : []),
      `<text class="roof-text" x="${PLOT.right - 224}" y="${y}">${escapeMarkup(text)}</text>`,
    ];
  });
}

/** Puts each name at the nearest free place around its point, with a line to it when that is far. */
function placeLabels(points: readonly Point[]): string[] {
  const taken: Box[] = points.map(({ x, y }) => ({ left: x - 6, right: x + 6, top: y - 6, bottom: y + 6 }));
  return points.flatMap(({ name, x, y }) => {
    const width = name.length * FONT_SIZE * CHARACTER_WIDTH;
    const { box, right } = freePlace(x, y, width, taken);
    taken.push(box);
    const baseline = box.bottom - 4;
    const text = `<text class="label${right ? '' : ' end'}" x="${round(right ? box.left : box.right)}" y="${round(baseline)}">${escapeMarkup(name)}</text>`;
    const far = Math.abs((box.top + box.bottom) / 2 - y) > 10;
    const edge = right ? box.left - 2 : box.right + 2;
    return far
      ? [
          `<line class="leader" x1="${round(x)}" y1="${round(y)}" x2="${round(edge)}" y2="${round(baseline - 4)}"/>`,
          text,
        ]
      : [text];
  });
}

function freePlace(x: number, y: number, width: number, taken: readonly Box[]): { box: Box; right: boolean } {
  const place = (drop: number, right: boolean): Box => {
    const gap = Math.abs(drop) > 10 ? 22 : 9;
    const left = right ? x + gap : x - gap - width;
    return { left, right: left + width, top: y + drop - 8, bottom: y + drop + 8 };
  };
  for (let step = 0; step < 40; step++) {
    const drop = Math.ceil(step / 2) * 8 * (step % 2 === 0 ? 1 : -1);
    for (const right of [true, false]) {
      const box = place(drop, right);
      const inside = box.left > PLOT.left && box.right < PLOT.right && box.top > PLOT.top && box.bottom < PLOT.bottom;
      if (inside && !taken.some((other) => overlap(box, other))) return { box, right };
    }
  }
  return { box: place(0, true), right: true };
}

function overlap(a: Box, b: Box): boolean {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

/** Returns the powers of ten around positive values. */
function decades(values: readonly number[]): readonly [number, number] {
  const positive = values.filter((value) => value > 0 && Number.isFinite(value));
  const low = 10 ** Math.floor(Math.log10(Math.min(...positive)));
  const high = 10 ** Math.ceil(Math.log10(Math.max(...positive) * 1.05));
  return [low, high];
}

function scale([low, high]: readonly [number, number], from: number, to: number): (value: number) => number {
  return (value) => from + ((to - from) * Math.log(value / low)) / Math.log(high / low);
}

/** Draws one line for each power of ten. */
function gridLines([low, high]: readonly [number, number], draw: (at: number) => string): string[] {
  const count = Math.round(Math.log10(high / low));
  return Array.from({ length: count + 1 }, (_, n) => draw(Number((low * 10 ** n).toPrecision(1))));
}

function bytesInWords(bytes: number): string {
  const mebibytes = bytes / 2 ** 20;
  return mebibytes >= 1 ? `${mebibytes.toFixed(0)} MiB` : `${(bytes / 1024).toFixed(0)} KiB`;
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
