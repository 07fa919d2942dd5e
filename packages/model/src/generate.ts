/** Generates text: prefill of the prompt, then token by token until something ends the generation. @module */
import { fail, refuse } from 'ropewalk/backend';
import { type OptionNames, reading, readList, readOptional, readOptions } from 'ropewalk/internal';
import { checkKept, checkModel, checkSignal, checkTypes } from './arguments.js';
import { type ChatMessage, type ChatOptions, renderChat } from './chat.js';
import { createSampler, SAMPLING_NAMES, type Sampler, type SamplingOptions } from './sampler.js';
import { SESSION_NAMES } from './session.js';
import { StopFinder } from './stop-finder.js';
import type { KeptSession, Model, Session, SessionOptions, Tokenizer } from './types.js';

/** A text to continue, a conversation to answer, or tokens. */
export type Prompt = string | readonly ChatMessage[] | { readonly tokens: readonly number[] };

/** Options of {@link generate}. */
export interface GenerateOptions extends SamplingOptions, SessionOptions {
  /** Ends after this many tokens. Default: 256. */
  readonly maxTokens?: number;
  /** Texts that end the generation. They are not part of the result. */
  readonly stop?: string | readonly string[];
  /** Tokens that end the generation, besides the model's own end tokens. */
  readonly stopTokens?: readonly number[];
  /** Continues after the model's end tokens, for measurements. */
  readonly ignoreEos?: boolean;
  /** Ends the generation with reason `abort` and the text so far. */
  readonly signal?: AbortSignal;
  /**
   * The behaviour when the context is full: `stop`, or `shift` (K-shift), which drops the older half of the tokens
   * after the first `keep` and continues. Default: `stop`.
   */
  readonly onFull?: 'stop' | 'shift';
  /** The tokens at the start that a shift never drops. Default: 1, which is BOS. */
  readonly keep?: number;
  /** A session of {@link keepSession}. Tokens that its cache already holds are not computed again. */
  readonly session?: KeptSession;
  /** For a prompt of text: whether BOS comes first. Default: the vocabulary's rule. */
  readonly addBos?: boolean;
  /** For a prompt of text: whether special tokens in it are read as tokens. Default: false. */
  readonly parseSpecial?: boolean;
  /** Options for a prompt of messages. */
  readonly chat?: ChatOptions;
}

const NAMES: OptionNames<GenerateOptions> = {
  ...SAMPLING_NAMES,
  ...SESSION_NAMES,
  maxTokens: true,
  stop: true,
  stopTokens: true,
  ignoreEos: true,
  signal: true,
  onFull: true,
  keep: true,
  session: true,
  addBos: true,
  parseSpecial: true,
  chat: true,
};

/** One token, with the text that it completes. The text is empty inside a character and inside a possible stop text. */
export interface GeneratedToken {
  readonly token: number;
  readonly text: string;
  readonly end?: undefined;
}

/** The last item: the text that was held back, and the result. */
export interface GeneratedEnd {
  readonly token?: undefined;
  readonly text: string;
  readonly end: Generation;
}

/** The result of a generation. */
export interface Generation {
  /**
   * `eos`: the model ended its turn. `stop`: a stop text or stop token came. `length`: maxTokens, or a full context
   * with `onFull: 'stop'`. `abort`: the signal.
   */
  readonly reason: 'stop' | 'length' | 'eos' | 'abort';
  /** The stop text that came. */
  readonly stop?: string;
  /** Whether it ended because the context was full. */
  readonly contextFull: boolean;
  /** The whole text. */
  readonly text: string;
  /** The generated tokens, without an end token, but with those of a stop text. */
  readonly tokens: readonly number[];
  readonly promptTokens: number;
  /** The prompt tokens that a kept session already held. */
  readonly reusedTokens: number;
  /** The tokens that shifts have dropped. */
  readonly shiftedTokens: number;
  /** The sampler's seed. The same seed, prompt and options give the same tokens. */
  readonly seed: number;
  /** The prompt's tokens, and the time until the first generated token. */
  readonly prefill: Pace;
  /** The tokens after the first. The time that the caller takes between items is not counted. */
  readonly decode: Pace;
}

/** Tokens, and the time that they took. */
export interface Pace {
  readonly tokens: number;
  readonly seconds: number;
  /** 0 without tokens. */
  readonly tokensPerSecond: number;
}

/**
 * Opens a session for several calls of {@link generate}, such as the turns of a conversation.
 *
 * @param model - of loadModel
 * @param options - context and dtype of the KV cache
 * @returns a session; the caller disposes it
 * @example const kept = keepSession(model, { context: 2048 });
 */
export function keepSession(model: Model, options: SessionOptions = {}): KeptSession {
  checkModel(model, 'keepSession');
  const session = model.openSession(readOptions(options, 'keepSession: options', SESSION_NAMES));
  return { session, tokens: [], dispose: () => session.dispose() };
}

