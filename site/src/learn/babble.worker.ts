/**
 * Continues a prompt with the bundled model, either as it is or with the heads of q and k in the wrong order.
 *
 * @module
 */

import { permutedRows } from '@ropewalk/dialects/internal/models';
import { parseSafetensors } from '@ropewalk/formats';
import { generate, loadModel, type Model } from '@ropewalk/model';
import { expose } from 'comlink';
import { breath } from '../shared/breath.js';

/** The number of rows of a head, from the model's config.json. */
const HEAD_DIM = 32;

/**
 * Reorders the rows of q and k in place for interleaved pairs, like a conversion that does not record the new order.
 */
function turnHeads(bytes: Uint8Array): void {
  const file = parseSafetensors(bytes, 'model.safetensors');
  const order = permutedRows(HEAD_DIM, 'interleaved');
  for (const [name, { shape, byteOffset, sizeBytes }] of file.tensors) {
    if (!/\.(q|k)_proj\.weight$/.test(name)) continue;
    const all = bytes.subarray(byteOffset, byteOffset + sizeBytes);
    const rowBytes = all.length / shape[0]!;
    const before = all.slice();
    for (let row = 0; row < shape[0]!; row++) {
      const head = row - (row % HEAD_DIM);
      const from = (head + order[row % HEAD_DIM]!) * rowBytes;
      all.set(before.subarray(from, from + rowBytes), row * rowBytes);
    }
  }
}

async function load(base: string, wrong: boolean): Promise<Model> {
  const files = new Map<string, Uint8Array>();
  for (const name of ['config.json', 'tokenizer.json', 'tokenizer_config.json', 'model.safetensors']) {
    const response = await fetch(`${base}data/marline/${name}`);
    if (!response.ok) throw new Error(`${name} of the model answered ${response.status}. Load the page again.`);
    files.set(name, new Uint8Array(await response.arrayBuffer()));
  }
  if (wrong) turnHeads(files.get('model.safetensors')!);
  return loadModel(files, { backend: 'cpu', threads: 1 });
}

const babble = {
  /**
   * Continues a prompt greedily.
   *
   * @param base - the site's root
   * @param wrong - whether the rows of the heads are in the wrong order
   */
  async write(base: string, wrong: boolean, prompt: string, onText: (text: string) => void): Promise<void> {
    const model = await load(base, wrong);
    try {
      for await (const { text } of generate(model, prompt, { maxTokens: 60, temperature: 0.5, topP: 0.9, seed: 7 })) {
        onText(text);
        await breath();
      }
    } finally {
      model.dispose();
    }
  },
};

/** The functions that the page calls. */
export type Babble = typeof babble;

expose(babble);
