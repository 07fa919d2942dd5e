/**
 * Loads a model: files → description → planned weights → engine. All checks come first; then one tensor after the other
 * is read into its place. The README says which file does which step.
 *
 * Files are byte sources, so browsers (blobs, fetched ranges) and Node (node.ts) load in the same way.
 *
 * @module
 */
import { fail, refuse } from 'ropewalk/backend';
import { type OptionNames, readList, readOptions } from 'ropewalk/internal';
import { checkSignal, checkTokenizer, checkTypes } from './arguments.js';
import { describeModel, type ModelFiles } from './description.js';
import { checkEngine, type Engine, type EngineModel } from './engine.js';
import { KERNEL_NAMES, type KernelOptions, kernelEngine } from './kernels.js';
import { checkFits, usualContext } from './memory.js';
import { DecoderSession, SESSION_NAMES } from './session.js';
import type { LoadProgress } from './stream-weight.js';
import type { DecoderConfig, Model, ModelMemory, Session, SessionOptions, Tokenizer } from './types.js';

/** How {@link loadModel} loads. */
export interface LoadOptions extends Omit<SessionOptions, 'context'>, KernelOptions {
  /**
   * Tokens that fit in a session; unless given, the model's own context but at most 4096. A function says it when the
   * config is known, and the tokenizer (undefined with `tokenizer: false`): of a text, how many tokens it has. It is
   * called before any weight is read; an error thrown there ends loading.
   */
  readonly context?: number | ((config: DecoderConfig, tokenizer: Tokenizer | undefined) => number);
  /** What runs the model instead of our kernels, such as openOnnxEngine() of @ropewalk/onnx/node. */
  readonly engine?: Engine;
  /** Called with the memory that is needed, before anything is allocated. An error thrown here ends loading. */
  readonly onMemory?: (memory: ModelMemory, config: DecoderConfig) => void;
  readonly onProgress?: (progress: LoadProgress) => void;
  /** Ends loading with the signal's reason; what was loaded is freed. */
  readonly signal?: AbortSignal;
  /** Bytes that the machine can give, if known: @ropewalk/model/node knows. Not used when a GPU holds the weights. */
  readonly availableBytes?: () => number | undefined;
  /** Used instead of the tokenizer in the files; `false` for none: then model.tokenizer is refused, and only ids go in. */
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
  const { tokenizer: givenTokenizer, context, cacheDtype = 'f32', ...kernelOptions } = rest;
  checkSignal(signal, 'loadModel');
  checkTypes({ onMemory, onProgress, availableBytes }, 'function', 'loadModel');
  if (givenTokenizer !== undefined && givenTokenizer !== false) checkTokenizer(givenTokenizer, 'loadModel');
  if (engine !== undefined) checkEngine(engine, kernelOptions, 'loadModel');
  const chosen = engine ?? kernelEngine(kernelOptions);
  signal?.throwIfAborted();
  const description = await describeModel(files, where, 'loadModel');
  const opened = await chosen.open(description);
  try {
    const { config } = description;
    const tokenizer = givenTokenizer ?? (await description.readTokenizer());
    signal?.throwIfAborted();
    const said = typeof context === 'function' ? context(config, tokenizer || undefined) : context;
    const session = { context: said ?? usualContext(config), cacheDtype };
    checkSession(config, session, 'loadModel');
    /** Refuses memory that is not there; `held` bytes of it are allocated already. */
    const fits = (needed: ModelMemory, held = 0): void =>
      checkFits(`${description.where} on ${opened.name}`, needed, opened.limits(availableBytes), held);
    const memory = opened.memoryOf(session);
    onMemory?.(memory, config);
    fits(memory);
    await opened.load(session, { signal, onProgress });
    return new LoadedModel(opened, { config, tokenizer, memory, fits, session });
  } catch (error) {
    opened.dispose();
    throw error;
  }
}

/** The parts of a model that its loading leaves to it. */
interface Origin {
  readonly config: DecoderConfig;
  readonly tokenizer: Tokenizer | false;
  readonly memory: ModelMemory;
  readonly fits: (needed: ModelMemory, held: number) => void;
  /** Options of sessions that do not say otherwise. */
  readonly session: Required<SessionOptions>;
}

class LoadedModel implements Model {
  readonly #opened: EngineModel;
  readonly #origin: Origin;
  readonly #sessions = new Set<DecoderSession>();
  #closed = false;

  constructor(opened: EngineModel, origin: Origin) {
    this.#opened = opened;
    this.#origin = origin;
  }

  get tokenizer(): Tokenizer {
    const next = 'Load it without that option, or give a tokenizer.';
    return (
      this.#origin.tokenizer ||
      fail('UNSUPPORTED', 'model.tokenizer', `the model was loaded with tokenizer: false. ${next}`)
    );
  }

  get config(): DecoderConfig {
    return this.#origin.config;
  }

  get memory(): ModelMemory {
    return this.#origin.memory;
  }

  get backend(): string {
    return this.#opened.name;
  }

  openSession(options: SessionOptions = {}): Session {
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
    const { config, fits, session: usual } = this.#origin;
    const { context = usual.context, cacheDtype = usual.cacheDtype } = options;
    checkSession(config, { context, cacheDtype }, 'openSession');
    const memory = this.#opened.memoryOf({ context, cacheDtype });
    fits(memory, memory.weightsBytes + Math.min(memory.scratchBytes, this.#opened.scratchBytes));
    const sequence = this.#opened.openSequence({ context, cacheDtype });
    const session = new DecoderSession(config, context, sequence, (closed) => this.#sessions.delete(closed));
    this.#sessions.add(session);
    return session;
  }
}

function checkSession(config: DecoderConfig, { context, cacheDtype }: Required<SessionOptions>, where: string): void {
  if (!Number.isInteger(context) || context < 1 || context > config.maxContext)
    refuse('RANGE', `${where}: context`, `an integer in [1, ${config.maxContext}], the model's own context`, context);
  if (cacheDtype !== 'f32' && cacheDtype !== 'f16' && cacheDtype !== 'bf16')
    refuse('DTYPE', `${where}: cacheDtype`, 'f32, f16 or bf16', cacheDtype);
}
