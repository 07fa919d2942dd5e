/**
 * Judging one case: what came against what should have come, element by element, and what is worth telling about the difference.
 *
 * @module
 */
import { bitsOf, type Dtype, type FloatDtype, isFloat, roundTo } from '../../core/dtypes.js';
import { refuse } from '../../core/errors.js';
import { bf16FromNumber, f16FromNumber } from '../../core/float16.js';
import type { Tensor } from '../../core/tensor.js';
import type { OpName } from '../../ops/runner.js';
import type { GoldenCase } from '../golden/case.js';
import { settled } from '../golden/suite.js';
import { powerOfTwoBelow, within } from '../judge.js';
import { type Expectation, expectationsOf, type ModelOptions, numbersOf } from './model.js';
import { defaultTable, type RopePlace, TABLE_PRECISIONS, type TablePrecision } from './rope-model.js';

/** How many wrong elements of a tensor are told one by one. */
export const FIRST_WRONG = 10;
/** The error map has at most this many rows and columns: neighbours share a cell beyond it. */
const MAP_ROWS = 96;
const MAP_COLUMNS = 256;

/** One element that is outside its bound. */
export interface WrongElement {
  /** Row-major index, one number a dimension. */
  readonly index: readonly number[];
  readonly got: number;
  readonly expected: number;
  /** How far from `expected` it may be. */
  readonly bound: number;
  readonly place?: RopePlace;
  /** Where the numbers look alike: the bits, in hexadecimal. */
  readonly bits?: readonly [got: string, expected: string];
}

/** Largest errors by pair and token. */
export interface ErrorMap {
  readonly rows: number;
  readonly columns: number;
  /** `[rows, columns]`: the largest |error| / bound in the cell; Infinity for NaN and for any error where none is allowed. */
  readonly ratio: Float64Array;
  /** `[rows, columns]`: the largest |error|. */
  readonly error: Float64Array;
  /** The first token's positions of each row, one for each axis, and its batch. */
  readonly rowOf: readonly { readonly batch: number; readonly token: number; readonly positions: readonly number[] }[];
  /** Pairs in a column, and tokens in a row: 1 unless the map was made coarser. */
  readonly pairsPerColumn: number;
  readonly tokensPerRow: number;
  readonly pairs: number;
}

/** What was measured on one output. */
export interface TensorReport {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  readonly elements: number;
  /** Elements outside their bound. */
  readonly wrong: number;
  /** Of these, NaN or infinite where a finite number should be, or the other way round. */
  readonly nonFinite: number;
  /** The largest |got − expected|, over the elements that are finite on both sides. */
  readonly maxAbs: number;
  /** The largest |got − expected| / |expected|, where expected is not 0. */
  readonly maxRel: number;
  /** The largest distance in units of the last place: how many numbers of the dtype lie between what came and the exact value rounded. */
  readonly maxUlp: number;
  /** Σ(got − expected)² / Σ expected². */
  readonly nmse: number;
  /** The factor g that makes g·expected come nearest to what came; NaN where expected is all 0. */
  readonly gain: number;
  /** The largest |got − expected| / bound: at most 1 when all is well. */
  readonly maxRatio: number;
  /** The element with that ratio. */
  readonly worst?: WrongElement;
  readonly first: readonly WrongElement[];
  /** RoPE: the pair and the token position with the largest ratio. */
  readonly worstPair?: number;
  readonly worstPosition?: readonly number[];
  readonly map?: ErrorMap;
}

/** What came of one case. */
export interface VerifyResult {
  readonly id: string;
  readonly op: OpName;
  /** One sentence of the manifest. */
  readonly about: string;
  /** `error`: there is nothing to compare: missing, misshapen, crashed, timed out. */
  readonly status: 'ok' | 'fail' | 'error' | 'skipped';
  /** Why, for error and skipped; what is wrong, for fail. */
  readonly detail?: string;
  /** Things to know that fail nothing: files that belong to no output. */
  readonly notes: readonly string[];
  readonly tensors: readonly TensorReport[];
  /** RoPE with angles of its own: what was allowed, and the tightest precision whose bounds the output keeps. */
  readonly table?: { readonly allowed: TablePrecision; readonly met: TablePrecision | undefined };
  /** A command that says more; below it, on lines of their own, hints. */
  readonly next?: string;
  /** Of the user's program, where there is one. */
  readonly seconds?: number;
}

/**
 * Judges the outputs of one case.
 *
 * @param golden - the case
 * @param got - an output for each of the case's, of the same dtype and shape, in host memory
 * @param options - what the kernel is allowed
 * @returns ok or fail, with the measurements
 * @throws {RopewalkError} FORMAT when the case's own outputs are not what its inputs and attributes give, or it has no such plan
 */
