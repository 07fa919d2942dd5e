/** `ropewalk embed`: makes one vector of each text. @module */
import { writeFile } from 'node:fs/promises';
import { writeNpy } from '@ropewalk/formats';
import { refuseSystem, writeWhole } from '@ropewalk/formats/internal/node';
import { type EmbedOptions, embed as embedText } from '@ropewalk/model';
import { fail, refuse } from 'ropewalk/backend';
import { Flags, type Switches, type Texts } from './options.js';
import { EXIT, openPercentBar, printResult } from './output.js';
import { loadForCommand, type ModelRunOptions } from './run-model.js';
import { isPiped, readStdin, readTextFile } from './text-input.js';

export type EmbedCommandOptions = ModelRunOptions &
  Texts<'file' | 'prefix' | 'promptName' | 'pooling' | 'dimensions' | 'out'> &
  Switches<'normalize' | 'force'>;

/** @param given - texts; `-` or a pipe without any reads stdin, a text a line */
export async function embed(path: string, given: readonly string[], options: EmbedCommandOptions): Promise<number> {
  const { file, out, force, json } = options;
  if (out !== undefined && !out.endsWith('.npy')) refuse('FORMAT', '--out', 'a .npy file', out);
  const dimensions = new Flags(options).integer('dimensions', 1);
  const texts = await readTexts(given, file);
  const run = () => embedAll(path, texts, { ...options, dimensions });
  if (out === undefined) {
    const { vectors, shape, backend } = await run();
    printResult(json, {
      json: () => ({ shape, backend, embeddings: vectors.map((vector) => [...vector]) }),
      lines: () => vectors.map((vector) => Array.from(vector, (value) => Number(value.toPrecision(9))).join(' ')), // exact
    });
    return EXIT.ok;
  }
  const inputs = file === undefined || file === '-' ? [] : [file];
  const { shape, backend } = await writeWhole(out, { sizeBytes: 0, inputs, force, kind: 'file' }, async (temporary) => {
    const made = await run();
    const all = new Float32Array(made.shape[0] * made.shape[1]);
    for (const [n, vector] of made.vectors.entries()) all.set(vector, n * made.shape[1]);
    const bytes = writeNpy(all, { dtype: 'f32', shape: made.shape });
    await writeFile(temporary, bytes).catch((cause) => refuseSystem('DEVICE', out, 'to be able to write', cause));
    return made;
  });
  printResult(json, {
    json: () => ({ out, dtype: 'f32', shape, backend }),
    lines: () => [`${out}: f32 [${shape.join(', ')}] on ${backend}`],
  });
  return EXIT.ok;
}

/** Loads the model, with room for the longest text, and embeds one text after the other. */
async function embedAll(
  path: string,
  texts: readonly string[],
  options: Omit<EmbedCommandOptions, 'dimensions'> & { readonly dimensions: number | undefined },
) {
  const { prefix: prompt, promptName, dimensions, normalize, json } = options;
  const pooling = options.pooling as EmbedOptions['pooling']; // the library refuses other words
  const model = await loadForCommand({ ...options, model: path }, undefined, {
    context({ maxContext }, tokenizer) {
      const longest = Math.max(1, ...texts.map((text) => tokenizer!.encode((prompt ?? '') + text).length));
      return Math.min(longest, maxContext); // the library refuses what is left
    },
  });
  const bar = openPercentBar('of the texts', json);
  try {
    const vectors: Float32Array[] = [];
    for (const text of texts) {
      vectors.push(await embedText(model, text, { pooling, prompt, promptName, dimensions, normalize }));
      bar.to(vectors.length / texts.length);
    }
    return { vectors, shape: [vectors.length, vectors[0]!.length] as const, backend: model.backend };
  } finally {
    bar.stop();
    model.dispose();
  }
}

async function readTexts(given: readonly string[], file: string | undefined): Promise<readonly string[]> {
  if (given.length > 0 && file !== undefined)
    fail('FORMAT', '--file', 'texts are given as arguments too. Give them once.');
  const stdin = String(given) === '-' || file === '-' || (given.length === 0 && file === undefined && isPiped());
  if (!stdin && file === undefined) {
    if (given.length > 0) return given;
    fail('FORMAT', 'text', 'no text is given. Give one or more, name a file, or pipe texts in, one a line.');
  }
  const lines = (stdin ? await readStdin('embed') : readTextFile(file!)).split(/\r?\n/).filter((line) => line !== '');
  if (lines.length === 0) fail('FORMAT', stdin ? 'stdin' : '--file', 'it has no text. Give one text a line.');
  return lines;
}
