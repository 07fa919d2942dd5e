/**
 * Which tensor of a file is which weight, and how each is held: names, shapes and types are all checked before the first byte is read.
 *
 * @module
 */
import { BLOCK_BYTES, type BlockFormat, type BlockTensor } from '../core/blocks.js';
import { refuse } from '../core/errors.js';
import type { Tensor } from '../core/tensor.js';
import { nameForMessage } from '../formats/bytes.js';
import { WIDENED } from './dequantise.js';
import type { DecoderConfig } from './types.js';

/** A weight in a backend's memory, in its stored type. */
export type Weight = Tensor<'f32' | 'f16' | 'bf16'> | BlockTensor;

/** A matrix `[n, k]` and perhaps a bias `[n]`. */
export interface Linear {
  readonly weight: Weight;
  readonly bias: Tensor<'f32' | 'f16' | 'bf16'> | undefined;
}

/** A norm's gain, `[d]`. */
export type Gain = Tensor<'f32' | 'f16' | 'bf16'>;

/** One layer. h hidden, n heads, m key/value heads, d head_dim, f intermediate. */
export interface LayerWeights {
  /** `[h]` */
  readonly attentionNorm: Gain;
  /** `[n·d, h]` */
  readonly q: Linear;
  /** `[m·d, h]` */
  readonly k: Linear;
  /** `[m·d, h]` */
  readonly v: Linear;
  /** `[d]`, where the model has them. */
  readonly qNorm: Gain | undefined;
  readonly kNorm: Gain | undefined;
  /** `[h, n·d]` */
  readonly output: Linear;
  /** `[h]` */
  readonly mlpNorm: Gain;
  /** `[f, h]` */
  readonly gate: Linear;
  /** `[f, h]` */
  readonly up: Linear;
  /** `[h, f]` */
  readonly down: Linear;
}

/** All of a decoder. */
export interface Weights {
  /** `[vocab, h]` */
  readonly embedding: Weight;
  readonly layers: readonly LayerWeights[];
  /** `[h]` */
  readonly norm: Gain;
  /** `[vocab, h]`; the embedding itself where the head is tied. */
  readonly head: Weight;
}

/** A tensor as a file lists it. */
export interface StoredTensor {
  readonly name: string;
  /** Slowest dimension first. */
  readonly shape: readonly number[];
  /** The file's own name: F32, BF16, Q8_0. */
  readonly type: string;
  /** Which file, for messages, and what reads it. */
  readonly file: string;
  /** Bytes from the start of the file. */
  readonly byteOffset: number;
  readonly sizeBytes: number | undefined;
}

/** How a tensor is held. */
export type Held = 'f32' | 'f16' | 'bf16' | BlockFormat;

/** What the weights of a matrix become whose stored type no kernel multiplies and no 16-bit type holds exactly. */
export type WidenTo = 'f32' | 'f16';

/** A tensor to be loaded. */
export interface WeightPlan extends StoredTensor {
  readonly sizeBytes: number;
  readonly held: Held;
  /** Whether {@link WidenTo} chose how it is held. */
  readonly widened: boolean;
  /** Bytes in the backend's memory. */
  readonly heldBytes: number;
}

/** Our names → the files'. `{}` is the number of the layer. */
interface Names {
  readonly embedding: string;
  readonly norm: string;
  readonly head: string;
  readonly layer: Readonly<Record<LayerPart, string>>;
  /** Tensors that say what the config says too. */
  readonly spare: RegExp;
}

type LayerPart = 'attentionNorm' | 'q' | 'k' | 'v' | 'qNorm' | 'kNorm' | 'output' | 'mlpNorm' | 'gate' | 'up' | 'down';

const HUGGINGFACE: Names = {
  embedding: 'embed_tokens',
  norm: 'norm',
  head: 'lm_head',
  layer: {
    attentionNorm: 'layers.{}.input_layernorm',
    q: 'layers.{}.self_attn.q_proj',
    k: 'layers.{}.self_attn.k_proj',
    v: 'layers.{}.self_attn.v_proj',
    qNorm: 'layers.{}.self_attn.q_norm',
    kNorm: 'layers.{}.self_attn.k_norm',
    output: 'layers.{}.self_attn.o_proj',
    mlpNorm: 'layers.{}.post_attention_layernorm',
    gate: 'layers.{}.mlp.gate_proj',
    up: 'layers.{}.mlp.up_proj',
    down: 'layers.{}.mlp.down_proj',
  },
  // Old checkpoints carry the frequencies that config.json defines.
  spare: /^(model\.)?layers\.\d+\.self_attn\.rotary_emb\.inv_freq$/,
};

