/**
 * Gemma 3n: several residual streams, LAuReL, gates that are cut, a short table of per-layer embeddings.
 * transformers.test.ts has its logits, and transformers.python.test.ts those of llama.cpp.
 */
import assert from 'node:assert/strict';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { parseGguf, parseSafetensors, tensorFromSafetensors, writeSafetensors } from '@ropewalk/formats';
import { type Ropewalk, ropewalk, type Tensor, tensorFrom } from 'ropewalk';
import { check, savedFamily } from '../../../test/support/family-vectors.js';
import { kernelSequence } from '../../../test/support/kernel-sequence.js';
import { configFromGguf, configFromJson, normalQuantile } from '../src/config.js';
import { loadModelFile, loadModelFolder } from '../src/node.js';
import { writeGguf, writeSafetensorsFolder } from '../src/repack.node.js';
import { layoutOf } from '../src/weights.js';

const scratch = mkdtempSync(join(tmpdir(), 'ropewalk-gemma3n-'));
const saved = join(scratch, 'saved');
const { tokens, logits, writeTo } = savedFamily('gemma3n');
const jsonOf = (folder = saved) => JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8'));
let rw: Ropewalk;
before(async () => {
  rw = await ropewalk({ backend: 'cpu', threads: 1 });
  writeTo(saved);
});
after(() => {
  rw.dispose();
  rmSync(scratch, { recursive: true });
});

const options = () => ({ backend: rw, context: 64, tokenizer: false }) as const;
async function logitsOf(load: typeof loadModelFolder, path: string, ids = tokens): Promise<Float32Array> {
  const model = await load(path, options());
  return model
    .openSession()
    .append(ids, { logits: 'all' })
    .finally(() => model.dispose());
}

/** Copies the folder, with other tensors. */
function changed(name: string, change: (name: string, tensor: Tensor) => [string, Tensor]): string {
  const folder = join(scratch, name);
  cpSync(saved, folder, { recursive: true });
  const path = join(folder, 'model.safetensors');
  const bytes = readFileSync(path);
  const parsed = parseSafetensors(bytes);
  const all = [...parsed.tensors.keys()].map((one) => change(one, tensorFromSafetensors(bytes, parsed, one)));
  writeFileSync(path, writeSafetensors(new Map(all)));
  return folder;
}

describe('Gemma 3n: sessions', () => {
  test('the caches of layers with keys of their own, K-shift, and a prompt in pieces', async () => {
    const model = await loadModelFolder(saved, options());
    const [session, fresh] = [model.openSession(), model.openSession()];
    const keysOf = (one: typeof session): Float32Array =>
      kernelSequence(one).cache.k[0]!.slice(0, 0, one.length).contiguous().read() as Float32Array;
    await session.append(tokens, { logits: 'none' });
    const { k, v } = kernelSequence(session).cache;
    const held = [...k, ...v].reduce((sum, tensor) => sum + (tensor ? 4 * tensor.size : 0), 0);
    assert.equal(model.memory.cacheBytes, held);
    assert.deepEqual(Object.keys(k), ['0', '1', '2', '3'], 'two of six layers read those of others');
    await session.shift(3, 5);
    await fresh.append(tokens.toSpliced(3, 5), { logits: 'none' });
    for (const [n, want] of keysOf(fresh).entries()) assert.ok(Math.abs(keysOf(session)[n]! - want) < 1e-5);
    session.truncate(0);
    const start = await session.append(tokens.slice(0, 9), { logits: 'all' });
    const rest = await session.append(tokens.slice(9), { logits: 'all' });
    check(Float32Array.from([...start, ...rest]), logits, 2e-4, 'in pieces');
    model.dispose();
  });

  test('a stream that is nearly 0 is divided by the least magnitude, not by its own', async () => {
    const times = (factor: number) => (name: string, x: Tensor) =>
      [
        name,
        /altup_projections/.test(name)
          ? tensorFrom(
              Float32Array.from({ length: x.size }, (_, n) => factor * Math.sin(n)),
              { shape: x.shape },
            )
          : x,
      ] as [string, Tensor];
    const [whole, half, small, none] = await Promise.all(
      [1, 0.5, 1e-12, 0].map((factor) => logitsOf(loadModelFolder, changed(`times-${factor}`, times(factor)))),
    );
    check(half!, whole!, 1e-3, 'the magnitude of the projections does not matter');
    check(small!, none!, 1e-3, 'but for small ones');
    assert.ok(none!.every(Number.isFinite));
    assert.throws(() => check(small!, whole!, 0.1, 'small'));
  });

  test('published files: names of the class with images and sound, whose tensors are left out', async () => {
    const folder = changed('published', (name, x) => [
      name
        .replace(/^model\./, 'model.language_model.')
        .replace('per_layer_model_projection', 'per_layer_model.language_model_projection'),
      x,
    ]);
    const path = join(folder, 'model.safetensors');
    const bytes = readFileSync(path);
    const parsed = parseSafetensors(bytes);
    const all = new Map([...parsed.tensors.keys()].map((one) => [one, tensorFromSafetensors(bytes, parsed, one)]));
    const other = tensorFrom(new Float32Array(4));
    for (const name of ['vision_tower.timm_model.conv_stem.conv', 'audio_tower.conformer.0.norm', 'embed_audio.norm'])
      all.set(`model.${name}.weight`, other);
    // Layers that read the keys of another have their own nevertheless.
    for (const part of ['k_proj', 'v_proj', 'k_norm'])
      all.set(`model.language_model.layers.4.self_attn.${part}.weight`, other);
    writeFileSync(path, writeSafetensors(all));
    writeFileSync(join(folder, 'config.json'), JSON.stringify({ model_type: 'gemma3n', text_config: jsonOf() }));
    check(await logitsOf(loadModelFolder, folder), logits, 2e-4, 'published');
  });
});

