/**
 * Runs a visitor's kernel where it can reach nothing: in a worker of a frame that has no origin, no network and no eval,
 * and that is removed when the time is over. A link may have brought the kernel.
 *
 * @module
 */
import callScript from './call.js?raw';
import frameScript from './frame.js?raw';
import type { KernelCall } from './kernel.worker.js';

/** The seconds after which a kernel is ended. A right one takes a few milliseconds. */
export const MOST_SECONDS = 5;

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
  frame.title = 'The kernel';
  frame.srcdoc = FRAME;
  const ended = new AbortController();
  const { signal } = ended;
  let timer: ReturnType<typeof setTimeout> | undefined;
  try {
    const answer = await new Promise<unknown>((resolve, reject) => {
      const end = (words: string) => () => reject(new Error(words));
      stop.addEventListener('abort', end('Stopped.'), { signal });
      const late = `The kernel was ended after ${MOST_SECONDS} seconds. Does one of its loops not end?`;
      timer = setTimeout(end(late), 1000 * MOST_SECONDS);
      const told = ({ source, data }: MessageEvent): void => {
        if (source === frame.contentWindow) resolve(data);
      };
      addEventListener('message', told, { signal });
      frame.addEventListener('load', () =>
        frame.contentWindow?.postMessage({ code: `${code}\n${callScript}`, call }, '*'),
      );
      document.body.append(frame);
    });
    return readAnswer(answer, call.x.length);
  } finally {
    ended.abort();
    clearTimeout(timer);
    frame.remove();
  }
}

/** Reads what the worker sent. The visitor's text can send anything. */
function readAnswer(answer: unknown, length: number): Float32Array {
  const { y, error, line } = Object(answer) as { y?: unknown; error?: unknown; line?: unknown };
  if (error !== undefined) {
    const words = String(error)
      .replace(/^Uncaught /, '')
      .slice(0, 1000);
    throw new Error(typeof line === 'number' && line > 0 ? `Line ${line}: ${words}` : words);
  }
  if (!(y instanceof Float32Array))
    throw new Error('The kernel sent a message of its own and ended. Return y from rope.');
  if (y.length !== length) throw new Error(`rope returned ${y.length} numbers; x has ${length}. Return as many.`);
  return y;
}
