/**
 * Makes small decoders with random weights as HuggingFace and GGUF files, and computes their logits independently in
 * float64 loops.
 */

import type { Tokenizer } from '@ropewalk/model';
import { type QuantizedFormat, quantize } from '@ropewalk/model/internal';
import { type FloatDtype, roundTo } from 'ropewalk';
import { newArray, storeNumber } from 'ropewalk/backend';
import { blockBytes, randomFrom } from 'ropewalk/internal';
import { ggufOf, type MadeTensor, safetensorsOf } from './model-files.js';

/** The shape of a small model. */
export interface TinyShape {
  readonly family: 'llama' | 'mistral' | 'qwen2' | 'qwen3';
  readonly layers: number;
  readonly hidden: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly inter: number;
  readonly vocab: number;
  readonly tied?: boolean;
  readonly context?: number;
  /** More fields of config.json than the sizes. */
  readonly extra?: Readonly<Record<string, unknown>>;
  /** More keys of GGUF metadata than the sizes, without the architecture in front. */
  readonly ggufExtra?: Readonly<Record<string, string | number>>;
  /** Adds biases to q, k and v. The next fields add them to the output and to the feed-forward. */
  readonly qkvBias?: boolean;
  readonly outputBias?: boolean;
  readonly mlpBias?: boolean;
  /** Returns the radians per position of pair j. Default: 10000^(−2j/headDim). The next field scales cos and sin. */
  readonly frequency?: (j: number) => number;
  readonly magnitude?: number;
  /** The tensor rope_freqs.weight of a GGUF, which divides the frequencies. */
  readonly freqFactors?: readonly number[];
  /** The number of tokens that a token attends to. */
  readonly window?: number;
  /** The block format of the matrices in a GGUF, if their rows are whole blocks. */
  readonly blocks?: QuantizedFormat;
  /** The dtype of the stored weights. Default: f32. */
  readonly dtype?: FloatDtype & ('f32' | 'f16' | 'bf16');
}

interface Values {
  readonly shape: readonly number[];
  readonly values: Float64Array;
}

/** A random model. */
export interface TinyModel {
  readonly shape: TinyShape;
  /** The stored values of the weights, by HuggingFace's names. */
  readonly weights: ReadonlyMap<string, Values>;
  readonly config: Record<string, unknown>;
  huggingFace(): Record<string, Uint8Array>;
  gguf(): Record<string, Uint8Array>;
  /** Computes the logits `[tokens, vocab]` of a sequence of tokens, in float64. */
  logits(tokens: readonly number[]): Float64Array;
  /** Computes the rotated keys of layer 0, `[tokens, kvHeads, headDim]`. */
  keysOfFirstLayer(tokens: readonly number[]): Float64Array;
}

const EPS = 1e-5;

