/** Launches declared kernels on the model, and runs the RoPE kernels on the caller's tensors. @module */
import { fail } from 'ropewalk/backend';
import { checkInteger, type OptionNames, optionNames, readName, readOptions } from 'ropewalk/internal';
import { readMachine } from '../core.js';
import { MAX_BLOCKS, MAX_REPEATS } from '../costs.js';
import { launchKernel } from '../launch.js';
import type { GlobalTensor } from '../memory.js';
import { bandOf } from '../time.js';
import type { KernelName, KernelRun, MachineOptions, RopeKernelOptions, Tiling, WatchOptions } from '../trace.js';
import { type RopeArgs, ropeArgs } from './args.js';
import { BUFFER_NUM, type KernelDeclaration, type KernelDtype, type KnownTiling, TILING_WORDS } from './declaration.js';
import { ROPE_KERNELS } from './index.js';

/** The most buffers of a queue that a kernel may be asked for; a launch may have 64 in all. */
const MAX_QUEUE_BUFFERS = 16;

/** A call of an operator, with its tensors in global memory. */
export interface BoundCall {
  readonly dtype: KernelDtype;
  /** The arguments of the kernel that are no tensors. */
  readonly facts: object;
  readonly tensors: { readonly [role: string]: GlobalTensor };
  /** The tensors that must be read whole. */
  readonly inputs: readonly GlobalTensor[];
  readonly rowLength: number;
  readonly rowStarts: readonly number[];
  /** The most rows of a tile: as many as lie side by side. */
  readonly tileRows: number;
  readonly least: { readonly load: number; readonly store: number };
}

/** Launches a kernel on a call of its operator. @throws {RopewalkError} UNSUPPORTED when it does not take the call */
export function launchDeclared(
  kernel: KernelDeclaration,
  call: BoundCall,
  how: WatchOptions & { readonly machine?: MachineOptions; readonly tiling?: Tiling },
): KernelRun {
  const { name, autoSync = true } = kernel;
  const { dtype, facts, tensors, rowStarts, tileRows, ...rest } = call;
  const { tiling: given, ...watch } = how;
  const machine = readMachine(how.machine);
  const named = Object.entries(kernel.arguments).map(([argument, role]) => [argument, tensors[role]]);
  const args = { ...facts, ...Object.fromEntries(named) };
  const why = whyNotArgs(kernel, dtype, args);
  if (why !== undefined) fail('UNSUPPORTED', 'aicore: kernel', `the ${name} kernel ${why}`);
  const wanted = typeof kernel.blocks === 'function' ? kernel.blocks(args as never, machine.cores) : kernel.blocks;
  const blocks = wanted ?? Math.min(machine.cores, rowStarts.length);
  const tiling = readTiling(given, kernel, { rows: rowStarts.length, tileRows, blocks });
  const run = launchKernel({
    ...watch,
    ...rest,
    kernel: name,
    dtype,
    machine,
    blocks: tiling.blocks,
    autoSync,
    rowStarts,
    output: tensors.out,
    body: (c) => kernel.kernel(c, { ...args, ...tiling } as never),
  });
  return isMeasured(kernel, run, { ...args, ...tiling }) ? { ...run, ...bandOf(run) } : run;
}

/**
 * Checks a tiling against what a kernel takes.
 *
 * @param most - rows in all, the most rows of a tile, and the kernel's default number of blocks
 * @throws {RopewalkError} UNSUPPORTED for a parameter that the kernel does not have, RANGE for a number out of range
 */
function readTiling(
  given: Tiling | undefined,
  { name, takes = [] }: KernelDeclaration,
  most: { readonly rows: number; readonly tileRows: number; readonly blocks: number },
): KnownTiling {
  const tiling = readOptions(given ?? {}, 'aicore: tiling', { blocks: true, tileRows: true, buffers: true });
  for (const parameter of ['blocks', 'tileRows', 'buffers'] as const) {
    if (tiling[parameter] === undefined || takes.includes(parameter)) continue;
    const has =
      takes.length > 0 ? `It takes ${takes.map((taken) => TILING_WORDS[taken]).join(', ')}.` : 'It takes none.';
    fail('UNSUPPORTED', `aicore: ${TILING_WORDS[parameter]}`, `the ${name} kernel has no such parameter. ${has}`);
  }
  const { blocks = most.blocks, tileRows, buffers = BUFFER_NUM } = tiling;
  const limit = (n: number, rows: number): number => Math.max(1, Math.min(n, rows));
  if (tiling.blocks !== undefined) checkInteger(blocks, 'aicore: blocks', 1, limit(MAX_BLOCKS, most.rows));
  if (tileRows !== undefined) checkInteger(tileRows, 'aicore: tile', 1, limit(MAX_REPEATS, most.tileRows));
  checkInteger(buffers, 'aicore: buffers', 1, MAX_QUEUE_BUFFERS);
  return { blocks, tileRows, buffers };
}

