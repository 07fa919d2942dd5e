/**
 * CANN: RoPE on Ascend NPUs. The rope of seed document 003, and aclnn's calls, a file for each family.
 *
 * @module
 */
export {
  type AclnnApplyRotaryPosEmbGradArguments,
  aclnnApplyRotaryPosEmb,
  aclnnApplyRotaryPosEmbGrad,
  aclnnApplyRotaryPosEmbV2,
} from './apply-rotary-pos-emb.js';
export { aclnnInplacePartialRotaryMul, aclnnInplacePartialRotaryMulGrad } from './inplace-partial-rotary-mul.js';
export {
  type AclnnCache,
  type AclnnHalf,
  type AclnnKvRmsNormRopeCacheArguments,
  type AclnnKvRmsNormRopeCacheV2Arguments,
  aclnnKvRmsNormRopeCache,
  aclnnKvRmsNormRopeCacheV2,
  type KvOutputs,
} from './kv-rms-norm-rope-cache.js';
export { type CannRopeArguments, rope } from './rope.js';
export {
  type AclnnRopeWithSinCosCacheArguments,
  type AclnnRopeWithSinCosCacheV2Arguments,
  aclnnRopeWithSinCosCache,
  aclnnRopeWithSinCosCacheV2,
  type RotatedQueryKey,
} from './rope-with-sin-cos-cache.js';
export {
  aclnnRotaryPositionEmbedding,
  aclnnRotaryPositionEmbeddingGrad,
  type RotaryGradients,
} from './rotary-position-embedding.js';
export { ACLNN_LAYOUT, ACLNN_ROTARY_MODE, type AclnnFloat } from './tables.js';
