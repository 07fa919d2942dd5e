/**
 * RoPE in float64: the oracle's rotation, written to be read.
 *
 * @module
 */

import { loadNumber, storeNumber } from '../core/dtypes.js';
import { copyElements, hostOf } from '../core/tensor.js';
import type { RopeCall } from '../ops/rope/call.js';

/**
 * Rotates every head row of `x` into `out`: computes in float64, rounds once at the store.
 *
 * `y0 = x0·cos − x1·sin`, `y1 = x0·sin + x1·cos` for each pair of the rotated window; the other dimensions are copied bit for bit.
 *
 * @param call - from bindRope, which has already refused every bad shape and overlap
 * @see RoFormer, arXiv:2104.09864, eq. 34
 */
export function ropeReference(call: RopeCall): void {
  const { plan, x, out } = call; // x, out: [batch, seq, head, head_dim]
  const { rotaryDim, rotaryOffset, headDim, read, write, table } = plan;
  const [batch, seqLen, numHeads] = x.shape as [number, number, number, number];
  const source = hostOf(x, 'rope: x');
  const target = hostOf(out, 'rope: out');

  for (const [start, end] of [
    [0, rotaryOffset],
    [rotaryOffset + rotaryDim, headDim],
  ] as const) {
    if (end > start && out !== x) copyElements(x.slice(3, start, end), out.slice(3, start, end));
  }

  const xDim = x.strides[3]!;
  const outDim = out.strides[3]!;
  const y = new Float64Array(rotaryDim);
  for (let b = 0; b < batch; b++) {
    for (let s = 0; s < seqLen; s++) {
      const row = plan.tableRows[plan.batch === undefined ? s : b * seqLen + s]! * table.pairs;
      for (let h = 0; h < numHeads; h++) {
        const xAt = x.offset + b * x.strides[0]! + s * x.strides[1]! + h * x.strides[2]! + rotaryOffset * xDim;
        const outAt = out.offset + b * out.strides[0]! + s * out.strides[1]! + h * out.strides[2]! + rotaryOffset * outDim;
        // The whole window is read before any of it is written, so out may be x.
        for (let j = 0; j < table.pairs; j++) {
          const i0 = j * read.step;
          const x0 = loadNumber(source, x.dtype, xAt + i0 * xDim);
          const x1 = loadNumber(source, x.dtype, xAt + (i0 + read.gap) * xDim);
          const cos = table.cos[row + j]!;
          const sin = table.sin[row + j]!;
          const o0 = j * write.step;
          y[o0] = x0 * cos - x1 * sin;
          y[o0 + write.gap] = x0 * sin + x1 * cos;
        }
        for (let i = 0; i < rotaryDim; i++) storeNumber(target, out.dtype, outAt + i * outDim, y[i]!);
      }
    }
  }
}
