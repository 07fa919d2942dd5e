/**
 * AscendC on the modelled core: TPipe, TQue, TBuf, tensors and instructions, under the names that kernels use.
 *
 * The first argument of every instruction is the kernel's statement that it stands for. Findings and traces print it.
 * @module
 */
import { bf16FromNumber, numberFromBf16, sizeBytes } from 'ropewalk';
import { loadNumber, newArray, refuse } from 'ropewalk/backend';
import { reading } from 'ropewalk/internal';
import * as a from './arguments.js';
import { conflictsOf } from './banks.js';
import type { Access, Core, Instruction, Mark, QueueIndex } from './core.js';
import { checkCount, POISON, Q } from './core.js';
import { BLOCK, loadCycles, MIN_BURST, REPEAT, storeCycles, type VecOp, vectorCycles } from './costs.js';
import { f16Table, toF16 } from './lanes.js';
import { GlobalTensor } from './memory.js';
import { type BufferEntry, QUEUES, type QueueName } from './trace.js';

/** Element types that lanes hold on this core. */
export type LaneType = 'f16' | 'bf16' | 'f32' | 'u16' | 'u32';

/**
 * The lanes of a repeat that are computed: the first n, or those whose bits are set (lane 0 is the lowest bit of the
 * first word).
 */
export type Mask = number | readonly [bigint, bigint];
/** Every other lane of a repeat, from lane 0 on. */
export const EVEN_LANES: readonly [bigint, bigint] = [0x5555_5555_5555_5555n, 0x5555_5555_5555_5555n];
/** Every other lane of a repeat, from lane 1 on. */
export const ODD_LANES: readonly [bigint, bigint] = [0xaaaa_aaaa_aaaa_aaaan, 0xaaaa_aaaa_aaaa_aaaan];

/**
 * Limits a mask to the first `lanes` lanes.
 *
 * @param mask - two words of 64 bits
 * @param lanes - an integer in [0, 128]
 * @throws {RopewalkError} RANGE, naming the argument
 * @example const mask = firstLanes(EVEN_LANES, 64);
 */
export function firstLanes(mask: readonly [bigint, bigint], lanes: number): Mask {
  checkCount(lanes, 'firstLanes: lanes', 0, 128);
  if (!reading('aicore: firstLanes: mask', () => typeof mask[0] === 'bigint' && typeof mask[1] === 'bigint'))
    refuse('RANGE', 'aicore: firstLanes: mask', 'two bigints of 64 bits', mask);
  const all = (mask[0] | (mask[1] << 64n)) & ((1n << BigInt(lanes)) - 1n);
  return [all & 0xffff_ffff_ffff_ffffn, all >> 64n];
}

/**
 * AscendC's BinaryRepeatParams: repeat strides in datablocks of 32 bytes. The datablocks of one repeat lie side by
 * side.
 */
export interface RepeatParams {
  readonly dst: number;
  readonly src0: number;
  readonly src1?: number;
}

/** A vector instruction by repeats. */
export interface Repeats {
  readonly mask: Mask;
  /** At most 255. */
  readonly repeats: number;
  readonly strides: RepeatParams;
}

/**
 * AscendC's DataCopyExtParams. Strides are gaps: bytes in global memory, datablocks of 32 bytes in the unified buffer.
 */
export interface CopyParams {
  readonly blockCount: number;
  /** Bytes. */
  readonly blockLen: number;
  readonly srcStride: number;
  readonly dstStride: number;
}

/** What AscendC's WholeReduceSum and WholeReduceMax take; the datablocks of a repeat lie side by side. */
export interface ReduceParams {
  /** Lanes of each repeat that count, from the first. */
  readonly mask: number;
  /** At most 255. */
  readonly repeats: number;
  /** Elements of dst from one repeat's result to the next. */
  readonly dstRepStride: number;
  /** Datablocks of src from repeat to repeat. */
  readonly srcRepStride: number;
}

/** AscendC's GatherMaskParams, as far as the kernels use them: the datablocks of a repeat lie side by side. */
export interface GatherMaskParams {
  readonly repeatTimes: number;
  /** Datablocks from repeat to repeat. */
  readonly src0RepeatStride: number;
  /** Datablocks from one repeat's custom pattern to the next. */
  readonly src1RepeatStride?: number;
}

type QuePosition = 'VECIN' | 'VECOUT';
type State = 'FREE' | 'OCCUPIED' | 'ENQUE' | 'DEQUE';

/** The queue that fills the buffers of a TQue, and the queue that uses them. */
const SIDES = {
  VECIN: { fills: 'MTE2', uses: 'V' },
  VECOUT: { fills: 'V', uses: 'MTE3' },
} as const;

/** One buffer: a TBuf, or a part of a TQue. */
interface LocalBuffer {
  readonly name: string;
  /** Bytes from the start of the unified buffer. */
  readonly at: number;
  readonly size: number;
  /** Of a TQue only. */
  readonly position?: QuePosition;
  state?: State;
  /** What its next step waits for: the flag of EnQue or of FreeTensor. */
  flag?: Mark | undefined;
}

/** AscendC's LocalTensor: a typed part of the unified buffer. */
export class LocalTensor {
  readonly #core: Core;

  constructor(
    core: Core,
    readonly type: LaneType,
    /** Byte in the unified buffer. */
    readonly address: number,
    /** The buffer that holds it. */
    readonly buffer: LocalBuffer,
  ) {
    this.#core = core;
  }

