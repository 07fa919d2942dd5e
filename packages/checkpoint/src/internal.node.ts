/** The names that the packages of Ropewalk share of this one. They make no promise: they change without notice. @module */
export { copyPermuted } from './permute/file.node.js';
export { factsOf, headsOf, type ModelFacts } from './permute/model.node.js';
export { isProved, proveScores } from './permute/proof.node.js';
