/**
 * Finds out which API a server has, and asks it for log-probabilities of tokens.
 *
 * @module
 * @see ggml-org/llama.cpp tools/server/README.md (`/completion`, `n_probs`); vllm-project/vllm
 *   vllm/entrypoints/openai (`prompt_logprobs`, `return_tokens_as_token_ids`); sgl-project/sglang `/generate`
 *   (`return_logprob`, `logprob_start_len`); huggingface/text-generation-inference@003eaec docs/openapi.json
 *   (`/info`, `/generate`, `/tokenize`)
 */
import { fail, refuse } from 'ropewalk/backend';
import { Fields } from 'ropewalk/internal';
import type { Client } from './http.js';

/** The APIs that are known. */
export type Api = 'llama-server' | 'vllm' | 'sglang' | 'tgi' | 'openai';

/** Log-probabilities of some tokens to come, after the first `seen` tokens of a text. */
export interface Row {
  readonly seen: number;
  readonly ids: readonly number[];
  /** Natural logarithms, as many as ids. */
  readonly logprobs: readonly number[];
}

/** A server, and how it is asked. */
export interface Server {
  readonly api: Api;
  /** One line for people: the API, its version and model, how log-probabilities come. */
  readonly about: string;
  /** The tokens of its context, where it says so. */
  readonly context: number | undefined;
  /** Whether each position takes a request of its own. */
  readonly oneByOne: boolean;
  /** Whether prompts are sent as texts. Only those that {@link Words.textOf} has a text for can be sent. */
  readonly takesText?: boolean;
  /**
   * Asks for the rows of a prompt: all of them, or only the last.
   *
   * @param cached - whether the server may use keys and values of an earlier request; undefined leaves it to the server
   * @throws {RopewalkError} FORMAT for an answer that cannot be right
   */
  rows(tokens: readonly number[], wanted: 'all' | 'last', cached?: boolean): Promise<Row[]>;
  /** Asks for the last row in a stream of events. @returns undefined if the server does not stream */
  streamed?(tokens: readonly number[]): Promise<Row | undefined>;
  /** Asks for the last rows of several prompts in one request. @returns undefined if the server takes no list */
  listed?(prompts: readonly (readonly number[])[]): Promise<Row[] | undefined>;
}

/** The tokenizer's answers, for servers that name tokens by their texts. */
export interface Words {
  /** Returns the only id with a text; undefined if there is none, or several. */
  readonly idOf: (text: string) => number | undefined;
  /** Returns the text whose tokens are exactly these; undefined if there is none. */
  readonly textOf: (tokens: readonly number[]) => string | undefined;
}

/** The candidates that are asked for, and the fewer that some servers allow. */
const TOPS = [20, 5] as const;

/**
 * Finds out which API a server has.
 *
 * @throws {RopewalkError} UNSUPPORTED for a server that gives no log-probabilities
 */
export async function findServer(client: Client, words: Words | undefined): Promise<Server> {
  // A host behind a gateway may answer strange paths with pages, so what is no JSON does not count here.
  const get = async (path: string): Promise<Fields | undefined> => {
    return client.ask(path).catch((error) => {
      if (
        error?.code === 'FORMAT' &&
        /page of HTML|expected (JSON|an object)|answers with HTTP status/.test(error.message)
      )
        return undefined;
      throw error;
    });
  };
  const props = await get('/props');
  if (props?.has('default_generation_settings') || props?.has('total_slots')) return llamaServer(client, props);
  const sglang = (await get('/get_model_info')) ?? (await get('/model_info'));
  if (sglang?.has('model_path')) return sglangServer(client, sglang);
  const tgi = await get('/info');
  if (tgi?.has('model_id') && tgi.has('max_total_tokens')) return tgiServer(client, tgi, words);
  const models = await get('/v1/models');
  const [first] = models?.has('data') ? models.objects('data') : [];
  if (first) return completions(client, first, words);
  return fail(
    'UNSUPPORTED',
    client.address,
    `none of /props (llama-server), /get_model_info (SGLang), /info (TGI) and /v1/models answers with what a server of models says. Give its address without a path.`,
  );
}

