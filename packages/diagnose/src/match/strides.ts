/** Rows that are written at one distance and read at another, as where the padding of a buffer is forgotten; tiles. @module */
import type { RightRows } from '../kernel/right-rows.js';

/** The most elements of padding beside a row. */
export const MOST_PADDING = 64;
/** A buffer may hold so many rows. */
const BUFFERS = [4, 8, 16, 32, 64, 128, 256];
/** Rows whose right results are kept: every distance is tried on them first. */
const KEPT = 8;

/** The sizes of tiles that are tried. */
const TILES = [4, 8, 16, 32];

/** Recognises right results of which tiles, of as many tokens as dimensions, were transposed; empty if they were not. */
export function describeTiles(right: RightRows): string[] {
  const { batch, seq, heads, headDim, y, rows } = right.heads;
  if (rows.length < batch * seq * heads) return []; // some rows are left out
  for (const size of TILES.filter((one) => seq >= one && headDim % one === 0)) {
    const [made, noise] = [new Float64Array(size * headDim), new Float64Array(size * headDim)];
    const isSo = (first: number): boolean => {
      const rowOf = (n: number): number => first + n * heads;
      for (let n = 0; n < size; n++) {
        const [from, to] = [n * headDim, (n + 1) * headDim];
        right.fill(rowOf(n), made.subarray(from, to), noise.subarray(from, to));
      }
      return made.every((value, at) => {
        const [n, i] = [Math.floor(at / headDim), at % headDim];
        const place = rowOf(i % size) * headDim + i - (i % size) + n;
        return Math.abs(y[place]! - value) <= noise[at]!;
      });
    };
    const tiles = Array.from({ length: batch * heads * Math.floor(seq / size) }, (_, n) => {
      const [b, h] = [Math.floor(n / (heads * Math.floor(seq / size))), n % heads];
      return (b * seq + (Math.floor(n / heads) % Math.floor(seq / size)) * size) * heads + h;
    });
    if (!tiles.every(isSo)) continue;
    const rest = seq % size > 0 ? `, of the first ${seq - (seq % size)} tokens` : '';
    return [
      `Tiles of ${size} tokens and ${size} dimensions are transposed${rest}: token a of a tile has dimension b of token b, and the reverse.`,
    ];
  }
  return [];
}

/** Says at which distances the rows of y were written and read, in one sentence; empty if no distances give y. */
export function describeStrides(right: RightRows): string[] {
  const { batch, seq, heads, headDim, y, rows: all } = right.heads;
  const count = batch * seq * heads;
  if (count < 3 || all.length < count) return []; // some rows are left out
  const kept = new Map<number, { readonly made: Float64Array; readonly noise: Float64Array }>();
  const scratch = { made: new Float64Array(headDim), noise: new Float64Array(headDim) };
  const expected = (r: number) => {
    const known = kept.get(r);
    if (known) return known;
    const isKept = kept.size < KEPT;
    const row = isKept ? { made: new Float64Array(headDim), noise: new Float64Array(headDim) } : scratch;
    right.fill(r, row.made, row.noise);
    if (isKept) kept.set(r, row);
    return row;
  };
  const gives = (write: number, read: number, buffer: number, rowOf: (n: number) => number): boolean => {
    let [moved, met] = [0, 0];
    for (let n = 0; n < count; n++) {
      const start = n - (n % buffer);
      const end = Math.min(start + buffer, count);
      const { made, noise } = expected(rowOf(n));
      for (let i = 0; i < headDim; i++) {
        const place = (n - start) * write + i;
        const [to, dim] = [start + Math.floor(place / read), place % read];
        if (to >= end || dim >= headDim) continue;
        if (!(Math.abs(y[rowOf(to) * headDim + dim]! - made[i]!) <= noise[i]!)) return false;
        met++;
        if (to !== n || dim !== i) moved++;
      }
    }
    return 4 * moved >= y.length && 2 * met > y.length; // the elements that do not meet are not explained
  };
  const orders: readonly [words: string, inner: number, rowOf: (n: number) => number][] = [
    ['', heads, (n) => n],
    [
      ' of each head',
      seq,
      (n) => (Math.floor(n / (seq * heads)) * seq + (n % seq)) * heads + (Math.floor(n / seq) % heads),
    ],
  ];
  for (const [words, inner, rowOf] of heads > 1 && seq > 1 ? orders : orders.slice(0, 1))
    for (const buffer of [count, ...new Set([seq * heads, inner, ...BUFFERS])].filter(
      (size) => size > 1 && size <= count,
    ))
      for (let padded = headDim + 1; padded <= headDim + MOST_PADDING; padded++)
        for (const [write, read] of [
          [padded, headDim],
          [headDim, padded],
        ] as const)
          if (gives(write, read, buffer, rowOf)) {
            const each = buffer === count ? '' : `, anew every ${buffer} rows`;
            return [
              `Rows${words} were written ${write} elements apart and read ${read} apart${each}: where both meet, y is as expected.`,
            ];
          }
  return [];
}
