/**
 * rearrange and embedding. They copy elements bit for bit, so only the size of an element matters, or convert them.
 */
import { Convert, Embedding, Rearrange, Type } from '../abi';
import { address, offsetOf, place, word } from './args';
import { bytesOf, readRowOf, writeRowOf } from './lanes';
import { widenBlocks } from './quantized';

/** The side of the tiles of a transposing copy, in elements: 16 lines of the source stay in the first-level cache. */
const TILE = 16;

@inline function copyElements<T>(y: usize, x: usize, n: i32, yStride: i32, xStride: i32): void {
  const yStep = <usize>(yStride * <i32>sizeof<T>()), xStep = <usize>(xStride * <i32>sizeof<T>());
  for (let i = 0; i < n; i++) {
    store<T>(y, load<T>(x));
    y += yStep;
    x += xStep;
  }
}

/** Copies n elements of `size` bytes; strides are in elements. */
@inline export function copyRun(size: i32, y: usize, x: usize, n: i32, yStride: i32, xStride: i32): void {
  if (yStride == 1 && xStride == 1) memory.copy(y, x, <usize>(n * size));
  else if (size == 4) copyElements<u32>(y, x, n, yStride, xStride);
  else if (size == 2) copyElements<u16>(y, x, n, yStride, xStride);
  else if (size == 8) copyElements<u64>(y, x, n, yStride, xStride);
  else copyElements<u8>(y, x, n, yStride, xStride);
}

/** Copies planes `from … to - 1`. */
export function rearrange(args: usize, from: i32, to: i32): void {
  const size = word(args, Rearrange.size), n = word(args, Rearrange.n), rows = word(args, Rearrange.rows);
  const xStride = word(args, Rearrange.xStride), yStride = word(args, Rearrange.yStride);
  const xRow = word(args, Rearrange.xRow) * size, yRow = word(args, Rearrange.yRow) * size;
  const walk = place(args, Rearrange.walk), tile = xStride == 1 && yStride == 1 ? n : TILE;
  for (let u = from; u < to; u++) {
    const x = address(args, Rearrange.x) + <usize>(offsetOf(walk, 0, u) * size);
    const y = address(args, Rearrange.y) + <usize>(offsetOf(walk, 1, u) * size);
    for (let start = 0; start < n; start += tile) {
      const count = min(tile, n - start);
      for (let r = 0; r < rows; r++) {
        const xAt = x + <usize>(start * xStride * size + r * xRow);
        const yAt = y + <usize>(start * yStride * size + r * yRow);
        copyRun(size, yAt, xAt, count, yStride, xStride);
      }
    }
  }
}

/** Converts n elements; strides are in elements. `scratch` is f32 `[n]`. y may be x where elements have one size. */
function convertRun(
  yType: i32, y: usize, xType: i32, x: usize, n: i32, yStride: i32, xStride: i32, scratch: usize,
): void {
  if (yType == Type.f32 && yStride == 1) readRowOf(xType, y, x, n, xStride);
  else if (xType == Type.f32 && xStride == 1) writeRowOf(yType, y, x, n, yStride);
  else {
    readRowOf(xType, scratch, x, n, xStride);
    writeRowOf(yType, y, scratch, n, yStride);
  }
}

/**
 * Converts blocks `from … to - 1`.
 *
 * @param scratch - memory of this thread: f32, a block
 */
export function convert(args: usize, from: i32, to: i32, scratch: usize): void {
  const xType = word(args, Convert.xType), yType = word(args, Convert.yType);
  const xStride = word(args, Convert.xStride), yStride = word(args, Convert.yStride);
  const n = word(args, Convert.n), size = word(args, Convert.block), blocks = (n + size - 1) / size;
  const walk = place(args, Convert.walk);
  for (let u = from; u < to; u++) {
    const row = u / blocks, start = (u - row * blocks) * size;
    const x = address(args, Convert.x) + <usize>(offsetOf(walk, 0, row) + start * xStride) * bytesOf(xType);
    const y = address(args, Convert.y) + <usize>(offsetOf(walk, 1, row) + start * yStride) * bytesOf(yType);
    convertRun(yType, y, xType, x, min(size, n - start), yStride, xStride, scratch);
  }
}

/** Gives the address of the table's row of unit r. */
@inline function rowOf(args: usize, r: i32): usize {
  return <usize>load<i32>(place(address(args, Embedding.index), r));
}

/**
 * Looks rows `from … to - 1` up and widens them to f32.
 *
 * @param scratch - memory of this thread: f32 `[width]`
 */
export function embeddingWide(args: usize, from: i32, to: i32, scratch: usize): void {
  const type = word(args, Embedding.type), width = word(args, Embedding.width);
  const yStride = word(args, Embedding.yStride), tableStride = word(args, Embedding.tableStride);
  for (let r = from; r < to; r++) {
    const row = rowOf(args, r) * <usize>word(args, Embedding.tableRow);
    const y = place(address(args, Embedding.y), r * word(args, Embedding.yRow));
    const table = address(args, Embedding.table);
    if (type >= Type.q8_0) widenBlocks(type, y, <usize>(yStride << 2), table + row, width >> 5);
    else convertRun(Type.f32, y, type, table + row * bytesOf(type), width, yStride, tableStride, scratch);
  }
}

/** Looks rows `from … to - 1` up, bit for bit. */
export function embedding(args: usize, from: i32, to: i32): void {
  const size = word(args, Embedding.size), width = word(args, Embedding.width);
  for (let r = from; r < to; r++) {
    const x = address(args, Embedding.table) + rowOf(args, r) * <usize>(word(args, Embedding.tableRow) * size);
    const y = address(args, Embedding.y) + <usize>(r * word(args, Embedding.yRow) * size);
    copyRun(size, y, x, width, word(args, Embedding.yStride), word(args, Embedding.tableStride));
  }
}
