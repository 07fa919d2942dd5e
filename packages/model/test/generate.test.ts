/**
 * Tests generation, embedding and perplexity on a model made of arithmetic. Its logits depend on every token in its
 * cache, so a wrong cache gives other tokens. generate-stories.test.ts has a real model.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { drawn } from '../../../test/support/size.js';
import { embed } from '../src/embed.js';
import { type GenerateOptions, type Generation, generate, keepSession, type Prompt } from '../src/generate.js';
import { tokenizerFromGguf } from '../src/gguf-vocabulary.js';
import { perplexity } from '../src/perplexity.js';
import { StopFinder } from '../src/stop-finder.js';
import type { AppendOptions, Model, Session, SessionOptions } from '../src/types.js';

const LETTERS = 'abcdefghijklmnopqrstuvwxyz .'.split('');
const BYTES = ['<0xF0>', '<0x9F>', '<0x91>', '<0x8D>']; // 👍
const VOCAB = ['<unk>', '<s>', '</s>', ...LETTERS, ...BYTES];
const tokenizer = tokenizerFromGguf(
  new Map<string, string | number | boolean | (string | number)[]>([
    ['tokenizer.ggml.model', 'llama'],
    ['tokenizer.ggml.tokens', VOCAB.map((text) => (text === ' ' ? '▁' : text))],
    ['tokenizer.ggml.token_type', [2, 3, 3, ...LETTERS.map(() => 1), ...BYTES.map(() => 6)]],
    ['tokenizer.ggml.bos_token_id', 1],
    ['tokenizer.ggml.eos_token_id', 2],
    ['tokenizer.ggml.unknown_token_id', 0],
    ['tokenizer.ggml.add_space_prefix', false],
    ['tokenizer.chat_template', '{{ bos_token }}{% for m in messages %}{{ m.content }}.{% endfor %}'],
  ]),
);

interface Fake extends Model {
  readonly log: { opened: number; disposed: number; appended: number[]; batches: number[] };
}

/** Returns the token after these tokens. */
type Next = (cache: readonly number[]) => number;
/** Chooses a letter by a hash of the whole cache. */
const hashed: Next = (cache) => {
  const hash = cache.reduce((sum, token) => (Math.imul(sum, 31) + token + 7) | 0, 17);
  return 3 + ((hash >>> 3) % 26);
};
/** Continues with a text from `skip` tokens on, whatever came before. */
const says = (text: string, skip = 1): Next => {
  const ids = tokenizer.encode(text, { addBos: false });
  return (cache) => ids[cache.length - skip] ?? 2;
};

function fake(
  next: Next = hashed,
  options: { capacity?: number; fail?: number; slow?: boolean; second?: number } = {},
): Fake {
  const log = { opened: 0, disposed: 0, appended: [] as number[], batches: [] as number[] };
  const vocab = VOCAB.length;
  const row = (cache: readonly number[]): number[] => {
    const logits = new Array<number>(vocab).fill(0);
    logits[next(cache)] = 4;
    if (options.second !== undefined) logits[next(cache) + 1] = options.second;
    return logits;
  };
  return {
    log,
    tokenizer,
    backend: 'fake',
    config: {
      vocabSize: vocab,
      maxContext: options.capacity ?? 64,
      hiddenSize: 2,
      eosTokens: [2],
      bosToken: 1,
    } as unknown as Model['config'],
    memory: { weightsBytes: 0, cacheBytesPerToken: 0 } as Model['memory'],
    openSession({ context }: SessionOptions = {}): Session {
      log.opened++;
      let cache: number[] = [];
      const capacity = context ?? options.capacity ?? 64;
      return {
        get length() {
          return cache.length;
        },
        capacity,
        async append(tokens: readonly number[] | Int32Array, { logits = 'last', signal }: AppendOptions = {}) {
          assert.ok(tokens.length > 0 && cache.length + tokens.length <= capacity, 'an append that does not fit');
          await new Promise((done) => setTimeout(done, options.slow ? 5 : 0));
          signal?.throwIfAborted();
          if (options.fail !== undefined && log.batches.length === options.fail) throw new Error('lost');
          log.batches.push(tokens.length);
          const rows: number[] = [];
          for (const token of tokens) {
            cache.push(token);
            log.appended.push(token);
            if (logits === 'all') rows.push(...row(cache));
          }
          return Float32Array.from(logits === 'last' ? row(cache) : rows);
        },
        truncate(length: number) {
          assert.ok(length >= 0 && length <= cache.length);
          cache.length = length;
        },
        async shift(from: number, count: number) {
          assert.ok(from >= 0 && count > 0 && from + count <= cache.length);
          cache = [...cache.slice(0, from), ...cache.slice(from + count)];
        },
        dispose() {
          log.disposed++;
        },
      };
    },
    async hidden(tokens: readonly number[]) {
      return Float32Array.from(tokens.flatMap((token) => [token, 1]));
    },
    dispose() {},
  } as Fake;
}

