/** Tests a real model: its text, the same on every backend, and how well it predicts a text. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { BEGINS, model, run, storiesOn, TEXT } from '../../../test/support/stories.js';
import { embed } from '../src/embed.js';
import { keepSession } from '../src/generate.js';
import { perplexity } from '../src/perplexity.js';

describe('stories260K', () => {
  for (const file of ['model-f32.gguf', 'model-f16.gguf', 'folder']) {
    test(`${file}: greedy text from a bare BOS`, async () => {
      const { text, reason, promptTokens } = await run(await model(file), '', { maxTokens: 90 });
      assert.ok(text.startsWith(BEGINS), text);
      assert.deepEqual([reason, promptTokens], ['length', 1]);
    });
  }

  test('a prompt continued, in one batch and token by token, with and without its spaces', async () => {
    const on = await model();
    const whole = await run(on, '', { maxTokens: 60 });
    const cut = await run(on, 'Once upon a time, there was a little girl', { maxTokens: 40 });
    assert.ok(BEGINS.startsWith(`Once upon a time, there was a little girl${cut.text.slice(0, 60)}`), cut.text);
    assert.equal(on.tokenizer.decode([1, ...whole.tokens]), whole.text);
    const kept = keepSession(on);
    for (const token of [1, ...whole.tokens.slice(0, 9)]) await kept.session.append([token]);
    kept.tokens.push(1, ...whole.tokens.slice(0, 9));
    const on2 = await run(on, { tokens: [1, ...whole.tokens.slice(0, 10)] }, { maxTokens: 50, session: kept });
    assert.deepEqual([on2.reusedTokens, on2.tokens], [10, whole.tokens.slice(10, 60)]);
    kept.dispose();
  });

  test('a kept session over turns gives what a fresh one gives', async () => {
    const on = await model();
    const kept = keepSession(on, { context: 256 });
    const one = await run(on, 'Lily had a dog.', { maxTokens: 20, session: kept });
    const prompt = `Lily had a dog.${one.text} The dog`;
    const two = await run(on, prompt, { maxTokens: 20, session: kept });
    assert.ok(two.reusedTokens > 10, `${two.reusedTokens}`);
    assert.equal(two.text, (await run(on, prompt, { maxTokens: 20 })).text);
    kept.dispose();
  });

  test('a small context is shifted, and the text goes on', async () => {
    const on = await model();
    const { tokens, shiftedTokens, text } = await run(on, '', { context: 32, onFull: 'shift', maxTokens: 80 });
    assert.deepEqual([tokens.length, shiftedTokens > 0], [80, true]);
    // Up to the first shift nothing differs: BOS and 31 tokens are in the cache, and the 32nd is chosen.
    assert.deepEqual(tokens.slice(0, 32), (await run(on, '', { maxTokens: 32 })).tokens);
    assert.match(text, /^Once upon a time/);
  });

  test('a seed reproduces a drawn text', async () => {
    const on = await model();
    const options = {
      temperature: 0.8,
      topP: 0.9,
      topK: 40,
      minP: 0.02,
      repetitionPenalty: 1.1,
      maxTokens: 40,
      seed: 1,
    };
    const one = await run(on, 'Once', options);
    assert.equal((await run(on, 'Once', options)).text, one.text);
    assert.notEqual((await run(on, 'Once', { ...options, seed: 2 })).text, one.text);
  });

  test('stop text', async () => {
    const { text, reason } = await run(await model(), '', { stop: ' loved', maxTokens: 60 });
    assert.deepEqual([text, reason], ['Once upon a time, there was a little girl named Lily. She', 'stop']);
  });

  storiesOn('reference', 60, TEXT);

  test('perplexity: q8_0 and f16 within 2 % of f32; layouts alike; longer context helps', async () => {
    const of = async (file: string): Promise<number> => (await perplexity(await model(file), TEXT)).perplexity;
    const f32 = await of('model-f32.gguf');
    assert.ok(f32 > 2 && f32 < 20, `${f32}`);
    for (const [file, most] of [
      ['folder', 1e-4],
      ['model-f16.gguf', 0.02],
      ['model-q8_0.gguf', 0.02],
    ] as const) {
      const other = await of(file);
      assert.ok(Math.abs(other / f32 - 1) < most, `${file}: ${other}, f32 ${f32}`);
    }
    const short = await perplexity(await model(), TEXT, { context: 16 });
    assert.ok(short.perplexity > f32, `${short.perplexity} > ${f32}`);
    const scrambled = await perplexity(await model(), TEXT.split(' ').reverse().join(' '));
    assert.ok(scrambled.perplexity > 2 * f32, `${scrambled.perplexity}`);
    assert.ok(Math.abs((short.bitsPerByte * short.bytes) / (Math.log2(short.perplexity) * short.tokens) - 1) < 1e-9);
  });

  test('embeddings: similar texts are closer', async () => {
    const on = await model();
    const of = (text: string): Promise<Float32Array> => embed(on, text);
    const dot = (a: Float32Array, b: Float32Array): number => a.reduce((sum, value, i) => sum + value * b[i]!, 0);
    const [dog, cat, rain] = [
      await of('The dog was happy.'),
      await of('The dog was very happy.'),
      await of('xqz 17!!'),
    ];
    assert.equal(dog.length, on.config.hiddenSize);
    assert.ok(Math.abs(dot(dog, dog) - 1) < 1e-5);
    assert.ok(dot(dog, cat) > dot(dog, rain));
  });
});
