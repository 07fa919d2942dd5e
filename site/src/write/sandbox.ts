/**
 * Runs a visitor's kernel where it can reach nothing: in a worker of a frame that has no origin, no network and no eval,
 * and that is removed when the time is over. A link may have brought the kernel.
 *
 * @module
 */
import callScript from './call.js?raw';
import frameScript from './frame.js?raw';
import type { KernelCall } from './kernel.worker.js';

/** The seconds after which a kernel is ended. A right one takes milliseconds, but a GPU first compiles its shader. */
export const MOST_SECONDS = { js: 5, wgsl: 20 } as const;

/** Waits for a kernel until it is stopped or late. Then `end` ends it, and the error says why. */
export async function inTime<T>(
  language: keyof typeof MOST_SECONDS,
  stop: AbortSignal,
  run: Promise<T>,
  end: () => void,
): Promise<T> {
  const seconds = MOST_SECONDS[language];
  const late = AbortSignal.timeout(1000 * seconds);
  const ended = new Promise<never>((_, reject) => {
    AbortSignal.any([stop, late]).addEventListener('abort', () => {
      const words = `The kernel was ended after ${seconds} seconds. Does one of its loops not end?`;
      reject(new Error(late.aborted ? words : 'Stopped.'));
    });
  });
  let running = true;
  ended.catch(() => running && end());
  try {
    return await Promise.race([ended, run]);
  } finally {
    running = false;
  }
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
  frame.title = 'The kernel';
  frame.srcdoc = FRAME;
  const listening = new AbortController();
  const answer = new Promise<unknown>((resolve) => {
    const told = ({ source, data }: MessageEvent): void => {
      if (source === frame.contentWindow) resolve(data);
    };
    addEventListener('message', told, listening);
    frame.addEventListener('load', () =>
      frame.contentWindow?.postMessage({ code: `${code}\n${callScript}`, call }, '*'),
    );
  });
  document.body.append(frame);
  try {
    return readAnswer(await inTime('js', stop, answer, () => {}), call.x.length);
  } finally {
    listening.abort();
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