describe('Gemma 3n: configs', () => {
  test('what config.json refuses', () => {
    const refuses = (changes: object, message: RegExp): void =>
      assert.throws(() => configFromJson({ ...jsonOf(), ...changes }), { code: 'FORMAT', message });
    refuses({ activation_sparsity_pattern: [0.5] }, /activation_sparsity_pattern: expected 6 numbers >= 0 and < 1/);
    refuses({ activation_sparsity_pattern: [1, 0, 0, 0, 0, 0] }, /expected 6 numbers >= 0 and < 1/);
    refuses({ altup_num_inputs: 1 }, /altup_num_inputs: expected an integer in \[2, 65536\], got 1/);
    refuses({ altup_active_idx: 3 }, /altup_active_idx: expected an integer in \[0, 2\], got 3/);
    refuses({ intermediate_size: [48, 48] }, /intermediate_size: expected 6 integers/);
    refuses({ num_kv_shared_layers: null }, /num_kv_shared_layers: expected a layer of \w+ before the layers/);
  });

  test("the defaults of transformers' class", () => {
    const { vocab_size, sliding_window, hidden_size } = jsonOf();
    const some = { model_type: 'gemma3n', vocab_size, sliding_window, hidden_size };
    const config = configFromJson({ ...some, intermediate_size: 16384, num_hidden_layers: 35, head_dim: 256 });
    const { altup, layerSizes, perLayerWidth, perLayerVocab, logitSoftcap } = config;
    const sparsity = [...new Array(10).fill(0.95), ...new Array(25).fill(0)];
    assert.deepEqual(altup, { streams: 4, active: 0, scaled: true, laurelRank: 64, sparsity });
    assert.deepEqual([perLayerWidth, perLayerVocab, logitSoftcap], [256, 262144, 30]);
    assert.deepEqual(
      [18, 19, 20, 24, 34].map((n) => layerSizes![n]!.sharesWith),
      [undefined, undefined, 18, 19, 19],
    );
    const shallow = { ...some, intermediate_size: 64, num_hidden_layers: 10, head_dim: 256, num_kv_shared_layers: 0 };
    assert.deepEqual(configFromJson(shallow).altup!.sparsity, new Array(10).fill(0));
  });

  test('quantiles of the normal distribution', () => {
    // scipy.stats.norm.ppf
    const known: [number, number][] = [
      [0.95, 1.6448536269514722],
      [0.3, -0.5244005127080407],
      [0.5, 0],
      [0.999, 3.090232306167813],
      [0.9999999, 5.199337582187471],
    ];
    for (const [share, want] of known) assert.ok(Math.abs(normalQuantile(share) - want) < 1e-7, `${share}`);
    assert.equal(normalQuantile(0), Number.NEGATIVE_INFINITY);
  });
});

