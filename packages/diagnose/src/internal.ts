/**
 * The names that `@ropewalk/oracle` needs besides the public ones: the known bugs as kernels, and many y judged for one x;
 * and a report as data, which the site draws; and two states of a cache.
 * No promise is made about these names.
 *
 * @module @ropewalk/diagnose/internal
 */
export { type CacheDiff, type CacheLayer, type CachePositions, cacheDiff } from './caches/cache-diff.js';
export type { CacheSide } from './caches/turned-keys.js';
export { mutantRunner, readMutants, ropeRunner, runMutant } from './kernel/mutant.js';
export { changed, RopeSteps, runSteps } from './kernel/steps.js';
export { rightOf } from './kernel/trial.js';
export { BugSearch, type Judged } from './match/bug-search.js';
export { hiddenNorm, isAsExpected } from './match/hidden-norm.js';
export { whyNever } from './mutants/operators.js';
export { RANK_LAYOUTS, type RankLayout } from './positions/laid-out.js';
export { axesOf, callOf } from './read/expected.js';
export { type Heads, heldDtype, readObservation, widened } from './read/observation.js';
export { type DiagnosisReport, linesOf, precision, type ReportLine, reportOf } from './say/words.js';
