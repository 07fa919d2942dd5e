/**
 * The kernel `correct`: the structure of the baseline without its faults. It takes every batch, positions of each
 * batch's own, any strides, any even head_dim, both pairings, f32, f16, and by way of f32 bf16, and halves beside f32
 * tables. It still handles one row a step and merges on the scalar unit. @module
 */
import { type AscendC, oneRow } from '../ascendc.js';
import { BLOCK, REPEAT } from '../costs.js';
import type { RopeArgs } from './args.js';
import { declareKernel, KERNEL_DTYPES, type KernelDeclaration } from './declaration.js';
import {
  copyTail,
  ROPE_ARGUMENTS,
  roundUp,
  rowOf,
  shareOf,
  startOf,
  tableRowOf,
  tailOf,
  whyNotLeading,
} from './rows.js';

/** The baseline without its faults, over all cores. */
export const CORRECT: KernelDeclaration = /* @__PURE__ */ declareKernel<RopeArgs>({
  name: 'correct',
  operator: 'rope',
  dtypes: KERNEL_DTYPES,
  arguments: ROPE_ARGUMENTS,
  takes: ['blocks', 'buffers'],
  whyNot: whyNotLeading,
  kernel: correctKernel,
});

function correctKernel(c: AscendC, a: RopeArgs): void {
  const { dtype: T, laneType: C, laneBytes, half, tableDtype, buffers } = a;
  const halfBytes = roundUp(half * a.size, BLOCK);
  const tableBytes = roundUp(half * a.tableSize, BLOCK);
  const interleaved = a.pairing === 'interleaved';
  // GatherMask reads whole repeats, and writes half of the bytes that it reads.
  const rowLanes = roundUp(a.rotaryDim * laneBytes, REPEAT) / laneBytes;
  const halfLanes = interleaved ? rowLanes / 2 : roundUp(half * laneBytes, BLOCK) / laneBytes;
  const rowBytes = interleaved ? rowLanes * a.size : 2 * halfBytes;

  const inQue = c.pipe.InitBuffer('_in_que', 'VECIN', buffers, rowBytes);
  const outQue = c.pipe.InitBuffer('_out_que', 'VECOUT', buffers, rowBytes);
  const sinQue = c.pipe.InitBuffer('_sin_que', 'VECIN', buffers, tableBytes);
  const cosQue = c.pipe.InitBuffer('_cos_que', 'VECIN', buffers, tableBytes);
  const temporary = (name: string, lanes = halfLanes) => c.pipe.InitTBuf(name, lanes * laneBytes).Get(C);
  const [odd, even] = [temporary('_tmp_odd_buf'), temporary('_tmp_even_buf')];
  const [odd1, odd2] = [temporary('_tmp_odd_buf1'), temporary('_tmp_odd_buf2')];
  const [even1, even2] = [temporary('_tmp_even_buf1'), temporary('_tmp_even_buf2')];
  const wideX = a.widens ? temporary('_x_f32', rowLanes) : undefined;
  const wideTables = tableDtype === C ? undefined : { sin: temporary('_sin_f32'), cos: temporary('_cos_f32') };
  const wide = wideX && { x: wideX, y: temporary('_y_f32', rowLanes) };
  const tail = tailOf(c, a, 1, 'tail');
  const second = halfBytes / a.size; // the start of a GPT-NeoX row's second half in its buffer
  const [wholeRow, halfRow] = [oneRow(a.rotaryDim * a.size), oneRow(half * a.size)];
  const tableRow = oneRow(half * a.tableSize);

  const copyIn = (n: number): void => {
    const row = rowOf(a, n);
    const input = inQue.AllocTensor('copyIn: _in_que.AllocTensor()', T);
    const sin = sinQue.AllocTensor('copyIn: _sin_que.AllocTensor()', tableDtype);
    const cos = cosQue.AllocTensor('copyIn: _cos_que.AllocTensor()', tableDtype);
    const idx = startOf(row, a.xStrides);
    if (interleaved) c.DataCopyPadIn('copyIn: DataCopyPad(x)', input, a.x, idx, wholeRow);
    else {
      // Two copies: in its row, the second half need not start on a datablock.
      c.DataCopyPadIn('copyIn: DataCopyPad(x, first half)', input, a.x, idx, halfRow);
      c.DataCopyPadIn('copyIn: DataCopyPad(x, second half)', input.at(second), a.x, idx + half, halfRow);
    }
    const pos = tableRowOf(c, a, row);
    c.DataCopyPadIn('copyIn: DataCopyPad(sin)', sin, a.sin, pos * half, tableRow);
    c.DataCopyPadIn('copyIn: DataCopyPad(cos)', cos, a.cos, pos * half, tableRow);
    inQue.EnQue('copyIn: _in_que.EnQue()', input);
    sinQue.EnQue('copyIn: _sin_que.EnQue()', sin);
    cosQue.EnQue('copyIn: _cos_que.EnQue()', cos);
    tail?.copyIn({ row, rows: 1 });
  };

  const compute = (): void => {
    const input = inQue.DeQue('compute: _in_que.DeQue()', T);
    const sinIn = sinQue.DeQue('compute: _sin_que.DeQue()', tableDtype);
    const cosIn = cosQue.DeQue('compute: _cos_que.DeQue()', tableDtype);
    const output = outQue.AllocTensor('compute: _out_que.AllocTensor()', T);
    const [sin, cos] = [wideTables?.sin ?? sinIn, wideTables?.cos ?? cosIn];
    if (wideTables) {
      c.Cast('compute: Cast(sin)', sin, sinIn, half);
      c.Cast('compute: Cast(cos)', cos, cosIn, half);
    }
    let [x0, x1] = [odd, even];
    if (interleaved) {
      if (wide) c.Cast('compute: Cast(x)', wide.x, input, a.rotaryDim);
      const params = { repeatTimes: (rowLanes * laneBytes) / REPEAT, src0RepeatStride: 8 };
      c.GatherMask('compute: GatherMask(tmp_odd, x, 1)', odd, wide?.x ?? input, 1, params);
      c.GatherMask('compute: GatherMask(tmp_even, x, 2)', even, wide?.x ?? input, 2, params);
    } else if (wide) {
      c.Cast('compute: Cast(x, first half)', odd, input, half);
      c.Cast('compute: Cast(x, second half)', even, input.at(second), half);
    } else [x0, x1] = [input, input.at(second)];
    c.PipeBarrier('V');
    c.Mul('compute: Mul(tmp_odd1, x0, cos)', odd1, x0, cos, half);
    c.Mul('compute: Mul(tmp_odd2, x1, sin)', odd2, x1, sin, half);
    c.Mul('compute: Mul(tmp_even1, x0, sin)', even1, x0, sin, half);
    c.Mul('compute: Mul(tmp_even2, x1, cos)', even2, x1, cos, half);
    c.PipeBarrier('V');
    const straight = !interleaved && !wide;
    c.Sub('compute: Sub(y0, tmp_odd1, tmp_odd2)', straight ? output : odd1, odd1, odd2, half);
    c.Add('compute: Add(y1, tmp_even1, tmp_even2)', straight ? output.at(second) : even1, even1, even2, half);
    c.PipeBarrier('V');
    if (interleaved) {
      const merged = wide?.y ?? output;
      const line = 'compute: merge y(2j) = tmp_odd1(j), y(2j + 1) = tmp_even1(j)';
      c.MergeValues(line, merged, [odd1, even1], half);
      if (wide) c.Cast('compute: Cast(y)', output, wide.y, a.rotaryDim);
    } else if (wide) {
      c.Cast('compute: Cast(y, first half)', output, odd1, half);
      c.Cast('compute: Cast(y, second half)', output.at(second), even1, half);
    }
    outQue.EnQue('compute: _out_que.EnQue()', output);
    inQue.FreeTensor('compute: _in_que.FreeTensor()', input);
    sinQue.FreeTensor('compute: _sin_que.FreeTensor()', sinIn);
    cosQue.FreeTensor('compute: _cos_que.FreeTensor()', cosIn);
    copyTail(c, tail, a.dim - a.rotaryDim, 'tail');
  };

  const copyOut = (n: number): void => {
    const row = rowOf(a, n);
    const output = outQue.DeQue('copyOut: _out_que.DeQue()', T);
    const idy = startOf(row, a.yStrides);
    if (interleaved) c.DataCopyPadOut('copyOut: DataCopyPad(y)', a.y, idy, output, wholeRow);
    else {
      c.DataCopyPadOut('copyOut: DataCopyPad(y, first half)', a.y, idy, output, halfRow);
      c.DataCopyPadOut('copyOut: DataCopyPad(y, second half)', a.y, idy + half, output.at(second), halfRow);
    }
    outQue.FreeTensor('copyOut: _out_que.FreeTensor()', output);
    tail?.copyOut({ row, rows: 1 });
  };

  const { first, end } = shareOf(a, c.GetBlockIdx());
  for (let n = first; n < end; n++) {
    copyIn(n);
    compute();
    copyOut(n);
  }
}
