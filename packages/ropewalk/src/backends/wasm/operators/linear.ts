/** Multiplication by a weight matrix, and by the matrices of each token's experts. @module */
import { type BlockTensor, isBlocks } from '../../../core/blocks.js';
import { type FloatDtype, sizeBytes } from '../../../core/dtypes.js';
import { isRowMajor } from '../../../core/shape.js';
import type { Tensor } from '../../../core/tensor.js';
import { type ExpertLinearPlan, readExperts } from '../../../ops/expert-linear.js';
import type { LinearPlan } from '../../../ops/linear.js';
import { rowsOf, type Walk } from '../../walks.js';
import {
  Jobs,
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
  WeighRows,
} from '../abi.js';
import { type Call, typeOf, writeWalk } from '../call.js';
import { BYTES_PER_MADD } from '../launcher.js';

/** The rows of x that linearMany packs at a time: with 64 columns of sums they fill half of a second-level cache. */
const BLOCK_ROWS = 768;
/** The most rows of x that are multiplied with W as it streams by. For more rows, packing is faster. */
const FEW_ROWS = 6;
const FEW_ROWS_OF_BLOCKS = 8;

/** The place of an output's rows. */
interface Target {
  readonly address: number;
  readonly type: Type;
  /** The step from column to column, in elements. */
  readonly stride: number;
  /** Walks over the rows. */
  readonly walk: Walk;
}

/** The place of rows of x. */
interface Source {
  readonly address: number;
  readonly type: Type;
  readonly k: number;
  /** The step from element to element, in elements. */
  readonly stride: number;
  /** Walks over the rows. */
  readonly walk: Walk;
}

