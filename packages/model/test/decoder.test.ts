/**
 * Tests the decoder: golden text of a real model, made-up models against float64 loops, the KV cache, every backend.
 */
import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import type { Runner } from 'ropewalk';
import { type Ropewalk, RopewalkError, ropewalk, type Tensor, zeros } from 'ropewalk';
import { referenceRunner } from 'ropewalk/reference';
import {
  assertClose,
  BASE,
  continued,
  distance,
  greedy,
  TOKENS,
  tolerance,
  YARN,
} from '../../../test/support/decoder.js';
import { STORIES } from '../../../test/support/fixtures.js';
import { kernelSequence } from '../../../test/support/kernel-sequence.js';
import { numberTokenizer, type TinyModel, type TinyShape, tinyModel } from '../../../test/support/tiny-model.js';
import { Scratch } from '../src/decoder.js';
import { type LoadOptions, loadModel } from '../src/load.js';
import { loadModelFile, loadModelFolder } from '../src/node.js';
import type { Model, Session } from '../src/types.js';

/** The models that are disposed at the end of the test file. */
const opened: Model[] = [];
after(() => {
  for (const model of opened) model.dispose();
});

async function open(files: Record<string, Uint8Array>, options: LoadOptions = {}): Promise<Model> {
  const model = await loadModel(files, { backend: 'cpu', threads: 1, tokenizer: numberTokenizer(64), ...options });
  opened.push(model);
  return model;
}

async function openStories(name: string, options: LoadOptions = {}): Promise<Model> {
  const load = name === '' ? loadModelFolder(STORIES, options) : loadModelFile(`${STORIES}/${name}`, options);
  const model = await load;
  opened.push(model);
  return model;
}

function llama3Frequency(j: number, dim: number): number {
  const kept = 10000 ** ((-2 * j) / dim);
  const turns = (32 * kept) / (2 * Math.PI); // within the original context of 32
  const smooth = Math.min(1, Math.max(0, (turns - 1) / (4 - 1)));
  return kept * smooth + (kept / 8) * (1 - smooth);
}

/** Models, each with its difference from the others. */
const CASES: Readonly<Record<string, TinyShape & { readonly noGguf?: true }>> = {
  'llama, tied head': { ...BASE, family: 'llama', tied: true },
  'llama, untied, every bias': {
    ...{ ...BASE, family: 'llama', qkvBias: true, outputBias: true, mlpBias: true },
    extra: { attention_bias: true, mlp_bias: true },
  },
  'llama3 frequencies': {
    ...{ ...BASE, family: 'llama', frequency: (j) => llama3Frequency(j, 8) },
    extra: {
      rope_scaling: {
        rope_type: 'llama3',
        factor: 8,
        low_freq_factor: 1,
        high_freq_factor: 4,
        original_max_position_embeddings: 32,
      },
    },
    freqFactors: [0, 1, 2, 3].map((j) => 10000 ** (-j / 4) / llama3Frequency(j, 8)),
  },
  'llama, yarn': YARN,
  'mistral, window of 4': {
    ...BASE,
    family: 'mistral',
    extra: { sliding_window: 4 },
    window: 4,
    noGguf: true, // llama.cpp has no window in llama, so no file can say this
  },
  'qwen2, biases of q, k and v, odd sizes': {
    ...BASE,
    family: 'qwen2',
    hidden: 36,
    heads: 3,
    kvHeads: 1,
    headDim: 12,
    inter: 52,
    qkvBias: true,
  },
  'qwen3, norms of q and k, heads wider than the stream': { ...BASE, family: 'qwen3', headDim: 16, kvHeads: 1 },
  'llama, f16': { ...BASE, family: 'llama', dtype: 'f16', tied: true },
  'qwen2, bf16': { ...BASE, family: 'qwen2', dtype: 'bf16', qkvBias: true },
};

