/**
 * Whole models as ONNX graphs, and ONNX Runtime as an engine of the decoder.
 *
 * @module @ropewalk/model-onnx
 */

export { type OnnxruntimeWeb, type OnnxWebEngineOptions, openOnnxWebEngine } from './engine-web.js';
export { type DecoderGraph, type DecoderGraphOptions, decoderGraph } from './graph.js';

export type { DecoderForm } from './scope.js';
