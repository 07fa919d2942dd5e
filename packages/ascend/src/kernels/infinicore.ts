/**
 * RoPE kernels of InfiniCore, with their faults: they show what the model finds, and are not to be used.
 *
 * `baseline` is RoPEKernel<T, U> as InfiniOp's documentation describes it (InfiniTensor/InfiniCore@8727bdcf,
 * `rope_ascend_kernel.cpp`): GPT-J pairs, f16 and f32, batch 0 only. `infinicore-gptj` and `infinicore-neox` are those
 * of June 2026 (InfiniTensor/InfiniCore@c042aa80). GPT-J is `baseline` with batches and bf16; it still reads dh elements of
 * a table row where dh / 2 are meant. NeoX reads the right half row, but a scalar loop splits each row and another one
 * merges it.
 *
 * All launch one block for each head, handle one row a step, and take a token's position by its number in the sequence
 * alone. Statements, names and barriers are those of the sources. @module
 */
import { type AscendC, type LocalTensor, oneRow } from '../ascendc.js';
import type { GlobalTensor } from '../memory.js';
import type { KernelPairing, Tiling } from '../trace.js';
import type { RopeArgs, RowStrides } from './args.js';
import { BUFFER_NUM, declareKernel, KERNEL_DTYPES, type KernelDeclaration } from './declaration.js';
import { ROPE_ARGUMENTS } from './rows.js';

const COMMON = {
  operator: 'rope',
  dtypes: KERNEL_DTYPES,
  arguments: ROPE_ARGUMENTS,
  blocks: ({ batch, seq, heads }: Omit<RopeArgs, keyof Tiling>) => (seq === 0 ? 0 : batch * heads),
} as const;

/** The baseline: it launches only batch 0, one block for each of its heads, as in the original. */
export const BASELINE: KernelDeclaration = /* @__PURE__ */ declareKernel<RopeArgs>({
  ...COMMON,
  name: 'baseline',
  dtypes: ['f16', 'f32'],
  blocks: ({ batch, seq, heads }) => (batch === 0 || seq === 0 ? 0 : heads),
  whyNot: takesOnly('interleaved'),
  kernel: gptjKernel,
});

/** GPT-J pairs, for all batches. */
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

/** Says why a kernel of whole heads in one pairing does not take a call. */
function takesOnly(taken: KernelPairing): (args: RopeArgs) => string | undefined {
  const pairs = taken === 'interleaved' ? 'interleaved pairs (GPT-J)' : 'halves (GPT-NeoX)';
  return ({ dtype, tableDtype, pairing, rotaryDim, dim }) => {
    if (tableDtype !== dtype) return 'reads cos and sin in the type of the elements only';
    if (pairing !== taken) return `rotates ${pairs} only`;
    return rotaryDim === dim ? undefined : 'rotates whole heads only';
  };
}

/** alignTileLen<T> of the sources: elements rounded up to whole datablocks of 32 bytes. */
function alignTileLen(length: number, size: number): number {
  return (Math.ceil((length * size) / 32) * 32) / size;
}

/** The differences between the kernels; lengths are in elements. */
interface HeadKernel {
  /** The length of a buffer of the queue out. */
  readonly outLen: number;
  /** The length of a buffer of the queues of sin and cos. */
  readonly tableLen: number;
  /** The length of a temporary, and of sin and cos in f32. */
  readonly lanes: number;
  readonly wideTableLen: number;
  /** How casts call the f32 copies, and the length of the tables. */
  readonly words: readonly [wide: string, tableLen: string];
  loadTable(name: 'sin' | 'cos', dst: LocalTensor, src: GlobalTensor, at: number): void;
  /** Allocates the temporaries, and returns the rotation of one row. */
  prepare(
    temporary: (name: string) => LocalTensor,
  ): (input: LocalTensor, output: LocalTensor, sin: LocalTensor, cos: LocalTensor) => void;
}

