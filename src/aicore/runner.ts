/**
 * The modelled AI Core as a {@link Runner}: InfiniOp's descriptors, or any RoPE plan that its kernels take, compute on it.
 *
 * Only RoPE runs here; each plan that cannot says why.
 *
 * @module
 */
import { readName, readOptional, readOptions } from '../core/arguments.js';
import { type Dtype, type FloatDtype, isFloat, loadNumber, newArray, storeNumber } from '../core/dtypes.js';
import { RopewalkError } from '../core/errors.js';
import { hostOf, type Tensor, zeros } from '../core/tensor.js';
import type { RopeCall, RopePart } from '../ops/rope/call.js';
import type { RopePlan } from '../ops/rope/plan.js';
import { checkPlan, type OpPlan, type Runner } from '../ops/runner.js';
import { coresOf } from './core.js';
import { MAX_HEAD_DIM } from './kernels/args.js';
import { runRopeKernel } from './kernels/run.js';
import { whyNotSeed } from './kernels/seed.js';
import type { GlobalView, KernelName, KernelRun, MachineOptions } from './trace.js';

/** What {@link ascendModelRunner} takes. */
export interface AscendModelOptions {
  /** fast unless given; seed takes what its document says, and no more. */
  readonly kernel?: KernelName;
  readonly machine?: MachineOptions;
}

/** A runner that remembers what the model said. */
export interface AscendModelRunner extends Runner {
  readonly name: 'ascend-model';
  /** Of the last plan, a run for each part; empty before the first. */
  readonly lastRuns: readonly KernelRun[];
}

/**
 * Makes a runner whose RoPE is computed by a kernel on the modelled AI Core.
 *
 * Results are those of the device's arithmetic: f16 rounds at each vector step, bf16 computes in f32. Tensors lie in host memory.
 *
 * @param options - which kernel, on which machine
 */
export function ascendModelRunner(options: AscendModelOptions = {}): AscendModelRunner {
  const { kernel: wanted = 'fast', machine: given } = readOptions(options, 'ascend-model: options');
  const kernel = readName(wanted, ['seed', 'correct', 'fast'], 'ascend-model: kernel');
  const machine = readOptional(given, 'ascend-model: machine');
  coresOf(machine ?? {});
  let lastRuns: readonly KernelRun[] = [];
  return {
    name: 'ascend-model',
    get lastRuns() {
      return lastRuns;
    },
    allocate: (dtype, shape) => zeros(dtype, shape),
    whyNot: (plan) => whyNot(plan, kernel),
    run(plan) {
      const why = whyNot(plan, kernel);
      if (why !== undefined)
        throw new RopewalkError(
          'UNSUPPORTED',
          `ascend-model: ${plan.op}: expected a plan for kernel ${kernel}, got another: ${why}.`,
        );
      const call = plan as RopeCall;
      lastRuns = call.parts.map((part) => runPart(call.plan, part, kernel, machine));
    },
    finish: async () => {},
  };
}

function runPart(plan: RopePlan, part: RopePart, kernel: KernelName, machine: MachineOptions | undefined): KernelRun {
  const dtype = part.x.dtype;
  return runRopeKernel({
    kernel,
    dtype,
    pairing: plan.read.step === 2 ? 'interleaved' : 'half',
    x: viewOf(part.x, 'x'),
    y: viewOf(part.out, 'out'),
    positions: plan.tableRows,
    sin: tableOf(plan.table.sin, dtype),
    cos: tableOf(plan.table.cos, dtype),
    rotaryDim: plan.rotaryDim,
    ...(machine === undefined ? {} : { machine }),
  });
}

function viewOf(tensor: Tensor<FloatDtype>, name: string): GlobalView {
  return {
    data: hostOf(tensor, `ascend-model: ${name}`),
    shape: tensor.shape as GlobalView['shape'],
    strides: tensor.strides as GlobalView['strides'],
    offset: tensor.offset,
  };
}

/** The table in the data's own type, as the kernels load it. */
function tableOf(values: ArrayLike<number>, dtype: FloatDtype): ReturnType<typeof newArray> {
  const data = newArray(dtype, values.length);
  for (let n = 0; n < values.length; n++) storeNumber(data, dtype, n, values[n]!);
  return data;
}

/** Whether a table survives {@link tableOf}: the kernels have none of a wider type. */
function fits(values: ArrayLike<number>, dtype: FloatDtype): boolean {
  const data = tableOf(values, dtype);
  for (let n = 0; n < values.length; n++) if (loadNumber(data, dtype, n) !== values[n]) return false;
  return true;
}

function whyNot(plan: OpPlan, kernel: KernelName): string | undefined {
  checkPlan(plan);
  if (plan.op !== 'rope') return `the model has kernels for rope, not for ${plan.op}`;
  const { pairing, rotaryOffset, headDim, rotaryDim, table } = plan.plan;
  if (pairing === 'interleaved-to-half') return 'the kernels write a pair where they read it';
  if (rotaryOffset !== 0) return 'the kernels turn the leading dimensions of a head';
  if (headDim > MAX_HEAD_DIM) return `a row of ${headDim} elements and its temporaries do not fit the unified buffer`;
  for (const part of plan.parts) {
    const why = whyNotPart(part);
    if (why !== undefined) return why;
  }
  const dtypes: readonly Dtype[] = [...new Set(plan.parts.map(({ x }) => x.dtype))];
  for (const dtype of dtypes) {
    if (isFloat(dtype) && !(fits(table.cos, dtype) && fits(table.sin, dtype)))
      return `the kernels read cos and sin in the data's own type, and ${dtype} cannot hold these`;
  }
  if (kernel !== 'seed') return undefined;
  const whys = plan.parts.map(({ x: { dtype } }) => whyNotSeed({ dtype, pairing, rotaryDim, headDim }));
  const why = whys.find((reason) => reason !== undefined);
  return why === undefined ? undefined : `the seed kernel ${why}`;
}

function whyNotPart({ x, out, rows, norm }: RopePart): string | undefined {
  if (x.dtype === 'f64') return 'the vector unit has no f64 arithmetic';
  if (out.dtype !== x.dtype) return 'the kernels write the type that they read';
  if (rows) return 'the kernels write no KV cache';
  if (norm) return 'the kernels do no norm';
  for (const { shape, strides } of [x, out]) {
    if (strides[3] !== 1 && shape[3] !== 1) return 'a copy reads rows whose elements lie side by side';
  }
  return undefined;
}
