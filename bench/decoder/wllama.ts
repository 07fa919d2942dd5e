/**
 * Runs llama.cpp's WebAssembly build through wllama. It works only in a page.
 *
 * @module
 */
import { BATCH_TOKENS, type Contender, type Setup } from './contender.js';

/** The part of wllama's interface that is used here. */
interface WllamaModule {
  Wllama: new (paths: { default: string }, config: object) => Wllama;
}
interface Wllama {
  loadModel(blobs: readonly Blob[], options: object): Promise<void>;
  createCompletion(options: object): Promise<{ timings?: Timings }>;
  getNumThreads(): number;
  exit(): Promise<void>;
}
/** The times that llama-server measures itself. They do not contain the messages to and from wllama's worker. */
interface Timings {
  readonly prompt_n: number;
  readonly prompt_ms: number;
  /** The number of tokens. The first one is chosen from the prompt's logits, so its time belongs to the prompt. */
  readonly predicted_n: number;
  readonly predicted_ms: number;
}

/**
 * Loads a model.
 *
 * @param folder - the address of the package's esm folder
 * @param version - the version of the package
 * @param blob - the GGUF file
 * @param setup - the threads and the length of the context
 */
export async function openWllama(
  folder: string,
  version: string,
  blob: Blob,
  { threads, context }: Setup,
): Promise<Contender> {
  const { Wllama } = (await import(`${folder}index.js`)) as WllamaModule;
  const quiet = (): void => {};
  const logger = { debug: quiet, log: quiet, warn: quiet, error: console.error };
  const wllama = new Wllama({ default: `${folder}wasm/wllama.wasm` }, { logger, suppressNativeLog: true });
  await wllama.loadModel([blob], {
    ...{
      n_threads: threads,
      n_gpu_layers: 0,
      n_ctx: context,
      n_batch: BATCH_TOKENS,
      n_ubatch: BATCH_TOKENS,
      n_parallel: 1,
    },
    warmup: false, // the benchmark has its own warm-up runs
  });
  const got = wllama.getNumThreads();
  return {
    name: 'wllama',
    setup: `${version}, WebAssembly, ${got} thread${got === 1 ? '' : 's'}, no GPU, batch ${BATCH_TOKENS}, flash attention auto, KV cache f16, by its own clock`,
    async run(prompt, steps) {
      const { timings } = await wllama.createCompletion({
        prompt: prompt.text,
        ...{ max_tokens: steps + 1, temperature: 0, top_k: 1, ignore_eos: true, cache_prompt: false },
      });
      if (timings?.prompt_n !== prompt.tokens.length || timings.predicted_n !== steps + 1)
        throw new Error(
          `wllama: expected ${prompt.tokens.length} + ${steps + 1} tokens, got ${timings?.prompt_n} + ${timings?.predicted_n}`,
        );
      return { prefillMs: timings.prompt_ms, decodeMs: timings.predicted_ms, tokens: [] };
    },
    close: () => wllama.exit(),
  };
}
