import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { planRope, ropeFrequencies } from 'ropewalk';
import type { YarnScaling } from 'ropewalk/internal';
import { mustRefuseOrReturn } from '../../../test/support/fuzz.js';
import { drawn } from '../../../test/support/size.js';
import { type GgufHeader, ropeFromGguf } from '../src/gguf.js';
import { GGUF_ARCHITECTURES } from '../src/gguf-architectures.js';

const header = (
  arch: string,
  keys: Record<string, unknown>,
  tensors: Record<string, Float32Array> = {},
): GgufHeader => ({
  metadata: new Map<string, unknown>([
    ['general.architecture', arch],
    ...Object.entries(keys).map(([k, v]) => [`${arch}.${k}`, v] as [string, unknown]),
  ]),
  tensors: Object.keys(tensors).map((name) => ({ name })),
  readTensor: (name) => tensors[name],
});
const base = { block_count: 4, embedding_length: 4096, 'attention.head_count': 32, context_length: 131072 };
const rope = (h: GgufHeader, options = {}) => ropeFromGguf(h, options).layers[0]!.rope!;
const freq = (h: GgufHeader, options = {}) => {
  const spec = rope(h, options);
  return ropeFrequencies({ ...spec, rotaryDim: spec.rotaryDim! });
};

describe('models', () => {
  test('llama turns neighbours, qwen2 halves; 64-bit keys; a missing freq_base is 10000 with a note', () => {
    const llama = ropeFromGguf(header('llama', { ...base, block_count: 4n, 'rope.dimension_count': 128 }));
    assert.deepEqual(
      [llama.numLayers, llama.layers[3]!.rope!.pairing, llama.layers[0]!.rope!.base, llama.maxContext],
      [4, 'interleaved', 10000, 131072],
    );
    assert.match(llama.notes.join(), /llama\.rope\.freq_base is missing: llama\.cpp takes 10000\./);
    assert.equal(rope(header('qwen2', { ...base, 'rope.freq_base': 1e6 })).pairing, 'half');
  });

  test('key_length counts, and dimension_count may be less', () => {
    const spec = rope(
      header('phi2', { ...base, 'attention.key_length': 80, 'rope.dimension_count': 32, 'rope.freq_base': 10000 }),
    );
    assert.deepEqual([spec.headDim, spec.rotaryDim], [80, 32]);
  });

  test('linear, by the new key and the old one', () => {
    for (const keys of [{ 'rope.scaling.type': 'linear', 'rope.scaling.factor': 4 }, { 'rope.scale_linear': 4 }]) {
      assert.deepEqual(rope(header('llama', { ...base, ...keys })).scaling, { kind: 'linear', factor: 4 });
    }
    assert.equal(
      rope(header('llama', { ...base, 'rope.scaling.type': 'none', 'rope.scaling.factor': 4 })).scaling,
      undefined,
    );
  });

  test('yarn: ggml’s defaults, attn_factor multiplies', () => {
    const yarn = {
      ...base,
      'rope.freq_base': 1e6,
      'rope.scaling.type': 'yarn',
      'rope.scaling.factor': 4,
      'rope.scaling.original_context_length': 32768,
    };
    assert.ok(Math.abs(freq(header('qwen2', yarn)).attentionFactor - (0.1 * Math.log(4) + 1)) < 1e-15);
    assert.ok(
      Math.abs(
        freq(header('qwen2', { ...yarn, 'rope.scaling.attn_factor': 0.5 })).attentionFactor -
          (0.1 * Math.log(4) + 1) / 2,
      ) < 1e-15,
    );
  });

  test('rope_freqs.weight divides; without its values a note says what is missing', () => {
    const factors = Float32Array.from({ length: 64 }, (_, j) => 1 + (j > 30 ? 7 : 0));
    const h = header('llama', { ...base, 'rope.freq_base': 500000 }, { 'rope_freqs.weight': factors });
    assert.equal(freq(h).invFreq[63], 500000 ** (-63 / 64) / 8);
    const { readTensor: _, ...blind } = h;
    assert.match(
      ropeFromGguf(blind).notes.join(),
      /rope_freqs\.weight divides the frequencies, but its values were not read/,
    );
  });

  test('longrope: factors by the size of the context', () => {
    const tensors = {
      'rope_factors_short.weight': new Float32Array(64).fill(2),
      'rope_factors_long.weight': new Float32Array(64).fill(4),
    };
    const h = header(
      'phi3',
      {
        ...base,
        'rope.freq_base': 10000,
        'rope.scaling.type': 'longrope',
        'rope.scaling.original_context_length': 4096,
        'rope.scaling.attn_factor': 1.19,
      },
      tensors,
    );
    assert.deepEqual(
      [freq(h).invFreq[0], freq(h, { context: 4097 }).invFreq[0], freq(h).attentionFactor],
      [0.5, 0.25, 1.19],
    );
  });

  test('qwen2vl and qwen3vl: sections, and ggml’s own interleaving', () => {
    const keys = { ...base, 'rope.freq_base': 1e6, 'rope.dimension_sections': [16, 24, 24, 0] };
    assert.deepEqual(rope(header('qwen2vl', keys)).axes, { rule: 'sections', sections: [16, 24, 24, 0] });
    assert.deepEqual(rope(header('qwen3vl', { ...keys, 'rope.dimension_sections': [24, 20, 20, 0] })).axes, {
      rule: 'interleaved-ggml',
      sections: [24, 20, 20, 0],
    });
  });

  test('gemma3: sliding layers by 10000, unscaled; a pattern in the file counts', () => {
    const keys = {
      block_count: 7,
      'attention.key_length': 256,
      'attention.sliding_window': 512,
      'rope.freq_base': 1e6,
      'rope.scaling.type': 'linear',
      'rope.scaling.factor': 8,
    };
    const model = ropeFromGguf(header('gemma3', keys));
    assert.deepEqual(
      model.layers.map((l) => l.rope!.base),
      [1e4, 1e4, 1e4, 1e4, 1e4, 1e6, 1e4],
    );
    assert.equal(model.layers[0]!.rope!.scaling, undefined);
    const pattern = ropeFromGguf(
      header('gemma3', { ...keys, 'attention.sliding_window_pattern': [true, false, true, true, true, true, true] }),
    );
    assert.equal(pattern.layers[1]!.rope!.base, 1e6);
    const full = ropeFromGguf(header('gemma3', { ...keys, 'attention.sliding_window': 0, 'rope.freq_base_swa': 5000 }));
    assert.ok(full.layers.every((l) => l.rope!.base === 1e6 && l.layerType === undefined));
    assert.match(
      full.notes.join(),
      /gemma3\.rope\.freq_base_swa = 5000 is not applied: this gemma3 has no sliding layers\./,
    );
  });

  /** Lists the base of each layer, or - where it does not rotate. */
  const bases = (arch: string, keys: Record<string, unknown>): string =>
    ropeFromGguf(header(arch, { ...base, 'rope.freq_base': 7, 'rope.freq_base_swa': 5, ...keys }))
      .layers.map((l) => l.rope?.base ?? '-')
      .join(' ');
  const window = { 'attention.sliding_window': 64 };
  const list = { ...window, 'attention.sliding_window_pattern': [true, false, true, true] };
  const layers: [string, Record<string, unknown>, string][] = [
    ['smollm3', { block_count: 8 }, '7 7 7 - 7 7 7 -'],
    ['llama4', { block_count: 8 }, '5 5 5 - 5 5 5 -'],
    ['llama4', { 'attention.sliding_window': 0 }, '7 7 7 -'], // llama.cpp's step is the number of layers.
    ['smallthinker', { block_count: 8, ...window }, '- 5 5 5 - 5 5 5'],
    ['smallthinker', {}, '7 7 7 7'],
    ['afmoe', window, '5 5 5 -'],
    ['afmoe', {}, '7 7 7 -'],
    ['cohere2', window, '7 7 7 -'],
    ['cohere2', { ...list, block_count: 5 }, '7 - 7 7 -'],
    ['cohere2moe', { block_count: 5, leading_dense_block_count: 1, ...window }, '7 7 7 7 -'],
    ['exaone4', window, '7 7 7 7'],
    ['exaone4', { ...window, block_count: 64 }, new Array(16).fill('7 7 7 -').join(' ')],
    ['exaone-moe', window, '7 7 7 -'],
    ['muse-glimmer', window, '5 5 5 -'],
    ['maple', list, '5 - 5 5'],
    ['gemma2', {}, '5 7 5 7'],
    ['gemma2', { 'rope.freq_base_swa': undefined }, '7 7 7 7'],
    ['gemma2', { 'attention.sliding_window_pattern': 3 }, '5 5 7 5'],
    ['gemma3n', { block_count: 5, 'rope.freq_base_swa': undefined }, '10000 10000 10000 10000 7'],
    ['modern-bert', window, '7 5 5 7'],
    ['olmo2', window, '7 7 7 7'],
    ['mimo2', list, '5 7 5 5'],
    ['dots3note', { ...list, 'rope.dimension_count': 64 }, '5 7 5 5'],
    ['granite', { 'rope.scaling.finetuned': false }, '- - - -'],
    ['granitemoe', { 'rope.scaling.finetuned': false }, '- - - -'],
    ['granitemoe', { 'rope.scaling.finetuned': true }, '7 7 7 7'],
    ['llama', { 'rope.scaling.finetuned': false }, '7 7 7 7'],
    ['granite_swa', { ...list, 'attention.rope_pattern': [true, true, false, true] }, '7 7 - 7'],
    ['qwen35', { 'rope.dimension_sections': [11, 11, 10, 0] }, '- - - 7'],
    ['lfm2', { 'attention.head_count_kv': [0, 8, 0, 8] }, '- 7 - 7'],
    ['minimax-01', { block_count: 8 }, '- - - - - - - 7'],
    ['qwen3next', { block_count: 5, nextn_predict_layers: 1 }, '- - - 7 7'],
    ['baichuan', { block_count: 40 }, new Array(40).fill('-').join(' ')],
    ['deepseek4', { 'attention.compress_ratios': [0, 4, 0, 4], 'attention.compress_rope_freq_base': 9 }, '7 9 7 9'],
    ['cogvlm', {}, '10000 10000 10000 10000'],
    ['hunyuan-dense', { 'rope.scaling.alpha': 1 }, '7 7 7 7'],
  ];
  for (const [arch, keys, want] of layers)
    test(`layers of ${arch} ${JSON.stringify(keys)}`, () => assert.equal(bases(arch, keys), want));

  test('windows of sliding layers, where llama.cpp masks all but the last tokens', () => {
    const windows = (arch: string, keys: Record<string, unknown>): string =>
      ropeFromGguf(header(arch, { ...base, ...keys }))
        .layers.map((l) => l.window ?? '-')
        .join(' ');
    assert.equal(windows('gemma2', {}), '4096 - 4096 -');
    assert.equal(windows('gemma2', window), '64 - 64 -');
    assert.equal(windows('gemma3', { ...list, 'attention.sliding_window': 9 }), '9 - 9 9');
    assert.equal(windows('gemma3', {}), '- - - -');
    assert.equal(windows('cohere2', window), '64 64 64 -', 'also of layers that do not rotate');
    assert.equal(windows('exaone4', window), '- - - -');
    assert.match(windows('exaone4', { block_count: 64 }), /^4096 4096 4096 - /);
    assert.equal(windows('phi3', window), '- - - -', 'read and not used');
    assert.equal(windows('llama4', window), '- - - -', 'chunks');
    assert.equal(windows('modern-bert', window), '- - - -', 'both sides');
  });

  test('layers of two types with one RoPE share the record', () => {
    const { layers } = ropeFromGguf(header('gemma2', base));
    assert.notEqual(layers[0]!.layerType, layers[1]!.layerType);
    assert.equal(layers[0]!.rope, layers[1]!.rope);
  });

  test('which layers are scaled: olmo2 leaves sliding ones plain, gpt-oss does not, gemma2 divides them even with type none', () => {
    const yarn = { ...base, ...window, 'rope.freq_base': 5e5, 'rope.scaling.type': 'yarn', 'rope.scaling.factor': 8 };
    const kinds = (arch: string, keys: Record<string, unknown>) =>
      ropeFromGguf(header(arch, keys)).layers.map(({ rope: r }) => r?.scaling?.kind ?? r?.attentionFactor ?? 'plain');
    assert.deepEqual(kinds('olmo2', { ...yarn, 'rope.scaling.attn_factor': 2 }), ['plain', 'plain', 'plain', 'yarn']);
    assert.match(
      ropeFromGguf(header('olmo2', yarn)).notes.join(),
      /olmo2\.rope\.scaling\.\* is not applied to sliding layers/,
    );
    assert.deepEqual(kinds('gpt-oss', yarn), ['yarn', 'yarn', 'yarn', 'yarn']);
    assert.deepEqual(kinds('gemma2', { ...yarn, 'rope.scaling.type': 'none' }), ['linear', 'plain', 'linear', 'plain']);
    assert.match(
      ropeFromGguf(header('llama', { ...yarn, 'rope.scaling.type': 'none' })).notes.join(),
      /llama\.rope\.scaling\.factor = 8 is not applied: the scaling type is none\./,
    );
  });

  test('rope.scaling.finetuned is noted where it does nothing', () => {
    const notes = (arch: string) =>
      ropeFromGguf(header(arch, { ...base, 'rope.freq_base': 1e4, 'rope.scaling.finetuned': false })).notes;
    assert.deepEqual(notes('llama'), [
      'llama.rope.scaling.finetuned = false is not applied: llama.cpp reads it for granite, granitehybrid, granitemoe, graniteswitch only.',
    ]);
    assert.deepEqual(notes('granite'), []);
  });

  test('glm4 is M-RoPE by halves where t and h have sections', () => {
    const keys = { ...base, 'rope.dimension_count': 64, 'rope.freq_base': 1e4 };
    assert.equal(rope(header('glm4', keys)).pairing, 'interleaved');
    const several = rope(header('glm4', { ...keys, 'rope.dimension_sections': [8, 12, 12, 0] }));
    assert.deepEqual([several.pairing, several.axes], ['half', { rule: 'sections', sections: [8, 12, 12, 0] }]);
    const one = rope(header('glm4', { ...keys, 'rope.dimension_sections': [32, 0, 0, 0] }));
    assert.deepEqual([one.pairing, one.axes], ['interleaved', undefined]);
  });

  test('sizes of sliding layers: laguna and gemma4 have their own, cohere2 takes those of its first layer', () => {
    const sizes = (arch: string, keys: Record<string, unknown>) =>
      ropeFromGguf(header(arch, { ...base, ...keys })).layers.map(({ rope: r }) => r && [r.headDim, r.rotaryDim]);
    const swa = { 'rope.dimension_count': 64, 'rope.dimension_count_swa': 96 };
    assert.deepEqual(sizes('laguna', { ...window, ...swa, block_count: 2 }), [
      [128, 64],
      [128, 96],
    ]);
    assert.deepEqual(sizes('gemma4', { ...list, ...swa, 'attention.key_length_swa': 256, block_count: 2 }), [
      [256, 96],
      [128, 64],
    ]);
    assert.deepEqual(sizes('cohere2', { ...window, ...swa }), [[128, 96], [128, 96], [128, 96], undefined]);
    assert.deepEqual(sizes('step35', { ...list, block_count: 2 }), [
      [128, 128],
      [128, 64],
    ]);
  });

  test('yarn: each key counts for the architectures that llama.cpp reads it for, and is noted elsewhere', () => {
    const yarn = {
      ...base,
      'rope.freq_base': 1e6,
      'rope.scaling.type': 'yarn',
      'rope.scaling.factor': 16,
      'rope.scaling.original_context_length': 4096,
      'rope.scaling.yarn_beta_fast': 4,
      'rope.scaling.yarn_beta_slow': 2,
      'rope.scaling.yarn_ext_factor': 0.5,
      'rope.scaling.yarn_attn_factor': 0.8,
      'rope.scaling.yarn_log_multiplier': 0.5,
    };
    const usual = {
      kind: 'yarn',
      factor: 16,
      originalContext: 4096,
      extFactor: 1,
      attnFactor: 1,
      betaFast: 32,
      betaSlow: 1,
    };
    const llama = ropeFromGguf(header('llama', yarn));
    assert.deepEqual(llama.layers[0]!.rope!.scaling, usual);
    assert.equal(
      llama.notes.filter((note) => /yarn_\w+ = [\d.]+ is not applied: llama\.cpp reads it for .* only\.$/.test(note))
        .length,
      5,
    );
    assert.match(
      llama.notes.join(),
      /yarn_beta_fast = 4 is not applied: llama\.cpp reads it for grok, mistral3 only\./,
    );
    assert.deepEqual(rope(header('grok', yarn)).scaling, { ...usual, extFactor: 0.5, betaFast: 4, betaSlow: 2 });
    assert.match(
      ropeFromGguf(header('grok', yarn)).notes.join(),
      /grok\.rope\.scaling\.yarn_attn_factor = 0\.8 is not applied: llama\.cpp computes YaRN's magnitude/,
    );
    assert.equal(freq(header('grok', { ...yarn, 'rope.scaling.yarn_ext_factor': 0 })).attentionFactor, 0.8);
    const f = 0.1 * Math.log(16);
    const magnitude = (arch: string) => freq(header(arch, yarn)).attentionFactor;
    assert.ok(Math.abs(magnitude('mistral3') - (1 + f) / (1 + 0.5 * f)) < 1e-12);
    assert.equal((rope(header('mistral3', yarn)).scaling as { betaFast: number }).betaFast, 4);
    assert.ok(Math.abs(magnitude('deepseek2') - 1) < 1e-12);
    const { notes } = ropeFromGguf(header('deepseek2', yarn));
    assert.ok(notes.includes('head_dim is deepseek2.rope.dimension_count, the part of each head that rotates.'));
    assert.ok(Math.abs(magnitude('mistral4') - (1 + f) / (1 + 5 * f)) < 1e-12);
  });

  test("YaRN's log multiplier is DeepSeek's two mscales; attn_factor multiplies what they give", () => {
    const yarn = { ...base, 'rope.freq_base': 1e6, 'rope.scaling.type': 'yarn', 'rope.scaling.factor': 16 };
    const mscales = (arch: string, multiplier: number) => {
      const { scaling } = rope(header(arch, { ...yarn, 'rope.scaling.yarn_log_multiplier': Math.fround(multiplier) }));
      const { mscale, mscaleAllDim, attnFactor } = scaling as YarnScaling;
      return [mscale, mscaleAllDim, attnFactor];
    };
    assert.deepEqual(mscales('deepseek2', 0.08), [0.8, 0.8, 1]);
    assert.deepEqual(mscales('mistral3', 0.08), [1, 0.08, 1]);
    assert.deepEqual(mscales('mistral4', 0.08), [1, 0.8, 1]);
    assert.deepEqual(mscales('mistral3', 0), [undefined, undefined, 1]);
    const twice = { 'rope.scaling.attn_factor': 2, 'rope.scaling.yarn_log_multiplier': 0.1 };
    assert.ok(Math.abs(freq(header('deepseek2', { ...yarn, ...twice })).attentionFactor - 2) < 1e-12);
  });

  test('two lists of factors are LongRoPE, unless another scaling or one list is beside them', () => {
    const tensors = {
      'rope_factors_short.weight': new Float32Array(64).fill(2),
      'rope_factors_long.weight': new Float32Array(64).fill(4),
    };
    const keys = { ...base, 'rope.freq_base': 1e4, 'rope.scaling.original_context_length': 300 };
    const lists = { shortFactor: new Array(64).fill(2), longFactor: new Array(64).fill(4) };
    const longrope = { kind: 'longrope', ...lists, originalContext: 300 };
    assert.deepEqual(rope(header('phi3', keys, tensors)).scaling, { ...longrope, context: 300 });
    assert.deepEqual(rope(header('phi3', keys, tensors), { context: 301 }).scaling, { ...longrope, context: 512 });
    assert.equal(rope(header('phi3', { ...keys, 'rope.scaling.attn_factor': 1.5 }, tensors)).attentionFactor, 1.5);
    const linear = rope(header('phi3', { ...keys, 'rope.scaling.factor': 4 }, tensors), { context: 301 });
    assert.deepEqual(linear.scaling, { kind: 'linear', factor: 4 });
    assert.equal(linear.freqFactors![0], 4);
    const long = { 'rope_factors_long.weight': tensors['rope_factors_long.weight'] };
    assert.equal(rope(header('phi3', keys, long)).freqFactors, undefined);
    assert.equal(rope(header('phi3', keys, long), { context: 301 }).freqFactors![0], 4);
  });

  test('linear and longrope divide positions too; a factor of 0 is none; a factor below 1 has no magnitude', () => {
    const tensors = { 'rope_factors_short.weight': new Float32Array(64).fill(2) };
    const longrope = { ...base, 'rope.freq_base': 1e4, 'rope.scaling.type': 'longrope', 'rope.scaling.factor': 4 };
    assert.equal(freq(header('phi3', longrope, tensors)).invFreq[0], 1 / 8);
    assert.equal(freq(header('qwen2', longrope)).invFreq[0], 1 / 4);
    assert.equal(
      rope(header('llama', { ...base, 'rope.scaling.factor': 0, 'rope.scale_linear': 3 })).scaling,
      undefined,
    );
    const yarn = { ...base, 'rope.scaling.type': 'yarn', 'rope.scaling.factor': 0.5 };
    assert.ok(Math.abs(freq(header('qwen2', yarn)).attentionFactor - 1) < 1e-12);
  });

  test('a context counts in steps of 256, as llama.cpp rounds it', () => {
    const tensors = {
      'rope_factors_short.weight': new Float32Array(64).fill(2),
      'rope_factors_long.weight': new Float32Array(64).fill(4),
    };
    const keys = {
      ...base,
      'rope.freq_base': 1e4,
      'rope.scaling.type': 'longrope',
      'rope.scaling.original_context_length': 300,
    };
    const at = (context: number) => freq(header('llama', keys, tensors), { context }).invFreq[0];
    assert.deepEqual([at(256), at(257)], [1 / 2, 1 / 4]);
  });

  test('every architecture of llama.cpp is known', () => {
    const names = Object.keys(GGUF_ARCHITECTURES);
    assert.equal(names.length, 152);
    const keys = {
      ...base,
      ...list,
      'rope.freq_base': 1e4,
      'rope.freq_base_swa': 1e4,
      'rope.dimension_sections': [24, 20, 20, 0],
      'attention.compress_ratios': [0, 4, 0, 4],
      'attention.compress_rope_freq_base': 1e4,
    };
    for (const name of names) {
      if (GGUF_ARCHITECTURES[name]!.rope === 'none') {
        assert.throws(() => ropeFromGguf(header(name, keys)), {
          code: 'UNSUPPORTED',
          message: /with rotary position embedding/,
        });
        continue;
      }
      for (const { rope: spec } of ropeFromGguf(header(name, keys)).layers)
        if (spec) planRope({ ...spec, positions: 0, seqLen: 1 });
    }
  });

  test('deepseek2 turns its rope part only; heads may be listed by layer', () => {
    assert.equal(
      rope(
        header('deepseek2', {
          ...base,
          'attention.key_length': 192,
          'rope.dimension_count': 64,
          'rope.freq_base': 1e4,
        }),
      ).headDim,
      64,
    );
    assert.equal(
      rope(header('openelm', { ...base, 'attention.head_count': [0, 32, 16], 'rope.freq_base': 1e4 })).headDim,
      128,
    );
  });
});

