/** Computes what the model of the files would answer, with a change or without. @module */
import type { Model } from '@ropewalk/model';
import { type DecoderSession, type KernelSequence, shiftRows } from '@ropewalk/model/internal';
import { planRearrange } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import type { Change, ChangeableEngine, Penalty, SmallCache } from './change.js';
import { slower } from './hypotheses.js';
import type { Row } from './server.js';

/** A text of tokens, and what the server says comes after parts of it. */
export interface Observed {
  readonly tokens: readonly number[];
  readonly rows: readonly Row[];
}

/** The most logits that are kept, for temperatures and penalties: 192 MiB, which 1,000 tokens of 50,000 words take. */
const MAX_KEPT = 3 * 2 ** 24;

/** The tokens of a block, where its logits are few: more are no faster, and take more memory. */
const BLOCK = 128;

/** The least tokens of a block, and its logits. */
const LEAST_BLOCK = 32;
const BLOCK_LOGITS = 2 ** 21;

/** The tokens of an answer that is made up here. */
const LIKELIEST = 20;

/** The rows that are compared, and when to stop. */
export interface Part {
  /** Only rows after more than so many tokens. The change leaves the tokens before as they are. */
  readonly from?: number;
  /** The part of the change that those tokens have. */
  readonly base?: Change;
  /** Only rows after at most so many tokens. */
  readonly most?: number;
  /** The token counts at which {@link enough} is asked. */
  readonly stops?: readonly number[];
  /** Says whether the rows so far are enough. */
  enough?(rows: readonly Float64Array[], seen: number): boolean;
}

/** Computes log-probabilities. The logits of the model without a change are kept, as far as they have room. */
export class Expected {
  readonly model: Model;
  readonly #engine: ChangeableEngine;
  /** The context of sessions, which some scalings depend on. */
  readonly #context: number;
  readonly #kept = new WeakMap<Observed, Map<number, Float32Array>>();
  #room = MAX_KEPT;
  /** Tokens that no change has reached, or this one. */
  #prefix:
    | { readonly session: DecoderSession; readonly tokens: readonly number[]; readonly base: Change | undefined }
    | undefined;

  constructor(model: Model, engine: ChangeableEngine, context: number) {
    this.model = model;
    this.#engine = engine;
    this.#context = context;
  }

  /** Checks that the server's ids are the model's. @throws {RopewalkError} FORMAT */
  check({ rows }: Observed): void {
    const { vocabSize } = this.model.config;
    for (const { ids } of rows)
      for (const id of ids)
        if (id >= vocabSize)
          refuse(
            'FORMAT',
            'probe: model',
            `ids below its vocabulary of ${vocabSize}, as its files have`,
            id,
            'The server has another model: give the files of that one.',
          );
  }

  /**
   * Computes the differences between the server's log-probabilities and ours, a list for each row.
   *
   * @param part - the rows, and when to stop
   */
  async differences(observed: Observed, change: Change, part: Part = {}): Promise<Float64Array[]> {
    const { tokens, rows } = observed;
    const { from = 0, most = tokens.length, stops = [], enough = () => false } = part;
    const wanted = rows.filter(({ seen }) => seen > from && seen <= most);
    if (wanted.length === 0) return [];
    const last = Math.max(...wanted.map(({ seen }) => seen));
    const { vocabSize } = this.model.config;
    const { positions, temperature = 1, penalty, ...more } = change;
    const of = (row: Row, own: Float32Array): Float64Array =>
      difference(row, own, temperature, penalised(own, tokens.slice(0, row.seen), penalty));
    const isPlain = positions === undefined && Object.keys(more).length === 0;
    const kept = isPlain ? this.#kept.get(observed) : undefined;
    if (kept && wanted.every(({ seen }) => kept.has(seen))) return wanted.map((row) => of(row, kept.get(row.seen)!));
    const keep = new Map<number, Float32Array>();
    const found: Float64Array[] = [];
    const ends = stops.filter((stop) => stop < last);
    for await (const [seen, own] of this.#logits(tokens.slice(0, last), change, part)) {
      const row = wanted[found.length];
      if (row?.seen === seen) {
        found.push(of(row, own));
        if (isPlain && !kept && this.#room >= vocabSize) {
          keep.set(seen, own.slice());
          this.#room -= vocabSize;
        }
      }
      if (ends.includes(seen) && enough(found, seen)) break;
    }
    if (keep.size > 0) this.#kept.set(observed, keep);
    return found;
  }

