/**
 * ONNX Runtime as an engine in pages.
 *
 * @module
 */
import type { Engine } from '@ropewalk/model';
import type { Ort } from '@ropewalk/onnx/internal';
import { refuse } from 'ropewalk/backend';
import { type OptionNames, readField, readList, readName, readOptions } from 'ropewalk/internal';
import { inMemory, onnxEngine, sessionOptions } from './engine.js';
import { DECODER_FORMS, type DecoderForm } from './scope.js';

/** The part of the module onnxruntime-web that is used here. */
export interface OnnxruntimeWeb {
  readonly InferenceSession: object;
  readonly Tensor: abstract new (...given: never[]) => object;
}

/** Options of {@link openOnnxWebEngine}. */
export interface OnnxWebEngineOptions {
  /**
   * Execution providers by ONNX Runtime's names (`wasm`, `webgpu`, `webnn`), first choice first. Default: `['wasm']`.
   */
  readonly providers?: readonly string[];
  /** The kind of operators in the graph. Default: contrib. */
  readonly form?: DecoderForm;
}

const NAMES: OptionNames<OnnxWebEngineOptions> = { providers: true, form: true };

/**
 * Opens ONNX Runtime as an engine in a page. Each model becomes one ONNX graph. The page loads onnxruntime-web, and
 * tells it where its files are and how many threads it has (`ort.env.wasm`). Weights are in memory.
 *
 * On a GPU without shader-f16, half floats are widened to f32 when the model is loaded.
 *
 * @param ort - the module `onnxruntime-web`, or `onnxruntime-web/webgpu` for that provider
 * @param options - providers, form
 * @returns an engine for loadModel, which needs no dispose
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
    options: sessionOptions(names, 1), // ort.env.wasm.numThreads is the number for wasm
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
