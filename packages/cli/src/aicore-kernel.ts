/**
 * `ropewalk aicore --kernel FILE`: an engineer's kernel on the modelled core, in a process of its own. Kernels of other
 * operators than rope that come with the model run here too. @module
 */
import { resolve } from 'node:path';
import {
  type KernelDeclaration,
  type MeasuredKernel,
  type MeasureOptions,
  measureKernel,
  type OperatorCall,
} from '@ropewalk/ascend';
import { emitAscendc, KERNELS } from '@ropewalk/ascend/internal';
import { readFileBytes, writeOutput } from '@ropewalk/formats/internal/node';
import { RopewalkError } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { readName } from 'ropewalk/internal';
import { type AicoreOptions, describeRun, drawRun, readCall, readMachine, readRange, runToJson } from './aicore.js';
import type { RanKernel } from './aicore-lines.js';
import { KernelProcess, MAX_FILE } from './aicore-process.js';
import { untilInterrupted } from './interrupt.js';
import { Flags } from './options.js';
import { EXIT, openPercentBar, printResult } from './output.js';
import { readRope } from './rope-source.js';

/** The default of `--timeout`, in seconds. */
const DEFAULT_TIMEOUT_S = 60;
const MAX_TIMEOUT_S = 86400;
/** As for RoPE: seconds, up to minutes. */
const MAX_ELEMENTS = 2 ** 26;

const ROPE_OPTIONS = ['rope', 'pairing', 'base', 'rotaryDim', 'tableLen', 'batchPositions'] as const;

/** Whether `--kernel` names a file, or a kernel of another operator than rope. */
export function isOneKernel(kernel: string | undefined): boolean {
  if (kernel === undefined) return false;
  return /[/\\]|\.m?js$/.test(kernel) || (KERNELS[kernel] !== undefined && KERNELS[kernel].operator !== 'rope');
}

/** @returns 0 when the kernel is right and has no finding; 1 when it is wrong, has a finding, throws or does not end */
export async function aicoreKernel(options: AicoreOptions): Promise<number> {
  return (await untilInterrupted('aicore', (signal) => runOne(options, signal))) ?? EXIT.failed;
}

async function runOne(options: AicoreOptions, signal: AbortSignal): Promise<number> {
  const flags = new Flags(options);
  const emit = flags.word('emit', ['ascendc']) !== undefined;
  if (!emit) flags.refuseAny(['out'], 'it needs --emit ascendc.');
  else if (options.out === undefined) fail('FORMAT', '--emit', 'it needs -o FILE.cpp, where the source is written.');
  const { kernel = 'all' } = options;
  const drawn = options.svg !== undefined || options.trace !== undefined;
  flags.refuseAny(['search', 'calibration', 'tableDtype'], 'it does not go with this --kernel. Leave it out.');
  const machine = readMachine(flags);
  const range = readRange(flags);
  const timeout = flags.positive('timeout', MAX_TIMEOUT_S) ?? DEFAULT_TIMEOUT_S;
  const shipped = KERNELS[kernel];
  if (!shipped && !isOneKernel(kernel))
    refuse('UNSUPPORTED', '--kernel', `one of ${Object.keys(KERNELS).join(', ')}, or a file such as my.mjs`, kernel);
  if (shipped) flags.refuseAny(['timeout'], 'it needs --kernel FILE.');
  const own = shipped
    ? undefined
    : new KernelProcess(kernel, resolve(kernel), readFileBytes(kernel, MAX_FILE, `--kernel: ${kernel}`), timeout);
  const bar = openPercentBar('of the blocks', options.json);
  signal.addEventListener('abort', () => own?.end());
  let call: OperatorCall;
  let declared: Pick<KernelDeclaration, 'name' | 'operator' | 'dtypes'>;
  let ran: RanKernel | string;
  try {
    declared = shipped ?? (await own!.load());
    call = await readOperatorCall(flags, options, declared);
    const onBlock = (done: number, total: number): void => bar.to(done / total);
    const how = { ...machine, record: drawn, onBlock };
    ran = shipped ? runShipped(shipped, call, how, emit) : await own!.run(call, how, emit);
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  } finally {
    bar.stop();
    own?.end();
  }
  signal.throwIfAborted();
  const { name, operator } = declared;
  if (typeof ran === 'string') {
    const why = ran;
    printResult(options.json, {
      json: () => ({ kernel: name, operator, failed: why }),
      lines: () => [`${name}: ${why}`],
    });
    return EXIT.failed;
  }
  const { measured: result, source, noSource } = ran;
  if (own) checkResult(kernel, ran);
  const good = result.right === result.rows && result.run.findings.length === 0 && noSource === undefined;
  const files = drawn ? drawRun(result.run, range, options) : [];
  if (source !== undefined) writeOutput(options.out!, source, '--out');
  const { chip: named, clockGHz } = result.run;
  const { dtype, shape } = call;
  printResult(options.json, {
    json: () => ({ operator, dtype, shape, kernels: [runToJson(result)], noSource }),
    lines: () => [
      `${operator} [${shape.join(', ')}] ${dtype}, on a model of an Ascend ${named} at ${clockGHz} GHz`,
      '',
      ...describeRun(name, result),
      `  verdict       ${verdictOf(result)}`,
      ...files.flatMap((file) => ['', `Timeline: ${file}`]),
      ...(source === undefined ? [] : ['', `AscendC, not compiled with CANN: ${options.out}`]),
      ...(noSource === undefined ? [] : ['', `No AscendC: ${noSource}`]),
    ],
  });
  return good ? EXIT.ok : EXIT.failed;
}