/** Makes a model. The same seed gives the same weights. */
export function tinyModel(seed: string, shape: TinyShape): TinyModel {
  const { layers, hidden, heads, kvHeads, headDim, inter, vocab, dtype = 'f32' } = shape;
  const random = randomFrom(seed);
  const weights = new Map<string, Values>();
  const add = (name: string, dims: readonly number[], low: number, high: number): void => {
    const count = dims.reduce((a, b) => a * b, 1);
    weights.set(name, {
      shape: dims,
      values: Float64Array.from({ length: count }, () => roundTo(dtype, random.uniform(low, high))),
    });
  };
  const linear = (name: string, n: number, k: number, bias?: boolean): void => {
    const reach = Math.sqrt(3 / k); // so that a product keeps the variance
    add(`${name}.weight`, [n, k], -reach, reach);
    if (bias) add(`${name}.bias`, [n], -0.5, 0.5);
  };
  linear('model.embed_tokens', vocab, hidden);
  for (let l = 0; l < layers; l++) {
    const at = `model.layers.${l}`;
    add(`${at}.input_layernorm.weight`, [hidden], 0.5, 1.5);
    linear(`${at}.self_attn.q_proj`, heads * headDim, hidden, shape.qkvBias);
    linear(`${at}.self_attn.k_proj`, kvHeads * headDim, hidden, shape.qkvBias);
    linear(`${at}.self_attn.v_proj`, kvHeads * headDim, hidden, shape.qkvBias);
    if (shape.family === 'qwen3') for (const x of 'qk') add(`${at}.self_attn.${x}_norm.weight`, [headDim], 0.5, 1.5);
    linear(`${at}.self_attn.o_proj`, hidden, heads * headDim, shape.outputBias);
    add(`${at}.post_attention_layernorm.weight`, [hidden], 0.5, 1.5);
    linear(`${at}.mlp.gate_proj`, inter, hidden, shape.mlpBias);
    linear(`${at}.mlp.up_proj`, inter, hidden, shape.mlpBias);
    linear(`${at}.mlp.down_proj`, hidden, inter, shape.mlpBias);
  }
  add('model.norm.weight', [hidden], 0.5, 1.5);
  if (!shape.tied) linear('lm_head', vocab, hidden);

  const config = {
    model_type: shape.family,
    hidden_act: 'silu',
    vocab_size: vocab,
    hidden_size: hidden,
    num_hidden_layers: layers,
    num_attention_heads: heads,
    num_key_value_heads: kvHeads,
    head_dim: headDim,
    intermediate_size: inter,
    max_position_embeddings: shape.context ?? 64,
    rms_norm_eps: EPS,
    rope_theta: 10000,
    tie_word_embeddings: shape.tied ?? false,
    bos_token_id: 1,
    eos_token_id: 2,
    ...(shape.family === 'mistral' ? { sliding_window: null } : {}),
    ...shape.extra,
  };
  return {
    shape,
    weights,
    config,
    huggingFace: () => ({
      'config.json': new TextEncoder().encode(JSON.stringify(config)),
      'model.safetensors': safetensorsOf([...weights].map(([name, value]) => made(name, value, dtype))),
    }),
    gguf: () => {
      const tensors = [...weights].map(([name, value]) => inGguf(name, value, shape));
      const { freqFactors: factors } = shape;
      if (factors)
        tensors.push({ name: 'rope_freqs.weight', shape: [factors.length], type: 0, bytes: bytesOf(factors, 'f32') });
      return { 'model.gguf': ggufOf(tensors, metadataOf(shape)) };
    },
    logits: (tokens) => run(shape, weights, tokens).logits,
    keysOfFirstLayer: (tokens) => run(shape, weights, tokens).keys,
  };
}

/** Returns the bytes of values in a dtype. */
export function bytesOf(values: ArrayLike<number>, dtype: FloatDtype): Uint8Array {
  const data = newArray(dtype, values.length);
  for (let n = 0; n < values.length; n++) storeNumber(data, dtype, n, values[n]!);
  return new Uint8Array(data.buffer);
}

function made(name: string, { shape, values }: Values, dtype: 'f32' | 'f16' | 'bf16'): MadeTensor {
  return { name, shape, type: dtype.toUpperCase(), bytes: bytesOf(values, dtype) };
}

const GGUF_NAMES: readonly (readonly [RegExp, string])[] = [
  [/^model\.embed_tokens/, 'token_embd'],
  [/^model\.norm/, 'output_norm'],
  [/^lm_head/, 'output'],
  [/^model\.layers\.(\d+)\.input_layernorm/, 'blk.$1.attn_norm'],
  [/^model\.layers\.(\d+)\.post_attention_layernorm/, 'blk.$1.ffn_norm'],
  [/^model\.layers\.(\d+)\.self_attn\.([qkv])_proj/, 'blk.$1.attn_$2'],
  [/^model\.layers\.(\d+)\.self_attn\.([qk])_norm/, 'blk.$1.attn_$2_norm'],
  [/^model\.layers\.(\d+)\.self_attn\.o_proj/, 'blk.$1.attn_output'],
  [/^model\.layers\.(\d+)\.mlp\.(gate|up|down)_proj/, 'blk.$1.ffn_$2'],
];

/**
 * Converts a tensor as llama.cpp's converter does: with other names, reversed dimensions, norms and biases in f32, and
 * interleaved rows of Llama's q and k.
 */
