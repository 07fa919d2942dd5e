/**
 * Runs a visitor's kernel where it can reach nothing: in a worker of a frame that has no origin, no network and no eval,
 * and that is removed when the time is over. Its typed arrays are bounded. A link may have brought the kernel.
 *
 * @module
 */
import callScript from './call.js?raw';
import frameScript from './frame.js?raw';
import type { KernelCall } from './kernel.worker.js';
import memoryScript from './memory.js?raw';
import type { Language } from './puzzles.js';

/** The seconds after which a kernel is ended. A right one takes milliseconds, but a GPU first compiles its shader. */
export const MOST_SECONDS: Readonly<Record<Language, number>> = { js: 5, wgsl: 20 };

/** Waits for a kernel until it is late or another run stops it. The caller then ends it. */
export function inTime<T>(language: Language, stop: AbortSignal, run: Promise<T>): Promise<T> {
  const seconds = MOST_SECONDS[language];
  const late = `The kernel was ended after ${seconds} seconds. Does one of its loops not end, or take ever more memory?`;
  const ended = new Promise<never>((_, reject) => {
    stop.addEventListener('abort', () => reject(new Error('Stopped.')));
    setTimeout(() => reject(new Error(late)), 1000 * seconds);
  });
  return Promise.race([ended, run]);
}

/** The frame inherits the page's policy. Its own allows no address at all, and its worker inherits both. */
const FRAME = `<!doctype html><meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'; worker-src blob:"><script>${frameScript}</script>`;

/**
 * Runs `rope` of a text once.
 *
 * @returns y, as many numbers as x has
 * @throws {Error} whose words are for the visitor: the kernel's own error with its line, a wrong y, or the time is over
 */
export async function runInSandbox(code: string, call: KernelCall, stop: AbortSignal): Promise<Float32Array> {
  const frame = document.createElement('iframe');
  frame.sandbox.add('allow-scripts');
  frame.hidden = true;
  frame.srcdoc = FRAME;
  const listening = new AbortController();
  const answer = new Promise<unknown>((resolve) => {
    const told = ({ source, data }: MessageEvent): void => {
      if (source === frame.contentWindow) resolve(data);
    };
    addEventListener('message', told, listening);
    frame.addEventListener('load', () =>
      frame.contentWindow?.postMessage({ code: `${memoryScript}${code}\n${callScript}`, call }, '*'),
    );
  });
  document.body.append(frame);
  try {
    return readAnswer(await inTime('js', stop, answer), call.x.length);
  } finally {
    listening.abort();
    frame.remove();
  }
}

/** The lines before the visitor's first. */
const LINES_BEFORE = memoryScript.split('\n').length - 1;

/** Reads what the worker sent. The visitor's text can send anything. */
function readAnswer(answer: unknown, length: number): Float32Array {
  const { y, error, line } = Object(answer) as { y?: unknown; error?: unknown; line?: unknown };
  if (error !== undefined) {
    const words =
      typeof error === 'string'
        ? error.slice(0, 1000).replace(/^Uncaught /, '')
        : 'The kernel sent a message of its own and ended. Return y from rope.';
    const own = Number(line) - LINES_BEFORE;
    throw new Error(own > 0 ? `Line ${own}: ${words}` : words);
  }
  if (!(y instanceof Float32Array) || y.length !== length)
    throw new Error('The kernel sent a message of its own and ended. Return y from rope.');
  return y;
}
