/**
 * One vector core: four queues, a unified buffer, the order that flags and barriers make, and a shadow memory that
 * remembers which instruction touched which bytes.
 *
 * The scalar unit issues instructions in program order. Every queue runs its instructions in order and finishes them
 * later. Data moves when an instruction is issued, which is right for every program without races; the shadow finds the
 * races. @module
 */
import { refuse } from 'ropewalk/backend';
import { checkInteger, type OptionNames, optionNames, readName, readOptions } from 'ropewalk/internal';
import {
  CACHE_LINE,
  CHIPS,
  type ChipName,
  HEADS,
  ISSUE,
  LARGE_LOAD,
  MAX_BUFFERS,
  MAX_EVENTS,
  QUEUE_DEPTH,
  SCALAR_MISS,
  SCALAR_UB,
  UB_BYTES,
} from './costs.js';
import { type Allocation, GRAIN, Shadow } from './memory.js';
import type { BlockRun, BufferEntry, Finding, FindingKind, InstructionRecord } from './trace.js';
import { type MachineOptions, type PerQueue, QUEUES, type QueueName } from './trace.js';

/** A queue by its position in {@link QUEUES}. */
export const Q = /* @__PURE__ */ Object.freeze({ S: 0, V: 1, MTE2: 2, MTE3: 3 } as const);
export type QueueIndex = 0 | 1 | 2 | 3;

/** The bytes of the unified buffer before anything is written: they are finite in every dtype, and stand out. */
export const POISON = 0xa5;

/** Ends a kernel that cannot go on; launchKernel catches it. */
export class Stopped extends Error {}

/** A run of bytes that an instruction touches. */
export interface Access {
  /** The allocation in global memory; undefined for the unified buffer. */
  readonly memory?: Allocation;
  /** Bytes from the start of the memory. */
  readonly at: number;
  readonly bytes: number;
}

/** The instruction and the kernel's statement, which findings name. */
export type Statement = { readonly name: string; readonly line: string };

/** One instruction, ready to be issued. */
export interface Instruction extends Statement {
  readonly reads: readonly Access[];
  readonly writes: readonly Access[];
  readonly cycles: number;
  readonly bytes: number;
  readonly elements: number;
  readonly conflictCycles?: number;
}

/** A point in the order of a core's work. */
export interface Mark {
  readonly time: number;
  /** How many instructions of each queue are complete at this point. */
  readonly clock: readonly number[];
  readonly why: string;
  /** The entry of the trace that makes it, −1 when none was recorded. */
  readonly index: number;
}

/** The cycles that a statement took on a queue. */
export type LineCost = { readonly queue: QueueName; readonly line: string; cycles: number };

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

/** The list of findings that all cores of a run share. */
export class Findings {
  readonly #byKey = new Map<string, Mutable<Finding>>();

  /** Adds a finding, or counts it when its kind, line and `part` are known. */
  add(
    found: Pick<Finding, 'kind' | 'line' | 'message'> & Partial<Finding['first'] & Pick<Finding, 'fatal' | 'count'>>,
    part = '',
  ): void {
    const { kind, line, message, block = 0, cycle = 0, fatal = false, count = 1 } = found;
    const key = `${kind} ${line} ${part}`;
    const known = this.#byKey.get(key);
    if (known) known.count += count;
    else this.#byKey.set(key, { kind, message, line, first: { block, cycle: Math.round(cycle) }, count, fatal });
  }

