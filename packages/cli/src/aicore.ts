/**
 * `ropewalk aicore`: RoPE kernels on the modelled Ascend AI Core: cycles by queue, bytes, buffers, faults, and a timeline.
 *
 * @module
 */

import {
  type ChipName,
  chromeTrace,
  type KernelName,
  type KernelRun,
  QUEUES,
  runRopeKernel,
  timelineSvg,
  whyNotSeed,
} from '@ropewalk/ascend';
import { bindRope, type FloatDtype, type HostArray, planRope, planRopeWithTable, tensorFrom } from 'ropewalk';
import {
  countElements,
  loadNumber,
  newArray,
  randomFrom,
  refuse,
  rowMajorStrides,
  storeNumber,
} from 'ropewalk/backend';
import { runReference } from 'ropewalk/reference';
import { oneOf, readInteger, readIntegers, readNumber } from './options.js';
import { EXIT, openPercentBar, printJson } from './output.js';
import { writeWhole } from './write-file.js';

/** Options of the command, as the command line gives them. */
export interface AicoreOptions {
  readonly shape?: string;
  readonly dtype?: string;
  readonly pairing?: string;
  readonly kernel?: string;
  readonly chip?: string;
  readonly base?: string;
  readonly rotaryDim?: string;
  readonly batchPositions?: boolean;
  readonly tableLen?: string;
  readonly svg?: string;
  readonly trace?: string;
  readonly from?: string;
  readonly to?: string;
  readonly json?: boolean;
}

const KERNELS: readonly KernelName[] = ['seed', 'correct', 'fast'];
/** What the issue's own example asks for takes seconds; this, minutes. */
const MAX_ELEMENTS = 2 ** 26;

/** A kernel's run, and how far its y lies from the exact one. */
interface Ran {
  readonly run: KernelRun;
  /** Rows of y that the kernel wrote and that are right, within the dtype's rounding of each step. */
  readonly right: number;
  /** The largest difference to the exact value of a row that it wrote. */
  readonly worst: number;
}

/**
 * Runs kernels on the model.
 *
 * @param options - shape, dtype, kernel, files to write
 * @returns the exit code: 0 when every kernel wrote every row rightly and without a finding, 1 otherwise
 * @throws {RopewalkError} for options that make no sense: the caller exits with 2
 */
export async function aicore(options: AicoreOptions): Promise<number> {
  const call = readCall(options);
  const names = namesOf(options.kernel ?? 'all');
  const drawn = options.svg !== undefined || options.trace !== undefined;
  if (drawn && names.length > 1)
    refuse(
      'UNSUPPORTED',
      'aicore: --kernel',
      'one kernel beside --svg or --trace',
      'all',
      `Name one of ${KERNELS.join(', ')}.`,
    );
  const chip = oneOf<ChipName>(options.chip ?? '910B3', ['910B3', '910B4'], 'aicore: --chip');
  const runs = new Map<KernelName, Ran | string>();
  const bar = openPercentBar('of the kernels', options.json);
  try {
    for (const [n, name] of names.entries()) {
      // All means those that take the call; a kernel asked for by name refuses in its own words.
      const why = names.length > 1 && name === 'seed' ? whyNotSeed({ ...call, headDim: call.shape[3] }) : undefined;
      runs.set(
        name,
        why ??
          runKernel(name, call, chip, {
            record: drawn,
            onBlock: (done, total) => bar.to((n + done / total) / names.length),
          }),
      );
    }
  } finally {
    bar.stop();
  }
  const only = runs.get(names[0]!);
  const files: string[] = [];
  if (drawn && typeof only === 'object') {
    const [from, to] = [readNumber(options.from, 'aicore: --from'), readNumber(options.to, 'aicore: --to')];
    const cycles = { ...(from === undefined ? {} : { from }), ...(to === undefined ? {} : { to }) };
    const write = (file: string | undefined, flag: string, text: () => string): void => {
      if (file === undefined) return;
      writeWhole(file, text(), `aicore: ${flag}`);
      files.push(file);
    };
    write(options.svg, '--svg', () => timelineSvg(only.run, cycles));
    write(options.trace, '--trace', () => chromeTrace(only.run));
  }
  if (options.json) printJson(toJson(call, runs));
  else process.stdout.write(`${describe(call, runs, files).join('\n')}\n`);
  const good = (ran: Ran | string): boolean =>
    typeof ran === 'string' || (ran.run.findings.length === 0 && ran.right === rowsOf(call));
  // The seed kernel's faults are what --kernel all shows beside the others, not a failure of the command.
  const judged = [...runs].filter(([name]) => names.length === 1 || name !== 'seed');
  return judged.every(([, ran]) => good(ran)) ? EXIT.ok : EXIT.failed;
}

interface Call {
  readonly shape: readonly [number, number, number, number];
  readonly dtype: Exclude<FloatDtype, 'f64'>;
  readonly pairing: 'interleaved' | 'half';
  readonly rotaryDim: number;
  readonly base: number;
  readonly batchPositions: boolean;
  readonly tableLen: number;
}

