/** Conformance: cases, comparison, tolerances and the runner, for any backend. @module @ropewalk/oracle */

export type { VectorFolder } from './folder.js';
export type { GgmlRopeParams } from './ggml-formula.js';
export {
  GOLDEN_OPS,
  type GoldenCase,
  type GoldenQuestion,
  type GoldenRope,
  type GoldenRopePart,
  type ToleranceRecord,
} from './golden/case.js';
export {
  type Chosen,
  type ChosenCase,
  chooseBuiltIn,
  chooseDialect,
  chooseModel,
  chooseRope,
  GOLDEN_DIALECTS,
  type GoldenChoice,
  type GoldenDialect,
  positionsFor,
} from './golden/choose.js';
export {
  GOLDEN_FORMS,
  type GoldenEntry,
  type GoldenForm,
  type GoldenManifest,
  type GoldenTensor,
} from './golden/manifest.js';
export {
  type GoldenFolder,
  type OnnxLoader,
  openGolden,
} from './golden/read.js';
export { GOLDEN_SEED } from './golden/rope.js';
export { goldenOperatorSuite, goldenRopeSuite } from './golden/suite.js';
export { asFormatError } from './host.js';
export {
  judgeBits,
  judgeClose,
  judgeNmse,
  nmse,
  type Tolerance,
  within,
} from './judge.js';
export { formatLabel, type ParsedLabel, parseLabel } from './label.js';
export { type MutantExample, mutantExample, mutantSteps } from './mutants/example.js';
export { type MutantScore, scoreVectors, type VectorScore } from './mutants/score.js';
export { extendedCases, publishedCases } from './published.js';
export { parseRopeLabel, type RopeCaseParams, ropeCase, ropeLabel, ropePlanOfCase } from './rope-case.js';
export {
  type CaseResult,
  type CaseVerdict,
  type ConformanceCase,
  type Counts,
  countResults,
  formatResult,
  formatSummary,
  resultToJson,
  runCases,
} from './runner.js';
export { HF_RECIPE_NMSE_LIMIT, RECIPE_NMSE_LIMIT, ropeNmseLimit } from './tolerance.js';
export { vectorCases } from './vectors.js';
export {
  type JudgeOptions,
  judgeCase,
  type TensorReport,
  type VerifyResult,
  type WrongElement,
} from './verify/judge.js';
export type { ModelOptions } from './verify/model.js';
export type { KernelPerf } from './verify/perf.js';
export {
  countVerified,
  type ReportTitle,
  type VerifiedCause,
  type VerifyCounts,
  verifiedCauses,
  verifyAnnotations,
  verifyLines,
  verifySummary,
  verifyToJson,
  verifyToJunit,
} from './verify/report.js';
export { type RopePlace, TABLE_PRECISIONS, type TablePrecision } from './verify/rope-model.js';
