/**
 * Step 2b of RoPE: cos and sin of every angle, times the magnitude and the sign of the direction.
 *
 * The default recipe computes angles in float64 and rounds cos and sin once, so that accuracy does not fall with the
 * position. The named recipes reproduce the arithmetic of a peer bit for bit, which is less accurate.
 *
 * @module
 */
import { checkName, fitsFloat32, readName } from '../../core/arguments.js';
import { newArray } from '../../core/dtypes.js';
import { fail, refuse } from '../../core/errors.js';
import { hostOf, type Tensor } from '../../core/tensor.js';
import type { PairAxes } from './axes.js';
import {
  type FrequencyOptions,
  MAX_POSITION,
  NOT_FINITE,
  type RopeFrequencies,
  readFrequencyOptions,
  ropeFrequencies,
} from './frequencies.js';
import { type AngleRecipe, ggmlRecipe, hfRecipe } from './recipes.js';

/**
 * The arithmetic of angles.
 *
 * - `float64`: position × invFreq in float64 (the default)
 * - `ggml-f32`: ggml's CPU backend: θ multiplied by a constant from pair to pair, in f32
 * - `hf-f32`: HuggingFace transformers: inv_freq and the product in f32
 */
export type TableRecipe = 'float64' | 'ggml-f32' | 'hf-f32';

/** The dtype of the finished table. */
export type TableDtype = 'f32' | 'f64';

/** Cosines and sines, one row for each distinct token position, one column for each pair. */
export interface RopeTable {
  /** The number of rows. */
  readonly rows: number;
  /** The number of columns, rotaryDim / 2. */
  readonly pairs: number;
  /** `[rows, pairs]`, dense. */
  readonly cos: Float32Array | Float64Array;
  /** `[rows, pairs]`, dense; negated for the backward direction. */
  readonly sin: Float32Array | Float64Array;
}

/** Options of {@link buildTable}. */
export interface TableOptions extends FrequencyOptions {
  readonly recipe?: TableRecipe;
  /** The dtype of the table. Default: f32. */
  readonly tableDtype?: TableDtype;
  /** −1 gives the transpose, for gradients. Default: 1. */
  readonly sign?: 1 | -1;
}

/**
 * Builds the table for a list of token positions.
 *
 * @param positions - `[numAxes, rows]`, integers, dense; row r has position `positions[a · rows + r]` on axis a
 * @param options - frequencies (with the exponents of `axes`), recipe, dtype and direction
 * @returns a fresh table of as many rows as `positions` has
 * @throws {RopewalkError} UNSUPPORTED for scaling that a recipe's peer does not have; others as {@link ropeFrequencies}
 */
export function buildTable(positions: Float64Array, axes: PairAxes, options: TableOptions): RopeTable {
  const pairs = axes.axisOfPair.length;
  const rows = positions.length / axes.numAxes;
  const most = Math.floor(MAX_ENTRIES / pairs);
  if (rows > most)
    fail(
      'RANGE',
      'rope: positions',
      `${rows} tokens are too many for one plan of ${pairs} pairs. Plan ${most} at a time.`,
    );
  const dtype = readName(options.tableDtype ?? 'f32', ['f32', 'f64'], 'rope: table_dtype');
  const angles = new Float64Array(pairs);
  const { fillAngles, magnitude } = recipeFor(axes, options);
  if (!fitsFloat32(magnitude)) refuse('RANGE', 'rope: attention_factor', 'a finite number', magnitude);
  // Angles must be finite, because cos and sin of an infinity are NaN. They grow with the position, so the largest
  // position decides.
  fillAngles(new Float64Array(axes.numAxes).fill(MAX_POSITION), angles);
  if (!angles.every(Number.isFinite)) fail('RANGE', `rope: recipe ${options.recipe}`, `angles are ${NOT_FINITE}`);
  const cos = newArray(dtype, rows * pairs);
  const sin = newArray(dtype, rows * pairs);
  const signed = magnitude * (options.sign ?? 1);
  const exact = options.recipe === undefined || options.recipe === 'float64';
  if (exact && cos instanceof Float32Array && rows >= 2 * RUN && isRun(positions, axes.numAxes)) {
    const first = Float64Array.from({ length: axes.numAxes }, (_position, a) => positions[a * rows]!);
    fillRun(first, { cos, sin, rows, pairs, fillAngles, magnitude, signed });
    return { rows, pairs, cos, sin };
  }
  // The recipes round the bare cosine to f32 before the magnitude multiplies it, as their peers do.
  const round = exact ? (x: number) => x : Math.fround;
  const rowPositions = new Float64Array(axes.numAxes);
  for (let r = 0; r < rows; r++) {
    for (let a = 0; a < axes.numAxes; a++) rowPositions[a] = positions[a * rows + r]!;
    fillAngles(rowPositions, angles);
    for (let j = 0; j < pairs; j++) {
      cos[r * pairs + j] = round(Math.cos(angles[j]!)) * magnitude;
      sin[r * pairs + j] = round(Math.sin(angles[j]!)) * signed;
    }
  }
  return { rows, pairs, cos, sin };
}

