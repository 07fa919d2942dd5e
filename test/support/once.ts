/** Does work once for all files of a run: the first file builds something, and the others use it. */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

let run: string | undefined;

/** Returns the folder that the runner shares among its processes. Default: a new folder of this process. */
function folderOfRun(): string {
  if (run) return run;
  const given = process.env.ROPEWALK_TEST_RUN;
  if (given) return (run = given);
  const own = mkdtempSync(join(tmpdir(), 'ropewalk-tests-'));
  process.on('exit', () => rmSync(own, { recursive: true, force: true }));
  return (run = own);
}

/**
 * Does something once per run. Other processes wait until it is done.
 *
 * @param name - the name of the work
 * @param make - does the work, and may write files into its empty folder
 * @returns the folder
 * @throws Error in every process, with the message of the error that `make` throws
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
    // The file is renamed into place, so that no process reads half of it.
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
  if (pid === 0) return true; // another process is writing its number now
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}
