/** Leads through a probe: find out the API, ask, compute, judge. @module */
import type { Model, Tokenizer } from '@ropewalk/model';
import { fail, refuse } from 'ropewalk/backend';
import { checkInteger, type OptionNames, optionNames, reading } from 'ropewalk/internal';
import { checkAccess } from './access.js';
import type { ChangeableEngine } from './change.js';
import { Expected, type Observed } from './expected.js';
import { type Access, Client, recordedLengths } from './http.js';
import { type Judgement, judge } from './judge.js';
import { type Api, findServer, type Row, type Words } from './server.js';
import { TEXT } from './text.js';

/** Options of {@link probe}. */
export interface ProbeOptions extends Access {
  /** The model that the server is said to have, loaded with `engine`. The caller disposes it. */
  readonly model: Model;
  /** The engine from {@link changeableEngine} with which the model was loaded. */
  readonly engine: ChangeableEngine;
  /** The tokens of the prompt. Default: those of the recording offline; else 250, or as many as fit in both contexts. */
  readonly tokens?: number | undefined;
  /** The text of the prompt, repeated where it is too short. Default: a story of our own. */
  readonly text?: string | undefined;
  /** Called with what is done, in words, and its share in [0, 1]. */
  readonly onProgress?: ((what: string, share: number) => void) | undefined;
}

const NAMES: OptionNames<Omit<ProbeOptions, keyof Access>> = /* @__PURE__ */ optionNames(
  'model engine tokens text onProgress',
);

/** The findings of a probe. */
export interface ProbeReport extends Judgement {
  readonly server: { readonly api: Api; readonly about: string };
  /** The tokens of the long prompt, and the number of prompts of one token. */
  readonly tokens: number;
  readonly singles: number;
  /** Prompt tokens that were sent in all. */
  readonly sent: number;
  /** The prompt tokens that the `next` text takes. */
  readonly price?: number | undefined;
}

const USUAL_TOKENS = 250;
const LEAST_TOKENS = 16;
/** The prompts of one token, for the noise. */
const SINGLES = 24;
/** The longest text that is looked at to tell hypotheses apart, as a multiple of the one that is sent. */
const LONGER = 16;
/** The positions that are asked for where each takes a request. */
const MOST_ROWS = 256;
/** Those of them at the beginning of the text. */
const FIRST_ROWS = 64;

/**
 * Asks a server for log-probabilities of a text, and says from which RoPE, positions and weights they come.
 *
 * @param url - the server's address: `http://HOST:PORT`
 * @param options - the model's files as a loaded model; key, limits, recordings
 * @returns what fits, what is excluded and what would not show
 * @throws {RopewalkError} DEVICE for a server that is silent; FORMAT for answers that cannot be right; UNSUPPORTED for a
 *   server without log-probabilities; RANGE for options, and beyond the budget
 * @example const { verdict, best } = await probe('http://localhost:8080', { model, engine });
 */
