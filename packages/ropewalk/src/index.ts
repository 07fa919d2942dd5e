/**
 * Ropewalk: the operators of a decoder-only transformer, RoPE first. This entry has no runtime dependency.
 *
 * @module ropewalk
 */
export type { Backend, BackendOptions, Capabilities } from './backends/backend.js';
export { BLOCK_FORMATS, type BlockFormat } from './core/block-formats.js';
export { type BlockTensor, blocksFrom, isBlocks } from './core/blocks.js';
export {
  type ArrayOf,
  type CacheDtype,
  DTYPES,
  type Dtype,
  type FloatDtype,
  type HostArray,
  isFloat,
  roundTo,
  sizeBytes,
} from './core/dtypes.js';
export { type ErrorCode, RopewalkError } from './core/errors.js';

export { bf16FromNumber, f16FromNumber, numberFromBf16, numberFromF16 } from './core/float16.js';

export { Tensor, type TensorOptions, type TensorStorage, tensorFrom, zeros } from './core/tensor.js';
export { planAdd } from './ops/add.js';
export { planArgmax } from './ops/argmax.js';
export { type CausalConvOptions, planCausalConv } from './ops/causal-conv.js';
export { planEmbedding } from './ops/embedding.js';
export { type ExpertLinearOptions, planExpertLinear } from './ops/expert-linear.js';
export { type GatedDeltaGates, type GatedDeltaOptions, planGatedDelta } from './ops/gated-delta.js';
export { type GeluOptions, planGeglu, planGelu } from './ops/gelu.js';
export { planLayerNorm } from './ops/layer-norm.js';
export { type LinearOptions, planLinear } from './ops/linear.js';
export type { OpName, OpPlan } from './ops/op-plan.js';
export { planRearrange } from './ops/rearrange.js';
export { planRmsNorm } from './ops/rms-norm.js';
export type { RopeAxes } from './ops/rope/axes.js';
export {
  bindRope,
  bindRopeParts,
  type HeadNorm,
  type RopeCall,
  type RopeLayout,
  type RopePartOptions,
} from './ops/rope/call.js';
export { type FrequencyOptions, type RopeScaling, ropeFrequencies } from './ops/rope/frequencies.js';
export {
  frequenciesOf,
  type Pairing,
  type PlanRopeOptions,
  type Positions,
  planRope,
  planRopeWithTable,
  type RopePlan,
  type RopeSpec,
} from './ops/rope/plan.js';
export type { RopeTable, TableRecipe } from './ops/rope/table.js';
export { planRoute, type RouteOptions } from './ops/route.js';
export type { Runner } from './ops/runner.js';
export { planScale, type ScaleOptions } from './ops/scale.js';
export type { CacheScale } from './ops/scales.js';
export { planSelfAttention, type SelfAttentionOptions } from './ops/self-attention.js';
export { planSsmScan, type SsmScanOptions, type SsmScanSteps } from './ops/ssm-scan.js';
export { planSwiglu, type SwigluOptions } from './ops/swiglu.js';
export { planXielu, type XieluOptions } from './ops/xielu.js';
export { BACKENDS, openBackend, openCpu } from './registry.js';
export { type RopeOptions, Ropewalk, type RopewalkOptions, ropewalk } from './ropewalk.js';
