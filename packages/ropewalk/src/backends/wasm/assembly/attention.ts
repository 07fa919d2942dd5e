/**
 * Attention with an online softmax. Keys are taken in blocks, and each query keeps only its largest score, its sum of
 * weights and its weighted values so far: the score matrix never exists.
 *
 * A unit is a KV head and a block of its queries (all query heads that share it, and some tokens). The order of sums
 * depends on the shapes alone. In both kernels lanes are queries, so maxima, exponentials and sums need no shuffling.
 *
 * A hidden value has weight 0, which times infinity is NaN; and a score or a sum of values may overflow where the final
 * result does not. Either leaves a NaN or an infinity in the query's result, which is then computed again: see
 * {@link attendWide}.
 */
import { Attention, KEYS, NR, Type } from '../abi';
import { address, place, real, word } from './args';
import {
  bytes, bytesOf, cap4, expNonPositive4, laneOf, load1, load1Of, load4, loadEight, madd, readHalves, readRowOf, store1Of,
  widenHigh, widenLow, writeRowOf,
} from './lanes';
import { MR, multiplyTile, packPanelOf, packRowsOf } from './tile';

/** It is below every score and finite, so that differences with it are never NaN. */
const LOWEST: f32 = -3.4028234663852886e38;

/**
 * Turns a block of scores into weights, four queries at a time.
 *
 * @param scores - f32, `step` bytes from key to key, four queries dense; weights take their place
 * @param first - the block's first key
 * @param state - of these queries: f32 `[4]` largest score, `[4]` sum of weights, i32 `[4]` last key seen, `[4]` first
 *   key seen
 * @returns the factor for earlier sums
 */
function softmaxBlock(
  scores: usize, step: usize, keys: i32, first: i32, state: usize, masked: bool, softcap: f32,
): v128 {
  const last = v128.load(state, 32), start = v128.load(state, 48);
  let max = v128.load(state);
  const old = max;
  let zeros = f32x4.splat(0); // It becomes NaN for a query that sees a score that is not finite.
  for (let t = 0; t < keys; t++) {
    const at = scores + <usize>t * step;
    let score = v128.load(at), zero = f32x4.sub(score, score);
    if (softcap > 0) score = cap4(score, f32x4.splat(softcap));
    if (masked) {
      const key = i32x4.splat(first + t);
      const hidden = v128.or(i32x4.gt_s(key, last), i32x4.lt_s(key, start));
      score = v128.bitselect(f32x4.splat(-Infinity), score, hidden);
      zero = v128.andnot(zero, hidden);
    }
    zeros = f32x4.add(zeros, zero);
    if (masked || softcap > 0) v128.store(at, score);
    max = f32x4.pmax(score, max); // keeps a NaN score; the maximum before is never one
  }
  const scale = expNonPositive4(f32x4.sub(old, max));
  let sum = madd(v128.load(state, 16), scale, zeros);
  for (let t = 0; t < keys; t++) {
    const at = scores + <usize>t * step;
    const weight = expNonPositive4(f32x4.sub(v128.load(at), max));
    v128.store(at, weight);
    sum = f32x4.add(sum, weight);
  }
  v128.store(state, max);
  v128.store(state, sum, 16);
  return scale;
}

/** Gives the address of the sinks of a KV head's query heads, or 0. */
@inline function sinksOf(args: usize, head: i32): usize {
  const sinks = address(args, Attention.sinks);
  return sinks ? place(sinks, head * word(args, Attention.group)) : 0;
}

/** Computes the place of a row, in elements; `strides` is the place of the first of its tensor's strides. */
@inline function rowAt(args: usize, strides: i32, b: i32, s: i32, head: i32): i32 {
  return b * word(args, strides) + s * word(args, strides + 1) + head * word(args, strides + 2);
}

/** Gives the number of keys of a batch. */
@inline function keysOf(args: usize, b: i32): i32 {
  const lengths = address(args, Attention.lengths);
  return lengths ? load<i32>(place(lengths, b)) : word(args, Attention.total);
}

