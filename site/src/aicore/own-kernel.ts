/** Runs a visitor's kernel in AscendC's calls on the model, in the sandbox. @module */
import type { MeasuredKernel, MeasureOptions, OperatorCall } from '@ropewalk/ascend';
import { refuseStray, runInSandbox } from '../shared/sandbox.js';
import afterScript from './own.js?raw';

/** The call that is measured; `rope` is for a kernel of that operator. */
export interface OwnCall {
  readonly call: OperatorCall;
  readonly rope: Partial<OperatorCall>;
  readonly options: MeasureOptions;
}

/**
 * Runs the default export of a text.
 *
 * @throws {Error} whose words are for the visitor
 */
export async function runOwn(text: string, call: OwnCall, stop: AbortSignal): Promise<MeasuredKernel> {
  const { LIBRARY } = await import('virtual:own-kernel');
  // A script that is no module has no export. The line stays as long as it is.
  const code = text.replace(/^export default\b/m, 'const kernel =');
  const answer = await runInSandbox('aicore', { before: `${LIBRARY}\n`, code, after: afterScript }, call, stop);
  const { measured } = Object(answer) as { measured?: MeasuredKernel };
  return Array.isArray(measured?.run?.blocks) && Array.isArray(measured.run.findings)
    ? measured
    : refuseStray('Export a kernel as the docs do.');
}
