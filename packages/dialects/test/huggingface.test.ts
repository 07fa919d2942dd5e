import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { readGgufHeader } from '@ropewalk/formats/node';
import fc from 'fast-check';
import { planRope, type RopeSpec, ropeFrequencies } from 'ropewalk';
import { sharePairs } from 'ropewalk/internal';
import { STORIES } from '../../../test/support/fixtures.js';
import { mustRefuseOrReturn } from '../../../test/support/fuzz.js';
import { drawn } from '../../../test/support/size.js';
import { suitePasses } from '../../../test/support/suites.js';
import { specToJson } from '../src/convert/record.js';
import { ropeFromGguf } from '../src/gguf.js';
import { ropeFromConfig } from '../src/huggingface.js';
import type { ModelRope } from '../src/model-rope.js';

describe('golden', () => suitePasses('huggingface'));

/** Real configs with the fields that concern RoPE. The values are those of the models. */
const llama2 = {
  model_type: 'llama',
  num_hidden_layers: 32,
  hidden_size: 4096,
  num_attention_heads: 32,
  max_position_embeddings: 4096,
};
const llama31 = {
  ...llama2,
  max_position_embeddings: 131072,
  rope_theta: 500000,
  rope_scaling: {
    factor: 8,
    low_freq_factor: 1,
    high_freq_factor: 4,
    original_max_position_embeddings: 8192,
    rope_type: 'llama3',
  },
};
const qwen25 = {
  model_type: 'qwen2',
  num_hidden_layers: 28,
  hidden_size: 3584,
  num_attention_heads: 28,
  max_position_embeddings: 32768,
  rope_theta: 1e6,
};

/** Makes the types of layers, some of which have full attention. */
const types = (count: number, full: readonly number[]): string[] =>
  Array.from({ length: count }, (_, layer) => (full.includes(layer) ? 'full_attention' : 'sliding_attention'));

const only = (model: ModelRope): RopeSpec => {
  assert.equal(new Set(model.layers.map((l) => l.rope)).size, 1, 'one RoPE for all layers');
  return model.layers[0]!.rope!;
};
const freq = (rope: RopeSpec) => ropeFrequencies({ ...rope, rotaryDim: rope.rotaryDim! });
const near = (got: ArrayLike<number>, want: ArrayLike<number>, relative = 1e-14): void => {
  assert.equal(got.length, want.length);
  for (let j = 0; j < want.length; j++)
    assert.ok(Math.abs(got[j]! - want[j]!) <= relative * Math.abs(want[j]!), `pair ${j}: ${got[j]}, want ${want[j]}`);
};
const pairs = (n: number, f: (j: number) => number) => Array.from({ length: n }, (_, j) => f(j));

