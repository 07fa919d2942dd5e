/**
 * RoPE: rotates the heads of a token, of one tensor or of several (q and k) in one pass over the tokens.
 *
 * It uses plain mul, add and sub in f32. Vector bodies and scalar tails round alike, so the bits depend neither on the
 * module nor on the threads. packages/ropewalk/test/backends/cpu.test.ts compares them with a Math.fround
 * emulation.
 */
import { Rope, RopePart, Type } from '../abi';
import { address, place, word } from './args';
import { copyRun } from './copy';
import {
  bytes, bytesOf, firstFour, lastFour, load1, load4, lowerF16, placesF16, readRowOf, rebaseF16, roundF16, scaleF16,
  signF16, store1, store4, storeTwo8, uncommonF16, upperF16, widenHigh, widenLow, writeRowOf,
} from './lanes';
import { normalizeRow } from './norm';

/** A row of an i8 cache whose largest magnitude is below this, 2^-100, has the scale 0. */
const LEAST_ROW: f32 = 7.888609052210118e-31;

/** Rotates four pairs of f32 at byte `at` of each pointer; `at` is a constant. */
@inline function rotateFour(y0: usize, y1: usize, x0: usize, x1: usize, cos: usize, sin: usize, at: usize): void {
  const c = v128.load(cos + at), s = v128.load(sin + at), a = v128.load(x0 + at), b = v128.load(x1 + at);
  v128.store(y0 + at, f32x4.sub(f32x4.mul(a, c), f32x4.mul(b, s)));
  v128.store(y1 + at, f32x4.add(f32x4.mul(a, s), f32x4.mul(b, c)));
}

/** Rotates eight `half` pairs of a 16-bit type, `span` bytes apart. */
@inline function rotateEight<T>(y: usize, x: usize, cos: usize, sin: usize, span: usize): void {
  const c0 = v128.load(cos), s0 = v128.load(sin), c1 = v128.load(cos, 16), s1 = v128.load(sin, 16);
  const a = v128.load(x), b = v128.load(x + span);
  const a0 = widenLow<T>(a), a1 = widenHigh<T>(a), b0 = widenLow<T>(b), b1 = widenHigh<T>(b);
  storeTwo8<T>(
    y, f32x4.sub(f32x4.mul(a0, c0), f32x4.mul(b0, s0)), f32x4.sub(f32x4.mul(a1, c1), f32x4.mul(b1, s1)),
    y + span, f32x4.add(f32x4.mul(a0, s0), f32x4.mul(b0, c0)), f32x4.add(f32x4.mul(a1, s1), f32x4.mul(b1, c1)),
  );
}

/** Calls {@link rotateEight} for f16 from a separate function: inlined, it would take the registers of the loop. */
function rotateEightAny(y: usize, x: usize, cos: usize, sin: usize, span: usize): void {
  rotateEight<u16>(y, x, cos, sin, span);
}

/**
 * Does {@link rotateEight} for f16, in fewer instructions if all are common numbers.
 *
 * @param bigCos - `cos` times 2^112, and `bigSin` is `sin` times 2^112: see {@link upperF16}
 */
@inline function rotateEightF16(
  y: usize, x: usize, cos: usize, sin: usize, span: usize, bigCos: usize, bigSin: usize, places: v128, rebase: v128,
): void {
  const c0 = v128.load(bigCos), s0 = v128.load(bigSin), c1 = v128.load(bigCos, 16), s1 = v128.load(bigSin, 16);
  const a = v128.load(x), b = v128.load(x + span);
  const aUpper = upperF16(a, places), aLower = lowerF16(a), bUpper = upperF16(b, places), bLower = lowerF16(b);
  const a0 = firstFour(aLower, aUpper), a1 = lastFour(aLower, aUpper);
  const b0 = firstFour(bLower, bUpper), b1 = lastFour(bLower, bUpper);
  const p0 = f32x4.sub(f32x4.mul(a0, c0), f32x4.mul(b0, s0)), p1 = f32x4.sub(f32x4.mul(a1, c1), f32x4.mul(b1, s1));
  const q0 = f32x4.add(f32x4.mul(a0, s0), f32x4.mul(b0, c0)), q1 = f32x4.add(f32x4.mul(a1, s1), f32x4.mul(b1, c1));
  const p = roundF16(p0, p1, rebase), q = roundF16(q0, q1, rebase);
  if (uncommonF16(p, q, a, b)) {
    rotateEightAny(y, x, cos, sin, span);
  } else {
    v128.store(y, signF16(p, p0, p1));
    v128.store(y + span, signF16(q, q0, q1));
  }
}

