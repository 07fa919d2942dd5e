/** Functions for Node that the other packages of Ropewalk use. They promise nothing, and change without notice. @module */
export { checkPath } from './read-file.node.js';
export { readGgufPart } from './read-header.node.js';
export { unreadable, unwritable } from './write-whole.node.js';
