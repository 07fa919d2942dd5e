/**
 * Temporary names for files that are being written, and the removal of such files of killed processes (Node only).
 *
 * @module
 */
import { createHash, randomBytes } from 'node:crypto';
import { lstatSync, readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { hostname } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';

/** `.NAME.PID-SPACE-NONCE.ropewalk.tmp` */
const TEMPORARY = /^\..*\.(\d+)-([0-9a-f]{12})-[0-9a-f]{8}\.ropewalk\.tmp$/s;

/** The temporary names that this process uses now. */
const ours = new Set<string>();

/**
 * Runs work that writes under a temporary name in the folder of its output. Files that killed processes left in the
 * folder are removed before the work; a file that is left under the temporary name is removed after it.
 *
 * @param work - given the temporary path, where nothing is yet
 */
export async function withTemporary<T>(output: string, work: (temporary: string) => Promise<T>): Promise<T> {
  removeLeftovers(dirname(resolve(output)));
  const temporary = temporaryName(output);
  ours.add(temporary);
  try {
    return await work(temporary);
  } finally {
    // The error of the work is the one to report. A later run removes the file.
    await rm(temporary, { recursive: true, force: true }).catch(() => {});
    ours.delete(temporary);
  }
}

/** Makes an absolute path in the same folder, which does not exist yet and which a later run recognises. */
export function temporaryName(output: string): string {
  const own = `${process.pid}-${processSpace()}-${randomBytes(4).toString('hex')}`;
  return join(dirname(resolve(output)), `.${basename(output).slice(0, 50)}.${own}.ropewalk.tmp`);
}

/** Removes temporary files of processes of this user and machine that no longer run. Failures are ignored. */
export function removeLeftovers(folder: string): void {
  for (const name of quietly(() => readdirSync(folder)) ?? []) {
    const [, pid, space] = TEMPORARY.exec(name) ?? [];
    const path = join(folder, name);
    if (pid === undefined || space !== processSpace() || ours.has(path) || isAlive(Number(pid))) continue;
    const owner = quietly(() => lstatSync(path).uid);
    if (owner === (process.getuid?.() ?? owner)) quietly(() => rmSync(path, { recursive: true, force: true }));
  }
}

function quietly<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch {
    return undefined;
  }
}

function isAlive(pid: number): boolean {
  // Files of this process are in `ours`; others with its number are of an earlier process.
  if (pid === process.pid) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}

/** Identifies the space of process numbers: this machine since its start, and on Linux this container. */
function processSpace(): string {
  const parts = [hostname()];
  try {
    parts.push(readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim(), readlinkSync('/proc/self/ns/pid'));
  } catch {
    // This system is not Linux.
  }
  return createHash('sha256').update(parts.join('\n')).digest('hex').slice(0, 12);
}
