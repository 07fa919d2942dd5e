/** Runs a visitor's `rope` in the sandbox. @module */
import { refuseStray, runInSandbox } from '../shared/sandbox.js';
import callScript from './call.js?raw';
import type { KernelCall } from './kernel.worker.js';

/**
 * Runs `rope` of a text once.
 *
 * @returns y, as many numbers as x has
 * @throws {Error} whose words are for the visitor
 */
export async function runRope(code: string, call: KernelCall, stop: AbortSignal): Promise<Float32Array> {
  const answer = await runInSandbox('js', { code, after: callScript }, call, stop);
  const { y } = Object(answer) as { y?: unknown };
  return y instanceof Float32Array && y.length === call.x.length ? y : refuseStray('Return y from rope.');
}