/** Says whether elements are gathered as f16. */
@inline function isFloat8(type: i32): bool {
  return type == Type.f8_e4m3 || type == Type.f8_e5m2;
}

/** Gives the address of the scales of a KV head, f32 `[n]`, or 0; `scales` is the place of their address. */
function scalesOf(args: usize, scales: i32, head: i32, n: i32): usize {
  const at = address(args, scales);
  return at ? place(at, head * n) : 0;
}

/**
 * Computes the place of a key's row, in elements; `strides` is the place of the first of its tensor's strides. The keys of a
 * block lie in one stretch, see {@link stretchOf}.
 */
function keyAt(args: usize, strides: i32, b: i32, key: i32, head: i32): i32 {
  const table = address(args, Attention.table);
  if (!table) return rowAt(args, strides, b, key, head);
  const blockSize = word(args, Attention.blockSize), page = key / blockSize;
  const block = load<i32>(place(table, b * word(args, Attention.maxBlocks) + page));
  return rowAt(args, strides, block, key - page * blockSize, head);
}

/** Counts how many of n keys, from `key` on, lie in one stretch. */
function stretchOf(args: usize, key: i32, n: i32): i32 {
  const blockSize = word(args, Attention.blockSize);
  return blockSize ? min(n, blockSize - key % blockSize) : n;
}

/**
 * Gathers keys or values of a KV head as dense rows: 8-bit floats as f16 (see readHalves), all others as f32.
 *
 * @param to - f16 or f32 `[keys][n]`
 * @param tensor - the place of the tensor's address; `strides` that of its first stride
 */
function gather(
  args: usize, to: usize, tensor: i32, strides: i32, b: i32, key: i32, keys: i32, head: i32, n: i32,
): void {
  const type = word(args, Attention.cacheType), unit = bytesOf(type), step = word(args, strides + 3);
  for (let t = key; t < key + keys; t++) {
    const at = address(args, tensor) + <usize>keyAt(args, strides, b, t, head) * unit;
    const i = <usize>((t - key) * n);
    if (isFloat8(type)) readHalves(type, to + (i << 1), at, n, step);
    else readRowOf(type, to + (i << 2), at, n, step);
  }
}

/** Gives the scale of a key's row of a KV head, or 1; `own` is the place of the address of all. */
@inline function rowScale(args: usize, own: i32, b: i32, key: i32, head: i32): f32 {
  const at = address(args, own);
  return at ? load<f32>(place(at, keyAt(args, own + 1, b, key, head))) : 1;
}

/**
 * Multiplies the scores or weights of a block's keys by the scales of their rows.
 *
 * @param at - f32 `[keys][4 fours]`
 */
function scaleBlock(args: usize, own: i32, b: i32, key: i32, keys: i32, head: i32, at: usize, fours: i32): void {
  if (!address(args, own)) return;
  for (let t = 0; t < keys; t++) {
    const scale = f32x4.splat(rowScale(args, own, b, key + t, head));
    for (let n = 0; n < fours; n++, at += 16) v128.store(at, f32x4.mul(v128.load(at), scale));
  }
}

/** Computes the score of a key in f64. @param key - a key from {@link gather}, of {@link gatheredType} */
function scoreWide(args: usize, q: usize, key: usize, kScale: usize, own: f32): f64 {
  const type = word(args, Attention.type), keyType = gatheredType(args), softcap = real(args, Attention.softcap);
  let sum: f64 = 0;
  for (let i = 0, d = word(args, Attention.d); i < d; i++) {
    const product = <f64>load1Of(type, q + <usize>(i * word(args, Attention.qDim)) * bytesOf(type))
      * <f64>load1Of(keyType, key + <usize>i * bytesOf(keyType));
    sum += kScale ? product * <f64>load<f32>(place(kScale, i)) : product;
  }
  sum *= <f64>real(args, Attention.scale) * <f64>own;
  return softcap > 0 ? <f64>f32x4.extract_lane(cap4(f32x4.splat(<f32>sum), f32x4.splat(softcap)), 0) : sum;
}

