/**
 * Loads a model: files → description → planned weights → engine. All checks come first; then one tensor after the other
 * is read into its place. Files are byte sources, in browsers (blobs, fetched ranges) and in Node.
 *
 * @module
 */
import { fail, refuse } from 'ropewalk/backend';
import { type OptionNames, readList, readOptions } from 'ropewalk/internal';
import { checkSignal, checkTokenizer, checkTypes } from './arguments.js';
import { describeModel, type ModelFiles } from './description.js';
import { checkEngine, type Engine, type EngineModel } from './engine.js';
import { KERNEL_NAMES, type KernelOptions, kernelEngine } from './kernels.js';
import { CACHE_DTYPES, checkFits, usualContext } from './memory.js';
import { type DecoderSession, SESSION_NAMES, sessionOf } from './session.js';
import type { LoadProgress } from './stream-weight.js';
import type {
  DecoderConfig,
  EmbeddingSettings,
  Model,
  ModelMemory,
  Session,
  SessionOptions,
  Tokenizer,
} from './types.js';

/** Options of {@link loadModel}. */
export interface LoadOptions extends Omit<SessionOptions, 'context'>, KernelOptions {
  /**
   * Tokens that fit in a session. Default: the model's own context, but at most 4096. A function gets the config and the
   * tokenizer (undefined with `tokenizer: false`), so it can count the tokens of a text. It is called before any weight
   * is read; an error thrown there ends loading.
   */
  readonly context?: number | ((config: DecoderConfig, tokenizer: Tokenizer | undefined) => number);
  /** The program that runs the model. Default: our kernels. Another one is openOnnxEngine() of @ropewalk/onnx/node. */
  readonly engine?: Engine;
  /** Called with the memory that is needed, before anything is allocated. An error thrown here ends loading. */
  readonly onMemory?: (memory: ModelMemory, config: DecoderConfig) => void;
  readonly onProgress?: (progress: LoadProgress) => void;
  /** Ends loading with the signal's reason, and frees the weights loaded so far. */
  readonly signal?: AbortSignal;
  /** Returns the bytes of memory that the machine has left; @ropewalk/model/node knows them. Not called for a GPU. */
  readonly availableBytes?: () => number | undefined;
  /** Replaces the tokenizer in the files. With `false` the model has none, and takes ids of tokens only. */
  readonly tokenizer?: Tokenizer | false;
  /** The model's name in messages: its path or address. */
  readonly where?: string;
}

const NAMES: OptionNames<LoadOptions> = {
  ...SESSION_NAMES,
  ...KERNEL_NAMES,
  context: true,
  engine: true,
  onMemory: true,
  onProgress: true,
  signal: true,
  availableBytes: true,
  tokenizer: true,
  where: true,
};

/**
 * Loads a model.
 *
 * @param files - by name: config.json and *.safetensors (with the index, if there are several), or one GGUF
 * @param given - backend, context, callbacks
 * @returns a model; the caller disposes it
 * @throws {RopewalkError} FORMAT for files that are missing, cut or forged; UNSUPPORTED for an architecture, tensor or
 *   type that is not computed here; DEVICE when the model does not fit. All of these before weights take memory
 * @example const model = await loadModel({ 'model.gguf': blob }, { onProgress: ({ doneBytes, totalBytes }) => … });
 */
export async function loadModel(files: ModelFiles, given: LoadOptions = {}): Promise<Model> {
  const options = readOptions(given, 'loadModel: options', NAMES);
  const { engine, onMemory, onProgress, signal, availableBytes, where, ...rest } = options;
  const { tokenizer: ownTokenizer, context, cacheDtype = 'f32', ...kernelOptions } = rest;
  checkSignal(signal, 'loadModel');
  checkTypes({ onMemory, onProgress, availableBytes }, 'function', 'loadModel');
  if (ownTokenizer !== undefined && ownTokenizer !== false) checkTokenizer(ownTokenizer, 'loadModel');
  if (engine !== undefined) checkEngine(engine, kernelOptions, 'loadModel');
  const chosen = engine ?? kernelEngine(kernelOptions);
  signal?.throwIfAborted();
  const description = await describeModel(files, where, 'loadModel');
  const { config } = description;
  const opened = await chosen.open(description);
  try {
    const tokenizer = ownTokenizer ?? (await description.readTokenizer());
    const embedding = await description.readEmbedding();
    signal?.throwIfAborted();
    const asked = typeof context === 'function' ? context(config, tokenizer || undefined) : context;
    const session = { context: asked ?? usualContext(config), cacheDtype };
    checkSession(config, session, 'loadModel');
    const checkMemory = (needed: ModelMemory, heldBytes = 0): void =>
      checkFits(`${description.where} on ${opened.name}`, needed, opened.limits(availableBytes), heldBytes);
    const memory = opened.memoryOf(session);
    onMemory?.(memory, config);
    checkMemory(memory);
    await opened.load(session, { signal, onProgress });
    return new LoadedModel(opened, { config, tokenizer, embedding, memory, checkMemory, session });
  } catch (error) {
    opened.dispose();
    throw error;
  }
}

