/**
 * Runs in a page, bundled. `@huggingface/transformers` loads a folder at /models/ as its users would, and generates
 * greedily. The page logs `{ text }` or `{ error }`.
 */
// @ts-expect-error -- the package is in bench/, where the bundler finds it
import { env, pipeline } from '@huggingface/transformers';

const asked = new URLSearchParams(location.search);
env.allowLocalModels = true;
env.allowRemoteModels = false;
env.localModelPath = '/models/';
env.useBrowserCache = false;
env.useWasmCache = false; // the cache would run scripts from blob: addresses
env.backends.onnx.wasm.wasmPaths = '/ort/';
try {
  const device = asked.get('device');
  const generator = await pipeline('text-generation', asked.get('model'), { device });
  const options = { max_new_tokens: Number(asked.get('tokens')), do_sample: false, return_full_text: false };
  const [{ generated_text: text }] = await generator(asked.get('prompt'), options);
  const { device: used } = generator.model.sessions.model.config;
  console.log(JSON.stringify(used === device ? { text } : { error: `on ${used}` }));
} catch (error) {
  console.log(JSON.stringify({ error: String(error) }));
}