function readCall(options: AicoreOptions): Call {
  const dims = readIntegers(options.shape ?? '8,128,32,128', 'aicore: --shape', 1, MAX_ELEMENTS, 4);
  if (dims.length === 3) dims.unshift(1);
  if (dims.length !== 4)
    refuse('SHAPE', 'aicore: --shape', 'batch,seq,heads,head_dim or seq,heads,head_dim', options.shape);
  const shape = dims as [number, number, number, number];
  const elements = shape.reduce((product, n) => product * n, 1);
  if (elements > MAX_ELEMENTS)
    refuse('RANGE', 'aicore: --shape', `at most ${MAX_ELEMENTS} elements: each is computed`, elements);
  const dtype = options.dtype ?? 'f16';
  if (dtype !== 'f16' && dtype !== 'bf16' && dtype !== 'f32')
    refuse('DTYPE', 'aicore: --dtype', 'f16, bf16 or f32', dtype, 'The vector unit has no f64 arithmetic.');
  const pairing = oneOf(options.pairing ?? 'interleaved', ['interleaved', 'half'], 'aicore: --pairing');
  const [batch, seq, , headDim] = shape;
  const rotaryDim = readInteger(options.rotaryDim, 'aicore: --rotary-dim', 2, headDim) ?? headDim;
  if (rotaryDim % 2 !== 0)
    refuse('RANGE', 'aicore: --rotary-dim', `an even integer in [2, head_dim=${headDim}]`, rotaryDim);
  const batchPositions = options.batchPositions ?? false;
  const needed = batchPositions ? seq + batch - 1 : seq;
  const base = readNumber(options.base, 'aicore: --base') ?? 10000;
  if (base <= 0) refuse('RANGE', 'aicore: --base', 'a number > 0', base);
  const tableLen =
    readInteger(options.tableLen, 'aicore: --table-len', needed, Math.floor(MAX_ELEMENTS / (rotaryDim / 2))) ?? needed;
  return { shape, dtype, pairing, rotaryDim, base, batchPositions, tableLen };
}

function namesOf(text: string): readonly KernelName[] {
  return text === 'all'
    ? KERNELS
    : [oneOf<KernelName | 'all'>(text, [...KERNELS, 'all'], 'aicore: --kernel') as KernelName];
}

const rowsOf = ({ shape: [batch, seq, heads] }: Call): number => batch * seq * heads;

function runKernel(
  kernel: KernelName,
  call: Call,
  chip: ChipName,
  { record, onBlock }: { readonly record: boolean; readonly onBlock: (done: number, total: number) => void },
): Ran {
  const { shape, dtype, pairing, rotaryDim, base, tableLen } = call;
  const [batch, seq, , headDim] = shape;
  const pairs = rotaryDim / 2;
  const random = randomFrom(`aicore ${shape} ${dtype}`);
  const fill = (count: number, value: (n: number) => number): HostArray => {
    const data = newArray(dtype, count);
    for (let n = 0; n < count; n++) storeNumber(data, dtype, n, value(n));
    return data;
  };
  const x = fill(countElements(shape), () => random.uniform(-1, 1));
  const y = fill(countElements(shape), () => Number.NaN);
  const { table } = planRope({ headDim, rotaryDim, pairing, base, positions: 0, seqLen: tableLen, tableDtype: 'f64' });
  const [cos, sin] = [table.cos, table.sin].map((exact) => fill(exact.length, (n) => exact[n]!)) as [
    HostArray,
    HostArray,
  ];
  const positions = Int32Array.from(
    { length: (call.batchPositions ? batch : 1) * seq },
    (_, n) => (n % seq) + Math.floor(n / seq),
  );
  const strides = rowMajorStrides(shape) as unknown as readonly [number, number, number, number];
  const view = { shape, strides };
  const run = runRopeKernel({
    kernel,
    dtype,
    pairing,
    rotaryDim,
    positions,
    sin,
    cos,
    x: { ...view, data: x },
    y: { ...view, data: y },
    machine: { chip },
    onBlock,
    ...(record ? { record: [0] } : {}),
  });

  const numbers = (data: typeof x): Float64Array =>
    Float64Array.from({ length: data.length }, (_, n) => loadNumber(data, dtype, n));
  const plan = planRopeWithTable({
    headDim,
    rotaryDim,
    pairing,
    table: { rows: tableLen, pairs, cos: numbers(cos), sin: numbers(sin) },
    seqLen: seq,
    ...(call.batchPositions ? { batch } : {}),
    tableRows: positions,
  });
  const exact = tensorFrom(new Float64Array(x.length), { shape });
  runReference(bindRope(plan, tensorFrom(numbers(x), { shape }), exact));
  return { run, ...compare(numbers(y), exact.read() as Float64Array, headDim, rowsOf(call), dtype) };
}

