/**
 * ONNX Runtime as an engine, in Node.
 *
 * @module
 */
import { availableParallelism } from 'node:os';
import type { Engine } from '@ropewalk/model';
import { checkProviders, loadOnnxruntime } from '@ropewalk/onnx/internal';
import { refuse } from 'ropewalk/backend';
import { MAX_THREADS, type OptionNames, optionNames, readList, readName, readOptions } from 'ropewalk/internal';
import { type BuiltCache, cacheFolder, holdInCache } from './cache.node.js';
import { bytesOf, inMemory, onnxEngine, SMALL_BYTES, sessionOptions } from './engine.js';
import { DECODER_FORMS, type DecoderForm } from './scope.js';

/** Options of {@link openOnnxEngine}. */
export interface OnnxEngineOptions {
  /** The number of threads. Default: the number of cores, and 16 at most. */
  readonly threads?: number;
  /** Execution providers by ONNX Runtime's names, first choice first. Default: `['cpu']`. */
  readonly providers?: readonly string[];
  /** The kind of operators in the graph. Default: contrib. */
  readonly form?: DecoderForm;
  /** The folder that keeps weights between runs. Default: {@link cacheFolder}. */
  readonly cache?: string;
  /** Called when a model was not in the cache and has been added to it. */
  readonly onBuilt?: (built: BuiltCache) => void;
}

const NAMES: OptionNames<OnnxEngineOptions> = /* @__PURE__ */ optionNames('threads providers form cache onBuilt');

/**
 * Opens ONNX Runtime as an engine. Each model becomes one ONNX graph, which runs in onnxruntime-node, a package that
 * the caller installs. Keys and values stay in place from token to token.
 *
 * Weights of 16 MiB and more are written once into a cache folder, in the form that ONNX Runtime maps.
 *
 * @param options - threads, providers, form, cache
 * @returns an engine for loadModel, which needs no dispose
 * @throws {RopewalkError} DEVICE when onnxruntime-node does not load, with the command that installs it; RANGE or
 *   UNSUPPORTED for an option that it does not take
 * @example const model = await loadModelPath('model-q8_0.gguf', { engine: await openOnnxEngine({ threads: 4 }) });
 */
export async function openOnnxEngine(options: OnnxEngineOptions = {}): Promise<Engine> {
  const given = readOptions(options, 'onnxruntime: options', NAMES);
  const usual = Math.min(MAX_THREADS, availableParallelism());
  const { threads = usual, providers = ['cpu'], form = 'contrib', cache = cacheFolder(), onBuilt } = given;
  if (!Number.isInteger(threads) || threads < 1 || threads > MAX_THREADS)
    refuse('RANGE', 'onnxruntime: threads', `an integer in [1, ${MAX_THREADS}]`, threads);
  const executionProviders = Array.from(readList(providers, 'onnxruntime: providers', "a list such as ['cpu']"));
  readName(form, DECODER_FORMS, 'onnxruntime: form');
  if (typeof cache !== 'string' || cache === '') refuse('RANGE', 'onnxruntime: cache', 'a folder', cache);
  if (onBuilt !== undefined && typeof onBuilt !== 'function')
    refuse('RANGE', 'onnxruntime: onBuilt', 'a function', onBuilt);
  const ort = await loadOnnxruntime();
  checkProviders(ort, executionProviders);
  return onnxEngine({
    ort,
    form,
    options: sessionOptions(executionProviders, threads),
    hold: (description, constants, layout, loading) =>
      bytesOf(layout) < SMALL_BYTES
        ? inMemory(description, constants, layout, loading)
        : holdInCache(cache, [description, constants, layout], loading, onBuilt),
  });
}
