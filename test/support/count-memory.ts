/** Counts the work of a WebGPU backend's kernels: moved bytes, threads without work, and barriers. */

/** The counts of all kernels since the last call. */
export interface KernelCounts {
  readonly dispatches: number;
  /** The bytes that loads from storage buffers move, without the parameters. `writtenBytes` counts the stores. */
  readonly readBytes: number;
  readonly writtenBytes: number;
  /** The number of started threads. */
  readonly threads: number;
  /** The number of threads that load or store anything. */
  readonly busyThreads: number;
  /** The number of barriers at which a thread waits, summed over the threads. */
  readonly barriers: number;
}

/** The binding of the counters. No kernel binds so many buffers. */
const BINDING = 63;
/** GPUBufferUsage.STORAGE | COPY_SRC | COPY_DST, which Node does not name. */
const STORAGE = 128 | 4 | 8;

const COUNTERS = /* wgsl */ `
@group(0) @binding(${BINDING}) var<storage, read_write> counted: array<atomic<u32>, 4>;
var<private> counted_me = false;
fn count_bytes(which: u32, bytes: u32) {
  atomicAdd(&counted[which], bytes);
  if (!counted_me) { atomicAdd(&counted[2], 1u); }
  counted_me = true;
}
fn count_barrier() { atomicAdd(&counted[3], 1u); }
`;

/** Adds counters to a kernel's text. The label lists the operands as `name:elementxlanes`. */
function instrument(code: string, label: string): string {
  const sizes = new Map<string, number>();
  for (const [, name, element, lanes] of label.matchAll(/ (\w+):([a-z]+\d+\w*?)x([14])[rw]\d+/g)) {
    const bits = element === 'i8' || element!.startsWith('f8') ? 8 : Number(/\d+$/.exec(element!)![0]);
    sizes.set(name!, (bits / 8) * Number(lanes));
  }
  const counted = code
    .replace(/fn (bits|put)_(\w+)\([^)]*\)[^{]*\{/g, (head, kind: string, name: string) => {
      const bytes = sizes.get(name);
      if (bytes === undefined) return head; // a function that the kernel defines itself
      return `${head} count_bytes(${kind === 'put' ? 1 : 0}u, ${bytes}u);`;
    })
    .replace(/workgroupBarrier\(\);|return workgroupUniformLoad/g, 'count_barrier(); $&');
  const end = /^(enable [^;]*;\s*)*/.exec(counted)![0].length;
  return counted.slice(0, end) + COUNTERS + counted.slice(end);
}

/**
 * Starts to count.
 *
 * @param device - the device of a backend that has run nothing yet; it is slower afterwards
 * @returns a function that returns the counts since its last call
 */
export function countMemory(device: GPUDevice): () => Promise<KernelCounts> {
  const counters = device.createBuffer({ size: 16, usage: STORAGE });
  let [dispatches, threads] = [0, 0];
  /** The threads of a workgroup, by module and by pipeline. */
  const threadsOf = new WeakMap<object, number>();
  const own = <K extends keyof GPUDevice>(name: K, value: (original: GPUDevice[K]) => GPUDevice[K]): void => {
    const original = (device[name] as (...given: unknown[]) => unknown).bind(device) as GPUDevice[K];
    Object.defineProperty(device, name, { configurable: true, value: value(original) });
  };
  own('createBindGroupLayout', (create) => (given) => {
    const entry = { binding: BINDING, visibility: 4, buffer: { type: 'storage' } } as const;
    return create({ ...given, entries: [...given.entries, entry] });
  });
  own('createBindGroup', (create) => (given) => {
    return create({ ...given, entries: [...given.entries, { binding: BINDING, resource: { buffer: counters } }] });
  });
  own('createShaderModule', (create) => (given) => {
    const made = create({ ...given, code: instrument(given.code, given.label!) });
    threadsOf.set(made, Number(/const THREADS = (\d+)u;/.exec(given.code)![1]));
    return made;
  });
  own('createComputePipeline', (create) => (given) => {
    const pipeline = create(given);
    threadsOf.set(pipeline, threadsOf.get(given.compute.module)!);
    return pipeline;
  });
  own('createCommandEncoder', (create) => (given) => {
    const encoder = create(given);
    const begin = encoder.beginComputePass.bind(encoder);
    encoder.beginComputePass = (description) => {
      const pass = begin(description);
      let size = 0;
      const set = pass.setPipeline.bind(pass);
      pass.setPipeline = (pipeline) => {
        size = threadsOf.get(pipeline)!;
        set(pipeline);
      };
      const dispatch = pass.dispatchWorkgroups.bind(pass);
      pass.dispatchWorkgroups = (x, y = 1, z = 1) => {
        dispatches++;
        threads += x * y * z * size;
        dispatch(x, y, z);
      };
      return pass;
    };
    return encoder;
  });
  return async () => {
    const back = device.createBuffer({ size: 16, usage: 1 | 8 }); // MAP_READ | COPY_DST
    const encoder = device.createCommandEncoder();
    encoder.copyBufferToBuffer(counters, 0, back, 0, 16);
    encoder.clearBuffer(counters);
    device.queue.submit([encoder.finish()]);
    await back.mapAsync(1);
    const [readBytes, writtenBytes, busyThreads, barriers] = new Uint32Array(back.getMappedRange());
    const counts = {
      readBytes: readBytes!,
      writtenBytes: writtenBytes!,
      busyThreads: busyThreads!,
      barriers: barriers!,
    };
    back.destroy();
    const since = { dispatches, threads, ...counts };
    [dispatches, threads] = [0, 0];
    return since;
  };
}
