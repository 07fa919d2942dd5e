/** Computes the logits of every token of a text, a block of rows at a time. @module */
import { refuse } from 'ropewalk/backend';
import { checkInteger, type OptionNames, readList, readOptions } from 'ropewalk/internal';
import { checkModel, checkSignal } from './arguments.js';
import { columnsOf, MAX_POSITION, SESSION_NAMES, tokensOf } from './session.js';
import type { AppendOptions, Model, Session, SessionOptions } from './types.js';

/** Options of {@link logits}. */
export interface LogitsOptions extends SessionOptions {
  /** As for {@link Session.append}: `[tokens]`, or `[axes, tokens]` row by row. */
  readonly positions?: AppendOptions['positions'];
  /** Ends the work with the signal's reason. */
  readonly signal?: AbortSignal;
}

const NAMES: OptionNames<LogitsOptions> = { ...SESSION_NAMES, positions: true, signal: true };

/** The logits that are computed at a time, 64 MB. Those of 512 tokens would be 300 MB with a vocabulary of 150,000. */
const MAX_LOGITS = 2 ** 24;

/**
 * Computes the logits of every token, given all before it.
 *
 * @param model - any decoder; its tokenizer is not used
 * @param tokens - ids below the vocabulary's size, at least one
 * @param given - options. Default of `context`: the number of tokens, so that scalings that depend on the context, such
 *   as LongRoPE, follow the text, as in transformers
 * @returns blocks of whole rows `[tokens, vocabSize]`, float32, fresh, one after the other
 * @throws {RopewalkError} RANGE for an id outside the vocabulary, or more tokens than the context; DEVICE when the
 *   cache does not fit. Thrown at the first step of the loop, before anything is computed
 * @example for await (const rows of logits(model, [1, 42, 7])) file.write(rows);
 */
export async function* logits(
  model: Model,
  tokens: readonly number[] | Int32Array,
  given: LogitsOptions = {},
): AsyncGenerator<Float32Array, void, void> {
  checkModel(model, 'logits', ['config', 'openSession']);
  const options = readOptions(given, 'logits: options', NAMES);
  const { positions, signal, cacheDtype } = options;
  checkSignal(signal, 'logits');
  const { vocabSize, maxContext } = model.config;
  const ids = tokensOf(tokens, vocabSize, 'logits: tokens');
  if (ids.length === 0) refuse('RANGE', 'logits: tokens', 'at least one token', tokens);
  const { context = Math.min(maxContext, ids.length) } = options;
  if (Number.isInteger(context) && ids.length > context) {
    const next = context < maxContext ? `Give a larger context, of at most ${maxContext}.` : 'Give fewer.';
    refuse('RANGE', 'logits: tokens', `at most ${context} tokens, the context`, ids.length, next);
  }
  const session = model.openSession({ context, cacheDtype });
  try {
    yield* logitBlocks(session, ids, vocabSize, { positions, signal });
  } finally {
    session.dispose();
  }
}

/** Appends ids to a session. @returns blocks of whole rows of their logits, `[ids, vocabSize]` */
export async function* logitBlocks(
  session: Session,
  ids: readonly number[] | Int32Array,
  vocabSize: number,
  { positions, signal }: Pick<LogitsOptions, 'positions' | 'signal'>,
): AsyncGenerator<Float32Array, void, void> {
  const list = positions === undefined ? undefined : readList<number>(positions, 'logits: positions');
  const places = list && Int32Array.from(list, (place) => checkInteger(place, 'logits: positions', 0, MAX_POSITION));
  const expected = `${ids.length} positions, one a token, or as many for each axis`;
  if (places && places.length % ids.length !== 0) refuse('SHAPE', 'logits: positions', expected, places.length);
  const step = Math.max(1, Math.floor(MAX_LOGITS / vocabSize));
  for (let at = 0; at < ids.length; at += step) {
    signal?.throwIfAborted();
    const part = ids.slice(at, at + step);
    const own = places && columnsOf(places, ids.length, at, part.length);
    yield await session.append(part, { logits: 'all', positions: own, signal });
  }
}

/** Computes log Σ exp(logit) of a row without NaN and +Infinity, in float64: the log of the softmax's divisor. */
export function logSumExp(row: Float32Array | Float64Array): number {
  let top = Number.NEGATIVE_INFINITY;
  for (const logit of row) if (logit > top) top = logit;
  let sum = 0;
  for (const logit of row) sum += Math.exp(logit - top);
  return top + Math.log(sum);
}
