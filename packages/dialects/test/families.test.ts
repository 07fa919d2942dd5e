/**
 * Tests the RoPE of 30 small models, read from GGUF and from HuggingFace files, against llama.cpp's calls, layer by
 * layer.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { readModelRope } from '@ropewalk/checkpoint/node';
import { permutedRows } from '@ropewalk/dialects/internal/models';
import { SAFETENSORS_INDEX, safetensorsShards } from '@ropewalk/formats';
import { checkShard } from '@ropewalk/formats/internal';
import { readGgufHeader, readGgufModel, readSafetensorsHeader } from '@ropewalk/formats/node';
import { nmse } from '@ropewalk/oracle';
import { type GgmlRopeParams, ropeByFormula } from '@ropewalk/oracle/internal';
import type { RopeSpec } from 'ropewalk';
import { bindRope, planRope } from 'ropewalk';
import { randomFrom } from 'ropewalk/internal';
import { referenceRunner } from 'ropewalk/reference';
import { FAMILIES } from '../../../test/support/fixtures.js';
import { HF_FAMILIES, writeHuggingFace } from '../../../test/support/huggingface-folder.js';
import { f64Tensor, floats } from '../../../test/support/tensors.js';
import { distanceOf } from '../src/convert/effective.js';
import { ropeFromConfig } from '../src/huggingface.js';
import {
  type ComparedSide,
  compareModels,
  convertRope,
  effectiveRope,
  groupLayers,
  type ModelRope,
  modelTypeOf,
} from '../src/index.js';

/** The arguments of ggml_rope_ext, ggml_rope_multi and ggml_soft_max_ext in llama.cpp's graph. */
interface Executed {
  readonly n_ctx: number;
  readonly tokens: number;
  readonly layers: readonly {
    readonly rope?: {
      readonly mode: 0 | 2 | 8 | 40;
      readonly dims: number;
      readonly freqBase: number;
      readonly freqScale: number;
      readonly extFactor: number;
      readonly attnFactor: number;
      readonly betaFast: number;
      readonly betaSlow: number;
      readonly nCtxOrig: number;
      readonly sections: readonly number[];
      readonly factors: string;
    };
    /** The view of a head that rotates. DeepSeek's k has only the part with positions. */
    readonly k?: { readonly headDim: number; readonly offset: number };
    /** The window, where there are more tokens than it has. */
    readonly attention: { readonly keysSeenByLastToken: number };
  }[];
}

const rw = referenceRunner();
/** The positions of t, h, w and e: first of text, then of images, where they differ. llama.cpp's e is 0. */
const AXES = [
  [0, 1, 37, 200, 511, 4095],
  [0, 1, 37, 100, 255, 2047],
  [0, 1, 37, 66, 170, 1365],
  [0, 0, 0, 0, 0, 0],
] as const;
const TOKENS = AXES[0].length;

const folder = mkdtempSync(join(tmpdir(), 'families-'));
after(() => rmSync(folder, { recursive: true }));

/** Rotates a head by ggml's formula. */
function executedOn(
  x: Float64Array,
  { rope, k }: Executed['layers'][number],
  factors: ReadonlyMap<string, Float32Array>,
) {
  const { mode, dims, sections, freqBase, freqScale, extFactor, attnFactor, betaFast, betaSlow, nCtxOrig } = rope!;
  const params: GgmlRopeParams = {
    ne: [k!.headDim, 1, TOKENS, 1],
    n_dims: dims,
    mode,
    sections,
    n_ctx_orig: nCtxOrig,
    freq_base: freqBase,
    freq_scale: freqScale,
    ext_factor: extFactor,
    attn_factor: attnFactor,
    beta_fast: betaFast,
    beta_slow: betaSlow,
    n_offs: k!.offset,
    forward: true,
  };
  return ropeByFormula(params, x, mode >= 8 ? AXES.flat() : AXES[0], factors.get(rope!.factors));
}

/** Rotates the head by a record. */
function recordOn(x: Float64Array, spec: RopeSpec): Float64Array {
  const positions = AXES.slice(0, spec.axes?.sections.length ?? 1).flat();
  const out = f64Tensor(new Float64Array(x.length), [TOKENS, 1, spec.headDim]);
  rw.run(bindRope(planRope({ ...spec, positions, tableDtype: 'f64' }), f64Tensor(x, out.shape), out));
  return floats(out);
}

/** Moves the pairs of a head, which are neighbours, half a head apart. */
function toHalves(x: Float64Array, headDim: number): Float64Array {
  const rows = permutedRows(headDim, 'half');
  return x.map((_value, n) => x[n - (n % headDim) + rows[n % headDim]!]!);
}

