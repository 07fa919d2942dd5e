/**
 * The Ascend AI Core (architecture 2201) as a model: it computes, it times, it catches.
 *
 * `runRopeKernel` runs the kernels that are here; `launchKernel` runs one of your own, written with {@link AscendC}.
 *
 * @module @ropewalk/ascend
 */
export type {
  AscendC,
  CopyParams,
  GatherMaskParams,
  LaneType,
  LocalTensor,
  Mask,
  RepeatParams,
  Repeats,
  TBuf,
  TPipe,
  TQue,
} from './ascendc.js';
export { EVEN_LANES, firstLanes, ODD_LANES } from './ascendc.js';
export { ASSUMPTIONS, CHIPS, CONFLICT_CYCLES, HEADS, UB_BYTES, VECTOR_COSTS } from './costs.js';
export { MAX_HEAD_DIM } from './kernels/args.js';
export { runRopeKernel } from './kernels/run.js';
export { whyNotSeed } from './kernels/seed.js';
export { type LaunchOptions, launchKernel } from './launch.js';
export { type MeasuredCall, type MeasuredKernel, type MeasureOptions, measureRopeKernel } from './measure.js';
export { Allocation, GlobalTensor } from './memory.js';
export { type AscendModelOptions, type AscendModelRunner, ascendModelRunner, openAscendModel } from './runner.js';
export { chromeTrace } from './timeline/chrome-trace.js';
export { timelineSvg } from './timeline/svg.js';
export * from './trace.js';
