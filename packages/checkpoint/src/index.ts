/**
 * The files of a published model: the RoPE that they describe, layer by layer, and q and k weights permuted between
 * pairings. Nothing here reads files; node.ts does.
 *
 * @module @ropewalk/checkpoint
 */
export type {
  FusedLayout,
  HeadGeometry,
  LocatedTensor,
  PermuteOptions,
  PermutePlan,
  TensorMove,
} from './permute/plan.js';
export { planPermutation } from './permute/plan.js';
export {
  type LayerSource,
  layerOf,
  type ModelSource,
  type RopeSource,
  ropeSourceFromGguf,
} from './rope/model-source.js';
export { type JsonRopeOptions, ropeSourceFromJson } from './rope/rope-source.js';
