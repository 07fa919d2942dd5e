/**
 * The command: npm run bench -- --published [options]. See ../README.md.
 *
 * @module
 */
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describeMachine } from '@ropewalk/bench/node';
import { writeNpy } from '@ropewalk/formats';
import type * as Decoder from '@ropewalk/model';
import type * as Files from '@ropewalk/model/node';
import type * as Repack from '@ropewalk/model/repack';
import type * as Onnx from '@ropewalk/model-onnx/node';
import { Command } from 'commander';
import { floats, logProbabilities, rms } from '../../test/support/published.js';
import { GEMMA3, noPython, runPython, SMOLLM2 } from '../../test/support/python.js';
import { commit } from '../child.js';
import { showProgress } from '../progress.js';
import { VERSION } from '../version.js';

const built = (path: string): string => new URL(`../../packages/${path}`, import.meta.url).href;
const { compareLogits, logits } = (await import(built('model/dist/index.js'))) as typeof Decoder;
const { loadModelFile } = (await import(built('model/dist/node.js'))) as typeof Files;
const { writeGguf, writeSafetensorsFolder } = (await import(built('model/dist/repack.node.js'))) as typeof Repack;
const { openOnnxEngine } = (await import(built('model-onnx/dist/node.js'))) as typeof Onnx;

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const SCRATCH = join(ROOT, '.scratch/bench/published');
/** The logits of each 16th token of a long text are kept and compared, because all would take 8 GB. */
const LONG_EVERY = 16;

interface Options {
  readonly model: readonly string[];
  readonly texts: number;
  readonly tokens: number;
  readonly context: number;
  readonly json?: string;
}

/** The answer of one program for one text. */
interface Answer {
  /** f32 `[kept tokens, vocabulary]`. */
  readonly rows: Float32Array;
  /** The log-probability of each token but the first. */
  readonly scores: readonly number[];
}

/** One of our engines beside llama.cpp, over some texts. */
interface Beside {
  readonly engine: string;
  /** Root mean squares of differences from llama.cpp with f32 weights, as shares of the spread, by quarters of the text. */
  readonly rms: readonly number[];
  /** Mean KL divergences from llama.cpp on the same file, in nats, by quarters of the text. */
  readonly kl: readonly number[];
  /** The share of tokens with the same likeliest next token as llama.cpp on the same file. */
  readonly top1: number;
  readonly perplexity: number;
}

interface Part {
  readonly model: string;
  readonly texts: number;
  readonly tokens: number;
  readonly engines: readonly Beside[];
  /** llama.cpp's own perplexities: with f32 weights, and on the file. */
  readonly llama: { readonly f32: number; readonly file: number };
}

function readOptions(): Options {
  const number = (text: string): number => Number.parseInt(text, 10);
  return new Command('bench --published')
    .description(
      'Compares logits and perplexity of published models with those of llama.cpp, which `npm run peers` and `npm run peers:python` bring.',
    )
    .option('--published', 'this')
    .option('--model <file...>', 'GGUFs', [SMOLLM2, GEMMA3])
    .option('--texts <count>', 'texts: the first pages of docs/ that are long enough', number, 20)
    .option('--tokens <count>', 'tokens of each', number, 512)
    .option('--context <count>', 'tokens of one long text, all pages one after the other; 0: none', number, 8192)
    .option('--json <file>', 'write all numbers, as bench/results/DATE-LABEL.json')
    .exitOverride(({ exitCode }) => process.exit(exitCode && 2))
    .parse()
    .opts<Options>();
}

async function ours(model: Decoder.Model, ids: readonly number[], every: number): Promise<Answer> {
  const { vocabSize } = model.config;
  const rows = new Float32Array(Math.floor(ids.length / every) * vocabSize);
  const scores: number[] = [];
  let token = 0;
  for await (const block of logits(model, ids)) {
    const count = block.length / vocabSize;
    scores.push(...logProbabilities(block, ids.slice(token, token + count + 1), vocabSize));
    for (let i = 0; i < count; i++, token++)
      if ((token + 1) % every === 0)
        rows.set(block.subarray(i * vocabSize, (i + 1) * vocabSize), (Math.floor((token + 1) / every) - 1) * vocabSize);
  }
  return { rows, scores };
}

function theirs(path: string, ids: readonly number[], every: number): Answer {
  const at = (name: string): string => join(SCRATCH, name);
  writeFileSync(at('tokens.npy'), writeNpy(Int32Array.from(ids), { dtype: 'i32', shape: [ids.length] }));
  runPython('llama.py', ['long', path, at('tokens.npy'), at('rows.npy'), String(every), at('scores.npy')]);
  return { rows: floats(at('rows.npy')), scores: [...floats(at('scores.npy'))] };
}

const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;
const perplexityOf = (answers: readonly Answer[]): number => Math.exp(-mean(answers.flatMap(({ scores }) => scores)));
/** Returns one value for each quarter of the rows. */
const byQuarter = <T>(
  a: Float32Array,
  b: Float32Array,
  vocabSize: number,
  measure: (a: Float32Array, b: Float32Array) => T,
): T[] =>
  [0, 1, 2, 3].map((quarter) => {
    const edge = (q: number): number => Math.round((q * a.length) / vocabSize / 4) * vocabSize;
    return measure(a.subarray(edge(quarter), edge(quarter + 1)), b.subarray(edge(quarter), edge(quarter + 1)));
  });

