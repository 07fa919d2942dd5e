/** Sums up the memory of a model, and checks that it fits, before anything is allocated. @module */
import { sizeBytes } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import type { DecoderConfig, ModelMemory, SessionOptions } from './types.js';
import { attends, deltaWidth, layerSizes, spaceSizes, type WeightPlan } from './weights.js';

/** The tokens of a prompt that run at once: enough to use the weights well, few enough to keep activations small. */
export const CHUNK_TOKENS = 512;
/** The logits that are computed at a time, 16 MB. A whole chunk has 300 MB with a vocabulary of 150,000. */
const MAX_LOGITS = 2 ** 22;

/** The dtype of a KV cache. */
export type CacheDtype = Required<SessionOptions>['cacheDtype'];
export const CACHE_DTYPES: readonly CacheDtype[] = ['f32', 'f16', 'bf16', 'f8_e4m3', 'i8'];

/** Says whether a cache has 8 bits, which no operator but RoPE and attention takes. */
export function isEightBits(dtype: CacheDtype): dtype is 'f8_e4m3' | 'i8' {
  return dtype === 'f8_e4m3' || dtype === 'i8';
}

/** The limits of memory. */
export interface MemoryLimits {
  /** Bytes that all tensors together may take; undefined if unknown. */
  readonly availableBytes?: number | undefined;
  /** Bytes that one tensor may take; undefined if there is no such limit. */
  readonly tensorBytes?: number | undefined;
  /** A sentence that says what has room for more; undefined if nothing on this machine has. */
  readonly next?: string | undefined;
}

/** Returns the default context of a session: the model's own, but at most 4096. */
export function usualContext(config: DecoderConfig): number {
  return Math.min(config.maxContext, 4096);
}

/**
 * Lists the activations of one token that a model needs, with their widths in elements of 4 bytes.
 *
 * `x` is the residual stream; `normed` its normalised copy, and then the output of the feed-forward block; `branch` the
 * output of attention.
 */
export function activationsOf(config: DecoderConfig) {
  const { hiddenSize, numHeads, numKvHeads, headDim, valueDim, family, latent, experts, recurrent } = config;
  const { used = 0, width = 0, sharedWidth = 0 } = experts ?? {};
  const inner = Math.max(config.intermediateSize, used * width, sharedWidth);
  const gatedShare = family.experts?.shared === 'gated' && sharedWidth > 0 ? 1 : 0;
  const delta = recurrent?.kind === 'delta' ? recurrent : undefined;
  const space = spaceSizes(config);
  const cached = latent ? latent.rank + latent.rope : 0;
  const perLayer = config.perLayerWidth * config.numLayers;
  const streams = config.altup?.streams ?? 0;
  const widths = {
    x: hiddenSize,
    normed: hiddenSize,
    branch: hiddenSize,
    q: numHeads * headDim * (family.outputGate ? 2 : 1),
    k: latent ? cached : numKvHeads * headDim,
    v: latent ? 0 : numKvHeads * valueDim,
    attended: numHeads * (latent?.rank ?? valueDim),
    gate: family.ungated ? 0 : inner,
    up: inner,
    queryLatent: latent?.queryRank ?? 0,
    absorbed: numHeads * cached,
    values: latent ? numHeads * valueDim : 0,
    routerLogits: experts?.count ?? 0,
    indices: used,
    chosen: used,
    routed: experts ? hiddenSize : 0,
    expertLatent: experts?.latent ?? 0,
    expertScales: family.experts?.beside ? used : 0,
    perLayer,
    perLayerProjected: perLayer,
    perLayerGate: config.perLayerWidth,
    streams: streams * hiddenSize,
    predicted: streams * hiddenSize,
    mixed: streams * hiddenSize,
    modalities: streams,
    coefs: streams * streams,
    laurel: config.altup ? hiddenSize : 0,
    laurelInner: config.altup?.laurelRank ?? 0,
    magnitude: config.altup ? 1 : 0,
    sharedLogit: gatedShare,
    sharedIndex: gatedShare,
    sharedLogitWeight: gatedShare,
    projected: recurrent?.kind === 'conv' ? 3 * hiddenSize : deltaWidth(config) || space.ssm,
    convolved: recurrent?.kind === 'conv' ? hiddenSize : deltaWidth(config) || space.xbc,
    scanned: space.inner,
    scaled: config.branchScales ? hiddenSize : 0,
    beside: family.stateBeside ? hiddenSize : 0,
    deltaZ: delta ? delta.heads * delta.valueDim : 0,
    deltaBeta: delta?.heads ?? 0,
    deltaDecay: delta?.heads ?? 0,
    deltaOut: delta ? delta.heads * delta.valueDim : 0,
  };
  return Object.entries(widths).filter(([, width]) => width > 0) as [keyof typeof widths, number][];
}

