/** Rows of heads, rotated as a kernel would, as files for `diagnose` and `cache-diff`. @module */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { writeNpy } from '@ropewalk/formats';
import { randomFrom } from 'ropewalk/internal';

export const [HEADS, DIM] = [2, 32];

/** Writes the RoPE of these rows into a folder, and returns its path. */
export function writeRope(folder: string): string {
  const path = join(folder, 'rope.json');
  writeFileSync(path, JSON.stringify({ headDim: DIM, pairing: 'half', base: 10000 }));
  return path;
}

/** Rotates `[tokens, heads, head_dim]` by the position of a token and a pair. */
export function turned(
  x: Float32Array,
  positionOf: (token: number, pair: number) => number,
  heads: number = HEADS,
): Float32Array {
  return x.map((value, n) => {
    const [i, token] = [n % DIM, Math.floor(n / DIM / heads)];
    const [j, other] = [i % (DIM / 2), x[i < DIM / 2 ? n + DIM / 2 : n - DIM / 2]!];
    const angle = positionOf(token, j) * 10000 ** ((-2 * j) / DIM);
    return value * Math.cos(angle) + (i < DIM / 2 ? -other : other) * Math.sin(angle);
  });
}

export function drawn(tokens: number, seed: string, heads: number = HEADS): Float32Array {
  const random = randomFrom(seed);
  return Float32Array.from({ length: tokens * heads * DIM }, () => random.uniform(-1, 1));
}

export const writeRows = (path: string, data: Float32Array, heads: number = HEADS): void =>
  writeFileSync(path, writeNpy(data, { dtype: 'f32', shape: [data.length / heads / DIM, heads, DIM] }));
