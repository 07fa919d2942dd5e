import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { bindRope, planRope, type RopeSpec, RopewalkError, roundTo, type Tensor, tensorFrom, zeros } from 'ropewalk';
import { sharePairs } from 'ropewalk/internal';
import { referenceRunner } from 'ropewalk/reference';
import { mustRefuseOrReturn } from '../../../../test/support/fuzz.js';
import { drawn, FUZZ, some } from '../../../../test/support/size.js';
import { VECTORS } from '../../../../test/support/suites.js';
import { f64Tensor, floats } from '../../../../test/support/tensors.js';
import * as cann from '../../src/cann/index.js';
import { peerOf } from '../../src/convert/convert.js';
import { distanceOf } from '../../src/convert/effective.js';
import * as ggml from '../../src/ggml.js';
import { GGUF_ARCHITECTURES } from '../../src/gguf-architectures.js';
import { ropeFromConfig } from '../../src/huggingface.js';
import {
  type Conversion,
  convertRope,
  effectiveRope,
  type GivenTable,
  PEERS,
  readForm,
  specFromJson,
  specToJson,
} from '../../src/index.js';
import * as io from '../../src/infiniop.js';
import { rotaryEmbedding } from '../../src/onnx.js';

const rw = referenceRunner();
const NAMES = PEERS.map((peer) => peer.name);

/** The RoPE of real models: the relevant fields, with the models' values. */
const phi3Factors = (top: number) => Array.from({ length: 48 }, (_, j) => 1 + (top - 1) * (j / 47) ** 2);
const REAL: Readonly<Record<string, RopeSpec>> = {
  'llama-2': { headDim: 128, pairing: 'half', base: 10000 },
  'llama-3.1': {
    headDim: 128,
    pairing: 'half',
    base: 500000,
    scaling: { kind: 'llama3', factor: 8, lowFreqFactor: 1, highFreqFactor: 4, originalContext: 8192 },
  },
  'qwen2.5-yarn': {
    headDim: 128,
    pairing: 'half',
    base: 1e6,
    scaling: { kind: 'yarn', factor: 4, originalContext: 32768 },
  },
  'gpt-oss': {
    headDim: 64,
    pairing: 'half',
    base: 150000,
    scaling: { kind: 'yarn', factor: 32, originalContext: 4096, truncate: false },
  },
  'deepseek-v3': {
    headDim: 64,
    pairing: 'interleaved-to-half',
    base: 10000,
    scaling: { kind: 'yarn', factor: 40, originalContext: 4096, mscale: 1, mscaleAllDim: 1 },
  },
  'phi-3': {
    headDim: 96,
    pairing: 'half',
    base: 10000,
    scaling: {
      kind: 'longrope',
      shortFactor: phi3Factors(3),
      longFactor: phi3Factors(64),
      originalContext: 4096,
      context: 131072,
      factor: 32,
    },
  },
  'gemma-4 full': { headDim: 512, pairing: 'half', base: 1e6, scaling: { kind: 'proportional', rotatedPairs: 64 } },
  'stablelm-2': { headDim: 64, rotaryDim: 16, pairing: 'half', base: 10000 },
  'glm-4': { headDim: 128, rotaryDim: 64, pairing: 'interleaved', base: 10000 },
  'gpt-j': { headDim: 256, rotaryDim: 64, pairing: 'interleaved', base: 10000 },
  'qwen2-vl': { headDim: 128, pairing: 'half', base: 1e6, axes: { rule: 'sections', sections: [16, 24, 24] } },
  'qwen3-vl': { headDim: 128, pairing: 'half', base: 5e6, axes: { rule: 'interleaved', sections: [24, 20, 20] } },
  'clip tower': { headDim: 80, pairing: 'vision', base: 10000, axes: { rule: 'vision', sections: [20, 20, 0, 0] } },
  'nope prefix': { headDim: 192, rotaryDim: 64, rotaryOffset: 128, pairing: 'interleaved', base: 10000 },
};

/** Converts a record, or refuses it as UNSUPPORTED. Any other RopewalkError is a bug. */
function tryConvert(spec: RopeSpec, target: string, options = {}): Conversion | undefined {
  try {
    return convertRope(spec, target, options);
  } catch (error) {
    assert.ok(error instanceof RopewalkError && error.code === 'UNSUPPORTED', String(error));
    assert.match(
      error.message,
      new RegExp(`^convert: ${target}: cannot be expressed, because .+\\. .+\\.$`),
      error.message,
    );
    return undefined;
  }
}

const tablesOf = (conversion: Conversion): Map<string, GivenTable> =>
  new Map(conversion.tables.map(({ name, shape, data }) => [name, { shape, data, roundoff: 2 ** -24 }]));

/** Reads the result as another program does: from JSON text, and from the tables. */
function readAgain(conversion: Conversion, context?: number): RopeSpec {
  const json = JSON.parse(JSON.stringify({ target: conversion.target, arguments: conversion.arguments }));
  return readForm(json, tablesOf(conversion), { where: 'x.json', ...(context === undefined ? {} : { context }) }).spec;
}

function assertSame(spec: RopeSpec, again: RopeSpec, conversion: Conversion, label: string): void {
  const own = effectiveRope(spec);
  const { relayout } = conversion;
  const wanted = relayout ? { ...own, pairing: relayout.to as typeof own.pairing } : own;
  const { differences, invFreq, attentionFactor } = distanceOf(wanted, effectiveRope(again));
  const { tolerance } = peerOf(conversion.target);
  assert.deepEqual(differences, [], label);
  assert.ok(invFreq <= tolerance, `${label}: frequencies off by ${invFreq}`);
  assert.ok(attentionFactor <= tolerance, `${label}: magnitude off by ${attentionFactor}`);
}

