/** For Node only: whole models as folders that others load. @module @ropewalk/onnx/node */
export { type ExportDecoderOptions, type ExportedDecoder, exportDecoder } from './decoder/folder.node.js';
