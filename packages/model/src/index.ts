/**
 * A decoder on Ropewalk's operators: load a Llama- or Qwen-family model, generate, embed, measure.
 *
 * Runs in browsers too; files on disk are opened by `ropewalk/model/node`.
 *
 * @module
 */
export { type ChatMessage, type ChatOptions, renderChat } from './chat.js';
export { type EmbedOptions, embed } from './embed.js';
export {
  type GeneratedEnd,
  type GeneratedToken,
  type GenerateOptions,
  type Generation,
  generate,
  type KeptSession,
  keepSession,
  type Pace,
  type Prompt,
  readOptions,
} from './generate.js';
export { tokenizerFromGguf } from './gguf-vocabulary.js';
export {
  type ByteSource,
  byteSource,
  fetchSource,
  type LoadOptions,
  type LoadProgress,
  loadModel,
  type ModelFiles,
} from './load.js';
export { mebibytes } from './memory.js';
export { type Perplexity, type PerplexityOptions, perplexity } from './perplexity.js';
export { createSampler, type Sampler, type SamplingOptions } from './sampler.js';
export { type TokenizerFiles, tokenizerFromJson } from './tokenizer.js';
export type {
  AppendOptions,
  DecodeOptions,
  DecoderConfig,
  EncodeOptions,
  Model,
  ModelMemory,
  Session,
  SessionOptions,
  StreamOptions,
  TextStream,
  Tokenizer,
} from './types.js';