describe('made-up models against float64 loops', () => {
  for (const [label, shape] of Object.entries(CASES)) {
    const model = tinyModel(label, shape);
    const want = model.logits(TOKENS);
    const formats = { safetensors: model.huggingFace(), ...(shape.noGguf ? {} : { gguf: model.gguf() }) };
    for (const [format, files] of Object.entries(formats)) {
      for (const backend of ['cpu', 'reference'] as const) {
        test(`${label}, ${format}, ${backend}`, async () => {
          const session = (await open(files, { backend })).openSession();
          const got = await session.append(TOKENS, { logits: 'all' });
          assertClose(got, want, tolerance(shape), 'all logits of one batch');
          session.truncate(0);
          const rows: number[] = [];
          for (const token of TOKENS) rows.push(...(await session.append([token])));
          assertClose(rows, want, tolerance(shape), 'token by token');
          session.dispose();
        });
      }
    }
  }

  test('these notice a wrong pairing, a lost bias, a lost norm, a lost window', () => {
    // The result of each mistake is far from the correct one, so the comparisons above would fail.
    const far = (a: TinyModel, change: Partial<TinyShape>): void => {
      const other = { ...a.shape, ...change };
      const wrong = tinyModel(Object.keys(CASES).find((label) => CASES[label] === a.shape)!, other).logits(TOKENS);
      const { worst, scale } = distance(wrong, a.logits(TOKENS));
      assert.ok(worst > 1000 * tolerance(a.shape) * scale, `${JSON.stringify(change)}: ${worst} of ${scale}`);
    };
    const of = (label: string): TinyModel => tinyModel(label, CASES[label]!);
    far(of('llama, yarn'), { magnitude: 1 });
    far(of('llama, yarn'), { frequency: (j) => 10000 ** (-j / 4) });
    far(of('llama3 frequencies'), { frequency: (j) => 10000 ** (-j / 4) });
    far(of('mistral, window of 4'), { window: 5 });
  });
});

describe('stories260K', () => {
  const TEXT =
    'Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a big, red ball. ' +
    'She wanted to play with it, but it was too high.';

  for (const name of ['', 'model-f32.gguf', 'model-f16.gguf', 'model-q8_0.gguf']) {
    test(`greedy from BOS on cpu: ${name || 'safetensors'}`, async () => {
      const model = await openStories(name, { backend: 'cpu' });
      assert.equal(model.backend, 'cpu');
      const session = model.openSession();
      const tokens = await continued(session, await session.append([1]), 64);
      assert.ok(model.tokenizer.decode(tokens).startsWith(TEXT), model.tokenizer.decode(tokens));
      // The same tokens in one batch lead to the same choices.
      session.truncate(0);
      const all = await session.append([1, ...tokens.slice(0, -1)], { logits: 'all' });
      const { vocabSize } = model.config;
      assert.deepEqual(
        tokens.map((_, s) => greedy(all.subarray(s * vocabSize, (s + 1) * vocabSize))),
        tokens,
      );
      session.dispose();
    });
  }

  test('reference and cpu: logits as close as f32 can be, and the same choices, for every file', async () => {
    for (const name of ['', 'model-f16.gguf', 'model-q8_0.gguf']) {
      const exact = await openStories(name, { backend: 'reference' });
      const fast = await openStories(name, { backend: 'cpu' });
      const prompt = exact.tokenizer.encode('Once upon a time, there was a little');
      const [a, b] = [exact.openSession(), fast.openSession()];
      const [want, got] = [await a.append(prompt, { logits: 'all' }), await b.append(prompt, { logits: 'all' })];
      assertClose(
        got,
        want,
        tolerance({ ...BASE, family: 'llama', layers: 5, hidden: 64, inter: 172, heads: 8 }),
        name,
      );
      const tokens = await continued(a, want.slice(-512), 8);
      assert.deepEqual(await continued(b, got.slice(-512), 8), tokens, name);
      a.dispose();
      b.dispose();
    }
  });

  test('both layouts hold the same weights: the same logits but for the order of sums', async () => {
    const [half, woven] = [await openStories(''), await openStories('model-f32.gguf')];
    const prompt = half.tokenizer.encode('One day, she saw a big, red ball.');
    assert.deepEqual(woven.tokenizer.encode('One day, she saw a big, red ball.'), prompt);
    const [a, b] = [half.openSession(), woven.openSession()];
    assertClose(await a.append(prompt), await b.append(prompt), 1e-5, 'logits');
  });
});

