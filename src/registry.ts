/**
 * The backends of this build. The reference comes last: it always works.
 *
 * @module
 */
import type { Backend, BackendEntry, BackendOptions } from './backends/backend.js';
import { RopewalkError, refuse } from './core/errors.js';
import { copyElements, zeros } from './core/tensor.js';

const cpu: BackendEntry = {
  name: 'cpu',
  auto: true,
  whyNot: async () => (await import('./backends/wasm/module.js')).whyNotWasm(),
  async open(options): Promise<Backend> {
    const { openCpu } = await import('./backends/wasm/host.js');
    const { runReference } = await import('./reference/index.js');
    // Its kernels compute in f32: what needs float64 goes to the reference, and capabilities() says so.
    return openCpu(options, runReference);
  },
};

const webgpu: BackendEntry = {
  name: 'webgpu',
  auto: false, // though it may be the fastest: its results must be waited for, so a program chooses it by name
  whyNot: async () => (await import('./backends/webgpu/device.js')).whyNotWebgpu(),
  async open(options): Promise<Backend> {
    const { openWebgpu } = await import('./backends/webgpu/host.js');
    const { runReference } = await import('./reference/index.js');
    return openWebgpu(options, runReference);
  },
};

const onnxruntime: BackendEntry = {
  name: 'onnxruntime',
  auto: false,
  byName: true, // it runs the graphs that are exported for others; as a backend of its own it is slow
  whyNot: async () => (await import('./backends/onnxruntime/package.js')).whyNotOnnxruntime(),
  async open(options): Promise<Backend> {
    // Not a literal: bundlers for browsers, where it cannot run, would follow it to the library that writes protobuf.
    const host = './backends/onnxruntime/host.js';
    const { openOnnxruntime } = (await import(
      /* webpackIgnore: true */ /* @vite-ignore */ host
    )) as typeof import('./backends/onnxruntime/host.js');
    return openOnnxruntime(options);
  },
};

const ascendModel: BackendEntry = {
  name: 'ascend-model',
  auto: false,
  byName: true, // a model of a device, thousands of times slower than the machine it runs on
  whyNot: async () => undefined,
  open: async () => (await import('./aicore/runner.js')).openAscendModel(),
};

const reference: BackendEntry = {
  name: 'reference',
  auto: true,
  whyNot: async () => undefined,
  async open(_options, passedOver = ['cpu: not asked for']): Promise<Backend> {
    const { referenceRunner } = await import('./reference/index.js');
    return {
      ...referenceRunner(),
      capabilities: () => ({
        backend: 'reference',
        description: 'float64 on one thread of plain TypeScript: the oracle, exact and slow',
        dtypes: ['f64', 'f32', 'f16', 'bf16'],
        threads: 1,
        notTaken: passedOver,
      }),
      upload(source) {
        const copy = zeros(source.dtype, source.shape);
        copyElements(source, copy);
        return copy;
      },
      dispose() {},
    };
  },
};

/** Every backend of this build. */
export const BACKENDS: readonly BackendEntry[] = /* @__PURE__ */ Object.freeze([
  cpu,
  webgpu,
  onnxruntime,
  ascendModel,
  reference,
]);

/**
 * Opens a backend by name.
 *
 * @param name - a backend's name, or `auto` for the fastest that opens here
 * @param options - for the backend
 * @throws {RopewalkError} UNSUPPORTED for a name this build does not have; DEVICE when it cannot open here, with the reason;
 *   RANGE or UNSUPPORTED for a bad option
 */
export async function openBackend(name: string, options: BackendOptions = {}): Promise<Backend> {
  const wanted = BACKENDS.filter((entry) => (name === 'auto' ? entry.auto : entry.name === name));
  if (wanted.length === 0)
    refuse(
      'UNSUPPORTED',
      'ropewalk: backend',
      `auto or one of ${BACKENDS.map((entry) => entry.name).join(', ')}`,
      name,
    );
  const reasons: string[] = [];
  for (const entry of wanted) {
    const why = await entry.whyNot();
    if (why === undefined) return entry.open(options, reasons.length > 0 ? reasons : undefined);
    reasons.push(`${entry.name}: ${why}`);
  }
  throw new RopewalkError('DEVICE', `ropewalk: backend: expected ${name} to open, got "${reasons.join('; ')}"`); // in full, as it says the way out
}
