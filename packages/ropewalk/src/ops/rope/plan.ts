/**
 * RoPE's plan: everything that does not depend on the tensors, checked once and reused for all layers and heads, q and k.
 *
 * @module
 */
import { checkInteger, type OptionNames, readList, readName, readOptions } from '../../core/arguments.js';
import { type HostArray, newArray } from '../../core/dtypes.js';
import { fail, refuse } from '../../core/errors.js';
import { readIntegers, Tensor, tensorFrom } from '../../core/tensor.js';
import { CHECKED, checkedPlan } from '../checks.js';
import { type RopeAxes, sharePairs } from './axes.js';
import {
  FREQUENCY_NAMES,
  type FrequencyOptions,
  HEAD_DIM_LIMIT,
  MAX_POSITION,
  type RopeFrequencies,
  ropeFrequencies,
} from './frequencies.js';
import { buildTable, type RopeTable, type TableDtype, type TableRecipe } from './table.js';

/**
 * The two dimensions that form pair j of the rotated window, R = rotaryDim.
 *
 * ```
 * interleaved          (2j, 2j+1)        R = 4 of 6 → [c s c s . .]   ggml NORMAL, GPT-J
 * half                 (j, j + R/2)      R = 4 of 6 → [c c s s . .]   ggml NEOX, Llama in HuggingFace
 * vision               (j, j + R/2)      half, with exponents that restart in each section (ggml VISION: n_dims = R/2)
 * interleaved-to-half  reads (2j, 2j+1), writes (j, j + R/2)          DeepSeek-V3 in HuggingFace
 * ```
 */
export type Pairing = 'interleaved' | 'half' | 'vision' | 'interleaved-to-half';

/** Element k of pair j is at `step · j + gap · k` of the rotated window. */
export interface PairGeometry {
  readonly step: number;
  readonly gap: number;
}

/**
 * Token positions: a scalar start, or integers `[seq]`, `[batch, seq]`, or with axes `[axes, seq]`, `[axes, batch,
 * seq]`.
 */
export type Positions = number | bigint | readonly number[] | HostArray | Tensor;

/** The RoPE of a model, without the positions. */
export interface RopeSpec extends Omit<FrequencyOptions, 'rotaryDim' | 'exponents'> {
  /** The size of one head. */
  readonly headDim: number;
  /** The number of dimensions that rotate, even; the others are copied. Default: headDim. */
  readonly rotaryDim?: number;
  /** The first dimension of the rotated window. Default: 0. */
  readonly rotaryOffset?: number;
  /** It has no default, as models differ in it. */
  readonly pairing: Pairing;
  /** The position axes of M-RoPE and vision. Default: one axis. */
  readonly axes?: RopeAxes;
}

/** Options of {@link planRope}. */
export interface PlanRopeOptions extends RopeSpec {
  readonly positions: Positions;
  /** The number of tokens. It is required when `positions` is a scalar; otherwise `positions` gives it. */
  readonly seqLen?: number;
  /** `backward` multiplies by the transpose, for gradients. Default: `forward`. */
  readonly direction?: 'forward' | 'backward';
  /** The arithmetic of angles. Default: `float64`. */
  readonly recipe?: TableRecipe;
  /** The dtype of the table; f64 is for float64 data and for oracles. Default: f32. */
  readonly tableDtype?: TableDtype;
}

/** The source of a plan's table. */
export interface RopeSource {
  readonly spec: RopeSpec;
  readonly recipe: TableRecipe;
  /** `[axes, rows]`: the position of each table row on each axis. */
  readonly positions: Float64Array;
}

/** A checked RoPE, ready to be bound to tensors. Frozen. */
export interface RopePlan {
  readonly headDim: number;
  readonly rotaryDim: number;
  readonly rotaryOffset: number;
  readonly pairing: Pairing;
  readonly direction: 'forward' | 'backward';
  /** The places where pair members are read, and where they are written. */
  readonly read: PairGeometry;
  readonly write: PairGeometry;
  readonly table: RopeTable;
  readonly seqLen: number;
  /** The number of batches with own positions; undefined when all batches share one row of positions. */
  readonly batch: number | undefined;
  /** The table row of each token, `[batch ?? 1, seqLen]`. */
  readonly tableRows: Int32Array;
  /** The source of the table; undefined where the caller gave the table. */
  readonly source: RopeSource | undefined;
}

