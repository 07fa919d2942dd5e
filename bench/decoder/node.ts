/**
 * Runs a model in Node: Ropewalk on its own kernels, Ropewalk on ONNX Runtime, llama.cpp's native build, and transformers.js.
 *
 * @module
 */
import { openAsBlob } from 'node:fs';
import type { Activations } from 'ropewalk/internal';
import type { Contender, Setup } from './contender.js';
import { openLlama } from './llama.js';
import { type DecoderSession, type Effort, type Load, measureAll, profileOf, type Workload } from './measure.js';
import { openOnnxruntime } from './onnxruntime.js';
import { type Ours, openOurs } from './ours.js';
import { openTransformers } from './transformers.js';

/** The options with which every library is opened. */
interface Opening extends Setup {
  /** The path of a GGUF file. */
  readonly model: string;
  /** The folder for the files that ONNX Runtime reads. */
  readonly cache: string;
}

/** The task of a session in Node. */
export interface NodeTask extends Opening {
  readonly workloads: readonly Workload[];
  readonly effort: Effort;
  /** The contenders that run. Our own kernels are the first. */
  readonly contenders: readonly NodeContender[];
}

/** The task of a separate process that loads the model in one library and runs it once. */
export interface LoadTask extends Opening {
  readonly load: NodeContender;
  readonly workload: Workload;
}

/** The names of the contenders that run in Node. */
export type NodeContender = Exclude<Contender['name'], 'wllama'>;

const PEERS = {
  'ropewalk, q8': (opening) => openKernels(opening, 'q8'),
  'ropewalk, onnxruntime': ({ model, cache, threads, context }) => openOnnxruntime(model, { threads, context }, cache),
  'node-llama-cpp': ({ model, threads, context }) => openLlama(model, { threads, context }),
  'transformers.js': ({ model, cache, threads, context }) => openTransformers(model, { threads, context }, cache),
} satisfies Record<string, (opening: Opening) => Promise<Contender | string>>;

/**
 * Loads the model in every library and times them.
 *
 * @param task - the model, the contenders and the workloads
 * @param progress - is called with the name of each contender and workload before it runs
 */
export async function runInNode(task: NodeTask, progress: (label: string) => void): Promise<DecoderSession> {
  const { threads, workloads, effort, contenders: asked } = task;
  const ours = await openKernels(task);
  const contenders: Contender[] = [ours];
  const setups: Record<string, string> = { ropewalk: ours.setup };
  for (const name of asked) {
    if (name === 'ropewalk') continue;
    const peer = await openPeer(name, task);
    if (typeof peer === 'string') setups[name] = `left out: ${peer}`;
    else {
      contenders.push(peer);
      setups[name] = peer.setup;
    }
  }
  const results = await measureAll(contenders, workloads, ours.model.tokenizer, effort, progress);
  const profile = await profileOf(ours, workloads[0]!);
  for (const contender of contenders) await contender.close();
  return { where: `Node ${process.version}`, threads, setups, workloads: results, profile };
}

/**
 * Loads the model in one library and runs it once.
 *
 * @returns undefined when the model does not load
 */
export async function measureLoad(task: LoadTask): Promise<Load | undefined> {
  const start = performance.now();
  const contender = await (task.load === 'ropewalk' ? openKernels(task) : openPeer(task.load, task));
  const loadMs = performance.now() - start;
  if (typeof contender === 'string') return undefined;
  // Every vocabulary has these tokens.
  const tokens = Array.from({ length: task.workload.prompt }, (_, n) => 32 + (n % 64));
  await contender.run({ text: '', tokens }, task.workload.steps);
  return { loadMs, peakBytes: 1024 * process.resourceUsage().maxRSS };
}

async function openKernels({ model, threads, context }: Opening, activations?: Activations): Promise<Ours> {
  return openOurs({ 'model.gguf': await openAsBlob(model) }, { threads, context }, activations);
}

async function openPeer(name: keyof typeof PEERS, opening: Opening): Promise<Contender | string> {
  try {
    return await PEERS[name](opening);
  } catch (reason) {
    return `it does not load here: ${reason instanceof Error ? reason.message : reason}`;
  }
}
