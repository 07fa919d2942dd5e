/** Multiplication by a weight matrix. @module */
import { type BlockTensor, isBlocks } from '../../../core/blocks.js';
import type { FloatDtype } from '../../../core/dtypes.js';
import { isRowMajor } from '../../../core/shape.js';
import type { Tensor } from '../../../core/tensor.js';
import type { ExpertLinearPlan } from '../../../ops/expert-linear.js';
import type { LinearPlan } from '../../../ops/linear.js';
import { rowsOf, type Walk } from '../../walks.js';
import {
  KC,
  Kernel,
  Linear,
  NC,
  ROUNDED_BLOCK,
  ROUNDED_ROWS,
  Rows,
  SPLIT_BLOCK,
  SPLIT_HEAD,
  Type,
  UNIT,
} from '../abi.js';
import { writeWalk } from '../arguments.js';
import { type Call, typeOf } from '../call.js';
import { BYTES_PER_MADD } from '../launcher.js';

/** The rows of x that linearMany packs at a time: with 64 columns of sums they fill half of a second-level cache. */
export const BLOCK_ROWS = 768;
/** The most rows of x that are multiplied with W as it streams by. For more rows, packing is faster. */
const FEW_ROWS = 6;
const FEW_ROWS_OF_BLOCKS = 8;

/** The place of an output's rows. */
export interface Target {
  readonly address: number;
  readonly type: Type;
  /** The step from column to column, in elements. */
  readonly stride: number;
  /** Walks over the rows. */
  readonly walk: Walk;
}

/** The place of rows of x. */
export interface Source {
  readonly address: number;
  readonly type: Type;
  readonly k: number;
  /** The step from element to element, in elements. */
  readonly stride: number;
  /** Walks over the rows. */
  readonly walk: Walk;
}

/** A kernel over units of columns, and the cost of a unit in bytes moved. */
export interface Job {
  readonly kernel: Kernel;
  readonly units: number;
  readonly cost: number;
}

/** Runs a linear layer. */
export function runLinear(plan: LinearPlan, call: Call): void {
  const { x, weight, bias, out, m, k } = plan;
  const inputs = [x, isBlocks(weight) ? weight.bytes : weight];
  if (bias) inputs.push(bias);
  call.stage(inputs, [out]);
  if (out.size === 0) return;
  const y = targetOf(out, call);
  if (isFew(weight, m, k)) runFew(plan, y, call);
  else runMany(plan, y, call);
}

/** Says whether `m` rows of x are few, so that each row of W multiplies them as it streams by. */
export function isFew(weight: Tensor | BlockTensor, m: number, k: number): boolean {
  return isBlocks(weight) ? m <= FEW_ROWS_OF_BLOCKS : m <= FEW_ROWS && (weight.strides.at(-1) === 1 || k <= 1);
}

/** Locates an output. */
export function targetOf(out: Tensor<FloatDtype>, call: Call): Target {
  return { address: call.address(out), type: typeOf(out), stride: out.strides.at(-1)!, walk: rowsOf([out]) };
}

function runFew(plan: LinearPlan, y: Target, call: Call): void {
  const { x, weight, m } = plan;
  const { launcher } = call;
  const rounds = roundsFor(plan);
  const inPlace = !rounds && x.dtype === 'f32' && isRowMajor(x);
  const rows = inPlace ? call.address(x) : widenRows(sourceOf(x, call), m, 0, call);
  const integers = rounds ? roundRows(rows, m, rounds, integerRows(rounds, m, call), call) : 0;
  const split = isBlocks(weight) && integers === 0 ? splitRows(rows, m, weight, call) : integers;
  const args = launcher.prepare();
  const rowBytes = writeLinear(args, plan, y, call);
  args[Linear.x] = rows;
  args[Linear.split] = split;
  args[Linear.rounded] = integers === 0 ? 0 : 1;
  args[Linear.m] = m;
  const { kernel, units, cost } = fewJob(weight, m, rowBytes);
  launcher.run(kernel, units, cost);
}

