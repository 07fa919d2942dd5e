/**
 * InfiniOp's RoPE as its C interface has it: descriptors, status codes, workspace, calculate, destroy.
 *
 * The checks run in upstream's order, so the same mistake gives the same status. This module also checks what upstream
 * does not: x may not be null, positions must be in the tables, y and x may not overlap in part. When the status is not
 * SUCCESS, nothing is written, and `error` gives the reason.
 *
 * @module
 * @see InfiniTensor/InfiniCore@2cec6ce6 include/infiniop/ops/rope.h, src/infiniop/ops/rope/rope.h
 */

import type { Dtype, ErrorCode, HostArray, RopeTable, Runner } from 'ropewalk';
import { bindRope, bindRopeParts, planRopeWithTable, RopewalkError, sizeBytes, Tensor, tensorFrom } from 'ropewalk';
import { hostOf, newArray, refuse, walk } from 'ropewalk/backend';
import {
  arrayOver,
  checkRunner,
  isDtype,
  type OptionNames,
  optionNames,
  readIntegers,
  readList,
  readOptions,
  sharePairs,
  show,
  tableFromTensors,
  type Words,
} from 'ropewalk/internal';
import { checkWritten, countUp, gatherTable, spanOf } from './calls.js';

/** The call succeeded. */
export const INFINI_STATUS_SUCCESS = 0;
/** The runner or this module failed. */
export const INFINI_STATUS_INTERNAL_ERROR = 1;
/** The runner does not support the operation. */
export const INFINI_STATUS_NOT_IMPLEMENTED = 2;
/** A value is bad: a size, a position outside the tables, memory that is too short or overlaps, a dead descriptor. */
export const INFINI_STATUS_BAD_PARAM = 3;
/** An argument is missing, or the algorithm is unknown. */
export const INFINI_STATUS_NULL_POINTER = 4;
/** The runner does not belong to the requested device. */
export const INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED = 5;
/** An element type does not fit. */
export const INFINI_STATUS_BAD_TENSOR_DTYPE = 10;
/** A shape does not fit. */
export const INFINI_STATUS_BAD_TENSOR_SHAPE = 11;
/** Strides do not fit. */
export const INFINI_STATUS_BAD_TENSOR_STRIDES = 12;
/** No call returns this, as none needs a workspace. infinicore.h has 13; descriptions that say 21 are wrong. */
export const INFINI_STATUS_INSUFFICIENT_WORKSPACE = 13;

/** This algorithm rotates GPT-J pairs (2j, 2j+1). */
export const INFINIOP_ROPE_ALGO_GPT_J = 0;
/** This algorithm rotates GPT-NeoX pairs (j, j + table_dim). */
export const INFINIOP_ROPE_ALGO_GPT_NEOX = 1;

/** A C enumeration that counts its members from 0; `names` has a space between two of them. */
function enumeration<const S extends string>(names: S): Readonly<Record<Words<S>, number>> {
  return Object.freeze(Object.fromEntries(names.split(' ').map((name, code) => [name, code]))) as never;
}

/** The dtype enumeration of infinicore.h. */
export const INFINI_DTYPE = /* @__PURE__ */ enumeration(
  'INVALID BYTE BOOL I8 I16 I32 I64 U8 U16 U32 U64 F8 F16 F32 F64 C16 C32 C64 C128 BF16',
);

/** The device enumeration of infinicore.h, InfiniTensor/InfiniCore@45dc3eac. Code 8 was SUGON before. */
export const INFINI_DEVICE = /* @__PURE__ */ enumeration(
  'CPU NVIDIA CAMBRICON ASCEND METAX MOORE ILUVATAR KUNLUN HYGON',
);

/** The dtypes of Ropewalk by InfiniOp's codes, as far as both have them. */
const DTYPE_OF: ReadonlyMap<number, Dtype> = /* @__PURE__ */ new Map(
  /* @__PURE__ */ Object.entries<number>(INFINI_DTYPE).flatMap(([name, code]) => {
    const dtype = name.toLowerCase();
    return isDtype(dtype) ? [[code, dtype] as const] : [];
  }),
);
const FLOATS: readonly number[] = [INFINI_DTYPE.F16, INFINI_DTYPE.BF16, INFINI_DTYPE.F32, INFINI_DTYPE.F64];
const INTEGERS: readonly number[] = [3, 4, 5, 6, 7, 8, 9, 10]; // I8 … U64

