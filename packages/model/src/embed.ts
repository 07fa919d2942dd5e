/**
 * A text as one vector: the last hidden states, pooled.
 *
 * @module
 */
import { readOptions, refuse } from 'ropewalk/backend';
import { checkModel, checkTypes } from './arguments.js';
import type { Model } from './types.js';

/** How {@link embed} pools. */
export interface EmbedOptions {
  /** `mean` over all tokens, the default, or the `last` token, which alone has seen the whole text. */
  readonly pooling?: 'mean' | 'last';
  /** Scales the vector to length 1, the default. */
  readonly normalise?: boolean;
}

/**
 * Embeds a text: the hidden states after the final norm, pooled over the tokens (BOS and EOS included where the vocabulary
 * adds them), and scaled to length 1. Sums are float64.
 *
 * @param model - any decoder; models trained for embeddings say in their card which pooling they want
 * @param text - at most the model's context
 * @returns `[hidden]`, float32, fresh
 * @throws {RopewalkError} RANGE for a text without tokens, one longer than the context, or hidden states that are NaN
 */
export async function embed(model: Model, text: string, options: EmbedOptions = {}): Promise<Float32Array> {
  checkModel(model, 'embed');
  const { pooling = 'mean', normalise = true } = readOptions(options, 'embed: options');
  checkTypes({ normalise }, ['normalise'], 'boolean', 'embed');
  if (pooling !== 'mean' && pooling !== 'last') refuse('RANGE', 'embed: pooling', 'mean or last', pooling);
  if (typeof text !== 'string') refuse('RANGE', 'embed: text', 'a text', text);
  const tokens = model.tokenizer.encode(text);
  if (tokens.length === 0) refuse('RANGE', 'embed: text', 'a text of at least one token', text);
  if (tokens.length > model.config.maxContext) {
    refuse(
      'RANGE',
      'embed: text',
      `at most ${model.config.maxContext} tokens`,
      `${tokens.length} tokens`,
      'Embed it in parts.',
    );
  }
  const { hiddenSize } = model.config;
  const hidden = await model.hidden(tokens);
  const sum = new Float64Array(hiddenSize);
  for (let s = pooling === 'last' ? tokens.length - 1 : 0; s < tokens.length; s++) {
    for (let i = 0; i < hiddenSize; i++) sum[i]! += hidden[s * hiddenSize + i]!;
  }
  let square = 0;
  for (const value of sum) square += value * value;
  if (!Number.isFinite(square))
    refuse('RANGE', 'embed: hidden states', 'finite numbers', square, 'The weights may be damaged.');
  const divisor = normalise ? Math.sqrt(square) || 1 : pooling === 'mean' ? tokens.length : 1;
  return Float32Array.from(sum, (value) => value / divisor);
}
