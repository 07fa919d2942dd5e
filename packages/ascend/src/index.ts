/**
 * A model of the Ascend AI Core (architecture 2201): it computes, measures cycles and reports faults.
 *
 * `openAscendModel` opens it as a backend, `runRopeKernel` runs one of its RoPE kernels on your tensors, and
 * `launchKernel` runs your own kernel, written with {@link AscendC}. `timelineSvg` and `chromeTrace` draw a recorded
 * run.
 *
 * @module
 */
export {
  type AscendC,
  type CopyParams,
  EVEN_LANES,
  firstLanes,
  type GatherMaskParams,
  type LaneType,
  type LocalTensor,
  type Mask,
  ODD_LANES,
  type RepeatParams,
  type Repeats,
  type TBuf,
  type TPipe,
  type TQue,
} from './ascendc.js';
export { ASSUMPTIONS, CHIPS, CONFLICT_CYCLES, HEADS, UB_BYTES, VECTOR_COSTS } from './costs.js';
export { MAX_HEAD_DIM } from './kernels/args.js';
export { runRopeKernel } from './kernels/run.js';
export { whyNotSeed } from './kernels/seed.js';
export { type LaunchOptions, launchKernel } from './launch.js';
export {
  type MeasuredCall,
  type MeasuredKernel,
  type MeasureOptions,
  measureRopeKernel,
  type PreparedRope,
  prepareRope,
} from './measure.js';
export { Allocation, GlobalTensor } from './memory.js';
export { type AscendModelOptions, type AscendModelRunner, ascendModelRunner, openAscendModel } from './runner.js';
export { chromeTrace } from './timeline/chrome-trace.js';
export { type TimelineOptions, timelineSvg } from './timeline/svg.js';
export * from './trace.js';