/** Runs one block: the rows of one head of one batch, one after the other. bf16 is computed in f32. */
function runHead(c: AscendC, a: RopeArgs, o: HeadKernel): void {
  const { dtype: T, dim: tileLen, size } = a;
  const copyLen = alignTileLen(tileLen, size);
  const inQue = c.pipe.InitBuffer('_in_que', 'VECIN', BUFFER_NUM, copyLen * size);
  const outQue = c.pipe.InitBuffer('_out_que', 'VECOUT', BUFFER_NUM, o.outLen * size);
  const sinQue = c.pipe.InitBuffer('_sin_que', 'VECIN', BUFFER_NUM, o.tableLen * size);
  const cosQue = c.pipe.InitBuffer('_cos_que', 'VECIN', BUFFER_NUM, o.tableLen * size);
  const wide = (name: string, lanes: number) => (a.widens ? c.pipe.InitTBuf(name, lanes * 4).Get('f32') : undefined);
  const [inputF, sinF] = [wide('_tmp_float_input', copyLen), wide('_tmp_float_sin', o.wideTableLen)];
  const [cosF, outputF] = [wide('_tmp_float_cos', o.wideTableLen), wide('_tmp_float_output', tileLen)];
  const rotate = o.prepare((name) => c.pipe.InitTBuf(name, o.lanes * a.laneBytes).Get(a.laneType));
  const block = c.GetBlockIdx();
  const startOf = (i: number, { batch, seq, head }: RowStrides): number =>
    i * seq + Math.floor(block / a.heads) * batch + (block % a.heads) * head;

  const copyIn = (i: number): void => {
    const input = inQue.AllocTensor('copyIn: _in_que.AllocTensor()', T);
    const sin = sinQue.AllocTensor('copyIn: _sin_que.AllocTensor()', T);
    const cos = cosQue.AllocTensor('copyIn: _cos_que.AllocTensor()', T);
    const idx = startOf(i, a.xStrides);
    c.DataCopyIn('copyIn: DataCopy(input_ub, _x_gm[idx], _copy_len)', input, a.x, idx, copyLen);
    const pos = c.GetGlobal('copyIn: pos_idx = _p_gm(i)', a.positions, i);
    o.loadTable('sin', sin, a.sin, pos * a.half);
    o.loadTable('cos', cos, a.cos, pos * a.half);
    inQue.EnQue('copyIn: _in_que.EnQue(input_ub)', input);
    sinQue.EnQue('copyIn: _sin_que.EnQue(sin_ub)', sin);
    cosQue.EnQue('copyIn: _cos_que.EnQue(cos_ub)', cos);
  };

  const compute = (): void => {
    const [f, length] = o.words;
    const input = inQue.DeQue('compute: _in_que.DeQue()', T);
    const sin = sinQue.DeQue('compute: _sin_que.DeQue()', T);
    const cos = cosQue.DeQue('compute: _cos_que.DeQue()', T);
    const output = outQue.AllocTensor('compute: _out_que.AllocTensor()', T);
    if (inputF) c.Cast(`compute: Cast(input_${f}, input_ub, _copy_len)`, inputF, input, copyLen);
    if (sinF) c.Cast(`compute: Cast(sin_${f}, sin_ub${length})`, sinF, sin, o.wideTableLen);
    if (cosF) c.Cast(`compute: Cast(cos_${f}, cos_ub${length})`, cosF, cos, o.wideTableLen);
    rotate(inputF ?? input, outputF ?? output, sinF ?? sin, cosF ?? cos);
    if (outputF) c.Cast(`compute: Cast(output_ub, output_${f}, _tile_len)`, output, outputF, tileLen);
    outQue.EnQue('compute: _out_que.EnQue(output_ub)', output);
    inQue.FreeTensor('compute: _in_que.FreeTensor(input_ub)', input);
    sinQue.FreeTensor('compute: _sin_que.FreeTensor(sin_ub)', sin);
    cosQue.FreeTensor('compute: _cos_que.FreeTensor(cos_ub)', cos);
  };

  const copyOut = (i: number): void => {
    const output = outQue.DeQue('copyOut: _out_que.DeQue()', T);
    const idy = startOf(i, a.yStrides);
    c.DataCopyPadOut('copyOut: DataCopyPad(_y_gm[idy], output_ub, params)', a.y, idy, output, oneRow(tileLen * size));
    outQue.FreeTensor('copyOut: _out_que.FreeTensor(output_ub)', output);
  };

  for (let i = 0; i < a.seq; i++) {
    copyIn(i);
    compute();
    copyOut(i);
  }
}

