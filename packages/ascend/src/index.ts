/**
 * A model of the Ascend AI Core (architecture 2201): it computes, measures cycles and reports faults.
 *
 * `openAscendModel` opens it as a backend, `runRopeKernel` runs one of its RoPE kernels on your tensors,
 * `measureKernel` runs and judges a kernel that you declare, and `launchKernel` runs any body written with
 * {@link AscendC}. `timelineSvg` and `chromeTrace` draw a recorded run.
 *
 * @module @ropewalk/ascend
 */
export { type AscendC, EVEN_LANES, firstLanes, type LocalTensor, ODD_LANES, type TQue } from './ascendc.js';

export { CHIPS, type ChipName } from './costs.js';
export type { RopeArgs } from './kernels/args.js';
export type { KernelDeclaration, RowFacts } from './kernels/declaration.js';
export { ROPE_KERNELS } from './kernels/index.js';
export type { OperatorCall } from './kernels/operators.js';
export { type RopeLaunch, rope_kernel_launch } from './kernels/rope-kernel-launch.js';
export { runRopeKernel } from './kernels/run.js';
export { type LaunchOptions, launchKernel } from './launch.js';
export {
  type MeasuredCall,
  type MeasuredKernel,
  type MeasureOptions,
  measureKernel,
  measureRopeKernel,
} from './measure.js';
export { Allocation, GlobalTensor } from './memory.js';
export { type AscendModelOptions, type AscendModelRunner, openAscendModel } from './runner.js';

export { chromeTrace } from './timeline/chrome-trace.js';
export { timelineSvg } from './timeline/svg.js';
export {
  type Finding,
  type GlobalView,
  type KernelName,
  type KernelRun,
  type MachineOptions,
  QUEUES,
  type RopeKernelOptions,
  type Tiling,
} from './trace.js';