/** The shape, the strides in elements and the dtype of a tensor. It has no memory. */
export interface InfiniTensorDescriptor {
  readonly ndim: number;
  readonly shape: readonly number[];
  readonly strides: readonly number[];
  /** One of {@link INFINI_DTYPE}. */
  readonly dtype: number;
}

/** A status, and the reason where it is not SUCCESS. */
export interface InfiniResult {
  readonly status: number;
  readonly error?: RopewalkError;
}

/** Stands for a C pointer: a typed array, bytes of any dtype, or a tensor, which points at its first element. */
export type InfiniMemory = HostArray | Tensor;

/**
 * `infiniopCreateTensorDescriptor(&desc, ndim, shape, strides, dtype)`.
 *
 * @param ndim - number of dimensions
 * @param shape - that many integers >= 0
 * @param strides - that many integers, in elements; null for dense row-major
 * @param dtype - one of {@link INFINI_DTYPE}
 * @throws {RopewalkError} SHAPE when shape or strides are not ndim integers; DTYPE when dtype is not an integer
 */
export function infiniopCreateTensorDescriptor(
  ndim: number,
  shape: readonly number[],
  strides: readonly number[] | null,
  dtype: number,
): InfiniTensorDescriptor {
  if (!Number.isSafeInteger(ndim)) refuse('SHAPE', 'infiniop: ndim', 'an integer', ndim);
  if (!Number.isSafeInteger(dtype)) refuse('DTYPE', 'infiniop: dtype', 'a number of INFINI_DTYPE', dtype);
  const integers = (given: readonly number[], low: number, name: string, expected: string): readonly number[] => {
    const list = Array.from(readList(given, `infiniop: ${name}`, expected));
    if (list.length !== ndim || !list.every((n) => Number.isSafeInteger(n) && n >= low))
      refuse('SHAPE', `infiniop: ${name}`, expected, given);
    return Object.freeze(list);
  };
  const dims = integers(shape, 0, 'shape', `${ndim} integers >= 0`);
  const steps =
    strides === null
      ? Object.freeze(denseStrides(dims))
      : integers(strides, Number.MIN_SAFE_INTEGER, 'strides', `${ndim} integers, or null`);
  return made(Object.freeze({ ndim, shape: dims, strides: steps, dtype }));
}

/** The descriptors that this module has made. */
const MADE = /* @__PURE__ */ new WeakSet<object>();

function made<T extends object>(descriptor: T): T {
  MADE.add(descriptor);
  return descriptor;
}

/**
 * `infiniopDestroyTensorDescriptor(desc)`: a later create function gives BAD_PARAM for it. Descriptors made from it
 * stay as they are, as in upstream.
 *
 * @param desc - a live tensor descriptor
 */
export function infiniopDestroyTensorDescriptor(desc: InfiniTensorDescriptor): InfiniResult {
  return resultOf(() => {
    demandDescriptor(desc, 'desc');
    MADE.delete(desc);
  });
}

/** As in upstream, a dimension of 0 gives strides of 0. */
function denseStrides(shape: readonly number[]): number[] {
  return shape.map((_item, d) => shape.slice(d + 1).reduce((product, dim) => product * dim, 1));
}

/** As in upstream, the stride of a dimension of size 1 does not matter, and a stride of 0 is never contiguous. */
function isContiguous({ shape, strides }: InfiniTensorDescriptor): boolean {
  const dense = denseStrides(shape);
  return shape.every((size, d) => size === 1 || (strides[d] !== 0 && strides[d] === dense[d]));
}

/** A descriptor that its destroy function ends. */
interface Destroyable {
  destroyed: boolean;
}

/** The state of a RoPE descriptor, which is opaque to the caller. */
export interface InfiniRoPEDescriptor
  extends Readonly<Record<'y' | 'x' | 'pos' | 'sin' | 'cos', InfiniTensorDescriptor>>,
    Destroyable {
  readonly algo: number;
  readonly handle: Runner;
}