/** The weight for whose format rows of x are rounded to 8 bits; undefined if they are not rounded. */
export function roundsFor({ activations, weight }: LinearPlan | ExpertLinearPlan): BlockTensor | undefined {
  return activations === 'q8' && isBlocks(weight) ? weight : undefined;
}

/** Locates the rows of a tensor. */
export function sourceOf(x: Tensor, call: Call): Source {
  return {
    address: call.address(x),
    type: typeOf(x),
    k: x.shape.at(-1)!,
    stride: x.strides.at(-1)!,
    walk: rowsOf([x]),
  };
}

/** Locates dense f32 rows. */
export function denseSource(address: number, count: number, k: number): Source {
  return { address, type: Type.f32, k, stride: 1, walk: { dims: [count], strides: [[k]] } };
}

/** Takes memory for rounded rows in integers; 0 where products with the weight are not summed in integers. */
export function integerRows({ format, shape }: BlockTensor, count: number, call: Call): number {
  if (format !== 'q8_0' && format !== 'q4_0') return 0;
  return call.temporary(count * (SPLIT_HEAD + (shape.at(-1)! / UNIT) * ROUNDED_BLOCK));
}

/** Rounds dense f32 rows to 8 bits in place, and also writes them as integers to {@link integerRows}, which it returns. */
export function roundRows(
  rows: number,
  count: number,
  { format, shape }: BlockTensor,
  to: number,
  { launcher }: Call,
): number {
  const k = shape.at(-1)!;
  const args = launcher.prepare();
  args[Rows.x] = rows;
  args[Rows.to] = to;
  args[Rows.type] = Type[format];
  args[Rows.k] = k;
  launcher.run(Kernel.roundRows, count, k * 8);
  return to;
}

/** Reads rows of x, or those of a list, as dense f32 until the end of the call. */
export function widenRows(x: Source, count: number, list: number, call: Call): number {
  const to = call.temporary(count * x.k * 4);
  readRows(x, to, list, 0, count, call);
  return to;
}

/** Reads rows of x, or those of a list, from `first` on, as dense f32. */
function readRows(x: Source, to: number, list: number, first: number, count: number, { launcher }: Call): void {
  writeRows(launcher.prepare(), x, to, list, first);
  launcher.run(Kernel.widenRows, count, 2 * x.k * 4);
}

/** Splits dense f32 rows into integers, for products with blocks. */
export function splitRows(rows: number, count: number, { format, shape }: BlockTensor, call: Call): number {
  const k = shape.at(-1)!;
  const split = call.temporary(count * (SPLIT_HEAD + (k / UNIT) * SPLIT_BLOCK));
  const args = call.launcher.prepare();
  args[Rows.x] = rows;
  args[Rows.to] = split;
  args[Rows.type] = Type[format];
  args[Rows.k] = k;
  call.launcher.run(Kernel.splitRows, count, k * 8);
  return split;
}

/** The job that multiplies few rows with a matrix whose rows are `rowBytes` apart. */
export function fewJob(weight: Tensor | BlockTensor, m: number, rowBytes: number): Job {
  const { shape } = weight;
  const [n, k] = [shape[shape.length - 2]!, shape[shape.length - 1]!]; // slice(-2) costs a tenth of a short call
  const cost = Math.max(rowBytes, m * k * BYTES_PER_MADD);
  if (!isBlocks(weight)) return { kernel: Kernel.linearFew, units: Math.ceil(n / 4), cost: 4 * cost };
  return { kernel: Kernel.linearBlocks, units: Math.ceil(n / 2), cost: 2 * cost };
}