/** The most entries of a table, rows × pairs: 2 GiB of cos and sin in f32. */
const MAX_ENTRIES = 2 ** 28;

/** The number of rows that share one evaluation of cos and sin in {@link fillRun}. */
const RUN = 64;

/** Says whether the position of each axis grows by one from row to row. */
function isRun(positions: Float64Array, numAxes: number): boolean {
  const rows = positions.length / numAxes;
  for (let a = 0; a < numAxes; a++) {
    for (let r = 1; r < rows; r++) if (positions[a * rows + r] !== positions[a * rows]! + r) return false;
  }
  return true;
}

interface Run extends AngleRecipe, RopeTable {
  /** The magnitude times the sign of the direction. */
  readonly signed: number;
}

/**
 * Fills a table of consecutive positions by adding angles: row 64·a + b has the angle of row 64·a plus that of b steps.
 *
 * Both are evaluated, so errors do not accumulate. The sum formulas round three times, 4e-16, which f32 does not show;
 * the product of position and frequency has an error of 1.1e-16 of the angle in any case. An entry takes 5 ns instead of
 * the 24 ns of its own cos and sin (4096 × 64, AMD EPYC).
 *
 * @param first - the first row's position on each axis
 */
function fillRun(first: Float64Array, { cos, sin, rows, pairs, fillAngles, magnitude, signed }: Run): void {
  const angles = new Float64Array(pairs);
  const evaluate = (position: Float64Array, c: Float64Array, s: Float64Array, at: number): void => {
    fillAngles(position, angles);
    for (let j = 0; j < pairs; j++) {
      c[at + j] = Math.cos(angles[j]!);
      s[at + j] = Math.sin(angles[j]!);
    }
  };
  const stepCos = new Float64Array(RUN * pairs);
  const stepSin = new Float64Array(RUN * pairs);
  for (let b = 0; b < RUN; b++) evaluate(new Float64Array(first.length).fill(b), stepCos, stepSin, b * pairs);
  const baseCos = new Float64Array(pairs);
  const baseSin = new Float64Array(pairs);
  for (let start = 0; start < rows; start += RUN) {
    const positions = first.map((position) => position + start);
    evaluate(positions, baseCos, baseSin, 0);
    const end = Math.min(RUN, rows - start);
    for (let b = 0; b < end; b++) {
      const step = b * pairs;
      const at = (start + b) * pairs;
      for (let j = 0; j < pairs; j++) {
        const c0 = baseCos[j]!;
        const s0 = baseSin[j]!;
        const c1 = stepCos[step + j]!;
        const s1 = stepSin[step + j]!;
        cos[at + j] = (c0 * c1 - s0 * s1) * magnitude;
        sin[at + j] = (s0 * c1 + c0 * s1) * signed;
      }
    }
  }
}

function recipeFor(axes: PairAxes, options: TableOptions): AngleRecipe {
  const { recipe = 'float64', tableDtype: _tableDtype, sign: _sign, ...rest } = options;
  switch (recipe) {
    case 'float64':
      return productRecipe(axes, ropeFrequencies(rest));
    case 'hf-f32':
      return hfRecipe(axes, readFrequencyOptions(rest, 'rope'));
    case 'ggml-f32':
      return ggmlRecipe(axes, readFrequencyOptions(rest, 'rope'));
    default:
      return refuse('UNSUPPORTED', 'rope: recipe', 'float64, ggml-f32 or hf-f32', recipe satisfies never);
  }
}

function productRecipe(axes: PairAxes, { invFreq, attentionFactor }: RopeFrequencies): AngleRecipe {
  return {
    magnitude: attentionFactor,
    fillAngles(position, angles) {
      for (let j = 0; j < angles.length; j++) angles[j] = position[axes.axisOfPair[j]!]! * invFreq[j]!;
    },
  };
}

/**
 * Makes a table of tensors with cos and sin, whose values are used unchanged.
 *
 * @param cos - `[…, pairs]`, any float dtype and strides, in host memory; all dimensions but the last are rows
 * @param sin - same shape and dtype
 * @param op - the operator's name in messages
 * @returns a copy: f64 for f64 tensors, else f32, which holds f16 and bf16 exactly
 * @throws {RopewalkError} DEVICE when they are not in host memory; SHAPE when cos has no dimension
 */
export function tableFromTensors(cos: Tensor, sin: Tensor, op = 'rope'): RopeTable {
  checkName(op, 'op', 'the operator');
  hostOf(cos, `${op}: cos`);
  hostOf(sin, `${op}: sin`);
  if (cos.rank === 0) refuse('SHAPE', `${op}: cos`, 'at least one dimension', cos.shape);
  const pairs = cos.shape.at(-1)!;
  const take = (tensor: Tensor): Float32Array | Float64Array => {
    const values = tensor.readNumbers() as Float64Array;
    return tensor.dtype === 'f64' ? values : Float32Array.from(values);
  };
  return { rows: pairs === 0 ? 0 : cos.size / pairs, pairs, cos: take(cos), sin: take(sin) };
}
