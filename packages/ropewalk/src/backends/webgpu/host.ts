/**
 * The WebGPU backend: each plan becomes one kernel or a few, queued and submitted together.
 *
 * @module
 */
import { type ArrayOf, type Dtype, sizeBytes } from '../../core/dtypes.js';
import { RopewalkError, refuse } from '../../core/errors.js';
import { denseTensor, hostOf, type Tensor, tensorFrom, zeros } from '../../core/tensor.js';
import { planRearrange } from '../../ops/rearrange.js';
import { checkPlan, type OpPlan, unknownPlan } from '../../ops/runner.js';
import type { Backend, BackendOptions, Capabilities } from '../backend.js';
import { tensorsOf, whyFloat64 } from '../float64.js';
import { Uploads } from '../uploads.js';
import { Call, type Home, type Pending } from './call.js';
import { Commands, NEXT } from './commands.js';
import { type OpenDevice, openDevice } from './device.js';
import { type Block, BlockPool, GpuStorage, USAGE } from './memory.js';
import { runElementwise, runRearrange } from './operators/elementwise.js';
import { runLinear } from './operators/linear.js';
import { runRope } from './operators/rope.js';
import { runArgmax, runEmbedding, runRmsNorm } from './operators/rows.js';
import { runSelfAttention } from './operators/self-attention.js';

/** Runs plans that f32 cannot do, on tensors in host memory. */
type Float64 = (plan: OpPlan) => void;

/** The backend. Open it with {@link openWebgpu}. */
export class WebgpuBackend implements Backend {
  readonly name = 'webgpu';
  /** Visible for tests and benchmarks, as {@link pool} and {@link device}. */
  readonly commands: Commands;
  readonly pool: BlockPool;
  readonly device: GPUDevice;
  private readonly home: Home;
  private readonly pending = new Map<Promise<unknown>, Pending>();
  private closed = false;
  private lost: string | undefined;

  constructor(
    private readonly open: OpenDevice,
    /** Takes the plans that need float64, if anybody does. */
    private readonly float64: Float64 | undefined,
  ) {
    const { device } = open;
    this.device = device;
    const limit = Math.min(device.limits.maxStorageBufferBindingSize, device.limits.maxBufferSize);
    this.pool = new BlockPool(device, USAGE.STORAGE | USAGE.COPY_SRC | USAGE.COPY_DST, limit);
    this.commands = new Commands(device, this.pool);
    const uploads = new Uploads<Block>((block) => this.pool.free(block));
    this.home = {
      device,
      pool: this.pool,
      commands: this.commands,
      uploads,
      f16: device.features.has('shader-f16'),
      pending: this.pending,
    };
    void device.lost.then(({ message }) => {
      this.lost = message || 'the device was lost';
      this.commands.abandon();
    });
  }

  capabilities(): Capabilities {
    const { f16 } = this.home;
    return {
      backend: 'webgpu',
      description: `WebGPU on ${this.open.description}${f16 ? ', shader-f16' : ''}${this.float64 ? '; f64 on the reference' : ''}`,
      dtypes: [...(this.float64 ? (['f64'] as const) : []), 'f32', 'f16', 'bf16'],
      threads: 0,
      memory: { tensorBytes: this.pool.limitBytes },
      notTaken: f16 ? [] : ['shader-f16: this adapter has it not; halves are widened in integers'],
    };
  }

  allocate<D extends Dtype>(dtype: D, shape: readonly number[]): Tensor<D> {
    this.checkOpen();
    if (dtype === 'f64') return zeros(dtype, shape); // no GPU computes it: it stays where the reference does
    return this.take(dtype, shape, (block) => {
      if (!block.fresh) this.commands.clear(block);
    });
  }

  upload<D extends Dtype>(source: Tensor<D>): Tensor<D> {
    this.checkOpen();
    hostOf(source, 'webgpu: upload'); // before memory is taken
    const dense = source.read() as ArrayOf[D]; // a copy, so what is shared or strided is neither
    if (source.dtype === 'f64') return tensorFrom(dense, { dtype: source.dtype, shape: source.shape });
    const bytes = new Uint8Array(Math.ceil(dense.byteLength / 4) * 4);
    bytes.set(new Uint8Array(dense.buffer, dense.byteOffset, dense.byteLength));
    return this.take(source.dtype, source.shape, (block) => this.commands.write(block, bytes));
  }

