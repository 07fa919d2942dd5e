/** Launches a kernel on the modelled chip: runs one block after the other, then adds up what they report. @module */
import type { FloatDtype } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { type OptionNames, reading, readList, readName, readOptional, readOptions } from 'ropewalk/internal';
import { AscendC } from './ascendc.js';
import { Core, checkCount, type LineCost, MACHINE_NAMES, newLaunch, readChip, Stopped, UnifiedBuffer } from './core.js';
import { ASSUMPTIONS, CHIPS, HEADS, MAX_BLOCKS } from './costs.js';
import { GlobalTensor } from './memory.js';
import { microsecondsOf } from './time.js';
import type { BlockRun, Bottleneck, BufferEntry, Finding, KernelName, KernelRun, MachineOptions } from './trace.js';
import { QUEUES, type QueueName } from './trace.js';

/** Options of {@link launchKernel}: a kernel, and how it is launched. */
export interface LaunchOptions {
  /** A name for reports. */
  readonly kernel: KernelName | string;
  readonly dtype: FloatDtype;
  /** Blocks, in [0, 65535]. */
  readonly blocks: number;
  /** The kernel's default for MachineOptions.autoSync. */
  readonly autoSync: boolean;
  readonly machine?: MachineOptions;
  /** Keep the instructions of these blocks: all, none (the default), or a list. */
  readonly record?: boolean | readonly number[];
  /** Called after each block with the number of blocks done and of all blocks. */
  readonly onBlock?: (done: number, total: number) => void;
  /** The kernel: what each block does. */
  readonly body: (c: AscendC) => void;
  /** The tensor that it must write, with coverage; none for kernels that write no tensor. */
  readonly output?: GlobalTensor;
  /** Dense tensors that it must read whole and may not write; they get `reads`. */
  readonly inputs?: readonly GlobalTensor[];
  /** Elements of one row of the output. */
  readonly rowLength?: number;
  /** First element of each row, as an index in the allocation. */
  readonly rowStarts?: readonly number[];
  /** The fewest bytes that must move. */
  readonly least?: { readonly load: number; readonly store: number };
  /** Findings about the launch itself. */
  readonly extra?: readonly Pick<Finding, 'kind' | 'line' | 'message'>[];
}

const NAMES: OptionNames<LaunchOptions> = {
  kernel: true,
  dtype: true,
  blocks: true,
  autoSync: true,
  machine: true,
  record: true,
  onBlock: true,
  body: true,
  output: true,
  inputs: true,
  rowLength: true,
  rowStarts: true,
  least: true,
  extra: true,
};

/**
 * Runs a kernel on every block, one after the other, on the modelled chip.
 *
 * @param call - the kernel and how it is launched
 * @returns what the model reports; the kernel's writes are in the caller's memory
 * @throws {RopewalkError} RANGE, SHAPE or UNSUPPORTED, naming the option; a kernel that hangs is a finding, not an
 *   error
 * @example
 * const body = (c: AscendC) => c.Duplicate('fill', c.pipe.InitTBuf('t', 64).Get('f32'), 1, 16);
 * const run = launchKernel({ kernel: 'fill', dtype: 'f32', blocks: 1, autoSync: false, body });
 */
