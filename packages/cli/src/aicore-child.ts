/** The code that runs inside the process of an engineer's kernel. aicore-process.ts starts that process. @module */
import { dirname, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { createContext, type Module, SourceTextModule, SyntheticModule } from 'node:vm';
import * as ascend from '@ropewalk/ascend';
import { emitAscendc, readKernel } from '@ropewalk/ascend/internal';
import { RopewalkError } from 'ropewalk';
import { type FromKernel, fromLine, type ToKernel, toLine } from './aicore-lines.js';

const say = (message: FromKernel): void => void process.stdout.write(toLine(message));

/** The kernel gets only JavaScript's own globals, against mistakes. Against attackers the process itself is limited. */
const context = createContext(Object.create(null), {
  name: 'kernel',
  codeGeneration: { strings: false, wasm: false },
});
const log = (...values: unknown[]): void => say({ kind: 'log', text: values.map(String).join(' ') });
Object.assign(context, { console: { log, info: log, warn: log, error: log } });

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** The next answer. While nothing is asked, an idle process ends: then the kernel awaits what never comes. */
async function hear<Kind extends ToKernel['kind']>(..._kinds: Kind[]): Promise<Extract<ToKernel, { kind: Kind }>> {
  process.stdin.ref();
  const { value } = await lines.next();
  process.stdin.unref();
  if (value === undefined) process.exit(); // the command has ended
  return fromLine(value) as Extract<ToKernel, { kind: Kind }>;
}

const file = await hear('load');
const modules = new Map<string, Promise<Module>>();

/** Marks a syntax error. Node does not tell its line to the program, so that the command looks for it. */
class WrongSyntax extends Error {
  constructor(
    readonly path: string,
    message: string,
  ) {
    super(message);
  }
}

/** Makes a module of a file. */
function moduleOf(path: string, source: string): Module {
  try {
    return new SourceTextModule(source, { context, identifier: path });
  } catch (error) {
    throw new WrongSyntax(path, (error as Error).message);
  }
}

/** Finds a module by its specifier: the model's names, or a file from the command. */
async function link(specifier: string, from: Module): Promise<Module> {
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
  const known = modules.get(path);
  if (known) return known;
  const made = want(specifier, from.identifier).then((source) => moduleOf(path, source));
  modules.set(path, made);
  return made;
}

let wanted: Promise<unknown> = Promise.resolve();

/** Asks the command for the text of a file. */
function want(specifier: string, from: string): Promise<string> {
  const got = wanted.then(async () => {
    say({ kind: 'want', specifier, from });
    const said = await hear('file', 'noFile');
    if (said.kind === 'noFile') throw new Error(said.message);
    return said.source;
  });
  wanted = got.catch(() => {});
  return got;
}

/** The message of an error, with the line of the user's file that threw it. */
function inWords(error: unknown): string {
  const { name = 'Error', message = String(error), stack = '' } = (error ?? {}) as Partial<Error>;
  const at = stack.indexOf(file.path);
  const place = at < 0 ? '' : (/^(:\d+)(:\d+)?/.exec(stack.slice(at + file.path.length))?.[0] ?? '');
  return `${file.given}${place}: ${error instanceof RopewalkError ? '' : `${name}: `}${message}`;
}

/** The source of a kernel, or why there is none. */
function emitted(emit: () => string): { source: string } | { noSource: string } {
  try {
    return { source: emit() };
  } catch (error) {
    return { noSource: inWords(error) };
  }
}

async function main(): Promise<void> {
  say({ kind: 'begun' });
  const own = moduleOf(file.path, file.source);
  await own.link(link);
  await own.evaluate();
  const { default: given } = own.namespace as { default?: unknown };
  const kernel = readKernel(given);
  const { name, operator, dtypes } = kernel;
  say({ kind: 'declared', declared: { name, operator, dtypes } });
  const { call, how, emit } = await hear('run');
  say({ kind: 'begun' });
  let started = false;
  const watched: ascend.KernelDeclaration = {
    ...kernel,
    kernel: (c, args) => {
      started = true;
      kernel.kernel(c, args);
    },
  };
  const onBlock = (done: number, total: number): void => say({ kind: 'block', done, total });
  try {
    const measured = ascend.measureKernel(watched, call, { ...how, onBlock });
    say({ kind: 'measured', measured, ...(emit && emitted(() => emitAscendc(kernel, call, how))) });
  } catch (error) {
    const refused = error instanceof RopewalkError && !started;
    say({
      kind: 'failed',
      message: refused ? error.message : inWords(error),
      ...(refused ? { code: error.code } : {}),
    });
  }
}

main().catch((error: unknown) => {
  if (error instanceof WrongSyntax) say({ kind: 'failed', message: error.message, syntax: error.path });
  else say({ kind: 'failed', message: inWords(error) });
});
