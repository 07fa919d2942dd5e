/**
 * Requests to a server that is not trusted: bounded in time and bytes, without redirects, so that the key goes to no
 * other host.
 *
 * @module
 */

import { fail, refuse } from 'ropewalk/backend';
import { Fields, show } from 'ropewalk/internal';

/** A request and its answer, as a recording keeps them. It has no address and no key. */
export interface Exchange {
  /** The path below the server's address, such as `/completion`. */
  readonly path: string;
  /** The JSON that was posted; undefined for GET. */
  readonly body?: string | undefined;
  readonly status: number;
  /** The answer's text. */
  readonly answer: string;
}

/**
 * Reads a recording: an exchange on each line, as JSON.
 *
 * @param text - what `ropewalk probe --record` wrote
 * @param name - the file's name, for messages
 * @throws {RopewalkError} FORMAT for a line that is no JSON
 * @example probe(url, { model, engine, recorded: parseRecording(text), offline: true })
 */
export function parseRecording(text: string, name = 'recording'): Exchange[] {
  if (typeof text !== 'string') refuse('FORMAT', 'parseRecording: text', 'a text', text);
  const lines = text.split('\n');
  if (lines.at(-1) === '') lines.pop();
  return lines.map((line, n) => {
    try {
      return JSON.parse(line) as Exchange;
    } catch {
      return fail(
        'FORMAT',
        `${name}: line ${n + 1}`,
        'it is no JSON. A recording has an answer of the server on each line.',
      );
    }
  });
}

/** The lengths of the prompts of a recording, those of texts by `lengthOf`. */
export function recordedLengths(recorded: ArrayLike<Exchange>, lengthOf: (text: string) => number): number[] {
  return Array.from(recorded).flatMap(({ body }) => {
    if (body === undefined) return [];
    const given = new Fields(parse(body, 'a recorded request'), 'a recorded request');
    const all = given.raw('prompt') ?? given.raw('input_ids') ?? given.raw('inputs');
    return Array.isArray(all) ? [all.length] : typeof all === 'string' ? [lengthOf(all)] : [];
  });
}

/** How a server is reached. */
export interface Access {
  /** Goes into the header Authorization, and into nothing else. */
  readonly key?: string | undefined;
  /** Milliseconds until a request is given up, with its answer. Default: 120,000. */
  readonly timeoutMs?: number | undefined;
  /** Answers of an earlier probe: what is among them is not asked again. */
  readonly recorded?: ArrayLike<Exchange> | undefined;
  /** Whether only recorded answers count. */
  readonly offline?: boolean | undefined;
  /** Called with each answer of the server that was not recorded. */
  readonly onExchange?: ((exchange: Exchange) => void) | undefined;
  /** The most prompt tokens that requests may have in all. */
  readonly budget?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** The largest answer: the log-probabilities of 20 tokens at 10,000 positions with their texts are about half of it. */
const MAX_BYTES = 2 ** 26;
const TIMEOUT_MS = 120_000;
/** Tries of a request that the server puts off, and the longest wait between two. */
const TRIES = 5;
const MAX_WAIT_MS = 30_000;
/** The statuses that ask to come again. */
const LATER = [429, 503];

/** Asks one server, one request after the other. */
export class Client {
  /** The address without user, query and a final /v1. */
  readonly address: string;
  /** Prompt tokens sent so far, recorded ones not counted. */
  sent = 0;
  readonly #access: Access;
  /** Recorded answers of each request, oldest first. Each is used once: the same request may be sent again on purpose. */
  readonly #recorded = new Map<string, Exchange[]>();

  /**
   * @param access - checked by the caller
   * @throws {RopewalkError} RANGE for an address that is none of http(s), or has a password in it
   */
  constructor(url: string, access: Access) {
    const where = 'probe: url';
    if (typeof url !== 'string' || !URL.canParse(url))
      refuse('RANGE', where, 'an address such as http://HOST:8080', url);
    const { protocol, username, password, origin, pathname } = new URL(url);
    if (!/^https?:$/.test(protocol)) refuse('RANGE', where, 'an address that begins with http:// or https://', url);
    if (username || password) fail('RANGE', where, 'it has a user or a password in it. Give the key by itself.');
    this.address = origin + pathname.replace(/\/+$/, '').replace(/\/v1$/, '');
    this.#access = access;
    for (const exchange of Array.from(access.recorded ?? [])) {
      const key = keyOf(exchange.path, exchange.body);
      this.#recorded.set(key, [...(this.#recorded.get(key) ?? []), exchange]);
    }
  }

