/** Results that were rounded to the values of a quantised cache: int8 and int4 with a scale of their own, 8-bit floats. @module */
import type { FloatDtype } from 'ropewalk';
import type { RightRows } from '../kernel/right-rows.js';
import { type Values, widened } from '../read/observation.js';

/** The values that a cache can hold. */
interface Grid {
  readonly words: string;
  /** The number of neighbouring elements that share a scale. */
  readonly block: number;
  /** Returns the step of a block; undefined if a value is off the grid. */
  stepOf(values: Float64Array): number | undefined;
  /** The largest error of a right result. */
  error(right: number, step: number): number;
}

/** How far a value of y may be off the grid, in steps: f16 rounds the products of whole numbers and the scale. */
const OFF = { f64: 1e-3, f32: 1e-3, f16: 0.1, bf16: 0 };
/** A little more than half a step, because the scale of a block is rounded to f16. */
const HALF = 0.52;
const LEVELS = { 127: '255 values, as int8 does', 8: '16 values, as int4 does', 7: '15 values, as int4 does' };

/** Results to hold against the grids, and what they would be without one. */
export interface Quantised {
  /** `[rows, head_dim]` */
  readonly y: Values;
  readonly headDim: number;
  readonly dtype: FloatDtype;
  /** Writes a row as it would be, and the noise of each element. */
  fill(row: number, made: Float64Array, noise: Float64Array): void;
}

/** Recognises a right rotation whose results were quantised; undefined if it is none. */
export function quantisedWords(right: RightRows): string | undefined {
  const { y, headDim, rows, dtype } = right.heads;
  if (rows.length * headDim !== y.length) return undefined;
  const found = gridOf({ y, headDim, dtype, fill: (row, made, noise) => right.fill(row, made, noise) });
  return found && `y has only ${found}; the results are right but for the rounding to them.`;
}

/** Names the grid that explains how results differ from what they would be; undefined if none does. */
export function gridOf(quantised: Quantised): string | undefined {
  const { y, headDim, dtype } = quantised;
  if (OFF[dtype] === 0) return undefined;
  return gridsOf(y.length, headDim, OFF[dtype]).find((grid) => holds(grid, quantised))?.words;
}

function gridsOf(size: number, headDim: number, off: number): Grid[] {
  const whole = [32, 64, headDim, size].flatMap((block) =>
    Object.entries(LEVELS).map(([levels, words]): Grid => {
      const place = block === size ? '' : block === headDim ? ' in each head' : ` in each block of ${block} elements`;
      return {
        words: `${words.replace(',', `${place},`)}`,
        block,
        stepOf(values) {
          const step = largest(values) / Number(levels);
          return step === 0 || values.every((v) => Math.abs(v / step - Math.round(v / step)) <= off) ? step : undefined;
        },
        error: (_right, step) => HALF * step,
      };
    }),
  );
  const e4m3: Grid = {
    words: 'values of f8_e4m3',
    block: headDim,
    stepOf: (values) => (values.every(isE4m3) ? 0 : undefined),
    error: (value) => 2 ** -4 * Math.abs(value) + 2 ** -10,
  };
  return [...whole, e4m3];
}

function holds({ block, stepOf, error }: Grid, { y, headDim, fill }: Quantised): boolean {
  if (y.length % block !== 0 || (block < y.length && headDim % block !== 0)) return false;
  // A grid for all of y has few values; most y are ruled out by their first elements.
  if (block === y.length && new Set(y.subarray(0, 1024)).size > 256) return false;
  const [made, noise] = [new Float64Array(headDim), new Float64Array(headDim)];
  let step = 0;
  for (let n = 0; n < y.length; n++) {
    if (n % block === 0) {
      const one = stepOf(widened(y.subarray(n, n + block)));
      if (one === undefined) return false;
      step = one;
    }
    if (n % headDim === 0) fill(n / headDim, made, noise);
    const value = made[n % headDim]!;
    if (!(Math.abs(y[n]! - value) <= error(value, step) + noise[n % headDim]!)) return false;
  }
  return true;
}

function largest(values: Float64Array): number {
  return values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
}

function isE4m3(value: number): boolean {
  const step = 2 ** (Math.max(Math.floor(Math.log2(Math.abs(value))), -6) - 3);
  return value === 0 || (Math.abs(value) <= 448 && Number.isInteger(value / step));
}
