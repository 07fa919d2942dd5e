/** RoPE: frequencies, axes, table, plan and call. @module */
export * from './axes.js';
export * from './call.js';
export * from './frequencies.js';
export * from './plan.js';
export * from './recipes.js';
export * from './table.js';
