/**
 * The clock of a GPU. It measures how long kernels run, without the time to queue them and to report their end, which
 * the host's clock includes.
 *
 * @module
 */

/** The beginning and the end of each compute pass, in nanoseconds and in the order of submission. */
export type Passes = readonly (readonly [number, number])[];

/** The most passes of a sample: WebGPU allows 4096 timestamps in a set. One pass has up to 1024 kernels. */
const MAX_PASSES = 2048;

/** Makes the device write timestamps around every compute pass, those of the library too. */
export class DeviceClock {
  private readonly stamps: GPUQuerySet;
  private readonly resolved: GPUBuffer;
  private readonly readable: GPUBuffer;
  private running = false;
  private passes = 0;

  /** @param device - a device with `timestamp-query`, whose command encoders are changed */
  constructor(private readonly device: GPUDevice) {
    const size = MAX_PASSES * 16;
    this.stamps = device.createQuerySet({ type: 'timestamp', count: MAX_PASSES * 2 });
    this.resolved = device.createBuffer({ size, usage: 0x200 | 4 }); // QUERY_RESOLVE | COPY_SRC
    this.readable = device.createBuffer({ size, usage: 1 | 8 }); // MAP_READ | COPY_DST
    const create = device.createCommandEncoder.bind(device);
    device.createCommandEncoder = (descriptor) => {
      const encoder = create(descriptor);
      if (!this.running) return encoder;
      const begin = encoder.beginComputePass.bind(encoder);
      encoder.beginComputePass = (pass) => begin({ ...pass, ...this.nextStamps() });
      return encoder;
    };
  }

  /** Starts to time passes. */
  start(): void {
    this.running = true;
    this.passes = 0;
  }

  /**
   * Reads the times since {@link start}. The device must have finished all work.
   *
   * @returns undefined when there were no passes or too many
   */
  async stop(): Promise<Passes | undefined> {
    this.running = false;
    const { device, passes, readable, resolved } = this;
    if (passes === 0 || passes > MAX_PASSES) return undefined;
    const encoder = device.createCommandEncoder();
    encoder.resolveQuerySet(this.stamps, 0, passes * 2, resolved, 0);
    encoder.copyBufferToBuffer(resolved, 0, readable, 0, passes * 16);
    device.queue.submit([encoder.finish()]);
    await readable.mapAsync(1, 0, passes * 16);
    const times = new BigUint64Array(readable.getMappedRange(0, passes * 16));
    const origin = times[0]!;
    const found = Array.from(
      { length: passes },
      (_, n) => [Number(times[2 * n]! - origin), Number(times[2 * n + 1]! - origin)] as const,
    );
    readable.unmap();
    return found;
  }

  private nextStamps(): GPUComputePassDescriptor {
    const first = 2 * this.passes++;
    if (this.passes > MAX_PASSES) return {};
    return {
      timestampWrites: { querySet: this.stamps, beginningOfPassWriteIndex: first, endOfPassWriteIndex: first + 1 },
    };
  }
}

/**
 * Adds up the time in which at least one pass ran. Passes may overlap.
 *
 * @param passes - from {@link DeviceClock.stop}
 */
export function sumOf(passes: Passes | undefined): number | undefined {
  let end = Number.NEGATIVE_INFINITY;
  return passes?.reduce((sum, [from, to]) => {
    const ran = Math.max(0, to - Math.max(from, end));
    end = Math.max(end, to);
    return sum + ran;
  }, 0);
}

/**
 * Returns the time from the beginning of the first pass to the end of the last.
 *
 * @param passes - from {@link DeviceClock.stop}
 */
export function spanOf(passes: Passes | undefined): number | undefined {
  return passes && passes.at(-1)![1] - passes[0]![0];
}
