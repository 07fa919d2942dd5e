/** Writes a decoder's graph with its weights to disk, and runs it. */
import { closeSync, mkdirSync, openSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { describeModelPath } from '@ropewalk/model/node';
import { type DecoderGraphOptions, decoderGraph } from '@ropewalk/model-onnx';
import { DECODER_FORMATS, layoutWeights, writeWeights } from '@ropewalk/model-onnx/internal';
import { writeOnnxModel } from '@ropewalk/onnx';
import { loadOnnxruntime, type OrtTensor } from '@ropewalk/onnx/internal';

/** Writes model.onnx and its data into a new folder. Default: 64 positions. */
export async function writeDecoder(gguf: string, options: DecoderGraphOptions, folder: string): Promise<void> {
  mkdirSync(folder);
  await describeModelPath(gguf, { formats: DECODER_FORMATS }, async (description) => {
    const { graph, constants } = decoderGraph(description.config, description.weights, { context: 64, ...options });
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

/** One call of a decoder. */
export interface DecoderCall {
  /** The token rows, all of the same length. */
  readonly ids: readonly (readonly number[])[];
  /** The attention mask. Default: all ones. */
  readonly mask?: readonly (readonly number[])[];
  /** One list per row. Several axes have lists for each axis, or one axis for all. Default: they continue to count. */
  readonly positions?: readonly (readonly number[])[];
  /** The value of num_logits_to_keep. */
  readonly keep: number;
}

/** The part of the package that is used here. */
interface Ort {
  readonly InferenceSession: {
    create(
      path: string,
      options: object,
    ): Promise<{
      readonly inputMetadata: readonly { readonly name: string; readonly shape: readonly (number | string)[] }[];
      run(feeds: Readonly<Record<string, OrtTensor>>): Promise<Readonly<Record<string, OrtTensor>>>;
      release(): Promise<void>;
    }>;
  };
  readonly Tensor: new (type: string, data: ArrayBufferView, dims: readonly (number | string)[]) => OrtTensor;
}

/**
 * Loads the model.onnx of a folder, and keeps its caches between calls.
 *
 * @param capacity - the number of cache rows, for a graph that outputs only new rows. Default: the graph outputs whole
 *   caches
 */
export async function openDecoder(folder: string, capacity?: number, options: object = {}) {
  const ort = (await loadOnnxruntime()) as unknown as Ort;
  const given = { intraOpNumThreads: 1, ...options };
  const session = await ort.InferenceSession.create(join(folder, 'model.onnx'), given);
  const i64 = (rows: readonly (readonly number[])[], dims?: readonly number[]) =>
    new ort.Tensor('int64', BigInt64Array.from(rows.flat(), BigInt), dims ?? [rows.length, rows[0]!.length]);
  const shapes = new Map(session.inputMetadata.map(({ name, shape }) => [name, shape]));
  const [axes, ...rest] = (shapes.get('position_ids') ?? []) as number[];
  const caches = new Map<string, OrtTensor>();
  let past = 0;
  const layers = [...shapes.keys()].filter((name) => /^past.*key$/.test(name)).length;
  return {
    layers,
    /** The number of axes of positions, or 0 if the graph counts the positions itself. */
    axes: rest.length === 2 ? axes! : rest.length,
    release: () => session.release(),
    /** Forgets all tokens. */
    clear(): void {
      caches.clear();
      past = 0;
    },
    async run({ ids, mask, positions, keep }: DecoderCall): Promise<Float32Array> {
      const [batch, seq] = [ids.length, ids[0]!.length];
      for (const [name, [, heads, rows, d]] of shapes) {
        if (!name.startsWith('past') || caches.has(name)) continue;
        if (isState(name)) {
          // The state of a layer without attention starts with zeros.
          const dims = [batch, heads as number, rows as number];
          caches.set(name, new ort.Tensor('float32', new Float32Array(dims[0]! * dims[1]! * dims[2]!), dims));
          continue;
        }
        const dims = [batch, heads as number, capacity ?? 0, d as number];
        // Rows that no token has written must not affect the result.
        const data = new Float32Array(dims.reduce((product, size) => product * size)).fill(Number.MAX_VALUE);
        caches.set(name, new ort.Tensor('float32', data, dims));
      }
      const ones = Array.from({ length: batch }, () => Array<number>(past + seq).fill(1));
      const counted = Array.from({ length: batch }, () => Array.from({ length: seq }, (_, n) => past + n));
      const own = positions ?? counted;
      const several = rest.length === 2;
      // The fourth axis is 0 for text, as in llama.cpp.
      const zeros = own.map((row) => row.map(() => 0));
      const same = Array.from({ length: axes! }, (_, axis) => (axis < 3 ? own : zeros));
      const all = several && own.length === batch ? same.flat() : own;
      const results = await session.run({
        ...Object.fromEntries(caches),
        input_ids: i64(ids),
        attention_mask: i64(mask ?? ones),
        ...(rest.length > 0 && { position_ids: i64(all, several ? [axes!, batch, seq] : undefined) }),
        num_logits_to_keep: i64([[keep]]), // has one dimension, as in onnxruntime-genai
      });
      for (const [name, cache] of caches) {
        const made = results[name.replace(/^past(_key_values)?/, 'present')]!;
        if (capacity === undefined || isState(name)) caches.set(name, made);
        else appendRows(cache, made, past);
      }
      past += seq;
      return results.logits!.data as Float32Array;
    },
  };
}

const isState = (name: string): boolean => name.startsWith('past_conv');

/** Copies new rows into the cache of one sequence. */
function appendRows(cache: OrtTensor, rows: OrtTensor, past: number): void {
  const [, heads, capacity, d] = cache.dims as [number, number, number, number];
  const size = rows.dims[2]! * d;
  for (let head = 0; head < heads; head++)
    (cache.data as Float32Array).set(
      (rows.data as Float32Array).subarray(head * size, (head + 1) * size),
      (head * capacity + past) * d,
    );
}
