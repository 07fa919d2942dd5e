/**
 * The Ascend AI Core (architecture 2201) as a model: it computes, it times, it catches.
 *
 * `runRopeKernel` runs the kernels that are here; `launchKernel` runs one of your own, written with {@link AscendC}.
 *
 * @module
 */
export {
  AscendC,
  type CopyParams,
  EVEN_LANES,
  firstLanes,
  type GatherMaskParams,
  type LaneType,
  LocalTensor,
  type Mask,
  ODD_LANES,
  type RepeatParams,
  type Repeats,
  TBuf,
  TPipe,
  TQue,
} from './ascendc.js';
export { ASSUMPTIONS, CHIPS, CONFLICT_CYCLES, HEADS, loadCycles, storeCycles, UB_BYTES, VECTOR_COSTS, vectorCycles } from './costs.js';
export { MAX_HEAD_DIM } from './kernels/args.js';
export { runRopeKernel } from './kernels/run.js';
export { type LaunchOptions, launchKernel } from './launch.js';
export { Allocation, GlobalTensor } from './memory.js';
export { type AscendModelOptions, type AscendModelRunner, ascendModelRunner } from './runner.js';
export { chromeTrace } from './timeline/chrome-trace.js';
export { type TimelineOptions, timelineSvg } from './timeline/svg.js';
export * from './trace.js';
