/**
 * AscendC on the modelled core: TPipe, TQue, TBuf, tensors and instructions, under the names that kernels use.
 *
 * The first argument of every instruction is a text that stands for the kernel's statement. Findings and traces print
 * it. @module
 */
import { bf16FromNumber, numberFromBf16, sizeBytes } from 'ropewalk';
import { loadNumber, newArray, refuse } from 'ropewalk/backend';
import { checkInteger, reading } from 'ropewalk/internal';
import * as a from './arguments.js';
import { conflictsOf } from './banks.js';
import type { Access, Core, Instruction, Mark, QueueIndex, Statement } from './core.js';
import { POISON, Q } from './core.js';
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
/** Masks every other lane of a repeat, from lane 0 on. */
export const EVEN_LANES: readonly [bigint, bigint] = [0x5555_5555_5555_5555n, 0x5555_5555_5555_5555n];
/** Masks every other lane of a repeat, from lane 1 on. */
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
  checkInteger(lanes, 'aicore: firstLanes: lanes', 0, 128);
  if (!reading('aicore: firstLanes: mask', () => typeof mask[0] === 'bigint' && typeof mask[1] === 'bigint'))
    refuse('RANGE', 'aicore: firstLanes: mask', 'two bigints of 64 bits', mask);
  const all = (mask[0] | (mask[1] << 64n)) & ((1n << BigInt(lanes)) - 1n);
  return [all & 0xffff_ffff_ffff_ffffn, all >> 64n];
}

/** The repeat strides of AscendC's BinaryRepeatParams, in datablocks of 32 bytes, which are dense in a repeat. */
export interface RepeatParams {
  readonly dst: number;
  readonly src0: number;
  readonly src1?: number;
}

/** A vector instruction by repeats. */
export interface Repeats {
  readonly mask: Mask;
  /** The number of repeats, at most 255. */
  readonly repeats: number;
  readonly strides: RepeatParams;
}

/** AscendC's DataCopyExtParams. A stride is the gap between two rows. */
export interface CopyParams {
  readonly blockCount: number;
  /** Bytes of a row. */
  readonly blockLen: number;
  /** Bytes in global memory, datablocks of 32 bytes in the unified buffer. */
  readonly srcStride: number;
  /** Bytes in global memory, datablocks of 32 bytes in the unified buffer. */
  readonly dstStride: number;
}

/** The arguments of AscendC's WholeReduceSum and WholeReduceMax; the datablocks of a repeat are dense. */
export interface ReduceParams {
  /** The first lanes of each repeat that count. */
  readonly mask: number;
  /** The number of repeats, at most 255. */
  readonly repeats: number;
  /** Elements of dst from one repeat's result to the next. */
  readonly dstRepStride: number;
  /** Datablocks of src from repeat to repeat. */
  readonly srcRepStride: number;
}

/** AscendC's GatherMaskParams, as far as the kernels use them; the datablocks of a repeat are dense. */
export interface GatherMaskParams {
  readonly repeatTimes: number;
  /** Datablocks from repeat to repeat. */
  readonly src0RepeatStride: number;
  /** Datablocks from one repeat's custom pattern to the next. Default: 0. */
  readonly src1RepeatStride?: number;
}

