/** For Node only: what opens files. @module */
export { type OnnxruntimeOptions } from './onnxruntime/host.js';
export { type OnnxModel, type OnnxValue, writeOnnxModel } from './format/onnx.js';
export { ANGLE_MODES, PRECISION_POSITIONS, anglePrecision, type AngleMode, type AnglePrecision } from './export/angles.js';
export { GraphBuilder, OLDEST_OPSET, OPSET } from './export/builder.js';
export { graphCost, seedSteps, type GraphCost, type SeedStep } from './export/cost.js';
export { GraphForm, emitPlan } from './export/emit.js';
export { TABLE_CONTEXT, ropeModel } from './export/rope-model.js';
export { MAX_MODEL_BYTES, type ExternalLocation } from './format/onnx-model.js';
export { FoundFrequencies, NearMiss, groupAlike, importOnnx, runImported, type ImportedModel, type ImportedRope } from './import/index.js';
