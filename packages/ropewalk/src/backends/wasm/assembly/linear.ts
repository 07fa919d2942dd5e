/**
 * linear: y = x·Wᵀ + bias. Few rows of x are multiplied by each row of W as it streams by; many rows go through packed
 * tiles.
 *
 * Sums are f32, in an order that depends on the shapes alone: not on threads. In this order a part of a sum may overflow
 * where the sum does not. That leaves an infinity or a NaN: then the row is computed again in f64, where no product of
 * two f32 and no sum of them overflows.
 */
import {
  KC, Linear, NC, NR, ROUNDED_BLOCK, ROUNDED_ROWS, Rows, SPLIT_HEAD, Type, UNIT, WeighRows,
} from '../abi';
import { address, listed, offsetOf, place, word } from './args';
import {
  absF16, allNumbersF16, bytes, bytesOf, firstFour, laneOf, lastFour, load1, load1Of, lowerF16, madd, placesF16,
  readRowOf, scaleF16, store1Of, upperF16, widenHigh, widenLow, writeRowOf,
} from './lanes';
import { blockBytes, blockShift, isSuper } from './blocks';
import {
  dotBlocks, dotRounded, dotSplit, dotSuper, multiplyRounded, packBlocks, PACKED_BLOCK, roundedRowBytes, roundRow,
  splitRow, splitRowBytes, widenBlocks,
} from './quantized';
import { MR, multiplyTile, packPanelOf } from './tile';

@inline function sumLanes(v: v128): f32 {
  return f32x4.extract_lane(v, 0) + f32x4.extract_lane(v, 1) + (f32x4.extract_lane(v, 2) + f32x4.extract_lane(v, 3));
}

/**
 * Multiplies a row of W by one of x, in f64.
 *
 * @param step - the elements from weight to weight
 * @param xBytes - the bytes from element to element of x, f32
 */
function dotWide(type: i32, w: usize, step: i32, x: usize, xBytes: usize, k: i32): f64 {
  const bytes = <usize>step * bytesOf(type);
  let sum: f64 = 0;
  for (; k > 0; k--, w += bytes, x += xBytes) sum += <f64>load1Of(type, w) * <f64>load<f32>(x);
  return sum;
}

/** Adds the products of eight elements to a sum: two in a lane first, so that it is half as long. */
@inline function addEight(sum: v128, low: v128, high: v128, x0: v128, x1: v128): v128 {
  return f32x4.add(sum, madd(high, x1, f32x4.mul(low, x0)));
}

@inline function addEightOf<T>(sum: v128, w: usize, x0: v128, x1: v128): v128 {
  if (isFloat<T>()) return addEight(sum, v128.load(w), v128.load(w, 16), x0, x1);
  const raw = v128.load(w);
  return addEight(sum, widenLow<T>(raw), widenHigh<T>(raw), x0, x1);
}

/** Does {@link addEight} for finite f16; x0 and x1 are 2^112 times as large. */
@inline function addEightF16(sum: v128, raw: v128, x0: v128, x1: v128, places: v128): v128 {
  const upper = upperF16(raw, places), lower = lowerF16(raw);
  return addEight(sum, firstFour(lower, upper), lastFour(lower, upper), x0, x1);
}

/** Adds up a row from four lanes of sums and its elements `i … k - 1`. */
@inline function sumRow<T>(lanes: v128, w: usize, x: usize, i: i32, k: i32): f32 {
  let sum = sumLanes(lanes);
  for (; i < k; i++) sum += load1<T>(w + <usize>i * bytes<T>()) * load<f32>(place(x, i));
  return sum;
}

@inline function fourLanes(a: f32, b: f32, c: f32, d: f32): v128 {
  const first = f32x4.replace_lane(f32x4.splat(a), 1, b);
  return f32x4.replace_lane(f32x4.replace_lane(first, 2, c), 3, d);
}