describe('golden: numbers of the peers themselves', () => {
  test("Llama 3.1 in ggml: freq_factors as llama.cpp's converter computes them (llama.cpp#8676)", () => {
    const factors = convertRope(REAL['llama-3.1']!, 'ggml').arguments.freq_factors as number[];
    assert.deepEqual(
      factors,
      Array.from({ length: 64 }, (_, j) => {
        const wavelength = (2 * Math.PI) / 500000 ** (-j / 64);
        if (wavelength < 8192 / 4) return 1;
        if (wavelength > 8192) return 8;
        const smooth = (8192 / wavelength - 1) / 3;
        return Math.fround(1 / ((1 - smooth) / 8 + smooth));
      }),
    );
    const gguf = convertRope(REAL['llama-3.1']!, 'gguf', { modelType: 'llama' });
    assert.deepEqual(gguf.arguments['rope_freqs.weight'], factors);
    assert.equal(gguf.arguments['general.architecture'], 'llama');
    assert.deepEqual(gguf.relayout, { from: 'half', to: 'interleaved', weights: 'permute' });
  });

  test('Gemma 4 in GGUF: 1 for the pairs that turn and 1e30 for the others, as its converter writes them', () => {
    const factors = convertRope(REAL['gemma-4 full']!, 'gguf').arguments['rope_freqs.weight'] as number[];
    assert.deepEqual(factors, [...new Array(64).fill(1), ...new Array(192).fill(Math.fround(1e30))]);
  });

  test('YaRN in ggml: attn_factor leaves out what ggml multiplies in, and DeepSeek has none of it', () => {
    const qwen = convertRope(REAL['qwen2.5-yarn']!, 'ggml').arguments;
    assert.deepEqual(
      [
        qwen.freq_scale,
        qwen.ext_factor,
        qwen.attn_factor,
        qwen.n_ctx_orig,
        qwen.beta_fast,
        qwen.beta_slow,
        qwen.freq_factors,
      ],
      [0.25, 1, 1, 32768, 32, 1, null],
    );
    const deepseek = convertRope({ ...REAL['deepseek-v3']!, pairing: 'interleaved' }, 'ggml').arguments;
    assert.equal(deepseek.attn_factor, Math.fround(1 / (1 + 0.1 * Math.log(40))));
    assert.equal(deepseek.freq_factors, null);
  });

  test('gpt-oss has truncate: false, which HuggingFace and vLLM can express and ggml cannot', () => {
    const hf = convertRope(REAL['gpt-oss']!, 'huggingface').arguments.config as {
      rope_parameters: Record<string, unknown>;
    };
    assert.deepEqual([hf.rope_parameters.rope_type, hf.rope_parameters.truncate], ['yarn', false]);
    const vllm = convertRope(REAL['gpt-oss']!, 'vllm').arguments.rope_parameters as Record<string, unknown>;
    assert.deepEqual([vllm.rope_type, vllm.truncate], ['yarn', false]);
    const conversion = convertRope(REAL['gpt-oss']!, 'ggml');
    assert.equal(conversion.arguments.ext_factor, 0);
    assert.equal((conversion.arguments.freq_factors as number[]).length, 32);
    assert.match(
      conversion.notes.join(' '),
      /ggml rounds the edges of YaRN's ramp, and this record does not \(truncate: false\): .* freq_factors/,
    );
  });

  test("vLLM's max_position is the model's max_position_embeddings; a bare record's is a guess, and said to be one", () => {
    const of = (spec: RopeSpec, maxContext?: number) => convertRope(spec, 'vllm', { maxContext });
    // Qwen3-8B, Llama 4 Scout's and Llama 3.1's own figures: none is derived from the scaling.
    for (const [spec, context] of [
      [{ headDim: 128, pairing: 'half', base: 1e6 }, 40960],
      [{ headDim: 128, pairing: 'interleaved', base: 500000 }, 1048576],
      [REAL['llama-3.1']!, 131072],
      [REAL['qwen2.5-yarn']!, 32768],
    ] as const) {
      const { arguments: said, notes } = of(spec, context);
      assert.equal(said.max_position, context);
      assert.doesNotMatch(notes.join(' '), /guess/);
    }
    assert.match(
      of(REAL['llama-3.1']!).notes.join(' '),
      /vLLM's models pass max_position_embeddings.*65536 is a guess/,
    );
    assert.throws(() => of(REAL['llama-2']!, 0), { code: 'RANGE', message: /--maxContext|maxContext/ });
  });

  test('Llama 3.1 in FlashInfer is its own function with its own defaults; GLM-4 is interleaved', () => {
    const conversion = convertRope(REAL['llama-3.1']!, 'flashinfer');
    assert.equal(conversion.call, 'flashinfer.apply_llama31_rope_pos_ids');
    // The defaults of the function are Llama 3.1's: leaving them out changes nothing.
    const { spec } = readForm(
      { target: 'flashinfer', arguments: { head_dim: 128, old_context_len: 8192 } },
      new Map(),
      { where: 'x' },
    );
    assertSame(REAL['llama-3.1']!, spec, conversion, 'defaults');
    assert.equal(convertRope(REAL['glm-4']!, 'flashinfer').arguments.interleave, true);
  });

  test('Qwen3-VL in ggml: the two pairs that IMROPE gives to the fourth axis get t there', () => {
    const { arguments: said, notes } = convertRope(REAL['qwen3-vl']!, 'ggml');
    assert.deepEqual([said.mode, said.sections, said.position_axes], [40, [24, 20, 20, 0], ['t', 'h', 'w', 't']]);
    assert.match(notes.join(' '), /pairs 61, 62 to axis e/);
  });

  test('each peer uses its own arguments where it has them, not factors or tables', () => {
    const base: RopeSpec = { headDim: 128, pairing: 'half', base: 10000 };
    const linear: RopeSpec = { ...base, scaling: { kind: 'linear', factor: 4 } };
    const dynamic: RopeSpec = {
      ...base,
      scaling: { kind: 'dynamicNtk', factor: 2, originalContext: 4096, context: 16384 },
    };
    const raised = 10000 * ((2 * 16384) / 4096 - 1) ** (128 / 126);
    const said = (s: RopeSpec, target: string): Record<string, unknown> => convertRope(s, target).arguments;
    const hf = (s: RopeSpec) =>
      (said(s, 'huggingface').config as { rope_parameters: Record<string, unknown> }).rope_parameters;
    const vllm = (s: RopeSpec) => said(s, 'vllm').rope_parameters as Record<string, unknown>;

    assert.deepEqual(
      [said(linear, 'mlx').base, said(linear, 'mlx').scale, said(linear, 'mlx').freqs],
      [10000, 0.25, null],
    );
    assert.deepEqual([said(linear, 'ggml').freq_scale, said(linear, 'ggml').freq_factors], [0.25, null]);
    assert.deepEqual(
      [said(linear, 'gguf')['qwen2.rope.scaling.type'], said(linear, 'gguf')['qwen2.rope.scaling.factor']],
      ['linear', 4],
    );
    assert.deepEqual([said(linear, 'flashinfer').rope_scale, said(linear, 'flashinfer').rope_theta], [4, 10000]);
    assert.deepEqual(vllm(linear), { rope_theta: 10000, rope_type: 'linear', factor: 4 });
    assert.deepEqual(hf(linear), { rope_theta: 10000, rope_type: 'linear', factor: 4 });

    assert.deepEqual(
      [said(dynamic, 'ggml').freq_base, said(dynamic, 'ggml').freq_factors],
      [Math.fround(raised), null],
    );
    assert.deepEqual([said(dynamic, 'mlx').base, said(dynamic, 'mlx').freqs], [Math.fround(raised), null]);
    assert.deepEqual(vllm(dynamic), { rope_theta: raised, rope_type: 'default' });
    assert.deepEqual(hf(dynamic), { rope_theta: 10000, rope_type: 'dynamic', factor: 2 });

    const yarn = REAL['qwen2.5-yarn']!;
    assert.deepEqual(vllm(yarn), {
      rope_theta: 1e6,
      rope_type: 'yarn',
      factor: 4,
      original_max_position_embeddings: 32768,
    });
    assert.deepEqual(hf(yarn), {
      rope_theta: 1e6,
      rope_type: 'yarn',
      factor: 4,
      original_max_position_embeddings: 32768,
    });
    const gguf = said(yarn, 'gguf');
    assert.deepEqual(
      ['type', 'factor', 'original_context_length'].map((key) => gguf[`qwen2.rope.scaling.${key}`]),
      ['yarn', 4, 32768],
    );
    assert.deepEqual(vllm(REAL['llama-3.1']!).rope_type, 'llama3');
    assert.deepEqual(vllm(REAL['gemma-4 full']!), {
      rope_theta: 1e6,
      rope_type: 'proportional',
      partial_rotary_factor: 0.25,
    });
    assert.deepEqual(vllm(REAL['stablelm-2']!).partial_rotary_factor, 0.25);
    assert.equal(vllm(REAL['phi-3']!).rope_type, 'longrope');
    const phi = said(REAL['phi-3']!, 'gguf');
    assert.deepEqual(phi['rope_factors_short.weight'], phi3Factors(3).map(Math.fround));
    assert.deepEqual(phi['rope_factors_long.weight'], phi3Factors(64).map(Math.fround));
    assert.equal(hf(REAL['phi-3']!).rope_type, 'longrope');
    assert.equal(said(REAL['qwen2-vl']!, 'ggml').mode, 8);
    assert.deepEqual([said(REAL['clip tower']!, 'ggml').mode, said(REAL['clip tower']!, 'ggml').n_dims], [24, 40]);
    assert.equal(said(REAL['nope prefix']!, 'ggml').n_offs, 128);
  });

  test('numbers of one pair in a table, computed here', () => {
    const { tables } = convertRope({ headDim: 8, pairing: 'half', base: 100, attentionFactor: 1.5 }, 'infiniop', {
      positions: 7,
    });
    const [sin, cos] = tables;
    assert.deepEqual([sin!.name, cos!.name, sin!.shape], ['sin_table', 'cos_table', [7, 4]]);
    const angle = 6 * 100 ** (-2 / 8);
    assert.deepEqual(
      [cos!.data[6 * 4 + 1], sin!.data[6 * 4 + 1]],
      [Math.fround(1.5 * Math.cos(angle)), Math.fround(1.5 * Math.sin(angle))],
    );
  });
});

