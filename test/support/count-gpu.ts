/** Counts the calls that a WebGPU backend makes to its device. */

/** The numbers of calls of the device, its queue and its encoders, and the bytes that writeBuffer sends. */
export interface GpuCounts {
  submits: number;
  passes: number;
  dispatches: number;
  workgroups: number;
  writes: number;
  writtenBytes: number;
  copies: number;
  bindGroups: number;
  pipelines: number;
  buffers: number;
}

type Methods = Record<string, (...given: unknown[]) => unknown>;

/** Calls `seen` after each call of a method, with its arguments and its result. */
function watch(object: object, name: string, seen: (given: unknown[], result: unknown) => void): void {
  const methods = object as Methods;
  const original = methods[name]!;
  Object.defineProperty(object, name, {
    configurable: true,
    value: (...given: unknown[]): unknown => {
      const result = original.apply(object, given);
      seen(given, result);
      return result;
    },
  });
}

/**
 * Starts to count.
 *
 * @param device - the device of the backend, which continues to use it
 * @returns the growing counts; the caller may set them to 0
 */
export function countGpu(device: GPUDevice): GpuCounts {
  const counts: GpuCounts = {
    ...{ submits: 0, passes: 0, dispatches: 0, workgroups: 0, writes: 0, writtenBytes: 0, copies: 0 },
    ...{ bindGroups: 0, pipelines: 0, buffers: 0 },
  };
  const made = (name: string, count: 'bindGroups' | 'pipelines' | 'buffers'): void =>
    watch(device, name, () => counts[count]++);
  made('createBindGroup', 'bindGroups');
  made('createComputePipeline', 'pipelines');
  made('createBuffer', 'buffers');
  watch(device.queue, 'submit', () => counts.submits++);
  watch(device.queue, 'writeBuffer', ([, , data, , size]) => {
    const { byteLength, BYTES_PER_ELEMENT: unit } = data as Uint8Array;
    counts.writes++;
    counts.writtenBytes += size === undefined ? byteLength : (size as number) * unit;
  });
  watch(device, 'createCommandEncoder', (_, encoder) => {
    watch(encoder as object, 'copyBufferToBuffer', () => counts.copies++);
    watch(encoder as object, 'beginComputePass', (_, pass) => {
      counts.passes++;
      watch(pass as object, 'dispatchWorkgroups', ([x, y = 1]) => {
        counts.dispatches++;
        counts.workgroups += (x as number) * (y as number);
      });
    });
  });
  return counts;
}
