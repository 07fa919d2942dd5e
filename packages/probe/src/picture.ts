/** Differences by position, to the model and to the best hypothesis, as a self-contained SVG. @module */
import { escapeMarkup, reading } from 'ropewalk/internal';
import type { ProbeReport } from './probe.js';

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [720, 360, 56, 16, 64, 40];
/** Differences below this are drawn at it, in nats. */
const LEAST = 1e-4;

/**
 * Draws the differences by position, on a logarithmic scale.
 *
 * @param report - from {@link probe}
 * @returns a whole SVG document without scripts or links
 * @throws {RopewalkError} RANGE for a value that is no report
 * @example writeFileSync('probe.svg', reportSvg(report));
 */
export function reportSvg(report: ProbeReport): string {
  return reading('reportSvg: report', () => {
    const { positions, noise, best, tokens } = report;
    const all = positions.flatMap(({ difference, left }) => [difference, left]);
    const top = Math.ceil(Math.log10(Math.max(1, ...all)));
    const bottom = Math.log10(LEAST);
    const x = (seen: number): number => LEFT + ((WIDTH - LEFT - RIGHT) * (seen - 0.5)) / tokens;
    const y = (value: number): number =>
      TOP + ((HEIGHT - TOP - BOTTOM) * (top - Math.log10(Math.max(LEAST, value)))) / (top - bottom);
    const dots = (color: string, of: (one: (typeof positions)[number]) => number): string[] =>
      positions.map(
        (one) => `<circle cx="${x(one.seen).toFixed(1)}" cy="${y(of(one)).toFixed(1)}" r="2" fill="${color}"/>`,
      );
    const level = (value: number, stroke: string): string =>
      `<line x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${y(value).toFixed(1)}" y2="${y(value).toFixed(1)}" stroke="${stroke}"/>`;
    const parts = [
      `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" width="${WIDTH}" height="${HEIGHT}" font-family="sans-serif" font-size="12">`,
      `<rect width="${WIDTH}" height="${HEIGHT}" fill="#fff"/>`,
      `<text x="${LEFT}" y="20">log-probabilities by tokens seen, root mean square difference in nats: <tspan fill="#c0392b">to the model's files ●</tspan></text>`,
    ];
    if (best) parts.push(`<text x="${LEFT}" y="38" fill="#2c6fbb">● if the server ${escapeMarkup(best.says)}</text>`);
    parts.push(`<text x="${LEFT}" y="56" fill="#777">— prompts of one token</text>`);
    for (let power = bottom; power <= top; power++) {
      parts.push(level(10 ** power, '#ddd'));
      parts.push(
        `<text x="${LEFT - 8}" y="${y(10 ** power).toFixed(1)}" text-anchor="end" dominant-baseline="middle">1e${power}</text>`,
      );
    }
    parts.push(level(noise, '#777'));
    for (let n = 0; n <= 4; n++) {
      const seen = Math.max(1, Math.round((n * tokens) / 4));
      parts.push(`<text x="${x(seen).toFixed(1)}" y="${HEIGHT - 14}" text-anchor="middle">${seen}</text>`);
    }
    parts.push(...dots('#c0392b', ({ difference }) => difference));
    if (best) parts.push(...dots('#2c6fbb', ({ left }) => left));
    return `${parts.join('\n')}\n</svg>\n`;
  });
}
