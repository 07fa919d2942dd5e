/** The engine that needs nothing else: the forward pass on a backend of Ropewalk's operators. @module */
import { type Activations, type BackendOptions, Ropewalk, type RopewalkOptions, ropewalk } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { ACTIVATIONS, BACKEND_NAMES, type OptionNames, reading, readName, readOptions } from 'ropewalk/internal';
import { type Decoder, finalNorm, forward, logitsOf, Scratch } from './decoder.js';
import type { ModelDescription } from './description.js';
import type { Engine, EngineModel, LoadingOptions, Sequence, Wanted } from './engine.js';
import { KvCache } from './kv-cache.js';
import { CHUNK_TOKENS, logitRows, type MemoryLimits, memoryOf } from './memory.js';
import { type PlannedModel, planModel } from './plan-model.js';
import type { ModelMemory, SessionOptions } from './types.js';
import { assembleWeights, loadWeights, type Weight } from './upload.js';
import type { WidenTo } from './weights.js';

/** How the kernels are opened. */
export interface KernelOptions extends BackendOptions {
  /** A backend's name, `auto` unless given; or an open one, which the model uses and does not dispose. */
  readonly backend?: RopewalkOptions['backend'] | Ropewalk;
  /**
   * What matrices in a GGUF's types become in memory where the backend does not read them as they lie: `f32`, the
   * default, or `f16`, which takes half the memory and rounds each weight to 11 bits. That moves logits by about a
   * thousandth of the largest.
   */
  readonly widenTo?: WidenTo;
  /**
   * `q8` rounds what is multiplied by matrices in blocks to 8 bits, as llama.cpp does: on cpu a prompt is then half
   * again as fast or more, and logits move by about a hundredth of the largest. `f32`, the default, rounds nothing. See
   * `linear` of ropewalk.
   */
  readonly activations?: Activations;
}

/** The names of them. */
export const KERNEL_NAMES: OptionNames<KernelOptions> = {
  ...BACKEND_NAMES,
  backend: true,
  widenTo: true,
  activations: true,
};

/**
 * The engine that loadModel takes unless it is given one.
 *
 * @param given - backend, threads, memory
 * @throws {RopewalkError} RANGE for a backend that is none; UNSUPPORTED, when the model is opened, for activations that it
 *   cannot round
 * @example const engine = kernelEngine({ backend: 'cpu', threads: 2 });
 */
export function kernelEngine(given: KernelOptions = {}): Engine {
  const {
    backend,
    widenTo = 'f32',
    activations = 'f32',
    ...options
  } = readOptions(given, 'kernelEngine: options', KERNEL_NAMES);
  const shared = openedBackend(backend);
  return {
    name: 'kernels',
    async open(description: ModelDescription): Promise<EngineModel> {
      const rw = shared ?? (await ropewalk({ ...options, backend: backend as 'auto' }));
      const free = (): void => {
        if (!shared) rw.dispose();
      };
      try {
        const { blockFormats = [], activations: known = ['f32'] } = rw.capabilities();
        readName(activations, ACTIVATIONS, 'loadModel: activations');
        if (!known.includes(activations))
          fail(
            'UNSUPPORTED',
            'loadModel: activations',
            `${rw.name} does not round them. Use cpu, or leave them at f32.`,
          );
        if (widenTo !== 'f32' && widenTo !== 'f16') refuse('DTYPE', 'loadModel: widenTo', 'f32 or f16', widenTo);
        return new KernelModel(rw, planModel(description, { widenTo, formats: blockFormats }), activations, free);
      } catch (error) {
        free();
        throw error;
      }
    },
  };
}

/** The backend that the caller has opened; undefined if one is to be opened by name. */
function openedBackend(given: KernelOptions['backend']): Ropewalk | undefined {
  if (given === undefined || typeof given === 'string') return undefined;
  return reading('loadModel: backend', () => (given instanceof Ropewalk ? given : new Ropewalk(given)));
}

