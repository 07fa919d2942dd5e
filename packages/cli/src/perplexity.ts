/**
 * `ropewalk perplexity`: how well a model predicts a text.
 *
 * @module
 */

import { perplexity as scoreText } from '@ropewalk/model';
import { refuse } from 'ropewalk/backend';
import { EXIT, openPercentBar, printJson } from './output.js';
import { cacheDtypeOf, loadForCommand, type ModelRunOptions, numbersOf } from './run-model.js';
import { isPiped, readStdin, readTextFile, watchStdin } from './text-input.js';

/** Options of the command, as the command line gives them. */
export interface PerplexityCommandOptions extends ModelRunOptions {
  readonly file?: string;
  readonly stride?: string;
}

/**
 * Scores a text.
 *
 * @param argument - a UTF-8 file, or `-` for stdin; also where nothing is given and something is piped in
 * @param options - file, model, backend, windows
 * @returns the exit code
 * @throws {RopewalkError} for options and files that make no sense: the caller exits with 2
 */
export async function perplexity(argument: string | undefined, options: PerplexityCommandOptions): Promise<number> {
  const number = numbersOf('perplexity', options);
  const windows = { ...number('context'), ...number('stride') };
  const { text, unread } = await readText(argument, options.file);
  const model = await loadForCommand('perplexity', options);
  try {
    if (unread())
      process.stderr.write('ropewalk: perplexity: what is piped in is not read, as a file is given; - would read it\n');
    const bar = openPercentBar('of the text', options.json);
    const onProgress = (done: number, total: number): void => bar.to(done / total);
    const cacheDtype = cacheDtypeOf(options);
    const score = await scoreText(model, text, { ...windows, ...cacheDtype, onProgress }).finally(() => bar.stop());
    if (options.json) printJson({ ...score, backend: model.backend });
    else {
      process.stdout.write(
        `perplexity ${score.perplexity.toFixed(4)} a token, ${score.bitsPerByte.toFixed(4)} bits a byte ` +
          `(${score.tokens} tokens, ${score.bytes} bytes, ${model.backend})\n`,
      );
    }
    return EXIT.ok;
  } finally {
    model.dispose();
  }
}

async function readText(
  argument: string | undefined,
  file: string | undefined,
): Promise<{ text: string; unread: () => boolean }> {
  if (argument !== undefined && file !== undefined)
    refuse('FORMAT', 'perplexity: --file', 'the text once', `${argument} and ${file}`);
  const named = argument ?? file ?? (isPiped() ? '-' : undefined);
  if (named === undefined)
    refuse(
      'FORMAT',
      'perplexity: text',
      'a file, or a text piped in',
      undefined,
      'Write - to type it, with Ctrl-D at its end.',
    );
  if (named === '-') return { text: await readStdin('perplexity'), unread: () => false };
  return { text: readTextFile(named, 'perplexity'), unread: watchStdin() };
}
