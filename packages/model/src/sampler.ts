/**
 * Logits → the next token: greedy, or drawn with temperature, top-k, top-p, min-p and a repetition penalty.
 *
 * The order is llama.cpp's: repetition penalty, top-k, top-p, min-p, temperature, draw. So top-p and min-p see the
 * probabilities at temperature 1, and a high temperature does not bring back what they removed. (HuggingFace's
 * transformers applies the temperature before top-k, top-p and min-p.)
 *
 * @module
 * @see ggml-org/llama.cpp@001d906 common/common.h, common_params_sampling::samplers
 */
import { fail, refuse } from 'ropewalk/backend';
import { type OptionNames, optionNames, randomFrom, reading, readList, readOptions } from 'ropewalk/internal';

/** The settings of the choice of tokens. Default: every filter is off. */
export interface SamplingOptions {
  /** Divides the logits before the draw. Default: 0, greedy: the likeliest token, of equals the lowest id. */
  readonly temperature?: number;
  /** Keeps this many of the likeliest tokens; 0 keeps all. */
  readonly topK?: number;
  /** Keeps as few of the likeliest tokens as add up to at least this probability; 1 keeps all. */
  readonly topP?: number;
  /** Keeps tokens at least this times as likely as the likeliest; 0 keeps all. */
  readonly minP?: number;
  /** Above 1 makes recent tokens less likely: a positive logit is divided by it, any other is multiplied. */
  readonly repetitionPenalty?: number;
  /**
   * The number of last tokens, prompt included, that the penalty applies to; -1 for all. Default: 64, as in llama.cpp.
   */
  readonly repetitionWindow?: number;
  /** An integer. The same seed, options and logits give the same tokens. Default: a random one. */
  readonly seed?: number;
}

export const SAMPLING_NAMES: OptionNames<SamplingOptions> = /* @__PURE__ */ optionNames(
  'temperature topK topP minP repetitionPenalty repetitionWindow seed',
);

/** Chooses one token after the other. */
export interface Sampler {
  /** The seed in use. */
  readonly seed: number;
  /**
   * Chooses the next token.
   *
   * @param logits - `[vocab]`, float32; read only
   * @param history - the tokens so far, for the repetition penalty
   * @returns the token's id
   * @throws {RopewalkError} RANGE for NaN or +Infinity, or when every logit is -Infinity
   */
  pick(logits: Float32Array, history?: readonly number[]): number;
}

/**
 * Makes a sampler.
 *
 * @param given - options; all are checked here
 * @returns a sampler with its own random numbers
 * @throws {RopewalkError} RANGE, naming the option
 * @example const token = createSampler({ temperature: 0.8, topP: 0.95, seed: 1 }).pick(logits);
 */
export function createSampler(given: SamplingOptions = {}): Sampler {
  const options = readOptions(given, 'sample: options', SAMPLING_NAMES);
  const { temperature = 0, topK = 0, topP = 1, minP = 0, repetitionPenalty = 1, repetitionWindow = 64 } = options;
  const seed = options.seed ?? crypto.getRandomValues(new Uint32Array(1))[0]!;
  const check = (values: object, expected: string, fits: (n: number) => boolean): void => {
    for (const [name, value] of Object.entries(values))
      if (typeof value !== 'number' || !Number.isFinite(value) || !fits(value))
        refuse('RANGE', `sample: ${name}`, expected, value);
  };
  check({ temperature }, 'a number >= 0', (n) => n >= 0);
  check({ topK }, 'an integer >= 0', (n) => Number.isInteger(n) && n >= 0);
  check({ topP, minP }, 'a number in [0, 1]', (n) => n >= 0 && n <= 1);
  check({ repetitionPenalty }, 'a number > 0', (n) => n > 0);
  check({ repetitionWindow }, 'an integer >= -1', (n) => Number.isInteger(n) && n >= -1);
  check({ seed }, 'an integer', Number.isSafeInteger);
  const random = randomFrom(`sample ${seed}`);

  return {
    seed,
    pick(logits, history = []) {
      checkInputs(logits, history);
      const scores = penalised(logits, history, repetitionPenalty, repetitionWindow);
      if (temperature === 0) return likeliest(scores);
      let kept = topK > 0 && topK < scores.length ? largest(scores, topK) : undefined;
      if (topP < 1) kept = topPOf(scores, kept, topP);
      return draw(scores, kept, minP, temperature, random.uniform(0, 1));
    },
  };
}

