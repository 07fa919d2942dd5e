/** The CPU backend: it runs each plan with one kernel or a few, which are done when the call returns. @module */
import { BLOCK_FORMAT_NAMES } from '../../core/block-formats.js';
import { type Dtype, sizeBytes } from '../../core/dtypes.js';
import { fail, refuse } from '../../core/errors.js';
import { copyBits, denseTensor, hostOf, type Tensor } from '../../core/tensor.js';
import { ACTIVATIONS } from '../../ops/linear.js';
import { checkPlan, type OperatorTable, type OpPlan } from '../../ops/op-plan.js';
import type { Backend, BackendOptions, Capabilities } from '../backend.js';
import { type Float64Runner, whyFloat64 } from '../float64.js';
import { runPlan } from '../operators.js';
import { Call } from './call.js';
import { BOARD, HEAP, Launcher } from './launcher.js';
import { takeStorage, WasmMemory } from './memory.js';
import { compileKernels, type Kernels } from './module.js';
import { runElementwise, runRearrange } from './operators/elementwise.js';
import { runExpertLinear, runLinear } from './operators/linear.js';
import { runCausalConv, runGatedDelta, runSsmScan } from './operators/recurrent.js';
import { runRope } from './operators/rope.js';
import { runRoute } from './operators/route.js';
import { runArgmax, runEmbedding, runNorm } from './operators/rows.js';
import { runSelfAttention } from './operators/self-attention.js';
import { Pool, threadsHere } from './pool.js';

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

/** The SIMD of the module that runs, and the reasons against a faster one and more threads. */
type Found = Pick<Capabilities, 'notTaken'> & { readonly simd: string };

/** The backend. Open it with {@link openCpu}. */
export class CpuBackend implements Backend {
  readonly name = 'cpu';
  /** It is visible for tests. */
  readonly launcher: Launcher;
  readonly #found: Found;
  readonly #float64: Float64Runner | undefined;
  #closed = false;

  constructor(launcher: Launcher, found: Found, float64: Float64Runner | undefined) {
    this.launcher = launcher;
    this.#found = found;
    this.#float64 = float64;
  }

  capabilities(): Capabilities {
    const { memory, pool } = this.launcher;
    const threads = pool.threads > 1 ? `${pool.threads} threads over shared memory` : 'one thread';
    return {
      backend: 'cpu',
      description: `WebAssembly ${this.#found.simd}, ${threads}${this.#float64 ? '; f64 on the reference' : ''}`,
      dtypes: this.#float64 ? ['f64', 'f32', 'f16', 'bf16'] : ['f32', 'f16', 'bf16'],
      blockFormats: BLOCK_FORMAT_NAMES,
      activations: ACTIVATIONS,
      threads: pool.threads,
      memory: { availableBytes: memory.limitBytes - HEAP - memory.heldBytes },
      notTaken: pool.whyNot === undefined ? this.#found.notTaken : [...this.#found.notTaken, pool.whyNot],
    };
  }

  allocate<D extends Dtype>(dtype: D, shape: readonly number[]): Tensor<D> {
    this.#checkOpen();
    const { memory } = this.launcher;
    return denseTensor(dtype, shape, (length) => {
      const storage = takeStorage(memory, dtype, length);
      // The block may hold elements of a tensor that is gone.
      new Uint8Array(memory.buffer, storage.address, length * sizeBytes(dtype)).fill(0);
      return storage;
    });
  }

  upload<D extends Dtype>(source: Tensor<D>): Tensor<D> {
    this.#checkOpen();
    hostOf(source, 'cpu: upload'); // A source on a device is refused before memory is taken.
    const copy = denseTensor(source.dtype, source.shape, (length) =>
      takeStorage(this.launcher.memory, source.dtype, length),
    );
    try {
      // The source is looked up again, because taking memory may have moved it.
      copyBits(hostOf(source, 'cpu: upload'), source, hostOf(copy, 'cpu: upload'), copy);
      return copy;
    } catch (error) {
      copy.dispose();
      throw error;
    }
  }

  whyNot(plan: OpPlan): string | undefined {
    checkPlan(plan);
    return this.#float64 ? undefined : whyFloat64(plan, BLOCK_FORMAT_NAMES, true);
  }

  /**
   * Runs a plan; it is done on return.
   *
   * @throws {RopewalkError} DEVICE when memory is full or a thread died; UNSUPPORTED for what needs float64, where no
   *   reference was given
   */
  run(plan: OpPlan): void {
    this.#checkOpen();
    checkPlan(plan);
    const why = whyFloat64(plan, BLOCK_FORMAT_NAMES, true);
    if (why === undefined) runPlan(OPERATORS, plan, new Call(this.launcher));
    else if (this.#float64) this.#float64(plan);
    else fail('UNSUPPORTED', `cpu: ${plan.op}`, `${why}. Give the reference: openCpu(options, runReference).`);
  }

  async finish(): Promise<void> {}

  dispose(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.launcher.dispose();
  }

  #checkOpen(): void {
    if (this.#closed)
      fail('DEVICE', 'cpu', 'this backend was disposed. Open another: await ropewalk({ backend: "cpu" }).');
  }
}

/**
 * Opens the CPU backend. It needs nothing but its own kernels, which compute in f32; it does not load the reference.
 *
 * @param float64 - runs the plans that need float64 (f64 tensors, and a scale, softcap or eps outside the range of
 *   f32): `runReference`. Without it `capabilities().dtypes` has no f64, and such a plan is refused
 * @throws {RopewalkError} RANGE or UNSUPPORTED for a bad option; DEVICE when no memory can be had
 * @example
 * const rw = new Ropewalk(await openCpu({ threads: 4 })); // f32, f16 and bf16
 * const exact = new Ropewalk(await openCpu({}, runReference)); // f64 too
 */
export async function openCpu(options: BackendOptions = {}, float64?: Float64Runner): Promise<CpuBackend> {
  const { threads: wanted, memoryLimit, simd = 'auto' } = options;
  if (wanted !== undefined && (!Number.isInteger(wanted) || wanted < 1))
    refuse('RANGE', 'cpu: threads', 'an integer >= 1', wanted);
  if (simd !== 'auto' && simd !== 'simd128') refuse('UNSUPPORTED', 'cpu: simd', 'auto or simd128', simd);
  const { threads, whyNot } = threadsHere(wanted);
  const shared = threads > 1;
  const { module, simd: chosen, whyNotRelaxed } = await compileKernels(shared, simd);
  const heap = new WasmMemory(shared, HEAP, memoryLimit);
  const { memory } = heap;
  const instance = await WebAssembly.instantiate(module, { env: { memory } });
  const kernels = instance.exports as unknown as Kernels;
  const pool = new Pool({ kernels, module, memory, board: BOARD, threads });
  const launcher = new Launcher(heap, kernels, pool);
  await pool.tryOne();
  const notTaken = [whyNotRelaxed, whyNot].filter((reason) => reason !== undefined);
  return new CpuBackend(launcher, { simd: chosen, notTaken }, float64);
}