/**
 * Computes the result of one query again, from only the keys that it sees, with scores and sums in f64.
 *
 * @param head - its KV head; `own` is the number among the query heads of that
 * @param spare - memory of this thread: f32 `[max(d, dv)]` and f64 `[dv]`
 */
function attendWide(args: usize, b: i32, s: i32, head: i32, own: i32, spare: usize): void {
  const type = word(args, Attention.type), d = word(args, Attention.d), dv = word(args, Attention.dv);
  const kScale = scalesOf(args, Attention.kScale, head, d), vScale = scalesOf(args, Attention.vScale, head, dv);
  const queryHead = head * word(args, Attention.group) + own, sinks = sinksOf(args, head);
  const q = address(args, Attention.q) + <usize>rowAt(args, Attention.qBatch, b, s, queryHead) * bytesOf(type);
  const total = keysOf(args, b), position = total - word(args, Attention.seq) + s, window = word(args, Attention.window);
  const first = window > 0 ? max(0, position - window + 1) : 0;
  const end = word(args, Attention.causal) ? position + 1 : total;
  const sink = sinks ? <f64>load<f32>(place(sinks, own)) : <f64>-Infinity;
  const line = spare, sums = place(line, max(d, dv)), valueType = gatheredType(args);
  let most = sink;
  for (let t = first; t < end; t++) {
    gather(args, line, Attention.k, Attention.kBatch, b, t, 1, head, d);
    most = max(most, scoreWide(args, q, line, kScale, rowScale(args, Attention.kOwn, b, t, head)));
  }
  memory.fill(sums, 0, (<usize>dv) << 3);
  let sum = sink > -Infinity ? weightWide(sink - most) : 0;
  for (let t = first; t < end; t++) {
    gather(args, line, Attention.k, Attention.kBatch, b, t, 1, head, d);
    const score = scoreWide(args, q, line, kScale, rowScale(args, Attention.kOwn, b, t, head));
    const weight = weightWide(score - most), scaled = weight * <f64>rowScale(args, Attention.vOwn, b, t, head);
    sum += weight;
    gather(args, line, Attention.v, Attention.vBatch, b, t, 1, head, dv);
    for (let i = 0; i < dv; i++) {
      const at = sums + ((<usize>i) << 3);
      store<f64>(at, load<f64>(at) + scaled * <f64>load1Of(valueType, line + <usize>i * bytesOf(valueType)));
    }
  }
  const y = rowAt(args, Attention.yBatch, b, s, queryHead);
  for (let i = 0; i < dv; i++) {
    const at = address(args, Attention.y) + <usize>(y + i * word(args, Attention.yDim)) * bytesOf(type);
    const value = load<f64>(sums + ((<usize>i) << 3)) / sum;
    store1Of(type, at, <f32>(vScale ? value * <f64>load<f32>(place(vScale, i)) : value));
  }
}

/** Computes e^x for x <= 0. */
@inline function weightWide(x: f64): f64 {
  return <f64>f32x4.extract_lane(expNonPositive4(f32x4.splat(<f32>x)), 0);
}

/** Gives the type of the elements that {@link gather} writes. */
@inline function gatheredType(args: usize): i32 {
  return isFloat8(word(args, Attention.cacheType)) ? Type.f16 : Type.f32;
}

/**
 * Sets the state of a group of four queries: rows `row … row + 3` of the unit, token = row / group.
 *
 * @param sinks - f32 `[group]` of this KV head's query heads, or 0. A sink is a score without a value
 */
