/**
 * InfiniOp's RoPE for Ascend as its documentation of 2025 has it: other names, another order of arguments, other
 * statuses than in {@link infiniop}. The documentation's names are in no header of upstream; its statuses are those of
 * the code of that time.
 *
 * GPT_NEOX is NOT_IMPLEMENTED when the descriptor is created, after all other checks. BF16 and F64 pass there and are
 * BAD_TENSOR_DTYPE when it runs.
 *
 * @module
 * @see InfiniTensor/InfiniCore@9f0ae734 src/infiniop/ops/rope/ascend/rope_ascend.cc
 */
import { RopewalkError, type Runner } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { show } from 'ropewalk/internal';
import * as io from './infiniop.js';

/** The document's name of ASCEND in {@link io.INFINI_DEVICE}. */
export const kINFINI_DEVICE_ASCEND = 3;
/** The only algorithm: pairs (2j, 2j+1). */
export const INFINI_ROPE_ALGO_GPT_J = 0;

/** A runner as a card of a device. */
export interface InfiniHandle {
  readonly runner: Runner;
  /** One of {@link io.INFINI_DEVICE}. */
  readonly device: number;
  readonly device_id: number;
}

/** The handles that live. */
const HANDLES = /* @__PURE__ */ new WeakSet<object>();

/** Makes the result of a check that failed. */
function failed(
  status: number,
  code: 'RANGE' | 'DTYPE' | 'UNSUPPORTED',
  where: string,
  expected: string,
  got: unknown,
) {
  return { status, error: new RopewalkError(code, `infiniop: ${where}: expected ${expected}, got ${show(got)}`) };
}

/**
 * `infiniopCreateHandle(&handle, device, device_id)`.
 *
 * @param runner - runs the plans; `ascend-model` with its kernel `baseline` computes as the documented kernel
 * @param device - {@link kINFINI_DEVICE_ASCEND}, or CPU
 * @param device_id - the number of the card, kept in the handle
 * @returns the handle; DEVICE_TYPE_NOT_SUPPORTED when the runner does not belong to the device, or BAD_PARAM
 */
export function infiniopCreateHandle(
  runner: Runner,
  device: number,
  device_id: number,
): io.InfiniResult & { readonly handle?: InfiniHandle } {
  const { handle: checked, ...result } = io.infiniopCreateHandle(runner, device, device_id);
  if (!checked) return result;
  const handle = Object.freeze({ runner, device, device_id });
  HANDLES.add(handle);
  return { ...result, handle };
}

/** `infiniopDestroyHandle(handle)`: from now on the handle gives BAD_PARAM. Its runner stays open. */
export function infiniopDestroyHandle(handle: InfiniHandle): io.InfiniResult {
  const alive = HANDLES.delete(handle);
  return alive ? { status: io.INFINI_STATUS_SUCCESS } : deadHandle(handle);
}

function deadHandle(handle: unknown) {
  return failed(io.INFINI_STATUS_BAD_PARAM, 'RANGE', 'handle', 'a live handle from infiniopCreateHandle', handle);
}

/**
 * `infiniopCreateTensorDescriptor(&desc, device, device_id, dtype, ndim, shape, strides)`.
 *
 * @param device - one of {@link io.INFINI_DEVICE}; no later call reads it, nor the next
 * @param device_id - the number of the card
 * @param dtype - one of {@link io.INFINI_DTYPE}
 * @param ndim - number of dimensions
 * @param shape - that many integers >= 0
 * @param strides - that many integers, in elements; null for dense row-major
 * @throws {RopewalkError} RANGE for a device, SHAPE and DTYPE as {@link io.infiniopCreateTensorDescriptor}
 */
export function infiniopCreateTensorDescriptor(
  device: number,
  device_id: number,
  dtype: number,
  ndim: number,
  shape: readonly number[],
  strides: readonly number[] | null,
): io.InfiniTensorDescriptor {
  for (const [name, number] of Object.entries({ device, device_id }))
    if (!Number.isSafeInteger(number) || number < 0) refuse('RANGE', `infiniop: ${name}`, 'an integer >= 0', number);
  return io.infiniopCreateTensorDescriptor(ndim, shape, strides, dtype);
}

