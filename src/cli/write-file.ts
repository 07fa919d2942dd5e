/**
 * Writing small files whole.
 *
 * @module
 */
import { renameSync, rmSync, writeFileSync } from 'node:fs';
import { refuseSystem } from '../formats/read-file.node.js';
import { temporaryName } from '../formats/temporary.node.js';

/**
 * Writes under a temporary name in the same folder, then renames: an interrupted run leaves no half of a file.
 *
 * @param file - replaced if it exists
 * @param content - all of it
 * @throws whatever the file system says; the temporary file is gone then
 */
export function replaceFile(file: string, content: string | Uint8Array): void {
  const temporary = temporaryName(file);
  try {
    writeFileSync(temporary, content);
    renameSync(temporary, file);
  } catch (cause) {
    rmSync(temporary, { force: true });
    throw cause;
  }
}

/**
 * Writes a file that an option names: {@link replaceFile}, and what the file system says in our words.
 *
 * @param file - replaced if it exists
 * @param content - all of it
 * @param where - command and option, for messages
 * @throws {RopewalkError} DEVICE
 */
export function writeWhole(file: string, content: string | Uint8Array, where: string): void {
  try {
    replaceFile(file, content);
  } catch (cause) {
    refuseSystem('DEVICE', where, 'a place that can be written', cause);
  }
}
