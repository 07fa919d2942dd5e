/** A heat map on a canvas, with the value under the pointer or the arrow keys in words. @module */
import { useEffect, useRef, useState } from 'preact/hooks';
import { color, useTheme } from './colors.js';

/**
 * The scale of the colors: from zero to large values, from negative values through zero to positive ones, or by how much
 * an error is beyond its tolerance, where zero is grey.
 */
export type HeatScale = 'magnitude' | 'signed' | 'excess';

/** The name of an axis of a map, and the labels of its first and last cell. */
export interface HeatAxis {
  readonly name: string;
  readonly first: string;
  readonly last: string;
}

/** The values, row by row. */
export interface HeatValues {
  readonly values: ArrayLike<number>;
  readonly rows: number;
  readonly columns: number;
}

const RAMPS: Readonly<Record<HeatScale, readonly (readonly [number, number, number])[]>> = {
  // These have equal steps in lightness, so that they can be told apart without colors.
  magnitude: [
    [10, 20, 40],
    [20, 80, 110],
    [30, 140, 120],
    [140, 190, 80],
    [250, 225, 90],
  ],
  signed: [
    [40, 70, 190],
    [120, 160, 225],
    [238, 238, 235],
    [235, 150, 110],
    [190, 50, 40],
  ],
  excess: [
    [250, 225, 90],
    [240, 160, 60],
    [205, 70, 45],
    [130, 20, 60],
  ],
};
/** The color of values within their tolerance. */
const WELL = [150, 155, 160] as const;

/** The rows and columns by which a key moves. */
const ARROWS: Readonly<Record<string, readonly [number, number]>> = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
};

function rampAt(ramp: (typeof RAMPS)[HeatScale], t: number): readonly [number, number, number] {
  const at = Math.min(Math.max(t, 0), 1) * (ramp.length - 1);
  const i = Math.min(Math.floor(at), ramp.length - 2);
  const [a, b] = [ramp[i]!, ramp[i + 1]!];
  const part = at - i;
  return [a[0] + (b[0] - a[0]) * part, a[1] + (b[1] - a[1]) * part, a[2] + (b[2] - a[2]) * part];
}

/**
 * Draws each value as one pixel on a canvas. Values that are not finite get the theme's color for errors.
 *
 * @param limit - the value at the end of the ramp. Default: the largest magnitude
 */
export function drawHeat(
  canvas: HTMLCanvasElement,
  { values, rows, columns, scale, limit }: HeatValues & { readonly scale: HeatScale; readonly limit?: number },
): void {
  const context = canvas.getContext('2d')!;
  let most = limit ?? 0;
  if (limit === undefined)
    for (let i = 0; i < values.length; i++) if (Number.isFinite(values[i])) most = Math.max(most, Math.abs(values[i]!));
  const wrong = (color('bad').match(/\d+(\.\d+)?/g) ?? ['255', '0', '0']).map(Number);
  const image = context.createImageData(columns, rows);
  for (let i = 0; i < rows * columns; i++) {
    const value = values[i]!;
    const t = most === 0 ? 0 : value / most;
    let rgb: ArrayLike<number> = wrong;
    if (scale === 'excess' && value === 0) rgb = WELL;
    else if (Number.isFinite(value)) rgb = rampAt(RAMPS[scale], scale === 'signed' ? (t + 1) / 2 : Math.abs(t));
    image.data.set([rgb[0]!, rgb[1]!, rgb[2]!, 255], 4 * i);
  }
  context.putImageData(image, 0, 0);
}

/** The colors of a map from one end of its scale to the other, with the values there. */
function ColorBar({ scale, ends }: { readonly scale: HeatScale; readonly ends: readonly [string, string] }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const theme = useTheme();
  useEffect(() => {
    const values = Array.from({ length: 64 }, (_, n) => (scale === 'signed' ? n / 31.5 - 1 : n / 63));
    drawHeat(canvas.current!, { values, rows: 1, columns: 64, scale, limit: 1 });
  }, [scale, theme]);
  return (
    <p class="heat-bar">
      <span>{ends[0]}</span>
      <canvas ref={canvas} width={64} height={1} />
      <span>{ends[1]}</span>
    </p>
  );
}

/**
 * A heat map with its axes and its scale.
 *
 * @param values - rows × columns, row by row; values that are not finite get the theme's color for errors
 * @param limit - the value at the end of the ramp. Default: the largest magnitude
 * @param x - the axis of the columns
 * @param y - the axis of the rows
 * @param ends - the values at both ends of the scale, in words
 * @param label - describes the map for screen readers
 * @param wordsOf - describes a cell in words, for the line below the map
 */
export function HeatMap(props: {
  readonly values: ArrayLike<number>;
  readonly rows: number;
  readonly columns: number;
  readonly scale: HeatScale;
  readonly limit?: number;
  readonly x: HeatAxis;
  readonly y: HeatAxis;
  readonly ends: readonly [string, string];
  readonly label: string;
  readonly wordsOf: (row: number, column: number, value: number) => string;
  readonly onCell?: (row: number, column: number) => void;
}) {
  const { values, rows, columns, scale, limit, x, y, ends } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const [words, setWords] = useState('');
  const cell = useRef<readonly [row: number, column: number]>([0, 0]);
  const theme = useTheme();
  useEffect(() => {
    drawHeat(canvas.current!, { values, rows, columns, scale, ...(limit !== undefined && { limit }) });
  }, [values, rows, columns, scale, limit, theme]);
  const cellAt = (event: PointerEvent | MouseEvent): readonly [number, number] => {
    const box = canvas.current!.getBoundingClientRect();
    const at = (from: number, size: number, count: number): number =>
      Math.min(count - 1, Math.max(0, Math.floor((from / size) * count)));
    return [at(event.clientY - box.top, box.height, rows), at(event.clientX - box.left, box.width, columns)];
  };
  const show = (row: number, column: number): void => {
    cell.current = [row, column];
    setWords(props.wordsOf(row, column, values[row * columns + column]!));
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const [down, right] = ARROWS[event.key] ?? [0, 0];
    const [row, column] = cell.current;
    if (event.key === 'Enter') props.onCell?.(row, column);
    else if (down !== 0 || right !== 0)
      show(Math.min(rows - 1, Math.max(0, row + down)), Math.min(columns - 1, Math.max(0, column + right)));
    else return;
    event.preventDefault();
  };
  return (
    <>
      <div class="heat-frame">
        <p class="heat-axis y" aria-hidden="true">
          <span>{y.first}</span>
          <span>{y.name}</span>
          <span>{y.last}</span>
        </p>
        <canvas
          ref={canvas}
          class="heat"
          width={columns}
          height={rows}
          role="img"
          aria-label={props.label}
          tabIndex={0}
          onKeyDown={onKeyDown}
          onPointerDown={(event) => show(...cellAt(event))}
          onPointerMove={(event) => show(...cellAt(event))}
          onClick={(event) => props.onCell?.(...cellAt(event))}
        />
        <p class="heat-axis" aria-hidden="true">
          <span>{x.first}</span>
          <span>{x.name}</span>
          <span>{x.last}</span>
        </p>
      </div>
      <ColorBar scale={scale} ends={ends} />
      <p class="mono heat-words" role="status">
        {words || 'Point at a cell to read it, or go there with the arrow keys.'}
      </p>
    </>
  );
}
