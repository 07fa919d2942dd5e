/** For Node only: the RoPE of files and folders, and weights permuted on disk. @module @ropewalk/checkpoint/node */
export type { GivenGeometry, ModelFacts, OpenModel } from './permute/model.node.js';
export { headsOf, openModel } from './permute/model.node.js';
export type {
  ModelPermutation,
  PermutationResult,
  PermuteModelOptions,
  RunPermutationOptions,
} from './permute/permute.node.js';
export { planModelPermutation, runModelPermutation } from './permute/permute.node.js';
export { isProved, type LayerProof } from './permute/proof.node.js';
export { readModelRope, readRopeSource } from './rope/rope-source.node.js';
