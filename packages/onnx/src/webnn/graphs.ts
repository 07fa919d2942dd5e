/**
 * Compiled graphs, kept because they will be asked for again: a step of a decoder asks for the same ones.
 *
 * @module
 */
import { RopewalkError } from 'ropewalk';
import { firstLine } from '../backend/queue.js';
import type { MlBuilder, MlDescriptor, MlGraph, MlOperand, MlTensor, Webnn } from './api.js';
import { bytesOf, type DeviceMemory } from './memory.js';

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
