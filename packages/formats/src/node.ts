/** For Node only: what opens files. @module @ropewalk/formats/node */

export { type FilePart, readExternal } from './external.node.js';
export {
  type ModelPermutation,
  type PermutationResult,
  type PermuteModelOptions,
  planModelPermutation,
  type RunPermutationOptions,
  runModelPermutation,
} from './permute.node.js';

export { writeWhole } from './permute-file.node.js';
export {
  type GivenGeometry,
  headsOf,
  type ModelFacts,
  type OpenModel,
} from './permute-model.node.js';
export { isProved, type LayerProof } from './permute-proof.node.js';
export {
  checkRegular,
  type FileHandle,
  type FileKind,
  type OpenFile,
  openFile,
  readAt,
  readFileBytes,
  refuseSystem,
} from './read-file.node.js';
export { readGgufFactors, readGgufFloats, readGgufHeader, readSafetensorsHeader } from './read-header.node.js';
export {
  isFolder,
  type LayerSource,
  layerOf,
  modelFileOf,
  type RopeSource,
  readModelRope,
  readRopeSource,
} from './rope-source.node.js';
export { makeFolder, replaceFile, writeOutput } from './write-file.node.js';
