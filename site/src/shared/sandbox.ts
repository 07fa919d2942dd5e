/**
 * Runs a visitor's kernel where it can reach nothing: in a worker of a frame that has no origin, no network and no eval,
 * and that is removed when the time is over. Its typed arrays are bounded. A link may have brought the kernel.
 *
 * @module
 */
import frameScript from './frame.js?raw';
import memoryScript from './memory.js?raw';

/** The seconds after which a kernel is ended. A right one takes milliseconds; a GPU first compiles its shader, and the model of the AI Core is slow. */
export const MOST_SECONDS = { js: 5, wgsl: 20, aicore: 20 } as const;

/** Waits for a kernel until it is late or another run stops it. The caller then ends it. */
export function inTime<T>(kind: keyof typeof MOST_SECONDS, stop: AbortSignal, run: Promise<T>): Promise<T> {
  const seconds = MOST_SECONDS[kind];
  const late = `The kernel was ended after ${seconds} seconds. Does one of its loops not end, or take ever more memory?`;
  const ended = new Promise<never>((_, reject) => {
    stop.addEventListener('abort', () => reject(new Error('Stopped.')));
    setTimeout(() => reject(new Error(late)), 1000 * seconds);
  });
  return Promise.race([ended, run]);
}

/** The frame inherits the page's policy. Its own allows no address at all, and its worker inherits both. */
const FRAME = `<!doctype html><meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'; worker-src blob:"><script>${frameScript}</script>`;

/** A text that runs, and what stands before and behind it. */
export interface Script {
  readonly before?: string;
  readonly code: string;
  /** Answers the call that is posted, by a message. */
  readonly after: string;
}

/**
 * Runs a text once.
 *
 * @param call - is posted to it
 * @returns what it posted. It may be anything: the visitor's text can post too
 * @throws {Error} whose words are for the visitor: the kernel's own error with its line, or the time is over
 */
export async function runInSandbox(
  kind: 'js' | 'aicore',
  { before = '', code, after }: Script,
  call: unknown,
  stop: AbortSignal,
): Promise<unknown> {
  const frame = document.createElement('iframe');
  frame.sandbox.add('allow-scripts');
  frame.hidden = true;
  frame.srcdoc = FRAME;
  const first = `${memoryScript}${before}`;
  const listening = new AbortController();
  const answer = new Promise<unknown>((resolve) => {
    const told = ({ source, data }: MessageEvent): void => {
      if (source === frame.contentWindow) resolve(data);
    };
    addEventListener('message', told, listening);
    frame.addEventListener('load', () =>
      frame.contentWindow?.postMessage({ code: `${first}${code}\n${after}`, call }, '*'),
    );
  });
  document.body.append(frame);
  try {
    const said = await inTime(kind, stop, answer);
    const { error, line } = Object(said) as { error?: unknown; line?: unknown };
    if (error === undefined) return said;
    const words = typeof error === 'string' ? error.slice(0, 1000).replace(/^Uncaught /, '') : STRAY;
    const own = Number(line) - (first.split('\n').length - 1);
    throw new Error(own > 0 ? `Line ${own}: ${words}` : words);
  } finally {
    listening.abort();
    frame.remove();
  }
}

const STRAY = 'The kernel sent a message of its own and ended.';

/** Refuses what is no answer. @param next - the next step */
export function refuseStray(next: string): never {
  throw new Error(`${STRAY} ${next}`);
}
