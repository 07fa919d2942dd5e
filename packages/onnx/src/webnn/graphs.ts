/**
 * Compiled graphs, kept because they will be asked for again: a step of a decoder asks for the same ones.
 *
 * @module
 */
import { RopewalkError } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import { countElements } from 'ropewalk/internal';
import { firstLine } from '../backend/queue.js';
import type { MlBuilder, MlContext, MlDescriptor, MlDtype, MlGraph, MlOperand, MlTensor, Webnn } from './api.js';

/** A small graph takes a millisecond to build. */
const MAX_COUNT = 512;

/** What a graph is made of. */
export interface Definition {
  /** A name for the graph that no other graph has. */
  readonly key: string;
  /** Names it in messages. */
  readonly what: string;
  /** Appends everything; gives the outputs by name. */
  define(ml: MlBuilder): Readonly<Record<string, MlOperand>>;
  /** The storage whose elements are a constant of it. */
  readonly constantOf?: object;
  /** Bytes that its constants take. */
  readonly constantBytes?: number;
}

/** A graph, written or built, and the tensors through which the host speaks with it. */
export class Graph {
  readonly #ml: MlBuilder;
  readonly #outputs: Readonly<Record<string, MlOperand>>;
  readonly #staged = new Map<string, MlTensor>();
  /** Turns of the queue that will use it. */
  turns = 0;
  /** Whether nobody will ask for it again. */
  retired = false;
  #built: Promise<MlGraph> | undefined;

  /** @throws TypeError of WebNN for what it does not take */
  constructor(
    readonly definition: Definition,
    ml: MlBuilder,
    readonly memory: DeviceMemory,
  ) {
    this.#ml = ml;
    this.#outputs = definition.define(ml);
  }

  /** What comes out under a name. */
  output(name: string): MlDescriptor {
    return this.#outputs[name]!;
  }

  /** The compiled graph. @throws {RopewalkError} DEVICE when this browser cannot build it */
  built(): Promise<MlGraph> {
    this.#built ??= this.#ml.build(this.#outputs).catch((cause: unknown) => {
      const next = 'Use another backend for this call, or another device.';
      const why = `webnn: ${this.definition.what}: the graph does not build: ${firstLine(cause)}. ${next}`;
      throw new RopewalkError('DEVICE', why, { cause });
    });
    return this.#built;
  }

  /** The tensor that the host writes or reads under a name of the graph's. */
  async staged(name: string, { dataType, shape }: MlDescriptor): Promise<MlTensor> {
    const kept = this.#staged.get(name);
    if (kept) return kept;
    const made = await this.memory.take(dataType, shape);
    this.#staged.set(name, made);
    return made;
  }

  destroy(): void {
    for (const tensor of this.#staged.values()) this.memory.free(tensor);
    this.memory.usedBytes -= this.definition.constantBytes ?? 0;
    void this.#built?.then((graph) => graph.destroy()).catch(() => {}); // one that did not build has nothing to destroy
  }
}

/** Graphs by their keys; the one used last is the last. */
export class Graphs {
  /** How many were written; visible for tests. */
  written = 0;
  readonly #kept = new Map<string, Graph>();

  constructor(
    readonly webnn: Webnn,
    readonly memory: DeviceMemory,
    readonly maxCount = MAX_COUNT,
  ) {}

  get count(): number {
    return this.#kept.size;
  }