/** Multiplies four rows of W by one of x. */
@inline function dot4<T>(w0: usize, w1: usize, w2: usize, w3: usize, x: usize, k: i32): v128 {
  let a = f32x4.splat(0), b = f32x4.splat(0), c = f32x4.splat(0), d = f32x4.splat(0);
  let i = 0;
  for (; i + 8 <= k; i += 8) {
    const x0 = v128.load(place(x, i)), x1 = v128.load(place(x, i), 16), at = <usize>i * bytes<T>();
    a = addEightOf<T>(a, w0 + at, x0, x1);
    b = addEightOf<T>(b, w1 + at, x0, x1);
    c = addEightOf<T>(c, w2 + at, x0, x1);
    d = addEightOf<T>(d, w3 + at, x0, x1);
  }
  return fourLanes(
    sumRow<T>(a, w0, x, i, k), sumRow<T>(b, w1, x, i, k), sumRow<T>(c, w2, x, i, k), sumRow<T>(d, w3, x, i, k),
  );
}

/**
 * Does {@link dot4} for f16 with the same bits in half the time: x is multiplied by 2^112 in place of four rows of W. A row with an
 * infinity or a NaN is noticed, and an x of 2^16 or more makes one of a sum: then dot4 sums again.
 */
@inline function dot4F16(w0: usize, w1: usize, w2: usize, w3: usize, x: usize, k: i32): v128 {
  let a = f32x4.splat(0), b = f32x4.splat(0), c = f32x4.splat(0), d = f32x4.splat(0), largest = i16x8.splat(0);
  const abs = absF16(), places = placesF16(), scale = scaleF16();
  let i = 0;
  for (; i + 8 <= k; i += 8) {
    const x0 = f32x4.mul(v128.load(place(x, i)), scale), x1 = f32x4.mul(v128.load(place(x, i), 16), scale);
    const at = (<usize>i) << 1;
    let raw = v128.load(w0 + at);
    largest = i16x8.max_s(v128.and(raw, abs), largest);
    a = addEightF16(a, raw, x0, x1, places);
    raw = v128.load(w1 + at);
    largest = i16x8.max_s(v128.and(raw, abs), largest);
    b = addEightF16(b, raw, x0, x1, places);
    raw = v128.load(w2 + at);
    largest = i16x8.max_s(v128.and(raw, abs), largest);
    c = addEightF16(c, raw, x0, x1, places);
    raw = v128.load(w3 + at);
    largest = i16x8.max_s(v128.and(raw, abs), largest);
    d = addEightF16(d, raw, x0, x1, places);
  }
  const sum = f32x4.add(f32x4.add(a, b), f32x4.add(c, d)), zeros = f32x4.sub(sum, sum);
  if (!allNumbersF16(largest) || v128.any_true(f32x4.ne(zeros, zeros))) return dot4<u16>(w0, w1, w2, w3, x, k);
  return fourLanes(
    sumRow<u16>(a, w0, x, i, k), sumRow<u16>(b, w1, x, i, k),
    sumRow<u16>(c, w2, x, i, k), sumRow<u16>(d, w3, x, i, k),
  );
}

@inline function dot4Of(type: i32, w0: usize, w1: usize, w2: usize, w3: usize, x: usize, k: i32): v128 {
  if (type == Type.f32) return dot4<f32>(w0, w1, w2, w3, x, k);
  if (type == Type.f16) return dot4F16(w0, w1, w2, w3, x, k);
  return dot4<i16>(w0, w1, w2, w3, x, k);
}

/** Computes the scalar products of two rows of blocks with a split row, in lanes 0 and 1. */
@inline function dotTwo(type: i32, row0: usize, row1: usize, split: usize, k: i32): v128 {
  switch (type) {
    case Type.q8_0: return dotSplit(Type.q8_0, row0, row1, split, k >> 5);
    case Type.q4_0: return dotSplit(Type.q4_0, row0, row1, split, k >> 5);
    case Type.iq4_nl: return dotSplit(Type.iq4_nl, row0, row1, split, k >> 5);
    case Type.mxfp4: return dotSplit(Type.mxfp4, row0, row1, split, k >> 5);
    case Type.q4_K: return dotSuper(Type.q4_K, row0, row1, split, k >> 8);
    case Type.q5_K: return dotSuper(Type.q5_K, row0, row1, split, k >> 8);
    case Type.q6_K: return dotSuper(Type.q6_K, row0, row1, split, k >> 8);
    default: return dotSuper(Type.iq4_xs, row0, row1, split, k >> 8);
  }
}

