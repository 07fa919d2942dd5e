/** What other packages of Ropewalk use of this one. No promise: it changes without notice. @module */
export { copyPermuted } from './permute/file.node.js';
export { factsOf, headsOf, type ModelFacts } from './permute/model.node.js';
export { isProved, proveScores } from './permute/proof.node.js';