  /** Lists the findings in the order in which they first happened. */
  list(): readonly Finding[] {
    return [...this.#byKey.values()];
  }
}

/** The part of a launch that all of its cores share. */
export interface Launch {
  readonly chip: ChipName;
  readonly capacity: number;
  readonly autoSync: boolean;
  readonly vectorTiming: 'published' | 'repeats';
  readonly checkRaces: boolean;
  /** Cores that run at the same time. */
  readonly concurrent: number;
  readonly findings: Findings;
  readonly bytes: { load: number; store: number; scalar: number; byTensor: Map<string, number> };
  readonly conflicts: { readRead: number; readWrite: number; writeWrite: number; cycles: number };
}

/** Makes what the cores of a launch share; `autoSync` is the kernel's default. */
export function newLaunch(machine: KnownMachine, autoSync: boolean, blocks: number): Launch {
  const capacity = machine.unifiedBufferBytes ?? UB_BYTES;
  if (!Number.isInteger(capacity) || capacity < 32 || capacity % 32 !== 0 || capacity > UB_BYTES)
    refuse('RANGE', 'aicore: unifiedBufferBytes', `a multiple of 32 in [32, ${UB_BYTES}]`, capacity);
  return {
    chip: machine.chip,
    capacity,
    autoSync: machine.autoSync ?? autoSync,
    vectorTiming: readName(machine.vectorTiming ?? 'published', ['published', 'repeats'], 'aicore: vectorTiming'),
    checkRaces: machine.checkRaces ?? true,
    concurrent: Math.max(1, Math.min(blocks, machine.cores)),
    findings: new Findings(),
    bytes: { load: 0, store: 0, scalar: 0, byTensor: new Map() },
    conflicts: { readRead: 0, readWrite: 0, writeWrite: 0, cycles: 0 },
  };
}

const MACHINE_NAMES: OptionNames<MachineOptions> = /* @__PURE__ */ optionNames(
  'chip unifiedBufferBytes autoSync cores vectorTiming checkRaces',
);

/** The options of a machine, with its chip and the number of vector cores that a launch may use. */
export type KnownMachine = MachineOptions & { readonly chip: ChipName; readonly cores: number };

/** Reads the options of a machine. */
export function readMachine(given: MachineOptions | undefined, where = 'aicore: machine'): KnownMachine {
  const options = readOptions(given ?? {}, where, MACHINE_NAMES);
  const chip = readName(options.chip ?? '910B3', Object.keys(CHIPS) as ChipName[], 'aicore: chip');
  const most = CHIPS[chip].cores;
  return { ...options, chip, cores: checkInteger(options.cores ?? most, 'aicore: cores', 1, most) };
}

/** A unified buffer and its shadow. One serves all cores of a run, one after the other. */
export class UnifiedBuffer {
  readonly bytes: Uint8Array;
  /** The last write of each grain: sequence · 4 + queue, 0 for none. */
  readonly writer: Shadow;
  /** The sequence of each queue's last read of each grain. */
  readonly readers: readonly Shadow[];
  /** One past the highest byte that was touched since the last clear. */
  high = 0;

  constructor(capacity: number) {
    this.bytes = new Uint8Array(capacity).fill(POISON);
    this.writer = new Shadow(capacity);
    this.readers = QUEUES.map(() => new Shadow(capacity));
  }

  /** Forgets everything. Only touched bytes are cleared, because each block clears the buffer. */
  clear(): void {
    const grains = Math.ceil(this.high / GRAIN);
    this.bytes.fill(POISON, 0, this.high);
    this.writer.clear(grains);
    for (const reader of this.readers) reader.clear(grains);
    this.high = 0;
  }
}

/** A vector core that runs one block of a kernel. */
export class Core {
  /** The unified buffer, and the same bytes as wider lanes. */
  readonly memory: Uint8Array;
  readonly u16: Uint16Array;
  readonly u32: Uint32Array;
  readonly f32: Float32Array;
  /** The allocations of the unified buffer so far. */
  readonly buffers: BufferEntry[] = [];
  /** The first byte of the unified buffer that is free. */
  top = 0;

