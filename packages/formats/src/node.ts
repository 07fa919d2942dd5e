/** For Node only: what opens files. @module @ropewalk/formats/node */

export { checkExternal, type FilePart, readExternal } from './external.node.js';
export type { LayerSource, RopeSource } from './model-source.js';
export { layerOf } from './model-source.js';
export type {
  ModelPermutation,
  PermutationResult,
  PermuteModelOptions,
  RunPermutationOptions,
} from './permute.node.js';
export { planModelPermutation, runModelPermutation } from './permute.node.js';
export type { GivenGeometry, ModelFacts, OpenModel } from './permute-model.node.js';
export { headsOf, openModel } from './permute-model.node.js';
export { isProved, type LayerProof } from './permute-proof.node.js';
export type { FileHandle, FileKind, OpenFile } from './read-file.node.js';
export { checkRegular, openFile, readAt, readFileBytes, readJsonFile, refuseSystem } from './read-file.node.js';
export {
  ggufPaths,
  readGgufFactors,
  readGgufFloats,
  readGgufHeader,
  readGgufModel,
  readSafetensorsHeader,
} from './read-header.node.js';
export {
  isFolder,
  isGraphFolder,
  modelFileOf,
  onnxFileOf,
  onnxFilesOf,
  readModelRope,
  readRopeSource,
} from './rope-source.node.js';
export { makeFolder, replaceFile, writeOutput } from './write-file.node.js';
export { checkRoom, type OwnFolder, writeWhole } from './write-whole.node.js';
