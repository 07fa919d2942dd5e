/** For Node only: functions that open and write files. @module @ropewalk/formats/node */

export { type FilePart, readExternal } from './external.node.js';
export { isFolder, isGraphFolder, modelFileOf, onnxFileOf, onnxFilesOf } from './folder.node.js';

export { readGgufHeader, readGgufModel, readSafetensorsHeader } from './read-header.node.js';
