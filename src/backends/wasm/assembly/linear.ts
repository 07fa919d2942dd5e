/**
 * linear: y = x·Wᵀ + bias. Few rows of x are scalar products with rows of W as they stream by; many rows go through packed tiles.
 *
 * Sums are f32, in an order that depends on the shapes alone: not on threads.
 */
import { address, offsetOf, word } from './args';
import {
  absF16, allNumbersF16, bytes, bytesOf, firstFour, lastFour, load1, lowerF16, madd, placesF16, readRowOf, scaleF16, store1, upperF16,
  widenHigh, widenLow,
} from './lanes';
import { Q4_0, Q8_0, blockBytes, dotBlocks, dotSplit, splitRow, splitRowBytes, widenBlocks } from './quantised';
import { MR, NR, multiplyTile, packPanelOf } from './tile';

/** Elements of k that a packed slice spans: a panel of B then takes 8 KiB of the first-level cache. */
const KC = 256;
/** Columns of y that a unit computes. */
const NC = 64;

// @ts-ignore: decorator
@inline function sumLanes(v: v128): f32 {
  return f32x4.extract_lane(v, 0) + f32x4.extract_lane(v, 1) + (f32x4.extract_lane(v, 2) + f32x4.extract_lane(v, 3));
}

/** One row of W times one of x. */
// @ts-ignore: decorator
@inline function dot1<T>(w: usize, x: usize, k: i32): f32 {
  let a = f32x4.splat(0), b = f32x4.splat(0), c = f32x4.splat(0), d = f32x4.splat(0);
  let i = 0;
  for (; i + 16 <= k; i += 16) {
    const at = x + ((<usize>i) << 2), p = w + <usize>i * bytes<T>();
    if (isFloat<T>()) {
      a = madd(v128.load(p), v128.load(at), a);
      b = madd(v128.load(p, 16), v128.load(at, 16), b);
      c = madd(v128.load(p, 32), v128.load(at, 32), c);
      d = madd(v128.load(p, 48), v128.load(at, 48), d);
    } else {
      const first = v128.load(p), second = v128.load(p, 16);
      a = madd(widenLow<T>(first), v128.load(at), a);
      b = madd(widenHigh<T>(first), v128.load(at, 16), b);
      c = madd(widenLow<T>(second), v128.load(at, 32), c);
      d = madd(widenHigh<T>(second), v128.load(at, 48), d);
    }
  }
  let sum = sumLanes(f32x4.add(f32x4.add(a, b), f32x4.add(c, d)));
  for (; i < k; i++) sum += load1<T>(w + <usize>i * bytes<T>()) * load<f32>(x + ((<usize>i) << 2));
  return sum;
}

/**
 * {@link dot1} of f16, to the bit, in half the time: infinities and NaN are only looked for, and a row that has one is summed anew.
 * Measured on one core, weights out of cache: 15 GB/s; 8 where each element is widened with them in mind.
 */
// @ts-ignore: decorator
@inline function dotF16(w: usize, x: usize, k: i32): f32 {
  let a = f32x4.splat(0), b = f32x4.splat(0), c = f32x4.splat(0), d = f32x4.splat(0), largest = i16x8.splat(0);
  const abs = absF16(), places = placesF16(), scale = scaleF16();
  let i = 0;
  for (; i + 16 <= k; i += 16) {
    const at = x + ((<usize>i) << 2), p = w + ((<usize>i) << 1);
    const first = v128.load(p), second = v128.load(p, 16);
    largest = i16x8.max_s(i16x8.max_s(v128.and(first, abs), v128.and(second, abs)), largest);
    let upper = upperF16(first, places), lower = lowerF16(first);
    a = madd(f32x4.mul(firstFour(lower, upper), scale), v128.load(at), a);
    b = madd(f32x4.mul(lastFour(lower, upper), scale), v128.load(at, 16), b);
    upper = upperF16(second, places);
    lower = lowerF16(second);
    c = madd(f32x4.mul(firstFour(lower, upper), scale), v128.load(at, 32), c);
    d = madd(f32x4.mul(lastFour(lower, upper), scale), v128.load(at, 48), d);
  }
  if (!allNumbersF16(largest)) return dot1<u16>(w, x, k);
  let sum = sumLanes(f32x4.add(f32x4.add(a, b), f32x4.add(c, d)));
  for (; i < k; i++) sum += load1<u16>(w + ((<usize>i) << 1)) * load<f32>(x + ((<usize>i) << 2));
  return sum;
}

