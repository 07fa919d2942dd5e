/**
 * The names that Ropewalk's other packages need of the decoder: a model described and planned without loading it, and
 * parts of an engine. No promise is made about these names: a later version may have others.
 *
 * @module @ropewalk/model/internal
 */
export { describeModel, type ModelDescription } from './description.js';
export { shiftRows } from './kv-cache.js';
export { memoryOf } from './memory.js';
export { type PlannedModel, planModel } from './plan-model.js';
export type { HoldOptions, WeightPlan } from './weights.js';
