/**
 * Which tensor of a file is which weight, and how each is held in memory. Names, shapes and types are checked before
 * the first byte of a weight is read.
 *
 * @module
 */
import { BLOCK_BYTES, type BlockFormat, type BlockTensor, sizeBytes, type Tensor } from 'ropewalk';
import { fail, nameForMessage, refuse } from 'ropewalk/backend';
import { WIDENED } from './dequantise.js';
import type { DecoderConfig } from './types.js';

/** A weight in a backend's memory. */
export type Weight = Tensor<'f32' | 'f16' | 'bf16'> | BlockTensor;

/** A matrix `[n, k]` and perhaps a bias `[n]`. */
export interface Linear {
  readonly weight: Weight;
  readonly bias: Tensor<'f32' | 'f16' | 'bf16'> | undefined;
}

/** A norm's gain, `[d]`. */
export type Gain = Tensor<'f32' | 'f16' | 'bf16'>;

/** Norms of a layer. */
type LayerNorm = 'attentionNorm' | 'mlpNorm';
/** Norms over each head of q and k, in models that have them. */
type HeadNorm = 'qNorm' | 'kNorm';
/** Matrices of a layer. */
type Matrix = 'q' | 'k' | 'v' | 'output' | 'gate' | 'up' | 'down';

/** One layer; {@link LAYER} has the shapes. */
type LayerWeights = Readonly<Record<LayerNorm, Gain> & Partial<Record<HeadNorm, Gain>> & Record<Matrix, Linear>>;

/** All weights of a decoder. */
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
  /** The name of the file. */
  readonly file: string;
  /** Bytes from the start of the file. */
  readonly byteOffset: number;
  readonly sizeBytes: number | undefined;
}

/** How a tensor is held in memory. */
type Held = 'f32' | 'f16' | 'bf16' | BlockFormat;

/** What a matrix becomes in memory if no kernel multiplies its stored type and no 16-bit type holds it exactly. */
export type WidenTo = 'f32' | 'f16';

/** A tensor to be loaded. */
export interface WeightPlan extends StoredTensor {
  /** Where it goes in {@link assembleWeights}. */
  readonly place: string;
  readonly sizeBytes: number;
  readonly held: Held;
  /** Whether {@link WidenTo} decided how it is held. */
  readonly widened: boolean;
  /** Bytes in the backend's memory. */
  readonly heldBytes: number;
}

/** Lengths that shapes are made of: h hidden, q all query heads, kv all key/value heads, d one head, f intermediate. */
type Length = 'h' | 'q' | 'kv' | 'd' | 'f' | 'vocab';

/** One tensor of a layer, or one that a model has once. */
interface Row {
  /** The file's names, without prefix, layer and `.weight`. */
  readonly huggingface: string;
  readonly gguf: string;
  /** Slowest dimension first: a matrix is `[outputs, inputs]`. */
  readonly shape: readonly Length[];
  /** The flag of {@link DecoderConfig} that says whether it has a bias. */
  readonly bias?: 'qkvBias' | 'outputBias' | 'mlpBias';
  /** The flag that says whether the model has the tensor. */
  readonly when?: 'qkNorm';
}

