/**
 * The decoder against llama.cpp: random models of quantised types, qwen2 and qwen3, with llama.cpp's own logits;
 * test/fixtures/README.md says which models were left out.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, describe, test } from 'node:test';
import { parseNpy } from '../../packages/formats/src/npy.js';
import { loadModelFile } from '../../packages/model/src/node.js';
import { type Ropewalk, ropewalk } from '../../packages/ropewalk/src/ropewalk.js';
import { FIXTURES } from '../support/fixtures.js';
import { numberTokenizer } from '../support/tiny-model.js';

const folder = `${FIXTURES}/llamacpp/models`;

interface Vector {
  readonly name: string;
  readonly gguf: string;
  readonly context: number;
  readonly tokens: string;
  readonly logits?: string;
  readonly greedy?: string;
  /** Of quantised files: llama.cpp on the same weights in f32, as it rounds the activations of quantised weights. */
  readonly logitsOfDequantised?: string;
  readonly greedyOfDequantised?: string;
}
const vectors: readonly Vector[] = JSON.parse(readFileSync(`${folder}/manifest.json`, 'utf8')).models;
const read = (name: string): number[] => Array.from(parseNpy(readFileSync(`${folder}/${name}`)).data as Float32Array);

describe("llama.cpp's logits", () => {
  let backend: Ropewalk | undefined;
  after(() => backend?.dispose());
  const open = async ({ gguf, context }: Vector) => {
    backend ??= await ropewalk({ backend: 'cpu', threads: 1 });
    return loadModelFile(`${folder}/${gguf}`, { backend, context, tokenizer: numberTokenizer(512) });
  };

  for (const vector of vectors) {
    test(vector.name, async () => {
      const model = await open(vector);
      try {
        const [prompt, greedy, want] = [
          read(vector.tokens),
          read(vector.greedyOfDequantised ?? vector.greedy!),
          read((vector.logitsOfDequantised ?? vector.logits)!),
        ];
        const session = model.openSession();
        // What it would continue with is seen in one pass: the text so far is llama.cpp's.
        const got = await session.append([...prompt, ...greedy.slice(0, -1)], { logits: 'all' });
        session.dispose();
        const vocabulary = want.length / prompt.length;
        const worst = want.reduce((max, value, n) => Math.max(max, Math.abs(got[n]! - value)), 0);
        assert.ok(worst <= 1e-3, `logits off by ${worst}`);
        const best = greedy.map((_, n) => {
          const row = got.subarray((prompt.length - 1 + n) * vocabulary, (prompt.length + n) * vocabulary);
          return row.indexOf(row.reduce((a, b) => Math.max(a, b)));
        });
        assert.deepEqual(best, greedy);
      } finally {
        model.dispose();
      }
    });
  }
});