/** The sessions that a generation uses: a second one would write the same cache. */
const BUSY = /* @__PURE__ */ new WeakSet<Session>();

/** The tokens that end a generation. */
type EndReasons = ReadonlyMap<number, 'eos' | 'stop'>;

/** The options that are checked without a model. */
interface Settings {
  readonly signal: AbortSignal | undefined;
  readonly sampler: Sampler;
  readonly stops: StopFinder;
  readonly maxTokens: number;
  readonly onFull: 'stop' | 'shift';
  readonly keep: number;
}

/**
 * Checks the options that need no model, so that a command can refuse them before it loads a large one.
 *
 * @param options - of {@link generate}
 * @throws {RopewalkError} RANGE, naming the option
 */
export function checkGenerateOptions(options: GenerateOptions): void {
  settingsOf(readOptions(options, 'generate: options', NAMES));
}

function settingsOf(options: GenerateOptions): Settings {
  const { maxTokens = 256, onFull = 'stop', keep = 1, ignoreEos, addBos, parseSpecial } = options;
  for (const [name, value] of Object.entries({ maxTokens, keep }))
    if (!Number.isInteger(value) || value < 0) refuse('RANGE', `generate: ${name}`, 'an integer >= 0', value);
  if (onFull !== 'stop' && onFull !== 'shift') refuse('RANGE', 'generate: onFull', 'stop or shift', onFull);
  checkSignal(options.signal, 'generate');
  checkTypes({ ignoreEos, addBos, parseSpecial }, 'boolean', 'generate');
  const { temperature, topK, topP, minP, repetitionPenalty, repetitionWindow, seed } = options;
  return {
    sampler: createSampler({ temperature, topK, topP, minP, repetitionPenalty, repetitionWindow, seed }),
    stops: new StopFinder(options.stop ?? []),
    signal: options.signal,
    maxTokens,
    onFull,
    keep,
  };
}

/**
 * Generates text.
 *
 * An item comes for each token; the last item has `end`. The `text` of all items together is `end.text`. What was
 * opened is freed when the loop is left early, and after an error.
 *
 * @param model - of loadModel
 * @param prompt - a text, messages (rendered with the model's chat template), or tokens
 * @param given - options
 * @throws {RopewalkError} RANGE for options out of range, a prompt without tokens or longer than the context; what
 *   {@link renderChat} and the sampler throw. Thrown at the first step of the loop
 * @example for await (const { text } of generate(model, 'Once upon')) process.stdout.write(text);
 */
export async function* generate(
  model: Model,
  prompt: Prompt,
  given: GenerateOptions = {},
): AsyncGenerator<GeneratedToken | GeneratedEnd, void, void> {
  checkModel(model, 'generate');
  const options = readOptions(given, 'generate: options', NAMES);
  const { session: kept, context, cacheDtype } = options;
  const settings = settingsOf(options);
  if (kept !== undefined) checkKept(kept, 'generate');
  const apply = 'context and cacheDtype do not apply to a kept session. Give them to keepSession.';
  if (kept && (context !== undefined || cacheDtype !== undefined)) fail('RANGE', 'generate: session', apply);
  const { vocabSize, eosTokens } = model.config;
  const stopTokens = listOf(options.stopTokens ?? [], 'generate: stopTokens');
  checkTokens(stopTokens, 'generate: stopTokens', vocabSize);
  const ends = options.ignoreEos ? [] : [...eosTokens, ...model.tokenizer.eosTokens];
  const ids = tokensOf(model.tokenizer, prompt, options);
  const empty = 'This vocabulary puts no BOS before an empty text.';
  if (ids.length === 0) refuse('RANGE', 'generate: prompt', 'a prompt of at least one token', prompt, empty);
  checkTokens(ids, 'generate: prompt', vocabSize);
  const busy = 'another generation is using it. Wait for its end, or keep a second session.';
  if (kept && BUSY.has(kept.session)) fail('UNSUPPORTED', 'generate: session', busy);

  const session = kept?.session ?? model.openSession({ context, cacheDtype });
  BUSY.add(session);
  try {
    const { capacity } = session;
    const next = 'Shorten the prompt, or give a larger context.';
    if (ids.length > capacity)
      refuse('RANGE', 'generate: prompt', `at most ${capacity} tokens, the session's context`, ids.length, next);
    if (settings.onFull === 'shift' && model.config.recurrent)
      fail('UNSUPPORTED', 'generate: onFull', 'layers of this model have a state, which forgets no token. Use stop.');
    if (settings.onFull === 'shift' && settings.keep > capacity - 2)
      refuse('RANGE', 'generate: keep', `at most ${capacity - 2}, two less than the context`, settings.keep);
    const endReasons = new Map([
      ...stopTokens.map((token) => [token, 'stop'] as const),
      ...ends.map((token) => [token, 'eos'] as const),
    ]);
    yield* run(model, session, kept?.tokens ?? [], ids, { ...settings, endReasons });
  } finally {
    BUSY.delete(session);
    if (!kept) session.dispose();
  }
}