// @ts-ignore: decorator
@inline function dotOf(type: i32, w: usize, x: usize, k: i32): f32 {
  if (type == 0) return dot1<f32>(w, x, k);
  if (type == 1) return dotF16(w, x, k);
  if (type == 2) return dot1<i16>(w, x, k);
  return type == Q8_0 ? dotBlocks(Q8_0, w, x, k >> 5) : dotBlocks(Q4_0, w, x, k >> 5);
}

// @ts-ignore: decorator
@inline function storeOf(type: i32, p: usize, value: f32): void {
  if (type == 0) store1<f32>(p, value);
  else if (type == 1) store1<u16>(p, value);
  else store1<i16>(p, value);
}

// @ts-ignore: decorator
@inline function biasOf(type: i32, bias: usize, stride: i32, column: i32): f32 {
  if (!bias) return 0;
  const p = bias + <usize>(column * stride) * bytesOf(type);
  return type == 0 ? load1<f32>(p) : type == 1 ? load1<u16>(p) : load1<i16>(p);
}

/**
 * Reads rows `from … to - 1` of x as dense f32.
 *
 * Words: 0 x, 1 to, 2 type, 3 k, 4 x's stride, 5 first row, 6–8 unused, 9 rank of the rows, then sizes and x's strides.
 */
export function widenRows(args: usize, from: i32, to: i32): void {
  const type = word(args, 2), k = word(args, 3), rank = word(args, 9), dims = args + 40;
  for (let r = from; r < to; r++) {
    const row = offsetOf(r + word(args, 5), rank, dims, dims + ((<usize>rank) << 2));
    const x = address(args, 0) + <usize>row * bytesOf(type);
    readRowOf(type, address(args, 1) + (<usize>(r * k) << 2), x, k, word(args, 4));
  }
}

/**
 * Computes columns `from … to - 1` of y for a few rows of x.
 *
 * Words: 0 x (f32, dense `[m, k]`), 1 W, 2 bias or 0, 3 y, 4 W's type, 5 y's type, 6 m, 7 k, 8 bytes from row to row of W, 9 rank of y's rows,
 * 10 y's stride, 11 bias's stride, 12 bias's type, then sizes and y's strides.
 */
export function linearFew(args: usize, from: i32, to: i32): void {
  const x = address(args, 0), bias = address(args, 2), type = word(args, 4), outType = word(args, 5);
  const m = word(args, 6), k = word(args, 7), rank = word(args, 9), yStride = word(args, 10), biasStride = word(args, 11);
  const biasType = word(args, 12), dims = args + 52;
  for (let column = from; column < to; column++) {
    const w = address(args, 1) + <usize>column * <usize>word(args, 8);
    const add = biasOf(biasType, bias, biasStride, column);
    for (let r = 0; r < m; r++) {
      const y = offsetOf(r, rank, dims, dims + ((<usize>rank) << 2)) + column * yStride;
      storeOf(outType, address(args, 3) + <usize>y * bytesOf(outType), dotOf(type, w, x + (<usize>(r * k) << 2), k) + add);
    }
  }
}

/** Splits rows `from … to - 1` of x for {@link linearBlocks}. Words: 0 x (f32, dense `[m, k]`), 1 to, 2 k. */
export function splitRows(args: usize, from: i32, to: i32): void {
  const k = word(args, 2), blocks = k >> 5;
  for (let r = from; r < to; r++) {
    splitRow(address(args, 1) + <usize>r * splitRowBytes(blocks), address(args, 0) + (<usize>(r * k) << 2), blocks);
  }
}

