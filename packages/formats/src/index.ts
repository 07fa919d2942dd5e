/**
 * File formats: untrusted bytes → checked views. Nothing here reads files; node.ts does.
 *
 * @module @ropewalk/formats
 */

export { type DumpFile, type DumpForm, dumpOf } from './dump.js';
export { type GgufFile, type GgufTensor, type GgufValue, parseGguf } from './gguf.js';

export { type JsonOptions, parseJson } from './json.js';
export { type NpyArray, parseNpy, tensorFromNpy, writeNpy } from './npy.js';
export { parseNpz, writeNpz } from './npz.js';
export { parsePt } from './pt.js';
export type { ByteSource } from './read-header.js';
export { ggufModelOf, readExactly, safetensorsHeaderOf } from './read-header.js';
export type { SafetensorsFile, SafetensorsTensor } from './safetensors.js';
export { parseSafetensors, tensorFromSafetensors, writeSafetensors } from './safetensors.js';
export type { GgufModel } from './shards.js';
export { partsOf, SAFETENSORS_INDEX, safetensorsShards } from './shards.js';
