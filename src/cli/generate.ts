/**
 * `ropewalk generate`: a model continues a text or answers a message, token by token; `ropewalk perplexity`: how well it predicts a text.
 *
 * The text goes to stdout as it comes, everything about it to stderr: `ropewalk generate … > story.txt` holds the story alone.
 *
 * @module
 */
import { existsSync, readFileSync } from 'node:fs';
import { relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { refuse } from '../core/errors.js';
import { decodeUtf8 } from '../formats/bytes.js';
import { type Generation, type Pace, readOptions } from '../model/generate.js';
import { type ChatMessage, generate as generateText, type Model, type Prompt, perplexity as scoreText } from '../model/index.js';
import { type LoadOptions, loadModelPath } from '../model/load.node.js';
import { mebibytes } from '../model/memory.js';
import { readNumber } from './numbers.js';
import { EXIT, openPrinter } from './output.js';

/** Options that say which model, and on what. */
export interface ModelRunOptions {
  readonly model?: string;
  readonly backend?: string;
  readonly threads?: string;
  readonly context?: string;
  readonly cacheDtype?: string;
  readonly json?: boolean;
}

/** Options of `generate`, as the command line gives them. */
export interface GenerateCommandOptions extends ModelRunOptions {
  readonly maxTokens?: string;
  readonly temperature?: string;
  readonly topK?: string;
  readonly topP?: string;
  readonly minP?: string;
  readonly repetitionPenalty?: string;
  readonly seed?: string;
  readonly stop?: readonly string[];
  readonly chat?: boolean;
  readonly system?: string;
  readonly onFull?: string;
  readonly ignoreEos?: boolean;
}

/** Options of `perplexity`. */
export interface PerplexityCommandOptions extends ModelRunOptions {
  readonly stride?: string;
}

/** A text of this size scores for days. */
const MAX_TEXT_BYTES = 64 * 2 ** 20;
/** What a shell reports for a program that Ctrl-C ended. */
const INTERRUPTED = 130;

/**
 * Generates text.
 *
 * @param prompt - continued; with `chat` a message that is answered. The model's start token alone unless given
 * @param options - model, backend, sampling
 * @returns the exit code: 0, or 130 when Ctrl-C ended it
 * @throws {RopewalkError} for options and files that make no sense: the caller exits with 2
 */
export async function generate(prompt: string | undefined, options: GenerateCommandOptions): Promise<number> {
  if (options.system !== undefined && !options.chat) refuse('UNSUPPORTED', 'generate: --system', 'it beside --chat', options.system);
  if (options.chat && prompt === undefined) refuse('RANGE', 'generate: prompt', 'a message to answer, with --chat', undefined);
  const number = numbersOf('generate', options);
  const sampling = {
    ...number('maxTokens'),
    ...number('temperature'),
    ...number('topK'),
    ...number('topP'),
    ...number('minP'),
    ...number('repetitionPenalty'),
    ...number('seed'),
    ...(options.onFull === undefined ? {} : { onFull: options.onFull as 'stop' | 'shift' }), // generate refuses others
    ...(options.stop === undefined ? {} : { stop: options.stop }),
    ...(options.ignoreEos ? { ignoreEos: true } : {}),
  };
  readOptions(sampling); // before a large model is read
  const abort = new AbortController();
  const interrupt = (): void => abort.abort();
  process.once('SIGINT', interrupt);
  let model: Model | undefined;
  try {
    model = await load('generate', options, abort.signal);
    const start = options.chat ? messagesOf(prompt!, options.system) : (prompt ?? '');
    const echo = !options.chat && !options.json && prompt !== undefined;
    const end = await stream(
      model,
      start,
      { ...sampling, signal: abort.signal },
      { echo: echo ? prompt : '', quiet: options.json === true },
    );
    if (options.json) process.stdout.write(`${JSON.stringify({ ...end, backend: model.backend })}\n`);
    else {
      if (!end.text.endsWith('\n')) process.stdout.write('\n');
      process.stderr.write(`${summary(end, model.backend)}\n`);
    }
    return end.reason === 'abort' ? INTERRUPTED : EXIT.ok;
  } catch (error) {
    if (abort.signal.aborted && error === abort.signal.reason) return INTERRUPTED;
    throw error;
  } finally {
    process.off('SIGINT', interrupt);
    model?.dispose();
  }
}

/**
 * Scores a text.
 *
 * @param file - UTF-8
 * @param options - model, backend, windows
 * @returns the exit code
 * @throws {RopewalkError} for options and files that make no sense: the caller exits with 2
 */
export async function perplexity(file: string, options: PerplexityCommandOptions): Promise<number> {
  const number = numbersOf('perplexity', options);
  const windows = { ...number('context'), ...number('stride') };
  const text = readText(file);
  const model = await load('perplexity', options);
  try {
    const printer = openPrinter(100, '% of the text', options.json, process.stderr);
    let percent = 0;
    const onProgress = (done: number, total: number): void => {
      for (; percent < Math.floor((100 * done) / total); percent++) printer.step();
    };
    const cacheDtype = cacheDtypeOf(options);
    const score = await scoreText(model, text, { ...windows, ...cacheDtype, onProgress }).finally(() => printer.stop());
    process.stdout.write(
      options.json
        ? `${JSON.stringify({ ...score, backend: model.backend })}\n`
        : `perplexity ${score.perplexity.toFixed(4)} a token, ${score.bitsPerByte.toFixed(4)} bits a byte ` +
            `(${score.tokens} tokens, ${score.bytes} bytes, ${model.backend})\n`,
    );
    return EXIT.ok;
  } finally {
    model.dispose();
  }
}

function readText(file: string): string {
  let bytes: Uint8Array;
  try {
    bytes = readFileSync(file);
  } catch (cause) {
    return refuse('FORMAT', 'perplexity', `a readable file ${file}`, (cause as NodeJS.ErrnoException).code ?? String(cause));
  }
  if (bytes.length > MAX_TEXT_BYTES) refuse('FORMAT', `perplexity: ${file}`, `at most ${MAX_TEXT_BYTES} bytes`, bytes.length);
  return decodeUtf8(bytes, file);
}

/** The model that comes with the package. */
export function modelInTheBox(): string {
  const folder = fileURLToPath(new URL('../../models/marline', import.meta.url));
  if (!existsSync(folder))
    refuse(
      'FORMAT',
      'generate',
      "the package's models/ folder beside src/ or dist/",
      undefined,
      'Reinstall ropewalk, or give --model PATH.',
    );
  return folder;
}

/** A path as a person would type it from here. */
function shortest(path: string): string {
  const near = relative(process.cwd(), path);
  return near.length > 0 && near.length < path.length ? near : path;
}

async function load(command: string, options: ModelRunOptions, signal?: AbortSignal): Promise<Model> {
  const number = numbersOf(command, options);
  let printer: ReturnType<typeof openPrinter> | undefined;
  let shown = 0;
  const path = options.model ?? modelInTheBox();
  const loading: LoadOptions = {
    ...number('threads'),
    ...number('context'),
    ...cacheDtypeOf(options),
    ...(options.backend === undefined ? {} : { backend: options.backend as 'auto' }), // the registry refuses names it does not know
    ...(signal ? { signal } : {}),
    onMemory(memory, config) {
      if (options.json) return;
      process.stderr.write(
        `${shortest(path)}: ${config.architecture}, ${config.numLayers} layers; weights ${mebibytes(memory.weightsBytes)}, ` +
          `KV cache of ${memory.context} tokens ${mebibytes(memory.cacheBytes)}, in all ${mebibytes(memory.totalBytes)}\n`,
      );
      printer = openPrinter(100, '% loaded', false, process.stderr);
    },
    onProgress({ doneBytes, totalBytes }) {
      for (; shown < Math.floor((100 * doneBytes) / totalBytes); shown++) printer?.step();
    },
  };
  try {
    return await loadModelPath(path, loading);
  } finally {
    printer?.stop();
  }
}

/** Writes the prompt, where it is to be seen, and the text as it comes; nothing before the options have passed. */
async function stream(
  model: Model,
  prompt: Prompt,
  options: Parameters<typeof generateText>[2],
  { echo, quiet }: { readonly echo: string; readonly quiet: boolean },
): Promise<Generation> {
  let before = echo;
  for await (const item of generateText(model, prompt, options)) {
    if (!quiet) process.stdout.write(before + item.text);
    before = '';
    if (item.end) return item.end;
  }
  throw new Error('a generation ends with its summary');
}

function messagesOf(prompt: string, system: string | undefined): ChatMessage[] {
  return [...(system === undefined ? [] : [{ role: 'system', content: system }]), { role: 'user', content: prompt }];
}

function summary(end: Generation, backend: string): string {
  const why = {
    length: end.contextFull ? 'the context is full (--on-full shift goes on)' : 'as many tokens as asked for',
    eos: 'the model ended its text',
    stop: `stopped before ${JSON.stringify(end.stop)}`,
    abort: 'interrupted',
  }[end.reason];
  const pace = (name: string, { tokens, tokensPerSecond }: Pace): string =>
    `${name} ${tokens} tokens${tokens > 0 ? ` at ${tokensPerSecond.toPrecision(3)}/s` : ''}`;
  return `\n${backend}: ${pace('prompt', end.prefill)}, ${pace('then', end.decode)}; ${why}; seed ${end.seed}`;
}

function cacheDtypeOf({ cacheDtype }: ModelRunOptions): { cacheDtype?: 'f32' | 'f16' | 'bf16' } {
  return cacheDtype === undefined ? {} : { cacheDtype: cacheDtype as 'f32' }; // loadModel refuses others
}

/** Reads options that are numbers; ranges are checked by whom they concern. */
function numbersOf<O extends object>(command: string, options: O): <K extends keyof O & string>(key: K) => { [P in K]?: number } {
  return (key) => {
    const flag = key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
    const value = readNumber(options[key] as string | undefined, `${command}: --${flag}`);
    return (value === undefined ? {} : { [key]: value }) as never;
  };
}
