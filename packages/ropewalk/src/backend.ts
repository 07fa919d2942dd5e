/**
 * `ropewalk/backend`: everything that the author of a backend needs.
 *
 * A backend runs plans. A plan ({@link OpPlan}) names the tensors that it reads and writes and has been checked in
 * full, so a backend trusts it. To write one, implement {@link Backend}:
 *
 * - `allocate` and `upload` make tensors in the backend's memory: {@link denseTensor} lays one over a {@link
 *   TensorStorage}. A backend without its own memory spreads {@link hostMemory}.
 * - `whyNot` gives the reason why a plan cannot run, `run` runs or queues it. Both call {@link checkPlan} first, then
 *   switch over `plan.op` and end with `default: unknownPlan(plan satisfies never)`, so that a switch that misses an
 *   operator does not compile.
 * - `finish` waits for queued plans, `dispose` gives everything back.
 *
 * Users pass it: `await ropewalk({ backend: mine })`. Errors are a `RopewalkError`, thrown by {@link refuse} and
 * {@link fail}.
 *
 * @example
 * import { ropewalk } from 'ropewalk';
 * import { type Backend, checkPlan, fail, hostMemory } from 'ropewalk/backend';
 * import { runReference } from 'ropewalk/reference';
 *
 * const whyNot: Backend['whyNot'] = (plan) => {
 *   checkPlan(plan);
 *   return plan.op === 'add' ? undefined : `it only adds: no ${plan.op}`;
 * };
 * const mine: Backend = {
 *   ...hostMemory(),
 *   name: 'mine',
 *   capabilities: () => ({ backend: 'mine', description: 'adds', dtypes: ['f32'], threads: 1, notTaken: [] }),
 *   whyNot,
 *   run(plan) {
 *     const why = whyNot(plan);
 *     if (why !== undefined) fail('UNSUPPORTED', 'mine', why);
 *     runReference(plan); // or kernels of your own, over plan.a, plan.b and plan.out
 *   },
 *   finish: async () => {},
 * };
 * const rw = await ropewalk({ backend: mine });
 *
 * @module ropewalk/backend
 */
export type { Backend, BackendOptions, Capabilities } from './backends/backend.js';
export { hostMemory } from './backends/host-memory.js';
export { loadNumber, newArray, storeNumber } from './core/dtypes.js';
export { fail, refuse } from './core/errors.js';
export { isRowMajor, rowMajorStrides, walk } from './core/shape.js';
export { denseTensor, hostOf, type TensorStorage, writtenLater } from './core/tensor.js';
export { checkPlan, type OpName, type OpPlan, unknownPlan } from './ops/op-plan.js';
export type { Runner } from './ops/runner.js';