/** Computes the same with a rounded row. */
@inline function dotTwoRounded(type: i32, row0: usize, row1: usize, rounded: usize, k: i32): v128 {
  if (type == Type.q8_0) return dotRounded(Type.q8_0, row0, row1, rounded, k >> 5);
  return dotRounded(Type.q4_0, row0, row1, rounded, k >> 5);
}

/** Loads the bias of a column of y; 0 where there is none. */
@inline function biasOf(args: usize, column: i32): f32 {
  const bias = address(args, Linear.bias), type = word(args, Linear.biasType);
  return bias ? load1Of(type, bias + <usize>(column * word(args, Linear.biasStride)) * bytesOf(type)) : 0;
}

/** Gives the address of y at a row and a column. */
@inline function yAt(args: usize, row: i32, column: i32): usize {
  const line = offsetOf(place(args, Linear.walk), 0, listed(args, Linear.yRows, row));
  const y = line + column * word(args, Linear.yStride);
  return address(args, Linear.y) + <usize>y * bytesOf(word(args, Linear.yType));
}

/** Gives the bytes from row to row of the weight. */
@inline function weightRowBytes(args: usize): usize {
  const type = word(args, Linear.weightType);
  return <usize>word(args, Linear.weightRow) * (type >= Type.q8_0 ? 1 : bytesOf(type));
}

/** Reads rows `from … to - 1` as dense f32. */
export function widenRows(args: usize, from: i32, to: i32): void {
  const type = word(args, Rows.type), k = word(args, Rows.k), walk = place(args, Rows.walk);
  for (let r = from; r < to; r++) {
    const row = listed(args, Rows.list, r + word(args, Rows.first));
    const x = address(args, Rows.x) + <usize>offsetOf(walk, 0, row) * bytesOf(type);
    readRowOf(type, place(address(args, Rows.to), r * k), x, k, word(args, Rows.stride));
  }
}

/**
 * Computes columns of y for a few rows of x: unit u is columns u, u + n/4, u + n/2 and u + 3n/4, as far as they exist.
 * Four long streams through W are read faster than one, or than four neighbours in turns.
 */
export function linearFew(args: usize, from: i32, to: i32): void {
  const x = address(args, Linear.x), type = word(args, Linear.weightType), yType = word(args, Linear.yType);
  const m = word(args, Linear.m), k = word(args, Linear.k), n = word(args, Linear.n), rowBytes = weightRowBytes(args);
  const weight = address(args, Linear.weight), quarter = (n + 3) >> 2, last = n - 1;
  for (let u = from; u < to; u++) {
    const w0 = weight + <usize>u * rowBytes, w1 = weight + <usize>min(u + quarter, last) * rowBytes;
    const w2 = weight + <usize>min(u + 2 * quarter, last) * rowBytes;
    const w3 = weight + <usize>min(u + 3 * quarter, last) * rowBytes;
    for (let r = 0; r < m; r++) {
      const x0 = place(x, listed(args, Linear.xRows, r) * k), sums = dot4Of(type, w0, w1, w2, w3, x0, k);
      for (let i = 0, column = u; i < 4 && column < n; i++, column += quarter) {
        const sum = laneOf(sums, i);
        let y = sum + biasOf(args, column);
        if (!isFinite<f32>(sum)) {
          y = <f32>(dotWide(type, weight + <usize>column * rowBytes, 1, x0, 4, k) + <f64>biasOf(args, column));
        }
        store1Of(yType, yAt(args, r, column), y);
      }
    }
  }
}

