/**
 * Files → a model in a backend's memory. Everything is checked and summed up first; then one tensor after the other is
 * read into its place.
 *
 * Files are byte sources, so browsers (blobs, fetched ranges) and Node (node.ts) load in the same way.
 *
 * @module
 */
import { type BackendOptions, Ropewalk, type RopewalkOptions, ropewalk } from 'ropewalk';
import { fail, reading, readList, readOptions, refuse } from 'ropewalk/backend';
import { checkSignal, checkTokenizer, checkTypes } from './arguments.js';
import { type Decoder, Scratch } from './decoder.js';
import { readDescription } from './description.js';
import { checkFits, type MemoryLimits, memoryOf, usualContext } from './memory.js';
import type { ModelFiles } from './model-files.js';
import { DecoderSession } from './session.js';
import type { DecoderConfig, Model, ModelMemory, Session, SessionOptions, Tokenizer } from './types.js';
import { type LoadProgress, loadWeights } from './upload.js';
import { assembleWeights, type Weight, type WeightPlan, type WidenTo } from './weights.js';

/** How {@link loadModel} loads. */
export interface LoadOptions extends Omit<SessionOptions, 'context'>, BackendOptions {
  /**
   * Tokens that fit in a session; unless given, the model's own context but at most 4096. A function says it when the
   * config is known, and the tokenizer (undefined with `tokenizer: false`): of a text, how many tokens it has. It is
   * called before any weight is read; an error thrown there ends loading.
   */
  readonly context?: number | ((config: DecoderConfig, tokenizer: Tokenizer | undefined) => number);
  /** A backend's name, `auto` unless given; or an open one, which the model uses and does not dispose. */
  readonly backend?: RopewalkOptions['backend'] | Ropewalk;
  /**
   * What matrices in a GGUF's types become in memory where the backend does not read them as they lie: `f32`, the
   * default, or `f16`, which takes half the memory and rounds each weight to 11 bits. That moves logits by about a
   * thousandth of the largest.
   */
  readonly widenTo?: WidenTo;
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
  const options = readOptions(given, 'loadModel: options');
  const { backend, widenTo, onMemory, onProgress, signal, availableBytes, where, ...rest } = options;
  const { tokenizer: givenTokenizer, context, cacheDtype = 'f32', ...backendOptions } = rest;
  checkSignal(signal, 'loadModel');
  checkTypes({ onMemory, onProgress, availableBytes }, 'function', 'loadModel');
  checkTypes({ where }, 'string', 'loadModel');
  if (givenTokenizer !== undefined && givenTokenizer !== false) checkTokenizer(givenTokenizer, 'loadModel');
  const shared = openedBackend(backend);
  signal?.throwIfAborted();
  const plan = await readDescription(files, where, 'loadModel');
  const rw = shared ?? (await ropewalk({ ...backendOptions, backend: backend as 'auto' }));
  const loaded = new Map<string, Weight>();
  const free = (): void => {
    for (const weight of loaded.values()) weight.dispose();
    if (!shared) rw.dispose();
  };
  try {
    const { blockFormats } = rw.capabilities();
    const described = plan(widenTo, blockFormats ?? []);
    const { config, weights: plans } = described;
    const tokenizer = givenTokenizer ?? (await described.readTokenizer());
    signal?.throwIfAborted();
    const said = typeof context === 'function' ? context(config, tokenizer || undefined) : context;
    const session = { context: said ?? usualContext(config), cacheDtype };
    checkSession(config, session, 'loadModel');
    const memory = memoryOf(config, plans, session);
    /** Refuses memory that is not there; `held` bytes of it are allocated already. */
    const fits = (needed: ModelMemory, held = 0): void =>
      checkFits(`${described.where} on ${rw.name}`, needed, limitsOf(rw, availableBytes), held);
    onMemory?.(memory, config);
    fits(memory);
    await loadWeights(rw, described, loaded, { signal, onProgress });
    const weights = assembleWeights(config, loaded);
    const decoder = { runner: rw, config, weights, scratch: new Scratch(rw, config) };
    return new LoadedModel(decoder, tokenizer, memory, { plans, fits, session, free });
  } catch (error) {
    free();
    throw error;
  }
}

/** What a model keeps from its loading. */
interface Origin {
  readonly plans: readonly WeightPlan[];
  readonly fits: (needed: ModelMemory, held: number) => void;
  /** Options of sessions that do not say otherwise. */
  readonly session: Required<SessionOptions>;
  readonly free: () => void;
}

class LoadedModel implements Model {
  readonly memory: ModelMemory;
  readonly #tokenizer: Tokenizer | false;
  readonly #decoder: Decoder;
  readonly #origin: Origin;
  readonly #sessions = new Set<DecoderSession>();
  #closed = false;

  constructor(decoder: Decoder, tokenizer: Tokenizer | false, memory: ModelMemory, origin: Origin) {
    this.#decoder = decoder;
    this.#tokenizer = tokenizer;
    this.memory = memory;
    this.#origin = origin;
  }

  get tokenizer(): Tokenizer {
    const next = 'Load it without that option, or give a tokenizer.';
    return (
      this.#tokenizer || fail('UNSUPPORTED', 'model.tokenizer', `the model was loaded with tokenizer: false. ${next}`)
    );
  }

  get config(): DecoderConfig {
    return this.#decoder.config;
  }

  get backend(): string {
    return this.#decoder.runner.name;
  }

  openSession(options: SessionOptions = {}): Session {
    return this.#open(readOptions(options, 'openSession: options'));
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
    this.#decoder.scratch.dispose();
    this.#origin.free();
  }

  #open(options: SessionOptions): DecoderSession {
    if (this.#closed) fail('DEVICE', 'model', 'it was disposed. Load it again.');
    const { plans, fits, session: usual } = this.#origin;
    const { context = usual.context, cacheDtype = usual.cacheDtype } = options;
    checkSession(this.config, { context, cacheDtype }, 'openSession');
    const memory = memoryOf(this.config, plans, { context, cacheDtype });
    fits(memory, memory.weightsBytes + Math.min(memory.scratchBytes, this.#decoder.scratch.heldBytes));
    const session = new DecoderSession(this.#decoder, context, cacheDtype, (closed) => this.#sessions.delete(closed));
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

/** The backend that the caller has opened; undefined if one is to be opened by name. */
function openedBackend(given: LoadOptions['backend']): Ropewalk | undefined {
  if (given === undefined || typeof given === 'string') return undefined;
  return reading('loadModel: backend', () => (given instanceof Ropewalk ? given : new Ropewalk(given)));
}

function limitsOf(rw: Ropewalk, machine: LoadOptions['availableBytes']): MemoryLimits {
  const { availableBytes, tensorBytes } = rw.capabilities().memory ?? {};
  const machineBytes = rw.name === 'webgpu' ? undefined : machine?.();
  const known = [availableBytes, machineBytes].filter((bytes) => bytes !== undefined);
  return { availableBytes: known.length > 0 ? Math.min(...known) : undefined, tensorBytes };
}
