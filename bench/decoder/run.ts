/**
 * The command: npm run bench -- --decoder [options]. See ../README.md.
 *
 * @module
 */
import { existsSync, mkdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describeMachine } from '@ropewalk/bench/node';
import { readGgufHeader } from '@ropewalk/formats/node';
import { Command, InvalidArgumentError, Option } from 'commander';
import { commit, isChild, parseThreads, runInChild, serveAsChild } from '../child.js';
import { showProgress } from '../progress.js';
import { VERSION } from '../version.js';
import {
  type DecoderSession,
  type Effort,
  FULL_EFFORT,
  type Load,
  type LoadResult,
  QUICK_EFFORT,
  type Workload,
} from './measure.js';
import type { LoadTask, NodeContender, NodeTask } from './node.js';
import { type DecoderReport, type ModelReport, printDecoderReport } from './report.js';
import { BLOCK_TYPES, syntheticPath, writeSyntheticModel } from './synthetic-model.js';

interface Options {
  readonly model?: readonly string[];
  readonly threads: readonly number[];
  readonly where: 'both' | 'node' | 'chromium';
  readonly peers: boolean;
  readonly quick: boolean;
  readonly json?: string;
}

const FULL: readonly Workload[] = [
  { prompt: 128, steps: 64 },
  { prompt: 384, steps: 64 },
];
/** The workloads of a model that takes seconds for a prompt. */
const FULL_OF_LARGE: readonly Workload[] = [{ prompt: 128, steps: 32 }];
const LARGE_BYTES = 1e8;
/** The context has this much more room, because wllama stops a token early when the text fits exactly. */
const SPARE_TOKENS = 16;
const QUICK: readonly Workload[] = [{ prompt: 16, steps: 4 }];
/** Our own contenders in Node. */
const OURS: readonly NodeContender[] = ['ropewalk', 'ropewalk, q8', 'ropewalk, onnxruntime'];
/** The folder for the files that ONNX Runtime reads. Git ignores it. */
const CACHE = fileURLToPath(new URL('../../.scratch/bench/cache', import.meta.url));
/** The small models: one that others trained, and the bundled one. */
const SMALL = ['../../test/fixtures/models/stories260K/model-q8_0.gguf', '../../models/marline/model-q8_0.gguf'].map(
  (path) => fileURLToPath(new URL(path, import.meta.url)),
);

function parseModel(path: string, before: readonly string[] = []): string[] {
  if (!/\.gguf$/i.test(path) || !existsSync(path)) throw new InvalidArgumentError(`expected a .gguf file, got ${path}`);
  return [...before, path];
}

function readOptions(): Options {
  const command = new Command('bench --decoder')
    .description(
      'Measures whole models, on our kernels and on ONNX Runtime, beside llama.cpp and transformers.js in Node, and wllama in Chromium.',
    )
    .option('--decoder', 'this')
    .option(
      '--model <file>',
      'a GGUF; may be given again. The small models and half a billion random weights, in q8_0 and q4_0, unless given',
      parseModel,
    )
    .option('--threads <list>', 'numbers of threads', parseThreads, [1, 2])
    .addOption(new Option('--where <place>', 'where to run').choices(['both', 'node', 'chromium']).default('both'))
    .option('--no-peers', 'without llama.cpp and transformers.js')
    .option('--quick', 'one short run each: shows that everything runs, not how fast', false)
    .option('--json <file>', 'write all numbers, as bench/results/DATE-LABEL.json')
    .exitOverride(({ exitCode }) => process.exit(exitCode && 2))
    .parse();
  return command.opts<Options>();
}

/** Imports the module of the task only here, because the parent process does not need it. */
async function runTask(task: NodeTask | LoadTask): Promise<DecoderSession | { load: Load | undefined }> {
  const { measureLoad, runInNode } = await import('./node.js');
  return 'load' in task ? { load: await measureLoad(task) } : runInNode(task, showProgress);
}

