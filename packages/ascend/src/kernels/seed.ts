/**
 * Kernel (a), the baseline: RoPEKernel<T, U> as document 004 gives it (InfiniTensor/InfiniCore,
 * `rope_ascend_kernel.cpp`), with its faults.
 *
 * One block a head, one row a step, GPT-J pairs, f16 and f32. It is here to be measured and to show what the model
 * finds, not to be used. The PipeBarriers are those of the source that the document describes, InfiniCore@8727bdcf:
 * three, none after the merge. @module
 */
import type { AscendC } from '../ascendc.js';
import type { RopeArgs, RowStrides } from './args.js';
import { declareKernel, type KernelDeclaration } from './declaration.js';
import { oneRow, ROPE_ARGUMENTS } from './rows.js';
import { BUFFER_NUM } from './tiling.js';

/** The document's name and value. */
const BYTE_ALIGN = 32;

/** alignTileLen<T>: elements rounded up to whole datablocks. */
export function alignTileLen(length: number, size: number): number {
  return (Math.ceil((length * size) / BYTE_ALIGN) * BYTE_ALIGN) / size;
}

/** The baseline: only batch 0 is launched, one block for each of its heads, as in the original. */
export const SEED: KernelDeclaration = /* @__PURE__ */ declareKernel<RopeArgs>({
  name: 'seed',
  operator: 'rope',
  dtypes: ['f16', 'f32'],
  arguments: ROPE_ARGUMENTS,
  blocks: ({ batch, seq, heads }) => (batch === 0 || seq === 0 ? 0 : heads),
  whyNot: takesOnly('interleaved'),
  kernel: gptjKernel,
});

/** What a kernel of whole heads in one pairing does not take. */
export function takesOnly(own: 'interleaved' | 'half'): (args: RopeArgs) => string | undefined {
  const pairs = own === 'interleaved' ? 'interleaved pairs (GPT-J)' : 'halves (GPT-NeoX)';
  return ({ dtype, tableDtype, pairing, rotaryDim, dim }) => {
    if (tableDtype !== dtype) return 'reads cos and sin in the type of the elements only';
    if (pairing !== own) return `rotates ${pairs} only`;
    return rotaryDim === dim ? undefined : 'rotates whole heads only';
  };
}

/** The head of a block; blocks of one batch lie side by side. */
export function headOf(c: AscendC, a: RopeArgs, strides: RowStrides): number {
  const block = c.GetBlockIdx();
  return Math.floor(block / a.heads) * strides.batch + (block % a.heads) * strides.head;
}

