/** Checks the calls of a session, and cuts long batches into chunks for its sequence. @module */
import { fail, refuse } from 'ropewalk/backend';
import { type OptionNames, readList, readOptions } from 'ropewalk/internal';
import { checkSignal } from './arguments.js';
import type { Sequence, Wanted } from './engine.js';
import { pauseIfDue } from './event-loop.js';
import type { AppendOptions, DecoderConfig, Session, SessionOptions } from './types.js';

export const SESSION_NAMES: OptionNames<SessionOptions> = { context: true, cacheDtype: true };

/** The largest position: planRope takes i32. */
export const MAX_POSITION = 2 ** 31 - 1;

/** The session that {@link Model.openSession} opens. */
export class DecoderSession implements Session {
  readonly sequence: Sequence;
  readonly capacity: number;
  readonly #config: DecoderConfig;
  readonly #onClose: () => void;
  #busy: string | undefined;
  /** Whether the caller gave positions. The cache does not hold them: it cannot shift, and later tokens need theirs. */
  #ownPositions = false;
  #closed = false;

  /** @param onClose - called once, when the session is disposed */
  constructor(config: DecoderConfig, capacity: number, sequence: Sequence, onClose: () => void) {
    this.#config = config;
    this.capacity = capacity;
    this.sequence = sequence;
    this.#onClose = onClose;
  }

  get length(): number {
    return this.sequence.length;
  }

  async append(tokens: readonly number[] | Int32Array, options: AppendOptions = {}): Promise<Float32Array> {
    const given = readOptions(options, 'append: options', { logits: true, positions: true, signal: true });
    const { logits = 'last', positions, signal } = given;
    if (logits !== 'last' && logits !== 'all' && logits !== 'none')
      refuse('RANGE', 'append: logits', 'last, all or none', logits);
    checkSignal(signal, 'append');
    return this.#alone('append', () => this.#run(tokens, logits, signal, positions));
  }

  /** Appends tokens and returns the hidden states after the final norm, `[tokens, hidden]`. */
  hidden(tokens: readonly number[] | Int32Array): Promise<Float32Array> {
    return this.#alone('hidden', () => this.#run(tokens, 'hidden', undefined));
  }

  truncate(length: number): void {
    this.#checkFree('truncate');
    if (!Number.isInteger(length) || length < 0 || length > this.length)
      refuse('RANGE', 'truncate: length', `an integer in [0, length=${this.length}]`, length);
    this.sequence.length = length;
    if (length === 0) this.#ownPositions = false;
  }

