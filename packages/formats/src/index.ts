/**
 * File formats: untrusted bytes → checked views. Nothing here reads files; node.ts does.
 *
 * @module @ropewalk/formats
 */

export { countClaimed, elementsAt } from './bytes.js';
export { type DumpFile, type DumpForm, openDump } from './dump.js';
export { type GgufFile, type GgufTensor, type GgufValue, HeaderCut, parseGguf, type ValueType } from './gguf.js';
export { type GgufHeader, type NewGgufTensor, type TypedValue, writeGgufHeader } from './gguf-write.js';
export { type JsonOptions, parseJson } from './json.js';
export { type NpyArray, type NpyHeader, parseNpy, tensorFromNpy, writeNpy, writeNpyHeader } from './npy.js';
export { parseNpz, writeNpz } from './npz.js';
export { parsePt } from './pt.js';
export type { ByteSource } from './read-header.js';
export {
  ggufFactorsOf,
  ggufHeaderOf,
  ggufModelOf,
  MAX_READ_BYTES,
  npyHeaderOf,
  readExactly,
  safetensorsHeaderOf,
} from './read-header.js';
export type { SafetensorsFile, SafetensorsTensor } from './safetensors.js';
export {
  type NewSafetensor,
  parseSafetensors,
  safetensorsHeaderBytes,
  tensorFromSafetensors,
  writeSafetensors,
  writeSafetensorsHeader,
} from './safetensors.js';
export type { GgufModel, GgufPart } from './shards.js';
export { checkShard, partsOf, SAFETENSORS_INDEX, safetensorsShards } from './shards.js';
