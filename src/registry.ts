/**
 * The backends of this build, fastest first. The reference comes last: it always works.
 *
 * @module
 */
import type { Backend, BackendEntry, BackendOptions, Capabilities } from './backends/backend.js';
import type { Dtype } from './core/dtypes.js';
import { refuse } from './core/errors.js';
import type { Tensor } from './core/tensor.js';
import type { OpPlan } from './ops/runner.js';

const cpu: BackendEntry = {
  name: 'cpu',
  whyNot: async () => (await import('./backends/wasm/module.js')).whyNotWasm(),
  async open(options): Promise<Backend> {
    const { openCpu } = await import('./backends/wasm/host.js');
    const { runReference } = await import('./reference/index.js');
    return new WithFloat64(await openCpu(options), runReference);
  },
};

const reference: BackendEntry = {
  name: 'reference',
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
      dispose() {},
    };
  },
};

/** The cpu backend, with f64 plans handed to the reference: its kernels compute in f32. `capabilities()` says so. */
class WithFloat64 implements Backend {
  readonly name: string;

  constructor(
    private readonly backend: Backend,
    private readonly runReference: (plan: OpPlan) => void,
  ) {
    this.name = backend.name;
  }

  capabilities(): Capabilities {
    const found = this.backend.capabilities();
    return { ...found, description: `${found.description}; f64 on the reference`, dtypes: ['f64', ...found.dtypes] };
  }

  allocate<D extends Dtype>(dtype: D, shape: readonly number[]): Tensor<D> {
    return this.backend.allocate(dtype, shape);
  }

  whyNot(): undefined {
    return undefined;
  }

  run(plan: OpPlan): void {
    if (this.backend.whyNot(plan) === undefined) this.backend.run(plan);
    else this.runReference(plan);
  }

  dispose(): void {
    this.backend.dispose();
  }
}

/** Every backend of this build, fastest first. */
export const BACKENDS: readonly BackendEntry[] = /* @__PURE__ */ Object.freeze([cpu, reference]);

/**
 * Opens a backend by name.
 *
 * @param name - a backend's name, or `auto` for the fastest that opens here
 * @param options - for the backend
 * @throws {RopewalkError} UNSUPPORTED for a name this build does not have; DEVICE when it cannot open here, with the reason;
 *   RANGE or UNSUPPORTED for a bad option
 */
export async function openBackend(name: string, options: BackendOptions = {}): Promise<Backend> {
  const wanted = name === 'auto' ? BACKENDS : BACKENDS.filter((entry) => entry.name === name);
  if (wanted.length === 0) refuse('UNSUPPORTED', 'ropewalk: backend', `auto, ${BACKENDS.map((entry) => entry.name).join(' or ')}`, name);
  const reasons: string[] = [];
  for (const entry of wanted) {
    const why = await entry.whyNot();
    if (why === undefined) return entry.open(options, reasons.length > 0 ? reasons : undefined);
    reasons.push(`${entry.name}: ${why}`);
  }
  return refuse('DEVICE', 'ropewalk: backend', `${name} to open`, reasons.join('; '));
}
