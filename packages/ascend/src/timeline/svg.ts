/** Draws a run's recorded instructions: a lane for each queue, time from left to right. @module */
import { refuse } from 'ropewalk/backend';
import { escapeMarkup, type OptionNames, reading, readOptions } from 'ropewalk/internal';
import { type InstructionRecord, type KernelRun, QUEUES, type QueueName } from '../trace.js';

/** Options of {@link timelineSvg}: the cycles to draw. */
export interface TimelineOptions {
  /** First cycle. Default: the start of the block's first instruction. */
  readonly fromCycle?: number;
  /** Last cycle. Default: the end of the first 36 vector instructions and copies. */
  readonly toCycle?: number;
}

const NAMES: OptionNames<TimelineOptions> = { fromCycle: true, toCycle: true };

/** So many are still readable side by side: three rows of the baseline, some tiles of the fast kernel. */
const FIRST_INSTRUCTIONS = 36;

const WIDTH = 1200;
const LEFT = 64;
const RIGHT = 16;
const TOP = 64;
const LANE = 44;
const GAP = 10;
/** The width of a character in the labels of bars, in pixels. */
const CHARACTER = 6.2;

const WHAT: Readonly<Record<QueueName, string>> = { S: 'scalar', V: 'vector', MTE2: 'load', MTE3: 'store' };
/** Each instruction has one colour in every picture; similar instructions have similar hues. */
const COLORS: Readonly<Record<string, string>> = {
  DataCopy: '#0d4f80',
  DataCopyPad: '#1b6ca8',
  GetValue: '#e07b39',
  SetValue: '#b8405e',
  'GetValue, SetValue': '#cc5c4b',
  GatherMask: '#3a9d5d',
  Gather: '#1f6b3c',
  Mul: '#7d5ba6',
  Muls: '#a58bc6',
  Add: '#c9a227',
  Adds: '#8f6f0d',
  Sub: '#3aa6a6',
  Copy: '#8d6e63',
  Duplicate: '#5c6f82',
  Cast: '#5f8f14',
};
const OTHER = '#444444';

/**
 * Draws one block.
 *
 * @param run - of a kernel with `record`; the slowest block is drawn if it is recorded, otherwise the first that is
 * @param options - the cycles to draw
 * @returns an SVG document; the `data-index` of a bar's group is the instruction's `index`
 * @throws {RopewalkError} RANGE for cycles that are out of order or too large, and for what is no run
 */
export function timelineSvg(run: KernelRun, options: TimelineOptions = {}): string {
  const own = readOptions(options, 'aicore: options', NAMES);
  return reading('aicore: run', () => drawn(run, own));
}

function drawn(run: KernelRun, options: TimelineOptions): string {
  const block = [run.blocks[run.slowest], ...run.blocks].find((one) => one?.instructions);
  const all = block?.instructions ?? [];
  const from = options.fromCycle ?? all.reduce((least, { start }) => Math.min(least, start), all[0]?.start ?? 0);
  checkCycle('fromCycle', from, 0);
  const to = options.toCycle ?? Math.max(from + 1, lastOf(all, from));
  checkCycle('toCycle', to, from);
  const shown = all.filter(({ start, end }) => end > from && start < to);
  const x = (cycle: number): number =>
    LEFT + ((Math.min(Math.max(cycle, from), to) - from) / (to - from)) * (WIDTH - LEFT - RIGHT);
  const y = (queue: QueueName): number => TOP + QUEUES.indexOf(queue) * (LANE + GAP);
  const bottom = TOP + QUEUES.length * (LANE + GAP);
  const names = [...new Set(shown.map(({ name }) => name))];
  const colorOf = (name: string): string => (Object.hasOwn(COLORS, name) ? COLORS[name]! : OTHER);
  const legend = legendOf(names, bottom + 44);
  const height = legend.bottom + 16;

  const title = `${run.kernel} kernel, ${run.dtype}, ${run.chip}: cycles ${Math.round(from)} to ${Math.round(to)} of block ${block?.block ?? 0}`;
  const about =
    `${Math.round(run.cycles).toLocaleString('en')} cycles in all${run.microseconds === undefined ? ` (${run.outcome})` : `, modelled ${run.microseconds.toFixed(1)} µs`}; ` +
    `busy in this block: ${QUEUES.map((queue) => `${queue} ${percent(block?.busy[queue] ?? 0, block?.cycles ?? 0)}`).join(', ')}`;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" font-family="sans-serif" font-size="12">`,
    `<title>${escapeMarkup(title)}</title>`,
    `<rect width="${WIDTH}" height="${height}" fill="#ffffff"/>`,
    `<text x="${LEFT}" y="24" font-size="16" fill="#222222">${escapeMarkup(title)}</text>`,
    `<text x="${LEFT}" y="44" fill="#555555">${escapeMarkup(about)}</text>`,
    ...axis(from, to, x, bottom),
    ...QUEUES.flatMap((queue) => [
      `<rect x="${LEFT}" y="${y(queue)}" width="${WIDTH - LEFT - RIGHT}" height="${LANE}" fill="#f4f5f7"/>`,
      `<text x="${LEFT - 8}" y="${y(queue) + 20}" text-anchor="end" font-weight="bold" fill="#222222">${queue}</text>`,
      `<text x="${LEFT - 8}" y="${y(queue) + 35}" text-anchor="end" font-size="11" fill="#777777">${WHAT[queue]}</text>`,
    ]),
    ...shown.map((one) => bar(one, x, y(one.queue), colorOf(one.name))),
    ...names.map((name, n) => {
      const at = legend.places[n]!;
      return (
        `<g><rect x="${at.x}" y="${at.y - 10}" width="12" height="12" fill="${colorOf(name)}"/>` +
        `<text x="${at.x + 17}" y="${at.y}" fill="#222222">${escapeMarkup(name)}</text></g>`
      );
    }),
    '</svg>',
    '',
  ].join('\n');
}

