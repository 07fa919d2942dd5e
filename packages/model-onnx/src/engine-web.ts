/**
 * ONNX Runtime as an engine in pages.
 *
 * @module
 */
import type { Engine } from '@ropewalk/model';
import type { Ort } from '@ropewalk/onnx/internal';
import { refuse } from 'ropewalk/backend';
import { type OptionNames, readField, readList, readName, readOptions } from 'ropewalk/internal';
import { inMemory, onnxEngine } from './engine.js';
import { DECODER_FORMS, type DecoderForm } from './scope.js';

/** The module onnxruntime-web, as far as it is used here. */
export interface OnnxruntimeWeb {
  readonly InferenceSession: object;
  readonly Tensor: abstract new (...given: never[]) => object;
}

/** How {@link openOnnxWebEngine} opens the engine. */
export interface OnnxWebEngineOptions {
  /** Execution providers by ONNX Runtime's names, first choice first: `wasm` unless given, `webgpu`, `webnn`. */
  readonly providers?: readonly string[];
  /** Which operators the graph is made of; contrib unless given. */
  readonly form?: DecoderForm;
}

const NAMES: OptionNames<OnnxWebEngineOptions> = { providers: true, form: true };

/**
 * Opens ONNX Runtime as an engine in a page: models become one ONNX graph. The page brings onnxruntime-web, and tells it
 * where its files are and how many threads it has (`ort.env.wasm`). Weights are in memory.
 *
 * On a GPU without shader-f16, half floats are widened to f32 as the model is loaded.
 *
 * @param ort - the module `onnxruntime-web`, or `onnxruntime-web/webgpu` for that provider
 * @param options - providers, form
 * @returns an engine for loadModel; it holds nothing itself
 * @throws {RopewalkError} RANGE for an option that it does not take
 * @example
 * import * as ort from 'onnxruntime-web/webgpu';
 * const engine = await openOnnxWebEngine(ort, { providers: ['webgpu'] });
 * const model = await loadModel(files, { engine });
 */
export async function openOnnxWebEngine(ort: OnnxruntimeWeb, options: OnnxWebEngineOptions = {}): Promise<Engine> {
  const { providers = ['wasm'], form = 'contrib' } = readOptions(options, 'openOnnxWebEngine: options', NAMES);
  const where = 'openOnnxWebEngine: ort';
  const [InferenceSession, Tensor] = [readField(ort, 'InferenceSession', where), readField(ort, 'Tensor', where)];
  if (typeof InferenceSession !== 'function' || typeof Tensor !== 'function')
    refuse('RANGE', where, 'the module onnxruntime-web', ort);
  const names = Array.from(readList(providers, 'openOnnxWebEngine: providers', "a list such as ['wasm']"));
  if (names.length === 0 || names.some((name) => typeof name !== 'string'))
    refuse('RANGE', 'openOnnxWebEngine: providers', "a list such as ['wasm']", providers);
  readName(form, DECODER_FORMS, 'openOnnxWebEngine: form');
  return onnxEngine({
    ort: { InferenceSession, Tensor } as unknown as Ort,
    form,
    widenHalves: names.includes('webgpu') && !(await hasHalves()),
    options: {
      executionProviders: names,
      intraOpNumThreads: 1, // of wasm: ort.env.wasm.numThreads
      interOpNumThreads: 1,
      enableCpuMemArena: true,
      logSeverityLevel: 4, // what goes wrong is thrown; ONNX Runtime would print it as well
    },
    hold: inMemory,
  });
}

interface Gpu {
  requestAdapter(): Promise<{ readonly features: ReadonlySet<string> } | null>;
}

async function hasHalves(): Promise<boolean> {
  const { gpu } = (globalThis as { navigator?: { gpu?: Gpu } }).navigator ?? {};
  return (await gpu?.requestAdapter())?.features.has('shader-f16') ?? false;
}
