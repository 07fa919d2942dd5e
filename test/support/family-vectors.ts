/** Random models of the families with their logits: those beside the repository, and our own. */
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseNpy, parseNpz } from '../../packages/formats/src/index.js';
import { FAMILIES, withoutFamilies } from './huggingface-folder.js';

/** A model with llama.cpp's logits and tokens. */
export interface Vector {
  readonly name: string;
  readonly n_ctx: number;
  readonly vocab: number;
  /** The path of the GGUF file. */
  readonly gguf: string;
  /** tokens, logits, logits-f64, greedy; of quantised files also logits-f32 and greedy-f32. Undefined: not there. */
  array(name: string): ArrayLike<number> | undefined;
}

/** Models that a manifest lists; their arrays are in one .npz each, or in a .npy each. */
function vectorsOf(folder: string): Vector[] {
  const { models }: { models: Omit<Vector, 'gguf' | 'array'>[] } = JSON.parse(
    readFileSync(`${folder}/manifest.json`, 'utf8'),
  );
  return models.map((model) => {
    const base = `${folder}/${model.name}`;
    const npz = existsSync(`${base}.npz`) ? parseNpz(readFileSync(`${base}.npz`)) : undefined;
    const array = (name: string): ArrayLike<number> | undefined => {
      const npy = `${base}.${name}.npy`;
      const found = npz ? npz.get(name) : existsSync(npy) ? parseNpy(readFileSync(npy)) : undefined;
      return found?.data as Float32Array | undefined;
    };
    return { ...model, gguf: `${base}.gguf`, array };
  });
}

/** One of every family; none where ../shared is not here. */
export const sharedFamilies = (): Vector[] => (withoutFamilies ? [] : vectorsOf(FAMILIES));

/** Rules that no shared model has; golden/families/README.md says how these were made. */
export const goldenFamilies = (): Vector[] =>
  vectorsOf(fileURLToPath(new URL('../model/golden/families', import.meta.url)));
