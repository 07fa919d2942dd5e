/** Stops commands while they write. */
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { commandPath } from './command.js';
import { until } from './until.js';

/**
 * Sends a signal as soon as a temporary file or folder is in `dir`. The command must end by the signal, report it, and
 * leave no new files.
 */
export async function interrupted(signal: NodeJS.Signals, dir: string, args: readonly string[]): Promise<void> {
  const before = readdirSync(dir);
  const child = spawn(process.execPath, [commandPath(), ...args]);
  let stderr = '';
  child.stderr.on('data', (chunk) => (stderr += chunk));
  const ended = new Promise<NodeJS.Signals | null>((done) => child.on('exit', (_, by) => done(by)));
  const writes = (): boolean => readdirSync(dir).some((name) => name.endsWith('.tmp'));
  await until(() => child.exitCode !== null || writes(), `${args[0]} writes`);
  child.kill(signal);
  assert.equal(await ended, signal, stderr);
  assert.match(stderr, new RegExp(`${args[0]}: interrupted; nothing was written`));
  assert.deepEqual(readdirSync(dir), before);
}

/** Runs a command on a full disk, simulated by a file size limit of 2 MiB. It must exit with 2 and leave no files. */
export function onFullDisk(dir: string, args: readonly string[], next = ''): void {
  const before = readdirSync(dir);
  const command = `trap '' XFSZ; ulimit -f 2048; exec "$0" "$@"`;
  const words = ['-c', command, process.execPath, commandPath(), ...args];
  const { status, stderr } = spawnSync('bash', words, { encoding: 'utf8' });
  assert.equal(status, 2, stderr);
  assert.match(stderr, /expected to be able to write, got a file that is larger than the system allows/);
  assert.ok(stderr.includes(next), stderr);
  assert.deepEqual(readdirSync(dir), before);
}
