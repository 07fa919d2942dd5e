/** The part for Node, which opens files. @module @ropewalk/oracle/node */
export { goldenFolder, vectorFolder } from './folder.node.js';
export { type WriteGoldenOptions, writeGoldenFolder } from './golden/write-folder.node.js';
export { readCaseOutputs } from './verify/outputs.node.js';
export { type ProgramUnderTest, programOf } from './verify/program.node.js';