describe('the KV cache', () => {
  const long = { ...BASE, family: 'llama', context: 1200 } as const;
  const tokensOf = (count: number): number[] => Array.from({ length: count }, (_, n) => (n * 29 + (n >> 3)) % 64);

  test('prompts longer than a piece: cutting them changes nothing', async () => {
    const model = await open(tinyModel('long', long).huggingFace());
    const tokens = tokensOf(1100);
    const session = model.openSession({ context: 1100 });
    const whole = await session.append(tokens);
    const all: number[] = [];
    session.truncate(0);
    for (const [from, to] of [
      [0, 1],
      [1, 513],
      [513, 514],
      [514, 1100],
    ] as const)
      all.push(...(await session.append(tokens.slice(from, to), { logits: 'all' })));
    assert.equal(session.length, 1100);
    assertClose(all.slice(-64), whole, tolerance(long), 'the last logits');
    session.truncate(0);
    assertClose(await session.append(tokens, { logits: 'all' }), all, tolerance(long), 'all logits');
    session.dispose();
  });

  test('truncate: the results are as if the dropped tokens had never been appended', async () => {
    const session = (await open(tinyModel('truncate', long).huggingFace())).openSession({ context: 40 });
    await session.append([5, 6, 7]);
    const want = await session.append([8, 9]);
    session.truncate(3);
    await session.append([1, 2, 3, 4], { logits: 'none' });
    session.truncate(3);
    assert.equal(session.length, 3);
    assert.deepEqual(await session.append([8, 9]), want);
  });

  test('fewer bits: each key and value rounded once', async () => {
    const made = tinyModel('halves', { ...BASE, family: 'llama' });
    const model = await open(made.huggingFace());
    const want = made.logits(TOKENS);
    for (const [cacheDtype, unit] of [
      ['f16', 2 ** -11],
      ['bf16', 2 ** -8],
      ['f8_e4m3', 2 ** -4],
      ['i8', 1 / 127],
    ] as const) {
      const session = model.openSession({ cacheDtype });
      const got = await session.append(TOKENS, { logits: 'all' });
      // Each term of q·k and of the mean of v is off by a unit. The errors hardly add up within a layer.
      assertClose(got, want, 2 * BASE.layers * unit, cacheDtype);
      assert.ok(distance(got, want).worst > tolerance(made.shape) * distance(got, want).scale, 'it is really rounded');
      session.dispose();
    }
  });

  test('two sessions of one model take turns', async () => {
    const model = await open(tinyModel('two', long).huggingFace());
    const [a, b] = [model.openSession({ context: 600 }), model.openSession({ context: 600 })];
    const [left, right] = await Promise.all([a.append(tokensOf(550)), b.append(tokensOf(530).reverse())]);
    const alone = model.openSession({ context: 600 });
    assert.deepEqual(left, await alone.append(tokensOf(550)));
    alone.truncate(0);
    assert.deepEqual(right, await alone.append(tokensOf(530).reverse()));
  });

  test('logits none, and a batch of no tokens', async () => {
    const session = (await open(tinyModel('none', long).huggingFace())).openSession({ context: 8 });
    assert.equal((await session.append([1, 2], { logits: 'none' })).length, 0);
    assert.equal((await session.append([])).length, 0);
    assert.equal((await session.append([], { logits: 'all' })).length, 0);
    assert.equal(session.length, 2);
    assert.equal((await session.append(Int32Array.of(3))).length, 64);
  });

  test('a vocabulary so large that logits come a few rows at a time', async () => {
    const made = tinyModel('vocabulary', {
      ...BASE,
      layers: 1,
      hidden: 8,
      vocab: 2 ** 16,
      family: 'llama',
      tied: true,
      context: 80,
    });
    const model = await open(made.huggingFace());
    const tokens = Array.from({ length: 80 }, (_, n) => (n * 7919) % 2 ** 16);
    const all = await model.openSession().append(tokens, { logits: 'all' });
    assert.equal(all.length, 80 * 2 ** 16);
    const want = made.logits(tokens);
    for (const row of [0, 63, 64, 79]) {
      const at = row * 2 ** 16;
      assertClose(all.subarray(at, at + 2 ** 16), want.subarray(at, at + 2 ** 16), tolerance(made.shape), `row ${row}`);
    }
  });

  test('an append that fails leaves the session as it was', async () => {
    const session = (await open(tinyModel('fails', long).huggingFace())).openSession({ context: 20 });
    const { scratch } = kernelSequence(session).decoder;
    await session.append([1, 2], { logits: 'none' });
    const logits = scratch.logits.bind(scratch);
    scratch.logits = () => {
      throw new Error('no memory');
    };
    await assert.rejects(session.append([3, 4]), /no memory/);
    assert.equal(session.length, 2);
    scratch.logits = logits;
    const got = await session.append([5]);
    session.truncate(0);
    await session.append([1, 2], { logits: 'none' });
    assert.deepEqual(got, await session.append([5]));
  });

  test('memory for a batch that can be allocated only in part is freed', async () => {
    const taken = new Set<Tensor>();
    const allocate: Runner['allocate'] = (dtype, shape) => {
      if (taken.size === 5) throw new Error('no memory');
      const tensor = zeros(dtype, shape);
      tensor.dispose = () => taken.delete(tensor as Tensor);
      taken.add(tensor as Tensor);
      return tensor;
    };
    const { config } = await open(tinyModel('partly', { ...BASE, family: 'llama' }).huggingFace());
    assert.throws(() => new Scratch({ ...referenceRunner(), allocate }, config).rows(3), /no memory/);
    assert.equal(taken.size, 0);
  });

  test('hidden: the input of the head', async () => {
    const made = tinyModel('hidden', { ...BASE, family: 'llama', tied: true });
    const model = await open(made.huggingFace());
    const hidden = await model.hidden(TOKENS);
    assert.equal(hidden.length, TOKENS.length * BASE.hidden);
    const table = made.weights.get('model.embed_tokens.weight')!.values;
    const logits = Float64Array.from({ length: TOKENS.length * 64 }, (_, at) => {
      let sum = 0;
      for (let i = 0; i < 32; i++) sum += hidden[Math.floor(at / 64) * 32 + i]! * table[(at % 64) * 32 + i]!;
      return sum;
    });
    assertClose(logits, made.logits(TOKENS), tolerance(made.shape), 'hidden · table');
    assert.equal((await model.hidden([])).length, 0);
  });
});

