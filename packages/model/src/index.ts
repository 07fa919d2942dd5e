/**
 * A decoder on Ropewalk's operators: load a Llama- or Qwen-family model, generate, embed, measure.
 *
 * Runs in browsers too; files on disk are opened by `@ropewalk/model/node`.
 *
 * @module @ropewalk/model
 */

export { byteSource, type FileData } from './byte-source.js';
export { type ChatMessage, type ChatOptions, renderChat } from './chat.js';
export { compareLogits, type LogitBlocks, type LogitComparison } from './compare-logits.js';
export type { ModelFiles } from './description.js';
export { type EmbedOptions, embed } from './embed.js';
export type { Engine } from './engine.js';
export { fetchModelFiles, fetchSource } from './fetch-files.js';
export {
  type GeneratedEnd,
  type GeneratedToken,
  type GenerateOptions,
  type Generation,
  generate,
  keepSession,
  type Prompt,
} from './generate.js';
export { tokenizerFromGguf } from './gguf-vocabulary.js';

export { type LoadOptions, loadModel } from './load.js';
export { logits } from './logits.js';
export { mebibytes } from './memory.js';
export { type Perplexity, perplexity } from './perplexity.js';
export { createSampler, type Sampler, type SamplingOptions } from './sampler.js';
export { restoreSession, saveSession } from './saved-session.js';
export type { LoadProgress } from './stream-weight.js';
export { type TokenizerFiles, tokenizerFromJson } from './tokenizer-json.js';
export type {
  AppendOptions,
  DecoderConfig,
  KeptSession,
  Model,
  ModelMemory,
  Session,
  SessionOptions,
  TextStream,
  Tokenizer,
} from './types.js';
