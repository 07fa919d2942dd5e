/** For Node only: functions that open and write files. @module @ropewalk/formats/node */

export { checkExternal, type FilePart, readExternal } from './external.node.js';
export { isFolder, isGraphFolder, modelFileOf, onnxFileOf, onnxFilesOf } from './folder.node.js';
export type { FileHandle, FileKind, OpenFile } from './read-file.node.js';
export { checkRegular, openFile, readAt, readFileBytes, readJsonFile, refuseSystem } from './read-file.node.js';
export {
  ggufPaths,
  readGgufHeader,
  readGgufModel,
  readSafetensorsHeader,
} from './read-header.node.js';
export { makeFolder, replaceFile, writeOutput } from './write-file.node.js';
export { checkRoom, type OwnFolder, writeWhole } from './write-whole.node.js';
