/**
 * Runs in a page. It loads the model that the address names as a user would, generates greedily, and logs
 * `{ backend, threads, description, tokens, text, logits, dispatched }`. `logits` are the ones after the prompt, and
 * `dispatched` is the number of WebNN's computations.
 */

import { fetchSource, generate, loadModel } from '@ropewalk/model';
import { ropewalk } from 'ropewalk';
import { backendNamed, watched } from './backends.js';

const asked = new URLSearchParams(location.search);
/** @param {string} name */
const text = (name) => asked.get(name) ?? '';
const backend = await backendNamed(text('backend'));
const simd = /** @type {'simd128' | 'auto'} */ (text('simd') || 'auto');
const rw = await ropewalk({ backend, threads: Number(asked.get('threads') ?? 1), simd });

// Each file is either read from its address, as the server allows, or fetched into a Blob, which is like a file that a
// user chose.
const names = text('files').split(',');
const files = new Map();
for (const name of names) {
  const url = `/model/${name}`;
  files.set(name, text('by') === 'blob' ? await (await fetch(url)).blob() : await fetchSource(url));
}
const model = await loadModel(files, { backend: rw, context: 128 });
const tokens = [];
let whole = '';
for await (const item of generate(model, text('prompt'), { maxTokens: Number(text('tokens')), temperature: 0 })) {
  if (item.end) whole = item.end.text;
  else tokens.push(item.token);
}
const session = model.openSession();
const logits = await session.append(model.tokenizer.encode(text('prompt')));
session.dispose();
const { threads, description } = rw.capabilities();
console.log(
  JSON.stringify({
    backend: model.backend,
    threads,
    description,
    tokens,
    text: whole,
    logits: [...logits],
    dispatched: watched.dispatched,
  }),
);
model.dispose();
rw.dispose();
