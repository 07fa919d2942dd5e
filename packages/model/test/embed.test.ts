/** Embeddings as a sentence-transformers folder and a GGUF ask for them: pooling, dense matrices, prompts. */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, describe, test } from 'node:test';
import { parseSafetensors, tensorFromSafetensors, writeSafetensors } from '@ropewalk/formats';
import { tensorFrom } from 'ropewalk';
import { randomFrom } from 'ropewalk/internal';
import { numberTokenizer, type TinyModel, tinyModel } from '../../../test/support/tiny-model.js';
import { embed, generate, loadModel, type Model } from '../src/index.js';
import { loadModelFolder } from '../src/node.js';

const VOCAB = 24;
const HIDDEN = 16;
const MODEL: TinyModel = tinyModel('embed', {
  ...{ family: 'llama', layers: 2, hidden: HIDDEN, heads: 4, kvHeads: 2, headDim: 4, inter: 24, vocab: VOCAB },
});
const TEXT = '<5><9><7>';
const json = (value: unknown): Uint8Array => new TextEncoder().encode(JSON.stringify(value));

const random = randomFrom('dense');
const drawn = (count: number): Float32Array => Float32Array.from({ length: count }, () => random.uniform(-1, 1));
const [first, bias, second] = [drawn(20 * HIDDEN), drawn(20), drawn(8 * 20)];
const dense = (outputs: number, inputs: number, more: object): object => {
  return { in_features: inputs, out_features: outputs, ...more };
};
const FILES: Readonly<Record<string, Uint8Array>> = {
  ...MODEL.huggingFace(),
  'modules.json': json(
    ['Transformer', '1_Pooling', '2_Dense', '3_Dense', '4_Normalize'].map((path, idx) => {
      const [name] = path.split('_').slice(-1);
      return { idx, name: String(idx), path: idx === 0 ? '' : path, type: `sentence_transformers.models.${name}` };
    }),
  ),
  '1_Pooling/config.json': json({
    pooling_mode_cls_token: true,
    pooling_mode_mean_tokens: false,
    include_prompt: true,
  }),
  '2_Dense/config.json': json(
    dense(20, HIDDEN, { bias: true, activation_function: 'torch.nn.modules.activation.Tanh' }),
  ),
  '2_Dense/model.safetensors': writeSafetensors(
    new Map([
      ['linear.weight', tensorFrom(first, { shape: [20, HIDDEN] })],
      ['linear.bias', tensorFrom(bias, { shape: [20] })],
    ]),
  ),
  '3_Dense/config.json': json(dense(8, 20, { bias: false, activation_function: 'torch.nn.modules.linear.Identity' })),
  '3_Dense/model.safetensors': writeSafetensors(new Map([['linear.weight', tensorFrom(second, { shape: [8, 20] })]])),
  'config_sentence_transformers.json': json({
    prompts: { query: '<3>', document: '<4><6>' },
    default_prompt_name: null,
  }),
};

const open = (files: Readonly<Record<string, Uint8Array>>): Promise<Model> =>
  loadModel(files, { backend: 'reference', tokenizer: numberTokenizer(VOCAB) });
/** Embeds with a model that is closed afterwards. */
async function embedIn(files: Readonly<Record<string, Uint8Array>>, ...rest: [string, object?]): Promise<Float32Array> {
  const model = await open(files);
  return embed(model, ...rest).finally(() => model.dispose());
}
const near = (got: ArrayLike<number>, want: ArrayLike<number>): void => {
  assert.equal(got.length, want.length);
  for (let n = 0; n < want.length; n++) assert.ok(Math.abs(got[n]! - want[n]!) <= 1e-5, `${n}: ${got[n]} ${want[n]}`);
};
const matrix = (weights: Float32Array, x: readonly number[]): number[] =>
  Array.from({ length: weights.length / x.length }, (_, n) =>
    x.reduce((sum, v, k) => sum + weights[n * x.length + k]! * v, 0),
  );