  /** Frees what is held. */
  dispose(): void {
    this.#prefix?.session.dispose();
    this.#prefix = undefined;
  }

  /** Answers as a server with a change does: with the likeliest tokens after each. */
  async answers(tokens: readonly number[], change: Change): Promise<Observed> {
    const rows: Row[] = [];
    for await (const [seen, own] of this.#logits(tokens, change)) {
      const changed = penalised(own, tokens.slice(0, seen), change.penalty);
      const of = (id: number): number => changed.get(id) ?? own[id]!;
      const ids = Array.from(own.keys())
        .sort((a, b) => of(b) - of(a))
        .slice(0, LIKELIEST);
      const none = { seen, ids, logprobs: ids.map(() => 0) };
      const apart = difference(none, own, change.temperature ?? 1, changed);
      rows.push({ ...none, logprobs: Array.from(apart, (one) => -one) });
    }
    return { tokens, rows };
  }

  /**
   * Runs the model with a change. Keys and values of tokens that no change reaches are computed once.
   *
   * @param part - the tokens in front that the change leaves as they are, and token counts between which a caller may stop
   * @returns the logits after so many tokens, until the next step
   */
  async *#logits(
    tokens: readonly number[],
    change: Change,
    { from = 0, base, stops = [] }: Part = {},
  ): AsyncGenerator<[seen: number, row: Float32Array]> {
    const { vocabSize } = this.model.config;
    const places = change.positions?.(tokens.length);
    const context = Math.max(this.#context, tokens.length);
    const step = Math.max(LEAST_BLOCK, Math.min(BLOCK, Math.floor(BLOCK_LOGITS / vocabSize)));
    const shared = from > 0 ? await this.#begun(tokens.slice(0, from), context, base) : undefined;
    const session = this.#open(tokens.length, change, context);
    try {
      if (shared) copyRows(shared, session, from);
      for (let at = shared ? from : 0; at < tokens.length; ) {
        const { cache } = change;
        if (cache && session.length >= cache.size) await drop(session, cache);
        const room = cache ? cache.size - session.length : step;
        const to = Math.min(tokens.length, at + step, at + room, ...stops.filter((stop) => stop > at));
        this.#engine.change = { ...change, context };
        const options = { logits: 'all', ...(places && { positions: places.slice(at, to) }) } as const;
        const block = await session.append(tokens.slice(at, to), options);
        this.#engine.change = {};
        for (let start = 0; start < block.length; start += vocabSize)
          yield [++at, block.subarray(start, start + vocabSize)];
      }
    } finally {
      this.#engine.change = {};
      session.dispose();
    }
  }

  /** Opens a session for so many tokens that makes a change. */
  #open(count: number, change: Change, context: number): DecoderSession {
    this.#engine.change = { ...change, context };
    try {
      const { cacheDtype } = change;
      return this.model.openSession({ context: count, ...(cacheDtype && { cacheDtype }) }) as DecoderSession;
    } finally {
      this.#engine.change = {};
    }
  }

  /** Returns a session that has seen at least these tokens, with one change or none; undefined if the model has states. */
  async #begun(
    tokens: readonly number[],
    context: number,
    base: Change | undefined,
  ): Promise<DecoderSession | undefined> {
    if (this.model.config.recurrent) return undefined;
    let known = this.#prefix;
    const isOther = known?.tokens.some((id, n) => n < tokens.length && id !== tokens[n]);
    if (!known || isOther || known.base !== base || tokens.length > known.session.capacity) {
      known?.session.dispose();
      known = this.#prefix = { session: this.#open(context, base ?? {}, context), tokens: [], base };
    }
    const { session, tokens: held } = known;
    if (tokens.length > held.length) {
      this.#engine.change = { ...base, context };
      try {
        await session.append(tokens.slice(held.length), { logits: 'none' });
      } finally {
        this.#engine.change = {};
      }
      this.#prefix = { session, tokens, base };
    }
    return session;
  }
}

