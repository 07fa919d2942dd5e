/**
 * Runs a user's program on golden cases, over its standard input and output or through files (Node only).
 * docs/verify.md describes the protocol.
 *
 * The program is not trusted. It may crash, hang, print junk or announce wrong sizes. Each of these fails the current
 * case, and the program is ended and started again for the next one.
 *
 * @module
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { parseJson } from '@ropewalk/formats';
import { readFileBytes } from '@ropewalk/formats/internal/node';
import { RopewalkError, sizeBytes, type Tensor } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import {
  checkInteger,
  type OptionNames,
  readList,
  readName,
  readOptions,
  readPlain,
  show,
  systemSentence,
} from 'ropewalk/internal';
import type { GoldenCase } from '../golden/case.js';
import { turnsOf } from '../golden/manifest.js';
import { elementBytes } from '../golden/read.js';
import { bytesToTensor } from '../host.js';
import { type FoundOutputs, outputBytes, readOutputFolder } from './outputs.node.js';
import { type KernelPerf, kernelPerf, type PerfRequest, perfRequest } from './perf.js';

/** The version of the protocol, which every header has. */
const PROTOCOL = 'ropewalk-verify-1';

/** The options of {@link programOf}. */
export interface ProgramOptions {
  /** The program and its arguments, which no shell reads. */
  readonly words: readonly string[];
  readonly protocol: 'stdio' | 'files';
  /** The time for each case. */
  readonly timeoutMs: number;
}

const NAMES: OptionNames<ProgramOptions> = { words: true, protocol: true, timeoutMs: true };

/** A program's answer to a case. */
export type Answer =
  | { readonly kind: 'outputs'; readonly tensors: ReadonlyMap<string, Tensor>; readonly notes: readonly string[] }
  /** The program does not do this case, for a reason in its words. */
  | { readonly kind: 'skip'; readonly reason: string }
  /** There is nothing to compare. The problem has one line or several. */
  | { readonly kind: 'problem'; readonly problem: string };

/** A program's times of a case, or the reason why there are none. */
export type TimesAnswer =
  | { readonly kind: 'times'; readonly perf: KernelPerf }
  | Extract<Answer, { readonly kind: 'skip' | 'problem' }>;

/** A program under test. */
export interface ProgramUnderTest {
  /** Runs one case, after the case before has ended. @throws {RopewalkError} DEVICE when the program does not start */
  run(golden: GoldenCase): Promise<Answer>;
  /** Has the program time its kernel on a case, with the protocol stdio only. */
  time(golden: GoldenCase): Promise<TimesAnswer>;
  /** Waits until the program exits. @returns what went wrong, or undefined */
  close(): Promise<string | undefined>;
  /** Ends the program and everything that it started, as Ctrl-C needs. */
  kill(): void;
}

/** The longest line of an answer, which is a small JSON object. */
const MAX_ANSWER_LINE = 2 ** 20;
/** The longest that a timer of JavaScript waits. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;
/** The number of characters that are kept from the end of a program's stderr. */
const STDERR_KEPT = 8192;
const STDERR_LINES = 5;
/** The time in which a program has to exit after it closed its output, or was asked to end. */
const GRACE_MS = 3000;
/** The time in which a program that has answered has to have read its input. */
const UNREAD_MS = 1000;
/** The time for which output is read after its process exited. Another process may hold it open forever. */
const HELD_MS = 500;
/** The number of cases that used up their time after which the others are not run, as each would use it up too. */
const MAX_LATE = 5;

/**
 * Prepares a program, which starts with the first case. After five cases that used up their time, the others are not
 * run, and their answers are problems that say so.
 *
 * @example
 * const program = programOf({ words: ['./kernel'], protocol: 'stdio', timeoutMs: 60_000 });
 * const answer = await program.run(golden);
 * await program.close();
 */
