/** `ropewalk perplexity`: how well a model predicts a text. @module */
import { type DecoderConfig, perplexity as scoreText } from '@ropewalk/model';
import { fail } from 'ropewalk/backend';
import { Flags, type Texts } from './options.js';
import { EXIT, openPercentBar, printResult } from './output.js';
import { loadForCommand, type ModelRunOptions } from './run-model.js';
import { isPiped, readStdin, readTextFile, watchStdin } from './text-input.js';

export type PerplexityCommandOptions = ModelRunOptions & Texts<'file' | 'stride'>;

/** @param argument - a file, or `-` for stdin. Default: stdin, if it is a pipe */
export async function perplexity(argument: string | undefined, options: PerplexityCommandOptions): Promise<number> {
  const flags = new Flags(options);
  const stride = flags.number('stride');
  const { text, unread } = await readText(argument, options.file);
  const usual = ({ maxContext }: DecoderConfig): number => Math.min(512, maxContext); // the library's default
  const model = await loadForCommand(options, undefined, { context: flags.number('context') ?? usual });
  try {
    if (unread())
      process.stderr.write(
        'ropewalk: perplexity: a file is given, so what is piped in is not read. Give - to read it.\n',
      );
    const bar = openPercentBar('of the text', options.json);
    const onProgress = (done: number, total: number): void => bar.to(done / total);
    const cacheDtype = flags.text('cacheDtype') as 'f32' | undefined; // loadModel has refused other words
    const { context } = model.memory;
    const score = await scoreText(model, text, { context, stride, cacheDtype, onProgress }).finally(() => bar.stop());
    const values = `${score.perplexity.toFixed(4)} a token, ${score.bitsPerByte.toFixed(4)} bits a byte`;
    const line = `perplexity ${values} (${score.tokens} tokens, ${score.bytes} bytes, ${model.backend})`;
    printResult(options.json, { json: () => ({ ...score, backend: model.backend }), lines: () => [line] });
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
    fail('FORMAT', '--file', `the text is given twice: ${argument} and ${file}. Give it once.`);
  const named = argument ?? file ?? (isPiped() ? '-' : undefined);
  if (named === undefined)
    fail(
      'FORMAT',
      'text',
      'no text is given. Name a file, pipe a text in, or write - to type it, with Ctrl-D at its end.',
    );
  if (named === '-') return { text: await readStdin('perplexity'), unread: () => false };
  return { text: readTextFile(named), unread: watchStdin() };
}
