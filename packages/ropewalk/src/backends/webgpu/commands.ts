/**
 * What is sent to the device: kernels and copies gather in one command buffer and are submitted together.
 *
 * @module
 */
import { RopewalkError } from '../../core/errors.js';
import { type Block, BlockPool, USAGE } from './memory.js';
import { type Binding, PARAMS_BYTES, type ShaderText } from './shader.js';

/** Offsets of parameters in their buffer are multiples of this: the largest minUniformBufferOffsetAlignment there is. */
const SLOT = 256;
/** Bytes of parameters of one submission. */
const RING = 1 << 16;
/** Workgroups of one dimension; every device has at least 65535. */
const MAX_GROUPS = 65535;
/** Bind groups that are kept. */
const MAX_GROUPS_KEPT = 2048;
/** After so many kernels the device is given its work, though nobody asked: it starts while more is planned. */
const MAX_KERNELS = 256;

/** A kernel that is ready to run. */
interface Pipeline {
  readonly pipeline: GPUComputePipeline;
  readonly layout: GPUBindGroupLayout;
  readonly layoutKey: string;
}

/** One run of a kernel. */
export interface Dispatch {
  /** Names kernel and variant: the same key, the same text. */
  readonly key: string;
  /** Writes the text, at the first run of a variant. */
  readonly text: () => ShaderText;
  readonly bindings: readonly Binding[];
  readonly blocks: readonly Block[];
  /** The bytes of `Params`. */
  readonly params: Uint32Array;
  /** Workgroups; the kernel folds the second dimension into the first. */
  readonly groups: number;
}

/** The command buffer that is being filled, and what it has cost so far. */
export class Commands {
  /** Kernels and copies that were sent, for tests and benchmarks. */
  readonly sent = { kernels: 0, submissions: 0, pipelines: 0, groups: 0 };
  private encoder: GPUCommandEncoder | undefined;
  private pass: GPUComputePassEncoder | undefined;
  private kernels = 0;
  private readonly ring: GPUBuffer;
  private readonly slots = new Uint32Array(RING / 4);
  private slotBytes = 0;
  private readonly pipelines = new Map<string, Pipeline>();
  private readonly layouts = new Map<string, GPUBindGroupLayout>();
  private readonly bindGroups = new Map<string, GPUBindGroup>();
  private readonly readPool: BlockPool;
  private afterSubmit: (() => void)[] = [];
  private scopesOpen = false;
  private settled: Promise<unknown> = Promise.resolve();
  private failure: RopewalkError | undefined;
  /** Whether somebody has been told: what begins after that begins anew. */
  private told = false;

  constructor(
    private readonly device: GPUDevice,
    private readonly pool: BlockPool,
  ) {
    this.ring = device.createBuffer({ size: RING + PARAMS_BYTES, usage: USAGE.UNIFORM | USAGE.COPY_DST });
    this.readPool = new BlockPool(device, USAGE.MAP_READ | USAGE.COPY_DST, device.limits.maxBufferSize);
    pool.making = this.readPool.making = () => this.watch();
  }

  /** Opens a command buffer if none is open; it is submitted at the end of the current JavaScript task at the latest. */
  private open(): GPUCommandEncoder {
    this.watch();
    if (!this.encoder) {
      this.encoder = this.device.createCommandEncoder();
      queueMicrotask(() => this.submit());
    }
    return this.encoder;
  }

  /** Errors of what follows are kept for who waits next. */
  watch(): void {
    if (this.scopesOpen) return;
    this.scopesOpen = true;
    if (this.told) this.failure = undefined;
    this.told = false;
    this.device.pushErrorScope('out-of-memory');
    this.device.pushErrorScope('validation');
    this.device.pushErrorScope('internal');
  }

  /** Queues a kernel. */
  dispatch(run: Dispatch): void {
    if (this.kernels >= MAX_KERNELS || this.slotBytes + run.params.byteLength > RING) this.submit();
    const encoder = this.open();
    const { pipeline, layout, layoutKey } = this.pipeline(run);
    const group = this.bindGroup(layout, layoutKey, run.blocks);
    const offset = this.slotBytes;
    this.slots.set(run.params, offset / 4);
    this.slotBytes += Math.ceil(run.params.byteLength / SLOT) * SLOT;
    this.pass ??= encoder.beginComputePass();
    this.pass.setPipeline(pipeline);
    this.pass.setBindGroup(0, group, [offset]);
    const x = Math.min(run.groups, MAX_GROUPS);
    this.pass.dispatchWorkgroups(x, Math.ceil(run.groups / x));
    for (const block of run.blocks) block.fresh = false;
    this.kernels++;
    this.sent.kernels++;
  }

  /** Writes bytes into a block that no waiting command uses. @param data - a multiple of four bytes */
  write(block: Block, data: Uint8Array<ArrayBuffer>): void {
    this.watch();
    this.device.queue.writeBuffer(block.buffer, 0, data);
    block.fresh = false;
  }

  /** Queues zeros. */
  clear(block: Block): void {
    const encoder = this.open();
    this.endPass();
    encoder.clearBuffer(block.buffer);
  }

  /**
   * Queues a copy to the host.
   *
   * @param start - first byte, a multiple of four
   * @param end - one past the last
   * @returns the bytes, once they are there
   * @throws {RopewalkError} DEVICE when the device failed or was lost
   */
  async readBack(block: Block, start: number, end: number): Promise<ArrayBuffer> {
    const bytes = Math.ceil((end - start) / 4) * 4;
    if (bytes === 0) return new ArrayBuffer(0);
    const encoder = this.open();
    this.endPass();
    const target = this.readPool.take(bytes);
    encoder.copyBufferToBuffer(block.buffer, start, target.buffer, 0, bytes);
    // Mapping waits for the copy, so the copy must be on its way.
    await new Promise<void>((resolve) => this.afterSubmit.push(resolve));
    try {
      await target.buffer.mapAsync(1, 0, bytes).catch(async (cause) => {
        await this.check();
        throw new RopewalkError('DEVICE', `webgpu: read: expected the device to answer, got ${cause}. ${NEXT}`, {
          cause,
        });
      });
      await this.check();
    } catch (error) {
      this.readPool.drop(target);
      throw error;
    }
    const copy = target.buffer.getMappedRange(0, bytes).slice(0);
    target.buffer.unmap();
    this.readPool.free(target);
    this.readPool.submitted();
    return copy;
  }

