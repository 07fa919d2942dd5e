import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { ropeFromGguf } from '../../src/dialects/gguf.js';
import { ropeFromConfig } from '../../src/dialects/huggingface.js';
import type { ModelRope } from '../../src/dialects/model-rope.js';
import { readGgufHeader } from '../../src/formats/read-header.node.js';
import { sharePairs } from '../../src/ops/rope/axes.js';
import { ropeFrequencies } from '../../src/ops/rope/frequencies.js';
import { planRope, type RopeSpec } from '../../src/ops/rope/plan.js';
import { mustRefuseOrReturn } from '../support/fuzz.js';
import { suitePasses } from '../support/suites.js';
import { seeded } from '../support/tensors.js';

describe('golden', () => suitePasses('huggingface'));

/** Real configs, cut down to what concerns RoPE; the values are the models' own. */
const llama2 = { model_type: 'llama', num_hidden_layers: 32, hidden_size: 4096, num_attention_heads: 32, max_position_embeddings: 4096 };
const llama31 = {
  ...llama2,
  max_position_embeddings: 131072,
  rope_theta: 500000,
  rope_scaling: { factor: 8, low_freq_factor: 1, high_freq_factor: 4, original_max_position_embeddings: 8192, rope_type: 'llama3' },
};
const qwen25 = {
  model_type: 'qwen2',
  num_hidden_layers: 28,
  hidden_size: 3584,
  num_attention_heads: 28,
  max_position_embeddings: 32768,
  rope_theta: 1e6,
};

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
    assert.match(model.notes.join(), /rope_theta is missing: transformers' default for llama, 10000, is used\./);
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
    const scaling = { rope_type: 'yarn', factor: 32, beta_fast: 32, beta_slow: 1, original_max_position_embeddings: 4096 };
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
    assert.match(model.notes.join(), /mscale_all_dim also scales the attention scores/);
  });

  test('attention_factor replaces; a factor up to 1 has none', () => {
    const scaling = { rope_type: 'yarn', original_max_position_embeddings: 4096 };
    const magnitude = (more: object) => freq(only(ropeFromConfig({ ...llama31, rope_scaling: { ...scaling, ...more } }))).attentionFactor;
    assert.equal(magnitude({ factor: 4, attention_factor: 0.5 }), 0.5);
    assert.equal(magnitude({ factor: 1 }), 1);
    near([magnitude({})], [0.1 * Math.log(32) + 1]); // factor null: max_position / original
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
    assert.match(ropeFromConfig(config).notes.join(), /one within the original context of 4096 tokens is assumed/);
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
    const gptj = only(ropeFromConfig({ model_type: 'gptj', n_layer: 28, n_embd: 4096, n_head: 16, rotary_dim: 64, n_positions: 2048 }));
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
      ropeFromConfig({ model_type: 'glm4', num_hidden_layers: 61, head_dim: 128, partial_rotary_factor: 0.5, rope_theta: 10000 }),
    );
    assert.deepEqual([rope.rotaryDim, rope.pairing], [64, 'interleaved']);
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
    assert.deepEqual([model.layers[5]!.rope!.scaling, model.layers[0]!.rope!.scaling], [{ kind: 'linear', factor: 8 }, undefined]);
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

  test('proportional: exponent over head_dim, pairs past the share stand still', () => {
    const rope = only(
      ropeFromConfig({
        model_type: 'gemma4_text',
        num_hidden_layers: 2,
        head_dim: 512,
        rope_parameters: { rope_type: 'proportional', rope_theta: 1e6, partial_rotary_factor: 0.25 },
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
      ropeFromConfig({ num_hidden_layers: 8, head_dim: 128, rope_theta: 1e6, ...config }).layers.map((l) => (l.rope ? 1 : 0));
    assert.deepEqual(turned({ model_type: 'smollm3' }), [1, 1, 1, 0, 1, 1, 1, 0]);
    assert.deepEqual(turned({ model_type: 'smollm3', no_rope_layers: [0, 1, 1, 1, 1, 1, 1, 1] }), [0, 1, 1, 1, 1, 1, 1, 1]);
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
      /The pairing of brandnew is not known here; half is assumed/,
    );
  });

  const files = new URL('../../../shared/models/stories260K/', import.meta.url);
  test('stories260K: config.json and GGUF agree on everything but the pairing', {
    skip: existsSync(files) ? false : '../shared/models is not here',
  }, async () => {
    const config = only(ropeFromConfig(JSON.parse(readFileSync(new URL('config.json', files), 'utf8'))));
    const gguf = only(ropeFromGguf(await readGgufHeader(new URL('model-f32.gguf', files).pathname)));
    assert.deepEqual([config.pairing, gguf.pairing], ['half', 'interleaved']);
    assert.deepEqual({ ...config, pairing: '' }, { ...gguf, pairing: '' });
  });
});

test('fuzz: any JSON, and any damage to a real config, is read or refused', () => {
  const codes = ['FORMAT', 'UNSUPPORTED', 'RANGE', 'SHAPE'];
  fc.assert(
    fc.property(fc.jsonValue(), (json) => mustRefuseOrReturn(() => ropeFromConfig(json), codes)),
    { ...seeded, numRuns: 500 },
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
        for (const layer of model.layers.slice(0, 2)) if (layer.rope) planRope({ ...layer.rope, positions: 0, seqLen: 1 });
      }, codes);
    }),
    { ...seeded, numRuns: 3000 },
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
    ['a missing factor', { ...llama2, rope_scaling: { type: 'linear' } }, 'FORMAT', /rope_scaling\.factor: expected a value, got none/],
    [
      'no θ, and none known',
      { model_type: 'brandnew', num_hidden_layers: 1, head_dim: 64 },
      'FORMAT',
      /rope_theta: expected a number, got none\. The default of brandnew is not known here; write it into the config\./,
    ],
    [
      'two sources that disagree',
      { ...llama31, rope_parameters: { rope_type: 'yarn', factor: 8 } },
      'FORMAT',
      /rope_scaling\.rope_type: expected what rope_parameters says, "yarn", got "llama3"\. Delete one of the two\./,
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
      /short_factor: expected 64 numbers, one a pair, got 1/,
    ],
    [
      'layer types of the wrong length',
      { ...llama2, layer_types: ['full_attention'] },
      'FORMAT',
      /layer_types: expected 32 texts, one a layer, got 1/,
    ],
    [
      'an odd number of dimensions',
      { ...llama2, rope_theta: 1e4, partial_rotary_factor: 45 / 128 },
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
      /config\.json: layer_types: expected a list, one text a layer, as rope_parameters is given by layer type, got none/,
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
    ['a list', [] as unknown as object, 'FORMAT', /config\.json: expected an object/],
  ];
  for (const [name, config, code, message] of cases) test(name, () => void assert.throws(() => ropeFromConfig(config), { code, message }));
});
