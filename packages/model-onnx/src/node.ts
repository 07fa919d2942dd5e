/**
 * Whole models as folders for other programs, and ONNX Runtime as an engine, for Node only. @module
 * @ropewalk/model-onnx/node
 */
export { type BuiltCache, cacheFolder, listCache, removeCache } from './cache.node.js';
export { type OnnxEngineOptions, openOnnxEngine } from './engine.node.js';
export { type ExportDecoderOptions, type ExportedDecoder, exportDecoder } from './folder.node.js';
