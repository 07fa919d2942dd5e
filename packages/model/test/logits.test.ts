/** Compares logits in blocks, and the comparison of two sets of them, with loops over whole arrays. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import fc from 'fast-check';
import { type Ropewalk, ropewalk } from 'ropewalk';
import { drawn } from '../../../test/support/size.js';
import { numberTokenizer, tinyModel } from '../../../test/support/tiny-model.js';
import { compareLogits } from '../src/compare-logits.js';
import { perplexity } from '../src/index.js';
import { type LoadOptions, loadModel } from '../src/load.js';
import { logits, logSumExp } from '../src/logits.js';
import type { AppendOptions, Model } from '../src/types.js';

const VOCAB = 30;
const tiny = tinyModel('logits', {
  family: 'llama',
  layers: 2,
  hidden: 16,
  heads: 2,
  kvHeads: 1,
  headDim: 8,
  inter: 16,
  vocab: VOCAB,
  context: 64,
});
const TOKENS = Array.from({ length: 20 }, (_, n) => (7 * n + 3) % VOCAB);

let rw: Ropewalk;
let model: Model;
before(async () => {
  rw = await ropewalk({ backend: 'cpu', threads: 1 });
  model = await loadModel(tiny.gguf(), { backend: rw, tokenizer: false, context: 16 });
});
after(() => {
  model.dispose();
  rw.dispose();
});

async function collect(blocks: AsyncIterable<Float32Array>): Promise<number[]> {
  const values: number[] = [];
  for await (const block of blocks) values.push(...block);
  return values;
}

/** Makes a model whose logits are `value(token, id)`, with a vocabulary that makes blocks of few rows. */
function fakeModel(vocabSize: number, value: (token: number, id: number) => number) {
  const log: { tokens: number[]; positions: number[] | undefined }[] = [];
  const contexts: number[] = [];
  let open = 0;
  const fake = {
    config: { vocabSize, maxContext: 1000 },
    openSession: ({ context }: { context: number }) => {
      open++;
      contexts.push(context);
      return {
        context,
        async append(tokens: Int32Array, options: AppendOptions) {
          log.push({ tokens: [...tokens], positions: options.positions && [...options.positions] });
          return Float32Array.from({ length: tokens.length * vocabSize }, (_, n) =>
            value(tokens[Math.floor(n / vocabSize)]!, n % vocabSize),
          );
        },
        dispose: () => open--,
      };
    },
  } as unknown as Model;
  return { fake, log, contexts, open: () => open };
}

describe('logits', () => {
  test('of every token, as the float64 loops', async () => {
    const got = await collect(logits(model, TOKENS));
    const want = tiny.logits(TOKENS);
    assert.equal(got.length, want.length);
    for (const [n, value] of want.entries()) assert.ok(Math.abs(got[n]! - value) < 1e-5, `${n}: ${got[n]}, ${value}`);
    assert.deepEqual(await collect(logits(model, Int32Array.from(TOKENS), { context: 20, cacheDtype: 'f32' })), got);
  });

  test('the context is the number of tokens, unless the caller has another', async () => {
    const { fake, contexts } = fakeModel(8, () => 0);
    await collect(logits(fake, [1, 2, 3]));
    await collect(logits(fake, [1, 2, 3], { context: 256 }));
    assert.deepEqual(contexts, [3, 256]);
  });

  test('whole rows in blocks of at most 2^24 logits, each with its own positions, of one axis or of several', async () => {
    const vocab = 2 ** 22; // four rows a block
    const { fake, log, open } = fakeModel(vocab, (token, id) => (id === 5 ? token : 0));
    const seen: number[] = [];
    const positions = [0, 1, 2, 3, 4, 9, 10, 11, 12, 13, 20, 21, 22, 23, 24];
    for await (const block of logits(fake, [10, 11, 12, 13, 14], { positions }))
      for (let at = 5; at < block.length; at += vocab) seen.push(block[at]!);
    assert.deepEqual(seen, [10, 11, 12, 13, 14]);
    assert.deepEqual(log, [
      { tokens: [10, 11, 12, 13], positions: [0, 1, 2, 3, 9, 10, 11, 12, 20, 21, 22, 23] },
      { tokens: [14], positions: [4, 13, 24] },
    ]);
    await logits(fake, [1], {}).next();
    assert.deepEqual(log.at(-1), { tokens: [1], positions: undefined });
    assert.equal(open(), 1, 'a loop that was not ended holds its session');
    const left = logits(fake, [1, 2, 3, 4, 5]);
    await left.next();
    await left.return();
    assert.equal(open(), 1, 'one that was left has closed its own');
  });

  test('refusals, before anything is computed', async () => {
    const refuses = (code: string, message: RegExp, ...args: Parameters<typeof logits>) =>
      assert.rejects(logits(...args).next(), { name: 'RopewalkError', code, message });
    await refuses('RANGE', /^logits: tokens\[1\]: expected an id in \[0, vocabulary=30\), got 30/, model, [1, VOCAB]);
    await refuses('RANGE', /^logits: tokens: expected at least one token/, model, []);
    await refuses(
      'RANGE',
      /^logits: tokens: expected at most 8 tokens, the context, got 20\. Give a larger context, of at most 64\./,
      model,
      TOKENS,
      { context: 8 },
    );
    await refuses('RANGE', /at most 64 tokens, the context, got 65\. Give fewer/, model, new Array(65).fill(1));
    await refuses('RANGE', /context: expected an integer in \[1, 64\]/, model, TOKENS, { context: 65 });
    await refuses('SHAPE', /^logits: positions: expected 20 positions, one a token, or as many/, model, TOKENS, {
      positions: [1, 2, 3],
    });
    const signal = AbortSignal.abort();
    await assert.rejects(logits(model, TOKENS, { signal }).next(), { name: 'AbortError' });
  });
});