/** Unit roundoff: half a unit in the last place. */
const ROUNDOFF = { f16: 2 ** -11, bf16: 2 ** -8, f32: 2 ** -24 } as const;

/** A row is right where each element lies within what three roundings of products and a sum of size <= 2 can do. */
function compare(
  got: Float64Array,
  exact: Float64Array,
  headDim: number,
  rows: number,
  dtype: keyof typeof ROUNDOFF,
): Pick<Ran, 'right' | 'worst'> {
  const bound = 4 * 2 * ROUNDOFF[dtype];
  let right = 0;
  let worst = 0;
  for (let row = 0; row < rows; row++) {
    let most = 0;
    for (let n = row * headDim; n < (row + 1) * headDim; n++) {
      const difference = Math.abs(got[n]! - exact[n]!);
      if (!(difference <= most)) most = difference;
    }
    if (most <= bound) right++;
    if (most > worst) worst = most; // NaN, a row never written, is none
  }
  return { right, worst };
}

function describe(call: Call, runs: ReadonlyMap<KernelName, Ran | string>, files: readonly string[]): string[] {
  const [batch, seq, heads, headDim] = call.shape;
  const any = [...runs.values()].find((ran): ran is Ran => typeof ran === 'object')!.run;
  const lines = [
    `RoPE [${batch}, ${seq}, ${heads}, ${headDim}] ${call.dtype}, ${call.pairing}, on a model of an Ascend ${any.chip} at ${any.clockGHz} GHz`,
  ];
  for (const [name, ran] of runs) {
    lines.push('');
    if (typeof ran === 'string') lines.push(`${name}: not run, as it ${ran}`);
    else lines.push(...describeRun(name, ran, rowsOf(call)));
  }
  const compared = [...runs].filter((entry): entry is [KernelName, Ran] => typeof entry[1] === 'object');
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

function describeRun(name: string, { run, right, worst }: Ran, rows: number): string[] {
  const block = run.blocks[run.slowest];
  const percent = (part: number, whole: number): string =>
    whole > 0 ? `${Math.round((100 * part) / whole)} %` : '0 %';
  const { load, store, scalar, byTensor, least } = run.bytes;
  const { capacity, used, buffers } = run.unifiedBuffer;
  const whole = (n: number): string => Math.round(n).toLocaleString('en');
  const lines = [
    `${name}: ${whole(run.cycles)} cycles, ${run.microseconds.toFixed(1)} µs; ${run.blockCount} blocks in ${run.waves} ${run.waves === 1 ? 'wave' : 'waves'}`,
    `  rows          ${run.rows.written} of ${rows} written, ${right} right (largest difference to the exact value ${worst.toExponential(1)})`,
    `  busy          ${QUEUES.map((queue) => `${queue} ${whole(run.busy[queue])} (${percent(run.busy[queue], block?.cycles ?? 0)})`).join('  ')}   of the slowest block`,
    `  overlap       ${percent(run.overlap.several, run.overlap.any)} of the time two queues or more; ${run.overlap.parallelism.toFixed(2)} busy on average`,
    `  bytes         load ${whole(load)} (least ${whole(least.load)}), store ${whole(store)} (least ${whole(least.store)}), scalar ${whole(scalar)}`,
    `                ${Object.entries(byTensor)
      .map(([tensor, bytes]) => `${tensor} ${whole(bytes)}`)
      .join(', ')}`,
    `  banks         ${whole(run.bankConflicts.readRead)} read-read, ${whole(run.bankConflicts.readWrite)} read-write conflicts: ${whole(run.bankConflicts.cycles)} cycles`,
    `  bottleneck    ${run.bottleneck.advice}`,
    `  buffer        ${whole(used)} of ${whole(capacity)} bytes`,
    ...buffers.map(
      ({ name: member, kind, offset, size, num }) =>
        `    ${String(offset).padStart(6)}  ${`${num} × ${size}`.padEnd(11)} ${kind.padEnd(12)} ${member}`,
    ),
  ];
  if (run.findings.length === 0) lines.push('  findings      none');
  else lines.push(`  findings      ${run.findings.length}`);
  for (const { kind, message, line, count } of run.findings)
    lines.push(`    ${kind}${count > 1 ? ` (${whole(count)} times)` : ''}: ${message}`, `      at ${line}`);
  return lines;
}

function toJson(call: Call, runs: ReadonlyMap<KernelName, Ran | string>): unknown {
  const kernels = [...runs].map(([name, ran]) => {
    if (typeof ran === 'string') return { kernel: name, notRun: ran };
    // Blocks run alike; the slowest stands for all.
    const { blocks, ...run } = ran.run;
    const { instructions: _, ...slowest } = blocks[run.slowest] ?? {};
    return { ...run, slowestBlock: slowest, right: ran.right, worst: ran.worst };
  });
  return { ...call, kernels };
}
