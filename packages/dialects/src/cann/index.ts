/**
 * RoPE on Ascend NPUs: the operator of ggml's CANN backend, and the calls of aclnn, with a file for each family.
 *
 * @module
 */
export * from './apply-rotary-pos-emb.js';
export * from './inplace-partial-rotary-mul.js';
export * from './kv-rms-norm-rope-cache.js';
export * from './rope.js';
export * from './rope-with-sin-cos-cache.js';
export * from './rotary-position-embedding.js';
export { ACLNN_LAYOUT, ACLNN_ROTARY_MODE, type AclnnFloat } from './tables.js';
