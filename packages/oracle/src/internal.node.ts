/** What other packages of Ropewalk use of this one. No promise: it changes without notice. @module */

export { readGoldenFolder } from './folder.node.js';
export { strangersIn } from './verify/outputs.node.js';
export type { Answer } from './verify/program.node.js';