function llamaServer(client: Client, props: Fields): Server {
  const settings = props.optionalObject('default_generation_settings');
  const context = settings?.optionalInteger('n_ctx') ?? undefined;
  const model = props.optionalText('model_alias') ?? props.optionalText('model_path');
  const version = props.optionalText('build_info');
  const path = '/completion';
  const bodyOf = (prompt: readonly unknown[], cached: boolean, stream = false) => ({
    prompt,
    n_predict: 1,
    n_probs: TOPS[0],
    post_sampling_probs: false,
    temperature: 0,
    cache_prompt: cached,
    stream,
  });
  const read = (answer: Fields, tokens: readonly number[]): Row => {
    checkCount(answer, answer.optionalInteger('tokens_evaluated', 0), tokens.length);
    if (answer.optionalFlag('truncated')) fail('FORMAT', answer.where, 'the server says that it cut the prompt.');
    const [probs] = answer.objects('completion_probabilities');
    const top = probs?.objects('top_logprobs') ?? [];
    const pairs = top.map((one) => [idOf(one), one.optionalNumber('logprob')] as const);
    return rowOf(tokens.length, pairs, answer.where);
  };
  return {
    api: 'llama-server',
    about: aboutOf('llama-server', version, model, context, 'one request a position'),
    context,
    oneByOne: true,
    async rows(tokens, _wanted, cached = true) {
      const answer = (await client.ask(path, bodyOf(tokens, cached), tokens.length)) ?? refused(client, path);
      return [read(answer, tokens)];
    },
    async streamed(tokens) {
      const body = bodyOf(tokens, false, true);
      const found = await eventWith(client, path, body, tokens.length, (one) => one.has('completion_probabilities'));
      return found && read(found, tokens);
    },
    async listed(prompts) {
      const answer = await client.ask(path, bodyOf(prompts, false), sizeOf(prompts), 'list');
      const all = answer && itemsOf(answer, prompts.length);
      return all?.map((one, n) => read(one, prompts[one.optionalInteger('index', 0, prompts.length - 1) ?? n]!));
    },
  };
}

/** Finds the first event of a stream in which what is looked for is. @returns undefined if the server does not stream */
async function eventWith(
  client: Client,
  path: string,
  body: object,
  tokens: number,
  has: (event: Fields) => boolean,
): Promise<Fields | undefined> {
  const answer = await client.ask(path, body, tokens, 'events');
  if (!answer) return undefined;
  return answer.objects('list').find(has) ?? fail('FORMAT', answer.where, 'no log-probability is in its stream.');
}

/** Reads an answer to several prompts. @returns undefined if there is not one for each */
function itemsOf(answer: Fields, count: number): Fields[] | undefined {
  const list = answer.raw('list');
  return Array.isArray(list) && list.length === count ? answer.objects('list') : undefined;
}

const sizeOf = (prompts: readonly (readonly number[])[]): number => prompts.reduce((sum, one) => sum + one.length, 0);

function sglangServer(client: Client, info: Fields): Server {
  const path = '/generate';
  const bodyOf = (ids: readonly unknown[], start: number | readonly number[], stream = false) => ({
    input_ids: ids,
    sampling_params: { max_new_tokens: 1, temperature: 0 },
    return_logprob: true,
    logprob_start_len: start,
    top_logprobs_num: TOPS[0],
    stream,
  });
  const lastOf = (meta: Fields): [number, number | undefined][] => {
    const [first] = listOf(meta, 'output_top_logprobs');
    return Array.isArray(first) ? first.map(tripleOf) : [];
  };
  return {
    api: 'sglang',
    about: aboutOf('SGLang', undefined, info.optionalText('model_path'), undefined, 'one request a prompt'),
    context: undefined,
    oneByOne: false,
    async streamed(tokens) {
      const body = bodyOf(tokens, tokens.length - 1, true);
      const found = await eventWith(client, path, body, tokens.length, (one) => one.has('meta_info'));
      const meta = found?.object('meta_info');
      return meta && rowOf(tokens.length, lastOf(meta), meta.where);
    },
    async listed(prompts) {
      const starts = prompts.map(({ length }) => length - 1);
      const answer = await client.ask(path, bodyOf(prompts, starts), sizeOf(prompts), 'list');
      const all = answer && itemsOf(answer, prompts.length);
      return all?.map((one, n) => rowOf(prompts[n]!.length, lastOf(one.object('meta_info')), one.where));
    },
    async rows(tokens, wanted) {
      const body = bodyOf(tokens, wanted === 'all' ? 0 : tokens.length - 1);
      const answer = (await client.ask(path, body, tokens.length)) ?? refused(client, path);
      const meta = answer.object('meta_info');
      checkCount(meta, meta.optionalInteger('prompt_tokens', 0), tokens.length);
      const rows: Row[] = [];
      const add = (seen: number, ...lists: unknown[]): void => {
        const pairs = lists.flatMap((list) => (Array.isArray(list) ? list.map(tripleOf) : []));
        if (pairs.length > 0) rows.push(rowOf(seen, pairs, meta.where));
      };
      if (wanted === 'all') {
        const own = listOf(meta, 'input_token_logprobs');
        const top = listOf(meta, 'input_top_logprobs');
        checkIds(
          meta,
          own.map((one) => tripleOf(one)[0]),
          tokens,
        );
        for (let n = 1; n < tokens.length; n++) add(n, top[n], [own[n]]);
      }
      add(tokens.length, listOf(meta, 'output_top_logprobs')[0]);
      return rows;
    },
  };
}