function startState(
  state: usize, row: i32, rows: i32, group: i32, firstToken: i32, past: i32, total: i32, causal: i32, window: i32,
  sinks: usize,
): void {
  v128.store(state, f32x4.splat(LOWEST));
  v128.store(state, f32x4.splat(0), 16);
  for (let lane = 0; lane < 4; lane++) {
    // Lanes past the last row repeat it; they are not read.
    const r = min(row + lane, rows - 1);
    const sink: f32 = sinks ? load<f32>(place(sinks, r % group)) : -Infinity;
    if (sink != -Infinity) {
      store<f32>(place(state, lane), sink);
      store<f32>(place(state, 4 + lane), 1);
    }
    const position = past + firstToken + r / group;
    store<i32>(place(state, 8 + lane), causal ? position : total - 1);
    store<i32>(place(state, 12 + lane), window > 0 ? max(0, position - window + 1) : 0);
  }
}

/**
 * Computes many queries: tiles of MR keys × 8 queries, then of MR values × 8 queries.
 *
 * Units are batches × KV heads × blocks of tokens.
 *
 * @param scratch - memory of this thread; ../operators/self-attention.ts computes its size from the same parts
 */
export function attentionMany(args: usize, from: i32, to: i32, scratch: usize): void {
  const seq = word(args, Attention.seq);
  const kvHeads = word(args, Attention.kvHeads), group = word(args, Attention.group);
  const d = word(args, Attention.d), dv = word(args, Attention.dv);
  const causal = word(args, Attention.causal), window = word(args, Attention.window);
  const tokens = word(args, Attention.tokens), blocks = word(args, Attention.blocks);
  const scale = real(args, Attention.scale), softcap = real(args, Attention.softcap);
  const type = word(args, Attention.type), unit = bytesOf(type);
  const gathers = word(args, Attention.gathers);
  const stored = word(args, Attention.cacheType);
  const cacheType = !gathers ? stored : isFloat8(stored) ? Type.f16 : Type.f32, cacheUnit = bytesOf(cacheType);
  const panels = (tokens * group + NR - 1) / NR, valuePanels = (dv + MR - 1) / MR;
  const qs = scratch; // [panels][d][8]
  const ks = place(qs, panels * d * NR); // [96 / MR][d][MR]
  const vs = place(ks, KEYS * d); // [valuePanels][96][MR]
  const scores = place(vs, valuePanels * KEYS * MR); // [96][8]
  const sums = scores + KEYS * NR * 4; // [panels][valuePanels · MR][8]
  const states = place(sums, panels * valuePanels * MR * NR); // [panels][2] of 64 bytes
  const gatheredK = place(states, panels * 32); // [96][d], and [96][dv], only where they are gathered
  const gatheredV = place(gatheredK, KEYS * d);
  const kRow = gathers ? d : word(args, Attention.kSeq), kStep = gathers ? 1 : word(args, Attention.kDim);
  const vRow = gathers ? dv : word(args, Attention.vSeq), vStep = gathers ? 1 : word(args, Attention.vDim);
  for (let u = from; u < to; u++) {
    const block = u % blocks, head = (u / blocks) % kvHeads, b = u / (blocks * kvHeads);
    const firstToken = block * tokens, count = min(tokens, seq - firstToken), rows = count * group;
    const used = (rows + NR - 1) / NR, sinks = sinksOf(args, head);
    const total = keysOf(args, b), past = total - seq;
    const kScale = scalesOf(args, Attention.kScale, head, d), vScale = scalesOf(args, Attention.vScale, head, dv);
    for (let p = 0; p < used; p++) {
      const panel = place(qs, p * d * NR);
      for (let lane = 0; lane < NR; lane++) {
        const r = min(p * NR + lane, rows - 1);
        const q = rowAt(args, Attention.qBatch, b, firstToken + r / group, head * group + r % group);
        const from = address(args, Attention.q) + <usize>q * unit;
        for (let i = 0; i < d; i++) {
          const at = from + <usize>(i * word(args, Attention.qDim)) * unit;
          const factor = kScale ? load<f32>(place(kScale, i)) * scale : scale;
          store<f32>(place(panel, i * NR + lane), load1Of(type, at) * factor);
        }
      }
      startState(place(states, p * 32), p * NR, rows, group, firstToken, past, total, causal, window, sinks);
      startState(place(states, p * 32 + 16), p * NR + 4, rows, group, firstToken, past, total, causal, window, sinks);
    }
    memory.fill(sums, 0, <usize>(used * valuePanels * MR * NR) << 2);
    const end = causal ? past + firstToken + count : total;
    const allSee = causal ? past + firstToken : total - 1; // the last key that every query of the unit sees
    const begin = window > 0 ? max(0, past + firstToken - window + 1) : 0;
    // Some query does not see the keys before this one.
    const hiddenBefore = window > 0 ? past + firstToken + count - window : 0;
    for (let key = begin; key < end; key += KEYS) {
      const keys = min(KEYS, end - key), keyPanels = (keys + MR - 1) / MR;
      let k = gatheredK, v = gatheredV;
      if (gathers) {
        gather(args, k, Attention.k, Attention.kBatch, b, key, keys, head, d);
        gather(args, v, Attention.v, Attention.vBatch, b, key, keys, head, dv);
      } else {
        k = address(args, Attention.k) + <usize>rowAt(args, Attention.kBatch, b, key, head) * cacheUnit;
        v = address(args, Attention.v) + <usize>rowAt(args, Attention.vBatch, b, key, head) * cacheUnit;
      }
      for (let p = 0; p < keyPanels; p++) {
        const from = k + <usize>(p * MR * kRow) * cacheUnit;
        packPanelOf(cacheType, place(ks, p * d * MR), from, min(MR, keys - p * MR), MR, d, kRow, kStep);
      }
      for (let p = 0; p < valuePanels; p++) {
        const from = v + <usize>(p * MR * vStep) * cacheUnit;
        packRowsOf(cacheType, place(vs, p * KEYS * MR), from, min(MR, dv - p * MR), keys, vRow, vStep);
      }
      const masked = key + keys - 1 > allSee || key < hiddenBefore;
      for (let p = 0; p < used; p++) {
        const state = place(states, p * 32);
        memory.fill(scores, 0, <usize>(keyPanels * MR * NR) << 2);
        for (let q = 0; q < keyPanels; q++) {
          multiplyTile(place(scores, q * MR * NR), NR * 4, place(ks, q * d * MR), place(qs, p * d * NR), d);
        }
        scaleBlock(args, Attention.kOwn, b, key, keys, head, scores, NR / 4);
        const low = softmaxBlock(scores, NR * 4, keys, key, state, masked, softcap);
        const high = softmaxBlock(scores + 16, NR * 4, keys, key, state + 64, masked, softcap);
        scaleBlock(args, Attention.vOwn, b, key, keys, head, scores, NR / 4);
        const sum = place(sums, p * valuePanels * MR * NR);
        for (let i = 0; i < valuePanels * MR; i++) {
          const at = sum + ((<usize>i) << 5);
          v128.store(at, f32x4.mul(v128.load(at), low));
          v128.store(at, f32x4.mul(v128.load(at, 16), high), 16);
        }
        for (let q = 0; q < valuePanels; q++) {
          multiplyTile(place(sum, q * MR * NR), NR * 4, place(vs, q * KEYS * MR), scores, keys);
        }
      }
    }
    for (let r = 0; r < rows; r++) {
      const p = r / NR, lane = r % NR;
      const state = place(states, p * 32) + (lane >= 4 ? 64 : 0);
      const sum = load<f32>(place(state, 4 + (lane & 3)));
      const from = place(sums, p * valuePanels * MR * NR + lane);
      const y = rowAt(args, Attention.yBatch, b, firstToken + r / group, head * group + r % group);
      let zeros: f32 = 0;
      for (let i = 0; i < dv; i++) {
        const at = address(args, Attention.y) + <usize>(y + i * word(args, Attention.yDim)) * unit;
        const value = load<f32>(place(from, i * NR)) / sum;
        zeros += value * 0;
        store1Of(type, at, vScale ? value * load<f32>(place(vScale, i)) : value);
      }
      if (zeros != 0) attendWide(args, b, firstToken + r / group, head, r % group, qs);
    }
  }
}

