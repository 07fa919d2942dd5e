/** What the packages of Ropewalk share of this one. No promise: it changes without notice. @module */

export type { CpuSession } from './cpu.node.js';
export { exitCodeOf, type Machine } from './report.node.js';
export { rooflinePicture } from './roofline.node.js';