  readonly #buffer: UnifiedBuffer;
  /** The scalar unit's clock. */
  #now: number = HEADS.operator;
  /** When each queue can take its next instruction. */
  readonly #ready: number[];
  /** The mark that each queue waits for before its next instruction. */
  readonly #wait: { time: number; why: string; index: number }[] = QUEUES.map(() => ({ time: 0, why: '', index: -1 }));
  /** The sequence of each queue's last instruction; the first has 1. */
  readonly #seq = [0, 0, 0, 0];
  /** For each queue: the instructions of every queue that are complete before its next one. */
  readonly #known = QUEUES.map(() => new Int32Array(4));
  /** End, entry in the trace and four clock values of each queue's instructions, by their sequence. */
  readonly #history = QUEUES.map(() => ({ ends: [0], indices: [-1], clocks: [0, 0, 0, 0] }));
  readonly #busy = [0, 0, 0, 0];
  readonly #count = [0, 0, 0, 0];
  readonly #flags = new Map<string, Mark[]>();
  /** The lines of global memory that the scalar unit's cache holds. */
  readonly #lines = new Set<string>();
  /** The start and the end of each span in which a queue worked without a gap. */
  readonly #spans: number[][] = QUEUES.map(() => []);
  readonly #costs = QUEUES.map(() => new Map<string, LineCost>());
  /** The cost that each queue added to last, because most instructions repeat the line before them. */
  readonly #costly: (LineCost | undefined)[] = QUEUES.map(() => undefined);
  /** The sequence of each queue's latest read of the unified buffer. */
  readonly #lastRead = [0, 0, 0, 0];
  readonly #record: Mutable<InstructionRecord>[] | undefined;
  #last: number = HEADS.operator;
  #index = 0;
  #large = false;
  #buffersCounted = 0;

  /** Clears the unified buffer; with `record`, keeps every instruction. */
  constructor(
    readonly block: number,
    readonly launch: Launch,
    buffer: UnifiedBuffer,
    record: boolean,
  ) {
    this.memory = buffer.bytes;
    this.u16 = new Uint16Array(this.memory.buffer);
    this.u32 = new Uint32Array(this.memory.buffer);
    this.f32 = new Float32Array(this.memory.buffer);
    this.#buffer = buffer;
    buffer.clear();
    const now = this.#now;
    this.#ready = [now, now + HEADS.V, now + HEADS.mte2(launch.concurrent, false), now + HEADS.MTE3];
    this.#record = record ? [] : undefined;
  }