function inGguf(name: string, { shape, values }: Values, model: TinyShape): MadeTensor {
  const [pattern, to] = GGUF_NAMES.find(([from]) => from.test(name))!;
  const dtype = shape.length === 1 ? 'f32' : (model.dtype ?? 'f32');
  const woven = /[qk]_proj/.test(name) && (model.family === 'llama' || model.family === 'mistral');
  const rows = woven ? weave(values, shape, model.headDim) : values;
  const type = { f32: 0, f16: 1, bf16: 30 }[dtype];
  const common = { name: name.replace(pattern, to), shape: [...shape].reverse() };
  const { blocks } = model;
  if (!blocks || shape.length === 1 || shape[1]! % 32 !== 0) return { ...common, type, bytes: bytesOf(rows, dtype) };
  const bytes = new Uint8Array(blockBytes(blocks, rows.length));
  quantize(Float32Array.from(rows), blocks, bytes, name);
  return { ...common, type: { q8_0: 8, q4_0: 2 }[blocks], bytes };
}

/**
 * Takes row j of a head as row 2j, and row j + headDim / 2 as row 2j + 1, so that the rows of a pair are neighbours.
 */
function weave(values: Float64Array, [, k = 1]: readonly number[], headDim: number): Float64Array {
  const out = new Float64Array(values.length);
  for (let row = 0; row < values.length / k; row++) {
    const head = Math.floor(row / headDim);
    const i = row % headDim;
    const from = head * headDim + (i % 2 === 0 ? i / 2 : (i - 1) / 2 + headDim / 2);
    out.set(values.subarray(from * k, (from + 1) * k), row * k);
  }
  return out;
}

function metadataOf(model: TinyShape): Record<string, string | number> {
  const a = model.family === 'mistral' ? 'llama' : model.family;
  const keys: Record<string, string | number> = {
    vocab_size: model.vocab,
    context_length: model.context ?? 64,
    embedding_length: model.hidden,
    feed_forward_length: model.inter,
    block_count: model.layers,
    'attention.head_count': model.heads,
    'attention.head_count_kv': model.kvHeads,
    'attention.key_length': model.headDim,
    'attention.value_length': model.headDim,
    'attention.layer_norm_rms_epsilon': EPS,
    'rope.freq_base': 10000,
    ...model.ggufExtra,
  };
  return {
    'general.architecture': a,
    ...Object.fromEntries(Object.entries(keys).map(([key, value]) => [`${a}.${key}`, value])),
  };
}

