/**
 * Times contenders on one model. They take turns after each run, so that a disturbance of a shared machine affects all
 * of them alike.
 *
 * @module
 */
import type { Contender, Prompt, Sample } from './contender.js';
import type { Model } from './library.js';
import type { Ours, Profile } from './ours.js';

/** A workload: a prompt of some tokens, then some decoding steps. */
export interface Workload {
  readonly prompt: number;
  readonly steps: number;
}

/** The number of runs and the limits on their time. */
export interface Effort {
  /** The number of timed runs of each contender. One untimed run comes before them. */
  readonly runs: number;
  /** No further round starts after this time, once three rounds are complete. */
  readonly budgetMs: number;
  /** The pause between runs, because llama.cpp's threads spin for a while after a run. */
  readonly pauseMs: number;
}

export const FULL_EFFORT: Effort = { runs: 7, budgetMs: 30_000, pauseMs: 200 };
export const QUICK_EFFORT: Effort = { runs: 1, budgetMs: 0, pauseMs: 0 };
const FEWEST_RUNS = 3;

/** The tokens per second of several runs. */
export interface Pace {
  readonly median: number;
  readonly slowest: number;
  readonly fastest: number;
}

/** The result of one contender on one workload. */
export interface Result {
  readonly contender: Contender['name'];
  readonly runs: number;
  readonly prefill: Pace;
  readonly decode: Pace;
  /**
   * The number of greedy tokens that equal ours before the first difference, and the number of all. A peer that rounds
   * activations to 8 bits differs sooner or later.
   */
  readonly agreed?: { readonly tokens: number; readonly of: number };
}

/** The results of all contenders on one workload. */
export interface WorkloadResult extends Workload {
  readonly results: readonly Result[];
}

/** The measurements of a separate process that loads a model and runs it once. */
export interface Load {
  /** The time from opening the file until a run can begin. */
  readonly loadMs: number;
  /** The largest memory of the process until the end of the run, with mapped files. */
  readonly peakBytes: number;
}

/** The loading of a contender: the first time, when its files on disk do not exist yet, and the second time. */
export interface LoadResult {
  readonly contender: Contender['name'];
  readonly first: Load;
  /** The second loading. It is undefined with --quick. */
  readonly again?: Load;
}

/** The results of one model with one number of threads, in Node or in a browser. */
export interface DecoderSession {
  readonly where: string;
  readonly threads: number;
  /** The version and settings of each contender, or the reason why it is left out. */
  readonly setups: Readonly<Record<string, string>>;
  readonly workloads: readonly WorkloadResult[];
  /** The loading times. Only sessions in Node have them. */
  readonly loads?: readonly LoadResult[];
  readonly profile?: { readonly prefill: Profile; readonly decode: Profile };
}

/**
 * Times all contenders.
 *
 * @param contenders - Ropewalk is the first
 * @param workloads - each must fit into the contenders' context
 * @param tokenizer - the tokenizer of the model
 * @param effort - the number of runs and the limits on their time
 * @param progress - is called with the name of each contender and workload before it runs
 */
export async function measureAll(
  contenders: readonly Contender[],
  workloads: readonly Workload[],
  tokenizer: Model['tokenizer'],
  effort: Effort,
  progress: (label: string) => void,
): Promise<WorkloadResult[]> {
  const done: WorkloadResult[] = [];
  for (const workload of workloads) {
    const prompt = promptOf(workload.prompt, tokenizer);
    const samples = new Map<Contender, Sample[]>();
    const round = async (label: string): Promise<void> => {
      for (const contender of contenders) {
        progress(`prompt ${workload.prompt}, ${workload.steps} steps: ${contender.name}, ${label}`);
        if (effort.pauseMs > 0) await new Promise((resume) => setTimeout(resume, effort.pauseMs));
        const sample = await contender.run(prompt, workload.steps);
        samples.set(contender, [...(samples.get(contender) ?? []), sample]);
      }
    };
    if (effort.runs > 1) await round('warm-up');
    samples.clear();
    const start = performance.now();
    for (let run = 0; run < effort.runs && (run < FEWEST_RUNS || performance.now() - start < effort.budgetMs); run++)
      await round(`run ${run + 1}`);
    const ours = samples.get(contenders[0]!)![0]!.tokens;
    const results = contenders.map((contender): Result => {
      const own = samples.get(contender)!;
      const tokens = own[0]!.tokens;
      return {
        contender: contender.name,
        runs: own.length,
        prefill: paceOf(own.map(({ prefillMs }) => (1000 * workload.prompt) / prefillMs)),
        decode: paceOf(own.map(({ decodeMs }) => (1000 * workload.steps) / decodeMs)),
        ...(contender !== contenders[0] &&
          tokens.length > 0 && { agreed: { tokens: commonPrefix(ours, tokens), of: tokens.length } }),
      };
    });
    done.push({ ...workload, results });
  }
  return done;
}

/**
 * Measures which operators take Ropewalk's time. Call it after the rounds, which have warmed everything up.
 *
 * @param ours - Ropewalk
 * @param workload - the workload that runs
 */
export function profileOf(ours: Ours, { prompt, steps }: Workload): Promise<{ prefill: Profile; decode: Profile }> {
  return ours.profile(promptOf(prompt, ours.model.tokenizer), steps);
}

/** Makes a text of this many tokens, always the same: nonsense of small letters, which every vocabulary has. */
function promptOf(length: number, tokenizer: Model['tokenizer']): Prompt {
  let state = length;
  const random = (below: number): number => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  const word = (): string => Array.from({ length: 1 + random(8) }, () => 'etaoinshrdlu'[random(12)]).join('');
  let text = word();
  while (tokenizer.encode(text).length < length) text += ` ${word()}`;
  let tokens = tokenizer.encode(text);
  while (tokens.length > length) {
    text = text.slice(0, -1);
    tokens = tokenizer.encode(text);
  }
  if (tokens.length !== length)
    throw new Error(`bench: expected a text of ${length} tokens, got one of ${tokens.length}`);
  return { text, tokens };
}

function paceOf(rates: readonly number[]): Pace {
  const sorted = [...rates].sort((a, b) => a - b);
  const middle = (sorted.length - 1) / 2;
  return {
    median: (sorted[Math.floor(middle)]! + sorted[Math.ceil(middle)]!) / 2,
    slowest: sorted[0]!,
    fastest: sorted.at(-1)!,
  };
}

function commonPrefix(a: readonly number[], b: readonly number[]): number {
  let length = 0;
  while (length < a.length && a[length] === b[length]) length++;
  return length;
}
