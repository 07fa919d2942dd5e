/** The types that the parts of the decoder share. @module */
import type { RopeSpec, RouteOptions } from 'ropewalk';
import type { Activation, BiasGroup, Family } from './families.js';

/** The memory that a model and one session take, in bytes. */
export interface ModelMemory {
  readonly weightsBytes: number;
  /** Keys and values of one token in all layers. */
  readonly cacheBytesPerToken: number;
  /** The context of the session that is counted here, in tokens. */
  readonly context: number;
  /** Keys and values of the whole context, and the states of layers without attention. */
  readonly cacheBytes: number;
  /** Activations and logits, shared by all sessions. */
  readonly scratchBytes: number;
  /** Tables of cos and sin for the whole context. */
  readonly tableBytes: number;
  /** The bytes of weights that `widenTo: 'f16'` would save. */
  readonly widenedBytes: number;
  /** Weights, cache, scratch and tables together. */
  readonly totalBytes: number;
  /** The largest single tensor, and its name. */
  readonly largestBytes: number;
  readonly largestName: string;
}

/** A model's sizes and settings, read from config.json or from GGUF metadata. */
export interface DecoderConfig {
  /** model_type or general.architecture: llama, qwen2_moe, gemma3. */
  readonly architecture: string;
  /** The kind of file. It decides the names of tensors, and which pairs rotate. */
  readonly source: 'huggingface' | 'gguf';
  /** The model's differences from Llama. */
  readonly family: Family;
  readonly vocabSize: number;
  readonly numLayers: number;
  /** The width of the residual stream. */
  readonly hiddenSize: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  /** The size of a head of q and k. */
  readonly headDim: number;
  /** The size of a head of v. */
  readonly valueDim: number;
  /** The inner width of the feed-forward block. */
  readonly intermediateSize: number;
  readonly activation: Activation;
  readonly normEps: number;
  /** The longest context that the model was trained for, in tokens. */
  readonly maxContext: number;
  /** Whether the output head is the embedding table. */
  readonly tiedHead: boolean;
  /** Whether the files have no output head, as transformers' base classes save them. Such a model makes embeddings only. */
  readonly headless: boolean;
  /** The groups of tensors with biases; `stored` means those that the file has. */
  readonly biases: Readonly<Record<BiasGroup, boolean | 'stored'>>;
  /** Whether q and k are normalised, in the family's way. */
  readonly qkNorm: boolean;
  /** Whether attention and feed-forward both read the residual stream. */
  readonly parallel: boolean;
  /** Whether attention sees later tokens too. Such a model makes embeddings; it opens no session. */
  readonly bidirectional: boolean;
  /** The number of token types, whose first is added to each embedding; 0 for none. */
  readonly tokenTypes: number;
  /** Multiplies attention scores. */
  readonly attentionScale: number;
  /** Caps attention scores: c·tanh(score/c). */
  readonly attentionSoftcap: number | undefined;
  /** Multipliers of the embeddings, of a block's output, and of the logits. */
  readonly embeddingScale: number;
  readonly residualScale: number;
  readonly logitScale: number;
  /** Caps the logits: c·tanh(logit/c). */
  readonly logitSoftcap: number | undefined;
  /** Factors of what a layer's parts read and give; undefined for none. */
  readonly branchScales: BranchScales | undefined;
  /** q at position p is multiplied by 1 + scale·ln(⌊p / context⌋ + 1); with `still` in layers that do not rotate, for p + 1. */
  readonly temperature: { readonly scale: number; readonly context: number; readonly still?: true } | undefined;
  /** Layers that rotate see only tokens of their own chunk of so many; undefined for all. */
  readonly chunk: number | undefined;
  /** The numbers of xIELU of each layer; undefined for other activations. */
  readonly xielu: readonly XieluConfig[] | undefined;
  /** Multi-head latent attention. RoPE rotates `rope` dimensions of q, and a key that all heads share. */
  readonly latent: LatentConfig | undefined;
  readonly experts: ExpertConfig | undefined;
  /** The layers that have a state instead of attention. A state cannot go back to an earlier token. */
  readonly recurrent: RecurrentConfig | undefined;
  /** The sizes of each layer, where layers differ. The sizes of the model are then the largest. */
  readonly layerSizes: readonly LayerSizes[] | undefined;
  /** The width of the embeddings that each layer has of its own, in front of its end; 0 for none. */
  readonly perLayerWidth: number;
  /** The rows of their table. Tokens beyond it have the embeddings of token 0. */
  readonly perLayerVocab: number;
  /** Gemma 3n's several residual streams and what comes with them; undefined for one stream. */
  readonly altup: AltupConfig | undefined;
  /** The layers behind the last, which predict further tokens: a GGUF has their tensors, and nothing here reads them. */
  readonly furtherLayers: number;
  readonly bosToken?: number;
  readonly eosTokens: readonly number[];
  /**
   * Returns RoPE and window of each layer. Some scalings choose their frequencies by the session's `context` in tokens.
   */
  layers(context: number): readonly LayerConfig[];
  /** Assumptions where the file says nothing, and settings that are not applied; full sentences. */
  readonly notes: readonly string[];
}

