/**
 * Random numbers for golden inputs, such that no two choices of a kernel give the same result by accident.
 *
 * @module
 */
import { type FloatDtype, roundTo, type Tensor, tensorFrom } from 'ropewalk';
import { newArray, storeNumber } from 'ropewalk/backend';
import { countElements, type RandomStream, randomFrom } from 'ropewalk/internal';

/** Starts the random numbers of one tensor of one case. They depend on the seed and the names only. */
export function numbersFor(seed: number, id: string, name: string): RandomStream {
  return randomFrom(`${seed}/${id}/${name}`);
}

/** Magnitudes lie in [LOWEST, LOWEST · 2^OCTAVES), so that no large element hides the error of a small one. */
const LOWEST = 0.25;
const OCTAVES = 3;

/** Draws rows without zeros or equal magnitudes, so that a wrong partner, order or sign shows; 384 fit bf16. */
export function distinctRows<D extends FloatDtype>(
  dtype: D,
  shape: readonly number[],
  random: RandomStream,
): Tensor<D> {
  const data = newArray(dtype, countElements(shape));
  const width = shape.at(-1) ?? 1;
  let seen = new Set<number>();
  for (let n = 0; n < data.length; n++) {
    if (n % width === 0) seen = new Set();
    let magnitude: number;
    do magnitude = roundTo(dtype, LOWEST * 2 ** random.uniform(0, OCTAVES));
    while (seen.has(magnitude));
    seen.add(magnitude);
    storeNumber(data, dtype, n, random.integer(2) === 0 ? magnitude : -magnitude);
  }
  return tensorFrom<D>(data, { dtype, shape });
}