/** Options of {@link planRopeWithTable}, whose cos and sin the caller has computed. */
export interface TablePlanOptions {
  readonly headDim: number;
  readonly rotaryDim?: number;
  readonly rotaryOffset?: number;
  readonly pairing: Pairing;
  readonly direction?: 'forward' | 'backward';
  /** The values are used unchanged and need not lie on a unit circle. */
  readonly table: RopeTable;
  readonly seqLen: number;
  readonly batch?: number;
  /** The table row of each token, `[batch ?? 1, seqLen]`, within the table (checked). */
  readonly tableRows: ArrayLike<number>;
}

const GEOMETRY = { headDim: true, rotaryDim: true, rotaryOffset: true, pairing: true } as const;
const CALL = { seqLen: true, direction: true } as const;
/** The names of a model's RoPE. */
export const SPEC_NAMES: OptionNames<RopeSpec> = { ...GEOMETRY, ...FREQUENCY_NAMES, axes: true };
const NAMES: OptionNames<PlanRopeOptions> = { ...SPEC_NAMES, ...CALL, positions: true, recipe: true, tableDtype: true };
const TABLE_NAMES: OptionNames<TablePlanOptions> = { ...GEOMETRY, ...CALL, table: true, batch: true, tableRows: true };

/**
 * Checks a RoPE and builds its table.
 *
 * @param options - the model's RoPE, the positions, direction and recipe
 * @returns a frozen plan for {@link bindRope}; reuse it over layers, and for q and k alike
 * @throws {RopewalkError} RANGE, SHAPE, DTYPE or UNSUPPORTED, naming the option
 * @see RoFormer, arXiv:2104.09864, eq. 34
 */
export function planRope(options: PlanRopeOptions): RopePlan {
  const {
    positions: where,
    seqLen,
    direction: way,
    recipe = 'float64',
    tableDtype,
    ...spec
  } = readOptions(options, 'rope: options', NAMES);
  const window = checkWindow(spec);
  const pairs = window.rotaryDim / 2;
  const pairing = checkPairing(spec.pairing);
  const axes = sharePairs(spec.axes, pairs);
  if (pairing === 'vision' && spec.axes?.rule !== 'vision')
    refuse('UNSUPPORTED', 'rope: axes', 'rule vision with sections, as pairing is vision', spec.axes);
  if (seqLen !== undefined) checkInteger(seqLen, 'rope: seq_len', 0);
  const positions = readPositions(where, axes.numAxes, seqLen);
  const direction = checkDirection(way);
  const table = buildTable(positions.values, axes, {
    ...spec,
    rotaryDim: window.rotaryDim,
    frequencyDim: frequencyDimOf(spec, window.rotaryDim),
    exponents: axes.exponents,
    recipe,
    tableDtype,
    sign: direction === 'forward' ? 1 : -1,
  });
  const tableRows = newArray('i32', table.rows);
  for (let r = 0; r < table.rows; r++) tableRows[r] = r;
  const source = Object.freeze({ spec, recipe, positions: positions.values });
  const { seqLen: tokens, batch } = positions;
  return freezePlan(pairing, direction, window, { table, seqLen: tokens, batch, tableRows, source });
}

/**
 * Makes a plan with a table of the caller, as ONNX and InfiniOp have it.
 *
 * @param options - geometry, the table, and the table row of each token
 * @returns a frozen plan; for `backward` with a negated copy of sin
 * @throws {RopewalkError} RANGE, SHAPE, DTYPE or UNSUPPORTED, naming the option; RANGE for a row outside the table
 */
