/**
 * Reads files that a user names (Node only). Anything but a regular file is refused, and never waited for.
 *
 * @module
 */
import { closeSync, constants, fstatSync, openSync, readSync, statSync } from 'node:fs';
import { open, stat } from 'node:fs/promises';
import { type ErrorCode, RopewalkError } from 'ropewalk';
import { fail, newArray, refuse } from 'ropewalk/backend';
import { checkInteger, checkName, readField, reading, systemSentence } from 'ropewalk/internal';
import { parseJson } from './json.js';

/** Without O_NONBLOCK, opening a pipe waits for its writer. Windows has neither the flag nor such pipes. */
const OPEN_FLAGS = constants.O_RDONLY | (constants.O_NONBLOCK ?? 0);

/**
 * Throws an error of the file system as a RopewalkError.
 *
 * @param code - FORMAT for what is read, DEVICE for what is written
 * @param where - as for {@link readFileBytes}
 * @param expected - describes an input that would have been accepted
 * @param cause - the error of the file system; a RopewalkError is thrown unchanged
 * @param next - a hint, as a full sentence
 * @throws {RopewalkError} always
 */
export function refuseSystem(code: ErrorCode, where: string, expected: string, cause: unknown, next?: string): never {
  if (cause instanceof RopewalkError) throw cause;
  const more = next === undefined ? '' : `. ${next}`;
  const isWritten = code === 'DEVICE' && (cause as NodeJS.ErrnoException | undefined)?.syscall !== 'stat';
  throw new RopewalkError(code, `${where}: ${systemSentence(expected, cause, isWritten)}${more}`, { cause });
}

/**
 * Checks a path: Node's own functions also take bytes, URLs and numbers of open files.
 *
 * @param path - the caller's value
 * @param where - its name in messages, which is checked too
 * @throws {RopewalkError} RANGE when one is not a string
 */
export function checkPath(path: unknown, where: unknown = 'path'): asserts path is string {
  checkName(where, 'where', 'the file');
  if (typeof path !== 'string') refuse('RANGE', 'path', 'a path', path);
}

/**
 * Reads a whole file into memory, synchronously.
 *
 * @param path - the file
 * @param limit - the most bytes that it may have, or a function that refuses a size; asked before memory is taken
 * @param where - names it in messages, with the command and the option that it came from: `import: --x: x.npy`
 * @returns a fresh array
 * @throws {RopewalkError} FORMAT when it is missing, not a regular file, too large, unreadable, or cut while it is read
 */
export function readFileBytes(
  path: string,
  limit: number | ((sizeBytes: number) => void),
  where: string = path,
): Uint8Array {
  checkPath(path, where);
  return withFileSync(path, where, (file, size) => {
    if (typeof limit === 'function') limit(size);
    else if (size > limit) refuse('FORMAT', where, `at most ${limit} bytes`, size);
    return readSyncAt(file, 0, size, where);
  });
}

/** The most bytes of a JSON file. A config.json has a few kilobytes, an index of shards a few megabytes. */
const MAX_JSON_FILE_BYTES = 64 * 2 ** 20;

/**
 * Reads a JSON file of at most 64 MiB.
 *
 * @throws {RopewalkError} FORMAT when it cannot be read, or is not JSON
 */
export function readJsonFile(path: string, where: string = path): unknown {
  return parseJson(readFileBytes(path, MAX_JSON_FILE_BYTES, where), path);
}

/**
 * Reads a part of a file into memory.
 *
 * @param length - how many; the caller has set its limit
 * @throws {RopewalkError} FORMAT as {@link readFileBytes}, and when the file ends before
 */
export function readFileRange(path: string, start: number, length: number, where: string = path): Uint8Array {
  return withFileSync(path, where, (file, size) => {
    // Checked before memory is taken.
    if (start + length > size)
      fail('FORMAT', where, `it has ${size} bytes, too few to read ${length} bytes from ${start}`);
    return readSyncAt(file, start, length, where);
  });
}

/** The part of Node's FileHandle that is used here: a program that uses these types may not have Node's types. */
export interface FileHandle {
  read(into: Uint8Array, offset: number, length: number, position: number): Promise<{ readonly bytesRead: number }>;
  close(): Promise<void>;
}

