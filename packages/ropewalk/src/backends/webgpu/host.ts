/** The WebGPU backend: it queues one kernel or a few for each plan, and submits them together. @module */
import { type ArrayOf, type Dtype, sizeBytes } from '../../core/dtypes.js';
import { fail, refuse } from '../../core/errors.js';
import { denseTensor, hostOf, type Tensor, tensorFrom, zeros } from '../../core/tensor.js';
import { checkPlan, type OperatorTable, type OpPlan } from '../../ops/op-plan.js';
import { planRearrange } from '../../ops/rearrange.js';
import type { Backend, BackendOptions, Capabilities } from '../backend.js';
import { type Float64Runner, tensorsOf, whyFloat64 } from '../float64.js';
import { runPlan } from '../operators.js';
import { Uploads } from '../uploads.js';
import { Call, type Shared } from './call.js';
import { Commands, NEXT } from './commands.js';
import { type OpenDevice, openDevice } from './device.js';
import { type Block, BlockPool, GpuStorage, USAGE } from './memory.js';
import { runElementwise, runRearrange } from './operators/elementwise.js';
import { runExpertLinear, runLinear } from './operators/linear.js';
import { runCausalConv, runGatedDelta, runSsmScan } from './operators/recurrent.js';
import { runRope } from './operators/rope.js';
import { runArgmax, runEmbedding, runNorm, runRoute } from './operators/rows.js';
import { runSelfAttention } from './operators/self-attention.js';
import { KERNEL_FORMATS } from './shaders/linear.js';

const OPERATORS: OperatorTable<[Call]> = {
  add: runElementwise,
  swiglu: runElementwise,
  rearrange: runRearrange,
  embedding: runEmbedding,
  argmax: runArgmax,
  rms_norm: runNorm,
  rope: runRope,
  linear: runLinear,
  self_attention: runSelfAttention,
  layer_norm: runNorm,
  gelu: runElementwise,
  geglu: runElementwise,
  xielu: runElementwise,
  scale: runElementwise,
  route: runRoute,
  expert_linear: runExpertLinear,
  causal_conv: runCausalConv,
  gated_delta: runGatedDelta,
  ssm_scan: runSsmScan,
};

/** The backend. Open it with {@link openWebgpu}. */
export class WebgpuBackend implements Backend {
  readonly name = 'webgpu';
  /** It is visible for tests and benchmarks. */
  readonly shared: Shared;
  readonly #description: string;
  readonly #float64: Float64Runner | undefined;
  #closed = false;
  #lost: string | undefined;

  constructor({ device, description }: OpenDevice, float64: Float64Runner | undefined) {
    const limit = Math.min(device.limits.maxStorageBufferBindingSize, device.limits.maxBufferSize);
    const pool = new BlockPool(device, USAGE.STORAGE | USAGE.COPY_SRC | USAGE.COPY_DST, limit);
    this.shared = {
      device,
      pool,
      commands: new Commands(device, pool),
      uploads: new Uploads<Block>((block) => pool.free(block)),
      f16: device.features.has('shader-f16'),
      maxBuffers: device.limits.maxStorageBuffersPerShaderStage,
      pending: new Map(),
    };
    this.#description = description;
    this.#float64 = float64;
    void device.lost.then(({ message }) => {
      this.#lost = message || 'the driver gives no reason';
      this.shared.commands.abandon();
    });
  }

  capabilities(): Capabilities {
    const { f16, pool } = this.shared;
    const reference = this.#float64 ? '; f64 on the reference' : '';
    return {
      backend: 'webgpu',
      description: `WebGPU on ${this.#description}${f16 ? ', shader-f16' : ''}${reference}`,
      dtypes: this.#float64 ? ['f64', 'f32', 'f16', 'bf16'] : ['f32', 'f16', 'bf16'],
      blockFormats: KERNEL_FORMATS,
      threads: 0,
      memory: { tensorBytes: pool.limitBytes },
      notTaken: f16 ? [] : ['shader-f16: this adapter does not have it, so f16 is widened by integer arithmetic'],
    };
  }

