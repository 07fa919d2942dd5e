/**
 * A run of tokens: batches in, logits out, and its KV cache.
 *
 * @module
 */
import { readList, readOptions, refuse } from 'ropewalk/backend';
import { checkSignal } from './arguments.js';
import { type Decoder, finalNorm, forward, logitsOf } from './decoder.js';
import { pauseIfDue } from './event-loop.js';
import { KvCache } from './kv-cache.js';
import { type CacheDtype, CHUNK_TOKENS, logitRows } from './memory.js';
import type { AppendOptions, Session } from './types.js';

/** What an append gives back: nothing, logits of the last token, of all, or all hidden states. */
type Wanted = 'none' | 'last' | 'all' | 'hidden';

/** The session. {@link Model.openSession} opens it. */
export class DecoderSession implements Session {
  /** Visible for tests. */
  readonly cache: KvCache;
  private busy: string | undefined;
  private closed = false;

  /**
   * @param decoder - what runs
   * @param capacity - tokens of room
   * @param cacheDtype - how keys and values are stored
   * @param onClose - called once, when it is disposed
   */
  constructor(
    private readonly decoder: Decoder,
    capacity: number,
    cacheDtype: CacheDtype,
    private readonly onClose: (session: DecoderSession) => void = () => {},
  ) {
    this.cache = new KvCache(decoder.runner, decoder.config, capacity, cacheDtype);
  }

  get length(): number {
    return this.cache.length;
  }

  get capacity(): number {
    return this.cache.capacity;
  }

  async append(tokens: readonly number[] | Int32Array, options: AppendOptions = {}): Promise<Float32Array> {
    const { logits = 'last', signal } = readOptions(options, 'append: options');
    if (logits !== 'last' && logits !== 'all' && logits !== 'none')
      refuse('RANGE', 'append: logits', 'last, all or none', logits);
    checkSignal(signal, 'append');
    return this.alone('append', () => this.run(tokens, logits, signal));
  }

  /**
   * Appends tokens, as {@link append}.
   *
   * @returns hidden states after the final norm, `[tokens, hidden]`
   */
  hidden(tokens: readonly number[] | Int32Array): Promise<Float32Array> {
    return this.alone('hidden', () => this.run(tokens, 'hidden', undefined));
  }

  truncate(length: number): void {
    this.checkFree('truncate');
    if (!Number.isInteger(length) || length < 0 || length > this.length)
      refuse('RANGE', 'truncate: length', `an integer in [0, ${this.length}], the tokens that are there`, length);
    this.cache.length = length;
  }

  shift(from: number, count: number): Promise<void> {
    return this.alone('shift', async () => {
      const { length } = this;
      if (!Number.isInteger(from) || from < 0 || from > length)
        refuse('RANGE', 'shift: from', `an integer in [0, ${length}], the tokens that are there`, from);
      if (!Number.isInteger(count) || count < 0 || from + count > length)
        refuse('RANGE', 'shift: count', `an integer in [0, ${length - from}], the tokens from ${from} on`, count);
      this.cache.shift(from, count);
      await this.decoder.runner.finish();
    });
  }

  dispose(): void {
    if (this.closed) return;
    this.closed = true;
    this.cache.dispose();
    this.onClose(this);
  }

  private async run(
    given: readonly number[] | Int32Array,
    wanted: Wanted,
    signal: AbortSignal | undefined,
  ): Promise<Float32Array> {
    const { config } = this.decoder;
    const tokens = tokensOf(given, config.vocabSize);
    const room = this.capacity - this.length;
    if (tokens.length > room) {
      const next = 'Truncate or shift the session, or open one with more context.';
      refuse('RANGE', 'append: tokens', `at most ${room}, the room left of ${this.capacity}`, tokens.length, next);
    }
    const width = wanted === 'hidden' ? config.hiddenSize : config.vocabSize;
    const all = wanted === 'all' || wanted === 'hidden';
    const result = new Float32Array(width * (all ? tokens.length : wanted === 'last' && tokens.length > 0 ? 1 : 0));
    for (let at = 0; at < tokens.length; at += CHUNK_TOKENS) {
      signal?.throwIfAborted();
      this.checkOpen();
      const chunk = tokens.subarray(at, at + CHUNK_TOKENS);
      const before = this.length;
      try {
        await this.runChunk(
          chunk,
          wanted,
          at + chunk.length === tokens.length,
          all ? result.subarray(at * width) : result,
        );
      } catch (error) {
        this.cache.length = before; // its keys may not be there
        throw error;
      }
      await pauseIfDue();
    }
    return result;
  }

  /** Everything that uses the shared scratch memory is queued before anything is awaited: sessions take turns. */
  private runChunk(chunk: Int32Array, wanted: Wanted, isLast: boolean, result: Float32Array): Promise<unknown> {
    const { decoder } = this;
    const x = forward(decoder, chunk, this.cache); // [t, h]
    if (wanted === 'none' || (wanted === 'last' && !isLast)) return decoder.runner.finish();
    if (wanted === 'hidden') return settle(finalNorm(decoder, x).read(), result, 0);
    if (wanted === 'last')
      return settle(logitsOf(decoder, x.slice(0, chunk.length - 1, chunk.length)).read(), result, 0);
    const { vocabSize } = decoder.config;
    const rows = logitRows(vocabSize);
    const parts: Promise<void>[] = [];
    for (let row = 0; row < chunk.length; row += rows) {
      const part = x.slice(0, row, Math.min(row + rows, chunk.length));
      parts.push(settle(logitsOf(decoder, part).read(), result, row * vocabSize));
    }
    return Promise.all(parts);
  }

  private async alone<T>(what: string, work: () => Promise<T>): Promise<T> {
    this.checkFree(what);
    this.busy = what;
    try {
      return await work();
    } finally {
      this.busy = undefined;
    }
  }

  private checkFree(what: string): void {
    this.checkOpen();
    if (this.busy !== undefined)
      refuse(
        'UNSUPPORTED',
        `${what}: session`,
        'one at rest',
        `one in the middle of ${this.busy}`,
        `Await ${this.busy} first.`,
      );
  }

  private checkOpen(): void {
    if (this.closed)
      refuse('DEVICE', 'session', 'an open one', 'one that was disposed', 'Open another: model.openSession().');
  }
}

async function settle(values: Float32Array | Promise<Float32Array>, to: Float32Array, at: number): Promise<void> {
  to.set(values instanceof Promise ? await values : values, at);
}

function tokensOf(given: readonly number[] | Int32Array, vocabSize: number): Int32Array {
  if (typeof given !== 'object' || given === null) refuse('RANGE', 'append: tokens', 'a list', given);
  const list = readList<number>(given, 'append: tokens');
  const tokens = new Int32Array(list.length);
  for (let n = 0; n < list.length; n++) {
    const token = list[n]!;
    if (!Number.isInteger(token) || token < 0 || token >= vocabSize)
      refuse('RANGE', `append: tokens[${n}]`, `an id in [0, vocabulary=${vocabSize})`, token);
    tokens[n] = token;
  }
  return tokens;
}
