/** Core words: dtypes, shapes, tensors, errors. No operator arithmetic. @module */
export * from './blocks.js';
export * from './dtypes.js';
export * from './errors.js';
export * from './fields.js';
export * from './float16.js';
export * from './shape.js';
export * from './tensor.js';