async function comparePart(
  name: string,
  engines: Readonly<Record<string, Decoder.Model>>,
  paths: { readonly f32: string; readonly file: string },
  texts: readonly (readonly number[])[],
  every: number,
): Promise<Part> {
  const all = { f32: [] as Answer[], file: [] as Answer[] };
  const found = Object.keys(engines).map((engine) => ({
    engine,
    rms: [[], [], [], []] as number[][],
    kl: [[], [], [], []] as number[][],
    top1: [] as number[],
    answers: [] as Answer[],
  }));
  const none = new Float32Array(0); // rows are not kept from text to text
  for (const [i, ids] of texts.entries()) {
    showProgress(`${name}: text ${i + 1} of ${texts.length}, llama.cpp`);
    const [f32, file] = [theirs(paths.f32, ids, every), theirs(paths.file, ids, every)];
    all.f32.push({ ...f32, rows: none });
    all.file.push({ ...file, rows: none });
    for (const one of found) {
      showProgress(`${name}: text ${i + 1} of ${texts.length}, ${one.engine}`);
      const model = engines[one.engine]!;
      const { vocabSize } = model.config;
      const { rows, scores } = await ours(model, ids, every);
      one.answers.push({ rows: none, scores });
      for (const [q, value] of byQuarter(rows, f32.rows, vocabSize, rms).entries()) one.rms[q]!.push(value);
      const pairs = byQuarter(rows, file.rows, vocabSize, (a, b) => compareLogits([b], [a], { vocabSize }));
      for (const [q, { klMean, top1 }] of (await Promise.all(pairs)).entries()) {
        one.kl[q]!.push(klMean!);
        one.top1.push(top1!);
      }
    }
  }
  return {
    model: name,
    texts: texts.length,
    tokens: texts[0]!.length,
    engines: found.map(({ engine, answers, ...one }) => ({
      engine,
      rms: one.rms.map((values) => Math.sqrt(mean(values.map((value) => value ** 2)))),
      kl: one.kl.map(mean),
      top1: mean(one.top1),
      perplexity: perplexityOf(answers),
    })),
    llama: { f32: perplexityOf(all.f32), file: perplexityOf(all.file) },
  };
}

async function compareModel(path: string, options: Options): Promise<Part[]> {
  const name = basename(path, '.gguf');
  const folder = join(SCRATCH, name);
  const paths = { file: path, f32: join(folder, 'f32.gguf') };
  showProgress(`${name}: its weights in f32`);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  await writeSafetensorsFolder(path, join(folder, 'hf'), { type: 'f32' });
  await writeGguf(join(folder, 'hf'), paths.f32);
  const context = Math.max(options.tokens, options.context);
  const engine = await openOnnxEngine({ cache: join(SCRATCH, 'cache') });
  const engines = {
    cpu: await loadModelFile(path, { context }),
    'cpu, q8 activations': await loadModelFile(path, { context, activations: 'q8' }),
    onnxruntime: await loadModelFile(path, { context, engine }),
  };
  const { tokenizer } = engines.cpu;
  const pages = readdirSync(join(ROOT, 'docs'))
    .filter((file) => file.endsWith('.md'))
    .map((file) => readFileSync(join(ROOT, 'docs', file), 'utf8'));
  const long = pages.map((page) => tokenizer.encode(page)).filter(({ length }) => length >= options.tokens);
  if (long.length < options.texts) throw new Error(`bench: expected --texts <= ${long.length}, got ${options.texts}`);
  const parts: Part[] = [];
  if (options.texts > 0)
    parts.push(
      await comparePart(
        name,
        engines,
        paths,
        long.slice(0, options.texts).map((ids) => ids.slice(0, options.tokens)),
        1,
      ),
    );
  if (options.context > 0)
    parts.push(
      await comparePart(
        name,
        engines,
        paths,
        [tokenizer.encode(pages.join('\n')).slice(0, options.context)],
        LONG_EVERY,
      ),
    );
  for (const model of Object.values(engines)) model.dispose();
  return parts;
}

function print({ model, texts, tokens, engines, llama }: Part): void {
  const digits = (values: readonly number[]): string => values.map((value) => value.toExponential(1)).join(' ');
  console.log(`\n${model}: ${texts} text${texts === 1 ? '' : 's'} of ${tokens} tokens`);
  console.log(
    '| engine | rms of spread beside llama.cpp in f32, by quarters | KL beside llama.cpp on the file, by quarters | same top-1 | perplexity |',
  );
  console.log('|---|---|---|---|---|');
  for (const { engine, rms, kl, top1, perplexity } of engines)
    console.log(
      `| ${engine} | ${digits(rms)} | ${digits(kl)} | ${(100 * top1).toFixed(1)} % | ${perplexity.toFixed(3)} |`,
    );
  console.log(`| llama.cpp, f32 weights | | | | ${llama.f32.toFixed(3)} |`);
  console.log(`| llama.cpp, the file | | | | ${llama.file.toFixed(3)} |`);
}

async function main(): Promise<void> {
  if (noPython) throw new Error(`bench: ${noPython}`);
  const options = readOptions();
  const machine = { ...describeMachine(VERSION), commit: commit() };
  const parts: Part[] = [];
  for (const path of options.model)
    for (const part of await compareModel(path, options)) {
      showProgress();
      print(part);
      parts.push(part);
    }
  if (!options.json) return;
  mkdirSync(dirname(options.json), { recursive: true });
  writeFileSync(options.json, `${JSON.stringify({ machine, parts }, null, 1)}\n`);
}

await main();
