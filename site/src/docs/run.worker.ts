/** Runs one example of the docs; what it prints goes to the page. @module */
import { EXAMPLES } from 'virtual:examples';

/** As Node quotes: in what the text has not. */
const quoted = (text: string): string => (text.includes("'") ? `"${text}"` : `'${text}'`);

/** A value in the words of Node's console, for what examples print. */
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
