/**
 * Ropewalk as a contender whose engine is ONNX Runtime: the same session, the whole model as one graph. In Node only.
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
 * @param path - of the GGUF
 * @param setup - threads and room
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