/** An error that carries its status. */
class Status extends RopewalkError {
  constructor(
    readonly status: number,
    code: ErrorCode,
    message: string,
  ) {
    super(code, message);
  }
}

/** Makes a check that raises a status. The first condition that is false decides, as in upstream. */
function demandOf(status: number, code: ErrorCode) {
  return (condition: boolean, argument: string, expected: string, got: unknown): void => {
    if (!condition) throw new Status(status, code, `infiniop: ${argument}: expected ${expected}, got ${show(got)}`);
  };
}

const demandParam = /* @__PURE__ */ demandOf(INFINI_STATUS_BAD_PARAM, 'RANGE');
const demandDtype = /* @__PURE__ */ demandOf(INFINI_STATUS_BAD_TENSOR_DTYPE, 'DTYPE');
const demandShape = /* @__PURE__ */ demandOf(INFINI_STATUS_BAD_TENSOR_SHAPE, 'SHAPE');
const demandStrides = /* @__PURE__ */ demandOf(INFINI_STATUS_BAD_TENSOR_STRIDES, 'SHAPE');
const demandDevice = /* @__PURE__ */ demandOf(INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED, 'UNSUPPORTED');
const demandValid = /* @__PURE__ */ demandOf(INFINI_STATUS_NULL_POINTER, 'RANGE');

function demandPointer<T>(pointer: T, argument: string, expected: string): asserts pointer is NonNullable<T> {
  demandValid(pointer !== null && pointer !== undefined, argument, expected, pointer);
}

function demandDescriptor(desc: InfiniTensorDescriptor | null, name: string): asserts desc is InfiniTensorDescriptor {
  demandPointer(desc, name, 'a descriptor');
  demandParam(MADE.has(desc), name, 'a descriptor from infiniopCreateTensorDescriptor', desc);
}

/** The statuses of errors that do not carry one. */
const STATUS_OF: Readonly<Partial<Record<ErrorCode, number>>> = {
  DTYPE: INFINI_STATUS_BAD_TENSOR_DTYPE,
  SHAPE: INFINI_STATUS_BAD_TENSOR_SHAPE,
  RANGE: INFINI_STATUS_BAD_PARAM,
  ALIAS: INFINI_STATUS_BAD_PARAM,
  UNSUPPORTED: INFINI_STATUS_NOT_IMPLEMENTED,
};

/** Runs the work of one call, and adds what it returns to the status. */
function resultOf<T>(work: () => T): InfiniResult & Partial<T> {
  try {
    return { status: INFINI_STATUS_SUCCESS, ...work() } as InfiniResult & Partial<T>;
  } catch (error) {
    if (!(error instanceof RopewalkError)) throw error;
    const status = error instanceof Status ? error.status : STATUS_OF[error.code];
    return { status: status ?? INFINI_STATUS_INTERNAL_ERROR, error } as InfiniResult & Partial<T>;
  }
}

/**
 * `infinirtSetDevice(device, id)` and `infiniopCreateHandle(&handle)`: checks that a runner belongs to a device.
 *
 * Every runner belongs to CPU, as its memory is the host's. `ascend-model` also belongs to ASCEND, as it computes in
 * that device's arithmetic. A runner itself is a handle of the CPU.
 *
 * @param runner - runs the plans
 * @param device - one of {@link INFINI_DEVICE}
 * @param device_id - the number of the card, which only has to be one
 * @returns the runner as the handle; DEVICE_TYPE_NOT_SUPPORTED, or BAD_PARAM for the number
 */
export function infiniopCreateHandle(
  runner: Runner,
  device: number = INFINI_DEVICE.CPU,
  device_id = 0,
): InfiniResult & { readonly handle?: Runner } {
  return resultOf(() => {
    checkRunner(runner, 'infiniop: runner');
    demandDevice(Number.isInteger(device), 'device', 'a number of INFINI_DEVICE', device);
    const devices = runner.name === 'ascend-model' ? [INFINI_DEVICE.CPU, INFINI_DEVICE.ASCEND] : [INFINI_DEVICE.CPU];
    const expected = `a device of ${runner.name}, ${devices.map(deviceName).join(' or ')}`;
    demandDevice(devices.includes(device), 'device', expected, deviceName(device));
    demandParam(Number.isSafeInteger(device_id) && device_id >= 0, 'device_id', 'an integer >= 0', device_id);
    return { handle: runner };
  });
}

