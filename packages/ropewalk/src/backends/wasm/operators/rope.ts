/** RoPE: it rotates q and k, normalises them and writes into KV caches, in one pass over the tokens. @module */
import { sizeBytes } from '../../../core/dtypes.js';
import { fail } from '../../../core/errors.js';
import type { RopeCall } from '../../../ops/rope/call.js';
import { Kernel, Rope, RopePart } from '../abi.js';
import { type Call, typeOf, writeF64, writeList } from '../call.js';
import { ARGUMENT_WORDS } from '../launcher.js';

/** The work of one claim, in bytes. docs/cpu.md has the times of other sizes. */
const CHUNK_BYTES = 1 << 18;
/** The most parts that the arguments have room for. */
const MAX_PARTS = Math.floor((ARGUMENT_WORDS - Rope.firstPart) / RopePart.words);

/** Runs a rotation. */
export function runRope({ plan, parts }: RopeCall, call: Call): void {
  // The loops use indices, because iterating and destructuring frozen lists costs a twentieth of a short call.
  const count = parts.length;
  for (let p = 0; p < count; p++) {
    const { x, out, norm, rowScales } = parts[p]!;
    call.announce(x, false);
    call.announce(out, true);
    if (rowScales) call.announce(rowScales, true);
    if (norm) call.announce(norm.weight, false);
  }
  call.copyAnnounced();
  const { shape } = parts[0]!.x;
  const batch = shape[0]!;
  const seq = shape[1]!;
  if (batch * seq === 0) return;
  if (count > MAX_PARTS)
    fail('UNSUPPORTED', 'cpu: rope: parts', `${count} are too many for one call: give at most ${MAX_PARTS}.`);
  // Steps that take memory or run a separate kernel come before prepare.
  const addresses: number[] = []; // They are those of each part's norm, rows and scale.
  let headDim = 0;
  for (let p = 0; p < count; p++) {
    const { x, norm, rows, scale } = parts[p]!;
    addresses.push(norm ? call.denseF32(norm.weight) : 0, rows ? call.copyIn(rows) : 0, call.copyInF32(scale));
    headDim = Math.max(headDim, x.shape[3]!);
  }
  const { table, read, write } = plan;
  const { launcher } = call;
  const cos = launcher.table(table.cos);
  const sin = launcher.table(table.sin);
  const tableRows = launcher.table(plan.tableRows);
  const args = launcher.prepare(4 * headDim * 4);
  args[Rope.cos] = cos;
  args[Rope.sin] = sin;
  args[Rope.tableRows] = tableRows;
  args[Rope.perBatch] = plan.batch === undefined ? 0 : 1;
  args[Rope.seq] = seq;
  args[Rope.headDim] = headDim;
  args[Rope.rotaryOffset] = plan.rotaryOffset;
  args[Rope.pairs] = table.pairs;
  args[Rope.readStep] = read.step;
  args[Rope.readGap] = read.gap;
  args[Rope.writeStep] = write.step;
  args[Rope.writeGap] = write.gap;
  args[Rope.parts] = count;
  let tokenBytes = 0;
  for (let p = 0; p < count; p++) {
    const { x, out, norm, rotate, blockSize, rowScales } = parts[p]!;
    const heads = x.shape[2]!;
    const at = Rope.firstPart + RopePart.words * p;
    args[at + RopePart.x] = call.address(x);
    args[at + RopePart.y] = call.address(out);
    args[at + RopePart.xType] = typeOf(x);
    args[at + RopePart.yType] = typeOf(out);
    args[at + RopePart.heads] = heads;
    writeList(args, at + RopePart.xBatch, x.strides);
    writeList(args, at + RopePart.yBatch, out.strides);
    args[at + RopePart.headDim] = x.shape[3]!;
    args[at + RopePart.rotate] = rotate ? 1 : 0;
    args[at + RopePart.rows] = addresses[3 * p + 1]!;
    args[at + RopePart.blockSize] = blockSize ?? 0;
    args[at + RopePart.scale] = addresses[3 * p + 2]!;
    args[at + RopePart.own] = rowScales ? call.address(rowScales) : 0;
    if (rowScales) writeList(args, at + RopePart.ownBatch, rowScales.strides.slice(0, 3));
    args[at + RopePart.weight] = addresses[3 * p]!;
    writeF64(args, at + RopePart.eps, norm?.eps ?? 0);
    args[at + RopePart.dense] = x.strides[3] === 1 && out.strides[3] === 1 && x.dtype === out.dtype && !norm ? 1 : 0;
    tokenBytes += heads * x.shape[3]! * (sizeBytes(x.dtype) + sizeBytes(out.dtype));
  }
  launcher.run(Kernel.rope, batch * seq, tokenBytes, CHUNK_BYTES);
}
