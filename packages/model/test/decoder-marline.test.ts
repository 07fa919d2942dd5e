/** Compares the bundled model with PyTorch's numbers for the same files, which training/expected.py wrote. */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { ROOT } from '../../../test/support/build.js';
import { some } from '../../../test/support/size.js';
import { perplexity } from '../src/index.js';
import { loadModelFile, loadModelFolder } from '../src/node.js';
import type { Model } from '../src/types.js';

const expected = join(ROOT, 'training/expected.json');
const results = join(ROOT, 'training/results.json');
const folder = join(ROOT, 'models/marline');
const absent =
  existsSync(expected) && existsSync(join(folder, 'model.safetensors'))
    ? false
    : 'models/marline or training/expected.json is not here';

interface Run {
  readonly ids: readonly number[];
  /** The distances of the best logits from the second. */
  readonly margins: readonly number[];
  readonly first_logits: { readonly ids: readonly number[]; readonly values: readonly number[] };
}
interface Case {
  readonly prompt: string;
  readonly ids: readonly number[];
  readonly f16: Run;
  readonly q8_0: Run;
}

/** The results of training/evaluate.py and ngram.py. */
interface Results {
  readonly held_back: { readonly bytes: number; readonly tokens: number };
  readonly ngram: { readonly bar_order_5: { readonly held_back_bits_per_byte: number } };
}

/** PyTorch's score of held-back.txt, in the windows of `perplexity`. */
interface Score {
  readonly characters: number;
  readonly tokens: number;
  readonly context: number;
  readonly stride: number;
  readonly f16: { readonly perplexity: number; readonly bits_per_byte: number };
  readonly q8_0: { readonly perplexity: number; readonly bits_per_byte: number };
}

// PyTorch computes in f32 too, in another order, and its numbers are printed with four or five digits.
const CLOSE = 2e-4;
// In a mean over thousands of tokens, the errors mostly average out; the numbers are printed with six digits.
const ALIKE = 1e-5;

describe('marline as PyTorch computes it', { skip: absent }, () => {
  const { cases, perplexity: scores } = absent
    ? { cases: [], perplexity: [] }
    : (JSON.parse(readFileSync(expected, 'utf8')) as { cases: Case[]; perplexity: Score[] });
  const models: Partial<Record<'f16' | 'q8_0', Model>> = {};
  before(async () => {
    models.f16 = await loadModelFolder(folder, { backend: 'cpu', threads: 1 });
    models.q8_0 = await loadModelFile(join(folder, 'model-q8_0.gguf'), { backend: 'cpu', threads: 1 });
  });
  after(() => {
    for (const model of Object.values(models)) model.dispose();
  });

  for (const [n, wanted] of cases.entries()) {
    for (const kind of ['f16', 'q8_0'] as const) {
      test(`case ${n}, ${kind}: ${JSON.stringify(wanted.prompt)}`, async () => {
        const model = models[kind]!;
        assert.deepEqual(model.tokenizer.encode(wanted.prompt), wanted.ids);
        const { ids, margins, first_logits: first } = wanted[kind];
        const session = model.openSession();
        let logits = await session.append(wanted.ids);
        for (const [k, id] of first.ids.entries())
          assert.ok(
            Math.abs(logits[id]! - first.values[k]!) < CLOSE,
            `logit of ${id}: ${logits[id]}, want ${first.values[k]}`,
          );
        for (const [s, id] of ids.entries()) {
          // If two tokens are nearly equal, either may be chosen; the text after it then differs.
          if (margins[s]! < CLOSE) break;
          const best = logits.indexOf(Math.max(...logits));
          assert.equal(best, id, `token ${s}`);
          logits = await session.append([id]);
        }
        session.dispose();
      });
    }
  }

  const judged = scores.flatMap((score) => (['f16', 'q8_0'] as const).map((kind) => ({ score, kind })));
  for (const { score, kind } of some(judged)) {
    const { characters, tokens, context, stride } = score;
    test(`perplexity of ${characters} characters of held-back text, stride ${stride}, ${kind}`, async () => {
      const text = readFileSync(join(ROOT, 'training/held-back.txt'), 'utf8');
      const got = await perplexity(models[kind]!, text.slice(0, characters), { context, stride });
      assert.equal(got.tokens, tokens);
      const { perplexity: wanted, bits_per_byte: bits } = score[kind];
      assert.ok(Math.abs(got.perplexity / wanted - 1) < ALIKE, `perplexity ${got.perplexity}, want ${wanted}`);
      assert.ok(Math.abs(got.bitsPerByte / bits - 1) < ALIKE, `bits a byte ${got.bitsPerByte}, want ${bits}`);
      if (characters < text.length) return;
      const { held_back: whole, ngram } = JSON.parse(readFileSync(results, 'utf8')) as Results;
      assert.deepEqual([got.bytes, got.tokens], [whole.bytes, whole.tokens], 'the text of the n-grams');
      assert.ok(got.bitsPerByte < ngram.bar_order_5.held_back_bits_per_byte, `${got.bitsPerByte} bits a byte`);
    });
  }
});
