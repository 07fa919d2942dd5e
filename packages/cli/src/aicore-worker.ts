/** The thread of an engineer's kernel, from inside: see aicore-thread.ts. @module */
import { spawnSync } from 'node:child_process';
import { readFileSync, realpathSync } from 'node:fs';
import { dirname, resolve, sep } from 'node:path';
import { createContext, type Module, SourceTextModule, SyntheticModule } from 'node:vm';
import { parentPort, workerData } from 'node:worker_threads';
import * as ascend from '@ropewalk/ascend';
import { RopewalkError } from 'ropewalk';
import type { FromThread, KernelFile } from './aicore-thread.js';

const file = workerData as KernelFile;
const port = parentPort!;
const say = (message: FromThread): void => port.postMessage(message);

/** Lines that a kernel may print. */
const MAX_LOGS = 200;

// The kernel gets objects of this realm. Their constructors must not make code here, where Node's modules are.
for (const sample of [() => {}, async () => {}, function* () {}, async function* () {}])
  Object.defineProperty(Object.getPrototypeOf(sample), 'constructor', { value: undefined });

const context = createContext(Object.create(null), {
  name: 'kernel',
  codeGeneration: { strings: false, wasm: false },
});
let logs = 0;
const log = (...values: unknown[]): void => {
  logs++;
  if (logs > MAX_LOGS) return;
  const rest = logs === MAX_LOGS ? ' … (no more lines are shown)' : '';
  say({ kind: 'log', text: values.map(String).join(' ') + rest });
};
Object.assign(context, { console: { log, info: log, warn: log, error: log } });

const modules = new Map<string, Module>();

/** A file as a module; it may import the model's names, and files in the kernel's folder or below. */
function moduleOf(path: string, source: string): Module {
  const known = modules.get(path);
  if (known) return known;
  try {
    const made = new SourceTextModule(source, { context, identifier: path });
    modules.set(path, made);
    return made;
  } catch (error) {
    // Node keeps the line of a syntax error to itself here; its check of a text that does not run prints it.
    const { stderr } = spawnSync(process.execPath, ['--check', '--input-type=module', '-'], { input: source });
    const line = /^\[stdin\]:\d+/m.exec(String(stderr))?.[0].slice('[stdin]'.length) ?? '';
    const given = path === file.path ? file.given : path;
    throw new Refusal(`${given}${line}: SyntaxError: ${(error as Error).message}`);
  }
}

/** An error whose text already says where it is. */
class Refusal extends Error {}

/** The folder whose files a kernel may import. */
const folder = `${dirname(realpathSync(file.path))}${sep}`;

function link(specifier: string, from: Module): Module {
  if (specifier === '@ropewalk/ascend') {
    const exported = Object.entries(ascend);
    return new SyntheticModule(
      exported.map(([name]) => name),
      function () {
        for (const [name, value] of exported) this.setExport(name, value);
      },
      { context, identifier: specifier },
    );
  }
  const path = resolve(dirname(from.identifier), specifier);
  if (!/^\.\.?\//.test(specifier) || !realpathSync(path).startsWith(folder))
    throw new Error(
      `a kernel may import '@ropewalk/ascend' and files in its own folder or below, by './…', not '${specifier}'`,
    );
  return moduleOf(path, readFileSync(path, 'utf8'));
}

/** What an error says, with the line of the user's file that it comes from. */
function inWords(error: unknown): string {
  if (error instanceof Refusal) return error.message;
  const { name = 'Error', message = String(error), stack = '' } = (error ?? {}) as Partial<Error>;
  const at = stack.indexOf(file.path);
  const place = at < 0 ? '' : (/^(:\d+)(:\d+)?/.exec(stack.slice(at + file.path.length))?.[0] ?? '');
  return `${file.given}${place}: ${error instanceof RopewalkError ? '' : `${name}: `}${message}`;
}

async function main(): Promise<void> {
  say({ kind: 'begun' });
  const own = moduleOf(file.path, file.source);
  await own.link(link);
  await own.evaluate();
  const { default: given } = own.namespace as { default?: unknown };
  const kernel = ascend.readKernel(given);
  const { name, operator, dtypes } = kernel;
  say({ kind: 'declared', declared: { name, operator, dtypes } });
  port.once('message', ({ call, how }: { call: ascend.OperatorCall; how: ascend.MeasureOptions }) => {
    say({ kind: 'begun' });
    let started = false;
    const watched: ascend.KernelDeclaration = {
      ...kernel,
      kernel: (c, args) => {
        started = true;
        kernel.kernel(c, args);
      },
    };
    try {
      const onBlock = (done: number, total: number): void => say({ kind: 'block', done, total });
      say({ kind: 'measured', measured: ascend.measureKernel(watched, call, { ...how, onBlock }) });
    } catch (error) {
      const refused = error instanceof RopewalkError && !started;
      say({
        kind: 'failed',
        message: refused ? error.message : inWords(error),
        ...(refused ? { code: error.code } : {}),
      });
    }
  });
}

main().catch((error: unknown) => say({ kind: 'failed', message: inWords(error) }));