/** Draws many kinds of records: every scaling, window, pairing and axes rule. */
const spec: fc.Arbitrary<RopeSpec> = fc
  .record({
    pairs: fc.integer({ min: 2, max: 20 }),
    tail: fc.integer({ min: 0, max: 6 }),
    offset: fc.integer({ min: 0, max: 5 }),
    window: fc.constantFrom('all', 'all', 'partial', 'offset'),
    pairing: fc.constantFrom('half' as const, 'half' as const, 'interleaved' as const, 'interleaved-to-half' as const),
    base: fc.oneof(fc.constantFrom(1e4, 5e5, 1e6, 150000), fc.double({ min: 50, max: 1e7, noNaN: true })),
    kind: fc.constantFrom('none', 'linear', 'dynamicNtk', 'yarn', 'longrope', 'llama3', 'proportional'),
    factor: fc.oneof(fc.constantFrom(2, 4, 32), fc.double({ min: 1.01, max: 64, noNaN: true })),
    context: fc.constantFrom(2048, 4096, 32768),
    factors: fc.array(fc.double({ min: 1, max: 60, noNaN: true }), { minLength: 40, maxLength: 40 }),
    truncate: fc.constantFrom(undefined, true, false),
    extFactor: fc.constantFrom(undefined, undefined, 0, 0.75),
    mscale: fc.constantFrom(undefined, 1, 0.5),
    beyond: fc.boolean(),
    axes: fc.constantFrom('none', 'none', 'none', 'sections', 'interleaved', 'interleaved-ggml'),
    attentionFactor: fc.constantFrom(undefined, undefined, undefined, 1.25),
    freqFactors: fc.constantFrom(false, false, false, true),
    frequencyDim: fc.constantFrom(false, false, false, true),
  })
  .map((r): RopeSpec => {
    const rotaryDim = 2 * r.pairs;
    const tail = r.window === 'all' ? 0 : 2 * r.tail + (r.window === 'offset' ? r.offset : 0);
    const scalings: Record<string, RopeSpec['scaling']> = {
      linear: { kind: 'linear', factor: r.factor },
      dynamicNtk: {
        kind: 'dynamicNtk',
        factor: r.factor,
        originalContext: r.context,
        context: r.beyond ? 3 * r.context : 100,
      },
      yarn: {
        kind: 'yarn',
        factor: r.factor,
        originalContext: r.context,
        ...(r.truncate === undefined ? {} : { truncate: r.truncate }),
        ...(r.extFactor === undefined ? {} : { extFactor: r.extFactor }),
        ...(r.mscale === undefined ? {} : { mscale: r.mscale, mscaleAllDim: 1 }),
        ...(r.beyond ? { betaFast: 16, betaSlow: 2 } : {}),
      },
      longrope: {
        kind: 'longrope',
        shortFactor: r.factors.slice(0, r.pairs),
        longFactor: r.factors.slice(20, 20 + r.pairs),
        originalContext: r.context,
        context: r.beyond ? 10 * r.context : 100,
        factor: r.factor,
      },
      llama3: { kind: 'llama3', factor: r.factor, lowFreqFactor: 1, highFreqFactor: 4, originalContext: r.context },
      proportional: { kind: 'proportional', rotatedPairs: Math.ceil(r.pairs / 3) },
    };
    const third = Math.floor(r.pairs / 3);
    const sections = [r.pairs - 2 * third, third, third];
    return {
      headDim: rotaryDim + tail,
      ...(tail === 0 ? {} : { rotaryDim }),
      ...(r.window === 'offset' && r.offset > 0 ? { rotaryOffset: r.offset } : {}),
      pairing: r.pairing,
      base: r.base,
      ...(scalings[r.kind] ? { scaling: scalings[r.kind]! } : {}),
      ...(r.axes === 'none'
        ? {}
        : {
            axes: { rule: r.axes as 'sections', sections: r.axes === 'interleaved-ggml' ? [...sections, 0] : sections },
          }),
      ...(r.attentionFactor === undefined ? {} : { attentionFactor: r.attentionFactor }),
      ...(r.freqFactors ? { freqFactors: r.factors.slice(10, 10 + r.pairs) } : {}),
      ...(r.frequencyDim ? { frequencyDim: rotaryDim + tail + 2 } : {}),
    };
  });

/** Says whether a peer must express a record. Most do so for one axis and a window from dimension 0. */
function mustExpress(target: string, s: RopeSpec): boolean {
  const plainPairing = s.pairing !== 'interleaved-to-half';
  const first = (s.rotaryOffset ?? 0) === 0;
  switch (target) {
    case 'spec':
      return true;
    case 'ggml':
    case 'cann':
      return (
        plainPairing && s.headDim % 2 === 0 && (target === 'ggml' || first) && !(s.axes && s.pairing === 'interleaved')
      );
    case 'infiniop':
      return plainPairing && !s.axes;
    case 'aclnn':
      return !s.axes;
    case 'onnx':
    case 'onnxruntime':
    case 'flashinfer':
    case 'mlx':
      return plainPairing && first && !s.axes;
    case 'gguf':
      return plainPairing && first && !s.axes;
    case 'vllm':
      return s.pairing === 'half' && first && !s.axes;
    case 'huggingface':
      // Partial rotation where neighbours become halves has no model class.
      return first && !s.axes && (plainPairing || (s.rotaryDim ?? s.headDim) === s.headDim);
    default:
      throw new Error(target);
  }
}