  /** The tensor from an element on: AscendC's `tensor[elements]`. */
  at(elements: number): LocalTensor {
    return new LocalTensor(this.#core, this.type, this.address + elements * sizeBytes(this.type), this.buffer);
  }

  /** AscendC's ReinterpretCast. */
  as(type: LaneType): LocalTensor {
    return new LocalTensor(this.#core, type, this.address, this.buffer);
  }

  /** Reads one element on the scalar unit: its bits for f16 and bf16, its value otherwise. */
  GetValue(line: string, index: number): number {
    const at = this.#scalar(line, 'GetValue', index, false);
    const core = this.#core;
    if (this.type === 'f32') return core.f32[at / 4] ?? 0;
    return (sizeBytes(this.type) === 4 ? core.u32[at / 4] : core.u16[at / 2]) ?? 0;
  }

  /** Writes one element on the scalar unit: its bits for f16 and bf16, its value otherwise. */
  SetValue(line: string, index: number, value: number): void {
    const at = this.#scalar(line, 'SetValue', index, true);
    const core = this.#core;
    const lanes = this.type === 'f32' ? core.f32 : bitsOf(core, this.type);
    const element = at / sizeBytes(this.type);
    if (element < lanes.length) lanes[element] = value;
  }

  /** Does the access, and returns its byte in the unified buffer. */
  #scalar(line: string, name: string, index: number, write: boolean): number {
    const bytes = sizeBytes(this.type);
    const at = this.address + index * bytes;
    checkState(this.#core, line, name, this.buffer, Q.S, write);
    checkReach(this.#core, line, name, this.buffer, at, bytes, write);
    this.#core.scalarLocal(name, line, at, bytes, write);
    return at;
  }

  static {
    a.checkArguments(LocalTensor.prototype, {
      at: { elements: a.offset },
      as: { type: a.laneType },
      GetValue: { line: a.line, index: a.offset },
      SetValue: { line: a.line, index: a.offset, value: a.number },
    });
  }
}

const LOCAL = a.instance(() => LocalTensor, 'a LocalTensor, of a TQue or a TBuf');
const GLOBAL = a.instance(() => GlobalTensor, "a GlobalTensor, one of the kernel's arguments");
const PATTERN: a.Check = (value, where) => (typeof value === 'number' ? a.count : LOCAL)(value, where);
const LOCALS: a.Check = (value, where) => {
  if (!Array.isArray(value)) return refuse('RANGE', `aicore: ${where}`, 'a list of LocalTensors', value);
  for (let i = 0; i < value.length; i++) LOCAL(value[i], `${where}[${i}]`);
};

/** Reports a tensor that is used in the wrong state of its buffer, or outside its buffer. */
function check(
  core: Core,
  line: string,
  name: string,
  { buffer }: LocalTensor,
  accesses: readonly Access[],
  queue: QueueIndex,
  write: boolean,
): void {
  checkState(core, line, name, buffer, queue, write);
  for (const { at, bytes } of accesses) if (!checkReach(core, line, name, buffer, at, bytes, write)) return;
}

function checkState(
  core: Core,
  line: string,
  name: string,
  { name: owner, position, state }: LocalBuffer,
  queue: QueueIndex,
  write: boolean,
): void {
  if (!position) return;
  const filling = position === 'VECIN' ? queue === Q.MTE2 : queue !== Q.MTE3;
  if (state === (filling ? 'OCCUPIED' : 'DEQUE')) return;
  const where = `${name} on ${QUEUES[queue]} ${write ? 'writes' : 'reads'} a buffer of ${owner} that is ${state}`;
  const must = filling
    ? 'OCCUPIED there (after AllocTensor, before EnQue)'
    : 'DEQUE there (after DeQue, before FreeTensor)';
  core.fault('before-dequeue', line, `${where}: it must be ${must}`);
}

/** @returns false, after it reported the access, where that goes past the buffer */
function checkReach(
  core: Core,
  line: string,
  name: string,
  buffer: LocalBuffer,
  at: number,
  bytes: number,
  write: boolean,
): boolean {
  const end = buffer.at + buffer.size;
  const over = Math.max(at + bytes - end, buffer.at - at);
  if (over <= 0 || bytes <= 0) return true;
  const verb = write ? 'writes' : 'reads';
  const outside = at < buffer.at ? at : end;
  const neighbour = core.nameAt(outside);
  const into =
    outside >= core.launch.capacity
      ? 'past the end of the unified buffer'
      : `into ${neighbour === buffer.name ? `the next buffer of ${neighbour}` : neighbour}`;
  const own = `${buffer.name} (${buffer.size} bytes at ${buffer.at})`;
  core.fault('overflow', line, `${name} ${verb} ${over} bytes past ${own}, ${into}`, `${verb} ${buffer.name}`);
  return false;
}

/** AscendC's TPipe: allocates the unified buffer. */
export class TPipe {
  readonly #core: Core;

  constructor(core: Core) {
    this.#core = core;
  }

  /**
   * Makes a queue of buffers.
   *
   * @param name - the kernel's member, for findings
   * @param position - VECIN carries loads to the vector unit, VECOUT carries results to stores
   * @param num - buffers; two make double buffering
   * @param bytes - of each, rounded up to 32
   */
  InitBuffer(name: string, position: QuePosition, num: number, bytes: number): TQue {
    return new TQue(this.#core, position, this.#core.allocate(name, `TQue ${position}`, num, bytes));
  }

  /**
   * Makes a buffer without a queue: nothing synchronises it.
   *
   * @param name - the kernel's member, for findings
   * @param bytes - rounded up to 32
   */
  InitTBuf(name: string, bytes: number): TBuf {
    return new TBuf(this.#core, this.#core.allocate(name, 'TBuf VECCALC', 1, bytes));
  }

  static {
    a.checkArguments(TPipe.prototype, {
      InitBuffer: { name: a.line, position: a.position, num: a.numBuffers, bytes: a.bytes },
      InitTBuf: { name: a.line, bytes: a.bytes },
    });
  }
}

/** AscendC's TBuf. */
export class TBuf {
  readonly #core: Core;
  readonly #buffer: LocalBuffer;

  constructor(core: Core, { name, offset, size }: BufferEntry) {
    this.#core = core;
    this.#buffer = { name, at: offset, size };
  }

  /** The whole buffer as a tensor; always the same address. */
  Get(type: LaneType): LocalTensor {
    return new LocalTensor(this.#core, type, this.#buffer.at, this.#buffer);
  }

  static {
    a.checkArguments(TBuf.prototype, { Get: { type: a.laneType } });
  }
}

/**
 * AscendC's TQue: buffers that go FREE → OCCUPIED → ENQUE → DEQUE → FREE. EnQue and FreeTensor set flags; DeQue and
 * AllocTensor wait.
 */
export class TQue {
  readonly #core: Core;
  readonly #name: string;
  readonly #position: QuePosition;
  readonly #buffers: LocalBuffer[];
  readonly #entered: LocalBuffer[] = [];
  #next = 0;

  constructor(core: Core, position: QuePosition, { name, offset, size, num }: BufferEntry) {
    this.#core = core;
    this.#name = name;
    this.#position = position;
    const free = { name, position, size, state: 'FREE' as const };
    this.#buffers = Array.from({ length: num }, (_what, i) => ({ ...free, at: offset + i * size }));
  }

  /** Takes the next free buffer, round robin. The queue that fills it waits for its last FreeTensor. */
  AllocTensor(line: string, type: LaneType): LocalTensor {
    const { length } = this.#buffers;
    let free = this.#next;
    for (let tried = 1; tried < length && this.#buffers[free]!.state !== 'FREE'; tried++) free = (free + 1) % length;
    if (this.#buffers[free]!.state !== 'FREE') {
      const states = this.#buffers.map((b) => b.state).join(', ');
      const why = `its ${length} buffers are ${states}`;
      this.#core.stop('no-free-buffer', line, `AllocTensor of ${this.#name} waits for ever: ${why}`);
    }
    this.#next = (free + 1) % length;
    return this.#tensor(this.#buffers[free]!, 'OCCUPIED', SIDES[this.#position].fills, type);
  }

  /** Puts a filled buffer in: sets MTE2_V (VECIN) or V_MTE3 (VECOUT). */
  EnQue(line: string, tensor: LocalTensor): void {
    const { fills, uses } = SIDES[this.#position];
    this.#entered.push(this.#handOver(line, 'EnQue', tensor, 'OCCUPIED', 'ENQUE', fills, uses));
  }

  /** Takes the oldest filled buffer out. The queue that uses it waits for the flag of its EnQue. */
  DeQue(line: string, type: LaneType): LocalTensor {
    const buffer = this.#entered.shift();
    if (!buffer) this.#core.stop('no-free-buffer', line, `DeQue of ${this.#name} waits for ever: nothing was put in`);
    return this.#tensor(buffer, 'DEQUE', SIDES[this.#position].uses, type);
  }

  /** Gives a buffer back: sets V_MTE2 (VECIN) or MTE3_V (VECOUT). */
  FreeTensor(line: string, tensor: LocalTensor): void {
    const { fills, uses } = SIDES[this.#position];
    this.#handOver(line, 'FreeTensor', tensor, 'DEQUE', 'FREE', uses, fills);
  }

  #tensor(buffer: LocalBuffer, state: State, waits: QueueName, type: LaneType): LocalTensor {
    buffer.state = state;
    if (buffer.flag) this.#core.await(Q[waits], buffer.flag);
    buffer.flag = undefined;
    return new LocalTensor(this.#core, type, buffer.at, buffer);
  }

  #handOver(
    line: string,
    what: string,
    { buffer }: LocalTensor,
    from: State,
    to: State,
    sets: QueueName,
    waits: QueueName,
  ): LocalBuffer {
    if (!buffer.position || buffer.name !== this.#name)
      refuse('RANGE', `aicore: ${what}`, `a tensor of ${this.#name}`, buffer.name);
    if (buffer.state !== from) {
      const state = `that is ${buffer.state}, not ${from}`;
      this.#core.fault('before-dequeue', line, `${what} of a buffer of ${this.#name} ${state}`);
    }
    buffer.state = to;
    buffer.flag = this.#core.mark(Q[sets], `${sets}_${waits} of ${this.#name}`);
    return buffer;
  }

  static {
    a.checkArguments(TQue.prototype, {
      AllocTensor: { line: a.line, type: a.laneType },
      EnQue: { line: a.line, tensor: LOCAL },
      DeQue: { line: a.line, type: a.laneType },
      FreeTensor: { line: a.line, tensor: LOCAL },
    });
  }
}

/** The bytes of one operand of a vector instruction. */
type Operand = { readonly tensor: LocalTensor; readonly accesses: readonly Access[] };

/** A vector instruction, ready to run. */
interface VectorCall extends Pick<Instruction, 'elements' | 'bytes' | 'conflictCycles'> {
  readonly dst: Operand;
  readonly sources: readonly Operand[];
  /** Reads of custom patterns, already checked. */
  readonly patterns?: readonly Access[];
  /** Bytes of an element, by which its cost is looked up. */
  readonly size: number;
  /** Elements that the cost counts. */
  readonly charged: number;
  readonly repeats: number;
  /** Whether dst may start at any element. */
  readonly anyDst?: boolean;
}

/**
 * The instructions of AscendC, for one block of a kernel.
 *
 * @example launchKernel({ …, body: (c) => { const t = c.pipe.InitTBuf('t', 64).Get('f32'); c.Duplicate('fill', t, 1,
 *   16); } });
 */
export class AscendC {
  /** Allocates the unified buffer. */
  readonly pipe: TPipe;
  /** What GatherMask keeps, before it writes: dst may lie on src. */
  #gathered = new Uint32Array(0);

  constructor(readonly core: Core) {
    this.pipe = new TPipe(core);
  }

  /** The number of this block, in [0, blocks). */
  GetBlockIdx(): number {
    return this.core.block;
  }

  /** AscendC's PipeBarrier: the next instruction of a queue starts when all earlier ones have ended. */
  PipeBarrier(queue: 'V' | 'MTE2' | 'MTE3' | 'ALL'): void {
    this.core.barrier(queue === 'ALL' ? queue : Q[queue]);
  }

  /** AscendC's `SetFlag<HardEvent::from_to>(id)`. */
  SetFlag(from: QueueName, to: QueueName, id: number): void {
    this.core.setFlag(Q[from], Q[to], id);
  }

  /** AscendC's `WaitFlag<HardEvent::from_to>(id)`. */
  WaitFlag(line: string, from: QueueName, to: QueueName, id: number): void {
    this.core.waitFlag(Q[from], Q[to], id, line);
  }

  /** GlobalTensor::GetValue: one element as a number, through the scalar unit's cache. */
  GetGlobal(line: string, tensor: GlobalTensor, index: number): number {
    const at = tensor.byteOf(index);
    this.#boundGlobal(line, 'GetValue', tensor, at, tensor.size, false);
    this.core.scalarGlobal('GetValue', line, tensor.memory, at, tensor.size);
    tensor.reads?.fill(1, Math.max(0, at / tensor.size), Math.max(0, at / tensor.size + 1));
    const { bytes } = tensor.memory;
    if (at < 0 || at + tensor.size > bytes.length) return 0;
    const one = newArray(tensor.dtype, 1);
    new Uint8Array(one.buffer).set(bytes.subarray(at, at + tensor.size));
    return loadNumber(one, tensor.dtype, 0);
  }

  /**
   * DataCopy, global memory → unified buffer: `count` elements, rounded down to datablocks.
   *
   * @param index - element of the tensor to start at
   */
  DataCopyIn(line: string, dst: LocalTensor, src: GlobalTensor, index: number, count: number): void {
    const blockLen = this.#wholeBlocks(line, count * src.size);
    this.#aligned(line, 'DataCopy', dst);
    this.#load(line, 'DataCopy', dst, src, index, { blockCount: 1, blockLen, srcStride: 0, dstStride: 0 });
  }

  /**
   * A loop of the scalar unit that merges elements one by one: for each j, and each source k,
   * `dst.SetValue(j · sources + k, source[k].GetValue(j))`.
   */
  MergeValues(line: string, dst: LocalTensor, sources: readonly LocalTensor[], count: number): void {
    const { core } = this;
    const round = (j: number) => {
      for (const [k, source] of sources.entries()) dst.SetValue(line, j * sources.length + k, source.GetValue(line, j));
    };
    if (count > 0) round(0); // waits for what it must
    const bits = bitsOf(core, dst.type);
    const size = sizeBytes(dst.type);
    const reaches = (tensor: LocalTensor, elements: number) =>
      tensor.type === dst.type &&
      tensor.address >= tensor.buffer.at &&
      tensor.address + elements * size <= tensor.buffer.at + tensor.buffer.size;
    const { length } = sources;
    const all = reaches(dst, count * length) && sources.every((source) => reaches(source, count));
    const rest = count - 1;
    const starts = sources.map((source) => source.address + size);
    const target = dst.address + length * size;
    if (rest <= 0 || !all || !core.scalarRounds(line, starts, target, size, rest)) {
      for (let j = 1; j < count; j++) round(j);
      return;
    }
    const to = target / size;
    for (let j = 0; j < rest; j++)
      for (let k = 0; k < length; k++) bits[to + j * length + k] = bits[starts[k]! / size + j]!;
  }

  /** DataCopyPad, global memory → unified buffer: rows from any byte, each filled up to whole datablocks. */
  DataCopyPadIn(line: string, dst: LocalTensor, src: GlobalTensor, index: number, params: CopyParams): void {
    this.#aligned(line, 'DataCopyPad', dst);
    this.#load(line, 'DataCopyPad', dst, src, index, params);
  }

  /** DataCopyPad, unified buffer → global memory: exactly blockLen bytes of each row, to any byte. */
  DataCopyPadOut(line: string, dst: GlobalTensor, index: number, src: LocalTensor, params: CopyParams): void {
    this.#store(line, 'DataCopyPad', dst, index, src, params);
  }

  /** DataCopy, unified buffer → global memory: `count` elements, rounded down to datablocks. */
  DataCopyOut(line: string, dst: GlobalTensor, index: number, src: LocalTensor, count: number): void {
    const blockLen = this.#wholeBlocks(line, count * dst.size);
    this.#store(line, 'DataCopy', dst, index, src, { blockCount: 1, blockLen, srcStride: 0, dstStride: 0 });
  }

  /** dst = src0 · src1: the first `count` lanes, or repeats with strides. f16 and f32. */
  Mul(line: string, dst: LocalTensor, src0: LocalTensor, src1: LocalTensor, count: number | Repeats): void {
    this.#compute('Mul', line, [dst, src0, src1], count, PRODUCT);
  }

  /** dst = src0 + src1, as {@link Mul}. */
  Add(line: string, dst: LocalTensor, src0: LocalTensor, src1: LocalTensor, count: number | Repeats): void {
    this.#compute('Add', line, [dst, src0, src1], count, SUM);
  }

  /** dst = src0 − src1, as {@link Mul}. */
  Sub(line: string, dst: LocalTensor, src0: LocalTensor, src1: LocalTensor, count: number | Repeats): void {
    this.#compute('Sub', line, [dst, src0, src1], count, DIFFERENCE);
  }

  /** dst = src0 / src1, as {@link Mul}. */
  Div(line: string, dst: LocalTensor, src0: LocalTensor, src1: LocalTensor, count: number | Repeats): void {
    this.#compute('Div', line, [dst, src0, src1], count, (a, b) => a / b);
  }

  /** The larger of src0 and src1, as {@link Mul}. */
  Max(line: string, dst: LocalTensor, src0: LocalTensor, src1: LocalTensor, count: number | Repeats): void {
    this.#compute('Max', line, [dst, src0, src1], count, Math.max);
  }

  /** dst = |src|, as {@link Mul}. */
  Abs(line: string, dst: LocalTensor, src: LocalTensor, count: number | Repeats): void {
    this.#compute('Abs', line, [dst, src], count, Math.abs);
  }

  /** dst = e to the power of src, as {@link Mul}. */
  Exp(line: string, dst: LocalTensor, src: LocalTensor, count: number | Repeats): void {
    this.#compute('Exp', line, [dst, src], count, Math.exp);
  }

  /** dst = √src, as {@link Mul}. */
  Sqrt(line: string, dst: LocalTensor, src: LocalTensor, count: number | Repeats): void {
    this.#compute('Sqrt', line, [dst, src], count, Math.sqrt);
  }

  /** dst = 1 / √src, as {@link Mul}. */
  Rsqrt(line: string, dst: LocalTensor, src: LocalTensor, count: number | Repeats): void {
    this.#compute('Rsqrt', line, [dst, src], count, (a) => 1 / Math.sqrt(a));
  }

  /** dst = 1 / src, as {@link Mul}. */
  Reciprocal(line: string, dst: LocalTensor, src: LocalTensor, count: number | Repeats): void {
    this.#compute('Reciprocal', line, [dst, src], count, (a) => 1 / a);
  }

  /**
   * One element for each repeat: the sum of its first `mask` lanes, added in pairs as a tree, each sum rounded. f16 and
   * f32.
   *
   * @see AscendC's page on WholeReduceSum: dst is aligned to an element, src to 32 bytes
   */
  WholeReduceSum(line: string, dst: LocalTensor, src: LocalTensor, params: ReduceParams): void {
    this.#reduce('WholeReduceSum', line, dst, src, params, (a, b) => a + b);
  }

  /** One element for each repeat: the largest of its first `mask` lanes (ORDER_ONLY_VALUE), as {@link WholeReduceSum}. */
  WholeReduceMax(line: string, dst: LocalTensor, src: LocalTensor, params: ReduceParams): void {
    this.#reduce('WholeReduceMax', line, dst, src, params, Math.max);
  }

  /** dst = src · scalar. f16 and f32. */
  Muls(line: string, dst: LocalTensor, src: LocalTensor, scalar: number, count: number | Repeats): void {
    this.#compute('Muls', line, [dst, src], count, (a) => a * scalar);
  }

  /** The larger of src and a scalar. f16 and f32. */
  Maxs(line: string, dst: LocalTensor, src: LocalTensor, scalar: number, count: number | Repeats): void {
    this.#compute('Maxs', line, [dst, src], count, (a) => Math.max(a, scalar));
  }

  /** dst = src + scalar; f16 and f32, and u32 as AscendC's int32. */
  Adds(line: string, dst: LocalTensor, src: LocalTensor, scalar: number, count: number): void {
    if (dst.type !== 'u32') {
      this.#compute('Adds', line, [dst, src], count, (a) => a + scalar);
      return;
    }
    const { u32 } = this.core;
    this.#lanes('Adds', line, [dst, src], count, (d, a, _b, end, step) => {
      for (let i = 0; i < end; i += step) u32[d + i] = u32[a + i]! + scalar;
    });
  }

  /** Copies the bits of lanes within the unified buffer. */
  Copy(line: string, dst: LocalTensor, src: LocalTensor, count: number | Repeats): void {
    const bits = bitsOf(this.core, dst.type);
    this.#lanes('Copy', line, [dst, src], count, (d, a, _b, end, step) => {
      for (let i = 0; i < end; i += step) bits[d + i] = bits[a + i]!;
    });
  }

  /** Fills `count` lanes with a value, which is rounded to the dtype. */
  Duplicate(line: string, dst: LocalTensor, value: number, count: number): void {
    const bits = dst.type === 'f16' ? toF16(value) : dst.type === 'bf16' ? bf16FromNumber(value) : value;
    const lanes = dst.type === 'f32' ? this.core.f32 : bitsOf(this.core, dst.type);
    this.#lanes('Duplicate', line, [dst], count, (d, _a, _b, end, step) => {
      for (let i = 0; i < end; i += step) lanes[d + i] = bits;
    });
  }

  /** `count` lanes: f16 or bf16 → f32, and back, to nearest even (CAST_RINT). */
  Cast(line: string, dst: LocalTensor, src: LocalTensor, count: number): void {
    checkCount(count, 'Cast: count');
    const { u16, f32 } = this.core;
    const pair = `${src.type}→${dst.type}`;
    if (!['f16→f32', 'bf16→f32', 'f32→f16', 'f32→bf16'].includes(pair))
      this.core.stop('unsupported-dtype', line, `Cast does not do ${pair}`);
    const [from, to] = [src.address / sizeBytes(src.type), dst.address / sizeBytes(dst.type)];
    const table = f16Table();
    for (let i = 0; i < count; i++) {
      if (pair === 'f16→f32') f32[to + i] = table[u16[from + i]!]!;
      else if (pair === 'bf16→f32') f32[to + i] = numberFromBf16(u16[from + i]!);
      else u16[to + i] = pair === 'f32→f16' ? toF16(f32[from + i]!) : bf16FromNumber(f32[from + i]!);
    }
    const bytes = count * sizeBytes(dst.type);
    this.#vector('Cast', line, {
      dst: { tensor: dst, accesses: [{ at: dst.address, bytes }] },
      sources: [{ tensor: src, accesses: [{ at: src.address, bytes: count * sizeBytes(src.type) }] }],
      size: sizeBytes(src.type),
      charged: count,
      repeats: Math.ceil((count * 4) / REPEAT),
      elements: count,
      bytes,
    });
  }

  /**
   * Keeps the elements that a pattern selects, packed. It reads whole repeats of 256 bytes, whatever the length of the
   * row (normal mode).
   *
   * @param pattern - 1 even, 2 odd positions, 3 to 6 one of four, 7 all; or a custom pattern of bits, one for each
   *   repeat
   * @returns rsvdCnt: elements kept
   */
  GatherMask(
    line: string,
    dst: LocalTensor,
    src: LocalTensor,
    pattern: number | LocalTensor,
    params: GatherMaskParams,
  ): number {
    const { repeatTimes, src0RepeatStride, src1RepeatStride = 0 } = params;
    if (typeof pattern === 'number') checkCount(pattern, 'GatherMask: pattern', 1, 7);
    const { core } = this;
    const size = sizeBytes(src.type);
    const lanes = REPEAT / size;
    const bits = bitsOf(core, src.type);
    const reads: Access[] = [];
    const patterns: Access[] = [];
    const kept = this.#gathered.length >= repeatTimes * lanes ? this.#gathered : new Uint32Array(repeatTimes * lanes);
    this.#gathered = kept;
    let count = 0;
    for (let r = 0; r < repeatTimes; r++) {
      const at = src.address + r * src0RepeatStride * BLOCK;
      reads.push({ at, bytes: REPEAT });
      if (typeof pattern === 'number') count = keepFixed(bits, at / size, lanes, pattern, kept, count);
      else {
        const own = pattern.address + r * src1RepeatStride * BLOCK;
        patterns.push({ at: own, bytes: lanes / 8 });
        count = keepCustom(bits, at / size, lanes, core.memory, own, kept, count);
      }
    }
    if (typeof pattern !== 'number') check(core, line, 'GatherMask', pattern, patterns, Q.V, false);
    const bytes = count * size;
    this.#vector('GatherMask', line, {
      dst: { tensor: dst, accesses: [{ at: dst.address, bytes }] },
      sources: [{ tensor: src, accesses: reads }],
      patterns,
      size,
      charged: repeatTimes * lanes,
      repeats: repeatTimes,
      elements: repeatTimes * lanes,
      bytes,
    });
    const to = dst.address / size;
    for (let i = 0; i < count; i++) bits[to + i] = kept[i]!;
    return count;
  }

  /** dst[i] = the element of src at byte `offsets[i]`, for `count` elements. */
  Gather(line: string, dst: LocalTensor, src: LocalTensor, offsets: LocalTensor, count: number): void {
    checkCount(count, 'Gather: count', 1);
    const size = sizeBytes(dst.type);
    const bits = bitsOf(this.core, dst.type);
    const at = offsets.address / 4;
    const bytes = this.core.u32.subarray(at, at + count);
    const picked = Array.from(bytes, (offset) => bits[(src.address + offset) / size] ?? 0);
    const low = bytes.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY);
    const high = bytes.reduce((a, b) => Math.max(a, b + size), 0);
    this.#vector('Gather', line, {
      dst: { tensor: dst, accesses: [{ at: dst.address, bytes: count * size }] },
      sources: [
        { tensor: src, accesses: [{ at: src.address + low, bytes: high - low }] },
        { tensor: offsets, accesses: [{ at: offsets.address, bytes: count * 4 }] },
      ],
      size,
      charged: count,
      repeats: Math.ceil((count * size) / REPEAT),
      elements: count,
      bytes: count * size,
    });
    for (const [i, value] of picked.entries()) bits[dst.address / size + i] = value;
  }

  #load(line: string, name: string, dst: LocalTensor, src: GlobalTensor, index: number, params: CopyParams): void {
    const { core } = this;
    const { blockCount, blockLen } = params;
    const padded = Math.ceil(blockLen / BLOCK) * BLOCK;
    const reads: Access[] = [];
    const writes: Access[] = [];
    const source = src.memory.bytes;
    for (let row = 0; row < blockCount; row++) {
      const from = src.byteOf(index) + row * (blockLen + params.srcStride);
      const to = dst.address + row * (padded + params.dstStride * BLOCK);
      reads.push({ memory: src.memory, at: from, bytes: blockLen });
      writes.push({ at: to, bytes: padded });
      this.#boundGlobal(line, name, src, from, blockLen, false);
      src.reads?.fill(1, Math.max(0, from / src.size), Math.max(0, (from + blockLen) / src.size));
      // Padding, and bytes past the caller's memory, stay poison.
      const end = Math.min(from + blockLen, source.length);
      const fits = from >= 0 && end > from && to >= 0 && to + end - from <= core.memory.length;
      const copied = fits ? end - from : 0;
      if (copied > 0) core.memory.set(source.subarray(from, end), to);
      if (copied < padded) core.memory.fill(POISON, Math.max(0, to + copied), Math.max(0, to + padded));
    }
    check(core, line, name, dst, writes, Q.MTE2, true);
    const bytes = blockCount * blockLen;
    core.launch.bytes.load += bytes;
    this.#count(src.name, bytes);
    const cycles = loadCycles(chargedBytes(params), core.launch.concurrent);
    core.issue(Q.MTE2, { name, line, reads, writes, cycles, bytes, elements: bytes / src.size });
  }

  #store(line: string, name: string, dst: GlobalTensor, index: number, src: LocalTensor, params: CopyParams): void {
    const { core } = this;
    const { blockCount, blockLen } = params;
    this.#aligned(line, name, src);
    const pitch = Math.ceil(blockLen / BLOCK) * BLOCK + params.srcStride * BLOCK;
    const reads: Access[] = [];
    const writes: Access[] = [];
    const target = dst.memory.bytes;
    for (let row = 0; row < blockCount; row++) {
      const from = src.address + row * pitch;
      const to = dst.byteOf(index) + row * (blockLen + params.dstStride);
      reads.push({ at: from, bytes: blockLen });
      writes.push({ memory: dst.memory, at: to, bytes: blockLen });
      this.#boundGlobal(line, name, dst, to, blockLen, true);
      this.#cover(line, name, dst, to, blockLen);
      const end = Math.min(to + blockLen, target.length);
      if (to >= 0 && end > to) target.set(core.memory.subarray(from, from + end - to), to);
    }
    check(core, line, name, src, reads, Q.MTE3, false);
    const bytes = blockCount * blockLen;
    core.launch.bytes.store += bytes;
    this.#count(dst.name, bytes);
    const cycles = storeCycles(chargedBytes(params), blockLen, blockCount, core.launch.concurrent);
    core.issue(Q.MTE3, { name, line, reads, writes, cycles, bytes, elements: bytes / dst.size });
  }

  /** What DataCopy moves of `asked` bytes: whole datablocks. */
  #wholeBlocks(line: string, asked: number): number {
    const bytes = Math.floor(asked / BLOCK) * BLOCK;
    const moved = `DataCopy of ${asked} bytes moves only ${bytes}: it takes multiples of ${BLOCK}`;
    if (bytes !== asked) this.core.fault('unaligned', line, moved);
    return bytes;
  }

  /** Marks what a store has written, and reports elements that do not belong to the tensor: those between its rows. */
  #cover(line: string, name: string, tensor: GlobalTensor, at: number, bytes: number): void {
    const { coverage } = tensor;
    if (tensor.reads)
      this.core.fault('wrong-operand', line, `${name} writes ${bytes} bytes of ${tensor.name}, which is an input`);
    if (!coverage) return;
    const end = Math.min((at + bytes) / tensor.size, coverage.length);
    let holes = 0;
    for (let e = Math.max(0, at / tensor.size); e < end; e++) {
      if (coverage[e] === 0) holes++;
      else coverage[e] = 2;
    }
    if (holes > 0)
      this.core.fault('gm-over-write', line, `${name} writes ${holes} elements between the rows of ${tensor.name}`);
  }

  #count(tensor: string, bytes: number): void {
    const { byTensor } = this.core.launch.bytes;
    byTensor.set(tensor, (byTensor.get(tensor) ?? 0) + bytes);
  }

  #boundGlobal(line: string, name: string, tensor: GlobalTensor, at: number, bytes: number, write: boolean): void {
    const low = tensor.byteOf(tensor.low);
    const over = Math.max(at + bytes - tensor.byteOf(tensor.high), low - at);
    if (over <= 0) return;
    const verb = write ? 'writes' : 'reads';
    const where = `of ${bytes} bytes ${at < low ? 'before' : 'past the end of'} ${tensor.name}`;
    const kind = write ? 'gm-over-write' : 'gm-over-read';
    this.core.fault(kind, line, `${name} ${verb} ${Math.min(over, bytes)} ${where}`);
    const outside = Math.max(at + bytes - tensor.memory.bytes.length, -at);
    if (outside <= 0) return;
    const past = `${Math.min(outside, bytes)} bytes past the memory that holds ${tensor.name}`;
    this.core.fault('gm-unallocated', line, `${name} ${verb} ${past}`);
  }

  #aligned(line: string, name: string, { address, buffer }: LocalTensor): void {
    if (address % BLOCK === 0) return;
    const must = `addresses must be multiples of ${BLOCK}`;
    this.core.fault('unaligned', line, `${name} takes ${buffer.name} at address ${address}: ${must}`);
  }

  /** An instruction that computes lanes of f16 or f32, rounded once. */
  #compute(
    op: VecOp,
    line: string,
    tensors: readonly LocalTensor[],
    count: number | Repeats,
    of: (a: number, b: number) => number,
  ): void {
    const { u16, f32 } = this.core;
    const { type } = tensors[0]!;
    if (type === 'f32') {
      this.#lanes(op, line, tensors, count, (d, a, b, end, step) => computeF32(f32, of, d, a, b, end, step));
    } else if (type === 'f16') {
      this.#lanes(op, line, tensors, count, (d, a, b, end, step) => computeF16(u16, of, d, a, b, end, step));
    } else {
      const way = 'Cast to f32 and back';
      this.core.stop('unsupported-dtype', line, `${op} does not do ${type} on this architecture: ${way}`);
    }
  }

  /** Reduces the first `mask` lanes of each repeat to one, in pairs. */
  #reduce(
    op: VecOp,
    line: string,
    dst: LocalTensor,
    src: LocalTensor,
    { mask, repeats, dstRepStride, srcRepStride }: ReduceParams,
    of: (a: number, b: number) => number,
  ): void {
    const { u16, f32 } = this.core;
    const size = sizeBytes(src.type);
    const half = src.type === 'f16';
    if ((!half && src.type !== 'f32') || dst.type !== src.type)
      this.core.stop('unsupported-dtype', line, `${op} does not do ${src.type}→${dst.type}: it takes f16 or f32`);
    checkCount(mask, `${op}: mask`, 1, REPEAT / size);
    const rows = Array.from({ length: repeats }, (_what, r) => ({
      from: src.address + r * srcRepStride * BLOCK,
      to: dst.address + r * dstRepStride * size,
    }));
    const table = f16Table();
    const round = half ? (value: number) => table[toF16(value)]! : Math.fround;
    const results = rows.map(({ from }) => {
      const lanes = Array.from({ length: mask }, (_what, i) => {
        const at = from / size + i;
        return (half ? table[u16[at]!] : f32[at]) ?? 0;
      });
      for (let width = mask; width > 1; width = Math.ceil(width / 2)) {
        for (let i = 0; 2 * i < width; i++)
          lanes[i] = 2 * i + 1 < width ? round(of(lanes[2 * i]!, lanes[2 * i + 1]!)) : lanes[2 * i]!;
      }
      return lanes[0]!;
    });
    this.#vector(op, line, {
      dst: { tensor: dst, accesses: rows.map(({ to }) => ({ at: to, bytes: size })) },
      sources: [{ tensor: src, accesses: rows.map(({ from }) => ({ at: from, bytes: mask * size })) }],
      size,
      charged: (repeats * REPEAT) / size,
      repeats,
      elements: repeats * mask,
      bytes: repeats * size,
      anyDst: true,
    });
    for (const [r, { to }] of rows.entries()) {
      if (half) u16[to / size] = toF16(results[r]!);
      else f32[to / size] = results[r]!;
    }
  }

  /** An instruction that visits the lanes of dst and of up to two sources, in runs of element indices. */
  #lanes(op: VecOp, line: string, tensors: readonly LocalTensor[], count: number | Repeats, visit: Run): void {
    const { core } = this;
    const [dst, src0, src1] = [tensors[0]!, tensors[1], tensors[2]];
    const walk = new LaneWalk(dst.type, count);
    const { size, repeats, charged, elements } = walk;
    const to = walk.operand(dst, 0);
    const from = src0 ? [walk.operand(src0, 1)] : [];
    if (src1) from.push(walk.operand(src1, 2));
    const conflicts = conflictsOf(to, from, repeats, walk.lanesUsed * size);
    core.launch.conflicts.readRead += conflicts.readRead;
    core.launch.conflicts.readWrite += conflicts.readWrite;
    core.launch.conflicts.cycles += conflicts.cycles;
    this.#vector(op, line, {
      dst: to,
      sources: from,
      size,
      charged,
      repeats,
      elements,
      bytes: elements * size,
      conflictCycles: conflicts.cycles,
    });
    walk.each(dst.address, src0?.address, src1?.address, visit);
  }

  #vector(op: VecOp, line: string, call: VectorCall): void {
    const { core } = this;
    const { dst, sources, patterns = [], size, charged, repeats, elements, bytes, conflictCycles = 0 } = call;
    if (!call.anyDst) this.#aligned(line, op, dst.tensor);
    for (const { tensor } of sources) this.#aligned(line, op, tensor);
    for (const { tensor, accesses } of sources) check(core, line, op, tensor, accesses, Q.V, false);
    check(core, line, op, dst.tensor, dst.accesses, Q.V, true);
    const reads: Access[] = [];
    for (const { accesses } of sources) for (const access of accesses) reads.push(access);
    for (const access of patterns) reads.push(access);
    const clean = vectorCycles(op, size === 4 ? 'f32' : 'f16', charged, repeats, core.launch.vectorTiming);
    core.issue(Q.V, {
      name: op,
      line,
      reads,
      writes: dst.accesses,
      cycles: clean + conflictCycles,
      bytes,
      elements,
      conflictCycles,
    });
  }

  static {
    const { line, count, offset, number, queue, copy } = a;
    const one = { line, dst: LOCAL, src: LOCAL, count: a.countOrRepeats };
    const two = { line, dst: LOCAL, src0: LOCAL, src1: LOCAL, count: a.countOrRepeats };
    const scalar = { line, dst: LOCAL, src: LOCAL, scalar: number, count: a.countOrRepeats };
    const reduce = { line, dst: LOCAL, src: LOCAL, params: a.reduce };
    a.checkArguments(AscendC.prototype, {
      PipeBarrier: { queue: a.barrier },
      SetFlag: { from: queue, to: queue, id: offset },
      WaitFlag: { line, from: queue, to: queue, id: offset },
      GetGlobal: { line, tensor: GLOBAL, index: offset },
      DataCopyIn: { line, dst: LOCAL, src: GLOBAL, index: offset, count },
      MergeValues: { line, dst: LOCAL, sources: LOCALS, count },
      DataCopyPadIn: { line, dst: LOCAL, src: GLOBAL, index: offset, params: copy },
      DataCopyPadOut: { line, dst: GLOBAL, index: offset, src: LOCAL, params: copy },
      DataCopyOut: { line, dst: GLOBAL, index: offset, src: LOCAL, count },
      ...{ Mul: two, Add: two, Sub: two, Div: two, Max: two },
      ...{ Abs: one, Exp: one, Sqrt: one, Rsqrt: one, Reciprocal: one, Copy: one },
      ...{ WholeReduceSum: reduce, WholeReduceMax: reduce, Muls: scalar, Maxs: scalar },
      Adds: { line, dst: LOCAL, src: LOCAL, scalar: number, count },
      Duplicate: { line, dst: LOCAL, value: number, count },
      Cast: { line, dst: LOCAL, src: LOCAL, count },
      GatherMask: { line, dst: LOCAL, src: LOCAL, pattern: PATTERN, params: a.gatherMask },
      Gather: { line, dst: LOCAL, src: LOCAL, offsets: LOCAL, count },
    });
  }
}