/** Measures how each library loads the model, each time in a separate process. */
async function runLoads({ workloads, ...task }: NodeTask, quick: boolean): Promise<LoadResult[]> {
  const results: LoadResult[] = [];
  for (const load of task.contenders) {
    const what = `${task.model}, ${load}, ${task.threads} threads`;
    const once = async (): Promise<Load | undefined> => {
      showProgress(`loading ${what}`);
      const asked: LoadTask = { ...task, load, workload: workloads[0]! };
      return (await runInChild<LoadTask, { load: Load | undefined }>(fileURLToPath(import.meta.url), asked, what)).load;
    };
    const first = await once();
    if (first) results.push({ contender: load, first, again: quick ? undefined : await once() });
  }
  return results;
}

async function runModel(model: string, options: Options): Promise<ModelReport> {
  const effort: Effort = options.quick ? QUICK_EFFORT : FULL_EFFORT;
  const sizeBytes = statSync(model).size;
  const { metadata } = await readGgufHeader(model);
  const most = Number(metadata.get(`${metadata.get('general.architecture')}.context_length`));
  const all = options.quick ? QUICK : sizeBytes > LARGE_BYTES ? FULL_OF_LARGE : FULL;
  const roomOf = ({ prompt, steps }: Workload): number => prompt + steps + SPARE_TOKENS;
  const workloads = all.filter((workload) => roomOf(workload) <= most);
  if (workloads.length === 0) {
    const least = Math.min(...all.map(roomOf));
    throw new Error(`bench: ${model}: expected a context_length >= ${least}, got ${most}`);
  }
  const context = Math.max(...workloads.map(roomOf));
  const sessions: DecoderSession[] = [];
  for (const threads of options.threads) {
    const shared = { threads, context, workloads, effort };
    if (options.where !== 'chromium') {
      const task: NodeTask = {
        ...shared,
        model,
        cache: CACHE,
        contenders: options.peers ? [...OURS, 'node-llama-cpp', 'transformers.js'] : OURS,
      };
      rmSync(CACHE, { recursive: true, force: true });
      try {
        const loads = await runLoads(task, options.quick);
        const what = `${model}, ${threads} threads`;
        const session = await runInChild<NodeTask, DecoderSession>(fileURLToPath(import.meta.url), task, what);
        sessions.push({ ...session, loads });
      } finally {
        rmSync(CACHE, { recursive: true, force: true });
      }
    }
    if (options.where !== 'node') {
      const { runInChromium } = await import('./chromium.js');
      sessions.push(await runInChromium(model, { ...shared, askWllama: options.peers }, showProgress));
      showProgress();
    }
  }
  return {
    model: basename(model) === 'model-q8_0.gguf' ? `${basename(dirname(model))}/${basename(model)}` : basename(model),
    sizeBytes,
    sessions,
  };
}

async function main(): Promise<void> {
  const options = readOptions();
  const machine = { ...describeMachine(VERSION), commit: commit() };
  let models = options.model;
  if (!models) {
    models = SMALL.filter((path) => existsSync(path));
    // A file of half a gigabyte is only worth writing when speed is measured.
    for (const type of options.quick ? [] : BLOCK_TYPES) {
      const path = syntheticPath(type);
      if (!existsSync(path))
        writeSyntheticModel(path, type, (share) =>
          showProgress(`writing ${basename(path)}: ${Math.round(100 * share)} %`),
        );
      models = [...models, path];
    }
  }
  const reports: ModelReport[] = [];
  for (const model of models) reports.push(await runModel(model, options));
  const report: DecoderReport = { machine, quick: options.quick, models: reports };
  console.log(printDecoderReport(report));
  if (options.json) {
    mkdirSync(dirname(options.json), { recursive: true });
    writeFileSync(options.json, `${JSON.stringify(report, null, 1)}\n`);
  }
}

if (isChild) serveAsChild(runTask);
else {
  await main().catch((reason) => {
    console.error(reason instanceof Error ? reason.message : reason);
    process.exitCode = 2;
  });
}
