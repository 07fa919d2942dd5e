/**
 * Compares families with transformers, on random models that its own classes saved (scripts/python/family_vectors.py), and
 * their GGUF files with those of llama.cpp's converter.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { parseGguf, parseSafetensors, tensorFromSafetensors, writeSafetensors } from '@ropewalk/formats';
import { check, savedFamilies, savedFamily } from '../../../test/support/family-vectors.js';
import { loadModelFile, loadModelFolder } from '../src/node.js';
import { writeGguf, writeSafetensorsFolder } from '../src/repack.node.js';
import type { Model } from '../src/types.js';

const scratch = mkdtempSync(join(tmpdir(), 'ropewalk-transformers-'));
after(() => rmSync(scratch, { recursive: true }));

/** The largest measured distance of logits up to 30 is 6e-5, from two passes in f32. */
const NEAR = 2e-4;

/** Tensors that llama.cpp's converter fuses and we do not. llama.cpp reads both. */
const FUSED: Readonly<Record<string, RegExp>> = {
  mistral4: /ffn_(gate|up|gate_up)_exps/,
  'gemma4-experts': /ffn_(gate|up|gate_up)_exps/,
};
/** Families whose files cannot be written, and why. */
const UNWRITTEN = /^(deepseek_v32|glm_moe_dsa|llama4-chunks|gemma3n|phimoe-near)$/;
/** Models that have too few layers for llama.cpp to load their norms of q and k. */
const DEEPER = /^cohere-norm$/;
/** Families that are not written as a folder. */
const NO_FOLDER = /^apertus$/;

/** Keys that llama.cpp does not need for the architecture, and we do not write. */
const UNNEEDED: Readonly<Record<string, RegExp>> = {
  granitemoehybrid: /\.(expert_(used_)?count|expert_shared_feed_forward_length|ssm\..*|rope\.scaling\.finetuned)$/, // without experts and Mamba it is a granite
  bailing_moe_v2: /\.expert_shared_feed_forward_length$/, // as wide as the others
  hunyuan_v1_moe: /\.expert_shared_count$/,
  qwen3_vl_moe: /\.feed_forward_length$/, // no layer is dense
  solar_open: /\.feed_forward_length$/,
  exaone_moe: /\.(sliding_window_pattern|expert_shared_feed_forward_length)$/, // llama.cpp has rules of its own
  glm: /\.add_bos_token$/,
};
/** The end of keys that are as much as the model's own here, or not read for the architecture. */
const OTHER_KEYS =
  /^general\.(?!architecture|file_type)|\.(nextn_predict_layers|block_count|rope\.scaling\.(type|yarn_beta_\w+)|n_deepstack_layers|vision\..*)$/;

/** Returns the number of a list that has one for every layer. */
const sameForAll = (value: unknown): unknown =>
  Array.isArray(value) && value.every((one) => one === value[0]) ? value[0] : value;

/** Copies a folder of two layers to one of 64, which has them in turns. */
function deepened(folder: string): string {
  const deep = `${folder}-64`;
  mkdirSync(deep);
  const config = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8'));
  writeFileSync(
    join(deep, 'config.json'),
    JSON.stringify({ ...config, num_hidden_layers: 64, layer_types: undefined }),
  );
  const bytes = readFileSync(join(folder, 'model.safetensors'));
  const parsed = parseSafetensors(bytes);
  const all = [...parsed.tensors.keys()].flatMap((name) => {
    const tensor = tensorFromSafetensors(bytes, parsed, name);
    const [, layer] = /\.layers\.(\d+)\./.exec(name) ?? [];
    if (layer === undefined) return [[name, tensor] as const];
    return Array.from({ length: 32 }, (_, n) => {
      return [name.replace(`.layers.${layer}.`, `.layers.${Number(layer) + 2 * n}.`), tensor] as const;
    });
  });
  writeFileSync(join(deep, 'model.safetensors'), writeSafetensors(new Map(all)));
  return deep;
}

