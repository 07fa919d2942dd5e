/**
 * AscendC on the modelled core: TPipe, TQue, TBuf, the tensors and the instructions that kernels are written with, under their own names.
 *
 * Every instruction takes first the kernel's statement that it stands for, which findings and traces name.
 *
 * @module
 */

import { reading } from '../core/arguments.js';
import { loadNumber, newArray, sizeBytes } from '../core/dtypes.js';
import { refuse } from '../core/errors.js';
import { bf16FromNumber, numberFromBf16 } from '../core/float16.js';
import { conflictsOf, type Operand } from './banks.js';
import { type Access, type Core, checkCount, type Mark, Q, type QueueIndex } from './core.js';
import { BLOCK, loadCycles, MIN_BURST, REPEAT, storeCycles, type VectorOp, vectorCycles } from './costs.js';
import { f16Table, toF16 } from './lanes.js';
import type { GlobalTensor } from './memory.js';
import { QUEUES } from './trace.js';

/** What lanes hold on this core. */
export type LaneType = 'f16' | 'bf16' | 'f32' | 'u16' | 'u32';

/** Which lanes of a repeat work: the first n, or those whose bits are set (lane 0 is the lowest bit of the first word). */
export type Mask = number | readonly [bigint, bigint];
/** Every other lane from lane 0 on, in all of a repeat. */
export const EVEN_LANES: readonly [bigint, bigint] = [0x5555_5555_5555_5555n, 0x5555_5555_5555_5555n];
/** Every other lane from lane 1 on. */
export const ODD_LANES: readonly [bigint, bigint] = [0xaaaa_aaaa_aaaa_aaaan, 0xaaaa_aaaa_aaaa_aaaan];

/** The first `lanes` lanes of a mask. */
export function firstLanes(mask: readonly [bigint, bigint], lanes: number): Mask {
  checkCount(lanes, 'firstLanes: lanes', 0, 128);
  if (!reading('aicore: firstLanes: mask', () => typeof mask[0] === 'bigint' && typeof mask[1] === 'bigint'))
    refuse('RANGE', 'aicore: firstLanes: mask', 'two bigints of 64 bits', mask);
  const all = (mask[0] | (mask[1] << 64n)) & ((1n << BigInt(lanes)) - 1n);
  return [all & 0xffff_ffff_ffff_ffffn, all >> 64n];
}

/** Repeat strides in datablocks of 32 bytes, as AscendC's BinaryRepeatParams; datablocks of one repeat lie side by side. */
export interface RepeatParams {
  readonly dst: number;
  readonly src0: number;
  readonly src1?: number;
}

/** AscendC's DataCopyExtParams. Strides are gaps: bytes in global memory, datablocks of 32 bytes in the unified buffer. */
export interface CopyParams {
  readonly blockCount: number;
  /** Bytes. */
  readonly blockLen: number;
  readonly srcStride: number;
  readonly dstStride: number;
}

/** AscendC's GatherMaskParams, as far as used: the datablocks of a repeat lie side by side. */
export interface GatherMaskParams {
  readonly repeatTimes: number;
  /** Datablocks from repeat to repeat. */
  readonly src0RepeatStride: number;
  /** Datablocks from one repeat's own pattern to the next's. */
  readonly src1RepeatStride?: number;
}

type State = 'FREE' | 'OCCUPIED' | 'ENQUE' | 'DEQUE';

/** A buffer of a queue. */
interface QueBuffer {
  readonly que: string;
  readonly position: 'VECIN' | 'VECOUT';
  readonly at: number;
  readonly size: number;
  state: State;
  /** What its next step waits for: the EnQue's flag, or the FreeTensor's. */
  flag: Mark | undefined;
}

/** A piece of the unified buffer with a type. */
export class LocalTensor {
  constructor(
    private readonly core: Core,
    readonly type: LaneType,
    /** Byte in the unified buffer. */
    readonly address: number,
    /** The buffer that it lies in, in bytes. */
    readonly buffer: { readonly name: string; readonly at: number; readonly size: number; readonly owner?: QueBuffer },
  ) {}

  /** The tensor from an element on: AscendC's `tensor[elements]`. */
  at(elements: number): LocalTensor {
    return new LocalTensor(this.core, this.type, this.address + elements * sizeBytes(this.type), this.buffer);
  }

  /** AscendC's ReinterpretCast. */
  as(type: LaneType): LocalTensor {
    return new LocalTensor(this.core, type, this.address, this.buffer);
  }

