/**
 * ONNX Runtime as an engine of loadModel: one graph for the whole model, whose keys and values stay in place.
 *
 * @module
 */
import type { Engine, ModelMemory, SessionOptions } from '@ropewalk/model';
import type { EngineModel, LoadingOptions, MemoryLimits, Sequence, Wanted } from '@ropewalk/model/internal';
import {
  type ModelDescription,
  memoryOf,
  type PlannedModel,
  planModel,
  SPLIT_FORMATS,
  shiftRows,
} from '@ropewalk/model/internal';
import { type OnnxModel, writeOnnxModel } from '@ropewalk/onnx';
import type { Ort, OrtSession, OrtSessionOptions, OrtTensor } from '@ropewalk/onnx/internal';
import { firstLine, loadGraph, type OnnxNode } from '@ropewalk/onnx/internal';
import { RopewalkError, type Tensor, tensorFrom } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import { countElements } from 'ropewalk/internal';
import { referenceRunner } from 'ropewalk/reference';
import { type DecoderGraph, decoderGraph } from './graph.js';
import type { DecoderForm, WeightConstant } from './scope.js';
import { layoutWeights, type WeightLayout, writeWeights } from './weights.js';

/** The options of a loaded graph that tell where its weights are. */
export type HeldWeights = Pick<OrtSessionOptions, 'externalData' | 'extra'>;

export type HoldWeights = (
  description: PlannedModel,
  constants: readonly WeightConstant[],
  layout: WeightLayout,
  options: LoadingOptions,
) => Promise<HeldWeights>;

/** The environment of {@link onnxEngine}. */
export interface EngineHost {
  readonly ort: Pick<Ort, 'InferenceSession' | 'Tensor'>;
  readonly form: DecoderForm;
  readonly options: OrtSessionOptions;
  readonly hold: HoldWeights;
  /** Widens 16-bit weights to f32. Default: false. */
  readonly widenHalves?: boolean;
}

/** The engine. openOnnxEngine opens it in Node, openOnnxWebEngine in pages. */
export function onnxEngine(host: EngineHost): Engine {
  return {
    name: 'onnxruntime',
    async open(description: ModelDescription): Promise<EngineModel> {
      return new LoadedGraph(host, planModel(description, { formats: SPLIT_FORMATS, widenHalves: host.widenHalves }));
    },
  };
}

/** Returns session options. Errors are thrown, and ONNX Runtime is told not to print them as well. */
export function sessionOptions(executionProviders: readonly string[], intraOpNumThreads: number): OrtSessionOptions {
  return { executionProviders, intraOpNumThreads, interOpNumThreads: 1, enableCpuMemArena: true, logSeverityLevel: 4 };
}

/** Weights of fewer bytes are small: they are converted each time, and kept in memory. */
export const SMALL_BYTES = 16 * 2 ** 20;

export function bytesOf({ files }: WeightLayout): number {
  return files.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
}

export const inMemory: HoldWeights = async (description, constants, layout, options) => {
  const files = new Map(layout.files.map(({ name, sizeBytes }) => [name, new Uint8Array(sizeBytes)]));
  const write = (file: string, at: number, bytes: Uint8Array): void => files.get(file)!.set(bytes, at);
  await writeWeights(description, constants, layout, write, options);
  return { externalData: [...files].map(([path, data]) => ({ path, data })) };
};

/** A graph that is loaded, or being loaded, and its number of positions. */
interface Loaded {
  readonly context: number;
  readonly session: Promise<OrtSession>;
}

class LoadedGraph implements EngineModel {
  readonly name = 'onnxruntime';
  /** It is part of ONNX Runtime's own memory, which keeps everything that a run allocated. */
  readonly scratchBytes = 0;
  /** Used for its inputs and constants, which are the same for every context. */
  readonly #graph: DecoderGraph;
  readonly #layout: WeightLayout;
  readonly #loaded = new Map<string, Loaded>();
  readonly #all: Loaded[] = [];
  readonly #running = new Set<Promise<unknown>>();
  #held: HeldWeights | undefined;

