/** Embeds a text as one vector: its last hidden states, pooled. @module */
import { fail, refuse } from 'ropewalk/backend';
import { checkInteger, type OptionNames, optionNames, readOptions } from 'ropewalk/internal';
import { checkModel, checkTypes } from './arguments.js';
import { applyDense } from './embedding-settings.js';
import type { EmbeddingSettings, Model, Pooling } from './types.js';

/** Options of {@link embed}. */
export interface EmbedOptions {
  /**
   * `mean` over all tokens, the first (`cls`), or the `last`, the only one that has seen the whole text of a decoder.
   * Default: what the files say, or else `mean`.
   */
  readonly pooling?: Pooling;
  /** Goes before the text, as sentence-transformers' `prompt`: `search_query: `. Default: the files' default prompt. */
  readonly prompt?: string;
  /** A prompt by its name among `model.embedding.prompts`, such as `query`. */
  readonly promptName?: string;
  /** Keeps so many dimensions from the first on, for models that were trained so (Matryoshka). Default: all. */
  readonly dimensions?: number;
  /** Whether the vector is scaled to length 1. Default: true. */
  readonly normalize?: boolean;
}

const NAMES: OptionNames<EmbedOptions> = /* @__PURE__ */ optionNames('pooling prompt promptName dimensions normalize');

/**
 * Embeds a text: the hidden states after the final norm, pooled over the tokens, multiplied by the files' dense matrices,
 * cut to `dimensions`, and scaled to length 1. The prompt, BOS and EOS count if they are there. Sums are float64. For
 * several texts call it once for each: a batch would not be faster here.
 *
 * @param model - an encoder, or a decoder that was trained for it; the model card says which pooling and prompts it needs
 * @param text - with its prompt at most as many tokens as the model's context
 * @returns `[dimensions]`, float32, fresh
 * @throws {RopewalkError} RANGE for a text without tokens, a text longer than the context, a prompt that is not there,
 *   or hidden states that are NaN
 * @example const vector = await embed(model, 'A marline is a light rope.', { promptName: 'query', dimensions: 256 });
 */
export async function embed(model: Model, text: string, options: EmbedOptions = {}): Promise<Float32Array> {
  checkModel(model, 'embed');
  const given = readOptions(options, 'embed: options', NAMES);
  const { embedding } = model;
  const { pooling = embedding?.pooling ?? 'mean', normalize = true, dimensions } = given;
  checkTypes({ normalize }, 'boolean', 'embed');
  if (pooling !== 'mean' && pooling !== 'last' && pooling !== 'cls')
    refuse('RANGE', 'embed: pooling', 'mean, cls or last', pooling);
  if (typeof text !== 'string') refuse('RANGE', 'embed: text', 'a string', text);
  const tokens = model.tokenizer.encode(promptOf(embedding, given) + text);
  if (tokens.length === 0) refuse('RANGE', 'embed: text', 'a text of at least one token', text);
  const { hiddenSize, maxContext } = model.config;
  const width = embedding?.dense.at(-1)?.outputs ?? hiddenSize;
  if (dimensions !== undefined) checkInteger(dimensions, 'embed: dimensions', 1, width, 'the width of the embedding');
  if (tokens.length > maxContext)
    refuse('RANGE', 'embed: text', `at most maxContext=${maxContext} tokens`, tokens.length, 'Embed it in parts.');
  const hidden = await model.hidden(tokens);
  const [from, to] = { mean: [0, tokens.length], cls: [0, 1], last: [tokens.length - 1, tokens.length] }[pooling];
  const pooled = new Float64Array(hiddenSize);
  for (let s = from!; s < to!; s++)
    for (let i = 0; i < hiddenSize; i++) pooled[i]! += hidden[s * hiddenSize + i]! / (to! - from!);
  const vector = applyDense(embedding?.dense ?? [], pooled).subarray(0, dimensions);
  const square = vector.reduce((total, value) => total + value * value, 0);
  if (!Number.isFinite(square))
    refuse('RANGE', 'embed: hidden states', 'finite numbers', square, 'The weights may be damaged.');
  const divisor = normalize ? Math.sqrt(square) || 1 : 1;
  return Float32Array.from(vector, (value) => value / divisor);
}

/** Returns the text that goes before a text. */
function promptOf(
  embedding: EmbeddingSettings | undefined,
  { prompt, promptName }: Pick<EmbedOptions, 'prompt' | 'promptName'>,
): string {
  checkTypes({ prompt, promptName }, 'string', 'embed');
  if (prompt !== undefined && promptName !== undefined)
    fail('RANGE', 'embed: promptName', 'it does not go with prompt. Leave one of them out.');
  if (prompt !== undefined) return prompt;
  const { prompts = new Map<string, string>(), defaultPrompt } = embedding ?? {};
  const name = promptName ?? defaultPrompt;
  if (name === undefined) return '';
  if (prompts.size === 0)
    fail('RANGE', 'embed: promptName', "the model's files have no prompts. Give prompt, the text itself.");
  return prompts.get(name) ?? refuse('RANGE', 'embed: promptName', [...prompts.keys()].join(', '), name);
}
