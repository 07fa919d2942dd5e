/**
 * Tests models on webgpu. Software adapters take seconds to compile the kernels, and milliseconds for each, so there
 * are few tokens.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { Ropewalk } from 'ropewalk';
import { countGpu, type GpuCounts } from '../../../test/support/count-gpu.js';
import { assertClose, BASE, continued, TOKENS, tolerance, YARN } from '../../../test/support/decoder.js';
import { check, familyVectors, NEAR, savedFamilies, savedFamily } from '../../../test/support/family-vectors.js';
import { STORIES } from '../../../test/support/fixtures.js';
import { noGpu, openShared, sharedWebgpu } from '../../../test/support/gpu.js';
import { storiesOn, TEXT } from '../../../test/support/stories.js';
import { numberTokenizer, tinyModel } from '../../../test/support/tiny-model.js';
import { loadModel } from '../src/load.js';
import { loadModelFile, loadModelFolder } from '../src/node.js';

describe('a decoder on webgpu', { skip: noGpu }, () => {
  // Software adapters are slow, so there is one backend and there are few tokens.
  test('a made-up model, and stories260K in q8_0, one batch and one token', async () => {
    const rw = await openShared('webgpu');
    const made = tinyModel('webgpu', { ...YARN, layers: 1, dtype: 'f16' });
    const loaded = await loadModel(made.gguf(), { backend: rw, tokenizer: numberTokenizer(64) });
    const session = loaded.openSession();
    const got = [
      ...(await session.append(TOKENS.slice(0, 4), { logits: 'all' })),
      ...(await session.append([TOKENS[4]!])),
    ];
    assertClose(got, made.logits(TOKENS.slice(0, 5)), tolerance(made.shape), 'made up');
    // The shift is queued like all other work.
    await session.shift(1, 2);
    const kept = [TOKENS[0]!, TOKENS[3]!, TOKENS[4]!, 9];
    assertClose(
      await session.append([9]),
      made.logits(kept).slice(-64),
      tolerance(made.shape) + 8 * 2 ** -24,
      'after a shift',
    );

    // docs/webgpu.md has these counts.
    const counts = countGpu((await sharedWebgpu()).shared.device);
    for (const token of [1, 2, 3, 4]) {
      await session.append([token]);
      const { writtenBytes, workgroups: _, ...rest } = counts;
      assert.deepEqual(rest, {
        ...{ submits: 1, passes: 1, dispatches: 3 + 15, writes: 2, copies: 1 }, // writes: parameters, and the token
        ...{ bindGroups: 0, pipelines: 0, buffers: 0 },
      });
      assert.equal(writtenBytes, 4 + rest.dispatches * 256);
      for (const name of Object.keys(counts) as (keyof GpuCounts)[]) counts[name] = 0;
    }

    for (const [cacheDtype, unit] of [['f8_e4m3', 2 ** -4] as const, ['i8', 1 / 127] as const]) {
      const narrow = loaded.openSession({ cacheDtype });
      await narrow.append(TOKENS.slice(0, 5), { logits: 'none' });
      await narrow.shift(1, 2);
      const rounded = 2 * made.shape.layers * unit;
      assertClose(await narrow.append([9]), made.logits(kept).slice(-64), rounded, `${cacheDtype}, after a shift`);
      narrow.dispose();
    }
    loaded.dispose();

    const [cpu, gpu] = [
      await loadModelFile(join(STORIES, 'model-q8_0.gguf'), { backend: 'cpu' }),
      await loadModelFile(join(STORIES, 'model-q8_0.gguf'), { backend: rw }),
    ];
    assert.equal(gpu.backend, 'webgpu');
    const [a, b] = [cpu.openSession(), gpu.openSession()];
    const [want, had] = [await a.append([1, 403]), await b.append([1, 403])];
    assertClose(had, want, tolerance({ ...BASE, family: 'llama', layers: 5, hidden: 64, inter: 172 }), 'stories260K');
    assert.deepEqual(await continued(b, had, 2), await continued(a, want, 2));
    for (const one of [cpu, gpu]) one.dispose();
  });
});

/** Models with each kind of layer: a software adapter takes a second for each new kernel. */
const ON_GPU = (
  'gemma2 gemma3 phi3 cohere2 olmo3 granite stablelm-parallel gptneox glm4 mistral3 qwen2moe deepseek2 gpt-oss qwen2vl ' +
  'exaone4 starcoder2'
).split(' ');
describe('families on webgpu: the logits of a short prompt and of one more token', { skip: noGpu }, () => {
  for (const vector of familyVectors().filter(({ name }) => ON_GPU.includes(name))) {
    test(vector.name, async () => {
      const backend = new Ropewalk(await sharedWebgpu());
      const options = { backend, context: vector.n_ctx, tokenizer: numberTokenizer(vector.vocab) };
      const model = await loadModelFile(vector.gguf, options);
      try {
        const tokens = Array.from(vector.array('tokens')!).slice(0, 20);
        const want = vector.array('logits-f64')!;
        const session = model.openSession();
        const got = await session.append(tokens.slice(0, -1), { logits: 'all' });
        check(got, Array.from(want).slice(0, 19 * vector.vocab), NEAR, 'prompt');
        const last = await session.append(tokens.slice(-1));
        check(last, Array.from(want).slice(19 * vector.vocab, 20 * vector.vocab), NEAR, 'next token');
      } finally {
        model.dispose();
      }
    });
  }
});

describe('families that transformers saved, on webgpu', { skip: noGpu }, () => {
  const scratch = mkdtempSync(join(tmpdir(), 'ropewalk-gpu-'));
  after(() => rmSync(scratch, { recursive: true }));
  for (const name of savedFamilies()) {
    test(name, async () => {
      const { writeTo, tokens, logits } = savedFamily(name);
      const folder = join(scratch, name);
      writeTo(folder);
      const backend = new Ropewalk(await sharedWebgpu());
      const model = await loadModelFolder(folder, { backend, context: 64, tokenizer: false });
      try {
        check(await model.openSession().append(tokens, { logits: 'all' }), logits, 2e-4, 'logits'); // as on cpu
      } finally {
        model.dispose();
      }
    });
  }
});

describe('stories260K', () => storiesOn('webgpu', 10, TEXT.slice(0, 130), noGpu));