  /** Submits what waits. */
  submit(): void {
    this.endPass();
    const { encoder } = this;
    this.encoder = undefined;
    if (encoder) {
      if (this.slotBytes > 0) this.device.queue.writeBuffer(this.ring, 0, this.slots, 0, this.slotBytes / 4);
      this.device.queue.submit([encoder.finish()]);
      this.sent.submissions++;
    }
    this.slotBytes = 0;
    this.kernels = 0;
    this.pool.submitted();
    this.closeScopes();
    const waiting = this.afterSubmit;
    this.afterSubmit = [];
    for (const go of waiting) go();
  }

  /** Waits until all that was submitted is done. @throws {RopewalkError} DEVICE when something failed */
  async finish(): Promise<void> {
    this.submit();
    await this.device.queue.onSubmittedWorkDone().catch(() => {}); // of a lost device its owner tells
    try {
      await this.check();
    } finally {
      this.failure = undefined; // all that failed with it is done
    }
  }

  /** Gives up what waits: the device is gone. Who waits to read learns it from the device. */
  abandon(): void {
    this.encoder = undefined;
    this.pass = undefined;
    this.scopesOpen = false;
    const waiting = this.afterSubmit;
    this.afterSubmit = [];
    for (const go of waiting) go();
  }

  /** Ends everything. */
  dispose(): void {
    this.abandon();
    this.bindGroups.clear();
    this.pipelines.clear();
    this.device.destroy();
  }

  /** Waits for what the device has to say about the commands so far. */
  private async check(): Promise<void> {
    await this.settled;
    if (!this.failure) return;
    this.told = true;
    throw this.failure;
  }

  private closeScopes(): void {
    if (!this.scopesOpen) return;
    this.scopesOpen = false;
    const made = [...this.pool.takeMade(), ...this.readPool.takeMade()];
    const scopes = Promise.all([
      this.device.popErrorScope(),
      this.device.popErrorScope(),
      this.device.popErrorScope(),
    ]).then(
      ([internal, validation, memory]) => {
        const error = memory ?? validation ?? internal;
        if (memory) {
          for (const block of made) block.doubtful = true;
          this.pool.trim();
        }
        if (!error || this.failure) return;
        const next = memory
          ? 'Dispose tensors that are no longer needed, or use smaller ones.'
          : 'This is a fault of Ropewalk: please report it.';
        const expected = memory ? 'room on the device' : 'commands that the device accepts';
        this.failure = new RopewalkError(
          'DEVICE',
          `webgpu: ${memory ? 'memory' : 'commands'}: expected ${expected}, got: ${error.message} ${next}`,
        );
      },
      () => {}, // the device is lost, which its own promise tells
    );
    this.settled = Promise.all([this.settled, scopes]);
  }

  private endPass(): void {
    this.pass?.end();
    this.pass = undefined;
  }

  private pipeline(run: Dispatch): Pipeline {
    let entry = this.pipelines.get(run.key);
    if (!entry) {
      const { code } = run.text();
      const layoutKey = run.bindings.map((binding) => (binding.written ? 'w' : 'r')).join('');
      const layout = this.layout(layoutKey);
      const pipeline = this.device.createComputePipeline({
        layout: this.device.createPipelineLayout({ bindGroupLayouts: [layout] }),
        compute: { module: this.device.createShaderModule({ code, label: run.key }) },
        label: run.key,
      });
      entry = { pipeline, layout, layoutKey };
      this.pipelines.set(run.key, entry);
      this.sent.pipelines++;
    }
    return entry;
  }

  private layout(key: string): GPUBindGroupLayout {
    let layout = this.layouts.get(key);
    if (!layout) {
      const COMPUTE = 4; // GPUShaderStage.COMPUTE
      layout = this.device.createBindGroupLayout({
        entries: [
          {
            binding: 0,
            visibility: COMPUTE,
            buffer: { type: 'uniform', hasDynamicOffset: true, minBindingSize: PARAMS_BYTES },
          },
          ...[...key].map((access, i) => ({
            binding: i + 1,
            visibility: COMPUTE,
            buffer: { type: access === 'w' ? ('storage' as const) : ('read-only-storage' as const) },
          })),
        ],
      });
      this.layouts.set(key, layout);
    }
    return layout;
  }

  private bindGroup(layout: GPUBindGroupLayout, layoutKey: string, blocks: readonly Block[]): GPUBindGroup {
    let key = layoutKey;
    for (const block of blocks) key += `,${block.id}`;
    let group = this.bindGroups.get(key);
    if (!group) {
      if (this.bindGroups.size >= MAX_GROUPS_KEPT) this.bindGroups.clear();
      group = this.device.createBindGroup({
        layout,
        entries: [
          { binding: 0, resource: { buffer: this.ring, size: PARAMS_BYTES } },
          ...blocks.map(({ buffer }, i) => ({ binding: i + 1, resource: { buffer } })),
        ],
      });
      this.bindGroups.set(key, group);
      this.sent.groups++;
    }
    return group;
  }
}

/** What to do when the device is gone. */
export const NEXT = 'Open another: await ropewalk({ backend: "webgpu" }), and upload again.';