  constructor(
    readonly host: EngineHost,
    readonly description: PlannedModel,
  ) {
    this.#graph = this.#graphOf(1);
    this.#layout = layoutWeights(this.#graph.constants);
  }

  memoryOf({ context, cacheDtype }: Required<SessionOptions>): ModelMemory {
    const dtype = checkCache(cacheDtype);
    const usual = memoryOf(this.description.config, [], { context, cacheDtype: 'f32' });
    const largest = { bytes: 0, name: '' };
    let weightsBytes = 0;
    for (const [name, bytes] of this.#heldConstants()) {
      weightsBytes += bytes;
      if (bytes > largest.bytes) Object.assign(largest, { bytes, name });
    }
    const shapes = this.cacheShapes().map(([, heads, width]) => heads * width);
    const cacheBytesPerToken = (dtype === 'f16' ? 2 : 4) * shapes.reduce((sum, one) => sum + one, 0);
    const stateBytes = usual.cacheBytes - context * usual.cacheBytesPerToken;
    const cacheBytes = context * cacheBytesPerToken + stateBytes;
    const { scratchBytes, tableBytes } = usual;
    return {
      ...usual,
      weightsBytes,
      cacheBytesPerToken,
      cacheBytes,
      totalBytes: weightsBytes + cacheBytes + scratchBytes + tableBytes,
      largestBytes: largest.bytes,
      largestName: largest.name,
    };
  }

  limits(machineBytes: (() => number | undefined) | undefined): MemoryLimits {
    return { availableBytes: machineBytes?.() };
  }

  async load(session: Required<SessionOptions>, options: LoadingOptions): Promise<void> {
    await this.#sessionFor(session, options);
  }

  openSequence({ context, cacheDtype }: Required<SessionOptions>): Sequence {
    return new OnnxSequence(this, context, checkCache(cacheDtype));
  }

