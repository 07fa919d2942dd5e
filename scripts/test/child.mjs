/**
 * run.mjs loads this file into each test process. Here `assert.ok` without a message fails at once: Node would look for
 * the expression in the source, by its place in the compiled file, and parse that over and over for minutes. When the process ends, it writes the CPU time of the process and its
 * children, the time of a fixed piece of work, which tells a slow machine from a slow test, and Node's warnings about
 * things that were left open.
 */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { isMainThread } from 'node:worker_threads';

const { ok } = assert;
assert.ok = (value, message = 'the expression is falsy') => ok(value, message);

const file = process.env.ROPEWALK_TEST_USAGE;
if (isMainThread && file !== undefined) {
  delete process.env.ROPEWALK_TEST_USAGE; // the processes that tests start must not write it too
  const leaks = [];
  process.on('warning', ({ message }) => /garbage collection|memory leak/.test(message) && leaks.push(message));
  process.on('exit', () => writeFileSync(file, JSON.stringify({ cpu: cpuSeconds(), yardstick: yardstick(), leaks })));
}

/** Returns user and system time in seconds. On Linux it includes the children that have ended. */
function cpuSeconds() {
  try {
    // The fields are utime, stime, cutime and cstime in hundredths of a second. The name before them may contain
    // spaces.
    const stat = readFileSync('/proc/self/stat', 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0) / 100;
  } catch {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1e6;
  }
}

/** Returns the CPU milliseconds of a fixed piece of work: the mean of five rounds, after three warm-up rounds. */
function yardstick() {
  const values = new Float64Array(4096);
  let before;
  for (let round = 0; round < 8; round++) {
    if (round === 3) before = process.cpuUsage();
    for (let pass = 0; pass < 40; pass++)
      for (let n = 0; n < values.length; n++) values[n] = Math.sin(n + pass) + values[(n * 7) & 4095] * 0.5;
  }
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 5e3;
}
