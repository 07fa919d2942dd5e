/** Operators that carry a state from token to token: the causal convolution, the gated delta rule, the selective scan. */
import { CausalConv, CHANNELS, GatedDelta, SsmScan } from '../abi';
import { address, place, real, word } from './args';
import { bytesOf, expNonPositive4, laneOf, madd, minusAbs4, one4, readRowOf, writeRowOf } from './lanes';

/** Computes the sigmoid of four numbers by e^−|x|, which cannot overflow. */
@inline function sigmoid4(x: v128): v128 {
  const power = expNonPositive4(minusAbs4(x)), one = one4();
  return f32x4.div(v128.bitselect(power, one, i32x4.shr_s(x, 31)), f32x4.add(one, power));
}

/** Multiplies a dense f32 row by another, to a multiple of four elements. */
@inline function multiplyRow(y: usize, by: usize, n: i32): void {
  for (let i = 0; i < n; i += 4) v128.store(place(y, i), f32x4.mul(v128.load(place(y, i)), v128.load(place(by, i))));
}

/** Gives the address of a row that starts at a block's first channel. */
@inline function rowAt(args: usize, name: i32, row: i32, rowStride: i32, channel: i32, stride: i32, type: i32): usize {
  return address(args, name) + <usize>(row * word(args, rowStride) + channel * word(args, stride)) * bytesOf(type);
}

/**
 * Convolves blocks of channels.
 *
 * @param scratch - memory of this thread: f32 [2·width + 3, CHANNELS]: the weights, a row for each column; the last rows
 *   of u, in a ring; the bias; the gate before, then the sums; the gate after
 */
export function causalConv(args: usize, from: i32, to: i32, scratch: usize): void {
  const type = word(args, CausalConv.type), width = word(args, CausalConv.width);
  const tokens = word(args, CausalConv.tokens), channels = word(args, CausalConv.channels);
  const before = address(args, CausalConv.before) != 0, after = address(args, CausalConv.after) != 0;
  const weightType = word(args, CausalConv.weightType), state = address(args, CausalConv.state);
  const past = width - 1;
  const ring = place(scratch, width * CHANNELS), bias = place(ring, width * CHANNELS), other = place(bias, CHANNELS);
  for (let unit = from; unit < to; unit++) {
    const first = unit * CHANNELS, n = min(CHANNELS, channels - first);
    for (let j = 0; j < width; j++) {
      const weights = rowAt(args, CausalConv.weight, first, CausalConv.weightRow, j, CausalConv.weightStride, weightType);
      readRowOf(weightType, place(scratch, j * CHANNELS), weights, n, word(args, CausalConv.weightRow));
    }
    memory.fill(bias, 0, CHANNELS << 2);
    if (address(args, CausalConv.bias)) {
      const biasType = word(args, CausalConv.biasType), stride = word(args, CausalConv.biasStride);
      readRowOf(biasType, bias, address(args, CausalConv.bias) + <usize>(first * stride) * bytesOf(biasType), n, stride);
    }
    for (let j = 0; j < past; j++) {
      const row = place(ring, j * CHANNELS);
      if (word(args, CausalConv.fresh)) memory.fill(row, 0, CHANNELS << 2);
      else memory.copy(row, place(state, j * channels + first), n << 2);
    }
    for (let t = 0; t < tokens; t++) {
      const now = place(ring, ((past + t) % width) * CHANNELS);
      const x = rowAt(args, CausalConv.x, t, CausalConv.xRow, first, CausalConv.xStride, type);
      readRowOf(type, now, x, n, word(args, CausalConv.xStride));
      if (before) {
        const gate = rowAt(args, CausalConv.before, t, CausalConv.beforeRow, first, CausalConv.beforeStride, type);
        readRowOf(type, other, gate, n, word(args, CausalConv.beforeStride));
        multiplyRow(now, other, n);
      }
      for (let i = 0; i < n; i += 4) {
        let sum = v128.load(place(bias, i));
        for (let j = 0; j < width; j++) {
          const at = place(ring, ((t + j) % width) * CHANNELS + i);
          sum = madd(v128.load(place(scratch, j * CHANNELS + i)), v128.load(at), sum);
        }
        if (word(args, CausalConv.silu)) sum = f32x4.mul(sum, sigmoid4(sum));
        v128.store(place(other, i), sum);
      }
      if (after) {
        const gate = rowAt(args, CausalConv.after, t, CausalConv.afterRow, first, CausalConv.afterStride, type);
        readRowOf(type, place(other, CHANNELS), gate, n, word(args, CausalConv.afterStride));
        multiplyRow(other, place(other, CHANNELS), n);
      }
      const y = rowAt(args, CausalConv.y, t, CausalConv.yRow, first, CausalConv.yStride, type);
      writeRowOf(type, y, other, n, word(args, CausalConv.yStride));
    }
    for (let j = 0; j < past; j++) {
      memory.copy(place(state, j * channels + first), place(ring, ((tokens + j) % width) * CHANNELS), n << 2);
    }
  }
}

