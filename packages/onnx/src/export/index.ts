/** RoPE models as ONNX graphs. @module */
export type { AngleMode } from './angles.js';
export type { GraphBuilder } from './builder.js';
export type { GraphForm } from './operators.js';
export { type RopeModel, type RopeModelOptions, ropeModel } from './rope-model.js';