  allocate<D extends Dtype>(dtype: D, shape: readonly number[]): Tensor<D> {
    this.#checkOpen();
    // No GPU computes in f64, so it stays in host memory, where the reference reads it.
    if (dtype === 'f64') return zeros(dtype, shape);
    return this.#take(dtype, shape, (block) => {
      if (!block.fresh) this.shared.commands.clear(block);
    });
  }

  upload<D extends Dtype>(source: Tensor<D>): Tensor<D> {
    this.#checkOpen();
    hostOf(source, 'webgpu: upload'); // A source on a device is refused before memory is taken.
    const dense = source.read() as ArrayOf[D]; // The copy is dense and not shared.
    if (source.dtype === 'f64') return tensorFrom(dense, { dtype: source.dtype, shape: source.shape });
    const bytes = new Uint8Array(Math.ceil(dense.byteLength / 4) * 4);
    bytes.set(new Uint8Array(dense.buffer, dense.byteOffset, dense.byteLength));
    return this.#take(source.dtype, source.shape, (block) => this.shared.commands.write(block, bytes));
  }

  whyNot(plan: OpPlan): string | undefined {
    checkPlan(plan);
    const why = whyFloat64(plan, KERNEL_FORMATS);
    if (why === undefined) return undefined;
    if (!this.#float64) return why;
    const onDevice = tensorsOf(plan).some((tensor) => tensor.storage.host === undefined && tensor !== indexOf(plan));
    return onDevice ? `${why}, and the reference takes no tensors on the device` : undefined;
  }

  /**
   * Queues a plan. Outputs of this backend are ready when they are read; outputs in host memory after {@link finish}.
   *
   * @throws {RopewalkError} DEVICE when the device is gone, or a tensor is too large for it; UNSUPPORTED for a plan
   *   that needs float64, if no reference was given or a tensor is on the device
   */
  run(plan: OpPlan): void {
    this.#checkOpen();
    checkPlan(plan);
    if (whyFloat64(plan, KERNEL_FORMATS) === undefined) {
      runPlan(OPERATORS, plan, new Call(this.shared));
      return;
    }
    const whyNot = this.whyNot(plan);
    if (whyNot !== undefined) {
      const next = this.#float64
        ? 'Give tensors in host memory.'
        : 'Give the reference: openWebgpu(options, runReference).';
      fail('UNSUPPORTED', `webgpu: ${plan.op}`, `${whyNot}. ${next}`);
    }
    this.#runFloat64(plan);
  }

  async finish(): Promise<void> {
    this.#checkOpen();
    const back = [...this.shared.pending.keys()];
    await this.shared.commands.finish();
    await Promise.all(back);
    this.#checkOpen();
  }

  dispose(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.shared.commands.dispose();
    this.shared.uploads.clear();
  }

  /** Makes a dense tensor whose memory `fill` writes. */
  #take<D extends Dtype>(dtype: D, shape: readonly number[], fill: (block: Block) => void): Tensor<D> {
    const readBack = (from: Block, start: number, end: number): Promise<ArrayBuffer> => {
      this.#checkOpen();
      return this.shared.commands.readBack(from, start, end);
    };
    return denseTensor(dtype, shape, (length) => {
      const block = this.shared.pool.take(length * sizeBytes(dtype));
      try {
        fill(block);
      } catch (error) {
        this.shared.pool.free(block);
        throw error;
      }
      return new GpuStorage(this.shared.pool, dtype, length, block, readBack);
    });
  }

  /** Runs the reference. It writes host memory only, so indices that lie on the device are copied there afterwards. */
  #runFloat64(plan: OpPlan): void {
    const index = indexOf(plan);
    if (index === undefined || index.storage.host) {
      this.#float64!(plan);
      return;
    }
    const found = zeros(index.dtype, index.shape);
    this.#float64!({ ...plan, [plan.op === 'argmax' ? 'outIndex' : 'indices']: found } as OpPlan);
    this.run(planRearrange(found, index));
  }

  #checkOpen(): void {
    if (this.#closed) fail('DEVICE', 'webgpu', `this backend was disposed. ${NEXT}`);
    if (this.#lost !== undefined) fail('DEVICE', 'webgpu', `the device was lost (${this.#lost}). ${NEXT}`);
  }
}

function indexOf(plan: OpPlan): Tensor | undefined {
  return plan.op === 'argmax' ? plan.outIndex : plan.op === 'route' ? plan.indices : undefined;
}

/**
 * Opens the WebGPU backend. It needs nothing but its own kernels, which compute in f32; it does not load the reference.
 *
 * @param float64 - runs the plans that need float64 (f64 tensors, and a scale, softcap or eps outside the range of
 *   f32), on tensors in host memory: `runReference`. Without it `capabilities().dtypes` has no f64, and such a plan is
 *   refused
 * @throws {RopewalkError} DEVICE when there is no adapter, with the reason; UNSUPPORTED for a bad option
 * @example const rw = new Ropewalk(await openWebgpu()); // f32, f16 and bf16
 */
export async function openWebgpu(options: BackendOptions = {}, float64?: Float64Runner): Promise<WebgpuBackend> {
  const { powerPreference = 'high-performance' } = options;
  if (powerPreference !== 'high-performance' && powerPreference !== 'low-power')
    refuse('UNSUPPORTED', 'webgpu: powerPreference', 'high-performance or low-power', powerPreference);
  return new WebgpuBackend(await openDevice(powerPreference), float64);
}