/** The name of an activation. */
export type Activation = ReturnType<typeof activationsOf>[number][0];

/** Counts the elements of one token's keys and values in one layer. Latent attention has its values in the keys. */
export function cacheWidths(config: DecoderConfig, layer: number) {
  const { latent } = config;
  if (latent) return { keys: latent.rank + latent.rope, values: 0, heads: 1 };
  const { numKvHeads, headDim, valueDim, sharesWith } = layerSizes(config, layer);
  if (sharesWith !== undefined) return { keys: 0, values: 0, heads: 0 };
  return { keys: numKvHeads * headDim, values: numKvHeads * valueDim, heads: numKvHeads };
}

/** Lists the shapes of a layer's states, which are f32. */
export function stateShapes({ recurrent, hiddenSize }: DecoderConfig): readonly (readonly number[])[] {
  if (!recurrent) return [];
  if (recurrent.kind === 'conv') return [[recurrent.width - 1, hiddenSize]];
  if (recurrent.kind === 'ssm')
    return [
      [recurrent.width - 1, spaceSizes({ recurrent }).xbc],
      [recurrent.heads, recurrent.stateDim, recurrent.headDim],
    ];
  const { width, heads, keyDim, valueDim } = recurrent;
  return [
    [width - 1, deltaWidth({ recurrent })],
    [heads, keyDim, valueDim],
  ];
}

/**
 * Counts the rows of activations to allocate for a batch: a power of two, so that prompts of many lengths share them. A
 * bidirectional model takes a text at once.
 */
export function batchRows(tokens: number, { bidirectional }: Pick<DecoderConfig, 'bidirectional'>): number {
  return Math.min(bidirectional ? Infinity : CHUNK_TOKENS, 2 ** Math.ceil(Math.log2(tokens)));
}

/** Counts the rows of logits that are computed at a time. */
export function logitRows(vocabSize: number): number {
  return Math.max(1, Math.min(CHUNK_TOKENS, Math.floor(MAX_LOGITS / vocabSize)));
}

