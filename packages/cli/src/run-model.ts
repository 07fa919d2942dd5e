/** Options, loading and messages of the commands that run a model. @module */
import { existsSync } from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import { type Engine, type LoadOptions, type Model, mebibytes } from '@ropewalk/model';
import { loadModelPath } from '@ropewalk/model/node';
import { BACKENDS as KERNEL_BACKENDS } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import { countLayers, MAX_THREADS, openFrom } from 'ropewalk/internal';
import { MODEL_BACKENDS } from './backends.js';
import { dataFolder } from './data-folder.js';
import { Flags, type Switches, type Texts } from './options.js';
import { openPercentBar, type PercentBar } from './output.js';

/** Options for the model and the engine. */
export type ModelRunOptions = Texts<'model' | 'backend' | 'threads' | 'context' | 'cacheDtype' | 'activations'> &
  Switches<'json'>;

/** Opens an engine with a number of threads. Undefined for our kernels. */
type Chosen = (threads: number | undefined) => Promise<Engine | undefined>;

/** The folder of the model that comes with the package. @throws {RopewalkError} FORMAT when it is missing */
export function modelInTheBox(): string {
  const folder = dataFolder('models');
  if (folder === undefined)
    fail(
      'FORMAT',
      'models',
      'the folder models/ of @ropewalk/cli is gone. Install the package again, or give --model PATH.',
    );
  return join(folder, 'marline');
}

/**
 * Loads the model that the options name, or the bundled one, and shows its memory and a bar on stderr.
 *
 * @param more - a tokenizer, or `false` for none; a context that replaces the option; an engine
 */
export async function loadForCommand(
  options: ModelRunOptions,
  signal?: AbortSignal,
  more: Pick<LoadOptions, 'tokenizer' | 'context'> & { readonly engine?: Chosen } = {},
): Promise<Model> {
  const flags = new Flags(options);
  const threads = flags.integer('threads', 1, MAX_THREADS, `${MAX_THREADS} is the most.`);
  if (!['auto', 'cpu'].includes(options.backend ?? 'auto'))
    flags.refuseAny(
      ['threads'],
      `the backend ${options.backend} has no threads to set. Leave it out, or use --backend cpu.`,
      'UNSUPPORTED',
    );
  let bar: PercentBar | undefined;
  const given = options.model ?? modelInTheBox();
  const path = basename(given) === 'config.json' ? dirname(given) : given; // the weights lie beside it
  if (/^[\w-]+(\.[\w-]+)*\/[\w.-]+$/.test(given) && !existsSync(given) && !existsSync(dirname(given)))
    fail(
      'FORMAT',
      '--model',
      `there is no folder ${given}, and no command fetches a model by its id. Download it first, for example with ` +
        `HuggingFace's program: hf download ${given} --local-dir ${basename(given)}. Then give -m ${basename(given)}.`,
    );
  const engine = await more.engine?.(threads);
  const loading: LoadOptions = {
    engine,
    threads: engine ? undefined : threads,
    context: more.context ?? flags.number('context'),
    cacheDtype: flags.text('cacheDtype') as 'f32', // loadModel refuses other words
    activations: engine ? undefined : (flags.text('activations') as 'f32'), // loadModel refuses other words
    backend: engine ? undefined : await backendOf(options.backend),
    signal,
    tokenizer: more.tokenizer,
    onMemory(memory, config) {
      if (options.json) return;
      const box = options.model === undefined ? 'No --model: this runs the small one that comes with ropewalk.\n' : '';
      process.stderr.write(
        `${box}${shortest(path)}: ${config.architecture}, ${countLayers(config.numLayers)}; weights ${mebibytes(memory.weightsBytes)}, ` +
          `KV cache of ${memory.context} tokens ${mebibytes(memory.cacheBytes)}, in all ${mebibytes(memory.totalBytes)}\n`,
      );
      bar = openPercentBar('loaded');
    },
    onProgress: ({ doneBytes, totalBytes }) => bar?.to(doneBytes / totalBytes),
  };
  return loadModelPath(path, loading).finally(() => bar?.stop());
}

/** Returns the backend for loadModel, which opens the library's own backends by name. Others are opened here. */
async function backendOf(name: string | undefined): Promise<LoadOptions['backend']> {
  if (name === undefined || name === 'auto' || KERNEL_BACKENDS.some((entry) => entry.name === name))
    return name as 'auto' | undefined;
  return openFrom(MODEL_BACKENDS, name);
}

/** Shortens a path to what a person would type in this folder. */
function shortest(path: string): string {
  const near = relative(process.cwd(), path);
  return near.length > 0 && near.length < path.length ? near : path;
}
