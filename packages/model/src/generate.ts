/**
 * Prompt in, text out: prefill, then token by token until something ends it.
 *
 * @module
 */
import { readOptions as copyOptions, reading, readList, readOptional, refuse } from 'ropewalk/backend';
import { checkKept, checkModel, checkSignal, checkTypes } from './arguments.js';
import { type ChatMessage, type ChatOptions, renderChat } from './chat.js';
import { createSampler, type Sampler, type SamplingOptions } from './sampler.js';
import type { Model, Session, SessionOptions, Tokenizer } from './types.js';

/** A text to continue, a conversation to answer, or tokens. */
export type Prompt = string | readonly ChatMessage[] | { readonly tokens: readonly number[] };

/** How {@link generate} generates. */
export interface GenerateOptions extends SamplingOptions, SessionOptions {
  /** Ends after this many tokens; 256 unless given. */
  readonly maxTokens?: number;
  /** Ends before any of these texts, which are not given out. */
  readonly stop?: string | readonly string[];
  /** Ends at any of these tokens too, besides the model's own. */
  readonly stopTokens?: readonly number[];
  /** Goes on past the model's end tokens, for measurements. */
  readonly ignoreEos?: boolean;
  /** Ends it cleanly: reason `abort`, with what was made so far. */
  readonly signal?: AbortSignal;
  /**
   * When the context is full: `stop`, the default, or `shift`, which forgets the older half of what comes after the first
   * `keep` tokens and goes on (K-shift).
   */
  readonly onFull?: 'stop' | 'shift';
  /** Tokens at the start that a shift leaves; 1 unless given, which is BOS. */
  readonly keep?: number;
  /** A session kept from turn to turn, made by {@link keepSession}: what its cache already holds is not computed again. */
  readonly session?: KeptSession;
  /** For a prompt of text: puts BOS first; what the vocabulary says unless given. */
  readonly addBos?: boolean;
  /** For a prompt of text: reads special tokens in it as themselves. */
  readonly parseSpecial?: boolean;
  /** For a prompt of messages. */
  readonly chat?: ChatOptions;
}

/** One token, with the text that it completes; the text is empty inside a character or a possible stop text. */
export interface GeneratedToken {
  readonly token: number;
  readonly text: string;
  readonly end?: undefined;
}

/** The last item: the text still held back, and how it went. */
export interface GeneratedEnd {
  readonly token?: undefined;
  readonly text: string;
  readonly end: Generation;
}

/** How a generation went. */
export interface Generation {
  /**
   * `eos`: the model ended its turn; `stop`: a stop text or token came; `length`: maxTokens, or a full context with
   * `onFull: 'stop'`; `abort`: the signal.
   */
  readonly reason: 'stop' | 'length' | 'eos' | 'abort';
  /** The stop text that came. */
  readonly stop?: string;
  /** True when it ended because the context was full. */
  readonly contextFull: boolean;
  /** The whole text. */
  readonly text: string;
  /** The tokens made. An end token is not among them; those of a stop text are. */
  readonly tokens: readonly number[];
  readonly promptTokens: number;
  /** Prompt tokens that a kept session already held. */
  readonly reusedTokens: number;
  /** Tokens forgotten by shifts. */
  readonly shiftedTokens: number;
  /** Of the sampler: the same seed, prompt and options give the same tokens. */
  readonly seed: number;
  /** The prompt's batch, and its wait until the first token. */
  readonly prefill: Pace;
  /** The tokens after the first, one at a time; the caller's own time between them is not counted. */
  readonly decode: Pace;
}

/** Tokens and time. */
export interface Pace {
  readonly tokens: number;
  readonly seconds: number;
  /** 0 when there were none. */
  readonly tokensPerSecond: number;
}

/** A session and the tokens in its cache, for several calls of {@link generate} on one conversation. */
export interface KeptSession {
  readonly session: Session;
  /** What the cache holds, oldest first; written by {@link generate}. */
  readonly tokens: number[];
  dispose(): void;
}

