/** Plans and RoPE models as ONNX graphs. @module */
export * from './angles.js';
export * from './builder.js';
export * from './cost.js';
export * from './emit.js';
export * from './rope-model.js';
export * from './shapes.js';
