/** The types that the parts of the decoder share: model, session, tokenizer. @module */
import type { RopeSpec, RouteOptions } from 'ropewalk';
import type { Activation, BiasGroup, Family } from './families.js';

/** The memory that a model and one session take, in bytes. */
export interface ModelMemory {
  readonly weightsBytes: number;
  /** Keys and values of one token in all layers. */
  readonly cacheBytesPerToken: number;
  /** The context of the session that is counted here, in tokens. */
  readonly context: number;
  /** Keys and values of the whole context. */
  readonly cacheBytes: number;
  /** Activations and logits, shared by all sessions. */
  readonly scratchBytes: number;
  /** Tables of cos and sin for the whole context. */
  readonly tableBytes: number;
  /** What `widenTo: 'f16'` would save of the weights. */
  readonly widenedBytes: number;
  /** Weights, cache, scratch and tables together. */
  readonly totalBytes: number;
  /** The largest single tensor, and its name. */
  readonly largestBytes: number;
  readonly largestName: string;
}

/** What a model is, read from config.json or from GGUF metadata. */
export interface DecoderConfig {
  /** model_type or general.architecture: llama, qwen2_moe, gemma3. */
  readonly architecture: string;
  /** The kind of file: it decides the names of tensors, and which pairs rotate. */
  readonly source: 'huggingface' | 'gguf';
  /** How the model differs from Llama. */
  readonly family: Family;
  readonly vocabSize: number;
  readonly numLayers: number;
  /** Width of the residual stream. */
  readonly hiddenSize: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  /** Size of a head of q and k. */
  readonly headDim: number;
  /** Size of a head of v. */
  readonly valueDim: number;
  /** Inner width of the feed-forward block. */
  readonly intermediateSize: number;
  readonly activation: Activation;
  readonly normEps: number;
  /** The longest context that the model was made for, in tokens. */
  readonly maxContext: number;
  /** Whether the output head is the embedding table. */
  readonly tiedHead: boolean;
  /** Which groups of tensors have biases; `stored`: those that the file has. */
  readonly biases: Readonly<Record<BiasGroup, boolean | 'stored'>>;
  /** Whether q and k are normalised, as the family does it. */
  readonly qkNorm: boolean;
  /** Whether attention and feed-forward both read the residual stream. */
  readonly parallel: boolean;
  /** Multiplies attention scores. */
  readonly attentionScale: number;
  /** Caps attention scores: c·tanh(score/c). */
  readonly attentionSoftcap: number | undefined;
  /** Multiplies the embeddings; what a block adds to the residual stream; the logits. */
  readonly embeddingScale: number;
  readonly residualScale: number;
  readonly logitScale: number;
  /** Caps the logits: c·tanh(logit/c). */
  readonly logitSoftcap: number | undefined;
  /** q at position p is multiplied by 1 + scale·ln(⌊p / context⌋ + 1). */
  readonly temperature: { readonly scale: number; readonly context: number } | undefined;
  /** Multi-head latent attention; its RoPE rotates `rope` dimensions of q, and a key that all heads share. */
  readonly latent: LatentConfig | undefined;
  readonly experts: ExpertConfig | undefined;
  readonly bosToken?: number;
  readonly eosTokens: readonly number[];
  /**
   * RoPE and window of each layer.
   *
   * @param context - of the session, in tokens: some scalings choose their frequencies by it
   */
  layers(context: number): readonly LayerConfig[];
  /** What was assumed where the file says nothing, and what was not applied; full sentences. */
  readonly notes: readonly string[];
}

/** Sizes of multi-head latent attention. */
export interface LatentConfig {
  /** Of the vector from which a token's keys and values come. */
  readonly rank: number;
  /** Of the vector from which its queries come; undefined where one matrix makes them. */
  readonly queryRank: number | undefined;
  /** Dimensions of a head that do not rotate, and that do. */
  readonly nope: number;
  readonly rope: number;
}

/** The experts of a model. */
export interface ExpertConfig {
  readonly count: number;
  /** Experts of a token. */
  readonly used: number;
  /** Inner width of an expert, and of the expert that every token has: 0 for none. */
  readonly width: number;
  readonly sharedWidth: number;
  /** How a token's experts are chosen. */
  readonly route: Omit<RouteOptions, 'bias'>;
  /** Whether each layer has experts, not a dense feed-forward block. */
  readonly layers: readonly boolean[];
}

/** What may differ from layer to layer. */
export interface LayerConfig {
  /** undefined for a layer without position encoding. Layers with the same RoPE have the same object. */
  readonly rope: RopeSpec | undefined;
  /** How many tokens a token sees, including itself; undefined for all. */
  readonly window: number | undefined;
}

/** Options of {@link Session.append}. */
export interface AppendOptions {
  /** 'last' (the default) → [1, vocab], 'all' → [tokens, vocab], 'none' → empty. */
  readonly logits?: 'last' | 'all' | 'none';
  /**
   * Positions of the tokens, `[tokens]`, or `[axes, tokens]` row by row for models with several axes: t, h, w, and
   * perhaps a fourth. Unless given, they count on from the session's length, and the fourth axis is 0.
   * Once given, they are needed until the session is truncated to 0.
   */
  readonly positions?: readonly number[] | Int32Array;
  readonly signal?: AbortSignal;
}

