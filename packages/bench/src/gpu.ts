/**
 * Measures the webgpu backend, in Node and in browsers.
 *
 * @module
 */
import { type Backend, openBackend, Ropewalk } from 'ropewalk';
import { gpuCases } from './cases.js';
import { randomArray } from './data.js';
import { DeviceClock, spanOf, sumOf } from './device-clock.js';
import { openLibrary } from './library.js';
import { type Clocks, type Contender, type Effort, FULL_EFFORT, QUICK_EFFORT, queued } from './measure.js';
import { type Beside, chooseCases, runCases, type SessionOptions, type SessionResult } from './session.js';

/** The warm-up is longer, because an idle GPU raises its clock slowly. */
const GPU_EFFORT: Effort = { ...FULL_EFFORT, warmUpMs: 200 };
/** Matches the names of drivers in software. */
const SOFTWARE = /swiftshader|llvmpipe|lavapipe|basic render|software/i;

/**
 * Runs the cases of a GPU.
 *
 * @param options - chooses the cases
 * @param where - the name and version of Node or the browser
 * @param progress - called with the label of each case before it runs
 * @param beside - the peers that take turns with us
 */
export async function runGpuSession(
  options: SessionOptions,
  where: string,
  progress: (label: string) => void,
  beside: Beside = {},
): Promise<SessionResult> {
  const { rw, device } = await openGpu();
  try {
    const capabilities = rw.capabilities();
    const software = SOFTWARE.test(capabilities.description);
    const clock = device.features.has('timestamp-query') ? new DeviceClock(device) : undefined;
    const copies = new GpuCopies(device, clock);
    const results = await runCases(
      {
        threads: 0,
        libraries: { rw, oracle: await openLibrary('reference', 1) },
        effort: options.quick ? QUICK_EFFORT : GPU_EFFORT,
        ...(beside.rivals && { rivals: beside.rivals }),
        timed: (ours) =>
          withClock(
            queued(ours, () => rw.finish()),
            clock,
          ),
        copy: (bytes) => copies.copy(bytes),
      },
      chooseCases(gpuCases(options.quick || software), options),
      progress,
    );
    const clocks = clock
      ? "the device's timestamps around its compute passes"
      : 'the wall clock, from the first call until the device is done';
    const { peerNotes = [] } = beside;
    return { threads: 0, capabilities, gpu: { where, software, clock: clocks }, peerNotes, ...results };
  } finally {
    rw.dispose();
  }
}

/** Opens the webgpu backend, and takes its device, which is no part of the public interface. */
async function openGpu(): Promise<{ rw: Ropewalk; device: GPUDevice }> {
  const backend = (await openBackend('webgpu')) as Backend & { readonly shared: { readonly device: GPUDevice } };
  return { rw: new Ropewalk(backend), device: backend.shared.device };
}

/** Adds the device's own time to that of queued calls. */
function withClock(contender: Contender, clock: DeviceClock | undefined): Contender {
  return {
    ...contender,
    async queue(times): Promise<Clocks> {
      clock?.start();
      const clocks = await contender.queue!(times);
      return { ...clocks!, ...withDevice(sumOf(await clock?.stop())) };
    },
  };
}

/** Copies with `copyBufferToBuffer` on the same device: the limit that memory sets. */
class GpuCopies {
  private from: GPUBuffer | undefined;
  private to: GPUBuffer | undefined;

  constructor(
    private readonly device: GPUDevice,
    private readonly clock: DeviceClock | undefined,
  ) {}

  /**
   * Makes a copy that moves as many bytes as a case: it reads half of them and writes the other half. Repeated copies
   * are one command buffer.
   *
   * @param bytes - the bytes that the case reads and writes together
   * @throws Error when the device has too little memory
   */
  async copy(bytes: number): Promise<Contender> {
    const half = Math.ceil(bytes / 8) * 4;
    const size = Math.min(half, this.device.limits.maxBufferSize);
    await this.reserve(size);
    const queue = (times: number): Promise<Clocks> => this.run(times, half, size);
    return { name: 'copy', call: () => queue(1), queue };
  }

  private async run(times: number, half: number, size: number): Promise<Clocks> {
    const { device, clock, from, to } = this;
    clock?.start();
    const first = performance.now();
    const encoder = device.createCommandEncoder();
    encoder.beginComputePass().end(); // an empty pass, for its timestamps
    for (let n = 0; n < times; n++) {
      for (let at = 0; at < half; at += size) encoder.copyBufferToBuffer(from!, 0, to!, 0, Math.min(size, half - at));
    }
    encoder.beginComputePass().end();
    device.queue.submit([encoder.finish()]);
    const hostNs = (performance.now() - first) * 1e6;
    await device.queue.onSubmittedWorkDone();
    const wallNs = (performance.now() - first) * 1e6;
    return { wallNs, hostNs, ...withDevice(spanOf(await clock?.stop())) };
  }

  private async reserve(size: number): Promise<void> {
    if (this.from && this.from.size >= size) return;
    const { device } = this;
    this.from?.destroy();
    this.to?.destroy();
    device.pushErrorScope('out-of-memory');
    const usage = 4 | 8; // GPUBufferUsage.COPY_SRC | COPY_DST, which Node does not name
    const [from, to] = [device.createBuffer({ size, usage }), device.createBuffer({ size, usage })];
    const error = await device.popErrorScope();
    if (error) throw new Error(`copy: expected room for ${2 * size} bytes, got: ${error.message}`);
    // Random data, because a driver may store zeros compressed.
    const some = randomArray('copy', 'f32', 1 << 18) as Float32Array<ArrayBuffer>;
    for (let at = 0; at < size; at += some.byteLength)
      device.queue.writeBuffer(from, at, some, 0, Math.min(some.length, (size - at) / 4));
    this.from = from;
    this.to = to;
  }
}

/** Leaves out a time of 0: browsers round timestamps to 0.1 ms. */
function withDevice(deviceNs: number | undefined): Pick<Clocks, 'deviceNs'> {
  return deviceNs ? { deviceNs } : {};
}
