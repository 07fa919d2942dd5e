/**
 * A model of the Ascend AI Core (architecture 2201): it computes, measures cycles and reports faults.
 *
 * `openAscendModel` opens it as a backend, `runRopeKernel` runs one of its RoPE kernels on your tensors,
 * `measureKernel` runs and judges a kernel that you declare, and `launchKernel` runs any body written with
 * {@link AscendC}. `timelineSvg` and `chromeTrace` draw a recorded run.
 *
 * @module @ropewalk/ascend
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
  type ReduceParams,
  type RepeatParams,
  type Repeats,
  type TBuf,
  type TPipe,
  type TQue,
} from './ascendc.js';
export {
  type CalibratedRow,
  type Calibration,
  calibrate,
  DEVICE_ROWS,
  type DeviceRow,
  type Fit,
} from './calibration.js';
export {
  ASSUMPTIONS,
  type Assumption,
  CHIPS,
  type ChipName,
  CONFLICT_CYCLES,
  HEADS,
  UB_BYTES,
  VECTOR_COSTS,
} from './costs.js';
export { MAX_HEAD_DIM, type RopeArgs } from './kernels/args.js';
export {
  type KernelDeclaration,
  type KernelDtype,
  type KernelOperator,
  type RowFacts,
  readKernel,
} from './kernels/declaration.js';
export { KERNELS, ROPE_KERNELS } from './kernels/index.js';
export type { OperatorCall } from './kernels/operators.js';
export { runRopeKernel, whyNotKernel } from './kernels/run.js';
export { type LaunchOptions, launchKernel } from './launch.js';
export {
  type MeasuredCall,
  type MeasuredKernel,
  type MeasureOptions,
  measureKernel,
  measureRopeKernel,
  type PreparedKernel,
  type PreparedRope,
  prepareKernel,
  prepareRope,
} from './measure.js';
export { Allocation, GlobalTensor } from './memory.js';
export { type AscendModelOptions, type AscendModelRunner, ascendModelRunner, openAscendModel } from './runner.js';
export { searchTiling, type TilingSearch, type TriedTiling } from './search.js';
export { TIME } from './time.js';
export { chromeTrace } from './timeline/chrome-trace.js';
export { type TimelineOptions, timelineSvg } from './timeline/svg.js';
export * from './trace.js';