  /** Reads one element on the scalar unit: its bits for f16 and bf16, its value otherwise. */
  GetValue(line: string, index: number): number {
    const size = sizeBytes(this.type);
    const at = this.address + index * size;
    check(this.core, line, 'GetValue', this, [{ at, bytes: size }], Q.S, 'reads');
    this.core.scalar('GetValue', line, { at, bytes: size }, false);
    const wide = this.type === 'f32' ? this.core.f32 : this.type === 'u32' ? this.core.u32 : this.core.u16;
    return wide[at / size] ?? 0;
  }

  /** Writes one element on the scalar unit: its bits for f16 and bf16, its value otherwise. */
  SetValue(line: string, index: number, value: number): void {
    const size = sizeBytes(this.type);
    const at = this.address + index * size;
    check(this.core, line, 'SetValue', this, [{ at, bytes: size }], Q.S, 'writes');
    this.core.scalar('SetValue', line, { at, bytes: size }, true);
    const wide = this.type === 'f32' ? this.core.f32 : this.type === 'u32' ? this.core.u32 : this.core.u16;
    if (at / size < wide.length) wide[at / size] = value;
  }
}

/** Says what is wrong with the use of a tensor: its buffer's state, its bounds. */
function check(
  core: Core,
  line: string,
  name: string,
  tensor: LocalTensor,
  accesses: readonly Access[],
  queue: QueueIndex,
  verb: string,
): void {
  const { buffer } = tensor;
  const owner = buffer.owner;
  if (owner) {
    const wanted =
      owner.position === 'VECIN' ? (queue === Q.MTE2 ? 'OCCUPIED' : 'DEQUE') : queue === Q.MTE3 ? 'DEQUE' : 'OCCUPIED';
    if (owner.state !== wanted) {
      core.fault(
        'before-dequeue',
        line,
        `${name} on ${QUEUES[queue]} ${verb} a buffer of ${owner.que} that is ${owner.state}: it must be ${wanted} there (${wanted === 'DEQUE' ? 'after DeQue, before FreeTensor' : 'after AllocTensor, before EnQue'})`,
      );
    }
  }
  for (const { at, bytes } of accesses) {
    const over = Math.max(at + bytes - (buffer.at + buffer.size), buffer.at - at);
    if (over <= 0 || bytes <= 0) continue;
    const outside = at < buffer.at ? at : buffer.at + buffer.size;
    const into =
      outside >= core.launch.capacity
        ? 'past the end of the unified buffer'
        : `into ${neighbour(core, outside, buffer.name)}`;
    core.fault(
      'overflow',
      line,
      `${name} ${verb} ${over} bytes past ${buffer.name} (${buffer.size} bytes at ${buffer.at}), ${into}`,
      `${verb} ${buffer.name}`,
    );
    return;
  }
}

function neighbour(core: Core, at: number, own: string): string {
  const name = core.nameAt(at);
  return name === own ? `the next buffer of ${own}` : name;
}

/** AscendC's TPipe: hands out the unified buffer. */
export class TPipe {
  constructor(private readonly core: Core) {}

  /** A queue of `num` buffers of `bytes` each; two of them is what makes double buffering. */
  InitBuffer(name: string, position: 'VECIN' | 'VECOUT', num: number, bytes: number): TQue {
    const at = this.core.allocate(name, `TQue ${position}`, num, bytes);
    return new TQue(this.core, name, position, at, num, Math.ceil(bytes / BLOCK) * BLOCK);
  }

  /** A buffer without a queue: nothing synchronises it, and Get always gives the same address. */
  InitTBuf(name: string, bytes: number): TBuf {
    const at = this.core.allocate(name, 'TBuf VECCALC', 1, bytes);
    return new TBuf(this.core, name, at, Math.ceil(bytes / BLOCK) * BLOCK);
  }
}

/** AscendC's TBuf. */
export class TBuf {
  constructor(
    private readonly core: Core,
    private readonly name: string,
    private readonly offset: number,
    private readonly size: number,
  ) {}

  Get(type: LaneType): LocalTensor {
    return new LocalTensor(this.core, type, this.offset, { name: this.name, at: this.offset, size: this.size });
  }
}

/** AscendC's TQue: buffers that go FREE → OCCUPIED → ENQUE → DEQUE → FREE, with a flag at each hand-over. */
export class TQue {
  readonly #buffers: QueBuffer[];
  readonly #entered: QueBuffer[] = [];
  #next = 0;

