/**
 * `rope_kernel_launch`, the entry of InfiniOp's kernel of 2025, with its fifteen arguments and its status.
 *
 * @module
 * @see InfiniTensor/InfiniCore@9f0ae734 src/infiniop/ops/rope/ascend/rope_ascend_kernel.cpp
 */
import { type Dtype, type HostArray, RopewalkError, sizeBytes } from 'ropewalk';
import { newArray, refuse } from 'ropewalk/backend';
import { arrayOver, checkInteger } from 'ropewalk/internal';
import type { KernelRun } from '../trace.js';
import { runRopeKernel } from './run.js';

/** The element types by their numbers in infinicore.h. */
const DATA_TYPES: ReadonlyMap<number, 'f16' | 'f32'> = /* @__PURE__ */ new Map([
  [12, 'f16'],
  [13, 'f32'],
]);
const POSITION_TYPES: readonly Dtype[] = ['i8', 'i16', 'i32', 'i64', 'u8', 'u16', 'u32', 'u64']; // from 3 on

/** The numbers of infiniStatus_t. */
const [SUCCESS, BAD_PARAM, NULL_POINTER, BAD_TENSOR_DTYPE] = [0, 3, 4, 10];

/** The status of a launch: SUCCESS (0) with the model's report, or another one with the reason. */
export interface RopeLaunch {
  readonly status: number;
  readonly error?: RopewalkError;
  readonly run?: KernelRun;
}

/**
 * Runs the kernel `baseline` on memory without types, as the C function does: batch 0, GPT-J pairs.
 *
 * @param y - the result, `[seq_len, nhead, dhead]` at its strides; a typed array or a DataView, whose bytes count
 * @param x - the input, in the same way
 * @param pos - `[seq_len]`, dense
 * @param sin - `[table_len, dhead / 2]`, dense; it comes before cos
 * @param cos - as sin
 * @param seq_len - tokens
 * @param nhead - heads: the kernel's blocks
 * @param dhead - elements of a head
 * @param data_type - F16 (12) or F32 (13)
 * @param pos_type - I8 (3) … U64 (10)
 * @param y_stride_seqlen - in elements, as the others
 * @param y_stride_nhead - from head to head
 * @param x_stride_seqlen - from token to token
 * @param x_stride_nhead - from head to head
 * @param _stream - unused: the launch has ended when the call returns
 * @returns SUCCESS (0) and the report; BAD_TENSOR_DTYPE (10) for other types, NULL_POINTER (4) for no memory, BAD_PARAM
 *   (3) for anything else, where the C function reads and writes out of bounds. Nothing is written then
 */
export function rope_kernel_launch(
  y: ArrayBufferView | null,
  x: ArrayBufferView | null,
  pos: ArrayBufferView | null,
  sin: ArrayBufferView | null,
  cos: ArrayBufferView | null,
  seq_len: number,
  nhead: number,
  dhead: number,
  data_type: number,
  pos_type: number,
  y_stride_seqlen: number,
  y_stride_nhead: number,
  x_stride_seqlen: number,
  x_stride_nhead: number,
  _stream?: unknown,
): RopeLaunch {
  let status = BAD_TENSOR_DTYPE;
  try {
    const dtype = DATA_TYPES.get(data_type) ?? refuse('DTYPE', 'aicore: data_type', 'F16 (12) or F32 (13)', data_type);
    const of = POSITION_TYPES.find((_, at) => at + 3 === pos_type);
    if (of === undefined) refuse('DTYPE', 'aicore: pos_type', 'I8 (3) … U64 (10)', pos_type);
    status = NULL_POINTER;
    for (const [name, memory] of Object.entries({ y, x, pos, sin, cos }))
      if (!ArrayBuffer.isView(memory)) refuse('RANGE', `aicore: ${name}`, 'a typed array or a DataView', memory);
    status = BAD_PARAM;
    for (const [name, size] of Object.entries({ seq_len, nhead, dhead })) checkInteger(size, `aicore: ${name}`, 0);
    const view = (name: string, memory: ArrayBufferView, seq: number, head: number) => ({
      data: typed(memory, dtype, name),
      shape: [1, seq_len, nhead, dhead] as const,
      strides: [0, seq, head, 1] as const,
    });
    const run = runRopeKernel({
      kernel: 'baseline',
      dtype,
      pairing: 'interleaved',
      x: view('x', x!, x_stride_seqlen, x_stride_nhead),
      y: view('y', y!, y_stride_seqlen, y_stride_nhead),
      positions: typed(pos!, of, 'pos').slice(0, seq_len),
      sin: typed(sin!, dtype, 'sin'),
      cos: typed(cos!, dtype, 'cos'),
    });
    return { status: SUCCESS, run };
  } catch (error) {
    if (!(error instanceof RopewalkError)) throw error;
    return { status, error };
  }
}

/** Reads memory as elements of a type. */
function typed({ buffer, byteOffset, byteLength }: ArrayBufferView, dtype: Dtype, name: string): HostArray {
  const size = sizeBytes(dtype);
  if (byteOffset % size !== 0) refuse('RANGE', `aicore: ${name}`, `an address of ${size} bytes each`, byteOffset);
  const length = Math.floor(byteLength / size);
  return length === 0 ? newArray(dtype, 0) : arrayOver(dtype, buffer, byteOffset, length); // freed memory has no bytes
}
