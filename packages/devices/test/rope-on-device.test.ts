/** Checks which devices run the RoPE of published models, and that the forms which they get compute that RoPE. */
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { readModelRope } from '@ropewalk/checkpoint/node';
import { cann, huggingface } from '@ropewalk/dialects';
import { nmse } from '@ropewalk/oracle';
import { planRope, type RopeSpec, ropewalk } from 'ropewalk';
import { FAMILIES } from '../../../test/support/fixtures.js';
import { DEVICES, type RopeForm, type RopeVerdict, ropeOnDevice } from '../src/index.js';

/** The keys about RoPE of published config.json files. */
const CONFIGS = {
  'llama-3.1-8b': {
    model_type: 'llama',
    hidden_size: 4096,
    num_attention_heads: 32,
    num_key_value_heads: 8,
    num_hidden_layers: 32,
    max_position_embeddings: 131072,
    rope_theta: 500000,
    rope_scaling: {
      rope_type: 'llama3',
      factor: 8,
      low_freq_factor: 1,
      high_freq_factor: 4,
      original_max_position_embeddings: 8192,
    },
  },
  'phi-2': {
    model_type: 'phi',
    hidden_size: 2560,
    num_attention_heads: 32,
    num_hidden_layers: 32,
    max_position_embeddings: 2048,
    rope_theta: 10000,
    partial_rotary_factor: 0.4,
  },
  'qwen2.5-7b, yarn': {
    model_type: 'qwen2',
    hidden_size: 3584,
    num_attention_heads: 28,
    num_key_value_heads: 4,
    num_hidden_layers: 28,
    max_position_embeddings: 32768,
    rope_theta: 1000000,
    rope_scaling: { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 32768 },
  },
} as const;

const specOf = (name: keyof typeof CONFIGS): RopeSpec => huggingface.ropeFromConfig(CONFIGS[name]).layers[0]!.rope!;
const ask = (device: string, spec: RopeSpec, more: object = {}): RopeVerdict =>
  ropeOnDevice(device, { spec, heads: 32, kvHeads: 8, context: 2048, ...more });
const best = (device: string, spec: RopeSpec, more: object = {}): RopeForm => ask(device, spec, more).forms[0]!;