/** `infiniopDestroyHandle(handle)`: the runner is the caller's, and stays open. */
export function infiniopDestroyHandle(handle: Runner): InfiniResult {
  return resultOf(() => checkRunner(handle, 'infiniop: handle'));
}

/** Gives a device its name: `ASCEND (3)`. */
function deviceName(device: number): string {
  const name = Object.keys(INFINI_DEVICE)[device];
  return name === undefined ? String(device) : `${name} (${device})`;
}

/**
 * `infiniopCreateRoPEDescriptor(handle, &desc, y, x, pos_ids, sin_table, cos_table, algo)`.
 *
 * @param handle - a runner; see {@link infiniopCreateHandle}
 * @param y - `[seqlen, nhead, dhead]` or `[batch, seqlen, nhead, dhead]`, F16, BF16, F32 or F64, last stride 1
 * @param x - y's shape and dtype; its strides may differ
 * @param pos - `[seqlen]` or `[batch, seqlen]`, in any of the eight integer types
 * @param sin - `[table_len, dhead / 2]`, contiguous, y's dtype; sin comes before cos
 * @param cos - as sin
 * @param algo - {@link INFINIOP_ROPE_ALGO_GPT_J} or {@link INFINIOP_ROPE_ALGO_GPT_NEOX}
 * @returns the descriptor, or the status of the first check that fails
 */
export function infiniopCreateRoPEDescriptor(
  handle: Runner,
  y: InfiniTensorDescriptor | null,
  x: InfiniTensorDescriptor | null,
  pos: InfiniTensorDescriptor | null,
  sin: InfiniTensorDescriptor | null,
  cos: InfiniTensorDescriptor | null,
  algo: number,
): InfiniResult & { readonly descriptor?: InfiniRoPEDescriptor } {
  return resultOf(() => {
    demandDescriptor(y, 'y_desc');
    demandDescriptor(pos, 'pos_desc');
    demandDescriptor(sin, 'sin_desc');
    demandDescriptor(cos, 'cos_desc');
    demandDescriptor(x, 'x_desc');
    // Compiled C accepts −1 and runs NEOX; every unknown algorithm is refused here.
    const known = algo === INFINIOP_ROPE_ALGO_GPT_J || algo === INFINIOP_ROPE_ALGO_GPT_NEOX;
    demandValid(known, 'algo', 'GPT_J (0) or GPT_NEOX (1)', algo);
    for (const [name, { dtype }] of Object.entries({ x, sin, cos }))
      demandDtype(dtype === y.dtype, `${name}_desc`, `y's dtype ${y.dtype}`, dtype);
    demandDtype(FLOATS.includes(y.dtype), 'y_desc', 'F16, BF16, F32 or F64', y.dtype);
    demandDtype(INTEGERS.includes(pos.dtype), 'pos_desc', 'one of I8 … I64, U8 … U64', pos.dtype);
    demandShape((y.ndim === 4) === (x.ndim === 4), 'x_desc', `${y.ndim} dimensions, as y`, x.ndim);
    demandShape(y.ndim === x.ndim && (y.ndim === 3 || y.ndim === 4), 'y_desc', '3 or 4 dimensions', y.ndim);
    demandShape(pos.ndim === 1 || pos.ndim === 2, 'pos_desc', '1 or 2 dimensions', pos.ndim);
    const ranks = [sin.ndim, cos.ndim];
    demandShape(sin.ndim === 2 && cos.ndim === 2, 'sin_desc, cos_desc', '2 dimensions [table_len, table_dim]', ranks);
    demandShape(sameShape(x.shape, y.shape), 'x_desc', `shape [${y.shape}]`, x.shape);
    const [batch, seqlen, , dhead] = [...(y.ndim === 3 ? [1] : []), ...y.shape] as [number, number, number, number];
    const posShape = pos.ndim === 2 ? [batch, seqlen] : [seqlen];
    demandShape(sameShape(pos.shape, posShape), 'pos_desc', `shape [${posShape}]`, pos.shape);
    demandShape(sameShape(cos.shape, sin.shape), 'cos_desc', `sin's shape [${sin.shape}]`, cos.shape);
    demandShape(dhead === 2 * sin.shape[1]!, 'sin_desc', `table_dim = dhead / 2 = ${dhead / 2}`, sin.shape[1]);
    const last = [y.strides.at(-1), x.strides.at(-1)];
    demandStrides(last[0] === 1 && last[1] === 1, 'y_desc, x_desc', 'last stride 1', last);
    const contiguous = isContiguous(sin) && isContiguous(cos);
    demandStrides(contiguous, 'sin_desc, cos_desc', 'contiguous tables', [sin.strides, cos.strides]);
    checkRunner(handle, 'infiniop: handle');
    return { descriptor: made({ y, x, pos, sin, cos, algo, handle, destroyed: false }) };
  });
}

