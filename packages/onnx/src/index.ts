/**
 * ONNX files; RoPE and other operators as ONNX graphs; the RoPE of any .onnx file; ONNX Runtime and WebNN as backends.
 *
 * @module @ropewalk/onnx
 */
export type { AngleMode, AnglePrecision } from './export/angles.js';
export { ANGLE_MODES, anglePrecision, PRECISION_POSITIONS } from './export/angles.js';
export { GraphBuilder, OLDEST_OPSET, OPSET } from './export/builder.js';
export { emitPlan } from './export/emit.js';
export type { GraphForm } from './export/fragments.js';
export type { OperatorModelOptions, OperatorName } from './export/operator-model.js';
export { OPERATOR_SHAPES, operatorModel } from './export/operator-model.js';
export type { EmitOptions, EmittedGraph, EmittedValue, NotEmitted } from './export/plan-graph.js';
export { type RopeModel, type RopeModelOptions, ropeModel, TABLE_CONTEXT } from './export/rope-model.js';
export { type GraphCost, graphCost } from './export/shapes.js';
export { type OnnxTestCase, type OnnxTestFile, writeOnnxTest } from './export/test-folder.js';
export type { OnnxAttribute, OnnxModel, OnnxNode, OnnxValue } from './format/onnx.js';
export { parseOnnxTensor, writeOnnxModel, writeOnnxTensor } from './format/onnx.js';
export {
  type AttributeValue,
  type ExternalLoader,
  type ExternalLocation,
  MAX_MODEL_BYTES,
  type OnnxFunction,
  type OnnxGraph,
  type OnnxModelFile,
  type OnnxModelNode,
  type OnnxTensor,
  type OnnxValueType,
  type ParseOnnxOptions,
  parseOnnxModel,
} from './format/onnx-model.js';
export {
  type GraphContents,
  type GraphTensor,
  graphContents,
  graphTensors,
  type WeightFile,
  type WeightKind,
} from './import/contents.js';
export type { PositionSource, RopeDescription, TableSource } from './import/describe.js';
export type { NearMiss } from './import/find.js';
export type { FoundFrequencies, FrequencyRule } from './import/frequencies.js';
export type { BindOptions, ImportedModel, ImportedRope } from './import/index.js';
export { bindImported, groupAlike, importOnnx, runImported } from './import/index.js';
export { type GraphRope, graphRope } from './import/model-rope.js';
export type { ComparedTables } from './import/sampling.js';
export { type OnnxruntimeBackend, type OnnxruntimeOptions, openOnnxruntime } from './onnxruntime/host.js';
export { whyNotOnnxruntime } from './onnxruntime/package.js';
export { openWebnn, type WebnnBackend, type WebnnOptions } from './webnn/host.js';
export { whyNotWebnn } from './webnn/open.js';