describe('sentence-transformers folder', () => {
  /** Returns dense(tanh(dense(row of the first token))), by the formula. */
  async function expected(ids: number[]): Promise<number[]> {
    const model = await open(MODEL.huggingFace());
    const row = [...(await model.hidden(ids)).slice(0, HIDDEN)];
    model.dispose();
    return matrix(
      second,
      matrix(first, row).map((sum, n) => Math.tanh(sum + bias[n]!)),
    );
  }
  const unit = (x: readonly number[]): number[] => x.map((value) => value / Math.hypot(...x));

  test('cls, two matrices, a prompt, fewer dimensions', async () => {
    const plain = await expected([1, 5, 9, 7]);
    near(await embedIn(FILES, TEXT, { normalize: false }), plain);
    near(await embedIn(FILES, TEXT), unit(plain));
    near(await embedIn(FILES, TEXT, { dimensions: 3 }), unit(plain.slice(0, 3)));
    const model = await open(FILES);
    assert.deepEqual(
      [...model.embedding!.prompts],
      [
        ['query', '<3>'],
        ['document', '<4><6>'],
      ],
    );
    for (const options of [{ promptName: 'document' }, { prompt: '<4><6>' }]) {
      const [got, same] = [
        await embed(model, TEXT, { ...options, pooling: 'last' }),
        await embed(model, `<4><6>${TEXT}`, { pooling: 'last' }),
      ];
      assert.deepEqual(got, same);
      assert.notDeepEqual(got, await embed(model, TEXT, { pooling: 'last' }));
    }
    model.dispose();
    const usual = {
      ...FILES,
      'config_sentence_transformers.json': json({ prompts: { query: '<3>' }, default_prompt_name: 'query' }),
    };
    assert.deepEqual(
      await embedIn(usual, TEXT, { pooling: 'mean' }),
      await embedIn(usual, TEXT, { pooling: 'mean', prompt: '<3>' }),
    );
  });

  test('each pooling by its old and its new name', async () => {
    const names = { mean: 'mean_tokens', last: 'lasttoken', cls: 'cls_token' };
    for (const [pooling, flag] of Object.entries(names)) {
      const want = await embedIn(FILES, TEXT, { pooling });
      const mode = { last: 'lasttoken' }[pooling] ?? pooling;
      for (const config of [{ [`pooling_mode_${flag}`]: true }, { pooling_mode: mode }])
        assert.deepEqual(await embedIn({ ...FILES, '1_Pooling/config.json': json(config) }, TEXT), want, flag);
    }
  });

  test('from disk', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'embed-'));
    after(() => rmSync(folder, { recursive: true, force: true }));
    for (const [name, bytes] of Object.entries(FILES)) {
      mkdirSync(dirname(join(folder, name)), { recursive: true });
      writeFileSync(join(folder, name), bytes);
    }
    const model = await loadModelFolder(folder, { backend: 'reference', tokenizer: numberTokenizer(VOCAB) });
    assert.deepEqual(await embed(model, TEXT), await embedIn(FILES, TEXT));
    model.dispose();
  });

  const module = (type: string) => ({
    'modules.json': json([{ type: `sentence_transformers.models.${type}`, path: 'x' }]),
  });
  const refusals: Readonly<Record<string, readonly [Record<string, Uint8Array>, string, RegExp]>> = {
    'modules that are no list': [{ 'modules.json': json({}) }, 'FORMAT', /modules\.json: modules: expected a list/],
    'another module': [
      module('WeightedLayerPooling'),
      'UNSUPPORTED',
      /type: expected Transformer, Pooling, Dense or Normalize/,
    ],
    'a module that is not there': [module('Pooling'), 'FORMAT', /it names "x\/config\.json", which is not there/],
    'two poolings': [
      { '1_Pooling/config.json': json({ pooling_mode_cls_token: true, pooling_mode_mean_tokens: true }) },
      'UNSUPPORTED',
      /only one of mean, cls and lasttoken is computed, not mean and cls/,
    ],
    'another pooling': [
      { '1_Pooling/config.json': json({ pooling_mode: 'max' }) },
      'UNSUPPORTED',
      /not max\. Take another/,
    ],
    'a pooling without the prompt': [
      { '1_Pooling/config.json': json({ include_prompt: false }) },
      'UNSUPPORTED',
      /include_prompt/,
    ],
    'another activation': [
      { '2_Dense/config.json': json(dense(20, HIDDEN, { activation_function: 'torch.nn.ReLU' })) },
      'UNSUPPORTED',
      /activation_function: expected Identity or Tanh/,
    ],
    'another width': [
      { '2_Dense/config.json': json(dense(20, 12, {})) },
      'FORMAT',
      /in_features: expected 16, the width/,
    ],
    'a matrix of another shape': [
      { '2_Dense/config.json': json(dense(4, HIDDEN, {})) },
      'FORMAT',
      /linear\.weight: expected shape \[4,16\]/,
    ],
    'a matrix that is not there': [
      { '2_Dense/model.safetensors': writeSafetensors(new Map([['other', tensorFrom(bias, { shape: [20] })]])) },
      'FORMAT',
      /there is no tensor linear\.weight/,
    ],
    'a default prompt that is not there': [
      { 'config_sentence_transformers.json': json({ default_prompt_name: 'query' }) },
      'FORMAT',
      /default_prompt_name: expected the name of a prompt/,
    ],
  };
  for (const [label, [files, code, message]] of Object.entries(refusals))
    test(`refusal: ${label}`, () =>
      assert.rejects(open({ ...FILES, ...files }), { name: 'RopewalkError', code, message }));

  const wrong: Readonly<Record<string, readonly [object, RegExp]>> = {
    'a name that is no prompt': [{ promptName: 'qurey' }, /promptName: expected query, document, got "qurey"/],
    'a name and a text': [{ promptName: 'query', prompt: '' }, /promptName: it does not go with prompt/],
    'more dimensions': [{ dimensions: 9 }, /dimensions: expected an integer in \[1, .*8/],
    'no dimensions': [{ dimensions: 0 }, /dimensions: expected an integer in \[1, /],
    'a prompt that is no text': [{ prompt: 3 }, /prompt: expected a string/],
    'a misspelt option': [{ dimension: 3 }, /dimension.*dimensions/],
  };
  for (const [label, [options, message]] of Object.entries(wrong))
    test(`refusal: ${label}`, () => assert.rejects(embedIn(FILES, TEXT, options), { code: 'RANGE', message }));
  test('refusal: a name where the files have no prompts', () =>
    assert.rejects(embedIn(MODEL.huggingFace(), TEXT, { promptName: 'query' }), {
      code: 'RANGE',
      message: /have no prompts\. Give prompt/,
    }));
});

