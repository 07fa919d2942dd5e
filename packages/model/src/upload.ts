/** Step 4 of loading: {@link PlannedModel} → {@link Weights} in a backend's memory, tensor by tensor. @module */
import {
  type BlockTensor,
  blocksFrom,
  type HostArray,
  isBlocks,
  type Ropewalk,
  type Tensor,
  tensorFrom,
} from 'ropewalk';
import { bitsOf } from 'ropewalk/internal';
import type { LoadingOptions } from './engine.js';
import type { PlannedModel } from './plan-model.js';
import type { DecoderConfig } from './types.js';
import { type Floats, isBlockFormat, type Part, type WeightPlan } from './weights.js';

/** A weight in a backend's memory. */
export type Weight = Tensor<'f32' | 'f16' | 'bf16'> | BlockTensor;

/** A vector, or a matrix of numbers. */
type Vector = Tensor<'f32' | 'f16' | 'bf16'>;

/** A matrix `[n, k]` and perhaps a bias `[n]`; for experts `[e, n, k]` and `[e, n]`. */
export interface Linear {
  readonly weight: Weight;
  readonly bias: Vector | undefined;
}

/** A norm's gain and perhaps its bias, `[d]`. */
export interface Norm {
  readonly weight: Vector;
  readonly bias: Vector | undefined;
}

/** The parts of one layer that the model has. `LAYER` in weights.ts has their shapes. */
export type LayerWeights = {
  readonly [P in Part]?: P extends `${string}Norm` | 'sinks' | 'choiceBias' | `${string}Scale` ? Norm : Linear;
};

/** All weights of a decoder. */
export interface Weights {
  /** `[vocab, h]` */
  readonly embedding: Weight;
  /** `[types, h]` */
  readonly tokenTypes: Weight | undefined;
  readonly embeddingNorm: Norm | undefined;
  readonly layers: readonly LayerWeights[];
  /** Undefined if the last layer ends with a norm. */
  readonly norm: Norm | undefined;
  /** The embeddings of all layers `[vocab, layers · width]`, what the stream is multiplied by for them, and its norm. */
  readonly perLayer: { readonly embedding: Weight; readonly projection: Weight; readonly norm: Norm } | undefined;
  /** The matrices of the other streams at the start and the end, `[streams − 1, h, h]`. */
  readonly altup: { readonly projection: Weight; readonly unembed: Weight } | undefined;
  /** `[vocab, h]`; the embedding itself where the head is tied. */
  readonly head: Linear;
}

/**
 * Reads each tensor into its place. `loaded` takes each weight, also when loading fails; the caller disposes them.
 *
 * @throws {RopewalkError} FORMAT for a file that ends early or a weight out of range; DEVICE when memory is full
 */
export async function loadWeights(
  rw: Ropewalk,
  { weights: plans, streamWeight }: Pick<PlannedModel, 'weights' | 'streamWeight'>,
  loaded: Map<string, Weight>,
  { signal, onProgress }: Partial<LoadingOptions>,
): Promise<void> {
  const totalBytes = plans.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  let doneBytes = 0;
  for (const plan of plans) {
    const place = placeOf(rw, plan);
    const onRead = (bytes: number): void => {
      doneBytes += bytes;
      onProgress?.({ doneBytes, totalBytes, tensor: plan.name });
    };
    try {
      await streamWeight(plan, place.write, { signal, onRead });
      loaded.set(plan.place, place.weight());
    } catch (error) {
      place.dispose();
      throw error;
    }
  }
}

/**
 * Reserves a tensor's place in the backend's memory, or collects its bytes for an upload if the host cannot write
 * there.
 */
function placeOf(rw: Ropewalk, { held, heldBytes, shape }: WeightPlan) {
  const blocks = isBlockFormat(held);
  // Blocks are stored as bytes; weight() adds their format.
  const dtype = blocks ? 'u8' : (held as Floats);
  const storedShape = blocks ? [heldBytes] : shape;
  const allocated = rw.name === 'webgpu' ? undefined : rw.allocate(dtype, storedShape);
  const tensor: Tensor | undefined = allocated?.storage.host ? allocated : undefined;
  if (!tensor) allocated?.dispose();
  const staged = tensor ? undefined : new Uint8Array(heldBytes);
  const upload = (): Tensor => {
    const Elements = { u8: Uint8Array, f32: Float32Array, f16: Uint16Array, bf16: Uint16Array }[dtype];
    return rw.upload(tensorFrom(new Elements(staged!.buffer as ArrayBuffer), { dtype, shape: storedShape }));
  };
  return {
    /** The tensor is looked up each time, because the backend's memory moves when it grows. */
    write(piece: Uint8Array, at: number): void {
      const all: HostArray = staged ?? bitsOf(tensor!.storage.host!);
      new Uint8Array(all.buffer, all.byteOffset + at, piece.length).set(piece);
    },
    /** Returns the weight. All its bytes are written by then. */
    weight(): Weight {
      const made = tensor ?? upload();
      return blocks ? blocksFrom(held, made as Tensor<'u8'>, shape) : (made as Tensor<'f32' | 'f16' | 'bf16'>);
    },
    dispose: () => tensor?.dispose(),
  };
}

