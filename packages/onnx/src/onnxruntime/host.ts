/**
 * The ONNX Runtime backend. Each plan becomes the graph that `ropewalk export` writes, and a session of
 * onnxruntime-node runs it.
 *
 * onnxruntime-node takes no bf16, and no f16 from Node 24 on: its native part wants a Uint16Array, and its JavaScript
 * part passes a Float16Array. So 16-bit floats cross as f32, which holds them exactly. The graph begins and ends with a
 * Cast.
 *
 * @module
 */
import type { ArrayOf, Backend, Capabilities, Dtype, HostArray, OpPlan, Tensor } from 'ropewalk';
import { RopewalkError } from 'ropewalk';
import { denseTensor, fail, refuse } from 'ropewalk/backend';
import type { Float8Dtype } from 'ropewalk/internal';
import { isHalf, type OptionNames, readName, readOptions, tensorsOf, whyFloat64 } from 'ropewalk/internal';
import { type Prepared, pack, prepare, type Source, type Target, unpack, withStandIns } from '../backend/graph.js';
import { firstLine, QueuedBackend, QueuedStorage } from '../backend/queue.js';
import { GraphBuilder } from '../export/builder.js';
import { GRAPH_FORMATS } from '../export/fragments.js';
import type { EmitOptions } from '../export/plan-graph.js';
import { writeOnnxModel } from '../format/onnx.js';
import type { Ort, OrtSessionOptions, OrtTensor } from './package.js';
import { checkProviders, loadOnnxruntime, Sessions } from './package.js';

const MAX_THREADS = 16;
const ANGLES: readonly string[] = ['f64', 'f32', 'f32-reduced'];

/** The backend that {@link openOnnxruntime} opens. */
export class OnnxruntimeBackend extends QueuedBackend<PreparedModel> implements Backend {
  readonly #ort: Ort;
  readonly #options: OrtSessionOptions;
  readonly #graphs: EmitOptions;
  /** Visible for tests. */
  readonly sessions: Sessions;

