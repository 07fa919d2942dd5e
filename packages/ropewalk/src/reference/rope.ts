/** RoPE in float64: the oracle's rotation, written to be read. @module */
import { bitsOf, loadNumber, storeNumber } from '../core/dtypes.js';
import { hostOf } from '../core/tensor.js';
import type { RopeCall, RopePart } from '../ops/rope/call.js';
import type { RopePlan } from '../ops/rope/plan.js';
import { LEAST_ROW } from '../ops/scales.js';
import { readAll } from './elements.js';

/**
 * Rotates every head of each part's `x` into its `out`: computes in float64, rounds once at the store.
 *
 * `y0 = x0·cos − x1·sin`, `y1 = x0·sin + x1·cos` for each pair of the rotated window; the other dimensions are copied
 * bit for bit, unless a norm or another dtype changes them. A norm comes first: `x · weight / √(mean(x²) + eps)`; the
 * scale of an 8-bit cache comes last: stored = round(y / scale).
 *
 * @see RoFormer, arXiv:2104.09864, eq. 34
 */
export function ropeReference({ plan, parts }: RopeCall): void {
  for (const part of parts) rotatePart(plan, part);
}

function rotatePart(plan: RopePlan, { x, out, rows, blockSize, rotate, scale, rowScales, norm }: RopePart): void {
  const { rotaryOffset, read, write, table } = plan;
  const [batch, seqLen, numHeads, headDim] = x.shape as [number, number, number, number];
  const pairs = rotate ? table.pairs : 0;
  const source = hostOf(x, 'rope: x');
  const target = hostOf(out, 'rope: out');
  const ownScales = rowScales && hostOf(rowScales, 'rope: rowScales');
  const sourceBits = bitsOf(source);
  const targetBits = bitsOf(target);
  const weight = norm && readAll(norm.weight, 'rope: norm.weight');
  const copies = !norm && x.dtype === out.dtype;

  const xDim = x.strides[3]!;
  const outDim = out.strides[3]!;
  const head = new Float64Array(headDim);
  const y = new Float64Array(headDim);
  for (let b = 0; b < batch; b++) {
    for (let s = 0; s < seqLen; s++) {
      const tableRow = plan.tableRows[plan.batch === undefined ? s : b * seqLen + s]! * table.pairs;
      const row = rows ? rows[b * seqLen + s]! : s;
      if (row < 0) continue; // The token is skipped.
      const [block, outRow] = blockSize === undefined ? [b, row] : [Math.floor(row / blockSize), row % blockSize];
      for (let h = 0; h < numHeads; h++) {
        const xAt = x.offset + b * x.strides[0]! + s * x.strides[1]! + h * x.strides[2]!;
        const outAt = out.offset + block * out.strides[0]! + outRow * out.strides[1]! + h * out.strides[2]!;
        // The whole head is read before any of it is written, so out may be x.
        for (let i = 0; i < headDim; i++) head[i] = loadNumber(source, x.dtype, xAt + i * xDim);
        if (norm && weight) {
          let squares = 0;
          for (let i = 0; i < headDim; i++) squares += head[i]! * head[i]!;
          const rms = Math.sqrt(squares / headDim + norm.eps);
          for (let i = 0; i < headDim; i++) head[i] = (weight[i]! * head[i]!) / rms;
        }
        y.set(head);
        for (let j = 0; j < pairs; j++) {
          const i0 = rotaryOffset + j * read.step;
          const x0 = head[i0]!;
          const x1 = head[i0 + read.gap]!;
          const cos = table.cos[tableRow + j]!;
          const sin = table.sin[tableRow + j]!;
          const o0 = rotaryOffset + j * write.step;
          y[o0] = x0 * cos - x1 * sin;
          y[o0 + write.gap] = x0 * sin + x1 * cos;
        }
        let own = 1;
        if (rowScales && ownScales) {
          const largest = y.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
          own = largest < LEAST_ROW ? 0 : Math.fround(largest / 127);
          const [inBlock, inRow, inHead] = rowScales.strides as [number, number, number];
          ownScales[rowScales.offset + block! * inBlock + outRow! * inRow + h * inHead] = own;
          for (let i = 0; i < headDim; i++) y[i] = own === 0 ? 0 : y[i]! / own;
        }
        for (let i = 0; i < headDim; i++) {
          const rotated = i >= rotaryOffset && i < rotaryOffset + 2 * pairs;
          if (copies && !rotated) targetBits[outAt + i * outDim] = sourceBits[xAt + i * xDim]!;
          else storeNumber(target, out.dtype, outAt + i * outDim, scale ? y[i]! / scale[h * headDim + i]! : y[i]!);
        }
      }
    }
  }
}
