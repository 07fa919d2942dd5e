/** Runs an example of the docs in a worker of its own. @module */
import { EXAMPLES } from 'virtual:examples';

/** Quotes a text as Node does: in double quotes if it contains a single quote. */
const quoted = (text: string): string => (text.includes("'") ? `"${text}"` : `'${text}'`);

/** Formats a value as Node's console does. It covers the values that examples print. */
function shown(value: unknown, inside = false): string {
  if (typeof value === 'string') return inside ? quoted(value) : value;
  if (Object.is(value, -0)) return '-0';
  if (typeof value === 'bigint') return `${value}n`;
  if (value === null || typeof value !== 'object') return String(value);
  if (value instanceof Error) return `${value.name}: ${value.message}`;
  if (ArrayBuffer.isView(value) && 'length' in value) {
    const all = Array.from(value as unknown as ArrayLike<number>, (item) => shown(item, true));
    return `${value.constructor.name}(${all.length}) [ ${all.join(', ')} ]`;
  }
  if (Array.isArray(value))
    return value.length === 0 ? '[]' : `[ ${value.map((item) => shown(item, true)).join(', ')} ]`;
  if (value instanceof Map || value instanceof Set)
    return `${value.constructor.name}(${value.size}) ${shown([...value], true)}`;
  const entries = Object.entries(value).map(([key, item]) => `${key}: ${shown(item, true)}`);
  return entries.length === 0 ? '{}' : `{ ${entries.join(', ')} }`;
}

const examples = {
  /** Runs an example, whose lines go to `write`. @returns the error that it throws, in words */
  async run(id: string, write: (line: string) => unknown): Promise<string | undefined> {
    const written: unknown[] = [];
    const print = (...values: unknown[]): void =>
      void written.push(write(`${values.map((value) => shown(value)).join(' ')}\n`));
    Object.assign(console, { log: print, info: print, warn: print, error: print });
    let failed: string | undefined;
    try {
      await EXAMPLES[id]!();
    } catch (error) {
      failed = shown(error);
    }
    await Promise.all(written); // the page has every line before the answer
    return failed;
  },
};

export type Examples = typeof examples;

export default examples;