/** The part of Node's Stats that says what kind of file it is. */
export interface FileKind {
  isFile(): boolean;
  isDirectory(): boolean;
  isFIFO(): boolean;
  isSocket(): boolean;
}

/** A file that is open for reading. */
export interface OpenFile {
  /** The caller closes it. */
  readonly file: FileHandle;
  /** Its size in bytes when it was opened. */
  readonly size: number;
}

/**
 * Opens a file, to be read piece by piece with {@link readAt}.
 *
 * @param path - the file
 * @param where - as for {@link readFileBytes}
 * @throws {RopewalkError} FORMAT when it is missing, is not a regular file, or cannot be read
 */
export async function openFile(path: string, where: string = path): Promise<OpenFile> {
  checkPath(path, where);
  // Checked before, as opening a device may have effects, and after, as the name may point to another file by then.
  checkRegular(await stat(path).catch((cause) => unreadable(where, cause)), where);
  const file = await open(path, OPEN_FLAGS).catch((cause) => unreadable(where, cause));
  try {
    const info = await file.stat().catch((cause) => unreadable(where, cause));
    checkRegular(info, where);
    return { file, size: info.size };
  } catch (error) {
    await file.close();
    throw error;
  }
}

/**
 * Reads a piece of an open file.
 *
 * @param file - open
 * @param start - first byte
 * @param length - how many
 * @param where - names the file in messages
 * @returns a fresh array
 * @throws {RopewalkError} FORMAT when it cannot be read, or ends before
 */
export async function readAt(file: FileHandle, start: number, length: number, where: string): Promise<Uint8Array> {
  checkName(where, 'where', 'the file');
  const read = readField(file, 'read', where);
  if (typeof read !== 'function') refuse('RANGE', `${where}: read`, 'a function', read);
  checkInteger(start, 'start', 0);
  const bytes = newArray('u8', length);
  for (let at = 0; at < length; ) {
    let bytesRead: number;
    try {
      ({ bytesRead } = await Reflect.apply(read, file, [bytes, at, length - at, start + at]));
    } catch (cause) {
      return unreadable(where, cause);
    }
    if (!(bytesRead > 0)) cut(where, start, length, at);
    at += bytesRead;
  }
  return bytes;
}

/** Opens a file as {@link openFile} does, synchronously, and closes it after the work. */
function withFileSync<T>(path: string, where: string, work: (file: number, size: number) => T): T {
  let file: number | undefined;
  try {
    checkRegular(statSync(path), where);
    file = openSync(path, OPEN_FLAGS);
    const info = fstatSync(file);
    checkRegular(info, where);
    return work(file, info.size);
  } catch (cause) {
    return unreadable(where, cause);
  } finally {
    if (file !== undefined) closeSync(file);
  }
}

function readSyncAt(file: number, start: number, length: number, where: string): Uint8Array {
  const bytes = new Uint8Array(length);
  for (let at = 0; at < length; ) {
    const count = readSync(file, bytes, at, length - at, start + at);
    if (count === 0) cut(where, start, length, at);
    at += count;
  }
  return bytes;
}

/**
 * Refuses anything but a regular file.
 *
 * @param info - of the path, asked before it is opened
 * @param where - as for {@link readFileBytes}
 * @throws {RopewalkError} FORMAT, with the kind of file
 */
export function checkRegular(info: FileKind, where: string): void {
  checkName(where, 'where', 'the file');
  if (reading(`${where}: info`, () => info.isFile())) return;
  const kind = info.isDirectory() ? 'a folder' : info.isFIFO() ? 'a pipe' : info.isSocket() ? 'a socket' : 'a device';
  throw new RopewalkError(
    'FORMAT',
    `${where}: expected a regular file, got ${kind}${info.isDirectory() ? '' : '. Write its content to a file first.'}`,
  );
}

function cut(where: string, start: number, length: number, got: number): never {
  return refuse('FORMAT', where, `${length} bytes from ${start}`, got, 'The file was cut while it was read.');
}

function unreadable(where: string, cause: unknown): never {
  return refuseSystem('FORMAT', where, 'a readable file', cause);
}