/** A kernel over units of columns, and the cost of a unit in bytes moved. */
interface Job {
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
function isFew(weight: Tensor | BlockTensor, m: number, k: number): boolean {
  return isBlocks(weight) ? m <= FEW_ROWS_OF_BLOCKS : m <= FEW_ROWS && (weight.strides.at(-1) === 1 || k <= 1);
}

/** Locates an output. */
function targetOf(out: Tensor<FloatDtype>, call: Call): Target {
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
function roundsFor({ activations, weight }: LinearPlan | ExpertLinearPlan): BlockTensor | undefined {
  return activations === 'q8' && isBlocks(weight) ? weight : undefined;
}

/** Locates the rows of a tensor. */
function sourceOf(x: Tensor, call: Call): Source {
  return {
    address: call.address(x),
    type: typeOf(x),
    k: x.shape.at(-1)!,
    stride: x.strides.at(-1)!,
    walk: rowsOf([x]),
  };
}

/** Locates dense f32 rows. */
function denseSource(address: number, count: number, k: number): Source {
  return { address, type: Type.f32, k, stride: 1, walk: { dims: [count], strides: [[k]] } };
}

/** Takes memory for rounded rows in integers; 0 where products with the weight are not summed in integers. */
function integerRows({ format, shape }: BlockTensor, count: number, call: Call): number {
  if (format !== 'q8_0' && format !== 'q4_0') return 0;
  return call.temporary(count * (SPLIT_HEAD + (shape.at(-1)! / UNIT) * ROUNDED_BLOCK));
}

/** Rounds dense f32 rows to 8 bits in place, and also writes them as integers to {@link integerRows}, which it returns. */
function roundRows(rows: number, count: number, weight: BlockTensor, to: number, call: Call): number {
  return runOnRows(Kernel.roundRows, rows, count, weight, to, call);
}

/** Splits dense f32 rows into integers, for products with blocks. */
function splitRows(rows: number, count: number, weight: BlockTensor, call: Call): number {
  const to = call.temporary(count * (SPLIT_HEAD + (weight.shape.at(-1)! / UNIT) * SPLIT_BLOCK));
  return runOnRows(Kernel.splitRows, rows, count, weight, to, call);
}

/** Runs a kernel that prepares dense f32 rows for products with blocks, and returns the address of its output. */
function runOnRows(
  kernel: Kernel,
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
  launcher.run(kernel, count, k * 8);
  return to;
}

/** Reads rows of x, or those of a list, as dense f32 until the end of the call. */
function widenRows(x: Source, count: number, list: number, call: Call): number {
  const to = call.temporary(count * x.k * 4);
  readRows(x, to, list, 0, count, call);
  return to;
}

/** Reads rows of x, or those of a list, from `first` on, as dense f32. */
function readRows(x: Source, to: number, list: number, first: number, count: number, { launcher }: Call): void {
  writeRows(launcher.prepare(), x, to, list, first);
  launcher.run(Kernel.widenRows, count, 2 * x.k * 4);
}

/** The job that multiplies few rows with a matrix whose rows are `rowBytes` apart. */
function fewJob(weight: Tensor | BlockTensor, m: number, rowBytes: number): Job {
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
function packRows(x: Source, to: number, list: number, first: number, count: number, call: Call): void {
  const { launcher } = call;
  const { tileRows } = launcher;
  const args = launcher.prepare();
  writeRows(args, x, to, list, first);
  args[Rows.count] = count;
  launcher.run(Kernel.packRows, Math.ceil(count / tileRows), tileRows * x.k * 8);
}

/** The job that multiplies many rows with a matrix: packed rows, or rows in integers. */
function manyJob(weight: Tensor | BlockTensor, rows: number, inIntegers: boolean): Job {
  const [n, k] = weight.shape.slice(-2) as [number, number];
  const kernel = inIntegers ? Kernel.linearRounded : Kernel.linearMany;
  return { kernel, units: Math.ceil(n / NC), cost: rows * NC * k * BYTES_PER_MADD };
}

/** The bytes of scratch memory that {@link manyJob} needs, for whole tiles. */
function manyScratch(rows: number): number {
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
function writeLinear(
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

/** Pairs of a token and one of its experts, as indices into `[tokens, chosen]`. */
type Pairs = number[];

/** Some pairs of one expert. */
interface Piece {
  readonly expert: number;
  readonly pairs: Pairs;
}

/** The products of a call. */
interface Products {
  readonly plan: ExpertLinearPlan;
  readonly call: Call;
  readonly y: Target;
  /** Finds the row of x that a pair reads. */
  rowOf(pair: number): number;
}

/** Runs the experts' linear layer. */
export function runExpertLinear(plan: ExpertLinearPlan, call: Call): void {
  const { x, weight, bias, indices, weights, out } = plan;
  const ids = readExperts(plan);
  const inputs: Tensor[] = [x, isBlocks(weight) ? weight.bytes : weight];
  for (const tensor of [bias, weights]) if (tensor) inputs.push(tensor);
  call.stage(inputs, [out]);
  if (out.size === 0) return;
  const [n, k] = weight.shape.slice(1) as [number, number];
  const products = weights ? call.temporary(ids.length * n * 4) : 0;
  const walk = { dims: [ids.length], strides: [[n]] };
  const y = weights ? { address: products, type: Type.f32, stride: 1, walk } : targetOf(out, call);
  const byExpert = new Map<number, Pairs>();
  for (const [pair, expert] of ids.entries()) {
    const pairs = byExpert.get(expert);
    if (pairs) pairs.push(pair);
    else byExpert.set(expert, [pair]);
  }
  const few: Piece[] = [];
  const many: Piece[] = [];
  for (const [expert, pairs] of byExpert) {
    if (isFew(weight, pairs.length, k)) few.push({ expert, pairs });
    else
      for (let at = 0; at < pairs.length; at += BLOCK_ROWS)
        many.push({ expert, pairs: pairs.slice(at, at + BLOCK_ROWS) });
  }
  // There is a row of x for each pair, or one for all pairs of a token.
  const perRow = x.rank === 3 ? 1 : indices.shape[1]!;
  const all: Products = { plan, call, y, rowOf: (pair) => Math.floor(pair / perRow) };
  if (few.length > 0) runFewPairs(all, few);
  if (many.length > 0) runManyPairs(all, many);
  if (weights) weigh(plan, products, call);
}

/** Runs the experts with few pairs, all at once: in decoding each expert has one pair. */
function runFewPairs(all: Products, pieces: readonly Piece[]): void {
  const { plan, call, rowOf } = all;
  const { x, weight } = plan;
  const k = x.shape.at(-1)!;
  const pairs = pieces.flatMap((piece) => piece.pairs);
  const rows = new Map<number, number>(); // It maps rows of x to their places among those that are read.
  for (const pair of pairs) if (!rows.has(rowOf(pair))) rows.set(rowOf(pair), rows.size);
  const rounds = roundsFor(plan);
  const inPlace = !rounds && x.dtype === 'f32' && isRowMajor(x) && rows.size * k === x.size;
  const from = inPlace ? call.address(x) : widenRows(sourceOf(x, call), rows.size, call.copyIn([...rows.keys()]), call);
  const integers = rounds ? roundRows(from, rows.size, rounds, integerRows(rounds, rows.size, call), call) : 0;
  const split = isBlocks(weight) && integers === 0 ? splitRows(from, rows.size, weight, call) : integers;
  const xRows = call.copyIn(pairs.map((pair) => (inPlace ? rowOf(pair) : rows.get(rowOf(pair))!)));
  const yRows = call.copyIn(pairs);
  let first = 0;
  const job = fewJob(weight, pairs.length / pieces.length, call.matrix(weight).rowBytes);
  runJobs(all, pieces, job, 0, (args, piece) => {
    args[Linear.x] = from;
    args[Linear.split] = split;
    args[Linear.rounded] = integers === 0 ? 0 : 1;
    args[Linear.xRows] = xRows + 4 * first;
    args[Linear.yRows] = yRows + 4 * first;
    first += piece.pairs.length;
  });
}

/** Runs the experts with many pairs: as many experts at a time as fill a block of prepared rows. */
function runManyPairs(all: Products, pieces: readonly Piece[]): void {
  const { plan, call, rowOf } = all;
  const { x, weight } = plan;
  const k = x.shape.at(-1)!;
  const { tileRows } = call.launcher;
  const room = (piece: Piece): number => Math.ceil(piece.pairs.length / tileRows) * tileRows;
  const batches: { readonly of: Piece[]; readonly pairs: Pairs }[] = [];
  for (const piece of pieces) {
    let batch = batches.at(-1);
    if (!batch || batch.pairs.length + room(piece) > BLOCK_ROWS) batches.push((batch = { of: [], pairs: [] }));
    batch.of.push(piece);
    batch.pairs.push(...piece.pairs);
    // A tile has rows of one expert only, so the last tile is filled up.
    while (batch.pairs.length % tileRows !== 0) batch.pairs.push(piece.pairs[0]!);
  }
  // All rows of x are rounded once, because experts share them.
  const rounds = roundsFor(plan);
  const count = x.size / k;
  const rows = rounds ? widenRows(sourceOf(x, call), count, 0, call) : 0;
  const integers = rounds ? roundRows(rows, count, rounds, integerRows(rounds, count, call), call) : 0;
  const from = rounds ? denseSource(rows, count, k) : sourceOf(x, call);
  const most = batches.reduce((length, { pairs }) => Math.max(length, pairs.length), 0);
  const packed = integers === 0 ? call.temporary(most * k * 4) : 0;
  for (const { of, pairs } of batches) {
    const yRows = call.copyIn(pairs);
    const xRows = call.copyIn(pairs.map(rowOf));
    if (integers === 0) packRows(from, packed, xRows, 0, pairs.length, call);
    let first = 0;
    const scratch = manyScratch(of.reduce((most, piece) => Math.max(most, room(piece)), 0));
    runJobs(all, of, manyJob(weight, pairs.length / of.length, integers !== 0), scratch, (args, piece) => {
      args[Linear.x] = integers === 0 ? packed + 4 * first * k : rows;
      args[Linear.split] = integers;
      args[Linear.xRows] = integers === 0 ? 0 : xRows + 4 * first;
      args[Linear.yRows] = yRows + 4 * first;
      first += room(piece);
    });
  }
}

/** Runs one job for each piece, all together. */
function runJobs(
  { plan, call, y }: Products,
  pieces: readonly Piece[],
  { kernel, units, cost }: Job,
  scratch: number,
  write: (args: Int32Array, piece: Piece) => void,
): void {
  const { launcher } = call;
  const { weight, bias } = plan;
  const words = Linear.walk + 1 + 2 * y.walk.dims.length;
  const list = call.temporary(pieces.length * words * 4);
  const args = launcher.prepare(scratch);
  const all = new Int32Array(launcher.memory.buffer, list, pieces.length * words);
  writeLinear(all, plan, y, call);
  const weightBytes = isBlocks(weight)
    ? weight.bytes.size / weight.shape[0]!
    : weight.strides[0]! * sizeBytes(weight.dtype);
  const biasBytes = bias ? bias.strides[0]! * sizeBytes(bias.dtype) : 0;
  const [weightAt, biasAt] = [all[Linear.weight]!, all[Linear.bias]!];
  for (const [j, piece] of pieces.entries()) {
    all.copyWithin(j * words, 0, words);
    const own = all.subarray(j * words, (j + 1) * words);
    own[Linear.weight] = weightAt + piece.expert * weightBytes;
    own[Linear.bias] = biasAt + piece.expert * biasBytes;
    own[Linear.m] = piece.pairs.length;
    write(own, piece);
  }
  args[Jobs.kernel] = kernel;
  args[Jobs.each] = units;
  args[Jobs.list] = list;
  args[Jobs.words] = words;
  launcher.run(Kernel.jobs, pieces.length * units, cost);
}

/** Adds up the weighted products of each token. */
function weigh({ indices, weights, out }: ExpertLinearPlan, products: number, call: Call): void {
  const [tokens, chosen] = indices.shape as [number, number];
  const n = out.shape[1]!;
  const args = call.launcher.prepare(n * 4);
  args[WeighRows.x] = products;
  args[WeighRows.chosen] = chosen;
  args[WeighRows.n] = n;
  args[WeighRows.weights] = call.address(weights!);
  args[WeighRows.weightsType] = typeOf(weights!);
  args[WeighRows.weightsToken] = weights!.strides[0]!;
  args[WeighRows.weightsStride] = weights!.strides[1]!;
  args[WeighRows.y] = call.address(out);
  args[WeighRows.yType] = typeOf(out);
  args[WeighRows.yRow] = out.strides[0]!;
  args[WeighRows.yStride] = out.strides[1]!;
  call.launcher.run(Kernel.weighRows, tokens, chosen * n * 4);
}