/** Cuts x into even blocks of rows, each of which is prepared once and multiplied with all of W. */
function runMany(plan: LinearPlan, y: Target, call: Call): void {
  const { weight, m, k } = plan;
  const { launcher } = call;
  const { tileRows } = launcher;
  const rounds = roundsFor(plan);
  const blocks = Math.ceil(m / BLOCK_ROWS);
  const blockRows = Math.ceil(m / blocks / tileRows) * tileRows;
  const x = sourceOf(plan.x, call);
  const integers = rounds ? integerRows(rounds, blockRows, call) : 0;
  const packed = integers === 0 ? call.temporary(blockRows * k * 4) : 0;
  const rows = rounds ? call.temporary(blockRows * k * 4) : 0;
  for (let first = 0; first < m; first += blockRows) {
    const count = Math.min(blockRows, m - first);
    if (rounds) {
      readRows(x, rows, 0, first, count, call);
      roundRows(rows, count, rounds, integers, call);
      if (integers === 0) packRows(denseSource(rows, count, k), packed, 0, 0, count, call);
    } else packRows(x, packed, 0, first, count, call);
    const job = manyJob(weight, count, integers !== 0);
    const args = launcher.prepare(manyScratch(blockRows));
    writeLinear(args, plan, y, call);
    args[Linear.x] = integers === 0 ? packed : rows;
    args[Linear.split] = integers;
    args[Linear.m] = count;
    args[Linear.first] = first;
    launcher.run(job.kernel, job.units, job.cost);
  }
}

/** Packs rows of x, or those of a list, for products of many rows. */
export function packRows(x: Source, to: number, list: number, first: number, count: number, call: Call): void {
  const { launcher } = call;
  const { tileRows } = launcher;
  const args = launcher.prepare();
  writeRows(args, x, to, list, first);
  args[Rows.count] = count;
  launcher.run(Kernel.packRows, Math.ceil(count / tileRows), tileRows * x.k * 8);
}

/** The job that multiplies many rows with a matrix: packed rows, or rows in integers. */
export function manyJob(weight: Tensor | BlockTensor, rows: number, inIntegers: boolean): Job {
  const [n, k] = weight.shape.slice(-2) as [number, number];
  const kernel = inIntegers ? Kernel.linearRounded : Kernel.linearMany;
  return { kernel, units: Math.ceil(n / NC), cost: rows * NC * k * BYTES_PER_MADD };
}

/** The bytes of scratch memory that {@link manyJob} needs, for whole tiles. */
export function manyScratch(rows: number): number {
  return (KC * NC + Math.ceil(rows / ROUNDED_ROWS) * ROUNDED_ROWS * NC) * 4;
}

/** Writes the arguments of widenRows and packRows. */
function writeRows(args: Int32Array, x: Source, to: number, list: number, first: number): void {
  args[Rows.x] = x.address;
  args[Rows.to] = to;
  args[Rows.type] = x.type;
  args[Rows.k] = x.k;
  args[Rows.stride] = x.stride;
  args[Rows.list] = list;
  args[Rows.first] = first;
  writeWalk(args, Rows.walk, x.walk);
}

/**
 * Writes the arguments that describe the weight, the bias and the target; for several matrices, those of the first.
 *
 * @returns the bytes from row to row of the weight
 */
export function writeLinear(
  args: Int32Array,
  { weight, bias }: Pick<LinearPlan, 'weight' | 'bias'>,
  y: Target,
  call: Call,
): number {
  const matrix = call.matrix(weight);
  args[Linear.weight] = matrix.address;
  args[Linear.weightRow] = matrix.row;
  args[Linear.weightStride] = matrix.stride;
  args[Linear.weightType] = matrix.type;
  args[Linear.bias] = bias ? call.address(bias) : 0;
  args[Linear.biasStride] = bias ? bias.strides.at(-1)! : 0;
  args[Linear.biasType] = bias ? typeOf(bias) : 0;
  args[Linear.y] = y.address;
  args[Linear.yStride] = y.stride;
  args[Linear.yType] = y.type;
  const { shape } = weight;
  args[Linear.n] = shape[shape.length - 2]!;
  args[Linear.k] = shape[shape.length - 1]!;
  args[Linear.first] = 0;
  args[Linear.rounded] = 0;
  args[Linear.xRows] = 0;
  args[Linear.yRows] = 0;
  writeWalk(args, Linear.walk, y.walk);
  return matrix.rowBytes;
}
