/** The backends of this package. The reference comes last, because it always works. @module */
import type { Backend, BackendEntry, BackendOptions } from './backends/backend.js';
import { hostMemory } from './backends/host-memory.js';
import { checkFields, didYouMean, type OptionNames, optionNames, readOptions } from './core/arguments.js';
import { BLOCK_FORMAT_NAMES } from './core/block-formats.js';
import { fail, refuse } from './core/errors.js';
import { ACTIVATIONS } from './ops/linear.js';
import type { OpPlan } from './ops/op-plan.js';

const cpu: BackendEntry = {
  name: 'cpu',
  auto: true,
  whyNot: async () => (await import('./backends/wasm/module.js')).whyNotWasm(),
  async open(options): Promise<Backend> {
    const { runReference } = await import('./reference/index.js');
    return openCpu(options, runReference);
  },
};

const webgpu: BackendEntry = {
  name: 'webgpu',
  auto: false, // It may be the fastest, but its results must be awaited, so a program chooses it by name.
  whyNot: async () => (await import('./backends/webgpu/device.js')).whyNotWebgpu(),
  async open(options): Promise<Backend> {
    const { openWebgpu } = await import('./backends/webgpu/host.js');
    const { runReference } = await import('./reference/index.js');
    return openWebgpu(options, runReference);
  },
};

const reference: BackendEntry = {
  name: 'reference',
  auto: true,
  whyNot: async () => undefined,
  async open(_options, passedOver = ['cpu: not asked for']): Promise<Backend> {
    const { referenceRunner } = await import('./reference/index.js');
    return {
      ...hostMemory(),
      ...referenceRunner(),
      capabilities: () => ({
        backend: 'reference',
        description: 'float64 on one thread of plain TypeScript: the oracle, exact and slow',
        dtypes: ['f64', 'f32', 'f16', 'bf16'],
        blockFormats: BLOCK_FORMAT_NAMES,
        activations: ACTIVATIONS,
        threads: 1,
        notTaken: passedOver,
      }),
    };
  },
};

/** The backends of this package, in the order in which `auto` tries them. */
export const BACKENDS: readonly BackendEntry[] = /* @__PURE__ */ Object.freeze([cpu, webgpu, reference]);

/** The names of a backend's options. */
export const BACKEND_NAMES: OptionNames<BackendOptions> = /* @__PURE__ */ optionNames(
  'threads memoryLimit simd powerPreference',
);

/**
 * Opens a backend by name.
 *
 * @param name - the name of one of {@link BACKENDS}, or `auto` for the fastest that opens here
 * @param options - options of the backend
 * @returns the backend, for {@link ropewalk} or `new Ropewalk(…)`; the caller disposes of it
 * @throws {RopewalkError} UNSUPPORTED for a name that is not known; DEVICE when it cannot open here, with the reason;
 *   RANGE or UNSUPPORTED for a bad option
 */
export async function openBackend(name: string, options: BackendOptions = {}): Promise<Backend> {
  checkFields(options, BACKEND_NAMES, 'ropewalk: options');
  return openFrom(BACKENDS, name, options);
}

/** Opens one of a list of backends by name, as {@link openBackend} does with this package's own. */
export async function openFrom<Options>(
  entries: readonly BackendEntry<Options>[],
  name: string,
  options?: Options,
): Promise<Backend> {
  const wanted = entries.filter((entry) => (name === 'auto' ? entry.auto : entry.name === name));
  const names = entries.map((entry) => entry.name);
  if (wanted.length === 0)
    refuse('UNSUPPORTED', 'ropewalk: backend', `auto or one of ${names.join(', ')}`, name, didYouMean(name, names));
  const reasons: string[] = [];
  for (const entry of wanted) {
    const why = await entry.whyNot();
    if (why === undefined) return entry.open(options, reasons.length > 0 ? reasons : undefined);
    reasons.push(`${entry.name}: ${why}`);
  }
  return fail('DEVICE', 'ropewalk: backend', `cannot open ${reasons.join('; nor ')}`);
}

/**
 * Opens the cpu backend for a page that bundles nothing else: no GPU code, no reference.
 *
 * @param options - options of the backend cpu
 * @param float64 - runs the plans that need float64 arithmetic, such as `runReference` of `ropewalk/reference`; without
 *   it they are refused
 * @throws {RopewalkError} RANGE or UNSUPPORTED for a bad option; DEVICE when WebAssembly or its memory is missing
 * @example const rw = new Ropewalk(await openCpu());
 */
export async function openCpu(options: BackendOptions = {}, float64?: (plan: OpPlan) => void): Promise<Backend> {
  const given = readOptions(options, 'cpu: options', BACKEND_NAMES);
  if (float64 !== undefined && typeof float64 !== 'function')
    refuse('RANGE', 'cpu: float64', 'a function that runs a plan', float64);
  return (await import('./backends/wasm/host.js')).openCpu(given, float64);
}