/** The tensors of one layer, in the order of the forward pass. */
const LAYER: Readonly<Record<LayerNorm | HeadNorm | Matrix, Row>> = {
  attentionNorm: { huggingface: 'input_layernorm', gguf: 'attn_norm', shape: ['h'] },
  q: { huggingface: 'self_attn.q_proj', gguf: 'attn_q', shape: ['q', 'h'], bias: 'qkvBias' },
  k: { huggingface: 'self_attn.k_proj', gguf: 'attn_k', shape: ['kv', 'h'], bias: 'qkvBias' },
  v: { huggingface: 'self_attn.v_proj', gguf: 'attn_v', shape: ['kv', 'h'], bias: 'qkvBias' },
  qNorm: { huggingface: 'self_attn.q_norm', gguf: 'attn_q_norm', shape: ['d'], when: 'qkNorm' },
  kNorm: { huggingface: 'self_attn.k_norm', gguf: 'attn_k_norm', shape: ['d'], when: 'qkNorm' },
  output: { huggingface: 'self_attn.o_proj', gguf: 'attn_output', shape: ['h', 'q'], bias: 'outputBias' },
  mlpNorm: { huggingface: 'post_attention_layernorm', gguf: 'ffn_norm', shape: ['h'] },
  gate: { huggingface: 'mlp.gate_proj', gguf: 'ffn_gate', shape: ['f', 'h'], bias: 'mlpBias' },
  up: { huggingface: 'mlp.up_proj', gguf: 'ffn_up', shape: ['f', 'h'], bias: 'mlpBias' },
  down: { huggingface: 'mlp.down_proj', gguf: 'ffn_down', shape: ['h', 'f'], bias: 'mlpBias' },
};
const EMBEDDING: Row = { huggingface: 'embed_tokens', gguf: 'token_embd', shape: ['vocab', 'h'] };
const NORM: Row = { huggingface: 'norm', gguf: 'output_norm', shape: ['h'] };
const HEAD: Row = { huggingface: 'lm_head', gguf: 'output', shape: ['vocab', 'h'] };

/** Tensors that repeat what the config or the RoPE dialect has read already. */
const SPARE = {
  huggingface: /^(model\.)?layers\.\d+\.self_attn\.rotary_emb\.inv_freq$/,
  gguf: /^(rope_freqs|rope_factors_long|rope_factors_short)\.weight$/,
};

/** One tensor that the model needs. */
interface Need {
  /** Where it goes: `embedding.weight`, `3.q.bias`. */
  readonly place: string;
  /** Its name in the file. */
  readonly name: string;
  readonly shape: readonly number[];
}

/**
 * Finds every weight among a file's tensors, in the order of the forward pass.
 *
 * @throws {RopewalkError} FORMAT for a tensor that is missing, twice there or of another shape; UNSUPPORTED for a
 *   tensor that the model does not have, and for a type that is not read
 */
export function planWeights(
  config: DecoderConfig,
  stored: readonly StoredTensor[],
  where: string,
  widenTo: WidenTo = 'f32',
): WeightPlan[] {
  const byName = new Map<string, StoredTensor>();
  for (const tensor of stored) {
    const twin = byName.get(tensor.name);
    if (twin) fail('FORMAT', `${tensor.file}: ${nameForMessage(tensor.name)}`, `${twin.file} has this tensor too`);
    byName.set(tensor.name, tensor);
  }
  const needs = needsOf(config, byName);
  const plans = needs.map((need) => {
    const tensor = byName.get(need.name) ?? refuseMissing(config, need, where, stored.length);
    return planOf(tensor, need, widenTo);
  });
  const known = new Set(needs.map(({ name }) => name));
  for (const { name, file } of stored) {
    if (known.has(name) || SPARE[config.source].test(name)) continue;
    // transformers ignores the lm_head of a model with a tied head; some files have one.
    if (config.source === 'huggingface' && config.tiedHead && /(^|\.)lm_head\.weight$/.test(name)) continue;
    const why = `a ${config.architecture} model with this config has no such tensor`;
    const next = 'The model has a step that is not computed here, or the config belongs to another model.';
    fail('UNSUPPORTED', `${file}: tensor ${nameForMessage(name)}`, `${why}. ${next}`);
  }
  return plans;
}

function refuseMissing(config: DecoderConfig, { name, shape }: Need, where: string, count: number): never {
  const next =
    name === 'lm_head.weight'
      ? 'If the head is the embedding table, config.json must say "tie_word_embeddings": true.'
      : 'The file is incomplete, or the config belongs to another model.';
  const needed = `tensor ${name} of shape [${shape}], which ${config.architecture} with ${config.numLayers} layers needs`;
  return fail('FORMAT', where, `${needed}, is not among the ${count} tensors. ${next}`);
}

