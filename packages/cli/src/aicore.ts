/** `ropewalk aicore`: RoPE kernels on the modelled Ascend AI Core: cycles, bytes, buffers, faults, timeline. @module */
import {
  CHIPS,
  type ChipName,
  chromeTrace,
  type KernelName,
  type KernelRun,
  type MeasuredCall,
  type MeasuredKernel,
  QUEUES,
  ROPE_KERNELS,
  type Tiling,
  timelineSvg,
} from '@ropewalk/ascend';
import {
  KERNELS as ALL_KERNELS,
  calibrate,
  prepareRope,
  searchTiling,
  type TimelineOptions,
  type TriedTiling,
  whyNotKernel,
} from '@ropewalk/ascend/internal';
import { writeOutput } from '@ropewalk/formats/internal/node';
import { fail, refuse } from 'ropewalk/backend';
import { didYouMean, readName } from 'ropewalk/internal';
import { Flags, type Switches, type Texts } from './options.js';
import { counted, EXIT, openPercentBar, openPrinter, printResult } from './output.js';

export type AicoreOptions = Texts<'shape' | 'dtype' | 'pairing' | 'kernel' | 'chip' | 'base' | 'rotaryDim'> &
  Texts<'tableLen' | 'tableDtype' | 'svg' | 'trace' | 'fromCycle' | 'toCycle'> &
  Texts<'cores' | 'blocks' | 'tile' | 'buffers' | 'rope' | 'eps' | 'timeout' | 'emit' | 'out'> &
  Switches<'batchPositions' | 'search' | 'calibration' | 'json'>;

/** The kernels of `--kernel all`. */
const KERNELS: readonly KernelName[] = ['baseline', 'correct', 'fast'];
/** The most elements. This many take minutes; the example of the docs takes seconds. */
const MAX_ELEMENTS = 2 ** 26;

/** The largest relative error of a prediction. */
const BAR = 0.35;

/** The result of a kernel: its run, or the reason why it does not take the call. */
type Runs = ReadonlyMap<KernelName, MeasuredKernel | string>;

/** Options that only one kernel takes. */
const OF_ONE = ['rope', 'eps', 'timeout'] as const;

/** @returns 0 when every kernel wrote every row correctly and without a finding, 1 otherwise */
export async function aicore(options: AicoreOptions): Promise<number> {
  const flags = new Flags(options);
  if (options.calibration) {
    flags.refuseAllBut(['calibration', 'json'], '--calibration');
    return printCalibration(options.json);
  }
  flags.refuseAny(OF_ONE, 'it needs --kernel FILE.');
  flags.refuseAny(['out'], 'it needs --emit ascendc.');
  const call = readCall(flags, options);
  const kernel = readKernelName(options.kernel ?? 'all');
  const names = kernel === 'all' ? KERNELS : [kernel];
  const drawn = options.svg !== undefined || options.trace !== undefined;
  if (drawn && kernel === 'all')
    fail('UNSUPPORTED', '--kernel', `--svg and --trace draw one kernel. Name one: ${KERNELS.join(', ')}.`);
  const { chip, cores, tiling } = readMachine(flags);
  if (kernel === 'all' && Object.values(tiling).some((n) => n !== undefined))
    fail('UNSUPPORTED', '--kernel', '--blocks, --tile and --buffers cut the work of one kernel. Name fast or correct.');
  if (kernel !== 'all') refusePairing(kernel, call);
  const range = readRange(flags);
  const runs = new Map<KernelName, MeasuredKernel | string>();
  if (options.search) return search(call, kernel, { chip, cores }, options.json);
  const rope = prepareRope(call);
  const bar = openPercentBar('of the kernels', options.json);
  try {
    for (const [n, name] of names.entries()) {
      const onBlock = (done: number, total: number): void => bar.to((n + done / total) / names.length);
      // "all" runs the kernels that take the call; a kernel that is asked for by name says why it refuses.
      const why = kernel === 'all' ? whyNotKernel(name, factsOf(call)) : undefined;
      runs.set(name, why ?? rope.measure(name, { chip, cores, tiling, record: drawn, onBlock }));
    }
  } finally {
    bar.stop();
  }
  const only = runs.get(names[0]!);
  const files = drawn && typeof only === 'object' ? drawRun(only.run, range, options) : [];
  printResult(options.json, { json: () => toJson(call, runs), lines: () => describe(call, runs, files) });
  const good = (ran: MeasuredKernel | string): boolean =>
    typeof ran === 'string' || (ran.run.findings.length === 0 && ran.right === ran.rows);
  // With --kernel all the baseline's faults are shown for comparison; they do not fail the command.
  const judged = [...runs].filter(([name]) => kernel !== 'all' || name !== 'baseline');
  return judged.every(([, ran]) => good(ran)) ? EXIT.ok : EXIT.failed;
}

