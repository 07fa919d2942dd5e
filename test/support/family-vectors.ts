/** Reads random models of each family with their logits, made by others and by us. */
import assert from 'node:assert/strict';
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
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
  /**
   * Returns the array tokens, logits, logits-f64 or greedy; quantised files also have logits-f32 and greedy-f32. A
   * missing array is undefined.
   */
  array(name: string): ArrayLike<number> | undefined;
}

/** Lists the models of a manifest. A model has its arrays in one .npz, or each in a .npy. */
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

/** Lists one model of every family. */
export const familyVectors = (): Vector[] => vectorsOf(FAMILIES);

/**
 * Lists models for rules that {@link familyVectors} do not cover. golden/families/README.md says how they were made.
 */
export const goldenFamilies = (): Vector[] =>
  vectorsOf(fileURLToPath(new URL('../../packages/model/test/golden/families', import.meta.url)));

/**
 * The allowed distance of f32 from float64 after a few layers. The largest measured distance is 6e-5, and a wrong rule
 * changes some logit by 1e-2 or more, as the mutations of the vectors show.
 */
export const NEAR = 1e-3;

/** Asserts that every logit is within a distance of the expected one. */
export function check(got: Float32Array, want: ArrayLike<number>, within: number, what: string): void {
  let worst = 0;
  for (let n = 0; n < want.length; n++) {
    const off = Math.abs(got[n]! - want[n]!);
    if (!(off <= worst)) worst = off;
  }
  assert.ok(worst <= within, `${what}: off by ${worst}, more than ${within}`);
}

const SAVED = fileURLToPath(new URL('../../packages/model/test/golden/transformers', import.meta.url));

/** Lists the models that transformers saved (scripts/python/family_vectors.py), by name. */
export const savedFamilies = (): string[] =>
  readdirSync(SAVED).flatMap((file) => (file.endsWith('.safetensors') ? [file.slice(0, -'.safetensors'.length)] : []));

/** Reads a model that transformers saved, its logits `[tokens, vocab]`, and llama.cpp's converted form of it, if it was made. */
export function savedFamily(name: string) {
  const given: {
    readonly config: object;
    /** Keys, and type, shape (fastest dimension first) and digest of each tensor. */
    readonly gguf?: {
      readonly keys: Readonly<Record<string, unknown>>;
      readonly tensors: Readonly<Record<string, readonly [type: string, shape: readonly number[], digest: string]>>;
    };
  } = JSON.parse(readFileSync(`${SAVED}/${name}.json`, 'utf8'));
  const arrays = parseNpz(readFileSync(`${SAVED}/${name}.npz`));
  const list = (array: string): number[] => Array.from(arrays.get(array)!.data as Float32Array);
  /** Writes the files of its folder. */
  const writeTo = (folder: string): void => {
    mkdirSync(folder);
    writeFileSync(`${folder}/config.json`, JSON.stringify(given.config));
    copyFileSync(`${SAVED}/${name}.safetensors`, `${folder}/model.safetensors`);
  };
  return { gguf: given.gguf, writeTo, tokens: list('tokens'), logits: list('logits'), greedy: list('greedy') };
}
