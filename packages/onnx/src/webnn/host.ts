/**
 * The WebNN backend. Each plan becomes the graph that `ropewalk export --form primitives` writes, but WebNN's builder
 * makes it instead of a file.
 *
 * The host does the work that graphs of fixed shapes cannot do: tables of cos and sin, masks, f64 and other dtypes that
 * are only moved, bf16, and the widening of blocks. Everything else stays in WebNN's memory from operator to operator.
 *
 * @module
 */
import type { ArrayOf, Backend, BlockTensor, Capabilities, Dtype, HostArray, OpPlan, TensorStorage } from 'ropewalk';
import { planRearrange, RopewalkError, Tensor, zeros } from 'ropewalk';
import { denseTensor, fail, isRowMajor } from 'ropewalk/backend';
import type { Layout, LinearPlan, OptionNames } from 'ropewalk/internal';
import {
  checkFields,
  checkInteger,
  copyBits,
  countElements,
  extentOf,
  readName,
  readOptions,
  roundsActivations,
  whyFloat64,
} from 'ropewalk/internal';
import type { Prepared, Source, Target } from '../backend/graph.js';
import { denseLayout, pack, prepare, unpack, withDenseStandIns } from '../backend/graph.js';
import { firstLine, gone, QueuedBackend } from '../backend/queue.js';
import { GraphBuilder } from '../export/builder.js';
import type { EmitOptions } from '../export/plan-graph.js';
import type { MlBuilder, MlDescriptor, MlDtype, MlOperand, MlTensor } from './api.js';
import type { Definition, Graph } from './graphs.js';
import {
  bytesOf,
  checkTensorBytes,
  constantBytes,
  DeviceMemory,
  Graphs,
  MAX_CONSTANT_BYTES,
  MAX_TENSOR_BYTES,
} from './graphs.js';
import { collected, type HostMove, moveOnHost, widen } from './host-work.js';
import { type OpenContext, openContext, supportOf } from './open.js';
import type { Output } from './outputs.js';
import { beforeName, defineOutputs, keyOfOutput, placesName, placesOf, readLayout, resultName } from './outputs.js';
import { HostSideStorage, type Stretch, WebnnStorage } from './storage.js';
import { keyOfNodes, type MlDtypes, writeNodes } from './writer.js';

const GIB = 2 ** 30;
/** Weights become a constant for products with at most this many rows. With more rows, WebNN is as fast without. */
const CONSTANT_ROWS = 8;
/** WebNN's dtype for each of ours. Other dtypes, such as f64, stay on the host. */
const TYPES: MlDtypes = /* @__PURE__ */ Object.freeze({
  f32: 'float32',
  f16: 'float32',
  bf16: 'float32',
  i32: 'int32',
  i64: 'int32',
});
const GRAPHS: EmitOptions = /* @__PURE__ */ Object.freeze({ form: 'primitives', tables: 'inputs' });

/** The nodes of a plan before the places of its tensors are known, and a key for them. */
interface PlanNodes {
  readonly builder: GraphBuilder;
  readonly key: string;
}

/** The graph of a plan, or a move that the host does without one. It has neither if every output is empty. */
type PreparedCall = Prepared & { readonly nodes?: PlanNodes; readonly move?: HostMove };

/** An input of a graph: its definition, and the tensor for a call. */
interface Input {
  readonly name: string;
  readonly key: string;
  define(ml: MlBuilder): MlOperand;
  /** Undefined for a constant. */
  tensor?(graph: Graph): Promise<MlTensor>;
  /** The storage whose elements are the constant. */
  readonly constant?: WebnnStorage;
}

/** The backend that {@link openWebnn} opens. */
export class WebnnBackend extends QueuedBackend<PreparedCall> implements Backend {
  readonly #open: OpenContext;
  /** True if graphs can round to f16. */
  readonly #rounds16: boolean;
  /** The bytes of tensors that callers hold. */
  #heldBytes = 0;
  readonly memory: DeviceMemory;
  /** Visible for tests. */
  readonly graphs: Graphs;