/** Splits rows `from … to - 1` of x, dense f32, for {@link linearBlocks}; `type` is that of the weights. */
export function splitRows(args: usize, from: i32, to: i32): void {
  const k = word(args, Rows.k), units = k >> 5, group = isSuper(word(args, Rows.type)) ? 8 : 1;
  for (let r = from; r < to; r++) {
    const split = address(args, Rows.to) + <usize>r * splitRowBytes(units);
    splitRow(split, place(address(args, Rows.x), r * k), units, group);
  }
}

/** Rounds rows `from … to - 1` of x, dense f32, to 8 bits, in place; `type` is that of the weights. */
export function roundRows(args: usize, from: i32, to: i32): void {
  const k = word(args, Rows.k), units = k >> 5, rounded = address(args, Rows.to);
  for (let r = from; r < to; r++) {
    const row = rounded ? rounded + <usize>r * roundedRowBytes(units) : 0;
    roundRow(word(args, Rows.type), row, place(address(args, Rows.x), r * k), units);
  }
}

/**
 * Does {@link linearFew} for blocks: unit u is columns u and u + n/2, if there is one. Two rows of W share the loads of x.
 * They are far apart, two long streams: reading neighbours in turns defeats the prefetcher (4.6 GB/s instead of 11, out
 * of cache).
 */
export function linearBlocks(args: usize, from: i32, to: i32): void {
  const type = word(args, Linear.weightType), yType = word(args, Linear.yType);
  const m = word(args, Linear.m), k = word(args, Linear.k), n = word(args, Linear.n);
  const half = (n + 1) >> 1, units = k >> 5, rounded = word(args, Linear.rounded);
  const splitBytes = rounded ? roundedRowBytes(units) : splitRowBytes(units);
  const weight = address(args, Linear.weight), rowBytes = weightRowBytes(args);
  for (let u = from; u < to; u++) {
    const other = min(u + half, n - 1), w0 = weight + <usize>u * rowBytes, w1 = weight + <usize>other * rowBytes;
    for (let r = 0; r < m; r++) {
      const row = listed(args, Linear.xRows, r);
      const split = address(args, Linear.split) + <usize>row * splitBytes;
      const x = place(address(args, Linear.x), row * k);
      let sum0: f32 = NaN, sum1: f32 = NaN;
      if (!load<i32>(split)) {
        const sums = rounded ? dotTwoRounded(type, w0, w1, split, k) : dotTwo(type, w0, w1, split, k);
        sum0 = f32x4.extract_lane(sums, 0);
        sum1 = f32x4.extract_lane(sums, 1);
      }
      // The sum is also NaN where the row could not be split, or where an infinite scale multiplies a part of 0.
      const bias0 = biasOf(args, u), bias1 = biasOf(args, other);
      sum0 = isFinite<f32>(sum0) ? sum0 + bias0 : <f32>(dotBlocks(type, w0, x, k, 0) + <f64>bias0);
      sum1 = isFinite<f32>(sum1) ? sum1 + bias1 : <f32>(dotBlocks(type, w1, x, k, 0) + <f64>bias1);
      store1Of(yType, yAt(args, r, u), sum0);
      if (u + half < n) store1Of(yType, yAt(args, r, other), sum1);
    }
  }
}

/** Packs panels `from … to - 1` of MR rows of x, as f32 `[panels][k][MR]`. */
export function packRows(args: usize, from: i32, to: i32): void {
  const type = word(args, Rows.type), k = word(args, Rows.k), stride = word(args, Rows.stride);
  const walk = place(args, Rows.walk), x = address(args, Rows.x);
  for (let p = from; p < to; p++) {
    const panel = place(address(args, Rows.to), p * k * MR);
    const count = min(MR, word(args, Rows.count) - p * MR), row = word(args, Rows.first) + p * MR;
    // Rows of a panel may lie anywhere, so each is packed alone, except where they are evenly spaced, as nearly always.
    const first = offsetOf(walk, 0, listed(args, Rows.list, row));
    let even = 0, regular = true;
    for (let r = 1; r < count; r++) {
      const next = offsetOf(walk, 0, listed(args, Rows.list, row + r));
      if (r == 1) even = next - first;
      else if (next - first != even * r) regular = false;
    }
    if (regular) {
      packPanelOf(type, panel, x + <usize>first * bytesOf(type), count, MR, k, even, stride);
      continue;
    }
    for (let r = 0; r < MR; r++) {
      const at = r < count ? offsetOf(walk, 0, listed(args, Rows.list, row + r)) : 0;
      for (let i = 0; i < k; i++) {
        const value: f32 = r < count ? load1Of(type, x + <usize>(at + i * stride) * bytesOf(type)) : 0;
        store<f32>(place(panel, i * MR + r), value);
      }
    }
  }
}

