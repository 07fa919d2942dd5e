/** The linear layer of experts, by the kernels of linear: each chosen matrix is read once. @module */
import { isBlocks } from '../../../core/blocks.js';
import { sizeBytes } from '../../../core/dtypes.js';
import { isRowMajor } from '../../../core/shape.js';
import type { Tensor } from '../../../core/tensor.js';
import { type ExpertLinearPlan, readExperts } from '../../../ops/expert-linear.js';
import { Jobs, Kernel, Linear, Type, WeighRows } from '../abi.js';
import { type Call, typeOf } from '../call.js';
import {
  BLOCK_ROWS,
  denseSource,
  fewJob,
  integerRows,
  isFew,
  type Job,
  manyJob,
  manyScratch,
  packRows,
  roundRows,
  roundsFor,
  sourceOf,
  splitRows,
  type Target,
  targetOf,
  widenRows,
  writeLinear,
} from './linear.js';

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
  if (few.length > 0) runFew(all, few);
  if (many.length > 0) runMany(all, many);
  if (weights) weigh(plan, products, call);
}

/** Runs the experts with few pairs, all at once: in decoding each expert has one pair. */
function runFew(all: Products, pieces: readonly Piece[]): void {
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
function runMany(all: Products, pieces: readonly Piece[]): void {
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
