/** Kernels that take dense rows tile by tile: loads, a computation in lanes, a store, with double buffering. @module */

import type { AscendC, LaneType, LocalTensor, TQue } from '../ascendc.js';
import { BLOCK, REPEAT } from '../costs.js';
import type { GlobalTensor } from '../memory.js';
import type { Tiling } from '../trace.js';
import type { RowFacts } from './declaration.js';
import { oneRow, roundUp } from './rows.js';
import { BUFFER_NUM } from './tiling.js';

/** Elements of a tile of the kernels that work element by element. */
export const TILE = 4096;

/** Blocks for such a kernel: as many as have a tile, at most one a core. */
export function elementBlocks({ rows, length }: Omit<RowFacts, keyof Tiling>, cores: number): number {
  return Math.min(cores, Math.ceil((rows * length) / TILE));
}

/** The most elements of a row whose tile and temporaries fit the unified buffer. */
export const MAX_ROW = 7680;

/** What a kernel of whole rows does not take. */
export function whyNotRows({ length }: RowFacts): string | undefined {
  return length <= MAX_ROW ? undefined : `takes rows of at most ${MAX_ROW} elements, which fit the unified buffer`;
}

/** What {@link stream} moves and computes. */
interface Stream {
  /** Elements of a tile; all tensors are cut alike. */
  readonly tile: number;
  readonly inputs: readonly GlobalTensor[];
  readonly out: GlobalTensor;
  /** What lanes compute in; other dtypes are cast to it and back. */
  readonly lanes: LaneType;
  /** `dst` and `sources` are of type `lanes`; `dst` is none of the sources. */
  readonly compute: (dst: LocalTensor, sources: readonly LocalTensor[], count: number) => void;
}

/** Runs a block's share of the tiles: each load is issued before the tile before it is computed. */
export function stream(c: AscendC, a: RowFacts, { tile, inputs, out, lanes, compute }: Stream): void {
  const total = a.rows * a.length;
  const tiles = Math.ceil(total / tile);
  const block = c.GetBlockIdx();
  const [first, end] = [block, block + 1].map((b) => Math.floor((tiles * b) / a.blocks)) as [number, number];
  const bytes = roundUp(tile * a.size, BLOCK);
  const que = ({ name }: GlobalTensor) => c.pipe.InitBuffer(`_${name}_que`, 'VECIN', BUFFER_NUM, bytes);
  const ques = inputs.map(que);
  const outQue = c.pipe.InitBuffer('_out_que', 'VECOUT', BUFFER_NUM, bytes);
  const wide = (name: string) => (lanes === a.dtype ? undefined : c.pipe.InitTBuf(name, tile * 4).Get(lanes));
  const wides = inputs.map(({ name }) => wide(`_${name}_wide`));
  const outWide = wide('_out_wide');
  const countOf = (n: number) => Math.min(tile, total - n * tile);

  const copyIn = (n: number): void => {
    for (const [i, input] of inputs.entries()) load(c, a, ques[i]!, input, n * tile, countOf(n));
  };
  for (let n = first; n < end; n++) {
    if (n === first) copyIn(n);
    if (n + 1 < end) copyIn(n + 1);
    const count = countOf(n);
    const taken = ques.map((from, i) => from.DeQue(`compute: _${inputs[i]!.name}_que.DeQue()`, a.dtype));
    const sources = taken.map((tensor, i) => widened(c, inputs[i]!.name, wides[i], tensor, count));
    const output = outQue.AllocTensor('compute: _out_que.AllocTensor()', a.dtype);
    compute(outWide ?? output, sources, count);
    if (outWide) c.Cast('compute: Cast(out)', output, outWide, count);
    outQue.EnQue('compute: _out_que.EnQue()', output);
    for (const [i, tensor] of taken.entries())
      ques[i]!.FreeTensor(`compute: _${inputs[i]!.name}_que.FreeTensor()`, tensor);
    const stored = outQue.DeQue('copyOut: _out_que.DeQue()', a.dtype);
    c.DataCopyPadOut('copyOut: DataCopyPad(out)', out, n * tile, stored, oneRow(count * a.size));
    outQue.FreeTensor('copyOut: _out_que.FreeTensor()', stored);
  }
}

/** Loads `count` elements into the next buffer of a queue. */
export function load(c: AscendC, a: RowFacts, que: TQue, from: GlobalTensor, at: number, count: number): void {
  const tensor = que.AllocTensor(`copyIn: _${from.name}_que.AllocTensor()`, a.dtype);
  c.DataCopyPadIn(`copyIn: DataCopyPad(${from.name})`, tensor, from, at, oneRow(count * a.size));
  que.EnQue(`copyIn: _${from.name}_que.EnQue()`, tensor);
}

/** A tensor in lanes of another type, where `wide` is there. */
export function widened(c: AscendC, name: string, wide: LocalTensor | undefined, tensor: LocalTensor, count: number) {
  if (wide) c.Cast(`compute: Cast(${name})`, wide, tensor, count);
  return wide ?? tensor;
}

/**
 * Reduces `count` f32 lanes to one, the first of the tensor that is returned.
 *
 * @param work - two tensors, each with a lane for every 64 of src
 */
export function reduceRow(
  c: AscendC,
  op: 'WholeReduceSum' | 'WholeReduceMax',
  src: LocalTensor,
  count: number,
  work: readonly [LocalTensor, LocalTensor],
): LocalTensor {
  const full = REPEAT / 4;
  let [from, left, step] = [src, count, 0];
  do {
    const to = work[step % 2]!;
    const repeats = Math.floor(left / full);
    const line = `compute: ${op}(row)`;
    const strides = { dstRepStride: 1, srcRepStride: 8 };
    if (repeats > 0) c[op](line, to, from, { mask: full, repeats, ...strides });
    const rest = left % full;
    if (rest > 0) c[op](line, to.at(repeats), from.at(repeats * full), { mask: rest, repeats: 1, ...strides });
    [from, left, step] = [to, Math.ceil(left / full), step + 1];
  } while (left > 1);
  return from;
}

/** The tensors that {@link reduceRow} works in. */
export function reduceWork(c: AscendC, length: number): [LocalTensor, LocalTensor] {
  const work = (name: string) => c.pipe.InitTBuf(name, Math.ceil(length / 64) * 4).Get('f32');
  return [work('_work'), work('_work2')];
}
