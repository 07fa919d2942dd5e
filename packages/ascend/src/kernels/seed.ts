/**
 * Kernel (a), the baseline: RoPEKernel<T, U> as document 004 gives it (InfiniTensor/InfiniCore,
 * `rope_ascend_kernel.cpp`), with its faults.
 *
 * One block a head, one row a step, GPT-J pairs, f16 and f32. It is here to be measured and to show what the model
 * finds, not to be used. @module
 */
import { readOptions } from 'ropewalk/backend';
import type { AscendC } from '../ascendc.js';
import type { RopeArgs } from './args.js';
import { oneRow } from './rows.js';

/** Names and values of the document. */
const BYTE_ALIGN = 32;
const BUFFER_NUM = 2;

/**
 * What the baseline's document excludes.
 *
 * @param call - of any kernel
 * @returns the rest of a sentence that starts with the kernel; undefined when the kernel takes the call
 */
export function whyNotSeed(call: {
  readonly dtype: string;
  readonly pairing: string;
  readonly rotaryDim: number;
  readonly headDim: number;
}): string | undefined {
  const { dtype, pairing, rotaryDim, headDim } = readOptions(call, 'aicore');
  if (dtype !== 'f16' && dtype !== 'f32') return 'takes f16 and f32 only';
  if (pairing !== 'interleaved') return 'rotates interleaved pairs (GPT-J) only';
  return rotaryDim === headDim ? undefined : 'rotates whole heads only';
}

/** alignTileLen<T>: elements rounded up to whole datablocks. */
function alignTileLen(length: number, size: number): number {
  return (Math.ceil((length * size) / BYTE_ALIGN) * BYTE_ALIGN) / size;
}

/** What one block does; batch is not looked at, as in the original. */
export function seedKernel(c: AscendC, a: RopeArgs): void {
  const T = a.dtype;
  const blockIdx = c.GetBlockIdx();
  const tileLen = a.dim;
  const copyLen = alignTileLen(a.dim, a.size);
  const halfCopyLen = alignTileLen(a.dim, a.size); // the fault: dh where dh / 2 is meant
  const inQue = c.pipe.InitBuffer('_in_que', 'VECIN', BUFFER_NUM, copyLen * a.size);
  const outQue = c.pipe.InitBuffer('_out_que', 'VECOUT', BUFFER_NUM, tileLen * a.size);
  const sinQue = c.pipe.InitBuffer('_sin_que', 'VECIN', BUFFER_NUM, halfCopyLen * a.size);
  const cosQue = c.pipe.InitBuffer('_cos_que', 'VECIN', BUFFER_NUM, halfCopyLen * a.size);
  const temporary = (name: string) => c.pipe.InitTBuf(name, (tileLen / 2) * a.size).Get(T);
  // "odd" is the document's word for the elements at 0, 2, 4 …
  const [tmpOdd, tmpEven] = [temporary('_tmp_odd_buf'), temporary('_tmp_even_buf')];
  const [tmpOdd1, tmpOdd2] = [temporary('_tmp_odd_buf1'), temporary('_tmp_odd_buf2')];
  const [tmpEven1, tmpEven2] = [temporary('_tmp_even_buf1'), temporary('_tmp_even_buf2')];

  const copyIn = (i: number): void => {
    const input = inQue.AllocTensor('copyIn: _in_que.AllocTensor()', T);
    const sin = sinQue.AllocTensor('copyIn: _sin_que.AllocTensor()', T);
    const cos = cosQue.AllocTensor('copyIn: _cos_que.AllocTensor()', T);
    const idx = i * a.xStrides.seq + blockIdx * a.xStrides.head;
    c.DataCopyIn('copyIn: DataCopy(input_ub, _x_gm[idx], _copy_len)', input, a.x, idx, copyLen);
    const pos = c.GetGlobal('copyIn: pos_idx = _p_gm(i)', a.positions, i);
    const [sinLine, cosLine] = ['sin', 'cos'].map(
      (t) => `copyIn: DataCopy(${t}_ub, _${t}_gm[pos_idx * _tile_len / 2], _half_copy_len)`,
    ) as [string, string];
    c.DataCopyIn(sinLine, sin, a.sin, (pos * tileLen) / 2, halfCopyLen);
    c.DataCopyIn(cosLine, cos, a.cos, (pos * tileLen) / 2, halfCopyLen);
    inQue.EnQue('copyIn: _in_que.EnQue(input_ub)', input);
    sinQue.EnQue('copyIn: _sin_que.EnQue(sin_ub)', sin);
    cosQue.EnQue('copyIn: _cos_que.EnQue(cos_ub)', cos);
  };

  const compute = (): void => {
    const input = inQue.DeQue('compute: _in_que.DeQue()', T);
    const sin = sinQue.DeQue('compute: _sin_que.DeQue()', T);
    const cos = cosQue.DeQue('compute: _cos_que.DeQue()', T);
    const output = outQue.AllocTensor('compute: _out_que.AllocTensor()', T);
    const params = { repeatTimes: Math.ceil((tileLen * a.size) / 256), src0RepeatStride: 8 };
    c.GatherMask('compute: GatherMask(tmp_odd, input_ub, 1)', tmpOdd, input, 1, params);
    c.GatherMask('compute: GatherMask(tmp_even, input_ub, 2)', tmpEven, input, 2, params);
    c.Mul('compute: Mul(tmp_odd1, tmp_odd, cos_ub)', tmpOdd1, tmpOdd, cos, tileLen / 2);
    c.Mul('compute: Mul(tmp_odd2, tmp_even, sin_ub)', tmpOdd2, tmpEven, sin, tileLen / 2);
    c.Sub('compute: Sub(tmp_odd1, tmp_odd1, tmp_odd2)', tmpOdd1, tmpOdd1, tmpOdd2, tileLen / 2);
    c.Mul('compute: Mul(tmp_even1, tmp_odd, sin_ub)', tmpEven1, tmpOdd, sin, tileLen / 2);
    c.Mul('compute: Mul(tmp_even2, tmp_even, cos_ub)', tmpEven2, tmpEven, cos, tileLen / 2);
    c.Add('compute: Add(tmp_even1, tmp_even1, tmp_even2)', tmpEven1, tmpEven1, tmpEven2, tileLen / 2);
    const merge = 'compute: merge output_ub(j * 2) = tmp_odd1(j), output_ub(j * 2 + 1) = tmp_even1(j)';
    c.MergeValues(merge, output, [tmpOdd1, tmpEven1], tileLen / 2);
    c.PipeBarrier('V');
    outQue.EnQue('compute: _out_que.EnQue(output_ub)', output);
    inQue.FreeTensor('compute: _in_que.FreeTensor(input_ub)', input);
    sinQue.FreeTensor('compute: _sin_que.FreeTensor(sin_ub)', sin);
    cosQue.FreeTensor('compute: _cos_que.FreeTensor(cos_ub)', cos);
  };

  const copyOut = (i: number): void => {
    const output = outQue.DeQue('copyOut: _out_que.DeQue()', T);
    const idy = i * a.yStrides.seq + blockIdx * a.yStrides.head;
    c.DataCopyPadOut('copyOut: DataCopyPad(_y_gm[idy], output_ub, params)', a.y, idy, output, oneRow(tileLen * a.size));
    outQue.FreeTensor('copyOut: _out_que.FreeTensor(output_ub)', output);
  };

  for (let i = 0; i < a.seq; i++) {
    copyIn(i);
    compute();
    copyOut(i);
  }
}
