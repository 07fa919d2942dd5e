/** Lets a page break a model: it writes, and a head rotates, with a known bug. @module */
import type { ModelFiles } from '@ropewalk/model';
import { breath } from './breath.js';
import { brokenHead, MODEL_FILES, openWriter } from './broken-model.js';
import { filesOf } from './model-source.js';

/** Fetches the bundled model. @param base - the site's root */
async function bundled(base: string): Promise<ModelFiles> {
  const files = new Map<string, Uint8Array>();
  for (const name of MODEL_FILES) {
    const response = await fetch(`${base}data/marline/${name}`);
    if (!response.ok) throw new Error(`${name} of the model answered ${response.status}. Load the page again.`);
    files.set(name, new Uint8Array(await response.arrayBuffer()));
  }
  return files;
}

const broken = {
  /**
   * Continues the prompt, once for each bug.
   *
   * @param from - the site's root, or the address of a folder on another host
   * @param bugs - ids of known bugs; undefined writes with the right kernel
   * @param onText - called with the number of the bug and a piece of its text
   * @param onProgress - called with the share of the weights that is loaded
   */
  async write(
    from: { readonly base: string } | { readonly address: string },
    bugs: readonly (string | undefined)[],
    onText: (n: number, text: string) => void,
    onProgress: (share: number) => void,
  ): Promise<void> {
    const files = 'base' in from ? await bundled(from.base) : await filesOf({ kind: 'address', address: from.address });
    const writer = await openWriter(files, onProgress);
    try {
      for (const [n, bug] of bugs.entries())
        for await (const text of writer.write(bug)) {
          onText(n, text);
          await breath();
        }
    } finally {
      writer.dispose();
    }
  },

  /** Rotates one head with a bug. */
  rotate: brokenHead,
};

/** The functions that a page calls. */
export type BrokenModel = typeof broken;

export default broken;
