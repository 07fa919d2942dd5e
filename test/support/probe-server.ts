/** A small server for tests: it serves a decoder with the APIs that the probe knows, and with faults. */
import { readdirSync, readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { type LoadOptions, loadModel, logits, type Model } from '@ropewalk/model';
import { ROOT } from './build.js';

/** Computes the logits of a prompt: of all tokens, `[tokens, vocab]`, or of the last alone. */
export type Run = (tokens: readonly number[], cached: boolean) => Promise<Float32Array>;

/** How a server differs from a right one. */
export interface Faults {
  readonly positions?: (n: number) => number;
  readonly temperature?: number;
  /** Changes the logit of a token that is among those before, and how often it is. */
  readonly penalty?: (logit: number, times: number) => number;
  /** How many tokens back a penalty looks. */
  readonly last?: number;
}

/** The APIs of the server. `each`: completions that know neither echo nor ids; `tgi-bare`: TGI without prefill logprobs. */
export type ServedApi = 'llama-server' | 'vllm' | 'sglang' | 'tgi' | 'tgi-bare' | 'echo' | 'each';

export const MARLINE = join(ROOT, 'models/marline');

/** Loads the bundled model from its folder, with fields of config.json changed. One thread: other tests have the other cores. */
export function marlineWith(
  fields: Readonly<Record<string, unknown>> = {},
  options: LoadOptions = { backend: 'cpu', threads: 1 },
): Promise<Model> {
  const files = readdirSync(MARLINE).filter((name) => /\.(json|safetensors)$/.test(name));
  const bytes = (name: string): Uint8Array => {
    const file = readFileSync(join(MARLINE, name));
    if (name !== 'config.json') return new Uint8Array(file);
    return new TextEncoder().encode(JSON.stringify({ ...JSON.parse(file.toString()), ...fields }));
  };
  return loadModel(Object.fromEntries(files.map((name) => [name, bytes(name)])), options);
}

/** Runs a model, with positions of its own, a temperature or a penalty. */
export function runOf(model: Model, { positions, temperature = 1, penalty, last = Infinity }: Faults = {}): Run {
  const { maxContext, vocabSize } = model.config;
  return async (tokens) => {
    const own = positions ? { positions: Int32Array.from(tokens, (_, n) => positions(n)) } : {};
    const all = new Float32Array(tokens.length * vocabSize);
    let filled = 0;
    for await (const block of logits(model, tokens, { context: maxContext, ...own }))
      for (const logit of block) all[filled++] = logit / temperature;
    if (!penalty) return all;
    for (const [n] of tokens.entries()) {
      const seen = tokens.slice(Math.max(0, n + 1 - last), n + 1);
      for (const id of new Set(seen)) {
        const at = n * vocabSize + id;
        all[at] = penalty(all[at]!, seen.filter((one) => one === id).length);
      }
    }
    return all;
  };
}

type Entry = [id: number, logprob: number];

/** The likeliest tokens of a row of logits, likeliest first, and those that are asked for besides. */
function topOf(row: Float32Array, count: number, more: readonly number[] = []): Entry[] {
  // Tests spend most of a server's time here: one loop, and no list of all tokens is sorted.
  const ids: number[] = [];
  let [max, sum] = [Number.NEGATIVE_INFINITY, 0];
  for (let id = 0; id < row.length; id++) {
    const logit = row[id]!;
    if (logit > max) [max, sum] = [logit, sum * Math.exp(max - logit)];
    sum += Math.exp(logit - max);
    if (ids.length === count && !(logit > row[ids[count - 1]!]!)) continue;
    let at = ids.length;
    while (at > 0 && logit > row[ids[at - 1]!]!) at--;
    ids.splice(at, 0, id);
    if (ids.length > count) ids.pop();
  }
  const log = max + Math.log(sum);
  return [...ids, ...more.filter((id) => !ids.includes(id))].map((id) => [id, Number((row[id]! - log).toFixed(6))]);
}

/** A server that listens. */
export interface Listening {
  readonly url: string;
  /** Paths and bodies that were asked for, and the headers of the last request. */
  readonly asked: { readonly path: string; readonly body: string }[];
  headers: IncomingMessage['headers'];
  close(): Promise<void>;
}

/** Listens with a handler of whole requests. */
export async function listen(handler: (path: string, body: string) => Promise<unknown> | unknown): Promise<Listening> {
  const asked: { path: string; body: string }[] = [];
  const server: Server = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (part: string) => (body += part));
    request.on('end', async () => {
      const path = request.url!;
      const isPreflight = request.method === 'OPTIONS';
      if (!isPreflight) asked.push({ path, body });
      if (!isPreflight) listening.headers = request.headers;
      const answer = isPreflight ? {} : await handler(path, body);
      response.statusCode = answer === undefined ? 404 : 200;
      response.setHeader('content-type', 'application/json');
      response.setHeader('access-control-allow-origin', '*'); // as llama-server and vLLM answer pages
      response.setHeader('access-control-allow-headers', 'authorization, content-type');
      response.end(typeof answer === 'string' ? answer : JSON.stringify(answer ?? { error: 'no such path' }));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const listening: Listening = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    asked,
    headers: {},
    close() {
      server.closeAllConnections();
      return new Promise((resolve) => void server.close(() => resolve()));
    },
  };
  return listening;
}

/** The faults of a server where it streams, and where it takes a list of prompts: shorter ones see the tokens they are padded with. */
export interface ListFaults {
  readonly streamTemperature?: number;
  readonly pads?: boolean;
}

/** Serves a model with one of the APIs. */
export function serve(
  api: ServedApi,
  run: Run,
  { config, tokenizer }: Pick<Model, 'config' | 'tokenizer'>,
  { streamTemperature = 1, pads = false }: ListFaults = {},
): Promise<Listening> {
  const { vocabSize } = config;
  const rowOf = (all: Float32Array, row: number): Float32Array => all.subarray(row * vocabSize, (row + 1) * vocabSize);
  const textOf = (id: number): string => tokenizer.stream({ after: [10], skipSpecial: false }).push(id);
  const answerTo = async (path: string, body: string, run: Run): Promise<object | undefined> => {
    const given = body === '' ? {} : JSON.parse(body);
    if (api === 'llama-server') {
      if (path === '/props')
        return { default_generation_settings: { n_ctx: 4096 }, model_path: 'marline.gguf', build_info: 'test' };
      if (path !== '/completion') return undefined;
      const all = await run(given.prompt, given.cache_prompt);
      const top = topOf(all.subarray(-vocabSize), given.n_probs).map(([id, logprob]) => ({
        id,
        token: textOf(id),
        logprob,
      }));
      return {
        content: textOf(top[0]!.id),
        tokens_evaluated: given.prompt.length,
        truncated: false,
        completion_probabilities: [{ ...top[0]!, top_logprobs: top }],
      };
    }
    if (api === 'sglang') {
      if (path === '/get_model_info') return { model_path: 'marline', tokenizer_path: 'marline' };
      if (path !== '/generate') return undefined;
      const { input_ids: ids, top_logprobs_num: count, logprob_start_len: start } = given;
      const all = await run(ids, start > 0);
      const top = (row: number) => topOf(rowOf(all, row), count).map(([id, logprob]) => [logprob, id, null]);
      const before = ids.map((id: number, n: number) =>
        n === 0 ? [null, id, null] : [topOf(rowOf(all, n - 1), 0, [id])[0]![1], id, null],
      );
      return {
        text: '',
        meta_info: {
          prompt_tokens: ids.length,
          input_token_logprobs: before.slice(start),
          input_top_logprobs: ids.map((_: number, n: number) => (n === 0 ? null : top(n - 1))).slice(start),
          output_top_logprobs: [top(ids.length - 1)],
        },
      };
    }
    if (api === 'tgi' || api === 'tgi-bare') {
      if (path === '/info')
        return { model_id: 'marline', version: '3.3.0', router: 'text-generation-router', max_total_tokens: 257 };
      const ids = given.inputs === undefined ? [] : tokenizer.encode(given.inputs);
      if (path === '/tokenize') return ids.map((id) => ({ id, text: textOf(id), start: 0, stop: 0 }));
      if (path !== '/generate') return undefined;
      const { decoder_input_details: prefill, top_n_tokens: count = 0, details } = given.parameters;
      if ((api === 'tgi-bare' && prefill) || count > 5 || !details) return undefined;
      const all = await run(ids, !prefill);
      const tokens = topOf(all.subarray(-vocabSize), Math.max(1, count)).map(([id, logprob]) => {
        return { id, text: textOf(id), logprob, special: false };
      });
      const before = (id: number, n: number) => (n === 0 ? null : topOf(rowOf(all, n - 1), 0, [id])[0]![1]);
      return {
        generated_text: tokens[0]!.text,
        details: {
          finish_reason: 'length',
          generated_tokens: 1,
          prefill: prefill ? ids.map((id, n) => ({ id, text: textOf(id), logprob: before(id, n) })) : [],
          tokens: tokens.slice(0, 1),
          top_tokens: count > 0 ? [tokens] : undefined,
        },
      };
    }
    if (path === '/v1/models')
      return {
        object: 'list',
        data: [{ id: 'marline', owned_by: api === 'vllm' ? 'vllm' : 'us', max_model_len: 4096 }],
      };
    if (path !== '/v1/completions') return undefined;
    const { prompt, logprobs: count, echo, prompt_logprobs: promptCount, return_tokens_as_token_ids: asIds } = given;
    if (api !== 'vllm' && (promptCount !== undefined || asIds)) return undefined;
    if (api === 'each' && (echo || count > 5)) return undefined;
    const all = await run(prompt, !echo && promptCount === undefined);
    const name = (id: number): string => (asIds ? `token_id:${id}` : textOf(id));
    const top = (row: number, more: readonly number[] = []) => topOf(rowOf(all, row), count, more);
    const shown = (entries: readonly Entry[]) =>
      Object.fromEntries(entries.map(([id, logprob]) => [name(id), logprob]));
    const last = topOf(all.subarray(-vocabSize), count);
    const places: number[] = echo ? prompt.map((_: number, n: number) => n) : [];
    return {
      choices: [
        {
          text: textOf(last[0]![0]),
          logprobs: {
            tokens: [...places.map((n) => name(prompt[n])), name(last[0]![0])],
            token_logprobs: [
              ...places.map((n) => (n === 0 ? null : top(n - 1, [prompt[n]]).find(([id]) => id === prompt[n])![1])),
              last[0]![1],
            ],
            top_logprobs: [...places.map((n) => (n === 0 ? null : shown(top(n - 1)))), shown(last)],
          },
          ...(promptCount === undefined
            ? {}
            : {
                prompt_logprobs: prompt.map((id: number, n: number) =>
                  n === 0
                    ? null
                    : Object.fromEntries(
                        top(n - 1, [id]).map(([one, logprob], rank) => [
                          one,
                          { logprob, rank: rank + 1, decoded_token: textOf(one) },
                        ]),
                      ),
                ),
              }),
        },
      ],
      usage: { prompt_tokens: prompt.length, completion_tokens: 1 },
    };
  };
  return listen(async (path, body) => {
    const given = body === '' ? {} : JSON.parse(body);
    const field = given.input_ids ? 'input_ids' : 'prompt';
    if (given.stream) {
      const cooled: Run = async (...of) => (await run(...of)).map((logit) => logit / streamTemperature);
      return `: a comment\r\n\r\ndata: ${JSON.stringify(await answerTo(path, body, cooled))}\r\n\r\ndata: [DONE]\n\n`;
    }
    const list = given[field];
    if (!Array.isArray(list?.[0])) return answerTo(path, body, run);
    const longest = Math.max(...list.map((one: number[]) => one.length));
    const answers = [];
    for (const [index, one] of (list as number[][]).entries()) {
      const padding = pads ? new Array(longest - one.length).fill(2) : [];
      const padded: Run = (tokens, cached) => run([...padding, ...tokens], cached);
      const start = Array.isArray(given.logprob_start_len) ? { logprob_start_len: given.logprob_start_len[index] } : {};
      answers.push({ index, ...(await answerTo(path, JSON.stringify({ ...given, [field]: one, ...start }), padded)) });
    }
    if (path !== '/v1/completions') return answers;
    const choices = answers.map((one, index) => ({ index, ...('choices' in one ? (one.choices as object[])[0] : {}) }));
    return { choices, usage: { prompt_tokens: 0 } };
  });
}

/** The faults of {@link cachingRun}, which show where a prompt is computed in pieces. */
export interface CacheFaults {
  /** The tokens that are computed at a time. */
  readonly chunk?: number;
  /** Positions start again from 0 in each piece. */
  readonly restarts?: boolean;
  /** A piece does not see what is in the cache. */
  readonly forgets?: boolean;
  /** A new piece's positions are moved by the number of other requests that run. */
  readonly mixesBatch?: boolean;
  /** Adds noise of this size to logits. */
  readonly noise?: number;
}

/**
 * Runs a model as a server with a cache: a prompt that begins as the last one did is computed from there on, in pieces.
 *
 * @returns the logits of the last token, in the place of all
 */
export function cachingRun(
  model: Model,
  faults: CacheFaults = {},
): (tokens: readonly number[], cached: boolean) => Promise<Float32Array> {
  const { chunk = 64, restarts, forgets, mixesBatch, noise = 0 } = faults;
  let kept: number[] = [];
  let session = model.openSession({ context: model.config.maxContext });
  let before: Promise<unknown> = Promise.resolve();
  let waiting = 0;
  const positions: number[] = [];
  const run = async (tokens: readonly number[], cached: boolean, others: number): Promise<Float32Array> => {
    let shared = 0;
    while (cached && shared < Math.min(kept.length, tokens.length - 1) && kept[shared] === tokens[shared]) shared++;
    if (forgets || shared === 0) {
      session.dispose();
      session = model.openSession({ context: model.config.maxContext });
      if (forgets && shared > 0) kept = [];
    } else session.truncate(shared);
    let logits = new Float32Array(0);
    for (let at = shared; at < tokens.length; at += chunk) {
      const piece = tokens.slice(at, at + chunk);
      const moved = mixesBatch && at > 0 ? others : 0;
      positions.splice(at, Number.POSITIVE_INFINITY, ...piece.map((_, n) => (restarts ? n : at + n + moved)));
      logits = (await session.append(piece, {
        logits: 'last',
        positions: positions.slice(at),
      })) as Float32Array<ArrayBuffer>;
    }
    kept = [...tokens];
    return noise === 0 ? logits : logits.map((one) => one + noise * (Math.random() - 0.5));
  };
  return async (tokens, cached) => {
    waiting++;
    // A pause lets requests arrive that were sent together.
    const mine = before.then(async () => {
      await new Promise((resolve) => setTimeout(resolve, mixesBatch ? 20 : 0));
      return run(tokens, cached, waiting - 1);
    });
    before = mine.catch(() => {});
    return mine.finally(() => waiting--);
  };
}
