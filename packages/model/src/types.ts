/**
 * The types that the parts of the decoder share: a model, a run of tokens, a tokenizer.
 *
 * @module
 */
import type { RopeSpec } from 'ropewalk';

/** What a model and one session take, in bytes. */
export interface ModelMemory {
  readonly weightsBytes: number;
  /** Keys and values of one token, all layers. */
  readonly cacheBytesPerToken: number;
  /** Tokens of room of the session counted here. */
  readonly context: number;
  /** Keys and values of all of them. */
  readonly cacheBytes: number;
  /** Activations and logits; shared by all sessions. */
  readonly scratchBytes: number;
  /** cos and sin, once they reach the whole context. */
  readonly tableBytes: number;
  /** What of the weights `widenTo: 'f16'` would save. */
  readonly widenedBytes: number;
  /** All of it. */
  readonly totalBytes: number;
  /** The largest single tensor, and its name. */
  readonly largestBytes: number;
  readonly largestName: string;
}

/** What a model is, read from config.json or from GGUF metadata. */
export interface DecoderConfig {
  /** model_type or general.architecture: llama, mistral, qwen2, qwen3. */
  readonly architecture: string;
  /** Whose words the file uses, for tensors and for which pairs turn. */
  readonly source: 'huggingface' | 'gguf';
  readonly vocabSize: number;
  readonly numLayers: number;
  /** Width of the residual stream. */
  readonly hiddenSize: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  /** Width between the two halves of the feed-forward. */
  readonly intermediateSize: number;
  readonly normEps: number;
  /** Tokens the model was made for. */
  readonly maxContext: number;
  /** The head is the embedding table. */
  readonly tiedHead: boolean;
  readonly qkvBias: boolean;
  readonly outputBias: boolean;
  readonly mlpBias: boolean;
  /** RMS norm over each head of q and k. */
  readonly qkNorm: boolean;
  readonly bosToken?: number;
  readonly eosTokens: readonly number[];
  /**
   * How each layer turns and how far it sees.
   *
   * @param context - tokens of room: some scalings choose their frequencies by it
   */
  layers(context: number): readonly LayerConfig[];
  /** What was assumed where the file says nothing, or says what its own family does not read; full sentences. */
  readonly notes: readonly string[];
}

/** What may differ from layer to layer. */
export interface LayerConfig {
  /** undefined for a layer without position encoding. The same object for layers that turn alike. */
  readonly rope: RopeSpec | undefined;
  /** Tokens that a token sees, itself included; undefined for all. */
  readonly window: number | undefined;
}

/** How {@link Session.append} runs. */
export interface AppendOptions {
  /** 'last' (the default) → [1, vocab], 'all' → [tokens, vocab], 'none' → empty. */
  readonly logits?: 'last' | 'all' | 'none';
  readonly signal?: AbortSignal;
}

/** A run of tokens and its KV cache. */
export interface Session {
  /** Tokens in the cache. */
  readonly length: number;
  /** Tokens that fit. */
  readonly capacity: number;
  /**
   * Appends tokens in one batch; long ones run in pieces, which changes nothing.
   *
   * @param tokens - ids below the vocabulary's size
   * @param options - which logits; a signal, looked at between pieces: the pieces done before it stay in the cache
   * @returns logits, float32, in host memory, fresh
   * @throws {RopewalkError} RANGE for an id outside the vocabulary, or more tokens than there is room for: nothing is appended then;
   *   UNSUPPORTED while another append or shift is under way. The signal's reason when it aborts
   */
  append(tokens: readonly number[] | Int32Array, options?: AppendOptions): Promise<Float32Array>;
  /** Forgets everything from token `length` on. @throws {RopewalkError} RANGE for more tokens than there are */
  truncate(length: number): void;
  /**
   * K-shift: drops tokens [from, from + count) and moves the later ones back by count, re-rotating their keys.
   *
   * What it gives is not what a fresh run over the tokens that are left would: above the first layer, keys and values have already seen the
   * dropped ones. Keys of the first layer are those of a fresh run, up to a rounding.
   *
   * @throws {RopewalkError} RANGE for tokens that are not there
   */
  shift(from: number, count: number): Promise<void>;
  dispose(): void;
}

/** How {@link Model.openSession} opens a session. */
export interface SessionOptions {
  /** Tokens of room; what loading was told unless given, else the model's own context, but at most 4096. */
  readonly context?: number;
  /** How keys and values are stored; what loading was told unless given, else f32. Halves take half the memory and round each once. */
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
  readonly tokenizer: Tokenizer;
  readonly backend: string;
  /** What it takes: weights now, and what a session with the options of loading would add. */
  readonly memory: ModelMemory;
  /**
   * Opens an empty session. Several may be open at once; they share the weights.
   *
   * @throws {RopewalkError} RANGE for a context the model cannot have; DEVICE when its cache does not fit, with the sums, before anything is
   *   allocated
   */
  openSession(options?: SessionOptions): Session;
  /** The last hidden state after the final norm, `[tokens, hidden]`, float32. */
  hidden(tokens: readonly number[]): Promise<Float32Array>;
  dispose(): void;
}

/** How {@link Tokenizer.encode} encodes. */
export interface EncodeOptions {
  /** Puts BOS first; what the file says unless given. */
  readonly addBos?: boolean;
  /** Puts EOS last; what the file says unless given. */
  readonly addEos?: boolean;
  /** Reads special tokens such as `<s>` in the text as themselves. The default is false: they are text like any other. */
  readonly parseSpecial?: boolean;
}

/** How {@link Tokenizer.decode} decodes. */
export interface DecodeOptions {
  /** Leaves special tokens out, the default. */
  readonly skipSpecial?: boolean;
}

/** How {@link Tokenizer.stream} decodes. */
export interface StreamOptions extends DecodeOptions {
  /** The tokens before the first one pushed. Their text is not given again; it decides whether a leading space belongs to the text. */
  readonly after?: readonly number[];
}

/** Tokens in, text out as soon as its bytes are whole UTF-8. */
export interface TextStream {
  /** @returns the text that this token completes, often one word, empty inside a character */
  push(token: number): string;
  /** @returns what is left: U+FFFD for a character cut off, else nothing */
  end(): string;
}

/** Text ↔ tokens. */
export interface Tokenizer {
  /** One more than the highest id of the vocabulary. A model may have more rows than that. */
  readonly vocabSize: number;
  readonly bosToken?: number;
  readonly eosTokens: readonly number[];
  readonly addBos: boolean;
  readonly addEos: boolean;
  /** The template of {@link chatTemplates} called default. */
  readonly chatTemplate?: string;
  /** Every chat template of the file, by name. */
  readonly chatTemplates: ReadonlyMap<string, string>;
  encode(text: string, options?: EncodeOptions): number[];
  /** The text of tokens. The pieces of {@link stream} together are the same text. */
  decode(tokens: readonly number[] | Int32Array, options?: DecodeOptions): string;
  stream(options?: StreamOptions): TextStream;
  /** A token as the file writes it, such as `▁the` or `<s>`; undefined for an id without one. */
  tokenText(id: number): string | undefined;
  /** Says whether a token is no text: control and unknown tokens. */
  isSpecial(id: number): boolean;
}
