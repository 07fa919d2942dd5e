/** Seeded random numbers: the same seed gives the same numbers on every machine. @module */

/** A stream of uniformly distributed numbers. */
export interface RandomStream {
  /** The next number in [low, high). */
  uniform(low: number, high: number): number;
  /** The next integer in [0, below). */
  integer(below: number): number;
}

/** Starts a stream of mulberry32, seeded with the FNV-1a hash of a string, usually a case's label. */
export function randomFrom(seed: string): RandomStream {
  let state = 0x811c9dc5;
  for (let at = 0; at < seed.length; at++) state = Math.imul(state ^ seed.charCodeAt(at), 0x01000193);
  const next = (): number => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  return { uniform: (low, high) => low + (high - low) * next(), integer: (below) => Math.floor(next() * below) };
}