/** Adds up the four lanes of each of four vectors at once. */
@inline function sumEach(a: v128, b: v128, c: v128, d: v128): v128 {
  const ab = f32x4.add(v128.shuffle<f32>(a, b, 0, 4, 1, 5), v128.shuffle<f32>(a, b, 2, 6, 3, 7));
  const cd = f32x4.add(v128.shuffle<f32>(c, d, 0, 4, 1, 5), v128.shuffle<f32>(c, d, 2, 6, 3, 7));
  return f32x4.add(v128.shuffle<f64>(ab, cd, 0, 2), v128.shuffle<f64>(ab, cd, 1, 3));
}

/** Computes four scalar products: queries `[4][d]` (dense f32) with one dense key. */
@inline function scoreFour<T>(q: usize, d: i32, k: usize): v128 {
  const step = (<usize>d) << 2;
  let a = f32x4.splat(0), b = f32x4.splat(0), c = f32x4.splat(0), e = f32x4.splat(0);
  let i = 0;
  if (!isFloat<T>()) {
    // Eight elements share a load and a part of their widening; the order of sums is that of fours.
    for (; i + 8 <= d; i += 8) {
      const raw = loadEight<T>(k + <usize>i * bytes<T>()), at = place(q, i);
      const low = widenLow<T>(raw), high = widenHigh<T>(raw);
      a = madd(v128.load(at, 16), high, madd(v128.load(at), low, a));
      b = madd(v128.load(at + step, 16), high, madd(v128.load(at + step), low, b));
      c = madd(v128.load(at + 2 * step, 16), high, madd(v128.load(at + 2 * step), low, c));
      e = madd(v128.load(at + 3 * step, 16), high, madd(v128.load(at + 3 * step), low, e));
    }
  }
  for (; i + 4 <= d; i += 4) {
    const key = load4<T>(k + <usize>i * bytes<T>()), at = place(q, i);
    a = madd(v128.load(at), key, a);
    b = madd(v128.load(at + step), key, b);
    c = madd(v128.load(at + 2 * step), key, c);
    e = madd(v128.load(at + 3 * step), key, e);
  }
  let sum = sumEach(a, b, c, e);
  for (; i < d; i++) {
    const key = f32x4.splat(load1<T>(k + <usize>i * bytes<T>())), at = place(q, i);
    const four = f32x4(load<f32>(at), load<f32>(at + step), load<f32>(at + 2 * step), load<f32>(at + 3 * step));
    sum = madd(four, key, sum);
  }
  return sum;
}