export function programOf(given: ProgramOptions): ProgramUnderTest {
  const options = readPlain(readOptions(given, 'verify: program', NAMES), 'verify: program');
  const words = Array.from(readList(options.words, 'verify: program: words', 'the words of a command'));
  if (words.length === 0 || words.some((word) => typeof word !== 'string'))
    refuse('RANGE', 'verify: program: words', 'the words of a command, at least one', options.words);
  readName(options.protocol, ['stdio', 'files'], 'verify: program: protocol');
  checkInteger(options.timeoutMs, 'verify: program: timeoutMs', 1, MAX_TIMEOUT_MS);
  const program = options.protocol === 'files' ? new FilesProgram(options) : new StdioProgram(options);
  const unlessLate = async <T>(run: () => Promise<T>) =>
    program.late < MAX_LATE
      ? run()
      : ({
          kind: 'problem',
          problem: `not run: the program was late (--timeout) in ${MAX_LATE} cases before`,
        } as const);
  return {
    run: (golden) => unlessLate(() => program.run(golden)),
    time: (golden) => unlessLate(() => program.time(golden)),
    close: () => program.close(),
    kill: () => program.kill(),
  };
}

/** Makes the header of a case, which both protocols have. */
function headerOf(golden: GoldenCase, perf?: PerfRequest): Record<string, unknown> {
  const list = (tensors: ReadonlyMap<string, Tensor>) =>
    [...tensors].map(([name, { dtype, shape, size }]) => ({ name, dtype, shape, byteLength: size * sizeBytes(dtype) }));
  const { id, op, attributes } = golden;
  const [inputs, outputs] = [list(golden.inputs), list(golden.outputs)];
  return { protocol: PROTOCOL, id, op, perf, attributes, rope: golden.rope && turnsOf(golden.rope), inputs, outputs };
}

/** True where a program gets a process group, so that everything it starts can be ended with it. */
const OWN_GROUP = process.platform !== 'win32';

/**
 * A variable of the program's environment, by which processes that it started are found outside its group (setsid). A
 * process that left the group and cleared its environment is not found, as Node cannot adopt orphans.
 */
const MARK = 'ROPEWALK_VERIFY_RUN';

/** Kills a program's process group. What it wrote to its pipes can still be read. */
function killGroup(child: ChildProcess): void {
  if (child.pid === undefined) return;
  try {
    if (OWN_GROUP) process.kill(-child.pid, 'SIGKILL');
    else child.kill('SIGKILL');
  } catch {
    // It has ended already.
  }
}

/**
 * Kills the processes of a run that left the group. It reads the environments of all processes of the machine, as far
 * as they are the user's, and is called once, at the end.
 */
function killMarked(mark: string): void {
  if (process.platform !== 'linux') return;
  // A process may start another while the list is read, so it is read twice.
  for (let round = 0; round < 2; round++)
    for (const pid of readdirSync('/proc')) {
      if (!/^\d+$/.test(pid) || Number(pid) === process.pid) continue;
      try {
        if (readFileSync(`/proc/${pid}/environ`, 'latin1').split('\0').includes(`${MARK}=${mark}`))
          process.kill(Number(pid), 'SIGKILL');
      } catch {
        // It is another user's, or has ended.
      }
    }
}

/** Kills a program, waits until it has exited, and closes its pipes, so that nothing waits for them. */
async function endProgram(child: ChildProcess): Promise<void> {
  killGroup(child);
  await gone(child, GRACE_MS);
  letGo(child);
}

function letGo(child: ChildProcess): void {
  for (const stream of [child.stdin, child.stdout, child.stderr]) stream?.destroy();
  child.unref();
}

/** Says how a process ended. */
function endOf(child: ChildProcess): string {
  return child.signalCode === null ? `exit code ${child.exitCode}` : `signal ${child.signalCode}`;
}

/** Keeps the end of a program's stderr, for messages. */
class Tail {
  #text = '';

