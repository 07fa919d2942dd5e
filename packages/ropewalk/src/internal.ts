/**
 * Names that Ropewalk's other packages share. They are not stable: a later version may have others.
 *
 * @module ropewalk/internal
 */
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
  readField,
  reading,
  readList,
  readName,
  readOptional,
  readOptions,
  readPlain,
} from './core/arguments.js';
export { E2M1, half, u16, WIDEN_BLOCK, type WidenBlock, writeHalves } from './core/block-formats.js';
export { blockBytes, readBlocks } from './core/blocks.js';
export { arrayOver, asHostArray, bitsOf, dtypeOfArray, UNIT_ROUNDOFF } from './core/dtypes.js';
export { show } from './core/errors.js';
export { Fields } from './core/fields.js';
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
export { checkApart, checkDims, checkDtype, checkOutput, isHalf } from './ops/checks.js';
export { ACTIVATIONS } from './ops/linear.js';
export { type PairAxes, sharePairs } from './ops/rope/axes.js';
export { dynamicNtkBase, yarnMagnitude, yarnRampEdges } from './ops/rope/frequencies.js';
export { type AngleRecipe, ggmlRecipe, hfRecipe } from './ops/rope/recipes.js';
export { LEAST_SUM } from './ops/route.js';
export { checkRunner, withFresh } from './ops/runner.js';
export { BACKEND_NAMES, openFrom } from './registry.js';
