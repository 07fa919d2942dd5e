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
export interface DecoderSession extends Session {
  readonly sequence: Sequence;
  /** Appends tokens and returns the hidden states after the final norm, `[tokens, hidden]`. */
  hidden(tokens: readonly number[] | Int32Array): Promise<Float32Array>;
}

/** @param onClose - called once, when the session is disposed */
export function sessionOf(
  config: DecoderConfig,
  capacity: number,
  sequence: Sequence,
  onClose: () => void,
): DecoderSession {
  let busy: string | undefined;
  /** Whether the caller gave positions. The cache does not hold them: it cannot shift, and later tokens need theirs. */
  let ownPositions = false;
  let closed = false;
  const checkOpen = (): void => {
    if (closed) fail('DEVICE', 'session', 'it was disposed. Open another one: model.openSession().');
  };
  const checkFree = (what: string): void => {
    checkOpen();
    if (busy !== undefined)
      fail('UNSUPPORTED', `${what}: session`, `it is in the middle of ${busy}. Await ${busy} first.`);
  };
  const alone = async <T>(what: string, work: () => Promise<T>): Promise<T> => {
    checkFree(what);
    busy = what;
    try {
      return await work();
    } finally {
      busy = undefined;
    }
  };
  const run = async (
    given: readonly number[] | Int32Array,
    wanted: Wanted,
    signal: AbortSignal | undefined,
    givenPositions?: AppendOptions['positions'],
  ): Promise<Float32Array> => {
    const { hiddenSize, vocabSize } = config;
    const tokens = tokensOf(given, vocabSize, 'append: tokens');
    const positions = givenPositions && positionsOf(givenPositions, tokens.length, config, capacity);
    const room = capacity - sequence.length;
    const next = 'Truncate or shift the session, or open one with more context.';
    if (tokens.length > room)
      refuse('RANGE', 'append: tokens', `at most ${room}, the room left of ${capacity}`, tokens.length, next);
    const missing = 'earlier tokens of this session were given positions. Give those of these, too.';
    if (!positions && ownPositions && tokens.length > 0) fail('SHAPE', 'append: positions', missing);
    const width = wanted === 'hidden' ? hiddenSize : vocabSize;
    const all = wanted === 'all' || wanted === 'hidden';
    const result = new Float32Array(width * (all ? tokens.length : wanted === 'last' && tokens.length > 0 ? 1 : 0));
    for (let at = 0; at < tokens.length; at += sequence.chunkTokens) {
      signal?.throwIfAborted();
      checkOpen();
      const chunk = tokens.subarray(at, at + sequence.chunkTokens);
      const before = sequence.length;
      try {
        const isLast = at + chunk.length === tokens.length;
        const own = positions && columnsOf(positions, tokens.length, at, chunk.length);
        const now = wanted === 'last' && !isLast ? 'none' : wanted;
        await sequence.run(chunk, own, now, all ? result.subarray(at * width) : result);
        if (positions) ownPositions = true;
      } catch (error) {
        // Some keys of this piece may be missing. A state may have seen some of its tokens.
        sequence.length = config.recurrent ? 0 : before;
        throw error;
      }
      await pauseIfDue();
    }
    return result;
  };
  return {
    sequence,
    capacity,
    get length() {
      return sequence.length;
    },
    async append(tokens, options = {}) {
      const given = readOptions(options, 'append: options', { logits: true, positions: true, signal: true });
      const { logits = 'last', positions, signal } = given;
      if (logits !== 'last' && logits !== 'all' && logits !== 'none')
        refuse('RANGE', 'append: logits', 'last, all or none', logits);
      checkSignal(signal, 'append');
      return alone('append', () => run(tokens, logits, signal, positions));
    },
    hidden: (tokens) => alone('hidden', () => run(tokens, 'hidden', undefined)),
    truncate(length) {
      checkFree('truncate');
      if (!Number.isInteger(length) || length < 0 || length > sequence.length)
        refuse('RANGE', 'truncate: length', `an integer in [0, length=${sequence.length}]`, length);
      if (config.recurrent && length !== 0 && length !== sequence.length)
        fail('UNSUPPORTED', 'truncate: length', `${statesOf(sequence.length)} Truncate to 0, and append them again.`);
      sequence.length = length;
      if (length === 0) ownPositions = false;
    },
    shift: (from, count) =>
      alone('shift', async () => {
        const { length } = sequence;
        if (!Number.isInteger(from) || from < 0 || from > length)
          refuse('RANGE', 'shift: from', `an integer in [0, length=${length}]`, from);
        const rest = `an integer in [0, ${length - from}], the number of tokens from ${from} on`;
        if (!Number.isInteger(count) || count < 0 || from + count > length)
          refuse('RANGE', 'shift: count', rest, count);
        if (config.recurrent && count > 0)
          fail('UNSUPPORTED', 'shift: session', `${statesOf(length)} Open a session with more context.`);
        const next = 'it was given positions of its own. Open another session.';
        if (ownPositions) fail('UNSUPPORTED', 'shift: session', next);
        const last = `keys of ${config.architecture} are normed after RoPE, so they cannot be rotated back.`;
        if (config.family.qkNormLast) fail('UNSUPPORTED', 'shift: session', last);
        await sequence.shift(from, count);
      }),
    dispose() {
      if (closed) return;
      closed = true;
      sequence.dispose();
      onClose();
    },
  };
}

/** Says why tokens of a model with states cannot be taken back. */
function statesOf(length: number): string {
  return `layers of this model have a state, which has seen all ${length} tokens and cannot forget one.`;
}

/** Checks positions, `[tokens]` or `[axes, tokens]`. */
function positionsOf(
  given: readonly number[] | Int32Array,
  tokens: number,
  config: DecoderConfig,
  capacity: number,
): Int32Array {
  const list = readList<number>(given, 'append: positions', 'a list of integers');
  const most = Math.max(1, ...config.layers(capacity).map(({ rope }) => rope?.axes?.sections.length ?? 1));
  const axes = list.length / tokens;
  const allowed = most === 4 ? [1, 3, 4] : most === 1 ? [1] : [1, most];
  if (tokens > 0 && !allowed.includes(axes)) {
    const shapes = allowed.map((count) => (count === 1 ? `[tokens=${tokens}]` : `[${count}, ${tokens}]`));
    const got = Number.isInteger(axes) ? [axes, tokens] : [list.length];
    refuse('SHAPE', 'append: positions', `shape ${shapes.join(' or ')}`, got);
  }
  return checkedList(list, MAX_POSITION, `an integer in [0, ${MAX_POSITION}]`, 'append: positions');
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
  return checkedList(readList<number>(given, where), vocabSize - 1, `an id in [0, vocabulary=${vocabSize})`, where);
}

function checkedList(list: ArrayLike<number>, most: number, expected: string, where: string): Int32Array {
  const checked = new Int32Array(list.length);
  for (let n = 0; n < list.length; n++) {
    const value = list[n]!;
    if (!Number.isInteger(value) || value < 0 || value > most) refuse('RANGE', `${where}[${n}]`, expected, value);
    checked[n] = value;
  }
  return checked;
}
