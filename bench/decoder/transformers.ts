/**
 * Runs the graph that `ropewalk export --whole` writes in transformers.js, as its users would. It runs only in Node.
 *
 * @module
 */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type * as Onnx from '@ropewalk/model-onnx/node';
import { noTransformers, TRANSFORMERS } from '../../test/support/transformers.js';
import type { Contender, Setup } from './contender.js';

/** The part of transformers.js that is used here. */
interface TransformersJs {
  readonly AutoModelForCausalLM: { from_pretrained(folder: string, options: object): Promise<CausalModel> };
  readonly Tensor: new (type: 'int64', data: BigInt64Array, dims: readonly number[]) => object;
  readonly env: object;
}
interface CausalModel {
  generate(options: object): Promise<{ readonly data: BigInt64Array }>;
  dispose(): Promise<unknown>;
}

/**
 * Exports the model and loads it.
 *
 * @param path - the path of the GGUF file
 * @param setup - the threads
 * @param cache - the folder for the exported graph
 * @returns the contender, or the reason why it is left out
 */
export async function openTransformers(path: string, { threads }: Setup, cache: string): Promise<Contender | string> {
  if (noTransformers) return noTransformers;
  const onnx = new URL('../../packages/model-onnx/dist/node.js', import.meta.url).href;
  const { exportDecoder } = (await import(onnx)) as typeof Onnx;
  const folder = join(cache, 'transformers');
  if (!existsSync(folder)) await exportDecoder(path, folder);
  const module = pathToFileURL(join(TRANSFORMERS, 'dist/transformers.node.mjs')).href;
  const { AutoModelForCausalLM, Tensor, env } = (await import(module)) as TransformersJs;
  Object.assign(env, { allowRemoteModels: false, useFSCache: false, useWasmCache: false });
  const session_options = { intraOpNumThreads: threads, interOpNumThreads: 1 };
  const model = await AutoModelForCausalLM.from_pretrained(folder, { device: 'cpu', session_options });
  const { version } = JSON.parse(readFileSync(join(TRANSFORMERS, 'package.json'), 'utf8')) as { version: string };
  return {
    name: 'transformers.js',
    setup: `${version}, our graph, ${threads} thread${threads === 1 ? '' : 's'}; KV cache f32`,
    async run({ tokens }, steps) {
      const dims = [1, tokens.length];
      const times: number[] = [];
      const start = performance.now();
      const { data } = await model.generate({
        inputs: new Tensor('int64', BigInt64Array.from(tokens, BigInt), dims),
        attention_mask: new Tensor('int64', new BigInt64Array(tokens.length).fill(1n), dims),
        do_sample: false,
        min_new_tokens: steps + 1,
        max_new_tokens: steps + 1,
        streamer: { put: () => times.push(performance.now()), end() {} }, // the first call has the prompt
      });
      const found = [...data.subarray(tokens.length)].map(Number);
      if (found.length !== steps + 1)
        throw new Error(`transformers.js: expected ${steps + 1} tokens, got ${found.length}`);
      return { prefillMs: times[1]! - start, decodeMs: times.at(-1)! - times[1]!, tokens: found };
    },
    async close() {
      await model.dispose();
    },
  };
}