/** A sequence of tokens and its KV cache. */
export interface Session {
  /** Tokens in the cache. */
  readonly length: number;
  /** Tokens that fit into the cache. */
  readonly capacity: number;
  /**
   * Appends tokens in one batch. A long batch runs in pieces, with the same results.
   *
   * @param tokens - ids below the vocabulary's size
   * @param options - which logits are returned; a signal, which is checked between pieces: finished pieces stay in the
   *   cache
   * @returns logits, float32, fresh, in host memory
   * @throws {RopewalkError} RANGE for an id outside the vocabulary, or more tokens than there is room for: then nothing
   *   is appended; UNSUPPORTED while another append or shift is running. The signal's reason when it aborts
   */
  append(tokens: readonly number[] | Int32Array, options?: AppendOptions): Promise<Float32Array>;
  /** Removes all tokens from `length` on. @throws {RopewalkError} RANGE for more tokens than there are */
  truncate(length: number): void;
  /**
   * K-shift: drops tokens [from, from + count) and moves the later ones back by `count`, with their keys rotated back.
   *
   * The result differs from a fresh run over the remaining tokens: above the first layer, keys and values have already
   * seen the dropped tokens. The keys of the first layer are those of a fresh run, up to rounding.
   *
   * @throws {RopewalkError} RANGE for tokens that are not there
   */
  shift(from: number, count: number): Promise<void>;
  dispose(): void;
}

/** Options of {@link Model.openSession}. */
export interface SessionOptions {
  /** Tokens that fit; unless given, the context given to loadModel, or the model's own context but at most 4096. */
  readonly context?: number;
  /**
   * Dtype of keys and values; unless given, that given to loadModel, or f32. The 16-bit types halve the memory and
   * round once.
   */
  readonly cacheDtype?: 'f32' | 'f16' | 'bf16';
}

/** A session and the tokens in its cache, for several calls of generate on one conversation. */
export interface KeptSession {
  readonly session: Session;
  /** The tokens in the cache, oldest first. generate() keeps this list up to date. */
  readonly tokens: number[];
  dispose(): void;
}

/** A decoder with its weights in a backend's memory. */
export interface Model {
  readonly config: DecoderConfig;
  /** @throws {RopewalkError} UNSUPPORTED when the model was loaded with `tokenizer: false` */
  readonly tokenizer: Tokenizer;
  readonly backend: string;
  /** The memory of its weights, and of a session with the options given to loadModel. */
  readonly memory: ModelMemory;
  /**
   * Opens an empty session. Several may be open at once; they share the weights.
   *
   * @param options - context and dtype of the KV cache
   * @returns a session; the caller disposes it
   * @throws {RopewalkError} RANGE for a context that is longer than the model's; DEVICE, before anything is allocated,
   *   when the cache does not fit
   */
  openSession(options?: SessionOptions): Session;
  /** The hidden states after the final norm, `[tokens, hidden]`, float32, fresh. */
  hidden(tokens: readonly number[]): Promise<Float32Array>;
  dispose(): void;
}

/** Options of {@link Tokenizer.encode}. */
export interface EncodeOptions {
  /** Whether BOS comes first; the file's rule unless given. */
  readonly addBos?: boolean;
  /** Whether EOS comes last; the file's rule unless given. */
  readonly addEos?: boolean;
  /**
   * Whether special tokens such as `<s>` in the text are read as tokens; false unless given: they are ordinary text.
   */
  readonly parseSpecial?: boolean;
}

/** Options of {@link Tokenizer.decode}. */
export interface DecodeOptions {
  /** Whether special tokens are left out; true unless given. */
  readonly skipSpecial?: boolean;
}

/** Options of {@link Tokenizer.stream}. */
export interface StreamOptions extends DecodeOptions {
  /**
   * The tokens before the first pushed one. Their text is not repeated; it decides whether a leading space is part of
   * the text.
   */
  readonly after?: readonly number[];
}

/** Tokens in, text out as soon as its bytes are complete UTF-8. */
export interface TextStream {
  /** @returns the text that this token completes, often a word; empty inside a character */
  push(token: number): string;
  /** @returns what is left: U+FFFD for an incomplete character, otherwise nothing */
  end(): string;
}

/** Text ↔ tokens. */
export interface Tokenizer {
  /** One more than the highest id of the vocabulary. The model's tables may have more rows. */
  readonly vocabSize: number;
  readonly bosToken?: number;
  readonly eosTokens: readonly number[];
  readonly addBos: boolean;
  readonly addEos: boolean;
  /** The template of {@link chatTemplates} with the name `default`. */
  readonly chatTemplate?: string;
  /** All chat templates of the file, by name. */
  readonly chatTemplates: ReadonlyMap<string, string>;
  /**
   * The ids of a text. @throws {RopewalkError} RANGE for anything but a text; UNSUPPORTED for a BOS or EOS that does
   * not exist
   */
  encode(text: string, options?: EncodeOptions): number[];
  /** The text of tokens: all pieces of {@link stream} together. */
  decode(tokens: readonly number[] | Int32Array, options?: DecodeOptions): string;
  /** Decodes token by token. */
  stream(options?: StreamOptions): TextStream;
  /** A token as the file writes it, such as `▁the` or `<s>`; undefined for an unused id. */
  tokenText(id: number): string | undefined;
  /** Whether a token is not text, but a control or unknown token. */
  isSpecial(id: number): boolean;
}