/** Checks that every layer of a model does the same as llama.cpp. */
function checkModel(model: ModelRope, executed: Executed, factors: ReadonlyMap<string, Float32Array>): void {
  assert.equal(model.layers.length, executed.layers.length);
  for (const [n, layer] of executed.layers.entries()) {
    const { rope, window = executed.tokens } = model.layers[n]!;
    assert.equal(Math.min(window, executed.tokens), layer.attention.keysSeenByLastToken, `the window of layer ${n}`);
    assert.equal(rope !== undefined, layer.rope !== undefined, `whether layer ${n} rotates`);
    if (!rope || !layer.rope) continue;
    const { headDim } = layer.k!;
    assert.equal(rope.headDim, headDim);
    const random = randomFrom(`layer ${n}`);
    const x = Float64Array.from({ length: TOKENS * headDim }, () => random.uniform(-1, 1));
    // HuggingFace's weights are not interleaved where llama.cpp's converter interleaves them.
    const half = layer.rope.mode === 0 && rope.pairing !== 'interleaved';
    const want = executedOn(x, layer, factors);
    const got = recordOn(half && rope.pairing === 'half' ? toHalves(x, headDim) : x, rope);
    const error = nmse(got, half ? toHalves(want, headDim) : want);
    // ggml takes its numbers in f32: an angle of 4095 radians is off by 4095 × 2^-24.
    assert.ok(error < (4095 * 2 ** -24) ** 2, `layer ${n}: NMSE ${error}`);
  }
}

test('windows that differ are named, and are not a difference of RoPE', () => {
  const rope = { headDim: 8, pairing: 'half' as const, base: 10000 };
  const model = (windows: readonly (number | undefined)[]): ComparedSide => {
    const layers = windows.map((window, layer) => ({ layer, window, rope }));
    const facts = { source: 'gguf', architecture: 'x', known: true, maxContext: 64, notes: [] } as const;
    return { rope: { ...facts, numLayers: windows.length, layers }, recipe: 'float64' };
  };
  const { same, notes } = compareModels(model([9, undefined, 9]), model([undefined, undefined, undefined]), [1]);
  assert.ok(same);
  assert.deepEqual(notes, ['Layers 0, 2 see the last 9 tokens in A and all tokens in B. This is not part of RoPE.']);
  assert.deepEqual(compareModels(model([9]), model([9]), [1]).notes, []);
  const longer = compareModels(model([9, 9]), model([9]), [1]);
  assert.deepEqual([longer.same, longer.agreement, longer.reason], [false, 'exact', 'The same RoPE to the last bit.']);
  assert.deepEqual(
    groupLayers((model([9, 9, 8]).rope as ModelRope).layers).map(({ layers, window }) => [layers, window]),
    [
      [[0, 1], 9],
      [[2], 8],
    ],
  );
});

describe('what llama.cpp executed, layer by layer', () => {
  for (const name of HF_FAMILIES) {
    test(name, async () => {
      const path = join(FAMILIES, `${name}.gguf`);
      const executed: Executed = JSON.parse(readFileSync(join(FAMILIES, `${name}.rope.json`), 'utf8'));
      const { factors } = await readGgufModel(path);
      const own = join(folder, name);
      await writeHuggingFace(path, own);
      const [gguf, huggingface] = [await readModelRope(path, executed.n_ctx), await readModelRope(own, executed.n_ctx)];
      checkModel(gguf, executed, factors);
      checkModel(huggingface, executed, factors);
      assert.ok(huggingface.known, 'a model type that the table has');
      const { same, groups } = compareModels(
        { rope: gguf, recipe: 'float64' },
        { rope: huggingface, recipe: 'float64' },
        [1, 4095],
      );
      assert.ok(same, groups.flatMap(({ verdict }) => verdict).join('\n'));
    });
  }
});

/** Checks that dimensions, axes and angles are the same, up to f32. */
function assertSame(a: RopeSpec, b: RopeSpec, where: string): void {
  const { differences, invFreq, attentionFactor } = distanceOf(effectiveRope(a), effectiveRope(b));
  assert.deepEqual(differences, [], where);
  assert.ok(Math.max(invFreq, attentionFactor) <= 2 ** -21, `${where}: ${invFreq}, ${attentionFactor}`);
}

