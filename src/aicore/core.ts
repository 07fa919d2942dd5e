/**
 * One vector core: four queues, a unified buffer, the order that flags and barriers make, and a shadow that knows who touched what.
 *
 * The scalar unit issues in program order; every queue runs its instructions in order and finishes them later. Data is moved when an
 * instruction is issued, which is right for every program without races; races are found by the shadow, not by wrong data.
 *
 * @module
 */
import { readName } from '../core/arguments.js';
import { refuse } from '../core/errors.js';
import {
  CACHE_LINE,
  CHIPS,
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
import { type Allocation, GRAIN } from './memory.js';
import {
  type BlockRun,
  type BufferEntry,
  type ChipName,
  type Finding,
  type FindingKind,
  type InstructionRecord,
  type MachineOptions,
  type PerQueue,
  QUEUES,
  type QueueName,
} from './trace.js';

/** Position of a queue in {@link QUEUES}. */
export const Q = /* @__PURE__ */ Object.freeze({ S: 0, V: 1, MTE2: 2, MTE3: 3 });
/** A queue by its position. */
export type QueueIndex = 0 | 1 | 2 | 3;

/** A kernel that cannot go on. Never leaves the room. */
export class Stopped extends Error {}

/** A run of bytes that an instruction touches. */
export interface Access {
  /** Undefined for the unified buffer. */
  readonly memory?: Allocation;
  /** Bytes from the start of the memory. */
  readonly at: number;
  readonly bytes: number;
}

/** What findings name. */
interface Statement {
  readonly name: string;
  readonly line: string;
}

/** One instruction, ready to be issued. */
export interface Instruction extends Statement {
  readonly reads: readonly Access[];
  readonly writes: readonly Access[];
  readonly cycles: number;
  readonly bytes: number;
  readonly elements: number;
  readonly conflictCycles?: number;
}

/** A point in the order of a core's work: what is complete once it is reached. */
export interface Mark {
  readonly time: number;
  /** Instructions of each queue that are complete. */
  readonly clock: Int32Array;
  readonly why: string;
  /** Entry of the trace that makes it, −1 when none was recorded. */
  readonly index: number;
}

/** Cycles that a statement took on a queue. */
export interface LineCost {
  readonly queue: QueueName;
  readonly line: string;
  cycles: number;
}

/** One findings list for all cores of a run. */
export class Findings {
  readonly #byKey = new Map<string, { -readonly [K in keyof Finding]: Finding[K] }>();

  /** Notes a fault; the same kind on the same line (and of the same `part`) is counted. */
  add(
    kind: FindingKind,
    line: string,
    message: string,
    block: number,
    cycle: number,
    fatal = false,
    count = 1,
    part = '',
  ): void {
    const key = `${kind} ${line} ${part}`;
    const known = this.#byKey.get(key);
    if (known) known.count += count;
    else this.#byKey.set(key, { kind, message, line, first: { block, cycle: Math.round(cycle) }, count, fatal });
  }

  /** In the order in which they were first met. */
  list(): readonly Finding[] {
    return [...this.#byKey.values()];
  }
}

/** What all cores of one launch share. */
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

/**
 * Checks the machine's options and makes what its cores share.
 *
 * @param options - the caller's
 * @param autoSync - the kernel's default
 * @param blocks - to be launched
 * @throws {RopewalkError} RANGE or UNSUPPORTED, naming the option
 */
export function newLaunch(options: MachineOptions, autoSync: boolean, blocks: number): Launch {
  const chip = readName(options.chip ?? '910B3', ['910B3', '910B4'], 'aicore: chip');
  const capacity = options.unifiedBufferBytes ?? UB_BYTES;
  if (!Number.isInteger(capacity) || capacity < 32 || capacity % 32 !== 0 || capacity > UB_BYTES) {
    refuse('RANGE', 'aicore: unifiedBufferBytes', `a multiple of 32 in [32, ${UB_BYTES}]`, capacity);
  }
  const cores = coresOf(options);
  const vectorTiming = options.vectorTiming ?? 'published';
  if (vectorTiming !== 'published' && vectorTiming !== 'repeats') {
    refuse('UNSUPPORTED', 'aicore: vectorTiming', 'published or repeats', vectorTiming);
  }
  return {
    chip,
    capacity,
    autoSync: options.autoSync ?? autoSync,
    vectorTiming,
    checkRaces: options.checkRaces ?? true,
    concurrent: Math.max(1, Math.min(blocks, cores)),
    findings: new Findings(),
    bytes: { load: 0, store: 0, scalar: 0, byTensor: new Map() },
    conflicts: { readRead: 0, readWrite: 0, writeWrite: 0, cycles: 0 },
  };
}

/**
 * Vector cores that a launch may use.
 *
 * @param options - the caller's
 * @throws {RopewalkError} RANGE when the chip has fewer
 */
export function coresOf(options: MachineOptions): number {
  const most = CHIPS[readName(options.chip ?? '910B3', ['910B3', '910B4'], 'aicore: chip')].cores;
  const cores = options.cores ?? most;
  if (!Number.isInteger(cores) || cores < 1 || cores > most)
    refuse('RANGE', 'aicore: cores', `an integer in [1, ${most}]`, cores);
  return cores;
}

/** Bits of the unified buffer before anything is written: finite in every dtype, and nobody's data. */
const POISON = 0xa5;

/** A unified buffer and its shadow; one serves all cores of a run, one after the other. */
export class UnifiedBuffer {
  readonly bytes: Uint8Array;
  /** Who wrote a grain last: sequence · 4 + queue, 0 for nobody. */
  readonly writer: Int32Array;
  /** The last reader of each queue, as a sequence. */
  readonly readers: readonly Int32Array[];
  /** One past the highest byte that was touched since the last clear. */
  high = 0;

  constructor(capacity: number) {
    this.bytes = new Uint8Array(capacity).fill(POISON);
    const grains = Math.ceil(capacity / GRAIN);
    this.writer = new Int32Array(grains);
    this.readers = QUEUES.map(() => new Int32Array(grains));
  }

  /** Forgets everything: what was not touched is as it was, and need not be cleared again for each block. */
  clear(): void {
    const grains = Math.ceil(this.high / GRAIN);
    this.bytes.fill(POISON, 0, this.high);
    this.writer.fill(0, 0, grains);
    for (const reader of this.readers) reader.fill(0, 0, grains);
    this.high = 0;
  }
}

/** A list of end times and clocks that grows. */
class History {
  ends = new Float64Array(64);
  clocks = new Int32Array(64 * 4);
  indices = new Int32Array(64);

  push(seq: number, end: number, clock: Int32Array, index: number): void {
    if (seq >= this.ends.length) {
      const grow = <T extends Float64Array | Int32Array>(old: T, into: T): T => {
        into.set(old);
        return into;
      };
      this.ends = grow(this.ends, new Float64Array(this.ends.length * 2));
      this.clocks = grow(this.clocks, new Int32Array(this.clocks.length * 2));
      this.indices = grow(this.indices, new Int32Array(this.indices.length * 2));
    }
    this.ends[seq] = end;
    this.clocks.set(clock, seq * 4);
    this.indices[seq] = index;
  }
}

/** A vector core that runs one block of a kernel. */
export class Core {
  /** The unified buffer. */
  readonly memory: Uint8Array;
  readonly u16: Uint16Array;
  readonly u32: Uint32Array;
  readonly f32: Float32Array;
  /** What was allocated of it. */
  readonly buffers: BufferEntry[] = [];
  /** First free byte of it. */
  top = 0;

  readonly #buffer: UnifiedBuffer;
  /** The scalar unit's clock. */
  #now: number;
  /** End of the last instruction of each queue, or when it can take its first. */
  readonly #ready: number[];
  /** What each queue was told to wait for before its next instruction. */
  readonly #wait: { time: number; why: string; index: number }[] = QUEUES.map(() => ({ time: 0, why: '', index: -1 }));
  readonly #seq = [0, 0, 0, 0];
  readonly #known = QUEUES.map(() => new Int32Array(4));
  readonly #history = QUEUES.map(() => new History());
  readonly #busy = [0, 0, 0, 0];
  readonly #count = [0, 0, 0, 0];
  readonly #flags = new Map<string, Mark[]>();
  readonly #lines = new Set<string>();
  readonly #spans: number[][] = QUEUES.map(() => []);
  readonly #costs = QUEUES.map(() => new Map<string, LineCost>());
  readonly #record: Mutable<InstructionRecord>[] | undefined;
  #last = 0;
  #index = 0;
  #large = false;
  #buffersCounted = 0;

  /**
   * @param block - GetBlockIdx
   * @param launch - what the cores share
   * @param buffer - the unified buffer; cleared here
   * @param record - keep every instruction
   */
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
    this.#now = HEADS.operator;
    this.#last = this.#now;
    this.#ready = [
      this.#now,
      this.#now + HEADS.V,
      this.#now + HEADS.mte2(launch.concurrent, false),
      this.#now + HEADS.MTE3,
    ];
    this.#record = record ? [] : undefined;
  }

  /** The scalar unit's clock, in cycles. */
  get now(): number {
    return this.#now;
  }

  /** Notes a fault of this block; `part` tells apart faults of one kind on one line. */
  fault(kind: FindingKind, line: string, message: string, part = ''): void {
    this.launch.findings.add(kind, line, message, this.block, this.#now, false, 1, part);
  }

  /** Notes a fault after which the kernel cannot go on, and ends the block. */
  stop(kind: FindingKind, line: string, message: string): never {
    this.launch.findings.add(kind, line, message, this.block, this.#now, true);
    throw new Stopped(message);
  }

  /**
   * Takes bytes of the unified buffer, one after the other, as TPipe::InitBuffer does.
   *
   * @returns the offset of the first of `num` buffers
   */
  allocate(name: string, kind: BufferEntry['kind'], num: number, bytes: number): number {
    checkCount(num, `InitBuffer(${name}): num`, 1);
    checkCount(bytes, `InitBuffer(${name}): bytes`, 1);
    const size = Math.ceil(bytes / 32) * 32;
    const line = `init: InitBuffer(${name})`;
    this.#buffersCounted += num;
    if (this.#buffersCounted > MAX_BUFFERS) {
      this.stop('too-many-buffers', line, `${this.#buffersCounted} buffers, and a kernel may have ${MAX_BUFFERS}`);
    }
    const offset = this.top;
    this.top += size * num;
    this.buffers.push({ name, kind, offset, size, num });
    if (this.top > this.launch.capacity) {
      this.stop(
        'ub-capacity',
        line,
        `${num} × ${size} bytes from offset ${offset} end at ${this.top}, past the unified buffer's ${this.launch.capacity}`,
      );
    }
    return offset;
  }

  /** Hands an instruction of V, MTE2 or MTE3 over. */
  issue(queue: QueueIndex, it: Instruction): void {
    this.#advance(ISSUE);
    this.#busy[Q.S]! += ISSUE;
    this.#span(Q.S, this.#now - ISSUE, this.#now);
    this.#wait[Q.S]!.time = 0; // it was this instruction that waited
    const seq = ++this.#seq[queue]!;
    const known = this.#known[queue]!;
    // What the scalar unit has waited for is complete before anything it issues later.
    for (let p = 1; p < 4; p++) known[p] = Math.max(known[p]!, this.#known[Q.S]![p]!);
    const history = this.#history[queue]!;
    if (seq > QUEUE_DEPTH) this.#now = Math.max(this.#now, history.ends[seq - QUEUE_DEPTH]!);
    if (queue === Q.MTE2 && it.bytes >= LARGE_LOAD && !this.#large) {
      this.#large = true;
      this.#ready[queue]! += HEADS.mte2(this.launch.concurrent, true) - HEADS.mte2(this.launch.concurrent, false);
    }
    for (const access of it.reads) this.#reach(access);
    for (const access of it.writes) this.#reach(access);
    this.#check(queue, seq, it);
    const wait = this.#wait[queue]!;
    const free = Math.max(this.#now, this.#ready[queue]!);
    const start = Math.max(free, wait.time);
    const end = start + it.cycles;
    history.push(seq, end, known, this.#record ? this.#index : -1);
    this.#ready[queue] = end;
    this.#last = Math.max(this.#last, end);
    this.#busy[queue]! += it.cycles;
    this.#count[queue]! += 1;
    this.#cost(queue, it.line, it.cycles);
    this.#span(queue, start, end);
    this.#record?.push({
      index: this.#index++,
      queue: QUEUES[queue]!,
      name: it.name,
      line: it.line,
      issue: this.#now,
      start,
      end,
      count: 1,
      bytes: it.bytes,
      elements: it.elements,
      conflictCycles: it.conflictCycles ?? 0,
      ...(wait.time > free ? { waitsFor: { why: wait.why, ...(wait.index >= 0 ? { index: wait.index } : {}) } } : {}),
    });
    wait.time = 0;
  }

  /** Does a scalar access: on the unified buffer, or on global memory through the cache. */
  scalar(name: string, line: string, access: Access, write: boolean, elements = 1): void {
    const seq = ++this.#seq[Q.S]!;
    this.#known[Q.S]![Q.S] = seq - 1;
    this.#reach(access);
    const issue = this.#now;
    if (this.launch.checkRaces || this.launch.autoSync) this.#touch(Q.S, seq, { name, line }, access, write);
    const start = this.#now; // later where it had to wait
    const wait = this.#wait[Q.S]!;
    let cycles = SCALAR_UB;
    if (access.memory) {
      for (let at = access.memory.lineOf(access.at); at <= access.memory.lineOf(access.at + access.bytes - 1); at++) {
        const key = `${access.memory.name} ${at}`;
        if (this.#lines.has(key)) continue;
        this.#lines.add(key);
        cycles += SCALAR_MISS;
        this.launch.bytes.scalar += CACHE_LINE;
      }
    }
    this.#now = start + cycles;
    this.#last = Math.max(this.#last, this.#now);
    this.#busy[Q.S]! += cycles;
    this.#count[Q.S]! += 1;
    this.#cost(Q.S, line, cycles);
    this.#span(Q.S, start, this.#now);
    if (this.#record) {
      const last = this.#record.at(-1);
      if (last && last.queue === 'S' && last.line === line && wait.time === 0) {
        if (!last.name.includes(name)) last.name += `, ${name}`;
        last.count++;
        last.end = this.#now;
        last.bytes += access.bytes;
        last.elements += elements;
      } else {
        this.#record.push({
          index: this.#index++,
          queue: 'S',
          name,
          line,
          issue,
          start,
          end: this.#now,
          count: 1,
          bytes: access.bytes,
          elements,
          conflictCycles: 0,
          ...(wait.time > 0 ? { waitsFor: { why: wait.why, ...(wait.index >= 0 ? { index: wait.index } : {}) } } : {}),
        });
      }
    }
    wait.time = 0;
  }

  /** What is complete once the work that a queue has now is done. */
  mark(queue: QueueIndex, why: string): Mark {
    const clock = Int32Array.from(this.#known[queue]!);
    clock[queue] = this.#seq[queue]!;
    // A queue that was told to wait and has done nothing since hands the wait on.
    const done = queue === Q.S || this.#seq[queue]! === 0 ? this.#now : this.#ready[queue]!;
    const time = Math.max(done, this.#wait[queue]!.time);
    const index = this.#seq[queue]! > 0 && queue !== Q.S ? this.#history[queue]!.indices[this.#seq[queue]!]! : -1;
    return { time, clock, why, index };
  }

  /** Lets a queue wait for a mark before its next instruction; the scalar unit waits at once. */
  await(queue: QueueIndex, mark: Mark): void {
    const known = this.#known[queue]!;
    for (let p = 0; p < 4; p++) known[p] = Math.max(known[p]!, mark.clock[p]!);
    const wait = this.#wait[queue]!;
    if (mark.time > (queue === Q.S ? this.#now : wait.time))
      Object.assign(wait, { time: mark.time, why: mark.why, index: mark.index });
    if (queue === Q.S) this.#now = Math.max(this.#now, mark.time);
  }

  /** AscendC's `SetFlag<from_to>(id)`. */
  setFlag(from: QueueIndex, to: QueueIndex, id: number): void {
    const key = this.#flagKey(from, to, id);
    const set = this.#flags.get(key) ?? [];
    set.push(this.mark(from, `${key}`));
    this.#flags.set(key, set);
  }

  /** AscendC's `WaitFlag<from_to>(id)`: ends the block when nobody has set the flag. */
  waitFlag(from: QueueIndex, to: QueueIndex, id: number, line: string): void {
    const key = this.#flagKey(from, to, id);
    const mark = this.#flags.get(key)?.shift();
    if (!mark) this.stop('deadlock', line, `WaitFlag<${key}>: nobody has set it, so ${QUEUES[to]} waits for ever`);
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

  /** The block's result; call it once, at the end. */
  finish(stopped: boolean): { run: BlockRun; costs: readonly LineCost[]; mte2Head: number } {
    const per = (list: readonly number[]): PerQueue => ({ S: list[0]!, V: list[1]!, MTE2: list[2]!, MTE3: list[3]! });
    const run = {
      block: this.block,
      cycles: this.#last,
      busy: per(this.#busy),
      instructionCount: per(this.#count),
      overlap: overlapOf(this.#spans),
      ...(this.#record ? { instructions: this.#record } : {}),
      stopped,
    };
    const costs = this.#costs.flatMap((lines) => [...lines.values()]);
    return { run, costs, mte2Head: HEADS.mte2(this.launch.concurrent, this.#large) };
  }

  #advance(cycles: number): void {
    this.#now += cycles;
  }

  #cost(queue: QueueIndex, line: string, cycles: number): void {
    const known = this.#costs[queue]!.get(line);
    if (known) known.cycles += cycles;
    else this.#costs[queue]!.set(line, { queue: QUEUES[queue]!, line, cycles });
  }

  #span(queue: QueueIndex, start: number, end: number): void {
    const spans = this.#spans[queue]!;
    const last = spans.length - 1;
    // Work that follows without a gap is one span: rounding of sums must not make two of it.
    if (last > 0 && start <= spans[last]! + 1e-6) spans[last] = end;
    else spans.push(start, end);
  }

  #reach(access: Access): void {
    if (!access.memory && access.bytes > 0)
      this.#buffer.high = Math.min(this.memory.length, Math.max(this.#buffer.high, access.at + access.bytes));
  }

  /** Looks for accesses that nothing orders, and makes this one the last. */
  #check(queue: QueueIndex, seq: number, it: Instruction): void {
    if (!this.launch.checkRaces && !this.launch.autoSync) return;
    for (const access of it.reads) this.#touch(queue, seq, it, access, false);
    for (const access of it.writes) this.#touch(queue, seq, it, access, true);
  }

  #touch(queue: QueueIndex, seq: number, it: Statement, access: Access, write: boolean): void {
    if (access.bytes <= 0) return;
    const first = Math.floor(access.at / GRAIN);
    const end = Math.ceil((access.at + access.bytes) / GRAIN);
    if (access.memory) {
      const { name } = access.memory;
      const found = (p: QueueIndex, s: number, block: number, kind: string) =>
        this.#hazard(queue, it, p, s, block, kind, name);
      access.memory.touch(this.block, queue, seq, first, end, write, found, this.#known[queue]!);
      return;
    }
    const { writer, readers } = this.#buffer;
    const last = Math.min(end, writer.length);
    const known = this.#known[queue]!;
    let seen = 0;
    for (let g = Math.max(0, first); g < last; g++) {
      const w = writer[g]!;
      if (w === seen || w === 0) continue;
      seen = w;
      const p = (w & 3) as QueueIndex;
      const s = w >> 2;
      if (s === seq && p === queue) continue;
      if (s > known[p]!)
        this.#hazard(
          queue,
          it,
          p,
          s,
          this.block,
          write ? 'write after write' : 'read after write',
          this.nameAt(g * GRAIN),
        );
    }
    if (!write) {
      readers[queue]!.fill(seq, Math.max(0, first), last);
      return;
    }
    for (let p = 0; p < 4; p++) {
      if (p === queue) continue; // a queue starts in order: an earlier read has begun before a later write
      const reader = readers[p]!;
      const limit = known[p]!;
      for (let g = Math.max(0, first); g < last; g++) {
        if (reader[g]! <= limit) continue;
        this.#hazard(queue, it, p as QueueIndex, reader[g]!, this.block, 'write after read', this.nameAt(g * GRAIN));
        break;
      }
    }
    writer.fill(seq * 4 + queue, Math.max(0, first), last);
  }

  /** Two accesses without an order: automatic synchronisation makes one where the compiler does, else it is a race. */
  #hazard(
    queue: QueueIndex,
    it: Statement,
    p: QueueIndex,
    s: number,
    block: number,
    kind: string,
    where: string,
  ): void {
    const scalar = p === Q.S || queue === Q.S;
    if (block === this.block && this.launch.autoSync && (scalar || (p === Q.V && queue === Q.V))) {
      const history = this.#history[p]!;
      const clock = p === Q.S ? Int32Array.from(this.#known[Q.S]!) : history.clocks.slice(s * 4, s * 4 + 4);
      clock[p] = Math.max(clock[p]!, s);
      const time = p === Q.S ? this.#now : history.ends[s]!;
      this.await(queue, {
        time,
        clock,
        why: `automatic ${QUEUES[p]} → ${QUEUES[queue]}`,
        index: p === Q.S || !this.#record ? -1 : history.indices[s]!,
      });
      return;
    }
    if (!this.launch.checkRaces) return;
    const who = block === this.block ? `${QUEUES[p]} of the same core` : `${QUEUES[p]} of block ${block}`;
    this.fault(
      'race',
      it.line,
      `${it.name} on ${QUEUES[queue]}: ${kind} in ${where}, and no event, barrier or queue orders it after ${who} (instruction ${s} there)`,
    );
  }

  /** The buffer that a byte of the unified buffer belongs to. */
  nameAt(at: number): string {
    const entry = this.buffers.find((b) => at >= b.offset && at < b.offset + b.size * b.num);
    return entry ? entry.name : 'unallocated bytes';
  }
}

/** Refuses what is no count: an instruction of NaN lanes would take NaN cycles. */
export function checkCount(count: number, what: string, least = 0, most = Number.MAX_SAFE_INTEGER): void {
  if (!Number.isInteger(count) || count < least || count > most)
    refuse(
      'RANGE',
      `aicore: ${what}`,
      most < Number.MAX_SAFE_INTEGER ? `an integer in [${least}, ${most}]` : `an integer >= ${least}`,
      count,
    );
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

/** Sweeps the spans of all queues. */
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
