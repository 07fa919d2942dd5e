/**
 * Runs in a page, bundled. It loads the model that the address names with ONNX Runtime as its engine, and generates
 * greedily. It logs `{ text, dispatched }` or `{ error }`; `dispatched` is the number of WebNN's computations.
 */
import { fetchSource, generate, loadModel } from '@ropewalk/model';
import { openOnnxWebEngine } from '@ropewalk/model-onnx';
// @ts-expect-error -- the package is in bench/, where the bundler finds it
import * as ort from 'onnxruntime-web/webgpu';

const asked = new URLSearchParams(location.search);
/** @param {string} name */
const text = (name) => asked.get(name) ?? '';
let dispatched = 0;
const { MLContext } = /** @type {any} */ (globalThis);
if (MLContext) {
  const { dispatch } = MLContext.prototype;
  /** @this {unknown} @param {unknown[]} given */
  MLContext.prototype.dispatch = function (...given) {
    dispatched++;
    return dispatch.apply(this, given);
  };
}
ort.env.wasm.wasmPaths = '/ort/';
try {
  const files = new Map();
  for (const name of text('files').split(',')) files.set(name, await fetchSource(`/model/${name}`));
  const engine = await openOnnxWebEngine(ort, { providers: [text('device')] });
  const model = await loadModel(files, { engine, context: 64 });
  let whole = '';
  for await (const item of generate(model, text('prompt'), { maxTokens: Number(text('tokens')), temperature: 0 }))
    if (item.end) whole = item.end.text;
  console.log(JSON.stringify({ text: whole, dispatched }));
  model.dispose();
} catch (error) {
  console.log(JSON.stringify({ error: String(error) }));
}
