/** The names that the packages of Ropewalk share of this one. They make no promise: they change without notice. @module */

export {
  allCases,
  type BenchCase,
  type ElementwiseName,
  gpuCases,
  type PreparedCase,
  type Question,
  webnnCases,
} from './cases.js';
export { errorLimit, sampleNumbers, worstError } from './data.js';
export { runGpuSession } from './gpu.js';
export { QUICK_EFFORT } from './measure.js';
export { ropeLineCase } from './rope-line.js';
export {
  type Beside,
  chooseCases,
  firstLine,
  type Rival,
  type Rivals,
  type SessionOptions,
  type SessionResult,
} from './session.js';
