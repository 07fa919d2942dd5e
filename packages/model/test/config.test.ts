/** Tests how a model's files are read, and which are refused. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { GGUF_ARCHITECTURES, MODELS, REFUSED, WITHOUT_ROPE } from '@ropewalk/dialects/internal';
import { parseGguf } from '@ropewalk/formats';
import { ggufOf, type MadeTensor } from '../../../test/support/model-files.js';
import { configFromGguf, configFromJson } from '../src/config.js';
import { FAMILIES, MISSING } from '../src/families.js';
import type { DecoderConfig } from '../src/types.js';

const NEMOTRON_H = {
  model_type: 'nemotron_h',
  hidden_act: undefined,
  mlp_hidden_act: 'relu2',
  mamba_num_heads: 64,
  n_routed_experts: 8,
  num_experts_per_tok: 2,
  moe_intermediate_size: 512,
  moe_shared_expert_intermediate_size: 1024,
};
/** The published file, with only the fields that the reader uses. */
const LLAMA_3_2_1B = {
  architectures: ['LlamaForCausalLM'],
  attention_bias: false,
  bos_token_id: 128000,
  eos_token_id: [128001, 128008, 128009],
  head_dim: 64,
  hidden_act: 'silu',
  hidden_size: 2048,
  intermediate_size: 8192,
  max_position_embeddings: 131072,
  mlp_bias: false,
  model_type: 'llama',
  num_attention_heads: 32,
  num_hidden_layers: 16,
  num_key_value_heads: 8,
  pretraining_tp: 1,
  rms_norm_eps: 1e-5,
  rope_scaling: {
    factor: 32,
    high_freq_factor: 4,
    low_freq_factor: 1,
    original_max_position_embeddings: 8192,
    rope_type: 'llama3',
  },
  rope_theta: 500000,
  tie_word_embeddings: true,
  vocab_size: 128256,
};
const QWEN2_5_0_5B = {
  attention_dropout: 0,
  bos_token_id: 151643,
  eos_token_id: 151645,
  hidden_act: 'silu',
  hidden_size: 896,
  intermediate_size: 4864,
  max_position_embeddings: 32768,
  max_window_layers: 21,
  model_type: 'qwen2',
  num_attention_heads: 14,
  num_hidden_layers: 24,
  num_key_value_heads: 2,
  rms_norm_eps: 1e-6,
  rope_theta: 1000000,
  sliding_window: 32768,
  tie_word_embeddings: true,
  use_sliding_window: false,
  vocab_size: 151936,
};
const QWEN3_0_6B = {
  ...QWEN2_5_0_5B,
  attention_bias: false,
  head_dim: 128,
  hidden_size: 1024,
  intermediate_size: 3072,
  max_position_embeddings: 40960,
  model_type: 'qwen3',
  num_attention_heads: 16,
  num_hidden_layers: 28,
  num_key_value_heads: 8,
  rope_scaling: null,
  sliding_window: null,
};
const MISTRAL_7B = {
  bos_token_id: 1,
  eos_token_id: 2,
  hidden_act: 'silu',
  hidden_size: 4096,
  intermediate_size: 14336,
  max_position_embeddings: 32768,
  model_type: 'mistral',
  num_attention_heads: 32,
  num_hidden_layers: 32,
  num_key_value_heads: 8,
  rms_norm_eps: 1e-5,
  rope_theta: 10000,
  sliding_window: 4096,
  tie_word_embeddings: false,
  vocab_size: 32000,
};

const windowsOf = (config: DecoderConfig): (number | undefined)[] =>
  config.layers(config.maxContext).map(({ window }) => window);

