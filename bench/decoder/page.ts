/**
 * The code that runs in Chromium: Ropewalk and wllama run one file in one page.
 *
 * @module
 */
import type { Contender } from './contender.js';
import { type DecoderSession, type Effort, measureAll, profileOf, type Workload } from './measure.js';
import { openOurs } from './ours.js';
import { openWllama } from './wllama.js';

/** The parameters of the page. */
export interface PageTask {
  /** The browser with its version. */
  readonly where: string;
  readonly threads: number;
  readonly context: number;
  readonly workloads: readonly Workload[];
  readonly effort: Effort;
  /** The version of wllama, or the reason why it is left out. It is undefined when wllama is not wanted. */
  readonly wllama?: { readonly version: string } | { readonly leftOut: string };
}

/**
 * Loads the model in both libraries and times them.
 *
 * @param task - comes from the process in Node
 */
export async function runInPage({
  where,
  threads,
  context,
  workloads,
  effort,
  wllama,
}: PageTask): Promise<DecoderSession> {
  const response = await fetch('/model.gguf');
  if (!response.ok) throw new Error(`/model.gguf: ${response.status}`);
  const blob = await response.blob();
  const setup = { threads, context };
  const ours = await openOurs({ 'model.gguf': blob }, setup);
  const peer =
    wllama && ('version' in wllama ? await openWllama('/wllama/', wllama.version, blob, setup) : wllama.leftOut);
  const contenders: Contender[] = [ours, ...(peer && typeof peer !== 'string' ? [peer] : [])];
  const results = await measureAll(contenders, workloads, ours.model.tokenizer, effort, (label) => console.log(label));
  const profile = await profileOf(ours, workloads[0]!);
  for (const contender of contenders) await contender.close();
  const setups = {
    ropewalk: ours.setup,
    ...(peer && { wllama: typeof peer === 'string' ? `left out: ${peer}` : peer.setup }),
  };
  return { where, threads, setups, workloads: results, profile };
}