/** The candidates that TGI gives, unless it was started with other --max-top-n-tokens. */
const TGI_TOP = 5;

/** TGI takes texts. It gives a log-probability for each token of a prompt, and candidates only behind it. */
async function tgiServer(client: Client, info: Fields, words: Words | undefined): Promise<Server> {
  if (!words)
    fail(
      'UNSUPPORTED',
      client.address,
      'TGI takes texts, and their tokens are not known without the model. Give its files with --model.',
    );
  const path = '/generate';
  const most = info.optionalInteger('max_input_tokens') ?? info.optionalInteger('max_input_length');
  const context = most === undefined ? info.integer('max_total_tokens', 1) : most + 1;
  const ways = [
    { decoder_input_details: true, top_n_tokens: TGI_TOP },
    { decoder_input_details: true },
    { top_n_tokens: TGI_TOP },
    {},
  ];
  const ask = (inputs: string, way: object, count: number): Promise<Fields | undefined> => {
    const parameters = { max_new_tokens: 1, do_sample: false, details: true, ...way };
    return client.ask(path, { inputs, parameters, stream: false }, count);
  };
  const prefillOf = (details: Fields): Fields[] => (details.has('prefill') ? details.objects('prefill') : []);
  const trial = 'One, two, three';
  let way: (typeof ways)[number] | undefined;
  let details: Fields | undefined;
  for (way of ways) {
    details = (await ask(trial, way, 4))?.optionalObject('details');
    if (details) break;
  }
  if (!way || !details) fail('UNSUPPORTED', client.address + path, 'the server gives no details of a prompt.');
  // Logarithms of a prompt are missing unless it was started with --enable-prefill-logprobs.
  const whole = prefillOf(details).filter((one) => typeof one.raw('logprob') === 'number').length > 1;
  const given = way;
  const how = whole ? 'a log-probability a token, one request a prompt' : 'one request a position';
  return {
    api: 'tgi',
    about: aboutOf('TGI', info.optionalText('version'), info.optionalText('model_id'), context, how),
    context,
    oneByOne: !whole,
    takesText: true,
    async rows(tokens, wanted) {
      const inputs = words.textOf(tokens);
      if (inputs === undefined) return [];
      const answer = (await ask(inputs, given, tokens.length)) ?? refused(client, path);
      const own = answer.object('details');
      const prefill = prefillOf(own);
      const ids = prefill.length > 0 ? prefill.map(idOf) : await tokensOf(client, inputs);
      checkIds(answer, ids, tokens);
      const rows: Row[] = [];
      if (wanted === 'all')
        for (const [n, one] of prefill.entries()) {
          const logprob = one.optionalNumber('logprob');
          if (n > 0 && logprob !== undefined) rows.push(rowOf(n, [[tokens[n]!, logprob]], own.where));
        }
      const [chosen] = own.objects('tokens');
      const [top] = listOf(own, 'top_tokens');
      const last = [
        ...(chosen ? [chosen] : []),
        ...(Array.isArray(top) ? top.map((one) => new Fields(one, own.where)) : []),
      ];
      rows.push(
        rowOf(
          tokens.length,
          last.map((one) => [idOf(one), one.optionalNumber('logprob')]),
          own.where,
        ),
      );
      return rows;
    },
  };
}

/** Asks TGI which tokens a text has. */
async function tokensOf(client: Client, inputs: string): Promise<number[]> {
  const answer = (await client.ask('/tokenize', { inputs }, 0, 'list')) ?? refused(client, '/tokenize');
  return answer.objects('list').map(idOf);
}

