/** For Node only: CPU sessions with threads, reports and pictures. @module @ropewalk/bench/node */
export { runCpuSession } from './cpu.node.js';
export { describeMachine, printReport, type Report } from './report.node.js';
