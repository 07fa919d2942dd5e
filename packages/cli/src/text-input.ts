/** Texts that come from a file or from stdin. @module */
import { fstatSync } from 'node:fs';
import { readFileBytes, refuseSystem } from '@ropewalk/formats/node';
import { decodeUtf8, fail } from 'ropewalk/backend';

/** A model takes days for a text of this size. */
const MAX_TEXT_BYTES = 64 * 2 ** 20;
/** After this long without input, stderr says that the command waits. */
const PATIENCE_MS = 1000;

export function readTextFile(file: string): string {
  return decodeUtf8(readFileBytes(file, MAX_TEXT_BYTES), file);
}

/** Whether stdin is a pipe or a file, not a terminal and not /dev/null. */
export function isPiped(): boolean {
  try {
    const info = fstatSync(0);
    return info.isFIFO() || info.isSocket() || info.isFile();
  } catch {
    return false;
  }
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

/** Watches for a text on stdin that no argument asked for. @returns says, when called, whether something has come in */
export function watchStdin(): () => boolean {
  if (!isPiped()) return () => false;
  if (fstatSync(0).isFile()) return () => fstatSync(0).size > 0;
  const listen = (): void => {};
  process.stdin.on('readable', listen);
  process.stdin.on('error', listen);
  process.stdin.unref();
  return () => {
    process.stdin.off('readable', listen);
    return process.stdin.readableLength > 0;
  };
}
