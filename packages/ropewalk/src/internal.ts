/**
 * Names that Ropewalk's other packages share. They are not stable: a later version may have others.
 *
 * @module ropewalk/internal
 */

export { type BackendEntry, MAX_THREADS } from './backends/backend.js';
export { whyNotFloatCaches } from './backends/caches.js';
export { ROUNDED, roundsActivations, tensorsOf, whyFloat64 } from './backends/float64.js';
export {
  checkBytes,
  checkFields,
  checkInteger,
  checkName,
  didYouMean,
  fitsFloat32,
  type OptionNames,
  optionNames,
  readField,
  reading,
  readList,
  readName,
  readOptional,
  readOptions,
  readPlain,
  type Words,
} from './core/arguments.js';
export {
  BLOCK_FORMAT_NAMES,
  type BlockSizes,
  E2M1,
  half,
  i8,
  scaleOf,
  u16,
  WIDEN_BLOCK,
  type WidenBlock,
  writeHalves,
} from './core/block-formats.js';
export { blockBytes, readBlocks } from './core/blocks.js';
export { COLORS, chartSvg, powersOfTen } from './core/chart.js';
export {
  arrayOver,
  asHostArray,
  bitsOf,
  dtypeOfArray,
  type Float8Dtype,
  isDtype,
  isFloat8,
  UNIT_ROUNDOFF,
} from './core/dtypes.js';
export { erfc } from './core/erfc.js';
export { show } from './core/errors.js';
export { Fields } from './core/fields.js';
export { numberFromF8e4m3 } from './core/float8.js';
export { groupBy } from './core/groups.js';
export { type RandomStream, randomFrom } from './core/random.js';
export { checkShape, countElements, extentOf, type Layout, walkPair } from './core/shape.js';
export { checkNamedTensors, checkTensor, copyBits, copyElements, readIntegers } from './core/tensor.js';
export {
  countLayers,
  decodeUtf8,
  escapeMarkup,
  nameForMessage,
  nameLayers,
  ranges,
  systemSentence,
} from './core/text.js';
export type { CausalConvPlan } from './ops/causal-conv.js';
export { checkApart, checkDims, checkDtype, checkOutput, isHalf } from './ops/checks.js';
export type { ExpertLinearPlan } from './ops/expert-linear.js';
export type { GatedDeltaPlan } from './ops/gated-delta.js';
export type { GegluPlan } from './ops/gelu.js';
export type { LayerNormPlan } from './ops/layer-norm.js';
export { ACTIVATIONS, type Activations, type LinearPlan } from './ops/linear.js';
export { type AxisRule, type PairAxes, sharePairs } from './ops/rope/axes.js';
export type { RopePart } from './ops/rope/call.js';
export {
  dynamicNtkBase,
  type RopeFrequencies,
  type YarnScaling,
  yarnMagnitude,
  yarnRampEdges,
} from './ops/rope/frequencies.js';
export type { PairGeometry, RopeSource, TablePlanOptions } from './ops/rope/plan.js';
export { type AngleRecipe, ggmlRecipe, hfRecipe } from './ops/rope/recipes.js';
export { type TableDtype, tableFromTensors } from './ops/rope/table.js';
export { LEAST_SUM, type RouteGroups, type RoutePlan } from './ops/route.js';
export { checkRunner, withFresh } from './ops/runner.js';
export type { ScalePlan } from './ops/scale.js';
export type { SelfAttentionPlan } from './ops/self-attention.js';
export type { SsmScanPlan } from './ops/ssm-scan.js';
export type { SwigluPlan } from './ops/swiglu.js';
export type { XieluPlan } from './ops/xielu.js';
export { BACKEND_NAMES, openFrom } from './registry.js';