describe('properties', () => {
  for (const target of NAMES) {
    test(`record → ${target} → record is the same RoPE, or a refusal that says why`, () => {
      const said = new Set<string>();
      fc.assert(
        fc.property(spec, (s) => {
          const conversion = tryConvert(s, target, { positions: 40 });
          if (!conversion) {
            assert.ok(!mustExpress(target, s), `${target} has words for this, and it was refused`);
            return;
          }
          said.add(s.scaling?.kind ?? 'none');
          assertSame(s, conversion.readBack, conversion, `${target} ${conversion.call}`);
          const context = s.scaling && 'context' in s.scaling ? s.scaling.context : undefined;
          assertSame(s, readAgain(conversion, context), conversion, `${target} ${conversion.call}, by JSON`);
        }),
        drawn(200),
      );
      if (FUZZ === 10) assert.equal(said.size, 7, `every scaling was said at least once: ${[...said]}`);
    });
  }

  test('GGUF with an architecture that turns neighbours: the keys are read in its pairing, and the weights are to be permuted', () => {
    fc.assert(
      fc.property(spec, (s) => {
        const { rotaryOffset: _, axes: __, rotaryDim, ...whole } = s;
        const rest = { ...whole, headDim: rotaryDim ?? whole.headDim };
        if (rest.pairing !== 'half') return;
        const conversion = convertRope(rest, 'gguf', { architecture: 'llama' });
        assert.deepEqual(conversion.relayout, { from: 'half', to: 'interleaved', weights: 'permute' });
        assert.equal(conversion.readBack.pairing, 'interleaved');
        assertSame(rest, conversion.readBack, conversion, 'llama');
      }),
      drawn(),
    );
  });

  test('a cos_sin_cache whose slowest frequency is read back with several roundings is no refusal', () => {
    const scaling = { kind: 'dynamicNtk', factor: 32, originalContext: 2048, context: 6144 } as const;
    const slow: RopeSpec = {
      headDim: 18,
      rotaryDim: 12,
      pairing: 'half',
      base: 150000,
      scaling,
      frequencyDim: 20,
    };
    const { call } = convertRope(slow, 'flashinfer', { positions: 40 });
    assert.equal(call, 'flashinfer.apply_rope_with_cos_sin_cache');
  });

  test("LongRoPE's two lists both arrive, whichever one the record's context chooses", () => {
    for (const context of [100, 131072]) {
      const model = REAL['phi-3']!;
      const scaling = { ...(model.scaling as Extract<RopeSpec['scaling'], { kind: 'longrope' }>), context };
      for (const target of ['huggingface', 'gguf', 'vllm']) {
        const conversion = convertRope({ ...model, scaling }, target);
        for (const other of [100, 131072]) {
          const again = readAgain(conversion, other);
          assertSame({ ...model, scaling: { ...scaling, context: other } }, again, conversion, `${target} at ${other}`);
        }
      }
    }
  });

  test('both styles of config.json are read as the same RoPE', () => {
    fc.assert(
      fc.property(spec, (s) => {
        const conversion = tryConvert(s, 'huggingface');
        if (!conversion) return;
        const context = s.scaling && 'context' in s.scaling ? { context: s.scaling.context } : {};
        const old = ropeFromConfig(conversion.arguments.config_before_transformers_5, context).layers[0]!.rope!;
        assertSame(s, old, conversion, 'old style');
      }),
      drawn(100),
    );
  });

  test('a table tells its record again at f16 and bf16 precision, and of any length from two rows on', () => {
    const { tables, arguments: args } = convertRope(REAL['llama-2']!, 'onnx', { positions: 300 });
    for (const [rows, dtype, roundoff] of [
      [2, 'f32', 2 ** -24],
      [3, 'f32', 2 ** -24],
      [300, 'f32', 2 ** -24],
      [300, 'f16', 2 ** -11],
      [300, 'bf16', 2 ** -8],
    ] as const) {
      const given = new Map(
        tables.map(({ name, data }) => {
          const part = Array.from(data.subarray(0, rows * 64), (value) => roundTo(dtype, value));
          return [name, { shape: [rows, 64], data: part, roundoff }] as const;
        }),
      );
      const { spec: found } = readForm({ target: 'onnx', arguments: args }, given, { where: 'x' });
      assert.equal(found.base, 10000, `${rows} rows of ${dtype}: a base that fits is found`);
      assert.equal(found.freqFactors, undefined);
    }
  });

  test("a cache that transformers' own f32 arithmetic made is read as the model that made it", () => {
    const plan = planRope({ ...REAL['llama-2']!, positions: 0, seqLen: 4096, recipe: 'hf-f32' });
    const given = new Map(
      (['cos', 'sin'] as const).map(
        (part) => [`${part}_cache`, { shape: [4096, 64], data: plan.table[part], roundoff: 2 ** -24 }] as const,
      ),
    );
    const { spec: found } = readForm({ cos_cache: 'x.npy', interleaved: 0 }, given, { where: 'x' });
    assert.ok(distanceOf(effectiveRope(found), effectiveRope(REAL['llama-2']!)).invFreq < 2 ** -20);
  });
});

