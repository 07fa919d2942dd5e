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

import type { Dtype, ErrorCode, FloatDtype, HostArray, RopeTable, Runner } from 'ropewalk';
import { bindRope, isDtype, planRopeWithTable, RopewalkError, Tensor, tableFromTensors, tensorFrom } from 'ropewalk';
import { hostOf, newArray, refuse, walk } from 'ropewalk/backend';
import {
  checkApart,
  checkOutput,
  checkRunner,
  type OptionNames,
  readIntegers,
  readList,
  readOptions,
  sharePairs,
  show,
} from 'ropewalk/internal';

/** Success. */
export const INFINI_STATUS_SUCCESS = 0;
/** An internal fault, here or in the runner. */
export const INFINI_STATUS_INTERNAL_ERROR = 1;
/** The runner does not support the operation. */
export const INFINI_STATUS_NOT_IMPLEMENTED = 2;
/** A bad value: a size, a position outside the tables, memory that is too short or overlaps, a destroyed descriptor. */
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
/** Never returned, as no workspace is needed. infinicore.h has 13; descriptions that say 21 are wrong. */
export const INFINI_STATUS_INSUFFICIENT_WORKSPACE = 13;

/** GPT-J pairs (2j, 2j+1). */
export const INFINIOP_ROPE_ALGO_GPT_J = 0;
/** GPT-NeoX pairs (j, j + table_dim). */
export const INFINIOP_ROPE_ALGO_GPT_NEOX = 1;

/** The dtype enumeration of infinicore.h. */
export const INFINI_DTYPE = /* @__PURE__ */ Object.freeze({
  INVALID: 0,
  BYTE: 1,
  BOOL: 2,
  I8: 3,
  I16: 4,
  I32: 5,
  I64: 6,
  U8: 7,
  U16: 8,
  U32: 9,
  U64: 10,
  F8: 11,
  F16: 12,
  F32: 13,
  F64: 14,
  C16: 15,
  C32: 16,
  C64: 17,
  C128: 18,
  BF16: 19,
} as const);

/** The device enumeration of infinicore.h, InfiniTensor/InfiniCore@45dc3eac; 8 was SUGON before. */
export const INFINI_DEVICE = /* @__PURE__ */ Object.freeze({
  CPU: 0,
  NVIDIA: 1,
  CAMBRICON: 2,
  ASCEND: 3,
  METAX: 4,
  MOORE: 5,
  ILUVATAR: 6,
  KUNLUN: 7,
  HYGON: 8,
} as const);

/** InfiniOp's dtype → Ropewalk's, for those that the operators take. */
const DTYPE_OF: ReadonlyMap<number, Dtype> = /* @__PURE__ */ new Map(
  /* @__PURE__ */ Object.entries(INFINI_DTYPE).flatMap(([name, code]) => {
    const dtype = name.toLowerCase();
    return isDtype(dtype) ? [[code, dtype] as const] : [];
  }),
);
const FLOATS: readonly number[] = [INFINI_DTYPE.F16, INFINI_DTYPE.BF16, INFINI_DTYPE.F32, INFINI_DTYPE.F64];
const INTEGERS: readonly number[] = [3, 4, 5, 6, 7, 8, 9, 10]; // I8 … U64

/** Shape, strides in elements, and dtype of a tensor; no memory. */
export interface InfiniTensorDescriptor {
  readonly ndim: number;
  readonly shape: readonly number[];
  readonly strides: readonly number[];
  /** One of {@link INFINI_DTYPE}. */
  readonly dtype: number;
}

/** A status, and the reason when it is not SUCCESS. */
export interface InfiniResult {
  readonly status: number;
  readonly error?: RopewalkError;
}

