/** Random models of the families with their logits: those of others, and our own. */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseNpy, parseNpz } from '@ropewalk/formats';
import { FAMILIES } from './fixtures.js';

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

/** One of every family. */
export const familyVectors = (): Vector[] => vectorsOf(FAMILIES);

/** Rules that none of these has; golden/families/README.md says how these were made. */
export const goldenFamilies = (): Vector[] =>
  vectorsOf(fileURLToPath(new URL('../../packages/model/test/golden/families', import.meta.url)));

/**
 * f32 against float64 through a few layers: measured 6e-5 at most, and a wrong rule moves some logit by 1e-2 and more
 * (the vectors' own mutations).
 */
export const NEAR = 1e-3;

/** Every logit is within a distance of the expected one. */
export function check(got: Float32Array, want: ArrayLike<number>, within: number, what: string): void {
  let worst = 0;
  for (let n = 0; n < want.length; n++) {
    const off = Math.abs(got[n]! - want[n]!);
    if (!(off <= worst)) worst = off;
  }
  assert.ok(worst <= within, `${what}: off by ${worst}, more than ${within}`);
}
