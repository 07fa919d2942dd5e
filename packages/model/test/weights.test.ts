/** Tests names, shapes and types of a model's tensors, and blocks widened at load. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { f16FromNumber, numberFromBf16, numberFromF16 } from 'ropewalk';
import { randomFrom } from 'ropewalk/internal';
import { FIXTURES } from '../../../test/support/fixtures.js';
import { configFromJson } from '../src/config.js';
import { WIDENED, widenBlocks } from '../src/dequantize.js';
import type { StoredTensor } from '../src/packed.js';
import { planWeights } from '../src/weights.js';

const CONFIG = {
  model_type: 'qwen3',
  vocab_size: 40,
  hidden_size: 32,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 16,
  intermediate_size: 64,
  max_position_embeddings: 64,
  rms_norm_eps: 1e-6,
  rope_theta: 10000,
  tie_word_embeddings: true,
};

function stored(name: string, shape: readonly number[], type = 'F32', file = 'model.safetensors'): StoredTensor {
  return { name, shape, type, file, byteOffset: 0, sizeBytes: 4 * shape.reduce((a, b) => a * b, 1) };
}

function complete(): StoredTensor[] {
  const layer = (l: number): StoredTensor[] => [
    stored(`model.layers.${l}.input_layernorm.weight`, [32]),
    stored(`model.layers.${l}.self_attn.q_proj.weight`, [64, 32], 'BF16'),
    stored(`model.layers.${l}.self_attn.k_proj.weight`, [32, 32]),
    stored(`model.layers.${l}.self_attn.v_proj.weight`, [32, 32]),
    stored(`model.layers.${l}.self_attn.q_norm.weight`, [16]),
    stored(`model.layers.${l}.self_attn.k_norm.weight`, [16]),
    stored(`model.layers.${l}.self_attn.o_proj.weight`, [32, 64]),
    stored(`model.layers.${l}.post_attention_layernorm.weight`, [32]),
    stored(`model.layers.${l}.mlp.gate_proj.weight`, [64, 32], 'F16'),
    stored(`model.layers.${l}.mlp.up_proj.weight`, [64, 32]),
    stored(`model.layers.${l}.mlp.down_proj.weight`, [32, 64]),
  ];
  return [stored('model.embed_tokens.weight', [40, 32]), ...layer(0), ...layer(1), stored('model.norm.weight', [32])];
}

describe('names, shapes and types', () => {
  const config = configFromJson(CONFIG);
  const without = (name: string): StoredTensor[] => complete().filter((tensor) => tensor.name !== name);

  test('GGUF: layers behind the last are left out if they predict further tokens, and refused else', () => {
    const gguf = { ...config, source: 'gguf', numLayers: 1 } as const;
    const names: Readonly<Record<string, string>> = {
      embed_tokens: 'token_embd',
      norm: 'output_norm',
      input_layernorm: 'attn_norm',
      'self_attn.q_proj': 'attn_q',
      'self_attn.k_proj': 'attn_k',
      'self_attn.v_proj': 'attn_v',
      'self_attn.q_norm': 'attn_q_norm',
      'self_attn.k_norm': 'attn_k_norm',
      'self_attn.o_proj': 'attn_output',
      post_attention_layernorm: 'ffn_norm',
      'mlp.gate_proj': 'ffn_gate',
      'mlp.up_proj': 'ffn_up',
      'mlp.down_proj': 'ffn_down',
    };
    const tensors = complete().map((tensor) => {
      const [, layer = '', part] = /^model\.(layers\.\d+\.)?(.*)\.weight$/.exec(tensor.name)!;
      return { ...tensor, name: `${layer.replace('layers', 'blk')}${names[part!]}.weight` };
    });
    assert.equal(planWeights({ ...gguf, furtherLayers: 1 }, tensors, 'm').length, 13);
    assert.throws(() => planWeights(gguf, tensors, 'm'), { code: 'UNSUPPORTED', message: /tensor blk\.1\./ });
  });

  test('every tensor finds its place, in the order of the forward pass, whatever the order of the file', () => {
    const plans = planWeights(config, complete().reverse(), 'm');
    assert.equal(plans.length, 24);
    assert.equal(plans[0]!.name, 'model.embed_tokens.weight');
    assert.equal(plans.at(-1)!.name, 'model.norm.weight');
    assert.equal(plans.find(({ name }) => name.endsWith('0.self_attn.q_proj.weight'))!.held, 'bf16');
    assert.equal(plans.find(({ name }) => name.endsWith('0.self_attn.q_proj.weight'))!.heldBytes, 64 * 32 * 2);
  });

  test('files saved without a head have no model. in front; spare tensors are left alone', () => {
    const bare = complete().map((tensor) => ({ ...tensor, name: tensor.name.replace('model.', '') }));
    assert.equal(planWeights(config, bare, 'm').length, 24);
    const spare = [
      ...complete(),
      stored('lm_head.weight', [40, 32]),
      stored('model.layers.1.self_attn.rotary_emb.inv_freq', [8]),
    ];
    assert.equal(planWeights(config, spare, 'm').length, 24);
  });

  const refusals: Record<string, [tensors: StoredTensor[], code: string, message: RegExp]> = {
    missing: [
      without('model.layers.1.mlp.up_proj.weight'),
      'FORMAT',
      /^m: tensor model\.layers\.1\.mlp\.up_proj\.weight of shape \[64,32\], which .* is not among the 23 tensors\. .*incomplete/,
    ],
    'of a layer too many': [
      [...complete(), stored('model.layers.2.mlp.up_proj.weight', [64, 32])],
      'UNSUPPORTED',
      /^model\.safetensors: tensor model\.layers\.2\.mlp\.up_proj\.weight: a qwen3 model with this config has no such tensor/,
    ],
    'a bias that the config does not have': [
      [...complete(), stored('model.layers.0.self_attn.q_proj.bias', [64])],
      'UNSUPPORTED',
      /q_proj\.bias/,
    ],
    'of another shape': [
      [...without('model.norm.weight'), stored('model.norm.weight', [31])],
      'FORMAT',
      /tensor model\.norm\.weight: expected shape \[32\] .*got \[31\]/,
    ],
    transposed: [
      [
        ...without('model.layers.0.self_attn.o_proj.weight'),
        stored('model.layers.0.self_attn.o_proj.weight', [64, 32]),
      ],
      'FORMAT',
      /expected shape \[32,64\]/,
    ],
    'of another rank': [
      [...without('model.norm.weight'), stored('model.norm.weight', [1, 32])],
      'FORMAT',
      /expected shape \[32\]/,
    ],
    'of an unknown type': [
      [...without('model.norm.weight'), stored('model.norm.weight', [32], 'F8_E4M3')],
      'UNSUPPORTED',
      /tensor model\.norm\.weight: expected type F32, F16, BF16, Q8_0, .*got "F8_E4M3"/,
    ],
    'in two files': [
      [...complete(), stored('model.norm.weight', [32], 'F32', 'other.safetensors')],
      'FORMAT',
      /^other\.safetensors: model\.norm\.weight: model\.safetensors has this tensor too/,
    ],
    'none at all': [[], 'FORMAT', /model\.embed_tokens\.weight .*is not among the 0 tensors/],
  };
  for (const [label, [tensors, code, message]] of Object.entries(refusals)) {
    test(`refusal: a tensor ${label}`, () =>
      assert.throws(() => planWeights(config, tensors, 'm'), { name: 'RopewalkError', code, message }));
  }

  test('refusal: for a missing untied head the message says what config.json should say', () => {
    const untied = configFromJson({ ...CONFIG, tie_word_embeddings: false });
    assert.throws(() => planWeights(untied, complete(), 'm'), {
      code: 'FORMAT',
      message: /lm_head\.weight.*"tie_word_embeddings": true/,
    });
  });
});

/**
 * Packs blocks from codes to bytes, as ggml's quantisers do.
 *
 * @see ggml-org/ggml@d99724f src/ggml-quants.c, quantize_row_NAME_ref
 */