/** Computes Llama's forward pass over whole matrices with simple loops. */
function run(
  model: TinyShape,
  weights: ReadonlyMap<string, Values>,
  tokens: readonly number[],
): { logits: Float64Array; keys: Float64Array } {
  const { hidden, heads, kvHeads, headDim, inter, vocab } = model;
  const get = (name: string): Float64Array | undefined => weights.get(name)?.values;
  const times = (x: Float64Array, name: string, n: number, k: number): Float64Array => {
    const [w, bias] = [get(`${name}.weight`)!, get(`${name}.bias`)];
    const y = new Float64Array((x.length / k) * n);
    for (let at = 0; at < y.length; at++) {
      const [row, column] = [Math.floor(at / n), at % n];
      let sum = bias?.[column] ?? 0;
      for (let i = 0; i < k; i++) sum += x[row * k + i]! * w[column * k + i]!;
      y[at] = sum;
    }
    return y;
  };
  const norm = (x: Float64Array, name: string, width: number): Float64Array => {
    const w = get(`${name}.weight`)!;
    return x.map((value, at) => {
      const start = at - (at % width);
      let square = 0;
      for (let i = 0; i < width; i++) square += x[start + i]! ** 2;
      return (w[at % width]! * value) / Math.sqrt(square / width + EPS);
    });
  };
  const frequency = model.frequency ?? ((j: number) => 10000 ** ((-2 * j) / headDim));
  const turn = (x: Float64Array, count: number): Float64Array => {
    const [y, half, magnitude] = [x.slice(), headDim / 2, model.magnitude ?? 1];
    for (let s = 0; s < tokens.length; s++) {
      for (let at = s * count * headDim; at < (s + 1) * count * headDim; at += headDim) {
        for (let j = 0; j < half; j++) {
          const [c, sn] = [Math.cos(s * frequency(j)) * magnitude, Math.sin(s * frequency(j)) * magnitude];
          y[at + j] = x[at + j]! * c - x[at + j + half]! * sn;
          y[at + j + half] = x[at + j]! * sn + x[at + j + half]! * c;
        }
      }
    }
    return y;
  };

  let x: Float64Array = Float64Array.from(
    tokens.flatMap((id) => [...get('model.embed_tokens.weight')!.subarray(id * hidden, (id + 1) * hidden)]),
  );
  let keys = new Float64Array(0);
  for (let l = 0; l < model.layers; l++) {
    const at = `model.layers.${l}`;
    const h = norm(x, `${at}.input_layernorm`, hidden);
    let q = times(h, `${at}.self_attn.q_proj`, heads * headDim, hidden);
    let k = times(h, `${at}.self_attn.k_proj`, kvHeads * headDim, hidden);
    const v = times(h, `${at}.self_attn.v_proj`, kvHeads * headDim, hidden);
    if (model.family === 'qwen3')
      [q, k] = [norm(q, `${at}.self_attn.q_norm`, headDim), norm(k, `${at}.self_attn.k_norm`, headDim)];
    [q, k] = [turn(q, heads), turn(k, kvHeads)];
    if (l === 0) keys = k as Float64Array<ArrayBuffer>;
    const attended = new Float64Array(tokens.length * heads * headDim);
    for (let s = 0; s < tokens.length; s++) {
      for (let n = 0; n < heads; n++) {
        const kv = Math.floor(n / (heads / kvHeads));
        const first = model.window === undefined ? 0 : Math.max(0, s - model.window + 1);
        const scores: number[] = [];
        for (let p = first; p <= s; p++) {
          let dot = 0;
          for (let i = 0; i < headDim; i++)
            dot += q[(s * heads + n) * headDim + i]! * k[(p * kvHeads + kv) * headDim + i]!;
          scores.push(Math.exp(dot / Math.sqrt(headDim)));
        }
        const sum = scores.reduce((a, b) => a + b, 0);
        for (const [n2, score] of scores.entries()) {
          for (let i = 0; i < headDim; i++)
            attended[(s * heads + n) * headDim + i]! += (score / sum) * v[((first + n2) * kvHeads + kv) * headDim + i]!;
        }
      }
    }
    const o = times(attended, `${at}.self_attn.o_proj`, hidden, heads * headDim);
    x = x.map((value, i) => value + o[i]!);
    const m = norm(x, `${at}.post_attention_layernorm`, hidden);
    const gate = times(m, `${at}.mlp.gate_proj`, inter, hidden);
    const up = times(m, `${at}.mlp.up_proj`, inter, hidden);
    const act = gate.map((g, i) => (g / (1 + Math.exp(-g))) * up[i]!);
    const down = times(act, `${at}.mlp.down_proj`, hidden, inter);
    x = x.map((value, i) => value + down[i]!);
  }
  const last = norm(x, 'model.norm', hidden);
  return { logits: times(last, model.tied ? 'model.embed_tokens' : 'lm_head', vocab, hidden), keys };
}

/** Makes a tokenizer for models without a vocabulary: token n is the text `<n>`. */
export function numberTokenizer(vocabSize: number): Tokenizer {
  const textOf = (id: number): string => `<${id}>`;
  const decode = (tokens: readonly number[] | Int32Array): string => [...tokens].map(textOf).join('');
  return {
    vocabSize,
    bosToken: 1,
    eosTokens: [2],
    addBos: true,
    addEos: false,
    chatTemplates: new Map(),
    encode: (text) => [1, ...[...text.matchAll(/<(\d+)>/g)].map((match) => Number(match[1]))],
    decode,
    stream: () => ({ push: textOf, end: () => '' }),
    tokenText: textOf,
    isSpecial: (id) => id < 3,
  };
}