describe('models', () => {
  test('Llama 2: plain, θ from the configuration class, said in a note', () => {
    const model = ropeFromConfig(llama2);
    const rope = only(model);
    assert.deepEqual(
      [rope.headDim, rope.rotaryDim, rope.pairing, rope.base, model.numLayers, model.maxContext],
      [128, 128, 'half', 10000, 32, 4096],
    );
    near(
      freq(rope).invFreq,
      pairs(64, (j) => 10000 ** (-j / 64)),
    );
    assert.match(model.notes.join(), /rope_theta is missing\. transformers' default for llama is used: 10000\./);
  });

  test('Llama 3.1: fast pairs kept, slow pairs / 8, the step as published', () => {
    const { invFreq, attentionFactor } = freq(only(ropeFromConfig(llama31)));
    assert.equal(attentionFactor, 1);
    near(
      invFreq,
      pairs(64, (j) => {
        const f = 500000 ** (-j / 64);
        const wavelength = (2 * Math.PI) / f;
        if (wavelength < 8192 / 4) return f;
        if (wavelength > 8192) return f / 8;
        const smooth = (8192 / wavelength - 1) / 3;
        return (1 - smooth) * (f / 8) + smooth * f;
      }),
    );
  });

  test('Qwen2.5 with YaRN, by rope_scaling and by rope_parameters alike', () => {
    const yarn = { factor: 4, original_max_position_embeddings: 32768 };
    const old = only(ropeFromConfig({ ...qwen25, rope_scaling: { type: 'yarn', ...yarn } }));
    const { rope_theta, ...rest } = qwen25;
    const now = only(ropeFromConfig({ ...rest, rope_parameters: { rope_type: 'yarn', rope_theta, ...yarn } }));
    assert.deepEqual(now, old);
    const { invFreq, attentionFactor } = freq(old);
    near([attentionFactor], [0.1 * Math.log(4) + 1]);
    const edge = (turns: number) => (128 * Math.log(32768 / (turns * 2 * Math.PI))) / (2 * Math.log(1e6));
    const [low, high] = [Math.floor(edge(32)), Math.ceil(edge(1))];
    near(
      invFreq,
      pairs(64, (j) => {
        const f = 1e6 ** (-j / 64);
        const ramp = Math.min(1, Math.max(0, (j - low) / (high - low)));
        return (f / 4) * ramp + f * (1 - ramp);
      }),
    );
  });

  test('gpt-oss: truncate = false keeps the ramp’s edges fractional', () => {
    const config = {
      model_type: 'gpt_oss',
      num_hidden_layers: 24,
      head_dim: 64,
      hidden_size: 2880,
      num_attention_heads: 64,
      max_position_embeddings: 131072,
      rope_theta: 150000,
    };
    const scaling = {
      rope_type: 'yarn',
      factor: 32,
      beta_fast: 32,
      beta_slow: 1,
      original_max_position_embeddings: 4096,
    };
    const rope = only(ropeFromConfig({ ...config, rope_scaling: { ...scaling, truncate: false } }));
    assert.equal(rope.headDim, 64, 'head_dim counts, not hidden_size / heads = 45');
    const edge = (turns: number) => (64 * Math.log(4096 / (turns * 2 * Math.PI))) / (2 * Math.log(150000));
    near(
      freq(rope).invFreq,
      pairs(32, (j) => {
        const f = 150000 ** (-j / 32);
        const ramp = Math.min(1, Math.max(0, (j - edge(32)) / (edge(1) - edge(32))));
        return (f / 32) * ramp + f * (1 - ramp);
      }),
    );
  });

  test('DeepSeek-V3: two mscales cancel, neighbours read and halves written', () => {
    const model = ropeFromConfig({
      model_type: 'deepseek_v3',
      num_hidden_layers: 61,
      hidden_size: 7168,
      num_attention_heads: 128,
      qk_rope_head_dim: 64,
      qk_nope_head_dim: 128,
      max_position_embeddings: 163840,
      rope_theta: 10000,
      rope_scaling: {
        type: 'yarn',
        factor: 40,
        beta_fast: 32,
        beta_slow: 1,
        mscale: 1,
        mscale_all_dim: 1,
        original_max_position_embeddings: 4096,
      },
    });
    const rope = only(model);
    assert.deepEqual([rope.headDim, rope.pairing, freq(rope).attentionFactor], [64, 'interleaved-to-half', 1]);
    assert.match(model.notes.join(), /scale the attention scores by mscale_all_dim/);
  });

  test('attention_factor replaces; a factor up to 1 has none', () => {
    const scaling = { rope_type: 'yarn', original_max_position_embeddings: 4096 };
    const magnitude = (more: object) =>
      freq(only(ropeFromConfig({ ...llama31, rope_scaling: { ...scaling, ...more } }))).attentionFactor;
    assert.equal(magnitude({ factor: 4, attention_factor: 0.5 }), 0.5);
    assert.equal(magnitude({ factor: 1 }), 1);
    near([magnitude({})], [0.1 * Math.log(32) + 1]); // Without factor it is max_position / original.
  });

  test('Phi-3: LongRoPE by context; the factor follows from the two lengths', () => {
    const factors = { short_factor: pairs(48, (j) => 1 + j / 100), long_factor: pairs(48, (j) => 2 + j) };
    const config = {
      model_type: 'phi3',
      num_hidden_layers: 32,
      hidden_size: 3072,
      num_attention_heads: 32,
      max_position_embeddings: 131072,
      original_max_position_embeddings: 4096,
      rope_theta: 10000,
      rope_scaling: { type: 'su', ...factors },
    };
    const short = freq(only(ropeFromConfig(config)));
    const long = freq(only(ropeFromConfig(config, { context: 4097 })));
    near(
      short.invFreq,
      pairs(48, (j) => 10000 ** (-j / 48) / (1 + j / 100)),
    );
    near(
      long.invFreq,
      pairs(48, (j) => 10000 ** (-j / 48) / (2 + j)),
    );
    near([short.attentionFactor], [Math.sqrt(1 + Math.log(32) / Math.log(4096))]);
    assert.match(ropeFromConfig(config).notes.join(), /up to 4096 tokens are assumed/);
  });

  test('dynamic NTK: the base rises past the original context', () => {
    const config = { ...llama2, rope_theta: 10000, rope_scaling: { type: 'dynamic', factor: 2 } };
    near(
      freq(only(ropeFromConfig(config))).invFreq,
      pairs(64, (j) => 10000 ** (-j / 64)),
    );
    near(
      freq(only(ropeFromConfig(config, { context: 8192 }))).invFreq,
      pairs(64, (j) => (10000 * 3 ** (128 / 126)) ** (-j / 64)),
      1e-13,
    );
  });

  test('linear', () =>
    near(
      freq(only(ropeFromConfig({ ...llama2, rope_scaling: { type: 'linear', factor: 4 } }))).invFreq,
      pairs(64, (j) => 10000 ** (-j / 64) / 4),
    ));

  test('partial rotary: GPT-NeoX by rotary_pct, GPT-J by rotary_dim, Phi by partial_rotary_factor', () => {
    const neox = only(
      ropeFromConfig({
        model_type: 'gpt_neox',
        num_hidden_layers: 44,
        hidden_size: 6144,
        num_attention_heads: 64,
        rotary_pct: 0.25,
        rotary_emb_base: 10000,
      }),
    );
    assert.deepEqual([neox.headDim, neox.rotaryDim, neox.pairing], [96, 24, 'half']);
    near(
      freq(neox).invFreq,
      pairs(12, (j) => 10000 ** (-j / 12)),
    );
    const gptj = only(
      ropeFromConfig({
        model_type: 'gptj',
        n_layer: 28,
        n_embd: 4096,
        n_head: 16,
        rotary_dim: 64,
        n_positions: 2048,
        rope_theta: 10000,
      }),
    );
    assert.deepEqual([gptj.headDim, gptj.rotaryDim, gptj.pairing], [256, 64, 'interleaved']);
    assert.equal(
      only(
        ropeFromConfig({
          model_type: 'phi',
          num_hidden_layers: 32,
          hidden_size: 2560,
          num_attention_heads: 32,
          partial_rotary_factor: 0.4,
          rope_theta: 10000,
        }),
      ).rotaryDim,
      32,
    );
  });

  test('GLM-4 turns half of each head, by neighbours', () => {
    const rope = only(
      ropeFromConfig({
        model_type: 'glm4',
        num_hidden_layers: 61,
        head_dim: 128,
        partial_rotary_factor: 0.5,
        rope_theta: 10000,
      }),
    );
    assert.deepEqual([rope.rotaryDim, rope.pairing], [64, 'interleaved']);
  });

  test('ChatGLM, as vLLM reads it: θ is 10000 times rope_ratio; original_rope', () => {
    const sizes = { hidden_size: 4096, num_attention_heads: 32, kv_channels: 128, num_layers: 40, seq_length: 131072 };
    const of = (more: object) => {
      const { base, pairing, rotaryDim } = only(ropeFromConfig({ model_type: 'chatglm', ...sizes, ...more }));
      return [base, pairing, rotaryDim];
    };
    assert.deepEqual(of({ rope_ratio: 500, original_rope: true }), [5e6, 'interleaved', 64]);
    assert.deepEqual(of({ original_rope: false }), [1e4, 'half', 64]);
  });

  test('Gemma 3: five sliding layers by 10000, every sixth by 10⁶ and stretched', () => {
    const config = {
      model_type: 'gemma3_text',
      num_hidden_layers: 12,
      head_dim: 256,
      rope_theta: 1e6,
      rope_local_base_freq: 10000,
      rope_scaling: { rope_type: 'linear', factor: 8 },
      sliding_window_pattern: 6,
    };
    const model = ropeFromConfig(config);
    assert.deepEqual(
      model.layers.map((l) => l.rope!.base),
      [1e4, 1e4, 1e4, 1e4, 1e4, 1e6, 1e4, 1e4, 1e4, 1e4, 1e4, 1e6],
    );
    assert.deepEqual(
      [model.layers[5]!.rope!.scaling, model.layers[0]!.rope!.scaling],
      [{ kind: 'linear', factor: 8 }, undefined],
    );
    // The new form says the same by layer type.
    const nested = ropeFromConfig({
      model_type: 'gemma3_text',
      num_hidden_layers: 12,
      head_dim: 256,
      layer_types: model.layers.map((l) => l.layerType),
      rope_parameters: {
        full_attention: { rope_type: 'linear', factor: 8, rope_theta: 1e6 },
        sliding_attention: { rope_type: 'default', rope_theta: 10000 },
      },
    });
    assert.deepEqual(nested.layers, model.layers);
  });

  test('proportional: exponent over head_dim, pairs past the share do not rotate', () => {
    const rope = only(
      ropeFromConfig({
        model_type: 'gemma4_text',
        num_hidden_layers: 2,
        layer_types: ['full_attention', 'full_attention'],
        rope_parameters: {
          full_attention: { rope_type: 'proportional', rope_theta: 1e6, partial_rotary_factor: 0.25 },
        },
      }),
    );
    assert.deepEqual([rope.rotaryDim, rope.pairing], [512, 'half']);
    near(
      freq(rope).invFreq,
      pairs(256, (j) => (j < 64 ? 1e6 ** (-j / 256) : 0)),
    );
  });

  test('ModernBERT: global every third layer', () => {
    const model = ropeFromConfig({
      model_type: 'modernbert',
      num_hidden_layers: 4,
      hidden_size: 768,
      num_attention_heads: 12,
      global_rope_theta: 160000,
      local_rope_theta: 10000,
      global_attn_every_n_layers: 3,
    });
    assert.deepEqual(
      model.layers.map((l) => l.rope!.base),
      [160000, 10000, 10000, 160000],
    );
  });

  test('SmolLM3 and a list of NoPE layers; Cohere 2 turns sliding layers only', () => {
    const turned = (config: object) =>
      ropeFromConfig({ num_hidden_layers: 8, head_dim: 128, rope_theta: 1e6, ...config }).layers.map((l) =>
        l.rope ? 1 : 0,
      );
    assert.deepEqual(turned({ model_type: 'smollm3' }), [1, 1, 1, 0, 1, 1, 1, 0]);
    assert.deepEqual(
      turned({ model_type: 'smollm3', no_rope_layers: [0, 1, 1, 1, 1, 1, 1, 1] }),
      [0, 1, 1, 1, 1, 1, 1, 1],
    );
    assert.deepEqual(turned({ model_type: 'cohere2', sliding_window_pattern: 4 }), [1, 1, 1, 0, 1, 1, 1, 0]);
  });

  test('Qwen2-VL and Qwen3-VL: sections, contiguous and interleaved', () => {
    const vl = { ...qwen25, model_type: 'qwen2_vl', rope_scaling: { type: 'mrope', mrope_section: [16, 24, 24] } };
    assert.deepEqual(only(ropeFromConfig(vl)).axes, { rule: 'sections', sections: [16, 24, 24] });
    const vl3 = {
      model_type: 'qwen3_vl',
      text_config: {
        model_type: 'qwen3_vl_text',
        num_hidden_layers: 2,
        head_dim: 128,
        rope_theta: 5e6,
        rope_scaling: { rope_type: 'default', mrope_interleaved: true, mrope_section: [24, 20, 20] },
      },
    };
    const rope = only(ropeFromConfig(vl3));
    assert.deepEqual(rope.axes, { rule: 'interleaved', sections: [24, 20, 20] });
    assert.equal([...sharePairs(rope.axes, 64).axisOfPair].filter((a) => a === 0).length, 24);
    assert.equal(planRope({ ...rope, positions: Int32Array.of(1, 2, 3) }).table.rows, 1);
  });

  test('an unknown model is taken for half, and a note says so', () => {
    assert.match(
      ropeFromConfig({ model_type: 'brandnew', num_hidden_layers: 1, head_dim: 64, rope_theta: 1e4 }).notes.join(),
      /brandnew is unknown here.*every attention layer is assumed to rotate .*, with half pairing/,
    );
  });

  test('stories260K: config.json and GGUF agree on everything but the pairing', async () => {
    const config = only(ropeFromConfig(JSON.parse(readFileSync(`${STORIES}/config.json`, 'utf8'))));
    const gguf = only(ropeFromGguf(await readGgufHeader(`${STORIES}/model-f32.gguf`)));
    assert.deepEqual([config.pairing, gguf.pairing], ['half', 'interleaved']);
    assert.deepEqual(specToJson({ ...config, pairing: 'half' }), specToJson({ ...gguf, pairing: 'half' }));
  });
});

describe('what a file leaves out, and what a model does not read', () => {
  /** All rows share these sizes. head_dim is 64 by division. */
  const sizes = { num_hidden_layers: 4, max_position_embeddings: 8192, hidden_size: 1024, num_attention_heads: 16 };
  const counting = pairs(32, (j) => 1 + j);
  const yarn = { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 2048 };
  const longrope = { rope_type: 'longrope', short_factor: counting, long_factor: counting.map((n) => 2 * n) };
  const gemma4 = {
    full_attention: { rope_type: 'proportional', rope_theta: 1e6, partial_rotary_factor: 0.25 },
    sliding_attention: { rope_type: 'default', rope_theta: 1e4 },
  };
  /**
   * A row has name, config, layer; head_dim, rotary_dim, pairing; the middle and the last frequency that is not 0, the
   * attention factor; and the context.
   *
   * The config and RotaryEmbedding classes of transformers 5.18.0 computed the numbers for the same config, in float32
   * with torch 1.13. Its apply_rotary_pos_emb on random vectors checked the pairing.
   */
  const rows: [string, object, number, [number, number, string], [number, number, number], number?][] = [
    ['Cohere: θ', { model_type: 'cohere' }, 0, [64, 64, 'interleaved'], [0.001414213, 3.013858e-6, 1]],
    [
      'ERNIE 4.5: θ and head_dim',
      { model_type: 'ernie4_5' },
      0,
      [128, 128, 'interleaved'],
      [0.001414213, 2.455141e-6, 1],
    ],
    ['Helium: θ and head_dim', { model_type: 'helium' }, 0, [128, 128, 'interleaved'], [0.003162278, 1.197085e-5, 1]],
    ['Mixtral: θ', { model_type: 'mixtral' }, 0, [64, 64, 'half'], [0.001, 1.539927e-6, 1]],
    ['BitNet: θ', { model_type: 'bitnet' }, 0, [64, 64, 'half'], [0.001414213, 3.013858e-6, 1]],
    ['Gemma: head_dim', { model_type: 'gemma' }, 0, [256, 256, 'half'], [0.01, 0.0001074608, 1]],
    ['Qwen3: head_dim', { model_type: 'qwen3' }, 0, [128, 128, 'half'], [0.01, 0.0001154782, 1]],
    [
      'Seed-OSS: head_dim null is no omission',
      { model_type: 'seed_oss', head_dim: null, rope_theta: 10000 },
      0,
      [64, 64, 'half'],
      [0.01, 0.0001333522, 1],
    ],
    [
      'DeepSeek-V3: qk_rope_head_dim',
      { model_type: 'deepseek_v3', hidden_size: 7168, num_attention_heads: 128 },
      0,
      [64, 64, 'interleaved-to-half'],
      [0.01, 0.0001333522, 1],
    ],
    ['MiniCPM3: qk_rope_head_dim', { model_type: 'minicpm3' }, 0, [32, 32, 'half'], [0.01, 0.0001778279, 1]],
    [
      'Kimi K2, as DeepSeek-V3',
      { model_type: 'kimi_k2', qk_rope_head_dim: 64, rope_theta: 50000 },
      0,
      [64, 64, 'interleaved-to-half'],
      [0.004472136, 0.00002804612, 1],
    ],
    ['LongCat: θ', { model_type: 'longcat_flash' }, 0, [64, 64, 'interleaved-to-half'], [0.0003162278, 1.654817e-7, 1]],
    [
      'GPT-NeoX: rotary_pct',
      { model_type: 'gpt_neox', rope_theta: 777, partial_rotary_factor: 0.5 },
      0,
      [64, 16, 'half'],
      [0.01, 0.0003162278, 1],
    ],
    ['StableLM: partial', { model_type: 'stablelm' }, 0, [64, 16, 'half'], [0.01, 0.0003162278, 1]],
    ['Phi: partial', { model_type: 'phi' }, 0, [64, 32, 'half'], [0.01, 0.0001778279, 1]],
    [
      'Persimmon: partial',
      { model_type: 'persimmon', rope_theta: 25000 },
      0,
      [64, 32, 'half'],
      [0.006324556, 7.532363e-5, 1],
    ],
    ['Nemotron: partial', { model_type: 'nemotron' }, 0, [64, 32, 'half'], [0.01, 0.0001778279, 1]],
    ['GLM-4: head_dim and partial', { model_type: 'glm4' }, 0, [128, 64, 'interleaved'], [0.01, 0.0001333522, 1]],
    ['GLM-4.5: partial', { model_type: 'glm4_moe' }, 0, [64, 32, 'half'], [0.01, 0.0001778279, 1]],
    ['Qwen3-Next: head_dim and partial', { model_type: 'qwen3_next' }, 3, [256, 64, 'half'], [0.01, 0.0001333522, 1]],
    [
      'MiniMax-M2: rotary_dim',
      { model_type: 'minimax_m2', rotary_dim: 64, rope_theta: 5000000 },
      0,
      [128, 64, 'half'],
      [0.0004472136, 3.238715e-7, 1],
    ],
    [
      'MiniMax-01 does not read rotary_dim',
      { model_type: 'minimax', head_dim: 128, rotary_dim: 64, rope_theta: 10000000 },
      0,
      [128, 128, 'half'],
      [0.0003162278, 1.286397e-7, 1],
    ],
    [
      'GLM-4 beside rope_parameters',
      { model_type: 'glm4', rope_parameters: { rope_type: 'default', rope_theta: 10000 } },
      0,
      [128, 64, 'interleaved'],
      [0.01, 0.0001333522, 1],
    ],
    [
      'Llama does not read partial_rotary_factor',
      { model_type: 'llama', partial_rotary_factor: 0.5, rope_theta: 10000 },
      0,
      [64, 64, 'half'],
      [0.01, 0.0001333522, 1],
    ],
    [
      'Llama does not read kv_channels',
      { model_type: 'llama', kv_channels: 32, rope_theta: 10000 },
      0,
      [64, 64, 'half'],
      [0.01, 0.0001333522, 1],
    ],
    [
      'the outer original context wins',
      {
        model_type: 'llama',
        rope_theta: 500000,
        original_max_position_embeddings: 1024,
        rope_scaling: {
          rope_type: 'llama3',
          factor: 8,
          low_freq_factor: 1,
          high_freq_factor: 4,
          original_max_position_embeddings: 32768,
        },
      },
      0,
      [64, 64, 'half'],
      [0.0001767767, 3.767323e-7, 1],
    ],
    [
      'rope_scaling comes before an equal rope_parameters',
      {
        model_type: 'llama',
        rope_theta: 500000,
        rope_scaling: { rope_type: 'linear', factor: 2 },
        rope_parameters: { rope_type: 'linear', rope_theta: 500000, factor: 2 },
      },
      0,
      [64, 64, 'half'],
      [0.0007071067, 1.506929e-6, 1],
    ],
    [
      'LongRoPE: a given factor counts',
      {
        model_type: 'llama',
        rope_theta: 10000,
        original_max_position_embeddings: 1024,
        rope_scaling: { ...longrope, factor: 3 },
      },
      0,
      [64, 64, 'half'],
      [0.0005882353, 4.167255e-6, 1.076335],
    ],
    [
      'Phi-3: original context 4096 where left out',
      { model_type: 'phi3', rope_theta: 10000, rope_scaling: { ...longrope, original_max_position_embeddings: 2048 } },
      0,
      [64, 64, 'half'],
      [0.0002941177, 2.083627e-6, 1.040833],
      4097,
    ],
    [
      'PhiMoE: short factors at any length',
      {
        model_type: 'phimoe',
        rope_theta: 10000,
        rope_scaling: { ...longrope, short_mscale: 1.2, long_mscale: 1.3, original_max_position_embeddings: 2048 },
      },
      0,
      [64, 64, 'half'],
      [0.0005882353, 4.167255e-6, 1.3],
      5000,
    ],
    [
      'PhiMoE: short magnitude',
      {
        model_type: 'phimoe',
        rope_theta: 10000,
        rope_scaling: { ...longrope, short_mscale: 1.2, long_mscale: 1.3, original_max_position_embeddings: 2048 },
      },
      0,
      [64, 64, 'half'],
      [0.0005882352, 4.167255e-6, 1.2],
      100,
    ],
    [
      'dynamic NTK: max_position_embeddings counts',
      {
        model_type: 'llama',
        rope_theta: 10000,
        rope_scaling: { rope_type: 'dynamic', factor: 2, original_max_position_embeddings: 2048 },
      },
      0,
      [64, 64, 'half'],
      [0.01, 0.0001333521, 1],
      5000,
    ],
    [
      'HunYuan: alpha',
      {
        model_type: 'hunyuan_v1_dense',
        head_dim: 64,
        rope_theta: 10000,
        rope_scaling: { type: 'dynamic', factor: 1, alpha: 1000 },
      },
      0,
      [64, 64, 'half'],
      [0.000282887, 1.333521e-7, 1],
    ],
    [
      'HunYuan: alpha is forgotten past the context',
      {
        model_type: 'hunyuan_v1_dense',
        head_dim: 64,
        rope_theta: 10000,
        rope_scaling: { type: 'dynamic', factor: 2, alpha: 1000 },
      },
      0,
      [64, 64, 'half'],
      [0.0056721, 4.445071e-5, 1],
      16384,
    ],
    [
      'Mistral 4: qk_rope_head_dim beside its share',
      {
        model_type: 'mistral4',
        rope_parameters: {
          rope_type: 'yarn',
          rope_theta: 10000,
          factor: 128,
          original_max_position_embeddings: 8192,
          beta_fast: 32,
          beta_slow: 1,
          mscale: 1,
          mscale_all_dim: 1,
          partial_rotary_factor: 0.5,
        },
      },
      0,
      [64, 64, 'interleaved-to-half'],
      [0.006947116, 1.041814e-6, 1],
    ],
    [
      'Llama 3 without an original context: max_position_embeddings',
      {
        model_type: 'llama',
        rope_theta: 10000,
        rope_scaling: { ...llama31.rope_scaling, original_max_position_embeddings: undefined },
      },
      0,
      [64, 64, 'half'],
      [0.01, 1.666902e-5, 1],
    ],
    [
      'by layer type truncate is not read, nor the outer context',
      {
        model_type: 'olmo3',
        original_max_position_embeddings: 1024,
        rope_parameters: {
          full_attention: { ...yarn, rope_theta: 1000000, truncate: false },
          sliding_attention: { rope_type: 'default', rope_theta: 10000 },
        },
      },
      3,
      [64, 64, 'half'],
      [0.00025, 3.849816e-7, 1.138629],
    ],
    [
      'OLMo 3: sliding layers do not read rope_theta',
      { model_type: 'olmo3', rope_theta: 10000 },
      0,
      [64, 64, 'half'],
      [0.001414213, 3.013858e-6, 1],
    ],
    [
      'OLMo 3: full layers do',
      { model_type: 'olmo3', rope_theta: 10000, rope_scaling: yarn },
      3,
      [64, 64, 'half'],
      [0.005384615, 3.333804e-5, 1.138629],
    ],
    [
      'Gemma 3n: local θ',
      { model_type: 'gemma3n_text', head_dim: 64, rope_theta: 1000000, rope_local_base_freq: 20000 },
      0,
      [64, 64, 'half'],
      [0.007071068, 6.813608e-5, 1],
    ],
    [
      'ModernBERT: both kinds are scaled',
      {
        model_type: 'modernbert',
        global_rope_theta: 160000,
        local_rope_theta: 10000,
        rope_scaling: { rope_type: 'linear', factor: 2 },
      },
      1,
      [64, 64, 'half'],
      [0.005, 6.667608e-5, 1],
    ],
    [
      'Gemma 4: sliding layers',
      { model_type: 'gemma4_text', rope_parameters: gemma4 },
      0,
      [256, 256, 'half'],
      [0.01, 0.0001074608, 1],
    ],
    [
      'Gemma 4: global_head_dim, last layer full',
      { model_type: 'gemma4_text', global_head_dim: 128, head_dim: 64, rope_parameters: gemma4 },
      3,
      [128, 128, 'half'],
      [0.1778279, 0.0392419, 1],
    ],
    [
      'Gemma 4: per_layer_config',
      {
        model_type: 'gemma4_text',
        head_dim: 64,
        per_layer_config: { '03': { head_dim: 256 } },
        rope_parameters: gemma4,
      },
      3,
      [256, 256, 'half'],
      [0.1778279, 0.03522694, 1],
    ],
  ];
  for (const [name, config, layer, shape, [middle, last, attention], context] of rows)
    test(name, () => {
      const rope = ropeFromConfig({ ...sizes, ...config }, context === undefined ? {} : { context }).layers[layer]!
        .rope!;
      assert.deepEqual([rope.headDim, rope.rotaryDim, rope.pairing], shape);
      const { invFreq, attentionFactor } = freq(rope);
      const turning = invFreq.filter((f) => f > 0);
      // transformers computes pow in float32.
      near([turning[turning.length >> 1]!, turning.at(-1)!, attentionFactor], [middle, last, attention], 2e-6);
    });

  test('layers that do not turn, as the attention classes of transformers 5.18.0 choose them', () => {
    const turned = (model_type: string, config: object) =>
      ropeFromConfig({ ...sizes, num_hidden_layers: 8, rope_theta: 1e4, model_type, ...config })
        .layers.map((l) => (l.rope ? 1 : 0))
        .join('');
    assert.equal(turned('exaone4', {}), '11101110');
    assert.equal(
      turned('exaone4', { sliding_window: null, layer_types: new Array(8).fill('full_attention') }),
      '11111111',
    );
    assert.equal(turned('afmoe', { global_attn_every_n_layers: 2 }), '10101010');
    assert.equal(turned('llama4_text', {}), '11101110');
    assert.equal(turned('llama', { no_rope_layers: new Array(8).fill(0) }), '11111111');
    assert.equal(turned('qwen3_next', {}), '00010001');
    assert.equal(turned('minimax', {}), '10101010');
    assert.equal(turned('lfm2', { full_attn_idxs: [2, 5] }), '00100100');
    assert.equal(turned('mllama_text_model', {}), '11101111');
    const layer_types = ['mamba', 'attention', 'mamba', 'mamba', 'mamba', 'mamba', 'mamba', 'attention'];
    assert.equal(turned('granitemoehybrid', { layer_types, position_embedding_type: 'rope' }), '01000001');
    assert.equal(turned('granitemoehybrid', { layer_types, position_embedding_type: 'nope' }), '00000000');
    assert.equal(turned('falcon_h1', {}), '11111111');
  });

  test('windows: by layer type, or by the rule of the class; null is none', () => {
    const windows = (model_type: string, config: object) =>
      ropeFromConfig({ ...sizes, num_hidden_layers: 4, rope_theta: 1e4, model_type, ...config })
        .layers.map(({ window }) => window ?? '-')
        .join(' ');
    const used = { use_sliding_window: true, sliding_window: 9, max_window_layers: 2 };
    assert.equal(windows('llama', { ...used, layer_types: types(4, [0]) }), '- - - -', 'not read');
    assert.equal(windows('dots1', { ...used, layer_types: types(4, [0]) }), '- 9 9 9');
    assert.equal(windows('new_model', { ...used, layer_types: types(4, [0]) }), '- 9 9 9', 'unknown');
    assert.equal(windows('mistral', {}), '4096 4096 4096 4096');
    assert.equal(windows('mistral', { sliding_window: null }), '- - - -');
    assert.equal(windows('phi3', { sliding_window: 9 }), '9 9 9 9');
    assert.equal(windows('phi3', {}), '- - - -');
    assert.equal(windows('ministral', { layer_types: types(4, [1]), sliding_window: 9 }), '9 - 9 9');
    assert.equal(windows('qwen2', used), '- - 9 9');
    assert.equal(windows('qwen2', { ...used, max_window_layers: undefined }), '- - - -');
    assert.equal(windows('qwen2', { ...used, use_sliding_window: false }), '- - - -');
    assert.equal(windows('qwen3', { ...used, layer_types: types(4, [1, 2]) }), '9 - - 9');
    assert.equal(windows('qwen2_moe', { ...used, max_window_layers: 3 }), '9 - 9 -');
    assert.equal(windows('qwen3_moe', used), '9 9 9 9');
    assert.equal(windows('smollm3', used), '- - - 9');
    assert.equal(windows('gemma2', {}), '4096 - 4096 -');
    assert.equal(windows('cohere2', { sliding_window: 9, sliding_window_pattern: 2 }), '9 - 9 -');
    assert.equal(windows('exaone4', { sliding_window: null, layer_types: types(4, [0, 1, 2, 3]) }), '- - - -');
    assert.equal(windows('gemma3n_text', { layer_types: types(4, [3]) }), '- - - -', 'unknown without the field');
  });

  test('layers of two types with one RoPE share the record', () => {
    const { layers } = ropeFromConfig({ ...sizes, num_hidden_layers: 2, rope_theta: 1e4, model_type: 'gemma2' });
    assert.notEqual(layers[0]!.layerType, layers[1]!.layerType);
    assert.equal(layers[0]!.rope, layers[1]!.rope);
  });

  test('axes: the model’s own sections and rule, whatever mrope_interleaved says', () => {
    const axes = (model_type: string, rope_parameters: object) =>
      ropeFromConfig({ ...sizes, num_hidden_layers: 1, model_type, layer_types: ['full_attention'], rope_parameters })
        .layers[0]!.rope!.axes;
    const plain = { rope_type: 'default', rope_theta: 1e6 };
    assert.deepEqual(axes('qwen2_5_vl_text', plain), { rule: 'sections', sections: [16, 24, 24] });
    assert.deepEqual(axes('qwen3_vl_text', plain), { rule: 'interleaved', sections: [24, 20, 20] });
    assert.deepEqual(axes('qwen3_5_text', plain), { rule: 'interleaved', sections: [11, 11, 10] });
    assert.deepEqual(axes('glm4v_text', { ...plain, mrope_interleaved: true }), {
      rule: 'sections',
      sections: [8, 12, 12],
    });
    assert.deepEqual(axes('qwen3_vl_text', { ...plain, mrope_section: [8, 12, 12] }), {
      rule: 'interleaved',
      sections: [8, 12, 12],
    });
    assert.equal(axes('qwen2', { ...plain, mrope_section: [8, 12, 12] }), undefined);
  });

  test('text_config counts, and not the copies beside it', () => {
    const text_config = { ...sizes, model_type: 'qwen2_5_vl_text', rope_theta: 5e5 };
    assert.equal(only(ropeFromConfig({ ...qwen25, model_type: 'qwen2_5_vl', text_config })).base, 5e5);
  });

  test('rope_interleave: false is read by some', () => {
    const pairing = (model_type: string) =>
      only(ropeFromConfig({ ...sizes, model_type, rope_interleave: false })).pairing;
    assert.deepEqual(['deepseek_v3', 'deepseek_v32', 'glm_moe_dsa'].map(pairing), [
      'half',
      'interleaved-to-half',
      'interleaved-to-half',
    ]);
  });

  test('a note says how transformers 4 reads a file differently', () => {
    const four = (config: object): string[] =>
      ropeFromConfig({ ...sizes, ...config }).notes.filter((note) => note.startsWith('transformers 4'));
    const said = (reason: string): string[] => [`transformers 4 reads this file differently: ${reason}.`];
    const rope_parameters = { rope_type: 'default', rope_theta: 5e5 };
    assert.deepEqual(
      four({ model_type: 'llama', rope_parameters }),
      said('it does not read rope_parameters, but rope_theta and rope_scaling, or the defaults of its class'),
    );
    assert.deepEqual(four({ model_type: 'llama', rope_parameters: { ...rope_parameters, rope_theta: 1e4 } }), []);
    assert.deepEqual(four({ model_type: 'minimax_m2', rope_parameters }), [], 'a model that it does not know');
    assert.deepEqual(four({ model_type: 'cohere' }), said('the defaults of its class are other ones'));
    assert.deepEqual(four({ model_type: 'cohere', rope_theta: 1e4 }), []);
    assert.deepEqual(
      four({ model_type: 'llama', original_max_position_embeddings: 1024, rope_scaling: yarn }),
      said('it reads original_max_position_embeddings of YaRN and Llama 3 inside rope_scaling only'),
    );
    assert.deepEqual(
      four({ model_type: 'olmo3', rope_theta: 5e5, rope_scaling: { ...yarn, truncate: false } }),
      said('it reads truncate in rope_scaling; the defaults of its class are other ones'),
    );
  });

  test('an encoder with a decoder counts the layers and heads of the decoder', () => {
    const config = { decoder_num_hidden_layers: 3, decoder_num_attention_heads: 4, hidden_size: 160, rope_theta: 1e4 };
    const model = ropeFromConfig({ model_type: 'moonshine', ...config });
    assert.deepEqual([model.numLayers, model.layers[0]!.rope!.headDim], [3, 40]);
  });

  test('notes say what is not read', () => {
    const notes = (config: object) => ropeFromConfig({ ...sizes, rope_theta: 1e4, ...config }).notes.join();
    assert.match(
      notes({ model_type: 'llama', partial_rotary_factor: 0.5 }),
      /llama does not read partial_rotary_factor: the whole head rotates\./,
    );
    assert.match(
      notes({ model_type: 'qwen2', rope_scaling: { rope_type: 'default', mrope_section: [8, 12, 12] } }),
      /qwen2 does not read mrope_section/,
    );
    assert.match(
      notes({ model_type: 'olmo3' }),
      /rope_parameters\.sliding_attention\.rope_theta is missing\. transformers' default for olmo3 is used: 500000/,
    );
    assert.doesNotMatch(notes({ model_type: 'llama' }), /assumed|missing|not read/);
  });
});

test('fuzz: any JSON, and any damage to a real config, is read or refused', () => {
  const codes = ['FORMAT', 'UNSUPPORTED', 'RANGE', 'SHAPE'];
  fc.assert(
    fc.property(fc.jsonValue(), (json) => mustRefuseOrReturn(() => ropeFromConfig(json), codes)),
    drawn(500),
  );
  const configs = [
    llama31,
    { ...qwen25, rope_scaling: { type: 'yarn', factor: 4 } },
    {
      model_type: 'gemma3_text',
      num_hidden_layers: 12,
      head_dim: 256,
      rope_parameters: { full_attention: { rope_theta: 1e6 }, sliding_attention: { rope_theta: 1e4 } },
    },
  ];
  const value = fc.oneof(
    fc.jsonValue(),
    fc.constantFrom<unknown>(0, -1, 1e308, 2 ** 53, 0.5, 'yarn', [], {}, null, Number.NaN, Number.POSITIVE_INFINITY),
  );
  fc.assert(
    fc.property(fc.constantFrom(...configs), fc.nat(), value, fc.boolean(), (config, at, replacement, inner) => {
      const copy = structuredClone(config) as Record<string, unknown>;
      const target = inner ? ((copy.rope_scaling ?? copy.rope_parameters) as Record<string, unknown>) : copy;
      const keys = Object.keys(target);
      target[keys[at % keys.length]!] = replacement;
      mustRefuseOrReturn(() => {
        const model = ropeFromConfig(copy);
        for (const layer of model.layers.slice(0, 2))
          if (layer.rope) planRope({ ...layer.rope, positions: 0, seqLen: 1 });
      }, codes);
    }),
    drawn(3000),
  );
});

describe('refusals', () => {
  const cases: [string, object, string, RegExp][] = [
    [
      'an unknown type',
      { ...llama31, rope_scaling: { rope_type: 'ntk-aware', factor: 2 } },
      'UNSUPPORTED',
      /config\.json: rope_scaling\.rope_type: expected default, linear, dynamic, yarn, longrope \(su\), llama3, mrope or proportional, got "ntk-aware"/,
    ],
    [
      'a factor that is a text',
      { ...llama31, rope_scaling: { ...llama31.rope_scaling, factor: '8' } },
      'FORMAT',
      /config\.json: rope_scaling\.factor: expected a finite number, got "8"/,
    ],
    [
      'a missing factor',
      { ...llama2, rope_scaling: { type: 'linear' } },
      'FORMAT',
      /rope_scaling\.factor: expected a value, got none/,
    ],
    [
      'no θ, and none known',
      { model_type: 'brandnew', num_hidden_layers: 1, head_dim: 64 },
      'FORMAT',
      /rope_theta: expected a number, got none\. The default of brandnew is unknown here\. Add it to the config\./,
    ],
    [
      'two sources that disagree',
      { ...llama31, rope_parameters: { rope_type: 'yarn', factor: 8 } },
      'FORMAT',
      /rope_scaling\.rope_type: expected "yarn", as in rope_parameters, got "llama3"\. Delete one of the two\./,
    ],
    [
      'no RoPE at all',
      { model_type: 'gpt2', n_layer: 12, n_embd: 768, n_head: 12 },
      'UNSUPPORTED',
      /model_type: expected a model with rotary position embedding, got "gpt2"/,
    ],
    [
      'a million layers',
      { ...llama2, num_hidden_layers: 1e6 },
      'FORMAT',
      /num_hidden_layers: expected an integer in \[1, 10000\], got 1000000/,
    ],
    [
      'a hidden size that does not divide',
      { ...llama2, hidden_size: 4097 },
      'FORMAT',
      /hidden_size: expected a multiple of num_attention_heads=32, or head_dim beside it, got 4097/,
    ],
    [
      'long factors of the wrong length',
      { ...llama2, rope_theta: 1e4, rope_scaling: { type: 'longrope', short_factor: [1], long_factor: [1] } },
      'FORMAT',
      /short_factor: expected 64 numbers, one for each pair, got 1/,
    ],
    [
      'layer types of the wrong length',
      { ...llama2, layer_types: ['full_attention'] },
      'FORMAT',
      /layer_types: expected 32 strings, one for each layer, got 1/,
    ],
    [
      'an odd number of dimensions',
      { ...llama2, model_type: 'phi', rope_theta: 1e4, partial_rotary_factor: 45 / 128 },
      'FORMAT',
      /rotary_dim: expected an even number of dimensions in \[2, head_dim=128\], got 45\. It is head_dim × partial_rotary_factor\./,
    ],
    [
      'parameters by layer type without layer types',
      {
        model_type: 'llama',
        num_hidden_layers: 2,
        head_dim: 64,
        rope_parameters: { full_attention: { rope_theta: 1e6 }, sliding_attention: { rope_theta: 1e4 } },
      },
      'FORMAT',
      /config\.json: layer_types: expected a list of strings, one for each layer, because rope_parameters is by layer type, got none/,
    ],
    [
      'a layer type without parameters',
      {
        model_type: 'llama',
        num_hidden_layers: 1,
        head_dim: 64,
        layer_types: ['chunked'],
        rope_parameters: { full_attention: { rope_theta: 1e6 } },
      },
      'FORMAT',
      /config\.json: rope_parameters\.chunked: expected an object for this type of layer, got none/,
    ],
    [
      'a model that turns the other way round',
      { model_type: 'nanochat', num_hidden_layers: 1, head_dim: 64, rope_theta: 1e4 },
      'UNSUPPORTED',
      /model_type: a plan cannot express the RoPE of nanochat: it rotates by the negative angle/,
    ],
    [
      'Falcon with ALiBi',
      { ...llama2, model_type: 'falcon', alibi: true },
      'UNSUPPORTED',
      /model_type: expected a model with rotary position embedding, got "falcon"/,
    ],
    [
      'a scaling rule that only transformers knows',
      { model_type: 'gpt_oss', num_hidden_layers: 1, rope_theta: 150000 },
      'FORMAT',
      /rope_parameters: expected an object, got none\. transformers' defaults are those of one gpt_oss checkpoint\. Add this model's own\./,
    ],
    [
      'a part of the head, scaled, where the model turns all of it',
      { ...llama2, partial_rotary_factor: 0.5, rope_scaling: { rope_type: 'linear', factor: 2 } },
      'UNSUPPORTED',
      /partial_rotary_factor: expected 1 beside rope_type linear, got 0\.5\. llama fails on it in transformers\./,
    ],
    [
      'Gemma 3 with flat rope_parameters',
      { model_type: 'gemma3_text', num_hidden_layers: 2, rope_parameters: { rope_type: 'default', rope_theta: 1e6 } },
      'FORMAT',
      /rope_parameters\.sliding_attention: expected an object for this type of layer, got none/,
    ],
    [
      'OLMo 3 with the old name of rope_type',
      { ...llama2, model_type: 'olmo3', rope_scaling: { type: 'linear', factor: 2 } },
      'FORMAT',
      /rope_scaling\.rope_type: expected a string, as olmo3 does not read "type", got none/,
    ],
    [
      'rope_parameters that rope_scaling would hide',
      {
        ...llama2,
        rope_scaling: { rope_type: 'linear', factor: 2 },
        rope_parameters: { rope_type: 'linear', factor: 2, rope_theta: 5e5 },
      },
      'FORMAT',
      /rope_scaling\.rope_theta: expected 500000, as in rope_parameters, got none\. Delete one of the two\./,
    ],
    [
      'a rule that PhiMoE has not',
      { ...llama2, model_type: 'phimoe', rope_scaling: { rope_type: 'linear', factor: 2 } },
      'UNSUPPORTED',
      /rope_scaling\.rope_type: expected default or longrope, for phimoe, got "linear"/,
    ],
    [
      'GPT-J with a θ',
      { model_type: 'gptj', n_layer: 1, n_embd: 64, n_head: 1, rope_theta: 5e5 },
      'UNSUPPORTED',
      /rope_theta: gptj does not read it\. Remove it\./,
    ],
    ['a list', [] as unknown as object, 'FORMAT', /config\.json: expected an object/],
  ];
  for (const [name, config, code, message] of cases)
    test(name, () => void assert.throws(() => ropeFromConfig(config), { code, message }));
});
