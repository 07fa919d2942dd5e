/** The parts of `ropewalk trace` that need no files. They make no promise: they change without notice. @module */
export type { Dump, DumpTensor, LayerFacts, RunFacts } from './dump.js';
export { traceLines, traceToJson } from './say.js';
export { type Divergence, type Step, type TraceReport, traceDumps } from './trace.js';