export function planRopeWithTable(options: TablePlanOptions): RopePlan {
  const given = readOptions(options, 'rope: options', TABLE_NAMES);
  const window = checkWindow(given);
  const pairing = checkPairing(given.pairing);
  const { seqLen, batch } = given;
  const table = readOptions(given.table, 'rope: table', { rows: true, pairs: true, cos: true, sin: true });
  checkInteger(table.rows, 'rope: table.rows', 0);
  if (!isTableArray(table.cos) || !isTableArray(table.sin))
    refuse('DTYPE', 'rope: table', 'cos and sin in Float32Arrays or Float64Arrays', [table.cos, table.sin]);
  const pairs = window.rotaryDim / 2;
  const tableLength = table.rows;
  const entries = tableLength * pairs;
  if (table.pairs !== pairs || table.cos.length !== entries || table.sin.length !== entries) {
    const expected = `cos and sin of shape [rows, rotary_dim / 2 = ${pairs}]`;
    refuse('SHAPE', 'rope: table', expected, [tableLength, table.pairs]);
  }
  checkInteger(seqLen, 'rope: seq_len', 0);
  if (batch !== undefined) checkInteger(batch, 'rope: batch', 0);
  const count = (batch ?? 1) * seqLen;
  const expected = `${count} rows, one for each token`;
  const rows = readList(given.tableRows, 'rope: table_rows', expected);
  if (rows.length !== count) refuse('SHAPE', 'rope: table_rows', expected, rows.length);
  for (let n = 0; n < count; n++) {
    const row = rows[n]!;
    if (!Number.isInteger(row) || row < 0 || row >= tableLength) {
      const next = 'Build a longer table, or check the positions.';
      refuse('RANGE', `rope: position ${n}`, `a row of the table, in [0, ${tableLength - 1}]`, row, next);
    }
  }
  const direction = checkDirection(given.direction);
  const signed = direction === 'forward' ? table : { ...table, sin: table.sin.map((s) => -s) };
  const tableRows = Int32Array.from(rows);
  return freezePlan(pairing, direction, window, { table: signed, seqLen, batch, tableRows, source: undefined });
}

/**
 * Computes the frequency of each pair and the magnitude, as {@link planRope} uses them.
 *
 * @param spec - a model's RoPE
 * @throws {RopewalkError} RANGE, SHAPE or UNSUPPORTED, naming the option
 */
export function frequenciesOf(spec: RopeSpec): RopeFrequencies {
  const given = readOptions(spec, 'rope: options', SPEC_NAMES);
  const { rotaryDim } = checkWindow(given);
  const { exponents } = sharePairs(given.axes, rotaryDim / 2);
  return ropeFrequencies({ ...given, rotaryDim, frequencyDim: frequencyDimOf(given, rotaryDim), exponents });
}

/** Gives the denominator of the exponent; each axis of a vision tower has half of the window. */
function frequencyDimOf(spec: RopeSpec, rotaryDim: number): number {
  return spec.frequencyDim ?? (spec.pairing === 'vision' ? rotaryDim / 2 : rotaryDim);
}

interface Window {
  readonly headDim: number;
  readonly rotaryDim: number;
  readonly rotaryOffset: number;
}

function checkWindow(options: { headDim: number; rotaryDim?: number; rotaryOffset?: number }): Window {
  const { headDim, rotaryDim = headDim, rotaryOffset = 0 } = options;
  checkInteger(headDim, 'rope: head_dim', 1, HEAD_DIM_LIMIT);
  if (!Number.isInteger(rotaryDim) || rotaryDim < 2 || rotaryDim > headDim || rotaryDim % 2 !== 0) {
    refuse('RANGE', 'rope: rotary_dim', `an even integer in [2, head_dim=${headDim}]`, rotaryDim);
  }
  checkInteger(rotaryOffset, 'rope: rotary_offset', 0, headDim - rotaryDim, 'head_dim - rotary_dim');
  return { headDim, rotaryDim, rotaryOffset };
}

const checkDirection = (direction: unknown = 'forward'): 'forward' | 'backward' =>
  readName(direction, ['forward', 'backward'], 'rope: direction');

const isTableArray = (array: unknown): array is Float32Array | Float64Array =>
  ArrayBuffer.isView(array) && (array instanceof Float32Array || array instanceof Float64Array);

const checkPairing = (pairing: unknown): Pairing =>
  readName(pairing, ['interleaved', 'half', 'vision', 'interleaved-to-half'], 'rope: pairing');

