/** Our own engine: the forward pass on a backend of Ropewalk's operators. @module */
import { type BackendOptions, Ropewalk, type RopewalkOptions, ropewalk } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import {
  ACTIVATIONS,
  type Activations,
  BACKEND_NAMES,
  type OptionNames,
  reading,
  readName,
  readOptions,
} from 'ropewalk/internal';
import { type Decoder, finalNorm, forward, logitsOf, type Observer, Scratch } from './decoder.js';
import type { Engine, EngineModel, Sequence } from './engine.js';
import { KvCache } from './kv-cache.js';
import { CHUNK_TOKENS, logitRows, memoryOf } from './memory.js';
import { type PlannedModel, planModel } from './plan-model.js';
import type { SessionOptions } from './types.js';
import { assembleWeights, loadWeights, type Weight } from './upload.js';
import type { WidenTo } from './weights.js';

/** Options of {@link kernelEngine}. */
export interface KernelOptions extends BackendOptions {
  /** A backend's name, or an open backend, which the model uses and does not dispose. Default: `auto`. */
  readonly backend?: RopewalkOptions['backend'] | Ropewalk;
  /**
   * The dtype of matrices in memory whose type in a GGUF the backend does not read. Default: `f32`. `f16` takes half the
   * memory and rounds each weight to 11 bits, which moves logits by about a thousandth of the largest.
   */
  readonly widenTo?: WidenTo;
  /**
   * `q8` rounds the activations that are multiplied by matrices in blocks to 8 bits, as llama.cpp does: on cpu a prompt
   * is then half again as fast or more, and logits move by about a hundredth of the largest. Default: `f32`, which rounds
   * nothing. See `linear` of ropewalk.
   */
  readonly activations?: Activations;
}

export const KERNEL_NAMES: OptionNames<KernelOptions> = {
  ...BACKEND_NAMES,
  backend: true,
  widenTo: true,
  activations: true,
};

const BEYOND_WASM =
  'WebAssembly addresses 4 GiB at most; ONNX Runtime (--engine onnxruntime, openOnnxEngine) and webgpu have no such limit.';

/**
 * Makes the engine that loadModel uses by default.
 *
 * @param given - backend, threads, memory
 * @param observe - sees the tensors of each forward pass
 * @throws {RopewalkError} RANGE for a value that is no backend; UNSUPPORTED, when the model is opened, for activations
 *   that the backend cannot round
 * @example const engine = kernelEngine({ backend: 'cpu', threads: 2 });
 */
export function kernelEngine(given: KernelOptions = {}, observe?: Observer): Engine {
  const {
    backend,
    widenTo = 'f32',
    activations = 'f32',
    ...options
  } = readOptions(given, 'kernelEngine: options', KERNEL_NAMES);
  const shared = openedBackend(backend);
  return {
    name: 'kernels',
    async open(description) {
      const rw = shared ?? (await ropewalk({ ...options, backend: backend as 'auto' }));
      const free = (): void => {
        if (!shared) rw.dispose();
      };
      try {
        const { blockFormats = [], activations: known = ['f32'] } = rw.capabilities();
        const where = 'loadModel: activations';
        readName(activations, ACTIVATIONS, where);
        if (!known.includes(activations))
          fail('UNSUPPORTED', where, `${rw.name} does not round them. Use cpu, or leave them at f32.`);
        if (widenTo !== 'f32' && widenTo !== 'f16') refuse('DTYPE', 'loadModel: widenTo', 'f32 or f16', widenTo);
        const planned = planModel(description, { widenTo, formats: blockFormats });
        return kernelModel(rw, planned, { activations, observe }, free);
      } catch (error) {
        free();
        throw error;
      }
    },
  };
}

/** Returns the backend that the caller has opened; undefined if one is to be opened by name. */
function openedBackend(backend: KernelOptions['backend']): Ropewalk | undefined {
  if (backend === undefined || typeof backend === 'string') return undefined;
  return reading('loadModel: backend', () => (backend instanceof Ropewalk ? backend : new Ropewalk(backend)));
}

/** @param free - disposes the backend if it is the model's own */
function kernelModel(
  rw: Ropewalk,
  model: PlannedModel,
  running: Pick<Decoder, 'activations' | 'observe'>,
  free: () => void,
): EngineModel {
  const { config } = model;
  const loaded = new Map<string, Weight>();
  const scratch = new Scratch(rw, config);
  let decoder: Decoder | undefined;
  return {
    name: rw.name,
    memoryOf: (session) => memoryOf(config, model.weights, session),
    limits(machineBytes) {
      const { availableBytes, tensorBytes } = rw.capabilities().memory ?? {};
      const machine = rw.name === 'webgpu' ? undefined : machineBytes?.();
      const known = [availableBytes, machine].filter((bytes) => bytes !== undefined);
      const least = known.length > 0 ? Math.min(...known) : undefined;
      const next = rw.name === 'cpu' && least === availableBytes ? BEYOND_WASM : undefined;
      return { availableBytes: least, tensorBytes, next };
    },
    get scratchBytes() {
      return scratch.heldBytes;
    },
    async load(_session, options) {
      await loadWeights(rw, model, loaded, options);
      decoder = { runner: rw, config, weights: assembleWeights(config, loaded), scratch, ...running };
    },
    openSequence: (session) => kernelSequence(decoder!, session),
    dispose() {
      scratch.dispose();
      for (const weight of loaded.values()) weight.dispose();
      free();
    },
  };
}

/** A sequence on our kernels, with its parts. */
export interface KernelSequence extends Sequence {
  readonly cache: KvCache;
  readonly decoder: Decoder;
}

/** Starts a sequence of tokens whose keys and values are in the backend's memory. */
function kernelSequence(decoder: Decoder, { context, cacheDtype }: Required<SessionOptions>): KernelSequence {
  const { runner, config } = decoder;
  const cache = new KvCache(runner, config, context, cacheDtype);
  return {
    cache,
    decoder,
    chunkTokens: config.bidirectional ? context : CHUNK_TOKENS,
    get length() {
      return cache.length;
    },
    set length(length) {
      cache.length = length;
    },
    /** Queues all work on the shared scratch memory before it awaits anything, so that sequences do not mix. */
    run(tokens, positions, wanted, result) {
      const x = forward(decoder, tokens, cache, positions); // [t, h]
      if (wanted === 'none') return Promise.resolve(runner.finish());
      if (wanted === 'hidden') return settle(finalNorm(decoder, x).read(), result, 0);
      const first = wanted === 'last' ? tokens.length - 1 : 0;
      const rows = logitRows(config.vocabSize);
      const parts: Promise<void>[] = [];
      for (let row = first; row < tokens.length; row += rows) {
        const part = logitsOf(decoder, x.slice(0, row, Math.min(row + rows, tokens.length)));
        parts.push(settle(part.read(), result, (row - first) * config.vocabSize));
      }
      return Promise.all(parts);
    },
    async shift(from, count) {
      cache.shift(from, count);
      await runner.finish();
    },
    dispose: () => cache.dispose(),
  } satisfies Sequence & { readonly cache: KvCache; readonly decoder: Decoder };
}

async function settle(values: Float32Array | Promise<Float32Array>, to: Float32Array, at: number): Promise<void> {
  to.set(values instanceof Promise ? await values : values, at);
}