/**
 * Rotates one dense row with `half` pairing: pair j is (x[j], x[j + half]). `y == x` is allowed.
 *
 * @param cos - f32 `[half]`, as is `sin`
 * @param bigCos - `cos` from {@link enlarge}, and `bigSin` is `sin` likewise: read for f16 alone
 */
@inline function rotateHalf<T>(
  y: usize, x: usize, cos: usize, sin: usize, half: i32, bigCos: usize = 0, bigSin: usize = 0,
): void {
  const span = <usize>half * bytes<T>();
  let j = 0;
  if (isFloat<T>()) {
    // Four vectors a round share the address arithmetic, which would be a third of the instructions. Keeping the table's
    // vectors in registers and going from head to head gives 20 GB/s instead of 68, as the strides defeat the prefetcher.
    for (; j + 16 <= half; j += 16) {
      const table = (<usize>j) << 2;
      const c = cos + table, s = sin + table, a = x + table, b = x + table + span, p = y + table, q = y + table + span;
      rotateFour(p, q, a, b, c, s, 0);
      rotateFour(p, q, a, b, c, s, 16);
      rotateFour(p, q, a, b, c, s, 32);
      rotateFour(p, q, a, b, c, s, 48);
    }
  } else {
    const places = placesF16(), rebase = rebaseF16();
    for (; j + 8 <= half; j += 8) {
      const at = <usize>j * bytes<T>(), table = (<usize>j) << 2;
      const from = x + at, to = y + at, c = cos + table, s = sin + table;
      if (isSigned<T>()) rotateEight<T>(to, from, c, s, span);
      else rotateEightF16(to, from, c, s, span, bigCos + table, bigSin + table, places, rebase);
    }
  }
  for (; j + 4 <= half; j += 4) {
    const at = <usize>j * bytes<T>(), table = (<usize>j) << 2;
    const c = v128.load(cos + table), s = v128.load(sin + table);
    const x0 = load4<T>(x + at), x1 = load4<T>(x + at + span);
    store4<T>(y + at, f32x4.sub(f32x4.mul(x0, c), f32x4.mul(x1, s)));
    store4<T>(y + at + span, f32x4.add(f32x4.mul(x0, s), f32x4.mul(x1, c)));
  }
  for (; j < half; j++) {
    const at = <usize>j * bytes<T>(), table = (<usize>j) << 2;
    const c = load<f32>(cos + table), s = load<f32>(sin + table);
    const x0 = load1<T>(x + at), x1 = load1<T>(x + at + span);
    store1<T>(y + at, x0 * c - x1 * s);
    store1<T>(y + at + span, x0 * s + x1 * c);
  }
}

/**
 * Rotates two interleaved pairs: x·c + swapped(x)·s with s = (−sin, sin, …), which has the bits of two products and their
 * sum.
 */
@inline function rotateTwo(x: v128, c: v128, s: v128): v128 {
  return f32x4.add(f32x4.mul(x, c), f32x4.mul(v128.shuffle<f32>(x, x, 1, 0, 3, 2), s));
}

/** Rotates eight `interleaved` pairs of a 16-bit type. */
@inline function rotateSixteen<T>(y: usize, x: usize, cos: usize, sin: usize): void {
  const a = v128.load(x), b = v128.load(x, 16);
  storeTwo8<T>(
    y,
    rotateTwo(widenLow<T>(a), v128.load(cos), v128.load(sin)),
    rotateTwo(widenHigh<T>(a), v128.load(cos, 16), v128.load(sin, 16)),
    y + 16,
    rotateTwo(widenLow<T>(b), v128.load(cos, 32), v128.load(sin, 32)),
    rotateTwo(widenHigh<T>(b), v128.load(cos, 48), v128.load(sin, 48)),
  );
}

/** Calls {@link rotateSixteen} for f16, as {@link rotateEightAny} does. */
function rotateSixteenAny(y: usize, x: usize, cos: usize, sin: usize): void {
  rotateSixteen<u16>(y, x, cos, sin);
}