function freezePlan(
  pairing: Pairing,
  direction: 'forward' | 'backward',
  window: Window,
  rest: Pick<RopePlan, 'table' | 'seqLen' | 'batch' | 'tableRows' | 'source'>,
): RopePlan {
  const interleaved: PairGeometry = { step: 2, gap: 1 };
  const half: PairGeometry = { step: 1, gap: window.rotaryDim / 2 };
  const from = pairing === 'interleaved' || pairing === 'interleaved-to-half' ? interleaved : half;
  const to = pairing === 'interleaved' ? interleaved : half;
  // The transpose reads where the forward direction writes.
  const [read, write] = direction === 'forward' ? [from, to] : [to, from];
  const { headDim, rotaryDim, rotaryOffset } = window;
  const { table, seqLen, batch, tableRows, source } = rest;
  const sizes = { headDim, rotaryDim, rotaryOffset, seqLen, batch };
  return checkedPlan<RopePlan>({
    checked: CHECKED,
    ...sizes,
    pairing,
    direction,
    read,
    write,
    table,
    tableRows,
    source,
  });
}

/** Reads positions as `[numAxes, rows]` numbers. */
function readPositions(
  positions: Positions,
  numAxes: number,
  seqLen: number | undefined,
): { values: Float64Array; seqLen: number; batch: number | undefined } {
  if (typeof positions === 'number' || typeof positions === 'bigint') {
    const start = Number(positions);
    if (!Number.isSafeInteger(start)) refuse('RANGE', 'rope: positions', 'an integer', positions);
    if (seqLen === undefined) fail('RANGE', 'rope: seq_len', 'a scalar position needs seq_len, the number of tokens');
    if (start < -MAX_POSITION || start + seqLen > MAX_POSITION)
      refuse('RANGE', 'rope: positions', `${seqLen} tokens in [-2^31, 2^31 - 1]`, positions);
    // Every axis gets the same position, as a text token of M-RoPE.
    const values = newArray('f64', numAxes * seqLen);
    for (let n = 0; n < values.length; n++) values[n] = start + (n % seqLen);
    return { values, seqLen, batch: undefined };
  }
  const tensor = Tensor.isTensor(positions) ? positions : positionsTensor(positions as readonly number[] | HostArray);
  // A flat list for several axes is [axes, seq], as in ggml.
  const flat = tensor.rank === 1 && numAxes > 1;
  if (flat && tensor.size % numAxes !== 0)
    refuse('SHAPE', 'rope: positions', `a multiple of ${numAxes} integers, axis by axis`, tensor.size);
  const shaped = flat ? tensor.reshape([numAxes, tensor.size / numAxes]) : tensor;
  const dims = numAxes > 1 ? shaped.shape.slice(1) : shaped.shape;
  if ((numAxes > 1 && shaped.shape[0] !== numAxes) || dims.length < 1 || dims.length > 2) {
    const forms = numAxes > 1 ? `[${numAxes}, seq] or [${numAxes}, batch, seq]` : '[seq] or [batch, seq]';
    refuse('SHAPE', 'rope: positions', `shape ${forms}`, tensor.shape);
  }
  const tokens = dims.at(-1)!;
  if (seqLen !== undefined && seqLen !== tokens)
    refuse('SHAPE', 'rope: positions', `${seqLen} tokens (seq_len)`, tensor.shape);
  const values = checkPositions(readIntegers(shaped, 'rope: positions'));
  return { values, seqLen: tokens, batch: dims.length === 2 ? dims[0]! : undefined };
}

function positionsTensor(positions: readonly number[] | HostArray): Tensor {
  if (ArrayBuffer.isView(positions))
    return tensorFrom(positions, positions instanceof Uint16Array ? { dtype: 'u16' } : {});
  const list = readList(positions, 'rope: positions', 'an integer, or a list, typed array or tensor of integers');
  return tensorFrom(Int32Array.from(checkPositions(list)));
}

function checkPositions<T extends ArrayLike<number>>(values: T): T {
  for (let n = 0; n < values.length; n++) {
    const p = values[n]!;
    if (!Number.isInteger(p) || p < -MAX_POSITION || p >= MAX_POSITION)
      refuse('RANGE', `rope: positions[${n}]`, 'an integer in [-2^31, 2^31 - 1]', p);
  }
  return values;
}