  /** Reports a fault of this block; `part` tells apart faults of one kind on one line. */
  fault(kind: FindingKind, line: string, message: string, part = ''): void {
    this.launch.findings.add({ kind, line, message, block: this.block, cycle: this.#now }, part);
  }

  /** Reports a fault after which the kernel cannot go on, and ends the block. */
  stop(kind: FindingKind, line: string, message: string): never {
    this.launch.findings.add({ kind, line, message, block: this.block, cycle: this.#now, fatal: true });
    throw new Stopped(message);
  }

  /** Allocates `num` buffers, one after the other, as TPipe::InitBuffer does; sizes are rounded up to 32. */
  allocate(name: string, kind: BufferEntry['kind'], num: number, bytes: number): BufferEntry {
    const size = Math.ceil(bytes / 32) * 32;
    const line = `init: InitBuffer(${name})`;
    this.#buffersCounted += num;
    if (this.#buffersCounted > MAX_BUFFERS)
      this.stop('too-many-buffers', line, `${this.#buffersCounted} buffers, and a kernel may have ${MAX_BUFFERS}`);
    const entry = { name, kind, offset: this.top, size, num };
    this.top += size * num;
    this.buffers.push(entry);
    const { capacity } = this.launch;
    if (this.top > capacity) {
      const end = `end at ${this.top}, past the unified buffer's ${capacity}`;
      this.stop('ub-capacity', line, `${num} × ${size} bytes from offset ${entry.offset} ${end}`);
    }
    return entry;
  }

  /** Issues an instruction to V, MTE2 or MTE3. */
  issue(queue: QueueIndex, it: Instruction): void {
    this.#now += ISSUE;
    this.#busy[Q.S]! += ISSUE;
    this.#span(Q.S, this.#now - ISSUE, this.#now);
    this.#wait[Q.S]!.time = 0; // this instruction has waited
    const seq = ++this.#seq[queue]!;
    const known = this.#known[queue]!;
    // All that the scalar unit has waited for is complete before anything that it issues later.
    for (let p = 1; p < 4; p++) known[p] = Math.max(known[p]!, this.#known[Q.S]![p]!);
    const history = this.#history[queue]!;
    if (seq > QUEUE_DEPTH) this.#now = Math.max(this.#now, history.ends[seq - QUEUE_DEPTH]!);
    if (queue === Q.MTE2 && it.bytes >= LARGE_LOAD && !this.#large) {
      this.#large = true;
      this.#ready[queue]! += HEADS.mte2(this.launch.concurrent, true) - HEADS.mte2(this.launch.concurrent, false);
    }
    for (const access of it.reads) this.#touch(queue, seq, it, access, false);
    for (const access of it.writes) this.#touch(queue, seq, it, access, true);
    const { name, line, cycles, bytes, elements, conflictCycles = 0 } = it;
    const free = Math.max(this.#now, this.#ready[queue]!);
    const start = Math.max(free, this.#wait[queue]!.time);
    const end = start + cycles;
    history.ends.push(end);
    history.clocks.push(known[0]!, known[1]!, known[2]!, known[3]!);
    history.indices.push(this.#record ? this.#index : -1);
    this.#ready[queue] = end;
    this.#work(queue, line, start, end, cycles);
    if (this.#record)
      this.#keep({ queue, name, line, issue: this.#now, start, end, bytes, elements, conflictCycles }, free);
    this.#wait[queue]!.time = 0;
  }

  /** Does a scalar access of one element; the cache holds lines of global memory. */
  scalar(it: Statement, access: Access, write: boolean): void {
    const seq = ++this.#seq[Q.S]!;
    this.#known[Q.S]![Q.S] = seq - 1; // each access is done before the next one starts
    const issue = this.#now;
    this.#touch(Q.S, seq, it, access, write);
    const { memory, at, bytes } = access;
    const line = memory && `${memory.name} ${Math.floor(at / CACHE_LINE)}`;
    const misses = line !== undefined && !this.#lines.has(line);
    if (misses) {
      this.#lines.add(line);
      this.launch.bytes.scalar += CACHE_LINE;
    }
    const start = this.#now; // later than its issue where it had to wait
    const cycles = misses ? SCALAR_UB + SCALAR_MISS : SCALAR_UB;
    const end = start + cycles;
    this.#now = end;
    this.#work(Q.S, it.line, start, end, cycles);
    if (this.#record) this.#keepScalar(this.#record, { ...it, issue, start, end, bytes });
    this.#wait[Q.S]!.time = 0;
  }

  /** Records a scalar access: those of one line that follow each other without a wait are one entry. */
  #keepScalar(
    record: Mutable<InstructionRecord>[],
    it: Statement & Pick<InstructionRecord, 'issue' | 'start' | 'end' | 'bytes'>,
  ): void {
    const last = record.at(-1);
    if (last?.queue !== 'S' || last.line !== it.line || this.#wait[Q.S]!.time > 0) {
      const { name, line, ...times } = it;
      this.#keep({ queue: Q.S, name, line, ...times, elements: 1, conflictCycles: 0 }, 0);
      return;
    }
    if (!last.name.includes(it.name)) last.name += `, ${it.name}`;
    last.count++;
    last.end = it.end;
    last.bytes += it.bytes;
    last.elements++;
  }

  /**
   * Does the rounds of a scalar loop, each of which reads an element of every source and writes it. The result is that
   * of {@link scalar} one by one, but nothing is looked up twice.
   *
   * @param sources - the byte of each source's first element
   * @param target - the byte of the first element that is written; the others follow
   * @param rounds - how many elements of each source are merged
   * @returns false, with nothing done, where an access would have to wait or is recorded
   */
  scalarRounds(line: string, sources: readonly number[], target: number, bytes: number, rounds: number): boolean {
    const span = this.#spans[Q.S]!;
    const cost = this.#costly[Q.S];
    if (this.#record || cost?.line !== line || span.length === 0) return false;
    if ([target, ...sources].some((at) => at % GRAIN !== 0)) return false;
    const written = rounds * sources.length * bytes;
    if (!this.#isOrdered(target, written, true)) return false;
    if (!sources.every((at) => this.#isOrdered(at, rounds * bytes, false))) return false;
    const grains = bytes / GRAIN;
    const shadows = this.launch.checkRaces || this.launch.autoSync;
    const { writer, readers } = this.#buffer;
    const reader = readers[Q.S]!;
    if (shadows) {
      writer.open(target / GRAIN, (target + written) / GRAIN);
      for (const at of sources) reader.open(at / GRAIN, (at + rounds * bytes) / GRAIN);
    }
    let [seq, now, busy, cycles] = [this.#seq[Q.S]!, this.#now, this.#busy[Q.S]!, cost.cycles];
    let to = target / GRAIN;
    for (let round = 0; round < rounds; round++) {
      for (const source of sources) {
        const from = source / GRAIN + round * grains;
        for (let g = 0; g < grains && shadows; g++) {
          reader.grains[from + g] = seq + 1;
          writer.grains[to + g] = (seq + 2) * 4 + Q.S;
        }
        to += grains;
        seq += 2;
        now = now + SCALAR_UB + SCALAR_UB; // in this order, so that sums round as they do one by one
        busy = busy + SCALAR_UB + SCALAR_UB;
        cycles = cycles + SCALAR_UB + SCALAR_UB;
      }
    }
    const done = 2 * rounds * sources.length;
    this.#count[Q.S]! += done;
    [this.#seq[Q.S], this.#now, this.#busy[Q.S], cost.cycles] = [seq, now, busy, cycles];
    span[span.length - 1] = now;
    this.#last = Math.max(this.#last, now);
    this.#known[Q.S]![Q.S] = seq - 1;
    if (shadows) this.#lastRead[Q.S] = seq - 1;
    for (const at of sources) this.#buffer.high = Math.max(this.#buffer.high, at + rounds * bytes);
    this.#buffer.high = Math.min(this.memory.length, Math.max(this.#buffer.high, target + written));
    return true;
  }

  /** Tells whether the scalar unit can access bytes of the unified buffer at once: no earlier access is under way. */
  #isOrdered(at: number, bytes: number, write: boolean): boolean {
    if (at < 0 || at + bytes > this.memory.length) return false;
    if (!this.launch.checkRaces && !this.launch.autoSync) return true;
    const { writer, readers } = this.#buffer;
    const known = this.#known[Q.S]!;
    const [first, last] = [at / GRAIN, (at + bytes) / GRAIN];
    for (let g = first; g < last; g = writer.next(g)) {
      const w = writer.at(g);
      if ((w & 3) !== Q.S && w >> 2 > known[w & 3]!) return false;
    }
    for (let p = 1; p < 4 && write; p++) {
      const limit = known[p]!;
      if (this.#lastRead[p]! <= limit) continue;
      const reader = readers[p]!;
      for (let g = first; g < last; g = reader.next(g)) if (reader.at(g) > limit) return false;
    }
    return true;
  }

  /** Adds an instruction to the counters of its queue. */
  #work(queue: QueueIndex, line: string, start: number, end: number, cycles: number): void {
    this.#last = Math.max(this.#last, end);
    this.#busy[queue]! += cycles;
    this.#count[queue]! += 1;
    this.#span(queue, start, end);
    let cost = this.#costly[queue];
    if (cost?.line !== line) {
      cost = this.#costs[queue]!.get(line) ?? { queue: QUEUES[queue]!, line, cycles: 0 };
      this.#costs[queue]!.set(line, cost);
      this.#costly[queue] = cost;
    }
    cost.cycles += cycles;
  }

  /** Records an instruction that could have started at `free`. */
  #keep(it: Omit<InstructionRecord, 'index' | 'count' | 'queue'> & { readonly queue: QueueIndex }, free: number): void {
    const { time, why, index } = this.#wait[it.queue]!;
    const waitsFor = time > free ? { why, index: index >= 0 ? index : undefined } : undefined;
    this.#record!.push({ ...it, index: this.#index++, queue: QUEUES[it.queue]!, count: 1, waitsFor });
  }

  /** Marks the point where the work that a queue has now is done. */
  mark(queue: QueueIndex, why: string): Mark {
    const seq = this.#seq[queue]!;
    const clock = clockOf(this.#known[queue]!);
    clock[queue] = seq;
    const worked = queue !== Q.S && seq > 0;
    // A queue that must wait and has done nothing since passes the wait on.
    const time = Math.max(worked ? this.#ready[queue]! : this.#now, this.#wait[queue]!.time);
    return { time, clock, why, index: worked ? this.#history[queue]!.indices[seq]! : -1 };
  }

  /** Makes a queue wait for a mark before its next instruction; the scalar unit waits at once. */
  await(queue: QueueIndex, mark: Mark): void {
    const known = this.#known[queue]!;
    for (let p = 0; p < 4; p++) known[p] = Math.max(known[p]!, mark.clock[p]!);
    const wait = this.#wait[queue]!;
    if (mark.time > (queue === Q.S ? this.#now : wait.time)) {
      wait.time = mark.time;
      wait.why = mark.why;
      wait.index = mark.index;
    }
    if (queue === Q.S) this.#now = Math.max(this.#now, mark.time);
  }

  /** AscendC's `SetFlag<from_to>(id)`. */
  setFlag(from: QueueIndex, to: QueueIndex, id: number): void {
    const key = this.#flagKey(from, to, id);
    const set = this.#flags.get(key) ?? [];
    set.push(this.mark(from, key));
    this.#flags.set(key, set);
  }

  /** AscendC's `WaitFlag<from_to>(id)`: ends the block when the flag is not set. */
  waitFlag(from: QueueIndex, to: QueueIndex, id: number, line: string): void {
    const key = this.#flagKey(from, to, id);
    const mark = this.#flags.get(key)?.shift();
    if (!mark) this.stop('deadlock', line, `WaitFlag<${key}>: it was never set, so ${QUEUES[to]} waits for ever`);
    this.await(to, mark);
  }

  #flagKey(from: QueueIndex, to: QueueIndex, id: number): string {
    if (!Number.isInteger(id) || id < 0 || id >= MAX_EVENTS)
      refuse('RANGE', 'aicore: event id', `an integer in [0, ${MAX_EVENTS - 1}]`, id);
    return `${QUEUES[from]}_${QUEUES[to]}(${id})`;
  }

  /** AscendC's `PipeBarrier<queue>`: the queue's next instruction starts when all before it have ended. */
  barrier(queue: QueueIndex | 'ALL'): void {
    if (queue !== 'ALL') {
      if (queue !== Q.S) this.#known[queue]![queue] = this.#seq[queue]!;
      return;
    }
    for (const q of [Q.V, Q.MTE2, Q.MTE3] as const) this.await(Q.S, this.mark(q, 'PipeBarrier<PIPE_ALL>'));
    for (const known of this.#known) for (let p = 0; p < 4; p++) known[p] = this.#seq[p]!;
  }

  /** Returns the block's report. */
  finish(stopped: boolean): { run: BlockRun; costs: readonly LineCost[]; mte2Head: number } {
    const per = (list: readonly number[]): PerQueue => ({ S: list[0]!, V: list[1]!, MTE2: list[2]!, MTE3: list[3]! });
    const run = {
      block: this.block,
      cycles: this.#last,
      busy: per(this.#busy),
      instructionCount: per(this.#count),
      overlap: overlapOf(this.#spans),
      instructions: this.#record,
      stopped,
    };
    const costs = this.#costs.flatMap((lines) => [...lines.values()]);
    return { run, costs, mte2Head: HEADS.mte2(this.launch.concurrent, this.#large) };
  }

  #span(queue: QueueIndex, start: number, end: number): void {
    const spans = this.#spans[queue]!;
    const last = spans.length - 1;
    // Work that follows without a gap is one span: rounding of sums must not make two of it.
    if (last > 0 && start <= spans[last]! + 1e-6) spans[last] = end;
    else spans.push(start, end);
  }

  /** Looks for accesses that are not ordered with this one, and remembers this one as the last. */
  #touch(queue: QueueIndex, seq: number, it: Statement, access: Access, write: boolean): void {
    const { memory, at, bytes } = access;
    if (bytes <= 0) return;
    const watched = this.launch.checkRaces || this.launch.autoSync;
    const first = Math.max(0, Math.floor(at / GRAIN));
    const end = Math.ceil((at + bytes) / GRAIN);
    if (memory) {
      const known = this.#known[queue]!;
      if (memory.written && watched)
        memory.touch({ block: this.block, queue, seq, first, end, write, known }, ({ other, kind, block }) =>
          this.#hazard(queue, it, other, kind, memory.name, block),
        );
      return;
    }
    this.#buffer.high = Math.min(this.memory.length, Math.max(this.#buffer.high, at + bytes));
    if (watched) this.#touchLocal(queue, seq, it, first, Math.min(end, this.#buffer.writer.length), write);
  }

  #touchLocal(queue: QueueIndex, seq: number, it: Statement, first: number, end: number, write: boolean): void {
    const { writer, readers } = this.#buffer;
    const known = this.#known[queue]!;
    let seen = 0;
    for (let g = first; g < end; g = writer.next(g)) {
      const w = writer.at(g);
      if (w === seen || w === 0) continue;
      seen = w;
      const p = w & 3;
      if ((w >> 2 === seq && p === queue) || w >> 2 <= known[p]!) continue;
      this.#hazard(queue, it, w, write ? 'write after write' : 'read after write', this.nameAt(g * GRAIN));
    }
    if (!write) {
      readers[queue]!.set(first, end, seq);
      this.#lastRead[queue] = seq;
      return;
    }
    for (let p = 0; p < 4; p++) {
      const limit = known[p]!;
      // Within a queue, an earlier read has begun before a later write starts. A queue whose reads are all done is
      // skipped.
      if (p === queue || this.#lastRead[p]! <= limit) continue;
      const reader = readers[p]!;
      for (let g = first; g < end; g = reader.next(g)) {
        if (reader.at(g) <= limit) continue;
        this.#hazard(queue, it, reader.at(g) * 4 + p, 'write after read', this.nameAt(g * GRAIN));
        break;
      }
    }
    writer.set(first, end, seq * 4 + queue);
  }

  /**
   * Handles two accesses without an order: automatic synchronisation orders what the compiler does, and the rest is a
   * race. `other` is the earlier access, sequence · 4 + queue.
   */
  #hazard(queue: QueueIndex, it: Statement, other: number, kind: string, where: string, block = this.block): void {
    const [p, s] = [(other & 3) as QueueIndex, other >> 2];
    const scalar = p === Q.S || queue === Q.S;
    if (block === this.block && this.launch.autoSync && (scalar || (p === Q.V && queue === Q.V))) {
      const { ends, indices, clocks } = this.#history[p]!;
      const clock = p === Q.S ? clockOf(this.#known[Q.S]!) : clocks.slice(s * 4, s * 4 + 4);
      clock[p] = Math.max(clock[p]!, s);
      const time = p === Q.S ? this.#now : ends[s]!;
      const index = p === Q.S || !this.#record ? -1 : indices[s]!;
      this.await(queue, { time, clock, why: `automatic ${QUEUES[p]} → ${QUEUES[queue]}`, index });
      return;
    }
    if (!this.launch.checkRaces) return;
    const who = block === this.block ? `${QUEUES[p]} of the same core` : `${QUEUES[p]} of block ${block}`;
    const order = `no event, barrier or queue orders it after ${who} (instruction ${s} there)`;
    this.fault('race', it.line, `${it.name} on ${QUEUES[queue]}: ${kind} in ${where}, and ${order}`);
  }

  /** Names the buffer that a byte of the unified buffer belongs to. */
  nameAt(at: number): string {
    const entry = this.buffers.find((b) => at >= b.offset && at < b.offset + b.size * b.num);
    return entry ? entry.name : 'unallocated bytes';
  }
}

/** Copies a clock into a list, because a typed array takes several times longer to make. */
function clockOf(known: Int32Array): number[] {
  return [known[0]!, known[1]!, known[2]!, known[3]!];
}

/** Measures how long the spans of the queues overlap. */
function overlapOf(spans: readonly number[][]): BlockRun['overlap'] {
  const edges: [number, number][] = [];
  let busy = 0;
  for (const list of spans) {
    for (let i = 0; i < list.length; i += 2) {
      edges.push([list[i]!, 1], [list[i + 1]!, -1]);
      busy += list[i + 1]! - list[i]!;
    }
  }
  edges.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  let any = 0;
  let several = 0;
  let depth = 0;
  let last = 0;
  for (const [time, step] of edges) {
    if (depth > 0) any += time - last;
    if (depth > 1) several += time - last;
    depth += step;
    last = time;
  }
  return { any, several, share: any > 0 ? several / any : 0, parallelism: any > 0 ? busy / any : 0 };
}