  constructor(
    private readonly core: Core,
    private readonly name: string,
    private readonly position: 'VECIN' | 'VECOUT',
    at: number,
    num: number,
    size: number,
  ) {
    this.#buffers = Array.from({ length: num }, (_, i) => ({
      que: name,
      position,
      at: at + i * size,
      size,
      state: 'FREE' as State,
      flag: undefined,
    }));
  }

  /** Takes the next free buffer round robin; VECIN's MTE2, VECOUT's V waits for the flag of its last FreeTensor. */
  AllocTensor(line: string, type: LaneType): LocalTensor {
    const { length } = this.#buffers;
    const free = Array.from({ length }, (_, i) => (this.#next + i) % length).find(
      (i) => this.#buffers[i]!.state === 'FREE',
    );
    if (free === undefined) {
      const states = this.#buffers.map((b) => b.state).join(', ');
      this.core.stop(
        'no-free-buffer',
        line,
        `AllocTensor of ${this.name} waits for ever: its ${length} buffers are ${states}`,
      );
    }
    const buffer = this.#buffers[free]!;
    this.#next = (free + 1) % length;
    buffer.state = 'OCCUPIED';
    if (buffer.flag) this.core.await(this.position === 'VECIN' ? Q.MTE2 : Q.V, buffer.flag);
    buffer.flag = undefined;
    return this.#tensor(buffer, type);
  }

  /** Puts a filled buffer in; sets MTE2_V (VECIN) or V_MTE3 (VECOUT). */
  EnQue(line: string, tensor: LocalTensor): void {
    const buffer = this.#owned(line, 'EnQue', tensor, 'OCCUPIED');
    buffer.state = 'ENQUE';
    buffer.flag = this.core.mark(
      this.position === 'VECIN' ? Q.MTE2 : Q.V,
      `${this.position === 'VECIN' ? 'MTE2_V' : 'V_MTE3'} of ${this.name}`,
    );
    this.#entered.push(buffer);
  }

  /** Takes the oldest out; V (VECIN) or MTE3 (VECOUT) waits for its EnQue's flag. */
  DeQue(line: string, type: LaneType): LocalTensor {
    const buffer = this.#entered.shift();
    if (!buffer) this.core.stop('no-free-buffer', line, `DeQue of ${this.name} waits for ever: nothing was put in`);
    buffer.state = 'DEQUE';
    if (buffer.flag) this.core.await(this.position === 'VECIN' ? Q.V : Q.MTE3, buffer.flag);
    buffer.flag = undefined;
    return this.#tensor(buffer, type);
  }

  /** Gives a buffer back; sets V_MTE2 (VECIN) or MTE3_V (VECOUT). */
  FreeTensor(line: string, tensor: LocalTensor): void {
    const buffer = this.#owned(line, 'FreeTensor', tensor, 'DEQUE');
    buffer.state = 'FREE';
    buffer.flag = this.core.mark(
      this.position === 'VECIN' ? Q.V : Q.MTE3,
      `${this.position === 'VECIN' ? 'V_MTE2' : 'MTE3_V'} of ${this.name}`,
    );
  }

  #tensor(buffer: QueBuffer, type: LaneType): LocalTensor {
    return new LocalTensor(this.core, type, buffer.at, {
      name: this.name,
      at: buffer.at,
      size: buffer.size,
      owner: buffer,
    });
  }

  #owned(line: string, what: string, tensor: LocalTensor, wanted: State): QueBuffer {
    const { owner } = tensor.buffer;
    if (!owner || owner.que !== this.name)
      return refuse('RANGE', `aicore: ${what}`, `a tensor of ${this.name}`, tensor.buffer.name);
    if (owner.state !== wanted) {
      this.core.fault(
        'before-dequeue',
        line,
        `${what} of a buffer of ${this.name} that is ${owner.state}, not ${wanted}`,
      );
    }
    return owner;
  }
}

/** The instructions. One of these serves one block. */
export class AscendC {
  readonly pipe: TPipe;

  constructor(readonly core: Core) {
    this.pipe = new TPipe(core);
  }

  /** Which block this is, in [0, blocks). */
  GetBlockIdx(): number {
    return this.core.block;
  }

  /** Waits on one queue for what it has been given: AscendC's PipeBarrier. */
  PipeBarrier(queue: 'V' | 'MTE2' | 'MTE3' | 'ALL'): void {
    this.core.barrier(queue === 'ALL' ? queue : Q[queue]);
  }

  /** AscendC's `SetFlag<HardEvent::from_to>(id)`. */
  SetFlag(from: keyof typeof Q, to: keyof typeof Q, id: number): void {
    this.core.setFlag(Q[from] as QueueIndex, Q[to] as QueueIndex, id);
  }

  /** AscendC's `WaitFlag<HardEvent::from_to>(id)`. */
  WaitFlag(line: string, from: keyof typeof Q, to: keyof typeof Q, id: number): void {
    this.core.waitFlag(Q[from] as QueueIndex, Q[to] as QueueIndex, id, line);
  }

