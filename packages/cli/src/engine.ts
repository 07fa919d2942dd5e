/** `--engine`: whether a model runs on our kernels or in ONNX Runtime, and what stderr says about it. @module */
import { type Engine, mebibytes } from '@ropewalk/model';
import { type EngineModel, kernelEngine, planModel } from '@ropewalk/model/internal';
import { type ErrorCode, RopewalkError } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import { ACTIVATIONS } from 'ropewalk/internal';
import { Flags, type Texts } from './options.js';
import type { ModelRunOptions } from './run-model.js';

/** Options that choose an engine. */
export type EngineOptions = ModelRunOptions & Texts<'engine' | 'cache' | 'session'>;

const ENGINES = ['auto', 'kernels', 'onnxruntime'] as const;
/** With smaller weights, our kernels finish a text before ONNX Runtime is loaded. */
const SMALL_BYTES = 32 * 2 ** 20;

/**
 * Returns the engine that the options choose. Undefined stands for our kernels as loadModel opens them.
 *
 * `auto`, the default unless a backend is named, takes ONNX Runtime where it is installed, runs the model, and is worth
 * its start.
 *
 * @throws {RopewalkError} UNSUPPORTED for options that do not go together; DEVICE when onnxruntime is asked for and not
 *   installed
 */
export async function engineOf(options: EngineOptions, threads: number | undefined): Promise<Engine | undefined> {
  const flags = new Flags(options);
  const asked = flags.word('engine', ENGINES);
  const name = asked ?? (options.backend === undefined ? 'auto' : 'kernels');
  if (name === 'kernels') {
    flags.refuseAny(['cache'], 'only ONNX Runtime has one. Leave it out, or use --engine onnxruntime.', 'UNSUPPORTED');
    return undefined;
  }
  flags.refuseAny(['backend'], 'it is for our kernels. Leave it out, or use --engine kernels.', 'UNSUPPORTED');
  if (options.cache === '') fail('FORMAT', '--cache', 'the name is empty. Give a folder.');
  const say = (line: string): void => {
    if (!options.json) process.stderr.write(`${line}\n`);
  };
  const open = async (): Promise<Engine> => {
    const { openOnnxEngine } = await import('@ropewalk/model-onnx/node');
    return openOnnxEngine({
      threads,
      cache: options.cache,
      onBuilt: ({ folder, sizeBytes, seconds }) =>
        say(`wrote the weights for ONNX Runtime in ${seconds.toFixed(1)} s (${mebibytes(sizeBytes)} in ${folder})`),
    });
  };
  const activations = flags.word('activations', ACTIVATIONS);
  const portable = /^f(32|16)$/.test(options.cacheDtype ?? 'f32');
  if (name === 'onnxruntime') {
    if (activations !== 'f32')
      flags.refuseAny(['activations'], 'ONNX Runtime has f32. Leave it out, or use --engine kernels.', 'UNSUPPORTED');
    if (!portable)
      flags.refuseAny(
        ['cacheDtype'],
        'ONNX Runtime has f32 and f16. Take one, or use --engine kernels.',
        'UNSUPPORTED',
      );
    flags.refuseAny(['session'], 'only our kernels give keys and values away. Use --engine kernels.', 'UNSUPPORTED');
    return open();
  }
  return {
    name,
    async open(description) {
      const onKernels = (why: string): Promise<EngineModel> => {
        if (asked) say(`on our kernels: ${why}`);
        return kernelEngine({ threads, activations }).open(description);
      };
      const bytes = planModel(description).weights.reduce((sum, { heldBytes }) => sum + heldBytes, 0);
      // A small model does not justify the start of ONNX Runtime.
      if (bytes < SMALL_BYTES) return kernelEngine({ threads, activations }).open(description);
      if (!portable) return onKernels(`ONNX Runtime keeps keys and values in f32 or f16, not ${options.cacheDtype}`);
      if (options.session !== undefined) return onKernels('ONNX Runtime does not give keys and values away');
      if (activations === 'q8') return onKernels('ONNX Runtime does not round activations to 8 bits');
      const { whyNotOnnxruntime } = await import('@ropewalk/onnx');
      const why = await whyNotOnnxruntime();
      if (why !== undefined) return onKernels(why);
      try {
        const opened = await (await open()).open(description);
        say('on ONNX Runtime: --engine auto takes it where it is installed; --engine kernels does not');
        return orElse(opened, (why) => {
          say(`not on ONNX Runtime, but on our kernels: ${why}`);
          return kernelEngine({ threads, activations }).open(description);
        });
      } catch (error) {
        if (error instanceof RopewalkError && error.code === ('UNSUPPORTED' satisfies ErrorCode))
          return onKernels(error.message);
        throw error;
      }
    },
  };
}

/** Loads a model, and falls back to another engine if that fails, for example when the cache has no room. */
function orElse(first: EngineModel, other: (why: string) => Promise<EngineModel>): EngineModel {
  let model = first;
  return {
    get name() {
      return model.name;
    },
    get scratchBytes() {
      return model.scratchBytes;
    },
    memoryOf: (session) => model.memoryOf(session),
    limits: (machineBytes) => model.limits(machineBytes),
    openSequence: (session) => model.openSequence(session),
    dispose: () => model.dispose(),
    async load(session, options) {
      try {
        await model.load(session, options);
      } catch (error) {
        if (!(error instanceof RopewalkError && error.code === ('DEVICE' satisfies ErrorCode))) throw error;
        first.dispose();
        model = await other(error.message);
        await model.load(session, options);
      }
    },
  };
}