/**
 * {@link linearFew} of blocks: unit u is columns u and u + n/2, where there is one. Two rows of W share the loads of x, and come from two long streams:
 * neighbours, read in turns, defeat the prefetcher (4.6 GB/s instead of 11, out of cache).
 *
 * Words: those of linearFew, with y's columns n at 13, split x at 14, and sizes and strides from 15 on.
 */
export function linearBlocks(args: usize, from: i32, to: i32): void {
  const bias = address(args, 2), type = word(args, 4), outType = word(args, 5), m = word(args, 6), k = word(args, 7);
  const rank = word(args, 9), yStride = word(args, 10), biasStride = word(args, 11), biasType = word(args, 12), n = word(args, 13);
  const dims = args + 60, blocks = k >> 5, half = (n + 1) >> 1, rowBytes = <usize>word(args, 8);
  for (let u = from; u < to; u++) {
    const column = u, other = min(u + half, n - 1);
    const w0 = address(args, 1) + <usize>column * rowBytes, w1 = address(args, 1) + <usize>other * rowBytes;
    for (let r = 0; r < m; r++) {
      const split = address(args, 14) + <usize>r * splitRowBytes(blocks);
      const x = address(args, 0) + (<usize>(r * k) << 2);
      let sum0: f32 = NaN, sum1: f32 = NaN;
      if (!load<i32>(split)) {
        const sums = type == Q8_0 ? dotSplit(Q8_0, w0, w1, split, blocks) : dotSplit(Q4_0, w0, w1, split, blocks);
        sum0 = f32x4.extract_lane(sums, 0);
        sum1 = f32x4.extract_lane(sums, 1);
      }
      // A row that could not be split; or a scale that is no number, at which a part of 0 makes an infinity NaN.
      if (!isFinite<f32>(sum0)) sum0 = dotOf(type, w0, x, k);
      if (!isFinite<f32>(sum1)) sum1 = dotOf(type, w1, x, k);
      const y = address(args, 3) + <usize>(offsetOf(r, rank, dims, dims + ((<usize>rank) << 2)) + column * yStride) * bytesOf(outType);
      storeOf(outType, y, sum0 + biasOf(biasType, bias, biasStride, column));
      if (column + half < n) {
        const next = y + <usize>(half * yStride) * bytesOf(outType);
        storeOf(outType, next, sum1 + biasOf(biasType, bias, biasStride, other));
      }
    }
  }
}

/**
 * Packs panels `from … to - 1` of MR rows of x.
 *
 * Words: 0 x, 1 to (f32 `[panels][k][MR]`), 2 type, 3 k, 4 x's stride, 5 first row, 6 rows in all of this block, 7–8 unused,
 * 9 rank of the rows, then sizes and x's strides.
 */
export function packRows(args: usize, from: i32, to: i32): void {
  const type = word(args, 2), k = word(args, 3), rows = word(args, 6), rank = word(args, 9), dims = args + 40;
  for (let p = from; p < to; p++) {
    const panel = address(args, 1) + (<usize>(p * k * MR) << 2);
    const count = min(MR, rows - p * MR);
    // Rows of a panel may lie anywhere, so each is packed alone, except where they are evenly spaced, as nearly always.
    const first = offsetOf(word(args, 5) + p * MR, rank, dims, dims + ((<usize>rank) << 2));
    let even = 0, regular = true;
    for (let r = 1; r < count; r++) {
      const next = offsetOf(word(args, 5) + p * MR + r, rank, dims, dims + ((<usize>rank) << 2));
      if (r == 1) even = next - first;
      else if (next - first != even * r) regular = false;
    }
    if (regular) {
      packPanelOf(type, panel, address(args, 0) + <usize>first * bytesOf(type), count, MR, k, even, word(args, 4), 1);
      continue;
    }
    for (let r = 0; r < MR; r++) {
      const at = r < count ? offsetOf(word(args, 5) + p * MR + r, rank, dims, dims + ((<usize>rank) << 2)) : 0;
      for (let i = 0; i < k; i++) {
        const from = address(args, 0) + <usize>(at + i * word(args, 4)) * bytesOf(type);
        const value: f32 = r >= count ? 0 : type == 0 ? load1<f32>(from) : type == 1 ? load1<u16>(from) : load1<i16>(from);
        store<f32>(panel + (<usize>(i * MR + r) << 2), value);
      }
    }
  }
}

