/**
 * Whole models as ONNX graphs, and ONNX Runtime as an engine of the decoder.
 *
 * @module @ropewalk/model-onnx
 */

export { type OnnxruntimeWeb, type OnnxWebEngineOptions, openOnnxWebEngine } from './engine-web.js';
export { type DecoderGraph, type DecoderGraphOptions, decoderGraph } from './graph.js';
export type { DecoderModelOptions } from './model.js';
export type { WeightConstant } from './scope.js';
export { DECODER_FORMS, type DecoderForm } from './scope.js';
export type { DataFile, WriteWeightsOptions } from './weights.js';