/** Does {@link rotateSixteen} for f16, as {@link rotateEightF16} does. */
@inline function rotateSixteenF16(
  y: usize, x: usize, cos: usize, sin: usize, bigCos: usize, bigSin: usize, places: v128, rebase: v128,
): void {
  const a = v128.load(x), b = v128.load(x, 16);
  const aUpper = upperF16(a, places), aLower = lowerF16(a), bUpper = upperF16(b, places), bLower = lowerF16(b);
  const p0 = rotateTwo(firstFour(aLower, aUpper), v128.load(bigCos), v128.load(bigSin));
  const p1 = rotateTwo(lastFour(aLower, aUpper), v128.load(bigCos, 16), v128.load(bigSin, 16));
  const q0 = rotateTwo(firstFour(bLower, bUpper), v128.load(bigCos, 32), v128.load(bigSin, 32));
  const q1 = rotateTwo(lastFour(bLower, bUpper), v128.load(bigCos, 48), v128.load(bigSin, 48));
  const p = roundF16(p0, p1, rebase), q = roundF16(q0, q1, rebase);
  if (uncommonF16(p, q, a, b)) {
    rotateSixteenAny(y, x, cos, sin);
  } else {
    v128.store(y, signF16(p, p0, p1));
    v128.store(y, signF16(q, q0, q1), 16);
  }
}

/**
 * Rotates one dense row with `interleaved` pairing: pair j is (x[2j], x[2j + 1]). `y == x` is allowed.
 *
 * @param cos - f32 `[2 half]`, each cosine twice; from {@link spread}
 * @param sin - f32 `[2 half]`, −sin and sin of each pair
 * @param bigCos - as for {@link rotateHalf}
 */
@inline function rotateInterleaved<T>(
  y: usize, x: usize, cos: usize, sin: usize, half: i32, bigCos: usize = 0, bigSin: usize = 0,
): void {
  const n = half << 1;
  let i = 0;
  if (isFloat<T>()) {
    for (; i + 16 <= n; i += 16) {
      const at = (<usize>i) << 2;
      const c = cos + at, s = sin + at, from = x + at, to = y + at;
      v128.store(to, rotateTwo(v128.load(from), v128.load(c), v128.load(s)));
      v128.store(to, rotateTwo(v128.load(from, 16), v128.load(c, 16), v128.load(s, 16)), 16);
      v128.store(to, rotateTwo(v128.load(from, 32), v128.load(c, 32), v128.load(s, 32)), 32);
      v128.store(to, rotateTwo(v128.load(from, 48), v128.load(c, 48), v128.load(s, 48)), 48);
    }
  } else {
    const places = placesF16(), rebase = rebaseF16();
    for (; i + 16 <= n; i += 16) {
      const at = (<usize>i) << 1, table = (<usize>i) << 2;
      const from = x + at, to = y + at, c = cos + table, s = sin + table;
      if (isSigned<T>()) rotateSixteen<T>(to, from, c, s);
      else rotateSixteenF16(to, from, c, s, bigCos + table, bigSin + table, places, rebase);
    }
  }
  for (; i + 4 <= n; i += 4) {
    const at = <usize>i * bytes<T>(), table = (<usize>i) << 2;
    store4<T>(y + at, rotateTwo(load4<T>(x + at), v128.load(cos + table), v128.load(sin + table)));
  }
  for (; i < n; i += 2) {
    const at = <usize>i * bytes<T>(), table = (<usize>i) << 2;
    const c = load<f32>(cos + table), s = load<f32>(sin + table + 4);
    const x0 = load1<T>(x + at), x1 = load1<T>(x + at + bytes<T>());
    store1<T>(y + at, x0 * c - x1 * s);
    store1<T>(y + at + bytes<T>(), x0 * s + x1 * c);
  }
}

/** Lays a table row out for {@link rotateInterleaved}: c c, and −s s, for each pair. */
function spread(cos2: usize, sin2: usize, cos: usize, sin: usize, half: i32): void {
  for (let j = 0; j < half; j++) {
    const from = (<usize>j) << 2, to = (<usize>j) << 3;
    const c = load<f32>(cos + from), s = load<f32>(sin + from);
    store<f32>(cos2 + to, c);
    store<f32>(cos2 + to + 4, c);
    store<f32>(sin2 + to, -s);
    store<f32>(sin2 + to + 4, s);
  }
}