  whyNot(plan: OpPlan): string | undefined {
    checkPlan(plan);
    const why = whyFloat64(plan);
    if (why === undefined) return undefined;
    if (!this.float64) return why;
    const onDevice = tensorsOf(plan).some((tensor) => tensor.storage.host === undefined && tensor !== indexOf(plan));
    return onDevice ? `${why}, and that takes tensors in host memory` : undefined;
  }

  /**
   * Queues a plan. Outputs of this backend are ready when they are read; outputs in host memory after {@link finish}.
   *
   * @throws {RopewalkError} DEVICE when the device is gone, or a tensor is too large for it; UNSUPPORTED for what f32 cannot do, where
   *   nobody else takes it
   */
  run(plan: OpPlan): void {
    this.checkOpen();
    checkPlan(plan);
    const why = whyFloat64(plan);
    if (why) {
      const whyNot = this.whyNot(plan);
      if (whyNot) refuse('UNSUPPORTED', `webgpu: ${plan.op}`, 'a plan for f32 kernels', `another: ${whyNot}`);
      this.runFloat64(plan);
      return;
    }
    const call = new Call(this.home);
    try {
      switch (plan.op) {
        case 'add':
        case 'swiglu':
          runElementwise(plan, call);
          break;
        case 'rearrange':
          runRearrange(plan, call);
          break;
        case 'embedding':
          runEmbedding(plan, call);
          break;
        case 'argmax':
          runArgmax(plan, call);
          break;
        case 'rms_norm':
          runRmsNorm(plan, call);
          break;
        case 'rope':
          runRope(plan, call);
          break;
        case 'linear':
          runLinear(plan, call);
          break;
        case 'self_attention':
          runSelfAttention(plan, call);
          break;
        default:
          unknownPlan(plan satisfies never);
      }
      call.takeHome();
    } finally {
      call.release();
    }
  }

  async finish(): Promise<void> {
    this.checkOpen();
    const back = [...this.pending.keys()];
    await this.commands.finish();
    await Promise.all(back);
    this.checkOpen();
  }

  dispose(): void {
    if (this.closed) return;
    this.closed = true;
    this.commands.dispose();
    this.home.uploads.clear();
  }

  /** A dense tensor whose memory `fill` writes. */
  private take<D extends Dtype>(dtype: D, shape: readonly number[], fill: (block: Block) => void): Tensor<D> {
    const readBack = (from: Block, start: number, end: number): Promise<ArrayBuffer> => {
      this.checkOpen();
      return this.commands.readBack(from, start, end);
    };
    return denseTensor(dtype, shape, (length) => {
      const block = this.pool.take(length * sizeBytes(dtype));
      try {
        fill(block);
      } catch (error) {
        this.pool.free(block);
        throw error;
      }
      return new GpuStorage(this.pool, dtype, length, block, readBack);
    });
  }

  /** The reference writes host memory; an argmax's index may lie on the device, as integers do. */
  private runFloat64(plan: OpPlan): void {
    const index = indexOf(plan);
    if (plan.op !== 'argmax' || index?.storage.host) {
      this.float64!(plan);
      return;
    }
    const outIndex = zeros(plan.outIndex.dtype, plan.outIndex.shape);
    this.float64!({ ...plan, outIndex });
    this.run(planRearrange(outIndex, plan.outIndex));
  }

  private checkOpen(): void {
    if (this.closed) refuse('DEVICE', 'webgpu', 'an open backend', 'one that was disposed', NEXT);
    if (this.lost !== undefined)
      throw new RopewalkError('DEVICE', `webgpu: device: expected one that works, got: ${this.lost}. ${NEXT}`);
  }
}

function indexOf(plan: OpPlan): Tensor | undefined {
  return plan.op === 'argmax' ? plan.outIndex : undefined;
}

/**
 * Opens the WebGPU backend.
 *
 * @param options - which adapter
 * @param float64 - runs plans that f32 cannot do; without it they are refused
 * @throws {RopewalkError} DEVICE when there is no adapter, with the reason; UNSUPPORTED for a bad option
 */
export async function openWebgpu(options: BackendOptions = {}, float64?: Float64): Promise<WebgpuBackend> {
  const { powerPreference = 'high-performance' } = options;
  if (powerPreference !== 'high-performance' && powerPreference !== 'low-power')
    refuse('UNSUPPORTED', 'webgpu: powerPreference', 'high-performance or low-power', powerPreference);
  return new WebgpuBackend(await openDevice(powerPreference), float64);
}