describe('published models', () => {
  test('Llama 3.1 in f16: one fused call on A2, two on 950, standard graphs where RotaryEmbedding is known', () => {
    const spec = specOf('llama-3.1-8b');
    const a2 = best('aclnn-a2', spec);
    assert.deepEqual([a2.operator, a2.calls, a2.right], ['aclnnApplyRotaryPosEmbV2', 1, true]);
    assert.deepEqual(a2.lost, ['cos and sin are in f16.']);
    assert.deepEqual(best('aclnn-950', spec).steps, ['tables-by-host', 'two-calls']);
    assert.equal(best('ort-webgpu', spec).onnx!.form, 'standard');
    assert.deepEqual(best('ort-cann', spec).onnx, {
      form: 'primitives',
      angles: 'f32-table',
      layout: 'bsnh',
      dtype: 'f16',
      opset: 18,
    });
    // CoreML refuses a Cast of a graph's input, so the table is in the data's dtype.
    assert.equal(best('ort-coreml', spec).onnx!.angles, 'f16-table');
    assert.equal(best('ort-coreml', spec, { dtype: 'f32' }).onnx!.angles, 'f32-table');
  });

  test('phi-2 rotates 32 of 80 dimensions: a window is copied where whole heads rotate', () => {
    const spec = specOf('phi-2');
    for (const device of ['aclnn-a2', 'aclnn-310p', 'aclnn-950', 'infiniop-ascend', 'cann-2024', 'ggml-cann-310p'])
      assert.ok(best(device, spec).steps.includes('window-copied'), device);
    assert.deepEqual(best('ggml-cann', spec).steps, ['two-calls']);
    // aclnnInplacePartialRotaryMul takes a slice, so it needs no copies, and f32 tables; but its pairs are interleaved.
    const partial = ask('aclnn-a2', spec).forms.find(({ operator }) => operator === 'aclnnInplacePartialRotaryMul')!;
    assert.deepEqual([partial.calls, partial.lost], [2, []]);
    assert.ok(partial.steps.includes('weights-permuted'));
  });

  test('YaRN: ignored by the twelve steps, refused after them, computed today', () => {
    const spec = specOf('qwen2.5-7b, yarn');
    const then = best('cann-2024', spec, { dtype: 'f32' });
    assert.deepEqual([then.right, then.lost[0]], [false, 'The ramp is ignored.']);
    const after = ask('ggml-cann-2024', spec, { dtype: 'f32' });
    assert.deepEqual(after.forms, []);
    assert.ok(after.refused.some(({ words }) => words === 'ext_factor is 0: no ramp'));
    assert.equal(best('ggml-cann', spec, { dtype: 'f32' }).right, true);
  });

  test('sizes decide: many heads, large heads, bf16', () => {
    const spec = specOf('llama-3.1-8b');
    assert.equal(best('aclnn-a2', spec, { heads: 256, kvHeads: 32 }).operator, 'aclnnRotaryPositionEmbedding');
    assert.deepEqual(ask('aclnn-310p', spec, { dtype: 'bf16' }).forms, []);
    assert.deepEqual(
      ask('ggml-cann', { headDim: 1024, pairing: 'half', base: 10000 }).refused[0]!.words,
      'ne0 is at most 896',
    );
    // 64 batches of 32 heads are too many in mode 1, unless they are tokens of TND.
    const interleaved: RopeSpec = { headDim: 128, pairing: 'interleaved', base: 10000 };
    const { forms } = ask('aclnn-a2', interleaved, { batch: 64 });
    const whole = forms.find(({ operator }) => operator === 'aclnnRotaryPositionEmbedding')!;
    assert.ok(whole.words.includes('x is handed over as tnh.'));
  });

  test('a vision tower: a mode of ggml, and half pairing where the host makes the tables', () => {
    const spec: RopeSpec = {
      headDim: 64,
      pairing: 'vision',
      base: 10000,
      axes: { rule: 'vision', sections: [16, 16, 0, 0] },
    };
    for (const device of ['ggml-cann', 'aclnn-a2', 'aclnn-950']) assert.equal(best(device, spec).right, true, device);
    assert.ok(best('ggml-cann', spec).precision!.maxError < 1e-4);
    assert.deepEqual(ask('ggml-cann-310p', spec).refused[0]!.here, 'rotaryDim 64, headDim 64, pairing vision');
    assert.equal(best('aclnn-a2', spec).steps.includes('weights-permuted'), false);
  });

  test('aclnnInplacePartialRotaryMul: tables for each batch on A2, for each head on 950', () => {
    const spec: RopeSpec = { headDim: 64, pairing: 'interleaved', base: 10000, rotaryDim: 32 };
    const repeated = (device: string, more: object) => {
      const { forms } = ask(device, spec, more);
      const { words } = forms.find(({ operator }) => operator === 'aclnnInplacePartialRotaryMul')!;
      return words.filter((sentence) => sentence.includes('repeated'));
    };
    assert.deepEqual(repeated('aclnn-a2', { batch: 1 }), []);
    assert.deepEqual(repeated('aclnn-a2', { batch: 2 }), ['cos and sin are repeated for each batch.']);
    assert.deepEqual(repeated('aclnn-a2', { batch: 2, batchPositions: true }), []);
    assert.deepEqual(repeated('aclnn-950', { batch: 1 }), ['cos and sin are repeated for each head.']);
    assert.deepEqual(repeated('aclnn-950', { batch: 2, seq: 1, batchPositions: true }), []);
  });

  test('the dtype is what the runtime rotates; QNN says what may happen to f32', () => {
    const spec = specOf('llama-3.1-8b');
    assert.deepEqual([ask('ggml-cann-2024', spec).dtype, ask('aclnn-a2', spec).dtype], ['f32', 'f16']);
    assert.equal(ask('ggml-cann-2024', spec).forms.length > 0, true);
    assert.match(best('ort-qnn', spec, { dtype: 'f32' }).lost[0]!, /f32 data in f16 where enable_htp_fp16_precision/);
    assert.ok(best('ort-qnn', spec, { dtype: 'f32' }).precision!.maxError > 1e-5);
    assert.deepEqual(best('ort-webgpu', spec, { dtype: 'f32' }).lost, []);
    assert.match(best('ggml-cann', spec, { dtype: 'f32' }).lost[0]!, /angles in f32/);
    assert.throws(() => ask('aclnn-a2', spec, { heads: 7, kvHeads: 3 }), { code: 'SHAPE' });
  });

  test('precision is that of the last position', () => {
    const spec = specOf('llama-3.1-8b');
    const [near, far] = [2048, 131072].map((context) => best('ggml-cann', spec, { context }).precision);
    assert.ok(near!.maxError < 1e-4 && far!.maxError > 1e-3, `${near!.maxError} ${far!.maxError}`);
    assert.match(best('ggml-cann', spec, { context: 131072 }).lost[0]!, /off by up to 3\.7e-3 at position 131071/);
    assert.ok(best('ort-webgpu', spec, { context: 131072 }).precision!.maxError < 6e-8);
  });
});

