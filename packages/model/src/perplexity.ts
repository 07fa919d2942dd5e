/** Measures how well a model predicts a text: perplexity per token, bits per byte. @module */
import { refuse } from 'ropewalk/backend';
import { type OptionNames, optionNames, readOptions } from 'ropewalk/internal';
import { checkModel, checkSignal, checkTypes } from './arguments.js';
import { logitBlocks, logSumExp } from './logits.js';
import type { Model, Session, SessionOptions } from './types.js';

/** Options of {@link perplexity}. */
export interface PerplexityOptions {
  /** The tokens of a window, BOS included. Default: 512, or the model's context if that is smaller. */
  readonly context?: number;
  /** The tokens from one window to the next, which are the tokens that a window scores. Default: half a window. */
  readonly stride?: number;
  /** Dtype of the KV cache. */
  readonly cacheDtype?: NonNullable<SessionOptions['cacheDtype']>;
  /** Ends the measurement with the signal's reason. */
  readonly signal?: AbortSignal;
  /** Called after each window with the tokens scored so far and the tokens to score in all. */
  readonly onProgress?: (done: number, total: number) => void;
}

const NAMES: OptionNames<PerplexityOptions> = /* @__PURE__ */ optionNames(
  'context stride cacheDtype signal onProgress',
);

/** The result of {@link perplexity}. */
export interface Perplexity {
  /** exp of the mean negative log-likelihood of a token. Comparable only between models with the same vocabulary. */
  readonly perplexity: number;
  /** Negative log-likelihood of the text in bits, divided by its UTF-8 bytes. Comparable between any two models. */
  readonly bitsPerByte: number;
  /** The tokens that were scored. */
  readonly tokens: number;
  /** The bytes of the text of these tokens. */
  readonly bytes: number;
}

/**
 * Scores every token of a text once, in windows.
 *
 * Window w holds the text's tokens [w·stride, w·stride + context), with BOS before them if the vocabulary adds one. It
 * scores the tokens that no earlier window has scored: all of the first window, then the last `stride` of each. So
 * every token after the first window is predicted from at least context - stride tokens. Without BOS nothing predicts
 * the first token: it is not scored, and its bytes are not counted. Sums are float64.
 *
 * @param model - any decoder
 * @param text - special tokens in it are text like any other
 * @param given - options
 * @throws {RopewalkError} RANGE for a text with nothing to score, for options out of range, or logits that are NaN
 * @example const { bitsPerByte } = await perplexity(model, text, { context: 256, stride: 128 });
 */
export async function perplexity(model: Model, text: string, given: PerplexityOptions = {}): Promise<Perplexity> {
  checkModel(model, 'perplexity');
  if (typeof text !== 'string') refuse('RANGE', 'perplexity: text', 'a string', text);
  const options = readOptions(given, 'perplexity: options', NAMES);
  checkSignal(options.signal, 'perplexity');
  const { signal, onProgress, cacheDtype } = options;
  checkTypes({ onProgress }, 'function', 'perplexity');
  const { tokenizer, config } = model;
  const bos = tokenizer.addBos && tokenizer.bosToken !== undefined ? [tokenizer.bosToken] : [];
  const tokens = tokenizer.encode(text, { addBos: false, addEos: false });
  const context = options.context ?? Math.min(512, config.maxContext);
  if (!Number.isInteger(context) || context < 2 || context > config.maxContext)
    refuse('RANGE', 'perplexity: context', `an integer in [2, maxContext=${config.maxContext}]`, options.context);
  const room = context - bos.length;
  const stride = options.stride ?? Math.max(1, Math.floor(room / 2));
  // Without BOS nothing predicts the first token of a window, so the window before must have scored it.
  const most = bos.length > 0 ? room : room - 1;
  if (!Number.isInteger(stride) || stride < 1 || stride > most)
    refuse('RANGE', 'perplexity: stride', `an integer in [1, ${most}] for context ${context}`, options.stride);
  const unscored = bos.length > 0 ? 0 : 1;
  const total = tokens.length - unscored;
  if (total < 1) refuse('RANGE', 'perplexity: text', 'a text with a token to score', text);

  let nats = 0;
  let scored = unscored;
  const session = model.openSession({ context, cacheDtype });
  try {
    for (let begin = 0; scored < tokens.length; begin += stride) {
      const end = Math.min(begin + room, tokens.length);
      session.truncate(0);
      const window = [...bos, ...tokens.slice(begin, end)];
      nats += await scoreWindow(session, window, bos.length + scored - begin, config.vocabSize, signal);
      scored = end;
      onProgress?.(scored - unscored, total);
    }
  } finally {
    session.dispose();
  }
  if (!Number.isFinite(nats)) refuse('RANGE', 'perplexity: logits', 'numbers', nats, 'The weights may be damaged.');
  const utf8 = new TextEncoder();
  const bytes = utf8.encode(text).length - (unscored ? utf8.encode(tokenizer.decode(tokens.slice(0, 1))).length : 0);
  return { perplexity: Math.exp(nats / total), bitsPerByte: nats / Math.LN2 / bytes, tokens: total, bytes };
}

/** Computes the negative log-likelihood of ids[from…] in nats, each given all before it. */
async function scoreWindow(
  session: Session,
  ids: readonly number[],
  from: number,
  vocab: number,
  signal: AbortSignal | undefined,
): Promise<number> {
  // The logits of token t predict token t + 1. Those before token from - 1 and those of the last token are not needed.
  const first = Math.max(from - 1, 0);
  if (first > 0) await session.append(ids.slice(0, first), { logits: 'none', signal });
  let nats = 0;
  let next = first + 1;
  for await (const rows of logitBlocks(session, ids.slice(first, -1), vocab, { signal }))
    for (let at = 0; at < rows.length; at += vocab) {
      const row = rows.subarray(at, at + vocab);
      nats += logSumExp(row) - row[ids[next++]!]!; // -log softmax(row)[id]
    }
  return nats;
}
