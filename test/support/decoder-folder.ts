/** A decoder's graph with its weights on disk, and running it. */
import { closeSync, mkdirSync, openSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { describeModelPath } from '../../packages/model/src/node.js';
import { decoderGraph } from '../../packages/onnx/src/decoder/graph.js';
import type { DecoderForm } from '../../packages/onnx/src/decoder/scope.js';
import { layoutWeights, writeWeights } from '../../packages/onnx/src/decoder/weights.js';
import { writeOnnxModel } from '../../packages/onnx/src/format/onnx.js';

/** Writes model.onnx and its data into a new folder, for 64 positions. */
export async function writeDecoder(gguf: string, form: DecoderForm, folder: string): Promise<void> {
  mkdirSync(folder);
  await describeModelPath(gguf, { formats: ['q8_0', 'q4_0'] }, async (description) => {
    const { graph, constants } = decoderGraph(description.config, description.weights, { form, context: 64 });
    const layout = layoutWeights(constants);
    for (const [name, tensor] of layout.tensors) graph.external.set(name, tensor);
    const files = new Map(layout.files.map(({ name }) => [name, openSync(join(folder, name), 'w')]));
    await writeWeights(description, constants, layout, (file, at, bytes) => {
      writeSync(files.get(file)!, bytes, 0, bytes.length, at);
    });
    for (const file of files.values()) closeSync(file);
    writeFileSync(join(folder, 'model.onnx'), writeOnnxModel(graph.model('decoder', 'test')));
  });
}
