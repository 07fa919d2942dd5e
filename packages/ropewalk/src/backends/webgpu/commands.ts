/** Collects kernels and copies in one command buffer, and submits them to the device together. @module */
import { RopewalkError } from '../../core/errors.js';
import { type Block, BlockPool, USAGE } from './memory.js';
import { type Binding, PARAMS_BYTES } from './shader.js';

/**
 * The offsets of parameters in their buffer are multiples of this, the largest minUniformBufferOffsetAlignment that
 * WebGPU allows.
 */
const SLOT = 256;
/** The bytes of parameters of one submission: they hold 1024 kernels, so that a token of 64 layers is one submission. */
const RING = 1 << 18;
/** The most workgroups of one dimension that every device takes. */
const MAX_GROUPS = 65535;
/** The most bind groups that are kept. */
const MAX_GROUPS_KEPT = 2048;

/** A kernel that is ready to run. */
interface Pipeline {
  readonly pipeline: GPUComputePipeline;
  readonly layout: GPUBindGroupLayout;
  readonly layoutKey: string;
}

/** One run of a kernel. */
interface Dispatch {
  /** Names kernel and variant: dispatches with the same key have the same text. */
  readonly key: string;
  /** Writes the text and decides how buffers are bound, at the first run of a variant. */
  readonly write: () => { readonly text: string; readonly bindings: readonly Binding[] };
  readonly blocks: readonly Block[];
  /** The bytes of `Params`. */
  readonly params: Uint32Array;
  /** The number of workgroups; the kernel folds the second dimension into the first. */
  readonly groups: number;
}

/** The open command buffer, and everything that is kept from one to the next. */
export class Commands {
  /** Counts what was sent, for tests and benchmarks. */
  readonly sent = { kernels: 0, submissions: 0, pipelines: 0, groups: 0 };
  readonly #device: GPUDevice;
  readonly #pool: BlockPool;
  #encoder: GPUCommandEncoder | undefined;
  #pass: GPUComputePassEncoder | undefined;
  readonly #ring: GPUBuffer;
  readonly #slots = new Uint32Array(RING / 4);
  #slotBytes = 0;
  readonly #pipelines = new Map<string, Pipeline>();
  readonly #layouts = new Map<string, GPUBindGroupLayout>();
  readonly #bindGroups = new Map<string, GPUBindGroup>();
  readonly #readPool: BlockPool;
  readonly #afterSubmit: (() => void)[] = [];
  #scopesOpen = false;
  #settled: Promise<unknown> = Promise.resolve();
  #failure: RopewalkError | undefined;
  /** Says whether the failure was reported: later commands then start without one. */
  #reported = false;

  constructor(device: GPUDevice, pool: BlockPool) {
    this.#device = device;
    this.#pool = pool;
    this.#ring = device.createBuffer({ size: RING + PARAMS_BYTES, usage: USAGE.UNIFORM | USAGE.COPY_DST });
    this.#readPool = new BlockPool(device, USAGE.MAP_READ | USAGE.COPY_DST, device.limits.maxBufferSize);
    pool.making = this.#readPool.making = () => this.watch();
  }

