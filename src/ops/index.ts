/** The operators' plans. @module */
export * from './add.js';
export * from './argmax.js';
export * from './embedding.js';
export * from './linear.js';
export * from './rearrange.js';
export * from './rms-norm.js';
export * from './rope/index.js';
export type { OpName, OpPlan, Runner, StoredDtype } from './runner.js';
export * from './self-attention.js';
export * from './swiglu.js';