const f16Bytes = (value: number): number[] => [f16FromNumber(value) & 255, f16FromNumber(value) >> 8];

/** Packs 32 q in two halves: byte j holds weights j and j + 16; fifth bits are one little-endian word. */
function packSmall(q: readonly number[], bits: number): { halves: number[]; fifths: number[] } {
  const halves = Array.from({ length: 16 }, (_, j) => (q[j]! & 15) | ((q[j + 16]! & 15) << 4));
  let word = 0;
  for (let j = 0; j < 32; j++) word |= ((q[j]! >> 4) & 1) << j;
  return { halves, fifths: bits === 5 ? [0, 8, 16, 24].map((shift) => (word >>> shift) & 255) : [] };
}

/** Packs eight scales and eight minima of six bits. */
function packScales(scales: readonly number[], minima: readonly number[]): number[] {
  const bytes = new Array<number>(12).fill(0);
  for (let s = 0; s < 4; s++) {
    bytes[s] = scales[s]! | ((scales[s + 4]! >> 4) << 6);
    bytes[s + 4] = minima[s]! | ((minima[s + 4]! >> 4) << 6);
    bytes[s + 8] = (scales[s + 4]! & 15) | ((minima[s + 4]! & 15) << 4);
  }
  return bytes;
}

function packSuper(q: readonly number[], bits: number): { halves: number[]; fifths: number[] } {
  const halves: number[] = [];
  for (let chunk = 0; chunk < 256; chunk += 64)
    for (let l = 0; l < 32; l++) halves.push((q[chunk + l]! & 15) | ((q[chunk + l + 32]! & 15) << 4));
  const fifths = Array.from({ length: 32 }, (_, l) => {
    let byte = 0;
    for (let s = 0; s < 8; s++) byte |= ((q[32 * s + l]! >> 4) & 1) << s;
    return byte;
  });
  return { halves, fifths: bits === 5 ? fifths : [] };
}

