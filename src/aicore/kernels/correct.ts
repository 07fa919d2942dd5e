/**
 * Kernel (b): the seed's structure, right: every batch, positions of its own for each batch, any strides, any even head_dim, both pairings,
 * f32, f16, and bf16 by way of f32. One row a step, and the merge still on the scalar unit: what is wrong with the seed beside speed.
 *
 * @module
 */
import type { AscendC, LaneType, LocalTensor } from '../ascendc.js';
import { BLOCK, REPEAT } from '../costs.js';
import type { RopeArgs } from './args.js';
import { oneRow, roundUp, rowOf, shareOf, startOf } from './rows.js';

/** Two buffers in each queue. */
const BUFFER_NUM = 2;

/**
 * What one block does.
 *
 * @param c - AscendC of this block
 * @param a - the arguments
 * @param blocks - how many share the rows
 */
export function correctKernel(c: AscendC, a: RopeArgs, blocks: number): void {
  const T = a.dtype as LaneType;
  const cast = T === 'bf16';
  const C: LaneType = cast ? 'f32' : T; // what lanes compute in
  const laneBytes = cast ? 4 : a.size;
  const halfBytes = roundUp(a.half * a.size, BLOCK);
  const tail = a.dim - a.rotaryDim;
  const interleaved = a.pairing === 'interleaved';
  // GatherMask reads whole repeats and writes half of what it reads: room for both.
  const rowLanes = roundUp(a.rotaryDim * laneBytes, REPEAT) / laneBytes;
  const halfLanes = interleaved ? rowLanes / 2 : roundUp(a.half * laneBytes, BLOCK) / laneBytes;
  const rowBytes = interleaved ? rowLanes * a.size : 2 * halfBytes;

  const inQue = c.pipe.InitBuffer('_in_que', 'VECIN', BUFFER_NUM, rowBytes);
  const outQue = c.pipe.InitBuffer('_out_que', 'VECOUT', BUFFER_NUM, rowBytes);
  const sinQue = c.pipe.InitBuffer('_sin_que', 'VECIN', BUFFER_NUM, halfBytes);
  const cosQue = c.pipe.InitBuffer('_cos_que', 'VECIN', BUFFER_NUM, halfBytes);
  const temporary = (name: string, lanes = halfLanes) => c.pipe.InitTBuf(name, lanes * laneBytes).Get(C);
  const [odd, even] = [temporary('_tmp_odd_buf'), temporary('_tmp_even_buf')];
  const [odd1, odd2] = [temporary('_tmp_odd_buf1'), temporary('_tmp_odd_buf2')];
  const [even1, even2] = [temporary('_tmp_even_buf1'), temporary('_tmp_even_buf2')];
  const wide = cast
    ? {
        x: temporary('_x_f32', rowLanes),
        sin: temporary('_sin_f32'),
        cos: temporary('_cos_f32'),
        y: temporary('_y_f32', rowLanes),
      }
    : undefined;
  const tailQue = tail > 0 ? c.pipe.InitBuffer('_tail_que', 'VECIN', BUFFER_NUM, tail * a.size) : undefined;
  const tailOutQue = tail > 0 ? c.pipe.InitBuffer('_tail_out_que', 'VECOUT', BUFFER_NUM, tail * a.size) : undefined;
  const second = halfBytes / a.size; // where the second half of a GPT-NeoX row starts in its buffer

  const copyIn = (n: number): void => {
    const row = rowOf(a, n);
    const input = inQue.AllocTensor('copyIn: _in_que.AllocTensor()', T);
    const sin = sinQue.AllocTensor('copyIn: _sin_que.AllocTensor()', T);
    const cos = cosQue.AllocTensor('copyIn: _cos_que.AllocTensor()', T);
    const idx = startOf(row, a.xStrides);
    if (interleaved) c.DataCopyPadIn('copyIn: DataCopyPad(x)', input, a.x, idx, oneRow(a.rotaryDim * a.size));
    else {
      // Each half to an address of its own: the second need not start on a datablock in its row.
      c.DataCopyPadIn('copyIn: DataCopyPad(x, first half)', input, a.x, idx, oneRow(a.half * a.size));
      c.DataCopyPadIn(
        'copyIn: DataCopyPad(x, second half)',
        input.at(second),
        a.x,
        idx + a.half,
        oneRow(a.half * a.size),
      );
    }
    const pos = c.GetGlobal(
      'copyIn: positions.GetValue(batch, token)',
      a.positions,
      row.batch * a.positionBatch + row.token,
    );
    c.DataCopyPadIn('copyIn: DataCopyPad(sin)', sin, a.sin, pos * a.half, oneRow(a.half * a.size));
    c.DataCopyPadIn('copyIn: DataCopyPad(cos)', cos, a.cos, pos * a.half, oneRow(a.half * a.size));
    inQue.EnQue('copyIn: _in_que.EnQue()', input);
    sinQue.EnQue('copyIn: _sin_que.EnQue()', sin);
    cosQue.EnQue('copyIn: _cos_que.EnQue()', cos);
    if (!tailQue) return;
    const rest = tailQue.AllocTensor('copyIn: _tail_que.AllocTensor()', T);
    c.DataCopyPadIn('copyIn: DataCopyPad(x, tail)', rest, a.x, idx + a.rotaryDim, oneRow(tail * a.size));
    tailQue.EnQue('copyIn: _tail_que.EnQue()', rest);
  };

  const compute = (): void => {
    const input = inQue.DeQue('compute: _in_que.DeQue()', T);
    const sinIn = sinQue.DeQue('compute: _sin_que.DeQue()', T);
    const cosIn = cosQue.DeQue('compute: _cos_que.DeQue()', T);
    const output = outQue.AllocTensor('compute: _out_que.AllocTensor()', T);
    let [sin, cos] = [sinIn, cosIn];
    if (wide) {
      [sin, cos] = [wide.sin, wide.cos];
      c.Cast('compute: Cast(sin)', sin, sinIn, a.half);
      c.Cast('compute: Cast(cos)', cos, cosIn, a.half);
    }
    let [x0, x1]: [LocalTensor, LocalTensor] = [odd, even];
    if (interleaved) {
      if (wide) c.Cast('compute: Cast(x)', wide.x, input, a.rotaryDim);
      const params = { repeatTimes: (rowLanes * laneBytes) / REPEAT, src0RepeatStride: 8 };
      c.GatherMask('compute: GatherMask(tmp_odd, x, 1)', odd, wide?.x ?? input, 1, params);
      c.GatherMask('compute: GatherMask(tmp_even, x, 2)', even, wide?.x ?? input, 2, params);
    } else if (wide) {
      c.Cast('compute: Cast(x, first half)', odd, input, a.half);
      c.Cast('compute: Cast(x, second half)', even, input.at(second), a.half);
    } else [x0, x1] = [input, input.at(second)];
    c.PipeBarrier('V');
    c.Mul('compute: Mul(tmp_odd1, x0, cos)', odd1, x0, cos, a.half);
    c.Mul('compute: Mul(tmp_odd2, x1, sin)', odd2, x1, sin, a.half);
    c.Mul('compute: Mul(tmp_even1, x0, sin)', even1, x0, sin, a.half);
    c.Mul('compute: Mul(tmp_even2, x1, cos)', even2, x1, cos, a.half);
    c.PipeBarrier('V');
    const straight = !interleaved && !wide;
    c.Sub('compute: Sub(y0, tmp_odd1, tmp_odd2)', straight ? output : odd1, odd1, odd2, a.half);
    c.Add('compute: Add(y1, tmp_even1, tmp_even2)', straight ? output.at(second) : even1, even1, even2, a.half);
    c.PipeBarrier('V');
    if (interleaved) {
      const merged = wide?.y ?? output;
      const line = 'compute: merge y(2j) = tmp_odd1(j), y(2j + 1) = tmp_even1(j)';
      for (let j = 0; j < a.half; j++) {
        merged.SetValue(line, 2 * j, odd1.GetValue(line, j));
        merged.SetValue(line, 2 * j + 1, even1.GetValue(line, j));
      }
      if (wide) c.Cast('compute: Cast(y)', output, wide.y, a.rotaryDim);
    } else if (wide) {
      c.Cast('compute: Cast(y, first half)', output, odd1, a.half);
      c.Cast('compute: Cast(y, second half)', output.at(second), even1, a.half);
    }
    outQue.EnQue('compute: _out_que.EnQue()', output);
    inQue.FreeTensor('compute: _in_que.FreeTensor()', input);
    sinQue.FreeTensor('compute: _sin_que.FreeTensor()', sinIn);
    cosQue.FreeTensor('compute: _cos_que.FreeTensor()', cosIn);
    if (!tailQue || !tailOutQue) return;
    const rest = tailQue.DeQue('compute: _tail_que.DeQue()', T);
    const restOut = tailOutQue.AllocTensor('compute: _tail_out_que.AllocTensor()', T);
    c.Copy('compute: Copy(tail)', restOut, rest, tail);
    tailOutQue.EnQue('compute: _tail_out_que.EnQue()', restOut);
    tailQue.FreeTensor('compute: _tail_que.FreeTensor()', rest);
  };

  const copyOut = (n: number): void => {
    const output = outQue.DeQue('copyOut: _out_que.DeQue()', T);
    const idy = startOf(rowOf(a, n), a.yStrides);
    if (interleaved) c.DataCopyPadOut('copyOut: DataCopyPad(y)', a.y, idy, output, oneRow(a.rotaryDim * a.size));
    else {
      c.DataCopyPadOut('copyOut: DataCopyPad(y, first half)', a.y, idy, output, oneRow(a.half * a.size));
      c.DataCopyPadOut(
        'copyOut: DataCopyPad(y, second half)',
        a.y,
        idy + a.half,
        output.at(second),
        oneRow(a.half * a.size),
      );
    }
    outQue.FreeTensor('copyOut: _out_que.FreeTensor()', output);
    if (!tailOutQue) return;
    const rest = tailOutQue.DeQue('copyOut: _tail_out_que.DeQue()', T);
    c.DataCopyPadOut('copyOut: DataCopyPad(y, tail)', a.y, idy + a.rotaryDim, rest, oneRow(tail * a.size));
    tailOutQue.FreeTensor('copyOut: _tail_out_que.FreeTensor()', rest);
  };

  const { first, end } = shareOf(a.batch * a.seq * a.heads, c.GetBlockIdx(), blocks);
  for (let n = first; n < end; n++) {
    copyIn(n);
    compute();
    copyOut(n);
  }
}