/**
 * Opens a session that outlives a call of {@link generate}.
 *
 * @param model - opens it
 * @param options - room and type of the KV cache
 * @returns to be disposed by the caller
 */
export function keepSession(model: Model, options: SessionOptions = {}): KeptSession {
  checkModel(model, 'keepSession');
  const session = model.openSession(copyOptions(options, 'keepSession: options'));
  return { session, tokens: [], dispose: () => session.dispose() };
}

/** Sessions with a generation under way: two at once would write the same cache. */
const BUSY = /* @__PURE__ */ new WeakSet<Session>();

/**
 * Reads the options that need no model to be checked, so that a command can refuse them before a large one is loaded.
 *
 * @throws {RopewalkError} RANGE, naming the option
 */
export function readOptions(options: GenerateOptions): {
  readonly sampler: Sampler;
  readonly stops: StopFinder;
  readonly maxTokens: number;
  readonly onFull: 'stop' | 'shift';
  readonly keep: number;
} {
  const { maxTokens = 256, onFull = 'stop', keep = 1 } = options;
  count('maxTokens', maxTokens);
  if (onFull !== 'stop' && onFull !== 'shift') refuse('RANGE', 'generate: onFull', 'stop or shift', onFull);
  count('keep', keep);
  checkSignal(options.signal, 'generate');
  checkTypes(options, ['ignoreEos', 'addBos', 'parseSpecial'], 'boolean', 'generate');
  return { sampler: createSampler(options), stops: new StopFinder(options.stop ?? []), maxTokens, onFull, keep };
}