/** A pointer in C: a typed array, or a tensor, of which only the first element's place counts. */
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
  // As upstream: a dimension of 0 gives strides of 0.
  const dense = dims.map((_item, d) => dims.slice(d + 1).reduce((product, dim) => product * dim, 1));
  const expected = `${ndim} integers, or null`;
  const steps =
    strides === null ? Object.freeze(dense) : integers(strides, Number.MIN_SAFE_INTEGER, 'strides', expected);
  const descriptor = Object.freeze({ ndim, shape: dims, strides: steps, dtype });
  MADE.add(descriptor);
  return descriptor;
}

/** Every descriptor that this module has made. */
const MADE = /* @__PURE__ */ new WeakSet<object>();

/** As upstream: the stride of a dimension of size 1 does not matter, and a stride of 0 is never contiguous. */
function isContiguous({ shape, strides, ndim }: InfiniTensorDescriptor): boolean {
  let expected = 1;
  for (let d = ndim - 1; d >= 0; d--) {
    if (shape[d] === 1) continue;
    if (strides[d] === 0 || strides[d] !== expected) return false;
    expected *= shape[d]!;
  }
  return true;
}

/** The state of a RoPE descriptor. Opaque to the caller. */
export interface InfiniRoPEDescriptor
  extends Readonly<Record<'y' | 'x' | 'pos' | 'sin' | 'cos', InfiniTensorDescriptor>> {
  readonly algo: number;
  readonly handle: Runner;
  /** Set by destroy. */
  destroyed: boolean;
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

/** Checks that raise a status; the first condition that is false decides, as in upstream. */
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
/** The status for null and undefined, and for an unknown algorithm. */
const demandValid = /* @__PURE__ */ demandOf(INFINI_STATUS_NULL_POINTER, 'RANGE');

function demandPointer<T>(pointer: T, argument: string, expected: string): asserts pointer is NonNullable<T> {
  demandValid(pointer !== null && pointer !== undefined, argument, expected, pointer);
}

function demandDescriptor(desc: InfiniTensorDescriptor | null, name: string): asserts desc is InfiniTensorDescriptor {
  demandPointer(desc, name, 'a descriptor');
  demandParam(MADE.has(desc), name, 'a descriptor from infiniopCreateTensorDescriptor', desc);
}

function resultOf(work: () => void): InfiniResult {
  try {
    work();
    return { status: INFINI_STATUS_SUCCESS };
  } catch (error) {
    if (error instanceof Status) return { status: error.status, error };
    if (!(error instanceof RopewalkError)) throw error;
    const status = {
      DTYPE: INFINI_STATUS_BAD_TENSOR_DTYPE,
      SHAPE: INFINI_STATUS_BAD_TENSOR_SHAPE,
      RANGE: INFINI_STATUS_BAD_PARAM,
      ALIAS: INFINI_STATUS_BAD_PARAM,
      UNSUPPORTED: INFINI_STATUS_NOT_IMPLEMENTED,
    }[error.code as string];
    return { status: status ?? INFINI_STATUS_INTERNAL_ERROR, error };
  }
}

function created<T extends object>(make: () => T): InfiniResult & { readonly descriptor?: T } {
  let descriptor: T | undefined;
  const result = resultOf(() => {
    descriptor = make();
    MADE.add(descriptor);
  });
  return { ...result, descriptor };
}

/**
 * `infinirtSetDevice(device, id)` and `infiniopCreateHandle(&handle)`: checks that a runner belongs to a device.
 *
 * Every runner belongs to CPU, as its memory is the host's. `ascend-model` also belongs to ASCEND, as it computes in
 * that device's arithmetic. A runner alone is a handle of the CPU.
 *
 * @param runner - runs the plans
 * @param device - one of {@link INFINI_DEVICE}
 * @returns the runner as the handle, or DEVICE_TYPE_NOT_SUPPORTED
 */
export function infiniopCreateHandle(
  runner: Runner,
  device: number = INFINI_DEVICE.CPU,
): InfiniResult & { readonly handle?: Runner } {
  const result = resultOf(() => {
    checkRunner(runner, 'infiniop: runner');
    demandDevice(Number.isInteger(device), 'device', 'a number of INFINI_DEVICE', device);
    const devices: number[] = [INFINI_DEVICE.CPU];
    if (runner.name === 'ascend-model') devices.push(INFINI_DEVICE.ASCEND);
    const expected = `a device of ${runner.name}, ${devices.map(deviceName).join(' or ')}`;
    demandDevice(devices.includes(device), 'device', expected, deviceName(device));
  });
  return result.status === INFINI_STATUS_SUCCESS ? { ...result, handle: runner } : result;
}

/** `ASCEND (3)` */
function deviceName(device: number): string {
  const known = Object.entries(INFINI_DEVICE).find(([, code]) => code === device);
  return known ? `${known[0]} (${device})` : String(device);
}

/**
 * `infiniopCreateRoPEDescriptor(handle, &desc, y, x, pos_ids, sin_table, cos_table, algo)`.
 *
 * @param handle - a runner; see {@link infiniopCreateHandle}
 * @param y - `[seqlen, nhead, dhead]` or `[batch, seqlen, nhead, dhead]`, F16, BF16, F32 or F64, last stride 1
 * @param x - same shape and dtype as y; its strides may differ
 * @param pos - `[seqlen]` or `[batch, seqlen]`, any of the eight integer types
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
  return created(() => {
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
    return { y, x, pos, sin, cos, algo, handle, destroyed: false };
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
export function infiniopGetRoPEWorkspaceSize(desc: {
  readonly destroyed: boolean;
}): InfiniResult & { readonly size: number } {
  return { ...resultOf(() => checkAlive(desc)), size: 0 };
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
    const { positions, table, first } = readTables(pos, 'pos_ids', cos, sin);
    checkOutput(out, 'infiniop: y');
    checkApart(out, 'infiniop: y', 'x', input, true);
    const shape = [...(desc.y.ndim === 3 ? [1] : []), ...desc.y.shape];
    const plan = planRopeWithTable({
      headDim: shape[3]!,
      pairing: desc.algo === INFINIOP_ROPE_ALGO_GPT_J ? 'interleaved' : 'half',
      table,
      seqLen: shape[1]!,
      batch: desc.pos.ndim === 2 ? shape[0]! : undefined,
      tableRows: positions.map((position) => position - first),
    });
    desc.handle.run(bindRope(plan, input, out));
  });
}

/** Reads and checks the positions, and converts only the table rows that they span, from `first` on. */
function readTables(
  pos: Tensor,
  name: string,
  cos: Tensor,
  sin: Tensor,
  outside: 'refuse' | 'row_0' = 'refuse',
): { positions: Float64Array; table: RopeTable; first: number } {
  const rows = cos.shape[0]!;
  const positions =
    outside === 'row_0' && rows > 0 ? insideOrRow0(pos, name, rows) : readIntegers(pos, `infiniop: ${name}`);
  let first = positions.length > 0 ? rows : 0;
  let end = 0;
  for (const [n, position] of positions.entries()) {
    if (position < 0 || position >= rows) {
      const at = pos.rank === 2 ? `${Math.floor(n / pos.shape[1]!)}, ${n % pos.shape[1]!}` : n;
      const expected = rows === 0 ? 'no position, as the tables are empty' : `a row of the tables, in [0, ${rows - 1}]`;
      refuse('RANGE', `infiniop: ${name}[${at}]`, expected, position, 'Build longer tables, or check the positions.');
    }
    first = Math.min(first, position);
    end = Math.max(end, position + 1);
  }
  return { positions, table: tableFromTensors(cos.slice(0, first, end), sin.slice(0, first, end), 'infiniop'), first };
}

/** Positions outside the tables become 0. */
function insideOrRow0(pos: Tensor, name: string, rows: number): Float64Array {
  const host = hostOf(pos, `infiniop: ${name}`);
  const positions = new Float64Array(pos.size);
  walk(pos, (at, n) => {
    const position = Number(host[at]!); // rounded past 2^53, but then it is outside anyway
    positions[n] = position >= 0 && position < rows ? position : 0;
  });
  return positions;
}

/**
 * `infiniopDestroyRoPEDescriptor(desc)`: from now on the descriptor gives BAD_PARAM.
 *
 * @param desc - a live descriptor
 */
export function infiniopDestroyRoPEDescriptor(desc: { destroyed: boolean }): InfiniResult {
  return resultOf(() => {
    checkAlive(desc);
    desc.destroyed = true;
  });
}

function checkAlive(desc: { readonly destroyed: boolean }): void {
  demandPointer(desc, 'desc', 'a descriptor');
  demandParam(MADE.has(desc), 'desc', 'a descriptor from its create function', desc);
  demandParam(!desc.destroyed, 'desc', 'a live descriptor', 'a destroyed one');
}

function over(desc: InfiniTensorDescriptor, memory: InfiniMemory, name: string): Tensor {
  const dtype = DTYPE_OF.get(desc.dtype)!;
  const whole = Tensor.isTensor(memory) ? memory : tensorFrom(memory, { dtype });
  demandDtype(whole.dtype === dtype, name, `memory of ${dtype}`, whole.dtype);
  try {
    return new Tensor(whole.storage, { shape: desc.shape, strides: desc.strides, offset: whole.offset });
  } catch (error) {
    const { code, message } = error as RopewalkError;
    throw new Status(INFINI_STATUS_BAD_PARAM, code, message);
  }
}

/** Sizes of an M-RoPE. */
export interface InfiniMRoPESizes {
  readonly num_q_heads: number;
  readonly num_kv_heads: number;
  readonly head_size: number;
  /** Leading dimensions that rotate, half pairing; the tail is copied. */
  readonly rotary_dim: number;
  /** Pairs of t, h, w; their sum is rotary_dim / 2. */
  readonly mrope_section: readonly [number, number, number];
  /** false: contiguous sections; true: pair j by j mod 3. */
  readonly mrope_interleaved: boolean;
  /**
   * What a position outside the tables gives: BAD_PARAM (`refuse`, the default), or row 0 (`row_0`), as in upstream's
   * Ascend kernel, InfiniTensor/InfiniCore@aa126523 src/infiniop/ops/mrope/ascend/mrope_ascend_kernel.cpp.
   */
  readonly positions_outside?: 'refuse' | 'row_0';
}

const SIZE_NAMES: OptionNames<InfiniMRoPESizes> = {
  num_q_heads: true,
  num_kv_heads: true,
  head_size: true,
  rotary_dim: true,
  mrope_section: true,
  mrope_interleaved: true,
  positions_outside: true,
};

const MROPE_TENSORS = ['q_out', 'k_out', 'q', 'k', 'cos', 'sin', 'positions'] as const;
const TENSOR_NAMES = { q_out: true, k_out: true, q: true, k: true, cos: true, sin: true, positions: true } as const;

/** The state of an M-RoPE descriptor. Opaque to the caller. */
export interface InfiniMRoPEDescriptor extends InfiniMRoPESizes {
  readonly tensors: InfiniMRoPETensors<InfiniTensorDescriptor>;
  readonly handle: Runner;
  destroyed: boolean;
}

/**
 * The tensors of an M-RoPE: q and k `[tokens, heads · head_size]`, tables `[table_len, rotary_dim / 2]`,
 * positions `[tokens]` or `[3, tokens]`.
 */
export type InfiniMRoPETensors<T> = Readonly<Record<(typeof MROPE_TENSORS)[number], T>>;

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
  return created(() => {
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
    const shapes = {
      q: [tokens, num_q_heads * head_size],
      q_out: [tokens, num_q_heads * head_size],
      k: [tokens, num_kv_heads * head_size],
      k_out: [tokens, num_kv_heads * head_size],
      cos: [rows, rotary_dim / 2],
      sin: [rows, rotary_dim / 2],
      positions: t.positions.ndim === 1 ? [tokens] : [3, tokens],
    };
    for (const [name, shape] of Object.entries(shapes)) {
      const got = t[name as keyof typeof shapes].shape;
      demandShape(sameShape(got, shape), `${name}_desc`, `shape [${shape}]`, got);
    }
    for (const name of MROPE_TENSORS)
      demandStrides(t[name].strides.at(-1) === 1, `${name}_desc`, 'last stride 1', t[name].strides);
    checkRunner(handle, 'infiniop: handle');
    const section = mrope_section as unknown as InfiniMRoPESizes['mrope_section'];
    return { ...given, mrope_section: section, tensors: Object.freeze(t), handle, destroyed: false };
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
    const lay = (name: (typeof MROPE_TENSORS)[number]): Tensor => over(desc.tensors[name], memory[name]!, name);
    const [q, k, qOut, kOut] = [lay('q'), lay('k'), lay('q_out'), lay('k_out')];
    const table = gatherRows(desc, lay('cos'), lay('sin'), lay('positions'));
    // q is rotated before k is read, so q_out may not touch k.
    checkOutput(qOut, 'infiniop: q_out');
    checkApart(qOut, 'infiniop: q_out', 'q', q, true);
    checkApart(qOut, 'infiniop: q_out', 'k', k);
    checkApart(qOut, 'infiniop: q_out', 'k_out', kOut);
    checkOutput(kOut, 'infiniop: k_out');
    checkApart(kOut, 'infiniop: k_out', 'k', k, true);
    checkApart(kOut, 'infiniop: k_out', 'q', q);
    const plan = planRopeWithTable({
      headDim: desc.head_size,
      rotaryDim: desc.rotary_dim,
      pairing: 'half',
      table,
      seqLen: table.rows,
      tableRows: Int32Array.from({ length: table.rows }, (_item, token) => token),
    });
    const heads = (tensor: Tensor, count: number): Tensor => tensor.view([table.rows, count, desc.head_size]);
    // Both calls are checked before the first one runs.
    const ofQ = bindRope(plan, heads(q, desc.num_q_heads), heads(qOut, desc.num_q_heads));
    const ofK = bindRope(plan, heads(k, desc.num_kv_heads), heads(kOut, desc.num_kv_heads));
    for (const call of [ofQ, ofK]) desc.handle.run(call);
  });
}

