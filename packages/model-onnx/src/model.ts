/**
 * A whole decoder as the files of an ONNX model: `model.onnx`, and data files beside it if the weights are large.
 *
 * @module
 */
import { type PlannedModel, SPLIT_FORMATS } from '@ropewalk/model/internal';
import { type OnnxModel, writeOnnxModel } from '@ropewalk/onnx';
import { type Dtype, tensorFrom } from 'ropewalk';
import { arrayOver, countElements } from 'ropewalk/internal';
import { type DecoderGraph, type DecoderGraphOptions, decoderGraph } from './graph.js';
import { type DataFile, layoutWeights, type WriteData, type WriteWeightsOptions, writeWeights } from './weights.js';

/** The block formats that a decoder's graph reads. */
export const DECODER_FORMATS = SPLIT_FORMATS;

/** Options of a decoder's ONNX model. */
export interface DecoderModelOptions extends DecoderGraphOptions {
  /** The name of the program that writes it, such as `ropewalk 0.1.0`. */
  readonly producer?: string | undefined;
}

/** A decoder's ONNX model, before it is written. */
export interface DecoderModel {
  readonly decoder: DecoderGraph;
  /** Data files beside `model.onnx`. The list is empty if `model.onnx` holds the weights itself. */
  readonly dataFiles: readonly DataFile[];
  /**
   * Reads the weights and passes on the bytes of every file, `model.onnx` last.
   *
   * @param write - takes a piece of at most 8 MiB, but all of `model.onnx` at once
   * @returns the model that was written
   * @throws {RopewalkError} as {@link writeWeights}
   */
  write(write: WriteData, options?: WriteWeightsOptions): Promise<OnnxModel>;
}

/** The name of the graph's file. */
export const MODEL_FILE = 'model.onnx';
/** Weights of at most this many bytes are in the graph's own file. As much is in memory at once anyway. */
const INSIDE_BYTES = 8 * 2 ** 20;

/**
 * Plans the files of a decoder. It reads no weights.
 *
 * @param description - of planModel, with {@link DECODER_FORMATS}
 * @throws {RopewalkError} UNSUPPORTED for a model that the form cannot express
 */
export function decoderModel(description: PlannedModel, options: DecoderModelOptions = {}): DecoderModel {
  const { producer = 'ropewalk', ...settings } = options;
  const decoder = decoderGraph(description.config, description.weights, settings);
  const { graph, constants } = decoder;
  const layout = layoutWeights(constants, MODEL_FILE);
  const total = layout.files.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  // Only in a separate file can two constants have the same bytes. Tensors in memory have no i4.
  const inside = total <= INSIDE_BYTES && !layout.shared && constants.every(({ dtype }) => dtype !== 'i4');
  if (!inside) for (const [name, tensor] of layout.tensors) graph.external.set(name, tensor);
  const finish = async (write: WriteData): Promise<OnnxModel> => {
    const { architecture, source } = description.config;
    // This line tells a reader of the graph the order of rows in q and k: import/model-rope.ts.
    const model = graph.model('decoder', producer, `${architecture} (${source}): a whole decoder`);
    await write(MODEL_FILE, 0, writeOnnxModel(model));
    return model;
  };
  return {
    decoder,
    dataFiles: inside ? [] : layout.files,
    async write(write, given) {
      if (!inside) {
        await writeWeights(description, constants, layout, write, given);
        return finish(write);
      }
      const bytes = new Uint8Array(total);
      await writeWeights(description, constants, layout, (_file, at, piece) => bytes.set(piece, at), given);
      for (const [name, { dtype, shape, byteOffset }] of layout.tensors) {
        const known = dtype as Dtype;
        const elements = arrayOver(known, bytes.buffer, byteOffset, countElements(shape));
        graph.constant(name, tensorFrom(elements, { dtype: known, shape }));
      }
      return finish(write);
    },
  };
}