function packQ6(q: readonly number[]): { low: number[]; high: number[] } {
  const [low, high]: [number[], number[]] = [[], []];
  for (let n = 0; n < 256; n += 128) {
    for (let l = 0; l < 64; l++) low.push((q[n + l]! & 15) | ((q[n + l + 64]! & 15) << 4));
    for (let l = 0; l < 32; l++)
      high.push(
        (q[n + l]! >> 4) | ((q[n + l + 32]! >> 4) << 2) | ((q[n + l + 64]! >> 4) << 4) | ((q[n + l + 96]! >> 4) << 6),
      );
  }
  return { low, high };
}

describe("blocks are ggml's own values, to the bit", () => {
  const folder = `${FIXTURES}/llamacpp/quants`;
  interface Vector {
    readonly type: string;
    readonly kind: string;
    readonly blocks: string;
    readonly values: string;
    readonly blockWeights: number;
    readonly blockBytes: number;
  }
  test('every type of the vectors', () => {
    const { vectors } = JSON.parse(readFileSync(`${folder}/manifest.json`, 'utf8')) as { vectors: Vector[] };
    const read = (name: string): Uint8Array<ArrayBuffer> => new Uint8Array(readFileSync(`${folder}/${name}`));
    const plain: Record<string, (bits: number) => number> = { F16: numberFromF16, BF16: numberFromBf16 };
    const seen = new Set<string>();
    for (const vector of vectors) {
      const name = vector.type.toUpperCase();
      const blocks = read(vector.blocks);
      const want = new Int32Array(read(vector.values).buffer);
      const got = new Float32Array(want.length);
      if (plain[name]) got.set(Float32Array.from(new Uint16Array(blocks.buffer), plain[name]));
      else {
        const format = WIDENED.get(name)!;
        assert.deepEqual([format?.weights, format?.bytes], [vector.blockWeights, vector.blockBytes], name);
        widenBlocks(format, blocks, name, 'f32', got);
        if (format.exact) {
          const narrow = new Uint16Array(want.length);
          widenBlocks(format, blocks, name, format.exact, narrow);
          assert.deepEqual(
            Float32Array.from(narrow, plain[format.exact.toUpperCase()]!),
            got,
            `${name} is exact in ${format.exact}`,
          );
        }
      }
      const bits = new Int32Array(got.buffer);
      assert.equal(
        bits.findIndex((value, n) => value !== want[n]),
        -1,
        `${name}, ${vector.kind}`,
      );
      seen.add(name);
    }
    assert.deepEqual([...WIDENED.keys(), 'F16', 'BF16'].sort(), [...seen].sort());
  });
});