function checkInputs(logits: Float32Array, history: readonly number[]): void {
  if (!reading('sample: logits', () => logits instanceof Float32Array))
    refuse('RANGE', 'sample: logits', 'a Float32Array', logits);
  for (const id of Array.from(readList(history, 'sample: history', 'a list of tokens')))
    if (typeof id !== 'number') refuse('RANGE', 'sample: history', 'a list of tokens', id);
  if (logits.length === 0) refuse('RANGE', 'sample: logits', 'at least one', 0);
  let highest = Number.NEGATIVE_INFINITY;
  for (let id = 0; id < logits.length; id++) {
    const logit = logits[id]!;
    // This test refuses NaN, too.
    if (!(logit < Number.POSITIVE_INFINITY)) {
      const next = 'The model overflowed or its weights are damaged: try another backend, and a KV cache in f32.';
      fail('RANGE', 'sample: logits', `expected numbers, got ${logit} for token ${id}. ${next}`);
    }
    if (logit > highest) highest = logit;
  }
  if (highest === Number.NEGATIVE_INFINITY)
    fail('RANGE', 'sample: logits', 'they are all -Infinity, so no token can be chosen');
}

/**
 * Divides or multiplies the logits of recent tokens, each once. @see arXiv:1909.05858 (CTRL), section 4.1; llama.cpp
 */
function penalised(logits: Float32Array, history: readonly number[], penalty: number, window: number): Float32Array {
  if (penalty === 1 || window === 0 || history.length === 0) return logits;
  const scores = Float32Array.from(logits);
  for (const id of new Set(window < 0 ? history : history.slice(-window))) {
    if (id < scores.length) scores[id] = logits[id]! > 0 ? logits[id]! / penalty : logits[id]! * penalty;
  }
  return scores;
}

function likeliest(scores: Float32Array): number {
  let best = 0;
  for (let id = 1; id < scores.length; id++) if (scores[id]! > scores[best]!) best = id;
  return best;
}

/**
 * Returns the k likeliest ids, likeliest first, of equals the lower id first. Sorting a vocabulary of 150,000 can take
 * longer than a forward pass; a heap of the k best so far rejects nearly all ids with one comparison.
 */
export function largest(scores: Float32Array | Float64Array, k: number): Int32Array {
  // The worst of the kept ids is on top. Ids come in order, so of equal scores the later one is worse.
  const heap = new Int32Array(k);
  const worse = (a: number, b: number): boolean => scores[a]! < scores[b]! || (scores[a]! === scores[b]! && a > b);
  const sink = (id: number): void => {
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= k) break;
      if (child + 1 < k && worse(heap[child + 1]!, heap[child]!)) child++;
      if (!worse(heap[child]!, id)) break;
      heap[at] = heap[child]!;
      at = child;
    }
    heap[at] = id;
  };
  // The ids 0 … k - 1, sorted worst first, are a heap.
  heap.set(Int32Array.from({ length: k }, (_id, id) => id).sort((a, b) => (worse(a, b) ? -1 : 1)));
  for (let id = k; id < scores.length; id++) if (scores[id]! > scores[heap[0]!]!) sink(id);
  return heap.sort((a, b) => (worse(a, b) ? 1 : -1));
}

/** @param ids - the tokens that are left, likeliest first; undefined for all, by id */
function topPOf(scores: Float32Array, ids: Int32Array | undefined, p: number): Int32Array {
  const { length: count } = ids ?? scores;
  const top = ids ? scores[ids[0]!]! : scores[likeliest(scores)]!;
  let total = 0;
  for (let n = 0; n < count; n++) total += Math.exp(scores[ids ? ids[n]! : n]! - top);
  // A few tokens of a vocabulary usually make up most of the sum, so a few are looked at first.
  for (let look = ids ? count : Math.min(count, 256); ; look = Math.min(count, look * 8)) {
    const sorted = ids ?? largest(scores, look);
    let sum = 1; // exp(0), the likeliest itself
    let kept = 1;
    while (kept < look && sum < p * total) sum += Math.exp(scores[sorted[kept++]!]! - top);
    if (sum >= p * total || look === count) return sorted.subarray(0, kept);
  }
}

/** Draws by inverting the cumulative distribution over the candidates in their order. */
function draw(
  scores: Float32Array,
  ids: Int32Array | undefined,
  minP: number,
  temperature: number,
  uniform: number,
): number {
  const { length: count } = ids ?? scores;
  const idAt = (n: number): number => (ids ? ids[n]! : n);
  const top = ids ? scores[ids[0]!]! : scores[likeliest(scores)]!;
  const least = minP > 0 ? top + Math.log(minP) : Number.NEGATIVE_INFINITY;
  const weight = (n: number): number => {
    const score = scores[idAt(n)]!;
    return score >= least ? Math.exp((score - top) / temperature) : 0;
  };
  let total = 0;
  for (let n = 0; n < count; n++) total += weight(n);
  const target = uniform * total;
  let sum = 0;
  let last = 0;
  for (let n = 0; n < count; n++) {
    const w = weight(n);
    if (w === 0) continue;
    sum += w;
    last = n;
    if (sum > target) break;
  }
  return idAt(last);
}