/** Divides a dense f32 row by the root of its sum of squares and eps, and multiplies it by a factor. */
function unitRow(x: usize, n: i32, eps: f64, factor: f64): void {
  let sum = eps;
  for (let i = 0; i < n; i++) sum += <f64>load<f32>(place(x, i)) * <f64>load<f32>(place(x, i));
  const by = factor / sqrt(sum);
  for (let i = 0; i < n; i++) store<f32>(place(x, i), <f32>(<f64>load<f32>(place(x, i)) * by));
}

/**
 * Runs the gated delta rule of heads.
 *
 * `Sᵀk` and `Sᵀq` of the old state are summed in one pass, and the output is `γ·Sᵀq + (k·q)·correction`, which saves a
 * pass over the new state.
 *
 * @param scratch - memory of this thread: f32 [2·d + 3·dv], each rounded up to four elements: k, q, v, Sᵀk, Sᵀq
 */
export function gatedDelta(args: usize, from: i32, to: i32, scratch: usize): void {
  const type = word(args, GatedDelta.type), size = bytesOf(type), tokens = word(args, GatedDelta.tokens);
  const d = word(args, GatedDelta.d), dv = word(args, GatedDelta.dv);
  const heads = word(args, GatedDelta.heads), keyHeads = word(args, GatedDelta.keyHeads);
  const eps = load<f64>(place(args, GatedDelta.eps)), scale = <f64>real(args, GatedDelta.scale);
  const wide = (dv + 3) & ~3, key = scratch, query = place(key, (d + 3) & ~3), value = place(query, (d + 3) & ~3);
  const held = place(value, wide), asked = place(held, wide);
  for (let h = from; h < to; h++) {
    const group = word(args, GatedDelta.tiled) ? h % keyHeads : h / (heads / keyHeads);
    const state = place(address(args, GatedDelta.state), h * d * dv);
    if (word(args, GatedDelta.fresh)) memory.fill(state, 0, (d * dv) << 2);
    const gates = place(address(args, GatedDelta.gates), 2 * h * tokens);
    for (let t = 0; t < tokens; t++) {
      const kAt = t * word(args, GatedDelta.kRow) + group * word(args, GatedDelta.kHead);
      const qAt = t * word(args, GatedDelta.qRow) + group * word(args, GatedDelta.qHead);
      const vAt = t * word(args, GatedDelta.vRow) + h * word(args, GatedDelta.vHead);
      readRowOf(type, key, address(args, GatedDelta.k) + <usize>kAt * size, d, word(args, GatedDelta.kStride));
      readRowOf(type, query, address(args, GatedDelta.q) + <usize>qAt * size, d, word(args, GatedDelta.qStride));
      readRowOf(type, value, address(args, GatedDelta.v) + <usize>vAt * size, dv, word(args, GatedDelta.vStride));
      unitRow(key, d, eps, 1);
      unitRow(query, d, eps, scale);
      const gamma = load<f32>(place(gates, 2 * t)), beta = load<f32>(place(gates, 2 * t + 1));
      let both: f32 = 0; // k·q
      for (let i = 0; i < d; i++) both += load<f32>(place(key, i)) * load<f32>(place(query, i));
      memory.fill(held, 0, (2 * wide) << 2);
      for (let i = 0; i < d; i++) {
        const row = place(state, i * dv);
        const k4 = f32x4.splat(load<f32>(place(key, i))), q4 = f32x4.splat(load<f32>(place(query, i)));
        let j = 0;
        for (; j + 4 <= dv; j += 4) {
          const s = v128.load(place(row, j));
          v128.store(place(held, j), madd(s, k4, v128.load(place(held, j))));
          v128.store(place(asked, j), madd(s, q4, v128.load(place(asked, j))));
        }
        for (; j < dv; j++) {
          const s = load<f32>(place(row, j));
          store<f32>(place(held, j), load<f32>(place(held, j)) + s * laneOf(k4, 0));
          store<f32>(place(asked, j), load<f32>(place(asked, j)) + s * laneOf(q4, 0));
        }
      }
      // `held` becomes the correction, and `asked` the output.
      for (let j = 0; j < dv; j++) {
        const correction = beta * (load<f32>(place(value, j)) - gamma * load<f32>(place(held, j)));
        store<f32>(place(held, j), correction);
        store<f32>(place(asked, j), gamma * load<f32>(place(asked, j)) + both * correction);
      }
      const gamma4 = f32x4.splat(gamma);
      for (let i = 0; i < d; i++) {
        const row = place(state, i * dv), k4 = f32x4.splat(load<f32>(place(key, i)));
        let j = 0;
        for (; j + 4 <= dv; j += 4) {
          const s = f32x4.mul(v128.load(place(row, j)), gamma4);
          v128.store(place(row, j), madd(k4, v128.load(place(held, j)), s));
        }
        for (; j < dv; j++) {
          const s = load<f32>(place(row, j)) * gamma;
          store<f32>(place(row, j), s + laneOf(k4, 0) * load<f32>(place(held, j)));
        }
      }
      const yAt = t * word(args, GatedDelta.yRow) + h * word(args, GatedDelta.yHead);
      writeRowOf(type, address(args, GatedDelta.y) + <usize>yAt * size, asked, dv, word(args, GatedDelta.yStride));
    }
  }
}

