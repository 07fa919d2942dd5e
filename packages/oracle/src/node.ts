/** The part for Node, which opens files. @module @ropewalk/oracle/node */
export { openFolder, openGoldenFolder, readGoldenFolder } from './folder.node.js';
export { type WriteGoldenOptions, writeGoldenFolder } from './golden/write-folder.node.js';
export { readCaseOutputs, strangersIn } from './verify/outputs.node.js';
export { openProgram, type ProgramUnderTest, type TimesAnswer } from './verify/program.node.js';
