/** For Node only: CPU sessions with threads, reports and pictures. @module @ropewalk/bench/node */
export { type CpuSession, runCpuSession } from './cpu.node.js';
export { describeMachine, exitCodeOf, type Machine, printReport, type Report } from './report.node.js';
export { rooflinePicture } from './roofline.node.js';