/** The sizes of a layer, and where its keys and values come from. */
export interface LayerSizes extends Pick<DecoderConfig, 'numKvHeads' | 'headDim' | 'valueDim' | 'intermediateSize'> {
  /** The earlier layer whose keys and values it reads; undefined for its own. */
  readonly sharesWith?: number | undefined;
  /** Whether values are the keys before their norm and RoPE. */
  readonly valuesAreKeys?: boolean | undefined;
}

/**
 * The numbers of one layer's xIELU as files have them. Its factors are softplus(alphaP) above 0, beta + softplus(alphaN)
 * below, and beta.
 */
export interface XieluConfig {
  readonly alphaP: number;
  readonly alphaN: number;
  readonly beta: number;
  /** The largest exponent, just below 0; it is kept for files, and 0 here. */
  readonly eps: number;
}

/** The residual streams of Gemma 3n. */
export interface AltupConfig {
  readonly streams: number;
  /** The stream that layers read. They predict and correct the others. */
  readonly active: number;
  /** Whether a vector multiplies it before it is a gate of the layer's own embeddings. */
  readonly scaled: boolean;
  /** The rank of what is added beside attention (LAuReL). */
  readonly laurelRank: number;
  /** The share of gates that each layer sets to 0 as if they had a normal distribution; 0 for none. */
  readonly sparsity: readonly number[];
}

/** The sizes of multi-head latent attention. */
export interface LatentConfig {
  /** The length of the vector from which a token's keys and values come. */
  readonly rank: number;
  /** The length of the vector from which its queries come; undefined if one matrix computes them. */
  readonly queryRank: number | undefined;
  /** The dimensions of a head that do not rotate, and those that do. */
  readonly nope: number;
  readonly rope: number;
}

/** A layer with a state instead of keys and values: a gated short convolution, the gated delta rule, or a state space. */
export type RecurrentConfig = ShortConvConfig | DeltaConfig | StateSpaceConfig;

/** The short convolutions of LFM2. */
export interface ShortConvConfig {
  readonly kind: 'conv';
  /** The number of tokens that a token's sum is over, itself included. */
  readonly width: number;
}

/** The gated delta rule of Qwen3-Next, behind a convolution of q, k and v. */
export interface DeltaConfig {
  readonly kind: 'delta';
  readonly width: number;
  /** The heads of q and k, and of v, and their sizes. */
  readonly keyHeads: number;
  readonly heads: number;
  readonly keyDim: number;
  readonly valueDim: number;
  /** Whether heads of v take turns: head h has key head h mod keyHeads, as in GGUF files of Qwen3.5. */
  readonly tiled: boolean;
}

/** The state spaces of Mamba-2, behind a convolution of x, B and C. */
export interface StateSpaceConfig {
  readonly kind: 'ssm';
  readonly width: number;
  /** Heads of x share the B and C of a group. */
  readonly groups: number;
  readonly heads: number;
  /** The sizes of B and C, and of a head of x. */
  readonly stateDim: number;
  readonly headDim: number;
  /** The smallest and the largest time step. */
  readonly limits: readonly [min: number, max: number];
  /** The RMS norm of each group of the output comes after its gate, or before it; undefined for none. */
  readonly norm: 'after-gate' | 'before-gate' | undefined;
}