/** @param cached - the tokens in the session's cache; the list follows the cache even after an error */
async function* run(
  model: Model,
  session: Session,
  cached: number[],
  ids: readonly number[],
  { sampler, stops, maxTokens, onFull, keep, signal, endReasons }: Settings & { readonly endReasons: EndReasons },
): AsyncGenerator<GeneratedToken | GeneratedEnd, void, void> {
  const stream = model.tokenizer.stream({ after: ids });
  const history = [...ids];
  const tokens: number[] = [];
  const seconds = { prefill: 0, decode: 0 };
  let text = '';
  let shifted = 0;
  let steps = 0;
  let contextFull = false;
  let reason: Generation['reason'] | undefined;

  /** Runs tokens through the model. @returns undefined when aborted */
  const append = async (batch: readonly number[], phase: 'prefill' | 'decode'): Promise<Float32Array | undefined> => {
    if (signal?.aborted) return undefined;
    const start = performance.now();
    const before = session.length;
    try {
      return await session.append(batch, { signal });
    } catch (error) {
      if (signal?.aborted) return undefined;
      throw error;
    } finally {
      cached.push(...batch.slice(0, Math.max(0, session.length - before)));
      seconds[phase] += (performance.now() - start) / 1000;
    }
  };

  // The tokens of this prompt that the cache holds stay. At least one token runs again, because its logits choose the
  // next.
  let reused = 0;
  while (reused < Math.min(cached.length, session.length, ids.length - 1) && cached[reused] === ids[reused]) reused++;
  // A state cannot go back.
  if (model.config.recurrent && reused < session.length) reused = 0;
  session.truncate(reused);
  cached.length = reused;

  let logits = await append(ids.slice(reused), 'prefill');
  const prefilled = logits ? ids.length - reused : 0;
  if (logits && maxTokens === 0) reason = 'length';
  while (logits && !reason) {
    const token = sampler.pick(logits, history);
    reason = endReasons.get(token);
    if (reason) break;
    history.push(token);
    tokens.push(token);
    const given = stops.push(stream.push(token));
    text += given;
    yield { token, text: given };
    if (stops.found !== undefined) reason = 'stop';
    else if (tokens.length >= maxTokens) reason = 'length';
    else if (signal?.aborted) reason = 'abort';
    else if (session.length >= session.capacity && onFull === 'stop') {
      contextFull = true;
      reason = 'length';
    }
    if (reason) break;
    if (session.length >= session.capacity) {
      // A shift is a pass over all keys. Dropping half of the tokens at once makes shifts rare.
      const dropped = Math.max(1, Math.floor((session.length - keep) / 2));
      await session.shift(keep, dropped);
      cached.splice(keep, dropped);
      shifted += dropped;
    }
    logits = await append([token], 'decode');
    if (logits) steps++;
  }
  // After a stop text no more text comes. Otherwise the text that was held back comes, and an incomplete character.
  const rest = stops.found === undefined ? stops.push(stream.end()) + stops.end() : '';
  text += rest;
  const stop = stops.found;
  yield {
    text: rest,
    end: {
      reason: stop !== undefined ? 'stop' : (reason ?? 'abort'),
      stop,
      contextFull,
      text,
      tokens,
      promptTokens: ids.length,
      reusedTokens: reused,
      shiftedTokens: shifted,
      seed: sampler.seed,
      prefill: pace(prefilled, seconds.prefill),
      decode: pace(steps, seconds.decode),
    },
  };
}

function pace(tokens: number, seconds: number): Pace {
  return { tokens, seconds, tokensPerSecond: tokens > 0 && seconds > 0 ? tokens / seconds : 0 };
}

function tokensOf(tokenizer: Tokenizer, prompt: Prompt, options: GenerateOptions): readonly number[] {
  const { addBos, parseSpecial } = options;
  if (typeof prompt === 'string') return tokenizer.encode(prompt, { parseSpecial, addBos });
  if (reading('generate: prompt', () => Array.isArray(prompt))) {
    const text = renderChat(tokenizer, prompt as readonly ChatMessage[], readOptional(options.chat, 'generate: chat'));
    return tokenizer.encode(text, { parseSpecial: true, addBos: false, addEos: false });
  }
  const { tokens } = reading('generate: prompt', () => ({ ...(prompt as { readonly tokens: readonly number[] }) }));
  if (tokens === undefined) refuse('RANGE', 'generate: prompt', 'a string, a list of messages, or { tokens }', prompt);
  return listOf(tokens, 'generate: prompt.tokens');
}

function listOf(tokens: readonly number[], where: string): number[] {
  return Array.from(readList(tokens, where, 'a list of tokens'));
}

function checkTokens(tokens: readonly number[], where: string, vocabSize: number): void {
  for (const token of tokens)
    if (!Number.isInteger(token) || token < 0 || token >= vocabSize)
      refuse('RANGE', where, `tokens in [0, vocabulary=${vocabSize})`, token);
}