/**
 * Computes blocks of 64 columns of y, from packed rows of x.
 *
 * Words: 0 packed x, 1 W, 2 bias or 0, 3 y, 4 W's type, 5 y's type, 6 rows of this block, 7 k, 8 n, 9 W's row stride in elements (bytes of a
 * row for blocks), 10 W's stride, 11 y's stride, 12 bias's stride, 13 first row of y, 14 rank of y's rows, 15 bias's type, then sizes and
 * y's strides.
 * @param scratch - this thread's: f32 `[256][64]` of W, then `[rows, 64]` of sums
 */
export function linearMany(args: usize, from: i32, to: i32, scratch: usize): void {
  const bias = address(args, 2), type = word(args, 4), outType = word(args, 5), m = word(args, 6), k = word(args, 7), n = word(args, 8);
  const rowStride = word(args, 9), stride = word(args, 10), rank = word(args, 14), biasType = word(args, 15), dims = args + 64;
  const packed = scratch, sums = scratch + KC * NC * 4;
  const panels = (m + MR - 1) / MR;
  for (let u = from; u < to; u++) {
    const column = u * NC, columns = min(NC, n - column);
    const columnPanels = (columns + NR - 1) / NR;
    memory.fill(sums, 0, <usize>(panels * MR * NC) << 2);
    for (let start = 0; start < k; start += KC) {
      const depth = min(KC, k - start);
      for (let q = 0; q < columnPanels; q++) {
        const panel = packed + (<usize>(q * KC * NR) << 2);
        const first = column + q * NR, count = min(NR, n - first);
        if (type >= Q8_0) {
          for (let c = 0; c < NR; c++) {
            const to = panel + ((<usize>c) << 2);
            if (c < count) {
              const row = address(args, 1) + <usize>(first + c) * <usize>rowStride + <usize>(start >> 5) * blockBytes(type);
              widenBlocks(type, to, NR * 4, row, depth >> 5);
            } else for (let i = 0; i < depth; i++) store<f32>(to + <usize>(i * NR * 4), 0);
          }
        } else {
          const w = address(args, 1) + (<usize>first * <usize>rowStride + <usize>(start * stride)) * bytesOf(type);
          packPanelOf(type, panel, w, count, NR, depth, rowStride, stride, 1);
        }
      }
      for (let p = 0; p < panels; p++) {
        const a = address(args, 0) + (<usize>((p * k + start) * MR) << 2);
        const c = sums + (<usize>(p * MR * NC) << 2);
        for (let q = 0; q < columnPanels; q++) {
          multiplyTile(c + (<usize>(q * NR) << 2), NC * 4, a, packed + (<usize>(q * KC * NR) << 2), depth);
        }
      }
    }
    for (let r = 0; r < m; r++) {
      const y = offsetOf(word(args, 13) + r, rank, dims, dims + ((<usize>rank) << 2)) + column * word(args, 11);
      const row = sums + (<usize>(r * NC) << 2);
      for (let c = 0; c < columns; c++) {
        const value = load<f32>(row + ((<usize>c) << 2)) + biasOf(biasType, bias, word(args, 12), column + c);
        storeOf(outType, address(args, 3) + <usize>(y + c * word(args, 11)) * bytesOf(outType), value);
      }
    }
  }
}
