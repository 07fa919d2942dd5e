/** Work that all files of a run share: what the first one builds, the others find. */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

let run: string | undefined;

/** The folder of this run: the one that the runner gives to all its processes, else one of this process. */
function folderOfRun(): string {
  if (run) return run;
  const given = process.env.ROPEWALK_TEST_RUN;
  if (given) return (run = given);
  const own = mkdtempSync(join(tmpdir(), 'ropewalk-tests-'));
  process.on('exit', () => rmSync(own, { recursive: true, force: true }));
  return (run = own);
}

/**
 * Does something once in a run; processes that come while it is being done wait for it.
 *
 * @param name - of what is made
 * @param make - makes it, and may put files into the empty folder that it is given
 * @returns that folder
 * @throws what `make` throws, as a message, in every process
 */
export function once(name: string, make: (folder: string) => void): string {
  const folder = join(folderOfRun(), name);
  const [lock, end] = [`${folder}.lock`, `${folder}.end`];
  let first = true;
  try {
    writeFileSync(lock, String(process.pid), { flag: 'wx' });
  } catch {
    first = false;
  }
  if (first) {
    let message = '';
    try {
      mkdirSync(folder, { recursive: true });
      make(folder);
    } catch (error) {
      message = `${name}: ${(error as Error).message}`;
    }
    // Renamed into place, so that nobody reads half of it.
    writeFileSync(`${end}.new`, message);
    renameSync(`${end}.new`, end);
  }
  while (!existsSync(end)) {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 50);
    if (!existsSync(end) && !isAlive(Number(readFileSync(lock, 'utf8')))) throw new Error(`${name}: its process died`);
  }
  const message = readFileSync(end, 'utf8');
  if (message !== '') throw new Error(message);
  return folder;
}

function isAlive(pid: number): boolean {
  if (pid === 0) return true; // its number is being written
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}
