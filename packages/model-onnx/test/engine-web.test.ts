/** Tests of the engine for pages, without a page. test/browser/onnx-decoder.browser.test.ts runs it in one. */
import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { loadModel } from '@ropewalk/model';
import type { PlannedModel } from '@ropewalk/model/internal';
import { describeModel } from '@ropewalk/model/internal';
import { type TinyShape, tinyModel } from '../../../test/support/tiny-model.js';
import { type OnnxruntimeWeb, openOnnxWebEngine } from '../src/engine-web.js';

/** The options of a session, which never opens. */
const asked: { executionProviders: string[] }[] = [];
const ort: OnnxruntimeWeb = {
  InferenceSession: Object.assign(() => {}, {
    async create(_model: Uint8Array, options: { executionProviders: string[] }): Promise<never> {
      asked.push(options);
      throw new Error('no available backend found.');
    },
  }),
  Tensor: class {},
};
const TINY: TinyShape = {
  ...{ family: 'llama', layers: 1, hidden: 32, heads: 2, kvHeads: 1, headDim: 16, inter: 32, vocab: 32, tied: true },
};

describe('openOnnxWebEngine', () => {
  const before = Object.getOwnPropertyDescriptor(globalThis, 'navigator');
  const withGpu = (features: readonly string[]): void => {
    const gpu = { requestAdapter: async () => ({ features: new Set(features) }) };
    Object.defineProperty(globalThis, 'navigator', { value: { gpu }, configurable: true });
  };
  after(() => {
    if (before) Object.defineProperty(globalThis, 'navigator', before);
    else delete (globalThis as { navigator?: unknown }).navigator;
  });

  test('refusals', async () => {
    const open = openOnnxWebEngine as (ort: unknown, options?: unknown) => Promise<unknown>;
    await assert.rejects(open({ InferenceSession: class {} }), {
      code: 'RANGE',
      message: /^openOnnxWebEngine: ort: expected the module onnxruntime-web, got/,
    });
    await assert.rejects(open(ort, { providers: [] }), { message: /providers: expected a list such as \['wasm'\]/ });
    await assert.rejects(open(ort, { providers: [{}] }), { message: /providers: expected a list such as \['wasm'\]/ });
    await assert.rejects(open(ort, { form: 'best' }), { message: /form: expected contrib, standard or primitives/ });
  });

  test('the providers are asked for; what they do not do is said', async () => {
    const { gguf } = tinyModel('web', TINY);
    const engine = await openOnnxWebEngine(ort, { providers: ['webgpu', 'wasm'] });
    await assert.rejects(loadModel(gguf(), { engine, tokenizer: false }), {
      code: 'DEVICE',
      message: /no available backend found/,
    });
    assert.deepEqual(asked.at(-1)!.executionProviders, ['webgpu', 'wasm']);
  });

  test('half floats are widened for a GPU without shader-f16, and for no other', async () => {
    const description = await describeModel(tinyModel('halves', { ...TINY, dtype: 'f16' }).huggingFace());
    const widens = async (providers: string[]): Promise<boolean> => {
      const engine = await openOnnxWebEngine(ort, { providers });
      const opened = (await engine.open(description)) as unknown as { readonly description: PlannedModel };
      return opened.description.weights.every(({ held }) => held === 'f32');
    };
    withGpu([]);
    assert.deepEqual([await widens(['webgpu']), await widens(['wasm'])], [true, false]);
    withGpu(['shader-f16']);
    assert.equal(await widens(['webgpu']), false);
  });
});