/** Multiplies a table row by 2^112, four at a time, for f16 as {@link upperF16} gives them. */
function enlarge(to: usize, from: usize, n: i32): void {
  const scale = scaleF16();
  for (let i = 0; i + 4 <= n; i += 4) v128.store(place(to, i), f32x4.mul(v128.load(place(from, i)), scale));
}

/** Rotates a dense f32 row of any geometry: pair j is read at readStep·j + (0, readGap), written likewise. `y != x`. */
function rotateAny(
  y: usize, x: usize, cos: usize, sin: usize, half: i32, readStep: i32, readGap: i32, writeStep: i32, writeGap: i32,
): void {
  for (let j = 0; j < half; j++) {
    const from = place(x, j * readStep), to = place(y, j * writeStep);
    const c = load<f32>(place(cos, j)), s = load<f32>(place(sin, j));
    const x0 = load<f32>(from), x1 = load<f32>(place(from, readGap));
    store<f32>(to, x0 * c - x1 * s);
    store<f32>(place(to, writeGap), x0 * s + x1 * c);
  }
}

/**
 * Rotates and copies the heads of one token where rows are dense and of one type.
 *
 * @param big - room for f32 `[2 headDim]`
 */
@inline function rotateHeads<T>(
  x: usize, y: usize, heads: i32, xHead: i32, yHead: i32, headDim: i32, offset: i32, half: i32, interleaved: bool,
  cos: usize, sin: usize, big: usize,
): void {
  const bigSin = place(big, headDim), row = interleaved ? half << 1 : half;
  if (!isFloat<T>() && !isSigned<T>()) {
    enlarge(big, cos, row);
    enlarge(bigSin, sin, row);
  }
  const before = <usize>offset * bytes<T>(), window = <usize>(half << 1) * bytes<T>();
  const after = <usize>(headDim - offset) * bytes<T>() - window;
  const xStep = <usize>(xHead * <i32>bytes<T>()), yStep = <usize>(yHead * <i32>bytes<T>());
  const copies = y != x && before + after > 0;
  for (let h = 0; h < heads; h++) {
    if (interleaved) rotateInterleaved<T>(y + before, x + before, cos, sin, half, big, bigSin);
    else rotateHalf<T>(y + before, x + before, cos, sin, half, big, bigSin);
    if (copies) {
      memory.copy(y, x, before);
      memory.copy(y + before + window, x + before + window, after);
    }
    x += xStep;
    y += yStep;
  }
}

/**
 * Rotates tokens `from … to - 1`.
 *
 * @param scratch - memory of this thread: f32 `[4 headDim]`
 */
