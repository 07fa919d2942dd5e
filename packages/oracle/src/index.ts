/** Conformance: cases, comparison, tolerances and the runner, for any backend. @module @ropewalk/oracle */

export type { VectorFolder } from './folder.js';

export type { GoldenCase } from './golden/case.js';
export {
  type ChosenCase,
  chooseBuiltIn,
  chooseDialect,
  chooseModel,
  chooseRope,
  type GoldenChoice,
} from './golden/choose.js';
export type { GoldenManifest } from './golden/manifest.js';
export {
  type GoldenFolder,
  goldenOf,
  type OnnxLoader,
} from './golden/read.js';

export { goldenOperatorSuite, goldenRopeSuite } from './golden/suite.js';

export { judgeBits, judgeClose, judgeNmse, nmse, type Tolerance } from './judge.js';

export { mutantExample, mutantSteps } from './mutants/example.js';
export { scoreVectors, type VectorScore } from './mutants/score.js';
export { extendedCases, publishedCases } from './published.js';
export { parseRopeLabel, type RopeCaseParams, ropeCase, ropePlanOfCase } from './rope-case.js';
export {
  type CaseResult,
  type CaseVerdict,
  type ConformanceCase,
  countResults,
  formatResult,
  formatSummary,
  resultToJson,
  runCases,
} from './runner.js';

export { vectorCases } from './vectors.js';
export { type JudgeOptions, judgeCase, type VerifyResult } from './verify/judge.js';

export {
  countVerified,
  verifyAnnotations,
  verifyLines,
  verifySummary,
  verifyToJson,
  verifyToJunit,
} from './verify/report.js';
export type { TablePrecision } from './verify/rope-model.js';
