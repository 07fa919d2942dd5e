/** RoPE: frequencies, axes, table, plan and call. @module */
export type { AxisRule, RopeAxes } from './axes.js';
export * from './call.js';
export {
  type FrequencyOptions,
  type LongRopeScaling,
  type RopeFrequencies,
  type RopeScaling,
  ropeFrequencies,
  type YarnScaling,
} from './frequencies.js';
export * from './plan.js';
export { type RopeTable, type TableDtype, type TableOptions, type TableRecipe, tableFromTensors } from './table.js';
