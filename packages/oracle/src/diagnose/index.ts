/** Diagnosis: from x, y and positions to what a kernel did, and which known bug that is. @module */

export type { Named, WorstElement } from './bench.js';
export { MUTANTS } from './catalogue.js';
export type { Census, CensusEntry } from './census.js';
export type { DiagnoseOptions, Diagnosis, FoundLayout, Verdict } from './diagnose.js';
export { diagnose } from './diagnose.js';
export type { Difference } from './differences.js';
export type { FoundScaling, FrequencyLaw } from './frequency-law.js';
export type { DimKind, Geometry, PairAt, PairLayout } from './geometry.js';
export type { What } from './holdings.js';
export type { Expected } from './hypotheses.js';
export type { FoundPair, Identification, Outcome } from './identification.js';
export { identify } from './identify.js';
export { CAUSES, type Cause, type Mutant, type Need } from './mutant.js';
export type { NextInput } from './next-input.js';
export type { Tier } from './noise.js';
export type { Observation, RowAt } from './observation.js';
export type { FoundPosition, PositionRule } from './position-fit.js';
export type { FoundBase } from './spec-fit.js';