/** Writes a folder with the settings that llama.cpp has in its code. */
function writeUsual(folder: string): void {
  const json = {
    ...jsonOf(),
    ...{ num_hidden_layers: 21, layer_types: undefined, num_kv_shared_layers: 1, intermediate_size: 32 },
    ...{ altup_num_inputs: 4, altup_active_idx: 0, laurel_rank: 64, hidden_size_per_layer_input: 256 },
    ...{ activation_sparsity_pattern: undefined, final_logit_softcapping: 30, tie_word_embeddings: true },
  };
  mkdirSync(folder);
  writeFileSync(join(folder, 'config.json'), JSON.stringify(json));
  let n = 0;
  const tensors = layoutOf(configFromJson(json), []).map(({ name, shape }) => {
    const size = shape.reduce((product, length) => product * length, 1);
    const values = Float32Array.from({ length: size }, () => Math.fround(0.3 * Math.sin((n++) ** 2)));
    return [name, tensorFrom(values, { shape })] as const;
  });
  writeFileSync(join(folder, 'model.safetensors'), writeSafetensors(new Map(tensors)));
}

describe('Gemma 3n: GGUF', () => {
  test("a model with llama.cpp's settings, and the way back; other settings are refused", async () => {
    const [folder, made, small] = ['usual', 'usual.gguf', 'q8_0.gguf'].map((name) => join(scratch, name));
    writeUsual(folder!);
    await writeGguf(folder!, made!, { vocabulary: false });
    const file = parseGguf(readFileSync(made!), made!);
    const { tensors, metadata } = file;
    assert.deepEqual(configFromGguf(file).notes, []);
    for (const [key, value] of [
      ['altup.active_idx', 1],
      ['attention.shared_kv_layers', 2],
      ['activation_sparsity_scale', [1, 2]],
    ] as const)
      assert.deepEqual(configFromGguf({ ...file, metadata: new Map([...metadata, [`gemma3n.${key}`, value]]) }).notes, [
        `gemma3n.${key} = ${value} is not applied: llama.cpp does not read it for gemma3n.`,
      ]);
    const shapes = new Map(tensors.map(({ name, shape }) => [name, shape.join()]));
    assert.equal(shapes.get('per_layer_token_embd.weight'), '5376,64', 'rows of all tokens');
    assert.equal(shapes.get('altup_proj.weight'), '32,32,3');
    for (const part of ['attn_k', 'attn_v', 'attn_k_norm'])
      assert.equal(shapes.get(`blk.20.${part}.weight`), shapes.get(`blk.18.${part}.weight`), 'llama.cpp loads it');
    const scales = metadata.get('gemma3n.activation_sparsity_scale') as readonly number[];
    assert.deepEqual([scales[9]!.toFixed(5), scales[10]], ['1.64485', Number.NEGATIVE_INFINITY]);
    const want = await logitsOf(loadModelFolder, folder!);
    check(await logitsOf(loadModelFile, made!), want, 1e-4, 'the GGUF');

    const back = join(scratch, 'back');
    await writeSafetensorsFolder(made!, back, { vocabulary: false });
    const { activation_sparsity_pattern: shares, vocab_size_per_layer_input: rows, model_type: type } = jsonOf(back);
    assert.deepEqual([shares[9], shares[10], rows, type], [0.95, 0, 64, 'gemma3n_text']);
    assert.match(
      readFileSync(join(back, 'config.json'), 'utf8'),
      /0\.95,\n {4}0\.0,/,
      'transformers takes floats only',
    );
    assert.deepEqual(await logitsOf(loadModelFolder, back), want);

    await writeGguf(folder!, small!, { vocabulary: false, type: 'q8_0' });
    const types = new Map(parseGguf(readFileSync(small!), small!).tensors.map(({ name, type }) => [name, type]));
    assert.deepEqual(
      ['blk.3.laurel_l.weight', 'altup_unembd_proj.weight', 'blk.3.altup_router.weight', 'blk.3.ffn_up.weight'].map(
        (name) => types.get(name),
      ),
      ['F16', 'F16', 'F32', 'Q8_0'],
    );
    assert.ok((await logitsOf(loadModelFile, small!)).every(Number.isFinite));

    await assert.rejects(writeGguf(saved, join(scratch, 'other.gguf'), { vocabulary: false }), {
      code: 'UNSUPPORTED',
      message: /GGUF's keys of gemma3n do not say its perLayerWidth, 12 and read back 256/,
    });
  });
});
