/** The names that the packages of Ropewalk share of this one. They make no promise: they change without notice. @module */

export type { CpuSession } from './cpu.node.js';
export { exitCodeOf, type Machine } from './report.node.js';
export { rooflinePicture } from './roofline.node.js';