/** The factors of Falcon-H1's layers. In a GGUF the matrices have them. */
export interface BranchScales {
  /** The inputs of attention and of the state space, and their outputs. */
  readonly attentionIn: number;
  readonly attentionOut: number;
  readonly ssmIn: number;
  readonly ssmOut: number;
  /** The state space's gate, x, B, C and time steps. */
  readonly ssm: readonly number[];
  /** The gate of the feed-forward block before its activation, and the output of the block. */
  readonly gate: number;
  readonly down: number;
}

/** The experts of a model. */
export interface ExpertConfig {
  readonly count: number;
  /** The number of experts that run for a token. */
  readonly used: number;
  /** The inner width of an expert, and of the shared expert; 0 for none. */
  readonly width: number;
  readonly sharedWidth: number;
  /** The length of the vector that experts read and give in place of the stream; undefined for none. */
  readonly latent?: number | undefined;
  /** The rule by which a token's experts are chosen. */
  readonly route: Omit<RouteOptions, 'bias'>;
  /** Whether each layer has experts instead of a dense feed-forward block. */
  readonly layers: readonly boolean[];
}

/** The settings that may differ from layer to layer. */
export interface LayerConfig {
  /** Undefined for a layer without position encoding. Layers with the same RoPE have the same object. */
  readonly rope: RopeSpec | undefined;
  /**
   * The number of tokens that a token sees, including itself; undefined for all. In a bidirectional model it sees as
   * many on the other side.
   */
  readonly window: number | undefined;
  /** A token sees only those before it in its chunk of so many; undefined for all. */
  readonly chunk?: number;
  /** Replaces the learned scores of attention sinks: by nothing, or by zeros. Default: they stay. */
  readonly sinks?: 'none' | 'zero';
  /** Whether the layer has the state that {@link DecoderConfig.recurrent} says. */
  readonly recurrent?: boolean;
  /** Whether it attends. Default: if it has no state. */
  readonly attends?: boolean;
  /** Whether it has a feed-forward block. Default: true. */
  readonly feedForward?: boolean;
}

/** Options of {@link Session.append}. */
export interface AppendOptions {
  /** 'last' → [1, vocab], 'all' → [tokens, vocab], 'none' → empty. Default: 'last'. */
  readonly logits?: 'last' | 'all' | 'none';
  /**
   * Positions of the tokens, `[tokens]`, or `[axes, tokens]` row by row for models with several axes: t, h, w, and
   * perhaps a fourth. Default: they count on from the session's length, and the fourth axis is 0. After a call with
   * positions, later calls need them too, until the session is truncated to 0.
   */
  readonly positions?: readonly number[] | Int32Array;
  readonly signal?: AbortSignal;
}

/** A sequence of tokens and its KV cache. */
export interface Session {
  /** The number of tokens in the cache. */
  readonly length: number;
  /** The number of tokens that fit into the cache. */
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
  /**
   * Removes all tokens from `length` on.
   *
   * @throws {RopewalkError} RANGE for more tokens than there are; UNSUPPORTED for an earlier token than the last, but
   *   not the first, of a model whose layers have states
   */
  truncate(length: number): void;
  /**
   * Drops tokens [from, from + count), and moves the later ones back by `count` with their keys rotated back (K-shift).
   *
   * The result differs from a fresh run over the remaining tokens: above the first layer, keys and values have already
   * seen the dropped tokens. The keys of the first layer are those of a fresh run, up to rounding.
   *
   * @throws {RopewalkError} RANGE for tokens that are not there; UNSUPPORTED for a model whose layers have states
   */
  shift(from: number, count: number): Promise<void>;
  dispose(): void;
}