  constructor(open: OpenContext, memoryLimit: number) {
    super('webnn');
    this.#open = open;
    const { context, limits, webnn } = open;
    this.memory = new DeviceMemory(context, memoryLimit, () => this.graphs.dropOldest());
    this.graphs = new Graphs(webnn, this.memory);
    this.#rounds16 = supportOf(limits, 'cast', 'output')?.dataTypes.includes('float16') ?? false;
    void context.lost.then(({ message }) => {
      this.queue.close(`the context was lost: ${firstLine(message) || 'the browser does not say why'}`);
    });
  }

  capabilities(): Capabilities {
    const { devices } = this.#open;
    const device = devices.length > 0 ? devices.join(', ') : 'a device that the browser does not name';
    const { limitBytes } = this.memory;
    return {
      backend: this.name,
      description: `WebNN on ${device}, graphs of primitives`,
      dtypes: ['f32', 'f16', 'bf16'],
      threads: devices.every((name) => name === 'cpu') ? threadsOf() : 0,
      memory: { availableBytes: Math.max(0, limitBytes - this.#heldBytes), tensorBytes: MAX_TENSOR_BYTES },
      notTaken: [
        'q8_0, q4_0 and other blocks: WebNN would widen them at every call, so the host widens them once to f32; q8_0 ' +
          'takes 3.8 times its memory then, q4_0 7.1 times',
        'f16: it is kept as f32 in twice the memory, which WebNN computes in anyway; graphs round results once',
        'bf16: WebNN does not have it; the host widens it, and rounds results',
        'f64: WebNN does not have it; it is moved, not computed with',
      ],
    };
  }

  whyNot(plan: OpPlan): string | undefined {
    const { whyNot, nodes, ...prepared } = this.prepare(plan);
    if (whyNot !== undefined || !nodes) return whyNot;
    const { inputs, outputs } = prepared as Extract<PreparedCall, { readonly anything: boolean }>;
    const fed = inputs.map((source) => this.#fed(source, gone));
    const array = new Float32Array(); // the graph is defined, not run
    const read = outputs.map((target): Output => ({ target, mode: 'host', array }));
    try {
      this.#definition(plan.op, nodes, fed, read).define(new this.#open.webnn.MLGraphBuilder(this.memory.context));
      return undefined;
    } catch (error) {
      return reasonOf(error);
    }
  }

  /**
   * Queues a plan. Inputs in host memory are read now, and tensors of this backend when the plan runs. Outputs in host
   * memory are written by {@link finish} at the latest.
   *
   * @throws {RopewalkError} UNSUPPORTED for a call that WebNN cannot do; DEVICE when a tensor belongs to another
   *   backend, there is no memory, or the context is lost
   */
  run(plan: OpPlan): void {
    this.queue.checkOpen();
    const prepared = this.prepare(plan);
    const { op } = plan;
    if (prepared.whyNot !== undefined) {
      const next = roundsActivations(plan) ? 'Use cpu.' : 'Use cpu or webgpu.';
      fail('UNSUPPORTED', `webnn: ${op}`, `${prepared.whyNot}. ${next}`);
    }
    const { nodes, move } = prepared;
    for (const target of prepared.outputs) this.queue.checkOutput(target, op);
    if (move) this.#move(op, move);
    if (!nodes) return;
    const outputs = this.#outputs(prepared.outputs);
    const inputs = prepared.inputs.map((source) => this.#input(plan, source));
    const graph = this.#graph(this.#definition(op, nodes, inputs, outputs));
    for (const { storage, mode, places } of outputs) {
      if (!storage) continue;
      storage.stretch = mode === 'part' ? places.stretch : undefined;
      storage.written = true;
      this.graphs.dropConstants(storage);
    }
    this.queue.write(() => this.#dispatch(graph, inputs, outputs), prepared.outputs);
  }

  dispose(): void {
    this.queue.close('this backend was disposed');
    void this.queue.settled().then(() => this.memory.context.destroy());
  }

  protected prepareNew(plan: OpPlan): PreparedCall {
    const why = whyFloat64(plan);
    if (why !== undefined) return { whyNot: why };
    if (plan.op === 'linear' && plan.x.size === 0) return this.prepareNew(withoutColumns(plan));
    const move = moveOnHost(plan, (dtype) => this.#typeOf(dtype) === undefined);
    if (move) return { whyNot: undefined, anything: true, inputs: [], outputs: [move.target], move };
    const builder = new GraphBuilder();
    const prepared = prepare(builder, withDenseStandIns(plan), GRAPHS);
    if (prepared.whyNot !== undefined || !prepared.anything) return prepared;
    const { inputs, outputs } = prepared;
    if (inputs.some(({ tensor }) => tensor.size === 0)) return { whyNot: 'WebNN has no empty tensors' };
    const missing = [...inputs, ...outputs].find(({ dtype }) => TYPES[dtype] === undefined);
    if (missing) return { whyNot: `WebNN has no ${missing.dtype}` };
    return { ...prepared, nodes: { builder, key: keyOfNodes(builder) } };
  }

  /** Returns a graph that stays until its job is done. */
  #graph(definition: Definition): Graph {
    try {
      return this.graphs.hold(definition);
    } catch (error) {
      if (error instanceof RopewalkError && error.code === 'DEVICE') throw error;
      return fail('UNSUPPORTED', `webnn: ${definition.what}`, `${reasonOf(error)}. Use cpu or webgpu.`);
    }
  }

  #definition(
    op: string,
    { builder, key }: PlanNodes,
    inputs: readonly Input[],
    outputs: readonly Output[],
  ): Definition {
    const constant = inputs.find((input) => input.constant)?.constant;
    return {
      key: [key, ...inputs.map((input) => input.key), ...outputs.map((output) => keyOfOutput(output, outputs))].join(
        ';',
      ),
      what: op,
      constantOf: constant,
      constantBytes: constant && constantBytes({ dataType: constant.dataType, shape: [constant.length] }),
      define: (ml) => {
        const given = new Map(inputs.map((input) => [input.name, input.define(ml)]));
        return defineOutputs(ml, writeNodes(ml, builder, given, { types: TYPES, rounds16: this.#rounds16 }), outputs);
      },
    };
  }

  /** Returns the source of an input, after all queued jobs have run. */
  #input(plan: OpPlan, source: Source): Input {
    const { tensor, blocks } = source;
    const own = this.queue.own(tensor.storage);
    if (!own)
      return this.#fed(
        source,
        this.queue.hostInput(tensor, plan.op, (elements) => this.#pack(elements, source)),
      );
    if (own instanceof WebnnStorage) return this.#held(plan, source.name, own, tensor);
    const side = own as HostSideStorage;
    if (blocks) return this.#held(plan, source.name, this.#widened(side, blocks), denseLayout(blocks.shape));
    return this.#fed(
      source,
      laterOf(side, (elements) => this.#pack(elements, source)),
    );
  }

  /** Makes an input that the host writes at each call. */
  #fed({ name, tensor, dtype, blocks }: Source, elements: () => ArrayBufferView): Input {
    const descriptor: MlDescriptor = { dataType: TYPES[dtype]!, shape: blocks?.shape ?? tensor.shape };
    return {
      name,
      key: `${name} host`,
      define: (ml) => ml.input(name, descriptor),
      tensor: async (graph) => {
        const staged = await graph.staged(name, descriptor);
        this.memory.context.writeTensor(staged, elements());
        return staged;
      },
    };
  }

  /** Makes an input in WebNN's memory. Weights that are used again become a constant of the graph. */
  #held(plan: OpPlan, name: string, storage: WebnnStorage, layout: Layout): Input {
    storage.checkLive();
    const { dataType, length, uploaded } = storage;
    if (plan.op === 'linear' && name === 'weight' && uploaded && this.#isConstant(plan.x, storage, layout)) {
      const define = (ml: MlBuilder): MlOperand =>
        ml.constant({ dataType, shape: layout.shape }, storage.wide(uploaded));
      return { name, key: `${name} constant ${storage.id}`, constant: storage, define };
    }
    const stretch = this.#holderOf(storage, layout);
    const [start, size] = stretch ? [stretch.start, stretch.end - stretch.start] : [0, length];
    const from = { shape: layout.shape, strides: layout.strides, offset: layout.offset - start };
    return {
      name,
      key: `${name} ${size} ${from.offset} ${from.strides}`,
      define: (ml) => readLayout(ml, ml.input(name, { dataType, shape: [size] }), from),
      tensor: async () => {
        if (storage.failure) throw storage.failure;
        return stretch ? storage.part! : storage.takeBase();
      },
    };
  }

  /** True if a matrix of weights becomes a constant: at its second use, if nothing has written it, for few rows. */
  #isConstant(x: Tensor, storage: WebnnStorage, layout: Layout): boolean {
    const rows = x.size / x.shape.at(-1)!;
    if (storage.written || rows > CONSTANT_ROWS || countElements(layout.shape) !== storage.length) return false;
    if (!isRowMajor(layout) || ++storage.uses < 2) return false;
    const descriptor = { dataType: storage.dataType, shape: [storage.length] };
    return bytesOf(descriptor) <= MAX_CONSTANT_BYTES && this.memory.hasRoom(constantBytes(descriptor));
  }

  /** Returns the stretch whose tensor holds a layout, or undefined if the base holds it. */
  #holderOf(storage: WebnnStorage, layout: Layout): Stretch | undefined {
    const { stretch } = storage;
    const [low, high] = extentOf(layout)!;
    if (!stretch || high < stretch.start || low >= stretch.end) return undefined;
    if (low >= stretch.start && high < stretch.end) return stretch;
    this.#merge(storage, stretch);
    return undefined;
  }

  /** Queues a job that writes a storage's part into its base. */
  #merge(storage: WebnnStorage, stretch: Stretch): void {
    const { dataType, dtype, length } = storage;
    const shape = [stretch.end - stretch.start];
    const to = { shape, strides: [1], offset: stretch.start };
    const target: Target = {
      name: 'out',
      storage,
      dtype,
      pieces: [{ from: denseLayout(shape), to }],
      order: undefined,
    };
    const outputs: Output[] = [{ target, storage, places: placesOf(target), mode: 'scatter' }];
    const part: Input = {
      name: 'part',
      key: '',
      define: (ml) => ml.input('part', { dataType, shape }),
      tensor: async () => storage.part!,
    };
    const graph = this.#graph({
      key: `merge ${dataType} ${length} ${shape} ${keyOfOutput(outputs[0]!, outputs)}`,
      what: 'merge',
      define: (ml) => defineOutputs(ml, new Map([['out', part.define(ml)]]), outputs),
    });
    storage.stretch = undefined;
    this.queue.write(() => this.#dispatch(graph, [part], outputs), []);
  }