/** Carries out the steps of a form of aclnnRotaryPositionEmbedding, with our own operator, in f64 tables of f32 data. */
async function carryOut(form: RopeForm, spec: RopeSpec, x: Float32Array, tokens: number): Promise<Float32Array> {
  const rw = await ropewalk({ backend: 'reference' });
  const { headDim, rotaryDim, rotaryOffset, pairing, table } = planRope({
    ...spec,
    positions: [...Array(tokens).keys()],
  });
  const permuted = form.steps.includes('weights-permuted');
  const order = Array.from({ length: rotaryDim }, (_, i) => (i % 2) * (rotaryDim / 2) + Math.floor(i / 2)); // half → interleaved
  const places = (j: number): number => rotaryOffset + (permuted ? order[j]! : j);
  const window = Float32Array.from(
    { length: tokens * rotaryDim },
    (_, i) => x[Math.floor(i / rotaryDim) * headDim + places(i % rotaryDim)]!,
  );
  const interleaved = (pairing === 'interleaved') !== permuted;
  const wide = (values: ArrayLike<number>) =>
    rw.tensor(
      Float32Array.from({ length: tokens * rotaryDim }, (_, i) => {
        const [s, d] = [Math.floor(i / rotaryDim), i % rotaryDim];
        return values[s * (rotaryDim / 2) + (interleaved ? Math.floor(d / 2) : d % (rotaryDim / 2))]!;
      }),
      { shape: [1, tokens, 1, rotaryDim] },
    );
  const mode = interleaved ? 1 : 0;
  const rotated = await cann
    .aclnnRotaryPositionEmbedding(
      rw,
      rw.tensor(window, { shape: [1, tokens, 1, rotaryDim] }),
      wide(table.cos),
      wide(table.sin),
      mode,
    )
    .read();
  const y = x.slice();
  for (let i = 0; i < rotated.length; i++)
    y[Math.floor(i / rotaryDim) * headDim + places(i % rotaryDim)] = Number(rotated[i]);
  return y;
}

describe('forms are the RoPE that was asked for', () => {
  const specs: Readonly<Record<string, RopeSpec>> = {
    whole: { headDim: 32, pairing: 'half', base: 10000 },
    interleaved: { headDim: 32, pairing: 'interleaved', base: 10000 },
    partial: { headDim: 80, rotaryDim: 32, pairing: 'half', base: 10000 },
    behind: { headDim: 96, rotaryDim: 64, rotaryOffset: 32, pairing: 'half', base: 10000 },
  };
  for (const [name, spec] of Object.entries(specs)) {
    test(`${name}: every form of aclnn's operators on A2`, async () => {
      const tokens = 5;
      const x = Float32Array.from({ length: tokens * spec.headDim }, (_, i) => Math.sin(i * i + 1));
      const rw = await ropewalk({ backend: 'reference' });
      const shape = [tokens, 1, spec.headDim];
      const expected = await rw.rope(rw.tensor(x, { shape }), [...Array(tokens).keys()], spec).read();
      const { forms } = ropeOnDevice('aclnn-a2', { spec, dtype: 'f32', seq: tokens });
      assert.ok(forms.some(({ steps }) => steps.includes('weights-permuted')) || spec.pairing === 'interleaved');
      for (const form of forms.filter(({ steps }) => spec.pairing === 'half' || !steps.includes('weights-permuted'))) {
        const got = await carryOut(form, spec, x, tokens);
        assert.ok(nmse(got, expected) < 1e-13, `${form.operator} ${form.steps}: ${nmse(got, expected)}`);
      }
    });
  }
});

describe('every family', () => {
  for (const file of readdirSync(FAMILIES).filter((name) => name.endsWith('.gguf'))) {
    test(`${file}: each device has an answer for each layer`, async () => {
      const { layers } = await readModelRope(join(FAMILIES, file));
      const ropes = new Map(layers.flatMap(({ rope }) => (rope ? [[JSON.stringify(rope), rope]] : [])));
      for (const rope of ropes.values())
        for (const { name } of DEVICES) {
          const { forms, refused } = ropeOnDevice(name, { spec: rope, heads: 4, kvHeads: 2, context: 4096 });
          assert.equal(forms.length === 0, refused.length > 0, name);
        }
    });
  }
});
