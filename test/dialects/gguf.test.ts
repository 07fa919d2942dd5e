import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { type GgufHeader, ropeFromGguf } from '../../src/dialects/gguf.js';
import { ropeFrequencies } from '../../src/ops/rope/frequencies.js';
import { planRope } from '../../src/ops/rope/plan.js';
import { mustRefuseOrReturn } from '../support/fuzz.js';
import { seeded } from '../support/tensors.js';

const header = (arch: string, keys: Record<string, unknown>, tensors: Record<string, Float32Array> = {}): GgufHeader => ({
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
    const spec = rope(header('phi2', { ...base, 'attention.key_length': 80, 'rope.dimension_count': 32, 'rope.freq_base': 10000 }));
    assert.deepEqual([spec.headDim, spec.rotaryDim], [80, 32]);
  });

  test('linear, by the new key and the old one', () => {
    for (const keys of [{ 'rope.scaling.type': 'linear', 'rope.scaling.factor': 4 }, { 'rope.scale_linear': 4 }]) {
      assert.deepEqual(rope(header('llama', { ...base, ...keys })).scaling, { kind: 'linear', factor: 4 });
    }
    assert.equal(rope(header('llama', { ...base, 'rope.scaling.type': 'none', 'rope.scaling.factor': 4 })).scaling, undefined);
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
      Math.abs(freq(header('qwen2', { ...yarn, 'rope.scaling.attn_factor': 0.5 })).attentionFactor - (0.1 * Math.log(4) + 1) / 2) < 1e-15,
    );
  });

  test('rope_freqs.weight divides; without its values a note says what is missing', () => {
    const factors = Float32Array.from({ length: 64 }, (_, j) => 1 + (j > 30 ? 7 : 0));
    const h = header('llama', { ...base, 'rope.freq_base': 500000 }, { 'rope_freqs.weight': factors });
    assert.equal(freq(h).invFreq[63], 500000 ** (-63 / 64) / 8);
    const { readTensor: _, ...blind } = h;
    assert.match(ropeFromGguf(blind).notes.join(), /rope_freqs\.weight divides the frequencies; its values were not read/);
  });

  test('longrope: factors by the size of the context', () => {
    const tensors = { 'rope_factors_short.weight': new Float32Array(64).fill(2), 'rope_factors_long.weight': new Float32Array(64).fill(4) };
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
    assert.deepEqual([freq(h).invFreq[0], freq(h, { context: 4097 }).invFreq[0], freq(h).attentionFactor], [0.5, 0.25, 1.19]);
  });

  test('qwen2vl and qwen3vl: sections, and ggml’s own interleaving', () => {
    const keys = { ...base, 'rope.freq_base': 1e6, 'rope.dimension_sections': [16, 24, 24, 0] };
    assert.deepEqual(rope(header('qwen2vl', keys)).axes, { rule: 'sections', sections: [16, 24, 24, 0] });
    assert.deepEqual(rope(header('qwen3vl', { ...keys, 'rope.dimension_sections': [24, 20, 20] })).axes, {
      rule: 'interleaved-ggml',
      sections: [24, 20, 20, 0],
    });
  });

  test('gemma3: sliding layers by 10000, unscaled; a pattern in the file counts', () => {
    const keys = {
      block_count: 7,
      'attention.key_length': 256,
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
  });

  test('deepseek2 turns its rope part only; heads may be listed by layer', () => {
    assert.equal(
      rope(header('deepseek2', { ...base, 'attention.key_length': 192, 'rope.dimension_count': 64, 'rope.freq_base': 1e4 })).headDim,
      64,
    );
    assert.equal(rope(header('openelm', { ...base, 'attention.head_count': [0, 32, 16], 'rope.freq_base': 1e4 })).headDim, 128);
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
    'attention.sliding_window_pattern',
  ];
  const value = fc.oneof(
    fc.constantFrom<unknown>(0, 1, -1, 7, 128, 1e308, 2n ** 63n, 64n, true, 'yarn', 'longrope', 'x', [], [1, 2, 3], Number.NaN),
    fc.double(),
    fc.bigInt(),
  );
  fc.assert(
    fc.property(
      fc.constantFrom('llama', 'qwen2vl', 'gemma3', 'phi3', 'gpt2', 'nope'),
      fc.dictionary(fc.constantFrom(...keys), value),
      fc.boolean(),
      (arch, entries, whole) => {
        mustRefuseOrReturn(() => {
          const spec = ropeFromGguf(header(arch, { ...(whole ? base : {}), ...entries })).layers[0]!.rope;
          if (spec && spec.headDim < 4096) planRope({ ...spec, positions: 0, seqLen: 1 });
        }, ['FORMAT', 'UNSUPPORTED', 'RANGE', 'SHAPE']);
      },
    ),
    { ...seeded, numRuns: 2000 },
  );
});

describe('refusals', () => {
  const cases: [string, GgufHeader, string, RegExp][] = [
    [
      'an unknown architecture',
      header('nope', base),
      'UNSUPPORTED',
      /general\.architecture: expected one of \d+ architectures whose pairing is known, got "nope"/,
    ],
    ['an architecture without RoPE', header('gpt2', base), 'UNSUPPORTED', /expected a model with rotary position embedding, got "gpt2"/],
    [
      'no layers',
      header('llama', { ...base, block_count: undefined as unknown }),
      'FORMAT',
      /llama\.block_count: expected an integer, got none/,
    ],
    [
      'an unknown scaling',
      header('llama', { ...base, 'rope.scaling.type': 'ntk' }),
      'UNSUPPORTED',
      /llama\.rope\.scaling\.type: expected none, linear, yarn or longrope, got "ntk"/,
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
    ['no sections', header('qwen2vl', base), 'FORMAT', /qwen2vl\.rope\.dimension_sections: expected three or four integers, got none/],
  ];
  for (const [name, file, code, message] of cases) test(name, () => void assert.throws(() => ropeFromGguf(file), { code, message }));
});
