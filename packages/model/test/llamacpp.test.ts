/** Compares the decoder with llama.cpp's logits, on random models of every quantised type and RoPE scaling. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, describe, test } from 'node:test';
import { parseNpy } from '@ropewalk/formats';
import { type Ropewalk, ropewalk } from 'ropewalk';
import { LLAMACPP, LLAMACPP_BESIDE, noLlamacppBeside } from '../../../test/support/fixtures.js';
import { numberTokenizer } from '../../../test/support/tiny-model.js';
import { loadModelFile } from '../src/node.js';

interface Vector {
  readonly folder: string;
  readonly name: string;
  readonly gguf: string;
  readonly context: number;
  readonly tokens: string;
  /** Missing if llama.cpp refuses the file. */
  readonly logits?: string;
  readonly greedy?: string;
  /** llama.cpp's logits with the weights in f32: it rounds the activations of quantised weights. */
  readonly logitsOfDequantised?: string;
  readonly greedyOfDequantised?: string;
}
function vectorsIn(folder: string): Vector[] {
  const { models }: { models: Omit<Vector, 'folder'>[] } = JSON.parse(readFileSync(`${folder}/manifest.json`, 'utf8'));
  return models.map((model) => ({ ...model, folder }));
}
const own = vectorsIn(LLAMACPP);
const beside = noLlamacppBeside
  ? []
  : vectorsIn(LLAMACPP_BESIDE).filter(({ name }) => own.every((vector) => vector.name !== name));

describe("llama.cpp's logits", () => {
  let backend: Ropewalk | undefined;
  after(() => backend?.dispose());
  const open = async ({ folder, gguf, context }: Vector) => {
    backend ??= await ropewalk({ backend: 'cpu', threads: 1 });
    return loadModelFile(`${folder}/${gguf}`, { backend, context, tokenizer: numberTokenizer(512) });
  };

  test('those beside the repository', { skip: noLlamacppBeside }, () => assert.equal(beside.length, 12));
  for (const vector of [...own, ...beside]) {
    const logits = vector.logitsOfDequantised ?? vector.logits;
    if (logits === undefined) {
      test(`${vector.name} is refused, as llama.cpp refuses it`, async () => {
        await assert.rejects(open(vector), {
          code: 'UNSUPPORTED',
          message: /llama\.cpp refuses (such a file|a file with this tensor)/,
        });
      });
      continue;
    }
    test(vector.name, async () => {
      const read = (name: string): number[] =>
        Array.from(parseNpy(readFileSync(`${vector.folder}/${name}`)).data as Float32Array);
      const model = await open(vector);
      try {
        const [prompt, greedy, want] = [
          read(vector.tokens),
          read(vector.greedyOfDequantised ?? vector.greedy!),
          read(logits),
        ];
        const session = model.openSession();
        // One pass shows all choices: the text so far is llama.cpp's.
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
