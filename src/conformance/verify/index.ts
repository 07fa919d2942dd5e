/** Verify: a kernel's outputs against golden cases, with bounds from an error model. @module */
export * from './html.js';
export * from './judge.js';
export * from './model.js';
export * from './report.js';
export * from './rope-model.js';
