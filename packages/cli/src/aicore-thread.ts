/**
 * The thread of an engineer's kernel, seen from outside: it loads the file, runs it, and is ended when its time is up.
 *
 * The file has JavaScript's own globals and nothing else: no network, no files, no processes, no Node modules, no code
 * from strings (aicore-worker.ts). Node does not promise that its contexts hold against an attacker: run files of
 * people whom you do not trust in a container. @module
 */
import { Session } from 'node:inspector';
import { extname } from 'node:path';
import { pathToFileURL } from 'node:url';
import { Worker } from 'node:worker_threads';
import type { KernelDeclaration, MeasuredKernel, MeasureOptions, OperatorCall } from '@ropewalk/ascend';
import { RopewalkError } from 'ropewalk';
import { fail } from 'ropewalk/backend';

/** What is known of a kernel before it runs. */
export type Declared = Pick<KernelDeclaration, 'name' | 'operator' | 'dtypes'>;

/** What the thread gets. */
export interface KernelFile {
  /** As the user gave it, for messages; and absolute. */
  readonly given: string;
  readonly path: string;
  readonly source: string;
}

/** What the thread says. */
export type FromThread =
  /** It is there, and starts to load the file, or to run the kernel: its time begins. */
  | { readonly kind: 'begun' }
  | { readonly kind: 'declared'; readonly declared: Declared }
  | { readonly kind: 'log'; readonly text: string }
  | { readonly kind: 'block'; readonly done: number; readonly total: number }
  | { readonly kind: 'measured'; readonly measured: MeasuredKernel }
  /** `code` where ropewalk refused something before the kernel ran. */
  | { readonly kind: 'failed'; readonly message: string; readonly code?: RopewalkError['code'] };

/** JavaScript's heap of the thread, in MiB. */
const HEAP_MB = 2048;
/** How long a thread that is stopped may take to say where it is, on a slow and busy machine. */
const ANSWER_MS = 30_000;

/** One file in one thread. */
export class KernelThread {
  readonly #worker: Worker;
  readonly #seconds: number;
  readonly #file: KernelFile;
  #stopped = false;

  constructor(given: string, path: string, bytes: Uint8Array, seconds: number) {
    this.#seconds = seconds;
    this.#file = { given, path, source: new TextDecoder().decode(bytes) };
    // From the sources the worker is a .ts file as this one is.
    const entry = new URL(`./aicore-worker${extname(import.meta.url)}`, import.meta.url);
    this.#worker = new Worker(entry, {
      workerData: this.#file,
      execArgv: [...process.execArgv, '--experimental-vm-modules', '--no-warnings'],
      env: {},
      resourceLimits: { maxOldGenerationSizeMb: HEAP_MB },
    });
    this.#worker.on('error', () => {}); // each call below has its own
  }

  /** Loads the file. @throws {RopewalkError} FORMAT when it does not load, or declares no kernel */
  async load(): Promise<Declared> {
    const said = await this.#wait('loading it');
    if (typeof said === 'string') fail('FORMAT', '--kernel', said);
    if (said.kind === 'declared') return said.declared;
    return fail('FORMAT', '--kernel', (said as { message: string }).message);
  }

  /** Runs the kernel. @returns what was measured, or why there is nothing */
  async run(call: OperatorCall, { onBlock, ...how }: MeasureOptions): Promise<MeasuredKernel | string> {
    this.#worker.postMessage({ call, how });
    const said = await this.#wait('the kernel', onBlock);
    if (typeof said === 'string') return said;
    if (said.kind === 'measured') return said.measured;
    const { message, code } = said as { message: string; code?: RopewalkError['code'] };
    if (code !== undefined) throw new RopewalkError(code, message);
    return message;
  }

  /** Ends the thread. */
  async end(): Promise<void> {
    await this.#worker.terminate();
  }

  /** Waits for an answer, for as long as the kernel may take; a text says why there is none. */
  #wait(what: string, onBlock?: MeasureOptions['onBlock']): Promise<FromThread | string> {
    const worker = this.#worker;
    const memory = `${this.#file.given}: ${what} took more than ${HEAP_MB} MiB of memory. Does a loop never end?`;
    return new Promise((resolve) => {
      let timer: NodeJS.Timeout | undefined;
      const stop = (): void => {
        this.#stopped = true;
        void this.#where().then((where) => {
          const at = where === undefined ? '' : `, at ${where}`;
          finish(`${this.#file.given}: ${what} did not end within ${this.#seconds} s (--timeout): it was stopped${at}`);
        });
      };
      const onMessage = (said: FromThread): void => {
        if (said.kind === 'begun') timer = setTimeout(stop, this.#seconds * 1000);
        else if (said.kind === 'log') process.stderr.write(`${said.text}\n`);
        else if (said.kind === 'block') onBlock?.(said.done, said.total);
        else if (!this.#stopped) finish(said);
      };
      const onError = (error: NodeJS.ErrnoException): void =>
        finish(error.code === 'ERR_WORKER_OUT_OF_MEMORY' ? memory : `${this.#file.given}: ${error.message}`);
      // A thread ends by itself when nothing is left to do.
      const onExit = (): void =>
        finish(`${this.#file.given}: ${what} waits for ever: it awaits a promise that nothing settles. It was stopped`);
      const finish = (answer: FromThread | string): void => {
        clearTimeout(timer);
        worker.off('message', onMessage).off('error', onError).off('exit', onExit);
        resolve(answer);
      };
      worker.on('message', onMessage).on('error', onError).on('exit', onExit);
    });
  }

  /** The statement of the file that runs now: `my.mjs:12`. Node's inspector asks the thread; no port is opened. */
  async #where(): Promise<string | undefined> {
    const session = new Session();
    session.connect();
    const urls = new Map<string, string>();
    const { path, given } = this.#file;
    const own = [path, pathToFileURL(path).href]; // the inspector may name it as a URL
    try {
      return await new Promise((resolve) => {
        setTimeout(resolve, ANSWER_MS, undefined).unref();
        const ask = (sessionId: string, id: number, method: string): void =>
          session.post('NodeWorker.sendMessageToWorker', { sessionId, message: JSON.stringify({ id, method }) });
        session.on('NodeWorker.attachedToWorker', ({ params: { sessionId } }) => {
          ask(sessionId, 0, 'Debugger.enable');
          ask(sessionId, 1, 'Debugger.pause');
        });
        let where: string | undefined;
        session.on('NodeWorker.receivedMessageFromWorker', ({ params: { sessionId, message } }) => {
          const { id, method, params } = JSON.parse(message) as {
            id?: number;
            method?: string;
            params: { scriptId: string; url: string; callFrames: readonly Frame[] };
          };
          if (id === 2) resolve(where);
          if (method === 'Debugger.scriptParsed') urls.set(params.scriptId, params.url);
          if (method !== 'Debugger.paused') return;
          const frame = params.callFrames.find(({ location }) => own.includes(urls.get(location.scriptId) ?? ''));
          where = frame && `${given}:${frame.location.lineNumber + 1}`;
          ask(sessionId, 2, 'Debugger.disable'); // a thread that is paused cannot be ended
        });
        session.post('NodeWorker.enable', { waitForDebuggerOnStart: false });
      });
    } finally {
      session.disconnect();
    }
  }
}

type Frame = { readonly location: { readonly scriptId: string; readonly lineNumber: number } };
