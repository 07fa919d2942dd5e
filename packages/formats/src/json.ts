/**
 * JSON from files of unknown origin: bounded in size and depth, with the place of the mistake in the message.
 *
 * `JSON.parse` does not suffice: it refuses Python's NaN and Infinity, overflows the stack on deep nesting, hides
 * repeated keys, and gives the place of an error in a different form on every runtime.
 *
 * @module
 * @see https://www.rfc-editor.org/rfc/rfc8259
 */
import { refuse } from 'ropewalk/backend';
import { checkBytes, decodeUtf8, readOptions } from 'ropewalk/internal';

/** The most bytes. A config.json has a few kilobytes, a tokenizer.json tens of megabytes. */
const MAX_JSON_BYTES = 256 * 2 ** 20;
/** The deepest nesting, as the parser recurses once a level. Real files nest less than 20 deep. */
const MAX_JSON_DEPTH = 200;

/** Options of {@link parseJson}. */
export interface JsonOptions {
  /** Refuses an object with the same key twice. By default the last one counts, as in JSON.parse. */
  readonly uniqueKeys?: boolean;
}

/**
 * Parses JSON. Python's `NaN`, `Infinity` and `-Infinity` are accepted as numbers: HuggingFace's own writer emits them.
 * A byte order mark at the start is skipped.
 *
 * @param input - UTF-8 bytes or a text
 * @param where - names the file in messages
 * @returns the value
 * @throws {RopewalkError} FORMAT for anything that is not JSON, is nested deeper than 200, or is larger than 256 MiB
 */
export function parseJson(input: Uint8Array | string, where: string, options: JsonOptions = {}): unknown {
  const { uniqueKeys = false } = readOptions(options, 'json: options', { uniqueKeys: true });
  if (typeof input !== 'string') checkBytes(input, where);
  if (input.length > MAX_JSON_BYTES) refuse('FORMAT', where, `at most ${MAX_JSON_BYTES} bytes of JSON`, input.length);
  const text = typeof input === 'string' ? input : decodeUtf8(input, where);
  return new Parser(text, where, uniqueKeys).document();
}

const WORDS: ReadonlyMap<string, unknown> = /* @__PURE__ */ new Map<string, unknown>([
  ['true', true],
  ['false', false],
  ['null', null],
  ['NaN', Number.NaN],
  ['Infinity', Number.POSITIVE_INFINITY],
  ['-Infinity', Number.NEGATIVE_INFINITY],
]);

class Parser {
  readonly #text: string;
  readonly #where: string;
  readonly #uniqueKeys: boolean;
  #at = 0;
  #depth = 0;

  constructor(text: string, where: string, uniqueKeys: boolean) {
    this.#text = text;
    this.#where = where;
    this.#uniqueKeys = uniqueKeys;
  }

  document(): unknown {
    if (this.#text.charCodeAt(0) === 0xfeff) this.#at = 1;
    const value = this.#value();
    this.#space();
    return this.#at === this.#text.length ? value : this.#fail('nothing after the value');
  }

  #value(): unknown {
    this.#space();
    const first = this.#text[this.#at];
    if (first === '{') return this.#nested(() => this.#object());
    if (first === '[') return this.#nested(() => this.#array());
    return first === '"' ? this.#string() : this.#scalar();
  }

  #nested<T>(read: () => T): T {
    if (++this.#depth > MAX_JSON_DEPTH) this.#fail(`at most ${MAX_JSON_DEPTH} levels`);
    this.#at++;
    const value = read();
    this.#depth--;
    return value;
  }

  #object(): Record<string, unknown> {
    const record: Record<string, unknown> = {};
    this.#list('}', () => {
      this.#space();
      if (this.#text[this.#at] !== '"') this.#fail('a key in quotes');
      const start = this.#at;
      const key = this.#string();
      if (this.#uniqueKeys && Object.hasOwn(record, key)) this.#fail('each key once', start);
      this.#space();
      if (this.#text[this.#at] !== ':') this.#fail('a colon');
      this.#at++;
      const value = this.#value();
      // Assigning to __proto__ would set the prototype.
      if (key === '__proto__')
        Object.defineProperty(record, key, { value, writable: true, enumerable: true, configurable: true });
      else record[key] = value;
    });
    return record;
  }

  #array(): unknown[] {
    const values: unknown[] = [];
    this.#list(']', () => values.push(this.#value()));
    return values;
  }

  /** Reads the items between brackets, with commas between and none at the end. */
  #list(close: string, item: () => void): void {
    this.#space();
    if (this.#text[this.#at] !== close) {
      for (;;) {
        item();
        this.#space();
        if (this.#text[this.#at] !== ',') break;
        this.#at++;
      }
    }
    if (this.#text[this.#at] !== close) this.#fail(`a comma or ${close}`);
    this.#at++;
  }

  #string(): string {
    const start = this.#at++;
    let escaped = false;
    for (;;) {
      const code = this.#text.charCodeAt(this.#at);
      if (code === 0x22) break;
      if (!(code >= 0x20)) this.#fail('a closing quote, or control characters escaped'); // NaN is the end of the text
      if (code === 0x5c) {
        escaped = true;
        this.#at++;
      }
      this.#at++;
    }
    this.#at++;
    if (!escaped) return this.#text.slice(start + 1, this.#at - 1);
    try {
      return JSON.parse(this.#text.slice(start, this.#at)) as string;
    } catch {
      return this.#fail('a text with valid escapes', start);
    }
  }

  #scalar(): unknown {
    const start = this.#at;
    while (this.#at < this.#text.length && isWordCode(this.#text.charCodeAt(this.#at))) this.#at++;
    const word = this.#text.slice(start, this.#at);
    if (WORDS.has(word)) return WORDS.get(word);
    return /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/.test(word) ? Number(word) : this.#fail('a value', start);
  }

  #space(): void {
    for (; this.#at < this.#text.length; this.#at++) {
      const code = this.#text.charCodeAt(this.#at);
      if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) return;
    }
  }

  #fail(expected: string, at = Math.min(this.#at, this.#text.length)): never {
    let line = 1;
    let lineStart = 0;
    for (let end = this.#text.indexOf('\n'); end !== -1 && end < at; end = this.#text.indexOf('\n', lineStart)) {
      line++;
      lineStart = end + 1;
    }
    const got = at < this.#text.length ? this.#text.slice(at, at + 20) : 'the end of the text';
    return refuse('FORMAT', this.#where, `JSON with ${expected} at line ${line}, column ${at - lineStart + 1}`, got);
  }
}

/** Whether a character is a letter, a digit or one of `+ - .`, of which numbers and words consist. */
function isWordCode(code: number): boolean {
  const isLetter = (code | 0x20) >= 0x61 && (code | 0x20) <= 0x7a;
  return isLetter || (code >= 0x30 && code <= 0x39) || code === 0x2b || code === 0x2d || code === 0x2e;
}
