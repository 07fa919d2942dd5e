/** Compares the logits of a published model with those of its peers. */
import { readFileSync } from 'node:fs';
import { parseNpy } from '@ropewalk/formats';

/** Returns the values of an npy file of f32. */
export const floats = (path: string): Float32Array => parseNpy(readFileSync(path)).data as Float32Array;

/** Returns the root mean square of a − b divided by that of b − mean(b). */
export function rms(a: Float32Array, b: Float32Array): number {
  const mean = b.reduce((sum, value) => sum + value, 0) / b.length;
  let [off, spread] = [0, 0];
  for (const [i, value] of b.entries()) {
    off += (a[i]! - value) ** 2;
    spread += (value - mean) ** 2;
  }
  return Math.sqrt(off / spread);
}

/**
 * Returns the log-probability of each token but the first.
 *
 * @param rows - logits `[tokens, width]`; row i predicts token i + 1
 */
export function logProbabilities(rows: Float32Array, ids: readonly number[], width: number): number[] {
  return ids.slice(1).map((id, i) => {
    const row = rows.subarray(i * width, (i + 1) * width);
    const top = row.reduce((most, value) => Math.max(most, value), -Infinity);
    return row[id]! - top - Math.log(row.reduce((all, value) => all + Math.exp(value - top), 0));
  });
}
