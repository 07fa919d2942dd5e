/**
 * Ropewalk: the operators of a decoder-only transformer, RoPE first. This entry has no runtime dependency.
 *
 * @module ropewalk
 */
export type { Backend, BackendEntry, BackendOptions, Capabilities } from './backends/backend.js';
export {
  BLOCK_FORMAT_NAMES,
  BLOCK_FORMATS,
  type BlockFormat,
  type BlockLayout,
  type BlockSizes,
} from './core/block-formats.js';
export { type BlockTensor, blocksFrom, isBlocks } from './core/blocks.js';
export {
  type ArrayOf,
  type CacheDtype,
  DTYPES,
  type Dtype,
  type Float8Dtype,
  type FloatDtype,
  type HostArray,
  type IntDtype,
  isDtype,
  isFloat,
  isFloat8,
  roundTo,
  sizeBytes,
} from './core/dtypes.js';
export { type ErrorCode, RopewalkError } from './core/errors.js';
export { f8e4m3FromNumber, f8e5m2FromNumber, numberFromF8e4m3, numberFromF8e5m2 } from './core/float8.js';
export { bf16FromNumber, f16FromNumber, numberFromBf16, numberFromF16 } from './core/float16.js';
export type { NestedNumbers } from './core/nested.js';
export {
  Tensor,
  type TensorFromOptions,
  type TensorOptions,
  type TensorStorage,
  tensorFrom,
  zeros,
} from './core/tensor.js';
export { type AddPlan, planAdd } from './ops/add.js';
export { type ArgmaxPlan, planArgmax } from './ops/argmax.js';
export type { StoredCacheDtype, StoredDtype } from './ops/checks.js';
export { type EmbeddingPlan, planEmbedding } from './ops/embedding.js';
export { type ExpertLinearOptions, type ExpertLinearPlan, planExpertLinear } from './ops/expert-linear.js';
export { type GegluPlan, type GeluOptions, type GeluPlan, planGeglu, planGelu } from './ops/gelu.js';
export { type LayerNormPlan, planLayerNorm } from './ops/layer-norm.js';
export { type Activations, type LinearOptions, type LinearPlan, planLinear } from './ops/linear.js';
export type { OpName, OpPlan } from './ops/op-plan.js';
export { planRearrange, type RearrangePlan } from './ops/rearrange.js';
export { planRmsNorm, type RmsNormPlan } from './ops/rms-norm.js';
export type { AxisRule, RopeAxes } from './ops/rope/axes.js';
export {
  bindRope,
  bindRopeParts,
  type HeadNorm,
  type RopeCall,
  type RopeLayout,
  type RopePart,
  type RopePartOptions,
} from './ops/rope/call.js';
export {
  type FrequencyOptions,
  type LongRopeScaling,
  type RopeFrequencies,
  type RopeScaling,
  ropeFrequencies,
  type YarnScaling,
} from './ops/rope/frequencies.js';
export {
  frequenciesOf,
  type PairGeometry,
  type Pairing,
  type PlanRopeOptions,
  type Positions,
  planRope,
  planRopeWithTable,
  type RopePlan,
  type RopeSource,
  type RopeSpec,
  type TablePlanOptions,
} from './ops/rope/plan.js';
export { type RopeTable, type TableDtype, type TableRecipe, tableFromTensors } from './ops/rope/table.js';
export { planRoute, type RouteGroups, type RouteOptions, type RoutePlan } from './ops/route.js';
export type { Runner } from './ops/runner.js';
export { planScale, type ScaleOptions, type ScalePlan } from './ops/scale.js';
export type { CacheScale } from './ops/scales.js';
export {
  type PagedOptions,
  type Pages,
  planSelfAttention,
  type SelfAttentionOptions,
  type SelfAttentionPlan,
} from './ops/self-attention.js';
export { planSwiglu, type SwigluOptions, type SwigluPlan } from './ops/swiglu.js';
export { BACKENDS, openBackend, openCpu } from './registry.js';
export {
  type Float16ArrayLike,
  type OutOption,
  type RopeOptions,
  type RopeRunOptions,
  Ropewalk,
  type RopewalkOptions,
  ropewalk,
} from './ropewalk.js';
