/**
 * Compares families with transformers, on random models that its own classes saved (scripts/python/family_vectors.py), and
 * their GGUF files with those of llama.cpp's converter.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { parseGguf } from '@ropewalk/formats';
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
const UNWRITTEN = /^(deepseek_v32|glm_moe_dsa|llama4-chunks|cohere-norm)$/;
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

/** Compares keys, and types, shapes and bytes of tensors, with the file of llama.cpp's converter. */
function sameAsConverted(made: string, name: string, gguf: NonNullable<ReturnType<typeof savedFamily>['gguf']>): void {
  const bytes = readFileSync(made);
  const { tensors, metadata, dataOffset } = parseGguf(bytes, made);
  const own = Object.fromEntries(
    tensors.map(({ name, type, shape, offset, sizeBytes }) => {
      const data = bytes.subarray(dataOffset + offset, dataOffset + offset + sizeBytes!);
      return [name, [type, shape, createHash('sha256').update(data).digest('hex').slice(0, 12)] as const];
    }),
  );
  const fused = FUSED[name] ?? /^$/;
  // A dimension of 1 at the end is the same as none.
  const split = (all: Readonly<Record<string, readonly [string, readonly number[], string]>>) =>
    Object.entries(all)
      .filter(([one]) => !fused.test(one))
      .map(([one, [type, shape, digest]]) => [one, type, shape.filter((n) => n > 1).join(), digest].join(' '))
      .sort();
  assert.deepEqual(split(own), split(gguf.tensors));
  for (const [key, value] of Object.entries(gguf.keys))
    if (!OTHER_KEYS.test(key) && !UNNEEDED[name]?.test(key) && !(value === 1 && /expert_group/.test(key)))
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