export function judgeCase(
  golden: GoldenCase,
  got: ReadonlyMap<string, Tensor>,
  options: ModelOptions = {},
): VerifyResult {
  const { id, op, about } = golden;
  const allowed = options.table ?? defaultTable(golden);
  const expectations = expectationsOf(golden, { ...options, table: allowed });
  const tensors: TensorReport[] = [];
  const meets = new Set(TABLE_PRECISIONS);
  for (const [name, stored] of golden.outputs) {
    const expectation =
      expectations.get(name) ??
      refuse('FORMAT', `vectors: ${id}`, `outputs ${[...expectations.keys()]} of ${op}`, name);
    checkStored(stored, expectation, `vectors: ${id}: ${name}`);
    const output = got.get(name) ?? refuse('SHAPE', `verify: ${id}`, `an output ${name}`, [...got.keys()]);
    const { dtype, shape } = expectation.output;
    if (
      output.dtype !== dtype ||
      output.shape.length !== shape.length ||
      output.shape.some((size, d) => size !== shape[d])
    )
      refuse('SHAPE', `verify: ${id}: ${name}`, `${dtype} [${shape}]`, `${output.dtype} [${output.shape}]`);
    tensors.push(judgeTensor(name, output, expectation));
    if (!expectation.rope) continue;
    const values = numbersOf(output);
    for (const precision of meets) {
      const { bound, unsettled } = expectation.allowedFor(precision);
      const exact = settled(expectation.exact, values, unsettled);
      if (values.some((value, n) => !within(value, exact[n]!, bound[n]!, dtype))) meets.delete(precision);
    }
  }
  const failed = tensors.filter(({ wrong }) => wrong > 0);
  return {
    id,
    op,
    about,
    status: failed.length > 0 ? 'fail' : 'ok',
    ...(failed.length > 0
      ? { detail: failed.map((t) => `${t.name}: ${t.wrong} of ${t.elements} wrong`).join('; ') }
      : {}),
    notes: [],
    tensors,
    ...(op === 'rope' ? { table: { allowed, met: TABLE_PRECISIONS.find((precision) => meets.has(precision)) } } : {}),
  };
}

/** The folder's own outputs must be the exact result rounded; otherwise it was edited, or means something else. */
function checkStored(stored: Tensor, { output, exact, bits }: Expectation, where: string): void {
  const { dtype, shape } = output;
  if (
    stored.dtype !== dtype ||
    stored.shape.length !== shape.length ||
    stored.shape.some((size, d) => size !== shape[d])
  )
    refuse('FORMAT', where, `${dtype} [${shape}], as inputs and attributes give`, `${stored.dtype} [${stored.shape}]`);
  const next = 'The folder was edited, or another version wrote it: write it anew with ropewalk vectors.';
  const values = numbersOf(stored);
  const storedBits = bitsOf(stored.read() as Uint8Array);
  for (let n = 0; n < values.length; n++) {
    if (bits || !isFloat(dtype)) {
      if (storedBits[n] !== bits![n])
        refuse('FORMAT', `${where}[${n}]`, `${exact[n]}, as inputs and attributes give`, values[n], next);
      continue;
    }
    if (!within(values[n]!, exact[n]!, output.bounds![n]!, dtype))
      refuse(
        'FORMAT',
        `${where}[${n}]`,
        `${roundTo(dtype, exact[n]!)}, as inputs and attributes give`,
        values[n],
        next,
      );
  }
}

function judgeTensor(
  name: string,
  got: Tensor,
  { exact: expected, allowed, bits, output, rope }: Expectation,
): TensorReport {
  const { dtype, shape } = output;
  const { bound } = allowed;
  const values = numbersOf(got);
  const exact = settled(expected, values, allowed.unsettled);
  const bitsGot = bits && bitsOf(got.read() as Uint8Array);
  const map = rope && emptyMap(rope.pairs, rope.tokens);
  const first: WrongElement[] = [];
  let wrong = 0;
  let nonFinite = 0;
  let maxAbs = 0;
  let maxRel = 0;
  let maxUlp = 0;
  let maxRatio = 0;
  let worstAt = -1;
  let squares = 0;
  let power = 0;
  let along = 0;
  const unit = powerOfTwoBelow(exact); // as in nmse
  const told = (n: number): WrongElement => {
    const [a, b] = [bitsGot?.[n], bits?.[n]];
    const hex = a !== undefined && b !== undefined && (isFloat(dtype) || Math.abs(exact[n]!) > 2 ** 53);
    return {
      index: indexOf(n, shape),
      got: values[n]!,
      expected: exact[n]!,
      bound: bound[n]!,
      ...(rope ? { place: rope.place(n) } : {}),
      ...(hex ? { bits: [`0x${a.toString(16)}`, `0x${b.toString(16)}`] as const } : {}),
    };
  };
  for (let n = 0; n < values.length; n++) {
    const value = values[n]!;
    const want = exact[n]!;
    const limit = bound[n]!;
    const good = bits ? bitsGot![n] === bits[n] : within(value, want, limit, dtype);
    let error = value === want || (Number.isNaN(value) && Number.isNaN(want)) ? 0 : Math.abs(value - want);
    // An overflow that is allowed is no error; anything else that is not finite is as far off as can be.
    if (!Number.isFinite(error)) error = good ? 0 : Number.POSITIVE_INFINITY;
    const share = error === 0 ? (good ? 0 : Number.POSITIVE_INFINITY) : error / limit;
    const ratio = Number.isNaN(share) ? Number.POSITIVE_INFINITY : share;
    if (!good) {
      wrong++;
      if (!Number.isFinite(error)) nonFinite++;
      if (first.length < FIRST_WRONG) first.push(told(n));
    }
    if (ratio > maxRatio || (ratio === maxRatio && ratio > 0 && worstAt < 0)) {
      maxRatio = ratio;
      worstAt = n;
    }
    if (Number.isFinite(error)) {
      maxAbs = Math.max(maxAbs, error);
      if (want !== 0) maxRel = Math.max(maxRel, error / Math.abs(want));
      if (error > 0 && isFloat(dtype)) maxUlp = Math.max(maxUlp, Math.abs(ulps(dtype, value, roundTo(dtype, want))));
      if (Number.isFinite(want) && Number.isFinite(value)) {
        squares += (error / unit) ** 2;
        power += (want / unit) ** 2;
        along += (value / unit) * (want / unit);
      }
    }
    if (map && rope) addToMap(map, rope.place(n), ratio, error);
  }
  if (!isFloat(dtype)) maxUlp = maxAbs;
  const worst = worstAt < 0 ? undefined : told(worstAt);
  const finished = map && finishMap(map);
  return {
    name,
    dtype,
    shape,
    elements: values.length,
    wrong,
    nonFinite,
    maxAbs,
    maxRel,
    maxUlp,
    nmse: squares === 0 ? 0 : squares / power,
    gain: along / power,
    maxRatio,
    ...(worst ? { worst } : {}),
    first,
    ...(worst?.place?.pair === undefined ? {} : { worstPair: worst.place.pair }),
    ...(worst?.place?.token === undefined ? {} : { worstPosition: worst.place.positions }),
    ...(finished ? { map: finished } : {}),
  };
}

