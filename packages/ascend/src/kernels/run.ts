/** Launches declared kernels on the model, and runs the RoPE kernels on the caller's tensors. @module */
import { fail } from 'ropewalk/backend';
import { type OptionNames, readName, readOptions } from 'ropewalk/internal';
import { MACHINE_NAMES, readChip } from '../core.js';
import { launchKernel } from '../launch.js';
import type { GlobalTensor } from '../memory.js';
import { bandOf } from '../time.js';
import type { KernelName, KernelRun, MachineOptions, RopeKernelOptions, Tiling } from '../trace.js';
import { type RopeArgs, ropeArgs } from './args.js';
import type { KernelDeclaration, KernelDtype } from './declaration.js';
import { ROPE_KERNELS } from './index.js';
import { readTiling } from './tiling.js';

/** A call of an operator, with its tensors in global memory. */
export interface BoundCall {
  readonly dtype: KernelDtype;
  /** What the kernel gets beside its tensors. */
  readonly facts: object;
  /** By role. */
  readonly tensors: { readonly [role: string]: GlobalTensor };
  /** Those that must be read whole. */
  readonly inputs: readonly GlobalTensor[];
  readonly rowLength: number;
  readonly rowStarts: readonly number[];
  /** The most rows of a tile: those that lie side by side. */
  readonly tileRows: number;
  readonly least: { readonly load: number; readonly store: number };
}

/** How a call is launched. */
export interface LaunchedHow {
  readonly machine?: MachineOptions;
  readonly tiling?: Tiling;
  readonly record?: boolean | readonly number[];
  readonly onBlock?: (done: number, total: number) => void;
}

/** Launches a kernel on a call of its operator. @throws {RopewalkError} UNSUPPORTED when it does not take the call */
export function launchDeclared(kernel: KernelDeclaration, call: BoundCall, how: LaunchedHow): KernelRun {
  const { name, autoSync = true } = kernel;
  const { dtype, facts, tensors, rowStarts, tileRows, ...rest } = call;
  const machine = readOptions(how.machine ?? {}, 'aicore: machine', MACHINE_NAMES);
  const { cores } = readChip(machine);
  const named = Object.entries(kernel.arguments).map(([own, role]) => [own, tensors[role]]);
  const args = { ...facts, ...Object.fromEntries(named) };
  const why = whyNotArgs(kernel, dtype, args);
  if (why !== undefined) fail('UNSUPPORTED', 'aicore: kernel', `the ${name} kernel ${why}`);
  const wanted = typeof kernel.blocks === 'function' ? kernel.blocks(args as never, cores) : kernel.blocks;
  const { tiling: given, ...launched } = how;
  const own = { rows: rowStarts.length, tileRows, blocks: wanted ?? Math.min(cores, rowStarts.length) };
  const tiling = readTiling(given, name, kernel.takes ?? [], own);
  const run = launchKernel({
    ...launched,
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

/** Whether a run is of the kind that stands for the measured rows: see calibration.ts. */
function isMeasured({ kernel }: KernelDeclaration, { chip, dtype }: KernelRun, args: object): boolean {
  const { pairing, tableDtype, buffers } = args as Partial<RopeArgs>;
  const same = kernel === ROPE_KERNELS.fast.kernel && chip === '910B2' && buffers === 1;
  return same && pairing === 'half' && dtype !== 'f32' && tableDtype === 'f32';
}

function whyNotArgs({ dtypes, whyNot }: KernelDeclaration, dtype: string, args: object): string | undefined {
  if (!(dtypes as readonly string[]).includes(dtype)) return `takes ${dtypes.join(' and ')} only`;
  return whyNot?.(args as never);
}

/**
 * What a RoPE kernel does not take.
 *
 * @param kernel - its name
 * @param call - dtype, pairing and size of a head
 * @returns the rest of a sentence that starts with the kernel; undefined when the kernel takes the call
 * @throws {RopewalkError} UNSUPPORTED for a name that is none
 */
export function whyNotKernel(
  kernel: KernelName,
  call: {
    readonly dtype: string;
    readonly pairing: string;
    readonly rotaryDim: number;
    readonly headDim: number;
    /** Of cos and sin; `dtype` unless given. */
    readonly tableDtype?: string;
  },
): string | undefined {
  const {
    dtype,
    pairing,
    rotaryDim,
    headDim,
    tableDtype = dtype,
  } = readOptions(call, 'aicore: call', {
    dtype: true,
    pairing: true,
    rotaryDim: true,
    headDim: true,
    tableDtype: true,
  });
  return whyNotArgs(ropeKernel(kernel), dtype, {
    dtype,
    tableDtype,
    pairing,
    rotaryDim,
    dim: headDim,
    rotaryOffset: 0,
  });
}

/** A RoPE kernel by its name. */
export function ropeKernel(name: unknown): KernelDeclaration {
  return ROPE_KERNELS[readName(name, Object.keys(ROPE_KERNELS) as KernelName[], 'aicore: kernel')];
}

/** The call of a RoPE kernel on these arguments; `inputs` are those that must be read whole. */
export function ropeCall(a: Omit<RopeArgs, keyof Tiling>, inputs: readonly GlobalTensor[]): BoundCall {
  const { x, cos, sin, positions, y: out } = a;
  const tensors = { x, cos, sin, positions, out };
  const { dtype, dim: rowLength, rowStarts, heads: tileRows, least } = a;
  return { dtype, facts: a, tensors, inputs, rowLength, rowStarts, tileRows, least };
}

const NAMES: OptionNames<RopeKernelOptions> = {
  kernel: true,
  dtype: true,
  pairing: true,
  x: true,
  y: true,
  positions: true,
  sin: true,
  cos: true,
  rotaryDim: true,
  tableDtype: true,
  tiling: true,
  machine: true,
  record: true,
  onBlock: true,
};

/**
 * Runs one of the RoPE kernels on the modelled AI Core: y is written, in the caller's memory.
 *
 * The baseline and InfiniCore's kernels write what they would write on the device, with their faults, as far as that
 * stays in the caller's arrays.
 *
 * @param call - kernel, tensors, tables, machine; see {@link RopeKernelOptions}
 * @returns cycles, bytes, buffers, findings; a kernel that hangs is a finding
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
