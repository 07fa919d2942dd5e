/**
 * Models' files alone: a part of `@ropewalk/formats` that loads no code for arrays, archives and permutations.
 *
 * @module @ropewalk/formats/internal/models
 */
export type { GgufFile, GgufTensor } from './gguf.js';
export { parseJson } from './json.js';
export type { ByteSource } from './read-header.js';
export { ggufModelOf, MAX_READ_BYTES, readExactly, safetensorsHeaderOf } from './read-header.js';
export { parseSafetensors, tensorFromSafetensors, writeSafetensors } from './safetensors.js';
export { checkShard, partsOf, SAFETENSORS_INDEX, safetensorsShards } from './shards.js';
