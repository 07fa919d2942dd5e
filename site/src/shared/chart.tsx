/**
 * Draws line, point and bar charts with uPlot. A chart is a canvas, so its caption must describe it in words.
 *
 * @module
 */
import 'uplot/dist/uPlot.min.css';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import { color, useTheme } from './colors.js';

/** Writes a value of an axis or the legend. uPlot itself rounds to three decimals even for smaller values. */
function figure(value: number | null | undefined): string {
  if (value === null || value === undefined) return '';
  const size = Math.abs(value);
  return size > 0 && size < 0.001
    ? value.toExponential(size === 10 ** Math.round(Math.log10(size)) ? 0 : 2)
    : value.toLocaleString('en', { maximumSignificantDigits: 6 });
}

/** One row of values of a chart. */
export interface Series {
  readonly label: string;
  /** As many values as the chart's `x`. A missing value is null. */
  readonly values: ArrayLike<number | null>;
  readonly as?: 'line' | 'points' | 'bars';
  /** Draws the line dashed. */
  readonly dashed?: boolean;
}

/** The colors of series, as style.css has them. Later series have them again, dashed. */
const COLORS = 5;

/** The height of a chart without its legend, in pixels, as style.css has it too. */
const HEIGHT = 280;

/** Writes the labels of ticks. uPlot passes null for a tick without a label. */
const ticks = (_: uPlot, splits: readonly (number | null)[]): string[] =>
  splits.map((at) => (at === null ? '' : figure(at)));

/**
 * A chart that is as wide as its container. Where only values change, it is not made anew.
 *
 * @param x - the ascending values of the x axis
 * @param logX, logY - make the axes logarithmic; values of 0 and below are then not drawn
 * @param label - describes the chart for screen readers
 */
export function Chart(props: {
  readonly x: ArrayLike<number>;
  readonly series: readonly Series[];
  readonly label: string;
  readonly xLabel?: string;
  readonly yLabel?: string;
  readonly logX?: boolean;
  readonly logY?: boolean;
}) {
  const place = useRef<HTMLDivElement>(null);
  const theme = useTheme();
  const { x, series, xLabel = '', yLabel = '', logX = false, logY = false } = props;
  const chart = useRef<uPlot | undefined>(undefined);
  const data = useMemo(
    () =>
      [
        Array.from(x),
        ...series.map(({ values }) => Array.from(values, (v) => (logY && v !== null && v <= 0 ? null : v))),
      ] as uPlot.AlignedData,
    [x, series, logY],
  );
  const latest = useRef(data);
  latest.current = data;
  const looks = JSON.stringify(series.map(({ values: _, ...look }) => look));
  useEffect(() => {
    const home = place.current!;
    const grid = { stroke: color('line'), width: 1 };
    const axis = { stroke: color('muted'), grid, ticks: grid };
    const options: uPlot.Options = {
      width: Math.max(120, home.clientWidth),
      height: HEIGHT,
      ...(logX && { padding: [null, 36, null, null] }), // a label such as 1,000,000 ends past the last tick
      // A logarithmic axis would go on to the next power of ten.
      scales: {
        x: { time: false, distr: logX ? 3 : 1, ...(logX && { range: (_, from, to) => [from, to] }) },
        y: { distr: logY ? 3 : 1 },
      },
      axes: [
        { ...axis, label: xLabel, ...(logX && { values: ticks }) },
        { ...axis, label: yLabel, size: 64, ...(logY && { values: ticks }) },
      ],
      cursor: { points: { size: 7 } },
      series: [
        { label: xLabel || 'x', value: (_, value: number | null) => figure(value) },
        ...series.map(({ label, as = 'line', dashed }, i): uPlot.Series => {
          const stroke = color(`s${(i % COLORS) + 1}`);
          return {
            label,
            stroke,
            value: (_, value: number | null) => figure(value),
            width: as === 'points' ? 0 : 2,
            ...((dashed || i >= COLORS) && { dash: [6, 4] }),
            ...(as === 'bars' && { fill: stroke, paths: uPlot.paths.bars!({ size: [0.7, 60] }) }),
            points: { show: as === 'points', size: 6, fill: stroke },
          };
        }),
      ],
    };
    const watch = new ResizeObserver(() =>
      chart.current?.setSize({ width: Math.max(120, home.clientWidth), height: HEIGHT }),
    );
    // Each chart is made in a task of its own, so that a page with many of them does not stop.
    const timer = setTimeout(() => {
      chart.current = new uPlot(options, latest.current, home);
      watch.observe(home);
    });
    return () => {
      clearTimeout(timer);
      watch.disconnect();
      chart.current?.destroy();
      chart.current = undefined;
    };
  }, [looks, xLabel, yLabel, logX, logY, theme]);
  useEffect(() => {
    if (chart.current?.data !== data) chart.current?.setData(data);
  }, [data]);
  return (
    <div ref={place} class="chart" role="img" aria-label={props.label}>
      <noscript>{props.label}</noscript>
    </div>
  );
}
