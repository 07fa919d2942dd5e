/** `ropewalk logits`: writes the logits of every token of a text as a .npy file. @module */
import { type FileHandle, open } from 'node:fs/promises';
import { writeNpyHeader } from '@ropewalk/formats/internal';
import { checkRoom, refuseSystem, writeWhole } from '@ropewalk/formats/internal/node';
import { logits as computeLogits } from '@ropewalk/model';
import { fail, refuse } from 'ropewalk/backend';
import { untilInterrupted } from './interrupt.js';
import { readIntegers } from './npy-input.js';
import { Flags, type Switches, type Texts } from './options.js';
import { EXIT, openPercentBar, printResult } from './output.js';
import { loadForCommand, type ModelRunOptions } from './run-model.js';
import { type ReadPrompt, readPrompt } from './text-input.js';

/** Options for the tokens of a model, and for the engine. */
export type LogitsInput = ModelRunOptions & Texts<'tokens' | 'prompt' | 'file' | 'positions'>;
export type LogitsCommandOptions = LogitsInput & Switches<'force'> & { readonly out: string };

/** @param path - the model */
export async function logits(path: string, options: LogitsCommandOptions): Promise<number> {
  const { out, force, json } = options;
  if (!out.endsWith('.npy')) refuse('FORMAT', '--out', 'a .npy file', out);
  const seen = await readSeen('logits', options);
  const inputs = [options.tokens, options.positions].filter((file) => file !== undefined);
  // The size is known only when the model is loaded. Whether the file can be written is checked before.
  const done = await untilInterrupted('logits', (signal) =>
    writeWhole(out, { sizeBytes: 0, inputs, force, kind: 'file' }, async (temporary) => {
      const run = await openRun(path, seen, options, { signal });
      try {
        await writeRows(run, temporary, out, json);
        signal.throwIfAborted(); // a signal may come while the last rows are computed
        return { shape: run.shape, backend: run.backend, tokens: seen.ids ? undefined : run.ids };
      } finally {
        run.dispose();
      }
    }),
  );
  if (done === undefined) return EXIT.failed;
  const { shape, backend, tokens } = done;
  printResult(json, {
    json: () => ({ out, dtype: 'f32', shape, backend, tokens }),
    lines: () => [`${out}: f32 [${shape.join(', ')}] on ${backend}`],
  });
  return EXIT.ok;
}

async function writeRows(run: LogitsRun, temporary: string, out: string, quiet?: boolean): Promise<void> {
  const { shape } = run;
  const header = writeNpyHeader({ dtype: 'f32', shape });
  await checkRoom(out, header.length + 4 * shape[0] * shape[1]);
  const unwritable = (cause: unknown): never => refuseSystem('DEVICE', out, 'to be able to write', cause);
  const file: FileHandle = await open(temporary, 'wx').catch(unwritable);
  const bar = openPercentBar('of the tokens', quiet);
  try {
    await file.writeFile(header).catch(unwritable);
    let done = 0;
    for await (const rows of run.blocks()) {
      await file.writeFile(new Uint8Array(rows.buffer, rows.byteOffset, rows.byteLength)).catch(unwritable);
      done += rows.length / shape[1];
      bar.to(done / shape[0]);
    }
    await file.sync().catch(unwritable);
  } finally {
    bar.stop();
    await file.close();
  }
}

/** The input of a model. */
export interface Seen {
  /** Undefined with a prompt, of which the model's tokenizer makes tokens. */
  readonly ids: readonly number[] | undefined;
  readonly prompt: ReadPrompt | undefined;
  readonly positions: ReturnType<typeof readIntegers> | undefined;
}

/** Reads tokens or a prompt, and positions, before a model is loaded. */
export async function readSeen(command: string, options: LogitsInput): Promise<Seen> {
  const { tokens, positions } = options;
  if (tokens !== undefined)
    new Flags(options).refuseAny(['prompt', 'file'], 'it does not go with --tokens. Leave one of them out.');
  const ids = tokens === undefined ? undefined : readIntegers(tokens, '--tokens');
  if (ids && (ids.shape.length !== 1 || ids.values.length === 0))
    refuse('SHAPE', `--tokens: ${tokens}`, 'shape [tokens], with at least one', ids.shape);
  const prompt = ids ? undefined : await readPrompt(command, undefined, options);
  if (prompt && !prompt.text)
    fail('FORMAT', 'prompt', 'no tokens and no text are given. Give --tokens FILE.npy or --prompt TEXT.');
  const places = positions === undefined ? undefined : readIntegers(positions, '--positions');
  const seen = { ids: ids?.values, prompt, positions: places };
  if (seen.ids) checkPositions(seen, seen.ids.length);
  return seen;
}

/** Refuses positions of other tokens. */
export function checkPositions({ positions }: Seen, tokens: number): void {
  const { shape } = positions ?? {};
  if (shape && (shape.at(-1) !== tokens || shape.length > 2))
    refuse('SHAPE', '--positions', `shape [tokens=${tokens}], or [axes, ${tokens}]`, shape);
}

/** A model and its input tokens. */
export interface LogitsRun {
  readonly architecture: string;
  readonly backend: string;
  readonly ids: readonly number[];
  readonly shape: readonly [tokens: number, vocabSize: number];
  /** Computes blocks of whole rows of logits. */
  blocks(): AsyncGenerator<Float32Array, void, void>;
  dispose(): void;
}

/**
 * Loads a model, with room for the tokens unless another context is asked for. A model that gets ids needs no
 * tokenizer.
 *
 * @param more - a signal, and a function that is called before the weights are read and may refuse them
 */
export async function openRun(
  path: string,
  seen: Seen,
  options: LogitsInput,
  more: { readonly signal?: AbortSignal; readonly check?: (run: Pick<LogitsRun, 'ids' | 'shape'>) => void },
): Promise<LogitsRun> {
  const { signal, check } = more;
  const context = new Flags(options).number('context');
  let ids = seen.ids ?? [];
  const model = await loadForCommand({ ...options, model: path }, signal, {
    tokenizer: seen.ids ? false : undefined,
    context({ vocabSize, maxContext }, tokenizer) {
      if (tokenizer) ids = tokenizer.encode(seen.prompt!.text!);
      checkPositions(seen, ids.length);
      check?.({ ids, shape: [ids.length, vocabSize] });
      return context ?? Math.max(1, Math.min(ids.length, maxContext)); // the library refuses what is left
    },
  });
  try {
    seen.prompt?.warnUnread();
    const positions = seen.positions?.values;
    return {
      architecture: model.config.architecture,
      backend: model.backend,
      ids,
      shape: [ids.length, model.config.vocabSize],
      blocks: () => computeLogits(model, ids, { context, positions, signal }),
      dispose: () => model.dispose(),
    };
  } catch (error) {
    model.dispose();
    throw error;
  }
}
