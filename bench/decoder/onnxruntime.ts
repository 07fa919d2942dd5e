/**
 * Ropewalk as a contender with ONNX Runtime as its engine: the session is the same, and the whole model is one graph.
 * It runs only in Node.
 *
 * @module
 */
import { readFileSync } from 'node:fs';
import type * as Decoder from '@ropewalk/model/node';
import type * as Onnx from '@ropewalk/model-onnx/node';
import type { Contender, Setup } from './contender.js';
import { runnerOf } from './ours.js';

const built = (name: string): string => new URL(`../../packages/${name}/dist/node.js`, import.meta.url).href;

/**
 * Loads a model.
 *
 * @param path - the path of the GGUF file
 * @param setup - the threads and the length of the context
 * @param cache - the folder for the graph's weights
 */
export async function openOnnxruntime(path: string, { threads, context }: Setup, cache: string): Promise<Contender> {
  const { loadModelPath } = (await import(built('model'))) as typeof Decoder;
  const { openOnnxEngine } = (await import(built('model-onnx'))) as typeof Onnx;
  const model = await loadModelPath(path, { engine: await openOnnxEngine({ threads, cache }), context });
  const about = new URL('../node_modules/onnxruntime-node/package.json', import.meta.url);
  const { version } = JSON.parse(readFileSync(about, 'utf8')) as { version: string };
  return {
    name: 'ropewalk, onnxruntime',
    setup: `onnxruntime-node ${version}, native, ${threads} thread${threads === 1 ? '' : 's'}; KV cache f32`,
    ...runnerOf(model),
  };
}
