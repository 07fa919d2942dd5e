/** Tests stories260K, a real model that others trained: it must write the same text on any backend. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, test } from 'node:test';
import type { Model } from '@ropewalk/model';
import { type GenerateOptions, type Generation, generate, type Prompt, perplexity } from '@ropewalk/model';
import { loadModelFile, loadModelFolder } from '@ropewalk/model/node';
import { STORIES } from './fixtures.js';
import { openShared } from './gpu.js';
import { some } from './size.js';

export const BEGINS =
  'Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a big, red ball. ' +
  'She wanted to play with it, but it was too high.';
export const TEXT =
  'Tom and Mia had a small boat. They took it to the lake and put it on the water. The wind was strong, and the boat went far away. ' +
  'Mia began to cry. Tom said, "Do not be sad. I can swim and get it." He jumped in, but the water was very cold. ' +
  'A big dog saw them and ran to help. It swam to the boat and brought it back. They were happy, and the dog got a cake.\n';

/** The loaded models, which are disposed at the end of the test file. */
const opened = new Map<string, Promise<Model>>();
after(async () => {
  for (const made of opened.values()) (await made).dispose();
});

/** Loads the model in one of its forms: a file, or `folder`. */
export function model(file = 'model-f32.gguf', backend = 'cpu'): Promise<Model> {
  const key = `${file} ${backend}`;
  const open = async (): Promise<Model> => {
    const options = { backend: await openShared(backend) };
    return file === 'folder' ? loadModelFolder(STORIES, options) : loadModelFile(join(STORIES, file), options);
  };
  const made = opened.get(key) ?? open();
  opened.set(key, made);
  return made;
}

/** Generates and returns the end of the generation. */
export async function run(on: Model, prompt: Prompt, options: GenerateOptions = {}): Promise<Generation> {
  for await (const { end } of generate(on, prompt, options)) if (end) return end;
  throw new Error('no last item');
}

/**
 * Declares tests that a backend writes the same text as cpu.
 *
 * @param length - the number of tokens
 * @param scored - the text whose tokens both must predict
 */
export function storiesOn(backend: string, length: number, scored: string, skip: string | false = false): void {
  for (const file of some(['model-f32.gguf', 'model-q8_0.gguf', 'folder'])) {
    test(`${backend} writes what cpu writes, and predicts alike: ${file}`, { skip }, async () => {
      const [cpu, other] = [await model(file), await model(file, backend)];
      assert.equal(other.backend, backend);
      const { text, tokens } = await run(other, '', { maxTokens: length });
      assert.deepEqual(tokens, (await run(cpu, '', { maxTokens: length })).tokens);
      assert.ok(BEGINS.startsWith(text) || text.startsWith(BEGINS), text);
      const options = { context: 48, stride: 24 };
      const [a, b] = [await perplexity(cpu, scored, options), await perplexity(other, scored, options)];
      assert.equal(a.tokens, b.tokens);
      assert.ok(Math.abs(a.perplexity / b.perplexity - 1) < 1e-4, `${a.perplexity} and ${b.perplexity}`);
    });
  }
}
