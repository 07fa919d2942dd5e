/** Servers that lie, hang, stream for ever or send anything: a clear error, bounded time and memory, and no key lost. */
import assert from 'node:assert/strict';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, test } from 'node:test';
import { type ErrorCode, RopewalkError } from 'ropewalk';
import { type Access, Client } from '../src/http.js';
import { findServer } from '../src/server.js';

type Handler = (request: IncomingMessage, response: ServerResponse) => unknown;

async function serving<T>(handler: Handler, work: (url: string) => Promise<T>): Promise<T> {
  const server = createServer((request, response) => void handler(request, response));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  try {
    return await work(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  } finally {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
}

/** Answers with JSON where a path is known, and 404 elsewhere. */
function paths(answers: Readonly<Record<string, unknown>>): Handler {
  return ({ url }, response) => {
    const answer = answers[url!];
    response.statusCode = answer === undefined ? 404 : 200;
    response.end(typeof answer === 'string' ? answer : JSON.stringify(answer ?? {}));
  };
}

/** Asks a server for a prompt of three tokens, and returns its error. */
async function errorOf(handler: Handler, access: Access = {}): Promise<RopewalkError> {
  return serving(handler, async (url) => {
    try {
      const server = await findServer(new Client(url, access), { idOf: () => undefined, textOf: () => 'a b c' });
      await server.rows([5, 6, 7], 'all');
    } catch (error) {
      assert.ok(error instanceof RopewalkError, String(error));
      return error;
    }
    return assert.fail('no error');
  });
}

const PROPS = { '/props': { default_generation_settings: { n_ctx: 100 } } };
const entry = (logprob: unknown, id: unknown = 3) => ({ id, token: 'a', logprob });
const completion = (top: readonly unknown[], more: object = {}) => ({
  ...PROPS,
  '/completion': { tokens_evaluated: 3, completion_probabilities: [{ top_logprobs: top }], ...more },
});
const sglang = (meta: object) => ({ '/get_model_info': { model_path: 'm' }, '/generate': { meta_info: meta } });
const tgi = { '/info': { model_id: 'm', max_total_tokens: 100 } };
const models = { '/v1/models': { data: [{ id: 'm', owned_by: 'vllm' }] } };
const choice = (more: object) => ({ ...models, '/v1/completions': { choices: [more], usage: { prompt_tokens: 3 } } });

const CASES: readonly [what: string, answers: Readonly<Record<string, unknown>>, code: ErrorCode, message: RegExp][] = [
  ['no API at all', {}, 'UNSUPPORTED', /none of \/props .* answers with what a server of models says/],
  ['HTML everywhere', { '/props': '<html>', '/v1/models': ' <!doctype html>' }, 'UNSUPPORTED', /none of \/props/],
  ['HTML for a completion', { ...PROPS, '/completion': '<html>login</html>' }, 'FORMAT', /a page of HTML/],
  ['events', { ...PROPS, '/completion': 'data: {}\n\n' }, 'FORMAT', /a stream of events/],
  ['NaN', { ...PROPS, '/completion': '{"tokens_evaluated":3,"a":[NaN]}' }, 'FORMAT', /NaN or Infinity/],
  ['a text that is no JSON', { ...PROPS, '/completion': 'hello' }, 'FORMAT', /expected JSON, got "hello"/],
  ['a list', { ...PROPS, '/completion': [] }, 'FORMAT', /expected an object/],
  ['no log-probabilities', completion([]), 'FORMAT', /no log-probability after 3 tokens/],
  ['only missing ones', completion([entry(null)]), 'FORMAT', /no log-probability after 3 tokens/],
  [
    'a probability above 1',
    completion([entry(0.5)]),
    'FORMAT',
    /expected log-probabilities, which are at most 0, got 0\.5/,
  ],
  ['logits', completion([entry(-0.1), entry(-0.2, 4)]), 'FORMAT', /add up to 1\.724: these are no log-probabilities/],
  ['a text for a number', completion([entry('-1')]), 'FORMAT', /logprob: expected a finite number, got "-1"/],
  ['an id below 0', completion([entry(-1, -4)]), 'FORMAT', /id: expected an integer in \[0/],
  [
    'a token too many',
    completion([entry(-1)], { tokens_evaluated: 4 }),
    'FORMAT',
    /read 4 tokens, and 3 were sent. It adds tokens/,
  ],
  [
    'a token too few',
    completion([entry(-1)], { tokens_evaluated: 2 }),
    'FORMAT',
    /read 2 tokens, and 3 were sent. It cuts/,
  ],
  ['a prompt that was cut', completion([entry(-1)], { truncated: true }), 'FORMAT', /says that it cut the prompt/],
  [
    'other tokens (SGLang)',
    sglang({
      prompt_tokens: 3,
      input_token_logprobs: [
        [null, 5],
        [-1, 9],
        [-1, 7],
      ],
      input_top_logprobs: [],
    }),
    'FORMAT',
    /token 1 is 9, and 6 was sent/,
  ],
  [
    'a list too short (SGLang)',
    sglang({ input_token_logprobs: [[null, 5]] }),
    'FORMAT',
    /read 1 tokens, and 3 were sent/,
  ],
  [
    'other tokens (vLLM)',
    choice({ prompt_logprobs: [null, { 9: { logprob: -1 } }, { 7: { logprob: -1 } }] }),
    'FORMAT',
    /token 1 of the prompt is not the one that was sent/,
  ],
  [
    'log-probabilities for too many tokens',
    choice({ prompt_logprobs: Array(9).fill(null) }),
    'FORMAT',
    /read 9 tokens, and 3 were sent/,
  ],
  ['no details (TGI)', { ...tgi, '/generate': { generated_text: 'a' } }, 'UNSUPPORTED', /gives no details of a prompt/],
  [
    'other tokens (TGI)',
    { ...tgi, '/generate': { details: { prefill: [{ id: 5 }, { id: 9, logprob: -1 }, { id: 7, logprob: -1 }] } } },
    'FORMAT',
    /token 1 is 9, and 6 was sent/,
  ],
  ['no choice', { ...models, '/v1/completions': { choices: [] } }, 'FORMAT', /no choice in it/],
  ['no logprobs option', choice({ text: 'a' }), 'UNSUPPORTED', /gives no log-probabilities for a prompt of token ids/],
  ['a refusal', models, 'UNSUPPORTED', /gives no log-probabilities for a prompt of token ids/],
];

describe('answers that cannot be right', () => {
  for (const [what, answers, code, message] of CASES)
    test(what, async () => {
      const error = await errorOf(paths(answers));
      assert.deepEqual([error.code, message.test(error.message) || error.message], [code, true]);
    });
});

describe('a stream of events that cannot be right', () => {
  const good = `data: ${JSON.stringify({ tokens_evaluated: 3, completion_probabilities: [{ top_logprobs: [entry(-1)] }] })}\n\n`;
  const streamOf = (handler: Handler, access: Access = {}): Promise<unknown> =>
    serving(
      (request, response) =>
        request.url === '/props' ? response.end(JSON.stringify(PROPS['/props'])) : handler(request, response),
      async (url) => (await findServer(new Client(url, access), undefined)).streamed!([5, 6, 7]),
    );
  test('it is read in pieces, with comments and several lines of data', async () => {
    const row = { seen: 3, ids: [3], logprobs: [-1] };
    for (const text of [good, `: hello\r\n\r\ndata: {}\r\n\r\n${good}data: [DONE]\n\n`, good.replace(',', ',\ndata:')])
      assert.deepEqual(
        await streamOf((_request, response) => response.write(text.slice(0, 9)) && response.end(text.slice(9))),
        row,
      );
  });
  for (const [what, text, message] of [
    ['NaN', 'data: {"a":[NaN]}\n\n', /NaN or Infinity/],
    ['no event', '{"content":"a"}', /no log-probability is in its stream/],
    ['an event that is cut', good.slice(0, 40), /expected JSON/],
    ['a list', 'data: []\n\n', /expected an object/],
  ] as const)
    test(what, () =>
      assert.rejects(
        streamOf((_request, response) => response.end(text)),
        { code: 'FORMAT', message },
      ),
    );
  test('it never ends, or has too many bytes', async () => {
    const drip: Handler = (_request, response) => {
      const timer = setInterval(() => response.write(good), 20);
      return response.on('close', () => clearInterval(timer));
    };
    await assert.rejects(streamOf(drip, { timeoutMs: 300 }), { code: 'DEVICE', message: /no whole answer in 0\.3 s/ });
    const block = good.repeat(10_000);
    const flood: Handler = (_request, response) => {
      const more = (): void => {
        while (!response.destroyed && response.write(block));
      };
      return response.on('drain', more) && more();
    };
    await assert.rejects(streamOf(flood), { code: 'FORMAT', message: /larger than 64 MiB/ });
  });
});

describe('a server that does not end', () => {
  const props = JSON.stringify(PROPS['/props']);
  test('silence: the time is bounded', async () => {
    const error = await errorOf(() => {}, { timeoutMs: 200 });
    assert.equal(error.code, 'DEVICE');
    assert.match(error.message, /no whole answer in 0\.2 s/);
  });
  test('a slow stream: the time is bounded', async () => {
    const drip: Handler = ({ url }, response) => {
      if (url === '/props') return response.end(props);
      const timer = setInterval(() => response.write(' '), 20);
      return response.on('close', () => clearInterval(timer));
    };
    assert.match((await errorOf(drip, { timeoutMs: 300 })).message, /no whole answer in 0\.3 s/);
  });
  test('a fast stream: the bytes are bounded', async () => {
    const block = Buffer.alloc(2 ** 20, ' ');
    let sent = 0;
    const flood: Handler = ({ url }, response) => {
      if (url === '/props') return response.end(props);
      const more = (): void => {
        while (!response.destroyed && response.write(block)) sent++;
        sent++;
      };
      return response.on('drain', more) && more();
    };
    const error = await errorOf(flood);
    assert.match(error.message, /larger than 64 MiB/);
    assert.ok(sent < 200, `${sent} MiB were sent`);
  });
  test('a length of 10 GB is not believed', async () => {
    const long: Handler = ({ url }, response) => {
      if (url === '/props') return response.end(props);
      response.writeHead(200, { 'content-length': 10 ** 10 });
      return response.write('{}');
    };
    assert.match((await errorOf(long)).message, /larger than 64 MiB/);
  });
  test('a connection that is cut', async () => {
    const cut: Handler = ({ url }, response) => (url === '/props' ? response.end(props) : response.socket!.destroy());
    const error = await errorOf(cut);
    assert.deepEqual([error.code, /the server does not answer/.test(error.message)], ['DEVICE', true]);
  });
  test('busy for ever: it is asked five times', async () => {
    let asked = 0;
    const busy: Handler = (_request, response) => {
      asked++;
      response.writeHead(429, { 'retry-after': '0' }).end('{}');
    };
    assert.match((await errorOf(busy)).message, /none of \/props/);
    assert.equal(asked, 5 * 5); // five paths
  });
  test('busy once: it is asked again', async () => {
    let asked = 0;
    const { '/completion': answer } = completion([entry(-1)]);
    const once: Handler = ({ url }, response) => {
      if (url === '/props') return response.end(props);
      if (asked++ === 0) return response.writeHead(503, { 'retry-after': '0' }).end();
      return response.end(JSON.stringify(answer));
    };
    const rows = await serving(once, async (url) =>
      (await findServer(new Client(url, {}), undefined)).rows([5, 6, 7], 'last'),
    );
    assert.deepEqual(rows, [{ seen: 3, ids: [3], logprobs: [-1] }]);
  });
});

describe('the key', () => {
  const key = 'sk-0123456789';
  test('is not sent to where a server redirects to', async () => {
    const seen: (string | undefined)[] = [];
    const other: Handler = ({ headers }, response) => {
      seen.push(headers.authorization);
      response.end('{}');
    };
    await serving(other, async (elsewhere) => {
      const error = await errorOf(
        (_request, response) => response.writeHead(307, { location: `${elsewhere}/props` }).end(),
        { key },
      );
      assert.match(
        error.message,
        /it redirects to "http:\/\/127\.0\.0\.1:\d+\/props", which is not followed\. Give that address/,
      );
    });
    assert.deepEqual(seen, []);
  });
  test('is in no error and in no recording, even if the server repeats it', async () => {
    const kept: string[] = [];
    const repeats: Handler = ({ url, headers }, response) => {
      if (url === '/props')
        return response.end(JSON.stringify({ ...PROPS['/props'], build_info: headers.authorization }));
      return response.writeHead(500).end(`you sent ${headers.authorization}`);
    };
    const error = await errorOf(repeats, { key, onExchange: (one) => kept.push(JSON.stringify(one)) });
    assert.match(error.message, /HTTP status 500: "you sent Bearer …"/);
    assert.equal(kept.length, 1);
    const redirects: Handler = ({ headers }, response) =>
      response.writeHead(302, { location: `/login?t=${headers.authorization}` }).end();
    const redirected = await errorOf(redirects, { key });
    assert.match(redirected.message, /it redirects to "\/login\?t=Bearer …"/);
    assert.doesNotMatch(kept.join() + error.message + redirected.message, /sk-/);
  });
  test('that is missing is asked for', async () => {
    const error = await errorOf((_request, response) => response.writeHead(401).end('{}'));
    assert.match(error.message, /the server wants a key/);
  });
});

test('an abort ends a request, and a wait', async () => {
  for (const status of [0, 429]) {
    const abort = new AbortController();
    setTimeout(() => abort.abort(new Error('enough')), 100);
    const never: Handler = (_request, response) =>
      status > 0 && response.writeHead(status, { 'retry-after': '20' }).end();
    await serving(never, async (url) => {
      await assert.rejects(findServer(new Client(url, { signal: abort.signal }), undefined), /enough/);
    });
  }
});
