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

/** Rows of x that linearMany packs at a time: with 64 columns of sums they fill half of a second-level cache. */
export const BLOCK_ROWS = 768;
/** Up to this many rows of x, each row of W is multiplied as it streams by; above, packing pays. */
const FEW_ROWS = 6;
const FEW_ROWS_OF_BLOCKS = 8;

/** Where products go. */
export interface Target {
  readonly address: number;
  readonly type: Type;
  /** From column to column, in elements. */
  readonly stride: number;
  /** Over rows. */
  readonly walk: Walk;
}

/** Where rows of x are. */
export interface Source {
  readonly address: number;
  readonly type: Type;
  readonly k: number;
  /** From element to element, in elements. */
  readonly stride: number;
  /** Over rows. */
  readonly walk: Walk;
}

/** A kernel over units of columns, and what a unit costs in bytes. */
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
  call.bring(inputs, [out]);
  if (out.size === 0) return;
  const y = targetOf(out, call);
  if (isFew(weight, m, k)) runFew(plan, y, call);
  else runMany(plan, y, call);
}

/** Says whether `m` rows of x are few: they are multiplied by each row of W as it streams by. */
export function isFew(weight: Tensor | BlockTensor, m: number, k: number): boolean {
  return isBlocks(weight) ? m <= FEW_ROWS_OF_BLOCKS : m <= FEW_ROWS && (weight.strides.at(-1) === 1 || k <= 1);
}

/** An output as it is. */
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

/** The weight for which rows of x are rounded to 8 bits; undefined if they are not. */
export function roundsFor({ activations, weight }: LinearPlan | ExpertLinearPlan): BlockTensor | undefined {
  return activations === 'q8' && isBlocks(weight) ? weight : undefined;
}

/** Rows of a tensor. */
export function sourceOf(x: Tensor, call: Call): Source {
  return {
    address: call.address(x),
    type: typeOf(x),
    k: x.shape.at(-1)!,
    stride: x.strides.at(-1)!,
    walk: rowsOf([x]),
  };
}

/** Dense f32 rows. */
export function denseSource(address: number, count: number, k: number): Source {
  return { address, type: Type.f32, k, stride: 1, walk: { dims: [count], strides: [[k]] } };
}

/** Room for rounded rows in integers; 0 where products with the weight are not summed in integers. */
export function integerRows({ format, shape }: BlockTensor, count: number, call: Call): number {
  if (format !== 'q8_0' && format !== 'q4_0') return 0;
  return call.temporary(count * (SPLIT_HEAD + (shape.at(-1)! / UNIT) * ROUNDED_BLOCK));
}

/**
 * Rounds dense f32 rows to 8 bits, in place, and writes them as integers too.
 *
 * @param to - {@link integerRows}
 * @returns the same
 */
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

/** Reads rows of x, or of a list of them, as dense f32, for this call. */
export function widenRows(x: Source, count: number, list: number, call: Call): number {
  const to = call.temporary(count * x.k * 4);
  readRows(x, to, list, 0, count, call);
  return to;
}

/** Reads rows of x, or of a list of them, from `first` on, as dense f32. */
function readRows(x: Source, to: number, list: number, first: number, count: number, { launcher }: Call): void {
  writeRows(launcher.prepare(), x, to, list, first);
  launcher.run(Kernel.widenRows, count, 2 * x.k * 4);
}

/** Splits dense f32 rows, for products with blocks. */
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

/** The products of `m` rows, few, with a matrix whose rows are `rowBytes` apart. */
export function fewJob(weight: Tensor | BlockTensor, m: number, rowBytes: number): Job {
  const { shape } = weight;
  const [n, k] = [shape[shape.length - 2]!, shape[shape.length - 1]!]; // slice(-2) costs a short call a tenth
  const cost = Math.max(rowBytes, m * k * BYTES_PER_MADD);
  if (!isBlocks(weight)) return { kernel: Kernel.linearFew, units: Math.ceil(n / 4), cost: 4 * cost };
  return { kernel: Kernel.linearBlocks, units: Math.ceil(n / 2), cost: 2 * cost };
}

/** Rows of x in even blocks, each made ready once and multiplied with all of W. */
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

/** Packs rows of x, or of a list of them, for products of many rows. */
export function packRows(x: Source, to: number, list: number, first: number, count: number, call: Call): void {
  const { launcher } = call;
  const { tileRows } = launcher;
  const args = launcher.prepare();
  writeRows(args, x, to, list, first);
  args[Rows.count] = count;
  launcher.run(Kernel.packRows, Math.ceil(count / tileRows), tileRows * x.k * 8);
}

/** The products of `rows` rows with a matrix: of packed ones, or of those in integers. */
export function manyJob(weight: Tensor | BlockTensor, rows: number, inIntegers: boolean): Job {
  const [n, k] = weight.shape.slice(-2) as [number, number];
  const kernel = inIntegers ? Kernel.linearRounded : Kernel.linearMany;
  return { kernel, units: Math.ceil(n / NC), cost: rows * NC * k * BYTES_PER_MADD };
}

/** Bytes of scratch memory that {@link manyJob} needs, for whole tiles. */
export function manyScratch(rows: number): number {
  return (KC * NC + Math.ceil(rows / ROUNDED_ROWS) * ROUNDED_ROWS * NC) * 4;
}

/** The arguments of widenRows and packRows. */
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
 * The arguments of all kernels that the weight, the bias and the target give; of several matrices, the first.
 *
 * @returns bytes from row to row of the weight
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
