/**
 * The kernels of the CPU backend, and how they are shared among threads.
 *
 * A job is a kernel, its words, and a number of units; a unit is computed whole, by whichever thread claims it, in an order of sums that
 * depends on shapes alone, so any number of threads gives the same bits. Memory is the host's: nothing is allocated here.
 */
import { add, swiglu } from './elementwise';
import { address } from './args';
import { argmax } from './argmax';
import { attentionFew, attentionMany } from './attention';
import { convert, embedding, embeddingWide, rearrange } from './copy';
import { linearBlocks, linearFew, linearMany, packRows, splitRows, widenRows } from './linear';
import { rmsNorm } from './rms-norm';
import { rope } from './rope';
import { MR } from './tile';
import { expNonPositive4 } from './lanes';

/**
 * Runs units `from … to - 1` of a kernel on this thread.
 *
 * @param kernel - its number; ../host.ts has the names in this order
 * @param args - address of its words
 * @param scratch - address of this thread's scratch memory
 */
export function run(kernel: i32, args: usize, from: i32, to: i32, scratch: usize): void {
  switch (kernel) {
    case 0: rope(args, from, to, scratch); break;
    case 1: rmsNorm(args, from, to, scratch); break;
    case 2: add(args, from, to); break;
    case 3: swiglu(args, from, to); break;
    case 4: rearrange(args, from, to); break;
    case 5: embedding(args, from, to); break;
    case 6: argmax(args, from, to); break;
    case 7: widenRows(args, from, to); break;
    case 8: linearFew(args, from, to); break;
    case 9: packRows(args, from, to); break;
    case 10: linearMany(args, from, to, scratch); break;
    case 11: attentionFew(args, from, to, scratch); break;
    case 12: attentionMany(args, from, to, scratch); break;
    case 13: exponential(args, from, to); break;
    case 14: if (scratch != address(args, 0)) unreachable(); break; // for the test of a worker's death: word 0 is the host's scratch
    case 15: convert(args, from, to, scratch); break;
    case 16: embeddingWide(args, from, to, scratch); break;
    case 17: splitRows(args, from, to); break;
    case 18: linearBlocks(args, from, to); break;
  }
}

/** e^x (x <= 0) of vectors `from … to - 1`, for the test of its accuracy. Words: 0 x, 1 y (f32, dense). */
function exponential(args: usize, from: i32, to: i32): void {
  for (let i = from; i < to; i++) {
    const at = (<usize>i) << 4;
    v128.store(address(args, 1) + at, expNonPositive4(v128.load(address(args, 0) + at)));
  }
}

/** Rows of a tile, which the host reckons sizes with. */
export function tileRows(): i32 {
  return MR;
}

/**
 * The job board, 64 words at `board` that all threads see:
 * 0–1 ticket (i64): the job's number, its chunks and the next chunk to claim in 24, 20 and 20 bits, so that one addition claims
 * a chunk and says which job it is of; 2 chunks done; 3 wake count, changed and notified for sleepers; 4 sleepers; 5 kernel; 6 args; 7 units;
 * 8 units of a chunk; 9 scratch of thread 0; 10 bytes of scratch a thread; 11 stop; 12 workers that are in; 13 workers that failed.
 */
const DONE = 8, WAKE = 12, SLEEPERS = 16, KERNEL = 20, ARGS = 24, UNITS = 28, CHUNK = 32, SCRATCH = 36, SCRATCH_BYTES = 40, STOP = 44, WORKERS = 48;
const CHUNKS_SHIFT: u64 = 20;
const MASK: u64 = (1 << 20) - 1;

/** Claims chunks of the current job until none is left. Returns after the last claim, not after the last chunk is done. */
function claim(board: usize, slot: i32): void {
  for (;;) {
    const seen = atomic.load<u64>(board);
    if ((seen & MASK) >= ((seen >> CHUNKS_SHIFT) & MASK)) return;
    const ticket = atomic.add<u64>(board, 1);
    const chunk = <i32>(ticket & MASK);
    if (<u64>chunk >= ((ticket >> CHUNKS_SHIFT) & MASK)) return;
    // This job cannot end, and so its words cannot change, before the chunk just claimed is done.
    const size = load<i32>(board + CHUNK), from = chunk * size;
    const scratch = load<usize>(board + SCRATCH) + <usize>slot * load<usize>(board + SCRATCH_BYTES);
    run(load<i32>(board + KERNEL), load<usize>(board + ARGS), from, min(from + size, load<i32>(board + UNITS)), scratch);
    atomic.add<i32>(board + DONE, 1);
  }
}

/**
 * Posts a job and works on it until every chunk is done.
 *
 * @param job - the job's number; each differs from the one before
 * @returns 0 when all is done; 1 when chunks claimed by others are not done after `patience` looks: the host then decides
 */
export function work(board: usize, job: i32, kernel: i32, args: usize, units: i32, size: i32, patience: i32): i32 {
  store<i32>(board + KERNEL, kernel);
  store<usize>(board + ARGS, args);
  store<i32>(board + UNITS, units);
  store<i32>(board + CHUNK, size);
  atomic.store<i32>(board + DONE, 0);
  const chunks = <u64>((units + size - 1) / size);
  atomic.store<u64>(board, ((<u64>job & 0xffffff) << 40) | (chunks << CHUNKS_SHIFT));
  if (atomic.load<i32>(board + SLEEPERS) > 0) {
    atomic.add<i32>(board + WAKE, 1);
    atomic.notify(board + WAKE, -1);
  }
  claim(board, 0);
  return finish(board, patience);
}

/** Waits for chunks that others have claimed. Returns as {@link work}. */
export function finish(board: usize, patience: i32): i32 {
  const chunks = <i32>((atomic.load<u64>(board) >> CHUNKS_SHIFT) & MASK);
  while (atomic.load<i32>(board + DONE) < chunks) {
    if (--patience < 0) return 1;
  }
  return 0;
}

/**
 * A worker's life: claims chunks, looks for the next job for a while, then sleeps. Returns when the host says stop.
 *
 * @param slot - this worker's number, from 1
 * @param looks - how often it looks before it sleeps
 */
export function serve(board: usize, slot: i32, looks: i32): void {
  atomic.add<i32>(board + WORKERS, 1);
  while (!atomic.load<i32>(board + STOP)) {
    const wake = atomic.load<i32>(board + WAKE);
    claim(board, slot);
    let left = looks;
    while (left > 0) {
      const ticket = atomic.load<u64>(board);
      if ((ticket & MASK) < ((ticket >> CHUNKS_SHIFT) & MASK)) break;
      left--;
    }
    if (left > 0) continue;
    atomic.add<i32>(board + SLEEPERS, 1);
    // A job posted between the last look and this line is seen here, or its poster saw a sleeper and changed the wake count.
    const ticket = atomic.load<u64>(board);
    if ((ticket & MASK) >= ((ticket >> CHUNKS_SHIFT) & MASK) && !atomic.load<i32>(board + STOP)) atomic.wait<i32>(board + WAKE, wake, -1);
    atomic.sub<i32>(board + SLEEPERS, 1);
  }
  atomic.sub<i32>(board + WORKERS, 1);
}