/** Computes lanes `at`, `at + step`, … before `at + end` of dst and the sources, one after the other. */
type Run = (dst: number, src0: number, src1: number, end: number, step: number) => void;

/** What a lane computes. */
type Arithmetic = (a: number, b: number) => number;
const PRODUCT: Arithmetic = (a, b) => a * b;
const SUM: Arithmetic = (a, b) => a + b;
const DIFFERENCE: Arithmetic = (a, b) => a - b;

/** The three frequent operations in line: a call for each lane costs several times the operation. */
function apply(of: Arithmetic, a: number, b: number): number {
  return of === PRODUCT ? a * b : of === SUM ? a + b : of === DIFFERENCE ? a - b : of(a, b);
}

function computeF32(f32: Float32Array, of: Arithmetic, d: number, a: number, b: number, end: number, step: number) {
  for (let i = 0; i < end; i += step) f32[d + i] = apply(of, f32[a + i]!, f32[b + i]!); // storing to a Float32Array rounds
}

function computeF16(u16: Uint16Array, of: Arithmetic, d: number, a: number, b: number, end: number, step: number) {
  const table = f16Table();
  for (let i = 0; i < end; i += step) u16[d + i] = toF16(apply(of, table[u16[a + i]!]!, table[u16[b + i]!]!));
}