/** Makes the model's weights of the loaded tensors, which have the places of their plans. */
export function assembleWeights(config: DecoderConfig, loaded: ReadonlyMap<string, Weight>): Weights {
  const layers = Array.from({ length: config.numLayers }, (): Record<string, Linear> => ({}));
  for (const [place, weight] of loaded) {
    const [, layer, part] = /^(\d+)\.(\w+)\.weight$/.exec(place) ?? [];
    if (part)
      layers[Number(layer)]![part] = { weight, bias: loaded.get(`${layer}.${part}.bias`) as Vector | undefined };
  }
  const embedding = loaded.get('embedding.weight')!;
  const normAt = (place: string): Norm | undefined => {
    const weight = loaded.get(`${place}.weight`) as Vector | undefined;
    return weight && { weight, bias: loaded.get(`${place}.bias`) as Vector | undefined };
  };
  return {
    embedding,
    tokenTypes: loaded.get('tokenTypes.weight'),
    embeddingNorm: normAt('embeddingNorm'),
    layers: layers.map((found: LayerWeights) => {
      if (found.kvB) return { ...found, ...splitLatent(config, found.kvB.weight as Vector) };
      if (found.expertGateUpBlocks) return { ...found, ...gateAndUp(found.expertGateUpBlocks) };
      return found.expertGateUp
        ? { ...found, ...untransposed(config, found.expertGateUp, found.expertDownTransposed!) }
        : found;
    }),
    norm: normAt('norm'),
    perLayer: config.perLayerWidth
      ? {
          embedding: loaded.get('perLayerEmbedding.weight')!,
          projection: loaded.get('perLayerProjection.weight')!,
          norm: { weight: loaded.get('perLayerNorm.weight') as Vector, bias: undefined },
        }
      : undefined,
    altup: config.altup && {
      projection: loaded.get('altupProjection.weight')!,
      unembed: loaded.get('altupUnembed.weight')!,
    },
    head: {
      weight: config.tiedHead ? embedding : loaded.get('head.weight')!,
      bias: loaded.get('head.bias') as Vector | undefined,
    },
  };
}

/** Splits kvB, which has the rows of kᵀ and then of v for each head, into views kB `[n, c, p]` and vB `[n, dv, c]`. */
export function splitLatent(
  { numHeads, latent, valueDim }: DecoderConfig,
  kvB: Vector,
): Pick<LayerWeights, 'kB' | 'vB'> {
  const { nope, rank } = latent!;
  const heads = kvB.view([numHeads, nope + valueDim, rank]);
  const kB = heads.slice(1, 0, nope).permute([0, 2, 1]);
  return {
    kB: { weight: kB, bias: undefined },
    vB: { weight: heads.slice(1, nope, nope + valueDim), bias: undefined },
  };
}

/** Splits a weight `[2e, x, h]` into views: the gates of all experts come first, then their ups. */
function gateAndUp({ weight, bias }: Linear): Pick<LayerWeights, 'expertGate' | 'expertUp'> {
  const [twoE, x, h] = weight.shape as [number, number, number];
  const nth = (n: 0 | 1): Linear => ({ weight: half(weight, n, [twoE / 2, x, h]), bias: biasInTurns(bias, n) });
  return { expertGate: nth(0), expertUp: nth(1) };
}

function half(weight: Weight, n: 0 | 1, shape: readonly number[]): Weight {
  const all = isBlocks(weight) ? weight.bytes : weight;
  const count = all.shape[0]! / 2;
  const part = all.slice(0, n * count, (n + 1) * count);
  return isBlocks(weight) ? blocksFrom(weight.format, part as Tensor<'u8'>, shape) : (part as Vector);
}

/** Returns every second element of the rows `[e, 2x]`, a view. */
export function biasInTurns(bias: Vector | undefined, n: 0 | 1): Vector | undefined {
  const [e, twoX] = (bias?.shape ?? []) as [number, number];
  const turns = bias?.view([e, twoX / 2, 2]);
  return turns?.slice(2, n, n + 1).view([e, twoX / 2]);
}

/** Returns views of transposed matrices of experts as `[e, outputs, inputs]`, with gate and up apart. */
export function untransposed(
  { family }: DecoderConfig,
  gateUp: Linear,
  down: Linear,
): Pick<LayerWeights, 'expertGate' | 'expertUp' | 'expertDown'> {
  const whole = gateUp.weight as Vector; // [e, h, 2x]
  const [e, h, twoX] = whole.shape as [number, number, number];
  const x = twoX / 2;
  const part = (n: 0 | 1): Vector => {
    if (family.gateUpHalves) return whole.slice(2, n * x, (n + 1) * x);
    return whole
      .view([e, h, x, 2])
      .slice(3, n, n + 1)
      .view([e, h, x]);
  };
  const nth = (n: 0 | 1): Linear => {
    const one = part(n);
    return { weight: one.permute([0, 2, 1]), bias: biasInTurns(gateUp.bias, n) };
  };
  const expertDown = { weight: (down.weight as Vector).permute([0, 2, 1]), bias: down.bias };
  return { expertGate: nth(0), expertUp: nth(1), expertDown };
}
