/** For Node only: the RoPE of files and folders, and weights permuted on disk. @module @ropewalk/checkpoint/node */

export { openModel } from './permute/model.node.js';
export type { ModelPermutation, PermutationResult, PermuteModelOptions } from './permute/permute.node.js';
export { planModelPermutation, runModelPermutation } from './permute/permute.node.js';

export { readModelRope, readRopeSource } from './rope/rope-source.node.js';
