/** Launches a kernel on the modelled chip: runs one block after the other, then adds up their reports. @module */
import type { FloatDtype } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import {
  checkInteger,
  type OptionNames,
  optionNames,
  reading,
  readList,
  readName,
  readOptional,
  readOptions,
} from 'ropewalk/internal';
import { AscendC } from './ascendc.js';
import { Core, type LineCost, newLaunch, readMachine, Stopped, UnifiedBuffer } from './core.js';
import { ASSUMPTIONS, CHIPS, HEADS, MAX_BLOCKS } from './costs.js';
import { GlobalTensor } from './memory.js';
import { microsecondsOf } from './time.js';
import type { BlockRun, Bottleneck, BufferEntry, Finding, KernelName, KernelRun, MachineOptions } from './trace.js';
import { QUEUES, type QueueName, type WatchOptions } from './trace.js';

/** Options of {@link launchKernel}: a kernel, and how it is launched. */
export interface LaunchOptions extends WatchOptions {
  /** A name for reports. */
  readonly kernel: KernelName | string;
  readonly dtype: FloatDtype;
  /** The number of blocks, in [0, 65535]. */
  readonly blocks: number;
  /** The kernel's default for MachineOptions.autoSync. */
  readonly autoSync: boolean;
  readonly machine?: MachineOptions;
  /** The statements of each block. */
  readonly body: (c: AscendC) => void;
  /** The tensor that it must write, with coverage; none for kernels that write no tensor. */
  readonly output?: GlobalTensor;
  /** Dense tensors that it must read whole and may not write; they get `reads`. */
  readonly inputs?: readonly GlobalTensor[];
  /** Elements of one row of the output. */
  readonly rowLength?: number;
  /** The first element of each row, as an index in the allocation. */
  readonly rowStarts?: readonly number[];
  /** The fewest bytes that must move. */
  readonly least?: { readonly load: number; readonly store: number };
  /** Findings about the launch itself. */
  readonly extra?: readonly LaunchFinding[];
}

type LaunchFinding = Pick<Finding, 'kind' | 'line' | 'message'>;

const NAMES: OptionNames<LaunchOptions> = /* @__PURE__ */ optionNames(
  'kernel dtype blocks autoSync machine record onBlock body output inputs rowLength rowStarts least extra',
);

/**
 * Runs a kernel on every block, one after the other, on the modelled chip.
 *
 * @param call - the kernel and how it is launched
 * @returns the model's report; the kernel's writes are in the caller's memory
 * @throws {RopewalkError} RANGE, SHAPE or UNSUPPORTED, naming the option; a kernel that hangs is a finding, not an
 *   error
 * @example
 * const body = (c: AscendC) => c.Duplicate('fill', c.pipe.InitTBuf('t', 64).Get('f32'), 1, 16);
 * const run = launchKernel({ kernel: 'fill', dtype: 'f32', blocks: 1, autoSync: false, body });
 */
export function launchKernel(call: LaunchOptions): KernelRun {
  const options = readLaunch(call);
  const { blocks: blockCount, record, inputs = [], least = { load: 0, store: 0 } } = options;
  for (const input of inputs) input.reads = new Uint8Array(Math.ceil(input.memory.bytes.length / input.size));
  const machine = readMachine(options.machine);
  const launch = newLaunch(machine, options.autoSync, blockCount);
  const buffer = new UnifiedBuffer(launch.capacity);
  const ran: ReturnType<Core['finish']>[] = [];
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
    ran.push(core.finish(stopped));
    if (core.top > used) [buffers, used] = [core.buffers, core.top];
    options.onBlock?.(block + 1, blockCount);
  }
  for (const finding of options.extra ?? []) launch.findings.add(finding);
  const rows = countRows(options);
  const addCoverage = (message: string, count: number, part?: string): void =>
    launch.findings.add({ kind: 'coverage', line: 'launch', message, count }, part);
  const missing = rows.wanted - rows.written;
  if (missing > 0)
    addCoverage(`${missing} of ${rows.wanted} rows of ${options.output!.name} were never written`, missing);
  for (const { name, reads, base, low, high } of inputs) {
    let unread = 0;
    for (let e = base + low; e < base + high; e++) unread += 1 - reads![e]!;
    if (unread > 0) addCoverage(`${unread} of ${high - low} elements of ${name} were never read`, unread, name);
  }

  // Blocks beyond the cores run after one another on the same core, each with its own heads.
  const { chip, cores } = machine;
  const blocks = ran.map(({ run }) => run);
  const perCore = new Float64Array(Math.min(cores, Math.max(1, blockCount)));
  for (const run of blocks) perCore[run.block % cores]! += run.cycles - HEADS.operator;
  const cycles = HEADS.operator + Math.max(0, ...perCore);
  const slowest = blocks.reduce((best, run, i) => (run.cycles > blocks[best]!.cycles ? i : best), 0);
  const { run: slow, costs, mte2Head } = ran[slowest] ?? new Core(0, launch, buffer, false).finish(false);
  const { clockGHz } = CHIPS[chip];
  const bytes = { ...launch.bytes, byTensor: Object.fromEntries(launch.bytes.byTensor), least };
  const heads = { S: 0, V: HEADS.V, MTE2: mte2Head, MTE3: HEADS.MTE3, operator: HEADS.operator };
  const findings = launch.findings.list();
  const outcome = outcomeOf(findings, missing > 0, blocks);
  const bankConflicts = launch.conflicts;
  return {
    kernel: options.kernel,
    dtype: options.dtype,
    chip,
    clockGHz,
    blockCount,
    waves: Math.ceil(blockCount / cores),
    cycles,
    outcome,
    ...(outcome === 'ended' && microsecondsOf({ cycles, heads, clockGHz, bytes })),
    busy: slow.busy,
    heads,
    rows,
    cyclesPerRow: rows.written > 0 ? cycles / rows.written : 0,
    overlap: slow.overlap,
    bytes,
    unifiedBuffer: { capacity: launch.capacity, used, buffers },
    bankConflicts,
    ...(outcome === 'ended' && { bottleneck: bottleneckOf(slow, costs, { heads, bytes, buffers, bankConflicts }) }),
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
  checkInteger(blocks, 'aicore: blocks', 0, MAX_BLOCKS);
  if (typeof body !== 'function') refuse('RANGE', 'aicore: body', 'a function', body);
  if (onBlock !== undefined && typeof onBlock !== 'function') refuse('RANGE', 'aicore: onBlock', 'a function', onBlock);
  const checkTensor = (tensor: unknown, where: string): void => {
    if (!reading(where, () => tensor instanceof GlobalTensor)) refuse('RANGE', where, 'a GlobalTensor', tensor);
  };
  if (output !== undefined) checkTensor(output, 'aicore: output');
  const inputs = Array.from(readList(options.inputs ?? [], 'aicore: inputs'));
  for (const [n, input] of inputs.entries()) checkTensor(input, `aicore: inputs[${n}]`);
  checkInteger(rowLength, 'aicore: rowLength', 0);
  const extra = Array.from(readList(options.extra ?? [], 'aicore: extra'), (finding, n) =>
    readOptions(finding as LaunchFinding, `aicore: extra[${n}]`, { kind: true, line: true, message: true }),
  );
  const least = readOptional(options.least, 'aicore: least', { load: true, store: true });
  for (const count of least ? [least.load, least.store] : []) checkInteger(count, 'aicore: least', 0);
  const all = record === undefined || typeof record === 'boolean';
  return {
    ...options,
    record: all ? record : Array.from(readList(record, 'aicore: record')),
    inputs,
    rowStarts: Array.from(readList(rowStarts, 'aicore: rowStarts')),
    least,
    extra,
  };
}