  constructor(ort: Ort, options: OrtSessionOptions, graphs: EmitOptions) {
    super('onnxruntime');
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

  whyNot(plan: OpPlan): string | undefined {
    return this.prepare(plan).whyNot;
  }

  /**
   * Queues a plan. Inputs in host memory are read now, and tensors of this backend when the plan runs. Outputs in host
   * memory are written by {@link finish} at the latest.
   *
   * @throws {RopewalkError} UNSUPPORTED for a call that no graph can express; DEVICE when a tensor belongs to another
   *   backend
   */
  run(plan: OpPlan): void {
    this.queue.checkOpen();
    const prepared = this.prepare(plan);
    if (prepared.whyNot !== undefined)
      fail('UNSUPPORTED', `onnxruntime: ${plan.op}`, `no graph can express this call: ${prepared.whyNot}`);
    const { model, inputs, outputs } = prepared;
    if (model === undefined) return;
    const feeds = inputs.map((source) => this.#feed(source, plan.op));
    const sinks = outputs.map((target) => this.#sink(target, plan.op));
    const what = `${plan.op} (${this.#graphs.form})`;
    this.queue.write(async () => {
      const given: Record<string, OrtTensor> = {};
      for (const [n, { name, dtype, tensor }] of inputs.entries())
        given[name] = new this.#ort.Tensor(crossingType(dtype), feeds[n]!(), [...tensor.shape]);
      const session = await this.sessions.get(model, what);
      const results = await session.run(given).catch((cause: unknown) => {
        const why = `the graph does not run: ${firstLine(cause)}. Try the other form or another provider.`;
        throw new RopewalkError('DEVICE', `onnxruntime: ${what}: ${why}`, { cause });
      });
      for (const [n, { name }] of outputs.entries()) sinks[n]!(results[name]!);
    }, outputs);
  }

  dispose(): void {
    this.queue.close('this backend was disposed');
    void this.queue.settled().then(() => this.sessions.clear()); // the current job is finished first
  }

  protected prepareNew(plan: OpPlan): PreparedModel {
    const double = tensorsOf(plan).some(({ dtype }) => dtype === 'f64');
    const why = double ? undefined : whyFloat64(plan, GRAPH_FORMATS);
    if (why !== undefined) return { whyNot: why };
    if (double && (plan.op === 'gelu' || plan.op === 'geglu') && plan.approximate === 'none')
      return { whyNot: 'ONNX Runtime has no Erf of f64' };
    const builder = new ShellBuilder();
    const prepared = prepare(builder, withStandIns(plan), this.#graphs);
    if (prepared.whyNot !== undefined || !prepared.anything) return prepared;
    return { ...prepared, model: writeOnnxModel(builder.model(plan.op, 'ropewalk')) };
  }

  /** Returns a function that gives the elements of a graph's input when the call runs. */
  #feed({ tensor, dtype }: Source, op: string): () => HostArray {
    const own = this.queue.own(tensor.storage) as QueuedStorage | undefined;
    if (!own) return this.queue.hostInput(tensor, op, (elements) => pack(elements, dtype, tensor, false));
    const { array } = own;
    return () => {
      if (own.failure) throw own.failure;
      return pack(array, dtype, tensor, true);
    };
  }

  #sink(target: Target, op: string): (result: OrtTensor) => void {
    this.queue.checkOutput(target, op);
    const { storage } = target;
    const array = (this.queue.own(storage) as QueuedStorage | undefined)?.array;
    return ({ data }) => unpack(data as HostArray, array ?? storage.host!, target);
  }

  protected take<D extends Dtype>(dtype: D, shape: readonly number[], elements?: ArrayOf[D]): Tensor<D> {
    return denseTensor(dtype, shape, (length) => new QueuedStorage(this.queue, dtype, length, elements));
  }
}

/** A plan's graph as the bytes of a file; undefined if every output is empty. */
type PreparedModel = Prepared & { readonly model?: Uint8Array };

/** Options of {@link openOnnxruntime}. */
export interface OnnxruntimeOptions {
  /** Execution providers by ONNX Runtime's names, first choice first. Default: `['cpu']`. */
  readonly providers?: readonly string[];
  /** The number of threads for each node, at most 16. Default: 1. */
  readonly threads?: number;
  /** Standard operators where they exist, or primitives only. Default: standard. */
  readonly form?: 'standard' | 'primitives';
  /** Primitives only: how the graph computes RoPE's angles. Default: f64. */
  readonly angles?: 'f64' | 'f32' | 'f32-reduced';
}

const NAMES: OptionNames<OnnxruntimeOptions> = { providers: true, threads: true, form: true, angles: true };

/**
 * Opens the ONNX Runtime backend, for `ropewalk({ backend })`. {@link whyNotOnnxruntime} tells beforehand whether the
 * package is installed.
 *
 * @param options - providers, threads, form
 * @returns an open backend, which is closed when the `Ropewalk` that uses it is disposed
 * @throws {RopewalkError} DEVICE when onnxruntime-node or a provider does not load, with the reason; UNSUPPORTED or
 *   RANGE for an option that it does not take
 * @example const rw = await ropewalk({ backend: await openOnnxruntime({ providers: ['cuda', 'cpu'] }) });
 */
export async function openOnnxruntime(options: OnnxruntimeOptions = {}): Promise<OnnxruntimeBackend> {
  const given = readOptions(options, 'onnxruntime: options', NAMES);
  const { providers = ['cpu'], threads = 1, form = 'standard', angles } = given;
  if (!Array.isArray(providers)) refuse('RANGE', 'onnxruntime: providers', "a list such as ['cpu']", providers);
  readName(form, ['standard', 'primitives'], 'onnxruntime: form');
  if (angles !== undefined) readName(angles, ANGLES, 'onnxruntime: angles');
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
    logSeverityLevel: 4, // errors are thrown; ONNX Runtime would print them as well
    extra: {
      session: {
        // Hundreds of thread pools that spin would starve the one that works: the suites took 39 s instead of 8.
        intra_op: { allow_spinning: '0' },
        // A provider that leaves nodes to the CPU is an error, unless the caller names the CPU as well.
        disable_cpu_ep_fallback: providers.includes('cpu') ? '0' : '1',
      },
    },
  };
  await tryProviders(ort, sessionOptions);
  return new OnnxruntimeBackend(ort, sessionOptions, { form, angles });
}

/** Loads a tiny graph, so that missing libraries or hardware of a provider show now and not at the first call. */
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

const ORT_TYPE: Readonly<Record<Exclude<Dtype, 'f16' | 'bf16' | Float8Dtype>, string>> = /* @__PURE__ */ Object.freeze({
  f64: 'float64',
  f32: 'float32',
  i8: 'int8',
  i16: 'int16',
  i32: 'int32',
  i64: 'int64',
  u8: 'uint8',
  u16: 'uint16',
  u32: 'uint32',
  u64: 'uint64',
});

/** A graph whose 16-bit inputs and outputs are f32 outside. */
export class ShellBuilder extends GraphBuilder {
  override input(name: string, dtype: Dtype, shape: readonly number[]): string {
    if (!isHalf(dtype)) return super.input(name, dtype, shape);
    return this.cast(super.input(name, 'f32', shape), dtype);
  }

  override output(value: string, name: string, dtype: Dtype, shape: readonly number[]): void {
    if (isHalf(dtype)) super.output(this.cast(value, 'f32'), name, 'f32', shape);
    else super.output(value, name, dtype, shape);
  }
}

/** Returns the package's name for a dtype outside of the graph. */
export function crossingType(dtype: Dtype): string {
  return ORT_TYPE[isHalf(dtype) ? 'f32' : (dtype as keyof typeof ORT_TYPE)]; // prepare has refused 8-bit floats
}
