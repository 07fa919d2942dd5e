/** For Node only: what opens files. @module */

export { type CopyOptions, copyPermuted, writeWhole } from './permute-file.node.js';
export {
  factsOf,
  type GivenGeometry,
  headsOf,
  type ModelFacts,
  type OpenModel,
  openModel,
} from './permute-model.node.js';
export { type LayerProof, provableLayers, proveScores } from './permute-proof.node.js';
export {
  checkRegular,
  openFile,
  readAt,
  readFileBytes,
  readFileRange,
  readJsonFile,
  refuseSystem,
  systemReason,
} from './read-file.node.js';
export { readGgufFactors, readGgufFloats, readGgufHeader, readSafetensorsHeader } from './read-header.node.js';
export { temporaryName } from './temporary.node.js';