/**
 * Generates text.
 *
 * Items come as tokens are made; the last one has `end`. Joined, their `text` is `end.text`. A loop that is left early frees
 * what was opened, as does an error.
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
  const options = copyOptions(given, 'generate: options');
  const { signal, session: kept } = options;
  const { sampler, stops, maxTokens, onFull, keep } = readOptions(options);
  checkKept(kept, 'generate');
  if (kept && (options.context !== undefined || options.cacheDtype !== undefined)) {
    const next = 'Give context and cacheDtype to keepSession.';
    refuse(
      'RANGE',
      'generate: session',
      'no context or cacheDtype beside it',
      options.context ?? options.cacheDtype,
      next,
    );
  }
  const stopTokens = new Set(
    Array.from(readList(options.stopTokens ?? [], 'generate: stopTokens', 'a list of tokens')),
  );
  for (const token of stopTokens) tokenOf('stopTokens', token, model.config.vocabSize);
  const ends = new Set(options.ignoreEos ? [] : [...model.config.eosTokens, ...model.tokenizer.eosTokens]);
  const ids = promptTokens(model, prompt, options);
  if (kept && BUSY.has(kept.session)) {
    refuse(
      'UNSUPPORTED',
      'generate: session',
      'one that no other generation uses',
      'one in use',
      'Wait for it to end, or keep another session.',
    );
  }

  const session = kept?.session ?? model.openSession(sessionOptions(options));
  BUSY.add(session);
  const cached = kept?.tokens ?? [];
  try {
    if (ids.length > session.capacity) {
      const next = 'Shorten the prompt, or give a larger context.';
      refuse(
        'RANGE',
        'generate: prompt',
        `at most ${session.capacity} tokens, the session's context`,
        `${ids.length} tokens`,
        next,
      );
    }
    if (onFull === 'shift' && keep > session.capacity - 2) {
      refuse('RANGE', 'generate: keep', `at most ${session.capacity - 2}, two less than the context`, keep);
    }
    yield* run({ model, session, cached, ids, sampler, stops, stopTokens, ends, maxTokens, signal, onFull, keep });
  } finally {
    BUSY.delete(session);
    if (!kept) session.dispose();
  }
}

interface Run {
  readonly model: Model;
  readonly session: Session;
  readonly cached: number[];
  readonly ids: readonly number[];
  readonly sampler: Sampler;
  readonly stops: StopFinder;
  readonly stopTokens: ReadonlySet<number>;
  readonly ends: ReadonlySet<number>;
  readonly maxTokens: number;
  readonly signal: AbortSignal | undefined;
  readonly onFull: 'stop' | 'shift';
  readonly keep: number;
}

async function* run(r: Run): AsyncGenerator<GeneratedToken | GeneratedEnd, void, void> {
  const { model, session, cached, ids, sampler, stops, signal } = r;
  const stream = model.tokenizer.stream({ after: ids });
  const history = [...ids];
  const tokens: number[] = [];
  const times = { prefill: 0, decode: 0 };
  let text = '';
  let shifted = 0;
  let steps = 0;
  let contextFull = false;
  let reason: Generation['reason'] | undefined;

  /** Runs tokens through the model, and keeps `cached` true to the session whatever happens. @returns undefined when aborted */
  const append = async (batch: readonly number[], phase: 'prefill' | 'decode'): Promise<Float32Array | undefined> => {
    if (signal?.aborted) return undefined;
    const start = performance.now();
    const before = session.length;
    try {
      return await session.append(batch, { logits: 'last', ...(signal ? { signal } : {}) });
    } catch (error) {
      if (signal?.aborted) return undefined;
      throw error;
    } finally {
      cached.push(...batch.slice(0, Math.max(0, session.length - before)));
      times[phase] += (performance.now() - start) / 1000;
    }
  };

  // What the cache holds of this very prompt stays; one token at least is run anew, since its logits choose the next one.
  let reused = 0;
  while (reused < Math.min(cached.length, session.length, ids.length - 1) && cached[reused] === ids[reused]) reused++;
  session.truncate(reused);
  cached.length = reused;

  let logits = await append(ids.slice(reused), 'prefill');
  const prefilled = logits ? ids.length - reused : 0;
  if (!logits) reason = 'abort';
  if (!reason && r.maxTokens === 0) reason = 'length';
  while (!reason && logits) {
    const token = sampler.pick(logits, history);
    if (r.ends.has(token)) reason = 'eos';
    else if (r.stopTokens.has(token)) reason = 'stop';
    if (reason) break;
    history.push(token);
    tokens.push(token);
    const given = stops.push(stream.push(token));
    text += given;
    yield { token, text: given };
    if (stops.found !== undefined) reason = 'stop';
    else if (tokens.length >= r.maxTokens) reason = 'length';
    else if (signal?.aborted) reason = 'abort';
    if (reason) break;
    if (session.length >= session.capacity) {
      if (r.onFull === 'stop') {
        contextFull = true;
        reason = 'length';
        break;
      }
      // Half of what may go: a shift costs a pass over all keys, so one token at a time would cost one a token.
      const dropped = Math.max(1, Math.floor((session.length - r.keep) / 2));
      await session.shift(r.keep, dropped);
      cached.splice(r.keep, dropped);
      shifted += dropped;
    }
    steps++;
    logits = await append([token], 'decode');
    if (!logits) {
      steps--;
      reason = 'abort';
    }
  }
  // After a stop text nothing more is given out; else what was held back for one, and a character cut off, come now.
  const rest = stops.found === undefined ? stops.push(stream.end()) + stops.end() : '';
  text += rest;
  const found = stops.found;
  yield {
    text: rest,
    end: {
      reason: found !== undefined ? 'stop' : (reason ?? 'abort'),
      ...(found === undefined ? {} : { stop: found }),
      contextFull,
      text,
      tokens,
      promptTokens: ids.length,
      reusedTokens: reused,
      shiftedTokens: shifted,
      seed: sampler.seed,
      prefill: pace(prefilled, times.prefill),
      decode: pace(steps, times.decode),
    },
  };
}

function pace(tokens: number, seconds: number): Pace {
  return { tokens, seconds, tokensPerSecond: tokens > 0 && seconds > 0 ? tokens / seconds : 0 };
}