  /** GlobalTensor::GetValue: one element as a number, through the scalar unit's cache. */
  GetGlobal(line: string, tensor: GlobalTensor, index: number): number {
    const at = tensor.byteOf(index);
    this.#boundGlobal(line, 'GetValue', tensor, at, tensor.size, false);
    this.core.scalar('GetValue', line, { memory: tensor.memory, at, bytes: tensor.size }, false);
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
    checkCount(count, 'DataCopy: count');
    const bytes = Math.floor((count * src.size) / BLOCK) * BLOCK;
    if (dst.address % BLOCK !== 0)
      this.core.fault('unaligned', line, `DataCopy writes at ${dst.address}, which is no multiple of ${BLOCK}`);
    if (bytes !== count * src.size) {
      this.core.fault(
        'unaligned',
        line,
        `DataCopy of ${count * src.size} bytes moves only ${bytes}: it takes multiples of ${BLOCK}`,
      );
    }
    this.#load(line, 'DataCopy', dst, src, index, { blockCount: 1, blockLen: bytes, srcStride: 0, dstStride: 0 });
  }

  /** DataCopyPad, global memory → unified buffer: rows from any byte, each filled up to whole datablocks. */
  DataCopyPadIn(line: string, dst: LocalTensor, src: GlobalTensor, index: number, params: CopyParams): void {
    checkCopy(params);
    if (dst.address % BLOCK !== 0)
      this.core.fault('unaligned', line, `DataCopyPad writes at ${dst.address}, which is no multiple of ${BLOCK}`);
    this.#load(line, 'DataCopyPad', dst, src, index, params);
  }

  /** DataCopyPad, unified buffer → global memory: exactly blockLen bytes of each row, to any byte. */
  DataCopyPadOut(line: string, dst: GlobalTensor, index: number, src: LocalTensor, params: CopyParams): void {
    checkCopy(params);
    const { core } = this;
    const { blockCount, blockLen } = params;
    if (src.address % BLOCK !== 0)
      core.fault('unaligned', line, `DataCopyPad reads at ${src.address}, which is no multiple of ${BLOCK}`);
    const pitch = Math.ceil(blockLen / BLOCK) * BLOCK + params.srcStride * BLOCK;
    const reads: Access[] = [];
    const writes: Access[] = [];
    for (let row = 0; row < blockCount; row++) {
      const from = src.address + row * pitch;
      const to = dst.byteOf(index) + row * (blockLen + params.dstStride);
      reads.push({ at: from, bytes: blockLen });
      writes.push({ memory: dst.memory, at: to, bytes: blockLen });
      this.#boundGlobal(line, 'DataCopyPad', dst, to, blockLen, true);
      this.#cover(line, dst, to, blockLen);
      const target = dst.memory.bytes;
      const end = Math.min(to + blockLen, target.length);
      if (to >= 0 && end > to) target.set(core.memory.subarray(from, from + end - to), to);
    }
    check(core, line, 'DataCopyPad', src, reads, Q.MTE3, 'reads');
    const bytes = blockCount * blockLen;
    const charged = blockCount > 1 ? blockCount * Math.max(blockLen, MIN_BURST) : bytes;
    core.launch.bytes.store += bytes;
    this.#count(dst.name, bytes);
    const cycles = storeCycles(charged, blockLen, blockCount, core.launch.concurrent);
    core.issue(Q.MTE3, { name: 'DataCopyPad', line, reads, writes, cycles, bytes, elements: bytes / dst.size });
  }

  /** dst = src0 · src1, the first `count` lanes, or repeats with strides. */
  Mul(line: string, dst: LocalTensor, src0: LocalTensor, src1: LocalTensor, count: number | Repeats): void {
    this.#binary('Mul', line, dst, src0, src1, count, (a, b) => a * b);
  }

  /** dst = src0 + src1. */
  Add(line: string, dst: LocalTensor, src0: LocalTensor, src1: LocalTensor, count: number | Repeats): void {
    this.#binary('Add', line, dst, src0, src1, count, (a, b) => a + b);
  }

  /** dst = src0 − src1. */
  Sub(line: string, dst: LocalTensor, src0: LocalTensor, src1: LocalTensor, count: number | Repeats): void {
    this.#binary('Sub', line, dst, src0, src1, count, (a, b) => a - b);
  }

  /** dst = src · scalar. */
  Muls(line: string, dst: LocalTensor, src: LocalTensor, scalar: number, count: number | Repeats): void {
    this.#binary('Muls', line, dst, src, undefined, count, (a) => a * scalar);
  }