/**
 * Computes blocks of NC columns of y, from packed rows of x.
 *
 * @param scratch - memory of this thread: f32 `[KC][NC]` of W, then `[rows, NC]` of sums
 */
export function linearMany(args: usize, from: i32, to: i32, scratch: usize): void {
  const type = word(args, Linear.weightType), yType = word(args, Linear.yType);
  const stride = word(args, Linear.weightStride);
  const m = word(args, Linear.m), k = word(args, Linear.k), n = word(args, Linear.n), panels = (m + MR - 1) / MR;
  const packed = scratch, sums = scratch + KC * NC * 4;
  const weight = address(args, Linear.weight), rowBytes = weightRowBytes(args);
  for (let u = from; u < to; u++) {
    const column = u * NC, columns = min(NC, n - column), columnPanels = (columns + NR - 1) / NR;
    memory.fill(sums, 0, <usize>(panels * MR * NC) << 2);
    for (let start = 0; start < k; start += KC) {
      const depth = min(KC, k - start);
      for (let q = 0; q < columnPanels; q++) {
        const panel = place(packed, q * KC * NR), first = column + q * NR, count = min(NR, n - first);
        const w = weight + <usize>first * rowBytes;
        if (type >= Type.q8_0) {
          for (let c = 0; c < NR; c++) {
            const to = place(panel, c);
            if (c < count) {
              const row = w + <usize>c * rowBytes + <usize>(start >> blockShift(type)) * blockBytes(type);
              widenBlocks(type, to, NR * 4, row, depth >> 5);
            } else for (let i = 0; i < depth; i++) store<f32>(place(to, i * NR), 0);
          }
        } else {
          const from = w + <usize>(start * stride) * bytesOf(type);
          packPanelOf(type, panel, from, count, NR, depth, word(args, Linear.weightRow), stride);
        }
      }
      for (let p = 0; p < panels; p++) {
        const a = place(address(args, Linear.x), (p * k + start) * MR), c = place(sums, p * MR * NC);
        for (let q = 0; q < columnPanels; q++) {
          multiplyTile(place(c, q * NR), NC * 4, a, place(packed, q * KC * NR), depth);
        }
      }
    }
    for (let r = 0; r < m; r++) {
      const y = yAt(args, word(args, Linear.first) + r, column);
      const step = <usize>word(args, Linear.yStride) * bytesOf(yType);
      const x = place(address(args, Linear.x), (r - r % MR) * k + r % MR);
      for (let c = 0; c < columns; c++) {
        const sum = load<f32>(place(sums, r * NC + c)), bias = biasOf(args, column + c);
        let value = sum + bias;
        if (!isFinite<f32>(sum)) {
          const w = weight + <usize>(column + c) * rowBytes;
          const wide = type >= Type.q8_0 ? dotBlocks(type, w, x, k, packed, MR) : dotWide(type, w, stride, x, MR * 4, k);
          value = <f32>(wide + <f64>bias);
        }
        store1Of(yType, y + <usize>c * step, value);
      }
    }
  }
}

/**
 * Does {@link linearMany} for rows that {@link roundRows} wrote, and blocks of q8_0 or q4_0.
 *
 * @param scratch - that of linearMany, with rows for whole tiles
 */
