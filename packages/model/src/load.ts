/**
 * Files → a model in a backend's memory: everything is checked and summed up first, then one tensor at a time goes straight to its place.
 *
 * Files are byte sources, so that browsers (blobs, fetched ranges) and Node (load.node.ts) do alike.
 *
 * @module
 */
import { type BackendOptions, Ropewalk, type RopewalkOptions, ropewalk } from 'ropewalk';
import { reading, readList, readOptions, refuse } from 'ropewalk/backend';
import { checkSignal, checkTokenizer, checkTypes } from './arguments.js';
import { type Decoder, Scratch } from './decoder.js';
import { type CacheDtype, checkFits, type MemoryLimits, memoryOf, usualContext } from './memory.js';
import { folderOf, type ModelFiles, readHeaders } from './model-files.js';
import { DecoderSession } from './session.js';
import type { DecoderConfig, Model, ModelMemory, Session, SessionOptions, Tokenizer } from './types.js';
import { type LoadProgress, loadWeights } from './upload.js';
import { assembleWeights, planWeights, type Weight, type WeightPlan, type WidenTo } from './weights.js';

export type { ByteSource } from '@ropewalk/formats';
export { byteSource, fetchSource } from './byte-source.js';
export type { ModelFiles } from './model-files.js';
export type { LoadProgress } from './upload.js';

/** How {@link loadModel} loads. */
export interface LoadOptions extends SessionOptions, BackendOptions {
  /** A backend's name, `auto` unless given; or one that is open, which the model then uses and leaves open. */
  readonly backend?: RopewalkOptions['backend'] | Ropewalk;
  /**
   * What matrices in a GGUF's K, IQ and 5-bit types become in memory: `f32`, the default, or `f16`, which takes half of it and rounds each
   * weight to 11 bits: that moves logits by about a thousandth of the largest. Q8_0 and Q4_0 stay as they are.
   */
  readonly widenTo?: WidenTo;
  /** Told what the model will take before anything is allocated; throwing here ends the loading. */
  readonly onMemory?: (memory: ModelMemory, config: DecoderConfig) => void;
  readonly onProgress?: (progress: LoadProgress) => void;
  /** Ends the loading with the signal's reason; what was loaded is given back. */
  readonly signal?: AbortSignal;
  /** Bytes that the machine can give, where somebody knows: ropewalk/model/node does. Unused where a GPU holds the weights. */
  readonly availableBytes?: () => number | undefined;
  /** Used instead of the files' own. */
  readonly tokenizer?: Tokenizer;
  /** Names the model in messages: its path or address. */
  readonly where?: string;
}

/**
 * Loads a model.
 *
 * @param files - by name; a folder with config.json and *.safetensors (sharded ones with their index), or one GGUF
 * @param given - options: backend, room, callbacks
 * @returns a model that the caller disposes
 * @throws {RopewalkError} FORMAT for files that are missing, cut or forged; UNSUPPORTED for an architecture, tensor or type that is not
 *   computed here; DEVICE when it does not fit. All before weights take memory
 * @example const model = await loadModel({ 'model.gguf': blob }, { onProgress: ({ doneBytes, totalBytes }) => … });
 */
export async function loadModel(files: ModelFiles, given: LoadOptions = {}): Promise<Model> {
  const options = readOptions(given, 'loadModel: options');
  const { signal, backend, onMemory } = options;
  checkSignal(signal, 'loadModel');
  checkTypes(options, ['onMemory', 'onProgress', 'availableBytes'], 'function', 'loadModel');
  checkTypes(options, ['where'], 'string', 'loadModel');
  if (options.tokenizer !== undefined) checkTokenizer(options.tokenizer, 'loadModel');
  const shared = openedBackend(backend);
  signal?.throwIfAborted();
  const folder = folderOf(files, options.where);
  const found = await readHeaders(folder);
  const { widenTo = 'f32' } = options;
  if (widenTo !== 'f32' && widenTo !== 'f16') refuse('DTYPE', 'loadModel: widenTo', 'f32 or f16', widenTo);
  const plans = planWeights(found.config, found.stored, folder.where, widenTo);
  const sessionDefaults = {
    context: options.context ?? usualContext(found.config),
    cacheDtype: options.cacheDtype ?? 'f32',
  } as const;
  checkSession(found.config, sessionDefaults, 'loadModel');
  const memory = memoryOf(found.config, plans, sessionDefaults);
  const tokenizer = options.tokenizer ?? (await found.readTokenizer());
  signal?.throwIfAborted();

  const { threads, memoryLimit, simd, powerPreference } = options;
  const rw = shared ?? (await ropewalk({ backend: backend as 'auto', threads, memoryLimit, simd, powerPreference }));
  const loaded = new Map<string, Weight>();
  try {
    const limits = (): MemoryLimits => limitsOf(rw, options.availableBytes);
    onMemory?.(memory, found.config);
    checkFits(`${folder.where} on ${rw.name}`, memory, limits());
    await loadWeights(rw, plans, folder, loaded, options);
    const decoder: Decoder = {
      runner: rw,
      config: found.config,
      weights: assembleWeights(found.config, loaded),
      scratch: new Scratch(rw, found.config),
    };
    return new LoadedModel(decoder, tokenizer, memory, { where: folder.where, plans, limits, sessionDefaults }, () => {
      for (const weight of loaded.values()) weight.dispose();
      if (!shared) rw.dispose();
    });
  } catch (error) {
    for (const weight of loaded.values()) weight.dispose();
    if (!shared) rw.dispose();
    throw error;
  }
}

