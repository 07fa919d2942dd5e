/**
 * Times contenders on one model, run by run in turns, so that a disturbance of a shared machine meets them alike.
 *
 * @module
 */
import type { Contender, Prompt, Sample } from './contender.js';
import type { Model } from './library.js';
import type { Ours, Profile } from './ours.js';

/** A workload: a prompt, then steps. */
export interface Workload {
  readonly prompt: number;
  readonly steps: number;
}

/** How often. */
export interface Effort {
  /** Timed runs of each contender, after one that is not. */
  readonly runs: number;
  /** No further round starts after so long, once there are three. */
  readonly budgetMs: number;
  /** Between runs: llama.cpp's threads spin for a while after one. */
  readonly pauseMs: number;
}

export const FULL_EFFORT: Effort = { runs: 7, budgetMs: 30_000, pauseMs: 200 };
export const QUICK_EFFORT: Effort = { runs: 1, budgetMs: 0, pauseMs: 0 };
const FEWEST_RUNS = 3;

/** Tokens a second, of several runs. */
export interface Pace {
  readonly median: number;
  readonly slowest: number;
  readonly fastest: number;
}

/** A contender on a workload. */
export interface Result {
  readonly contender: Contender['name'];
  readonly runs: number;
  readonly prefill: Pace;
  readonly decode: Pace;
  /**
   * Greedy tokens that are ours, before the first that is not, of how many; a peer that rounds activations to 8 bits
   * parts ways sooner or later.
   */
  readonly agreed?: { readonly tokens: number; readonly of: number };
}

/** All contenders on a workload. */
export interface WorkloadResult extends Workload {
  readonly results: readonly Result[];
}

/** A process of its own that loads a model and runs it once. */
export interface Load {
  /** From the path of the file until a run can begin. */
  readonly loadMs: number;
  /** The most memory that the process had, mapped files included, until the run was over. */
  readonly peakBytes: number;
}

/** How a contender loads: the first time, when what it keeps on disk is not there yet, and the second time. */
export interface LoadResult {
  readonly contender: Contender['name'];
  readonly first: Load;
  /** None with --quick. */
  readonly again?: Load;
}

/** A model with some threads, in one place. */
export interface DecoderSession {
  readonly where: string;
  readonly threads: number;
  /** Versions and set-ups by contender, and why one is left out. */
  readonly setups: Readonly<Record<string, string>>;
  readonly workloads: readonly WorkloadResult[];
  /** In Node. */
  readonly loads?: readonly LoadResult[];
  readonly profile?: { readonly prefill: Profile; readonly decode: Profile };
}

/**
 * Times all contenders.
 *
 * @param contenders - ours is the first
 * @param workloads - each within the contenders' room
 * @param tokenizer - of the model
 * @param effort - how often
 * @param progress - called with the name of what runs
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
 * Finds where our time goes, after the rounds have warmed everything up.
 *
 * @param ours - Ropewalk
 * @param workload - what is run
 */
export function profileOf(ours: Ours, { prompt, steps }: Workload): Promise<{ prefill: Profile; decode: Profile }> {
  return ours.profile(promptOf(prompt, ours.model.tokenizer), steps);
}

/** A text of this many tokens, the same everywhere: nonsense of small letters, which every vocabulary has. */
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