  /** dst = src + scalar; f16 and f32, and u32 as AscendC's int32. */
  Adds(line: string, dst: LocalTensor, src: LocalTensor, scalar: number, count: number): void {
    if (dst.type !== 'u32') {
      this.#binary('Adds', line, dst, src, undefined, count, (a) => a + scalar);
      return;
    }
    const { u32 } = this.core;
    const walk = new LaneWalk(dst, src, undefined, count);
    this.#vector('Adds', line, walk, [src], () =>
      walk.each((d, a) => {
        u32[d] = u32[a]! + scalar;
      }),
    );
  }

  /** Moves the bits of lanes within the unified buffer. */
  Copy(line: string, dst: LocalTensor, src: LocalTensor, count: number | Repeats): void {
    const walk = new LaneWalk(dst, src, undefined, count);
    this.#vector('Copy', line, walk, [src], () => walk.copyBits(this.core));
  }

  /** Fills lanes. */
  Duplicate(line: string, dst: LocalTensor, value: number, count: number): void {
    const walk = new LaneWalk(dst, undefined, undefined, count);
    this.#vector('Duplicate', line, walk, [], () => {
      const bits = dst.type === 'f16' ? toF16(value) : dst.type === 'bf16' ? bf16FromNumber(value) : value;
      const wide = dst.type === 'f32' ? this.core.f32 : wideOf(this.core, dst.type);
      walk.each((d) => {
        wide[d] = bits;
      });
    });
  }

  /** f16 or bf16 → f32, and back to nearest even (CAST_RINT). `count` lanes. */
  Cast(line: string, dst: LocalTensor, src: LocalTensor, count: number): void {
    checkCount(count, 'Cast: count');
    const { core } = this;
    const { u16, f32 } = core;
    const reads = [{ at: src.address, bytes: count * sizeBytes(src.type) }];
    const writes = [{ at: dst.address, bytes: count * sizeBytes(dst.type) }];
    const pair = `${src.type}→${dst.type}`;
    if (!['f16→f32', 'bf16→f32', 'f32→f16', 'f32→bf16'].includes(pair))
      core.stop('unsupported-dtype', line, `Cast does not do ${pair}`);
    this.#aligned(line, 'Cast', [dst, src]);
    check(core, line, 'Cast', src, reads, Q.V, 'reads');
    check(core, line, 'Cast', dst, writes, Q.V, 'writes');
    const [from, to] = [src.address / sizeBytes(src.type), dst.address / sizeBytes(dst.type)];
    const table = f16Table();
    for (let i = 0; i < count; i++) {
      if (pair === 'f16→f32') f32[to + i] = table[u16[from + i]!]!;
      else if (pair === 'bf16→f32') f32[to + i] = numberFromBf16(u16[from + i]!);
      else u16[to + i] = pair === 'f32→f16' ? toF16(f32[from + i]!) : bf16FromNumber(f32[from + i]!);
    }
    const repeats = Math.ceil((count * 4) / REPEAT);
    const cycles = vectorCycles('Cast', src.type === 'f32' ? 'f32' : 'f16', count, repeats, core.launch.vectorTiming);
    core.issue(Q.V, { name: 'Cast', line, reads, writes, cycles, bytes: writes[0]!.bytes, elements: count });
  }

  /**
   * Keeps the elements that a pattern selects, packed. Whole repeats of 256 bytes are read, whatever the row's length (normal mode).
   *
   * @param pattern - 1 even, 2 odd positions, 3 to 6 one of four, 7 all; or bits of one's own, a datablock stride apart for each repeat
   * @returns rsvdCnt: elements kept
   */
  GatherMask(
    line: string,
    dst: LocalTensor,
    src: LocalTensor,
    pattern: number | LocalTensor,
    params: GatherMaskParams,
  ): number {
    checkCount(params.repeatTimes, 'GatherMask: repeatTimes');
    if (typeof pattern === 'number') checkCount(pattern, 'GatherMask: pattern', 1, 7);
    const { core } = this;
    const size = sizeBytes(src.type);
    const lanes = REPEAT / size;
    const wide = wideOf(core, src.type);
    const reads: Access[] = [];
    const step = params.src0RepeatStride * BLOCK;
    for (let r = 0; r < params.repeatTimes; r++) reads.push({ at: src.address + r * step, bytes: REPEAT });
    check(core, line, 'GatherMask', src, reads, Q.V, 'reads');
    this.#aligned(line, 'GatherMask', [dst, src]);
    const kept: number[] = [];
    for (let r = 0; r < params.repeatTimes; r++) {
      const from = (src.address + r * step) / size;
      for (let lane = 0; lane < lanes; lane++)
        if (selects(core, pattern, r, lane, params)) kept.push(wide[from + lane] ?? 0);
    }
    if (typeof pattern !== 'number') {
      const bits = Array.from({ length: params.repeatTimes }, (_, r) => ({
        at: pattern.address + r * (params.src1RepeatStride ?? 0) * BLOCK,
        bytes: lanes / 8,
      }));
      check(core, line, 'GatherMask', pattern, bits, Q.V, 'reads');
      reads.push(...bits);
    }
    const writes = [{ at: dst.address, bytes: kept.length * size }];
    check(core, line, 'GatherMask', dst, writes, Q.V, 'writes');
    const to = dst.address / size;
    for (const [i, value] of kept.entries()) if (to + i < wide.length) wide[to + i] = value;
    const elements = params.repeatTimes * lanes;
    const cycles = vectorCycles(
      'GatherMask',
      src.type === 'f32' ? 'f32' : 'f16',
      elements,
      params.repeatTimes,
      core.launch.vectorTiming,
    );
    core.issue(Q.V, { name: 'GatherMask', line, reads, writes, cycles, bytes: writes[0]!.bytes, elements });
    return kept.length;
  }

  /** dst[i] = the element of src at byte `offsets[i]`. */
  Gather(line: string, dst: LocalTensor, src: LocalTensor, offsets: LocalTensor, count: number): void {
    checkCount(count, 'Gather: count', 1);
    const { core } = this;
    const size = sizeBytes(dst.type);
    const wide = wideOf(core, dst.type);
    const at = offsets.address / 4;
    this.#aligned(line, 'Gather', [dst, src, offsets]);
    let low = Number.POSITIVE_INFINITY;
    let high = 0;
    const picked: number[] = [];
    for (let i = 0; i < count; i++) {
      const offset = core.u32[at + i]!;
      low = Math.min(low, offset);
      high = Math.max(high, offset + size);
      picked.push(wide[(src.address + offset) / size] ?? 0);
    }
    const fromSrc = { at: src.address + low, bytes: high - low };
    const fromOffsets = { at: offsets.address, bytes: count * 4 };
    const writes = [{ at: dst.address, bytes: count * size }];
    check(core, line, 'Gather', src, [fromSrc], Q.V, 'reads');
    check(core, line, 'Gather', offsets, [fromOffsets], Q.V, 'reads');
    check(core, line, 'Gather', dst, writes, Q.V, 'writes');
    for (let i = 0; i < count; i++) wide[dst.address / size + i] = picked[i]!;
    const repeats = Math.ceil((count * size) / REPEAT);
    const cycles = vectorCycles('Gather', dst.type === 'f32' ? 'f32' : 'f16', count, repeats, core.launch.vectorTiming);
    core.issue(Q.V, {
      name: 'Gather',
      line,
      reads: [fromSrc, fromOffsets],
      writes,
      cycles,
      bytes: count * size,
      elements: count,
    });
  }

  #load(line: string, name: string, dst: LocalTensor, src: GlobalTensor, index: number, params: CopyParams): void {
    const { core } = this;
    const { blockCount, blockLen } = params;
    const padded = Math.ceil(blockLen / BLOCK) * BLOCK;
    const reads: Access[] = [];
    const writes: Access[] = [];
    for (let row = 0; row < blockCount; row++) {
      const from = src.byteOf(index) + row * (blockLen + params.srcStride);
      const to = dst.address + row * (padded + params.dstStride * BLOCK);
      reads.push({ memory: src.memory, at: from, bytes: blockLen });
      writes.push({ at: to, bytes: padded });
      this.#boundGlobal(line, name, src, from, blockLen, false);
      const source = src.memory.bytes;
      // What lies past the caller's memory is nobody's: the unified buffer keeps its poison there, as the padding does.
      const end = Math.min(from + blockLen, source.length);
      core.memory.fill(0xa5, Math.max(0, to), Math.max(0, to + padded));
      if (from >= 0 && end > from && to >= 0 && to + end - from <= core.memory.length)
        core.memory.set(source.subarray(from, end), to);
    }
    check(core, line, name, dst, writes, Q.MTE2, 'writes');
    const bytes = blockCount * blockLen;
    const charged = blockCount > 1 ? blockCount * Math.max(blockLen, MIN_BURST) : bytes;
    core.launch.bytes.load += bytes;
    this.#count(src.name, bytes);
    const cycles = loadCycles(charged, core.launch.concurrent);
    core.issue(Q.MTE2, { name, line, reads, writes, cycles, bytes, elements: bytes / src.size });
  }

  /** Marks what a store has written, and says when it is none of the tensor's: what lies between its rows. */
  #cover(line: string, tensor: GlobalTensor, at: number, bytes: number): void {
    const { coverage } = tensor;
    if (!coverage) return;
    const end = Math.min((at + bytes) / tensor.size, coverage.length);
    let holes = 0;
    for (let e = Math.max(0, at / tensor.size); e < end; e++) {
      if (coverage[e] === 0) holes++;
      else coverage[e] = 2;
    }
    if (holes > 0)
      this.core.fault('gm-over-write', line, `DataCopyPad writes ${holes} elements between the rows of ${tensor.name}`);
  }

  #count(tensor: string, bytes: number): void {
    const { byTensor } = this.core.launch.bytes;
    byTensor.set(tensor, (byTensor.get(tensor) ?? 0) + bytes);
  }

  #boundGlobal(line: string, name: string, tensor: GlobalTensor, at: number, bytes: number, write: boolean): void {
    const low = tensor.byteOf(tensor.low);
    const high = tensor.byteOf(tensor.high);
    const over = Math.max(at + bytes - high, low - at);
    if (over <= 0) return;
    const [kind, verb] = write ? (['gm-over-write', 'writes'] as const) : (['gm-over-read', 'reads'] as const);
    const where = at < low ? 'before' : 'past the end of';
    this.core.fault(kind, line, `${name} ${verb} ${Math.min(over, bytes)} of ${bytes} bytes ${where} ${tensor.name}`);
    const outside = Math.max(at + bytes - tensor.memory.bytes.length, -at);
    if (outside > 0) {
      this.core.fault(
        'gm-unallocated',
        line,
        `${name} ${verb} ${Math.min(outside, bytes)} bytes past the memory that holds ${tensor.name}`,
      );
    }
  }

  #aligned(line: string, name: string, tensors: readonly LocalTensor[]): void {
    for (const t of tensors) {
      if (t.address % BLOCK === 0) continue;
      this.core.fault(
        'unaligned',
        line,
        `${name} takes addresses that are multiples of ${BLOCK}, and ${t.buffer.name} comes at ${t.address}`,
      );
    }
  }

  #binary(
    op: VectorOp,
    line: string,
    dst: LocalTensor,
    src0: LocalTensor,
    src1: LocalTensor | undefined,
    count: number | Repeats,
    compute: (a: number, b: number) => number,
  ): void {
    const { core } = this;
    if (dst.type !== 'f16' && dst.type !== 'f32') {
      core.stop('unsupported-dtype', line, `${op} does not do ${dst.type} on this architecture: Cast to f32 and back`);
    }
    const walk = new LaneWalk(dst, src0, src1, count);
    this.#vector(op, line, walk, src1 ? [src0, src1] : [src0], () => {
      if (dst.type === 'f16') {
        const { u16 } = core;
        const table = f16Table();
        walk.each((d, a, b) => {
          u16[d] = toF16(compute(table[u16[a]!]!, src1 ? table[u16[b]!]! : 0));
        });
      } else {
        const { f32 } = core; // storing to a Float32Array rounds each step
        walk.each((d, a, b) => {
          f32[d] = compute(f32[a]!, src1 ? f32[b]! : 0);
        });
      }
    });
  }

  #vector(op: VectorOp, line: string, walk: LaneWalk, sources: readonly LocalTensor[], run: () => void): void {
    const { core } = this;
    this.#aligned(line, op, [walk.dst, ...sources]);
    const writes = walk.accesses(walk.dst.address, walk.steps.dst);
    const perSource = sources.map((s, i) => walk.accesses(s.address, i === 0 ? walk.steps.src0 : walk.steps.src1));
    for (const [i, s] of sources.entries()) check(core, line, op, s, perSource[i]!, Q.V, 'reads');
    check(core, line, op, walk.dst, writes, Q.V, 'writes');
    run();
    const operands: Operand[] = sources.map((s, i) => ({
      at: s.address,
      step: i === 0 ? walk.steps.src0 : walk.steps.src1,
    }));
    const conflicts = conflictsOf(
      { at: walk.dst.address, step: walk.steps.dst },
      operands,
      walk.repeats,
      walk.lanesUsed * walk.size,
    );
    core.launch.conflicts.readRead += conflicts.readRead;
    core.launch.conflicts.readWrite += conflicts.readWrite;
    core.launch.conflicts.cycles += conflicts.cycles;
    const clean = vectorCycles(
      op,
      walk.size === 4 ? 'f32' : 'f16',
      walk.charged,
      walk.repeats,
      core.launch.vectorTiming,
    );
    core.issue(Q.V, {
      name: op,
      line,
      reads: perSource.flat(),
      writes,
      cycles: clean + conflicts.cycles,
      bytes: walk.elements * walk.size,
      elements: walk.elements,
      conflictCycles: conflicts.cycles,
    });
  }
}

