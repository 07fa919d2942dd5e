/** Conformance: cases, comparison, tolerances and the runner, for our backends and for yours. @module */
export * from './case.js';
export * from './compare.js';
export type { VectorFolder } from './folder.js';
export * from './ggml-formula.js';
export * from './golden/folder.js';
export { goldenOperatorSuite } from './golden/operators.js';
export { goldenRopeSuite } from './golden/rope.js';
export * from './published.js';
export * from './report.js';
export * from './rope-case.js';
export * from './runner.js';
export * from './tolerance.js';
export * from './vectors.js';
export * as verify from './verify/index.js';