describe('config.json', () => {
  test("Gemma 3's model for images and text leaves sizes to its class", () => {
    const text_config = {
      hidden_size: 2560,
      intermediate_size: 10240,
      model_type: 'gemma3_text',
      num_hidden_layers: 34,
      rope_scaling: { factor: 8, rope_type: 'linear' },
      sliding_window: 1024,
    };
    const config = configFromJson({ model_type: 'gemma3', eos_token_id: [1, 106], text_config, vision_config: {} });
    const { vocabSize, numHeads, numKvHeads, headDim, tiedHead, eosTokens } = config;
    assert.deepEqual([vocabSize, numHeads, numKvHeads, headDim], [262208, 8, 4, 256]);
    assert.deepEqual([tiedHead, eosTokens, config.attentionScale], [true, [1, 106], 1 / 16]);
    const [sliding, full] = [config.layers(8192)[4]!, config.layers(8192)[5]!];
    assert.deepEqual([sliding.window, sliding.rope!.base, sliding.rope!.scaling], [1024, 10000, undefined]);
    assert.deepEqual(
      [full.window, full.rope!.base, full.rope!.scaling],
      [undefined, 1e6, { kind: 'linear', factor: 8 }],
    );
  });

  test('Llama-3.2-1B', () => {
    const { layers, notes, family, ...rest } = configFromJson(LLAMA_3_2_1B);
    assert.equal(family.gguf, 'llama');
    assert.deepEqual(rest, {
      architecture: 'llama',
      source: 'huggingface',
      vocabSize: 128256,
      numLayers: 16,
      hiddenSize: 2048,
      numHeads: 32,
      numKvHeads: 8,
      headDim: 64,
      valueDim: 64,
      intermediateSize: 8192,
      activation: 'silu',
      normEps: 1e-5,
      maxContext: 131072,
      tiedHead: true,
      biases: { qkv: false, output: false, mlp: false, conv: false, ssmIn: false, ssmOut: false, head: false },
      qkNorm: false,
      parallel: false,
      headless: false,
      xielu: undefined,
      bidirectional: false,
      tokenTypes: 0,
      attentionScale: 1 / 8,
      attentionSoftcap: undefined,
      embeddingScale: 1,
      residualScale: 1,
      logitScale: 1,
      logitSoftcap: undefined,
      temperature: undefined,
      latent: undefined,
      experts: undefined,
      furtherLayers: 0,
      recurrent: undefined,
      layerSizes: undefined,
      perLayerWidth: 0,
      perLayerVocab: 128256,
      altup: undefined,
      branchScales: undefined,
      chunk: undefined,
      bosToken: 128000,
      eosTokens: [128001, 128008, 128009],
    });
    assert.deepEqual(notes, []);
    const all = layers(4096);
    assert.equal(all.length, 16);
    assert.equal(all[0]!.rope?.pairing, 'half');
    assert.equal(all[0]!.rope?.scaling?.kind, 'llama3');
    assert.ok(all.every(({ rope, window }) => rope === all[0]!.rope && window === undefined));
  });

  test('Qwen2.5-0.5B: biases of q, k and v, no window, although the file has a number', () => {
    const config = configFromJson(QWEN2_5_0_5B);
    assert.equal(config.headDim, 64);
    assert.deepEqual(
      [config.biases, config.qkNorm],
      [{ qkv: true, output: false, mlp: false, conv: false, ssmIn: false, ssmOut: false, head: false }, false],
    );
    assert.deepEqual(config.eosTokens, [151645]);
    assert.ok(windowsOf(config).every((window) => window === undefined));
  });

  test('Qwen3-0.6B: head norms, heads wider than the stream', () => {
    const config = configFromJson(QWEN3_0_6B);
    assert.deepEqual(
      [config.qkNorm, config.biases.qkv, config.headDim, config.numHeads * config.headDim],
      [true, false, 128, 2048],
    );
    assert.equal(configFromJson({ ...QWEN3_0_6B, attention_bias: true }).biases.output, true);
  });

  test('nomic-embed-text v1.5: the names of its own code are those of transformers', () => {
    const own = {
      ...{ model_type: 'nomic_bert', n_embd: 768, n_head: 12, n_layer: 12, n_inner: 3072, n_positions: 8192 },
      ...{ layer_norm_epsilon: 1e-12, rotary_emb_base: 1000, rotary_emb_fraction: 1, rotary_emb_interleaved: false },
      ...{ vocab_size: 30528, type_vocab_size: 2, prenorm: false, activation_function: 'swiglu' },
    };
    const config = configFromJson(own);
    const { hiddenSize, numHeads, numLayers, intermediateSize, maxContext, normEps, bidirectional, tokenTypes } =
      config;
    assert.deepEqual([hiddenSize, numHeads, numLayers, intermediateSize, maxContext], [768, 12, 12, 3072, 8192]);
    assert.deepEqual([normEps, bidirectional, tokenTypes, config.activation], [1e-12, true, 2, 'silu']);
    assert.equal(config.layers(128)[0]!.rope!.base, 1000);
  });

  test('encoders with windows: half of them on each side, and the token itself', () => {
    const modern = {
      ...{ model_type: 'modernbert', hidden_size: 64, intermediate_size: 96, num_hidden_layers: 4, vocab_size: 100 },
      ...{ num_attention_heads: 4, global_attn_every_n_layers: 3, local_attention: 128 },
    };
    assert.deepEqual(windowsOf(configFromJson(modern)), [undefined, 65, 65, undefined]);
    assert.deepEqual(windowsOf(configFromJson({ ...modern, local_attention: 7 })), [undefined, 4, 4, undefined]);
    const gemma = { ...modern, model_type: 'gemma3_text', use_bidirectional_attention: true, head_dim: 16 };
    const sliding = { ...gemma, local_attention: undefined, sliding_window: 512, num_hidden_layers: 6 };
    assert.deepEqual(windowsOf(configFromJson(sliding)), [...Array<number>(5).fill(257), undefined]);
  });

  test('end tokens of generation_config.json go first', () => {
    assert.deepEqual(configFromJson(QWEN2_5_0_5B, { eos_token_id: [151645, 151643] }).eosTokens, [151645, 151643]);
    assert.deepEqual(configFromJson(QWEN2_5_0_5B, {}).eosTokens, [151645]);
    assert.deepEqual(configFromJson({ ...QWEN2_5_0_5B, eos_token_id: null }, undefined).eosTokens, []);
  });

  test('sliding windows: all layers of Mistral, the late ones or the listed ones of Qwen', () => {
    assert.ok(windowsOf(configFromJson(MISTRAL_7B)).every((window) => window === 4096));
    assert.ok(
      windowsOf(configFromJson({ ...MISTRAL_7B, sliding_window: null })).every((window) => window === undefined),
    );
    const { sliding_window: _, ...silent } = MISTRAL_7B;
    assert.equal(windowsOf(configFromJson(silent))[0], 4096);
    const late = configFromJson({ ...QWEN2_5_0_5B, use_sliding_window: true, sliding_window: 100 });
    assert.deepEqual(windowsOf(late).slice(19, 23), [undefined, undefined, 100, 100]);
    const layer_types = Array.from({ length: 24 }, (_, n) => (n === 3 ? 'sliding_attention' : 'full_attention'));
    assert.deepEqual(
      windowsOf(configFromJson({ ...QWEN2_5_0_5B, use_sliding_window: true, sliding_window: 9, layer_types })).slice(
        2,
        5,
      ),
      [undefined, 9, undefined],
    );
  });

  test('scalings that depend on the context follow it', () => {
    const short_factor = new Array(32).fill(1);
    const long_factor = new Array(32).fill(2);
    const config = configFromJson({
      ...LLAMA_3_2_1B,
      original_max_position_embeddings: 4096,
      rope_scaling: { rope_type: 'longrope', short_factor, long_factor, factor: 32 },
    });
    const context = (tokens: number): unknown =>
      (config.layers(tokens)[0]!.rope!.scaling as { context: number }).context;
    assert.equal(context(4096), 4096);
    assert.equal(context(5000), 5000);
    assert.equal(config.layers(300)[0]!.rope, config.layers(300)[5]!.rope, 'layers that turn alike share one table');
  });

  const refusals: Record<string, [change: Record<string, unknown>, code: string, message: RegExp]> = {
    'another model': [
      { model_type: 'falcon' },
      'UNSUPPORTED',
      /^config\.json: model_type: "falcon" is not computed here: it has no row among .*\. Known are llama, llama4, mistral, .*\.$/,
    ],
    'a model whose missing step is known': [
      { model_type: 'kimi_linear' },
      'UNSUPPORTED',
      /"kimi_linear" is not computed here: its layers of linear attention \(delta networks\)\./,
    ],
    'a mixture without experts': [{ model_type: 'qwen3_moe' }, 'FORMAT', /num_experts: expected an integer/],
    'more experts a token than there are': [
      { model_type: 'mixtral', num_local_experts: 2, num_experts_per_tok: 3 },
      'FORMAT',
      /num_experts_per_tok: expected at most 2, the experts to choose from, got 3/,
    ],
    'no model': [{ model_type: undefined }, 'FORMAT', /model_type: expected a string, got none/],
    'a name that every object has': [
      { model_type: 'constructor' },
      'UNSUPPORTED',
      /"constructor" is not computed here/,
    ],
    'another activation': [{ hidden_act: 'relu' }, 'UNSUPPORTED', /hidden_act: expected silu, .*got "relu"/],
    'a window to both sides': [
      { model_type: 'mistral', is_causal: false, sliding_window: 8 },
      'UNSUPPORTED',
      /layer 0: its window or state does not go with attention to later tokens\. This decoder/,
    ],
    'a state that sees later tokens': [{ model_type: 'lfm2', is_causal: false }, 'UNSUPPORTED', /its window or state/],
    'norms before the blocks of nomic': [{ model_type: 'nomic_bert', prenorm: true }, 'UNSUPPORTED', /prenorm/],
    'experts of nomic': [{ model_type: 'nomic_bert', num_experts: 8 }, 'UNSUPPORTED', /num_experts/],
    'no token types': [{ model_type: 'nomic_bert' }, 'FORMAT', /type_vocab_size: expected an integer/],
    'both directions': [
      { use_bidirectional_attention: true },
      'UNSUPPORTED',
      /use_bidirectional_attention: expected none, got true/,
    ],
    softcap: [{ attn_logit_softcapping: 50 }, 'UNSUPPORTED', /attn_logit_softcapping: expected none, got 50/],
    'softcap of logits': [{ final_logit_softcapping: 30 }, 'UNSUPPORTED', /final_logit_softcapping/],
    'experts in llama': [{ num_local_experts: 8 }, 'UNSUPPORTED', /num_local_experts: expected none, got 8/],
    'weights of HQQ': [
      { quantization_config: { quant_method: 'hqq' } },
      'UNSUPPORTED',
      /quantization_config\.quant_method: expected none, gptq, awq, .*, got "hqq"\. Take weights in F32/,
    ],
    'no sizes': [{ hidden_size: undefined }, 'FORMAT', /hidden_size: expected an integer in \[1, 4194304\], got none/],
    'a size of zero': [{ vocab_size: 0 }, 'FORMAT', /vocab_size: expected an integer/],
    'a forged size': [{ intermediate_size: 1e15 }, 'FORMAT', /intermediate_size/],
    'a forged count of layers': [
      { num_hidden_layers: 1e9 },
      'FORMAT',
      /num_hidden_layers: expected an integer in \[1, 10000\]/,
    ],
    'a text for a number': [{ num_attention_heads: '32' }, 'FORMAT', /num_attention_heads/],
    'heads that do not group': [
      { num_key_value_heads: 7 },
      'FORMAT',
      /heads: expected a multiple of the 7 key\/value heads, got 32/,
    ],
    'an odd head': [{ head_dim: 63 }, 'FORMAT', /rotary_dim/],
    'heads that do not divide': [
      { head_dim: null, num_attention_heads: 24 },
      'FORMAT',
      /hidden_size: expected a multiple of num_attention_heads=24/,
    ],
    'an eps of nothing sensible': [
      { rms_norm_eps: 100 },
      'FORMAT',
      /rms_norm_eps: expected a number in \[0, 1\], got 100/,
    ],
    'another kind of layer': [
      { layer_types: new Array(16).fill('linear_attention') },
      'UNSUPPORTED',
      /layer 0: only full_attention and sliding_attention are computed, not linear_attention/,
    ],
    'an unknown scaling': [{ rope_scaling: { rope_type: 'magic' } }, 'UNSUPPORTED', /rope_type/],
  };
  for (const [label, [change, code, message]] of Object.entries(refusals)) {
    test(`refusal: ${label}`, () => {
      const json = Object.fromEntries(
        Object.entries({ ...LLAMA_3_2_1B, ...change }).filter(([, value]) => value !== undefined),
      );
      assert.throws(() => configFromJson(json), { name: 'RopewalkError', code, message });
    });
  }

  test('null in a field with a default switches it off', () => {
    const lfm2 = { ...LLAMA_3_2_1B, model_type: 'lfm2', intermediate_size: 1000, layer_types: Array(16).fill('conv') };
    const widthOf = (more: object) => configFromJson({ ...lfm2, ...more }).intermediateSize;
    assert.equal(widthOf({}), 768); // ⌊2000 / 3⌋, up to a multiple of 256
    assert.equal(widthOf({ block_ffn_dim_multiplier: null }), 666);
    const llama4 = { ...LLAMA_3_2_1B, model_type: 'llama4', num_local_experts: 2, num_experts_per_tok: 1 };
    const chunksOf = (more: object) => configFromJson({ ...llama4, intermediate_size_mlp: 8192, ...more }).chunk;
    assert.equal(chunksOf({}), 8192);
    assert.equal(chunksOf({ attention_chunk_size: null }), undefined);
  });

  const HYBRID = {
    ...LLAMA_3_2_1B,
    model_type: 'granitemoehybrid',
    num_local_experts: 0,
    shared_intermediate_size: 4096,
    mamba_n_heads: 64,
    mamba_d_head: 'auto',
    mamba_d_state: 128,
  };

  test('Granite 4: layers of state spaces, of attention, and models that have attention only', () => {
    const types = Array.from({ length: 16 }, (_, n) => (n === 5 ? 'attention' : 'mamba'));
    const { recurrent, layers, family, intermediateSize } = configFromJson({ ...HYBRID, layer_types: types });
    assert.deepEqual(recurrent, {
      kind: 'ssm',
      width: 4,
      groups: 1,
      heads: 64,
      stateDim: 128,
      headDim: 64,
      limits: [0, Infinity],
      norm: 'after-gate',
    });
    assert.deepEqual(
      layers(100).flatMap(({ recurrent }, n) => (recurrent ? [] : [n])),
      [5],
    );
    assert.deepEqual([family.gguf, intermediateSize], ['granitehybrid', 4096]);
    for (const [experts, gguf] of [
      [0, 'granite'],
      [8, 'granitemoe'],
    ]) {
      const layer_types = types.map(() => 'full_attention');
      const micro = configFromJson({ ...HYBRID, layer_types, num_local_experts: experts, num_experts_per_tok: 2 });
      assert.deepEqual([micro.recurrent, micro.family.gguf], [undefined, gguf]);
    }
    const limits = (time_step_limit: unknown) =>
      (configFromJson({ ...HYBRID, layer_types: types, time_step_limit }).recurrent as { limits: unknown }).limits;
    assert.deepEqual(limits([0.1, Infinity]), [0.1, Infinity]);
    assert.deepEqual(limits([0.1, { __float__: 'Infinity' }]), [0.1, Infinity]);
    for (const [given, message] of [
      [{ time_step_limit: [2, 3] }, /time_step_limit: expected two numbers \[min, max\] with 0 <= min <= 1/],
      [{ time_step_limit: [0, 1, 2] }, /time_step_limit/],
      [{ time_step_limit: [0, { __float__: 'NaN' }] }, /time_step_limit/],
      [{ mamba_n_heads: 3 }, /inner size of state spaces: expected a multiple of the 3 heads, got 4096/],
      [{ mamba_n_groups: 3 }, /heads of state spaces: expected a multiple of the 3 groups, got 64/],
    ] as const)
      assert.throws(() => configFromJson({ ...HYBRID, layer_types: types, ...given }), { code: 'FORMAT', message });
  });

  test('Falcon-H1: both in each layer, factors, and a state space without a norm', () => {
    const falcon = { ...HYBRID, model_type: 'falcon_h1', mamba_d_ssm: 3072, num_local_experts: undefined };
    const { recurrent, layers, branchScales, attentionScale } = configFromJson({ ...falcon, key_multiplier: 0.5 });
    assert.deepEqual(layers(10)[3], { rope: layers(10)[0]!.rope, window: undefined, recurrent: true, attends: true });
    assert.deepEqual((recurrent as { headDim: number; norm: unknown }).headDim, 48);
    assert.deepEqual((recurrent as { norm: unknown }).norm, undefined);
    assert.deepEqual([branchScales?.ssm, attentionScale], [[1, 1, 1, 1, 1], 0.5 / 8]);
    const sizes = configFromJson({ ...falcon, mamba_d_ssm: null, mamba_rms_norm: true }).recurrent;
    assert.deepEqual(sizes, { ...recurrent, headDim: 64, norm: 'before-gate' });
    for (const given of [{ mlp_multipliers: [1] }, { ssm_multipliers: [1, 2] }, { ssm_multipliers: 'x' }])
      assert.throws(() => configFromJson({ ...falcon, ...given }), {
        code: 'FORMAT',
        message: /_multipliers: expected/,
      });
  });

  test('Nemotron-H: one block a layer, by letters or by names', () => {
    const nemotron = { ...LLAMA_3_2_1B, ...NEMOTRON_H };
    const kinds = (more: object): string => {
      const { layers, experts, numLayers } = configFromJson({ ...nemotron, ...more });
      assert.equal(layers(10).length, numLayers);
      return layers(10)
        .map(({ recurrent, attends, feedForward, rope }, n) => {
          assert.equal(rope, undefined);
          return recurrent ? 'M' : attends ? '*' : experts?.layers[n] ? 'E' : feedForward ? '-' : '?';
        })
        .join('');
    };
    assert.equal(kinds({ hybrid_override_pattern: 'M-M*E', num_hidden_layers: 5 }), 'M-M*E');
    const names = ['mamba', 'linear_attention', 'attention', 'full_attention', 'mlp', 'moe'];
    assert.equal(kinds({ layers_block_type: names }), 'MM**-E');
    const { recurrent, experts, family, activation } = configFromJson({ ...nemotron, hybrid_override_pattern: 'M*' });
    assert.deepEqual([experts, family.gguf, activation], [undefined, 'nemotron_h', 'relu2']);
    const { groups, stateDim, headDim, limits } = recurrent as Extract<typeof recurrent, { kind: 'ssm' }>;
    assert.deepEqual([groups, stateDim, headDim, limits], [8, 128, 64, [0.001, Infinity]]);
    for (const [more, message] of [
      [{}, /layer_types: expected a list of layers: mamba, attention, mlp or moe, got none/],
      [{ hybrid_override_pattern: 'M?' }, /hybrid_override_pattern: expected a list of layers/],
      [{ layers_block_type: [] }, /layer_types: expected a list of layers/],
      [{ layers_block_type: ['mamba', 'sliding_attention'] }, /layer_types: expected a list of layers/],
      [{ layers_block_type: Array(10001).fill('mamba') }, /layer_types: expected a list of layers/],
    ] as const)
      assert.throws(() => configFromJson({ ...nemotron, ...more }), { code: 'FORMAT', message });
    const relu2 = { ...LLAMA_3_2_1B, hidden_act: 'relu2' };
    assert.throws(() => configFromJson(relu2), { code: 'UNSUPPORTED', message: /hidden_act: expected silu/ });
    const ungated = { ...LLAMA_3_2_1B, model_type: 'nemotron', hidden_act: 'silu' };
    assert.throws(() => configFromJson(ungated), {
      code: 'UNSUPPORTED',
      message: /hidden_act: expected gelu.*, relu2, got "silu"/,
    });
  });

  test('PhiMoE: two experts, a bias of the head, and no GGUF', () => {
    const experts16 = { model_type: 'phimoe', num_local_experts: 16, num_experts_per_tok: 2, rope_scaling: null };
    const phimoe = { ...LLAMA_3_2_1B, ...experts16 };
    const { experts, biases } = configFromJson({ ...phimoe, lm_head_bias: true });
    assert.deepEqual([experts!.route.gate, experts!.route.jitter, biases.head], ['sparsemixer', 0.01, true]);
    assert.throws(() => configFromJson({ ...phimoe, num_experts_per_tok: 3 }), {
      code: 'UNSUPPORTED',
      message: /num_experts_per_tok: expected 2, got 3/,
    });
    assert.throws(() => configFromJson({ ...phimoe, router_jitter_noise: -1 }), {
      code: 'FORMAT',
      message: /router_jitter_noise: expected a number >= 0, got -1/,
    });
    const metadata = { 'general.architecture': 'phimoe', 'phimoe.expert_count': 16 };
    assert.throws(() => configFromGguf(parseGguf(ggufOf([], metadata))), {
      code: 'UNSUPPORTED',
      message:
        /general\.architecture: phimoe: llama\.cpp runs RMS norms and a plain softmax .* Run the HuggingFace folder/,
    });
  });

  test('refusal: not an object, sliding layers without a window', () => {
    for (const json of [null, [], 3, 'x'])
      assert.throws(() => configFromJson(json, undefined, 'a/config.json'), {
        code: 'FORMAT',
        message: /^a\/config\.json/,
      });
    const layer_types = new Array(24).fill('sliding_attention');
    assert.throws(() => configFromJson({ ...QWEN2_5_0_5B, layer_types }), {
      code: 'FORMAT',
      message:
        /layer 0: it has sliding attention but no window\. Check layer_types, sliding_window and use_sliding_window/,
    });
  });

  test('any value in any field gives a config or one of our errors', () => {
    const odd = [null, -1, 0, 0.5, 1e30, Number.NaN, true, 'x', [], [1], {}, { a: 1 }, 2 ** 31];
    for (const json of [LLAMA_3_2_1B, QWEN3_0_6B, MISTRAL_7B]) {
      for (const key of [...Object.keys(json), 'layer_types', 'use_sliding_window', 'mlp_bias', 'rope_parameters']) {
        for (const value of odd) {
          try {
            const config = configFromJson({ ...json, [key]: value });
            assert.ok(config.layers(10).length === config.numLayers);
          } catch (error) {
            assert.equal((error as Error).name, 'RopewalkError', `${key}: ${JSON.stringify(value)}: ${error}`);
          }
        }
      }
    }
  });

  test('steps that are switched off are accepted', () => {
    assert.equal(
      configFromJson({ ...LLAMA_3_2_1B, num_experts: 0, attn_logit_softcapping: null, logits_scaling: 1 }).numLayers,
      16,
    );
  });
});

