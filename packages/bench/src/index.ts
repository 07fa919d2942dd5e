/** Times the operators of Ropewalk beside a copy of the same bytes, in Node and in pages. @module @ropewalk/bench */
export {
  allCases,
  type BenchCase,
  type ElementwiseName,
  gpuCases,
  type PreparedCase,
  pageCases,
  type Question,
  webnnCases,
} from './cases.js';
export { errorLimit, sampleNumbers, worstError } from './data.js';
export { runGpuSession } from './gpu.js';
export { openLibrary } from './library.js';
export { type Clocks, type Contender, FULL_EFFORT, plainCopy, QUICK_EFFORT, queued } from './measure.js';
export {
  type Beside,
  type CaseResult,
  chooseCases,
  firstLine,
  type Rival,
  type Rivals,
  runCases,
  type SessionOptions,
  type SessionResult,
} from './session.js';