function sessionOptions({ context, cacheDtype }: SessionOptions): SessionOptions {
  return { ...(context === undefined ? {} : { context }), ...(cacheDtype === undefined ? {} : { cacheDtype }) };
}

function promptTokens(model: Model, prompt: Prompt, options: GenerateOptions): readonly number[] {
  const { tokenizer } = model;
  const ids = tokensOf(tokenizer, prompt, options);
  if (ids.length === 0) {
    refuse(
      'RANGE',
      'generate: prompt',
      'a prompt of at least one token',
      prompt,
      'This vocabulary puts no BOS before an empty text.',
    );
  }
  for (const id of ids) tokenOf('prompt', id, model.config.vocabSize);
  return ids;
}

function tokensOf(tokenizer: Tokenizer, prompt: Prompt, options: GenerateOptions): readonly number[] {
  const { addBos, parseSpecial = false } = options;
  if (typeof prompt === 'string')
    return tokenizer.encode(prompt, { parseSpecial, ...(addBos === undefined ? {} : { addBos }) });
  if (reading('generate: prompt', () => Array.isArray(prompt))) {
    const text = renderChat(tokenizer, prompt as readonly ChatMessage[], readOptional(options.chat, 'generate: chat'));
    return tokenizer.encode(text, { parseSpecial: true, addBos: false, addEos: false });
  }
  const { tokens } = reading('generate: prompt', () => ({ ...(prompt as { readonly tokens: readonly number[] }) }));
  if (tokens === undefined) refuse('RANGE', 'generate: prompt', 'a text, a list of messages, or { tokens }', prompt);
  return Array.from(readList(tokens, 'generate: prompt.tokens', 'a list of tokens'));
}

function tokenOf(name: string, token: number, vocabSize: number): void {
  if (!Number.isInteger(token) || token < 0 || token >= vocabSize) {
    refuse('RANGE', `generate: ${name}`, `tokens in [0, vocab=${vocabSize})`, token);
  }
}

function count(name: string, value: number): void {
  if (!Number.isInteger(value) || value < 0) refuse('RANGE', `generate: ${name}`, 'an integer >= 0', value);
}

/** Looks for texts in a stream, across the borders of its pieces; gives out what can be no part of one. */
export class StopFinder {
  /** The text that came, once one has. */
  found: string | undefined;
  private held = '';
  private readonly stops: readonly string[];

  /** @throws {RopewalkError} RANGE for an empty text, or none */
  constructor(stops: string | readonly string[]) {
    this.stops =
      typeof stops === 'string' ? [stops] : Array.from(readList(stops, 'generate: stop', 'a text or a list of texts'));
    for (const stop of this.stops) {
      if (typeof stop !== 'string' || stop === '') refuse('RANGE', 'generate: stop', 'texts that are not empty', stop);
    }
  }

  /** @returns the text that is certain not to belong to a stop text; after one was found, nothing */
  push(piece: string): string {
    if (this.found !== undefined) return '';
    const text = this.held + piece;
    let first = -1;
    for (const stop of this.stops) {
      const at = text.indexOf(stop);
      if (at !== -1 && (first === -1 || at < first)) {
        first = at;
        this.found = stop;
      }
    }
    if (first !== -1) {
      this.held = '';
      return text.slice(0, first);
    }
    const hold = Math.max(0, ...this.stops.map((stop) => overlap(text, stop)));
    this.held = text.slice(text.length - hold);
    return text.slice(0, text.length - hold);
  }

  /** @returns what was held back, at the end of the stream */
  end(): string {
    const rest = this.held;
    this.held = '';
    return rest;
  }
}

/** The longest end of `text` that `stop` starts with, short of all of it. */
function overlap(text: string, stop: string): number {
  for (let length = Math.min(text.length, stop.length - 1); length > 0; length--) {
    if (text.endsWith(stop.slice(0, length))) return length;
  }
  return 0;
}