  /**
   * Asks for a path, with GET or with JSON by POST.
   *
   * @param tokens - prompt tokens in the request, for the budget
   * @param form - the form of the answer. Of a list and of a stream of events the items are the field `list`
   * @returns the answer; undefined where the server has no such path, or says that it is no good request
   * @throws {RopewalkError} FORMAT for an answer that is no JSON, too large, redirected or refused; DEVICE when the
   *   server is silent; RANGE beyond the budget
   */
  async ask(
    path: string,
    body?: object,
    tokens = 0,
    form: 'object' | 'list' | 'events' = 'object',
  ): Promise<Fields | undefined> {
    const text = body && JSON.stringify(body);
    const known = this.#recorded.get(keyOf(path, text))?.shift();
    const exchange = known ?? (await this.#send(path, text, tokens));
    const { status, answer } = exchange;
    const where = this.address + path;
    if ([400, 403, 404, 405, 422, 501].includes(status)) return undefined;
    if (status === 401)
      fail('FORMAT', where, 'the server wants a key. Put it into the environment, and name the variable.');
    if (status !== 200)
      fail('FORMAT', where, `the server answers with HTTP status ${status}: "${answer.slice(0, 60)}".`);
    if (!known) this.#access.onExchange?.(exchange);
    const value = form === 'events' ? eventsOf(answer, where) : parse(answer, where);
    return new Fields(form === 'object' ? value : { list: value }, where);
  }

  async #send(path: string, body: string | undefined, tokens: number): Promise<Exchange> {
    const { offline, budget = Number.POSITIVE_INFINITY } = this.#access;
    if (offline) return { path, body, status: 404, answer: '' };
    const next = 'Raise --budget, or send fewer --tokens.';
    if (this.sent + tokens > budget)
      refuse('RANGE', 'budget', `at least ${this.sent + tokens} prompt tokens for the next request`, budget, next);
    this.sent += tokens;
    for (let tries = 1; ; tries++) {
      const { status, answer, waitMs } = await this.#once(path, body);
      if (!LATER.includes(status) || tries === TRIES) return { path, body, status, answer: this.#withoutKey(answer) };
      await wait(Math.min(MAX_WAIT_MS, waitMs ?? 500 * 2 ** tries), this.#access.signal);
    }
  }

  async #once(path: string, body: string | undefined) {
    const { key, signal, timeoutMs = TIMEOUT_MS } = this.#access;
    const where = this.address + path;
    const timeout = AbortSignal.timeout(timeoutMs);
    try {
      const response = await fetch(where, {
        method: body === undefined ? 'GET' : 'POST',
        headers: {
          accept: 'application/json',
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
          ...(key ? { authorization: `Bearer ${key}` } : {}),
        },
        body: body ?? null,
        redirect: 'manual',
        signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
      });
      const { status, headers } = response;
      if (response.type === 'opaqueredirect' || (status >= 300 && status < 400)) {
        const to = show(this.#withoutKey(headers.get('location') ?? ''));
        fail('FORMAT', where, `it redirects to ${to}, which is not followed. Give that address.`);
      }
      const seconds = Number(headers.get('retry-after') ?? Number.NaN);
      const waitMs = Number.isFinite(seconds) && seconds >= 0 ? 1000 * seconds : undefined;
      return { status, waitMs, answer: await textOf(response, where) };
    } catch (error) {
      signal?.throwIfAborted();
      if (timeout.aborted)
        fail('DEVICE', where, `no whole answer in ${timeoutMs / 1000} s. Is the server busy? --timeout waits longer.`);
      if ((error as Error)?.name === 'RopewalkError') throw error;
      const { cause, message } = (error ?? {}) as { readonly cause?: Error; readonly message?: string };
      return fail(
        'DEVICE',
        where,
        `the server does not answer: ${this.#withoutKey(String(cause?.message || message))}`,
      );
    }
  }

  /** Takes the key out of a text of the server, which may repeat what it was given. */
  #withoutKey(text: string): string {
    const { key } = this.#access;
    return key ? text.replaceAll(key, '…') : text;
  }
}

const keyOf = (path: string, body: string | undefined): string => `${path} ${body ?? ''}`;

async function textOf(response: Response, where: string): Promise<string> {
  const parts: Uint8Array[] = [];
  const tooLarge = (): never => fail('FORMAT', where, `the answer is larger than ${MAX_BYTES / 2 ** 20} MiB.`);
  if (Number(response.headers.get('content-length')) > MAX_BYTES) {
    await response.body?.cancel();
    tooLarge();
  }
  let size = 0;
  for await (const part of (response.body ?? []) as AsyncIterable<Uint8Array>) {
    size += part.length;
    // An error ends the loop and with it the stream, so the rest is never received.
    if (size > MAX_BYTES) tooLarge();
    parts.push(part);
  }
  const whole = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return new TextDecoder().decode(whole);
}

/**
 * Reads the data of server-sent events, which are JSON. A stream that is cut loses its last event.
 *
 * @see https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
 */
function eventsOf(answer: string, where: string): unknown[] {
  const events: unknown[] = [];
  for (const block of answer.replace(/\r\n?/g, '\n').split('\n\n')) {
    const lines = block.split('\n').filter((line) => line.startsWith('data:'));
    const data = lines.map((line) => line.slice(5).replace(/^ /, '')).join('\n');
    if (data !== '' && data !== '[DONE]') events.push(parse(data, where));
  }
  return events;
}

function parse(answer: string, where: string): unknown {
  try {
    return JSON.parse(answer);
  } catch {
    const start = answer.trimStart();
    if (start.startsWith('<')) fail('FORMAT', where, 'it answers with a page of HTML. Is this the address of the API?');
    if (start.startsWith('data:'))
      fail('FORMAT', where, 'it answers with a stream of events, which was not asked for.');
    if (/[:[,]\s*-?(NaN|Infinity)\b/.test(answer))
      fail(
        'FORMAT',
        where,
        'its JSON has NaN or Infinity in it, which JSON does not have: its log-probabilities are no numbers.',
      );
    return refuse('FORMAT', where, 'JSON', answer);
  }
}

async function wait(ms: number, signal: AbortSignal | undefined): Promise<void> {
  await new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, ms);
    const stop = (): void => {
      clearTimeout(timer);
      resolve();
    };
    signal?.addEventListener('abort', stop, { once: true });
  });
  signal?.throwIfAborted();
}