function sameShape(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((dim, d) => dim === b[d]);
}

/**
 * `infiniopGetRoPEWorkspaceSize(desc, &size)`: the size is 0.
 *
 * @param desc - a live descriptor
 */
export function infiniopGetRoPEWorkspaceSize(desc: Destroyable): InfiniResult & { readonly size: number } {
  const result: InfiniResult = resultOf(() => checkAlive(desc));
  return { ...result, size: 0 };
}

/**
 * `infiniopRoPE(desc, workspace, workspace_size, y, x, pos_ids, sin_table, cos_table, stream)`.
 *
 * @param desc - from {@link infiniopCreateRoPEDescriptor}
 * @param _workspace - unused: the needed size is 0
 * @param _workspace_size - unused
 * @param y - written through y's strides; may be x's memory when the strides agree
 * @param x - read through x's strides
 * @param pos_ids - read through pos' strides; each must be a row of the tables (upstream reads out of bounds)
 * @param sin_table - sin of each position and pair; sin comes before cos
 * @param cos_table - cos of each position and pair
 * @param _stream - unused
 * @returns SUCCESS; or NULL_POINTER, or BAD_PARAM (a position outside the tables, short memory, partial overlap)
 */
export function infiniopRoPE(
  desc: InfiniRoPEDescriptor,
  _workspace: unknown,
  _workspace_size: number,
  y: InfiniMemory | null,
  x: InfiniMemory | null,
  pos_ids: InfiniMemory | null,
  sin_table: InfiniMemory | null,
  cos_table: InfiniMemory | null,
  _stream?: unknown,
): InfiniResult {
  return resultOf(() => {
    checkAlive(desc);
    for (const [name, memory] of Object.entries({ y, x, pos_ids, sin_table, cos_table }))
      demandPointer(memory, name, 'memory');
    const [out, input, pos] = [over(desc.y, y!, 'y'), over(desc.x, x!, 'x'), over(desc.pos, pos_ids!, 'pos_ids')];
    const [cos, sin] = [over(desc.cos, cos_table!, 'cos_table'), over(desc.sin, sin_table!, 'sin_table')];
    const { table, tableRows } = readTables(pos, 'pos_ids', cos, sin);
    checkWritten('infiniop', 'y', out, { x: input }, 'x');
    const shape = [...(desc.y.ndim === 3 ? [1] : []), ...desc.y.shape];
    const plan = planRopeWithTable({
      headDim: shape[3]!,
      pairing: desc.algo === INFINIOP_ROPE_ALGO_GPT_J ? 'interleaved' : 'half',
      table,
      seqLen: shape[1]!,
      batch: desc.pos.ndim === 2 ? shape[0]! : undefined,
      tableRows,
    });
    desc.handle.run(bindRope(plan, input, out));
  });
}

