/** The parts of `ropewalk trace` that need no files. They make no promise: they change without notice. @module */
export type { Dump, DumpTensor, LayerFacts, RunFacts } from './dump.js';
export type { LlamaState, StateCache, StateLayer, StateRows } from './read/llama-state.js';
export { traceLines, traceToJson } from './say.js';
export { type Divergence, type Step, type TraceReport, traceDumps } from './trace.js';
