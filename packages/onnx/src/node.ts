/** For Node only: whole models as folders that others load, and ONNX Runtime as an engine. @module @ropewalk/onnx/node */
export { type BuiltCache, type CacheEntry, cacheFolder, listCache, removeCache } from './decoder/cache.node.js';
export { type OnnxEngineOptions, openOnnxEngine } from './decoder/engine.node.js';
export { type ExportDecoderOptions, type ExportedDecoder, exportDecoder } from './decoder/folder.node.js';
