/**
 * File formats: untrusted bytes → checked views, and permuting weights. Nothing here reads files; node.ts does.
 *
 * @module @ropewalk/formats
 */

export { countClaimed, elementsAt } from './bytes.js';
export { type GgufFile, type GgufTensor, type GgufValue, HeaderCut, parseGguf } from './gguf.js';
export { type JsonOptions, parseJson } from './json.js';
export { type NpyArray, parseNpy, tensorFromNpy, writeNpy } from './npy.js';
export { parseNpz, writeNpz } from './npz.js';
export {
  type FusedLayout,
  type HeadGeometry,
  type LocatedTensor,
  type PermuteOptions,
  type PermutePlan,
  permutedRows,
  planPermutation,
  type TensorMove,
  type WeightPairing,
} from './permute-plan.js';
export {
  type ByteSource,
  ggufFactorsOf,
  ggufHeaderOf,
  MAX_READ_BYTES,
  readExactly,
  safetensorsHeaderOf,
} from './read-header.js';
export {
  parseSafetensors,
  type SafetensorsFile,
  type SafetensorsTensor,
  safetensorsHeaderBytes,
  tensorFromSafetensors,
  writeSafetensors,
} from './safetensors.js';
export { checkShard, SAFETENSORS_INDEX, safetensorsShards } from './shards.js';
