/** Reads texts from a file or from stdin. @module */
import { fstatSync, type Stats, statSync } from 'node:fs';
import { readFileBytes, refuseSystem } from '@ropewalk/formats/internal/node';
import { fail } from 'ropewalk/backend';
import { decodeUtf8 } from 'ropewalk/internal';

/** The most bytes of a text. A model would take days for it. */
const MAX_TEXT_BYTES = 64 * 2 ** 20;
/** After this long without input, stderr says that the command waits. */
const PATIENCE_MS = 1000;

export function readTextFile(file: string): string {
  return decodeUtf8(readFileBytes(file, MAX_TEXT_BYTES), file);
}

/** Whether stdin is a pipe or a file, not a terminal and not /dev/null. */
export function isPiped(): boolean {
  try {
    const info = stdinStats();
    return info.isFIFO() || info.isSocket() || info.isFile();
  } catch {
    return false;
  }
}

function stdinStats(): Stats {
  const stats = fstatSync(0);
  // Node's loader uses the result of the last call of stat to decide whether a path is a pipe, and then does not follow
  // links (fs.realpathSync, v20.20.2): a package that is imported next would not find its dependencies.
  statSync('.', { throwIfNoEntry: false });
  return stats;
}

/** Reads stdin to its end; while it waits, stderr names the command. @throws {RopewalkError} FORMAT */
export async function readStdin(command: string): Promise<string> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  const waiting = setTimeout(
    () => process.stderr.write(`ropewalk: ${command}: reading stdin to its end\n`),
    PATIENCE_MS,
  );
  try {
    for await (const chunk of process.stdin as AsyncIterable<Uint8Array>) {
      clearTimeout(waiting);
      size += chunk.length;
      if (size > MAX_TEXT_BYTES) fail('FORMAT', 'stdin', `it has more than ${MAX_TEXT_BYTES} bytes.`);
      chunks.push(chunk);
    }
  } catch (cause) {
    refuseSystem('FORMAT', 'stdin', 'a stream that can be read', cause);
  } finally {
    clearTimeout(waiting);
  }
  return decodeUtf8(Buffer.concat(chunks), 'stdin');
}

/** Watches for a text on stdin that no argument asked for. @returns a function: whether something has arrived */
export function watchStdin(): () => boolean {
  if (!isPiped()) return () => false;
  if (stdinStats().isFile()) return () => stdinStats().size > 0;
  const listen = (): void => {};
  process.stdin.on('readable', listen);
  process.stdin.on('error', listen);
  process.stdin.unref();
  return () => {
    process.stdin.off('readable', listen);
    return process.stdin.readableLength > 0;
  };
}

/** A prompt that was read. */
export interface ReadPrompt {
  /** Undefined without a prompt: the model's start token alone. */
  readonly text: string | undefined;
  /** Warns on stderr when stdin has input that is not read. */
  warnUnread(): void;
}

/**
 * Reads the prompt of a command.
 *
 * @param command - its name, for messages
 * @param argument - the prompt; `-` reads it from stdin, as does a pipe without any prompt
 * @param options - `--prompt` and `--file`, instead of the argument
 */
export async function readPrompt(
  command: string,
  argument: string | undefined,
  { prompt, file }: { readonly prompt?: string; readonly file?: string },
): Promise<ReadPrompt> {
  const given = Object.entries({ 'an argument': argument, '--prompt': prompt, '--file': file }).filter(
    ([, text]) => text !== undefined,
  );
  if (given.length > 1)
    fail('FORMAT', 'prompt', `it is given by ${given.map(([name]) => name).join(' and ')}. Give it once.`);
  if (argument === '-' || prompt === '-' || file === '-' || (given.length === 0 && isPiped()))
    return { text: withoutLineEnd(await readStdin(command)), warnUnread() {} };
  const text = file === undefined ? (argument ?? prompt) : withoutLineEnd(readTextFile(file));
  const unread = watchStdin();
  const warning = `ropewalk: ${command}: a prompt is given, so what is piped in is not read. Give - to read it.\n`;
  return { text, warnUnread: () => void (unread() && process.stderr.write(warning)) };
}

/** Drops the line end of files and `echo`, as llama.cpp does. @see ggml-org/llama.cpp@001d906 common/arg.cpp */
function withoutLineEnd(text: string): string {
  return text.replace(/\r?\n$/, '');
}
