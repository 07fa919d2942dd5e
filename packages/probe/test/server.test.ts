/** The APIs: each gives the log-probabilities of the model that is served. */
import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { logits, type Model } from '@ropewalk/model';
import { marlineWith, runOf, type ServedApi, serve } from '../../../test/support/probe-server.js';
import { Client } from '../src/http.js';
import { findServer } from '../src/server.js';

const model: Model = await marlineWith();
after(() => model.dispose());
const tokens = model.tokenizer.encode('It was a dark night, and the rain fell in torrents.');

/** Log-probabilities `[tokens, vocab]` of the model itself. */
async function own(): Promise<Float64Array[]> {
  const rows: Float64Array[] = [];
  const { vocabSize } = model.config;
  for await (const block of logits(model, tokens))
    for (let at = 0; at < block.length; at += vocabSize) {
      const row = Float64Array.from(block.subarray(at, at + vocabSize));
      const log = Math.log(row.reduce((sum, one) => sum + Math.exp(one), 0));
      rows.push(row.map((one) => one - log));
    }
  return rows;
}

const expected: Record<ServedApi, [api: string, about: RegExp, candidates: number, oneByOne: boolean]> = {
  'llama-server': [
    'llama-server',
    /^llama-server test, model marline\.gguf, context 4096, one request a position$/,
    20,
    true,
  ],
  vllm: ['vllm', /^vLLM, model marline, context 4096, the 20 likeliest tokens, one request a prompt$/, 20, false],
  sglang: ['sglang', /^SGLang, model marline, one request a prompt$/, 20, false],
  tgi: ['tgi', /^TGI 3\.3\.0, model marline, context 257, a log-probability a token, one request a prompt$/, 1, false],
  'tgi-bare': ['tgi', /^TGI 3\.3\.0, model marline, context 257, one request a position$/, 5, true],
  echo: ['openai', /^OpenAI completions, .*the 20 likeliest tokens, one request a prompt$/, 8, false],
  each: ['openai', /^OpenAI completions, .*the 5 likeliest tokens, one request a position$/, 1, true],
};

describe('the log-probabilities of each API are those of the model', async () => {
  const truth = await own();
  const words = new Map<string, number>();
  for (let id = 0; id < model.config.vocabSize; id++) {
    const text = model.tokenizer.stream({ after: [10], skipSpecial: false }).push(id);
    words.set(text, words.has(text) ? -1 : id);
  }
  const idOf = (text: string): number | undefined => ((words.get(text) ?? -1) < 0 ? undefined : words.get(text));
  const textOf = (ids: readonly number[]): string => model.tokenizer.decode(ids);
  for (const [api, [name, about, least, oneByOne]] of Object.entries(expected))
    test(api, async () => {
      const served = await serve(api as ServedApi, runOf(model), model);
      try {
        const server = await findServer(new Client(`${served.url}/v1`, {}), { idOf, textOf });
        assert.equal(server.api, name);
        assert.match(server.about, about);
        assert.equal(server.oneByOne, oneByOne);
        const rows = await server.rows(tokens, oneByOne ? 'last' : 'all');
        assert.equal(rows.length, oneByOne ? 1 : tokens.length);
        for (const { seen, ids, logprobs } of [...rows, ...(await server.rows(tokens.slice(0, 1), 'last'))]) {
          assert.ok(ids.length >= least, `${ids.length} candidates after ${seen}`);
          for (const [n, id] of ids.entries())
            assert.ok(Math.abs(logprobs[n]! - truth[seen - 1]![id]!) < 1e-4, `${seen} ${id}: ${logprobs[n]}`);
        }
      } finally {
        await served.close();
      }
    });
});