describe('convert: config.json → GGUF keys → config.json, each in the names of the family', () => {
  for (const name of HF_FAMILIES) {
    test(name, async () => {
      const path = join(FAMILIES, `${name}.gguf`);
      const own = join(folder, `${name}-config`);
      await writeHuggingFace(path, own);
      const { n_ctx: context }: Executed = JSON.parse(readFileSync(join(FAMILIES, `${name}.rope.json`), 'utf8'));
      const { metadata } = await readGgufHeader(path);
      const [gguf, huggingface] = [await readModelRope(path, context), await readModelRope(own, context)];
      for (const [n, { rope, layerType }] of huggingface.layers.entries()) {
        if (!rope || (n > 0 && huggingface.layers[n - 1]!.rope === rope)) continue;
        const where = `layer ${n}`;
        const modelType = huggingface.architecture;
        const keys = convertRope(rope, 'gguf', { context, modelType, layerType });
        assert.equal(keys.arguments['general.architecture'], gguf.architecture);
        for (const [key, value] of Object.entries(keys.arguments))
          if (metadata.has(key)) assert.deepEqual(value, metadata.get(key), key);
        const fields = convertRope(keys.readBack, 'huggingface', { context, modelType, layerType });
        assert.equal((fields.arguments.config as { model_type: string }).model_type, modelType);
        // One converter permutes these weights, and the other permutes them back.
        assert.equal(fields.relayout?.weights, keys.relayout?.weights);
        const back = keys.relayout ? { ...fields.readBack, pairing: rope.pairing } : fields.readBack;
        assertSame(back, rope, where);
        // This reads the GGUF file itself, without the name of the model type.
        const known = modelTypeOf(gguf.architecture);
        const given = gguf.layers[n]!;
        const direct = convertRope(given.rope!, 'huggingface', {
          context,
          modelType: known,
          layerType: given.layerType,
        });
        assert.equal((direct.arguments.config as { model_type: string }).model_type, known);
        assertSame({ ...direct.readBack, pairing: rope.pairing }, rope, where);
      }
    });
  }
});

interface Config extends Record<string, unknown> {
  readonly model_type: string;
  readonly num_hidden_layers: number;
  readonly rope_scaling?: { readonly type?: string } | null;
}

/** Writes RoPE's fields as transformers 5 does: all in rope_parameters, by layer type where the class has two. */
function inFreshForm(config: Config): Record<string, unknown> {
  const { rope_theta, rope_scaling, rope_local_base_freq, rotary_emb_base, rotary_pct, ...rest } = config;
  const { partial_rotary_factor = rotary_pct, sliding_window_pattern, ...others } = rest;
  const { original_max_position_embeddings, model_type, num_hidden_layers } = config;
  const base = rope_theta ?? rotary_emb_base;
  const { type = 'default', ...scaling } = rope_scaling ?? {};
  const rope_type = type.replace('mrope', 'default');
  const own = { rope_type, rope_theta: base, partial_rotary_factor, original_max_position_embeddings, ...scaling };
  const local = { rope_type: 'default', rope_theta: rope_local_base_freq ?? base };
  const byType = /^(gemma3|olmo3)/.test(model_type);
  const rope_parameters = byType ? { full_attention: own, sliding_attention: local } : own;
  const layer_types = Array.from({ length: num_hidden_layers }, (_layer, n) =>
    sliding_window_pattern && (n + 1) % Number(sliding_window_pattern) !== 0 ? 'sliding_attention' : 'full_attention',
  );
  return { layer_types, ...others, rope_parameters };
}

test('config.json in the form of transformers 5 is the same', async () => {
  for (const name of HF_FAMILIES) {
    const own = join(folder, `${name}-fresh`);
    await writeHuggingFace(join(FAMILIES, `${name}.gguf`), own);
    const config = JSON.parse(readFileSync(join(own, 'config.json'), 'utf8'));
    const text = config.text_config ?? config;
    if (text.rope_parameters) continue; // This file is in that form already.
    const records = (json: unknown) => ropeFromConfig(json, { context: 256 }).layers.map(({ rope }) => rope);
    assert.deepEqual(records(inFreshForm(text)), records(config), name);
  }
});

test('the files have all weights, once, also in shards', async () => {
  for (const name of HF_FAMILIES) {
    const path = join(FAMILIES, `${name}.gguf`);
    const sharded = join(folder, `${name}-sharded`);
    await writeHuggingFace(path, sharded, { shards: 2 });
    const index = JSON.parse(readFileSync(join(sharded, SAFETENSORS_INDEX), 'utf8'));
    const shards = safetensorsShards(readdirSync(sharded), index, sharded, SAFETENSORS_INDEX);
    assert.equal(shards.size, 2);
    let elements = 0;
    for (const [file, claimed] of shards) {
      const { tensors } = await readSafetensorsHeader(join(sharded, file));
      checkShard(tensors, claimed, file);
      assert.equal(tensors.size, claimed!.length);
      for (const { sizeBytes } of tensors.values()) elements += sizeBytes / 4;
    }
    const { tensors } = await readGgufHeader(path);
    const weights = tensors.filter((tensor) => !tensor.name.startsWith('rope_'));
    const wanted = weights.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
    assert.equal(elements, wanted, name);
    assert.equal(index.metadata.total_size, 4 * elements);
  }
});