  /** Chooses where outputs go. If two outputs share a storage, both are scattered into it, one after the other. */
  #outputs(targets: readonly Target[]): Output[] {
    const shared = (target: Target): boolean => targets.some((t) => t !== target && t.storage === target.storage);
    return targets.map((target) => {
      const storage = this.queue.own(target.storage);
      if (!(storage instanceof WebnnStorage)) return { target, mode: 'host', array: this.#array(target.storage) };
      storage.checkLive();
      const places = placesOf(target);
      const { stretch } = places;
      if (stretch && stretch.end - stretch.start === storage.length) return { target, storage, places, mode: 'base' };
      const before = storage.stretch;
      const alone = stretch && !shared(target);
      const covers = before && alone && before.start >= stretch.start && before.end <= stretch.end;
      if (before && !covers) this.#merge(storage, before);
      return { target, storage, places, mode: alone ? 'part' : 'scatter' };
    });
  }

  /** Does one job of the queue: writes inputs from the host, runs the graph, and stores the results. */
  async #dispatch(graph: Graph, inputs: readonly Input[], outputs: readonly Output[]): Promise<void> {
    const { context } = this.memory;
    try {
      const built = await graph.built();
      const given: Record<string, MlTensor> = {};
      for (const { name, tensor } of inputs) if (tensor) given[name] = await tensor(graph);
      const results: Record<string, MlTensor> = {};
      for (const output of outputs) {
        const name = resultName(output, outputs);
        const { dataType, shape } = graph.output(name);
        if (output.mode === 'scatter') {
          given[beforeName(name)] = await output.storage.takeBase();
          const { blocks } = output.places;
          const placesAt = placesName(output);
          given[placesAt] = await graph.staged(placesAt, { dataType: 'int32', shape: [blocks.length, 1] });
          context.writeTensor(given[placesAt], blocks);
        }
        results[name] ??= await (output.storage
          ? this.memory.take(dataType, shape)
          : graph.staged(name, { dataType, shape }));
      }
      context.dispatch(built, given, results);
      for (const output of outputs) {
        const { storage, mode } = output;
        const made = results[resultName(output, outputs)]!;
        if (storage && storage.base !== made) storage.put(mode === 'part' ? 'part' : 'base', made);
      }
      for (const output of outputs)
        if (output.mode === 'host')
          unpackResult(await context.readTensor(results[output.target.name]!), output.target, output.array);
    } finally {
      this.graphs.release(graph);
    }
  }

  /** Packs elements for a graph: dense, bf16 as f32, i64 as int32, blocks as f32. */
  #pack(elements: HostArray, { tensor, dtype, blocks }: Source): ArrayBufferView {
    if (blocks) return widen(blocks, elements as Uint8Array);
    const packed = pack(elements, dtype, tensor, false);
    return dtype === 'i64' ? Int32Array.from(packed as BigInt64Array, Number) : packed;
  }

  /** Returns the dtype in WebNN's memory; undefined for dtypes that stay on the host. */
  #typeOf(dtype: Dtype): MlDtype | undefined {
    return dtype === 'f32' || dtype === 'i32' || (dtype === 'f16' && this.#rounds16) ? TYPES[dtype] : undefined;
  }

  #array(storage: TensorStorage): HostArray {
    const own = this.queue.own(storage);
    return own ? (own as HostSideStorage).array : storage.host!;
  }

  /** Queues a copy of elements that no graph can take. */
  #move(op: string, { source, target }: HostMove): void {
    const own = this.queue.own(source.storage) as HostSideStorage | undefined;
    const take = (elements: HostArray): HostArray => collected(elements, target);
    const elements = own ? laterOf(own, take) : this.queue.hostInput(source, op, take);
    const to = this.#array(target.storage);
    const side = this.queue.own(target.storage) as HostSideStorage | undefined;
    side?.widened?.dispose();
    if (side) side.widened = undefined;
    this.queue.write(() => {
      const from = elements();
      let offset = 0;
      for (const piece of target.pieces) {
        copyBits(from, { ...denseLayout(piece.to.shape), offset }, to, piece.to);
        offset += countElements(piece.to.shape);
      }
    }, [target]);
  }

  /** Returns the f32 weights of uploaded blocks. They are widened at their first use. */
  #widened(side: HostSideStorage, blocks: BlockTensor): WebnnStorage {
    if (!side.widened) {
      const { array } = side;
      const made = this.take('f32', blocks.shape).storage as WebnnStorage<'f32'>;
      side.widened = made;
      const widened = this.queue.enqueue(() => {
        made.uploaded = widen(blocks, array as Uint8Array);
      });
      widened.catch(() => {}); // a reader of a result gets the error of a closed queue
    }
    return side.widened;
  }

  protected take<D extends Dtype>(dtype: D, shape: readonly number[], elements?: ArrayOf[D]): Tensor<D> {
    return denseTensor(dtype, shape, (length) => {
      const dataType = this.#typeOf(dtype);
      if (dataType === undefined || length === 0) return new HostSideStorage(this.queue, dtype, length, elements);
      checkTensorBytes({ dataType, shape: [length] }, 'tensor');
      const bytes = bytesOf({ dataType, shape: [length] });
      this.memory.check(this.#heldBytes, bytes);
      this.#heldBytes += bytes;
      const dispose = (storage: WebnnStorage): void => {
        this.#heldBytes -= bytes;
        this.graphs.dropConstants(storage);
      };
      return new WebnnStorage(this.queue, this.memory, dtype, dataType, length, dispose, elements);
    });
  }
}

