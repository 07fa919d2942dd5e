/** The names that the packages of Ropewalk share of this one. They make no promise: they change without notice. @module */

export { type AlteredNmse, alteredNmse } from './alterations.js';
export { readManifest, readNpy } from './folder.js';
export { type GgmlRopeParams, ropeByFormula } from './ggml-formula.js';
export { boundAboutStored, planErrors } from './golden/bounds.js';
export { bindGolden, GOLDEN_OPS } from './golden/case.js';
export { type Chosen, GOLDEN_DIALECTS, positionsFor } from './golden/choose.js';
export { formatManifest, GOLDEN_FORMS, type GoldenEntry, type GoldenForm } from './golden/manifest.js';
export { GOLDEN_OPERATORS, goldenOperatorQuestion } from './golden/operators.js';
export { elementBytes } from './golden/read.js';
export { GOLDEN_ROPE, GOLDEN_SEED, goldenRopeQuestion } from './golden/rope.js';
export { answer, writeCase } from './golden/write.js';
export { asFormatError, hostTensor, viewOf } from './host.js';
export { formatLabel, forwardOrBack, parseLabel } from './label.js';
export type { MutantScore } from './mutants/score.js';
export { drawRopeCase, nmseOfRopeCase } from './rope-case.js';
export type { Counts } from './runner.js';
export { type LoggedCase, type LogVerdict, parseTestLog, type TestLog } from './test-log.js';
export { rotationErrorBound } from './tolerance.js';
export type { ModelOptions } from './verify/model.js';
export type { KernelPerf } from './verify/perf.js';
export { type ReportTitle, verifiedCauses } from './verify/report.js';
export { TABLE_PRECISIONS } from './verify/rope-model.js';
