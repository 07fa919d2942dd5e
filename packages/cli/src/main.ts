#!/usr/bin/env node
/** The command line: argv → calls into the library → text and an exit code (docs/cli.md lists the codes). @module */
import type { Command } from 'commander';
import { failureOf } from './failure.js';
import { EXIT, printJson } from './output.js';
import { createProgram } from './program.js';

let running: Command | undefined;

/** Says what went wrong, on stderr and with --json on stdout too. */
function fail(error: unknown): number {
  const { exitCode, code, text } = failureOf(error, running);
  // If stderr cannot be written either, only the exit code remains.
  attempt(() => text !== '' && process.stderr.write(`${text}\n`));
  if (text !== '' && process.argv.includes('--json')) attempt(() => printJson({ error: { code, message: text } }));
  return exitCode;
}

function attempt(write: () => void): void {
  try {
    write();
  } catch {}
}

process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') process.exit(fail(error));
  // `ropewalk … | head` ends quietly: a closed pipe is not an error. A command that listens to signals has files or a
  // program to finish: it goes on, although nobody reads its output.
  if (process.listenerCount('SIGTERM') === 0) process.exit(EXIT.ok);
});
process.stderr.on('error', () => {});
process.on('uncaughtException', (error) => process.exit(fail(error)));

const program = createProgram((command) => {
  running = command;
});
try {
  await program.parseAsync();
} catch (error) {
  process.exitCode = fail(error);
}