/** Compares keys, and types, shapes and bytes of tensors, with the file of llama.cpp's converter. */
function sameAsConverted(made: string, model: string, gguf: NonNullable<ReturnType<typeof savedFamily>['gguf']>): void {
  const bytes = readFileSync(made);
  const { tensors, metadata, dataOffset } = parseGguf(bytes, made);
  const own = Object.fromEntries(
    tensors.flatMap(({ name, type, shape, offset, sizeBytes }) => {
      if (!(name in gguf.tensors) && DEEPER.test(model)) return [];
      const data = bytes.subarray(dataOffset + offset, dataOffset + offset + sizeBytes!);
      return [[name, [type, shape, createHash('sha256').update(data).digest('hex').slice(0, 12)] as const]];
    }),
  );
  const fused = FUSED[model] ?? /^$/;
  // A dimension of 1 at the end is the same as none.
  const split = (all: Readonly<Record<string, readonly [string, readonly number[], string]>>) =>
    Object.entries(all)
      .filter(([one]) => !fused.test(one))
      .map(([one, [type, shape, digest]]) => [one, type, shape.filter((n) => n > 1).join(), digest].join(' '))
      .sort();
  assert.deepEqual(split(own), split(gguf.tensors));
  for (const [key, value] of Object.entries(gguf.keys))
    if (!OTHER_KEYS.test(key) && !UNNEEDED[model]?.test(key) && !(value === 1 && /expert_group/.test(key)))
      assert.deepEqual([key, metadata.get(key)], [key, sameForAll(value)]);
}

describe('families that transformers saved: its logits and tokens', () => {
  for (const name of savedFamilies()) {
    const { gguf, writeTo, tokens, logits, greedy } = savedFamily(name);
    const folder = join(scratch, name);
    const run = async (model: Model, what: string): Promise<void> => {
      const session = model.openSession();
      try {
        const all = await session.append(tokens, { logits: 'all' });
        check(all, logits, NEAR, what);
        let row = all.subarray(-model.config.vocabSize);
        for (const [n, want] of greedy.entries()) {
          const best = row.indexOf(row.reduce((a, b) => Math.max(a, b)));
          assert.equal(best, want, `${what}: token ${n}`);
          row = await session.append([best]);
        }
      } finally {
        model.dispose();
      }
    };
    const options = { backend: 'cpu', threads: 1, context: 64, tokenizer: false } as const;

    test(name, async () => {
      writeTo(folder);
      await run(await loadModelFolder(folder, options), 'from the folder');
      const made = join(scratch, `${name}.gguf`);
      if (UNWRITTEN.test(name)) {
        await assert.rejects(writeGguf(folder, made, { vocabulary: false }), { code: 'UNSUPPORTED' });
        return;
      }
      if (DEEPER.test(name)) {
        await assert.rejects(writeGguf(folder, made, { vocabulary: false }), {
          code: 'UNSUPPORTED',
          message: /64 layers/,
        });
        // The first two of 64 layers are those that the converter wrote.
        const deep = deepened(folder);
        await writeGguf(deep, made, { vocabulary: false });
        sameAsConverted(made, name, gguf!);
        await writeSafetensorsFolder(made, `${deep}.back`, { vocabulary: false });
        const logitsOf = async (model: Model): Promise<Float32Array> =>
          model
            .openSession()
            .append(tokens, { logits: 'all' })
            .finally(() => model.dispose());
        const want = await logitsOf(await loadModelFolder(deep, options));
        check(await logitsOf(await loadModelFile(made, options)), want, NEAR, 'from the GGUF');
        check(await logitsOf(await loadModelFolder(`${deep}.back`, options)), want, NEAR, 'back in a folder');
        return;
      }
      await writeGguf(folder, made, { vocabulary: false });
      if (gguf) sameAsConverted(made, name, gguf);
      await run(await loadModelFile(made, options), 'from the GGUF');
      const back = join(scratch, `${name}.back`);
      if (NO_FOLDER.test(name)) {
        await assert.rejects(writeSafetensorsFolder(made, back, { vocabulary: false }), { code: 'UNSUPPORTED' });
        return;
      }
      await writeSafetensorsFolder(made, back, { vocabulary: false });
      await run(await loadModelFolder(back, options), 'back in a folder');
    });
  }
});

test('apertus: a number of xIELU that is missing', async () => {
  const { writeTo } = savedFamily('apertus');
  const folder = join(scratch, 'apertus-cut');
  writeTo(folder);
  const path = join(folder, 'model.safetensors');
  const bytes = readFileSync(path);
  const parsed = parseSafetensors(bytes);
  const kept = [...parsed.tensors.keys()].filter((name) => !name.endsWith('layers.1.mlp.act_fn.alpha_n'));
  writeFileSync(
    path,
    writeSafetensors(new Map(kept.map((name) => [name, tensorFromSafetensors(bytes, parsed, name)]))),
  );
  await assert.rejects(loadModelFolder(folder, { backend: 'cpu', threads: 1, tokenizer: false }), {
    code: 'FORMAT',
    message: /layer 1: tensor mlp\.act_fn\.alpha_n is missing\. The file is incomplete/,
  });
});