  /** The graph of a definition, written at its first use, for a turn of the queue. @throws as {@link Graph} */
  hold(definition: Definition): Graph {
    const { key } = definition;
    let graph = this.#kept.get(key);
    if (graph) this.#kept.delete(key);
    else {
      while (this.#kept.size >= this.maxCount && this.dropOldest());
      graph = new Graph(definition, new this.webnn.MLGraphBuilder(this.memory.context), this.memory);
      this.memory.count(definition.constantBytes ?? 0);
      this.written++;
    }
    this.#kept.set(key, graph);
    graph.turns++;
    return graph;
  }

  /** Ends the turn that {@link hold} began. */
  release(graph: Graph): void {
    graph.turns--;
    if (graph.retired && graph.turns === 0) graph.destroy();
  }

  /** Destroys the graph used least recently that no turn waits for, and says whether there was one. */
  dropOldest(): boolean {
    for (const [key, graph] of this.#kept) {
      if (graph.turns > 0) continue;
      this.#drop(key, graph);
      return true;
    }
    return false;
  }

  /** Destroys the graphs that hold a storage's elements, after the turns that wait for them. */
  dropConstants(storage: object): void {
    for (const [key, graph] of this.#kept) if (graph.definition.constantOf === storage) this.#drop(key, graph);
  }

  #drop(key: string, graph: Graph): void {
    this.#kept.delete(key);
    graph.retired = true;
    if (graph.turns === 0) graph.destroy();
  }
}

/** Bytes of a constant, source and packed form: WebNN keeps both. */
export function constantBytes(descriptor: MlDescriptor): number {
  return 2 * bytesOf(descriptor);
}

const MIB = 2 ** 20;

/**
 * The largest tensor, measured in Chromium 147: 1020 MiB work, and 1024 MiB end the GPU process of all tabs, although
 * `maxTensorByteLength` says 2 GiB.
 */
export const MAX_TENSOR_BYTES = 1020 * MIB;
/** The largest constant: WebNN itself refuses a larger one. */
export const MAX_CONSTANT_BYTES = 128 * MIB;
/** Tensors that nobody uses are kept up to this. */
const MAX_IDLE_BYTES = 256 * MIB;

const BYTES: Readonly<Record<MlDtype, number>> = /* @__PURE__ */ Object.freeze({
  float32: 4,
  float16: 2,
  int32: 4,
  uint8: 1,
});

/** Bytes of a tensor. */
export function bytesOf({ dataType, shape }: MlDescriptor): number {
  return countElements(shape) * BYTES[dataType];
}

/** Refuses a tensor that no context may be asked for. */
export function checkTensorBytes(descriptor: MlDescriptor, what: string): void {
  const bytes = bytesOf(descriptor);
  if (bytes <= MAX_TENSOR_BYTES) return;
  const most = `at most ${mib(MAX_TENSOR_BYTES)}: a larger one would end the browser's GPU process`;
  fail('DEVICE', `webnn: ${what}`, `expected ${most}, got ${mib(bytes)}. Split it, or use cpu.`);
}

/** Makes tensors within a limit: a process that runs out of memory takes the contexts of all tabs with it. */
export class DeviceMemory {
  /** What {@link take} has made and {@link free} has not destroyed, and what was counted besides. */
  usedBytes = 0;
  #idleBytes = 0;
  readonly #idle = new Map<string, MlTensor[]>();

  /**
   * @param limitBytes - that everything together may take
   * @param makeRoom - gives something back, and says whether there was something
   */
  constructor(
    readonly context: MlContext,
    readonly limitBytes: number,
    readonly makeRoom: () => boolean,
  ) {}

  /** A tensor with anything in it. */
  async take(dataType: MlDtype, shape: readonly number[]): Promise<MlTensor> {
    const key = keyOf(dataType, shape);
    const list = this.#idle.get(key);
    const kept = list?.pop();
    if (kept) {
      if (list!.length === 0) this.#idle.delete(key);
      this.#idleBytes -= bytesOf(kept);
      return kept;
    }
    checkTensorBytes({ dataType, shape }, 'tensor');
    this.count(bytesOf({ dataType, shape }));
    return this.context.createTensor({ dataType, shape, readable: true, writable: true });
  }

  /** Takes a tensor back. What was queued with it still runs. */
  free(tensor: MlTensor): void {
    const key = keyOf(tensor.dataType, tensor.shape);
    const list = this.#idle.get(key) ?? [];
    list.push(tensor);
    this.#idle.set(key, list);
    this.#idleBytes += bytesOf(tensor);
    while (this.#idleBytes > MAX_IDLE_BYTES && this.#dropIdle());
  }

  /** Counts memory that is about to be taken. @throws {RopewalkError} DEVICE when it does not fit */
  count(bytes: number): void {
    while (this.usedBytes + bytes > this.limitBytes && (this.#dropIdle() || this.makeRoom()));
    this.check(this.usedBytes, bytes);
    this.usedBytes += bytes;
  }

  /** Whether memory can be taken without giving back what is in use. */
  hasRoom(bytes: number): boolean {
    return this.usedBytes + bytes <= this.limitBytes;
  }

  /** Refuses what does not fit beside what is there. */
  check(used: number, bytes: number): void {
    if (used + bytes <= this.limitBytes) return;
    const limit = `the limit of ${mib(this.limitBytes)}, of which ${mib(used)} are in use`;
    const next = 'Dispose of tensors, or open the backend with a larger memoryLimit if the machine has it.';
    fail('DEVICE', 'webnn: memory', `${mib(bytes)} more would pass ${limit}. ${next}`);
  }

  #dropIdle(): boolean {
    const [oldest] = this.#idle;
    if (!oldest) return false;
    const [key, list] = oldest;
    const tensor = list.shift()!;
    if (list.length === 0) this.#idle.delete(key);
    const bytes = bytesOf(tensor);
    this.#idleBytes -= bytes;
    this.usedBytes -= bytes;
    tensor.destroy();
    return true;
  }
}

function keyOf(dataType: MlDtype, shape: readonly number[]): string {
  return `${dataType} ${shape}`;
}

/** Bytes for people. */
export function mib(bytes: number): string {
  return bytes < MIB ? `${bytes} bytes` : `${Math.round(bytes / MIB)} MiB`;
}
