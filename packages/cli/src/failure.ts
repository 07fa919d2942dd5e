/** The message of a failed command, one line with one prefix, and its exit code. @module */
import { type Command, CommanderError } from 'commander';
import { RopewalkError } from 'ropewalk';
import { systemSentence } from 'ropewalk/internal';
import { flagOf } from './options.js';
import { EXIT } from './output.js';

/** The report of an error. */
export interface Failure {
  readonly exitCode: number;
  /** The code of a RopewalkError, or `USAGE`, `SYSTEM` (the operating system refused) or `BUG`. */
  readonly code: string;
  /** `ropewalk: convert: --layer: expected …`. Empty when everything has been printed. */
  readonly text: string;
}

/** @param command - the one that was running, or undefined before one was found */
export function failureOf(
  error: unknown,
  command: Command | undefined,
  argv: readonly string[] = process.argv,
): Failure {
  const prefix = ['ropewalk', ...(command ? [command.name()] : [])].join(': ');
  if (error instanceof CommanderError) {
    // commander has printed help or the version.
    if (!error.message.startsWith('error: '))
      return { exitCode: error.exitCode === 0 ? EXIT.ok : EXIT.usage, code: 'USAGE', text: '' };
    const help = ['ropewalk', ...(command ? [command.name()] : []), '--help'].join(' ');
    const text = `${prefix}: ${error.message.slice('error: '.length)}\nRun ${help} for what there is.`;
    return { exitCode: EXIT.usage, code: 'USAGE', text };
  }
  if (error instanceof RopewalkError)
    return {
      exitCode: EXIT.usage,
      code: error.code,
      text: `${prefix}: ${inTheUsersWords(error.message, command, argv)}`,
    };
  const { syscall, path } = (error ?? {}) as NodeJS.ErrnoException;
  if (error instanceof Error && syscall !== undefined) {
    // A failed write without a path was a write to stdout.
    const where = path ?? (syscall === 'write' ? 'stdout' : syscall);
    const isWritten = WRITES.has(syscall);
    const wanted = isWritten ? 'to be able to write' : 'to be able to read';
    return {
      exitCode: EXIT.usage,
      code: 'SYSTEM',
      text: `${prefix}: ${where}: ${systemSentence(wanted, error, isWritten)}`,
    };
  }
  const stack = error instanceof Error ? error.stack : String(error);
  return {
    exitCode: EXIT.bug,
    code: 'BUG',
    text: `${prefix}: a bug in ropewalk. Please report it with these lines:\n${stack}`,
  };
}

const WRITES: ReadonlySet<string> = new Set([
  'write',
  'mkdir',
  'rename',
  'rmdir',
  'unlink',
  'link',
  'copyfile',
  'fsync',
]);

/** Replaces the name of a library's argument by the flag, if the user typed one: `sample: topP` → `--top-p`. */
function inTheUsersWords(message: string, command: Command | undefined, argv: readonly string[]): string {
  if (!command) return message;
  const own = `${command.name()}: `;
  const text = message.startsWith(own) ? message.slice(own.length) : message;
  const parts = text.split(': ');
  for (const at of [0, 1]) {
    const name = parts[at];
    if (name === undefined || / /.test(name)) break; // this is a path with blanks, or the sentence
    const flag = command.getOptionValueSource(name) === 'cli' ? flagOf(name) : name.startsWith('--') ? name : undefined;
    if (flag) return [asTyped(flag, command, argv), ...parts.slice(at + 1)].join(': ');
  }
  return text;
}

/** The short name of an option, if the user typed that one. */
function asTyped(flag: string, command: Command, argv: readonly string[]): string {
  const { short, long } = command.options.find((option) => option.long === flag) ?? {};
  const isTyped = (name: string): boolean => argv.some((word) => word === name || word.startsWith(`${name}=`));
  return short && !isTyped(long!) && isTyped(short) ? short : flag;
}