export function rope(args: usize, from: i32, to: i32, scratch: usize): void {
  const seq = word(args, Rope.seq), parts = word(args, Rope.parts), tablePairs = word(args, Rope.pairs);
  const readStep = word(args, Rope.readStep), readGap = word(args, Rope.readGap);
  const writeStep = word(args, Rope.writeStep), writeGap = word(args, Rope.writeGap);
  const plain = readStep == writeStep, interleaved = readStep == 2;
  const room = (<usize>word(args, Rope.headDim)) << 2;
  const spreadCos = scratch, spreadSin = scratch + room, rowIn = scratch + 2 * room, rowOut = scratch + 3 * room;
  for (let t = from; t < to; t++) {
    const b = t / seq, s = t - b * seq;
    const tableRow = load<i32>(place(address(args, Rope.tableRows), word(args, Rope.perBatch) ? t : s));
    let cos = place(address(args, Rope.cos), tableRow * tablePairs);
    let sin = place(address(args, Rope.sin), tableRow * tablePairs);
    if (plain && interleaved) {
      spread(spreadCos, spreadSin, cos, sin, tablePairs);
      cos = spreadCos;
      sin = spreadSin;
    }
    for (let p = 0; p < parts; p++) {
      const part = place(args, Rope.firstPart + RopePart.words * p);
      const xType = word(part, RopePart.xType), yType = word(part, RopePart.yType), heads = word(part, RopePart.heads);
      const rows = address(part, RopePart.rows), weight = address(part, RopePart.weight);
      let block = b, yRow = rows ? load<i32>(place(rows, t)) : s;
      if (yRow < 0) continue;
      const blockSize = word(part, RopePart.blockSize);
      if (blockSize) {
        block = yRow / blockSize;
        yRow -= block * blockSize;
      }
      const rotates = word(part, RopePart.rotate), headDim = word(part, RopePart.headDim);
      const pairs = rotates ? tablePairs : 0, offset = rotates ? word(args, Rope.rotaryOffset) : 0;
      const xToken = b * word(part, RopePart.xBatch) + s * word(part, RopePart.xSeq);
      const yToken = block * word(part, RopePart.yBatch) + yRow * word(part, RopePart.ySeq);
      let x = address(part, RopePart.x) + <usize>xToken * bytesOf(xType);
      let y = address(part, RopePart.y) + <usize>yToken * bytesOf(yType);
      const xHead = word(part, RopePart.xHead), yHead = word(part, RopePart.yHead);
      if (plain && word(part, RopePart.dense)) {
        if (xType == Type.f32) {
          rotateHeads<f32>(x, y, heads, xHead, yHead, headDim, offset, pairs, interleaved, cos, sin, rowIn);
        } else if (xType == Type.f16) {
          rotateHeads<u16>(x, y, heads, xHead, yHead, headDim, offset, pairs, interleaved, cos, sin, rowIn);
        } else rotateHeads<i16>(x, y, heads, xHead, yHead, headDim, offset, pairs, interleaved, cos, sin, rowIn);
        continue;
      }
      // Everything else goes through two dense f32 rows: other strides, a norm, another type, or two geometries.
      const xStride = word(part, RopePart.xDim), yStride = word(part, RopePart.yDim);
      const row = (<usize>headDim) << 2, window = (<usize>offset) << 2;
      let scale = address(part, RopePart.scale), own = address(part, RopePart.own);
      if (own) own = place(own, block * word(part, RopePart.ownBatch) + yRow * word(part, RopePart.ownSeq));
      for (let h = 0; h < heads; h++) {
        readRowOf(xType, rowIn, x, headDim, xStride);
        if (weight) normalizeRow<f32, f32>(rowIn, rowIn, weight, headDim, load<f64>(place(part, RopePart.eps)));
        memory.copy(rowOut, rowIn, row);
        if (!plain) rotateAny(rowOut + window, rowIn + window, cos, sin, pairs, readStep, readGap, writeStep, writeGap);
        else if (interleaved) rotateInterleaved<f32>(rowOut + window, rowIn + window, cos, sin, pairs);
        else rotateHalf<f32>(rowOut + window, rowIn + window, cos, sin, pairs);
        if (own) {
          let most: f32 = 0;
          for (let i = 0; i < headDim; i++) most = max<f32>(most, abs<f32>(load<f32>(place(rowOut, i))));
          const divisor: f32 = most < LEAST_ROW ? 0 : most / 127;
          store<f32>(place(own, h * word(part, RopePart.ownHead)), divisor);
          for (let i = 0; i < headDim; i++) {
            const at = place(rowOut, i);
            store<f32>(at, divisor == 0 ? 0 : load<f32>(at) / divisor);
          }
        }
        if (scale) {
          let i = 0;
          for (; i + 4 <= headDim; i += 4) {
            v128.store(place(rowOut, i), f32x4.div(v128.load(place(rowOut, i)), v128.load(place(scale, i))));
          }
          for (; i < headDim; i++) {
            store<f32>(place(rowOut, i), load<f32>(place(rowOut, i)) / load<f32>(place(scale, i)));
          }
          scale += row;
        }
        if (xType == yType && !weight) {
          // Elements that are not rotated keep their bits, including NaN payloads.
          const size = <i32>bytesOf(xType), end = offset + (pairs << 1);
          const xEnd = x + <usize>(end * xStride * size), yEnd = y + <usize>(end * yStride * size);
          copyRun(size, y, x, offset, yStride, xStride);
          copyRun(size, yEnd, xEnd, headDim - end, yStride, xStride);
          writeRowOf(yType, y + <usize>(offset * yStride * size), rowOut + window, pairs << 1, yStride);
        } else writeRowOf(yType, y, rowOut, headDim, yStride);
        x += <usize>(xHead * <i32>bytesOf(xType));
        y += <usize>(yHead * <i32>bytesOf(yType));
      }
    }
  }
}
