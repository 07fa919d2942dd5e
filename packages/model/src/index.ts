/**
 * A decoder on Ropewalk's operators: load a Llama- or Qwen-family model, generate, embed, measure.
 *
 * Runs in browsers too; files on disk are opened by `@ropewalk/model/node`.
 *
 * @module @ropewalk/model
 */
export type { ByteSource } from '@ropewalk/formats';
export { byteSource, type FileData } from './byte-source.js';
export { type ChatMessage, type ChatOptions, renderChat } from './chat.js';
export { compareLogits, type LogitBlocks, type LogitComparison, type LogitPair } from './compare-logits.js';
export type { ModelFiles } from './description.js';
export { type EmbedOptions, embed } from './embed.js';
export type { Engine, EngineModel, LoadingOptions, Sequence, Wanted } from './engine.js';
export { type FetchFilesOptions, fetchModelFiles, fetchSource } from './fetch-files.js';
export {
  checkGenerateOptions,
  type GeneratedEnd,
  type GeneratedToken,
  type GenerateOptions,
  type Generation,
  generate,
  keepSession,
  type Pace,
  type Prompt,
} from './generate.js';
export { tokenizerFromGguf } from './gguf-vocabulary.js';
export { type KernelOptions, kernelEngine } from './kernels.js';
export { type LoadOptions, loadModel } from './load.js';
export { type LogitsOptions, logits } from './logits.js';
export { type MemoryLimits, mebibytes } from './memory.js';
export { type Perplexity, type PerplexityOptions, perplexity } from './perplexity.js';
export { createSampler, type Sampler, type SamplingOptions } from './sampler.js';
export type { LoadProgress } from './stream-weight.js';
export { type TokenizerFiles, tokenizerFromJson } from './tokenizer-json.js';
export type {
  AppendOptions,
  DecodeOptions,
  DecoderConfig,
  EncodeOptions,
  KeptSession,
  Model,
  ModelMemory,
  Session,
  SessionOptions,
  StreamOptions,
  TextStream,
  Tokenizer,
} from './types.js';
