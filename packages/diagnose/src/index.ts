/**
 * Diagnosis of a RoPE kernel: from x, y and positions to what it did, and which known bug that is.
 *
 * README.md says what each folder takes and gives.
 *
 * @module @ropewalk/diagnose
 */

export { demoObservation } from './demo.js';
export { diagnose } from './diagnose.js';
export type { FoundBase, FoundScaling, FrequencyLaw } from './fit/frequency-law.js';
export type { FoundPair, Identification, Outcome } from './fit/identification.js';
export { identify } from './fit/identify.js';
export { CAUSES, type Cause, type Mutant, type Need } from './kernel/mutant.js';
export type { Tier } from './kernel/noise.js';
export type { Named, WorstElement } from './match/bug-search.js';
export type { NextInput } from './match/next-input.js';
export type { What } from './match/row-contents.js';
export type { RowEntry, RowSummary } from './match/wrong-rows.js';
export type { DimKind, Geometry, PairAt, PairLayout } from './measure/geometry.js';
export type { FoundPosition, PositionRule } from './measure/position-fit.js';
export { MUTANTS } from './mutants/catalogue.js';
export type { Expected } from './read/expected.js';
export type { Observation, RowAt } from './read/observation.js';
export { checkStored, type ReadHeads, readHeads, splitHeads } from './read-heads.js';
export type { DiagnoseOptions, Diagnosis, FoundLayout, Verdict } from './say/diagnosis.js';
export type { Difference } from './say/differences.js';
export { diagnosisToJson } from './say/json.js';
export { frequencySvg } from './say/picture.js';
export { describeDiagnosis } from './say/words.js';
