/**
 * The ONNX Runtime backend: each plan becomes the graph that `ropewalk export` writes, and a session of
 * onnxruntime-node runs it.
 *
 * @module
 */
import type { ArrayOf, Backend, Capabilities, Dtype, HostArray, OpPlan, Tensor, TensorStorage } from 'ropewalk';
import { RopewalkError } from 'ropewalk';
import {
  checkPlan,
  countElements,
  denseTensor,
  fail,
  hostOf,
  readOptions,
  refuse,
  writtenLater,
} from 'ropewalk/backend';
import { GRAPH_FORMATS } from '../export/blocks.js';
import { GraphBuilder } from '../export/builder.js';
import type { EmitOptions } from '../export/emit.js';
import { writeOnnxModel } from '../format/onnx.js';
import { type Prepared, prepare, type Source } from './graph.js';
import type { Ort, OrtSessionOptions, OrtTensor } from './package.js';
import { checkProviders, firstLine, loadOnnxruntime } from './package.js';
import { Sessions } from './sessions.js';
import { crossingType, pack, type Target, unpack } from './shell.js';
import { type Queue, QueuedStorage } from './storage.js';

const NEXT = 'Open the backend again.';
const MAX_THREADS = 16;
const ANGLES: readonly string[] = ['f64', 'f32', 'f32-reduced'];

/** A host buffer that queued plans will write. */
interface Awaited {
  /** How many. */
  writes: number;
  /** Why one of them failed. */
  failure: RopewalkError | undefined;
  /** Settles, and never rejects, when tensors over it can be read at once again. */
  last: Promise<void>;
}

/** The backend. Open it with {@link openOnnxruntime}. */
export class OnnxruntimeBackend implements Backend, Queue {
  readonly name = 'onnxruntime';
  readonly #prepared = new WeakMap<OpPlan, Prepared>();
  readonly #awaited = new Map<ArrayBufferLike, Awaited>();
  /** Failures since the last finish that no reader has received. */
  readonly #failures = new Set<RopewalkError>();
  #tail: Promise<unknown> = Promise.resolve();
  #closed = false;

  readonly #ort: Ort;
  readonly #options: OrtSessionOptions;
  readonly #graphs: EmitOptions;
  /** Visible for tests. */
  readonly sessions: Sessions;

  constructor(ort: Ort, options: OrtSessionOptions, graphs: EmitOptions) {
    this.#ort = ort;
    this.#options = options;
    this.#graphs = graphs;
    this.sessions = new Sessions(ort, options);
  }

  capabilities(): Capabilities {
    const { env } = this.#ort;
    const version = env.versions.node ?? env.versions.common ?? 'of unknown version';
    const { executionProviders, intraOpNumThreads } = this.#options;
    const providers = executionProviders.join(', then ');
    const { form, angles = 'f64' } = this.#graphs;
    const graphs = form === 'standard' ? 'standard operators' : `primitives, angles in ${angles}`;
    return {
      backend: this.name,
      description: `ONNX Runtime ${version}, provider ${providers}, graphs of ${graphs}`,
      dtypes: ['f64', 'f32', 'f16', 'bf16'],
      blockFormats: GRAPH_FORMATS,
      threads: intraOpNumThreads,
      notTaken: [
        'f16 and bf16 tensors: onnxruntime-node takes no bf16, and no f16 from Node 24 on; they cross as f32, ' +
          'which holds them exactly, and the graph casts',
        'KV cache rows and strides: the graph sees dense tensors; the host gathers and scatters elements',
      ],
    };
  }

  allocate<D extends Dtype>(dtype: D, shape: readonly number[]): Tensor<D> {
    this.#checkOpen();
    return this.#take(dtype, shape);
  }

  upload<D extends Dtype>(source: Tensor<D>): Tensor<D> {
    this.#checkOpen();
    hostOf(source, 'onnxruntime: upload');
    return this.#take(source.dtype, source.shape, source.read() as ArrayOf[D]);
  }

  whyNot(plan: OpPlan): string | undefined {
    return this.#prepare(plan).whyNot;
  }

