/** Runs one example of the docs and sends its output to the page. @module */
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

const print = (...values: unknown[]): void =>
  postMessage({ text: `${values.map((value) => shown(value)).join(' ')}\n` });
Object.assign(console, { log: print, info: print, warn: print, error: print });

addEventListener('message', async ({ data }: MessageEvent<string>) => {
  try {
    await EXAMPLES[data]!();
    postMessage({ done: true });
  } catch (error) {
    postMessage({ failed: shown(error) });
  }
});