/** Every tensor of the model, in the order of the forward pass. */
function needsOf(config: DecoderConfig, stored: ReadonlyMap<string, unknown>): Need[] {
  const { source, hiddenSize: h, headDim: d, intermediateSize: f, vocabSize: vocab } = config;
  const lengths = { h, d, f, vocab, q: config.numHeads * d, kv: config.numKvHeads * d };
  const gguf = source === 'gguf';
  // HuggingFace's names start with `model.`, unless the file was saved without a head. The head itself never has it.
  const prefix = gguf || stored.has(`${EMBEDDING.huggingface}.weight`) ? '' : 'model.';
  const needs: Need[] = [];
  const add = (place: string, row: Row, before: string): void => {
    if (row.when && !config[row.when]) return;
    const shape = row.shape.map((length) => lengths[length]);
    const name = before + row[source];
    needs.push({ place: `${place}.weight`, name: `${name}.weight`, shape });
    if (row.bias && config[row.bias])
      needs.push({ place: `${place}.bias`, name: `${name}.bias`, shape: shape.slice(0, 1) });
  };
  add('embedding', EMBEDDING, prefix);
  for (let layer = 0; layer < config.numLayers; layer++) {
    const before = gguf ? `blk.${layer}.` : `${prefix}layers.${layer}.`;
    for (const [part, row] of Object.entries(LAYER)) add(`${layer}.${part}`, row, before);
  }
  add('norm', NORM, prefix);
  if (!config.tiedHead) add('head', HEAD, '');
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

function planOf(tensor: StoredTensor, { place, name, shape }: Need, widenTo: WidenTo): WeightPlan {
  const where = `${tensor.file}: tensor ${name}`;
  if (tensor.shape.length !== shape.length || shape.some((size, n) => tensor.shape[n] !== size)) {
    const next = 'The config does not belong to these weights.';
    refuse('FORMAT', where, `shape [${shape}] (slowest dimension first)`, tensor.shape, next);
  }
  const plain = PLAIN.get(tensor.type);
  const format = WIDENED.get(tensor.type);
  if ((!plain && !format) || tensor.sizeBytes === undefined) {
    const next = 'Take a file with weights of one of these types; llama-quantize and transformers can write it.';
    return refuse('UNSUPPORTED', where, `type ${TYPES}`, tensor.type, next);
  }
  // Vectors in blocks are small: they become f32, like norms and biases.
  const matrix = shape.length === 2;
  const blocks = matrix ? BLOCKS.get(tensor.type) : undefined;
  const exact = plain ?? blocks ?? (matrix ? format!.exact : 'f32');
  const held = exact ?? widenTo;
  const count = shape.reduce((product, size) => product * size, 1);
  const heldBytes = isBlockFormat(held) ? (count / 32) * BLOCK_BYTES[held] : count * sizeBytes(held);
  return { ...tensor, sizeBytes: tensor.sizeBytes, place, held, widened: exact === undefined, heldBytes };
}

/** Whether weights are held in blocks, as the file has them. */
export function isBlockFormat(held: Held): held is BlockFormat {
  return held === 'q8_0' || held === 'q4_0';
}

/** Puts loaded tensors, all of {@link planWeights} by their places, into the places. */
export function assembleWeights(config: DecoderConfig, loaded: ReadonlyMap<string, Weight>): Weights {
  const embedding = loaded.get('embedding.weight')!;
  const layerOf = (layer: number): LayerWeights => {
    const parts = Object.entries(LAYER).map(([part, { shape }]) => {
      const weight = loaded.get(`${layer}.${part}.weight`);
      return [part, shape.length === 1 ? weight : { weight, bias: loaded.get(`${layer}.${part}.bias`) }];
    });
    return Object.fromEntries(parts) as LayerWeights;
  };
  return {
    embedding,
    layers: Array.from({ length: config.numLayers }, (_layer, layer) => layerOf(layer)),
    norm: loaded.get('norm.weight') as Gain,
    head: config.tiedHead ? embedding : loaded.get('head.weight')!,
  };
}
