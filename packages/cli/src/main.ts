#!/usr/bin/env node
/** The process of the command line: its arguments, its streams and its exit code. @module */
import { EXIT } from './output.js';
import { commandLine } from './run.js';

const { run, fail } = commandLine(process.argv.slice(2));

process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') process.exit(fail(error));
  // A closed pipe is no error: `ropewalk … | head` ends quietly. A command that listens to signals has to finish files
  // or a program, so that it continues although nobody reads its output.
  if (process.listenerCount('SIGTERM') === 0) process.exit(EXIT.ok);
});
process.stderr.on('error', () => {});
process.on('uncaughtException', (error) => process.exit(fail(error)));

process.exitCode = await run();
const peakGB = (process.resourceUsage().maxRSS * 1024) / 1e9;
if (peakGB > 1) process.stderr.write(`peak memory ${peakGB.toFixed(1)} GB\n`);