  constructor(stream: Readable) {
    stream.setEncoding('utf8');
    stream.on('data', (piece: string) => {
      this.#text = (this.#text + piece).slice(-STDERR_KEPT);
    });
    stream.on('error', () => {});
  }

  /** Adds the last lines to a problem. */
  below(problem: string): string {
    const lines = this.#text.trimEnd().split(/\r?\n/).slice(-STDERR_LINES);
    return lines.join('').trim() === ''
      ? problem
      : [problem, 'The last it said on stderr:', ...lines.map((line) => `  ${line}`)].join('\n');
  }
}

function hasEnded(child: ChildProcess): boolean {
  return child.exitCode !== null || child.signalCode !== null;
}

/** Resolves when a process has exited, or after a time. */
function gone(child: ChildProcess, ms: number): Promise<void> {
  if (hasEnded(child)) return Promise.resolve();
  return new Promise((resolve) => {
    let timer = setTimeout(resolve, ms);
    // At `close` all of stderr has arrived, unlike at `exit`. It may come late, or never, if another process holds the
    // pipes.
    child.once('exit', () => {
      clearTimeout(timer);
      timer = setTimeout(resolve, Math.min(ms, HELD_MS));
    });
    child.once('close', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

/** Starts the program. @throws {RopewalkError} DEVICE when the system cannot */
async function start(words: readonly string[], stdin: 'pipe' | 'ignore', mark: string): Promise<ChildProcess> {
  const [command, ...rest] = words as [string, ...string[]];
  const child = spawn(command, rest, {
    stdio: [stdin, 'pipe', 'pipe'],
    detached: OWN_GROUP,
    windowsHide: true,
    env: { ...process.env, [MARK]: mark },
  });
  await new Promise<void>((resolve, reject) => {
    child.once('spawn', resolve);
    child.once('error', (error: NodeJS.ErrnoException) => {
      const missing = 'there is no such program. Give its path (./kernel for one in this folder).';
      const next = error.code === 'EACCES' ? ' Make it executable, or name what runs it: "node kernel.js".' : '';
      const why = error.code === 'ENOENT' ? missing : `${systemSentence('a program that starts', error)}.${next}`;
      reject(new RopewalkError('DEVICE', `verify: program: ${show(command)}: ${why}`, { cause: error }));
    });
  });
  child.on('error', () => {}); // A kill may fail.
  return child;
}

/** An answer that cannot be used. The case fails with this text. */
class BadAnswer extends Error {}

/** Reads lines and counted bytes, and not more, so that the pipe's back pressure works. */
class AnswerReader {
  readonly #stream: Readable;
  readonly #pieces: Uint8Array[] = [];
  #held = 0;
  #ended = false;
  #wake: (() => void) | undefined;
  #orphaned = false;
  /** True if another process held the output open until the wait was over. */
  held = false;
  /** The reason why waiting was stopped, if it was. */
  #stopped: BadAnswer | undefined;

  constructor(stream: Readable) {
    this.#stream = stream;
    const wake = (): void => this.#wake?.();
    stream.on('readable', wake);
    for (const event of ['end', 'close', 'error'])
      stream.on(event, () => {
        this.#ended = true;
        wake();
      });
  }

  /** Is called when the process has exited. Other processes may still hold its output open. */
  writerGone(): void {
    this.#orphaned = true;
    this.#limitWait();
  }

  #limitWait(): void {
    if (!this.#orphaned || !this.#wake) return;
    const wake = this.#wake;
    const timer = setTimeout(() => {
      // One more turn of the event loop reads the bytes that are still in the pipe.
      setImmediate(() => {
        if (this.#wake !== wake) return;
        this.#ended = true;
        this.held = true;
        wake();
      });
    }, HELD_MS);
    timer.unref();
  }

  /** Makes this wait and every later one fail. */
  stop(reason: BadAnswer): void {
    this.#stopped = reason;
    this.#wake?.();
  }

  /** Returns the number of bytes that have arrived. */
  waiting(): number {
    this.#pull();
    return this.#held;
  }

  /** Reads a line, without its line break. */
  async line(): Promise<Uint8Array> {
    let searched = 0;
    for (;;) {
      const all = this.#joined();
      const end = all.indexOf(0x0a, searched);
      if (end >= 0 && end <= MAX_ANSWER_LINE) return this.#take(end + 1).subarray(0, end);
      if (all.length > MAX_ANSWER_LINE)
        throw new BadAnswer(`${describeBytes(all)}: over ${MAX_ANSWER_LINE} bytes without a line break`);
      searched = all.length;
      await this.#more(() => (all.length === 0 ? 'nothing' : `${describeBytes(all)}, without a line break`));
    }
  }

  /** Reads exactly `count` bytes. */
  async bytes(count: number): Promise<Uint8Array> {
    while (this.waiting() < count) await this.#more(() => `${this.#held} of the ${count} bytes it announced`);
    return this.#take(count);
  }

  #take(count: number): Uint8Array {
    const all = this.#joined();
    this.#pieces.length = 0;
    this.#held = all.length - count;
    if (this.#held > 0) this.#pieces.push(all.subarray(count));
    return all.subarray(0, count);
  }

  #joined(): Uint8Array {
    this.#pull();
    if (this.#pieces.length !== 1)
      this.#pieces.splice(0, this.#pieces.length, Uint8Array.from(Buffer.concat(this.#pieces)));
    return this.#pieces[0]!;
  }

  #pull(): void {
    for (let piece = this.#stream.read(); piece !== null; piece = this.#stream.read()) {
      this.#pieces.push(piece);
      this.#held += piece.length;
    }
  }

  async #more(soFar: () => string): Promise<void> {
    if (this.#stopped) throw new BadAnswer(`${this.#stopped.message}; by then it had written ${soFar()}`);
    const before = this.#held;
    if (this.waiting() > before) return;
    if (this.#ended) throw new Ended(soFar());
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      this.#limitWait();
    });
    this.#wake = undefined;
  }
}

/** The output ended within an answer. The message says what had arrived. */
class Ended extends Error {}

/** Shows bytes that are no answer, for a message. */
function describeBytes(bytes: Uint8Array): string {
  return show(new TextDecoder().decode(bytes.subarray(0, 200)));
}

/** The process of a program under test, for both protocols. */
abstract class Program implements ProgramUnderTest {
  /** The number of cases that used up their time. */
  late = 0;
  protected readonly mark = randomUUID();
  protected child: ChildProcess | undefined;

  constructor(protected readonly options: ProgramOptions) {}

  abstract run(golden: GoldenCase): Promise<Answer>;
  abstract time(golden: GoldenCase): Promise<TimesAnswer>;
  abstract close(): Promise<string | undefined>;

  kill(): void {
    if (this.child) {
      killGroup(this.child);
      letGo(this.child);
    }
    killMarked(this.mark);
  }

  /** Ends the running process. */
  protected async end(): Promise<void> {
    const child = this.child;
    this.child = undefined;
    if (child) await endProgram(child);
  }
}

/** Runs one process for all cases. */
class StdioProgram extends Program {
  #reader!: AnswerReader;
  #stderr!: Tail;
  /** The number of cases that the running process has answered. */
  #answered = 0;

  async run(golden: GoldenCase): Promise<Answer> {
    const read = async (reader: AnswerReader) => answerFrom(reader, golden, await readRecord(reader, golden));
    const { answer, notes } = await this.#turn(golden, undefined, read);
    return answer.kind === 'outputs' ? { ...answer, notes: [...notes, ...answer.notes] } : answer;
  }

  async time(golden: GoldenCase): Promise<TimesAnswer> {
    const request = perfRequest(golden);
    return (await this.#turn(golden, request, (reader) => readTimes(reader, golden, request))).answer;
  }

  async #turn<T>(golden: GoldenCase, perf: PerfRequest | undefined, read: ReadsAnswer<T>) {
    const notes: string[] = [];
    // A program may do one case and exit with 0. It is then started again.
    if (this.child && hasEnded(this.child)) {
      if (this.child.exitCode !== 0)
        notes.push(`after the case before, the program ended with ${endOf(this.child)}; it was started again`);
      await this.end();
    }
    const ask = () => this.#ask(golden, perf, read);
    const none: Problem = { kind: 'problem', problem: 'the program ended well, twice, without an answer' };
    return { answer: (await ask()) ?? (await ask()) ?? none, notes };
  }

  /** @returns undefined when the program exited with 0 before it read this case, and has to be started again */
  async #ask<T>(
    golden: GoldenCase,
    perf: PerfRequest | undefined,
    read: ReadsAnswer<T>,
  ): Promise<T | Problem | undefined> {
    if (!this.child) {
      this.child = await start(this.options.words, 'pipe', this.mark);
      this.#reader = new AnswerReader(this.child.stdout!);
      this.#stderr = new Tail(this.child.stderr!);
      this.child.stdin!.on('error', () => {}); // The reader reports that the program has exited (EPIPE).
      this.child.once('exit', this.#reader.writerGone.bind(this.#reader));
      this.#answered = 0;
    }
    const [child, reader, stderr] = [this.child, this.#reader, this.#stderr];
    const seconds = this.options.timeoutMs / 1000;
    const timer = setTimeout(() => {
      this.late++;
      reader.stop(new BadAnswer(`gave no answer within ${seconds} s (--timeout)`));
    }, this.options.timeoutMs);
    try {
      // A program may answer while it still reads, and no pipe holds a whole tensor, so sending is not awaited.
      const sent = send(child.stdin!, golden, perf);
      const answer = await read(reader);
      const wasRead = await Promise.race([
        sent.then(() => true),
        new Promise<false>((resolve) => setTimeout(resolve, UNREAD_MS, false).unref()),
      ]);
      // Bytes beyond the announced ones would be taken for the next answer.
      await new Promise((resolve) => setImmediate(resolve));
      const extra = reader.waiting();
      if (extra > 0)
        throw new BadAnswer(`wrote ${extra} bytes or more after its answer. docs/verify.md shows the protocol`);
      this.#answered++;
      // Input that was not read would be taken for the next case.
      if (!wasRead) await this.end();
      return answer;
    } catch (error) {
      if (error instanceof Ended) {
        await gone(child, GRACE_MS);
        if (reader.held) this.late++;
        const what = hasEnded(child) ? `ended (${endOf(child)})` : 'closed its output';
        await this.end();
        if (this.#answered > 0 && error.message === 'nothing' && child.exitCode === 0) return undefined;
        const when = error.message === 'nothing' ? 'before it answered' : `when it had written ${error.message}`;
        return { kind: 'problem', problem: stderr.below(`the program ${what} ${when}`) };
      }
      await this.end();
      if (error instanceof BadAnswer) return { kind: 'problem', problem: stderr.below(`the program ${error.message}`) };
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  async close(): Promise<string | undefined> {
    const { child } = this;
    child?.stdin?.end();
    child?.stdout?.resume();
    if (child) await gone(child, GRACE_MS);
    const running = child && !hasEnded(child);
    await this.end();
    killMarked(this.mark);
    if (!child) return undefined;
    if (running) return `the program did not end within ${GRACE_MS / 1000} s of the end of its input`;
    if (child.exitCode === 0) return undefined;
    return this.#stderr.below(`the program ended with ${endOf(child)} after its last answer`);
  }
}

async function send(stdin: Writable, golden: GoldenCase, perf: PerfRequest | undefined): Promise<void> {
  const header = new TextEncoder().encode(`${JSON.stringify(headerOf(golden, perf))}\n`);
  for (const piece of [header, ...[...golden.inputs.values()].map(elementBytes)]) {
    if (piece.length === 0 || stdin.destroyed || stdin.write(piece)) continue;
    await new Promise<void>((resolve) => {
      stdin.once('drain', resolve);
      stdin.once('close', resolve);
    });
  }
}

/** The fields of an answer's line. */
type AnswerLine = Partial<Readonly<Record<'id' | 'outputs' | 'skip' | 'error' | 'perf', unknown>>>;
type Problem = Extract<Answer, { readonly kind: 'problem' }>;
type ReadsAnswer<T> = (reader: AnswerReader) => Promise<T>;

async function readTimes(reader: AnswerReader, golden: GoldenCase, request: PerfRequest): Promise<TimesAnswer> {
  const record = await readRecord(reader, golden);
  if (record.perf !== undefined) {
    const { seconds, copySeconds } = Object(record.perf) as Record<string, unknown>;
    if (areTimes(seconds) && areTimes(copySeconds))
      return { kind: 'times', perf: kernelPerf(request, seconds, copySeconds) };
    return { kind: 'problem', problem: `its times are ${show(record.perf)}, expected seconds and copySeconds above 0` };
  }
  const answer = await answerFrom(reader, golden, record);
  if (answer.kind !== 'outputs') return answer;
  return { kind: 'problem', problem: 'the program answers with outputs: it does not know perf' };
}

function areTimes(list: unknown): list is number[] {
  return Array.isArray(list) && list.length > 0 && list.every((s) => typeof s === 'number' && s > 0 && s < Infinity);
}

async function readRecord(reader: AnswerReader, golden: GoldenCase): Promise<AnswerLine> {
  const line = await reader.line();
  let record: AnswerLine;
  try {
    record = parseJson(line, 'answer') as AnswerLine;
    if (typeof record !== 'object' || record === null || Array.isArray(record))
      throw new RopewalkError('FORMAT', 'not an object');
  } catch (error) {
    if (!(error instanceof RopewalkError)) throw error;
    const wrote = `wrote ${describeBytes(line)} where a line of JSON was expected`;
    throw new BadAnswer(`${wrote}. Its own messages belong on stderr`);
  }
  if (record.id !== golden.id) throw new BadAnswer(`answered for id ${show(record.id)}, expected ${show(golden.id)}`);
  return record;
}

async function answerFrom(reader: AnswerReader, golden: GoldenCase, record: AnswerLine): Promise<Answer> {
  const said = saidInstead(record);
  if (said) return said;
  if (!Array.isArray(record.outputs)) throw new BadAnswer(`answered without outputs, skip or error: ${show(record)}`);
  const found = { tensors: new Map<string, Tensor>(), problems: [] as string[], notes: [] as string[] };
  const { tensors, problems, notes } = found;
  // All announced bytes are read, even those that do not fit, so that the next answer is read from its start.
  const most = outputBytes(golden) * 4 + 2 ** 20;
  let total = 0;
  for (const output of record.outputs as unknown[]) {
    const { name, dtype, shape, byteLength } = Object(output) as Record<string, unknown>;
    if (typeof name !== 'string' || !Number.isSafeInteger(byteLength) || (byteLength as number) < 0)
      throw new BadAnswer(`announced ${show(output)}, expected name, dtype, shape and byteLength`);
    total += byteLength as number;
    if (total > most) throw new BadAnswer(`announced ${total} bytes, which is over four times what the outputs have`);
    const bytes = await reader.bytes(byteLength as number);
    const expected = golden.outputs.get(name);
    if (!expected) {
      notes.push(`${show(name)} is no output of this case`);
      continue;
    }
    const wanted = expected.size * sizeBytes(expected.dtype);
    if (tensors.has(name)) problems.push(`${name}: expected once, got it twice`);
    else if (dtype !== expected.dtype) problems.push(`${name}: expected dtype ${expected.dtype}, got ${show(dtype)}`);
    else if (JSON.stringify(shape) !== JSON.stringify(expected.shape))
      problems.push(`${name}: expected shape [${expected.shape}], got ${show(shape)}`);
    else if (bytes.length !== wanted) problems.push(`${name}: expected byteLength ${wanted}, got ${bytes.length}`);
    else tensors.set(name, bytesToTensor(bytes, expected.dtype, expected.shape, name));
  }
  for (const name of golden.outputs.keys()) {
    if (!tensors.has(name) && !problems.some((problem) => problem.startsWith(`${name}:`)))
      problems.push(`${name}: expected it among the outputs, got none`);
  }
  return answerOf(found);
}

function answerOf({ tensors, problems, notes }: FoundOutputs): Answer {
  return problems.length > 0 ? { kind: 'problem', problem: problems.join('\n') } : { kind: 'outputs', tensors, notes };
}

/** Reads `skip` and `error`, which both protocols have. */
function saidInstead(record: AnswerLine): Answer | undefined {
  const text = (value: unknown): string => (typeof value === 'string' ? value.slice(0, 1000) : show(value));
  if (record.skip !== undefined) return { kind: 'skip', reason: text(record.skip) };
  if (record.error !== undefined) return { kind: 'problem', problem: `the program says: ${text(record.error)}` };
  return undefined;
}

/** Runs a process for each case, which reads and writes folders. */
class FilesProgram extends Program {
  #folder: string | undefined;

  async run(golden: GoldenCase): Promise<Answer> {
    const folder = mkdtempSync(join(tmpdir(), 'ropewalk-verify-'));
    this.#folder = folder;
    try {
      const [inside, outside] = [join(folder, 'in'), join(folder, 'out')];
      for (const dir of [inside, outside]) mkdirSync(dir);
      const header = headerOf(golden);
      writeFileSync(join(inside, 'case.json'), `${JSON.stringify(header, null, 1)}\n`);
      for (const record of header.inputs as { name: string }[]) {
        writeFileSync(join(inside, `${record.name}.bin`), elementBytes(golden.inputs.get(record.name)!));
        writeFileSync(join(inside, `${record.name}.json`), `${JSON.stringify(record)}\n`);
      }
      const problem = await this.#call(inside, outside);
      return problem === undefined ? readAnswerFolder(outside, golden) : { kind: 'problem', problem };
    } finally {
      rmSync(folder, { recursive: true, force: true });
      this.#folder = undefined;
    }
  }

  /** @returns what went wrong, or undefined */
  async #call(inside: string, outside: string): Promise<string | undefined> {
    const child = await start([...this.options.words, inside, outside], 'ignore', this.mark);
    this.child = child;
    const said = new Tail(child.stderr!);
    child.stdout!.resume(); // The program may print anything.
    await gone(child, this.options.timeoutMs);
    const running = !hasEnded(child);
    await this.end();
    if (running) {
      this.late++;
      return said.below(`the program was not done within ${this.options.timeoutMs / 1000} s (--timeout)`);
    }
    return child.exitCode === 0 ? undefined : said.below(`the program ended with ${endOf(child)}`);
  }

  async time(): Promise<TimesAnswer> {
    return { kind: 'problem', problem: 'a program that is called once for each case does not time its kernel' };
  }

  async close(): Promise<undefined> {
    killMarked(this.mark);
  }

  override kill(): void {
    super.kill();
    if (this.#folder !== undefined) rmSync(this.#folder, { recursive: true, force: true });
  }
}

function readAnswerFolder(folder: string, golden: GoldenCase): Answer {
  const answer = join(folder, 'answer.json');
  if (existsSync(answer)) {
    try {
      const record = parseJson(readFileBytes(answer, MAX_ANSWER_LINE, 'answer.json'), 'answer.json');
      const said = typeof record === 'object' && record !== null ? saidInstead(record) : undefined;
      if (said) return said;
    } catch (error) {
      if (error instanceof RopewalkError) return { kind: 'problem', problem: error.message };
      throw error;
    }
  }
  return answerOf(readOutputFolder(folder, golden));
}