/** Reads and checks the positions, and converts only the table rows that they span. */
function readTables(
  pos: Tensor,
  name: string,
  cos: Tensor,
  sin: Tensor,
  outside?: InfiniMRoPESizes['positions_outside'],
): { table: RopeTable; tableRows: Float64Array } {
  const where = `infiniop: ${name}`;
  const rows = cos.shape[0]!;
  const positions = outside === 'row_0' && rows > 0 ? readOrRow0(pos, where, rows) : readIntegers(pos, where);
  const { first, end } = spanOf(positions, rows, (n, position) => {
    const at = pos.rank === 2 ? `${Math.floor(n / pos.shape[1]!)}, ${n % pos.shape[1]!}` : n;
    const expected = rows === 0 ? 'no position, as the tables are empty' : `a row of the tables, in [0, ${rows - 1}]`;
    return refuse('RANGE', `${where}[${at}]`, expected, position, 'Build longer tables, or check the positions.');
  });
  const table = tableFromTensors(cos.slice(0, first, end), sin.slice(0, first, end), 'infiniop');
  return { table, tableRows: positions.map((position) => position - first) };
}

/** Reads positions, where those outside the tables become 0. */
function readOrRow0(pos: Tensor, where: string, rows: number): Float64Array {
  const host = hostOf(pos, where);
  const positions = new Float64Array(pos.size);
  walk(pos, (at, n) => {
    const position = Number(host[at]!); // Above 2^53 this is rounded, but then it is outside anyway.
    positions[n] = position >= 0 && position < rows ? position : 0;
  });
  return positions;
}

/**
 * `infiniopDestroyRoPEDescriptor(desc)`: from now on the descriptor gives BAD_PARAM.
 *
 * @param desc - a live descriptor
 */
export function infiniopDestroyRoPEDescriptor(desc: Destroyable): InfiniResult {
  return resultOf(() => {
    checkAlive(desc);
    desc.destroyed = true;
  });
}

function checkAlive(desc: Destroyable): void {
  demandPointer(desc, 'desc', 'a descriptor');
  demandParam(MADE.has(desc), 'desc', 'a descriptor from its create function', desc);
  demandParam(!desc.destroyed, 'desc', 'a live descriptor', 'a destroyed one');
}

/** Lays a tensor with the shape and strides of a descriptor over memory. */
function over(desc: InfiniTensorDescriptor, memory: InfiniMemory, name: string): Tensor {
  const dtype = DTYPE_OF.get(desc.dtype)!;
  const whole = Tensor.isTensor(memory) ? memory : tensorFrom(typed(memory, dtype, name), { dtype });
  demandDtype(whole.dtype === dtype, name, `memory of ${dtype}`, whole.dtype);
  try {
    return new Tensor(whole.storage, { shape: desc.shape, strides: desc.strides, offset: whole.offset });
  } catch (error) {
    const { code, message } = error as RopewalkError;
    throw new Status(INFINI_STATUS_BAD_PARAM, code, message);
  }
}

/** Reads bytes as elements of a dtype; every other array is left as it is. */
function typed(memory: HostArray, dtype: Dtype, name: string): HostArray {
  if (!ArrayBuffer.isView(memory) || !(memory instanceof Uint8Array)) return memory;
  const size = sizeBytes(dtype);
  demandParam(memory.byteOffset % size === 0, name, `bytes at a multiple of ${size}`, memory.byteOffset);
  const length = Math.floor(memory.length / size);
  return length === 0 ? newArray(dtype, 0) : arrayOver(dtype, memory.buffer, memory.byteOffset, length);
}

/** The sizes of an M-RoPE. */
export interface InfiniMRoPESizes {
  readonly num_q_heads: number;
  readonly num_kv_heads: number;
  readonly head_size: number;
  /** The first dimensions of a head rotate with half pairing; the others are copied. */
  readonly rotary_dim: number;
  /** The pairs of t, h and w; their sum is rotary_dim / 2. */
  readonly mrope_section: readonly [number, number, number];
  /** Sections are contiguous (false), or pair j belongs to axis j mod 3 (true). */
  readonly mrope_interleaved: boolean;
  /**
   * A position outside the tables is BAD_PARAM (`refuse`, the default) or takes row 0 (`row_0`), as in upstream's Ascend
   * kernel, InfiniTensor/InfiniCore@aa126523 src/infiniop/ops/mrope/ascend/mrope_ascend_kernel.cpp.
   */
  readonly positions_outside?: 'refuse' | 'row_0';
}

