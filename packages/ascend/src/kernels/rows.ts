/**
 * The rows of a RoPE call (a row is one head of one token of one batch), how blocks share them, and how they are
 * copied. @module
 */
import { type AscendC, type LocalTensor, oneRow, type TQue } from '../ascendc.js';
import { BLOCK } from '../costs.js';
import type { GlobalTensor } from '../memory.js';
import type { RopeArgs, RowStrides } from './args.js';

/** The kernels' names of rope's tensors, with their roles. */
export const ROPE_ARGUMENTS = /* @__PURE__ */ Object.freeze({
  x: 'x',
  y: 'out',
  sin: 'sin',
  cos: 'cos',
  positions: 'positions',
} as const);

/** Says why the kernels of leading dimensions do not take a call. */
export function whyNotLeading({ pairing, rotaryOffset }: RopeArgs): string | undefined {
  if (pairing === 'interleaved-to-half') return 'writes a pair where it reads it';
  return rotaryOffset === 0 ? undefined : 'rotates the leading dimensions of a head only';
}

/** The place of a row. */
type Row = { readonly batch: number; readonly token: number; readonly head: number };

/** Several heads of one token, from `row` on. */
export interface RowGroup {
  readonly row: Row;
  readonly rows: number;
}

/** Returns the row with a number in batch-major order. */
export function rowOf(a: RopeArgs, n: number): Row {
  const head = n % a.heads;
  const rest = Math.floor(n / a.heads);
  return { batch: Math.floor(rest / a.seq), token: rest % a.seq, head };
}

export function startOf(row: Row, strides: RowStrides): number {
  return row.batch * strides.batch + row.token * strides.seq + row.head * strides.head;
}

/** Shares the rows: all blocks get the same number, or one more. */
export function shareOf({ batch, seq, heads, blocks }: RopeArgs, block: number): { first: number; end: number } {
  const rows = batch * seq * heads;
  return { first: Math.floor((rows * block) / blocks), end: Math.floor((rows * (block + 1)) / blocks) };
}

export function tableRowOf(c: AscendC, a: RopeArgs, { batch, token }: Row): number {
  return c.GetGlobal('copyIn: positions.GetValue(batch, token)', a.positions, batch * a.positionBatch + token);
}

export function roundUp(n: number, unit: number): number {
  return Math.ceil(n / unit) * unit;
}

/** The columns that a {@link Transfer} moves. */
interface TransferOptions {
  /** The names of the queue in and the queue out. */
  readonly ques: readonly [string, string];
  /** The text of each column that completes `DataCopyPad(x…)` in the kernel's statements. */
  readonly columns: readonly string[];
  /** The first element of the first column in a head. */
  readonly first: number;
  /** Elements of a column. */
  readonly length: number;
  /** The most rows at once. */
  readonly rows: number;
  /** Bytes of a buffer of the queue in, if it is larger than the columns. */
  readonly inBytes?: number;
  /** Elements before the first column in a buffer of the queue in. */
  readonly lead?: number;
}

/** Moves columns of rows through the core: a queue and copies on the way in, a queue and copies on the way out. */
export class Transfer {
  /** Elements from row to row of a column in the unified buffer: whole datablocks. */
  readonly pitch: number;
  /** Elements from column to column in the unified buffer. */
  readonly column: number;
  readonly #in: TQue;
  readonly #out: TQue;

  constructor(
    readonly c: AscendC,
    readonly a: RopeArgs,
    readonly options: TransferOptions,
  ) {
    const { ques, columns, length, rows, inBytes } = options;
    this.pitch = roundUp(length * a.size, BLOCK) / a.size;
    this.column = rows * this.pitch;
    const bytes = columns.length * this.column * a.size;
    this.#in = c.pipe.InitBuffer(ques[0], 'VECIN', a.buffers, inBytes ?? bytes);
    this.#out = c.pipe.InitBuffer(ques[1], 'VECOUT', a.buffers, bytes);
  }

  copyIn(group: RowGroup): void {
    const { a, options } = this;
    const input = this.#in.AllocTensor(`copyIn: ${options.ques[0]}.AllocTensor()`, a.dtype);
    this.#copy('copyIn: DataCopyPad(x', group, input.at(options.lead ?? 0), a.x, a.xStrides, true);
    this.#in.EnQue(`copyIn: ${options.ques[0]}.EnQue()`, input);
  }

  /** Takes the next input, and a buffer for its output. */
  take(): { input: LocalTensor; output: LocalTensor } {
    const [inName, outName] = this.options.ques;
    const input = this.#in.DeQue(`compute: ${inName}.DeQue()`, this.a.dtype);
    return { input, output: this.#out.AllocTensor(`compute: ${outName}.AllocTensor()`, this.a.dtype) };
  }

  /** Hands a finished output on, and the buffer of its input back. */
  put({ input, output }: { input: LocalTensor; output: LocalTensor }): void {
    const [inName, outName] = this.options.ques;
    this.#out.EnQue(`compute: ${outName}.EnQue()`, output);
    this.#in.FreeTensor(`compute: ${inName}.FreeTensor()`, input);
  }

  copyOut(group: RowGroup): void {
    const { a, options } = this;
    const output = this.#out.DeQue(`copyOut: ${options.ques[1]}.DeQue()`, a.dtype);
    this.#copy('copyOut: DataCopyPad(y', group, output, a.y, a.yStrides, false);
    this.#out.FreeTensor(`copyOut: ${options.ques[1]}.FreeTensor()`, output);
  }

  /** Copies a column of all rows at once if the heads are in ascending order, else row by row. */
  #copy(line: string, group: RowGroup, local: LocalTensor, global: GlobalTensor, strides: RowStrides, load: boolean) {
    const { a, options } = this;
    const bytes = options.length * a.size;
    const gap = (strides.head - options.length) * a.size;
    const together = group.rows > 1 && gap >= 0 && gap < 2 ** 32;
    const params = together
      ? { blockCount: group.rows, blockLen: bytes, srcStride: load ? gap : 0, dstStride: load ? 0 : gap }
      : oneRow(bytes);
    for (const [k, what] of options.columns.entries()) {
      const first = startOf(group.row, strides) + options.first + k * options.length;
      for (let r = 0; r < (together ? 1 : group.rows); r++) {
        const [here, there] = [local.at(k * this.column + r * this.pitch), first + r * strides.head];
        if (load) this.c.DataCopyPadIn(`${line}${what})`, here, global, there, params);
        else this.c.DataCopyPadOut(`${line}${what})`, global, there, here, params);
      }
    }
  }
}

/** Prepares to copy the dimensions that no pair uses; returns undefined if there are none. */
export function tailOf(c: AscendC, a: RopeArgs, rows: number, name: string): Transfer | undefined {
  if (a.dim === a.rotaryDim) return undefined;
  const ques = ['_tail_que', '_tail_out_que'] as const;
  return new Transfer(c, a, { ques, columns: [`, ${name}`], first: a.rotaryDim, length: a.dim - a.rotaryDim, rows });
}

/** Copies the bits of the next tail from its input to its output. */
export function copyTail(c: AscendC, tail: Transfer | undefined, count: number, name: string): void {
  if (!tail) return;
  const both = tail.take();
  c.Copy(`compute: Copy(${name})`, both.output, both.input, count);
  tail.put(both);
}