/** Reads the name of a RoPE kernel, or all. Other kernels and files run in aicore-kernel.ts. */
function readKernelName(name: string): KernelName | 'all' {
  if (name === 'all' || Object.hasOwn(ROPE_KERNELS, name)) return name as KernelName | 'all';
  const names = [...Object.keys(ALL_KERNELS), 'all'];
  return refuse(
    'UNSUPPORTED',
    '--kernel',
    `${names.join(', ')}, or a file such as my.mjs`,
    name,
    didYouMean(name, names),
  );
}

/** The properties of a call that decide whether a kernel takes it. */
function factsOf({ dtype, tableDtype, pairing, rotaryDim, shape }: MeasuredCall) {
  return { dtype, tableDtype, pairing, rotaryDim, headDim: shape[3] };
}

/** The pairing that a kernel takes, if the call has the other one. */
function refusePairing(kernel: KernelName, call: MeasuredCall): void {
  const whyNot = (pairing: MeasuredCall['pairing']): string | undefined =>
    whyNotKernel(kernel, { ...factsOf(call), pairing });
  const other = call.pairing === 'half' ? 'interleaved' : 'half';
  const why = whyNot(call.pairing);
  if (why !== undefined && whyNot(other) === undefined)
    fail('UNSUPPORTED', '--kernel', `the ${kernel} kernel ${why}. Give --pairing ${other}.`);
}

/** Prints the 13 device rows, what the calibration predicts, and its constants. */
function printCalibration(json: boolean | undefined): number {
  const { fit, rows, withoutCycles } = calibrate();
  const microseconds = (n: number): string => n.toFixed(2).padStart(8);
  const within = (errors: readonly number[]): string =>
    `within ±${100 * BAR} %: ${errors.filter((error) => Math.abs(error) <= BAR).length} of ${errors.length}, the worst off by ${(100 * Math.max(...errors.map(Math.abs))).toFixed(0)} %`;
  printResult(json, {
    json: () => ({ fit, rows, withoutCycles }),
    lines: () => [
      'microseconds measured on a device (tilelang-ascend@628f8a41), and predicted from the other 12 rows',
      `${'row'.padEnd(24)}${'shape'.padEnd(16)}    CANN TileLang  cycles predicted  error`,
      ...rows.map(
        (row) =>
          `${row.name.padEnd(24)}${row.shape.join(',').padEnd(16)}${microseconds(row.cann)} ${microseconds(row.tilelang)}${Math.round(row.cycles).toString().padStart(8)} ${microseconds(row.leftOut)} ${`${(100 * row.error).toFixed(0)} %`.padStart(7)}`,
      ),
      within(rows.map(({ error }) => error)),
      `without cycles, a constant for each pairing: ${within(withoutCycles)}`,
      `fit: ${fit.task.toFixed(2)} µs a task, ${fit.factor.toFixed(2)} device cycles a modelled cycle, ${fit.index.toFixed(2)} µs for TileLang's gather index`,
    ],
  });
  return EXIT.ok;
}

/** Runs `--search`: finds the best tiling of one kernel. */
async function search(
  call: MeasuredCall,
  kernel: KernelName | 'all',
  machine: { readonly chip?: ChipName; readonly cores?: number },
  json: boolean | undefined,
): Promise<number> {
  const name = kernel === 'all' ? 'fast' : kernel;
  const words = (tiling: Tiling): string =>
    [
      ['--blocks', tiling.blocks],
      ['--tile', tiling.tileRows],
      ['--buffers', tiling.buffers],
    ]
      .filter(([, value]) => value !== undefined)
      .map((pair) => pair.join(' '))
      .join(' ') || `${name}'s own choice`;
  const whole = (n: number): string => Math.round(n).toLocaleString('en');
  const printer = openPrinter(1, '', true);
  const onTry = ({ tiling, cycles, findings }: TriedTiling): void => {
    const result = findings.length > 0 ? findings.join(', ') : `${whole(cycles)} cycles`;
    if (!json) printer.line(`  ${words(tiling).padEnd(40)} ${result.padStart(16)}`);
  };
  if (!json) printer.line(`${name}, [${call.shape.join(', ')}] ${call.dtype}, ${call.pairing}`);
  const { best, measured, tried, limitCycles } = searchTiling(name, call, { ...machine, onTry });
  const { bottleneck, cycles } = measured.run;
  const first = tried[0]!.cycles;
  printResult(json, {
    json: () => ({ ...call, kernel: name, best, cycles, limitCycles, bottleneck, tried }),
    lines: () => [
      `best of ${tried.length}: ${words(best)}, ${whole(cycles)} cycles; ${((first / cycles - 1) * 100).toFixed(1)} % faster than its own choice`,
      `limit: ${whole(limitCycles)} cycles, loads and stores of the fewest bytes alone; the best takes ${(cycles / limitCycles).toFixed(2)} times as long`,
      ...(bottleneck ? [`bottleneck: ${bottleneck.advice}`] : []),
    ],
  });
  return EXIT.ok;
}