/** The parts of a model that its loading leaves to it. */
interface Loaded {
  readonly config: DecoderConfig;
  readonly tokenizer: Tokenizer | false;
  readonly embedding: EmbeddingSettings | undefined;
  readonly memory: ModelMemory;
  /** Refuses memory that is not there; `heldBytes` of it are allocated already. */
  readonly checkMemory: (needed: ModelMemory, heldBytes: number) => void;
  /** The options of sessions that do not have their own. */
  readonly session: Required<SessionOptions>;
}

class LoadedModel implements Model {
  readonly config: DecoderConfig;
  readonly memory: ModelMemory;
  readonly backend: string;
  readonly embedding: EmbeddingSettings | undefined;
  readonly #opened: EngineModel;
  readonly #loaded: Loaded;
  readonly #sessions = new Set<DecoderSession>();
  #closed = false;

  constructor(opened: EngineModel, loaded: Loaded) {
    this.config = loaded.config;
    this.memory = loaded.memory;
    this.backend = opened.name;
    this.embedding = loaded.embedding;
    this.#opened = opened;
    this.#loaded = loaded;
  }

  get tokenizer(): Tokenizer {
    const next = 'Load it without that option, or give a tokenizer.';
    const sentence = `the model was loaded with tokenizer: false. ${next}`;
    return this.#loaded.tokenizer || fail('UNSUPPORTED', 'model.tokenizer', sentence);
  }

  openSession(options: SessionOptions = {}): Session {
    const { architecture, bidirectional, headless } = this.config;
    const next = 'Use embed or model.hidden.';
    if (bidirectional)
      fail('UNSUPPORTED', 'openSession', `${architecture} sees later tokens, so it continues no text. ${next}`);
    if (headless)
      fail(
        'UNSUPPORTED',
        'openSession',
        `the files have no output head (${architecture}), so it writes no text. ${next}`,
      );
    return this.#open(readOptions(options, 'openSession: options', SESSION_NAMES));
  }

  async hidden(tokens: readonly number[]): Promise<Float32Array> {
    const list = Array.from(readList(tokens, 'hidden: tokens', 'a list of tokens'));
    const session = this.#open({ context: Math.max(1, list.length) });
    try {
      return await session.hidden(list);
    } finally {
      session.dispose();
    }
  }

  dispose(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const session of [...this.#sessions]) session.dispose();
    this.#opened.dispose();
  }

  #open(options: SessionOptions): DecoderSession {
    if (this.#closed) fail('DEVICE', 'model', 'it was disposed. Load it again.');
    const { config, checkMemory, session: usual } = this.#loaded;
    const { context = usual.context, cacheDtype = usual.cacheDtype } = options;
    checkSession(config, { context, cacheDtype }, 'openSession');
    const needed = this.#opened.memoryOf({ context, cacheDtype });
    checkMemory(needed, needed.weightsBytes + Math.min(needed.scratchBytes, this.#opened.scratchBytes));
    const sequence = this.#opened.openSequence({ context, cacheDtype });
    const session = sessionOf(config, context, sequence, () => this.#sessions.delete(session));
    this.#sessions.add(session);
    return session;
  }
}

function checkSession(config: DecoderConfig, { context, cacheDtype }: Required<SessionOptions>, where: string): void {
  if (!Number.isInteger(context) || context < 1 || context > config.maxContext)
    refuse('RANGE', `${where}: context`, `an integer in [1, ${config.maxContext}], the model's own context`, context);
  if (!CACHE_DTYPES.includes(cacheDtype))
    refuse('DTYPE', `${where}: cacheDtype`, 'f32, f16, bf16, f8_e4m3 or i8', cacheDtype);
  if (cacheDtype === 'i8' && config.latent)
    fail('UNSUPPORTED', `${where}: cacheDtype`, 'latent vectors have no i8 cache. Take f8_e4m3 or f16.');
}
