/**
 * Compiled graphs, and the memory of a WebNN context. Graphs are kept, because each step of a decoder asks for the same
 * ones.
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

export interface Definition {
  /** A name that no other graph has. */
  readonly key: string;
  /** The operator, for messages. */
  readonly what: string;
  /** Appends everything and returns the outputs by name. */
  define(ml: MlBuilder): Readonly<Record<string, MlOperand>>;
  /** The storage whose elements are a constant of the graph. */
  readonly constantOf?: object;
  readonly constantBytes?: number;
}

/** A graph, compiled or not, and the tensors through which the host exchanges data with it. */
export class Graph {
  readonly #ml: MlBuilder;
  readonly #outputs: Readonly<Record<string, MlOperand>>;
  readonly #staged = new Map<string, MlTensor>();
  /** The number of queued jobs that will use it. */
  turns = 0;
  /** True if nobody will ask for it again. */
  retired = false;
  #built: Promise<MlGraph> | undefined;

  /** @throws TypeError of WebNN for a graph that it does not take */
  constructor(
    readonly definition: Definition,
    ml: MlBuilder,
    readonly memory: DeviceMemory,
  ) {
    this.#ml = ml;
    this.#outputs = definition.define(ml);
  }

  output(name: string): MlDescriptor {
    return this.#outputs[name]!;
  }

  /** Compiles the graph. @throws {RopewalkError} DEVICE when this browser cannot build it */
  built(): Promise<MlGraph> {
    this.#built ??= this.#ml.build(this.#outputs).catch((cause: unknown) => {
      const next = 'Use another backend for this call, or another device.';
      const why = `webnn: ${this.definition.what}: the graph does not build: ${firstLine(cause)}. ${next}`;
      throw new RopewalkError('DEVICE', why, { cause });
    });
    return this.#built;
  }

  /** Returns the tensor that the host writes or reads under a name of the graph. */
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
    void this.#built?.then((graph) => graph.destroy()).catch(() => {}); // a graph that did not build needs no destroy
  }
}

/** Graphs by their keys. The graph used last is the last. */
export class Graphs {
  /** The number of graphs that were defined, for tests. */
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

  /**
   * Returns the graph of a definition for one job of the queue. It is made at its first use. @throws as {@link Graph}
   */
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

  /** Ends the use that {@link hold} began. */
  release(graph: Graph): void {
    graph.turns--;
    if (graph.retired && graph.turns === 0) graph.destroy();
  }

  /** Destroys the least recently used graph for which no job waits, and returns whether there was one. */
  dropOldest(): boolean {
    for (const [key, graph] of this.#kept) {
      if (graph.turns > 0) continue;
      this.#drop(key, graph);
      return true;
    }
    return false;
  }

  /** Destroys the graphs that hold a storage's elements, after the jobs that wait for them. */
  dropConstants(storage: object): void {
    for (const [key, graph] of this.#kept) if (graph.definition.constantOf === storage) this.#drop(key, graph);
  }

  #drop(key: string, graph: Graph): void {
    this.#kept.delete(key);
    graph.retired = true;
    if (graph.turns === 0) graph.destroy();
  }
}

/** WebNN keeps both the source of a constant and its packed form. */
export function constantBytes(descriptor: MlDescriptor): number {
  return 2 * bytesOf(descriptor);
}

const MIB = 2 ** 20;

/**
 * The largest tensor, measured in Chromium 147: 1020 MiB work, and 1024 MiB end the GPU process of all tabs, although
 * `maxTensorByteLength` is 2 GiB.
 */
export const MAX_TENSOR_BYTES = 1020 * MIB;
/** The largest constant. WebNN itself refuses a larger one. */
export const MAX_CONSTANT_BYTES = 128 * MIB;
/** Up to this many bytes of unused tensors are kept. */
const MAX_IDLE_BYTES = 256 * MIB;

const BYTES: Readonly<Record<MlDtype, number>> = /* @__PURE__ */ Object.freeze({
  float32: 4,
  float16: 2,
  int32: 4,
  uint8: 1,
});

export function bytesOf({ dataType, shape }: MlDescriptor): number {
  return countElements(shape) * BYTES[dataType];
}

export function checkTensorBytes(descriptor: MlDescriptor, what: string): void {
  const bytes = bytesOf(descriptor);
  if (bytes <= MAX_TENSOR_BYTES) return;
  const most = `at most ${mib(MAX_TENSOR_BYTES)}: a larger one would end the browser's GPU process`;
  fail('DEVICE', `webnn: ${what}`, `expected ${most}, got ${mib(bytes)}. Split it, or use cpu.`);
}

/** Allocates tensors within a limit, because a process that runs out of memory ends the contexts of all tabs. */
export class DeviceMemory {
  /** The bytes of the tensors from {@link take} that {@link free} has not destroyed, and of constants. */
  usedBytes = 0;
  #idleBytes = 0;
  readonly #idle = new Map<string, MlTensor[]>();

  /**
   * @param limitBytes - the limit for everything together
   * @param makeRoom - frees something, and returns whether there was something
   */
  constructor(
    readonly context: MlContext,
    readonly limitBytes: number,
    readonly makeRoom: () => boolean,
  ) {}

  /** Returns a tensor with undefined contents. */
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

  /** Takes a tensor back. Jobs of WebNN that use it still run. */
  free(tensor: MlTensor): void {
    const key = keyOf(tensor.dataType, tensor.shape);
    const list = this.#idle.get(key) ?? [];
    list.push(tensor);
    this.#idle.set(key, list);
    this.#idleBytes += bytesOf(tensor);
    while (this.#idleBytes > MAX_IDLE_BYTES && this.#dropIdle());
  }

  /** Counts memory that is about to be allocated. @throws {RopewalkError} DEVICE when it does not fit */
  count(bytes: number): void {
    while (this.usedBytes + bytes > this.limitBytes && (this.#dropIdle() || this.makeRoom()));
    this.check(this.usedBytes, bytes);
    this.usedBytes += bytes;
  }

  /** True if memory can be allocated without freeing what is in use. */
  hasRoom(bytes: number): boolean {
    return this.usedBytes + bytes <= this.limitBytes;
  }

  /** Refuses an allocation that does not fit. */
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

/** Writes bytes for people. */
export function mib(bytes: number): string {
  return bytes < MIB ? `${bytes} bytes` : `${Math.round(bytes / MIB)} MiB`;
}
