/** Core words: dtypes, tensors, errors. What trusts its arguments stays inside. @module */
export { BLOCK_BYTES, BLOCK_WEIGHTS, type BlockFormat, type BlockTensor, blocksFrom, isBlocks } from './blocks.js';
export {
  type ArrayOf,
  DTYPES,
  type Dtype,
  dtypeOfArray,
  type FloatDtype,
  type HostArray,
  type IntDtype,
  isDtype,
  isFloat,
  newArray,
  roundTo,
  sizeBytes,
} from './dtypes.js';
export { type ErrorCode, RopewalkError } from './errors.js';
export * from './float16.js';
export { checkShape, type Layout } from './shape.js';
export {
  copyElements,
  hostOf,
  readIntegers,
  Tensor,
  type TensorFromOptions,
  type TensorOptions,
  type TensorStorage,
  tensorFrom,
  zeros,
} from './tensor.js';
