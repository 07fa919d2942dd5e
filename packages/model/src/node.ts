/** For Node only: what opens files. @module */
export { loadModelPath } from './load.node.js';