const SIZE_NAMES: OptionNames<InfiniMRoPESizes> = /* @__PURE__ */ optionNames(
  'num_q_heads num_kv_heads head_size rotary_dim mrope_section mrope_interleaved positions_outside',
);

const TENSOR_NAMES: OptionNames<InfiniMRoPETensors<unknown>> = /* @__PURE__ */ optionNames(
  'q_out k_out q k cos sin positions',
);
const MROPE_TENSORS = /* @__PURE__ */ Object.keys(TENSOR_NAMES) as (keyof typeof TENSOR_NAMES)[];

/** The state of an M-RoPE descriptor, which is opaque to the caller. */
export interface InfiniMRoPEDescriptor extends InfiniMRoPESizes, Destroyable {
  readonly tensors: InfiniMRoPETensors<InfiniTensorDescriptor>;
  readonly handle: Runner;
}

/**
 * The tensors of an M-RoPE: q and k `[tokens, heads · head_size]`, tables `[table_len, rotary_dim / 2]`,
 * positions `[tokens]` or `[3, tokens]`.
 */
export type InfiniMRoPETensors<T> = Readonly<Record<'q_out' | 'k_out' | 'q' | 'k' | 'cos' | 'sin' | 'positions', T>>;

/**
 * `infiniopCreateMRoPEDescriptor`: RoPE of q and k with three position axes.
 *
 * @param handle - a runner
 * @param tensors - a descriptor for each tensor
 * @param sizes - heads, sizes, sections
 * @returns the descriptor, or the status of the first check that fails
 */
export function infiniopCreateMRoPEDescriptor(
  handle: Runner,
  tensors: InfiniMRoPETensors<InfiniTensorDescriptor | null>,
  sizes: InfiniMRoPESizes,
): InfiniResult & { readonly descriptor?: InfiniMRoPEDescriptor } {
  return resultOf(() => {
    const t = readOptions(tensors, 'infiniop: tensors', TENSOR_NAMES) as InfiniMRoPETensors<InfiniTensorDescriptor>;
    for (const name of MROPE_TENSORS) demandDescriptor(t[name], `${name}_desc`);
    const given = readOptions(sizes, 'infiniop: sizes', SIZE_NAMES);
    const { num_q_heads, num_kv_heads, head_size, rotary_dim, mrope_interleaved, positions_outside } = given;
    demandParam(typeof mrope_interleaved === 'boolean', 'mrope_interleaved', 'true or false', mrope_interleaved);
    const mrope_section = Array.from(readList(given.mrope_section, 'infiniop: mrope_section', 'three integers'));
    for (const [name, size] of Object.entries({ num_q_heads, num_kv_heads, head_size, rotary_dim }))
      demandParam(Number.isInteger(size) && size > 0, name, 'an integer > 0', size);
    const even = rotary_dim % 2 === 0 && rotary_dim <= head_size;
    demandParam(even, 'rotary_dim', `an even integer <= head_size=${head_size}`, rotary_dim);
    const fills =
      mrope_section.length === 3 &&
      mrope_section.every((pairs) => Number.isInteger(pairs) && pairs >= 0) &&
      mrope_section.reduce((sum, pairs) => sum + pairs, 0) === rotary_dim / 2;
    const expected = `three integers >= 0 of sum rotary_dim / 2 = ${rotary_dim / 2}`;
    demandParam(fills, 'mrope_section', expected, mrope_section);
    const outside = positions_outside ?? 'refuse';
    demandParam(['refuse', 'row_0'].includes(outside), 'positions_outside', 'refuse or row_0', outside);
    const { dtype } = t.q_out;
    for (const name of ['k_out', 'q', 'k', 'cos', 'sin'] as const)
      demandDtype(t[name].dtype === dtype, `${name}_desc`, `q_out's dtype ${dtype}`, t[name].dtype);
    demandDtype(FLOATS.includes(dtype), 'q_out_desc', 'F16, BF16, F32 or F64', dtype);
    const integer = t.positions.dtype === INFINI_DTYPE.I32 || t.positions.dtype === INFINI_DTYPE.I64;
    demandDtype(integer, 'positions_desc', 'I32 or I64', t.positions.dtype);
    const [tokens = 0] = t.q.shape;
    const [rows = 0] = t.cos.shape;
    const [q, k] = [num_q_heads, num_kv_heads].map((heads) => [tokens, heads * head_size]);
    const table = [rows, rotary_dim / 2];
    const positions = t.positions.ndim === 1 ? [tokens] : [3, tokens];
    const shapes = { q, q_out: q, k, k_out: k, cos: table, sin: table, positions };
    for (const [name, shape] of Object.entries(shapes)) {
      const got = t[name as keyof typeof shapes].shape;
      demandShape(sameShape(got, shape!), `${name}_desc`, `shape [${shape}]`, got);
    }
    for (const name of MROPE_TENSORS)
      demandStrides(t[name].strides.at(-1) === 1, `${name}_desc`, 'last stride 1', t[name].strides);
    checkRunner(handle, 'infiniop: handle');
    const section = mrope_section as unknown as InfiniMRoPESizes['mrope_section'];
    const descriptor = { ...given, mrope_section: section, tensors: Object.freeze(t), handle, destroyed: false };
    return { descriptor: made(descriptor) };
  });
}