describe('K-shift', () => {
  /**
   * A key that is rotated back by −count has the roundings of two rotations, each some units of its size. A fresh key
   * has those of one.
   */
  const TURNED = 8 * 2 ** -24;
  // In i8 an error is a part of the head's largest value, and turning makes both up to √2 larger.
  const half = { f32: 0, f16: 2 ** -11, bf16: 2 ** -8, f8_e4m3: 2 ** -4, i8: Math.SQRT2 / 254 } as const;

  async function keys(session: Session): Promise<Float64Array> {
    const { k, kScales } = kernelSequence(session).cache;
    const stored = await k[0]!.slice(0, 0, session.length).readNumbers();
    const scales = await kScales[0]?.readNumbers();
    return Float64Array.from(stored, (value, n) => value * (scales?.[Math.floor(n / k[0]!.shape[2]!)] ?? 1));
  }

  for (const [label, shape] of Object.entries({
    'llama, half pairs': { ...BASE, family: 'llama' },
    'yarn, whose magnitude must not come twice': YARN,
    'qwen3, normed keys': { ...BASE, family: 'qwen3', headDim: 16 },
  } as Record<string, TinyShape>)) {
    const made = tinyModel(label, shape);
    for (const format of ['huggingFace', 'gguf'] as const) {
      for (const cacheDtype of ['f32', 'f16', 'bf16', 'f8_e4m3', 'i8'] as const) {
        test(`the first layer's keys are those of a fresh run: ${label}, ${format}, ${cacheDtype}`, async () => {
          const session = (await open(made[format]())).openSession({ cacheDtype });
          await session.append(TOKENS, { logits: 'none' });
          await session.shift(2, 5);
          assert.equal(session.length, TOKENS.length - 5);
          const want = made.keysOfFirstLayer([...TOKENS.slice(0, 2), ...TOKENS.slice(7)]);
          const got = await keys(session);
          // In a file whose rows are interleaved, keys are interleaved too.
          const d = shape.headDim;
          const order = (n: number): number => {
            const i = n % d;
            const woven = format === 'gguf' && shape.family === 'llama';
            return woven ? n - i + (i < d / 2 ? 2 * i : 2 * (i - d / 2) + 1) : n;
          };
          // A key is rounded when it is cached, and again when it has turned back.
          assertClose(
            want.map((_, n) => got[order(n)]!),
            want,
            TURNED + 2 * half[cacheDtype] + tolerance(shape),
            'keys',
          );
        });
      }
    }
  }

  // With one layer, keys and values depend on their own token alone, so shifting and running afresh are the same in
  // theory. With more they are not: the values of layer 1 have seen the dropped tokens.
  test('with one layer, what follows is what a fresh run gives', async () => {
    for (const shape of [{ ...BASE, family: 'llama' }, YARN] as TinyShape[]) {
      const made = tinyModel('one layer', { ...shape, layers: 1 });
      const session = (await open(made.huggingFace())).openSession();
      await session.append(TOKENS, { logits: 'none' });
      await session.shift(3, 4);
      const kept = [...TOKENS.slice(0, 3), ...TOKENS.slice(7), 21];
      assertClose(await session.append([21]), made.logits(kept).slice(-64), tolerance(made.shape) + TURNED, 'logits');
    }
  });

  test('more rows than move at a time, twice, and back to a position that was there', async () => {
    const made = tinyModel('many rows', { ...BASE, layers: 1, family: 'llama', context: 1600 });
    const session = (await open(made.huggingFace())).openSession({ context: 1600 });
    const tokens = Array.from({ length: 1500 }, (_, n) => (n * 31) % 64);
    await session.append(tokens, { logits: 'none' });
    await session.shift(1, 3);
    await session.shift(100, 200);
    const kept = [tokens[0]!, ...tokens.slice(4)];
    kept.splice(100, 200);
    const fresh = (await open(made.huggingFace())).openSession({ context: 1600 });
    await fresh.append(kept, { logits: 'none' });
    assert.equal(session.length, kept.length);
    assertClose(await keys(session), await keys(fresh), 2 * TURNED, 'keys');
    assertClose(await session.append([7]), await fresh.append([7]), tolerance(made.shape) + 2 * TURNED, 'logits');
    session.dispose();
    fresh.dispose();
  });

  test('stories260K goes on after a shift, and its first layer agrees with a fresh run', async () => {
    const model = await openStories('', { backend: 'cpu' });
    const text = model.tokenizer.encode(
      'Once upon a time, there was a little girl named Lily. She loved to play outside in the park.',
    );
    const [session, fresh] = [model.openSession(), model.openSession()];
    await session.append(text, { logits: 'none' });
    await session.shift(1, 10);
    await fresh.append([text[0]!, ...text.slice(11)], { logits: 'none' });
    assertClose(await keys(session), await keys(fresh), TURNED, 'keys of layer 0');
    // Layers above have seen the dropped tokens, so the logits differ a little. If they differed much, the text would
    // stop making sense.
    const [shifted, plain] = [await session.append([text[3]!]), await fresh.append([text[3]!])];
    const { worst, scale } = distance(shifted, plain);
    assert.ok(worst > 0 && worst < 0.5 * scale, `${worst} of ${scale}`);
  });

  test('of nothing, and of all tokens', async () => {
    const session = (await open(tinyModel('edges', { ...BASE, family: 'llama' }).huggingFace())).openSession();
    const want = await session.append(TOKENS);
    await session.shift(4, 0);
    assert.equal(session.length, TOKENS.length);
    session.truncate(TOKENS.length - 1);
    assert.deepEqual(await session.append([TOKENS.at(-1)!]).then((got) => distance(got, want).worst < 1e-5), true);
    await session.shift(0, TOKENS.length);
    assert.equal(session.length, 0);
  });
});