/** Drops tokens of a full cache. */
async function drop(session: DecoderSession, { size, keep, drops, turns }: SmallCache): Promise<void> {
  const { cache, decoder } = session.sequence as KernelSequence;
  const count = drops === 'one' ? 1 : Math.floor((size - keep) / 2);
  const layers = cache.layers.map(({ rope, ...layer }) => {
    return { ...layer, rope: rope && turns > 0 ? slower(rope, 1 / turns) : undefined };
  });
  const { k, v, kScales, vScales, length } = cache;
  const plain = decoder.config.latent?.rank ?? 0;
  shiftRows(decoder.runner, { k, v, kScales, vScales, length, layers }, plain, { from: keep, count });
  cache.length -= count;
  await decoder.runner.finish();
}

/** Copies the keys and values of the first tokens of a session into an empty one. */
function copyRows(from: DecoderSession, to: DecoderSession, count: number): void {
  const [source, target] = [from, to].map(({ sequence }) => sequence as KernelSequence) as [
    KernelSequence,
    KernelSequence,
  ];
  for (const part of ['k', 'v', 'kScales', 'vScales'] as const)
    source.cache[part].forEach((rows, layer) => {
      if (rows)
        source.decoder.runner.run(
          planRearrange(rows.slice(0, 0, count), target.cache[part][layer]!.slice(0, 0, count)),
        );
    });
  target.length = count;
}

/** The logits that a penalty for tokens that came before changes, by their ids. */
function penalised(
  logits: Float32Array,
  before: readonly number[],
  penalty: Penalty | undefined,
): ReadonlyMap<number, number> {
  const changed = new Map<number, number>();
  if (!penalty) return changed;
  const { kind, by, last = before.length } = penalty;
  for (const id of before.slice(-last)) {
    const logit = logits[id]!;
    if (kind === 'repetition') changed.set(id, logit * (logit > 0 ? 1 / by : by));
    else changed.set(id, ((kind === 'frequency' ? changed.get(id) : undefined) ?? logit) + Math.log(by));
  }
  return changed;
}

/** The largest logit of a row, and the sum of exponentials to it at the last temperature. */
const sums = new WeakMap<Float32Array, { readonly temperature: number; readonly top: number; readonly sum: number }>();

function sumOf(logits: Float32Array, temperature: number): { readonly top: number; readonly sum: number } {
  const known = sums.get(logits);
  if (known?.temperature === temperature) return known;
  let top = Number.NEGATIVE_INFINITY;
  // Over a vocabulary an index is twice as fast as an iterator (V8 11).
  for (let id = 0; id < logits.length; id++) if (logits[id]! > top) top = logits[id]!;
  let sum = 0;
  for (let id = 0; id < logits.length; id++) sum += Math.exp((logits[id]! - top) / temperature);
  sums.set(logits, { temperature, top, sum });
  return { top, sum };
}

function difference(
  { ids, logprobs }: Row,
  logits: Float32Array,
  temperature: number,
  changed: ReadonlyMap<number, number>,
): Float64Array {
  const { top, sum: plain } = sumOf(logits, temperature);
  let sum = plain;
  for (const [id, to] of changed)
    sum += Math.exp((to - top) / temperature) - Math.exp((logits[id]! - top) / temperature);
  const log = Math.log(sum);
  return Float64Array.from(
    ids,
    (id, n) => logprobs[n]! - (((changed.get(id) ?? logits[id]!) - top) / temperature - log),
  );
}