test('fuzz: any values under real keys are read or refused', () => {
  const keys = [
    'block_count',
    'embedding_length',
    'attention.head_count',
    'attention.key_length',
    'rope.dimension_count',
    'rope.freq_base',
    'rope.freq_base_swa',
    'rope.scaling.type',
    'rope.scaling.factor',
    'rope.dimension_sections',
    'rope.scaling.original_context_length',
    'attention.sliding_window',
    'attention.sliding_window_pattern',
    'attention.compress_ratios',
    'attention.head_count_kv',
    'nextn_predict_layers',
    'full_attention_interval',
    'rope.dimension_count_swa',
    'rope.scaling.alpha',
    'rope.scaling.attn_factor',
    'rope.scaling.yarn_log_multiplier',
    'rope.scaling.yarn_beta_fast',
  ];
  const value = fc.oneof(
    fc.constantFrom<unknown>(
      0,
      1,
      -1,
      7,
      128,
      1e308,
      2n ** 63n,
      64n,
      true,
      'yarn',
      'longrope',
      'x',
      [],
      [1, 2, 3],
      Number.NaN,
    ),
    fc.double(),
    fc.bigInt(),
  );
  fc.assert(
    fc.property(
      fc.constantFrom('llama', 'gpt2', 'nope', ...Object.keys(GGUF_ARCHITECTURES)),
      fc.dictionary(fc.constantFrom(...keys), value),
      fc.boolean(),
      (arch, entries, whole) => {
        mustRefuseOrReturn(() => {
          const spec = ropeFromGguf(header(arch, { ...(whole ? base : {}), ...entries })).layers[0]!.rope;
          if (spec && spec.headDim <= 4096) planRope({ ...spec, positions: 0, seqLen: 1 });
        }, ['FORMAT', 'UNSUPPORTED', 'RANGE', 'SHAPE']);
      },
    ),
    drawn(2000),
  );
});

