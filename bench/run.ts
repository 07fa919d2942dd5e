/**
 * The command: npm run bench -- [options]. See README.md.
 *
 * @module
 */
import { fork } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Command, InvalidArgumentError } from 'commander';
import { PEER_NAMES, type PeerName } from './peers/peer.js';
import { describeMachine, printReport, type Report } from './report.js';
import { rooflinePicture } from './roofline.js';
import type { SessionOptions, SessionResult } from './session.js';

interface Options extends SessionOptions {
  readonly threads: readonly number[];
  readonly json?: string;
  readonly svg?: string;
}

/** What a child process is sent. */
interface Task {
  readonly threads: number;
  readonly options: SessionOptions;
}

/** Environment variable that makes this file a child, which runs one number of threads. */
const CHILD = 'ROPEWALK_BENCH_CHILD';

function parseThreads(text: string): number[] {
  const threads = text.split(',').map(Number);
  if (!threads.every((count) => Number.isInteger(count) && count >= 1 && count <= 64)) {
    throw new InvalidArgumentError(`expected integers in [1, 64] with commas, got ${text}`);
  }
  return threads;
}

function parsePeers(text: string): PeerName[] {
  if (text === 'none') return [];
  const names = text.split(',');
  for (const name of names) {
    if (!(PEER_NAMES as readonly string[]).includes(name)) {
      throw new InvalidArgumentError(`expected none or ${PEER_NAMES.join(', ')} with commas, got ${name}`);
    }
  }
  return names as PeerName[];
}

function parseOnly(text: string): string {
  try {
    new RegExp(text);
  } catch (reason) {
    throw new InvalidArgumentError(String(reason));
  }
  return text;
}

function readOptions(): Options {
  return new Command('bench')
    .description('Measures Ropewalk beside a copy of the same bytes, plain TypeScript and other libraries.')
    .option('--quick', 'one call of each case on small shapes: shows that everything runs, not how fast', false)
    .option('--only <regex>', 'cases whose label matches', parseOnly)
    .option('--threads <list>', 'numbers of threads', parseThreads, [1, 2])
    .option('--peers <list>', `none, or of ${PEER_NAMES.join(',')}`, parsePeers, [...PEER_NAMES])
    .option('--backend <name>', 'cpu or reference', 'cpu')
    .option('--json <file>', 'write all numbers, as bench/results/DATE-LABEL.json')
    .option('--svg <file>', 'draw the roofline of the first number of threads')
    .parse()
    .opts<Options>();
}

/** Runs each number of threads in its own process: ort-web takes its number once, and no heap is warm from the run before. */
function runInChild(task: Task): Promise<SessionResult> {
  return new Promise((resolve, reject) => {
    const child = fork(fileURLToPath(import.meta.url), { env: { ...process.env, [CHILD]: '1' }, serialization: 'advanced' });
    let result: SessionResult | undefined;
    child.on('message', (message: SessionResult) => {
      result = message;
      child.send('thanks');
    });
    child.on('error', reject);
    child.on('exit', (code) =>
      result ? resolve(result) : reject(new Error(`bench: the process for ${task.threads} threads ended with ${code}`)),
    );
    child.send(task);
  });
}

function serveAsChild(): void {
  process.once('message', async ({ threads, options }: Task) => {
    const showProgress = process.stderr.isTTY;
    try {
      const { runSession } = await import('./session.js'); // the parent never needs it
      const result = await runSession(threads, options, (label) => {
        if (showProgress) process.stderr.write(`\r\x1b[K${threads} threads: ${label}`);
      });
      if (showProgress) process.stderr.write('\r\x1b[K');
      // The peers keep threads of their own alive, so this process has to end itself, once its result has arrived.
      process.once('message', () => process.exit(0));
      process.send!(result);
    } catch (reason) {
      console.error(reason instanceof Error ? reason.message : reason);
      process.exit(1);
    }
  });
}

async function main(): Promise<void> {
  const { threads, json, svg, ...options } = readOptions();
  const machine = describeMachine();
  const sessions: SessionResult[] = [];
  for (const count of threads) sessions.push(await runInChild({ threads: count, options }));
  const report: Report = { machine, quick: options.quick, sessions };
  console.log(printReport(report));
  if (json) writeText(json, `${JSON.stringify(report, null, 1)}\n`);
  if (svg) writeText(svg, rooflinePicture(sessions[0]!, machine));
  if (sessions.some(({ leftOut }) => leftOut.some(({ wrong }) => wrong))) process.exitCode = 1;
}

function writeText(file: string, text: string): void {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
}

if (process.env[CHILD]) serveAsChild();
else {
  await main().catch((reason) => {
    console.error(reason instanceof Error ? reason.message : reason);
    process.exitCode = 2;
  });
}
