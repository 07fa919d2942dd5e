/** Model families on the command line: what `inspect`, `diff` and `convert` say is what llama.cpp executed. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { ropewalkIn } from '../../../test/support/command.js';
import { FAMILIES } from '../../../test/support/fixtures.js';
import { writeHuggingFace } from '../../../test/support/huggingface-folder.js';

const folder = mkdtempSync(join(tmpdir(), 'families-'));
after(() => rmSync(folder, { recursive: true }));
const ropewalk = (...args: string[]) => ropewalkIn(folder, ...args);
const gguf = (name: string): string => join(FAMILIES, `${name}.gguf`);

describe('families', () => {
  before(async () => {
    for (const name of ['gemma3', 'olmo3', 'phi3']) await writeHuggingFace(gguf(name), join(folder, name));
  });

  for (const path of ['gemma3', gguf('gemma3')])
    test(`inspect of ${path === 'gemma3' ? 'a folder' : 'a GGUF'}: base, scaling and window of each layer`, async () => {
      const { status, stdout, stderr } = await ropewalk('inspect', path);
      assert.equal(status, 0, stderr);
      assert.match(stdout, /^layers 0-4 \(sliding_attention, window 24\)\n {2}base {12}10000\n/m);
      assert.match(stdout, /^layer 5 \(full_attention\)\n {2}base {12}1000000\n/m);
      assert.match(stdout, /^ {2}scaling {9}linear factor=8$/m);
      const { layers } = JSON.parse((await ropewalk('inspect', path, '--json')).stdout);
      const executed = JSON.parse(readFileSync(join(FAMILIES, 'gemma3.rope.json'), 'utf8'));
      for (const [n, { rope, attention }] of executed.layers.entries()) {
        assert.deepEqual([layers[n].rope.base, layers[n].invFreq[0]], [rope.freqBase, rope.freqScale]);
        assert.equal(layers[n].window ?? executed.tokens, attention.keysSeenByLastToken);
      }
    });

  test('diff of a GGUF and its folder: the same RoPE, and another window where llama.cpp has none', async () => {
    const olmo = await ropewalk('diff', gguf('olmo3'), 'olmo3');
    assert.equal(olmo.status, 0, olmo.stdout);
    assert.match(olmo.stdout, /^layers 0-2 \(sliding_attention\): same$/m);
    assert.match(olmo.stdout, /^layer 3 \(full_attention\): same$/m);
    assert.doesNotMatch(olmo.stdout, /tokens in/);
    const phi = await ropewalk('diff', gguf('phi3'), 'phi3', '--context', '256');
    assert.equal(phi.status, 0, phi.stdout);
    assert.match(phi.stdout, /note: Layers 0-2 see all tokens in A and the last 1000 tokens in B\. This is not part/);
  });

  test('convert of a folder gives the keys that the GGUF has', async () => {
    const { status, stdout, stderr } = await ropewalk('convert', 'olmo3', '--to', 'gguf', '--layer', '3', '--json');
    assert.equal(status, 0, stderr);
    assert.deepEqual(JSON.parse(stdout).arguments, {
      'general.architecture': 'olmo2',
      'olmo2.attention.key_length': 16,
      'olmo2.rope.dimension_count': 16,
      'olmo2.rope.freq_base': 500000,
      'olmo2.rope.scaling.type': 'yarn',
      'olmo2.rope.scaling.factor': 8,
      'olmo2.rope.scaling.original_context_length': 96,
    });
  });
});
