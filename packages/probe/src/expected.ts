/** Computes what the model of the files would answer, with a change or without. @module */
import { logits, type Model } from '@ropewalk/model';
import { refuse } from 'ropewalk/backend';
import type { Change, ChangeableEngine, Penalty } from './change.js';
import type { Row } from './server.js';

/** A text of tokens, and what the server says comes after parts of it. */
export interface Observed {
  readonly tokens: readonly number[];
  readonly rows: readonly Row[];
}

/** The most logits that are kept, for temperatures: 64 MB. */
const MAX_KEPT = 2 ** 24;

/** The tokens of an answer that is made up here. */
const LIKELIEST = 20;

/** Computes log-probabilities. The logits of the model without a change are kept, as far as they have room. */
export class Expected {
  readonly model: Model;
  readonly #engine: ChangeableEngine;
  /** The context of sessions, which some scalings depend on. */
  readonly #context: number;
  readonly #kept = new WeakMap<Observed, Map<number, Float32Array>>();
  #room = MAX_KEPT;

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
   * @param most - only rows after at most so many tokens
   */
  async differences(observed: Observed, change: Change, most = observed.tokens.length): Promise<Float64Array[]> {
    const { tokens, rows } = observed;
    const wanted = rows.filter(({ seen }) => seen <= most);
    const last = Math.max(...wanted.map(({ seen }) => seen));
    const { vocabSize } = this.model.config;
    const { positions, temperature = 1, penalty, ...more } = change;
    const of = (row: Row, own: Float32Array): Float64Array =>
      difference(row, penalised(own, tokens.slice(0, row.seen), penalty), temperature);
    const isPlain = positions === undefined && Object.keys(more).length === 0;
    const kept = isPlain ? this.#kept.get(observed) : undefined;
    if (kept && wanted.every(({ seen }) => kept.has(seen))) return wanted.map((row) => of(row, kept.get(row.seen)!));
    const keep = new Map<number, Float32Array>();
    const found = new Map<number, Float64Array>();
    const places = new Map(wanted.map((row) => [row.seen, row]));
    for await (const [seen, own] of this.#logits(tokens.slice(0, last), change)) {
      const row = places.get(seen);
      if (!row) continue;
      found.set(seen, of(row, own));
      if (isPlain && !kept && this.#room >= vocabSize) {
        keep.set(seen, own.slice());
        this.#room -= vocabSize;
      }
    }
    if (keep.size > 0) this.#kept.set(observed, keep);
    return wanted.map(({ seen }) => found.get(seen)!);
  }

  /** Answers as a server with a change does: with the likeliest tokens after each. */
  async answers(tokens: readonly number[], change: Change): Promise<Observed> {
    const rows: Row[] = [];
    for await (const [seen, plain] of this.#logits(tokens, change)) {
      const own = penalised(plain, tokens.slice(0, seen), change.penalty);
      const ids = Array.from(own.keys())
        .sort((a, b) => own[b]! - own[a]!)
        .slice(0, LIKELIEST);
      const none = { seen, ids, logprobs: ids.map(() => 0) };
      rows.push({ ...none, logprobs: Array.from(difference(none, own, change.temperature ?? 1), (one) => -one) });
    }
    return { tokens, rows };
  }

  /** Runs the model with a change. @returns the logits after so many tokens, until the next step */
  async *#logits(tokens: readonly number[], change: Change): AsyncGenerator<[seen: number, row: Float32Array]> {
    const { vocabSize } = this.model.config;
    const { positions } = change;
    const context = Math.max(this.#context, tokens.length);
    const options = { context, ...(positions ? { positions: positions(tokens.length) } : {}) };
    this.#engine.change = change;
    try {
      let seen = 0;
      for await (const block of logits(this.model, tokens, options))
        for (let start = 0; start < block.length; start += vocabSize)
          yield [++seen, block.subarray(start, start + vocabSize)];
    } finally {
      this.#engine.change = {};
    }
  }
}

/** Logits after a penalty for tokens that came before. */
function penalised(logits: Float32Array, before: readonly number[], penalty: Penalty | undefined): Float32Array {
  if (!penalty) return logits;
  const { kind, by, last = before.length } = penalty;
  const counts = new Map<number, number>();
  for (const id of before.slice(-last)) counts.set(id, (counts.get(id) ?? 0) + 1);
  const all = logits.slice();
  for (const [id, count] of counts) {
    if (kind === 'repetition') all[id]! *= all[id]! > 0 ? 1 / by : by;
    else all[id]! += Math.log(by) * (kind === 'frequency' ? count : 1);
  }
  return all;
}

function difference({ ids, logprobs }: Row, logits: Float32Array, temperature: number): Float64Array {
  let top = Number.NEGATIVE_INFINITY;
  // Over a vocabulary an index is twice as fast as an iterator (V8 11).
  for (let id = 0; id < logits.length; id++) if (logits[id]! > top) top = logits[id]!;
  let sum = 0;
  for (let id = 0; id < logits.length; id++) sum += Math.exp((logits[id]! - top) / temperature);
  const log = Math.log(sum);
  return Float64Array.from(ids, (id, n) => logprobs[n]! - ((logits[id]! - top) / temperature - log));
}
