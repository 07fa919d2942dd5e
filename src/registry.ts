/**
 * The backends of this build, fastest first. The reference comes last: it always works.
 *
 * @module
 */
import type { Backend, BackendEntry } from './backends/backend.js';
import { refuse } from './core/errors.js';

const reference: BackendEntry = {
  name: 'reference',
  whyNot: async () => undefined,
  async open(): Promise<Backend> {
    const { referenceRunner } = await import('./reference/index.js');
    return {
      ...referenceRunner(),
      capabilities: () => ({
        backend: 'reference',
        description: 'float64 on one thread of plain TypeScript: the oracle, exact and slow',
        dtypes: ['f64', 'f32', 'f16', 'bf16'],
        threads: 1,
        notTaken: ['this build has no faster backend'],
      }),
      dispose() {},
    };
  },
};

/** Every backend of this build, fastest first. */
export const BACKENDS: readonly BackendEntry[] = /* @__PURE__ */ Object.freeze([reference]);

/**
 * Opens a backend by name.
 *
 * @param name - a backend's name, or `auto` for the fastest that opens here
 * @throws {RopewalkError} UNSUPPORTED for a name this build does not have; DEVICE when it cannot open here, with the reason
 */
export async function openBackend(name: string): Promise<Backend> {
  const wanted = name === 'auto' ? BACKENDS : BACKENDS.filter((entry) => entry.name === name);
  if (wanted.length === 0) refuse('UNSUPPORTED', 'ropewalk: backend', `auto or ${BACKENDS.map((entry) => entry.name).join(', ')}`, name);
  const reasons: string[] = [];
  for (const entry of wanted) {
    const why = await entry.whyNot();
    if (why === undefined) return entry.open();
    reasons.push(`${entry.name}: ${why}`);
  }
  return refuse('DEVICE', 'ropewalk: backend', `${name} to open`, reasons.join('; '));
}