  shift(from: number, count: number): Promise<void> {
    return this.#alone('shift', async () => {
      const { length } = this;
      if (!Number.isInteger(from) || from < 0 || from > length)
        refuse('RANGE', 'shift: from', `an integer in [0, length=${length}]`, from);
      if (!Number.isInteger(count) || count < 0 || from + count > length)
        refuse(
          'RANGE',
          'shift: count',
          `an integer in [0, ${length - from}], the number of tokens from ${from} on`,
          count,
        );
      if (this.#ownPositions)
        fail('UNSUPPORTED', 'shift: session', 'it was given positions of its own. Open another session.');
      await this.sequence.shift(from, count);
    });
  }

  dispose(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.sequence.dispose();
    this.#onClose();
  }

  async #run(
    given: readonly number[] | Int32Array,
    wanted: Wanted,
    signal: AbortSignal | undefined,
    givenPositions?: AppendOptions['positions'],
  ): Promise<Float32Array> {
    const { sequence } = this;
    const { hiddenSize, vocabSize } = this.#config;
    const tokens = tokensOf(given, vocabSize, 'append: tokens');
    const positions = givenPositions && this.#positionsOf(givenPositions, tokens.length);
    const room = this.capacity - this.length;
    if (tokens.length > room) {
      const next = 'Truncate or shift the session, or open one with more context.';
      refuse('RANGE', 'append: tokens', `at most ${room}, the room left of ${this.capacity}`, tokens.length, next);
    }
    if (!positions && this.#ownPositions && tokens.length > 0)
      fail(
        'SHAPE',
        'append: positions',
        'earlier tokens of this session were given positions. Give those of these, too.',
      );
    const width = wanted === 'hidden' ? hiddenSize : vocabSize;
    const all = wanted === 'all' || wanted === 'hidden';
    const result = new Float32Array(width * (all ? tokens.length : wanted === 'last' && tokens.length > 0 ? 1 : 0));
    for (let at = 0; at < tokens.length; at += sequence.chunkTokens) {
      signal?.throwIfAborted();
      this.#checkOpen();
      const chunk = tokens.subarray(at, at + sequence.chunkTokens);
      const before = this.length;
      try {
        const isLast = at + chunk.length === tokens.length;
        const own = positions && columnsOf(positions, tokens.length, at, chunk.length);
        const now = wanted === 'last' && !isLast ? 'none' : wanted;
        await sequence.run(chunk, own, now, all ? result.subarray(at * width) : result);
        if (positions) this.#ownPositions = true;
      } catch (error) {
        sequence.length = before; // some keys of this piece may be missing
        throw error;
      }
      await pauseIfDue();
    }
    return result;
  }

  /** Checks positions, `[tokens]` or `[axes, tokens]`. */
  #positionsOf(given: readonly number[] | Int32Array, tokens: number): Int32Array {
    const list = readList<number>(given, 'append: positions', 'a list of integers');
    const layers = this.#config.layers(this.capacity);
    const most = Math.max(1, ...layers.map(({ rope }) => rope?.axes?.sections.length ?? 1));
    const axes = list.length / tokens;
    const allowed = most === 4 ? [1, 3, 4] : most === 1 ? [1] : [1, most];
    if (tokens > 0 && !allowed.includes(axes)) {
      const shapes = allowed.map((count) => (count === 1 ? `[tokens=${tokens}]` : `[${count}, ${tokens}]`));
      const got = Number.isInteger(axes) ? [axes, tokens] : [list.length];
      refuse('SHAPE', 'append: positions', `shape ${shapes.join(' or ')}`, got);
    }
    const positions = new Int32Array(list.length);
    for (let n = 0; n < list.length; n++) {
      const position = list[n]!;
      if (!Number.isInteger(position) || position < 0 || position > MAX_POSITION)
        refuse('RANGE', `append: positions[${n}]`, `an integer in [0, ${MAX_POSITION}]`, position);
      positions[n] = position;
    }
    return positions;
  }

  async #alone<T>(what: string, work: () => Promise<T>): Promise<T> {
    this.#checkFree(what);
    this.#busy = what;
    try {
      return await work();
    } finally {
      this.#busy = undefined;
    }
  }

  #checkFree(what: string): void {
    this.#checkOpen();
    const busy = this.#busy;
    if (busy !== undefined)
      fail('UNSUPPORTED', `${what}: session`, `it is in the middle of ${busy}. Await ${busy} first.`);
  }

  #checkOpen(): void {
    if (this.#closed) fail('DEVICE', 'session', 'it was disposed. Open another one: model.openSession().');
  }
}

/** Copies columns [at, at + count) of a matrix with rows of `width`. */
export function columnsOf(matrix: Int32Array, width: number, at: number, count: number): Int32Array {
  const columns = new Int32Array((matrix.length / width) * count);
  for (let row = 0; row * width < matrix.length; row++)
    columns.set(matrix.subarray(row * width + at, row * width + at + count), row * count);
  return columns;
}

/** Checks ids and copies them. @throws {RopewalkError} RANGE */
export function tokensOf(given: readonly number[] | Int32Array, vocabSize: number, where: string): Int32Array {
  if (typeof given !== 'object' || given === null) refuse('RANGE', where, 'a list', given);
  const list = readList<number>(given, where);
  const tokens = new Int32Array(list.length);
  for (let n = 0; n < list.length; n++) {
    const token = list[n]!;
    if (!Number.isInteger(token) || token < 0 || token >= vocabSize)
      refuse('RANGE', `${where}[${n}]`, `an id in [0, vocabulary=${vocabSize})`, token);
    tokens[n] = token;
  }
  return tokens;
}
