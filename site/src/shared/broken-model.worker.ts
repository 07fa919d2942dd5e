/** Lets a page break the bundled model: it writes, and a head rotates, with a known bug. @module */
import { breath } from './breath.js';
import { brokenHead, MODEL_FILES, written } from './broken-model.js';

const broken = {
  /**
   * Continues the prompt.
   *
   * @param base - the site's root
   * @param bug - the id of a known bug; undefined writes with the right kernel
   */
  async write(base: string, bug: string | undefined, onText: (text: string) => void): Promise<void> {
    const files = new Map<string, Uint8Array>();
    for (const name of MODEL_FILES) {
      const response = await fetch(`${base}data/marline/${name}`);
      if (!response.ok) throw new Error(`${name} of the model answered ${response.status}. Load the page again.`);
      files.set(name, new Uint8Array(await response.arrayBuffer()));
    }
    for await (const text of written(files, bug)) {
      onText(text);
      await breath();
    }
  },

  /** Rotates one head with a bug. */
  rotate: brokenHead,
};

/** The functions that a page calls. */
export type BrokenModel = typeof broken;

export default broken;
