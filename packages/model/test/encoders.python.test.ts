/**
 * Runs random encoders, and base classes of decoders, that transformers 5 made and saved in f32 itself, beside their hidden
 * states in torch.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { parseNpy } from '@ropewalk/formats';
import { noPython, runPython } from '../../../test/support/python.js';
import { numberTokenizer } from '../../../test/support/tiny-model.js';
import { embed } from '../src/index.js';
import { loadModelFolder } from '../src/node.js';

/** The allowed distance as a share of the spread, as in transformers.python.test.ts. */
const NEAR = 1e-4;

describe('encoders', { skip: noPython }, () => {
  const folder = mkdtempSync(join(tmpdir(), 'encoders-'));
  before(() => void runPython('encoders.py', [folder]));
  after(() => rmSync(folder, { recursive: true, force: true }));

  const rms = (values: ArrayLike<number>): number =>
    Math.sqrt(Array.from(values).reduce((sum, value) => sum + value * value, 0) / values.length);
  const near = (got: Float32Array, want: Float32Array, what: string): void => {
    assert.equal(got.length, want.length, what);
    const mean = want.reduce((sum, value) => sum + value, 0) / want.length;
    const share = rms(want.map((value, n) => value - got[n]!)) / rms(want.map((value) => value - mean));
    assert.ok(share <= NEAR, `${what}: off by ${share} of the spread`);
  };

  const headless = ['gpt_neox', 'qwen3'];
  for (const name of ['eurobert', 'gemma3', 'modernbert', 'nomic_bert', ...headless])
    for (const backend of ['cpu', 'reference'] as const)
      test(`${name} on ${backend}`, async () => {
        const array = (file: string) => parseNpy(readFileSync(join(folder, name, file))).data as Float32Array;
        const tokens = Array.from(array('tokens.npy'));
        const model = await loadModelFolder(join(folder, name), { backend, tokenizer: numberTokenizer(64) });
        try {
          const files = readdirSync(join(folder, name)).filter((file) => file.startsWith('hidden-'));
          assert.equal(files.length, 9);
          for (const file of files) {
            const count = Number(/\d+/.exec(file)![0]);
            near(await model.hidden(tokens.slice(0, count)), array(file), `${count} tokens`);
          }
          const all = array('hidden-40.npy');
          const width = all.length / 40;
          const mean = Float32Array.from({ length: width }, (_, i) => {
            return tokens.reduce((sum, _token, s) => sum + all[s * width + i]!, 0) / tokens.length;
          });
          near(await embed(model, numberTokenizer(64).decode(tokens.slice(1)), { normalize: false }), mean, 'pooled');
          assert.throws(() => model.openSession(), {
            code: 'UNSUPPORTED',
            message: headless.includes(name) ? /no output head.*model\.hidden/ : /sees later tokens.*model\.hidden/,
          });
        } finally {
          model.dispose();
        }
      });
});
