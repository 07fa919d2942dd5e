/**
 * The operators that kernels are judged by: seeded data, the exact result in float64 from the same data, and the bounds
 * of each element's error.
 *
 * Let u be the unit roundoff of the dtype, and v that of the arithmetic (f32 for bf16, the dtype itself otherwise). The
 * roundings of the steps bound the error of an element y:
 *
 * ```
 * add       |y|·(v + u)                               the sum, and its store
 * rope      r·(3v + u), r = |(y0, y1)| of its pair    two products, their sum, the store; a copied dimension is exact
 * rms_norm  |y|·(k·v + u), k = 9 + log2 n             half of: square, sum of n as a tree, mean, eps; then √, 1/√, two products
 * swiglu    |y|·((6 + |gate|)·v + u)                  exponent, exp (2), sum, quotient (2), product
 * softmax   |y|·(k·v + u), k = 2t + 8 + log2 n        t = max − min of its row: difference and exp (2) of both terms, the
 *                                                     sum as a tree, the quotient (2)
 * ```
 *
 * Each of the intermediate results may also be off by half of the smallest subnormal. @module
 */
import {
  bindRope,
  type HostArray,
  planAdd,
  planRmsNorm,
  planRope,
  planRopeWithTable,
  planSwiglu,
  type RopeSpec,
  sizeBytes,
  type Tensor,
  tensorFrom,
} from 'ropewalk';
import { loadNumber, newArray, type OpPlan, refuse, rowMajorStrides, storeNumber } from 'ropewalk/backend';
import {
  checkInteger,
  type OptionNames,
  optionNames,
  type RandomStream,
  readOptions,
  sharePairs,
  show,
} from 'ropewalk/internal';
import { runReference } from 'ropewalk/reference';
import { f16Table } from '../lanes.js';
import { Allocation, GlobalTensor } from '../memory.js';
import { ropeArgs } from './args.js';
import type { KernelDtype, KernelOperator } from './declaration.js';
import { type BoundCall, ropeCall } from './run.js';

/** A call of an operator. */
export interface OperatorCall {
  readonly dtype: KernelDtype;
  /** The last dimension is a row; rope has batch, seq, heads and head_dim. */
  readonly shape: readonly number[];
  /** The eps of rms_norm. Default: 1e-6. */
  readonly eps?: number;
  /** The RoPE, in any dialect. */
  readonly spec?: RopeSpec;
  /** Whether rope's batch b starts at position b; otherwise all batches start at 0. */
  readonly batchPositions?: boolean;
  /** Rows of rope's tables, more than the largest position. */
  readonly tableLen?: number;
  /** The dtype of cos and sin: `dtype` (the default) or f32. */
  readonly tableDtype?: KernelDtype;
}

/** The names of a call. */
export const OPERATOR_NAMES: OptionNames<OperatorCall> = /* @__PURE__ */ optionNames(
  'dtype shape eps spec batchPositions tableLen tableDtype',
);

/** The data of a call, the exact result, and the bounds of each element's error. */
export interface MadeCall {
  readonly exact: Float64Array;
  readonly bounds: Float64Array;
  /** Puts the inputs and a fresh output, all NaN, into global memory. */
  bind(): { readonly call: BoundCall; readonly out: HostArray };
}

const ROUNDOFF = { f16: 2 ** -11, bf16: 2 ** -8, f32: 2 ** -24 } as const;
/** Half of the smallest subnormal. */
const TINY = { f16: 2 ** -25, bf16: 2 ** -134, f32: 2 ** -150 } as const;

/** Makes seeded data for an operator. */
export function makeCall(operator: KernelOperator, asked: OperatorCall, random: RandomStream): MadeCall {
  return operator === 'rope' ? makeRope(asked, random) : makeRows(operator, asked, random);
}

function fill(dtype: KernelDtype, count: number, value: (n: number) => number): HostArray {
  const data = newArray(dtype, count);
  for (let n = 0; n < count; n++) storeNumber(data, dtype, n, value(n));
  return data;
}

function unwritten(dtype: KernelDtype, count: number): HostArray {
  const data = newArray(dtype, count);
  storeNumber(data, dtype, 0, Number.NaN);
  return data.fill(data[0] as never);
}

/** Reads an array as numbers. */
export function numbersOf(data: HostArray, dtype: KernelDtype): Float64Array {
  const numbers = new Float64Array(data.length);
  if (dtype === 'f16') {
    const table = f16Table();
    const bits = data as Uint16Array;
    for (let n = 0; n < numbers.length; n++) numbers[n] = table[bits[n]!]!;
  } else for (let n = 0; n < numbers.length; n++) numbers[n] = loadNumber(data, dtype, n);
  return numbers;
}

