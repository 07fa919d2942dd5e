/** Finds stop texts, which end a generation. @module */
import { refuse } from 'ropewalk/backend';
import { readList } from 'ropewalk/internal';

/** Looks for stop texts in a stream, across the borders of its pieces, and returns text that cannot be part of one. */
export class StopFinder {
  /** The stop text that was found. */
  found: string | undefined;
  #held = '';
  readonly #stops: readonly string[];

  /** @throws {RopewalkError} RANGE for an empty text, and for values that are no texts */
  constructor(stops: string | readonly string[]) {
    const where = 'generate: stop';
    this.#stops = typeof stops === 'string' ? [stops] : Array.from(readList(stops, where, 'a text or a list of texts'));
    for (const stop of this.#stops)
      if (typeof stop !== 'string' || stop === '') refuse('RANGE', where, 'strings that are not empty', stop);
  }

  /** @returns the text that cannot belong to a stop text; nothing after a stop text */
  push(piece: string): string {
    if (this.found !== undefined) return '';
    const text = this.#held + piece;
    let first = -1;
    for (const stop of this.#stops) {
      const at = text.indexOf(stop);
      if (at === -1 || (first !== -1 && at >= first)) continue;
      first = at;
      this.found = stop;
    }
    const end = first === -1 ? text.length - Math.max(0, ...this.#stops.map((stop) => overlap(text, stop))) : first;
    this.#held = first === -1 ? text.slice(end) : '';
    return text.slice(0, end);
  }

  /** @returns the text that was held back, at the end of the stream */
  end(): string {
    const rest = this.#held;
    this.#held = '';
    return rest;
  }
}

/** Returns the length of the longest end of `text` that is the start of `stop`, but not all of it. */
function overlap(text: string, stop: string): number {
  for (let length = Math.min(text.length, stop.length - 1); length > 0; length--)
    if (text.endsWith(stop.slice(0, length))) return length;
  return 0;
}
