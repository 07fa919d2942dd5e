/** `ropewalk/convert`: one RoPE in each peer's words, and two readings of it side by side. @module */

export {
  type ComparedRow,
  compareRope,
  type LayoutVerdict,
  type ReadingSource,
  type RopeComparison,
  type RopeReading,
} from './compare.js';
export * from './convert.js';
export { distanceOf, type EffectiveRope, effectiveRope, type RopeDistance, STANDSTILL } from './effective.js';
export type { ConvertOptions, FormTable, GivenTable, Relayout } from './form.js';
export { specFromJson, specToJson } from './record.js';
