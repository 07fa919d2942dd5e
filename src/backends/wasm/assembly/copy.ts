/** rearrange and embedding: elements move bit for bit, so only their size counts, or become elements of another type. */
import { address, offsetOf, word } from './args';
import { F32, bytesOf, readRowOf, writeRowOf } from './lanes';
import { Q8_0, widenBlocks } from './quantised';

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

/** n elements of one type as another, strides in elements; `scratch` is f32 `[n]`. y may be x where elements have one size. */
function convertRun(yType: i32, y: usize, xType: i32, x: usize, n: i32, yStride: i32, xStride: i32, scratch: usize): void {
  if (yType == F32 && yStride == 1) readRowOf(xType, y, x, n, xStride);
  else if (xType == F32 && xStride == 1) writeRowOf(yType, y, x, n, yStride);
  else {
    readRowOf(xType, scratch, x, n, xStride);
    writeRowOf(yType, y, scratch, n, yStride);
  }
}

/**
 * Converts blocks `from … to - 1`; each row is cut into blocks.
 *
 * Words: 0 x, 1 y, 2 x's type, 3 y's type, 4 elements of a row, 5 elements of a block, 6 x's stride, 7 y's stride, 8 unused,
 * 9 rank of the rows, then sizes, x's strides, y's strides (rank words each).
 * @param scratch - this thread's: f32, a block
 */
export function convert(args: usize, from: i32, to: i32, scratch: usize): void {
  const xType = word(args, 2), yType = word(args, 3), n = word(args, 4), size = word(args, 5), rank = word(args, 9);
  const xStride = word(args, 6), yStride = word(args, 7), blocks = (n + size - 1) / size;
  const step = (<usize>rank) << 2, dims = args + 40;
  for (let u = from; u < to; u++) {
    const row = u / blocks, start = (u - row * blocks) * size;
    const x = address(args, 0) + <usize>(offsetOf(row, rank, dims, dims + step) + start * xStride) * bytesOf(xType);
    const y = address(args, 1) + <usize>(offsetOf(row, rank, dims, dims + 2 * step) + start * yStride) * bytesOf(yType);
    convertRun(yType, y, xType, x, min(size, n - start), yStride, xStride, scratch);
  }
}

/**
 * Looks rows `from … to - 1` up and widens them to f32.
 *
 * Words: 0 table, 1 y, 2 index (i32), 3 table's type, 4 width, 5 table's row stride (bytes of a row for blocks), 6 table's stride,
 * 7 y's row stride, 8 y's stride.
 * @param scratch - this thread's: f32 `[width]`
 */
export function embeddingWide(args: usize, from: i32, to: i32, scratch: usize): void {
  const type = word(args, 3), width = word(args, 4), yStride = word(args, 8);
  for (let r = from; r < to; r++) {
    const row = load<i32>(address(args, 2) + ((<usize>r) << 2));
    const y = address(args, 1) + ((<usize>(r * word(args, 7))) << 2);
    if (type >= Q8_0) {
      const x = address(args, 0) + <usize>row * <usize>word(args, 5);
      widenBlocks(type, y, <usize>(yStride << 2), x, width >> 5);
    } else {
      const x = address(args, 0) + <usize>row * (<usize>word(args, 5) * bytesOf(type));
      convertRun(F32, y, type, x, width, yStride, word(args, 6), scratch);
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
