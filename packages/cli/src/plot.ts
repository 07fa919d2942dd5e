/** A small plot for terminals of the logarithm of each pair's frequency. @module */

const HEIGHT = 9;
const MAX_WIDTH = 64;

/**
 * Plots log10 of the frequency of each pair as `*`. More than 64 pairs are sampled at equal distances.
 *
 * @param invFreq - radians per position, one for each pair; pairs that do not rotate (0) are `_` on the bottom line
 * @param plain - the same without scaling; drawn as `·` where it differs
 */
export function plotFrequencies(invFreq: Float64Array, plain: Float64Array): string[] {
  const width = Math.min(MAX_WIDTH, invFreq.length);
  if (width === 0) return [];
  const pairAt = (column: number): number =>
    width === 1 ? 0 : Math.round((column * (invFreq.length - 1)) / (width - 1));
  const turning = [...invFreq, ...plain].filter((f) => f > 0 && Number.isFinite(f)).map(Math.log10);
  const top = Math.max(...turning, 0);
  const bottom = Math.min(...turning, top - 1);
  const rowOf = (f: number): number =>
    f > 0 ? Math.round(((top - Math.log10(f)) / (top - bottom)) * (HEIGHT - 1)) : HEIGHT;
  const grid = Array.from({ length: HEIGHT + 1 }, () => new Array<string>(width).fill(' '));
  for (let column = 0; column < width; column++) {
    const j = pairAt(column);
    grid[rowOf(plain[j]!)]![column] = '·';
    grid[rowOf(invFreq[j]!)]![column] = invFreq[j]! > 0 ? '*' : '_';
  }
  const used = grid.at(-1)!.some((c) => c !== ' ') ? grid : grid.slice(0, -1);
  const label = (row: number): string =>
    (row < HEIGHT ? (top - (row / (HEIGHT - 1)) * (top - bottom)).toFixed(1) : 'none').padStart(6);
  const axis = `pair 0${`${invFreq.length - 1}`.padStart(Math.max(1, width - 6))}`;
  return [
    'log10 frequency, radians a position (· without scaling)',
    ...used.map((row, r) => `${label(r)} |${row.join('').trimEnd()}`),
    `${' '.repeat(8)}${axis}`,
  ];
}

/** Returns the absolute frequencies of both sides in one length. A pair that a side lacks does not rotate there. */
export function magnitudesOf(
  pairs: readonly { readonly turns: boolean; readonly frequency: number }[],
  expected: Float64Array | undefined,
): [Float64Array, Float64Array | undefined] {
  const count = Math.max(pairs.length, expected?.length ?? 0);
  const found = Float64Array.from({ length: count }, (_, j) => (pairs[j]?.turns ? Math.abs(pairs[j].frequency) : 0));
  return [found, expected && Float64Array.from({ length: count }, (_, j) => Math.abs(expected[j] ?? 0))];
}