describe('refusals', () => {
  const made = tinyModel('refusals', { ...BASE, family: 'llama' });
  const refused = async (work: Promise<unknown>, code: string, message: RegExp): Promise<void> => {
    await assert.rejects(work, (error: unknown) => {
      assert.ok(error instanceof RopewalkError, String(error));
      assert.equal(error.code, code);
      assert.match(error.message, message);
      return true;
    });
  };

  test('tokens, room, truncate and shift', async () => {
    const model = await open(made.huggingFace());
    const session = model.openSession({ context: 4 });
    await refused(
      session.append([64]),
      'RANGE',
      /^append: tokens\[0\]: expected an id in \[0, vocabulary=64\), got 64$/,
    );
    await refused(session.append([1, -1]), 'RANGE', /tokens\[1\]: .* got -1/);
    await refused(session.append([1.5]), 'RANGE', /got 1\.5/);
    await refused(
      session.append(undefined as unknown as number[]),
      'RANGE',
      /append: tokens: expected a list, got none/,
    );
    await refused(
      session.append([1], { logits: 'first' as 'last' }),
      'RANGE',
      /append: logits: expected last, all or none, got "first"/,
    );
    await refused(session.append([1, 2, 3, 4, 5]), 'RANGE', /at most 4, the room left of 4, got 5\. Truncate or shift/);
    assert.equal(session.length, 0);
    await session.append([1, 2, 3]);
    await refused(session.append([1, 2]), 'RANGE', /at most 1, the room left of 4, got 2/);
    assert.throws(() => session.truncate(4), /truncate: length: expected an integer in \[0, length=3\], got 4/);
    assert.throws(() => session.truncate(-1), { code: 'RANGE' });
    await refused(session.shift(4, 0), 'RANGE', /shift: from: expected an integer in \[0, length=3\]/);
    await refused(
      session.shift(1, 3),
      'RANGE',
      /shift: count: expected an integer in \[0, 2\], the number of tokens from 1 on, got 3/,
    );
    assert.equal(session.length, 3);
  });

  test('contexts and cache types', async () => {
    const model = await open(made.huggingFace());
    for (const context of [0, 65, 1.5, Number.NaN])
      assert.throws(
        () => model.openSession({ context }),
        /openSession: context: expected an integer in \[1, 64\], the model's own/,
      );
    assert.throws(() => model.openSession({ cacheDtype: 'f64' as 'f32' }), {
      code: 'DTYPE',
      message: /cacheDtype: expected f32, f16, bf16, f8_e4m3 or i8/,
    });
  });

  test('one thing at a time, and nothing after dispose', async () => {
    const model = await open(tinyModel('busy', { ...BASE, family: 'llama', context: 1200 }).huggingFace());
    const session = model.openSession({ context: 1200 });
    const running = session.append(new Array(1000).fill(3));
    assert.throws(() => session.truncate(0), { code: 'UNSUPPORTED' });
    await refused(
      session.append([1]),
      'UNSUPPORTED',
      /append: session: it is in the middle of append\. Await append first/,
    );
    await running;
    session.dispose();
    session.dispose();
    await refused(session.append([1]), 'DEVICE', /session: it was disposed\. Open another one: model\.openSession/);
    const other = model.openSession();
    model.dispose();
    model.dispose();
    await refused(other.append([1]), 'DEVICE', /disposed/);
    assert.throws(() => model.openSession(), { code: 'DEVICE', message: /Load it again/ });
  });

  test('a signal ends it between pieces; the pieces done stay', async () => {
    const model = await open(tinyModel('signal', { ...BASE, family: 'llama', context: 2000 }).huggingFace());
    const session = model.openSession({ context: 2000 });
    const control = new AbortController();
    const reason = new Error('enough');
    const running = session.append(new Array(1900).fill(3), { signal: control.signal });
    control.abort(reason);
    await assert.rejects(running, reason);
    assert.ok(session.length % 512 === 0 && session.length < 1900, `${session.length}`);
    await session.append([1]);
    await assert.rejects(session.append([1], { signal: AbortSignal.abort(reason) }), reason);
  });

  test('a signal from a timer gets its turn between single tokens', async () => {
    const model = await open(tinyModel('timer', { ...BASE, family: 'llama' }).huggingFace());
    const session = model.openSession();
    let ended = false;
    setTimeout(() => {
      ended = true;
    }, 30);
    for (let n = 0; n < 1e6 && !ended; n++) {
      session.truncate(0);
      await session.append([1]);
    }
    assert.ok(ended);
  });
});

