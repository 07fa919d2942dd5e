/**
 * The names that Ropewalk's other packages need of the decoder: a model described and planned without loading it, and
 * parts of an engine. No promise is made about these names: a later version may have others.
 *
 * @module @ropewalk/model/internal
 */

export { normalQuantile, xieluFactors } from './config.js';
export type { Observer } from './decoder.js';
export { WIDENED, widenBlocks } from './dequantize.js';
export { describeModel, folderOf, type ModelDescription } from './description.js';
export type { EngineModel, LoadingOptions, Sequence, Wanted } from './engine.js';
export { checkGenerateOptions, type Pace } from './generate.js';
export { type KernelSequence, kernelEngine } from './kernels.js';
export { shiftRows } from './kv-cache.js';
export { logSumExp } from './logits.js';
export { type MemoryLimits, memoryOf } from './memory.js';
export { type PlannedModel, planModel } from './plan-model.js';
export { type QuantizedFormat, quantize } from './quantize.js';
export type { DecoderSession } from './session.js';
export { type BlockSplit, SPLIT_FORMATS, SPLITS } from './split-blocks.js';
export { streamWeight } from './stream-weight.js';
export { type HoldOptions, layerSizes, type WeightPlan } from './weights.js';