const scratch = /* @__PURE__ */ new DataView(/* @__PURE__ */ new ArrayBuffer(8));

/**
 * How many numbers of a dtype lie between two of them: their distance on the line of all its numbers, −0 and 0 being one.
 *
 * @param dtype - a float dtype that holds both exactly
 * @param a - a number, not NaN
 * @param b - a number, not NaN
 * @returns a − b in units of the last place
 */
export function ulps(dtype: FloatDtype, a: number, b: number): number {
  if (dtype === 'f64') {
    const key = (x: number): bigint => {
      scratch.setFloat64(0, x);
      const bits = scratch.getBigInt64(0);
      return bits < 0n ? -(bits & 0x7fffffffffffffffn) : bits;
    };
    return Number(key(a) - key(b));
  }
  const key = (x: number): number => {
    if (dtype === 'f32') {
      scratch.setFloat32(0, x);
      const bits = scratch.getInt32(0);
      return bits < 0 ? -(bits & 0x7fffffff) : bits;
    }
    const bits = dtype === 'f16' ? f16FromNumber(x) : bf16FromNumber(x);
    return bits & 0x8000 ? -(bits & 0x7fff) : bits;
  };
  return key(a) - key(b);
}

function indexOf(n: number, shape: readonly number[]): number[] {
  const index: number[] = [];
  for (let d = shape.length - 1; d >= 0; d--) {
    index.unshift(n % shape[d]!);
    n = Math.floor(n / shape[d]!);
  }
  return index;
}

interface OpenMap {
  readonly map: Omit<ErrorMap, 'rowOf'>;
  readonly rowOf: (ErrorMap['rowOf'][number] | undefined)[];
}

function emptyMap(pairs: number, tokens: number): OpenMap | undefined {
  if (pairs === 0 || tokens === 0) return undefined;
  const tokensPerRow = Math.ceil(tokens / MAP_ROWS);
  const pairsPerColumn = Math.ceil(pairs / MAP_COLUMNS);
  const rows = Math.ceil(tokens / tokensPerRow);
  const columns = Math.ceil(pairs / pairsPerColumn);
  const cells = rows * columns;
  return {
    map: {
      rows,
      columns,
      ratio: new Float64Array(cells),
      error: new Float64Array(cells),
      pairsPerColumn,
      tokensPerRow,
      pairs,
    },
    rowOf: new Array(rows).fill(undefined),
  };
}

function addToMap({ map, rowOf }: OpenMap, place: RopePlace, ratio: number, error: number): void {
  if (place.row === undefined || place.token === undefined) return;
  const row = Math.floor(place.row / map.tokensPerRow);
  rowOf[row] ??= { batch: place.batch, token: place.token, positions: place.positions };
  if (place.pair === undefined) return;
  const at = row * map.columns + Math.floor(place.pair / map.pairsPerColumn);
  map.ratio[at] = Math.max(map.ratio[at]!, ratio);
  map.error[at] = Math.max(map.error[at]!, error);
}

function finishMap({ map, rowOf }: OpenMap): ErrorMap {
  return { ...map, rowOf: rowOf.map((row) => row ?? { batch: 0, token: 0, positions: [] }) };
}
