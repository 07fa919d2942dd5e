/**
 * Starts and ends the process of an engineer's kernel. The process loads the file and runs it within a time limit.
 *
 * A kernel is a program, which Node's permission model limits: no files, processes, threads, addons or inspector. The
 * process has no environment and three pipes. Its messages are read as untrusted text: at worst they are a wrong
 * result. docs/aicore-kernels.md lists what a kernel can still do. @module
 */
import { type ChildProcessByStdio, spawn, spawnSync } from 'node:child_process';
import { existsSync, realpathSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, resolve, sep } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import type { MeasureOptions, OperatorCall } from '@ropewalk/ascend';
import { readFileBytes } from '@ropewalk/formats/internal/node';
import { RopewalkError } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import { type Declared, type FromKernel, fromLine, type RanKernel, type ToKernel, toLine } from './aicore-lines.js';

/** The limit of the process's heap, in MiB. */
const HEAP_MB = 2048;
/** The most bytes that the process may write. A run of 2^26 elements, recorded for a timeline, writes less. */
const MAX_SAID = 2 ** 28;
/** The most bytes of each file. */
export const MAX_FILE = 2 ** 24;
/** The most lines that a kernel may print. */
const MAX_LOGS = 200;
/** The time that Node may take to start, or to find a syntax error, on a busy machine. */
const ANSWER_MS = 30_000;
/** Matches the end of stderr when the heap is full. */
const HEAP_FULL = /heap out of memory|Allocation failed/;

/** A process with one kernel file. */
export class KernelProcess {
  readonly #given: string;
  readonly #path: string;
  readonly #seconds: number;
  readonly #folder: string;
  /** The files that the process has received. */
  readonly #sources = new Map<string, string>();
  #child: ChildProcessByStdio<Writable, Readable, Readable> | undefined;
  #listener: (said: FromKernel | 'ended' | 'wrong') => void = () => {};
  #errors = '';
  #logs = 0;

  constructor(given: string, path: string, bytes: Uint8Array, seconds: number) {
    this.#given = given;
    this.#path = path;
    this.#seconds = seconds;
    this.#sources.set(path, new TextDecoder().decode(bytes));
    this.#folder = `${dirname(realpathSync(path))}${sep}`;
  }

  /** Loads the file. @throws {RopewalkError} FORMAT when it does not load, or declares no kernel */
  async load(): Promise<Declared> {
    await this.#start();
    const said = await this.#ask(
      { kind: 'load', given: this.#given, path: this.#path, source: this.#sources.get(this.#path)! },
      'loading it',
    );
    if (typeof said !== 'string' && said.kind === 'declared' && isDeclared(said.declared)) return said.declared;
    return fail('FORMAT', '--kernel', typeof said === 'string' ? said : this.#why(said));
  }

  /** Runs the kernel, and emits its source if that is asked for. @returns its report, or why there is nothing */
  async run(call: OperatorCall, { onBlock, ...how }: MeasureOptions, emit: boolean): Promise<RanKernel | string> {
    const said = await this.#ask({ kind: 'run', call, how, emit }, 'the kernel', onBlock);
    if (typeof said === 'string') return said;
    if (said.kind === 'measured') return said;
    if (said.kind === 'failed' && said.code !== undefined) throw new RopewalkError(said.code, this.#why(said));
    return this.#why(said);
  }

  /** Ends the process. */
  end(): void {
    this.#child?.kill('SIGKILL');
  }

  async #start(): Promise<void> {
    const { entry, folders, remove } = await program();
    const child = spawn(
      process.execPath,
      [...confinement(folders), '--experimental-vm-modules', '--no-warnings', `--max-old-space-size=${HEAP_MB}`, entry],
      { env: {}, stdio: ['pipe', 'pipe', 'pipe'], windowsHide: true },
    );
    this.#child = child;
    child.stdin.on('error', () => {}); // the process has ended, which is reported below
    child.on('error', (error) => {
      this.#errors = error.message;
      this.#listener('ended');
    });
    child.on('close', () => {
      remove?.();
      this.#listener('ended');
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      this.#errors = (this.#errors + text).slice(-4096);
    });
    this.#read(child.stdout);
  }

  /** Splits the output of the process into lines. */
  #read(stdout: Readable): void {
    let said = 0;
    let parts: string[] = [];
    stdout.setEncoding('utf8').on('data', (text: string) => {
      said += text.length;
      const lines = text.split('\n');
      parts.push(lines[0]!);
      for (const next of lines.slice(1)) {
        const line = parts.join('');
        parts = [next];
        this.#hear(line);
      }
      if (said <= MAX_SAID) return;
      stdout.destroy();
      this.#listener('wrong');
    });
  }