/**
 * `infiniopCreateRopeDescriptor(handle, &desc, y, x, pos, sin, cos, algo)`.
 *
 * @param handle - from {@link infiniopCreateHandle}
 * @param y - `[seqlen, nhead, dhead]` or `[batch, seqlen, nhead, dhead]`, last stride 1
 * @param x - y's shape and dtype; its strides may differ
 * @param pos - `[seqlen]` or `[batch, seqlen]`, in any of the eight integer types
 * @param sin - `[table_len, dhead / 2]`, contiguous, y's dtype; sin comes before cos
 * @param cos - as sin
 * @param algo - {@link INFINI_ROPE_ALGO_GPT_J}; all others are NOT_IMPLEMENTED
 * @returns the descriptor, or the status of the first check that fails
 */
export function infiniopCreateRopeDescriptor(
  handle: InfiniHandle,
  y: io.InfiniTensorDescriptor | null,
  x: io.InfiniTensorDescriptor | null,
  pos: io.InfiniTensorDescriptor | null,
  sin: io.InfiniTensorDescriptor | null,
  cos: io.InfiniTensorDescriptor | null,
  algo: number,
): io.InfiniResult & { readonly descriptor?: io.InfiniRoPEDescriptor } {
  if (!HANDLES.has(handle)) return deadHandle(handle);
  const result = io.infiniopCreateRoPEDescriptor(handle.runner, y, x, pos, sin, cos, io.INFINIOP_ROPE_ALGO_GPT_J);
  if (!result.descriptor || algo === INFINI_ROPE_ALGO_GPT_J) return result;
  return failed(io.INFINI_STATUS_NOT_IMPLEMENTED, 'UNSUPPORTED', 'algo', 'INFINI_ROPE_ALGO_GPT_J (0)', algo);
}

/** `infiniopGetRopeWorkspaceSize(desc)`: the size itself, 0. */
export function infiniopGetRopeWorkspaceSize(desc: io.InfiniRoPEDescriptor): number {
  return io.infiniopGetRoPEWorkspaceSize(desc).size;
}

/**
 * `infiniopRope(desc, workspace, workspace_size, y, x, pos_ids, sin_table, cos_table, stream)`.
 *
 * @param desc - from {@link infiniopCreateRopeDescriptor}
 * @param workspace - unused: the needed size is 0
 * @param workspace_size - unused
 * @param y - written through y's strides
 * @param x - read through x's strides
 * @param pos_ids - each a row of the tables
 * @param sin_table - sin of each position and pair; sin comes before cos
 * @param cos_table - cos of each position and pair
 * @param stream - unused
 * @returns BAD_TENSOR_DTYPE unless the data are F16 or F32, else as {@link io.infiniopRoPE}
 */
export function infiniopRope(
  desc: io.InfiniRoPEDescriptor,
  workspace: unknown,
  workspace_size: number,
  y: io.InfiniMemory | null,
  x: io.InfiniMemory | null,
  pos_ids: io.InfiniMemory | null,
  sin_table: io.InfiniMemory | null,
  cos_table: io.InfiniMemory | null,
  stream?: unknown,
): io.InfiniResult {
  const isAlive = io.infiniopGetRoPEWorkspaceSize(desc).status === io.INFINI_STATUS_SUCCESS;
  if (isAlive && desc.y.dtype !== io.INFINI_DTYPE.F32 && desc.y.dtype !== io.INFINI_DTYPE.F16)
    return failed(io.INFINI_STATUS_BAD_TENSOR_DTYPE, 'DTYPE', 'y_desc', 'F32 or F16', desc.y.dtype);
  return io.infiniopRoPE(desc, workspace, workspace_size, y, x, pos_ids, sin_table, cos_table, stream);
}

/** `infiniopDestroyRopeDescriptor(desc)`: from now on the descriptor gives BAD_PARAM. */
export function infiniopDestroyRopeDescriptor(desc: io.InfiniRoPEDescriptor): io.InfiniResult {
  return io.infiniopDestroyRoPEDescriptor(desc);
}

export { infiniopDestroyTensorDescriptor } from './infiniop.js';