/** Reads the chip, the number of its cores, and the division of the work. */
export function readMachine(flags: Flags<AicoreOptions>): { chip?: ChipName; cores?: number; tiling: Tiling } {
  // CANN's names of chips start with Ascend.
  const named = flags.text('chip')?.replace(/^Ascend/, '');
  const chip = named === undefined ? undefined : readName(named, Object.keys(CHIPS) as ChipName[], '--chip');
  const cores = flags.integer('cores', 1, CHIPS[chip ?? '910B3'].cores);
  const tiling = {
    blocks: flags.integer('blocks', 1, MAX_ELEMENTS),
    tileRows: flags.integer('tile', 1, MAX_ELEMENTS),
    buffers: flags.integer('buffers', 1, MAX_ELEMENTS),
  };
  return { chip, cores, tiling };
}

/** Reads the cycles that a drawing shows. */
export function readRange(flags: Flags<AicoreOptions>): TimelineOptions {
  return { fromCycle: flags.number('fromCycle'), toCycle: flags.number('toCycle') };
}

/** Writes the timelines that the options ask for. @returns their files */
export function drawRun(run: KernelRun, range: TimelineOptions, options: AicoreOptions): string[] {
  const files: string[] = [];
  const write = (name: 'svg' | 'trace', text: () => string): void => {
    const file = options[name];
    if (file === undefined) return;
    writeOutput(file, text(), `--${name}`);
    files.push(file);
  };
  write('svg', () => timelineSvg(run, range));
  write('trace', () => chromeTrace(run));
  return files;
}

/** Reads the RoPE that the options describe. */
export function readCall(flags: Flags<AicoreOptions>, options: AicoreOptions): MeasuredCall {
  const dims = flags.integers('shape', 1, MAX_ELEMENTS, 4) ?? [8, 128, 32, 128];
  if (dims.length === 3) dims.unshift(1);
  if (dims.length !== 4) refuse('SHAPE', '--shape', 'batch,seq,heads,head_dim or seq,heads,head_dim', options.shape);
  const shape = dims as [number, number, number, number];
  const elements = shape.reduce((product, n) => product * n, 1);
  if (elements > MAX_ELEMENTS)
    refuse('RANGE', '--shape', `at most ${MAX_ELEMENTS} elements, as each is computed`, elements);
  const dtype = options.dtype ?? 'f16';
  if (dtype !== 'f16' && dtype !== 'bf16' && dtype !== 'f32')
    refuse('DTYPE', '--dtype', 'f16, bf16 or f32', dtype, 'The vector unit has no f64 arithmetic.');
  const pairing = flags.word('pairing', ['interleaved', 'half']) ?? 'interleaved';
  const [batch, seq, , headDim] = shape;
  const rotaryDim = flags.integer('rotaryDim', 2, headDim) ?? headDim;
  if (rotaryDim % 2 !== 0) refuse('RANGE', '--rotary-dim', `an even integer in [2, head_dim=${headDim}]`, rotaryDim);
  const batchPositions = options.batchPositions ?? false;
  const base = flags.positive('base') ?? 10000;
  const needed = batchPositions ? seq + batch - 1 : seq;
  const tableLen = flags.integer('tableLen', needed, Math.floor(MAX_ELEMENTS / (rotaryDim / 2))) ?? needed;
  const tableDtype = flags.word('tableDtype', dtype === 'f32' ? ['f32'] : [dtype, 'f32']) ?? dtype;
  return { shape, dtype, pairing, rotaryDim, base, batchPositions, tableLen, tableDtype };
}