/** Copies one row of `bytes`. */
export function oneRow(bytes: number): CopyParams {
  return { blockCount: 1, blockLen: bytes, srcStride: 0, dstStride: 0 };
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
  /** The position of its TQue; a TBuf has none. */
  readonly position?: QuePosition;
  state?: State;
  /** The flag of EnQue or FreeTensor that the buffer's next step waits for. */
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

  /** Returns the tensor from an element on: AscendC's `tensor[elements]`. */
  at(elements: number): LocalTensor {
    return new LocalTensor(this.#core, this.type, this.address + elements * sizeBytes(this.type), this.buffer);
  }

  /** AscendC's ReinterpretCast. */
  as(type: LaneType): LocalTensor {
    return new LocalTensor(this.#core, type, this.address, this.buffer);
  }

  /** Reads one element on the scalar unit: its bits for f16 and bf16, its value otherwise. */
  GetValue(line: string, index: number): number {
    const element = this.#scalar({ name: 'GetValue', line }, index, false);
    return lanesOf(this.#core, this.type)[element] ?? 0;
  }

  /** Writes one element on the scalar unit: its bits for f16 and bf16, its value otherwise. */
  SetValue(line: string, index: number, value: number): void {
    const element = this.#scalar({ name: 'SetValue', line }, index, true);
    const lanes = lanesOf(this.#core, this.type);
    if (element < lanes.length) lanes[element] = value;
  }

  /** Does the access, and returns where it is in the unified buffer, in elements. */
  #scalar(it: Statement, index: number, write: boolean): number {
    const bytes = sizeBytes(this.type);
    const access = { at: this.address + index * bytes, bytes };
    checkState(this.#core, it, this.buffer, Q.S, write);
    checkReach(this.#core, it, this.buffer, access, write);
    this.#core.scalar(it, access, write);
    return access.at / bytes;
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
const PATTERN: a.Check = (value, where) => (typeof value === 'number' ? a.pattern : LOCAL)(value, where);
const LOCALS: a.Check = (value, where) => {
  if (!Array.isArray(value)) return refuse('RANGE', `aicore: ${where}`, 'a list of LocalTensors', value);
  for (let i = 0; i < value.length; i++) LOCAL(value[i], `${where}[${i}]`);
};

/** The bytes of a tensor that an instruction touches. */
type Operand = { readonly tensor: LocalTensor; readonly accesses: readonly Access[] };

/** Reports an operand that is used in the wrong state of its buffer, or outside its buffer. */
function check(core: Core, it: Statement, { tensor, accesses }: Operand, queue: QueueIndex, write: boolean): void {
  checkState(core, it, tensor.buffer, queue, write);
  for (const access of accesses) if (!checkReach(core, it, tensor.buffer, access, write)) return;
}

function checkState(core: Core, it: Statement, buffer: LocalBuffer, queue: QueueIndex, write: boolean): void {
  const { name, position, state } = buffer;
  if (!position) return;
  const filling = position === 'VECIN' ? queue === Q.MTE2 : queue !== Q.MTE3;
  if (state === (filling ? 'OCCUPIED' : 'DEQUE')) return;
  const where = `${it.name} on ${QUEUES[queue]} ${write ? 'writes' : 'reads'} a buffer of ${name} that is ${state}`;
  const must = filling
    ? 'OCCUPIED there (after AllocTensor, before EnQue)'
    : 'DEQUE there (after DeQue, before FreeTensor)';
  core.fault('before-dequeue', it.line, `${where}: it must be ${must}`);
}

/** Returns false after it reported an access that goes past the buffer. */
function checkReach(core: Core, it: Statement, buffer: LocalBuffer, { at, bytes }: Access, write: boolean): boolean {
  const end = buffer.at + buffer.size;
  const over = Math.max(at + bytes - end, buffer.at - at);
  if (over <= 0 || bytes <= 0) return true;
  const verb = write ? 'writes' : 'reads';
  const outside = at < buffer.at ? at : end;
  const neighbor = core.nameAt(outside);
  const into =
    outside >= core.launch.capacity
      ? 'past the end of the unified buffer'
      : `into ${neighbor === buffer.name ? `the next buffer of ${neighbor}` : neighbor}`;
  const past = `${buffer.name} (${buffer.size} bytes at ${buffer.at})`;
  core.fault('overflow', it.line, `${it.name} ${verb} ${over} bytes past ${past}, ${into}`, `${verb} ${buffer.name}`);
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
   * @param num - the number of buffers; two make double buffering
   * @param bytes - the size of each, rounded up to 32
   */
  InitBuffer(name: string, position: QuePosition, num: number, bytes: number): TQue {
    return new TQue(this.#core, position, this.#core.allocate(name, `TQue ${position}`, num, bytes));
  }

  /**
   * Makes a buffer without a queue, so that nothing synchronises it.
   *
   * @param name - the kernel's member, for findings
   * @param bytes - its size, rounded up to 32
   */
  InitTBuf(name: string, bytes: number): TBuf {
    return new TBuf(this.#core, this.#core.allocate(name, 'TBuf VECCALC', 1, bytes));
  }

  static {
    a.checkArguments(TPipe.prototype, {
      InitBuffer: { name: a.line, position: a.position, num: a.someElements, bytes: a.bytes },
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

  /** Returns the whole buffer as a tensor; its address is always the same. */
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
  readonly #fills: QueueName;
  readonly #uses: QueueName;
  readonly #buffers: LocalBuffer[];
  readonly #entered: LocalBuffer[] = [];
  #next = 0;

  constructor(core: Core, position: QuePosition, { name, offset, size, num }: BufferEntry) {
    this.#core = core;
    this.#name = name;
    ({ fills: this.#fills, uses: this.#uses } = SIDES[position]);
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
    return this.#take(this.#buffers[free]!, 'OCCUPIED', this.#fills, type);
  }

  /** Puts a filled buffer in: sets MTE2_V (VECIN) or V_MTE3 (VECOUT). */
  EnQue(line: string, tensor: LocalTensor): void {
    this.#handOver({ name: 'EnQue', line }, tensor, 'OCCUPIED', 'ENQUE', [this.#fills, this.#uses]);
    this.#entered.push(tensor.buffer);
  }

  /** Takes the oldest filled buffer out. The queue that uses it waits for the flag of its EnQue. */
  DeQue(line: string, type: LaneType): LocalTensor {
    const buffer = this.#entered.shift();
    if (!buffer) this.#core.stop('no-free-buffer', line, `DeQue of ${this.#name} waits for ever: nothing was put in`);
    return this.#take(buffer, 'DEQUE', this.#uses, type);
  }

  /** Gives a buffer back: sets V_MTE2 (VECIN) or MTE3_V (VECOUT). */
  FreeTensor(line: string, tensor: LocalTensor): void {
    this.#handOver({ name: 'FreeTensor', line }, tensor, 'DEQUE', 'FREE', [this.#uses, this.#fills]);
  }

  #take(buffer: LocalBuffer, state: State, waits: QueueName, type: LaneType): LocalTensor {
    buffer.state = state;
    if (buffer.flag) this.#core.await(Q[waits], buffer.flag);
    buffer.flag = undefined;
    return new LocalTensor(this.#core, type, buffer.at, buffer);
  }

  #handOver(it: Statement, { buffer }: LocalTensor, from: State, to: State, [sets, waits]: readonly QueueName[]): void {
    if (!buffer.position || buffer.name !== this.#name)
      refuse('RANGE', `aicore: ${it.name}`, `a tensor of ${this.#name}`, buffer.name);
    if (buffer.state !== from) {
      const state = `that is ${buffer.state}, not ${from}`;
      this.#core.fault('before-dequeue', it.line, `${it.name} of a buffer of ${this.#name} ${state}`);
    }
    buffer.state = to;
    buffer.flag = this.#core.mark(Q[sets!], `${sets}_${waits} of ${this.#name}`);
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

/** A vector instruction, ready to run. */
interface VectorCall extends Pick<Instruction, 'elements' | 'bytes' | 'conflictCycles'> {
  readonly dst: Operand;
  readonly sources: readonly Operand[];
  /** Reads of custom patterns, already checked. */
  readonly patterns?: readonly Access[];
  /** Bytes of an element, by which its cost is looked up. */
  readonly size: number;
  /** Elements that the cost counts. Default: `elements`. */
  readonly charged?: number;
  readonly repeats: number;
  /** Whether dst may start at any element. */
  readonly anyDst?: boolean;
}

/** Computes a lane from the same lane of its sources; the result is rounded once. */
type Arithmetic = (a: number, b: number) => number;
const PRODUCT: Arithmetic = (a, b) => a * b;
const SUM: Arithmetic = (a, b) => a + b;
const DIFFERENCE: Arithmetic = (a, b) => a - b;
/** The arithmetic of instructions with two sources. */
const TWO_SOURCES = { Mul: PRODUCT, Add: SUM, Sub: DIFFERENCE, Div: (a: number, b: number) => a / b, Max: Math.max };
/** The arithmetic of instructions with one source. */
const ONE_SOURCE = {
  Abs: Math.abs,
  Exp: Math.exp,
  Sqrt: Math.sqrt,
  Rsqrt: (a: number) => 1 / Math.sqrt(a),
  Reciprocal: (a: number) => 1 / a,
};
type OfTwo = (line: string, dst: LocalTensor, src0: LocalTensor, src1: LocalTensor, count: number | Repeats) => void;
type OfOne = (line: string, dst: LocalTensor, src: LocalTensor, count: number | Repeats) => void;

/**
 * The instructions of AscendC, for one block of a kernel.
 *
 * @example launchKernel({ …, body: (c) => { const t = c.pipe.InitTBuf('t', 64).Get('f32'); c.Duplicate('fill', t, 1,
 *   16); } });
 */
export class AscendC {
  /** Allocates the unified buffer. */
  readonly pipe: TPipe;
  /** Holds the lanes that GatherMask keeps until it writes them, because dst may lie on src. */
  #gathered = new Uint32Array(0);

  constructor(readonly core: Core) {
    this.pipe = new TPipe(core);
  }

  /** dst = src0 · src1: the first `count` lanes, or repeats with strides. f16 and f32. Those below are alike. */
  declare Mul: OfTwo;
  declare Add: OfTwo;
  declare Sub: OfTwo;
  declare Div: OfTwo;
  declare Max: OfTwo;
  /** dst = |src|: lanes as for Mul. Those below are alike. */
  declare Abs: OfOne;
  declare Exp: OfOne;
  declare Sqrt: OfOne;
  declare Rsqrt: OfOne;
  declare Reciprocal: OfOne;

  /** Returns the number of this block, in [0, blocks). */
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

  /** GlobalTensor::GetValue: reads one element as a number, through the scalar unit's cache. */
  GetGlobal(line: string, tensor: GlobalTensor, index: number): number {
    const { memory, size, dtype } = tensor;
    const at = tensor.byteOf(index);
    const it = { name: 'GetValue', line };
    this.#boundGlobal(it, tensor, at, size, false);
    this.core.scalar(it, { memory, at, bytes: size }, false);
    tensor.reads?.fill(1, Math.max(0, at / size), Math.max(0, at / size + 1));
    if (at < 0 || at + size > memory.bytes.length) return 0;
    const one = newArray(dtype, 1);
    new Uint8Array(one.buffer).set(memory.bytes.subarray(at, at + size));
    return loadNumber(one, dtype, 0);
  }

  /**
   * DataCopy, global memory → unified buffer: `count` elements, rounded down to datablocks.
   *
   * @param index - element of the tensor to start at
   */
  DataCopyIn(line: string, dst: LocalTensor, src: GlobalTensor, index: number, count: number): void {
    this.#copy('DataCopy', line, true, dst, src, index, this.#wholeBlocks(line, count * src.size));
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
    const reaches = ({ type, address, buffer: { at, size: room } }: LocalTensor, elements: number) =>
      type === dst.type && address >= at && address + elements * size <= at + room;
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
    this.#copy('DataCopyPad', line, true, dst, src, index, params);
  }

  /** DataCopyPad, unified buffer → global memory: exactly blockLen bytes of each row, to any byte. */
  DataCopyPadOut(line: string, dst: GlobalTensor, index: number, src: LocalTensor, params: CopyParams): void {
    this.#copy('DataCopyPad', line, false, src, dst, index, params);
  }

  /** DataCopy, unified buffer → global memory: `count` elements, rounded down to datablocks. */
  DataCopyOut(line: string, dst: GlobalTensor, index: number, src: LocalTensor, count: number): void {
    this.#copy('DataCopy', line, false, src, dst, index, this.#wholeBlocks(line, count * dst.size));
  }

  /**
   * Reduces each repeat to one element: the sum of its first `mask` lanes, added in pairs as a tree, each sum rounded.
   * f16 and f32.
   *
   * @see AscendC's page on WholeReduceSum: dst is aligned to an element, src to 32 bytes
   */
  WholeReduceSum(line: string, dst: LocalTensor, src: LocalTensor, params: ReduceParams): void {
    this.#reduce('WholeReduceSum', line, dst, src, params, SUM);
  }

  /** Reduces each repeat to the largest of its first `mask` lanes (ORDER_ONLY_VALUE), as {@link WholeReduceSum}. */
  WholeReduceMax(line: string, dst: LocalTensor, src: LocalTensor, params: ReduceParams): void {
    this.#reduce('WholeReduceMax', line, dst, src, params, Math.max);
  }

  /** dst = src · scalar. f16 and f32. */
  Muls(line: string, dst: LocalTensor, src: LocalTensor, scalar: number, count: number | Repeats): void {
    this.#compute('Muls', line, [dst, src], count, (a) => a * scalar);
  }

  /** dst = the larger of src and a scalar. f16 and f32. */
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
    const lanes = lanesOf(this.core, dst.type);
    this.#lanes('Duplicate', line, [dst], count, (d, _a, _b, end, step) => {
      for (let i = 0; i < end; i += step) lanes[d + i] = bits;
    });
  }

  /** Converts `count` lanes: f16 or bf16 → f32, and back, to nearest even (CAST_RINT). */
  Cast(line: string, dst: LocalTensor, src: LocalTensor, count: number): void {
    const { u16, f32 } = this.core;
    const pair = `${src.type}→${dst.type}`;
    if (!['f16→f32', 'bf16→f32', 'f32→f16', 'f32→bf16'].includes(pair))
      this.core.stop('unsupported-dtype', line, `Cast does not do ${pair}`);
    const [size, bytes] = [sizeBytes(src.type), count * sizeBytes(dst.type)];
    const [from, to] = [src.address / size, dst.address / sizeBytes(dst.type)];
    const table = f16Table();
    for (let i = 0; i < count; i++) {
      if (pair === 'f16→f32') f32[to + i] = table[u16[from + i]!]!;
      else if (pair === 'bf16→f32') f32[to + i] = numberFromBf16(u16[from + i]!);
      else u16[to + i] = pair === 'f32→f16' ? toF16(f32[from + i]!) : bf16FromNumber(f32[from + i]!);
    }
    const [written, sources] = [operandOf(dst, bytes), [operandOf(src, count * size)]];
    const repeats = Math.ceil((count * 4) / REPEAT);
    this.#vector('Cast', line, { dst: written, sources, size, repeats, elements: count, bytes });
  }

  /**
   * Keeps the elements that a pattern selects, packed. It reads whole repeats of 256 bytes, whatever the length of the
   * row (normal mode).
   *
   * @param pattern - 1 even, 2 odd positions, 3 to 6 one of four, 7 all; or a custom pattern of bits, one for each
   *   repeat
   * @returns rsvdCnt: how many elements it kept
   */
  GatherMask(
    line: string,
    dst: LocalTensor,
    src: LocalTensor,
    pattern: number | LocalTensor,
    params: GatherMaskParams,
  ): number {
    const { repeatTimes, src0RepeatStride, src1RepeatStride = 0 } = params;
    const { core } = this;
    const size = sizeBytes(src.type);
    const lanes = REPEAT / size;
    const elements = repeatTimes * lanes;
    const bits = bitsOf(core, src.type);
    const custom = typeof pattern === 'number' ? undefined : pattern;
    const [first, step] = custom || pattern === 7 ? [0, 1] : +pattern <= 2 ? [+pattern - 1, 2] : [+pattern - 3, 4];
    const reads: Access[] = [];
    const patterns: Access[] = [];
    if (this.#gathered.length < elements) this.#gathered = new Uint32Array(elements);
    const kept = this.#gathered;
    let count = 0;
    for (let r = 0; r < repeatTimes; r++) {
      const at = src.address + r * src0RepeatStride * BLOCK;
      reads.push({ at, bytes: REPEAT });
      const mask = custom ? custom.address + r * src1RepeatStride * BLOCK : 0;
      if (custom) patterns.push({ at: mask, bytes: lanes / 8 });
      for (let lane = first!; lane < lanes; lane += step!) {
        if (custom && ((core.memory[mask + (lane >> 3)]! >> (lane & 7)) & 1) === 0) continue;
        kept[count++] = bits[at / size + lane] ?? 0;
      }
    }
    if (custom) check(core, { name: 'GatherMask', line }, { tensor: custom, accesses: patterns }, Q.V, false);
    const bytes = count * size;
    const [written, sources] = [operandOf(dst, bytes), [{ tensor: src, accesses: reads }]];
    this.#vector('GatherMask', line, { dst: written, sources, patterns, size, repeats: repeatTimes, elements, bytes });
    const to = dst.address / size;
    for (let i = 0; i < count; i++) bits[to + i] = kept[i]!;
    return count;
  }

  /** dst[i] = the element of src at byte `offsets[i]`, for `count` elements. */
  Gather(line: string, dst: LocalTensor, src: LocalTensor, offsets: LocalTensor, count: number): void {
    const size = sizeBytes(dst.type);
    const bits = bitsOf(this.core, dst.type);
    const at = offsets.address / 4;
    const places = this.core.u32.subarray(at, at + count);
    const picked = Array.from(places, (offset) => bits[(src.address + offset) / size] ?? 0);
    const low = places.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY);
    const high = places.reduce((a, b) => Math.max(a, b + size), 0);
    const bytes = count * size;
    const [written, sources] = [
      operandOf(dst, bytes),
      [operandOf(src, high - low, low), operandOf(offsets, count * 4)],
    ];
    const repeats = Math.ceil(bytes / REPEAT);
    this.#vector('Gather', line, { dst: written, sources, size, repeats, elements: count, bytes });
    for (const [i, value] of picked.entries()) bits[dst.address / size + i] = value;
  }

  /** Copies rows between global memory and the unified buffer, where each row fills whole datablocks. */
  #copy(
    name: string,
    line: string,
    load: boolean,
    local: LocalTensor,
    global: GlobalTensor,
    index: number,
    params: CopyParams,
  ): void {
    const { core } = this;
    const it = { name, line };
    const { blockCount, blockLen, srcStride, dstStride } = params;
    this.#aligned(it, local);
    const padded = Math.ceil(blockLen / BLOCK) * BLOCK;
    const pitch = padded + (load ? dstStride : srcStride) * BLOCK;
    const inside: Access[] = [];
    const outside: Access[] = [];
    for (let row = 0; row < blockCount; row++) {
      const at = local.address + row * pitch;
      const globalAt = global.byteOf(index) + row * (blockLen + (load ? srcStride : dstStride));
      inside.push({ at, bytes: load ? padded : blockLen });
      outside.push({ memory: global.memory, at: globalAt, bytes: blockLen });
      this.#boundGlobal(it, global, globalAt, blockLen, !load);
      if (load) this.#loadRow(global, globalAt, at, blockLen, padded);
      else this.#storeRow(it, global, globalAt, at, blockLen);
    }
    const queue = load ? Q.MTE2 : Q.MTE3;
    check(core, it, { tensor: local, accesses: inside }, queue, load);
    const bytes = blockCount * blockLen;
    const { bytes: moved, concurrent } = core.launch;
    moved[load ? 'load' : 'store'] += bytes;
    moved.byTensor.set(global.name, (moved.byTensor.get(global.name) ?? 0) + bytes);
    // Each of several rows is charged as one burst or more.
    const charged = blockCount > 1 ? blockCount * Math.max(blockLen, MIN_BURST) : blockLen;
    const cycles = load ? loadCycles(charged, concurrent) : storeCycles(charged, blockLen, blockCount, concurrent);
    const [reads, writes] = load ? [outside, inside] : [inside, outside];
    core.issue(queue, { name, line, reads, writes, cycles, bytes, elements: bytes / global.size });
  }

  /** Loads a row. Its padding, and bytes past the caller's memory, become poison. */
  #loadRow({ memory, size, reads }: GlobalTensor, from: number, to: number, bytes: number, padded: number): void {
    const local = this.core.memory;
    reads?.fill(1, Math.max(0, from / size), Math.max(0, (from + bytes) / size));
    const end = Math.min(from + bytes, memory.bytes.length);
    const fits = from >= 0 && end > from && to >= 0 && to + end - from <= local.length;
    const copied = fits ? end - from : 0;
    if (copied > 0) local.set(memory.bytes.subarray(from, end), to);
    if (copied < padded) local.fill(POISON, Math.max(0, to + copied), Math.max(0, to + padded));
  }

  /** Stores a row, and reports elements that do not belong to the tensor: those between its rows. */
  #storeRow(
    it: Statement,
    { memory, name, size, reads, coverage }: GlobalTensor,
    to: number,
    from: number,
    bytes: number,
  ) {
    const { core } = this;
    if (reads) core.fault('wrong-operand', it.line, `${it.name} writes ${bytes} bytes of ${name}, which is an input`);
    if (coverage) {
      const end = Math.min((to + bytes) / size, coverage.length);
      let holes = 0;
      for (let e = Math.max(0, to / size); e < end; e++) {
        if (coverage[e] === 0) holes++;
        else coverage[e] = 2;
      }
      const between = `${it.name} writes ${holes} elements between the rows of ${name}`;
      if (holes > 0) core.fault('gm-over-write', it.line, between);
    }
    const end = Math.min(to + bytes, memory.bytes.length);
    if (to >= 0 && end > to) memory.bytes.set(core.memory.subarray(from, from + end - to), to);
  }

  /** Describes the row that DataCopy moves of `asked` bytes: whole datablocks. */
  #wholeBlocks(line: string, asked: number): CopyParams {
    const bytes = Math.floor(asked / BLOCK) * BLOCK;
    const moved = `DataCopy of ${asked} bytes moves only ${bytes}: it takes multiples of ${BLOCK}`;
    if (bytes !== asked) this.core.fault('unaligned', line, moved);
    return oneRow(bytes);
  }

  #boundGlobal(it: Statement, tensor: GlobalTensor, at: number, bytes: number, write: boolean): void {
    const low = tensor.byteOf(tensor.low);
    const over = Math.max(at + bytes - tensor.byteOf(tensor.high), low - at);
    if (over <= 0) return;
    const verb = `${it.name} ${write ? 'writes' : 'reads'}`;
    const where = `of ${bytes} bytes ${at < low ? 'before' : 'past the end of'} ${tensor.name}`;
    const kind = write ? 'gm-over-write' : 'gm-over-read';
    this.core.fault(kind, it.line, `${verb} ${Math.min(over, bytes)} ${where}`);
    const outside = Math.max(at + bytes - tensor.memory.bytes.length, -at);
    if (outside <= 0) return;
    const past = `${Math.min(outside, bytes)} bytes past the memory that holds ${tensor.name}`;
    this.core.fault('gm-unallocated', it.line, `${verb} ${past}`);
  }

  #aligned({ name, line }: Statement, { address, buffer }: LocalTensor): void {
    if (address % BLOCK === 0) return;
    const must = `addresses must be multiples of ${BLOCK}`;
    this.core.fault('unaligned', line, `${name} takes ${buffer.name} at address ${address}: ${must}`);
  }

  /** Computes lanes of f16 or f32. */
  #compute(op: VecOp, line: string, tensors: readonly LocalTensor[], count: number | Repeats, of: Arithmetic): void {
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
  #reduce(op: VecOp, line: string, dst: LocalTensor, src: LocalTensor, params: ReduceParams, of: Arithmetic): void {
    const { mask, repeats, dstRepStride, srcRepStride } = params;
    const { u16, f32 } = this.core;
    const size = sizeBytes(src.type);
    const half = src.type === 'f16';
    if ((!half && src.type !== 'f32') || dst.type !== src.type)
      this.core.stop('unsupported-dtype', line, `${op} does not do ${src.type}→${dst.type}: it takes f16 or f32`);
    checkInteger(mask, `aicore: ${op}: mask`, 1, REPEAT / size);
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

  /** Visits the lanes of dst and of up to two sources, in runs of element indices. */
  #lanes(op: VecOp, line: string, tensors: readonly LocalTensor[], count: number | Repeats, visit: Visit): void {
    const { conflicts } = this.core.launch;
    const walk = walkOf(tensors[0]!.type, count);
    const { size, repeats, charged, elements } = walk;
    const [dst, ...sources] = tensors.map((tensor, n) => walkedOperand(walk, tensor, n));
    const { readRead, readWrite, cycles } = conflictsOf(dst!, sources, repeats, walk.lanesUsed * size);
    conflicts.readRead += readRead;
    conflicts.readWrite += readWrite;
    conflicts.cycles += cycles;
    const cost = { size, charged, repeats, elements, bytes: elements * size, conflictCycles: cycles };
    this.#vector(op, line, { dst: dst!, sources, ...cost });
    visitLanes(walk, tensors, visit);
  }

  #vector(op: VecOp, line: string, call: VectorCall): void {
    const { core } = this;
    const { dst, sources, patterns = [], size, repeats, elements, bytes, conflictCycles = 0 } = call;
    const it = { name: op, line };
    if (!call.anyDst) this.#aligned(it, dst.tensor);
    for (const { tensor } of sources) this.#aligned(it, tensor);
    for (const source of sources) check(core, it, source, Q.V, false);
    check(core, it, dst, Q.V, true);
    const reads: Access[] = [];
    for (const { accesses } of sources) for (const access of accesses) reads.push(access);
    for (const access of patterns) reads.push(access);
    const { charged = elements } = call;
    const clean = vectorCycles(op, size === 4 ? 'f32' : 'f16', charged, repeats, core.launch.vectorTiming);
    const cycles = clean + conflictCycles;
    core.issue(Q.V, { name: op, line, reads, writes: dst.accesses, cycles, bytes, elements, conflictCycles });
  }

  static {
    for (const [op, of] of Object.entries(TWO_SOURCES) as [keyof typeof TWO_SOURCES, Arithmetic][])
      AscendC.prototype[op] = function (line, dst, src0, src1, count) {
        this.#compute(op, line, [dst, src0, src1], count, of);
      };
    for (const [op, of] of Object.entries(ONE_SOURCE) as [keyof typeof ONE_SOURCE, Arithmetic][])
      AscendC.prototype[op] = function (line, dst, src, count) {
        this.#compute(op, line, [dst, src], count, of);
      };
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
      Gather: { line, dst: LOCAL, src: LOCAL, offsets: LOCAL, count: a.someElements },
    });
  }
}

/** Computes lanes `at`, `at + step`, … before `at + end` of dst and the sources, one after the other. */
type Visit = (dst: number, src0: number, src1: number, end: number, step: number) => void;

/** Computes the three frequent operations in line, because a call for each lane costs several times the operation. */
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

/** The steps of instructions without strides; these are frequent, so the list is made once. */
const WHOLE_REPEATS: readonly number[] = [REPEAT, REPEAT, REPEAT];

/**
 * Describes the lanes that an instruction works on: the first `count` (then `lanes` is undefined), or those that a mask
 * selects in each repeat. `steps` are bytes from repeat to repeat, of dst and each source; `lanesUsed` counts the lanes of
 * a repeat from the first to the last that is computed; `charged` is the number of elements that the cost counts.
 */
function walkOf(type: LaneType, count: number | Repeats) {
  const size = sizeBytes(type);
  const full = REPEAT / size;
  if (typeof count === 'number') {
    const [repeats, lanesUsed] = [Math.ceil(count / full), Math.min(full, count)];
    return { size, repeats, steps: WHOLE_REPEATS, lanesUsed, elements: count, charged: count, lanes: undefined };
  }
  const { mask, repeats, strides } = count;
  const isSet = (lane: number): boolean =>
    typeof mask === 'number' ? lane < mask : ((mask[lane >> 6]! >> BigInt(lane & 63)) & 1n) === 1n;
  const lanes = Array.from({ length: full }, (_what, lane) => lane).filter(isSet);
  const steps = [strides.dst, strides.src0, strides.src1 ?? 0].map((blocks) => blocks * BLOCK);
  const lanesUsed = (lanes.at(-1) ?? -1) + 1;
  return { size, repeats, steps, lanesUsed, elements: lanes.length * repeats, charged: full * repeats, lanes };
}
type Walk = ReturnType<typeof walkOf>;
type Three = [dst: number, src0: number, src1: number];

/** Visits all lanes. A missing source is visited at the address of dst. */
function visitLanes(
  { size, repeats, steps, elements, lanes }: Walk,
  tensors: readonly LocalTensor[],
  visit: Visit,
): void {
  const dst = tensors[0]!;
  const [d, a, b] = [dst, tensors[1] ?? dst, tensors[2] ?? dst].map(({ address }) => address / size) as Three;
  if (!lanes) {
    visit(d, a, b, elements, 1);
    return;
  }
  const [stepD, stepA, stepB] = steps.map((step) => step / size) as Three;
  const [first = 0, second = first + 1] = lanes;
  const gap = second - first;
  const even = lanes.every((lane, n) => lane === first + n * gap);
  for (let r = 0; r < repeats; r++) {
    const [atD, atA, atB] = [d + r * stepD, a + r * stepA, b + r * stepB];
    if (even) visit(atD + first, atA + first, atB + first, lanes.length * gap, gap);
    else for (const lane of lanes) visit(atD + lane, atA + lane, atB + lane, 1, 1);
  }
}

/** Describes the bytes of operand `n`, which is dst for 0. */
function walkedOperand({ size, repeats, steps, lanesUsed, elements, lanes }: Walk, tensor: LocalTensor, n: number) {
  const [at, step] = [tensor.address, steps[n]!];
  const first = (lanes?.[0] ?? 0) * size;
  const bytes = (lanes ? lanesUsed : elements) * size - first;
  const length = !lanes || step === 0 ? 1 : repeats;
  const accesses: Access[] = [];
  for (let r = 0; r < length; r++) accesses.push({ at: at + r * step + first, bytes });
  return { tensor, accesses, at, step };
}

/** Describes an operand whose bytes are dense, from byte `first` of the tensor on. */
function operandOf(tensor: LocalTensor, bytes: number, first = 0): Operand {
  return { tensor, accesses: [{ at: tensor.address + first, bytes }] };
}

/** The unified buffer in lanes as wide as a type, as bits. */
function bitsOf(core: Core, type: LaneType): Uint16Array | Uint32Array {
  return sizeBytes(type) === 4 ? core.u32 : core.u16;
}

/** The unified buffer in lanes of a type: values of f32, and bits of the others. */
function lanesOf(core: Core, type: LaneType): Uint16Array | Uint32Array | Float32Array {
  return type === 'f32' ? core.f32 : bitsOf(core, type);
}