export async function probe(url: string, options: ProbeOptions): Promise<ProbeReport> {
  const { model, engine, text = TEXT, onProgress = () => {}, tokens: asked, ...access } = checked(options);
  const { tokenizer, config } = model;
  const client = new Client(url, access);
  const words = wordsOf(tokenizer, config.vocabSize);
  const server = await findServer(client, words);
  const most = Math.min(config.maxContext, (server.context ?? Number.POSITIVE_INFINITY) - 1);
  // A recording has the text that was sent then: of servers that take a request for each position the longest prompt, of
  // others the first long one, as a longer text may have followed.
  const lengths = access.offline
    ? recordedLengths(access.recorded ?? [], (text) => tokenizer.encode(text).length).filter((n) => n >= LEAST_TOKENS)
    : [];
  const usual = lengths.length === 0 ? USUAL_TOKENS : server.oneByOne ? Math.max(...lengths) : Math.min(...lengths);
  let count = checkInteger(
    asked ?? Math.min(usual, most),
    'probe: tokens',
    LEAST_TOKENS,
    most,
    `the least context is ${most}`,
  );
  // A longer text is sent where the budget allows, or its price is said.
  const longer = tokensOf(tokenizer, text, Math.min(most, LONGER * count));
  // The rest of a text that a token was cut from may have other tokens.
  while (server.takesText && count > LEAST_TOKENS && words.textOf(longer.slice(0, count)) === undefined) count--;
  const tokens = longer.slice(0, count);
  const singles = [...new Set(tokens)].slice(0, SINGLES);
  let [answers, total] = [0, singles.length];
  const ask = async (prompt: readonly number[], wanted: 'all' | 'last'): Promise<Row[]> => {
    const answer = await server.rows(prompt, wanted);
    onProgress('of the answers', ++answers / total);
    return answer;
  };
  const promptsOf = (length: number): number[] => (server.oneByOne ? lengthsOf(length) : [length]);
  const priceOf = (length: number): number => promptsOf(length).reduce((sum, one) => sum + one, 0);
  total += promptsOf(count).length;
  const single: Observed[] = [];
  if (server.takesText && tokenizer.addBos) {
    // The server puts a BOS before each text. Each tells one candidate of the row behind the BOS alone.
    const bos = tokens.slice(0, 1);
    const rows: Row[] = [];
    for (const token of singles)
      if (token !== bos[0]) rows.push(...(await ask([...bos, token], 'all')).filter(({ seen }) => seen === 1));
    const [ids, logprobs] = [rows.map((row) => row.ids[0]!), rows.map((row) => row.logprobs[0]!)];
    if (rows.length > 0) single.push({ tokens: bos, rows: [{ seen: 1, ids, logprobs }] });
  } else
    for (const token of singles) {
      const rows = await ask([token], 'last');
      if (rows.length > 0) single.push({ tokens: [token], rows });
    }
  if (single.reduce((sum, { rows }) => sum + rows[0]!.ids.length, 0) < 8)
    fail(
      'UNSUPPORTED',
      client.address,
      'the server gives no log-probabilities behind single tokens, and without them its noise is not known. Start TGI with --enable-prefill-logprobs.',
    );
  const judged = async (text: readonly number[]): Promise<Judgement> => {
    const rows: Row[] = [];
    for (const length of promptsOf(text.length))
      rows.push(...(await ask(text.slice(0, length), server.oneByOne ? 'last' : 'all')));
    rows.sort((a, b) => a.seen - b.seen);
    if (rows.length < 8) refuse('FORMAT', client.address, 'log-probabilities at 8 positions or more', rows.length);
    const expected = new Expected(model, engine, text.length);
    const step = (share: number): void => onProgress('of the hypotheses', share);
    return judge(expected, single, { tokens: text, rows }, longer, step).finally(() => expected.dispose());
  };
  let sent = tokens;
  let found = await judged(sent);
  while (found.next !== undefined && client.sent + priceOf(found.next) <= (access.budget ?? 0)) {
    sent = longer.slice(0, found.next);
    total = answers + promptsOf(sent.length).length;
    found = await judged(sent);
  }
  const { next } = found;
  return {
    server: { api: server.api, about: server.about },
    tokens: sent.length,
    singles: singles.length,
    sent: client.sent,
    ...found,
    price: next === undefined ? undefined : priceOf(next),
  };
}

/** Copies the options and checks them. @throws {RopewalkError} RANGE, naming the option */
function checked(options: ProbeOptions): ProbeOptions {
  const given = checkAccess('probe', options, NAMES);
  const { model, engine, text } = given;
  reading('probe: model', () => {
    if (typeof model?.openSession !== 'function' || typeof model.config !== 'object')
      refuse('RANGE', 'probe: model', 'a model from loadModel', model);
  });
  reading('probe: engine', () => {
    if (typeof engine?.runs !== 'function' || engine.runs(model) !== true)
      refuse('RANGE', 'probe: engine', 'the engine from changeableEngine with which the model was loaded', engine);
  });
  if (text !== undefined && (typeof text !== 'string' || text === '')) refuse('RANGE', 'probe: text', 'a text', text);
  return given;
}

function tokensOf(tokenizer: Tokenizer, text: string, count: number): number[] {
  const once = tokenizer.encode(text);
  if (once.length < 2) fail('RANGE', 'probe: text', 'it has less than two tokens. Give a longer one.');
  // Later copies begin without the BOS.
  const next = tokenizer.encode(text, { addBos: false, addEos: false });
  const tokens = [...once];
  while (tokens.length < count) tokens.push(...next);
  return tokens.slice(0, count);
}

/** All of the first lengths, where a row excludes most at the least price, and others spread evenly up to the whole text. */
function lengthsOf(count: number): number[] {
  const first = Math.min(count, FIRST_ROWS);
  const others = Math.min(count, MOST_ROWS) - first;
  return Array.from({ length: first + others }, (_, n) =>
    n < first ? n + 1 : first + Math.round(((n + 1 - first) * (count - first)) / others),
  );
}

/** Makes the ways between tokens and texts. The text of a token is that inside of a sentence. */
function wordsOf(tokenizer: Tokenizer, vocabSize: number): Words {
  let ids: Map<string, number> | undefined;
  const fill = (): Map<string, number> => {
    const made = new Map<string, number>();
    const after = tokenizer.encode('a').slice(-1);
    for (let id = 0; id < Math.min(vocabSize, tokenizer.vocabSize); id++) {
      const text =
        tokenizer.tokenText(id) === undefined ? '' : tokenizer.stream({ after, skipSpecial: false }).push(id);
      if (text !== '') made.set(text, made.has(text) ? -1 : id);
    }
    return made;
  };
  return {
    idOf(text) {
      ids ??= fill();
      const id = ids.get(text);
      return id === -1 ? undefined : id;
    },
    textOf(tokens) {
      const text = tokenizer.decode(tokens);
      const again = text === '' ? [] : tokenizer.encode(text);
      return again.length === tokens.length && again.every((id, n) => id === tokens[n]) ? text : undefined;
    },
  };
}