function describe(call: MeasuredCall, runs: Runs, files: readonly string[]): string[] {
  const [batch, seq, heads, headDim] = call.shape;
  const any = [...runs.values()].find((ran): ran is MeasuredKernel => typeof ran === 'object')!.run;
  const lines = [
    `RoPE [${batch}, ${seq}, ${heads}, ${headDim}] ${call.dtype}, ${call.pairing}, on a model of an Ascend ${any.chip} at ${any.clockGHz} GHz`,
  ];
  for (const [name, ran] of runs) {
    lines.push('');
    if (typeof ran === 'string') lines.push(`${name}: not run, as it ${ran}`);
    else lines.push(...describeRun(name, ran));
  }
  const compared = [...runs].filter((entry): entry is [KernelName, MeasuredKernel] => typeof entry[1] === 'object');
  if (compared.length > 1) {
    const slow = compared[0]![1].run;
    lines.push('', 'Cycles for each row that was written:');
    for (const [name, { run }] of compared)
      lines.push(
        `  ${name.padEnd(8)} ${run.cyclesPerRow.toFixed(1).padStart(9)}   ${(slow.cyclesPerRow / run.cyclesPerRow).toFixed(1)}×`,
      );
  }
  for (const file of files) lines.push('', `Timeline: ${file}`);
  return lines;
}

/** The headline of a run. A run that did not end has no time. */
function timeOf({ outcome, cycles, microseconds, microsecondsBand: band }: KernelRun): string {
  if (microseconds === undefined) return outcome;
  const known = typeof band === 'object' ? band.map((n) => n.toFixed(0)).join(' to ') : band;
  return `${Math.round(cycles).toLocaleString('en')} cycles, modelled ${microseconds.toFixed(1)} µs (${known})`;
}

/** Describes a kernel's run in lines. */
export function describeRun(name: string, { run, rows, right, worst, firstWrong }: MeasuredKernel): string[] {
  const block = run.blocks[run.slowest];
  const percent = (part: number, whole: number): string =>
    whole > 0 ? `${Math.round((100 * part) / whole)} %` : '0 %';
  const { load, store, scalar, byTensor, least } = run.bytes;
  const { capacity, used, buffers } = run.unifiedBuffer;
  const whole = (n: number): string => Math.round(n).toLocaleString('en');
  const lines = [
    `${name}: ${timeOf(run)}; ${run.blockCount} blocks in ${counted(run.waves, 'wave')}`,
    `  rows          ${run.rows.written} of ${rows} written, ${right} right (largest difference to the exact value ${worst.toExponential(1)})`,
    `  busy          ${QUEUES.map((queue) => `${queue} ${whole(run.busy[queue])} (${percent(run.busy[queue], block?.cycles ?? 0)})`).join('  ')}   of the slowest block`,
    `  overlap       ${percent(run.overlap.several, run.overlap.any)} of the time two queues or more; ${run.overlap.parallelism.toFixed(2)} busy on average`,
    `  bytes         load ${whole(load)} (least ${whole(least.load)}), store ${whole(store)} (least ${whole(least.store)}), scalar ${whole(scalar)}`,
    `                ${Object.entries(byTensor)
      .map(([tensor, bytes]) => `${tensor} ${whole(bytes)}`)
      .join(', ')}`,
    `  banks         ${whole(run.bankConflicts.readRead)} read-read, ${whole(run.bankConflicts.readWrite)} read-write conflicts: ${whole(run.bankConflicts.cycles)} cycles`,
    ...(run.bottleneck ? [`  bottleneck    ${run.bottleneck.advice}`] : []),
    `  buffer        ${whole(used)} of ${whole(capacity)} bytes`,
    ...buffers.map(
      ({ name: member, kind, offset, size, num }) =>
        `    ${String(offset).padStart(6)}  ${`${num} × ${size}`.padEnd(11)} ${kind.padEnd(12)} ${member}`,
    ),
  ];
  if (firstWrong) {
    const { row, column, got, exact, bound } = firstWrong;
    const near = `${got}, where ${exact} is exact and ${bound.toPrecision(2)} off is allowed`;
    lines.push(`  first wrong   row ${row}, element ${column}: ${near}`);
  }
  if (run.findings.length === 0) lines.push('  findings      none');
  else lines.push(`  findings      ${run.findings.length}`);
  for (const { kind, message, line, count } of run.findings)
    lines.push(`    ${kind}${count > 1 ? ` (${whole(count)} times)` : ''}: ${message}`, `      at ${line}`);
  return lines;
}

function toJson(call: MeasuredCall, runs: Runs): unknown {
  const kernels = [...runs].map(([name, ran]) => {
    if (typeof ran === 'string') return { kernel: name, notRun: ran };
    return runToJson(ran);
  });
  return { ...call, kernels };
}

/** A kernel's run for `--json`. Blocks run alike; the slowest stands for all. */
export function runToJson({ run, right, worst, firstWrong }: MeasuredKernel): object {
  const { blocks, ...rest } = run;
  const { instructions: _what, ...slowest } = blocks[run.slowest] ?? {};
  return { ...rest, slowestBlock: slowest, right, worst, firstWrong };
}
