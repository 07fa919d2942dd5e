/** Results rounded to the values of a quantised cache, int8 and int4 with a scale of their own or 8-bit floats, or cut to a range. @module */
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
/** So many elements at a limit are not there by chance. */
const LEAST_CUT = 3;
const LEVELS = {
  127: 'at most 255 values, as int8 does',
  8: 'at most 16 values, as int4 does',
  7: 'at most 15 values, as int4 does',
};

/** 8-bit floats: the bits of the fraction, the exponent of the least normal number, the largest number. */
const FLOATS = [
  { name: 'f8_e4m3', bits: 3, least: -6, largest: 448 },
  { name: 'f8_e5m2', bits: 2, least: -14, largest: 57344 },
];

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
  if (found) return `y has ${found}; the results are right but for the rounding to them.`;
  return otherScaleWords(right) ?? cutWords(right);
}

/** Recognises right results of which those beyond a limit are at the limit; undefined if they are not. */
function cutWords(right: RightRows): string | undefined {
  const { headDim, y } = right.heads;
  const [made, noise] = [new Float64Array(headDim), new Float64Array(headDim)];
  let [low, high, below, above] = [Infinity, -Infinity, 0, 0];
  for (const value of y) [low, high] = [Math.min(low, value), Math.max(high, value)];
  for (let n = 0; n < y.length; n++) {
    if (n % headDim === 0) right.fill(n / headDim, made, noise);
    const [value, off] = [made[n % headDim]!, noise[n % headDim]!];
    if (value < low - off) below++;
    if (value > high + off) above++;
    if (!(Math.abs(y[n]! - Math.min(high, Math.max(low, value))) <= off)) return undefined;
  }
  if (low === high || [below, above].some((count) => count > 0 && count < LEAST_CUT)) return undefined;
  const limits = [below > 0 ? `below ${low}` : '', above > 0 ? `above ${high}` : ''].filter((one) => one !== '');
  return `y is cut off ${limits.join(' and ')}: ${below + above} elements that should lie beyond are at the limit; the others are right.`;
}

/** Names the only values that y has, whatever they should be; undefined if they are those of no quantised cache. */
export function quantisedValues({ y, headDim, dtype }: Pick<Quantised, 'y' | 'headDim' | 'dtype'>): string | undefined {
  const isOnly = ({ block, stepOf }: Grid): boolean => {
    if (block === y.length || headDim % block !== 0) return false;
    for (let n = 0; n < y.length; n += block) if (stepOf(widened(y.subarray(n, n + block))) === undefined) return false;
    return true;
  };
  return gridsOf(y.length, headDim, OFF[dtype]).find(isOnly)?.words;
}

/** Recognises whole numbers of a head's own scale that were multiplied by another; undefined if they were not. */
function otherScaleWords(right: RightRows): string | undefined {
  const { seq, heads, headDim, y, dtype } = right.heads;
  if (OFF[dtype] === 0) return undefined;
  const [made, noise] = [new Float64Array(headDim), new Float64Array(headDim)];
  const rows = y.length / headDim;
  const [own, used] = [new Float64Array(rows), new Float64Array(rows)];
  const isScaled = (r: number, levels: number): boolean => {
    right.fill(r, made, noise);
    const row = widened(y.subarray(r * headDim, (r + 1) * headDim));
    const [scale, step] = [largest(made) / levels, largest(row) / levels];
    own[r] = scale;
    used[r] = step;
    return row.every((value, i) => {
      const whole = Math.round(value / step);
      return (
        Math.abs(value / step - whole) <= OFF[dtype] && Math.abs(whole - made[i]! / scale) <= HALF + noise[i]! / scale
      );
    });
  };
  const others: [words: string, from: (r: number) => number][] = [
    ['head 0', (r) => r - (r % heads)],
    ['token 0', (r) => r - heads * (Math.floor(r / heads) % seq)],
    ['the token before', (r) => r - heads],
    ['the next token', (r) => r + heads],
  ];
  for (let by = 1; by < heads; by++)
    others.push([`head (h + ${by}) mod ${heads}`, (r) => r - (r % heads) + ((r + by) % heads)]);
  for (const [levels, words] of Object.entries(LEVELS)) {
    if (!Array.from(own.keys()).every((r) => isScaled(r, Number(levels)))) continue;
    const isOf = (from: (r: number) => number): boolean =>
      used.every((step, r) => !(Math.abs(step / (own[from(r)] ?? step) - 1) > 1e-3));
    const rule = others.find(([, from]) => isOf(from))?.[0];
    const whose = rule ? `that of ${rule}` : 'another';
    return `Each head of y has ${words}, rounded with its own scale and multiplied by ${whose}.`;
  }
  return undefined;
}

/** Names the grid that explains how results differ from what they would be; undefined if none does. */
export function gridOf(quantised: Quantised): string | undefined {
  const { y, headDim, dtype } = quantised;
  return gridsOf(y.length, headDim, OFF[dtype]).find((grid) => holds(grid, quantised))?.words;
}

function gridsOf(size: number, headDim: number, off: number): Grid[] {
  const blocks = off > 0 ? [32, 64, headDim, size] : []; // a narrow float holds no multiples of a scale
  const whole = blocks.flatMap((block) =>
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
  const floats = FLOATS.map(
    ({ name, bits, least, largest }): Grid => ({
      words: `values of ${name}`,
      block: headDim,
      stepOf: (values) => (values.every((value) => isOnGrid(value, bits, least, largest)) ? 0 : undefined),
      error: (value) => 2 ** -(bits + 1) * Math.abs(value) + 2 ** (least - bits - 1),
    }),
  );
  return [...whole, ...floats];
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

/** Whether a value has so many bits after the leading one, and fewer below 2^least. */
function isOnGrid(value: number, bits: number, least: number, largest: number): boolean {
  const step = 2 ** (Math.max(Math.floor(Math.log2(Math.abs(value))), least) - bits);
  return value === 0 || (Math.abs(value) <= largest && Number.isInteger(value / step));
}