function runShipped(kernel: KernelDeclaration, call: OperatorCall, how: MeasureOptions, emit: boolean): RanKernel {
  const measured = measureKernel(kernel, call, how);
  if (!emit) return { measured };
  try {
    return { measured, source: emitAscendc(kernel, call, how) };
  } catch (error) {
    if (!(error instanceof RopewalkError)) throw error;
    return { measured, noSource: error.message };
  }
}

/** Reads the report as untrusted text: a kernel may have escaped and written it. @throws {RopewalkError} FORMAT */
function checkResult(kernel: string, { measured: result, source = '', noSource = '' }: RanKernel): void {
  try {
    if (typeof source !== 'string' || typeof noSource !== 'string') throw new TypeError();
    describeRun('', result);
    runToJson(result);
    verdictOf(result);
  } catch {
    fail(
      'FORMAT',
      '--kernel',
      `${kernel}: its process wrote a report that cannot be read. Does the kernel write to stdout?`,
    );
  }
}

function verdictOf({ run, rows, right }: MeasuredKernel): string {
  if (run.outcome !== 'ended') return run.outcome;
  if (right < rows) return `wrong: ${rows - right} of ${rows} rows`;
  return run.findings.length === 0 ? 'right' : 'right here, but the findings are faults: mend them';
}

/** The call that the kernel computes. */
async function readOperatorCall(
  flags: Flags<AicoreOptions>,
  options: AicoreOptions,
  { name, operator, dtypes }: Pick<KernelDeclaration, 'name' | 'operator' | 'dtypes'>,
): Promise<OperatorCall> {
  const dtype = options.dtype === undefined ? dtypes[0]! : readName(options.dtype, ['f16', 'bf16', 'f32'], '--dtype');
  if (!dtypes.includes(dtype)) refuse('DTYPE', '--dtype', `a dtype of ${name}: ${dtypes.join(', ')}`, dtype);
  if (operator !== 'rms_norm') flags.refuseAny(['eps'], `${name} computes ${operator}. Leave it out.`);
  if (operator === 'rope') return readRopeCall(flags, options, dtype);
  flags.refuseAny(ROPE_OPTIONS, `${name} computes ${operator}. Leave it out.`);
  const shape = flags.integers('shape', 1, MAX_ELEMENTS, 4) ?? [1024, 1024];
  checkElements(shape);
  return { dtype, shape, eps: operator === 'rms_norm' ? (flags.positive('eps') ?? 1e-6) : undefined };
}

async function readRopeCall(
  flags: Flags<AicoreOptions>,
  options: AicoreOptions,
  dtype: OperatorCall['dtype'],
): Promise<OperatorCall> {
  if (options.rope === undefined) {
    const { pairing, rotaryDim, base, ...call } = readCall(flags, { shape: '1,128,32,128', ...options, dtype });
    return { ...call, spec: { headDim: call.shape[3], rotaryDim, base, pairing } };
  }
  flags.refuseAny(['pairing', 'base', 'rotaryDim', 'tableLen'], '--rope says it. Leave one of them out.');
  const { spec } = await readRope(options.rope);
  const shape = flags.integers('shape', 1, MAX_ELEMENTS, 4) ?? [1, 128, 32, spec.headDim];
  if (shape.length === 3) shape.unshift(1);
  checkElements(shape);
  if (shape.length !== 4 || shape[3] !== spec.headDim)
    refuse(
      'SHAPE',
      '--shape',
      `batch,seq,heads,${spec.headDim}, as the RoPE has head_dim ${spec.headDim}`,
      options.shape,
    );
  return { dtype, shape, spec, batchPositions: options.batchPositions ?? false };
}

function checkElements(shape: readonly number[]): void {
  const elements = shape.reduce((product, n) => product * n, 1);
  if (elements > MAX_ELEMENTS)
    refuse('RANGE', '--shape', `at most ${MAX_ELEMENTS} elements, as each is computed`, elements);
}