/**
 * Runs the selective scan of heads, in one pass over the state for each token.
 *
 * @param scratch - memory of this thread: f32 [2·d + 2·dv], each rounded up to four elements: b, c, x and then Δ·x, y
 */
export function ssmScan(args: usize, from: i32, to: i32, scratch: usize): void {
  const type = word(args, SsmScan.type), size = bytesOf(type), tokens = word(args, SsmScan.tokens);
  const d = word(args, SsmScan.d), dv = word(args, SsmScan.dv), skips = address(args, SsmScan.skip);
  const b = scratch, c = place(b, (d + 3) & ~3), x = place(c, (d + 3) & ~3), y = place(x, (dv + 3) & ~3);
  for (let h = from; h < to; h++) {
    const group = h / word(args, SsmScan.share);
    const state = place(address(args, SsmScan.state), h * d * dv);
    if (word(args, SsmScan.fresh)) memory.fill(state, 0, (d * dv) << 2);
    const steps = place(address(args, SsmScan.steps), 2 * h * tokens);
    const skip = skips ? load<f32>(place(skips, h)) : <f32>0;
    for (let t = 0; t < tokens; t++) {
      const bAt = t * word(args, SsmScan.bRow) + group * word(args, SsmScan.bGroup);
      const cAt = t * word(args, SsmScan.cRow) + group * word(args, SsmScan.cGroup);
      const xAt = t * word(args, SsmScan.xRow) + h * word(args, SsmScan.xHead);
      readRowOf(type, b, address(args, SsmScan.b) + <usize>bAt * size, d, word(args, SsmScan.bStride));
      readRowOf(type, c, address(args, SsmScan.c) + <usize>cAt * size, d, word(args, SsmScan.cStride));
      readRowOf(type, x, address(args, SsmScan.x) + <usize>xAt * size, dv, word(args, SsmScan.xStride));
      const gamma = load<f32>(place(steps, 2 * t)), step = load<f32>(place(steps, 2 * t + 1));
      for (let j = 0; j < dv; j++) {
        const value = load<f32>(place(x, j));
        store<f32>(place(y, j), skip * value);
        store<f32>(place(x, j), step * value);
      }
      const gamma4 = f32x4.splat(gamma);
      for (let i = 0; i < d; i++) {
        const row = place(state, i * dv);
        const b4 = f32x4.splat(load<f32>(place(b, i))), c4 = f32x4.splat(load<f32>(place(c, i)));
        let j = 0;
        for (; j + 4 <= dv; j += 4) {
          const s = madd(b4, v128.load(place(x, j)), f32x4.mul(v128.load(place(row, j)), gamma4));
          v128.store(place(row, j), s);
          v128.store(place(y, j), madd(s, c4, v128.load(place(y, j))));
        }
        for (; j < dv; j++) {
          const s = load<f32>(place(row, j)) * gamma + laneOf(b4, 0) * load<f32>(place(x, j));
          store<f32>(place(row, j), s);
          store<f32>(place(y, j), load<f32>(place(y, j)) + s * laneOf(c4, 0));
        }
      }
      const yAt = t * word(args, SsmScan.yRow) + h * word(args, SsmScan.yHead);
      writeRowOf(type, address(args, SsmScan.y) + <usize>yAt * size, y, dv, word(args, SsmScan.yStride));
    }
  }
}
