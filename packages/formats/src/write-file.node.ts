/**
 * Writes small files whole, and makes folders.
 *
 * @module
 */
import {
  fstatSync,
  lstatSync,
  mkdirSync,
  readlinkSync,
  realpathSync,
  renameSync,
  rmSync,
  type Stats,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, resolve } from 'node:path';
import { fail, refuse } from 'ropewalk/backend';
import { checkBytes } from 'ropewalk/internal';
import { checkPath, refuseSystem } from './read-file.node.js';
import { removeLeftovers, temporaryName } from './temporary.node.js';

/**
 * Writes a file under a temporary name in the same folder and renames it, so that an interrupted run never leaves half of
 * a file. Temporary files of killed runs are removed. A device, a pipe or /dev/stdout is written to directly.
 *
 * @param file - replaced if it exists; for a symbolic link, the file that it leads to
 * @param content - the whole content
 * @throws {RopewalkError} RANGE or DTYPE for other arguments; otherwise the error of the file system, after the
 *   temporary file has been removed
 */
export function replaceFile(file: string, content: string | Uint8Array): void {
  checkPath(file);
  if (file === '') refuse('RANGE', 'path', 'a path', file);
  if (typeof content !== 'string') checkBytes(content, file);
  const there = statSync(file, { throwIfNoEntry: false });
  const stream =
    there && ([process.stdout, process.stderr] as const).find((_item, n) => isSameFile(there, fstatOf(n + 1)));
  if (stream) {
    stream.write(content);
    return;
  }
  if (there && !there.isFile()) {
    writeFileSync(file, content);
    return;
  }
  const target = followLinks(file);
  removeLeftovers(dirname(target));
  const temporary = temporaryName(target);
  try {
    writeFileSync(temporary, content);
    renameSync(temporary, target);
  } catch (cause) {
    rmSync(temporary, { force: true });
    throw cause;
  }
}

function fstatOf(file: number): Stats | undefined {
  try {
    return fstatSync(file);
  } catch {
    return undefined; // closed
  }
}

function isSameFile(a: Stats, b: Stats | undefined): boolean {
  return a.ino === b?.ino && a.dev === b.dev;
}

/** Finds the file that a path leads to, which need not exist yet. */
function followLinks(file: string): string {
  try {
    return realpathSync(file);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'ENOENT') throw cause;
    // A link to a missing file leads to the place of the new file. A loop of links is another error.
    const isLink = lstatSync(file, { throwIfNoEntry: false })?.isSymbolicLink();
    return isLink ? followLinks(resolve(dirname(file), readlinkSync(file))) : file;
  }
}

/**
 * Writes a file that an option names, as {@link replaceFile}, and explains a refusal of the file system.
 *
 * @param file - replaced if it exists
 * @param content - the whole content
 * @param where - command and option, for messages
 * @throws {RopewalkError} DEVICE
 */
export function writeOutput(file: string, content: string | Uint8Array, where: string): void {
  checkPath(file, where);
  try {
    replaceFile(file, content);
  } catch (cause) {
    const folder = dirname(file);
    if (!statSync(folder, { throwIfNoEntry: false }))
      fail('DEVICE', `${where}: ${file}`, `there is no folder ${folder}. Make it first.`);
    refuseSystem('DEVICE', `${where}: ${file}`, 'a place that can be written', cause);
  }
}

/**
 * Makes a folder and its parents. Node's option `recursive` is not used: it never ends in file systems such as /proc.
 *
 * @param folder - a folder that may exist already
 * @returns the topmost folder that was made, or undefined; the caller removes it when its work fails
 * @throws the error of the file system
 */
export function makeFolder(folder: string): string | undefined {
  checkPath(folder);
  const missing: string[] = [];
  for (let at = resolve(folder); !statSync(at, { throwIfNoEntry: false }); at = dirname(at)) missing.unshift(at);
  for (const at of missing) mkdirSync(at);
  return missing[0];
}