/** An operator of dense rows. */
interface RowOperator {
  /** Its inputs, `[rows, length]` or (`once`) `[length]`, and their largest value. */
  readonly inputs: { readonly [role: string]: { readonly once?: boolean; readonly most: number } };
  /** Computes the exact result; `plan` runs one of ropewalk's operators. */
  exact(of: (role: string) => Float64Array, o: { length: number; eps: number; plan: Planner }): Float64Array;
  /** Counts the roundings of the arithmetic in each element, relative to its size. */
  roundings(of: (role: string) => Float64Array, length: number): (n: number) => number;
}
type Planner = (make: (tensor: (role: string) => Tensor, out: Tensor) => OpPlan) => Float64Array;

const log2 = (n: number): number => Math.ceil(Math.log2(Math.max(2, n)));

/** Computes the highest minus the lowest element of each row. */
function rangesOf(x: Float64Array, length: number): Float64Array {
  return Float64Array.from({ length: x.length / length }, (_what, row) => {
    const own = x.subarray(row * length, (row + 1) * length);
    return own.reduce((a, b) => Math.max(a, b)) - own.reduce((a, b) => Math.min(a, b));
  });
}

const ROW_OPERATORS: { readonly [operator in Exclude<KernelOperator, 'rope'>]: RowOperator } = {
  add: {
    inputs: { a: { most: 1 }, b: { most: 1 } },
    exact: (_of, { plan }) => plan((t, out) => planAdd(t('a'), t('b'), out)),
    roundings: () => () => 1,
  },
  rms_norm: {
    inputs: { x: { most: 1 }, weight: { most: 1, once: true } },
    exact: (_of, { eps, plan }) => plan((t, out) => planRmsNorm(t('x'), t('weight'), out, { eps })),
    roundings: (_of, length) => () => 9 + log2(length),
  },
  swiglu: {
    inputs: { gate: { most: 4 }, up: { most: 4 } },
    exact: (_of, { plan }) => plan((t, out) => planSwiglu(t('gate'), t('up'), out)),
    roundings(of) {
      const gate = of('gate');
      return (n) => 6 + Math.abs(gate[n]!);
    },
  },
  softmax: {
    inputs: { x: { most: 4 } },
    exact: (of, { length }) => softmax(of('x'), length),
    roundings(of, length) {
      const ranges = rangesOf(of('x'), length);
      return (n) => 2 * ranges[Math.floor(n / length)]! + 8 + log2(length);
    },
  },
};

function softmax(x: Float64Array, length: number): Float64Array {
  const y = new Float64Array(x.length);
  for (let row = 0; row < x.length; row += length) {
    const most = x.subarray(row, row + length).reduce((a, b) => Math.max(a, b));
    let sum = 0;
    for (let i = row; i < row + length; i++) sum += y[i] = Math.exp(x[i]! - most);
    for (let i = row; i < row + length; i++) y[i]! /= sum;
  }
  return y;
}

function makeRows(operator: Exclude<KernelOperator, 'rope'>, asked: OperatorCall, random: RandomStream): MadeCall {
  const { dtype, shape, eps = 1e-6 } = asked;
  const { inputs, exact, roundings } = ROW_OPERATORS[operator];
  const length = shape.at(-1)!;
  const total = shape.reduce((product, n) => product * n, 1);
  const make = ({ most, once }: RowOperator['inputs'][string]) =>
    fill(dtype, once ? length : total, () => random.uniform(-most, most));
  const data = new Map(Object.entries(inputs).map(([role, input]) => [role, make(input)]));
  const size = sizeBytes(dtype);
  const rows = total / length;
  const place = (role: string, array: HostArray) =>
    new GlobalTensor(role, new Allocation(role, [array], role === 'out'), dtype, 0, 0, array.length);
  const bind = () => {
    const array = unwritten(dtype, total);
    const out = place('out', array);
    out.coverage = new Uint8Array(total).fill(1);
    const inputs = Array.from(data, ([role, input]) => place(role, input));
    const read = inputs.reduce((sum, { high }) => sum + high, 0);
    const call: BoundCall = {
      dtype,
      facts: { dtype, size, rows, length, eps },
      tensors: Object.fromEntries([...inputs, out].map((tensor) => [tensor.name, tensor])),
      inputs,
      rowLength: length,
      rowStarts: Array.from({ length: rows }, (_what, row) => row * length),
      tileRows: rows,
      least: { load: read * size, store: total * size },
    };
    return { call, out: array };
  };
  const numbers = new Map([...data].map(([role, array]) => [role, numbersOf(array, dtype)]));
  const of = (role: string): Float64Array => numbers.get(role)!;
  const plan: Planner = (make) => {
    const result = tensorFrom(new Float64Array(total), { shape: [rows, length] });
    const tensor = (role: string) => tensorFrom(of(role), { shape: inputs[role]!.once ? [length] : [rows, length] });
    runReference(make(tensor, result));
    return result.read() as Float64Array;
  };
  const result = exact(of, { length, eps, plan });
  const [u, v] = [ROUNDOFF[dtype], ROUNDOFF[dtype === 'bf16' ? 'f32' : dtype]];
  const roundingsOf = roundings(of, length);
  const bounds = result.map((y, n) => {
    const k = roundingsOf(n);
    return Math.abs(y) * (k * v + u) + k * TINY[dtype];
  });
  return { exact: result, bounds, bind };
}

