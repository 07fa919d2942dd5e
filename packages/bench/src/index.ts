/** Times the operators of Ropewalk beside a copy of the same bytes, in Node and in pages. @module @ropewalk/bench */
export { pageCases } from './cases.js';

export { openLibrary } from './library.js';
export { type Contender, FULL_EFFORT, plainCopy, queued } from './measure.js';
export { type CaseResult, runCases } from './session.js';
