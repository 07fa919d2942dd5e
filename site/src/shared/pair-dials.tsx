/** Shows one head as cells, and each of its pairs as a dial that turns with the position. @module */
import './pair-dials.css';
import { rotated } from './rotate.js';

/** Returns a color for each pair. All colors have the same lightness. */
const hue = (j: number, pairs: number): string => `oklch(0.66 0.14 ${Math.round((360 * j) / pairs + 30)})`;

/** Returns the dimensions of pair j. */
export const pairOf = (j: number, dim: number, pairing: 'half' | 'interleaved'): readonly [number, number] =>
  pairing === 'half' ? [j, j + dim / 2] : [2 * j, 2 * j + 1];

/**
 * A head before and after its rotation.
 *
 * @param x - the head before the rotation, `[head_dim]`
 * @param pairing - says which dimensions turn together
 * @param y - the head after another rotation. Default: after the right one
 */
export function PairDials(props: {
  readonly x: Float64Array;
  readonly position: number;
  readonly pairing: 'half' | 'interleaved';
  readonly base?: number;
  readonly y?: Float64Array;
}) {
  const { x, position, pairing, base = 10000 } = props;
  const dim = x.length;
  const pairs = dim / 2;
  const y = props.y ?? rotated(x, position, { pairing, base });
  const most = Math.max(...Array.from(x, Math.abs)) * Math.SQRT2;
  const W = 640;
  const cell = W / dim;
  const middle = (i: number): number => (i + 0.5) * cell;
  const size = W / pairs;
  const r = size * 0.4;
  const name = pairing === 'half' ? `(j, j + ${pairs})` : '(2j, 2j + 1)';
  return (
    <svg
      class="dials"
      viewBox={`0 0 ${W} ${130 + size}`}
      role="img"
      aria-label={`${dim} dimensions in ${pairs} pairs ${name} at position ${position}; the first pair points to ${y[0]!.toFixed(2)}, ${y[pairOf(0, dim, pairing)[1]]!.toFixed(2)}`}
    >
      {Array.from(y, (value, i) => {
        const j = pairing === 'half' ? i % pairs : i >> 1;
        const height = (Math.abs(value) / most) * 38;
        return (
          <g key={i}>
            <rect class="dials-cell" x={i * cell + 1} y={0} width={cell - 2} height={80} rx={4} />
            <rect
              x={i * cell + cell * 0.2}
              y={value < 0 ? 40 : 40 - height}
              width={cell * 0.6}
              height={Math.max(height, 0.5)}
              fill={hue(j, pairs)}
            />
          </g>
        );
      })}
      <line class="dials-zero" x1={0} x2={W} y1={40} y2={40} />
      {Array.from({ length: pairs }, (_, j) => {
        const [a, b] = pairOf(j, dim, pairing);
        const cx = (j + 0.5) * size;
        const cy = 124 + size / 2;
        const point = (v: Float64Array): readonly [number, number] => [
          cx + (v[a]! / most) * r,
          cy - (v[b]! / most) * r,
        ];
        const [nx, ny] = point(y);
        const [ox, oy] = point(x);
        return (
          <g key={j} stroke={hue(j, pairs)} fill="none" stroke-width={2}>
            {[a, b].map((i) => (
              <path key={i} d={`M${middle(i)} 82 C${middle(i)} 106 ${cx} 96 ${cx} ${cy - r}`} opacity={0.7} />
            ))}
            <circle class="dials-face" cx={cx} cy={cy} r={r} />
            <line x1={cx} y1={cy} x2={ox} y2={oy} stroke-dasharray="3 3" opacity={0.6} />
            <line x1={cx} y1={cy} x2={nx} y2={ny} stroke-width={3.5} stroke-linecap="round" />
            <circle cx={nx} cy={ny} r={3.5} fill={hue(j, pairs)} />
          </g>
        );
      })}
    </svg>
  );
}
