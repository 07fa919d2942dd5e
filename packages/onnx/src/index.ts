/**
 * ONNX files; RoPE and other operators as ONNX graphs; the RoPE of any .onnx file; ONNX Runtime and WebNN as backends.
 *
 * @module @ropewalk/onnx
 */
export type { AngleMode, AnglePrecision } from './export/angles.js';
export { ANGLE_MODES, anglePrecision } from './export/angles.js';
export { GraphBuilder } from './export/builder.js';

export type { GraphForm } from './export/fragments.js';
export type { OperatorModelOptions } from './export/operator-model.js';
export { operatorModel } from './export/operator-model.js';

export { type RopeModel, type RopeModelOptions, ropeModel, TABLE_CONTEXT } from './export/rope-model.js';
export { type GraphCost, graphCost } from './export/shapes.js';
export { writeOnnxTest } from './export/test-folder.js';
export type { OnnxModel } from './format/onnx.js';
export { parseOnnxTensor, writeOnnxModel, writeOnnxTensor } from './format/onnx.js';
export { type ExternalLoader, type OnnxModelFile, type ParseOnnxOptions, parseOnnxModel } from './format/onnx-model.js';
export { type GraphContents, graphContents } from './import/contents.js';
export type { RopeDescription } from './import/describe.js';

export type { BindOptions, ImportedModel, ImportedRope } from './import/index.js';
export { bindImported, importOnnx, runImported } from './import/index.js';
export { type GraphRope, graphRope } from './import/model-rope.js';

export { type OnnxruntimeOptions, openOnnxruntime } from './onnxruntime/host.js';
export { whyNotOnnxruntime } from './onnxruntime/package.js';
export { openWebnn, type WebnnOptions } from './webnn/host.js';
export { whyNotWebnn } from './webnn/open.js';
