/** Computes what the model of the files would answer, with a change or without. @module */
import { logits, type Model } from '@ropewalk/model';
import { refuse } from 'ropewalk/backend';
import type { Change, ChangeableEngine } from './change.js';
import type { Row } from './server.js';

/** A text of tokens, and what the server says comes after parts of it. */
export interface Observed {
  readonly tokens: readonly number[];
  readonly rows: readonly Row[];
}

/** Computes log-probabilities, and remembers how many forward passes of how many tokens it took. */
export class Expected {
  readonly model: Model;
  readonly #engine: ChangeableEngine;
  /** The context of sessions, which some scalings depend on. */
  readonly #context: number;

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
  async differences({ tokens, rows }: Observed, change: Change, most = tokens.length): Promise<Float64Array[]> {
    const wanted = rows.filter(({ seen }) => seen <= most);
    const last = Math.max(...wanted.map(({ seen }) => seen));
    const { vocabSize } = this.model.config;
    const { positions, temperature = 1 } = change;
    this.#engine.change = change;
    try {
      const found = new Map<number, Float64Array>();
      const places = new Map(wanted.map((row) => [row.seen, row]));
      let seen = 0;
      const context = Math.max(this.#context, last);
      const options = { context, ...(positions ? { positions: positions(last) } : {}) };
      for await (const block of logits(this.model, tokens.slice(0, last), options)) {
        for (let start = 0; start < block.length; start += vocabSize) {
          const row = places.get(++seen);
          if (row) found.set(seen, difference(row, block.subarray(start, start + vocabSize), temperature));
        }
      }
      return wanted.map(({ seen }) => found.get(seen)!);
    } finally {
      this.#engine.change = {};
    }
  }
}

function difference({ ids, logprobs }: Row, logits: Float32Array, temperature: number): Float64Array {
  let top = Number.NEGATIVE_INFINITY;
  for (const logit of logits) if (logit > top) top = logit;
  let sum = 0;
  for (const logit of logits) sum += Math.exp((logit - top) / temperature);
  const log = Math.log(sum);
  return Float64Array.from(ids, (id, n) => logprobs[n]! - ((logits[id]! - top) / temperature - log));
}