describe('a context that is said when config and tokenizer are known', () => {
  const load = (context: LoadOptions['context'], more: Omit<LoadOptions, 'context'> = {}) =>
    loadModel(tiny.gguf(), { backend: rw, tokenizer: numberTokenizer(VOCAB), context, ...more });

  test('is that of sessions and of the memory that is said', async () => {
    const said: number[] = [];
    const context: LoadOptions['context'] = ({ maxContext }, tokenizer) => {
      assert.deepEqual([maxContext, tokenizer!.encode('<5><6>')], [64, [1, 5, 6]]);
      return 7;
    };
    const onMemory: LoadOptions['onMemory'] = (memory) => said.push(memory.context);
    const seven = await load(context, { onMemory });
    assert.deepEqual([...said, seven.memory.context, seven.openSession().capacity], [7, 7, 7]);
    seven.dispose();
    const none = await load((_, tokenizer) => (tokenizer === undefined ? 5 : 6), { tokenizer: false });
    assert.equal(none.memory.context, 5);
    none.dispose();
  });

  test('is checked, and its error ends loading before memory is said', async () => {
    const onMemory = (): never => assert.fail('memory is said');
    for (const bad of [65, 0, 1.5, 'many' as unknown as number])
      await assert.rejects(
        load(() => bad, { onMemory }),
        { code: 'RANGE', message: /^loadModel: context: expected an integer in \[1, 64\]/ },
      );
    const own = new Error('own');
    const thrown = load(
      () => {
        throw own;
      },
      { onMemory },
    );
    await assert.rejects(thrown, own);
  });
});

describe('tokenizer: false', () => {
  test('a model without a vocabulary loads, and refuses what needs one', async () => {
    await assert.rejects(loadModel(tiny.gguf(), { backend: rw }), { code: 'FORMAT' });
    const refused = {
      code: 'UNSUPPORTED',
      message: /^model\.tokenizer: the model was loaded with tokenizer: false\. Load it without that option/,
    };
    assert.throws(() => model.tokenizer, refused);
    await assert.rejects(perplexity(model, 'text'), refused);
  });
  test('another value is refused', async () => {
    for (const tokenizer of [true, 0, null] as unknown as false[])
      await assert.rejects(loadModel(tiny.gguf(), { backend: rw, tokenizer }), {
        code: 'RANGE',
        message: /tokenizer: expected a tokenizer/,
      });
  });
});

test('perplexity is exp of the mean of logSumExp(row) - row[next]', async () => {
  const read = await loadModel(tiny.gguf(), { backend: rw, tokenizer: numberTokenizer(VOCAB) });
  const ids = [4, 9, 2, 7];
  const text = ids.map((id) => `<${id}>`).join('');
  const bos = read.tokenizer.addBos ? [read.tokenizer.bosToken!] : [];
  const all = [...bos, ...read.tokenizer.encode(text, { addBos: false })];
  const rows = tiny.logits(all);
  let nats = 0;
  for (let s = 1; s < all.length; s++) {
    const row = rows.subarray((s - 1) * VOCAB, s * VOCAB);
    nats += Math.log(row.reduce((sum, value) => sum + Math.exp(value), 0)) - row[all[s]!]!;
  }
  const { perplexity: got, tokens } = await perplexity(read, text);
  assert.ok(Math.abs(got / Math.exp(nats / tokens) - 1) < 1e-5, `${got}`);
  read.dispose();
});

