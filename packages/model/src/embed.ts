/** Embeds a text as one vector: its last hidden states, pooled. @module */
import { refuse } from 'ropewalk/backend';
import { readOptions } from 'ropewalk/internal';
import { checkModel, checkTypes } from './arguments.js';
import type { Model } from './types.js';

/** Options of {@link embed}. */
export interface EmbedOptions {
  /** `mean` over all tokens, or the `last` token, the only one that has seen the whole text. Default: `mean`. */
  readonly pooling?: 'mean' | 'last';
  /** Whether the vector is scaled to length 1. Default: true. */
  readonly normalize?: boolean;
}

/**
 * Embeds a text: the hidden states after the final norm, pooled over the tokens, and scaled to length 1. BOS and EOS
 * count if the vocabulary adds them. Sums are float64.
 *
 * @param model - any decoder; the model card of an embedding model says which pooling it needs
 * @param text - at most as many tokens as the model's context
 * @returns `[hidden]`, float32, fresh
 * @throws {RopewalkError} RANGE for a text without tokens, a text longer than the context, or hidden states that are
 *   NaN
 * @example const vector = await embed(model, 'A marline is a light rope.', { pooling: 'last' });
 */
export async function embed(model: Model, text: string, options: EmbedOptions = {}): Promise<Float32Array> {
  checkModel(model, 'embed');
  const given = readOptions(options, 'embed: options', { pooling: true, normalize: true });
  const { pooling = 'mean', normalize = true } = given;
  checkTypes({ normalize }, 'boolean', 'embed');
  if (pooling !== 'mean' && pooling !== 'last') refuse('RANGE', 'embed: pooling', 'mean or last', pooling);
  if (typeof text !== 'string') refuse('RANGE', 'embed: text', 'a string', text);
  const tokens = model.tokenizer.encode(text);
  if (tokens.length === 0) refuse('RANGE', 'embed: text', 'a text of at least one token', text);
  const { hiddenSize, maxContext } = model.config;
  if (tokens.length > maxContext)
    refuse('RANGE', 'embed: text', `at most maxContext=${maxContext} tokens`, tokens.length, 'Embed it in parts.');
  const hidden = await model.hidden(tokens);
  const sum = new Float64Array(hiddenSize);
  for (let s = pooling === 'last' ? tokens.length - 1 : 0; s < tokens.length; s++)
    for (let i = 0; i < hiddenSize; i++) sum[i]! += hidden[s * hiddenSize + i]!;
  const square = sum.reduce((total, value) => total + value * value, 0);
  if (!Number.isFinite(square))
    refuse('RANGE', 'embed: hidden states', 'finite numbers', square, 'The weights may be damaged.');
  const divisor = normalize ? Math.sqrt(square) || 1 : pooling === 'mean' ? tokens.length : 1;
  return Float32Array.from(sum, (value) => value / divisor);
}