  /** Opens a command buffer if none is open; it is submitted when the current JavaScript task ends at the latest. */
  #open(): GPUCommandEncoder {
    this.watch();
    if (!this.#encoder) {
      this.#encoder = this.#device.createCommandEncoder();
      queueMicrotask(() => this.submit());
    }
    return this.#encoder;
  }

  /** Opens error scopes, which report an error of the following commands to the next wait. */
  watch(): void {
    if (this.#scopesOpen) return;
    this.#scopesOpen = true;
    if (this.#reported) this.#failure = undefined;
    this.#reported = false;
    this.#device.pushErrorScope('out-of-memory');
    this.#device.pushErrorScope('validation');
    this.#device.pushErrorScope('internal');
  }

  /** Queues a kernel. */
  dispatch(run: Dispatch): void {
    if (this.#slotBytes + run.params.byteLength > RING) this.submit();
    const encoder = this.#open();
    const { pipeline, layout, layoutKey } = this.#pipeline(run);
    const group = this.#bindGroup(layout, layoutKey, run.blocks);
    const offset = this.#slotBytes;
    this.#slots.set(run.params, offset / 4);
    this.#slotBytes += Math.ceil(run.params.byteLength / SLOT) * SLOT;
    this.#pass ??= encoder.beginComputePass();
    this.#pass.setPipeline(pipeline);
    this.#pass.setBindGroup(0, group, [offset]);
    const x = Math.min(run.groups, MAX_GROUPS);
    this.#pass.dispatchWorkgroups(x, Math.ceil(run.groups / x));
    for (const block of run.blocks) block.fresh = false;
    this.sent.kernels++;
  }

  /** Writes a multiple of four bytes into a block that no waiting command uses. */
  write(block: Block, data: Uint8Array<ArrayBuffer>): void {
    this.watch();
    this.#device.queue.writeBuffer(block.buffer, 0, data);
    block.fresh = false;
  }

  /** Queues zeros. */
  clear(block: Block): void {
    const encoder = this.#open();
    this.#endPass();
    encoder.clearBuffer(block.buffer);
  }

  /** Queues a copy of bytes from `start`, a multiple of four, to the host. @throws {RopewalkError} DEVICE */
  async readBack(block: Block, start: number, end: number): Promise<ArrayBuffer> {
    const bytes = Math.ceil((end - start) / 4) * 4;
    if (bytes === 0) return new ArrayBuffer(0);
    const encoder = this.#open();
    this.#endPass();
    const target = this.#readPool.take(bytes);
    encoder.copyBufferToBuffer(block.buffer, start, target.buffer, 0, bytes);
    // Mapping waits for the copy, so the copy must be submitted first.
    await new Promise<void>((resolve) => this.#afterSubmit.push(resolve));
    try {
      await target.buffer.mapAsync(1, 0, bytes).catch(async (cause) => {
        await this.#check();
        throw new RopewalkError('DEVICE', `webgpu: read: the device does not answer (${cause}). ${NEXT}`, { cause });
      });
      await this.#check();
    } catch (error) {
      this.#readPool.drop(target);
      throw error;
    }
    const copy = target.buffer.getMappedRange(0, bytes).slice(0);
    target.buffer.unmap();
    this.#readPool.free(target);
    this.#readPool.submitted();
    return copy;
  }

  /** Submits the commands that are queued. */
  submit(): void {
    this.#endPass();
    const encoder = this.#encoder;
    this.#encoder = undefined;
    if (encoder) {
      if (this.#slotBytes > 0) this.#device.queue.writeBuffer(this.#ring, 0, this.#slots, 0, this.#slotBytes / 4);
      this.#device.queue.submit([encoder.finish()]);
      this.sent.submissions++;
    }
    this.#slotBytes = 0;
    this.#pool.submitted();
    this.#closeScopes();
    for (const go of this.#afterSubmit.splice(0)) go();
  }

  /** Waits until all that was submitted is done. @throws {RopewalkError} DEVICE when something failed */
  async finish(): Promise<void> {
    this.submit();
    await this.#device.queue.onSubmittedWorkDone().catch(() => {}); // The backend reports a lost device.
    try {
      await this.#check();
    } finally {
      this.#failure = undefined; // The error is reported here, so the next commands start without it.
    }
  }

  /** Drops the queued commands, because the device is gone. Waiting reads get their error from the device. */
  abandon(): void {
    this.#encoder = undefined;
    this.#pass = undefined;
    this.#scopesOpen = false;
    for (const go of this.#afterSubmit.splice(0)) go();
  }

  /** Destroys the device and everything on it. */
  dispose(): void {
    this.abandon();
    this.#bindGroups.clear();
    this.#pipelines.clear();
    this.#device.destroy();
  }

  /** Waits until the device has accepted the commands so far. @throws {RopewalkError} DEVICE when it has not */
  async #check(): Promise<void> {
    await this.#settled;
    if (!this.#failure) return;
    this.#reported = true;
    throw this.#failure;
  }

  #closeScopes(): void {
    if (!this.#scopesOpen) return;
    this.#scopesOpen = false;
    const made = [...this.#pool.takeMade(), ...this.#readPool.takeMade()];
    const scopes = Promise.all([1, 2, 3].map(() => this.#device.popErrorScope())).then(
      ([internal, validation, memory]) => {
        const error = memory ?? validation ?? internal;
        if (memory) {
          for (const block of made) block.doubtful = true;
          this.#pool.trim();
        }
        if (!error || this.#failure) return;
        const message = memory
          ? `memory: the device has no room (${error.message}). Dispose tensors you no longer need, or use smaller ones.`
          : `commands: the device does not accept them (${error.message}). This is a bug in Ropewalk: please report it.`;
        this.#failure = new RopewalkError('DEVICE', `webgpu: ${message}`);
      },
      () => {}, // The device is lost, which its own promise reports.
    );
    this.#settled = Promise.all([this.#settled, scopes]);
  }

  #endPass(): void {
    this.#pass?.end();
    this.#pass = undefined;
  }

  #pipeline(run: Dispatch): Pipeline {
    return remember(this.#pipelines, run.key, () => {
      const { text, bindings } = run.write();
      const layoutKey = bindings.map((binding) => (binding.written ? 'w' : 'r')).join('');
      const layout = remember(this.#layouts, layoutKey, () => this.#makeLayout(layoutKey));
      const pipeline = this.#device.createComputePipeline({
        layout: this.#device.createPipelineLayout({ bindGroupLayouts: [layout] }),
        compute: { module: this.#device.createShaderModule({ code: text, label: run.key }) },
        label: run.key,
      });
      this.sent.pipelines++;
      return { pipeline, layout, layoutKey };
    });
  }

  #makeLayout(key: string): GPUBindGroupLayout {
    const visibility = 4; // GPUShaderStage.COMPUTE
    const uniform = { type: 'uniform', hasDynamicOffset: true, minBindingSize: PARAMS_BYTES } as const;
    const storage = [...key].map((access, i) => {
      const type = access === 'w' ? ('storage' as const) : ('read-only-storage' as const);
      return { binding: i + 1, visibility, buffer: { type } };
    });
    return this.#device.createBindGroupLayout({ entries: [{ binding: 0, visibility, buffer: uniform }, ...storage] });
  }

  #bindGroup(layout: GPUBindGroupLayout, layoutKey: string, blocks: readonly Block[]): GPUBindGroup {
    let key = layoutKey;
    for (const block of blocks) key += `,${block.id}`;
    return remember(this.#bindGroups, key, () => {
      if (this.#bindGroups.size >= MAX_GROUPS_KEPT) this.#bindGroups.clear();
      const params = { binding: 0, resource: { buffer: this.#ring, size: PARAMS_BYTES } };
      const entries = [params, ...blocks.map(({ buffer }, i) => ({ binding: i + 1, resource: { buffer } }))];
      this.sent.groups++;
      return this.#device.createBindGroup({ layout, entries });
    });
  }
}

/** Finds a value in a map; it is made at its first use. */
function remember<T>(map: Map<string, T>, key: string, make: () => T): T {
  let value = map.get(key);
  if (value === undefined) map.set(key, (value = make()));
  return value;
}

/** The advice for a lost or disposed device. */
export const NEXT = 'Open another: await ropewalk({ backend: "webgpu" }), and upload again.';