  /** Handles one line of the process, which may be no valid message. */
  #hear(line: string): void {
    let said: FromKernel;
    try {
      said = fromLine(line) as FromKernel;
      if (typeof said?.kind !== 'string') throw new SyntaxError();
    } catch {
      this.#listener('wrong');
      return;
    }
    if (said.kind === 'log') {
      if (this.#logs++ < MAX_LOGS) process.stderr.write(`${String(said.text)}\n`);
      if (this.#logs === MAX_LOGS + 1) process.stderr.write('… (no more lines are shown)\n');
    } else if (said.kind === 'want') {
      this.#child!.stdin.write(toLine(this.#file(String(said.specifier), String(said.from))));
    } else this.#listener(said);
  }

  /** Sends a file that the kernel imports: only JavaScript in its folder or below. */
  #file(specifier: string, from: string): ToKernel {
    const path = resolve(dirname(from), specifier);
    try {
      if (!/^\.\.?\/.*\.m?js$/.test(specifier) || !realpathSync(path).startsWith(this.#folder))
        return {
          kind: 'noFile',
          message: `a kernel may import '@ropewalk/ascend' and .js and .mjs files in its own folder or below, by './…', not '${specifier}'`,
        };
      const source = new TextDecoder().decode(readFileBytes(path, MAX_FILE, `--kernel: ${specifier}`));
      this.#sources.set(path, source);
      return { kind: 'file', path, source };
    } catch (error) {
      return { kind: 'noFile', message: (error as Error).message };
    }
  }

  /** Sends a message and waits up to the time limit. @returns the answer, or a text that says why there is none */
  #ask(question: ToKernel, what: string, onBlock?: MeasureOptions['onBlock']): Promise<FromKernel | string> {
    return new Promise((settle) => {
      const silent = `${this.#given}: its process did not answer: it was stopped`;
      let timer = setTimeout(() => finish(silent), ANSWER_MS);
      const finish = (answer: FromKernel | string): void => {
        clearTimeout(timer);
        this.#listener = () => {};
        if (typeof answer === 'string') this.end();
        settle(answer);
      };
      let begun = false;
      const late = `${this.#given}: ${what} did not end within ${this.#seconds} s (--timeout): it was stopped`;
      this.#listener = (said) => {
        if (said === 'ended') finish(`${this.#given}: ${this.#whyEnded(what)}`);
        else if (said === 'wrong') finish(`${this.#given}: ${what} wrote into the pipe of its report, or too much`);
        else if (said.kind === 'begun') {
          if (begun) return;
          begun = true;
          clearTimeout(timer);
          timer = setTimeout(finish, this.#seconds * 1000, late);
        } else if (said.kind === 'block') onBlock?.(Number(said.done), Number(said.total));
        else finish(said);
      };
      this.#child!.stdin.write(toLine(question));
    });
  }

  #why(said: FromKernel): string {
    if (said.kind !== 'failed')
      return `${this.#given}: the kernel's process answered "${said.kind}", which was not asked`;
    const source = this.#sources.get(String(said.syntax));
    if (source === undefined) return String(said.message);
    // `node --check` prints the line without running the file.
    const check = ['--check', '--input-type=module', '-'];
    const { stderr } = spawnSync(process.execPath, check, { input: source, env: {}, timeout: ANSWER_MS });
    const line = /^\[stdin\](:\d+)/m.exec(String(stderr))?.[1] ?? '';
    return `${said.syntax === this.#path ? this.#given : said.syntax}${line}: SyntaxError: ${said.message}`;
  }

  #whyEnded(what: string): string {
    const { exitCode, signalCode } = this.#child!;
    if (HEAP_FULL.test(this.#errors)) return `${what} took more than ${HEAP_MB} MiB of memory. Does a loop never end?`;
    // Nothing is left to do, and the process has not answered.
    if (exitCode === 0 || exitCode === 13)
      return `${what} waits for ever: it awaits a promise that nothing settles. It was stopped`;
    const error = /^.*Error.*$/m.exec(this.#errors)?.[0];
    return `${what} ended its process (${signalCode ?? `exit code ${exitCode}`})${error ? `: ${error}` : ''}`;
  }
}

function isDeclared(said: Declared | undefined): said is Declared {
  const { name, operator, dtypes } = said ?? {};
  return (
    typeof name === 'string' &&
    typeof operator === 'string' &&
    Array.isArray(dtypes) &&
    dtypes.length > 0 &&
    dtypes.every((dtype) => typeof dtype === 'string')
  );
}

/** Node's options that allow the process only the files of its own code. Bun and Deno have none. */
function confinement(folders: readonly string[]): string[] {
  const known = process.allowedNodeEnvironmentFlags;
  const flag = ['--permission', '--experimental-permission'].find((name) => known.has(name));
  if (flag === undefined || process.versions.bun !== undefined || process.versions.deno !== undefined) return [];
  return [flag, ...folders.map((folder) => `--allow-fs-read=${folder}${sep}*`)];
}

/** The program of the process, the folders of its code, and a function that cleans up. */
async function program(): Promise<{ entry: string; folders: string[]; remove?: () => void }> {
  const own = fileURLToPath(import.meta.url);
  const source = resolve(dirname(own), 'aicore-child.ts');
  if (own.endsWith('.ts')) {
    // In a checkout the code is bundled: a loader of TypeScript starts threads and programs, which is forbidden there.
    const script = new URL('../../../scripts/bundle-source.mjs', import.meta.url).href;
    const entry = ((await import(script)) as { bundleSource(source: string): string }).bundleSource(source);
    const folder = dirname(entry);
    return { entry, folders: [folder], remove: () => rmSync(folder, { recursive: true, force: true }) };
  }
  const ascend = packageOf(own, '@ropewalk/ascend');
  const read = [ascend, packageOf(own, 'ropewalk'), packageOf(join(ascend, 'package.json'), 'ropewalk')];
  const folders = new Set([resolve(dirname(own), '..'), ...read.flatMap((folder) => [folder, realpathSync(folder)])]);
  return { entry: source.replace(/ts$/, 'js'), folders: [...folders] };
}

/** The folder of a package that a file imports: often a link, which Node's resolution reads too. */
function packageOf(file: string, name: string): string {
  const roots = createRequire(realpathSync(file)).resolve.paths(name) ?? [];
  return roots.map((root) => join(root, name)).find((folder) => existsSync(folder))!;
}