const GGUF: Names = {
  embedding: 'token_embd',
  norm: 'output_norm',
  head: 'output',
  layer: {
    attentionNorm: 'blk.{}.attn_norm',
    q: 'blk.{}.attn_q',
    k: 'blk.{}.attn_k',
    v: 'blk.{}.attn_v',
    qNorm: 'blk.{}.attn_q_norm',
    kNorm: 'blk.{}.attn_k_norm',
    output: 'blk.{}.attn_output',
    mlpNorm: 'blk.{}.ffn_norm',
    gate: 'blk.{}.ffn_gate',
    up: 'blk.{}.ffn_up',
    down: 'blk.{}.ffn_down',
  },
  // Frequency factors: the dialect reads them.
  spare: /^(rope_freqs|rope_factors_long|rope_factors_short)\.weight$/,
};

/** What one place of the model needs. */
interface Need {
  readonly name: string;
  readonly shape: readonly number[];
}

/**
 * Finds every weight among a file's tensors.
 *
 * @param config - of the model
 * @param stored - all tensors, of all files
 * @param where - names the model in messages
 * @param widenTo - see {@link WidenTo}
 * @returns what to load, in the order of the forward pass
 * @throws {RopewalkError} FORMAT for a tensor that is missing, not known or of another shape; UNSUPPORTED for a type that is not read
 */
export function planWeights(
  config: DecoderConfig,
  stored: readonly StoredTensor[],
  where: string,
  widenTo: WidenTo = 'f32',
): WeightPlan[] {
  const names = config.source === 'gguf' ? GGUF : HUGGINGFACE;
  const byName = new Map<string, StoredTensor>();
  for (const tensor of stored) {
    const twin = byName.get(tensor.name);
    if (twin)
      refuse('FORMAT', `${tensor.file}: ${nameForMessage(tensor.name)}`, 'each tensor once', `one in ${twin.file} too`);
    byName.set(tensor.name, tensor);
  }
  const needs = needsOf(config, prefixOf(config, byName));
  const plans = needs.map((need) => {
    const tensor = byName.get(need.name) ?? refuseMissing(config, need, where, stored.length);
    return planOf(tensor, need, widenTo);
  });
  const known = new Set(needs.map(({ name }) => name));
  for (const { name, file } of stored) {
    if (known.has(name) || names.spare.test(name)) continue;
    // transformers reads no lm_head where the head is tied; some files carry it all the same.
    if (config.source === 'huggingface' && config.tiedHead && /(^|\.)lm_head\.weight$/.test(name)) continue;
    refuse(
      'UNSUPPORTED',
      `${file}: tensor`,
      `one of the ${known.size} that ${config.architecture} has`,
      name,
      'The model computes something that is not computed here, or its config does not belong to it.',
    );
  }
  return plans;
}

/** HuggingFace's names start with `model.`, unless the file was saved without a head. */
function prefixOf(config: DecoderConfig, byName: ReadonlyMap<string, StoredTensor>): string {
  return config.source === 'gguf' || byName.has(`${HUGGINGFACE.embedding}.weight`) ? '' : 'model.';
}

function refuseMissing(config: DecoderConfig, { name, shape }: Need, where: string, count: number): never {
  const next =
    name === 'lm_head.weight'
      ? 'If the head is the embedding table, config.json must say "tie_word_embeddings": true.'
      : `${config.architecture} with ${config.numLayers} layers needs it: the file is incomplete, or its config does not belong to it.`;
  return refuse('FORMAT', where, `tensor ${name} of shape [${shape}]`, `none of that name among ${count}`, next);
}

function needsOf(config: DecoderConfig, prefix: string): Need[] {
  const names = config.source === 'gguf' ? GGUF : HUGGINGFACE;
  const { hiddenSize: h, headDim: d, intermediateSize: f, vocabSize } = config;
  const needs: Need[] = [{ name: `${prefix}${names.embedding}.weight`, shape: [vocabSize, h] }];
  for (let layer = 0; layer < config.numLayers; layer++) {
    const add = (part: LayerPart, shape: readonly number[], bias = false): void => {
      const stem = prefix + names.layer[part].replace('{}', String(layer));
      needs.push({ name: `${stem}.weight`, shape });
      if (bias) needs.push({ name: `${stem}.bias`, shape: shape.slice(0, 1) });
    };
    add('attentionNorm', [h]);
    add('q', [config.numHeads * d, h], config.qkvBias);
    add('k', [config.numKvHeads * d, h], config.qkvBias);
    add('v', [config.numKvHeads * d, h], config.qkvBias);
    if (config.qkNorm) {
      add('qNorm', [d]);
      add('kNorm', [d]);
    }
    add('output', [h, config.numHeads * d], config.outputBias);
    add('mlpNorm', [h]);
    add('gate', [f, h], config.mlpBias);
    add('up', [f, h], config.mlpBias);
    add('down', [h, f], config.mlpBias);
  }
  needs.push({ name: `${prefix}${names.norm}.weight`, shape: [h] });
  // The head lies outside `model.`, whatever the rest does.
  if (!config.tiedHead) needs.push({ name: `${names.head}.weight`, shape: [vocabSize, h] });
  return needs;
}

