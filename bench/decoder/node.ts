/**
 * Runs a model in Node: Ropewalk beside llama.cpp's native build.
 *
 * @module
 */
import { openAsBlob } from 'node:fs';
import type { Contender } from './contender.js';
import { openLlama } from './llama.js';
import { type DecoderSession, type Effort, measureAll, profileOf, type Workload } from './measure.js';
import { openOurs } from './ours.js';

/** What is asked of Node. */
export interface NodeTask {
  /** Path of a GGUF. */
  readonly model: string;
  readonly threads: number;
  readonly context: number;
  readonly workloads: readonly Workload[];
  readonly effort: Effort;
  readonly askLlama: boolean;
}

/**
 * Loads the model twice, and times.
 *
 * @param task - what is asked
 * @param progress - called with the name of what runs
 */
export async function runInNode(task: NodeTask, progress: (label: string) => void): Promise<DecoderSession> {
  const { model, threads, context, workloads, effort, askLlama } = task;
  const ours = await openOurs({ 'model.gguf': await openAsBlob(model) }, { threads, context });
  const peer = askLlama ? await openPeer(model, { threads, context }) : undefined;
  const contenders: Contender[] = [ours, ...(peer && typeof peer !== 'string' ? [peer] : [])];
  const results = await measureAll(contenders, workloads, ours.model.tokenizer, effort, progress);
  const profile = await profileOf(ours, workloads[0]!);
  for (const contender of contenders) await contender.close();
  const setups = {
    ropewalk: ours.setup,
    ...(peer && { 'node-llama-cpp': typeof peer === 'string' ? `left out: ${peer}` : peer.setup }),
  };
  return { where: `Node ${process.version}`, threads, setups, workloads: results, profile };
}

async function openPeer(...asked: Parameters<typeof openLlama>): Promise<Contender | string> {
  try {
    return await openLlama(...asked);
  } catch (reason) {
    return `it does not load here: ${reason instanceof Error ? reason.message : reason}`;
  }
}