describe('compareLogits', () => {
  /** Computes the measures of one row by their definitions. */
  function byDefinition(a: readonly number[], b: readonly number[]) {
    const softmax = (row: readonly number[]): number[] => {
      const sum = row.reduce((total, value) => total + Math.exp(value), 0);
      return row.map((value) => Math.exp(value) / sum);
    };
    const [p, q] = [softmax(a), softmax(b)];
    const order = (row: readonly number[]) => row.map((_, id) => id).sort((x, y) => row[y]! - row[x]! || x - y);
    const [best, other] = [order(a).slice(0, 5), order(b).slice(0, 5)];
    return {
      difference: Math.max(...a.map((value, id) => Math.abs(value - b[id]!))),
      kl: p.reduce((sum, value, id) => sum + value * Math.log(value / q[id]!), 0),
      best: best[0]!,
      other: other[0]!,
      common: best.filter((id) => other.includes(id)).length / best.length,
    };
  }
  const near = (got: number | undefined, want: number, what: string): void =>
    assert.ok(Math.abs(got! - want) <= 1e-12 * (1 + Math.abs(want)), `${what}: ${got}, want ${want}`);

  test('the measures by definition, whatever the blocks and the dtypes', async () => {
    const number = fc.integer({ min: -40, max: 40 }).map((n) => n / 8);
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1, max: 12 }),
        fc.integer({ min: 1, max: 7 }),
        fc.integer({ min: 1, max: 7 }),
        fc.infiniteStream(number),
        async (vocabSize, tokens, rows, numbers) => {
          const make = () => Array.from({ length: tokens * vocabSize }, () => numbers.next().value as number);
          const [a, b] = [make(), make()];
          const cut = (values: number[]): Float64Array[] =>
            Array.from({ length: Math.ceil(tokens / rows) }, (_, n) =>
              Float64Array.from(values.slice(n * rows * vocabSize, (n + 1) * rows * vocabSize)),
            );
          const got = await compareLogits([Float32Array.from(a)], cut(b), { vocabSize });
          const each = Array.from({ length: tokens }, (_, s) => {
            const row = (values: number[]) => values.slice(s * vocabSize, (s + 1) * vocabSize);
            return byDefinition(row(a), row(b));
          });
          const mean = (pick: (one: (typeof each)[number]) => number): number =>
            each.reduce((sum, one) => sum + pick(one), 0) / tokens;
          assert.deepEqual(
            [got.tokens, got.vocabSize, got.compared, got.broken],
            [tokens, vocabSize, tokens, undefined],
          );
          assert.equal(got.maxDifference, Math.max(...each.map(({ difference }) => difference)));
          near(
            got.klMean,
            mean(({ kl }) => kl),
            'mean KL',
          );
          near(got.klMax, Math.max(...each.map(({ kl }) => kl)), 'largest KL');
          near(each[got.klMaxToken!]!.kl, got.klMax!, 'its token');
          near(
            got.top1,
            mean(({ best, other }) => Number(best === other)),
            'top-1',
          );
          near(
            got.top5,
            mean(({ common }) => common),
            'top-5',
          );
          const first = each.findIndex(({ best, other }) => best !== other);
          assert.deepEqual(
            got.firstApart,
            first < 0 ? undefined : { token: first, a: each[first]!.best, b: each[first]!.other },
          );
          const at = got.maxDifferenceAt;
          assert.equal(at === undefined, got.maxDifference === 0);
          if (at) {
            assert.deepEqual([at.a, at.b], [a[at.token * vocabSize + at.id], b[at.token * vocabSize + at.id]]);
            assert.equal(Math.abs(at.a - at.b), got.maxDifference);
          }
        },
      ),
      drawn(300),
    );
  });

  test('large logits do not overflow: only their differences count', async () => {
    const [a, b] = [Float32Array.of(1000, 1001, 999), Float32Array.of(0, 1, -1)];
    assert.ok(Math.abs(logSumExp(a) - 1000 - logSumExp(b)) < 1e-9);
    const got = await compareLogits([a], [b], { vocabSize: 3 });
    assert.equal(got.maxDifference, 1000);
    assert.ok(got.klMax! < 1e-12 && got.klMax! >= 0, `${got.klMax}`);
    const far = await compareLogits([Float32Array.of(0, -2000)], [Float32Array.of(-2000, 0)], { vocabSize: 2 });
    assert.equal(far.klMean, 2000);
  });

  test('no difference that counts follows from none: a bound of the probabilities', async () => {
    const number = fc.double({ min: -30, max: 30, noNaN: true });
    const row = fc.array(fc.tuple(number, fc.double({ min: -1, max: 1, noNaN: true })), { minLength: 1, maxLength: 9 });
    fc.assert(
      fc.property(row, fc.double({ min: 1e-4, max: 0.5, noNaN: true }), (pairs, d) => {
        const [a, b] = [Float64Array.from(pairs, ([x]) => x), Float64Array.from(pairs, ([x, e]) => x + e * d)];
        for (let id = 0; id < a.length; id++) {
          const ratio = Math.exp(a[id]! - logSumExp(a) - (b[id]! - logSumExp(b)));
          assert.ok(Math.abs(ratio - 1) <= Math.expm1(2 * d) * (1 + 1e-9), `${ratio} with ${d}`);
        }
      }),
      drawn(),
    );
  });

  test('ids that both rule out are alike; NaN, infinity, and what one alone rules out is named, and its row left out', async () => {
    const minus = Number.NEGATIVE_INFINITY;
    const compare = (a: number[], b: number[]) =>
      compareLogits([Float32Array.from(a)], [Float32Array.from(b)], { vocabSize: 3 });
    const masked = await compare([1, minus, 2], [1, minus, 2]);
    assert.deepEqual([masked.compared, masked.broken, masked.maxDifference, masked.klMean], [1, undefined, 0, 0]);
    for (const [odd, other] of [
      [Number.NaN, 1],
      [1, Number.NaN],
      [Number.NaN, Number.NaN],
      [Infinity, Infinity],
      [minus, 1],
      [1, minus],
    ] as const) {
      const got = await compare([5, 1, 2, 0, odd, 3], [5, 1, 2.5, 0, other, 3]);
      assert.deepEqual([got.tokens, got.compared], [2, 1], `${odd} ${other}`);
      assert.deepEqual(got.broken, { token: 1, id: 1, a: odd, b: other });
      assert.equal(got.maxDifference, 0.5);
    }
    const nothing = await compare([minus, minus, minus], [minus, minus, minus]);
    assert.deepEqual(nothing.broken, { token: 0, id: 0, a: minus, b: minus });
    const { compared, maxDifference, klMean, klMax, klMaxToken, top1, top5, firstApart } = nothing;
    assert.deepEqual(
      { compared, maxDifference, klMean, klMax, klMaxToken, top1, top5, firstApart },
      {
        compared: 0,
        maxDifference: undefined,
        klMean: undefined,
        klMax: undefined,
        klMaxToken: undefined,
        top1: undefined,
        top5: undefined,
        firstApart: undefined,
      },
    );
  });

  test('refusals: other numbers of rows, parts of rows, other arrays', async () => {
    const refuses = (code: string, message: RegExp, ...args: unknown[]) =>
      assert.rejects(compareLogits(...(args as Parameters<typeof compareLogits>)), {
        name: 'RopewalkError',
        code,
        message,
      });
    const rows = (count: number) => [new Float32Array(3 * count)];
    await refuses('SHAPE', /^compareLogits: b: expected 2 rows, as a has, got 5$/, rows(2), rows(5), { vocabSize: 3 });
    await refuses('SHAPE', /^compareLogits: b: expected 5 rows, as a has, got 2$/, rows(5), rows(2), { vocabSize: 3 });
    await refuses(
      'SHAPE',
      /^compareLogits: b: expected blocks of whole rows of vocabSize=3, got 4/,
      rows(1),
      [new Float32Array(4)],
      { vocabSize: 3 },
    );
    await refuses('DTYPE', /^compareLogits: a: expected blocks of Float32Array/, rows(1)[0], rows(1), { vocabSize: 3 });
    await refuses('SHAPE', /^compareLogits: a: expected a list of blocks, got 5/, 5, rows(1), { vocabSize: 3 });
    await refuses('RANGE', /^compareLogits: vocabSize/, rows(1), rows(1), { vocabSize: 0 });
  });

  test('both iterators are ended, also after a refusal', async () => {
    let ended = 0;
    async function* blocks(count: number) {
      try {
        for (let n = 0; n < count; n++) yield new Float32Array(2);
      } finally {
        ended++;
      }
    }
    await assert.rejects(compareLogits(blocks(3), [new Float32Array(3)], { vocabSize: 2 }), { code: 'SHAPE' });
    await compareLogits(blocks(3), blocks(3), { vocabSize: 2 });
    assert.equal(ended, 3);
  });
});
