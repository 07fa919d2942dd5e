/** Draws the roofline: the speed of each case, below the limit of a copy of the same bytes. @module */
import type { Timed } from './bench.worker.js';

const W = 720;
const H = 400;
const PLOT = { left: 62, right: W - 16, top: 16, bottom: H - 48 };

/** Returns the powers of ten below and above all numbers. */
function decades(numbers: readonly number[]): readonly [number, number] {
  const logs = numbers.filter((n) => n > 0).map(Math.log10);
  return [Math.floor(Math.min(...logs)), Math.ceil(Math.max(...logs) + 1e-9)];
}

/**
 * Draws operations per byte against operations per second, both on logarithmic axes.
 *
 * @param results - the results of one backend
 */
export function Roofline({ results }: { readonly results: readonly Timed[] }) {
  const points = results.map(({ label, bytes, flops, ours, copy }) => ({
    label,
    x: flops / bytes,
    y: flops / ours.medianNs,
    rate: bytes / copy.medianNs,
  }));
  const rate = Math.max(...points.map((point) => point.rate));
  const most = Math.max(...points.map(({ y }) => y));
  const [x0, x1] = decades(points.map(({ x }) => x));
  const [y0, y1] = decades([...points.map(({ y }) => y), rate * 10 ** x0]);
  const toX = (x: number): number => PLOT.left + ((Math.log10(x) - x0) / (x1 - x0)) * (PLOT.right - PLOT.left);
  const toY = (y: number): number => PLOT.bottom - ((Math.log10(y) - y0) / (y1 - y0)) * (PLOT.bottom - PLOT.top);
  const ticks = (from: number, to: number): number[] => Array.from({ length: to - from + 1 }, (_, i) => from + i);
  const ridge = Math.min(most / rate, 10 ** x1);
  const words = (power: number): string => (power >= 0 ? String(10 ** power) : (10 ** power).toFixed(-power));
  return (
    <svg
      class="bench-roof"
      viewBox={`0 0 ${W} ${H}`}
      role="img"
      aria-label={`Roofline: ${points.map(({ label, y }) => `${label}: ${y.toPrecision(2)} GFLOP/s`).join('; ')}`}
    >
      {ticks(x0, x1).map((power) => (
        <g key={`x${power}`}>
          <line class="bench-grid" x1={toX(10 ** power)} x2={toX(10 ** power)} y1={PLOT.top} y2={PLOT.bottom} />
          <text x={toX(10 ** power)} y={PLOT.bottom + 18} text-anchor="middle">
            {words(power)}
          </text>
        </g>
      ))}
      {ticks(y0, y1).map((power) => (
        <g key={`y${power}`}>
          <line class="bench-grid" x1={PLOT.left} x2={PLOT.right} y1={toY(10 ** power)} y2={toY(10 ** power)} />
          <text x={PLOT.left - 8} y={toY(10 ** power) + 4} text-anchor="end">
            {words(power)}
          </text>
        </g>
      ))}
      <text x={(PLOT.left + PLOT.right) / 2} y={H - 8} text-anchor="middle">
        operations a byte
      </text>
      <text
        x={14}
        y={(PLOT.top + PLOT.bottom) / 2}
        text-anchor="middle"
        transform={`rotate(-90 14 ${(PLOT.top + PLOT.bottom) / 2})`}
      >
        GFLOP/s
      </text>
      <polyline
        class="bench-limit"
        points={`${toX(10 ** x0)},${toY(rate * 10 ** x0)} ${toX(ridge)},${toY(rate * ridge)} ${toX(10 ** x1)},${toY(Math.min(most, rate * 10 ** x1))}`}
      />
      {points.map(({ label, x, y }, i) => (
        <g key={label}>
          <circle class="bench-point" cx={toX(x)} cy={toY(y)} r={9}>
            <title>{`${label}: ${x.toPrecision(3)} operations a byte, ${y.toPrecision(3)} GFLOP/s`}</title>
          </circle>
          <text class="bench-number" x={toX(x)} y={toY(y) + 4} text-anchor="middle">
            {i + 1}
          </text>
        </g>
      ))}
    </svg>
  );
}
