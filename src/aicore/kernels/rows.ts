/**
 * Rows of a RoPE call and how blocks share them: a row is one head of one token of one batch.
 *
 * @module
 */
import type { AscendC, CopyParams, LocalTensor } from '../ascendc.js';
import type { GlobalTensor } from '../memory.js';
import type { RopeArgs, RowStrides } from './args.js';

/** Where a row lies. */
export interface Row {
  readonly batch: number;
  readonly token: number;
  readonly head: number;
}

/** The row of a number in batch-major order. */
export function rowOf(a: RopeArgs, n: number): Row {
  const head = n % a.heads;
  const rest = Math.floor(n / a.heads);
  return { batch: Math.floor(rest / a.seq), token: rest % a.seq, head };
}

/** First element of a row. */
export function startOf(row: Row, strides: RowStrides): number {
  return row.batch * strides.batch + row.token * strides.seq + row.head * strides.head;
}

/** The rows of one of `blocks` blocks, within one of each other: from the first to before the last. */
export function shareOf(rows: number, block: number, blocks: number): { first: number; end: number } {
  return { first: Math.floor((rows * block) / blocks), end: Math.floor((rows * (block + 1)) / blocks) };
}

/** One row of `bytes`. */
export function oneRow(bytes: number): CopyParams {
  return { blockCount: 1, blockLen: bytes, srcStride: 0, dstStride: 0 };
}

/**
 * Copies a column of several heads' rows in: one DataCopyPad where the heads lie apart going up, else one for each.
 *
 * @param start - element of the first row's column
 * @param stride - elements from head to head
 * @param length - elements of a row's column
 * @param pitch - elements from row to row in the unified buffer, whole datablocks
 */
export function copyRowsIn(
  c: AscendC,
  line: string,
  dst: LocalTensor,
  src: GlobalTensor,
  start: number,
  stride: number,
  rows: number,
  length: number,
  pitch: number,
): void {
  const bytes = length * src.size;
  const gap = (stride - length) * src.size;
  if (rows > 1 && gap >= 0 && gap < 2 ** 32) {
    c.DataCopyPadIn(line, dst, src, start, { blockCount: rows, blockLen: bytes, srcStride: gap, dstStride: 0 });
    return;
  }
  for (let r = 0; r < rows; r++) c.DataCopyPadIn(line, dst.at(r * pitch), src, start + r * stride, oneRow(bytes));
}

/** As {@link copyRowsIn}, the other way. */
export function copyRowsOut(
  c: AscendC,
  line: string,
  dst: GlobalTensor,
  start: number,
  stride: number,
  src: LocalTensor,
  rows: number,
  length: number,
  pitch: number,
): void {
  const bytes = length * dst.size;
  const gap = (stride - length) * dst.size;
  if (rows > 1 && gap >= 0 && gap < 2 ** 32) {
    c.DataCopyPadOut(line, dst, start, src, { blockCount: rows, blockLen: bytes, srcStride: 0, dstStride: gap });
    return;
  }
  for (let r = 0; r < rows; r++) c.DataCopyPadOut(line, dst, start + r * stride, src.at(r * pitch), oneRow(bytes));
}

/** Rounds up to a multiple. */
export function roundUp(n: number, unit: number): number {
  return Math.ceil(n / unit) * unit;
}
