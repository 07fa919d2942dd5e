/**
 * The RoPE of models alone, from HuggingFace's configs and GGUF headers: a part of `@ropewalk/dialects` that loads no
 * code for the calls of peers.
 *
 * @module @ropewalk/dialects/internal/models
 */

export { specToJson } from './convert/record.js';
export { describeGroup, describeLayers, describeScaling } from './describe-layers.js';
export type { GgufHeader } from './gguf.js';
export * as gguf from './gguf.js';
export * as huggingface from './huggingface.js';
export {
  groupLayers,
  type LayerGroup,
  type LayerRope,
  longestOf,
  type ModelRope,
  type ModelRopeOptions,
  shortContextOf,
} from './model-rope.js';
export { permutedRows, type WeightPairing } from './permuted-rows.js';