/** {@link LaneWalk} of a count of lanes: frequent, so these lists are made once. */
const NO_LANES: readonly number[] = [];
const WHOLE_REPEATS: readonly number[] = [REPEAT, REPEAT, REPEAT];

/** Which lanes an instruction works on, and where they are. */
class LaneWalk {
  readonly size: number;
  readonly repeats: number;
  /** Bytes from repeat to repeat, of dst and each source. */
  readonly steps: readonly number[];
  /** Lanes of a repeat from the first to the last that is computed. */
  readonly lanesUsed: number;
  readonly elements: number;
  /** Elements that the cost counts. */
  readonly charged: number;
  readonly #lanes: readonly number[];
  readonly #count: number | undefined;

  constructor(type: LaneType, count: number | Repeats) {
    this.size = sizeBytes(type);
    const full = REPEAT / this.size;
    if (typeof count === 'number') {
      this.#count = count;
      this.#lanes = NO_LANES;
      this.repeats = Math.ceil(count / full);
      this.steps = WHOLE_REPEATS;
      this.lanesUsed = Math.min(full, count);
      this.elements = count;
      this.charged = count;
      return;
    }
    const { mask, repeats, strides } = count;
    const lanes = Array.from({ length: full }, (_what, lane) => lane);
    this.#lanes =
      typeof mask === 'number'
        ? lanes.filter((lane) => lane < mask)
        : lanes.filter((lane) => ((mask[lane >> 6]! >> BigInt(lane & 63)) & 1n) === 1n);
    this.repeats = repeats;
    this.steps = [strides.dst, strides.src0, strides.src1 ?? 0].map((blocks) => blocks * BLOCK);
    this.lanesUsed = (this.#lanes.at(-1) ?? -1) + 1;
    this.elements = this.#lanes.length * repeats;
    this.charged = full * repeats;
  }

  /** Visits all lanes; addresses are bytes, indices are elements. A missing source is visited at dst's address. */
  each(dst: number, src0: number | undefined, src1: number | undefined, visit: Run): void {
    const { size } = this;
    const [d, a, b] = [dst / size, (src0 ?? dst) / size, (src1 ?? dst) / size];
    if (this.#count !== undefined) {
      visit(d, a, b, this.#count, 1);
      return;
    }
    const [stepD, stepA, stepB] = this.steps.map((step) => step / size) as [number, number, number];
    const { length } = this.#lanes;
    const [first = 0, second = first + 1] = this.#lanes;
    const gap = second - first;
    const even = this.#lanes.every((lane, n) => lane === first + n * gap);
    for (let r = 0; r < this.repeats; r++) {
      const [atD, atA, atB] = [d + r * stepD, a + r * stepA, b + r * stepB];
      if (even) visit(atD + first, atA + first, atB + first, length * gap, gap);
      else for (const lane of this.#lanes) visit(atD + lane, atA + lane, atB + lane, 1, 1);
    }
  }

  /** Operand `n`: 0 is dst. */
  operand(tensor: LocalTensor, n: number) {
    return { tensor, accesses: this.#accesses(tensor.address, n), at: tensor.address, step: this.steps[n]! };
  }

  /** The bytes of an operand that the instruction touches. */
  #accesses(address: number, operand: number): Access[] {
    if (this.#count !== undefined) return [{ at: address, bytes: this.#count * this.size }];
    const first = (this.#lanes[0] ?? 0) * this.size;
    const bytes = this.lanesUsed * this.size - first;
    const step = this.steps[operand]!;
    const length = step === 0 ? 1 : this.repeats;
    return Array.from({ length }, (_what, r) => ({ at: address + r * step + first, bytes }));
  }
}

type Lanes = Uint16Array | Uint32Array;

/** The unified buffer in lanes as wide as a type, as bits. */
function bitsOf(core: Core, type: LaneType): Lanes {
  return sizeBytes(type) === 4 ? core.u32 : core.u16;
}

/** Keeps lanes of a repeat by one of GatherMask's fixed patterns, and returns how many are kept in all. */
function keepFixed(bits: Lanes, from: number, lanes: number, pattern: number, kept: Lanes, count: number): number {
  const [first, step] = pattern === 7 ? [0, 1] : pattern <= 2 ? [pattern - 1, 2] : [pattern - 3, 4];
  let end = count;
  for (let lane = first; lane < lanes; lane += step) kept[end++] = bits[from + lane] ?? 0;
  return end;
}

/** As {@link keepFixed}, by the bits of a pattern in the unified buffer. */
function keepCustom(
  bits: Lanes,
  from: number,
  lanes: number,
  memory: Uint8Array,
  pattern: number,
  kept: Lanes,
  count: number,
): number {
  let end = count;
  for (let byte = 0; byte < lanes >> 3; byte++) {
    const mask = memory[pattern + byte]!;
    for (let lane = 0; lane < 8; lane++)
      if (((mask >> lane) & 1) === 1) kept[end++] = bits[from + byte * 8 + lane] ?? 0;
  }
  return end;
}

/** Bytes of a copy that its cost counts: each of several rows counts as at least one burst. */
function chargedBytes({ blockCount, blockLen }: CopyParams): number {
  return blockCount > 1 ? blockCount * Math.max(blockLen, MIN_BURST) : blockLen;
}