describe('GGUF', () => {
  const gguf = (pooling?: number): Record<string, Uint8Array> => {
    const shape = pooling === undefined ? MODEL.shape : { ...MODEL.shape, ggufExtra: { pooling_type: pooling } };
    return tinyModel('embed', shape).gguf();
  };
  test('pooling_type', async () => {
    for (const [type, pooling] of [undefined, 'mean', 'cls', 'last'].entries())
      assert.deepEqual(await embedIn(gguf(type), TEXT), await embedIn(gguf(), TEXT, { pooling: pooling ?? 'mean' }));
  });
  test('refusal: a model that ranks', () =>
    assert.rejects(open(gguf(4)), {
      code: 'UNSUPPORTED',
      message: /pooling_type: expected 0 to 3, got 4\. The model ranks pairs/,
    }));
});

describe('a folder without an output head, as transformers saves a base class', () => {
  const file = MODEL.huggingFace()['model.safetensors']!;
  const parsed = parseSafetensors(file);
  /** The model's files with other names; undefined leaves a tensor out. */
  const renamed = (to: (name: string) => string | undefined, config: object = {}): Record<string, Uint8Array> => ({
    'config.json': json({ ...MODEL.config, ...config }),
    'model.safetensors': writeSafetensors(
      new Map(
        [...parsed.tensors.keys()].flatMap((old) => {
          const name = to(old);
          return name === undefined ? [] : [[name, tensorFromSafetensors(file, parsed, old)] as const];
        }),
      ),
    ),
  });
  const base = (name: string) => (name.startsWith('lm_head') ? undefined : name.replace(/^model\./, ''));

  for (const config of [{}, { is_causal: false }])
    test(`it makes the embeddings of the whole model: ${JSON.stringify(config)}`, async () => {
      const whole = await embedIn(
        { ...MODEL.huggingFace(), 'config.json': json({ ...MODEL.config, ...config }) },
        TEXT,
      );
      assert.deepEqual(await embedIn(renamed(base, config), TEXT), whole);
    });

  test('it writes no text, and a head that is lost from a whole model is refused', async () => {
    const model = await open(renamed(base));
    assert.match(model.config.notes.at(-1)!, /no output head/);
    assert.throws(() => model.openSession(), { code: 'UNSUPPORTED', message: /no output head.*Use embed/ });
    await assert.rejects(generate(model, { tokens: [5] }).next(), { code: 'UNSUPPORTED' });
    model.dispose();
    const lost = renamed((name) => (name.startsWith('lm_head') ? undefined : name));
    await assert.rejects(open(lost), { code: 'FORMAT', message: /lm_head\.weight.*is not among/ });
    // A head beside names without a prefix is the head.
    const both = await open(renamed((name) => name.replace(/^model\./, '')));
    assert.equal(both.config.headless, false);
    both.dispose();
  });
});