/** What a model keeps from its loading. */
interface Origin {
  readonly where: string;
  readonly plans: readonly WeightPlan[];
  readonly limits: () => MemoryLimits;
  readonly sessionDefaults: { readonly context: number; readonly cacheDtype: CacheDtype };
}

class LoadedModel implements Model {
  private readonly sessions = new Set<DecoderSession>();
  private closed = false;

  constructor(
    private readonly decoder: Decoder,
    readonly tokenizer: Tokenizer,
    readonly memory: ModelMemory,
    private readonly origin: Origin,
    private readonly free: () => void,
  ) {}

  get config(): DecoderConfig {
    return this.decoder.config;
  }

  get backend(): string {
    return this.decoder.runner.name;
  }

  openSession(options: SessionOptions = {}): Session {
    return this.open(readOptions(options, 'openSession: options'));
  }

  async hidden(tokens: readonly number[]): Promise<Float32Array> {
    const list = Array.from(readList(tokens, 'hidden: tokens', 'a list of tokens'));
    const session = this.open({ context: Math.max(1, list.length) });
    try {
      return await session.hidden(list);
    } finally {
      session.dispose();
    }
  }

  private open(options: SessionOptions): DecoderSession {
    if (this.closed) refuse('DEVICE', 'model', 'a loaded one', 'one that was disposed', 'Load it again.');
    const { where, plans, limits, sessionDefaults } = this.origin;
    const { context = sessionDefaults.context, cacheDtype = sessionDefaults.cacheDtype } = options;
    checkSession(this.config, { context, cacheDtype }, 'openSession');
    const memory = memoryOf(this.config, plans, { context, cacheDtype });
    const held = memory.weightsBytes + Math.min(memory.scratchBytes, this.decoder.scratch.heldBytes);
    checkFits(`${where} on ${this.backend}`, memory, limits(), held);
    const session = new DecoderSession(this.decoder, context, cacheDtype, (closed) => this.sessions.delete(closed));
    this.sessions.add(session);
    return session;
  }

  dispose(): void {
    if (this.closed) return;
    this.closed = true;
    for (const session of [...this.sessions]) session.dispose();
    this.decoder.scratch.dispose();
    this.free();
  }
}

function checkSession(config: DecoderConfig, { context, cacheDtype }: Required<SessionOptions>, where: string): void {
  if (!Number.isInteger(context) || context < 1 || context > config.maxContext)
    refuse('RANGE', `${where}: context`, `an integer in [1, ${config.maxContext}], the model's own`, context);
  if (cacheDtype !== 'f32' && cacheDtype !== 'f16' && cacheDtype !== 'bf16')
    refuse('DTYPE', `${where}: cacheDtype`, 'f32, f16 or bf16', cacheDtype);
}

function limitsOf(rw: Ropewalk, machine: LoadOptions['availableBytes']): MemoryLimits {
  const { availableBytes, tensorBytes } = rw.capabilities().memory ?? {};
  const machineBytes = rw.name === 'webgpu' ? undefined : machine?.();
  const known = [availableBytes, machineBytes].filter((bytes) => bytes !== undefined);
  return { availableBytes: known.length > 0 ? Math.min(...known) : undefined, tensorBytes };
}

/** The backend that the caller opened; undefined where one is to be opened by name. */
function openedBackend(given: LoadOptions['backend']): Ropewalk | undefined {
  if (given === undefined || typeof given === 'string') return undefined;
  return reading('loadModel: backend', () => (given instanceof Ropewalk ? given : new Ropewalk(given)));
}
