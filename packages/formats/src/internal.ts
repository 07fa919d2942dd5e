/** Functions for the other packages of Ropewalk. They promise nothing, and change without notice. @module */
export { countClaimed, elementsAt } from './bytes.js';
export { GGUF_TYPES } from './gguf.js';
export { type TypedValue, writeGgufHeader } from './gguf-write.js';
export { writeNpyHeader } from './npy.js';
export { npyHeaderOf } from './read-header.js';
export { writeSafetensorsHeader } from './safetensors.js';
export { checkShard, type GgufPart, joinGguf, partNames } from './shards.js';
