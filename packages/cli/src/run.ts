/** The command line as a function, from arguments to an exit code. @module */
import type { Command } from 'commander';
import { failureOf } from './failure.js';
import { EXIT, printJson } from './output.js';
import { createProgram } from './program.js';

/** One call of the command line. */
export interface CommandLine {
  /** Runs it. @returns the exit code (docs/cli.md lists them) */
  run(): Promise<number>;
  /** Prints an error to stderr, and with --json to stdout too. @returns the exit code */
  fail(error: unknown): number;
}

/** @param argv - command and options */
export function commandLine(argv: readonly string[]): CommandLine {
  let running: Command | undefined;
  let exitCode: number = EXIT.ok;
  const program = createProgram({
    onCommand: (command) => {
      running = command;
    },
    onEnd: (code) => {
      exitCode = code;
    },
  });
  const fail = (error: unknown): number => {
    const { exitCode, code, text } = failureOf(error, running, argv);
    // If stderr cannot be written either, the exit code alone tells of the error.
    attempt(() => text !== '' && process.stderr.write(`${text}\n`));
    if (text !== '' && argv.includes('--json')) attempt(() => printJson({ error: { code, message: text } }));
    return exitCode;
  };
  const run = async (): Promise<number> => {
    try {
      await program.parseAsync(wordsOf(argv, program), { from: 'user' });
      return exitCode;
    } catch (error) {
      return fail(error);
    }
  };
  return { run, fail };
}

/** Refuses `help foo` and `foo --help` where foo is no command: commander would print the help of all commands. */
function wordsOf(argv: readonly string[], program: Command): readonly string[] {
  const word = argv[0] === 'help' ? argv[1] : argv[0];
  if (word === undefined || word.startsWith('-')) return argv;
  return program.commands.some((one) => one.name() === word || one.aliases().includes(word)) ? argv : [word];
}

function attempt(write: () => void): void {
  try {
    write();
  } catch {}
}