describe('GGUF', () => {
  const keys = (
    a: string,
    changes: Record<string, string | number | readonly number[] | undefined> = {},
  ): Record<string, string | number | readonly number[]> => {
    const own = {
      context_length: 2048,
      embedding_length: 64,
      feed_forward_length: 128,
      block_count: 3,
      'attention.head_count': 4,
      'attention.head_count_kv': 2,
      'attention.layer_norm_rms_epsilon': 0.00001,
      'rope.freq_base': 10000,
      vocab_size: 32,
      ...changes,
    };
    const named = Object.entries(own).flatMap(([key, value]) =>
      value === undefined ? [] : [[`${a}.${key}`, value] as const],
    );
    return { 'general.architecture': a, ...Object.fromEntries(named) };
  };
  const vector = (name: string): MadeTensor => ({ name, shape: [4], type: 0, bytes: new Uint8Array(16) });
  const read = (
    metadata: Record<string, string | number | readonly number[]>,
    tensors: readonly MadeTensor[] = [],
  ): DecoderConfig => configFromGguf(parseGguf(ggufOf(tensors, metadata)), undefined, 'm.gguf');

  test('llama turns neighbours, qwen2 and qwen3 halves; biases and the head are in the list of tensors', () => {
    const llama = read(keys('llama'));
    assert.equal(llama.layers(100)[0]!.rope!.pairing, 'interleaved');
    assert.deepEqual([llama.headDim, llama.tiedHead, llama.biases.qkv, llama.qkNorm], [16, true, 'stored', false]);
    const qwen2 = read(keys('qwen2'), [vector('output.weight')]);
    assert.deepEqual([qwen2.layers(9)[2]!.rope!.pairing, qwen2.tiedHead, qwen2.biases.qkv], ['half', false, 'stored']);
    const qwen3 = read(keys('qwen3', { 'attention.key_length': 32, 'attention.value_length': 32 }));
    assert.deepEqual([qwen3.headDim, qwen3.qkNorm], [32, true]);
  });

  test('xIELU: a number for all layers, or one for each', () => {
    const factors = { 'xielu.alpha_p': [1, 2, 3], 'xielu.alpha_n': 0.5, 'xielu.beta': 0.5, 'xielu.eps': -1e-6 };
    const { xielu } = read({ ...keys('apertus'), ...factors });
    assert.deepEqual(
      xielu!.map(({ alphaP, alphaN, beta }) => [alphaP, alphaN, beta]),
      [1, 2, 3].map((one) => [one, 0.5, 0.5]),
    );
    for (const [list, message] of [
      [[1, 2], /xielu\.alpha_p: expected 3 numbers/],
      ['0.8', /xielu\.alpha_p: expected a list/],
    ] as const)
      assert.throws(() => read({ ...keys('apertus'), ...factors, 'xielu.alpha_p': list }), { code: 'FORMAT', message });
    assert.throws(() => read(keys('apertus')), { code: 'FORMAT', message: /xielu\.alpha_p/ });
  });

  test('latent attention: what its counts follow from', () => {
    const latent = {
      'attention.head_count_kv': 1,
      'attention.kv_lora_rank': 12,
      'attention.key_length': 16,
      'attention.value_length': 12,
      'attention.key_length_mla': 12,
      'attention.value_length_mla': 6,
      'rope.dimension_count': 4,
      expert_used_count: 1,
      expert_count: 2,
      expert_feed_forward_length: 8,
      leading_dense_block_count: 0,
    };
    assert.deepEqual(read(keys('deepseek2', latent)).latent, { rank: 12, queryRank: undefined, nope: 8, rope: 4 });
    const old = { 'attention.key_length_mla': undefined, 'attention.value_length_mla': undefined };
    const wrong: [changes: Record<string, number | undefined>, message: RegExp][] = [
      [{ 'attention.key_length': 12 }, /deepseek2\.attention\.key_length: expected 16, got 12\. It does not fit/],
      [{ 'attention.value_length': 6 }, /value_length: expected 12, got 6/],
      [{ 'attention.head_count_kv': 4 }, /head_count_kv: expected 1, got 4/],
      [{ ...old, 'attention.key_length': 12, 'attention.value_length': 6 }, /head_count_kv: expected 4, got 1/],
    ];
    for (const [changes, message] of wrong)
      assert.throws(() => read(keys('deepseek2', { ...latent, ...changes })), { code: 'FORMAT', message });
  });

  test('lists with the same number for each layer', () => {
    assert.equal(read(keys('llama', { 'attention.head_count_kv': [2, 2, 2] })).numKvHeads, 2);
  });

  test('keys that llama.cpp does not read for these architectures are noted', () => {
    const config = read(keys('llama', { 'attention.sliding_window': 100, 'attention.scale': 0.5, logit_scale: 4 }));
    assert.equal(windowsOf(config)[0], undefined);
    for (const said of ['attention.scale = 0.5', 'attention.sliding_window = 100', 'logit_scale = 4'])
      assert.ok(config.notes.includes(`llama.${said} is not applied: llama.cpp does not read it for llama.`), said);
  });

  test('tensors that llama.cpp loads and does not use are noted', () => {
    const bias = 'blk.1.attn_output.bias';
    const { notes } = read(keys('ernie4_5'), [vector(bias)]);
    assert.ok(notes.includes(`${bias} is not applied: llama.cpp loads it for ernie4_5 and does not use it.`));
    assert.deepEqual(
      read(keys('llama'), [vector(bias)]).notes.filter((note) => note.startsWith('blk.')),
      [],
    );
  });

  const refusals: Record<
    string,
    [metadata: Record<string, string | number | readonly number[]>, code: string, message: RegExp]
  > = {
    'another architecture': [
      keys('kimi-linear'),
      'UNSUPPORTED',
      /^m\.gguf: general\.architecture: "kimi-linear" is not computed here: its layers of linear.*\. Known are llama, /,
    ],
    'experts that the architecture does not have': [
      keys('qwen3', { expert_count: 8 }),
      'UNSUPPORTED',
      /qwen3\.expert_count: expected none, got 8/,
    ],
    'a mixture without experts': [
      keys('qwen3moe'),
      'FORMAT',
      /qwen3moe\.expert_count: expected the number of experts, got none/,
    ],
    'only layers that predict further tokens': [
      keys('llama', { nextn_predict_layers: 3 }),
      'FORMAT',
      /nextn_predict_layers: expected an integer in \[0, 2\], got 3/,
    ],
    'heads that differ by layer': [
      keys('llama', { 'attention.head_count_kv': [2, 1, 2] }),
      'UNSUPPORTED',
      /the same number in all layers/,
    ],
    'a list of the wrong length': [
      keys('llama', { 'attention.head_count_kv': [2, 2] }),
      'FORMAT',
      /expected 3 integers, one for each layer/,
    ],
    'no eps': [
      keys('llama', { 'attention.layer_norm_rms_epsilon': undefined }),
      'FORMAT',
      /rms_epsilon: expected a finite number, got none/,
    ],
    'no layers': [keys('llama', { block_count: 0 }), 'FORMAT', /block_count/],
    'no context': [keys('llama', { context_length: undefined }), 'FORMAT', /context_length/],
  };
  test('layers that predict further tokens are left out', () => {
    const config = read(keys('llama', { nextn_predict_layers: 1 }));
    assert.deepEqual([config.numLayers, config.layers(16).length], [2, 2]);
  });
  for (const [label, [metadata, code, message]] of Object.entries(refusals)) {
    test(`refusal: ${label}`, () => assert.throws(() => read(metadata), { name: 'RopewalkError', code, message }));
  }
});

