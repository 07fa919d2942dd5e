/**
 * Diagnosis of a RoPE kernel: from x, y and positions to what it did, and which known bug that is.
 *
 * README.md says what each folder takes and gives.
 *
 * @module @ropewalk/diagnose
 */

export { demoObservation } from './demo.js';
export { diagnose } from './diagnose.js';

export type { Identification } from './fit/identification.js';
export { identify } from './fit/identify.js';
export { CAUSES, type Cause, type Mutant, type Need } from './kernel/mutant.js';

export type { Named } from './match/bug-search.js';
export type { NextInput } from './match/next-input.js';

export type { RowSummary } from './match/wrong-rows.js';

export { MUTANTS } from './mutants/catalogue.js';
export { laidOut, positionFaults, type TokenLayout } from './positions/laid-out.js';
export { checkPositionLog } from './positions/log.js';
export type { Expected } from './read/expected.js';
export type { Observation } from './read/observation.js';
export { checkStored, type ReadHeads, readHeads, splitHeads } from './read-heads.js';
export type { DiagnoseOptions, Diagnosis, Verdict } from './say/diagnosis.js';
export type { Difference } from './say/differences.js';
export { diagnosisToJson } from './say/json.js';
export { frequencySvg } from './say/picture.js';
export { describeDiagnosis, type ReportOptions } from './say/words.js';