class KernelModel implements EngineModel {
  readonly #model: PlannedModel;
  readonly #rw: Ropewalk;
  readonly #activations: Activations;
  readonly #free: () => void;
  readonly #loaded = new Map<string, Weight>();
  readonly #scratch: Scratch;
  #decoder: Decoder | undefined;

  /** @param free - gives the backend back */
  constructor(rw: Ropewalk, model: PlannedModel, activations: Activations, free: () => void) {
    this.#model = model;
    this.#rw = rw;
    this.#activations = activations;
    this.#free = free;
    this.#scratch = new Scratch(rw, model.config);
  }

  get name(): string {
    return this.#rw.name;
  }

  memoryOf(session: Required<SessionOptions>): ModelMemory {
    return memoryOf(this.#model.config, this.#model.weights, session);
  }

  limits(machineBytes: (() => number | undefined) | undefined): MemoryLimits {
    const { availableBytes, tensorBytes } = this.#rw.capabilities().memory ?? {};
    const machine = this.#rw.name === 'webgpu' ? undefined : machineBytes?.();
    const known = [availableBytes, machine].filter((bytes) => bytes !== undefined);
    return { availableBytes: known.length > 0 ? Math.min(...known) : undefined, tensorBytes };
  }

  get scratchBytes(): number {
    return this.#scratch.heldBytes;
  }

  async load(_session: Required<SessionOptions>, options: LoadingOptions): Promise<void> {
    await loadWeights(this.#rw, this.#model, this.#loaded, options);
    const { config } = this.#model;
    const weights = assembleWeights(config, this.#loaded);
    this.#decoder = { runner: this.#rw, config, weights, scratch: this.#scratch, activations: this.#activations };
  }

  openSequence(session: Required<SessionOptions>): Sequence {
    return new KernelSequence(this.#decoder!, session);
  }

  dispose(): void {
    this.#scratch.dispose();
    for (const weight of this.#loaded.values()) weight.dispose();
    this.#free();
  }
}

/** A sequence of tokens, with keys and values in the backend's memory. */
export class KernelSequence implements Sequence {
  readonly chunkTokens = CHUNK_TOKENS;
  readonly cache: KvCache;
  readonly decoder: Decoder;

  constructor(decoder: Decoder, { context, cacheDtype }: Required<SessionOptions>) {
    this.decoder = decoder;
    this.cache = new KvCache(decoder.runner, decoder.config, context, cacheDtype);
  }

  get length(): number {
    return this.cache.length;
  }

  set length(length: number) {
    this.cache.length = length;
  }

  /** Queues everything that uses the shared scratch memory before anything is awaited, so sequences do not mix. */
  run(tokens: Int32Array, positions: Int32Array | undefined, wanted: Wanted, result: Float32Array): Promise<unknown> {
    const { decoder } = this;
    const x = forward(decoder, tokens, this.cache, positions); // [t, h]
    if (wanted === 'none') return decoder.runner.finish();
    if (wanted === 'hidden') return settle(finalNorm(decoder, x).read(), result, 0);
    if (wanted === 'last')
      return settle(logitsOf(decoder, x.slice(0, tokens.length - 1, tokens.length)).read(), result, 0);
    const { vocabSize } = decoder.config;
    const rows = logitRows(vocabSize);
    const parts: Promise<void>[] = [];
    for (let row = 0; row < tokens.length; row += rows) {
      const part = x.slice(0, row, Math.min(row + rows, tokens.length));
      parts.push(settle(logitsOf(decoder, part).read(), result, row * vocabSize));
    }
    return Promise.all(parts);
  }

  async shift(from: number, count: number): Promise<void> {
    this.cache.shift(from, count);
    await this.decoder.runner.finish();
  }

  dispose(): void {
    this.cache.dispose();
  }
}

async function settle(values: Float32Array | Promise<Float32Array>, to: Float32Array, at: number): Promise<void> {
  to.set(values instanceof Promise ? await values : values, at);
}
