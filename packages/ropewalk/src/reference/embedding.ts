/** The look-up of rows: bit for bit, or converted to f32 exactly. @module */
import { type BlockTensor, blockBytes, blocksFrom, isBlocks, readBlocks } from '../core/blocks.js';
import type { FloatDtype } from '../core/dtypes.js';
import { copyElements, type Tensor } from '../core/tensor.js';
import type { EmbeddingPlan } from '../ops/embedding.js';
import { readAll, writeAll } from './elements.js';

/** Copies row `rows[n]` of the table to row n of out. */
export function embeddingReference({ rows, weight, out }: EmbeddingPlan): void {
  for (const [n, row] of rows.entries()) {
    const to = out.slice(0, n, n + 1);
    if (isBlocks(weight))
      writeAll(to as Tensor<FloatDtype>, readBlocks(rowOf(weight, row), 'embedding: weight'), 'embedding: out');
    else {
      const from = weight.slice(0, row, row + 1);
      if (from.dtype === to.dtype) copyElements(from, to);
      else writeAll(to as Tensor<FloatDtype>, readAll(from, 'embedding: weight'), 'embedding: out');
    }
  }
}

/** Takes one row of a table in blocks, because a whole vocabulary in float64 might not fit into memory. */
function rowOf({ format, shape, bytes }: BlockTensor, row: number): BlockTensor {
  const width = shape[1]!;
  const rowBytes = blockBytes(format, width);
  return blocksFrom(format, bytes.slice(0, row * rowBytes, (row + 1) * rowBytes), [1, width]);
}
