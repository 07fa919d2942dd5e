/** The names that the packages of Ropewalk share of this one. They make no promise: they change without notice. @module */

export { readGoldenFolder } from './folder.node.js';
export { strangersIn } from './verify/outputs.node.js';
export type { Answer } from './verify/program.node.js';
