/** Llama 4: attention in chunks across pieces of a text, and what is refused. transformers.test.ts has its logits. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { parseGguf } from '@ropewalk/formats';
import { check, savedFamily } from '../../../test/support/family-vectors.js';
import { configFromGguf, configFromJson } from '../src/config.js';
import { loadModelFolder } from '../src/node.js';
import { writeGguf } from '../src/repack.node.js';

const scratch = mkdtempSync(join(tmpdir(), 'ropewalk-llama4-'));
after(() => rmSync(scratch, { recursive: true }));

test('a text in pieces of any length sees the same chunks', async () => {
  const folder = join(scratch, 'llama4-chunks');
  const { writeTo, tokens, logits } = savedFamily('llama4-chunks');
  writeTo(folder);
  const model = await loadModelFolder(folder, { backend: 'cpu', threads: 1, context: 64, tokenizer: false });
  const chunks = model.config.layers(64).map(({ chunk }) => chunk);
  assert.deepEqual(chunks, [4, 4, undefined, 4]);
  for (const length of [1, 3, 4, 5, 9]) {
    const session = model.openSession();
    const got: number[] = [];
    for (let at = 0; at < tokens.length; at += length)
      got.push(...(await session.append(tokens.slice(at, at + length), { logits: 'all' })));
    check(Float32Array.from(got), logits, 2e-4, `pieces of ${length}`);
    session.dispose();
  }
  model.dispose();
});

test('refused: two experts for a token, and chunks that llama.cpp does not have', async () => {
  const [folder, path] = [join(scratch, 'llama4'), join(scratch, 'llama4.gguf')];
  savedFamily('llama4').writeTo(folder);
  const json = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8'));
  const code = 'UNSUPPORTED';
  const two = /num_experts_per_tok: expected 1, got 2/;
  assert.throws(() => configFromJson({ ...json, num_experts_per_tok: 2 }), { code, message: two });
  await writeGguf(folder, path, { vocabulary: false });
  const file = parseGguf(readFileSync(path), 'm.gguf');
  const read = (key: string, value: number) =>
    configFromGguf({ ...file, metadata: new Map([...file.metadata, [`llama4.${key}`, value] as const]) });
  assert.throws(() => read('expert_used_count', 2), { code, message: /expert_used_count: expected 1, got 2/ });
  const { chunk, temperature } = read('attention.sliding_window', 0);
  assert.deepEqual([chunk, temperature], [undefined, undefined], 'MobileLLM: every token sees all');
  const message = /GGUF's keys of llama4 do not say its temperature|its chunk, 4 and read back 8192/;
  savedFamily('llama4-chunks').writeTo(join(scratch, 'other'));
  await assert.rejects(writeGguf(join(scratch, 'other'), path, { vocabulary: false, force: true }), { code, message });
});