function makeRope(asked: OperatorCall, random: RandomStream): MadeCall {
  const { dtype, batchPositions = false, tableDtype = dtype } = asked;
  const shape = asked.shape as readonly [number, number, number, number];
  const [batch, seq, , headDim] = shape;
  const spec = readOptions(asked.spec as RopeSpec, 'aicore: spec');
  const { rotaryDim = headDim } = spec;
  if (spec.headDim !== headDim)
    refuse('SHAPE', 'aicore: shape', `the head_dim of the RoPE, ${show(spec.headDim)}, as the last dimension`, headDim);
  checkInteger(rotaryDim, 'aicore: rotaryDim', 2, headDim, 'head_dim');
  const length = (batchPositions ? batch : 1) * seq;
  const tokens = Int32Array.from({ length }, (_what, n) => (n % seq) + Math.floor(n / seq));
  const { numAxes } = sharePairs(spec.axes, rotaryDim / 2);
  // With one axis there is a table row for each position, with several one for each token, at other places on each axis.
  const several = numAxes > 1;
  const tableLen = several ? length : (asked.tableLen ?? Math.max(0, ...tokens) + 1);
  const placeOf = (n: number): number => tokens[n % length]! * (1 + Math.floor(n / length));
  const places = Int32Array.from({ length: numAxes * length }, (_what, n) => placeOf(n));
  const { table, read, write, rotaryOffset } = planRope({
    ...spec,
    ...(several ? { positions: tensorFrom(places, { shape: [numAxes, length] }) } : { positions: 0, seqLen: tableLen }),
    tableDtype: 'f64',
  });
  const positions = several ? tokens.map((_what, n) => n) : tokens;
  const total = shape.reduce((product, n) => product * n, 1);
  const x = fill(dtype, total, () => random.uniform(-1, 1));
  const rounded = (values: ArrayLike<number>) => fill(tableDtype, values.length, (n) => values[n]!);
  const [cos, sin] = [rounded(table.cos), rounded(table.sin)];
  const strides = rowMajorStrides(shape) as unknown as typeof shape;
  const pairing = read.step === 1 ? 'half' : write.step === 1 ? 'interleaved-to-half' : 'interleaved';
  const tables = { sin, cos, tableDtype, positions, rotaryDim, rotaryOffset, pairing } as const;
  const bind = () => {
    const out = unwritten(dtype, total);
    const a = ropeArgs({ ...tables, dtype, x: { shape, strides, data: x }, y: { shape, strides, data: out } });
    return { call: ropeCall(a, [a.x, a.positions]), out };
  };
  const plan = planRopeWithTable({
    headDim,
    rotaryDim,
    rotaryOffset,
    pairing: spec.pairing,
    table: { rows: tableLen, pairs: rotaryDim / 2, cos: numbersOf(cos, tableDtype), sin: numbersOf(sin, tableDtype) },
    seqLen: seq,
    batch: batchPositions ? batch : undefined,
    tableRows: positions,
  });
  const exact = new Float64Array(total);
  const result = tensorFrom(exact, { shape });
  runReference(bindRope(plan, tensorFrom(numbersOf(x, dtype), { shape }), result));
  const [u, v] = [ROUNDOFF[dtype], ROUNDOFF[dtype === 'bf16' ? 'f32' : tableDtype]];
  const bounds = new Float64Array(total);
  for (let head = rotaryOffset; head < total; head += headDim) {
    for (let j = 0; j < rotaryDim / 2; j++) {
      const y0 = head + j * write.step;
      const y1 = y0 + write.gap;
      const [e0, e1] = [exact[y0]!, exact[y1]!];
      bounds[y0] = bounds[y1] = Math.sqrt(e0 * e0 + e1 * e1) * (3 * v + u) + 3 * TINY[dtype];
    }
  }
  return { exact, bounds, bind };
}