describe('refusals', () => {
  const cases: [string, GgufHeader, string, RegExp][] = [
    [
      'an unknown architecture',
      header('nope', base),
      'UNSUPPORTED',
      /general\.architecture: expected one of the 152 architectures of llama\.cpp, got "nope"/,
    ],
    [
      'an architecture without RoPE',
      header('gpt2', base),
      'UNSUPPORTED',
      /expected a model with rotary position embedding, got "gpt2"/,
    ],
    [
      'no layers',
      header('llama', { ...base, block_count: undefined as unknown }),
      'FORMAT',
      /llama\.block_count: expected an integer in \[1, 512\], got none/,
    ],
    [
      'an unknown scaling',
      header('llama', { ...base, 'rope.scaling.type': 'ntk' }),
      'UNSUPPORTED',
      /llama\.rope\.scaling\.type: expected none, linear, yarn or longrope, got "ntk"/,
    ],
    [
      'a negative beta',
      header('mistral3', { ...base, 'rope.scaling.type': 'yarn', 'rope.scaling.yarn_beta_slow': -1 }),
      'FORMAT',
      /mistral3\.rope\.scaling\.yarn_beta_slow: expected a number >= 0, got -1/,
    ],
    [
      'no size of a head',
      header('llama', { block_count: 1 }),
      'FORMAT',
      /llama\.attention\.key_length: expected an integer, or embedding_length and head_count that give one, got none/,
    ],
    [
      'a rotary size past the head',
      header('llama', { ...base, 'rope.dimension_count': 256 }),
      'FORMAT',
      /rope\.dimension_count: expected an even integer in \[2, head_dim=128\], got 256/,
    ],
    [
      'no sections',
      header('qwen2vl', base),
      'FORMAT',
      /qwen2vl\.rope\.dimension_sections: expected four integers >= 0, .* got none/,
    ],
    [
      'three sections, as llama.cpp wants four',
      header('qwen3vl', { ...base, 'rope.dimension_sections': [24, 20, 20] }),
      'FORMAT',
      /qwen3vl\.rope\.dimension_sections: expected four integers >= 0, .* got \[24, 20, 20\]/,
    ],
    [
      'a part of a head where llama.cpp rotates whole heads',
      header('qwen2', { ...base, 'rope.dimension_count': 64 }),
      'UNSUPPORTED',
      /qwen2\.rope\.dimension_count: expected head_dim=128, got 64\. llama\.cpp refuses such a file: its qwen2 rotates whole heads\./,
    ],
    [
      'factors that llama.cpp does not load for an architecture',
      header('qwen2', base, { 'rope_freqs.weight': new Float32Array(64).fill(1) }),
      'UNSUPPORTED',
      /rope_freqs\.weight: llama\.cpp refuses a file with this tensor: its qwen2 reads no factors/,
    ],
    [
      'factors of another scaling type',
      header(
        'llama',
        { ...base, 'rope.scaling.type': 'longrope' },
        {
          'rope_factors_short.weight': new Float32Array(64).fill(1),
          'rope_freqs.weight': new Float32Array(64).fill(1),
        },
      ),
      'UNSUPPORTED',
      /its llama reads rope_factors_long\.weight and rope_factors_short\.weight where rope\.scaling\.type is longrope/,
    ],
    [
      'factors of another length',
      header('llama', base, { 'rope_freqs.weight': new Float32Array(65).fill(1) }),
      'FORMAT',
      /rope_freqs\.weight: expected 64 values, got 65\. llama\.cpp refuses such a file\./,
    ],
    [
      'a list for long contexts of another length, though the short one is taken',
      header('phi3', base, {
        'rope_factors_short.weight': new Float32Array(64).fill(1),
        'rope_factors_long.weight': new Float32Array(9).fill(1),
      }),
      'FORMAT',
      /rope_factors_long\.weight: expected 64 values, got 9/,
    ],
    [
      'sections without pairs',
      header('qwen2vl', { ...base, 'rope.dimension_sections': [0, 0, 0, 0] }),
      'FORMAT',
      /qwen2vl\.rope\.dimension_sections: expected four integers/,
    ],
    [
      'a list of layers that an architecture needs',
      header('gemma4', base),
      'FORMAT',
      /gemma4\.attention\.sliding_window_pattern: expected a list with a flag for each layer, got none\. llama\.cpp needs it too/,
    ],
  ];
  for (const [name, file, code, message] of cases)
    test(name, () => void assert.throws(() => ropeFromGguf(file), { code, message }));
});