/** Adds the weighted values of a block: sums `[4][dv]` += weights `[keys][4]` · values; 8 values of 4 queries at a time. */
@inline function addValues<T>(sums: usize, dv: i32, weights: usize, v: usize, keys: i32, row: usize): void {
  const step = (<usize>dv) << 2;
  let i = 0;
  for (; i + 8 <= dv; i += 8) {
    const at = place(sums, i);
    let a0 = v128.load(at), a1 = v128.load(at, 16), b0 = v128.load(at + step), b1 = v128.load(at + step, 16);
    let c0 = v128.load(at + 2 * step), c1 = v128.load(at + 2 * step, 16);
    let e0 = v128.load(at + 3 * step), e1 = v128.load(at + 3 * step, 16);
    let p = v + <usize>i * bytes<T>();
    for (let t = 0; t < keys; t++) {
      const w = weights + ((<usize>t) << 4), raw = isFloat<T>() ? v128.load(p) : loadEight<T>(p);
      const v0 = isFloat<T>() ? raw : widenLow<T>(raw), v1 = isFloat<T>() ? v128.load(p, 16) : widenHigh<T>(raw);
      let x = v128.load_splat<f32>(w);
      a0 = madd(x, v0, a0);
      a1 = madd(x, v1, a1);
      x = v128.load_splat<f32>(w, 4);
      b0 = madd(x, v0, b0);
      b1 = madd(x, v1, b1);
      x = v128.load_splat<f32>(w, 8);
      c0 = madd(x, v0, c0);
      c1 = madd(x, v1, c1);
      x = v128.load_splat<f32>(w, 12);
      e0 = madd(x, v0, e0);
      e1 = madd(x, v1, e1);
      p += row;
    }
    v128.store(at, a0);
    v128.store(at, a1, 16);
    v128.store(at + step, b0);
    v128.store(at + step, b1, 16);
    v128.store(at + 2 * step, c0);
    v128.store(at + 2 * step, c1, 16);
    v128.store(at + 3 * step, e0);
    v128.store(at + 3 * step, e1, 16);
  }
  for (; i < dv; i++) {
    for (let lane = 0; lane < 4; lane++) {
      const at = place(sums, lane * dv + i);
      let sum = load<f32>(at);
      for (let t = 0; t < keys; t++) {
        sum += load<f32>(place(weights, t * 4 + lane)) * load1<T>(v + <usize>t * row + <usize>i * bytes<T>());
      }
      store<f32>(at, sum);
    }
  }
}