describe('real models', () => {
  const manifest = JSON.parse(readFileSync(join(VECTORS, 'huggingface/manifest.json'), 'utf8')) as {
    cases: { name: string; config: unknown; context?: number }[];
  };
  const cases: (readonly [string, RopeSpec])[] = [
    ...Object.entries(REAL),
    ...manifest.cases.map(
      ({ name, config, context }) =>
        [name, ropeFromConfig(config, context === undefined ? {} : { context }).layers[0]!.rope!] as const,
    ),
  ];
  for (const [name, model] of cases) {
    test(`${name}: as every peer's arguments, and back`, () => {
      const said: string[] = [];
      for (const target of NAMES) {
        const conversion = tryConvert(model, target, { positions: 64 });
        if (!conversion) continue;
        said.push(target);
        const context = model.scaling && 'context' in model.scaling ? model.scaling.context : undefined;
        assertSame(model, readAgain(conversion, context), conversion, `${name} ${target}`);
      }
      const usual = model.pairing !== 'interleaved-to-half' && model.pairing !== 'vision' && !model.rotaryOffset;
      assert.ok(said.length >= (usual ? 5 : 3), said.join(' '));
    });
  }

  test("GGUF's neighbours in a HuggingFace model that turns halves: permute back; in DeepSeek-V3 nothing needs doing", () => {
    const neighbors: RopeSpec = { headDim: 64, pairing: 'interleaved', base: 10000 };
    const llama = convertRope(neighbors, 'huggingface', { modelType: 'llama' });
    assert.deepEqual(llama.relayout, { from: 'interleaved', to: 'half', weights: 'permute' });
    assert.equal(llama.readBack.pairing, 'half');
    assert.deepEqual(convertRope(neighbors, 'huggingface', { modelType: 'deepseek_v3' }).relayout, {
      from: 'interleaved',
      to: 'interleaved-to-half',
      weights: 'none',
    });
    assert.equal(
      convertRope(neighbors, 'huggingface').relayout,
      undefined,
      'without a name, a model that turns neighbours is found',
    );
  });

  test('keys and fields of sliding layers, where the model has some', () => {
    const s: RopeSpec = { headDim: 64, pairing: 'half', base: 20000 };
    const sliding = 'sliding_attention';
    const keys = (modelType: string, layerType?: string) =>
      Object.keys(convertRope(s, 'gguf', { modelType, layerType }).arguments).filter((key) => /freq_base/.test(key));
    assert.deepEqual(keys('gemma3_text', sliding), ['gemma3.rope.freq_base_swa']);
    assert.deepEqual(keys('gemma3_text', 'full_attention'), ['gemma3.rope.freq_base']);
    assert.deepEqual(keys('gemma3_text'), ['gemma3.rope.freq_base']);
    assert.deepEqual(keys('olmo3', sliding), ['olmo2.rope.freq_base'], 'one base for both');
    assert.deepEqual(keys('qwen3', sliding), ['qwen3.rope.freq_base'], 'no sliding layers');
    const linear: RopeSpec = { ...s, scaling: { kind: 'linear', factor: 8 } };
    assert.throws(() => convertRope(linear, 'gguf', { modelType: 'gemma3_text', layerType: sliding }), {
      code: 'UNSUPPORTED',
      message: /gguf: cannot be expressed, because its arguments, read back, give another RoPE \(frequencies off by/,
    });

    const olmo = convertRope(s, 'huggingface', { modelType: 'olmo3', layerType: sliding }).arguments;
    assert.deepEqual((olmo.config as { rope_parameters: object }).rope_parameters, {
      [sliding]: { rope_theta: 20000, rope_type: 'default' },
    });
    assert.equal(olmo.config_before_transformers_5, undefined, 'which had no field for it');
    assert.throws(() => convertRope(s, 'gguf', { layerType: 1 as never }), {
      code: 'RANGE',
      message: /convert: layerType: expected a string, got 1/,
    });
  });

  test('the magnitude in GGUF: computed from the log multiplier where the mscales are as llama.cpp takes them', () => {
    const yarn = { kind: 'yarn', factor: 16, originalContext: 4096 } as const;
    const keys = (mscale: number, mscaleAllDim: number, architecture: string) => {
      const s: RopeSpec = {
        headDim: 64,
        pairing: 'interleaved',
        base: 1e4,
        scaling: { ...yarn, mscale, mscaleAllDim },
      };
      const all = convertRope(s, 'gguf', { architecture }).arguments;
      const scaling = `${architecture}.rope.scaling`;
      return [all[`${scaling}.yarn_log_multiplier`], all[`${scaling}.attn_factor`]];
    };
    assert.deepEqual(keys(0.8, 0.8, 'deepseek2'), [Math.fround(0.08), undefined]);
    assert.deepEqual(keys(1, 0.5, 'mistral3'), [0.5, undefined]);
    const [multiplier, factor] = keys(1, 0.8, 'deepseek2');
    assert.equal(multiplier, undefined);
    assert.ok(Math.abs((factor as number) * (1 + 0.08 * Math.log(16)) - 1) < 1e-6);
  });

  test('GPT-NeoX: its own old names, and a whole head is said', () => {
    const s: RopeSpec = { headDim: 64, pairing: 'half', base: 20000 };
    const { config, config_before_transformers_5: old } = convertRope(s, 'huggingface', {
      modelType: 'gpt_neox',
    }).arguments as Record<string, { model_type: string; [field: string]: unknown }>;
    assert.equal(config!.model_type, 'gpt_neox');
    assert.deepEqual([old!.rotary_pct, old!.rotary_emb_base, old!.rope_theta], [1, 20000, undefined]);
  });

  test('DeepSeek-V3: mode 3 of aclnn is its rotation; HuggingFace and GGUF have it, the latter in another layout with the same q·k', () => {
    const s = REAL['deepseek-v3']!;
    assert.equal(convertRope(s, 'aclnn').arguments.mode, 3);
    assert.equal((convertRope(s, 'huggingface').arguments.config as { model_type: string }).model_type, 'deepseek_v3');
    assert.deepEqual(convertRope(s, 'gguf', { modelType: 'deepseek_v3' }).relayout, {
      from: 'interleaved-to-half',
      to: 'interleaved',
      weights: 'none',
    });
  });
});

describe('cross-check: the arguments, run', () => {
  const positions = [0, 1, 40, 511];
  const seq = positions.length;
  const heads = 2;

  /** Rotates x `[seq, heads, head_dim]` by the record itself. Each of several axes has other positions. */
  function wanted(s: RopeSpec, x: Float64Array): { y: Float64Array; byAxis: number[][] } {
    const { numAxes } = sharePairs(s.axes, (s.rotaryDim ?? s.headDim) / 2);
    const byAxis = Array.from({ length: Math.max(4, numAxes) }, (_, a) =>
      positions.map((p) => (a === 0 ? p : Math.trunc(p / (a + 1)))),
    );
    const list = numAxes === 1 ? positions : byAxis.slice(0, numAxes).flat();
    const plan = planRope({ ...s, positions: list, tableDtype: 'f64' });
    const out = zeros('f64', [seq, heads, s.headDim]);
    rw.run(bindRope(plan, f64Tensor(x, [seq, heads, s.headDim]) as Tensor<'f64'>, out));
    return { y: floats(out), byAxis };
  }

  const xOf = (s: RopeSpec): Float64Array =>
    Float64Array.from({ length: seq * heads * s.headDim }, (_, n) => Math.fround(Math.sin(1 + 7.3 * n) + 0.1));

  /** An angle of f32 arguments is off by 2⁻²² of itself, as much as a few roundings of the data. */
  function assertTurned(
    got: ArrayLike<number>,
    s: RopeSpec,
    label: string,
    want: ArrayLike<number>,
    x: ArrayLike<number>,
  ): void {
    const size = 2 * Math.max(...Array.from(x, Math.abs)) * Math.max(1, Math.abs(effectiveRope(s).attentionFactor));
    for (let n = 0; n < want.length; n++) {
      const position = positions[Math.floor(n / (heads * s.headDim))]!;
      const fastest = Math.max(...effectiveRope(s).invFreq);
      const bound = size * (2 ** -22 + position * fastest * 2 ** -21);
      assert.ok(
        Math.abs(got[n]! - want[n]!) <= bound,
        `${label}: element ${n}, position ${position}: ${got[n]}, want ${want[n]}`,
      );
    }
  }

  const asF32 = (x: ArrayLike<number>, shape: readonly number[]): Tensor<'f32'> =>
    f64Tensor(x, shape, 'f32') as Tensor<'f32'>;

  const runners: Record<
    string,
    (c: Conversion, s: RopeSpec, x: Float64Array, byAxis: number[][]) => ArrayLike<number>
  > = {
    ggml: (c, s, x, byAxis) => {
      const p = c.arguments as Record<string, number> & {
        freq_factors: unknown;
        sections: unknown;
        position_axes: unknown;
      };
      const a = ggml.ggmlTensor('f32', Float32Array.from(x), { ne: [s.headDim, heads, seq] });
      const axes = (p.position_axes as string[] | undefined) ?? ['t', 'h', 'w', 'e'];
      const b = p.sections ? axes.flatMap((axis) => byAxis['thwe'.indexOf(axis)]!) : positions;
      const bt = ggml.ggmlTensor('i32', Int32Array.from(b), { ne: [b.length] });
      const factors = p.freq_factors as number[] | null;
      const ct = factors && ggml.ggmlTensor('f32', Float32Array.from(factors), { ne: [factors.length] });
      const rest = [p.n_ctx_orig, p.freq_base, p.freq_scale, p.ext_factor, p.attn_factor, p.beta_fast, p.beta_slow] as [
        number,
        number,
        number,
        number,
        number,
        number,
        number,
      ];
      const extras = { n_offs: p.n_offs ?? 0 };
      const out = p.sections
        ? ggml.ropeMulti(rw, a, bt, ct, p.n_dims!, p.sections as number[], p.mode!, ...rest, extras)
        : ggml.ropeExt(rw, a, bt, ct, p.n_dims!, p.mode!, ...rest, extras);
      return floats(out.tensor);
    },
    cann: (c, s, x, byAxis) => {
      const p = c.arguments as unknown as cann.CannRopeArguments<'f32'> & {
        D: number;
        position_axes?: string[];
        freq_factors: unknown;
      };
      const axes = p.position_axes ?? ['t', 'h', 'w', 'e'];
      const pos = p.sections ? axes.flatMap((axis) => byAxis['thwe'.indexOf(axis)]!) : positions;
      const { D: _, position_axes: __, freq_factors, ...rest } = p;
      const factors = freq_factors as unknown as number[] | null;
      return floats(
        cann.rope(rw, {
          ...rest,
          src0: asF32(x, [1, seq, heads, s.headDim]),
          pos: tensorFrom(Int32Array.from(pos)),
          freq_factors: factors && (tensorFrom(Float32Array.from(factors)) as Tensor<'f32'>),
        }),
      );
    },
    onnx: (c, s, x) => {
      const { head_size: _, scale: __, is_packed_batching: ___, ...attributes } = c.arguments as Record<string, number>;
      const [cos, sin] = ['cos_cache', 'sin_cache'].map((name) => c.tables.find((t) => t.name === name)!);
      const X = asF32(x, [seq, heads, s.headDim]).unsqueeze().permute([0, 2, 1, 3]);
      const Y = rotaryEmbedding(
        rw,
        {
          X,
          cos_cache: asF32(cos!.data, cos!.shape),
          sin_cache: asF32(sin!.data, sin!.shape),
          position_ids: tensorFrom(BigInt64Array.from(positions.map(BigInt)), { shape: [1, seq] }) as Tensor<'i64'>,
        },
        attributes,
      );
      return floats(Y.permute([0, 2, 1, 3]));
    },
    infiniop: (c, s, x, byAxis) => {
      const p = c.arguments as Record<string, number>;
      const [sin, cos] = c.tables;
      const y = Float32Array.from(x);
      if (c.arguments.mrope_section) return runMRope(c, s, x, byAxis);
      const shape = [seq, heads, p.dhead!];
      const stride = p.head_stride ?? p.dhead!;
      const F32 = io.INFINI_DTYPE.F32;
      const part = io.infiniopCreateTensorDescriptor(3, shape, [heads * stride, stride, 1], F32);
      const pos = io.infiniopCreateTensorDescriptor(1, [seq], null, io.INFINI_DTYPE.I32);
      const table = io.infiniopCreateTensorDescriptor(2, sin!.shape, null, F32);
      const made = io.infiniopCreateRoPEDescriptor(rw, part, part, pos, table, table, p.algo!);
      assert.equal(made.status, 0, made.error?.message);
      const at = y.subarray(p.x_offset ?? 0); // The call works in place, so the rest stays.
      const ran = io.infiniopRoPE(made.descriptor!, null, 0, at, at, Int32Array.from(positions), sin!.data, cos!.data);
      assert.equal(ran.status, 0, ran.error?.message);
      return y;
    },
    aclnn: (c, s, x) => {
      const p = c.arguments as { mode: number; slice?: number[] };
      const [cos, sin] = c.tables;
      // Each token has a row: those of these positions.
      const width = cos!.shape[3]!;
      const gather = (data: Float32Array): Tensor<'f32'> =>
        asF32(
          positions.flatMap((row) => Array.from(data.subarray(row * width, (row + 1) * width))),
          [1, seq, 1, width],
        );
      const whole = asF32(x, [1, seq, heads, s.headDim]);
      const [start, end] = p.slice ?? [0, s.headDim];
      const out = cann.aclnnRotaryPositionEmbedding(
        rw,
        whole.slice(3, start!, end!),
        gather(cos!.data),
        gather(sin!.data),
        p.mode,
      );
      const y = Float64Array.from(x);
      const turned = floats(out);
      for (let row = 0; row < seq * heads; row++)
        y.set(turned.subarray(row * width, (row + 1) * width), row * s.headDim + start!);
      return y;
    },
    // There is no dialect for MLX, so this is the formula of mlx/fast.cpp.
    mlx: (c, s, x) => {
      const {
        dims,
        traditional,
        base,
        scale,
        freqs,
        mscale = 1,
      } = c.arguments as unknown as {
        dims: number;
        traditional: boolean;
        base: number | null;
        scale: number;
        freqs: number[] | null;
        mscale?: number;
      };
      return turnBy(x, s.headDim, dims, traditional, (p, j) => {
        const angle = p * scale * (freqs ? 1 / freqs[j]! : Math.exp((-j * Math.log(base!)) / (dims / 2)));
        return [mscale * Math.cos(angle), mscale * Math.sin(angle)];
      });
    },
    // This is the formula of pos_enc.cuh: the step of Llama 3.1 is a clamped line.
    flashinfer: (c, s, x) => {
      const p = c.arguments as Record<string, number> & { interleave: boolean; is_neox: boolean };
      const cache = c.tables[0];
      if (cache) {
        const width = cache.shape[1]!;
        const at = (q: number, i: number): number => cache.data[q * width + i]!;
        return turnBy(x, s.headDim, p.rotary_dim!, !p.is_neox, (q, j) => [at(q, j), at(q, width / 2 + j)]);
      }
      const llama31 = c.call.includes('llama31');
      const a = llama31 ? p.old_context_len! / (2 * Math.PI * (p.high_freq_factor! - p.low_freq_factor!)) : 0;
      const b = llama31 ? -1 / (p.high_freq_factor! / p.low_freq_factor! - 1) : 0;
      return turnBy(x, s.headDim, p.rotary_dim!, p.interleave, (q, j) => {
        const freq = (1 / p.rope_theta!) ** ((2 * j) / p.rotary_dim!);
        const smooth = Math.max(0, Math.min(1, freq * a + b));
        const angle = q * ((1 - smooth) * (freq / p.rope_scale!) + smooth * freq);
        return [Math.cos(angle), Math.sin(angle)];
      });
    },
  };
  // These are the formulas of _compute_inv_freq in each of vLLM's classes.
  runners.vllm = (c, s, x) => {
    const p = c.arguments as {
      head_size: number;
      max_position: number;
      is_neox_style: boolean;
      rope_parameters: Record<string, unknown>;
    };
    const r = p.rope_parameters as Record<string, number> & { short_factor: number[]; long_factor: number[] };
    const dim = Math.trunc(p.head_size * (r.partial_rotary_factor ?? 1));
    const type = p.rope_parameters.rope_type as string;
    const turned = type === 'proportional' ? p.head_size : dim;
    const plain = (j: number): number => r.rope_theta! ** ((-2 * j) / turned);
    const original = r.original_max_position_embeddings!;
    const yarnGain = r.factor! <= 1 ? 1 : 0.1 * Math.log(r.factor!) + 1;
    const correction = (rotations: number): number =>
      (dim * Math.log(original / (rotations * 2 * Math.PI))) / (2 * Math.log(r.rope_theta!));
    let [low, high] = [correction(r.beta_fast ?? 32), correction(r.beta_slow ?? 1)];
    if (p.rope_parameters.truncate !== false) [low, high] = [Math.floor(low), Math.ceil(high)];
    [low, high] = [Math.max(low, 0), Math.min(high, dim - 1)];
    if (low === high) high += 0.001;
    const beyond = ((s.scaling?.kind === 'longrope' && s.scaling.context) || p.max_position) > original;
    const kinds: Record<string, (j: number) => number> = {
      default: plain,
      linear: (j) => plain(j) / r.factor!,
      proportional: (j) => (j < Math.floor(dim / 2) ? plain(j) : 0),
      llama3: (j) => {
        const wave = (2 * Math.PI) / plain(j);
        const smooth = (original / wave - r.low_freq_factor!) / (r.high_freq_factor! - r.low_freq_factor!);
        if (wave < original / r.high_freq_factor!) return plain(j);
        return wave > original / r.low_freq_factor!
          ? plain(j) / r.factor!
          : ((1 - smooth) * plain(j)) / r.factor! + smooth * plain(j);
      },
      yarn: (j) => {
        const mask = (1 - Math.min(1, Math.max(0, (j - low) / (high - low)))) * (r.extrapolation_factor ?? 1);
        return (plain(j) / r.factor!) * (1 - mask) + plain(j) * mask;
      },
      longrope: (j) => plain(j) / (beyond ? r.long_factor : r.short_factor)[j]!,
    };
    const gain =
      type === 'yarn'
        ? yarnGain * (r.attn_factor ?? 1)
        : type === 'longrope'
          ? beyond
            ? r.long_mscale!
            : r.short_mscale!
          : 1;
    return turnBy(x, s.headDim, turned, !p.is_neox_style, (q, j) => {
      const angle = q * kinds[type]!(j);
      return [gain * Math.cos(angle), gain * Math.sin(angle)];
    });
  };
  runners.onnxruntime = runners.onnx!;

  /** Rotates by cos and sin of each position and pair, neighbours or halves, from dimension 0. */
  function turnBy(
    x: Float64Array,
    headDim: number,
    dims: number,
    neighbors: boolean,
    at: (p: number, j: number) => [number, number],
  ) {
    const y = Float64Array.from(x);
    for (let row = 0; row < seq * heads; row++) {
      for (let j = 0; j < dims / 2; j++) {
        const [c, s] = at(positions[Math.floor(row / heads)]!, j);
        const [i0, i1] = neighbors ? [2 * j, 2 * j + 1] : [j, j + dims / 2];
        const [x0, x1] = [x[row * headDim + i0]!, x[row * headDim + i1]!];
        y[row * headDim + i0] = x0 * c - x1 * s;
        y[row * headDim + i1] = x0 * s + x1 * c;
      }
    }
    return y;
  }

  function runMRope(c: Conversion, s: RopeSpec, x: Float64Array, byAxis: number[][]): ArrayLike<number> {
    const p = c.arguments as unknown as {
      head_size: number;
      rotary_dim: number;
      mrope_section: number[];
      mrope_interleaved: boolean;
    };
    const [sin, cos] = c.tables;
    const { F32, I32 } = io.INFINI_DTYPE;
    const rows = io.infiniopCreateTensorDescriptor(2, [seq, heads * s.headDim], null, F32);
    const table = io.infiniopCreateTensorDescriptor(2, sin!.shape, null, F32);
    const tensors = {
      q_out: rows,
      k_out: rows,
      q: rows,
      k: rows,
      cos: table,
      sin: table,
      positions: io.infiniopCreateTensorDescriptor(2, [3, seq], null, I32),
    };
    const sizes = { num_q_heads: heads, num_kv_heads: heads, head_size: p.head_size, rotary_dim: p.rotary_dim };
    const made = io.infiniopCreateMRoPEDescriptor(rw, tensors, {
      ...sizes,
      mrope_section: p.mrope_section,
      mrope_interleaved: p.mrope_interleaved,
    } as never);
    assert.equal(made.status, 0, made.error?.message);
    const [q, k] = [Float32Array.from(x), Float32Array.from(x)];
    const memory = {
      q_out: q,
      k_out: k,
      q,
      k,
      cos: cos!.data,
      sin: sin!.data,
      positions: Int32Array.from(byAxis.slice(0, 3).flat()),
    };
    const ran = io.infiniopMRoPE(made.descriptor!, memory);
    assert.equal(ran.status, 0, ran.error?.message);
    assert.deepEqual(q, k);
    return q;
  }

  for (const [target, run] of Object.entries(runners)) {
    test(`${target}: generated records rotate like the record itself`, () => {
      let ran = 0;
      fc.assert(
        fc.property(spec, (s) => {
          const conversion = tryConvert(s, target, { positions: 512 });
          if (!conversion || (target === 'vllm' && s.axes)) return;
          const x = xOf(s);
          const { y, byAxis } = wanted(s, x);
          assertTurned(run(conversion, s, x, byAxis), s, conversion.call, y, x);
          ran++;
        }),
        drawn(80),
      );
      if (FUZZ === 10) assert.ok(ran >= 12, `${ran} of 80 records could be said`);
    });

    test(`${target}: real models rotate like the record itself`, () => {
      for (const [name, s] of some(Object.entries(REAL))) {
        const conversion = tryConvert(s, target, { positions: 512 });
        if (!conversion || (target === 'vllm' && s.axes)) continue;
        const x = xOf(s);
        const { y, byAxis } = wanted(s, x);
        assertTurned(run(conversion, s, x, byAxis), s, `${name}, ${conversion.call}`, y, x);
      }
    });
  }
});

describe('refusals', () => {
  const half: RopeSpec = { headDim: 64, pairing: 'half', base: 10000 };
  const offset: RopeSpec = { ...half, rotaryDim: 32, rotaryOffset: 8 };
  const refused: readonly (readonly [string, RopeSpec, string, RegExp])[] = [
    [
      'neighbours into halves',
      REAL['deepseek-v3']!,
      'ggml',
      /mode has no value for reading interleaved pairs and writing halves\. Use pairing interleaved: .* q·k is the same/,
    ],
    [
      'neighbours into halves',
      REAL['deepseek-v3']!,
      'onnx',
      /interleaved has no value for reading interleaved pairs and writing halves/,
    ],
    [
      'a window',
      offset,
      'onnx',
      /the node rotates the first rotary_embedding_dim dimensions, and this window starts at 8\. Put Split before/,
    ],
    ['a window', offset, 'mlx', /dims counts from dimension 0, and this window starts at 8/],
    ['a window', offset, 'gguf', /no key says where the window starts/],
    ['a window', offset, 'huggingface', /no field says where the window starts/],
    ['several axes', REAL['qwen2-vl']!, 'mlx', /one position a token/],
    ['several axes', REAL['qwen2-vl']!, 'onnxruntime', /MRotaryEmbedding takes position_ids \[3, batch, seq\]/],
    [
      'several axes of neighbours',
      { ...REAL['qwen2-vl']!, pairing: 'interleaved' },
      'ggml',
      /its modes with several axes have half pairing/,
    ],
    [
      'leftover pairs',
      REAL['qwen3-vl']!,
      'gguf',
      /gives pairs 61, 62 to the fourth axis, .* would lose up to 0\.108 rad at position 262,143/,
    ],
    [
      "ggml's leftover rule",
      { ...REAL['qwen3-vl']!, axes: { rule: 'interleaved-ggml', sections: [24, 20, 20, 0] } },
      'vllm',
      /vLLM rotates pair 61 by t/,
    ],
    [
      'free factors of neighbours',
      { ...half, pairing: 'interleaved', freqFactors: new Array(32).fill(1.5) },
      'vllm',
      /longrope, the only rope_type that takes factors, has half pairing only/,
    ],
    ['a vision tower', REAL['clip tower']!, 'huggingface', /is in its class, not in fields/],
    ['a magnitude of 0', { ...half, attentionFactor: 0 }, 'onnx', /cos at position 0 is the magnitude and cannot be 0/],
  ];
  for (const [what, s, target, message] of refused) {
    test(`${what}: ${target}`, () => {
      assert.throws(() => convertRope(s, target), { code: 'UNSUPPORTED', message });
    });
  }

  test('names', () => {
    assert.throws(() => convertRope(half, 'torch'), {
      code: 'FORMAT',
      message: /convert: --to: expected huggingface, gguf, .* got "torch"/,
    });
    assert.throws(() => convertRope(half, 'gguf', { architecture: 'gpt2' }), {
      code: 'UNSUPPORTED',
      message: /convert: --arch/,
    });
    assert.throws(() => convertRope({ ...half, pairing: 'interleaved' }, 'gguf', { architecture: 'qwen2' }), {
      code: 'UNSUPPORTED',
      message: /qwen2 has half pairing, this record interleaved\. Name an architecture/,
    });
    assert.throws(() => convertRope(half, 'onnx', { positions: 2 ** 30 }), {
      code: 'RANGE',
      message: /convert: --table-len/,
    });
  });

  test('what llama.cpp does not read for an architecture is not written for it', () => {
    const yarn: RopeSpec = {
      ...half,
      scaling: { kind: 'yarn', factor: 4, originalContext: 4096, betaFast: 8, betaSlow: 2 },
    };
    const said = (s: RopeSpec, architecture?: string) =>
      convertRope(s, 'gguf', architecture === undefined ? {} : { architecture }).arguments;
    assert.equal(said(yarn, 'mistral3')['mistral3.rope.scaling.yarn_beta_fast'], 8);
    // The architecture expresses it in factors, where it has them.
    assert.deepEqual(
      Object.keys(said(yarn, 'llama')).filter((key) => key.includes('yarn') || key.includes('freqs')),
      ['rope_freqs.weight'],
    );
    assert.equal(said(yarn)['general.architecture'], 'exaone');
    assert.throws(() => said(yarn, 'qwen2'), {
      code: 'UNSUPPORTED',
      message:
        /llama\.cpp reads no factors of frequencies for qwen2\. Name an architecture that has them with --arch: exaone/,
    });
    assert.throws(() => said({ ...half, rotaryDim: half.headDim / 2 }, 'qwen2'), {
      code: 'UNSUPPORTED',
      message:
        /llama\.cpp's qwen2 rotates whole heads, and this record \d+ of \d+ dimensions\. Name an architecture that rotates a part/,
    });
    const both = said({ ...REAL['llama-3.1']!, rotaryDim: 64 });
    assert.equal(both['general.architecture'], 'phi3');
    assert.deepEqual(both['rope_factors_long.weight'], both['rope_factors_short.weight']);
    assert.equal(said({ ...half, pairing: 'interleaved' }, 'cohere2')['cohere2.rope.dimension_count'], half.headDim);
    for (const architecture of ['gemma4', 'baichuan', 'deepseek4', 'glm4'])
      assert.equal(
        said(
          { ...half, pairing: GGUF_ARCHITECTURES[architecture]!.rope === 'norm' ? 'interleaved' : 'half' },
          architecture,
        )['general.architecture'],
        architecture,
      );
  });

  test('an architecture without axes: the keys would be read as another RoPE', () => {
    assert.throws(() => convertRope(REAL['qwen2-vl']!, 'gguf', { architecture: 'qwen2' }), {
      code: 'UNSUPPORTED',
      message:
        /cannot be expressed, because its arguments, read back, give another RoPE \(the axes of 48 pairs, the first one pair 16\)/,
    });
  });

  test("caches that are not a rotation by position, as in ONNX's own node tests", () => {
    const random = Float32Array.from(
      { length: 50 * 4 },
      (_, n) => Math.abs(Math.sin(n * 12.9898 + 1) * 43758.5453) % 1,
    );
    const given = new Map([
      ['cos_cache', { shape: [50, 4], data: random, roundoff: 2 ** -24 }],
      ['sin_cache', { shape: [50, 4], data: random.slice().reverse(), roundoff: 2 ** -24 }],
    ]);
    assert.throws(() => readForm({ cos_cache: 'c.npy', sin_cache: 's.npy' }, given, { where: 'node.json' }), {
      code: 'UNSUPPORTED',
      message: /node\.json: cos_cache: (cos|sin) of pair \d+ at position \d+: expected .* no record describes them\./,
    });
    given.set('cos_cache', { shape: [50, 4], data: new Float32Array(200).fill(Number.NaN), roundoff: 2 ** -24 });
    assert.throws(() => readForm({ cos_cache: 'c.npy', sin_cache: 's.npy' }, given, { where: 'x' }), {
      code: 'UNSUPPORTED',
      message: /cannot be NaN/,
    });
  });

  const tables = new Map<string, GivenTable>();
  const bad: readonly (readonly [string, unknown, RegExp])[] = [
    ['nothing', {}, /expected a config\.json, a record .* got \[\]/],
    ['a list', [], /expected an object, got \[\]/],
    ['an unknown target', { target: 'torch', arguments: {} }, /convert: --to/],
    [
      'a misspelt field',
      { headDim: 8, pairing: 'half', base: 1e4, rotary_dim: 4 },
      /x\.json: rotary_dim: expected one of headDim/,
    ],
    [
      'a misspelt scaling field',
      { headDim: 8, pairing: 'half', base: 1e4, scaling: { kind: 'linear', facto: 2 } },
      /scaling\.facto: expected one of kind, factor/,
    ],
    [
      'a scaling without its factor',
      { headDim: 8, pairing: 'half', base: 1e4, scaling: { kind: 'linear' } },
      /scaling\.factor: expected a value, got none/,
    ],
    ['an odd head', { headDim: 7, pairing: 'half', base: 1e4 }, /rotary_dim: expected an even integer/],
    ['a base of 0', { headDim: 8, pairing: 'half', base: 0 }, /base: expected a finite number > 0, got 0/],
    [
      'a mode of 3',
      { target: 'ggml', arguments: { ne0: 8, n_dims: 8, mode: 3 } },
      /ggml_rope: mode: expected 0 \(NORMAL\)/,
    ],
    [
      'caches without files',
      { cos_cache: 'cos.npy', sin_cache: 'sin.npy' },
      /cos_cache: expected the name of a \.npy file beside this one/,
    ],
    [
      'base beside freqs',
      { dims: 4, traditional: false, base: 1e4, freqs: [1, 2] },
      /base: fast\.rope takes base or freqs, not both\. Set base to null\./,
    ],
    [
      'a freq of 0',
      { dims: 4, traditional: false, freqs: [1, 0] },
      /freqs\[1\]: expected a reciprocal frequency other than 0/,
    ],
    [
      'freqs of another length',
      { dims: 4, traditional: false, freqs: [1] },
      /freqs: expected dims \/ 2 = 2 numbers, got 1/,
    ],
    [
      'an unknown rope_type',
      { head_size: 8, max_position: 9, rope_parameters: { rope_type: 'xdrope' } },
      /rope_type: expected default, linear/,
    ],
    [
      'a misspelt attribute of ONNX',
      { target: 'onnx', arguments: { head_size: 8, interleaved: 0, rotary_embeding_dim: 4 } },
      /rotary_embeding_dim: expected one of .*, got "rotary_embeding_dim"\. Did you mean rotary_embedding_dim\?/,
    ],
    [
      'an attribute of the other ONNX operator',
      { target: 'onnx', arguments: { head_size: 8, scale: 1 } },
      /scale: expected one of head_size, interleaved, rotary_embedding_dim, num_heads, cos_cache, sin_cache, got "scale"/,
    ],
    [
      'an odd head_size',
      { cos_cache: 'cos.npy', head_size: 9, rotary_embedding_dim: 8 },
      /cos_cache: expected the name of a \.npy file/,
    ],
    ['a misspelt argument of ggml', { ne0: 8, n_dims: 8, mode: 0, freq_bas: 5 }, /Did you mean freq_base\?/],
    ['a misspelt argument of MLX', { dims: 4, traditional: false, bases: 5 }, /Did you mean base\?/],
    ['a misspelt argument of InfiniOp', { algo: 1, dheads: 8 }, /Did you mean dhead\?/],
    ['a misspelt argument of vLLM', { head_size: 8, max_position: 9, rope_parameters: {}, is_neox: 1 }, /is_neox/],
    ['quarter', { target: 'aclnn', arguments: { mode: 2, cos: 'c.npy' } }, /cos: expected the name of a \.npy file/],
  ];
  for (const [what, json, message] of bad) {
    test(`reading ${what}`, () => {
      assert.throws(() => readForm(json, tables, { where: 'x.json' }), { name: 'RopewalkError', message });
    });
  }

  test('any JSON is read or refused', () => {
    const codes = ['FORMAT', 'RANGE', 'SHAPE', 'UNSUPPORTED', 'DTYPE'];
    const value = fc.oneof(
      fc.integer({ min: -3, max: 40 }),
      fc.double(),
      fc.boolean(),
      fc.constantFrom('half', 'yarn', 'BSND', 'linear', 'x.npy', null),
      fc.array(fc.integer({ min: 0, max: 8 }), { maxLength: 5 }),
    );
    const keys = NAMES.flatMap((target) => {
      const conversion = tryConvert(REAL['llama-3.1']!, target);
      return conversion ? Object.keys(conversion.arguments) : [];
    });
    const table = { shape: [3, 4], data: new Float32Array(12).fill(0.5), roundoff: 2 ** -24 };
    fc.assert(
      fc.property(
        fc.constantFrom(...NAMES),
        fc.dictionary(fc.constantFrom(...keys), value, { maxKeys: 8 }),
        (target, json) => {
          for (const given of [
            new Map(),
            new Map(
              ['cos_cache', 'sin_cache', 'cos', 'sin', 'sin_table', 'cos_table', 'cos_sin_cache'].map((name) => [
                name,
                table,
              ]),
            ),
          ]) {
            mustRefuseOrReturn(() => readForm({ target, arguments: json }, given, { where: 'x.json' }), codes);
            mustRefuseOrReturn(() => readForm(json, given, { where: 'x.json' }), codes);
          }
        },
      ),
      drawn(500),
    );
  });

  test('a real form with one value changed is read or refused', () => {
    const value = fc.constantFrom(0, -1, 1e300, 2 ** 31, Number.NaN, '', null, [], {}, [1, 'x'], true);
    for (const target of NAMES) {
      const conversion = tryConvert(REAL['llama-3.1']!, target, { positions: 4 })!;
      fc.assert(
        fc.property(fc.constantFrom(...Object.keys(conversion.arguments)), value, (key, changed) => {
          const json = { target, arguments: { ...conversion.arguments, [key]: changed } };
          mustRefuseOrReturn(
            () => readForm(json, tablesOf(conversion), { where: 'x.json' }),
            ['FORMAT', 'RANGE', 'SHAPE', 'UNSUPPORTED', 'DTYPE'],
          );
        }),
        drawn(60),
      );
    }
  });
});

describe('records', () => {
  test('a record goes through JSON unchanged', () => {
    fc.assert(
      fc.property(spec, (s) => {
        assert.deepEqual(specFromJson(JSON.parse(JSON.stringify(specToJson(s))), 'x'), JSON.parse(JSON.stringify(s)));
      }),
      drawn(),
    );
    const typed = { headDim: 4, pairing: 'half' as const, base: 10, freqFactors: Float32Array.of(1, 2) };
    assert.deepEqual(specToJson(typed).freqFactors, [1, 2]);
  });
});