/** Sums up the memory of a model and one session. */
export function memoryOf(
  config: DecoderConfig,
  weights: readonly WeightPlan[],
  session: { readonly context: number; readonly cacheDtype: CacheDtype },
): ModelMemory {
  const { vocabSize } = config;
  const { context, cacheDtype } = session;
  const layers = config.layers(context);
  const states = layers.filter(({ recurrent }) => recurrent).length;
  const cached = layers.map((layer, n) => (attends(layer) ? cacheWidths(config, n) : { keys: 0, values: 0, heads: 0 }));
  const scaleBytes = cacheDtype === 'i8' ? 2 * 4 : 0; // of a head's key and value
  const cacheBytesPerToken = cached.reduce(
    (sum, { keys, values, heads }) => sum + (keys + values) * sizeBytes(cacheDtype) + heads * scaleBytes,
    0,
  );
  const stateSizes = stateShapes(config).map((shape) => shape.reduce((size, length) => size * length, 4));
  const cacheBytes = context * cacheBytesPerToken + states * stateSizes.reduce((sum, size) => sum + size, 0);
  const keysBytes = context * Math.max(...cached.flatMap(({ keys, values }) => [keys, values])) * sizeBytes(cacheDtype);
  let [largestName, largestBytes] = ['keys or values of a layer', keysBytes];
  let [weightsBytes, widenedBytes] = [0, 0];
  for (const { name, heldBytes, widened, held } of weights) {
    weightsBytes += heldBytes;
    if (widened && held === 'f32') widenedBytes += heldBytes / 2;
    if (heldBytes > largestBytes) [largestName, largestBytes] = [name, heldBytes];
  }
  const width = activationsOf(config).reduce((sum, [, one]) => sum + one, 0);
  const scratchBytes = 4 * (batchRows(context, config) * width + logitRows(vocabSize) * vocabSize);
  const ropes = new Set(layers.map(({ rope }) => rope));
  let tableBytes = 0;
  for (const rope of ropes) tableBytes += rope ? 4 * context * (rope.rotaryDim ?? rope.headDim) : 0;
  const totalBytes = weightsBytes + cacheBytes + scratchBytes + tableBytes;
  return {
    weightsBytes,
    cacheBytesPerToken,
    context,
    cacheBytes,
    scratchBytes,
    tableBytes,
    widenedBytes,
    totalBytes,
    largestBytes,
    largestName,
  };
}

/**
 * Refuses a model that does not fit. `held` bytes of it are allocated already.
 *
 * @throws {RopewalkError} DEVICE with the sums, and how many tokens of context would fit
 */
export function checkFits(where: string, memory: ModelMemory, limits: MemoryLimits, held = 0): void {
  const { availableBytes = Infinity, tensorBytes = Infinity } = limits;
  const { weightsBytes, cacheBytes, context, scratchBytes, tableBytes, largestBytes, widenedBytes } = memory;
  const needed = memory.totalBytes - held;
  if (needed > availableBytes) {
    const parts = [
      `weights ${mebibytes(weightsBytes)}`,
      `cache of ${context} tokens ${mebibytes(cacheBytes)}`,
      `activations ${mebibytes(scratchBytes)}`,
      `tables ${mebibytes(tableBytes)}`,
    ];
    const less = held > 0 ? `, less ${mebibytes(held)} that are held already` : '';
    const perToken = memory.cacheBytesPerToken + tableBytes / context;
    const stateBytes = cacheBytes - context * memory.cacheBytesPerToken;
    const room = Math.floor((availableBytes + held - weightsBytes - scratchBytes - stateBytes) / perToken);
    const next =
      room >= 1
        ? `A context of ${room} tokens would fit; an f16 cache takes half of an f32 one.`
        : ['Take a smaller or more quantised model.', ...(limits.next ? [limits.next] : [])].join(' ');
    const narrower =
      widenedBytes > 0 && held === 0 ? ` With widenTo: 'f16' the weights take ${mebibytes(widenedBytes)} less.` : '';
    const sums = `${mebibytes(needed)} are needed (${parts.join(' + ')}${less})`;
    const sentence = `${sums}, but only ${mebibytes(availableBytes)} are available. ${next}${narrower}`;
    fail('DEVICE', `${where}: memory`, sentence);
  }
  if (largestBytes > tensorBytes) {
    const largest = `${memory.largestName} takes ${mebibytes(largestBytes)}`;
    const next = 'Take a more quantised model or a shorter context, or the cpu backend.';
    fail('DEVICE', `${where}: memory`, `${largest}, but one tensor may take ${mebibytes(tensorBytes)}. ${next}`);
  }
}

/** Writes a number of bytes for people: `1.50 MiB`, `230 MiB`. @throws {RopewalkError} RANGE for less than 0 bytes */
export function mebibytes(bytes: number): string {
  if (typeof bytes !== 'number' || !(bytes >= 0)) refuse('RANGE', 'mebibytes: bytes', 'a number >= 0', bytes);
  const mib = bytes / 2 ** 20;
  return `${mib >= 100 ? Math.ceil(mib) : mib.toFixed(mib >= 10 ? 1 : 2)} MiB`;
}