function countRows({ output, rowLength = 0, rowStarts = [] }: LaunchOptions): { written: number; wanted: number } {
  const coverage = output?.coverage;
  if (!coverage) return { written: 0, wanted: 0 };
  const isWritten = (start: number): boolean => {
    for (let e = start; e < start + rowLength; e++) if (coverage[e] !== 2) return false;
    return true;
  };
  return { written: rowStarts.filter(isWritten).length, wanted: rowStarts.length };
}

/** Tells how a launch ended: only one that ran to its end has a time. */
function outcomeOf(findings: readonly Finding[], missing: boolean, blocks: readonly BlockRun[]): KernelRun['outcome'] {
  const fatal = findings.filter((finding) => finding.fatal);
  if (fatal.some(({ kind }) => kind === 'deadlock' || kind === 'no-free-buffer')) return 'hangs';
  if (fatal.length > 0) return 'stopped';
  const idle = blocks.every(({ instructionCount }) => QUEUES.every((queue) => instructionCount[queue] === 0));
  return idle && missing ? 'did nothing' : 'ended';
}

/** The share of busy cycles below which the queues wait for each other. */
const WAITING = 0.6;

function bottleneckOf(
  run: BlockRun,
  costs: readonly LineCost[],
  whole: Pick<KernelRun, 'heads' | 'bytes' | 'bankConflicts'> & { readonly buffers: readonly BufferEntry[] },
): Bottleneck {
  const mte2Head = whole.heads.MTE2;
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
  const { load, store, least } = whole.bytes;
  const next: { readonly [Q in QueueName]: string } = {
    S: 'The scalar unit handles elements one by one: use vector instructions (GatherMask, Gather) instead.',
    V: `The vector unit is the limit: use fewer instructions, with more elements in each${whole.bankConflicts.cycles > 0 ? ', and avoid bank conflicts' : ''}.`,
    MTE2: `Loads are the limit: ${moved('loaded', load, least.load, run.instructionCount.MTE2)}`,
    MTE3: `Stores are the limit: ${moved('stored', store, least.store, run.instructionCount.MTE3)}`,
  };
  const wait =
    share < WAITING
      ? ` The queues wait for each other much of the time${whole.buffers.some(isSingle) ? ': use two buffers in each queue' : ''}.`
      : '';
  const head = `${what} is busy ${percent(share)} of the slowest block, ${percent(cycles / Math.max(1, busy))} of that in "${line}".`;
  return { what, share, line, advice: `${head} ${next[what]}${wait}` };
}

/** Tells whether a queue has one buffer, so that the queues which fill and use it wait for each other. */
function isSingle({ kind, num }: BufferEntry): boolean {
  return kind !== 'TBuf VECCALC' && num === 1;
}

/** Says how many bytes move, beside the fewest that must, and what to change. `copies` are those of one block. */
function moved(verb: 'loaded' | 'stored', bytes: number, least: number, copies: number): string {
  const size = `${bytes} bytes are ${verb}`;
  const fewest = least === 0 ? '' : bytes > least ? `, where ${least} are enough` : ', the fewest possible';
  const again = least > 0 && bytes > least ? ` Have each element ${verb} once.` : '';
  return `${size}${fewest}.${again}${copies > 1 ? ' Fewer and larger copies cost less.' : ''}`;
}
