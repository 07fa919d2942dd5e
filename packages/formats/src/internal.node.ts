/** Functions for Node that the other packages of Ropewalk use. They promise nothing, and change without notice. @module */

export { checkExternal } from './external.node.js';
export {
  checkPath,
  checkRegular,
  type FileHandle,
  type OpenFile,
  openFile,
  readAt,
  readFileBytes,
  readJsonFile,
  refuseSystem,
} from './read-file.node.js';
export { ggufPaths, readGgufPart } from './read-header.node.js';
export { makeFolder, replaceFile, writeOutput } from './write-file.node.js';
export { checkRoom, unreadable, unwritable, writeWhole } from './write-whole.node.js';
