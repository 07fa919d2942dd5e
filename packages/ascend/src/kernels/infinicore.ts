/**
 * InfiniCore's RoPE kernels of June 2026 (InfiniTensor/InfiniCore@c042aa80, `rope_ascend_kernel.cpp`), with their
 * faults.
 *
 * Both launch one block for each head of each batch, and both take a token's position by its number in the sequence
 * alone. GPT-J is the baseline with batches and bf16; it still reads dh elements of a table row where dh / 2 are meant.
 * NeoX reads the right half row, but a scalar loop splits each row and another one merges it. @module
 */
import type { AscendC } from '../ascendc.js';
import type { Tiling } from '../trace.js';
import type { RopeArgs } from './args.js';
import { declareKernel, KERNEL_DTYPES, type KernelDeclaration } from './declaration.js';
import { oneRow, ROPE_ARGUMENTS } from './rows.js';
import { alignTileLen, gptjKernel, headOf, takesOnly } from './seed.js';
import { BUFFER_NUM } from './tiling.js';

const COMMON = {
  operator: 'rope',
  dtypes: KERNEL_DTYPES,
  arguments: ROPE_ARGUMENTS,
  blocks: ({ batch, seq, heads }: Omit<RopeArgs, keyof Tiling>) => (seq === 0 ? 0 : batch * heads),
} as const;

/** GPT-J pairs. */
export const INFINICORE_GPTJ: KernelDeclaration = /* @__PURE__ */ declareKernel<RopeArgs>({
  ...COMMON,
  name: 'infinicore-gptj',
  whyNot: takesOnly('interleaved'),
  kernel: gptjKernel,
});

/** GPT-NeoX pairs. */
export const INFINICORE_NEOX: KernelDeclaration = /* @__PURE__ */ declareKernel<RopeArgs>({
  ...COMMON,
  name: 'infinicore-neox',
  whyNot: takesOnly('half'),
  kernel: neoxKernel,
});

function neoxKernel(c: AscendC, a: RopeArgs): void {
  const { dtype: T, laneType: C, laneBytes, dim: tileLen, half: halfLen } = a;
  const copyLen = alignTileLen(tileLen, a.size);
  const halfCopyLen = alignTileLen(halfLen, a.size);
  const lanes = alignTileLen(halfLen, laneBytes);
  const inQue = c.pipe.InitBuffer('_in_que', 'VECIN', BUFFER_NUM, copyLen * a.size);
  const outQue = c.pipe.InitBuffer('_out_que', 'VECOUT', BUFFER_NUM, copyLen * a.size);
  const sinQue = c.pipe.InitBuffer('_sin_que', 'VECIN', BUFFER_NUM, halfCopyLen * a.size);
  const cosQue = c.pipe.InitBuffer('_cos_que', 'VECIN', BUFFER_NUM, halfCopyLen * a.size);
  const wide = (name: string, count: number) => (a.widens ? c.pipe.InitTBuf(name, count * 4).Get('f32') : undefined);
  const [inputF, sinF] = [wide('_tmp_float_input', copyLen), wide('_tmp_float_sin', lanes)];
  const [cosF, outputF] = [wide('_tmp_float_cos', lanes), wide('_tmp_float_output', tileLen)];
  const temporary = (name: string) => c.pipe.InitTBuf(name, lanes * laneBytes).Get(C);
  const [firstHalf, secondHalf] = [temporary('_tmp_first_half'), temporary('_tmp_second_half')];
  const [result1, result2] = [temporary('_tmp_result1'), temporary('_tmp_result2')];
  const [result3, result4] = [temporary('_tmp_result3'), temporary('_tmp_result4')];
  const halfRow = oneRow(halfLen * a.size);

  const copyIn = (i: number): void => {
    const input = inQue.AllocTensor('copyIn: _in_que.AllocTensor()', T);
    const sin = sinQue.AllocTensor('copyIn: _sin_que.AllocTensor()', T);
    const cos = cosQue.AllocTensor('copyIn: _cos_que.AllocTensor()', T);
    const idx = i * a.xStrides.seq + headOf(c, a, a.xStrides);
    c.DataCopyIn('copyIn: DataCopy(input_ub, _x_gm[idx], _copy_len)', input, a.x, idx, copyLen);
    const pos = c.GetGlobal('copyIn: pos_idx = _p_gm(i)', a.positions, i);
    c.DataCopyPadIn('copyIn: DataCopyPad(sin_ub, _sin_gm[pos_idx * _half_len])', sin, a.sin, pos * halfLen, halfRow);
    c.DataCopyPadIn('copyIn: DataCopyPad(cos_ub, _cos_gm[pos_idx * _half_len])', cos, a.cos, pos * halfLen, halfRow);
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
      c.Cast('compute: Cast(input_f, input_ub, _copy_len)', input, inputUb, copyLen);
      c.Cast('compute: Cast(sin_f, sin_ub)', sin, sinUb, lanes);
      c.Cast('compute: Cast(cos_f, cos_ub)', cos, cosUb, lanes);
    }
    const split = 'compute: split first_half(j) = input_ub(j), second_half(j) = input_ub(_half_len + j)';
    for (let j = 0; j < lanes; j++) {
      firstHalf.SetValue(split, j, j < halfLen ? input.GetValue(split, j) : 0);
      secondHalf.SetValue(split, j, j < halfLen ? input.GetValue(split, halfLen + j) : 0);
    }
    c.PipeBarrier('V');
    c.Mul('compute: Mul(result1, first_half, cos_ub)', result1, firstHalf, cos, lanes);
    c.Mul('compute: Mul(result2, second_half, sin_ub)', result2, secondHalf, sin, lanes);
    c.PipeBarrier('V');
    c.Sub('compute: Sub(result3, result1, result2)', result3, result1, result2, lanes);
    c.Mul('compute: Mul(result1, first_half, sin_ub)', result1, firstHalf, sin, lanes);
    c.Mul('compute: Mul(result2, second_half, cos_ub)', result2, secondHalf, cos, lanes);
    c.PipeBarrier('V');
    c.Add('compute: Add(result4, result1, result2)', result4, result1, result2, lanes);
    const merge = 'compute: merge output_ub(j) = result3(j), output_ub(_half_len + j) = result4(j)';
    for (let j = 0; j < halfLen; j++) {
      output.SetValue(merge, j, result3.GetValue(merge, j));
      output.SetValue(merge, halfLen + j, result4.GetValue(merge, j));
    }
    if (a.widens) c.Cast('compute: Cast(output_ub, output_f, _tile_len)', outputUb, output, tileLen);
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
