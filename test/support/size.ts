/**
 * Sets the share of the random and exhaustive tests that runs. `FUZZ` is in tenths, 1 to 10. Default: 1. With 10 and
 * without `SEED`, every case runs, with the seeds in the tests.
 */
import fc from 'fast-check';

export const FUZZ = Number(process.env.FUZZ ?? 1);
/** The seed that the runner has drawn. A failure can be repeated with it. */
export const SEED = process.env.SEED === undefined ? undefined : Number(process.env.SEED);
if (!(Number.isInteger(FUZZ) && FUZZ >= 1 && FUZZ <= 10)) throw new Error(`FUZZ: 1 to 10, got ${process.env.FUZZ}`);
if (SEED !== undefined && !Number.isInteger(SEED)) throw new Error(`SEED: an integer, got ${process.env.SEED}`);

/** Returns the number of cases to run of `all`, but at least `least`. */
const part = (all: number, least: number): number => Math.min(all, Math.max(least, Math.ceil((all * FUZZ) / 10)));

/** Returns the parameters of fast-check for a property. */
export function drawn(runs = 200, seed = 20261121): { seed: number; numRuns: number } {
  return { seed: SEED ?? seed, numRuns: part(runs, 10) };
}

/** Returns a part of a list in its order. `SEED` determines the part. */
export function some<T>(list: readonly T[], least = 1): T[] {
  const length = part(list.length, least);
  const drawnPart = fc.subarray([...list], { minLength: length, maxLength: length });
  return fc.sample(drawnPart, drawn(1))[0]!;
}