/** Tells whether a run is of the kind that stands for the measured rows: see calibration.ts. */
function isMeasured({ kernel }: KernelDeclaration, { chip, dtype }: KernelRun, args: object): boolean {
  const { pairing, tableDtype, buffers } = args as Partial<RopeArgs>;
  const same = kernel === ROPE_KERNELS.fast.kernel && chip === '910B2' && buffers === 1;
  return same && pairing === 'half' && dtype !== 'f32' && tableDtype === 'f32';
}

function whyNotArgs({ dtypes, whyNot }: KernelDeclaration, dtype: string, args: object): string | undefined {
  if (!(dtypes as readonly string[]).includes(dtype)) return `takes ${dtypes.join(' and ')} only`;
  return whyNot?.(args as never);
}

/** A call of a RoPE kernel, as far as {@link whyNotKernel} reads it. */
type RopeFacts = Readonly<Record<'dtype' | 'pairing', string> & Record<'rotaryDim' | 'headDim', number>> & {
  /** The dtype of cos and sin. Default: `dtype`. */
  readonly tableDtype?: string;
};
const FACT_NAMES = { dtype: true, pairing: true, rotaryDim: true, headDim: true, tableDtype: true } as const;

/**
 * Says why a RoPE kernel does not take a call.
 *
 * @param kernel - its name
 * @param call - dtype, pairing and size of a head
 * @returns the rest of a sentence that starts with the kernel; undefined when the kernel takes the call
 * @throws {RopewalkError} UNSUPPORTED for a name that is none
 */
export function whyNotKernel(kernel: KernelName, call: RopeFacts): string | undefined {
  const { dtype, tableDtype = dtype, headDim: dim, ...rest } = readOptions(call, 'aicore: call', FACT_NAMES);
  return whyNotArgs(ropeKernel(kernel), dtype, { dtype, tableDtype, dim, ...rest, rotaryOffset: 0 });
}

/** Finds a RoPE kernel by its name. */
export function ropeKernel(name: unknown): KernelDeclaration {
  return ROPE_KERNELS[readName(name, Object.keys(ROPE_KERNELS) as KernelName[], 'aicore: kernel')];
}

/** Makes the call of a RoPE kernel on these arguments; it must read `inputs` whole. */
export function ropeCall(a: Omit<RopeArgs, keyof Tiling>, inputs: readonly GlobalTensor[]): BoundCall {
  const { x, cos, sin, positions, y: out } = a;
  const tensors = { x, cos, sin, positions, out };
  const { dtype, dim: rowLength, rowStarts, heads: tileRows, least } = a;
  return { dtype, facts: a, tensors, inputs, rowLength, rowStarts, tileRows, least };
}

const NAMES: OptionNames<RopeKernelOptions> = /* @__PURE__ */ optionNames(
  'kernel dtype pairing x y positions sin cos rotaryDim tableDtype tiling machine record onBlock',
);

/**
 * Runs one of the RoPE kernels on the modelled AI Core: y is written, in the caller's memory.
 *
 * The baseline and InfiniCore's kernels write what they would write on the device, with their faults, as far as that
 * stays in the caller's arrays.
 *
 * @param call - kernel, tensors, tables, machine; see {@link RopeKernelOptions}
 * @returns the report; a kernel that hangs is a finding
 * @throws {RopewalkError} SHAPE, DTYPE, RANGE, ALIAS, naming the argument; UNSUPPORTED when the kernel does not do it;
 *   nothing is written then
 */
export function runRopeKernel(call: RopeKernelOptions): KernelRun {
  const options = readOptions(call, 'aicore: options', NAMES);
  const kernel = ropeKernel(options.kernel);
  readName(options.pairing, ['interleaved', 'half'], 'aicore: pairing');
  const { machine, tiling, record, onBlock } = options;
  const a = ropeArgs(options);
  return launchDeclared(kernel, ropeCall(a, [a.positions]), { machine, tiling, record, onBlock });
}