/** A vector instruction by repeats. */
export interface Repeats {
  readonly mask: Mask;
  /** At most 255. */
  readonly repeats: number;
  readonly strides: RepeatParams;
}

/** Which lanes an instruction works on, and where they lie. */
class LaneWalk {
  readonly size: number;
  readonly repeats: number;
  /** Bytes from repeat to repeat. */
  readonly steps: { readonly dst: number; readonly src0: number; readonly src1: number };
  /** Lanes of a repeat from the first to the last that works. */
  readonly lanesUsed: number;
  /** Elements computed. */
  readonly elements: number;
  /** Elements that the cost counts. */
  readonly charged: number;
  readonly #lanes: readonly number[];
  readonly #count: number | undefined;

  constructor(
    readonly dst: LocalTensor,
    readonly src0: LocalTensor | undefined,
    readonly src1: LocalTensor | undefined,
    count: number | Repeats,
  ) {
    this.size = sizeBytes(dst.type);
    const full = REPEAT / this.size;
    if (typeof count === 'number') {
      checkCount(count, 'count');
      this.#count = count;
      this.repeats = Math.ceil(count / full);
      this.steps = { dst: REPEAT, src0: REPEAT, src1: REPEAT };
      this.lanesUsed = Math.min(full, count);
      this.elements = count;
      this.charged = count;
      this.#lanes = [];
      return;
    }
    checkCount(count.repeats, 'repeatTimes', 0, 255);
    const { mask } = count;
    this.repeats = count.repeats;
    this.steps = {
      dst: count.strides.dst * BLOCK,
      src0: count.strides.src0 * BLOCK,
      src1: (count.strides.src1 ?? 0) * BLOCK,
    };
    this.#lanes = Array.from({ length: full }, (_, lane) => lane).filter((lane) =>
      typeof mask === 'number' ? lane < mask : ((mask[lane >> 6]! >> BigInt(lane & 63)) & 1n) === 1n,
    );
    this.lanesUsed = (this.#lanes.at(-1) ?? -1) + 1;
    this.elements = this.#lanes.length * this.repeats;
    this.charged = full * this.repeats;
  }

