/** The names that the packages of Ropewalk share of this one. They make no promise: they change without notice. @module */
export { AscendC, LocalTensor, TBuf, TPipe, TQue } from './ascendc.js';
export { calibrate } from './calibration.js';
export { emitAscendc, type SourceLine, sourceOfBlock0 } from './emit/ascendc.js';
export { readKernel } from './kernels/declaration.js';
export { KERNELS } from './kernels/index.js';
export { whyNotKernel } from './kernels/run.js';
export { prepareRope } from './measure.js';
export { searchTiling, type TriedTiling } from './search.js';
export type { TimelineOptions } from './timeline/svg.js';
