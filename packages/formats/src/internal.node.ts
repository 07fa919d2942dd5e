/** What other packages of Ropewalk use of this one. No promise: it changes without notice. @module */
export { checkPath } from './read-file.node.js';
export { readGgufPart } from './read-header.node.js';
export { unreadable, unwritable } from './write-whole.node.js';