/** What one block does: one head, with positions of the token alone. bf16 is computed in f32. */
export function gptjKernel(c: AscendC, a: RopeArgs): void {
  const T = a.dtype;
  const { laneType: C, laneBytes } = a;
  const tileLen = a.dim;
  const copyLen = alignTileLen(a.dim, a.size);
  const halfCopyLen = alignTileLen(a.dim, a.size); // the fault: dh where dh / 2 is meant
  const inQue = c.pipe.InitBuffer('_in_que', 'VECIN', BUFFER_NUM, copyLen * a.size);
  const outQue = c.pipe.InitBuffer('_out_que', 'VECOUT', BUFFER_NUM, tileLen * a.size);
  const sinQue = c.pipe.InitBuffer('_sin_que', 'VECIN', BUFFER_NUM, halfCopyLen * a.size);
  const cosQue = c.pipe.InitBuffer('_cos_que', 'VECIN', BUFFER_NUM, halfCopyLen * a.size);
  const wide = (name: string, lanes: number) => (a.widens ? c.pipe.InitTBuf(name, lanes * 4).Get('f32') : undefined);
  const [inputF, sinF] = [wide('_tmp_float_input', copyLen), wide('_tmp_float_sin', halfCopyLen)];
  const [cosF, outputF] = [wide('_tmp_float_cos', halfCopyLen), wide('_tmp_float_output', tileLen)];
  const temporary = (name: string) => c.pipe.InitTBuf(name, (tileLen / 2) * laneBytes).Get(C);
  // "odd" is the document's word for the elements at 0, 2, 4 …
  const [tmpOdd, tmpEven] = [temporary('_tmp_odd_buf'), temporary('_tmp_even_buf')];
  const [tmpOdd1, tmpOdd2] = [temporary('_tmp_odd_buf1'), temporary('_tmp_odd_buf2')];
  const [tmpEven1, tmpEven2] = [temporary('_tmp_even_buf1'), temporary('_tmp_even_buf2')];

  const copyIn = (i: number): void => {
    const input = inQue.AllocTensor('copyIn: _in_que.AllocTensor()', T);
    const sin = sinQue.AllocTensor('copyIn: _sin_que.AllocTensor()', T);
    const cos = cosQue.AllocTensor('copyIn: _cos_que.AllocTensor()', T);
    const idx = i * a.xStrides.seq + headOf(c, a, a.xStrides);
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
    const inputUb = inQue.DeQue('compute: _in_que.DeQue()', T);
    const sinUb = sinQue.DeQue('compute: _sin_que.DeQue()', T);
    const cosUb = cosQue.DeQue('compute: _cos_que.DeQue()', T);
    const outputUb = outQue.AllocTensor('compute: _out_que.AllocTensor()', T);
    const [input, output] = [inputF ?? inputUb, outputF ?? outputUb];
    const [sin, cos] = [sinF ?? sinUb, cosF ?? cosUb];
    if (a.widens) {
      c.Cast('compute: Cast(input_float, input_ub, _copy_len)', input, inputUb, copyLen);
      c.Cast('compute: Cast(sin_float, sin_ub, _half_copy_len)', sin, sinUb, halfCopyLen);
      c.Cast('compute: Cast(cos_float, cos_ub, _half_copy_len)', cos, cosUb, halfCopyLen);
    }
    const params = { repeatTimes: Math.ceil((tileLen * laneBytes) / 256), src0RepeatStride: 8 };
    c.GatherMask('compute: GatherMask(tmp_odd, input_ub, 1)', tmpOdd, input, 1, params);
    c.GatherMask('compute: GatherMask(tmp_even, input_ub, 2)', tmpEven, input, 2, params);
    c.PipeBarrier('V');
    c.Mul('compute: Mul(tmp_odd1, tmp_odd, cos_ub)', tmpOdd1, tmpOdd, cos, tileLen / 2);
    c.Mul('compute: Mul(tmp_odd2, tmp_even, sin_ub)', tmpOdd2, tmpEven, sin, tileLen / 2);
    c.PipeBarrier('V');
    c.Sub('compute: Sub(tmp_odd1, tmp_odd1, tmp_odd2)', tmpOdd1, tmpOdd1, tmpOdd2, tileLen / 2);
    c.Mul('compute: Mul(tmp_even1, tmp_odd, sin_ub)', tmpEven1, tmpOdd, sin, tileLen / 2);
    c.Mul('compute: Mul(tmp_even2, tmp_even, cos_ub)', tmpEven2, tmpEven, cos, tileLen / 2);
    c.PipeBarrier('V');
    c.Add('compute: Add(tmp_even1, tmp_even1, tmp_even2)', tmpEven1, tmpEven1, tmpEven2, tileLen / 2);
    const merge = 'compute: merge output_ub(j * 2) = tmp_odd1(j), output_ub(j * 2 + 1) = tmp_even1(j)';
    c.MergeValues(merge, output, [tmpOdd1, tmpEven1], tileLen / 2);
    if (a.widens) c.Cast('compute: Cast(output_ub, output_float, _tile_len)', outputUb, output, tileLen);
    outQue.EnQue('compute: _out_que.EnQue(output_ub)', outputUb);
    inQue.FreeTensor('compute: _in_que.FreeTensor(input_ub)', inputUb);
    sinQue.FreeTensor('compute: _sin_que.FreeTensor(sin_ub)', sinUb);
    cosQue.FreeTensor('compute: _cos_que.FreeTensor(cos_ub)', cosUb);
  };

  const copyOut = (i: number): void => {
    const output = outQue.DeQue('copyOut: _out_que.DeQue()', T);
    const idy = i * a.yStrides.seq + headOf(c, a, a.yStrides);
    c.DataCopyPadOut('copyOut: DataCopyPad(_y_gm[idy], output_ub, params)', a.y, idy, output, oneRow(tileLen * a.size));
    outQue.FreeTensor('copyOut: _out_que.FreeTensor(output_ub)', output);
  };

  for (let i = 0; i < a.seq; i++) {
    copyIn(i);
    compute();
    copyOut(i);
  }
}
