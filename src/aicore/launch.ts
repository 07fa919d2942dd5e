/**
 * Launches a kernel on the modelled chip: one core after the other, then what all of them say together.
 *
 * @module
 */
import { reading, readList, readName, readOptional, readOptions } from '../core/arguments.js';
import type { FloatDtype } from '../core/dtypes.js';
import { refuse } from '../core/errors.js';
import { AscendC } from './ascendc.js';
import { Core, checkCount, coresOf, type LineCost, newLaunch, Stopped, UnifiedBuffer } from './core.js';
import { ASSUMPTIONS, CHIPS, HEADS } from './costs.js';
import { GlobalTensor } from './memory.js';
import {
  type BlockRun,
  type Bottleneck,
  type BufferEntry,
  type Finding,
  type KernelName,
  type KernelRun,
  type MachineOptions,
  QUEUES,
  type QueueName,
} from './trace.js';

/** A kernel ready to run. */
export interface LaunchOptions {
  readonly kernel: KernelName | string;
  readonly dtype: FloatDtype;
  readonly blocks: number;
  /** The kernel's default for MachineOptions.autoSync. */
  readonly autoSync: boolean;
  readonly machine?: MachineOptions;
  readonly record?: boolean | readonly number[];
  /** Told the blocks that are done and all there are, after each. */
  readonly onBlock?: (done: number, total: number) => void;
  /** The kernel: what each block does. */
  readonly body: (c: AscendC) => void;
  /** What it must write, with coverage; none for kernels that write no tensor. */
  readonly output?: GlobalTensor;
  /** Elements of one row of the output. */
  readonly rowLength?: number;
  /** First element of each row, as an index in the allocation. */
  readonly rowStarts?: readonly number[];
  /** The least bytes that must move. */
  readonly least?: { readonly load: number; readonly store: number };
  /** Findings about the launch itself. */
  readonly extra?: readonly Pick<Finding, 'kind' | 'line' | 'message'>[];
}

/**
 * Runs a kernel on every block.
 *
 * @param call - the kernel and where it runs
 * @returns all that the model says; the kernel's writes are in the caller's memory
 * @throws {RopewalkError} on options out of range; a kernel that hangs is a finding, not an error
 */
export function launchKernel(call: LaunchOptions): KernelRun {
  const options = readLaunch(call);
  const { blocks: blockCount } = options;
  const machine = readOptions(options.machine ?? {}, 'aicore: machine');
  const launch = newLaunch(machine, options.autoSync, blockCount);
  const buffer = new UnifiedBuffer(launch.capacity);
  const wanted = (block: number) =>
    Array.isArray(options.record) ? options.record.includes(block) : options.record === true;
  const blocks: BlockRun[] = [];
  const details: { readonly costs: readonly LineCost[]; readonly mte2Head: number }[] = [];
  let buffers: readonly BufferEntry[] = [];
  let used = 0;
  for (let block = 0; block < blockCount; block++) {
    const core = new Core(block, launch, buffer, wanted(block));
    let stopped = false;
    try {
      options.body(new AscendC(core));
    } catch (error) {
      if (!(error instanceof Stopped)) throw error;
      stopped = true;
    }
    const { run, ...detail } = core.finish(stopped);
    blocks.push(run);
    details.push(detail);
    if (core.top > used) [buffers, used] = [core.buffers, core.top];
    options.onBlock?.(block + 1, blockCount);
  }
  for (const { kind, line, message } of options.extra ?? []) launch.findings.add(kind, line, message, 0, 0);

  const rows = countRows(options);
  if (rows.written < rows.wanted) {
    launch.findings.add(
      'coverage',
      'launch',
      `${rows.wanted - rows.written} of ${rows.wanted} rows of ${options.output?.name ?? 'the output'} were never written`,
      0,
      0,
      false,
      rows.wanted - rows.written,
    );
  }

  // Blocks beyond the cores run after one another on the same core, each with its own heads.
  const cores = coresOf(machine);
  const perCore = new Float64Array(Math.min(cores, Math.max(1, blockCount)));
  for (const run of blocks) perCore[run.block % cores]! += run.cycles - HEADS.operator;
  const cycles = HEADS.operator + Math.max(0, ...perCore);
  const slowest = blocks.reduce((best, run, i) => (run.cycles > blocks[best]!.cycles ? i : best), 0);
  const slow = blocks[slowest] ?? IDLE;
  const { clockGHz } = CHIPS[launch.chip];
  const { costs, mte2Head } = details[slowest] ?? { costs: [], mte2Head: HEADS.mte2(launch.concurrent, false) };
  const heads = { S: 0, V: HEADS.V, MTE2: mte2Head, MTE3: HEADS.MTE3, operator: HEADS.operator };
  const least = options.least ?? { load: 0, store: 0 };
  const bytes = {
    load: launch.bytes.load,
    store: launch.bytes.store,
    scalar: launch.bytes.scalar,
    byTensor: Object.fromEntries(launch.bytes.byTensor),
    least,
  };
  return {
    kernel: options.kernel,
    dtype: options.dtype,
    chip: launch.chip,
    clockGHz,
    blockCount,
    waves: Math.ceil(blockCount / cores),
    cycles,
    microseconds: cycles / (clockGHz * 1000),
    busy: slow.busy,
    heads,
    rows,
    cyclesPerRow: rows.written > 0 ? cycles / rows.written : 0,
    overlap: slow.overlap,
    bytes,
    unifiedBuffer: { capacity: launch.capacity, used, buffers },
    bankConflicts: { ...launch.conflicts },
    bottleneck: bottleneckOf(slow, costs, mte2Head, bytes),
    findings: launch.findings.list(),
    assumptions: ASSUMPTIONS,
    blocks,
    slowest,
  };
}