/** Very large cycles are refused: their ticks could not be told apart as numbers. */
function checkCycle(key: 'fromCycle' | 'toCycle', cycle: number, least: number): void {
  const good = Number.isFinite(cycle) && cycle <= 2 ** 40 && (key === 'fromCycle' ? cycle >= least : cycle > least);
  if (!good)
    refuse('RANGE', `aicore: ${key}`, `a cycle ${key === 'fromCycle' ? '>=' : '>'} ${least} and <= 2^40`, cycle);
}

function lastOf(all: readonly InstructionRecord[], from: number): number {
  const work = all.filter(({ queue }) => queue !== 'S');
  return work.slice(0, FIRST_INSTRUCTIONS).reduce((last, { end }) => Math.max(last, end), from + 1);
}

function bar(one: InstructionRecord, x: (cycle: number) => number, top: number, color: string): string {
  const [left, right] = [x(one.start), x(one.end)];
  const width = Math.max(0.5, right - left);
  const times = one.count > 1 ? ` × ${one.count}` : '';
  const about =
    `${one.line}\n${one.name}${times}: cycles ${Math.round(one.start)} to ${Math.round(one.end)}, ${one.bytes} bytes` +
    (one.waitsFor ? `\nwaited for ${one.waitsFor.why}` : '');
  const label = `${one.name}${times}`;
  const text =
    width > label.length * CHARACTER + 6
      ? `<text x="${f(left + width / 2)}" y="${top + LANE / 2 + 4}" text-anchor="middle" font-size="11" fill="#ffffff">${escapeMarkup(label)}</text>`
      : '';
  return (
    `<g data-index="${one.index}"><title>${escapeMarkup(about)}</title>` +
    `<rect x="${f(left)}" y="${top + 2}" width="${f(width)}" height="${LANE - 4}" fill="${color}" stroke="#ffffff" stroke-width="0.5"/>${text}</g>`
  );
}

function axis(from: number, to: number, x: (cycle: number) => number, bottom: number): string[] {
  const step = niceStep((to - from) / 8);
  const lines: string[] = [];
  for (let cycle = Math.ceil(from / step) * step; cycle <= to; cycle += step) {
    lines.push(
      `<line x1="${f(x(cycle))}" x2="${f(x(cycle))}" y1="${TOP - 6}" y2="${bottom}" stroke="#dddddd"/>`,
      `<text x="${f(x(cycle))}" y="${bottom + 14}" text-anchor="middle" font-size="11" fill="#555555">${cycle.toLocaleString('en')}</text>`,
    );
  }
  return lines;
}

/** Finds the step of the axis: 1, 2 or 5 times a power of ten. */
function niceStep(least: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return [1, 2, 5, 10].map((n) => n * power).find((step) => step >= least) ?? 10 * power;
}

function legendOf(names: readonly string[], top: number): { places: { x: number; y: number }[]; bottom: number } {
  const places: { x: number; y: number }[] = [];
  let [x, y] = [LEFT, top];
  for (const name of names) {
    const width = 17 + name.length * 7.5 + 24;
    if (x + width > WIDTH - RIGHT && x > LEFT) [x, y] = [LEFT, y + 20];
    places.push({ x, y });
    x += width;
  }
  return { places, bottom: y };
}

function percent(part: number, whole: number): string {
  return whole > 0 ? `${Math.round((100 * part) / whole)} %` : '0 %';
}

/** Writes a coordinate, rounded to hundredths. */
function f(n: number): string {
  return String(Number(n.toFixed(2)));
}
