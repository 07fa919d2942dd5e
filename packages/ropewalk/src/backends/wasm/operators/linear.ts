/** Multiplication by a weight matrix. @module */
import { BLOCK_WEIGHTS, isBlocks } from '../../../core/blocks.js';
import { isRowMajor } from '../../../core/shape.js';
import type { LinearPlan } from '../../../ops/linear.js';
import { rowsOf, type Walk } from '../../walks.js';
import { KC, Kernel, Linear, NC, Rows, SPLIT_BLOCK, SPLIT_HEAD } from '../abi.js';
import { writeWalk } from '../arguments.js';
import { type Call, typeOf } from '../call.js';
import { BYTES_PER_MADD } from '../launcher.js';

/** Rows of x that linearMany packs at a time: with 64 columns of sums they fill half of a second-level cache. */
const BLOCK_ROWS = 768;
/** Up to this many rows of x, each row of W is multiplied as it streams by; above, packing pays. */
const FEW_ROWS = 6;
const FEW_ROWS_OF_BLOCKS = 8;

/** Runs a linear layer. */
export function runLinear(plan: LinearPlan, call: Call): void {
  const { x, weight, bias, out, m, k } = plan;
  const inputs = [x, isBlocks(weight) ? weight.bytes : weight];
  if (bias) inputs.push(bias);
  call.bring(inputs, [out]);
  if (out.size === 0) return;
  if (isBlocks(weight) ? m <= FEW_ROWS_OF_BLOCKS : m <= FEW_ROWS && (weight.strides[1] === 1 || k <= 1))
    runFew(plan, call);
  else runMany(plan, call);
}

function runFew(plan: LinearPlan, call: Call): void {
  const { x, weight, m, n, k } = plan;
  const { launcher } = call;
  let rows = call.address(x);
  if (x.dtype !== 'f32' || !isRowMajor(x)) {
    rows = call.temporary(m * k * 4);
    writeRows(launcher.prepare(), plan, rows, 0, call);
    launcher.run(Kernel.widenRows, m, 2 * k * 4);
  }
  const walk = rowsOf([plan.out]);
  const cost = Math.max(call.matrix(weight).rowBytes, m * k * BYTES_PER_MADD);
  if (!isBlocks(weight)) {
    writeLinear(launcher.prepare(), plan, rows, walk, call);
    launcher.run(Kernel.linearFew, n, cost);
    return;
  }
  const split = call.temporary(m * (SPLIT_HEAD + (k / BLOCK_WEIGHTS) * SPLIT_BLOCK));
  const rowArgs = launcher.prepare();
  rowArgs[Rows.x] = rows;
  rowArgs[Rows.to] = split;
  rowArgs[Rows.k] = k;
  launcher.run(Kernel.splitRows, m, k * 8);
  const args = launcher.prepare();
  writeLinear(args, plan, rows, walk, call);
  args[Linear.split] = split;
  launcher.run(Kernel.linearBlocks, Math.ceil(n / 2), 2 * cost);
}

/** Rows of x in even blocks, each packed once and multiplied with all of W. */
function runMany(plan: LinearPlan, call: Call): void {
  const { m, n, k } = plan;
  const { launcher } = call;
  const { tileRows } = launcher;
  const blocks = Math.ceil(m / BLOCK_ROWS);
  const blockRows = Math.ceil(m / blocks / tileRows) * tileRows;
  const packed = call.temporary(blockRows * k * 4);
  const scratch = (KC * NC + blockRows * NC) * 4;
  const walk = rowsOf([plan.out]);
  for (let first = 0; first < m; first += blockRows) {
    const rows = Math.min(blockRows, m - first);
    const rowArgs = launcher.prepare();
    writeRows(rowArgs, plan, packed, first, call);
    rowArgs[Rows.count] = rows;
    launcher.run(Kernel.packRows, Math.ceil(rows / tileRows), tileRows * k * 8);
    const args = launcher.prepare(scratch);
    writeLinear(args, plan, packed, walk, call);
    args[Linear.m] = rows;
    args[Linear.first] = first;
    launcher.run(Kernel.linearMany, Math.ceil(n / NC), rows * NC * k * BYTES_PER_MADD);
  }
}

/** The arguments of widenRows and packRows. */
function writeRows(args: Int32Array, { x, k }: LinearPlan, to: number, first: number, call: Call): void {
  args[Rows.x] = call.address(x);
  args[Rows.to] = to;
  args[Rows.type] = typeOf(x);
  args[Rows.k] = k;
  args[Rows.stride] = x.strides.at(-1)!;
  args[Rows.first] = first;
  writeWalk(args, Rows.walk, rowsOf([x]));
}

/** The arguments that all three kernels have. */
function writeLinear(args: Int32Array, plan: LinearPlan, rows: number, walk: Walk, call: Call): void {
  const { bias, out, m, n, k } = plan;
  const weight = call.matrix(plan.weight);
  args[Linear.x] = rows;
  args[Linear.weight] = weight.address;
  args[Linear.weightRow] = weight.row;
  args[Linear.weightStride] = weight.stride;
  args[Linear.weightType] = weight.type;
  args[Linear.bias] = bias ? call.address(bias) : 0;
  args[Linear.biasStride] = bias ? bias.strides[0]! : 0;
  args[Linear.biasType] = bias ? typeOf(bias) : 0;
  args[Linear.y] = call.address(out);
  args[Linear.yStride] = out.strides.at(-1)!;
  args[Linear.yType] = typeOf(out);
  args[Linear.m] = m;
  args[Linear.n] = n;
  args[Linear.k] = k;
  writeWalk(args, Linear.walk, walk);
}