  /** Calls with the element index of each operand. */
  each(visit: (dst: number, src0: number, src1: number) => void): void {
    const { size } = this;
    const d = this.dst.address / size;
    const a = (this.src0?.address ?? 0) / size;
    const b = (this.src1?.address ?? 0) / size;
    if (this.#count !== undefined) {
      for (let i = 0; i < this.#count; i++) visit(d + i, a + i, b + i);
      return;
    }
    for (let r = 0; r < this.repeats; r++) {
      const [rd, ra, rb] = [
        d + (r * this.steps.dst) / size,
        a + (r * this.steps.src0) / size,
        b + (r * this.steps.src1) / size,
      ];
      for (const lane of this.#lanes) visit(rd + lane, ra + lane, rb + lane);
    }
  }

  /** Moves bits. */
  copyBits(core: Core): void {
    const wide = wideOf(core, this.dst.type);
    this.each((d, a) => {
      wide[d] = wide[a]!;
    });
  }

  /** The bytes of an operand that the instruction touches. */
  accesses(address: number, step: number): Access[] {
    if (this.#count !== undefined) return [{ at: address, bytes: this.#count * this.size }];
    const first = (this.#lanes[0] ?? 0) * this.size;
    const bytes = this.lanesUsed * this.size - first;
    if (step === 0) return [{ at: address + first, bytes }];
    return Array.from({ length: this.repeats }, (_, r) => ({ at: address + r * step + first, bytes }));
  }
}

function wideOf(core: Core, type: LaneType): Uint16Array | Uint32Array {
  return sizeBytes(type) === 4 ? core.u32 : core.u16;
}

function selects(
  core: Core,
  pattern: number | LocalTensor,
  repeat: number,
  lane: number,
  params: GatherMaskParams,
): boolean {
  if (typeof pattern === 'number') {
    if (pattern === 7) return true;
    return pattern <= 2 ? lane % 2 === pattern - 1 : lane % 4 === pattern - 3;
  }
  const at = pattern.address + repeat * (params.src1RepeatStride ?? 0) * BLOCK;
  return ((core.memory[at + (lane >> 3)]! >> (lane & 7)) & 1) === 1;
}

function checkCopy(params: CopyParams): void {
  checkCount(params.blockCount, 'DataCopyPad: blockCount', 1, 4095);
  checkCount(params.blockLen, 'DataCopyPad: blockLen', 1, 2097151);
}