/** Blocks that one launch takes: its count has 16 bits on the device. */
const MAX_BLOCKS = 2 ** 16 - 1;

function readLaunch(call: LaunchOptions): LaunchOptions {
  const options = readOptions(call, 'aicore: options');
  const { kernel, dtype, blocks, body, onBlock, record, output, rowLength = 0, rowStarts = [], least } = options;
  if (typeof kernel !== 'string') refuse('RANGE', 'aicore: kernel', 'a name', kernel);
  readName(dtype, ['f64', 'f32', 'f16', 'bf16'], 'aicore: dtype');
  checkCount(blocks, 'blocks', 0, MAX_BLOCKS);
  if (typeof body !== 'function') refuse('RANGE', 'aicore: body', 'a function', body);
  if (onBlock !== undefined && typeof onBlock !== 'function') refuse('RANGE', 'aicore: onBlock', 'a function', onBlock);
  if (output !== undefined && !reading('aicore: output', () => output instanceof GlobalTensor))
    refuse('RANGE', 'aicore: output', 'a GlobalTensor', output);
  checkCount(rowLength, 'rowLength');
  const bytes = readOptional(least, 'aicore: least');
  for (const count of bytes ? [bytes.load, bytes.store] : []) checkCount(count, 'least');
  return {
    ...options,
    ...(record === undefined || typeof record === 'boolean'
      ? {}
      : { record: Array.from(readList(record, 'aicore: record')) }),
    rowStarts: Array.from(readList(rowStarts, 'aicore: rowStarts')),
    ...(bytes ? { least: bytes } : {}),
  };
}

/** What is said of a launch without blocks. */
const IDLE: BlockRun = /* @__PURE__ */ Object.freeze({
  block: 0,
  cycles: HEADS.operator,
  busy: { S: 0, V: 0, MTE2: 0, MTE3: 0 },
  instructionCount: { S: 0, V: 0, MTE2: 0, MTE3: 0 },
  overlap: { any: 0, several: 0, share: 0, parallelism: 0 },
  stopped: false,
});

function countRows(options: LaunchOptions): { written: number; wanted: number } {
  const starts = options.rowStarts ?? [];
  const coverage = options.output?.coverage;
  if (!coverage) return { written: 0, wanted: 0 };
  const length = options.rowLength ?? 0;
  let written = 0;
  for (const start of starts) {
    let whole = true;
    for (let e = start; e < start + length && whole; e++) whole = coverage[e] === 2;
    if (whole) written++;
  }
  return { written, wanted: starts.length };
}

/** Below this share no queue is the bottleneck: they wait for each other. */
const WAITING = 0.6;

function bottleneckOf(
  run: BlockRun,
  costs: readonly LineCost[],
  mte2Head: number,
  bytes: KernelRun['bytes'],
): Bottleneck {
  const what = QUEUES.reduce((best, q) => (run.busy[q] > run.busy[best] ? q : best), 'S' as QueueName);
  const share = run.cycles > 0 ? run.busy[what] / run.cycles : 0;
  const line = [...costs].filter((c) => c.queue === what).sort((a, b) => b.cycles - a.cycles)[0];
  const name = line?.line ?? 'launch';
  const percent = (n: number) => `${Math.round(n * 100)} %`;
  const lineShare = line ? percent(line.cycles / Math.max(1, run.busy[what])) : '0 %';
  if (run.busy[what] < mte2Head) {
    const advice = `Starting takes longer than the work: ${Math.round(mte2Head + HEADS.operator)} cycles pass before the first load, and ${what} then works ${Math.round(run.busy[what])}. Give one launch more rows.`;
    return { what: 'start', share: Math.min(1, (mte2Head + HEADS.operator) / run.cycles), line: 'launch', advice };
  }
  const head = `${what} is busy ${percent(share)} of the slowest block, ${lineShare} of that in "${name}".`;
  const next: { readonly [Q in QueueName]: string } = {
    S: 'The scalar unit does elements one by one: move them with vector instructions (GatherMask, Gather).',
    V: 'Vector work is what limits: fewer instructions, more rows in each, no bank conflicts.',
    MTE2: `Reading limits: ${bytes.load} bytes are loaded where ${bytes.least.load} must be; load each table row once, and several rows in a copy.`,
    MTE3: `Writing limits: ${bytes.store} bytes are stored where ${bytes.least.store} must be; several rows in a copy, whole datablocks.`,
  };
  const wait =
    share < WAITING
      ? ' The queues wait for each other for much of the time: two buffers in each queue, and no waits of the scalar unit.'
      : '';
  return { what, share, line: name, advice: `${head} ${next[what]}${wait}` };
}