  /**
   * Queues a plan. Inputs in host memory are read now, tensors of this backend when the plan runs; outputs in host
   * memory are written by {@link finish} at the latest.
   *
   * @throws {RopewalkError} UNSUPPORTED for a call that no graph can say; DEVICE when a tensor belongs to another
   *   backend
   */
  run(plan: OpPlan): void {
    this.#checkOpen();
    const prepared = this.#prepare(plan);
    if (prepared.whyNot !== undefined)
      fail('UNSUPPORTED', `onnxruntime: ${plan.op}`, `no graph can express this call: ${prepared.whyNot}`);
    const { model, inputs, outputs } = prepared;
    if (model === undefined) return;
    const feeds = inputs.map((source) => this.#feed(source, plan.op));
    const sinks = outputs.map((target) => this.#sink(target, plan.op));
    const what = `${plan.op} (${this.#graphs.form})`;
    const job = this.enqueue(async () => {
      const given: Record<string, OrtTensor> = {};
      for (const [n, { name, dtype, tensor }] of inputs.entries())
        given[name] = new this.#ort.Tensor(crossingType(dtype), feeds[n]!(), [...tensor.shape]);
      const session = await this.sessions.get(model, what);
      const results = await session.run(given).catch((cause: unknown) => {
        const why = `the graph does not run: ${firstLine(cause)}. Try the other form or another provider.`;
        throw new RopewalkError('DEVICE', `onnxruntime: ${what}: ${why}`, { cause });
      });
      for (const [n, { name }] of outputs.entries()) sinks[n]!(results[name]!);
    });
    this.#announce(job, outputs);
  }

  async finish(): Promise<void> {
    this.#checkOpen();
    await this.enqueue(() => {});
    await Promise.all([...this.#awaited.values()].map(({ last }) => last));
    const [first] = this.#failures;
    this.#failures.clear();
    if (first) throw first;
  }

  dispose(): void {
    if (this.#closed) return;
    this.#closed = true;
    void this.#tail.then(() => this.sessions.clear()).catch(() => {}); // what runs now is finished first
  }

  enqueue<T>(job: () => T | Promise<T>): Promise<T> {
    const turn = this.#tail.then(() => {
      this.#checkOpen();
      return job();
    });
    this.#tail = turn.catch(() => {}); // one that fails does not stop the next
    return turn;
  }

  heard(failure: RopewalkError): void {
    this.#failures.delete(failure);
  }

  #prepare(plan: OpPlan): Prepared {
    checkPlan(plan);
    const prepared = this.#prepared.get(plan) ?? prepare(plan, this.#graphs);
    this.#prepared.set(plan, prepared);
    return prepared;
  }

  /** Passes the outcome of a job on to all that wait for its outputs. */
  #announce(job: Promise<void>, outputs: readonly Target[]): void {
    const owned = outputs.flatMap(({ storage, pieces }) => {
      const own = this.#own(storage);
      const written = pieces.reduce((sum, { to }) => sum + countElements(to.shape), 0);
      return own ? [{ own, whole: written === storage.length }] : [];
    });
    const buffers = new Set(outputs.flatMap(({ storage }) => (storage.host ? [storage.host.buffer] : [])));
    const waiting = [...buffers].map((buffer) => {
      const entry = this.#awaited.get(buffer) ?? { writes: 0, failure: undefined, last: Promise.resolve() };
      this.#awaited.set(buffer, entry);
      entry.writes++;
      return entry;
    });
    const done = job.then(
      () => {
        for (const { own, whole } of owned) if (whole) own.failure = undefined;
      },
      (error: unknown) => {
        const why = `onnxruntime: the call did not run: ${firstLine(error)}. ${NEXT}`;
        const known = error instanceof RopewalkError;
        const failure = known ? error : new RopewalkError('DEVICE', why, { cause: error });
        for (const { own } of owned) own.failure = failure;
        for (const entry of waiting) entry.failure = failure;
        this.#failures.add(failure);
        throw failure;
      },
    );
    this.#tail = done.catch(() => {}); // the next sees what this one leaves behind
    for (const [n, buffer] of [...buffers].entries()) {
      const entry = waiting[n]!;
      const settled = (): void => {
        if (--entry.writes === 0) this.#awaited.delete(buffer);
      };
      entry.last = writtenLater(buffer, done).then(settled, settled);
    }
  }

  /** Makes what gives the elements of a graph's input when the call runs. */
  #feed({ tensor, dtype }: Source, op: string): () => HostArray {
    const own = this.#own(tensor.storage);
    if (own) {
      const { array } = own;
      return () => {
        if (own.failure) throw own.failure;
        return pack(array, dtype, tensor, true);
      };
    }
    const { host } = tensor.storage;
    // A buffer that the queue will write is read after that.
    const awaited = host && this.#awaited.get(host.buffer);
    if (awaited) {
      return () => {
        if (awaited.failure) throw awaited.failure;
        return pack(tensor.storage.host!, dtype, tensor, false);
      };
    }
    const packed = pack(hostOf(tensor, `onnxruntime: ${op}`), dtype, tensor, false);
    return () => packed;
  }