describe('blocks widened at load', () => {
  const random = randomFrom('blocks');
  const codes = (count: number, below: number): number[] => Array.from({ length: count }, () => random.integer(below));
  /** Returns a random scale that f16 holds. */
  const scale = (): number => numberFromF16(f16FromNumber(random.uniform(-0.1, 0.1)));

  /** Makes one block of each format: its bytes, and the weights in them. */
  const make: Record<string, () => { bytes: number[]; weights: number[] }> = {
    Q4_0: () => {
      const [d, q] = [scale(), codes(32, 16)];
      return { bytes: [...f16Bytes(d), ...packSmall(q, 4).halves], weights: q.map((c) => d * (c - 8)) };
    },
    Q4_1: () => {
      const [d, m, q] = [scale(), scale(), codes(32, 16)];
      return { bytes: [...f16Bytes(d), ...f16Bytes(m), ...packSmall(q, 4).halves], weights: q.map((c) => d * c + m) };
    },
    Q5_0: () => {
      const [d, q] = [scale(), codes(32, 32)];
      const { halves, fifths } = packSmall(q, 5);
      return { bytes: [...f16Bytes(d), ...fifths, ...halves], weights: q.map((c) => d * (c - 16)) };
    },
    Q5_1: () => {
      const [d, m, q] = [scale(), scale(), codes(32, 32)];
      const { halves, fifths } = packSmall(q, 5);
      return { bytes: [...f16Bytes(d), ...f16Bytes(m), ...fifths, ...halves], weights: q.map((c) => d * c + m) };
    },
    Q8_0: () => {
      const [d, q] = [scale(), codes(32, 256)];
      return { bytes: [...f16Bytes(d), ...q], weights: q.map((c) => d * (c < 128 ? c : c - 256)) };
    },
    Q4_K: () => superOf(4),
    Q5_K: () => superOf(5),
    Q6_K: () => {
      const [d, q, scales] = [scale(), codes(256, 64), codes(16, 256)];
      const { low, high } = packQ6(q);
      const weights = q.map((c, n) => d * (scales[n >> 4]! < 128 ? scales[n >> 4]! : scales[n >> 4]! - 256) * (c - 32));
      return { bytes: [...low, ...high, ...scales, ...f16Bytes(d)], weights };
    },
  };
  function superOf(bits: 4 | 5): { bytes: number[]; weights: number[] } {
    const [d, dmin, q, scales, minima] = [scale(), scale(), codes(256, 2 ** bits), codes(8, 64), codes(8, 64)];
    const { halves, fifths } = packSuper(q, bits);
    const weights = q.map((c, n) => d * scales[n >> 5]! * c - dmin * minima[n >> 5]!);
    return { bytes: [...f16Bytes(d), ...f16Bytes(dmin), ...packScales(scales, minima), ...fifths, ...halves], weights };
  }

  for (const name of Object.keys(make)) {
    const format = WIDENED.get(name)!;
    test(`${name}: to f32 and to f16, each rounded once`, () => {
      const blocks = Array.from({ length: 20 }, () => make[name]!());
      const bytes = Uint8Array.from(blocks.flatMap((block) => block.bytes));
      assert.equal(bytes.length, 20 * format.bytes);
      const want = blocks.flatMap((block) => block.weights);
      const wide = new Float32Array(want.length);
      widenBlocks(format, bytes, 'here', 'f32', wide);
      const halves = new Uint16Array(want.length);
      widenBlocks(format, bytes, 'here', 'f16', halves);
      for (const [n, value] of want.entries()) {
        // Sums of products may be taken in another order, which costs a unit of float64.
        assert.ok(
          Math.abs(wide[n]! - value) <= Math.abs(value) * 2 ** -24 + 2 ** -50,
          `${name}[${n}]: ${wide[n]}, want ${value}`,
        );
        assert.ok(
          Math.abs(numberFromF16(halves[n]!) - value) <= Math.max(Math.abs(value) * 2 ** -11, 2 ** -25) + 2 ** -50,
          `${name}[${n}]`,
        );
      }
    });
  }

  test('refusal: a scale that is infinite, or weights that f16 cannot hold', () => {
    const { bytes } = make.Q6_K!();
    const forged = Uint8Array.from([...bytes.slice(0, 208), 0, 0x7c]);
    assert.throws(() => widenBlocks(WIDENED.get('Q6_K')!, forged, 'm.gguf: tensor t', 'f16', new Uint16Array(256)), {
      code: 'FORMAT',
      message: /^m\.gguf: tensor t: expected weights that f16 holds, got (-?Infinity|NaN)/,
    });
    const large = Uint8Array.from([...f16Bytes(60000), ...new Array(32).fill(100)]);
    assert.throws(() => widenBlocks(WIDENED.get('Q8_0')!, large, 't', 'f16', new Uint16Array(32)), {
      code: 'FORMAT',
      message: /got 6000000/,
    });
    const wide = new Float32Array(32);
    widenBlocks(WIDENED.get('Q8_0')!, large, 't', 'f32', wide);
    assert.equal(wide[0], 60000 * 100);
    // The scale is 12 · 2^127.
    const beyond = Uint8Array.of(255, ...new Array(16).fill(7));
    assert.throws(() => widenBlocks(WIDENED.get('MXFP4')!, beyond, 't', 'bf16', new Uint16Array(32)), {
      message: /that bf16 holds/,
    });
  });
});