/** Servers with OpenAI's completions. What more they have is found out with a prompt of three tokens. */
async function completions(client: Client, first: Fields, words: Words | undefined): Promise<Server> {
  const path = '/v1/completions';
  const model = first.text('id');
  const context = first.optionalInteger('max_model_len') ?? undefined;
  const isVllm = first.optionalText('owned_by') === 'vllm';
  /** The ways to ask, the one that tells most first. */
  const ways = TOPS.flatMap((top) => [
    { top, ids: true, extra: { prompt_logprobs: top, return_tokens_as_token_ids: true, add_special_tokens: false } },
    { top, ids: true, extra: { echo: true, return_tokens_as_token_ids: true } },
    { top, ids: true, extra: { echo: true } },
    { top, ids: true, extra: {} },
  ]);
  const bodyOf = (
    { top, extra: all }: (typeof ways)[number],
    prompt: readonly unknown[],
    wanted: 'all' | 'last',
    stream = false,
  ) => {
    // Log-probabilities of prompts keep vLLM from using its cache, and are not needed for the last row.
    const { prompt_logprobs: _prompt, echo: _echo, ...rest } = all as { prompt_logprobs?: number; echo?: boolean };
    const extra = wanted === 'all' ? all : rest;
    return { model, prompt, max_tokens: 1, temperature: 0, logprobs: top, stream, ...extra };
  };
  const ask = (way: (typeof ways)[number], tokens: readonly number[], wanted: 'all' | 'last') =>
    client.ask(path, bodyOf(way, tokens, wanted), tokens.length);
  /** Reads an answer. @returns rows, and whether the prompt's are among them */
  const read = (answer: Fields, tokens: readonly number[]): { rows: Row[]; whole: boolean } => {
    const [choice] = answer.objects('choices');
    if (!choice) fail('FORMAT', answer.where, 'the answer has no choice in it.');
    checkCount(answer, answer.optionalObject('usage')?.optionalInteger('prompt_tokens', 0), tokens.length);
    const rows: Row[] = [];
    const prompt = choice.optionalList('prompt_logprobs') ?? answer.optionalList('prompt_logprobs');
    for (const [n, entry] of (prompt ?? []).entries()) {
      if (n === 0 || entry === null) continue;
      const record = new Fields(entry, `${choice.where}.prompt_logprobs[${n}]`);
      const pairs = record.keys().map((id) => [Number(id), record.object(id).optionalNumber('logprob')] as const);
      if (n < tokens.length && !pairs.some(([id]) => id === tokens[n]))
        fail(
          'FORMAT',
          answer.where,
          `token ${n} of the prompt is not the one that was sent: the server reads other tokens.`,
        );
      rows.push(rowOf(n, pairs, answer.where));
    }
    if (prompt) checkCount(answer, prompt.length, tokens.length);
    const logprobs = choice.optionalObject('logprobs');
    const top = logprobs?.optionalList('top_logprobs') ?? [];
    const own = logprobs?.optionalList('token_logprobs') ?? [];
    const texts = logprobs?.optionalList('tokens') ?? [];
    // With echo the prompt's tokens come first, and the generated one last.
    const start = top.length > 1 ? 0 : tokens.length;
    if (start === 0) checkCount(answer, top.length - 1, tokens.length);
    for (const [n, entry] of top.entries()) {
      const pairs: [number, number | undefined][] = [];
      const add = (text: unknown, logprob: unknown): void => {
        const id = typeof text === 'string' ? idOfText(text, words) : undefined;
        if (id !== undefined) pairs.push([id, typeof logprob === 'number' ? logprob : undefined]);
      };
      if (typeof entry === 'object' && entry !== null) for (const [text, one] of Object.entries(entry)) add(text, one);
      if (start === 0 && n < tokens.length && typeof own[n] === 'number' && n > 0) {
        const id = typeof texts[n] === 'string' ? idOfText(texts[n], words) : undefined;
        if (id !== undefined && id !== tokens[n])
          fail(
            'FORMAT',
            answer.where,
            `token ${n} of the prompt is not the one that was sent: the server reads other tokens.`,
          );
        pairs.push([tokens[n]!, own[n]]);
      }
      if (pairs.length > 0 && start + n > 0) rows.push(rowOf(start + n, pairs, answer.where));
    }
    return { rows, whole: prompt !== undefined || start === 0 };
  };
  const trial = [10, 11, 12];
  for (const way of ways) {
    const answer = await ask(way, trial, 'all');
    if (!answer) continue;
    const { rows, whole } = read(answer, trial);
    if (rows.length === 0 || (!whole && Object.keys(way.extra).length > 0)) continue;
    const how = `the ${way.top} likeliest tokens, ${whole ? 'one request a prompt' : 'one request a position'}`;
    return {
      api: isVllm ? 'vllm' : 'openai',
      about: aboutOf(isVllm ? 'vLLM' : 'OpenAI completions', undefined, model, context, how),
      context,
      oneByOne: !whole,
      rows: async (tokens, wanted) => read((await ask(way, tokens, wanted)) ?? refused(client, path), tokens).rows,
      async streamed(tokens) {
        const has = (one: Fields): boolean =>
          one.has('choices') && (one.objects('choices')[0]?.has('logprobs') ?? false);
        const found = await eventWith(client, path, bodyOf(way, tokens, 'last', true), tokens.length, has);
        return found && read(found, tokens).rows.at(-1);
      },
      async listed(prompts) {
        const answer = await client.ask(path, bodyOf(way, prompts, 'last'), sizeOf(prompts));
        const choices = listOf(answer ?? new Fields({}, path), 'choices');
        if (choices.length !== prompts.length) return undefined;
        return choices.flatMap((choice, n) => {
          const index = new Fields(choice, path).optionalInteger('index', 0, prompts.length - 1) ?? n;
          return read(new Fields({ choices: [choice] }, client.address + path), prompts[index]!).rows.slice(-1);
        });
      },
    };
  }
  return fail(
    'UNSUPPORTED',
    client.address + path,
    'the server gives no log-probabilities for a prompt of token ids. A probe needs them: look for an option of the server that allows logprobs.',
  );
}

