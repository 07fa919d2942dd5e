/**
 * The contract between operators and the code that runs them.
 *
 * A plan names the tensors that it reads and writes, and has been checked in full; a runner trusts it.
 *
 * @module
 */
import { reading } from '../core/arguments.js';
import type { Dtype } from '../core/dtypes.js';
import { refuse } from '../core/errors.js';
import type { Tensor } from '../core/tensor.js';
import type { OpPlan } from './op-plan.js';

/** Something that holds tensors and runs plans: a backend, or the reference. */
export interface Runner {
  /** Its name in `--backend` and in reports: `reference`, `cpu`, `webgpu`, … */
  readonly name: string;
  /**
   * Makes a dense tensor of zeros in this runner's memory.
   *
   * @param dtype - element type
   * @param shape - dimensions
   */
  allocate<D extends Dtype>(dtype: D, shape: readonly number[]): Tensor<D>;
  /**
   * Says why a plan cannot run here.
   *
   * @param plan - a checked plan
   * @returns the reason, or undefined when it can
   */
  whyNot(plan: OpPlan): string | undefined;
  /**
   * Runs a plan, or queues it. `await y.read()` waits for an output; the typed array of an output in host memory is
   * ready after {@link finish}.
   *
   * @param plan - a checked plan
   */
  run(plan: OpPlan): void;
  /**
   * Waits until everything queued is done and every output in host memory is written.
   *
   * @throws {RopewalkError} DEVICE when something queued failed
   */
  finish(): Promise<void>;
}

/**
 * Calls `use` with a fresh dense tensor of zeros in the runner's memory, and disposes of it if `use` throws, so that a
 * refused call leaks nothing.
 */
export function withFresh<D extends Dtype, T>(
  runner: Pick<Runner, 'allocate'>,
  dtype: D,
  shape: readonly number[],
  use: (fresh: Tensor<D>) => T,
): T {
  const fresh = runner.allocate(dtype, shape);
  try {
    return use(fresh);
  } catch (error) {
    fresh.dispose();
    throw error;
  }
}

/** Checks that an argument can run plans. @throws {RopewalkError} RANGE when it cannot */
export function checkRunner(runner: unknown, where: string): asserts runner is Runner {
  const { run, allocate } = reading(where, () => ({
    run: (runner as Runner)?.run,
    allocate: (runner as Runner)?.allocate,
  }));
  if (typeof run !== 'function' || typeof allocate !== 'function')
    refuse('RANGE', where, 'a runner', runner, 'Open one with ropewalk(), or take referenceRunner().');
}
