/** rearrange and embedding: elements move bit for bit, so only their size counts. */
import { address, offsetOf, word } from './args';

/** Elements a side of the tiles in which a transposing copy goes: 16 lines of the source stay in the first-level cache. */
const TILE = 16;

// @ts-ignore: decorator
@inline function copyElements<T>(y: usize, x: usize, n: i32, yStride: i32, xStride: i32): void {
  const yStep = <usize>(yStride * <i32>sizeof<T>()), xStep = <usize>(xStride * <i32>sizeof<T>());
  for (let i = 0; i < n; i++) {
    store<T>(y, load<T>(x));
    y += yStep;
    x += xStep;
  }
}

/** Copies n elements of `size` bytes, strides in elements. */
// @ts-ignore: decorator
@inline export function copyRun(size: i32, y: usize, x: usize, n: i32, yStride: i32, xStride: i32): void {
  if (yStride == 1 && xStride == 1) memory.copy(y, x, <usize>(n * size));
  else if (size == 4) copyElements<u32>(y, x, n, yStride, xStride);
  else if (size == 2) copyElements<u16>(y, x, n, yStride, xStride);
  else if (size == 8) copyElements<u64>(y, x, n, yStride, xStride);
  else copyElements<u8>(y, x, n, yStride, xStride);
}

/**
 * Copies planes of rows `from … to - 1`, each `rows × n` elements.
 *
 * Words: 0 x, 1 y, 2 element size in bytes, 3 n, 4 x's stride, 5 y's stride, 6 rows of a plane, 7 x's row stride, 8 y's row stride,
 * 9 rank of the planes, then sizes, x's strides, y's strides (rank words each).
 */
export function rearrange(args: usize, from: i32, to: i32): void {
  const size = word(args, 2), n = word(args, 3), xStride = word(args, 4), yStride = word(args, 5);
  const rows = word(args, 6), xRow = word(args, 7) * size, yRow = word(args, 8) * size, rank = word(args, 9);
  const step = (<usize>rank) << 2, dims = args + 40;
  const tile = xStride == 1 && yStride == 1 ? n : TILE;
  for (let u = from; u < to; u++) {
    const x = address(args, 0) + <usize>(offsetOf(u, rank, dims, dims + step) * size);
    const y = address(args, 1) + <usize>(offsetOf(u, rank, dims, dims + 2 * step) * size);
    for (let start = 0; start < n; start += tile) {
      const count = min(tile, n - start);
      for (let r = 0; r < rows; r++) {
        const xAt = x + <usize>(start * xStride * size + r * xRow), yAt = y + <usize>(start * yStride * size + r * yRow);
        copyRun(size, yAt, xAt, count, yStride, xStride);
      }
    }
  }
}

/**
 * Copies rows `from … to - 1` of a look-up.
 *
 * Words: 0 table, 1 y, 2 index (i32), 3 element size in bytes, 4 width, 5 table's row stride, 6 table's stride, 7 y's row stride, 8 y's stride.
 */
export function embedding(args: usize, from: i32, to: i32): void {
  const size = word(args, 3), width = word(args, 4);
  for (let r = from; r < to; r++) {
    const row = load<i32>(address(args, 2) + ((<usize>r) << 2));
    const x = address(args, 0) + <usize>row * <usize>(word(args, 5) * size);
    copyRun(size, address(args, 1) + <usize>(r * word(args, 7) * size), x, width, word(args, 8), word(args, 6));
  }
}
