/** The modelled AI Core as a backend: RoPE plans and InfiniOp's descriptors compute on it. @module */
import type { Backend, FloatDtype, OpPlan, RopeCall, RopePlan, Tensor } from 'ropewalk';
import { checkPlan, fail, hostMemory, hostOf, loadNumber, newArray, storeNumber } from 'ropewalk/backend';
import type { RopePart } from 'ropewalk/internal';
import { type OptionNames, readName, readOptions, whyNotFloatCaches } from 'ropewalk/internal';
import { readMachine } from './core.js';
import { MAX_HEAD_DIM } from './kernels/args.js';
import { ROPE_KERNELS } from './kernels/index.js';
import { runRopeKernel, whyNotKernel } from './kernels/run.js';
import type { GlobalView, KernelName, KernelRun, MachineOptions } from './trace.js';

/** Options of {@link openAscendModel}. */
export interface AscendModelOptions {
  /** Default: `fast`. `baseline` takes GPT-J pairs of whole heads only. */
  readonly kernel?: KernelName;
  /** The modelled chip. Default: a 910B3 with 40 cores. */
  readonly machine?: MachineOptions;
}

const NAMES: OptionNames<AscendModelOptions> = { kernel: true, machine: true };

/** A backend that computes RoPE on the modelled AI Core and keeps the model's reports. */
export interface AscendModelRunner extends Backend {
  readonly name: 'ascend-model';
  /** The runs of the last plan, one for each of its parts; empty before the first plan. */
  readonly lastRuns: readonly KernelRun[];
}

/**
 * Opens the modelled AI Core as a backend. It runs RoPE only; `whyNot(plan)` says why another plan does not run.
 *
 * Results are those of the device's arithmetic: f16 rounds at each vector step, bf16 computes in f32. Tensors lie in
 * host memory.
 *
 * @param options - which kernel, on which machine
 * @returns an open backend; nothing needs to be disposed of
 * @throws {RopewalkError} UNSUPPORTED for a kernel or chip that does not exist, RANGE for a number of cores that the
 *   chip does not have
 * @example const rw = await ropewalk({ backend: await openAscendModel({ kernel: 'correct' }) });
 */
export async function openAscendModel(options: AscendModelOptions = {}): Promise<AscendModelRunner> {
  const { kernel: wanted = 'fast', machine: given } = readOptions(options, 'ascend-model: options', NAMES);
  const kernel = readName(wanted, Object.keys(ROPE_KERNELS) as KernelName[], 'ascend-model: kernel');
  const machine = readMachine(given, 'ascend-model: machine');
  let lastRuns: readonly KernelRun[] = [];
  return {
    name: 'ascend-model',
    get lastRuns() {
      return lastRuns;
    },
    capabilities: () => ({
      backend: 'ascend-model',
      description: `RoPE by the ${kernel} kernel on a model of an Ascend ${machine.chip}'s vector cores`,
      dtypes: ROPE_KERNELS[kernel].dtypes,
      roundsEachStep: ['f16'],
      threads: 1,
      notTaken: [],
    }),
    ...hostMemory(),
    whyNot: (plan) => whyNot(plan, kernel),
    run(plan) {
      const why = whyNot(plan, kernel);
      if (why !== undefined)
        fail('UNSUPPORTED', `ascend-model: ${plan.op}`, `the ${kernel} kernel cannot run it: ${why}`);
      const call = plan as RopeCall;
      lastRuns = call.parts.map((part) => runPart(call.plan, part, kernel, machine));
    },
    async finish() {},
  };
}

function runPart(plan: RopePlan, part: RopePart, kernel: KernelName, machine: MachineOptions): KernelRun {
  const { dtype } = part.x;
  const tableDtype = tableDtypeOf(plan, dtype) ?? dtype;
  return runRopeKernel({
    kernel,
    dtype,
    tableDtype,
    pairing: plan.read.step === 2 ? 'interleaved' : 'half',
    x: viewOf(part.x, 'x'),
    y: viewOf(part.out, 'out'),
    positions: plan.tableRows,
    sin: tableOf(plan.table.sin, tableDtype),
    cos: tableOf(plan.table.cos, tableDtype),
    rotaryDim: plan.rotaryDim,
    machine,
  });
}

function viewOf(tensor: Tensor, name: string): GlobalView {
  return {
    data: hostOf(tensor, `ascend-model: ${name}`),
    shape: tensor.shape as GlobalView['shape'],
    strides: tensor.strides as GlobalView['strides'],
    offset: tensor.offset,
  };
}

/** Stores a table in the type that the kernels load. */
function tableOf(values: ArrayLike<number>, dtype: FloatDtype): ReturnType<typeof newArray> {
  const data = newArray(dtype, values.length);
  for (let n = 0; n < values.length; n++) storeNumber(data, dtype, n, values[n]!);
  return data;
}

/** Finds the type, the data's or f32, in which kernels load tables and which holds a plan's tables exactly. */
function tableDtypeOf({ table }: RopePlan, dtype: FloatDtype): FloatDtype | undefined {
  return ([dtype, 'f32'] as const).find((type) => fits(table.cos, type) && fits(table.sin, type));
}

function fits(values: ArrayLike<number>, dtype: FloatDtype): boolean {
  const data = tableOf(values, dtype);
  for (let n = 0; n < values.length; n++) if (loadNumber(data, dtype, n) !== values[n]) return false;
  return true;
}

/** Says why a kernel cannot run a plan, as the rest of a sentence; undefined when it can. */
function whyNot(plan: OpPlan, kernel: KernelName): string | undefined {
  checkPlan(plan);
  if (plan.op !== 'rope') return `the model has kernels for rope, not for ${plan.op}`;
  const cache = whyNotFloatCaches(plan);
  if (cache !== undefined) return cache;
  const { pairing, rotaryOffset, headDim, rotaryDim } = plan.plan;
  if (pairing === 'interleaved-to-half') return 'the kernels write a pair where they read it';
  if (rotaryOffset !== 0) return 'the kernels rotate the leading dimensions of a head';
  if (headDim > MAX_HEAD_DIM) return `a row of ${headDim} elements and its temporaries do not fit the unified buffer`;
  for (const part of plan.parts) {
    const { dtype } = part.x;
    const why = whyNotPart(part);
    if (why !== undefined) return why;
    const tableDtype = tableDtypeOf(plan.plan, dtype);
    if (tableDtype === undefined)
      return 'the kernels read cos and sin in f32 or the type of the elements, and neither holds these tables exactly';
    const limit = whyNotKernel(kernel, { dtype, tableDtype, pairing, rotaryDim, headDim });
    if (limit !== undefined) return `the ${kernel} kernel ${limit}`;
  }
  return undefined;
}

function whyNotPart({ x, out, rows, norm }: RopePart): string | undefined {
  if (x.dtype === 'f64') return 'the vector unit has no f64 arithmetic';
  if (out.dtype !== x.dtype) return 'the kernels write the dtype that they read';
  if (rows) return 'the kernels write no KV cache';
  if (norm) return 'the kernels do no norm';
  for (const { shape, strides } of [x, out]) {
    if (strides[3] !== 1 && shape[3] !== 1)
      return 'a copy reads rows whose elements lie side by side, a last stride of 1';
  }
  return undefined;
}