/**
 * `infiniopMRoPE`: rotates q and k.
 *
 * @param desc - from {@link infiniopCreateMRoPEDescriptor}
 * @param pointers - the memory of each tensor; q_out may be q, and k_out may be k; nothing else may overlap
 * @returns SUCCESS, or a status with nothing written
 */
export function infiniopMRoPE(
  desc: InfiniMRoPEDescriptor,
  pointers: InfiniMRoPETensors<InfiniMemory | null>,
): InfiniResult {
  return resultOf(() => {
    checkAlive(desc);
    const memory = readOptions(pointers, 'infiniop: memory', TENSOR_NAMES);
    for (const name of MROPE_TENSORS) demandPointer(memory[name], name, 'memory');
    const lay = (name: keyof typeof TENSOR_NAMES): Tensor => over(desc.tensors[name], memory[name]!, name);
    const [q, k, q_out, k_out] = [lay('q'), lay('k'), lay('q_out'), lay('k_out')];
    const pairs = desc.rotary_dim / 2;
    const rule = desc.mrope_interleaved ? 'interleaved' : 'sections';
    const { axisOfPair } = sharePairs({ rule, sections: desc.mrope_section }, pairs, 'infiniop');
    const positions = lay('positions');
    const { table, tableRows } = readTables(positions, 'positions', lay('cos'), lay('sin'), desc.positions_outside);
    const tokens = desc.tensors.q.shape[0]!;
    const axes = positions.rank === 1 ? new Uint8Array(pairs) : axisOfPair;
    checkWritten('infiniop', 'q_out', q_out, { q, k, k_out }, 'q');
    checkWritten('infiniop', 'k_out', k_out, { k, q }, 'k');
    const plan = planRopeWithTable({
      headDim: desc.head_size,
      rotaryDim: desc.rotary_dim,
      pairing: 'half',
      table: gatherTable(table, tableRows, axes, tokens),
      seqLen: tokens,
      tableRows: countUp(tokens),
    });
    const part = (x: Tensor, out: Tensor, heads: number) => {
      const shape = [tokens, heads, desc.head_size];
      return { x: x.view(shape), out: out.view(shape) };
    };
    const parts = [part(q, q_out, desc.num_q_heads), part(k, k_out, desc.num_kv_heads)];
    desc.handle.run(bindRopeParts(plan, parts as Parameters<typeof bindRopeParts>[1]));
  });
}

/** `infiniopDestroyMRoPEDescriptor(desc)`. See {@link infiniopDestroyRoPEDescriptor}. */
export function infiniopDestroyMRoPEDescriptor(desc: InfiniMRoPEDescriptor): InfiniResult {
  return infiniopDestroyRoPEDescriptor(desc);
}