/** Options of {@link Model.openSession}. */
export interface SessionOptions {
  /** Tokens that fit. Default: the context of loadModel, or else the model's own context, but at most 4096. */
  readonly context?: number;
  /**
   * Dtype of keys and values. Default: that of loadModel, or else f32. The 16-bit types halve the memory, the 8-bit
   * ones halve it again; each value is rounded once. `i8` has a scale for each token and head.
   */
  readonly cacheDtype?: 'f32' | 'f16' | 'bf16' | 'f8_e4m3' | 'i8';
}

/** A session and the tokens in its cache, for several calls of generate on one conversation. */
export interface KeptSession {
  readonly session: Session;
  /** The tokens in the cache, oldest first. generate() keeps this list up to date. */
  readonly tokens: number[];
  dispose(): void;
}

/** How hidden states become one vector: the `mean` of all tokens, the first (`cls`), or the `last`. */
export type Pooling = 'mean' | 'cls' | 'last';

/** A matrix that multiplies the pooled vector. */
export interface DenseLayer {
  readonly inputs: number;
  readonly outputs: number;
  /** `[outputs, inputs]` */
  readonly weight: Float32Array;
  /** `[outputs]` */
  readonly bias: Float32Array | undefined;
  readonly activation: 'none' | 'tanh';
}

/** Pooling, matrices and prompts, as a model's files say them. */
export interface EmbeddingSettings {
  readonly pooling: Pooling | undefined;
  /** They multiply the pooled vector, in order. */
  readonly dense: readonly DenseLayer[];
  /** The texts that go before a text, by name. */
  readonly prompts: ReadonlyMap<string, string>;
  /** The name of the one that is used unless another is given. */
  readonly defaultPrompt: string | undefined;
}

/** A decoder with its weights in a backend's memory. */
export interface Model {
  readonly config: DecoderConfig;
  /** @throws {RopewalkError} UNSUPPORTED when the model was loaded with `tokenizer: false` */
  readonly tokenizer: Tokenizer;
  readonly backend: string;
  /** Undefined if its files say nothing about embeddings. */
  readonly embedding?: EmbeddingSettings | undefined;
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
  /** Returns the hidden states after the final norm, `[tokens, hidden]`, float32, fresh. */
  hidden(tokens: readonly number[]): Promise<Float32Array>;
  dispose(): void;
}

/** Options of {@link Tokenizer.encode}. */
export interface EncodeOptions {
  /** Whether BOS comes first. Default: the file's rule. */
  readonly addBos?: boolean;
  /** Whether EOS comes last. Default: the file's rule. */
  readonly addEos?: boolean;
  /** Whether special tokens such as `<s>` in the text are read as tokens. Default: false, they are ordinary text. */
  readonly parseSpecial?: boolean;
}

/** Options of {@link Tokenizer.decode}. */
export interface DecodeOptions {
  /** Whether special tokens are left out. Default: true. */
  readonly skipSpecial?: boolean;
}

/** Options of {@link Tokenizer.stream}. */
export interface StreamOptions extends DecodeOptions {
  /**
   * The tokens before the first pushed one. Their text is not repeated, but it decides whether a leading space is text.
   */
  readonly after?: readonly number[];
}

/** Takes tokens, and returns text as soon as its bytes are complete UTF-8. */
export interface TextStream {
  /** @returns the text that this token completes, often a word; empty inside a character */
  push(token: number): string;
  /** @returns the rest: U+FFFD for an incomplete character, otherwise nothing */
  end(): string;
}

/** A vocabulary that turns text into tokens, and tokens into text. */
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
   * Returns the ids of a text. @throws {RopewalkError} RANGE for a value that is no text; UNSUPPORTED for a BOS or EOS
   * that does not exist
   */
  encode(text: string, options?: EncodeOptions): number[];
  /** Returns the text of tokens: all pieces of {@link stream} together. */
  decode(tokens: readonly number[] | Int32Array, options?: DecodeOptions): string;
  /** Decodes token by token. */
  stream(options?: StreamOptions): TextStream;
  /** Returns a token as the file writes it, such as `▁the` or `<s>`; undefined for an unused id. */
  tokenText(id: number): string | undefined;
  /** Whether a token is not text, but a control or unknown token. */
  isSpecial(id: number): boolean;
}