function gptjKernel(c: AscendC, a: RopeArgs): void {
  const { dim: tileLen, half } = a;
  const halfCopyLen = alignTileLen(tileLen, a.size); // the fault: dh where dh / 2 is meant
  runHead(c, a, {
    outLen: tileLen,
    tableLen: halfCopyLen,
    lanes: half,
    wideTableLen: halfCopyLen,
    words: ['float', ', _half_copy_len'],
    loadTable(name, dst, src, at) {
      const line = `copyIn: DataCopy(${name}_ub, _${name}_gm[pos_idx * _tile_len / 2], _half_copy_len)`;
      c.DataCopyIn(line, dst, src, at, halfCopyLen);
    },
    prepare(temporary) {
      // "odd" is the source's word for the elements at 0, 2, 4 …
      const [odd, even] = [temporary('_tmp_odd_buf'), temporary('_tmp_even_buf')];
      const [odd1, odd2] = [temporary('_tmp_odd_buf1'), temporary('_tmp_odd_buf2')];
      const [even1, even2] = [temporary('_tmp_even_buf1'), temporary('_tmp_even_buf2')];
      const params = { repeatTimes: Math.ceil((tileLen * a.laneBytes) / 256), src0RepeatStride: 8 };
      return (input, output, sin, cos) => {
        c.GatherMask('compute: GatherMask(tmp_odd, input_ub, 1)', odd, input, 1, params);
        c.GatherMask('compute: GatherMask(tmp_even, input_ub, 2)', even, input, 2, params);
        c.PipeBarrier('V');
        c.Mul('compute: Mul(tmp_odd1, tmp_odd, cos_ub)', odd1, odd, cos, half);
        c.Mul('compute: Mul(tmp_odd2, tmp_even, sin_ub)', odd2, even, sin, half);
        c.PipeBarrier('V');
        c.Sub('compute: Sub(tmp_odd1, tmp_odd1, tmp_odd2)', odd1, odd1, odd2, half);
        c.Mul('compute: Mul(tmp_even1, tmp_odd, sin_ub)', even1, odd, sin, half);
        c.Mul('compute: Mul(tmp_even2, tmp_even, cos_ub)', even2, even, cos, half);
        c.PipeBarrier('V');
        c.Add('compute: Add(tmp_even1, tmp_even1, tmp_even2)', even1, even1, even2, half);
        const merge = 'compute: merge output_ub(j * 2) = tmp_odd1(j), output_ub(j * 2 + 1) = tmp_even1(j)';
        c.MergeValues(merge, output, [odd1, even1], half);
      };
    },
  });
}

function neoxKernel(c: AscendC, a: RopeArgs): void {
  const { half: halfLen } = a;
  const lanes = alignTileLen(halfLen, a.laneBytes);
  runHead(c, a, {
    outLen: alignTileLen(a.dim, a.size),
    tableLen: alignTileLen(halfLen, a.size),
    lanes,
    wideTableLen: lanes,
    words: ['f', ''],
    loadTable(name, dst, src, at) {
      const line = `copyIn: DataCopyPad(${name}_ub, _${name}_gm[pos_idx * _half_len])`;
      c.DataCopyPadIn(line, dst, src, at, oneRow(halfLen * a.size));
    },
    prepare(temporary) {
      const [firstHalf, secondHalf] = [temporary('_tmp_first_half'), temporary('_tmp_second_half')];
      const [result1, result2] = [temporary('_tmp_result1'), temporary('_tmp_result2')];
      const [result3, result4] = [temporary('_tmp_result3'), temporary('_tmp_result4')];
      return (input, output, sin, cos) => {
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
      };
    },
  });
}
