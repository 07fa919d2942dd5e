/**
 * What a program that runs the model elsewhere needs of it: its config, and its weights as they lie in the files.
 *
 * @module @ropewalk/model/description
 */
export type { Activation, Family } from './families.js';
export { isBlockFormat, type WeightPlan } from './weights.js';
