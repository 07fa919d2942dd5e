/**
 * The command: npm run bench -- [options]. See README.md.
 *
 * @module
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Beside, SessionResult } from '@ropewalk/bench/internal';
import { exitCodeOf, rooflinePicture } from '@ropewalk/bench/internal/node';
import { describeMachine, printReport, type Report } from '@ropewalk/bench/node';
import { Command, InvalidArgumentError, Option } from 'commander';
import { commit, isChild, parseThreads, runInChild, serveAsChild } from './child.js';
import type { AdapterName } from './chromium.js';
import { CPU_PEERS, GPU_PEERS, PEER_NAMES, type PeerName, WEBNN_PEERS } from './peers/peer.js';
import { showProgress } from './progress.js';
import type { SessionOptions } from './rivals.js';
import { VERSION } from './version.js';

interface Options extends Omit<SessionOptions, 'peers'> {
  readonly threads: readonly number[];
  readonly peers?: readonly PeerName[];
  readonly where: 'node' | 'chromium';
  readonly adapter?: AdapterName;
  readonly json?: string;
  readonly svg?: string;
}

/** The task of a child process. */
interface Task {
  /** The number of threads, or 0 when a GPU computes. */
  readonly threads: number;
  readonly options: SessionOptions;
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
  const command = new Command('bench')
    .description('Measures Ropewalk beside a copy of the same bytes, plain TypeScript and other libraries.')
    .option('--quick', 'one call of each case on small shapes: shows that everything runs, not how fast', false)
    .option('--only <regex>', 'cases whose label matches', parseOnly)
    .option('--threads <list>', 'numbers of threads', parseThreads, [1, 2])
    .option(
      '--peers <list>',
      `none, or of ${CPU_PEERS.join(',')}; ${GPU_PEERS} for webgpu; ${WEBNN_PEERS} for webnn`,
      parsePeers,
    )
    .addOption(
      new Option('--backend <name>', 'what computes').choices(['cpu', 'webgpu', 'webnn', 'reference']).default('cpu'),
    )
    .addOption(
      new Option('--where <place>', 'of webgpu; webnn runs in chromium').choices(['node', 'chromium']).default('node'),
    )
    .addOption(
      new Option('--adapter <name>', 'of webgpu in Chromium; the default, else swiftshader, unless given').choices([
        'default',
        'swiftshader',
      ]),
    )
    .option('--json <file>', 'write all numbers, as bench/results/DATE-LABEL.json')
    .option('--svg <file>', 'draw the roofline of the first number of threads; not of webgpu')
    .option('--decoder', 'whole models instead, with options of their own: --decoder --help')
    .exitOverride(({ exitCode }) => process.exit(exitCode && 2)) // exit code 1 means wrong results
    .parse();
  const options = command.opts<Options>();
  const webgpu = options.backend === 'webgpu';
  const webnn = options.backend === 'webnn';
  const known = peersOf(options.backend);
  const stranger = options.peers?.find((name) => !known.includes(name));
  if (stranger)
    command.error(`--peers: expected of ${known.join(',')} for --backend ${options.backend}, got ${stranger}`);
  if ((webgpu || webnn) && command.getOptionValueSource('threads') === 'cli')
    command.error('--threads: expected --backend cpu: a GPU has none to set, and WebNN chooses its own');
  if ((webgpu || webnn) && options.svg) command.error('--svg: expected --backend cpu: no other peak is measured');
  if (options.adapter && !(webgpu && options.where === 'chromium'))
    command.error(
      '--adapter: expected --backend webgpu --where chromium; in Node the driver decides (VK_ICD_FILENAMES)',
    );
  if (options.where === 'chromium' && !webgpu && !webnn) command.error('--where: expected --backend webgpu or webnn');
  if (webnn && options.where === 'node') command.error('--backend webnn: expected --where chromium: Node has no WebNN');
  return options;
}

function peersOf(backend: string): readonly PeerName[] {
  return backend === 'webgpu' ? GPU_PEERS : backend === 'webnn' ? WEBNN_PEERS : CPU_PEERS;
}

/** Imports the module of the task only here, because the parent process does not need it. */
async function runTask({ threads, options }: Task): Promise<SessionResult> {
  if (threads > 0) {
    const { runCpuSession } = await import('@ropewalk/bench/node');
    const progress = (label: string): void => showProgress(`${threads} threads: ${label}`);
    return runCpuSession(options.backend, threads, options, progress, await openBeside(options, threads));
  }
  const { runGpuSession } = await import('@ropewalk/bench/internal');
  return runGpuSession(options, `Node ${process.version}`, showProgress, await openBeside(options, 1));
}

async function openBeside(options: SessionOptions, threads: number): Promise<Beside> {
  const { openPeers } = await import('./peers/open.js');
  const { rivalsOf } = await import('./rivals.js');
  const { peers, notes } = await openPeers(options.peers, threads);
  return { rivals: rivalsOf(peers), peerNotes: notes };
}

async function main(): Promise<void> {
  const { threads, json, svg, where, adapter, ...asked } = readOptions();
  const webgpu = asked.backend === 'webgpu';
  const options: SessionOptions = { ...asked, peers: asked.peers ?? peersOf(asked.backend) };
  const machine = { ...describeMachine(VERSION), commit: commit() };
  const sessions: SessionResult[] = [];
  if (where === 'chromium') {
    const { runInChromium, runWebnnInChromium } = await import('./chromium.js');
    const run = webgpu ? runInChromium(options, adapter, showProgress) : runWebnnInChromium(options, showProgress);
    sessions.push(await run);
    showProgress();
  } else {
    for (const count of webgpu ? [0] : threads) {
      const task: Task = { threads: count, options };
      sessions.push(await runInChild(fileURLToPath(import.meta.url), task, `${options.backend}, ${count} threads`));
    }
  }
  const report: Report = { machine, quick: options.quick, sessions };
  console.log(`${printReport(report)}\n\nsink ${sessions.reduce((sum, { sink }) => sum + sink, 0)}`);
  if (json) writeText(json, `${JSON.stringify(report, null, 1)}\n`);
  const [{ peakGflops, ...first }] = sessions as [SessionResult];
  if (svg && peakGflops !== undefined) writeText(svg, rooflinePicture({ ...first, peakGflops }, machine));
  process.exitCode = exitCodeOf(report);
}

function writeText(file: string, text: string): void {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
}

if (isChild) serveAsChild(runTask);
else if (process.argv.includes('--decoder')) await import('./decoder/run.js');
else if (process.argv.includes('--published')) await import('./published/run.js');
else {
  await main().catch((reason) => {
    console.error(reason instanceof Error ? reason.message : reason);
    process.exitCode = 2;
  });
}