function aboutOf(
  name: string,
  version: string | undefined,
  model: string | undefined,
  context: number | undefined,
  how: string,
) {
  const safe = (text: string): string => text.replace(/\p{Cc}/gu, ' ').slice(0, 100);
  const parts = [
    version ? `${name} ${safe(version)}` : name,
    model && `model ${safe(model)}`,
    context !== undefined && `context ${context}`,
    how,
  ];
  return parts.filter(Boolean).join(', ');
}

function refused(client: Client, path: string): never {
  return fail(
    'FORMAT',
    client.address + path,
    'the server refuses the request. Is the prompt longer than its context?',
  );
}

/** @throws {RopewalkError} FORMAT if the server has read more or fewer tokens than were sent */
function checkCount(answer: Fields, count: number | undefined, sent: number): void {
  if (count === undefined || count === sent) return;
  const what = count > sent ? 'It adds tokens, such as a BOS, to what it is sent' : 'It cuts prompts';
  fail(
    'FORMAT',
    answer.where,
    `the server says that it read ${count} tokens, and ${sent} were sent. ${what}, so it cannot be judged by them.`,
  );
}

function checkIds(answer: Fields, ids: readonly number[], sent: readonly number[]): void {
  checkCount(answer, ids.length, sent.length);
  const at = ids.findIndex((id, n) => id !== sent[n]);
  if (at >= 0)
    fail('FORMAT', answer.where, `token ${at} is ${ids[at]}, and ${sent[at]} was sent: the server reads other tokens.`);
}

const listOf = (fields: Fields, key: string): readonly unknown[] => fields.optionalList(key) ?? [];
const idOf = (one: Fields): number => one.integer('id', 0);

/** Reads SGLang's `[logprob, id, text]`. */
function tripleOf(entry: unknown): [number, number | undefined] {
  const [logprob, id] = Array.isArray(entry) ? entry : [];
  return [typeof id === 'number' ? id : -1, typeof logprob === 'number' ? logprob : undefined];
}

/** Reads vLLM's `token_id:N`, or looks for the token with this text. */
function idOfText(text: string, words: Words | undefined): number | undefined {
  const id = /^token_id:(\d+)$/.exec(text)?.[1];
  return id === undefined ? words?.idOf(text) : Number(id);
}

/** The most by which a logarithm of a probability may be above 0 by rounding. */
const ABOVE = 1e-3;
/** The same for a sum of probabilities, whose logarithms some servers round to 16 bits. */
const SUM_ABOVE = 0.02;
/** The least that counts: some servers write -9999 for what they do not know. */
const LEAST = -100;

/** Makes a row of pairs of ids and log-probabilities. Missing ones are left out. @throws {RopewalkError} FORMAT */
function rowOf(seen: number, pairs: readonly (readonly [number, number | undefined])[], where: string): Row {
  const row = new Map<number, number>();
  for (const [id, logprob] of pairs) {
    if (logprob === undefined || logprob < LEAST) continue;
    if (!Number.isInteger(id) || id < 0) refuse('FORMAT', where, 'ids of tokens', id);
    if (!(logprob <= ABOVE)) refuse('FORMAT', where, 'log-probabilities, which are at most 0', logprob);
    row.set(id, Math.min(0, logprob));
  }
  let sum = 0;
  for (const logprob of row.values()) sum += Math.exp(logprob);
  if (sum > 1 + SUM_ABOVE)
    fail(
      'FORMAT',
      where,
      `the probabilities after ${seen} tokens add up to ${sum.toFixed(3)}: these are no log-probabilities.`,
    );
  if (row.size === 0) fail('FORMAT', where, `there is no log-probability after ${seen} tokens.`);
  return { seen, ids: [...row.keys()], logprobs: [...row.values()] };
}
