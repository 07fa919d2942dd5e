/** For Node only: what opens files. @module */
export { checkRegular, openFile, readAt, readFileBytes, readFileRange, readJsonFile, refuseSystem, systemReason } from './read-file.node.js';
export { factsOf, headsOf, openModel, type GivenGeometry, type ModelFacts, type OpenModel } from './permute-model.node.js';
export { readGgufFactors, readGgufHeader } from './read-header.node.js';
export { copyPermuted, type CopyOptions, writeWhole } from './permute-file.node.js';
export { provableLayers, proveScores, type LayerProof } from './permute-proof.node.js';
export { temporaryName } from './temporary.node.js';
