/**
 * One RoPE in every peer's names: a namespace for each peer, and conversion and comparison between peers.
 *
 * @example import { convertRope, ggml } from '@ropewalk/dialects';
 * @module @ropewalk/dialects
 */

export * as acl from './acl.js';
export * as cann from './cann/index.js';
export type { RopeComparison } from './convert/compare.js';
export type { ComparedSide, ModelComparison } from './convert/compare-models.js';
export { compareModels } from './convert/compare-models.js';
export { type Conversion, convertRope, PEERS, readForm } from './convert/convert.js';
export { type EffectiveRope, effectiveRope } from './convert/effective.js';
export type { ConvertOptions, GivenTable } from './convert/form.js';
export { modelTypeOf } from './convert/gguf.js';
export { specFromJson, specToJson } from './convert/record.js';
export * as flashAttn from './flash-attn.js';
export * as ggml from './ggml.js';
export type { GgufHeader } from './gguf.js';
export * as gguf from './gguf.js';
export * as huggingface from './huggingface.js';
export * as infiniop from './infiniop.js';
export * as infiniop2025 from './infiniop-2025.js';
export * as llaisys from './llaisys.js';
export type { LayerRope, ModelRope } from './model-rope.js';
export { groupLayers, type LayerGroup } from './model-rope.js';
export * as onnx from './onnx.js';
export { type Passport, type PassportForm, passportOf } from './passport/passport.js';
export { permutedRows, type WeightPairing } from './permuted-rows.js';