/** Replaces a product over no columns by its bias, or 0, in every row, because WebNN has no empty tensors. */
function withoutColumns({ bias, out }: LinearPlan): OpPlan {
  const { storage, offset, strides } = bias ?? zeros('f32', [1]);
  const step = bias ? strides[0]! : 0;
  return planRearrange(
    new Tensor(storage, { shape: out.shape, strides: out.shape.map(() => 0).with(-1, step), offset }),
    out,
  );
}

/** Returns a function that gives a host-side storage's elements in its turn. */
function laterOf<T>(side: HostSideStorage, take: (elements: HostArray) => T): () => T {
  const { array } = side;
  return () => {
    if (side.failure) throw side.failure;
    return take(array);
  };
}

/** Writes a result that was read from WebNN. */
function unpackResult(buffer: ArrayBuffer, target: Target, array: HostArray): void {
  const { dtype } = target;
  const result = TYPES[dtype] === 'int32' ? new Int32Array(buffer) : new Float32Array(buffer);
  unpack(dtype === 'i64' ? BigInt64Array.from(result, BigInt) : result, array, target);
}

/** Returns the number of CPU threads that Chromium's WebNN uses. @see chromium/chromium services/webnn/tflite */
function threadsOf(): number {
  const { navigator } = globalThis as { navigator?: { hardwareConcurrency?: number } };
  return Math.min(4, Math.floor(((navigator?.hardwareConcurrency ?? 1) + 1) / 2));
}