export function linearRounded(args: usize, from: i32, to: i32, scratch: usize): void {
  const type = word(args, Linear.weightType), yType = word(args, Linear.yType);
  const m = word(args, Linear.m), k = word(args, Linear.k), n = word(args, Linear.n), units = k >> 5;
  const packed = scratch, sums = scratch + KC * NC * 4, panel: usize = (KC / UNIT) * PACKED_BLOCK;
  const weight = address(args, Linear.weight), rowBytes = weightRowBytes(args);
  const x = address(args, Linear.split), xBytes = roundedRowBytes(units);
  for (let u = from; u < to; u++) {
    const column = u * NC, columns = min(NC, n - column);
    memory.fill(sums, 0, <usize>((m + ROUNDED_ROWS - 1) / ROUNDED_ROWS * ROUNDED_ROWS * NC) << 2);
    for (let start = 0; start < units; start += KC / UNIT) {
      const blocks = min(KC / UNIT, units - start);
      for (let c = 0; c < columns; c += NR) {
        const w = weight + <usize>(column + c) * rowBytes + <usize>start * blockBytes(type);
        packBlocks(type, packed + <usize>(c / NR) * panel, w, rowBytes, min(NR, columns - c), blocks);
      }
      const at = x + SPLIT_HEAD + <usize>start * ROUNDED_BLOCK;
      for (let r = 0; r < m; r += ROUNDED_ROWS) {
        // A missing row repeats the last one.
        const x0 = at + <usize>listed(args, Linear.xRows, r) * xBytes;
        const x1 = at + <usize>listed(args, Linear.xRows, min(r + 1, m - 1)) * xBytes;
        const x2 = at + <usize>listed(args, Linear.xRows, min(r + 2, m - 1)) * xBytes;
        const x3 = at + <usize>listed(args, Linear.xRows, min(r + 3, m - 1)) * xBytes;
        for (let c = 0; c < columns; c += NR) {
          const own = packed + <usize>(c / NR) * panel;
          multiplyRounded(place(sums, r * NC + c), NC * 4, x0, x1, x2, x3, own, blocks);
        }
      }
    }
    for (let r = 0; r < m; r++) {
      const y = yAt(args, word(args, Linear.first) + r, column), row = listed(args, Linear.xRows, r);
      const step = <usize>word(args, Linear.yStride) * bytesOf(yType), special = load<i32>(x + <usize>row * xBytes);
      for (let c = 0; c < columns; c++) {
        const sum = load<f32>(place(sums, r * NC + c)), bias = biasOf(args, column + c);
        let value = sum + bias;
        if (special || !isFinite<f32>(sum)) {
          const w = weight + <usize>(column + c) * rowBytes;
          value = <f32>(dotBlocks(type, w, place(address(args, Linear.x), row * k), k, 0) + <f64>bias);
        }
        store1Of(yType, y + <usize>c * step, value);
      }
    }
  }
}

/**
 * Adds up the weighted rows of tokens `from … to - 1`.
 *
 * @param scratch - memory of this thread: f32 `[n]`
 */
export function weighRows(args: usize, from: i32, to: i32, scratch: usize): void {
  const chosen = word(args, WeighRows.chosen), n = word(args, WeighRows.n);
  const type = word(args, WeighRows.weightsType), yType = word(args, WeighRows.yType);
  for (let t = from; t < to; t++) {
    memory.fill(scratch, 0, (<usize>n) << 2);
    for (let s = 0; s < chosen; s++) {
      const w = t * word(args, WeighRows.weightsToken) + s * word(args, WeighRows.weightsStride);
      const weight = load1Of(type, address(args, WeighRows.weights) + <usize>w * bytesOf(type));
      const x = place(address(args, WeighRows.x), (t * chosen + s) * n), weights = f32x4.splat(weight);
      let i = 0;
      for (; i + 4 <= n; i += 4) {
        const at = place(scratch, i);
        v128.store(at, f32x4.add(v128.load(at), f32x4.mul(weights, v128.load(place(x, i)))));
      }
      for (; i < n; i++) store<f32>(place(scratch, i), load<f32>(place(scratch, i)) + weight * load<f32>(place(x, i)));
    }
    const y = address(args, WeighRows.y) + <usize>(t * word(args, WeighRows.yRow)) * bytesOf(yType);
    writeRowOf(yType, y, scratch, n, word(args, WeighRows.yStride));
  }
}