  #sink(target: Target, op: string): (result: OrtTensor) => void {
    const { storage } = target;
    const array = this.#own(storage)?.array;
    if (!array && !storage.host) {
      const why = `an output is in the memory of ${storage.owner}. Give outputs in host memory, or of this backend.`;
      fail('DEVICE', `onnxruntime: ${op}`, why);
    }
    return ({ data }) => unpack(data as HostArray, array ?? storage.host!, target);
  }

  #own(storage: TensorStorage): QueuedStorage | undefined {
    return storage instanceof QueuedStorage && storage.home === this ? storage : undefined;
  }

  #take<D extends Dtype>(dtype: D, shape: readonly number[], elements?: ArrayOf[D]): Tensor<D> {
    return denseTensor(dtype, shape, (length) => new QueuedStorage(this, dtype, length, elements));
  }

  #checkOpen(): void {
    if (this.#closed) fail('DEVICE', 'onnxruntime', `this backend was disposed. ${NEXT}`);
  }
}

/** How {@link openOnnxruntime} opens the backend. */
export interface OnnxruntimeOptions {
  /** Execution providers by ONNX Runtime's names, first choice first; `['cpu']` unless given. */
  readonly providers?: readonly string[];
  /** Threads of each node, at most 16; 1 unless given. */
  readonly threads?: number;
  /** Graphs of standard operators where there are such, or of primitives only; standard unless given. */
  readonly form?: 'standard' | 'primitives';
  /** Primitives only: what RoPE's angles are computed in, in the graph; f64 unless given. */
  readonly angles?: 'f64' | 'f32' | 'f32-reduced';
}

/**
 * Opens the ONNX Runtime backend, for `ropewalk({ backend })`. {@link whyNotOnnxruntime} says beforehand whether the
 * package is there.
 *
 * @param options - providers, threads, form
 * @returns an open backend; disposing of the `Ropewalk` that it is handed to closes it
 * @throws {RopewalkError} DEVICE when onnxruntime-node or a provider does not load, with the reason; UNSUPPORTED or
 *   RANGE for an option that it does not take
 * @example const rw = await ropewalk({ backend: await openOnnxruntime({ providers: ['cuda', 'cpu'] }) });
 */
export async function openOnnxruntime(options: OnnxruntimeOptions = {}): Promise<OnnxruntimeBackend> {
  const given = readOptions(options, 'onnxruntime: options');
  const { providers = ['cpu'], threads = 1, form = 'standard', angles } = given;
  if (!Array.isArray(providers)) refuse('RANGE', 'onnxruntime: providers', "a list such as ['cpu']", providers);
  if (form !== 'standard' && form !== 'primitives')
    refuse('UNSUPPORTED', 'onnxruntime: form', 'standard or primitives', form);
  if (angles !== undefined && !ANGLES.includes(angles))
    refuse('UNSUPPORTED', 'onnxruntime: angles', ANGLES.join(', '), angles);
  if (angles !== undefined && form === 'standard')
    fail('UNSUPPORTED', 'onnxruntime: angles', 'they apply to form primitives only: standard graphs take cos and sin');
  if (!Number.isInteger(threads) || threads < 1 || threads > MAX_THREADS)
    refuse('RANGE', 'onnxruntime: threads', `an integer in [1, ${MAX_THREADS}]`, threads);
  const ort = await loadOnnxruntime();
  checkProviders(ort, providers);
  const sessionOptions: OrtSessionOptions = {
    executionProviders: providers,
    // Each session has its own threads, and hundreds of sessions are kept.
    intraOpNumThreads: threads,
    interOpNumThreads: 1,
    enableCpuMemArena: false,
    logSeverityLevel: 4, // what goes wrong is thrown; ONNX Runtime would print it as well
    extra: {
      session: {
        // Hundreds of pools that spin would starve the one at work: 39 s instead of 8 for the suites.
        intra_op: { allow_spinning: '0' },
        // A provider that leaves nodes to the CPU says so, unless the caller names the CPU as well.
        disable_cpu_ep_fallback: providers.includes('cpu') ? '0' : '1',
      },
    },
  };
  await tryProviders(ort, sessionOptions);
  return new OnnxruntimeBackend(ort, sessionOptions, { form, angles });
}

/** Loads a tiny graph, so that a provider's missing libraries or hardware show now and not at the first call. */
async function tryProviders(ort: Ort, options: OrtSessionOptions): Promise<void> {
  const g = new GraphBuilder();
  g.output(g.add('Add', [g.input('x', 'f32', [1]), 'x']), 'y', 'f32', [1]);
  try {
    const session = await ort.InferenceSession.create(writeOnnxModel(g.model('open', 'ropewalk')), options);
    await session.release();
  } catch (cause) {
    const names = options.executionProviders.join(', ');
    const why = `${names} does not open: ${firstLine(cause)}. Install what the provider needs, or use cpu.`;
    throw new RopewalkError('DEVICE', `onnxruntime: providers: ${why}`, { cause });
  }
}
