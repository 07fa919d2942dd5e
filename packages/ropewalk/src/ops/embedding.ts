/** The look-up of rows in a table. @module */
import { type BlockTensor, checkWeight, isBlocks } from '../core/blocks.js';
import { refuse } from '../core/errors.js';
import { checkTensor, readIntegers, type Tensor } from '../core/tensor.js';
import { CHECKED, checkApart, checkDims, checkDtype, checkedPlan, checkOutput, isHalf } from './checks.js';

/** A checked look-up of rows. Frozen. */
export interface EmbeddingPlan {
  readonly op: 'embedding';
  /** The rows to copy, each within the table. */
  readonly rows: Float64Array;
  /** `[rows, width]`; its dtype is that of out, or converts exactly to out's f32. */
  readonly weight: Tensor | BlockTensor;
  /** `[index, width]` */
  readonly out: Tensor;
}

/**
 * Checks a look-up: row `index[n]` of the table becomes row n of out, bit for bit; or from f16, bf16 and blocks to f32,
 * exactly.
 *
 * Models whose head is tied to the table give this operator and linear the same weight.
 *
 * @param index - `[n]`, any integer dtype, in host memory; read now
 * @param weight - `[rows, width]`, any dtype and strides, or blocks; only read
 * @param out - `[n, width]`, the dtype of weight, or f32 where weight is f16, bf16 or blocks; written
 * @throws {RopewalkError} RANGE naming the index and the number of rows; SHAPE, DTYPE or ALIAS
 * @see InfiniTensor/llaisys@7740d46f, embedding
 */
export function planEmbedding(index: Tensor, weight: Tensor | BlockTensor, out: Tensor): EmbeddingPlan {
  checkTensor(index, 'embedding: index');
  checkWeight(weight, 'embedding: weight');
  if (index.rank !== 1) refuse('SHAPE', 'embedding: index', 'one dimension', index.shape);
  if (weight.shape.length !== 2) refuse('SHAPE', 'embedding: weight', 'two dimensions [rows, width]', weight.shape);
  const [count, width] = weight.shape as [number, number];
  checkDims(out, 'embedding: out', [index.size, width]);
  if (isBlocks(weight)) checkDtype(out, 'embedding: out', 'f32');
  else if (!isHalf(weight.dtype)) checkDtype(out, 'embedding: out', weight.dtype);
  else if (out.dtype !== weight.dtype && out.dtype !== 'f32')
    refuse('DTYPE', 'embedding: out', `dtype ${weight.dtype} or f32`, out.dtype);
  const rows = readIntegers(index, 'embedding: index');
  for (let n = 0; n < rows.length; n++) {
    const row = rows[n]!;
    // In torch −1 means the last row; here a negative index is an error.
    if (row < 0 || row >= count) {
      const allowed =
        count === 0 ? 'no index, as the table has 0 rows' : `a row of the table, in [0, ${count - 1}] (${count} rows)`;
      refuse('RANGE', `embedding: index[${n}]`, allowed, row);
    }
  }
  checkOutput(out, 'embedding: out');
  checkApart(out, 'embedding: out', 'weight', isBlocks(weight) ? weight.bytes : weight);
  checkApart(out, 'embedding: out', 'index', index);
  return checkedPlan<EmbeddingPlan>({ checked: CHECKED, op: 'embedding', rows, weight, out });
}
