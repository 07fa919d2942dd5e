/** Makes random models for tests of the decoder, and compares logits. */
import assert from 'node:assert/strict';
import type { Session } from '@ropewalk/model';
import type { TinyShape } from './tiny-model.js';

export function greedy(logits: Float32Array): number {
  let best = 0;
  for (let id = 1; id < logits.length; id++) if (logits[id]! > logits[best]!) best = id;
  return best;
}

export async function continued(session: Session, first: Float32Array, count: number): Promise<number[]> {
  const tokens = [greedy(first)];
  while (tokens.length < count) tokens.push(greedy(await session.append([tokens.at(-1)!])));
  return tokens;
}

/** Returns the largest difference and the largest expected value. */
export function distance(got: ArrayLike<number>, want: ArrayLike<number>): { worst: number; scale: number } {
  assert.equal(got.length, want.length);
  let [worst, scale] = [0, 0];
  for (let n = 0; n < want.length; n++) {
    const apart = Math.abs(got[n]! - want[n]!);
    if (!(apart <= worst)) worst = apart; // a NaN counts as a difference
    scale = Math.max(scale, Math.abs(want[n]!));
  }
  return { worst, scale };
}

export function assertClose(got: ArrayLike<number>, want: ArrayLike<number>, relative: number, what: string): void {
  const { worst, scale } = distance(got, want);
  assert.ok(
    worst <= relative * scale,
    `${what}: worst ${worst}, allowed ${relative * scale} (${relative} of ${scale})`,
  );
}

/**
 * Returns the allowed error of f32 logits, as a share of the largest logit. A layer has seven products, each a sum of
 * up to k terms, and the head is one more. The roundings of 2^-24 are independent, so n of them add up like √n.
 * Measured errors are at most half of this.
 */
export function tolerance({ layers, hidden, inter, heads, headDim }: TinyShape): number {
  return 2 ** -24 * Math.sqrt((7 * layers + 1) * Math.max(hidden, inter, heads * headDim));
}

export const TOKENS = [1, 17, 3, 44, 44, 9, 60, 2, 31, 5, 28, 13];

export const BASE = { layers: 2, hidden: 32, heads: 4, kvHeads: 2, headDim: 8, inter: 48, vocab: 64 } as const;

/**
 * Returns YaRN's frequencies as in its paper. A pair with fewer than `low` turns is divided by the factor, a pair with
 * more than `high` is unchanged, and the pairs between are mixed.
 */
export function yarnFrequency(j: number, dim: number, factor: number, original: number): number {
  const edge = (turns: number): number => (dim * Math.log(original / (2 * Math.PI * turns))) / (2 * Math.log(10000));
  const [low, high] = [Math.max(Math.floor(edge(32)), 0), Math.min(Math.ceil(edge(1)), dim - 1)];
  const ramp = Math.min(1, Math.max(0, (j - low) / Math.max(0.001, high - low)));
  const kept = 10000 ** ((-2 * j) / dim);
  return (kept / factor) * ramp + kept * (1 - ramp);
}

export const YARN: TinyShape = {
  ...BASE,
  family: 'llama',
  extra: { rope_scaling: { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 16 } },
  ggufExtra: { 'rope.scaling.type': 'yarn', 'rope.scaling.factor': 4, 'rope.scaling.original_context_length': 16 },
  frequency: (j) => yarnFrequency(j, 8, 4, 16),
  magnitude: 0.1 * Math.log(4) + 1,
};
