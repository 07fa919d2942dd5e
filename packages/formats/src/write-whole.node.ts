/**
 * Writes files and folders whole or not at all (Node only).
 *
 * @module
 */
import { constants, readdirSync } from 'node:fs';
import { access, link, lstat, mkdir, open, rename, rm, rmdir, stat, statfs, unlink } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { fail, refuse } from 'ropewalk/backend';
import { type OptionNames, readList, readName, readOptions } from 'ropewalk/internal';
import { checkPath, refuseSystem } from './read-file.node.js';
import { withTemporary } from './temporary.node.js';
import { makeFolder } from './write-file.node.js';

/** Options of {@link writeWhole}. */
export interface WriteOptions {
  /** The bytes that will be written, to check the free space first. */
  readonly sizeBytes: number;
  /** The files that are read and must not be overwritten. */
  readonly inputs: readonly string[];
  /** Allows to replace an existing file, and a folder if `ours` is set. */
  readonly force?: boolean | undefined;
  readonly kind: 'file' | 'folder';
  /** A folder may exist if it is empty, and with `force` if the same command wrote it. Parents are created. */
  readonly ours?: OwnFolder;
}

const NAMES: OptionNames<WriteOptions> = { sizeBytes: true, inputs: true, force: true, kind: true, ours: true };

/** Recognises the folders that a command wrote. */
export interface OwnFolder {
  /** The name of the command in messages. */
  readonly command: string;
  /** Whether the command wrote everything in a folder. If so, the folder may be removed with its content. */
  wrote(folder: string): boolean;
}

/**
 * Writes a file or a folder whole or not at all: under a temporary name in the same folder, which is then renamed.
 *
 * @param output - the final name
 * @param given - the options
 * @param work - writes under the temporary name it is given (a folder exists already, a file does not)
 * @returns the result of work
 * @throws {RopewalkError} FORMAT when output exists or is an input; DEVICE when it cannot be written; errors of work
 */
export async function writeWhole<T>(
  output: string,
  given: WriteOptions,
  work: (temporary: string) => Promise<T>,
): Promise<T> {
  checkPath(output);
  const options = {
    ...readOptions(given, output, NAMES),
    inputs: Array.from(readList(given.inputs, `${output}: inputs`)),
  };
  for (const input of options.inputs) checkPath(input);
  readName(options.kind, ['file', 'folder'], `${output}: kind`);
  if (typeof work !== 'function') refuse('RANGE', `${output}: work`, 'a function', work);
  const folder = dirname(resolve(output));
  const made = options.ours && makeParents(output, folder);
  return withTemporary(output, async (temporary) => {
    await checkOutput(output, folder, options);
    if (options.kind === 'folder') await mkdir(temporary).catch((cause) => unwritable(output, cause));
    const result = await work(temporary);
    await putInPlace(temporary, output, options).catch((cause) => {
      if ((cause as NodeJS.ErrnoException).code === 'EEXIST') exists(output, options);
      unwritable(output, cause);
    });
    await syncFolder(folder);
    return result;
  }).catch(async (error) => {
    // Only folders that are still empty are removed.
    for (let at = folder; made && `${at}/`.startsWith(`${made}/`); at = dirname(at)) await rmdir(at).catch(() => {});
    throw error;
  });
}

function makeParents(output: string, folder: string): string | undefined {
  try {
    return makeFolder(folder);
  } catch (cause) {
    return unwritable(output, cause);
  }
}

async function checkOutput(output: string, folder: string, options: WriteOptions): Promise<void> {
  const { inputs, kind, force, sizeBytes } = options;
  const there = await lstat(output).catch(() => undefined);
  const same = there && (await stat(output).catch(() => undefined));
  for (const input of inputs) {
    const info = await stat(input).catch((cause) => unreadable(input, cause));
    if (same && info.ino === same.ino && info.dev === same.dev)
      fail('FORMAT', output, `it is the ${info.isDirectory() ? 'folder' : 'file'} that is read. Write to a new name.`);
    if (info.isDirectory() && `${folder}/`.startsWith(`${resolve(input)}/`))
      fail('FORMAT', output, `it lies inside the input, ${input}. Write to a new folder beside it.`);
  }
  if (there && options.ours) checkFolder(output, there.isDirectory(), options.ours, force);
  else if (there && !(force && kind === 'file' && there.isFile())) exists(output, options);
  const info = await stat(folder).catch((cause) => unwritable(folder, cause));
  if (!info.isDirectory()) fail('FORMAT', folder, 'it is a file, not a folder to write in');
  await access(folder, constants.W_OK).catch((cause) => unwritable(folder, cause));
  await checkRoom(output, sizeBytes);
}

