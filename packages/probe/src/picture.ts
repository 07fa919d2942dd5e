/** Differences by position, to the model and to the best hypothesis, as a self-contained SVG. @module */
import { COLORS, chartSvg, powersOfTen, reading } from 'ropewalk/internal';
import type { ProbeReport } from './probe.js';

/** The power of ten, in nats, at which smaller differences are drawn. */
const LEAST = -4;

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
    const power = (value: number): number => Math.max(LEAST, Math.log10(value));
    const all = positions.flatMap(({ difference, left }) => [difference, left]);
    const top = Math.ceil(Math.log10(Math.max(1, ...all)));
    const [judged, held] = COLORS;
    return chartSvg({
      heading: [
        { text: 'log-probabilities by tokens seen, root mean square difference in nats' },
        { text: "● to the model's files", color: judged },
        ...(best ? [{ text: `● if the server ${best.says}`, color: held }] : []),
        { text: '— prompts of one token', color: '#777' },
      ],
      x: {
        from: 0.5,
        to: tokens + 0.5,
        ticks: [0, 1, 2, 3, 4].map((n) => Math.max(1, Math.round((n * tokens) / 4))).map((at) => [at, `${at}`]),
      },
      y: { from: LEAST, to: top, ticks: powersOfTen(LEAST, top) },
      level: power(noise),
      series: [
        { color: judged, points: positions.map(({ seen, difference }) => [seen, power(difference)]) },
        ...(best ? [{ color: held, points: positions.map(({ seen, left }) => [seen, power(left)] as const) }] : []),
      ],
    });
  });
}
