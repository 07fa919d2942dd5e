/** The parts of `ropewalk trace` that open and write files (Node only). They make no promise. @module */
export { openDump } from './read/open.node.js';
export { openStateDump, openStateFile } from './read/state.node.js';
export { Recorder } from './record.node.js';
