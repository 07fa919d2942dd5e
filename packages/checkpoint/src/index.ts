/**
 * The files of a published model: the RoPE that they describe, layer by layer, and q and k weights permuted between
 * pairings. Nothing here reads files; node.ts does.
 *
 * @module @ropewalk/checkpoint
 */
export type { PermuteOptions, PermutePlan } from './permute/plan.js';
export { planPermutation } from './permute/plan.js';
export { type LayerSource, layerOf, type RopeSource, ropeSourceFromGguf } from './rope/model-source.js';
export { ropeSourceFromJson } from './rope/rope-source.js';