/** A table with one row for each token: each pair comes from the row of its own axis' position. */
function gatherRows(desc: InfiniMRoPEDescriptor, cos: Tensor, sin: Tensor, pos: Tensor): RopeTable {
  const pairs = desc.rotary_dim / 2;
  const rule = desc.mrope_interleaved ? 'interleaved' : 'sections';
  const { axisOfPair } = sharePairs({ rule, sections: desc.mrope_section }, pairs, 'infiniop');
  const { positions, table: given, first } = readTables(pos, 'positions', cos, sin, desc.positions_outside);
  const tokens = desc.tensors.q.shape[0]!;
  const dtype: FloatDtype = given.cos instanceof Float64Array ? 'f64' : 'f32';
  const rows = { rows: tokens, pairs, cos: newArray(dtype, tokens * pairs), sin: newArray(dtype, tokens * pairs) };
  for (let token = 0; token < tokens; token++) {
    for (let j = 0; j < pairs; j++) {
      const row = positions[pos.rank === 1 ? token : axisOfPair[j]! * tokens + token]! - first;
      rows.cos[token * pairs + j] = given.cos[row * pairs + j]!;
      rows.sin[token * pairs + j] = given.sin[row * pairs + j]!;
    }
  }
  return rows;
}

/** `infiniopDestroyMRoPEDescriptor(desc)`. See {@link infiniopDestroyRoPEDescriptor}. */
export function infiniopDestroyMRoPEDescriptor(desc: InfiniMRoPEDescriptor): InfiniResult {
  return infiniopDestroyRoPEDescriptor(desc);
}
