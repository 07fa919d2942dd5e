/**
 * A whole decoder as a folder that other programs load: the graph in `onnx/`, and small files beside it (Node only).
 *
 * @module
 */
import { existsSync, readdirSync } from 'node:fs';
import { type FileHandle, mkdir, open, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { refuseSystem, writeWhole } from '@ropewalk/formats/internal/node';
import type { DecoderConfig } from '@ropewalk/model';
import type { HoldOptions } from '@ropewalk/model/internal';
import { describeModelPath } from '@ropewalk/model/node';
import { type OnnxModel, whyNotOnnxruntime } from '@ropewalk/onnx';
import { loadGraph, loadOnnxruntime } from '@ropewalk/onnx/internal';
import { refuse } from 'ropewalk/backend';
import { type OptionNames, readField, readOptions } from 'ropewalk/internal';
import { sessionOptions } from './engine.js';
import { DECODER_NAMES, type DecoderGraph } from './graph.js';
import { DECODER_FORMATS, type DecoderModel, type DecoderModelOptions, decoderModel, MODEL_FILE } from './model.js';
import type { DataFile, WriteData, WriteWeightsOptions } from './weights.js';

/** Options of {@link exportDecoder}. */
export interface ExportDecoderOptions
  extends DecoderModelOptions,
    WriteWeightsOptions,
    Pick<HoldOptions, 'quantize' | 'widenHalves'> {
  /** Replaces a folder of an earlier export. Other folders are never replaced. */
  readonly force?: boolean | undefined;
}

const NAMES: OptionNames<ExportDecoderOptions> = {
  ...DECODER_NAMES,
  producer: true,
  signal: true,
  onProgress: true,
  quantize: true,
  widenHalves: true,
  force: true,
};

/** The result of {@link exportDecoder}. */
export interface ExportedDecoder {
  readonly config: DecoderConfig;
  readonly decoder: DecoderGraph;
  readonly model: OnnxModel;
  /** Paths in the folder, with `/`, and their sizes. */
  readonly files: readonly DataFile[];
  /** The version of onnxruntime-node that loaded the folder; undefined where the package is not installed. */
  readonly loadedIn: string | undefined;
  /** Assumptions, and settings that were left out or not applied, in full sentences. */
  readonly notes: readonly string[];
}

/** The folder of the graph, as in transformers.js. */
const GRAPH_FOLDER = 'onnx';
/** All files of an export. A folder with other files is not replaced. */
const WRITTEN =
  /^(onnx|(config|generation_config|genai_config|tokenizer|tokenizer_config|special_tokens_map)\.json|chat_template\.jinja)$/;
const WRITTEN_IN_GRAPH_FOLDER = /^model\.onnx(_data(_\d+)?)?$/;

/**
 * Exports a model as a folder: completely or not at all. It needs memory for some pieces of 8 MiB and the graph. Where
 * onnxruntime-node is installed, it loads the graph once.
 *
 * @param path - a folder of HuggingFace's files, or a .gguf file
 * @param out - the folder, which must be missing or empty, or with `force` hold an earlier export
 * @param options - form, angles, context; how weights are held; force, signal, onProgress
 * @throws {RopewalkError} UNSUPPORTED for a model that the form cannot express, before anything is written; FORMAT for
 *   files that are missing, cut or forged, and for a folder that may not be replaced; DEVICE when it cannot be written
 *   or does not load; the signal's reason when it aborts
 * @example await exportDecoder('model-q8_0.gguf', 'model-onnx');
 */
export async function exportDecoder(
  path: string,
  out: string,
  options: ExportDecoderOptions = {},
): Promise<ExportedDecoder> {
  const given = readOptions(options, 'exportDecoder: options', NAMES);
  const { force, signal, onProgress, quantize, widenHalves, ...graph } = given;
  if (typeof out !== 'string' || out === '') refuse('RANGE', 'exportDecoder: out', 'a path', out);
  if (onProgress !== undefined && typeof onProgress !== 'function')
    refuse('RANGE', 'exportDecoder: onProgress', 'a function', onProgress);
  if (signal !== undefined && typeof readField(signal, 'throwIfAborted', 'exportDecoder: signal') !== 'function')
    refuse('RANGE', 'exportDecoder: signal', 'an AbortSignal', signal);
  if (graph.producer !== undefined && typeof graph.producer !== 'string')
    refuse('RANGE', 'exportDecoder: producer', 'a string', graph.producer);
  const hold = { formats: DECODER_FORMATS, quantize, widenHalves };
  return describeModelPath(path, hold, async (description) => {
    const model = decoderModel(description, graph);
    const small = await description.readFiles({
      graph: `${GRAPH_FOLDER}/${MODEL_FILE}`,
      config: { 'transformers.js_config': transformersJs(model) },
    });
    const sizeBytes = model.dataFiles.reduce((sum, file) => sum + file.sizeBytes, 0);
    const ours = { command: 'ropewalk export --whole', wrote: isExport };
    const what = { sizeBytes, inputs: [path], kind: 'folder', force, ours } as const;
    return writeWhole(out, what, async (temporary) => {
      await mkdir(join(temporary, GRAPH_FOLDER)).catch((cause) => unwritable(out, cause));
      for (const { name, bytes } of small.files)
        await writeFile(join(temporary, name), bytes, { flush: true }).catch((cause) => unwritable(out, cause));
      const written = await writeDecoder(model, join(temporary, GRAPH_FOLDER), { signal, onProgress, where: out });
      const whyNot = await whyNotOnnxruntime();
      return {
        config: description.config,
        decoder: model.decoder,
        model: written.model,
        files: [
          ...small.files.map(({ name, bytes }) => ({ name, sizeBytes: bytes.length })),
          ...written.files.map(({ name, ...file }) => ({ name: `${GRAPH_FOLDER}/${name}`, ...file })),
        ],
        loadedIn: whyNot ? undefined : await loadOnce(join(temporary, GRAPH_FOLDER, MODEL_FILE), out),
        notes: [
          ...description.config.notes,
          ...small.notes,
          ...shorter(description.config, model.decoder),
          ...(whyNot ? [`The graph was not loaded to try it: ${whyNot}.`] : []),
        ],
      };
    });
  });
}

/**
 * Loads a graph as it is, with its weights mapped rather than packed, so that it costs little memory.
 *
 * @returns the version of onnxruntime-node
 * @throws {RopewalkError} DEVICE for a graph that does not load
 */
async function loadOnce(path: string, where: string): Promise<string> {
  const ort = await loadOnnxruntime();
  const usual = sessionOptions(['cpu'], 1);
  const plain = { graphOptimizationLevel: 'disabled', extra: { session: { disable_prepacking: '1' } } } as const;
  const session = await loadGraph(ort, path, { ...usual, ...plain }, where);
  await session.release();
  return ort.env.versions.node ?? 'of an unknown version';
}

/**
 * Makes config.json's section for transformers.js, which calls model.onnx `fp32` for all kinds of weights, and asks a
 * server for as many data files as it says.
 *
 * @see huggingface/transformers.js@4.3.1 packages/transformers/src/utils/{dtypes,model-loader}.js
 */
function transformersJs({ dataFiles }: DecoderModel): object {
  return { dtype: 'fp32', use_external_data_format: dataFiles.length > 0 ? { [MODEL_FILE]: dataFiles.length } : false };
}

/**
 * Writes a decoder's ONNX model into an existing folder. After a failure the caller removes incomplete files.
 *
 * @param folder - files of the same names are replaced
 * @throws {RopewalkError} as DecoderModel.write; DEVICE when a file cannot be written
 */
export async function writeDecoder(
  model: DecoderModel,
  folder: string,
  { where = folder, ...options }: WriteWeightsOptions & { readonly where?: string } = {},
): Promise<{ readonly model: OnnxModel; readonly files: readonly DataFile[] }> {
  const sizes = new Map(model.dataFiles.map(({ name, sizeBytes }) => [name, sizeBytes]));
  const written = await writeFiles(
    folder,
    (put) =>
      model.write((name, at, bytes) => {
        sizes.set(name, Math.max(sizes.get(name) ?? 0, at + bytes.length));
        return put(name, at, bytes);
      }, options),
    (cause) => unwritable(where, cause),
  );
  return { model: written, files: Array.from(sizes, ([name, sizeBytes]) => ({ name, sizeBytes })) };
}

/**
 * Writes files of a folder in pieces, and flushes them to the disk at the end.
 *
 * @param work - gets the function that writes a piece
 * @param fail - throws for a piece that cannot be written
 */
export async function writeFiles<T>(
  folder: string,
  work: (put: WriteData) => Promise<T>,
  fail: (cause: unknown) => never,
): Promise<T> {
  const opened = new Map<string, FileHandle>();
  try {
    const result = await work(async (name, at, bytes) => {
      const file = opened.get(name) ?? (await open(join(folder, name), 'w').catch(fail));
      opened.set(name, file);
      for (let done = 0; done < bytes.length; )
        done += (await file.write(bytes, done, bytes.length - done, at + done).catch(fail)).bytesWritten;
    });
    for (const file of opened.values()) await file.sync().catch(fail);
    return result;
  } finally {
    for (const file of opened.values()) await file.close();
  }
}

function shorter({ maxContext }: DecoderConfig, { settings: { context } }: DecoderGraph): string[] {
  if (context === maxContext) return [];
  return [`The graph has room for ${context} positions; config.json says ${maxContext}, the model's own context.`];
}

function isExport(folder: string): boolean {
  const graph = join(folder, GRAPH_FOLDER);
  const only = (path: string, known: RegExp): boolean => readdirSync(path).every((name) => known.test(name));
  return existsSync(join(graph, MODEL_FILE)) && only(folder, WRITTEN) && only(graph, WRITTEN_IN_GRAPH_FOLDER);
}

function unwritable(path: string, cause: unknown): never {
  return refuseSystem('DEVICE', path, 'to be able to write', cause, 'Make room there, or write elsewhere.');
}