/** Gives the address of a key's row of type T; `tensor` is the place of the tensor's address. */
@inline function base<T>(args: usize, tensor: i32, strides: i32, b: i32, key: i32, head: i32): usize {
  return address(args, tensor) + <usize>keyAt(args, strides, b, key, head) * bytes<T>();
}

/** Does {@link attentionFew} for keys and values of type T, which is f16 for 8-bit floats. */
@inline function fewOf<T>(args: usize, from: i32, to: i32, scratch: usize): void {
  const type = word(args, Attention.type), unit = bytesOf(type);
  const gathers = isFloat8(word(args, Attention.cacheType)); // then T is u16
  const seq = word(args, Attention.seq);
  const kvHeads = word(args, Attention.kvHeads), group = word(args, Attention.group);
  const d = word(args, Attention.d), dv = word(args, Attention.dv);
  const causal = word(args, Attention.causal), window = word(args, Attention.window);
  const scale = real(args, Attention.scale), softcap = real(args, Attention.softcap);
  const rows = seq * group, groups = (rows + 3) / 4;
  const qs = scratch; // [groups · 4][d]
  const weights = place(qs, groups * 4 * d); // [96][4]
  const sums = weights + KEYS * 16; // [groups · 4][dv]
  const states = place(sums, groups * 4 * dv); // [groups] of 64 bytes
  const spare = place(states, groups * 16); // of attendWide
  const gatheredK = place(spare, max(d, dv) + 2 * dv); // [96][d], and [96][dv], only where gathered
  const gatheredV = place(gatheredK, KEYS * d);
  const vSeq = gathers ? dv : word(args, Attention.vSeq), valueRow = <usize>(vSeq * <i32>bytes<T>());
  const keyRow = <usize>((gathers ? d : word(args, Attention.kSeq)) * <i32>bytes<T>());
  for (let u = from; u < to; u++) {
    const head = u % kvHeads, b = u / kvHeads;
    const total = keysOf(args, b), past = total - seq;
    const kScale = scalesOf(args, Attention.kScale, head, d), vScale = scalesOf(args, Attention.vScale, head, dv);
    for (let r = 0; r < groups * 4; r++) {
      const row = min(r, rows - 1);
      const q = rowAt(args, Attention.qBatch, b, row / group, head * group + row % group);
      const at = place(qs, r * d);
      readRowOf(type, at, address(args, Attention.q) + <usize>q * unit, d, word(args, Attention.qDim));
      for (let i = 0; i < d; i++) {
        const factor = kScale ? load<f32>(place(kScale, i)) * scale : scale;
        store<f32>(place(at, i), load<f32>(place(at, i)) * factor);
      }
    }
    for (let g = 0; g < groups; g++) {
      startState(place(states, g * 16), g * 4, rows, group, 0, past, total, causal, window, sinksOf(args, head));
    }
    memory.fill(sums, 0, <usize>(groups * 4 * dv) << 2);
    const begin = window > 0 ? max(0, past - window + 1) : 0;
    const allSee = causal ? past : total - 1, hiddenBefore = window > 0 ? total - window : 0;
    for (let key = begin; key < total; key += KEYS) {
      const keys = min(KEYS, total - key);
      if (gathers) {
        gather(args, gatheredK, Attention.k, Attention.kBatch, b, key, keys, head, d);
        gather(args, gatheredV, Attention.v, Attention.vBatch, b, key, keys, head, dv);
      }
      const masked = key + keys - 1 > allSee || key < hiddenBefore;
      for (let g = 0; g < groups; g++) {
        for (let t = 0, end = 0; t < keys;) {
          end = gathers ? keys : t + stretchOf(args, key + t, keys - t);
          let k = gathers ? gatheredK : base<T>(args, Attention.k, Attention.kBatch, b, key + t, head);
          for (; t < end; t++) {
            v128.store(place(weights, t * 4), scoreFour<T>(place(qs, g * 4 * d), d, k));
            k += keyRow;
          }
        }
        scaleBlock(args, Attention.kOwn, b, key, keys, head, weights, 1);
        const scale = softmaxBlock(weights, 16, keys, key, place(states, g * 16), masked, softcap);
        for (let lane = 0; lane < 4; lane++) {
          const factor = laneOf(scale, lane);
          if (factor == 1) continue;
          const sum = place(sums, (g * 4 + lane) * dv);
          for (let i = 0; i < dv; i++) store<f32>(place(sum, i), load<f32>(place(sum, i)) * factor);
        }
        scaleBlock(args, Attention.vOwn, b, key, keys, head, weights, 1);
        const sum = place(sums, g * 4 * dv);
        for (let t = 0, n = 0; t < keys; t += n) {
          n = gathers ? keys : stretchOf(args, key + t, keys - t);
          const v = gathers ? gatheredV : base<T>(args, Attention.v, Attention.vBatch, b, key + t, head);
          addValues<T>(sum, dv, place(weights, t * 4), v, n, valueRow);
        }
      }
    }
    for (let r = 0; r < rows; r++) {
      const sum = load<f32>(place(states, r / 4 * 16 + 4 + (r & 3)));
      const row = place(sums, r * dv);
      let zeros: f32 = 0;
      for (let i = 0; i < dv; i++) {
        const value = load<f32>(place(row, i)) / sum;
        zeros += value * 0;
        store<f32>(place(row, i), vScale ? value * load<f32>(place(vScale, i)) : value);
      }
      const y = rowAt(args, Attention.yBatch, b, r / group, head * group + r % group);
      writeRowOf(type, address(args, Attention.y) + <usize>y * unit, row, dv, word(args, Attention.yDim));
      if (zeros != 0) attendWide(args, b, r / group, head, r % group, spare);
    }
  }
}

/**
 * Computes a few queries, as in decoding: keys and values are read in place, for four queries at a time. Their last dimension
 * is dense. 8-bit floats are gathered as f16, 96 keys at a time. Paged keys are taken stretch by stretch.
 *
 * Units are batches × KV heads.
 */
export function attentionFew(args: usize, from: i32, to: i32, scratch: usize): void {
  const type = word(args, Attention.cacheType);
  if (type == Type.f32) fewOf<f32>(args, from, to, scratch);
  else if (type == Type.bf16) fewOf<i16>(args, from, to, scratch);
  else if (type == Type.i8) fewOf<i8>(args, from, to, scratch);
  else fewOf<u16>(args, from, to, scratch);
}