interface Run extends Generation {
  readonly pieces: string[];
}

async function run(model: Model, prompt: Prompt, options: GenerateOptions = {}): Promise<Run> {
  const pieces: string[] = [];
  for await (const { text, end } of generate(model, prompt, options)) {
    pieces.push(text);
    if (end) {
      assert.equal(pieces.join(''), end.text, 'the items together are the text');
      return { ...end, pieces };
    }
  }
  throw new Error('no last item');
}

describe('generate', () => {
  test('gives tokens and text as they come, and ends at EOS', async () => {
    const model = fake(says('hello 👍', 3));
    const items: [number | undefined, string][] = [];
    let end: Generation | undefined;
    for await (const item of generate(model, 'ab')) {
      items.push([item.token, item.text]);
      end = item.end;
    }
    const letters = [...'hello '].map((letter): [number, string] => [VOCAB.indexOf(letter), letter]);
    assert.deepEqual(items, [...letters, [31, ''], [32, ''], [33, ''], [34, '👍'], [undefined, '']]);
    assert.equal(end!.reason, 'eos');
    assert.equal(end!.text, 'hello 👍');
    assert.deepEqual([end!.promptTokens, end!.reusedTokens, end!.tokens.length, end!.contextFull], [3, 0, 10, false]);
    assert.deepEqual([end!.prefill.tokens, end!.decode.tokens], [3, 10]);
    assert.ok(end!.prefill.seconds > 0 && end!.decode.tokensPerSecond > 0);
    assert.deepEqual(model.log.batches.slice(0, 2), [3, 1], 'the prompt in one batch');
    assert.deepEqual([model.log.opened, model.log.disposed], [1, 1]);
  });

  test('maxTokens; 0 runs the prompt only', async () => {
    const five = await run(fake(), 'ab', { maxTokens: 5 });
    assert.deepEqual([five.reason, five.tokens.length, five.decode.tokens], ['length', 5, 4]);
    const none = await run(fake(), 'ab', { maxTokens: 0 });
    assert.deepEqual([none.reason, none.text, none.prefill.tokens, none.decode.tokensPerSecond], ['length', '', 3, 0]);
  });

  test('a character that the prompt began is given whole', async () => {
    const model = fake((cache) => [33, 34][cache.length - 3] ?? 2);
    assert.equal((await run(model, { tokens: [1, 31, 32] })).text, '👍');
  });

  test('a character cut off by maxTokens ends as U+FFFD', async () => {
    const { text, reason } = await run(fake(says('a👍')), '', { maxTokens: 3 });
    assert.deepEqual([text, reason], ['a\ufffd', 'length']);
  });

  test('stop texts are found across tokens and not returned', async () => {
    const found = await run(fake(says('one. two. three')), '', { stop: ['. th', 'xyz'] });
    assert.deepEqual([found.text, found.reason, found.stop], ['one. two', 'stop', '. th']);
    assert.ok(found.pieces.every((piece) => !piece.includes('. th')));
    const first = await run(fake(says('one. two')), '', { stop: ['two', 'ne'] });
    assert.deepEqual([first.text, first.stop], ['o', 'ne']);
    const held = await run(fake(says('one. t')), '', { stop: '. two' });
    assert.deepEqual(
      [held.text, held.reason, held.pieces.at(-1)],
      ['one. t', 'eos', '. t'],
      'what was held back comes at the end',
    );
    const cut = await run(fake(says('one. t')), '', { stop: '. two', maxTokens: 4 });
    assert.deepEqual([cut.text, cut.reason], ['one.', 'length']);
    const twice = await run(fake(says('aab')), '', { stop: 'ab' });
    assert.deepEqual([twice.text, twice.reason], ['a', 'stop']);
  });

  test('stop tokens, and continuing past EOS', async () => {
    const stopped = await run(fake(says('one. two')), '', { stopTokens: [VOCAB.indexOf('.')] });
    assert.deepEqual([stopped.text, stopped.reason, stopped.stop], ['one', 'stop', undefined]);
    const on = await run(fake(says('a')), '', { ignoreEos: true, maxTokens: 4 });
    assert.deepEqual([on.tokens, on.text, on.reason], [[3, 2, 2, 2], 'a', 'length']);
  });

  test('an abort ends it cleanly, before, between and inside steps', async () => {
    const model = fake(hashed, { slow: true });
    const before = await run(model, 'ab', { signal: AbortSignal.abort() });
    assert.deepEqual([before.reason, before.text, before.prefill.tokens], ['abort', '', 0]);
    for (const inside of [false, true]) {
      const controller = new AbortController();
      let count = 0;
      let end: Generation | undefined;
      for await (const item of generate(model, 'ab', { signal: controller.signal })) {
        if (item.end) end = item.end;
        else if (++count === 3) {
          if (inside) setTimeout(() => controller.abort(), 1);
          else controller.abort();
        }
      }
      assert.equal(end!.reason, 'abort');
      assert.equal(end!.tokens.length, 3);
      assert.equal(end!.text.length, 3);
    }
    assert.equal(model.log.opened, model.log.disposed);
  });

  test('break and errors free the session; a kept session stays true to its cache', async () => {
    const model = fake();
    for await (const _ of generate(model, 'ab')) break;
    assert.deepEqual([model.log.opened, model.log.disposed], [1, 1]);

    const failing = fake(hashed, { fail: 2 });
    const kept = keepSession(failing);
    await assert.rejects(run(failing, 'ab', { session: kept }), /lost/);
    assert.equal(failing.log.disposed, 0);
    assert.equal(kept.tokens.length, kept.session.length);
    assert.deepEqual(kept.tokens, failing.log.appended);
    kept.dispose();
    assert.equal(failing.log.disposed, 1);
    const own = fake(hashed, { fail: 0 });
    await assert.rejects(run(own, 'ab'), /lost/);
    assert.deepEqual([own.log.opened, own.log.disposed], [1, 1]);
  });

  test('a kept session computes only what is new, and gives the same tokens', async () => {
    const model = fake();
    const kept = keepSession(model);
    const first = await run(model, 'abc', { session: kept, maxTokens: 6 });
    const longer = `abc${first.text} more`;
    model.log.batches.length = 0;
    const second = await run(model, longer, { session: kept, maxTokens: 6 });
    // The cache has BOS, abc, and five of six tokens: the last one was chosen but not run.
    assert.deepEqual([second.reusedTokens, model.log.batches[0]], [9, 6]);
    assert.deepEqual(second.tokens, (await run(fake(), longer, { maxTokens: 6 })).tokens);
    const again = await run(model, longer, { session: kept, maxTokens: 6 });
    assert.deepEqual(
      [again.reusedTokens, again.prefill.tokens, again.tokens],
      [14, 1, second.tokens],
      'one token is run anew for its logits',
    );
    const other = await run(model, 'abd', { session: kept, maxTokens: 6 });
    assert.deepEqual([other.reusedTokens, other.tokens], [3, (await run(fake(), 'abd', { maxTokens: 6 })).tokens]);
    kept.dispose();
  });

  test('a full context stops it, or is shifted', async () => {
    const stopped = await run(fake(hashed, { capacity: 10 }), 'abc');
    assert.deepEqual([stopped.reason, stopped.contextFull, stopped.tokens.length], ['length', true, 7]);
    const model = fake(hashed, { capacity: 10 });
    const shifted = await run(model, 'abc', { onFull: 'shift', maxTokens: 20 });
    assert.deepEqual([shifted.reason, shifted.tokens.length, shifted.contextFull], ['length', 20, false]);
    assert.deepEqual(shifted.tokens.slice(0, 7), stopped.tokens);
    // The cache is full at 10 tokens with 1 kept. 4 of 9 go, and 4 more each time that 10 are reached again: after 7,
    // 11, 15, 19 tokens.
    assert.equal(shifted.shiftedTokens, 16);
    // This does the same by hand: it drops tokens 1 to 4, then goes on.
    const all = [...tokenizer.encode('abc'), ...shifted.tokens];
    assert.equal(shifted.tokens[7], hashed([all[0]!, ...all.slice(5, 11)]));
    const keeping = fake(hashed, { capacity: 10 });
    const kept = keepSession(keeping);
    const keep = await run(keeping, 'abc', { onFull: 'shift', keep: 4, maxTokens: 9, session: kept });
    // A kept session knows the dropped tokens: a prompt that continues the text shares only the kept ones.
    assert.deepEqual(kept.tokens, [...all.slice(0, 4), ...all.slice(7, 11), keep.tokens[7]]);
    const again = { tokens: all.slice(0, 9) };
    const after = await run(keeping, again, { maxTokens: 1, session: kept });
    assert.deepEqual([after.reusedTokens, after.tokens], [4, (await run(fake(), again, { maxTokens: 1 })).tokens]);
    kept.dispose();
    assert.equal(keep.tokens[7], hashed([...all.slice(0, 4), ...all.slice(7, 11)]));
  });

  test('the penalty sees the prompt, and a seed reproduces', async () => {
    const options = { temperature: 1.5, topP: 0.9, repetitionPenalty: 1.3, maxTokens: 12, seed: 4, ignoreEos: true };
    const one = await run(fake(), 'abc', options);
    assert.deepEqual((await run(fake(), 'abc', options)).tokens, one.tokens);
    assert.equal(one.seed, 4);
    assert.notDeepEqual((await run(fake(), 'abc', { ...options, seed: 5 })).tokens, one.tokens);
    // a is likeliest (4), b next (3); a is in the prompt, and 4 / 2 < 3.
    const pushed = fake(() => VOCAB.indexOf('a'), { second: 3 });
    assert.equal((await run(pushed, 'a', { maxTokens: 1 })).text, 'a');
    assert.equal((await run(pushed, 'a', { maxTokens: 1, repetitionPenalty: 2 })).text, 'b');
    assert.equal(
      (await run(pushed, 'a', { maxTokens: 2, repetitionPenalty: 2 })).text,
      'ba',
      'and b, once made, is too',
    );
  });

  test('messages go through the template, special tokens parsed', async () => {
    const { promptTokens, text } = await run(fake(says('x', 5)), [
      { role: 'user', content: 'hi' },
      { role: 'user', content: '' },
    ]);
    assert.deepEqual([promptTokens, text], [5, 'x'], '<s>hi..');
    assert.equal((await run(fake(), { tokens: [1, 5] }, { maxTokens: 1 })).promptTokens, 2);
  });

  test('refusals', async () => {
    const refuses = async (
      message: RegExp,
      prompt: unknown = 'a',
      options: object = {},
      code = 'RANGE',
    ): Promise<void> => {
      const model = fake(hashed, { capacity: 8 });
      await assert.rejects(run(model, prompt as Prompt, options), { name: 'RopewalkError', code, message });
      assert.equal(model.log.opened, model.log.disposed);
    };
    await refuses(/maxTokens: expected an integer >= 0, got -1/, 'a', { maxTokens: -1 });
    await refuses(/onFull: expected stop or shift, got "x"/, 'a', { onFull: 'x' });
    await refuses(/keep: expected at most 6, two less than the context, got 7/, 'a', { onFull: 'shift', keep: 7 });
    await refuses(/stop: expected strings that are not empty, got ""/, 'a', { stop: ['b', ''] });
    await refuses(/stopTokens: expected tokens in \[0, vocabulary=35\), got 35/, 'a', { stopTokens: [35] });
    await refuses(/prompt: expected at most 8 tokens, the session's context, got 9\. Shorten/, 'abcdefgh');
    await refuses(/prompt: expected a prompt of at least one token, got ""/, '', { addBos: false });
    await refuses(/prompt: expected a string, a list of messages, or \{ tokens \}, got 7/, 7);
    await refuses(/prompt: expected tokens in \[0, vocabulary=35\), got 1.5/, { tokens: [1.5] });
    await refuses(/temperature/, 'a', { temperature: -1 });
    await refuses(/messages: expected a list of at least one message/, []);
    const model = fake();
    const kept = keepSession(model);
    await refuses(/session: context and cacheDtype do not apply to a kept session\. Give them to keepSession/, 'a', {
      session: kept,
      context: 8,
    });
    const open = generate(model, 'a', { session: kept });
    await open.next();
    await refuses(/session: another generation is using it\./, 'a', { session: kept }, 'UNSUPPORTED');
    await open.return();
    assert.equal((await run(model, 'a', { session: kept, maxTokens: 1 })).reason, 'length', 'and may be used again');
  });
});

describe('StopFinder', () => {
  test('whatever the pieces, the text before the first stop text comes out, and nothing after', () => {
    const letter = fc.constantFrom('a', 'b', 'c');
    const text = fc.array(letter, { maxLength: 14 }).map((list) => list.join(''));
    const stop = fc.array(letter, { minLength: 1, maxLength: 4 }).map((list) => list.join(''));
    fc.assert(
      fc.property(fc.array(text, { maxLength: 6 }), fc.array(stop, { maxLength: 3 }), (pieces, stops) => {
        const finder = new StopFinder(stops);
        let out = '';
        let fed = '';
        for (const piece of pieces) {
          if (finder.found !== undefined) break;
          fed += piece;
          out += finder.push(piece);
        }
        if (finder.found === undefined) out += finder.end();
        const places = stops.map((text) => fed.indexOf(text)).filter((at) => at >= 0);
        // A stop text is found with the piece that completes it; a longer one that starts earlier may still be
        // incomplete.
        const first = Math.min(...places, fed.length);
        if (finder.found === undefined) assert.deepEqual([out, places.length], [fed, 0]);
        else assert.equal(out, fed.slice(0, first));
      }),
      drawn(2000, 3),
    );
  });
});

describe('embed', () => {
  test('mean and last, with and without length 1', async () => {
    const model = fake();
    // BOS is 1, a is 3, b is 4: rows [1, 1], [3, 1], [4, 1].
    assert.deepEqual(
      [...(await embed(model, 'ab', { normalize: false }))].map((x) => Math.round(x * 3)),
      [8, 3],
    );
    assert.deepEqual([...(await embed(model, 'ab', { pooling: 'last', normalize: false }))], [4, 1]);
    assert.deepEqual([...(await embed(model, 'ab', { pooling: 'cls', normalize: false }))], [1, 1]);
    const unit = await embed(model, 'ab', { pooling: 'last' });
    assert.ok(Math.abs(Math.hypot(...unit) - 1) < 1e-6);
    assert.ok(Math.abs(unit[0]! / unit[1]! - 4) < 1e-5);
  });
  test('refusals', async () => {
    await assert.rejects(embed(fake(), 'a', { pooling: 'max' as 'mean' }), {
      code: 'RANGE',
      message: /pooling: expected mean, cls or last, got "max"/,
    });
    await assert.rejects(embed(fake(hashed, { capacity: 3 }), 'abc'), {
      code: 'RANGE',
      message: /at most maxContext=3 tokens, got 4\. Embed it in parts/,
    });
    const broken = { ...fake(), hidden: async () => Float32Array.of(Number.NaN, 1, 1, 1) } as Model;
    await assert.rejects(embed(broken, 'a'), { code: 'RANGE', message: /hidden states: expected finite numbers/ });
  });
});

describe('perplexity', () => {
  // The logit of an expected token is 4 against 34 zeros; any other token has 0.
  const expected = -Math.log(Math.exp(4) / (Math.exp(4) + 34));
  const other = expected + 4;
  test('each token once, by hand', async () => {
    const got = await perplexity(fake(says('abc')), 'abx');
    assert.deepEqual([got.tokens, got.bytes], [3, 3]);
    const nats = 2 * expected + other;
    assert.ok(Math.abs(got.perplexity / Math.exp(nats / 3) - 1) < 1e-6);
    assert.ok(Math.abs(got.bitsPerByte - nats / Math.LN2 / 3) < 1e-6);
  });
  test('windows: each token scored once, from at least context - stride before it', async () => {
    const text = 'abcdefghijklmnopqrstuvwxyz.';
    for (const [context, stride] of [
      [8, 3],
      [8, 7],
      [5, 1],
      [28, 27],
      [64, undefined],
      [9, undefined],
    ] as const) {
      const seen = new Map<string, number>();
      // The prediction is right if the window starts in its place: the model says the letter after the last one.
      const next: Next = (cache) => {
        const last = cache.at(-1)!;
        if (cache[0] !== 1) return 0;
        return last === 1 ? 3 : last + 1 === VOCAB.indexOf(' ') ? VOCAB.indexOf('.') : last + 1;
      };
      const model = fake((cache) => {
        seen.set(cache.join(), (seen.get(cache.join()) ?? 0) + 1);
        return next(cache);
      });
      const progress: number[] = [];
      const got = await perplexity(model, text, {
        context,
        ...(stride === undefined ? {} : { stride }),
        onProgress: (done) => progress.push(done),
      });
      // A window that starts where the one before ended has nothing but BOS to predict its first token from.
      const misses = stride === context - 1 ? Math.ceil(27 / stride) - 1 : 0;
      assert.ok(
        Math.abs(got.perplexity / Math.exp((27 * expected + misses * 4) / 27) - 1) < 1e-6,
        `context ${context} stride ${stride}: ${got.perplexity}`,
      );
      assert.deepEqual([got.tokens, got.bytes, progress.at(-1)], [27, 27, 27]);
      // Logits are computed for the scored tokens only: the last row of an append is one of them.
      assert.equal(
        [...seen.values()].reduce((a, b) => a + b, 0),
        27,
      );
      assert.deepEqual([model.log.opened, model.log.disposed], [1, 1]);
    }
  });
  test('refusals', async () => {
    const refuses = (message: RegExp, text: string, options = {}): Promise<void> =>
      assert.rejects(perplexity(fake(), text, options), { name: 'RopewalkError', code: 'RANGE', message });
    await refuses(/text: expected a text with a token to score, got ""/, '');
    await refuses(/context: expected an integer in \[2, maxContext=64\], got 65/, 'ab', { context: 65 });
    await refuses(/stride: expected an integer in \[1, 7\] for context 8, got 8/, 'ab', { context: 8, stride: 8 });
    await refuses(/stride/, 'ab', { context: 8, stride: 0 });
    await assert.rejects(perplexity(fake(), 'ab', { signal: AbortSignal.abort() }), { name: 'AbortError' });
    const broken = fake();
    const open = broken.openSession;
    const nan = {
      ...broken,
      openSession: () => ({
        ...open(),
        length: 0,
        capacity: 64,
        truncate() {},
        append: async () => new Float32Array(70).fill(Number.NaN),
      }),
    } as Model;
    await assert.rejects(perplexity(nan, 'ab'), { code: 'RANGE', message: /logits: expected numbers, got NaN/ });
  });
});