const PLAIN: ReadonlyMap<string, 'f32' | 'f16' | 'bf16'> = /* @__PURE__ */ new Map([
  ['F32', 'f32'],
  ['F16', 'f16'],
  ['BF16', 'bf16'],
] as const);
const BLOCKS: ReadonlyMap<string, BlockFormat> = /* @__PURE__ */ new Map([
  ['Q8_0', 'q8_0'],
  ['Q4_0', 'q4_0'],
] as const);
const TYPES = [...PLAIN.keys(), ...WIDENED.keys()].join(', ');

function planOf(tensor: StoredTensor, { name, shape }: Need, widenTo: WidenTo): WeightPlan {
  const where = `${tensor.file}: tensor ${name}`;
  const same = tensor.shape.length === shape.length && shape.every((size, n) => tensor.shape[n] === size);
  if (!same) {
    const got = `[${tensor.shape}]`;
    refuse(
      'FORMAT',
      where,
      `shape [${shape}] (slowest dimension first)`,
      got,
      'The config does not belong to these weights.',
    );
  }
  const count = shape.reduce((product, size) => product * size, 1);
  const plain = PLAIN.get(tensor.type);
  const widened = WIDENED.get(tensor.type);
  if ((!plain && !widened) || tensor.sizeBytes === undefined) {
    const next = 'Take a file with weights of one of these types; llama-quantize and transformers can write it.';
    return refuse('UNSUPPORTED', where, `type ${TYPES}`, tensor.type, next);
  }
  // A vector in blocks is small: it becomes f32, as norms and biases are.
  const blocks = shape.length === 2 ? BLOCKS.get(tensor.type) : undefined;
  const held: Held = plain ?? blocks ?? (shape.length === 2 ? (widened!.exact ?? widenTo) : 'f32');
  const chosen = shape.length === 2 && !plain && !blocks && !widened!.exact;
  return { ...tensor, sizeBytes: tensor.sizeBytes, held, widened: chosen, heldBytes: heldBytes(held, count) };
}

function heldBytes(held: Held, count: number): number {
  if (held === 'q8_0' || held === 'q4_0') return (count / 32) * BLOCK_BYTES[held];
  return count * (held === 'f32' ? 4 : 2);
}

/**
 * Puts loaded tensors into their places.
 *
 * @param config - of the model
 * @param loaded - by the files' names, all of {@link planWeights}
 */
export function assembleWeights(config: DecoderConfig, loaded: ReadonlyMap<string, Weight>): Weights {
  const names = config.source === 'gguf' ? GGUF : HUGGINGFACE;
  const prefix = loaded.has(`${names.embedding}.weight`) ? '' : 'model.';
  const optional = (name: string): Weight | undefined => loaded.get(name);
  const get = (name: string): Weight => optional(`${prefix}${name}.weight`)!;
  const linear = (name: string): Linear => ({
    weight: get(name),
    bias: optional(`${prefix}${name}.bias`) as Linear['bias'],
  });
  const embedding = get(names.embedding);
  return {
    embedding,
    layers: Array.from({ length: config.numLayers }, (_, layer): LayerWeights => {
      const of = (part: LayerPart): string => names.layer[part].replace('{}', String(layer));
      return {
        attentionNorm: get(of('attentionNorm')) as Gain,
        q: linear(of('q')),
        k: linear(of('k')),
        v: linear(of('v')),
        qNorm: config.qkNorm ? (get(of('qNorm')) as Gain) : undefined,
        kNorm: config.qkNorm ? (get(of('kNorm')) as Gain) : undefined,
        output: linear(of('output')),
        mlpNorm: get(of('mlpNorm')) as Gain,
        gate: linear(of('gate')),
        up: linear(of('up')),
        down: linear(of('down')),
      };
    }),
    norm: get(names.norm) as Gain,
    head: config.tiedHead ? embedding : optional(`${names.head}.weight`)!,
  };
}