/**
 * Refuses an output that does not fit on its disk.
 *
 * @param output - a path that need not exist
 * @param sizeBytes - the size of the output
 * @throws {RopewalkError} DEVICE
 */
export async function checkRoom(output: string, sizeBytes: number): Promise<void> {
  checkPath(output);
  if (typeof sizeBytes !== 'number' || !(sizeBytes >= 0))
    refuse('RANGE', `${output}: sizeBytes`, 'a number >= 0', sizeBytes);
  const room = await statfs(dirname(resolve(output))).catch(() => undefined);
  // Some file systems report 0 blocks.
  const free = room && room.blocks > 0 ? room.bavail * room.bsize : Infinity;
  const sizes = `the output takes ${sizeBytes.toLocaleString('en')} bytes, and ${free.toLocaleString('en')} bytes are free`;
  if (free < sizeBytes) fail('DEVICE', output, `${sizes}. Free some, or write elsewhere.`);
}

/** Refuses a folder that may not be replaced. */
function checkFolder(output: string, isFolder: boolean, ours: OwnFolder, force: boolean | undefined): void {
  if (!isFolder) fail('FORMAT', output, 'this is a file. Give a folder that is new, or empty.');
  if (readdirSync(output).length === 0) return;
  const next = 'Give a folder that is new or empty, or --force to replace it.';
  if (!force) fail('FORMAT', output, `the folder has files in it. ${next}`);
  const why = `${ours.command} did not write this folder, so it is not replaced`;
  if (!ours.wrote(output)) fail('FORMAT', output, `${why}. Give another folder.`);
}

function exists(output: string, { kind, force }: Pick<WriteOptions, 'kind' | 'force'>): never {
  const next =
    kind === 'folder' || force ? 'Remove it first, or write to another.' : 'Give another, or --force to replace it.';
  return fail('FORMAT', output, `it already exists. ${next}`);
}

async function putInPlace(temporary: string, output: string, { kind, force, ours }: WriteOptions): Promise<void> {
  if (ours) return replaceFolder(temporary, output, ours, force);
  if (kind === 'folder' || force) return rename(temporary, output);
  try {
    // Unlike rename, link does not replace a file that appeared in the meantime.
    await link(temporary, output);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'EEXIST') throw cause;
    // Some file systems have no links.
    if (await lstat(output).catch(() => undefined)) throw Object.assign(new Error('exists'), { code: 'EEXIST' });
    return rename(temporary, output);
  }
  await unlink(temporary);
}

async function replaceFolder(temporary: string, output: string, ours: OwnFolder, force?: boolean): Promise<void> {
  const there = await lstat(output).catch(() => undefined);
  if (!there) return rename(temporary, output);
  // The folder may have changed since it was checked.
  checkFolder(output, there.isDirectory(), ours, force);
  const aside = `${resolve(output)}.${process.pid}.old`;
  await rename(output, aside);
  try {
    await rename(temporary, output);
  } catch (cause) {
    await rename(aside, output);
    throw cause;
  }
  await rm(aside, { recursive: true });
}

/** Writes the folder's entries to the disk: a power cut may otherwise lose the new name of a file. */
async function syncFolder(folder: string): Promise<void> {
  // Not every system can open a folder.
  const handle = await open(folder).catch(() => undefined);
  await handle?.sync().catch(() => undefined);
  await handle?.close();
}

export function unreadable(path: string, cause: unknown): never {
  return refuseSystem('FORMAT', path, 'a readable file', cause);
}

export function unwritable(path: string, cause: unknown): never {
  return refuseSystem('DEVICE', path, 'to be able to write', cause);
}