test('GGUF of an encoder: its window has two sides, and no note says that it is ignored', () => {
  const keys = {
    ...{ block_count: 4, context_length: 256, embedding_length: 64, feed_forward_length: 96, vocab_size: 100 },
    ...{ 'attention.head_count': 4, 'attention.layer_norm_epsilon': 1e-5, 'attention.sliding_window': 128 },
  };
  const named = Object.entries(keys).map(([key, value]) => [`modern-bert.${key}`, value] as const);
  const metadata = new Map<string, unknown>([['general.architecture', 'modern-bert'], ...named]);
  const config = configFromGguf({
    version: 3,
    alignment: 32,
    bigEndian: false,
    metadata,
    tensors: [],
    dataOffset: 0,
  } as never);
  assert.deepEqual(windowsOf(config), [undefined, 65, 65, undefined]);
  assert.deepEqual([config.bidirectional, config.notes.filter((note) => /sliding_window/.test(note))], [true, []]);
});

describe('architectures that are not families', () => {
  const others = (names: readonly string[], own: readonly string[]): string[] => names.filter((n) => !own.includes(n));
  const architectures = others(
    Object.keys(GGUF_ARCHITECTURES),
    Object.values(FAMILIES).flatMap((one) =>
      [one, one.whenBidirectional, one.withoutExperts].map((other) => other?.gguf ?? ''),
    ),
  );
  const modelTypes = others([...Object.keys(MODELS), ...Object.keys(REFUSED), ...WITHOUT_ROPE], Object.keys(FAMILIES));
  const plain = (name: string): string => name.replace(/_text$/, '').replaceAll(/[-_]/g, '');
  /** Returns the part of a refusal that says what is missing. */
  const missingOf = (read: () => unknown, name: string): string => {
    let said = '';
    assert.throws(read, (error: Error & { code: string }) => {
      assert.equal(error.code, 'UNSUPPORTED', name);
      const start = `: "${name}" is not computed here: `;
      assert.ok(error.message.includes(start), error.message);
      said = error.message.slice(error.message.indexOf(start) + start.length).replace(/\. Known are .*$/, '');
      return true;
    });
    return said === 'it has no row among the families of this decoder' ? 'its row' : said;
  };
  const listed = (name: string): string =>
    MISSING.find(([, names]) => names.split(' ').includes(plain(name)))?.[0] ?? 'its row';

  for (const name of architectures)
    test(`GGUF ${name}: ${listed(name)}`, () => {
      const file = { metadata: new Map([['general.architecture', name]]), tensors: [] };
      assert.equal(
        missingOf(() => configFromGguf(file as never), name),
        listed(name),
      );
    });
  for (const name of modelTypes)
    test(`model_type ${name}: ${listed(name)}`, () => {
      assert.equal(
        missingOf(() => configFromJson({ model_type: name }), name),
        listed(name),
      );
    });

  test('what is missing is said of each architecture once, and of no family', () => {
    const known = new Set([...architectures, ...modelTypes].map(plain));
    const names = MISSING.flatMap(([, list]) => list.split(' '));
    assert.deepEqual(new Set(names).size, names.length);
    assert.deepEqual(
      names.filter((name) => !known.has(name)),
      [],
    );
    const outer = { model_type: 'kimi_k3', text_config: { model_type: 'kimi_k3_text' } };
    assert.match(
      missingOf(() => configFromJson(outer), 'kimi_k3_text'),
      /linear attention/,
    );
  });
});
