/**
 * Runs llama.cpp's native build through node-llama-cpp.
 *
 * @module
 */
import { existsSync, readFileSync } from 'node:fs';
import { BATCH_TOKENS, type Contender, type Setup } from './contender.js';

/** The part of node-llama-cpp's interface that is used here. */
interface NodeLlamaCpp {
  getLlama(options: object): Promise<{ loadModel(options: object): Promise<LlamaModel>; dispose(): Promise<void> }>;
}
interface LlamaModel {
  createContext(options: object): Promise<LlamaContext>;
  dispose(): Promise<void>;
}
interface LlamaContext {
  readonly currentThreads: number;
  getSequence(): {
    clearHistory(): Promise<void>;
    evaluate(tokens: readonly number[], options: object): AsyncGenerator<number>;
  };
}

const HOME = new URL('../llama/node_modules/', import.meta.url);

/**
 * Loads a model.
 *
 * @param path - the path of the GGUF file
 * @param setup - the threads and the length of the context
 * @returns the contender, or the reason why it is left out
 */
export async function openLlama(path: string, { threads, context: contextSize }: Setup): Promise<Contender | string> {
  const home = new URL('node-llama-cpp/', HOME);
  if (!existsSync(home)) return 'node-llama-cpp is not installed. Install it with: npm run peers';
  const { getLlama } = (await import(new URL('dist/index.js', home).href)) as NodeLlamaCpp;
  const llama = await getLlama({
    gpu: false,
    build: 'never',
    skipDownload: true,
    maxThreads: threads,
    logLevel: 'error',
  });
  const model = await llama.loadModel({ modelPath: path, gpuLayers: 0 });
  const context = await model.createContext({
    contextSize,
    batchSize: BATCH_TOKENS,
    threads: { ideal: threads, min: threads },
  });
  const sequence = context.getSequence();
  const { version } = JSON.parse(readFileSync(new URL('package.json', home), 'utf8')) as { version: string };
  const got = context.currentThreads;
  return {
    name: 'node-llama-cpp',
    setup: `${version}, native, ${got} thread${got === 1 ? '' : 's'}, no GPU, batch ${BATCH_TOKENS}, flash attention auto, KV cache f16`,
    async run(prompt, steps) {
      await sequence.clearHistory();
      const tokens: number[] = [];
      let first = 0;
      let last = 0;
      const start = performance.now();
      for await (const token of sequence.evaluate(prompt.tokens, { temperature: 0, yieldEogToken: true })) {
        last = performance.now();
        if (tokens.push(token) === 1) first = last;
        if (tokens.length > steps) break;
      }
      if (tokens.length !== steps + 1)
        throw new Error(`node-llama-cpp: expected ${steps + 1} tokens, got ${tokens.length}`);
      return { prefillMs: first - start, decodeMs: last - first, tokens };
    },
    async close() {
      await model.dispose();
      await llama.dispose();
    },
  };
}