test('a session that does not fit is refused with the sums, before memory is taken', async () => {
  const made = tinyModel('fits', { ...BASE, family: 'llama', context: 2 ** 20 });
  let rw: Ropewalk | undefined;
  try {
    rw = await ropewalk({ backend: 'cpu', threads: 1, memoryLimit: 32 * 2 ** 20 });
    const model = await loadModel(made.huggingFace(), { backend: rw, tokenizer: numberTokenizer(64), context: 100 });
    assert.throws(() => model.openSession({ context: 2 ** 20 }), {
      code: 'DEVICE',
      message: /cache of 1048576 tokens 256 MiB.*less .* held already.*A context of \d+ tokens would fit/,
    });
    const [, room] = /context of (\d+) tokens would fit/.exec(
      await message(() => model.openSession({ context: 2 ** 20 })),
    )!;
    model.openSession({ context: Number(room) }).dispose();
    const half = model.openSession({ context: Number(room), cacheDtype: 'f16' });
    assert.throws(
      () => model.openSession({ context: Number(room) }),
      { code: 'DEVICE' },
      'what the other session holds counts',
    );
    half.dispose();
    model.openSession({ context: Number(room) }).dispose();
    model.dispose();
  } finally {
    rw?.dispose();
  }
});

async function message(work: () => unknown): Promise<string> {
  try {
    work();
  } catch (error) {
    return (error as Error).message;
  }
  return 'nothing was thrown';
}
