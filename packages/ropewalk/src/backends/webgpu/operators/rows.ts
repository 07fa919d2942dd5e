/** Operators that go row by row: look-up, normalisation, the largest element. @module */

import { isBlocks } from '../../../core/blocks.js';
import { countElements } from '../../../core/shape.js';
import type { ArgmaxPlan } from '../../../ops/argmax.js';
import type { EmbeddingPlan } from '../../../ops/embedding.js';
import type { RmsNormPlan } from '../../../ops/rms-norm.js';
import { rowsOf } from '../../walks.js';
import { asBits, type Call, elementOf, inFours, usefulStrides } from '../call.js';
import { argmaxKernel } from '../shaders/argmax.js';
import { epsParams } from '../shaders/common.js';
import { GATHER, GATHER_WIDE } from '../shaders/copy.js';
import { rmsNormKernel } from '../shaders/rms-norm.js';
import { blocksAt, denseAt } from './linear.js';

/** Queues a look-up. */
export function runEmbedding(plan: EmbeddingPlan, call: Call): void {
  const { rows, weight, out } = plan;
  if (isBlocks(weight) || weight.dtype !== out.dtype) {
    runWideEmbedding(plan, call);
    return;
  }
  call.bring([weight], [out]);
  if (out.size === 0) return;
  const [from, to] = [call.place(weight), call.place(out)];
  const { element, layout: table } = asBits({
    shape: weight.shape,
    strides: weight.strides,
    offset: from.offset,
    dtype: weight.dtype,
  });
  const { layout: target } = asBits({ shape: out.shape, strides: out.strides, offset: to.offset, dtype: out.dtype });
  // Of 64-bit elements a column is two words.
  const columns = table.shape.slice(1);
  const width = countElements(columns);
  const dense = [table, target].every(
    ({ strides }) => strides.at(-1) === 1 && (columns.length === 1 || strides[1] === 2),
  );
  const rowStrides = [table, target].map((layout) => usefulStrides(layout)[0]!);
  const lanes =
    dense &&
    inFours(
      [width],
      rowStrides.map((stride) => [stride, 1]),
      [table.offset, target.offset],
    )
      ? 4
      : 1;
  const walk = dense
    ? [[width / lanes, lanes, lanes, 0]]
    : columns.map((size, d) => [size, table.strides[d + 1]!, target.strides[d + 1]!, 0]).reverse();
  const n = (rows.length * width) / lanes;
  call.launch({
    kernel: GATHER,
    variant: undefined,
    uses: [
      { name: 'rows', element: 'u32', lanes: 1, written: false, block: call.temporary(Uint32Array.from(rows)) },
      { name: 'weight', element, lanes, written: false, block: from.block },
      { name: 'out', element, lanes, written: true, block: to.block },
    ],
    params: {
      n,
      rank: walk.length,
      width: width / lanes,
      rows: 0,
      weight: table.offset,
      weightRow: table.strides[0]!,
      out: target.offset,
      outRow: target.strides[0]!,
    },
    walk,
    groups: Math.ceil(n / GATHER.threads),
  });
}

/** A look-up that widens to f32. */
function runWideEmbedding({ rows, weight, out }: EmbeddingPlan, call: Call): void {
  const matrix = isBlocks(weight) ? weight.bytes : weight;
  call.bring([matrix], [out]);
  if (out.size === 0) return;
  const [from, to] = [call.place(matrix), call.place(out)];
  const width = out.shape[1]!;
  const table = isBlocks(weight) ? blocksAt(from, weight.format, matrix.size, width, call) : denseAt(from, weight);
  const lanes = inFours([width], [usefulStrides(out)], [to.offset]) ? 4 : 1;
  const fours = Math.ceil(width / 4);
  const n = rows.length * fours;
  call.launch({
    kernel: GATHER_WIDE,
    variant: { weight: table.load, out: lanes },
    uses: [
      { name: 'rows', element: 'u32', lanes: 1, written: false, block: call.temporary(Uint32Array.from(rows)) },
      ...table.uses,
      { name: 'out', element: 'f32', lanes, written: true, block: to.block },
    ],
    params: {
      units: n,
      fours,
      k: width,
      weight: table.offset,
      weightRow: table.row,
      weightStep: table.step,
      out: to.offset,
      outRow: out.strides[0]!,
      outStep: out.strides[1]!,
    },
    groups: Math.ceil(n / GATHER_WIDE.threads),
  });
}

/** Queues an RMS norm. */
export function runRmsNorm({ x, weight, eps, out }: RmsNormPlan, call: Call): void {
  call.bring([x, weight], [out]);
  if (out.size === 0) return;
  const [xs, ws, outs] = [call.place(x), call.place(weight), call.place(out)];
  const d = weight.shape[0]!;
  const { dims, strides } = rowsOf([x, out]);
  const element = elementOf(out.dtype);
  const step = (list: readonly number[]): number => list.at(-1)!;
  const lanes = inFours(
    [d],
    [usefulStrides(x), usefulStrides(out), weight.strides],
    [xs.offset, outs.offset, ws.offset],
  )
    ? 4
    : 1;
  const rows = countElements(dims);
  call.launch({
    kernel: rmsNormKernel(d / lanes),
    variant: { lanes },
    uses: [
      { name: 'x', element, lanes, written: false, block: xs.block },
      { name: 'weight', element: elementOf(weight.dtype), lanes, written: false, block: ws.block },
      { name: 'out', element, lanes, written: true, block: outs.block },
    ],
    params: {
      rows,
      rank: dims.length,
      width: d / lanes,
      d,
      ...epsParams(eps),
      x: xs.offset,
      xStep: step(x.strides) * lanes,
      weight: ws.offset,
      weightStep: weight.strides[0]! * lanes,
      out: outs.offset,
      outStep: step(out.strides) * lanes,
    },
    walk: dims.map((size, i) => [size, strides[0]![i]!, strides[1]![i]!, 0]).reverse(),
    groups: rows,
  });
}

/** Queues an argmax. */
export function runArgmax({ values, outIndex, outValue }: ArgmaxPlan, call: Call): void {
  call.bring([values], [outIndex, outValue]);
  if (outIndex.size === 0) return;
  const [from, index, value] = [call.place(values), call.place(outIndex), call.place(outValue)];
  const { dims, strides } = rowsOf([values, outIndex, outValue]);
  const dtype = elementOf(values.dtype);
  const words = outIndex.dtype === 'i64' ? 2 : 1;
  const rows = countElements(dims);
  call.launch({
    kernel: argmaxKernel(values.shape.at(-1)!),
    variant: { dtype, words },
    uses: [
      { name: 'values', element: dtype, lanes: 1, written: false, block: from.block },
      { name: 'index', element: 'u32', lanes: 1, written: true, block: index.block },
      { name: 'value', element: dtype, lanes: 1, written: true, block: value.block },
    ],
    params: {
      rows,
      rank: dims.length,
      n: values.shape.at(-1)!,
      values: from.offset,
      step: values.strides.at(-1)!,
      index: index.offset * words,
      value: value.offset,
    },
    walk: dims.map((size, i) => [size, strides[0]![i]!, strides[1]![i]! * words, strides[2]![i]!]).reverse(),
    groups: rows,
  });
}
