/** The names that other packages of Ropewalk use. They may change without notice. @module */
export { firstLine } from './backend/queue.js';
export { type AngleConstants, angleConstants, type CosSin, MAX_TABLE, PRECISION_POSITIONS } from './export/angles.js';
export { OLDEST_OPSET, OPSET } from './export/builder.js';
export { type Chosen, gelu, layerNorm, rmsNorm, route, sigmoid, swiglu, xielu } from './export/fragments.js';
export { OPERATOR_SHAPES, type OperatorName } from './export/operator-model.js';
export { cosSinFor, rotate, rotateStandard } from './export/rope.js';
export { constantTables, cosSinOf } from './export/rope-model.js';
export { valueTypes } from './export/shapes.js';
export type { OnnxDtype, OnnxExternalTensor } from './format/onnx.js';
export { type OnnxAttribute, type OnnxNode, type OnnxValue, onnxDataType } from './format/onnx.js';
export { MAX_MODEL_BYTES, type OnnxValueType } from './format/onnx-model.js';
export { graphTensors } from './import/contents.js';
export type { FoundFrequencies } from './import/frequencies.js';
export { groupAlike } from './import/index.js';
export { crossingType } from './onnxruntime/host.js';
export {
  checkProviders,
  loadGraph,
  loadOnnxruntime,
  type Ort,
  type OrtSession,
  type OrtSessionOptions,
  type OrtTensor,
} from './onnxruntime/package.js';
export type { MlContext, MlDescriptor, MlDtype, MlLimits, MlTensor, Webnn } from './webnn/api.js';
