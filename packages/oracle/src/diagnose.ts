/**
 * The diagnosis of a kernel alone: a part of `@ropewalk/oracle` that loads no suite of cases and no golden vectors.
 *
 * @module @ropewalk/oracle/diagnose
 */
export { demoObservation } from './diagnose/demo.js';
export * from './diagnose/index.js';
export { diagnosisToJson } from './diagnose/json.js';
export { frequencySvg } from './diagnose/picture.js';
export { checkStored, type ReadHeads, readHeads, splitHeads } from './diagnose/read-heads.js';
export { describeDiagnosis } from './diagnose/words.js';