function reasonOf(error: unknown): string {
  return error instanceof RopewalkError
    ? error.message.replace(/^webnn: /, '').replace(/\.$/, '')
    : `WebNN does not take it: ${firstLine(error)}`;
}

/** Options of {@link openWebnn}. */
export interface WebnnOptions {
  /** A preference that the browser may ignore. Default: the browser decides. */
  readonly powerPreference?: 'high-performance' | 'low-power';
  /**
   * The most bytes of tensors, and of the copies of weights in graphs. Default: half of the memory that the browser
   * reports for the machine, and 2 GiB at least. A browser whose GPU process runs out of memory loses the contexts of
   * all its tabs.
   */
  readonly memoryLimit?: number;
}

const NAMES: OptionNames<WebnnOptions> = { powerPreference: true, memoryLimit: true };

/**
 * Opens the WebNN backend in a page or a worker, for `ropewalk({ backend })`. {@link whyNotWebnn} tells beforehand
 * whether it opens.
 *
 * @param options - power, memory
 * @returns an open backend, which is closed when the `Ropewalk` that uses it is disposed
 * @throws {RopewalkError} DEVICE if there is no WebNN, with the reason and the next step; UNSUPPORTED or RANGE for an
 *   option that it does not take
 * @example const rw = await ropewalk({ backend: await openWebnn() });
 */
export async function openWebnn(options: WebnnOptions = {}): Promise<WebnnBackend> {
  const given = readOptions(options, 'webnn: options');
  if ('deviceType' in given)
    fail('UNSUPPORTED', 'webnn: deviceType', 'WebNN has no deviceType any more. Give powerPreference.');
  checkFields(given, NAMES, 'webnn: options');
  const { powerPreference, memoryLimit = memoryOfMachine() } = given;
  if (powerPreference !== undefined) readName(powerPreference, POWER, 'webnn: powerPreference');
  checkInteger(memoryLimit, 'webnn: memoryLimit', 1);
  return new WebnnBackend(await openContext(powerPreference), memoryLimit);
}

const POWER = ['high-performance', 'low-power'] as const;

/** Returns half of the machine's memory, if the browser reports it. */
function memoryOfMachine(): number {
  const { navigator } = globalThis as { navigator?: { deviceMemory?: number } };
  return Math.max(2, (navigator?.deviceMemory ?? 0) / 2) * GIB;
}
