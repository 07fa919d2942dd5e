/**
 * The kernels of the CPU backend, and the loop that shares their work among threads.
 *
 * A job is a kernel, its arguments and a number of units. The thread that claims a unit computes all of it, in an order
 * of sums that depends on shapes alone, so any number of threads gives the same bits. The host owns the memory: nothing
 * is allocated here.
 */
import { Board, Jobs, Kernel } from '../abi';
import { address, place, word } from './args';
import { argmax } from './argmax';
import { attentionFew, attentionMany } from './attention';
import { convert, embedding, embeddingWide, rearrange } from './copy';
import { elementwise } from './elementwise';
import {
  linearBlocks, linearFew, linearMany, linearRounded, packRows, roundRows, splitRows, weighRows, widenRows,
} from './linear';
import { norm } from './norm';
import { causalConv, gatedDelta, ssmScan } from './recurrent';
import { rope } from './rope';
import { MR } from './tile';

/** Runs units `from … to - 1` of a kernel on this thread. */
export function run(kernel: i32, args: usize, from: i32, to: i32, scratch: usize): void {
  switch (kernel) {
    case Kernel.rope: rope(args, from, to, scratch); break;
    case Kernel.norm: norm(args, from, to, scratch); break;
    case Kernel.elementwise: elementwise(args, from, to, scratch); break;
    case Kernel.rearrange: rearrange(args, from, to); break;
    case Kernel.convert: convert(args, from, to, scratch); break;
    case Kernel.embedding: embedding(args, from, to); break;
    case Kernel.embeddingWide: embeddingWide(args, from, to, scratch); break;
    case Kernel.argmax: argmax(args, from, to); break;
    case Kernel.widenRows: widenRows(args, from, to); break;
    case Kernel.packRows: packRows(args, from, to); break;
    case Kernel.splitRows: splitRows(args, from, to); break;
    case Kernel.roundRows: roundRows(args, from, to); break;
    case Kernel.linearFew: linearFew(args, from, to); break;
    case Kernel.linearBlocks: linearBlocks(args, from, to); break;
    case Kernel.linearMany: linearMany(args, from, to, scratch); break;
    case Kernel.linearRounded: linearRounded(args, from, to, scratch); break;
    case Kernel.attentionFew: attentionFew(args, from, to, scratch); break;
    case Kernel.attentionMany: attentionMany(args, from, to, scratch); break;
    case Kernel.jobs: jobs(args, from, to, scratch); break;
    case Kernel.weighRows: weighRows(args, from, to, scratch); break;
    case Kernel.causalConv: causalConv(args, from, to, scratch); break;
    case Kernel.gatedDelta: gatedDelta(args, from, to, scratch); break;
    case Kernel.ssmScan: ssmScan(args, from, to, scratch); break;
  }
}

/** Runs units of many jobs, each of which has its own arguments. */
function jobs(args: usize, from: i32, to: i32, scratch: usize): void {
  const each = word(args, Jobs.each);
  while (from < to) {
    const job = from / each, first = job * each, end = min(to, first + each);
    const own = place(address(args, Jobs.list), job * word(args, Jobs.words));
    run(word(args, Jobs.kernel), own, from - first, end - first, scratch);
    from = end;
  }
}

/** Tells the host the rows of a tile, from which it computes sizes. */
export function tileRows(): i32 {
  return MR;
}

const CHUNKS_SHIFT: u64 = 20;
const MASK: u64 = (1 << 20) - 1;

/** Says whether all chunks of a job are claimed. */
@inline function isClaimed(ticket: u64): bool {
  return (ticket & MASK) >= ((ticket >> CHUNKS_SHIFT) & MASK);
}

/** Claims and runs chunks of the current job until none is left to claim. Other threads may still run theirs. */
function claim(board: usize, slot: i32): void {
  for (;;) {
    const seen = atomic.load<u64>(board);
    if (isClaimed(seen)) return;
    const ticket = atomic.add<u64>(board, 1);
    const chunk = <i32>(ticket & MASK);
    if (<u64>chunk >= ((ticket >> CHUNKS_SHIFT) & MASK)) return;
    // This job cannot end, and so its words cannot change, before the chunk just claimed is done.
    const size = word(board, Board.chunk), from = chunk * size, to = min(from + size, word(board, Board.units));
    const scratch = address(board, Board.scratch) + <usize>slot * address(board, Board.scratchBytes);
    run(word(board, Board.kernel), address(board, Board.args), from, to, scratch);
    atomic.add<i32>(place(board, Board.done), 1);
  }
}

/**
 * Posts a job and works on it until every chunk is done.
 *
 * @param job - the number of the job, which differs from the one before
 * @returns 0 when all is done; 1 when chunks of other threads are not done after `patience` looks: the host then
 *   decides
 */
export function work(board: usize, job: i32, kernel: i32, args: usize, units: i32, size: i32, patience: i32): i32 {
  store<i32>(place(board, Board.kernel), kernel);
  store<usize>(place(board, Board.args), args);
  store<i32>(place(board, Board.units), units);
  store<i32>(place(board, Board.chunk), size);
  atomic.store<i32>(place(board, Board.done), 0);
  const chunks = <u64>((units + size - 1) / size);
  atomic.store<u64>(board, ((<u64>job & 0xffffff) << 40) | (chunks << CHUNKS_SHIFT));
  if (atomic.load<i32>(place(board, Board.sleepers)) > 0) {
    atomic.add<i32>(place(board, Board.wake), 1);
    atomic.notify(place(board, Board.wake), -1);
  }
  claim(board, 0);
  return finish(board, patience);
}

/** Waits for the chunks of other threads, and returns the result of {@link work}. */
export function finish(board: usize, patience: i32): i32 {
  const chunks = <i32>((atomic.load<u64>(board) >> CHUNKS_SHIFT) & MASK);
  while (atomic.load<i32>(place(board, Board.done)) < chunks) {
    if (--patience < 0) return 1;
  }
  return 0;
}

/**
 * A worker's loop: claims chunks, looks for the next job for a while, then sleeps. Returns when the host says stop.
 *
 * @param slot - the number of this worker, from 1
 * @param looks - the number of times that it looks before it sleeps
 */
export function serve(board: usize, slot: i32, looks: i32): void {
  atomic.add<i32>(place(board, Board.workers), 1);
  while (!atomic.load<i32>(place(board, Board.stop))) {
    const wake = atomic.load<i32>(place(board, Board.wake));
    claim(board, slot);
    let left = looks;
    while (left > 0) {
      const ticket = atomic.load<u64>(board);
      if (!isClaimed(ticket)) break;
      left--;
    }
    if (left > 0) continue;
    atomic.add<i32>(place(board, Board.sleepers), 1);
    // A job posted after the last look is seen here, or the host saw a sleeper and changed the wake count.
    const ticket = atomic.load<u64>(board);
    if (isClaimed(ticket) && !atomic.load<i32>(place(board, Board.stop))) {
      atomic.wait<i32>(place(board, Board.wake), wake, -1);
    }
    atomic.sub<i32>(place(board, Board.sleepers), 1);
  }
  atomic.sub<i32>(place(board, Board.workers), 1);
}