export function launchKernel(call: LaunchOptions): KernelRun {
  const options = readLaunch(call);
  for (const input of options.inputs ?? [])
    input.reads = new Uint8Array(Math.ceil(input.memory.bytes.length / input.size));
  const { blocks: blockCount, record } = options;
  const machine = readOptions(options.machine ?? {}, 'aicore: machine', MACHINE_NAMES);
  const launch = newLaunch(machine, options.autoSync, blockCount);
  const buffer = new UnifiedBuffer(launch.capacity);
  const blocks: BlockRun[] = [];
  const details: { readonly costs: readonly LineCost[]; readonly mte2Head: number }[] = [];
  let buffers: readonly BufferEntry[] = [];
  let used = 0;
  for (let block = 0; block < blockCount; block++) {
    const core = new Core(block, launch, buffer, Array.isArray(record) ? record.includes(block) : record === true);
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
  for (const finding of options.extra ?? []) launch.findings.add(finding);

  const rows = countRows(options);
  const missing = rows.wanted - rows.written;
  if (missing > 0) {
    const message = `${missing} of ${rows.wanted} rows of ${options.output!.name} were never written`;
    launch.findings.add({ kind: 'coverage', line: 'launch', message, count: missing });
  }
  for (const { name, reads, base, low, high } of options.inputs ?? []) {
    let unread = 0;
    for (let e = base + low; e < base + high; e++) unread += 1 - reads![e]!;
    if (unread === 0) continue;
    const message = `${unread} of ${high - low} elements of ${name} were never read`;
    launch.findings.add({ kind: 'coverage', line: 'launch', message, count: unread }, name);
  }

  // Blocks beyond the cores run after one another on the same core, each with its own heads.
  const { cores } = readChip(machine);
  const perCore = new Float64Array(Math.min(cores, Math.max(1, blockCount)));
  for (const run of blocks) perCore[run.block % cores]! += run.cycles - HEADS.operator;
  const cycles = HEADS.operator + Math.max(0, ...perCore);
  const slowest = blocks.reduce((best, run, i) => (run.cycles > blocks[best]!.cycles ? i : best), 0);
  const slow = blocks[slowest] ?? IDLE;
  const { clockGHz } = CHIPS[launch.chip];
  const { costs, mte2Head } = details[slowest] ?? { costs: [], mte2Head: HEADS.mte2(launch.concurrent, false) };
  const { least = { load: 0, store: 0 } } = options;
  const bytes = { ...launch.bytes, byTensor: Object.fromEntries(launch.bytes.byTensor), least };
  const heads = { S: 0, V: HEADS.V, MTE2: mte2Head, MTE3: HEADS.MTE3, operator: HEADS.operator };
  const findings = launch.findings.list();
  const outcome = outcomeOf(findings, missing > 0, blocks);
  return {
    kernel: options.kernel,
    dtype: options.dtype,
    chip: launch.chip,
    clockGHz,
    blockCount,
    waves: Math.ceil(blockCount / cores),
    cycles,
    outcome,
    ...(outcome === 'ended' ? microsecondsOf({ cycles, heads, clockGHz, bytes }) : {}),
    busy: slow.busy,
    heads,
    rows,
    cyclesPerRow: rows.written > 0 ? cycles / rows.written : 0,
    overlap: slow.overlap,
    bytes,
    unifiedBuffer: { capacity: launch.capacity, used, buffers },
    bankConflicts: launch.conflicts,
    ...(outcome === 'ended'
      ? { bottleneck: bottleneckOf(slow, costs, mte2Head, bytes, buffers, launch.conflicts.cycles) }
      : {}),
    findings,
    assumptions: ASSUMPTIONS,
    blocks,
    slowest,
  };
}

function readLaunch(call: LaunchOptions): LaunchOptions {
  const options = readOptions(call, 'aicore: options', NAMES);
  const { kernel, dtype, blocks, body, onBlock, record, output, rowLength = 0, rowStarts = [] } = options;
  if (typeof kernel !== 'string') refuse('RANGE', 'aicore: kernel', 'a string', kernel);
  readName(dtype, ['f64', 'f32', 'f16', 'bf16'], 'aicore: dtype');
  checkCount(blocks, 'blocks', 0, MAX_BLOCKS);
  if (typeof body !== 'function') refuse('RANGE', 'aicore: body', 'a function', body);
  if (onBlock !== undefined && typeof onBlock !== 'function') refuse('RANGE', 'aicore: onBlock', 'a function', onBlock);
  const checkTensor = (tensor: unknown, where: string): void => {
    if (!reading(where, () => tensor instanceof GlobalTensor)) refuse('RANGE', where, 'a GlobalTensor', tensor);
  };
  if (output !== undefined) checkTensor(output, 'aicore: output');
  const inputs = Array.from(readList(options.inputs ?? [], 'aicore: inputs'));
  for (const [n, input] of inputs.entries()) checkTensor(input, `aicore: inputs[${n}]`);
  checkCount(rowLength, 'rowLength');
  const least = readOptional(options.least, 'aicore: least', { load: true, store: true });
  for (const count of least ? [least.load, least.store] : []) checkCount(count, 'least');
  const all = record === undefined || typeof record === 'boolean';
  return {
    ...options,
    record: all ? record : Array.from(readList(record, 'aicore: record')),
    inputs,
    rowStarts: Array.from(readList(rowStarts, 'aicore: rowStarts')),
    least,
  };
}

/** The slowest block of a launch without blocks. */
const IDLE: BlockRun = /* @__PURE__ */ Object.freeze({
  block: 0,
  cycles: HEADS.operator,
  busy: { S: 0, V: 0, MTE2: 0, MTE3: 0 },
  instructionCount: { S: 0, V: 0, MTE2: 0, MTE3: 0 },
  overlap: { any: 0, several: 0, share: 0, parallelism: 0 },
  stopped: false,
});

function countRows({ output, rowLength = 0, rowStarts = [] }: LaunchOptions): { written: number; wanted: number } {
  const coverage = output?.coverage;
  if (!coverage) return { written: 0, wanted: 0 };
  const isWritten = (start: number): boolean => {
    for (let e = start; e < start + rowLength; e++) if (coverage[e] !== 2) return false;
    return true;
  };
  return { written: rowStarts.filter(isWritten).length, wanted: rowStarts.length };
}

/** How a launch ended: only one that ran to its end has a time. */
function outcomeOf(findings: readonly Finding[], missing: boolean, blocks: readonly BlockRun[]): KernelRun['outcome'] {
  const fatal = findings.filter((finding) => finding.fatal);
  if (fatal.some(({ kind }) => kind === 'deadlock' || kind === 'no-free-buffer')) return 'hangs';
  if (fatal.length > 0) return 'stopped';
  const idle = blocks.every(({ instructionCount }) => QUEUES.every((queue) => instructionCount[queue] === 0));
  return idle && missing ? 'did nothing' : 'ended';
}

/** Below this share no queue is the bottleneck: they wait for each other. */
const WAITING = 0.6;

type Bytes = KernelRun['bytes'];

function bottleneckOf(
  run: BlockRun,
  costs: readonly LineCost[],
  mte2Head: number,
  bytes: Bytes,
  buffers: readonly BufferEntry[],
  conflictCycles: number,
): Bottleneck {
  const what = QUEUES.reduce((best, q) => (run.busy[q] > run.busy[best] ? q : best), 'S' as QueueName);
  const busy = run.busy[what];
  const share = run.cycles > 0 ? busy / run.cycles : 0;
  const percent = (n: number) => `${Math.round(n * 100)} %`;
  if (busy < mte2Head) {
    const start = mte2Head + HEADS.operator;
    const times = `${Math.round(start)} cycles pass before the first load, and ${what} then works for ${Math.round(busy)}`;
    const advice = `Starting takes longer than the work: ${times}. Give one launch more rows.`;
    return { what: 'start', share: Math.min(1, start / run.cycles), line: 'launch', advice };
  }
  const costliest = costs.filter((c) => c.queue === what).sort((a, b) => b.cycles - a.cycles)[0];
  const { line, cycles } = costliest ?? { line: 'launch', cycles: 0 };
  const { load, store, least } = bytes;
  const next: { readonly [Q in QueueName]: string } = {
    S: 'The scalar unit handles elements one by one: use vector instructions (GatherMask, Gather) instead.',
    V: `The vector unit is the limit: use fewer instructions, with more elements in each${conflictCycles > 0 ? ', and avoid bank conflicts' : ''}.`,
    MTE2: `Loads are the limit: ${moved('loaded', load, least.load, run.instructionCount.MTE2)}`,
    MTE3: `Stores are the limit: ${moved('stored', store, least.store, run.instructionCount.MTE3)}`,
  };
  const wait =
    share < WAITING
      ? ` The queues wait for each other much of the time${buffers.some(isSingle) ? ': use two buffers in each queue' : ''}.`
      : '';
  const head = `${what} is busy ${percent(share)} of the slowest block, ${percent(cycles / Math.max(1, busy))} of that in "${line}".`;
  return { what, share, line, advice: `${head} ${next[what]}${wait}` };
}

/** A queue of one buffer: what fills it and what uses it wait for each other. */
function isSingle({ kind, num }: BufferEntry): boolean {
  return kind !== 'TBuf VECCALC' && num === 1;
}

/** Bytes beside the fewest that must move, and what of both can be changed. `copies` are those of one block. */
function moved(verb: 'loaded' | 'stored', bytes: number, least: number, copies: number): string {
  const size = `${bytes} bytes are ${verb}`;
  const fewest = least === 0 ? '' : bytes > least ? `, where ${least} are enough` : ', the fewest possible';
  const again = least > 0 && bytes > least ? ` Have each element ${verb} once.` : '';
  return `${size}${fewest}.${again}${copies > 1 ? ' Fewer and larger copies cost less.' : ''}`;
}
