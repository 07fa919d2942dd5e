/** The names that other packages of Ropewalk use. They may change without notice. @module */
export { firstLine } from './backend/queue.js';
export { type AngleConstants, angleConstants, type CosSin, MAX_TABLE } from './export/angles.js';
export { type Chosen, gelu, layerNorm, rmsNorm, route, sigmoid, swiglu } from './export/fragments.js';
export { cosSinFor, rotate, rotateStandard } from './export/rope.js';
export { constantTables, cosSinOf } from './export/rope-model.js';
export { valueTypes } from './export/shapes.js';
export type { OnnxDtype, OnnxExternalTensor } from './format/onnx.js';
export {
  checkProviders,
  loadGraph,
  loadOnnxruntime,
  type Ort,
  type OrtSession,
  type OrtSessionOptions,
  type OrtTensor,
} from './onnxruntime/package.js';