  /** Runs the graph of a context and a dtype of caches, and loads it before the first run. */
  run(wanted: Required<SessionOptions>, ...call: Parameters<OrtSession['run']>): ReturnType<OrtSession['run']> {
    const session = this.#sessionFor(wanted, { signal: undefined, onProgress: undefined });
    const running = session.then((one) => one.run(...call)).finally(() => this.#running.delete(running));
    this.#running.add(running);
    return running;
  }

  dispose(): void {
    // ONNX Runtime would refuse to release a graph that runs. A graph that did not load needs no release.
    const idle = Promise.allSettled(this.#running);
    for (const { session } of this.#all) void idle.then(async () => (await session).release()).catch(() => {});
    this.#all.length = 0;
    this.#loaded.clear();
  }

  /** Returns the graph for a context. Its tables end there, and some scalings choose their frequencies by it. */
  #sessionFor(wanted: Required<SessionOptions>, options: LoadingOptions): Promise<OrtSession> {
    const { context, cacheDtype } = wanted;
    const key = JSON.stringify([cacheDtype, this.description.config.layers(context)]);
    const known = this.#loaded.get(key);
    if (known && known.context >= context) return known.session;
    const loaded = { context, session: this.#loadGraph(wanted, options) };
    this.#loaded.set(key, loaded);
    this.#all.push(loaded);
    loaded.session.catch(() => this.#loaded.delete(key)); // the next call tries again
    return loaded.session;
  }

  async #loadGraph(wanted: Required<SessionOptions>, options: LoadingOptions): Promise<OrtSession> {
    const { ort, hold, options: usual } = this.host;
    const { graph, constants } = this.#graphOf(wanted.context, checkCache(wanted.cacheDtype));
    const held = this.#held ?? (await hold(this.description, constants, this.#layout, options));
    // The files are closed after loading. Large weights are not kept a second time beside ONNX Runtime's own.
    if (!held.externalData || bytesOf(this.#layout) < SMALL_BYTES) this.#held = held;
    options.signal?.throwIfAborted();
    for (const [name, tensor] of this.#layout.tensors) graph.external.set(name, tensor);
    const model = writeOnnxModel(largestFirst(graph.model('decoder', 'ropewalk')));
    const extra = { session: { ...usual.extra?.session, ...held.extra?.session } };
    return loadGraph(ort, model, { ...usual, ...held, extra }, this.description.where);
  }

  #graphOf(context: number, cacheDtype: CacheDtype = 'f32'): DecoderGraph {
    const { config, weights } = this.description;
    return decoderGraph(config, weights, { form: this.host.form, context, cacheDtype, hidden: true, newRows: true });
  }

  /** The axes of position_ids, `[axes, batch, seq]`; 1 for `[batch, seq]`, 0 if ONNX Runtime counts tokens itself. */
  get axes(): number {
    const shape = this.#graph.graph.inputs.find(({ name }) => name === 'position_ids')?.shape;
    return shape?.length === 3 ? (shape[0] as number) : shape ? 1 : 0;
  }

  /** Returns name, heads and width of every cache. */
  cacheShapes(): [name: string, heads: number, width: number][] {
    const caches = this.#graph.graph.inputs.filter(({ name }) => name.startsWith(PAST));
    return caches.map(({ name, shape }) => [name.slice(PAST.length), shape[1] as number, shape[3] as number]);
  }

  /** Returns name and shape, `[channels, width]`, of every state. */
  stateShapes(): [name: string, shape: number[]][] {
    const states = this.#graph.graph.inputs.filter(({ name }) => name.startsWith(STATE));
    return states.map(({ name, shape }) => [name.slice(STATE.length), shape.slice(1) as number[]]);
  }

  /**
   * Returns the bytes that ONNX Runtime keeps for each constant. It packs matrices when it loads a graph, and needs the
   * mapped file no longer. For blocks it keeps codes, scales and a sum, 4 bytes per block each; numbers become f32.
   */
  #heldConstants(): [name: string, bytes: number][] {
    const seen = new Set<number | string>();
    return this.#graph.constants.flatMap(({ name, shape, madeAs }): [string, number][] => {
      const { location, byteOffset, sizeBytes } = this.#layout.tensors.get(name)!;
      if (seen.has(`${location} ${byteOffset}`)) return [];
      seen.add(`${location} ${byteOffset}`);
      const integers = madeAs === 'codes' || madeAs === 'signed';
      const bytes = integers ? sizeBytes : 4 * countElements(shape) * (madeAs === 'scales' ? 2 : 1);
      return [[name, bytes]];
    });
  }

  /** A run cannot be interrupted, so a large model takes few tokens at once: about half a second of two cores. */
  chunkTokens(): number {
    return Math.max(32, Math.min(512, 2 ** Math.floor(Math.log2(2 ** 37 / bytesOf(this.#layout)))));
  }
}

/**
 * Puts the nodes with the largest constant first. ONNX Runtime packs the weights of nodes in this order, and each
 * weight is mapped until it is packed. The head's would otherwise be mapped while all others are packed already.
 */
function largestFirst(model: OnnxModel): OnnxModel {
  const bytesOf = ({ inputs }: OnnxNode): number =>
    inputs.reduce((most, name) => Math.max(most, model.external?.get(name)?.sizeBytes ?? 0), 0);
  const largest = model.nodes.reduce((most, node) => Math.max(most, bytesOf(node)), 0);
  const [first, others] = [true, false].map((wanted) =>
    model.nodes.filter((node) => (bytesOf(node) === largest) === wanted),
  );
  return { ...model, nodes: [...first!, ...others!] };
}

const PAST = 'past_key_values.';
const STATE = 'past_conv.';
/** The axes on which text advances: t, h and w. On the fourth it stays at 0, as in llama.cpp. */
const TEXT_AXES = 3;
/** The fewest tokens for which caches have room. */
const LEAST_ROWS = 64;
/**
 * The hidden states of a prompt come with logits that nobody reads. This many logits, 16 MB, are computed at a time.
 */
const UNREAD_LOGITS = 2 ** 22;

/** The dtypes of caches that graphs have. */
type CacheDtype = 'f32' | 'f16';

function checkCache(dtype: Required<SessionOptions>['cacheDtype']): CacheDtype {
  if (dtype === 'f32' || dtype === 'f16') return dtype;
  const next = 'Take f16, or load the model without engine.';
  return fail('UNSUPPORTED', 'onnxruntime: cacheDtype', `keys and values are f32 or f16 in this engine. ${next}`);
}

/** Keys or values of a layer. */
interface Cache {
  readonly heads: number;
  readonly width: number;
  /** The number of tokens for which each head has room. */
  readonly rows: number;
  /** `[heads, rows, width]`. */
  readonly data: Float32Array | Uint16Array;
  /** A tensor over the same memory. */
  readonly tensor: OrtTensor;
}

/** The values of an output as an array like another: ONNX Runtime gives f16 as Float16Array where there is one. */
function valuesOf({ data }: OrtTensor, like: Cache['data']): Cache['data'] {
  if (like instanceof Float32Array) return data as Float32Array;
  const { buffer, byteOffset, length } = data as Uint16Array;
  return new Uint16Array(buffer, byteOffset, length);
}

class OnnxSequence implements Sequence {
  length = 0;
  readonly chunkTokens: number;
  readonly #model: LoadedGraph;
  readonly #context: number;
  readonly #cacheDtype: CacheDtype;
  /** Caches by their names without `past_key_values.`. */
  #caches: Map<string, Cache>;
  /** States by their names without `past_conv.`, `[1, channels, width]`. */
  readonly #states: Map<string, OrtTensor>;
  readonly #mask: BigInt64Array;

  constructor(model: LoadedGraph, context: number, cacheDtype: CacheDtype) {
    this.#model = model;
    this.#context = context;
    this.#cacheDtype = cacheDtype;
    this.chunkTokens = model.chunkTokens();
    this.#caches = new Map(model.cacheShapes().map(([name, heads, width]) => [name, this.#cache(heads, 0, width)]));
    this.#states = new Map(
      model.stateShapes().map(([name, shape]) => {
        const zeros = new Float32Array(countElements(shape));
        return [name, new model.host.ort.Tensor('float32', zeros, [1, ...shape])];
      }),
    );
    this.#mask = new BigInt64Array(context).fill(1n);
  }

  async run(
    tokens: Int32Array,
    positions: Int32Array | undefined,
    wanted: Wanted,
    result: Float32Array,
  ): Promise<void> {
    const { axes, description } = this.#model;
    if (positions && axes <= 1) {
      const next = 'Leave them out, or load the model without engine.';
      fail('UNSUPPORTED', 'append: positions', `this engine counts the positions of this model itself. ${next}`);
    }
    const [start, count] = [this.length, tokens.length];
    /** A single axis stands for t, h and w. A missing fourth axis is 0. */
    const positionOf = (axis: number, token: number): number => {
      if (!positions) return axis < TEXT_AXES ? start + token : 0;
      const from = positions.length === count && axis < TEXT_AXES ? 0 : axis;
      return positions[from * count + token] ?? 0;
    };
    const { hiddenSize, vocabSize } = description.config;
    const rows = wanted === 'hidden' ? Math.max(1, Math.floor(UNREAD_LOGITS / vocabSize)) : tokens.length;
    for (let at = 0; at < tokens.length; at += rows) {
      const piece = tokens.subarray(at, at + rows);
      await this.#step(piece, (axis, n) => positionOf(axis, at + n), wanted, result.subarray(at * hiddenSize));
    }
  }

  async shift(from: number, count: number): Promise<void> {
    const { config } = this.#model.description;
    const layers = config.layers(this.#context);
    // The graph has heads first; this view has rows first.
    const seen = (name: string): Tensor<CacheDtype> => {
      const { heads, rows, width, data } = this.#caches.get(name)!;
      return tensorFrom(data, { dtype: this.#cacheDtype, shape: [heads, rows, width] }).permute([1, 0, 2]);
    };
    const of = (what: string) =>
      layers.map((_, n) => (this.#caches.has(`${n}.${what}`) ? seen(`${n}.${what}`) : undefined));
    const [k, v] = [of('key'), of('value')];
    const plain = config.latent ? k[0]!.shape[2]! - config.latent.rope : 0;
    shiftRows(referenceRunner(), { length: this.length, k, v, layers }, plain, { from, count });
    this.length -= count;
  }

  dispose(): void {
    this.#caches = new Map();
  }

  async #step(
    tokens: Int32Array,
    positionOf: (axis: number, token: number) => number,
    wanted: Wanted,
    result: Float32Array,
  ): Promise<void> {
    const { host, description, axes } = this.#model;
    const count = tokens.length;
    const tensor = (type: string, data: ArrayBufferView, dims: number[]) => new host.ort.Tensor(type, data, dims);
    const past = this.#roomFor(this.length + count);
    const ids = BigInt64Array.from({ length: axes * count }, (_, n) =>
      BigInt(positionOf(Math.floor(n / count), n % count)),
    );
    const feeds: Record<string, OrtTensor> = {
      input_ids: tensor('int64', BigInt64Array.from(tokens, BigInt), [1, count]),
      attention_mask: tensor('int64', this.#mask.subarray(0, this.length + count), [1, this.length + count]),
      num_logits_to_keep: tensor('int64', BigInt64Array.of(wanted === 'all' || wanted === 'hidden' ? 0n : 1n), []),
    };
    if (axes > 0) feeds.position_ids = tensor('int64', ids, axes === 1 ? [1, count] : [axes, 1, count]);
    const output = wanted === 'hidden' ? 'hidden_states' : 'logits';
    const fetches: Record<string, OrtTensor | null> = { [output]: null };
    for (const [name, cache] of past) {
      feeds[PAST + name] = cache.tensor;
      fetches[`present.${name}`] = null;
    }
    for (const [name, state] of this.#states) {
      // A sequence that starts has no earlier tokens.
      if (this.length === 0) (state.data as Float32Array).fill(0);
      feeds[STATE + name] = state;
      fetches[`present_conv.${name}`] = null;
    }
    const results = await this.#model
      .run({ context: this.#context, cacheDtype: this.#cacheDtype }, feeds, fetches)
      .catch((cause: unknown) => {
        if (cause instanceof RopewalkError) throw cause; // an error of loading
        const why = `the graph does not run: ${firstLine(cause)}. Load the model again, or without engine.`;
        throw new RopewalkError('DEVICE', `onnxruntime: ${description.where}: ${why}`, { cause });
      });
    // onnxruntime-node copies every output into new memory, even if it gets memory for it.
    const floats = (name: string): Float32Array => results[name]!.data as Float32Array;
    if (wanted !== 'none') result.set(floats(output));
    for (const [name, cache] of past) {
      const { heads, rows, width, data } = cache;
      const fresh = valuesOf(results[`present.${name}`]!, data);
      for (let head = 0; head < heads; head++)
        data.set(fresh.subarray(head * count * width, (head + 1) * count * width), (head * rows + this.length) * width);
    }
    for (const [name, { data }] of this.#states) (data as Float32Array).set(floats(`present_conv.${name}`));
    this.length += count;
  }

  /**
   * Returns the caches with room for some tokens. They grow by a quarter, and do not have the whole context from the
   * start, because ONNX Runtime clears as much memory for every layer of every step.
   */
  #roomFor(tokens: number): Map<string, Cache> {
    if (this.#caches.size === 0) fail('DEVICE', 'session', 'it was disposed. Open another one: model.openSession().');
    for (const [name, { heads, rows, width, data }] of this.#caches) {
      if (rows >= tokens) continue;
      const more = Math.max(tokens, LEAST_ROWS, Math.ceil(1.25 * rows));
      const grown = this.#cache(heads, Math.min(this.#context, more), width);
      for (let head = 0; head < heads; head++) {
        const first = head * rows * width;
        grown.data.set(data.subarray(first, first + this.length * width), head * grown.rows * width);
      }
      this.#caches.set(name, grown);
    }
    return this.#caches;
  }

  #cache(heads: number, rows: number, width: number): Cache {
    const [type, Values] =
      this.#cacheDtype === 'f32' ? (['float32', Float32Array] as const) : (['float16', Uint16Array] as const);
    const data = new Values(heads * rows * width);
    const tensor = new this.#model.host.ort.Tensor(type, data, [1, heads, rows, width]);
    return { heads, width, rows, data, tensor };
  }
}
