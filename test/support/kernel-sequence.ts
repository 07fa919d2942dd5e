/** Reads the parts of a session on our kernels. */
import type { Session } from '../../packages/model/src/index.js';
import type { KernelSequence } from '../../packages/model/src/kernels.js';
import type { DecoderSession } from '../../packages/model/src/session.js';

export function kernelSequence(session: Session): KernelSequence {
  return (session as DecoderSession).sequence as KernelSequence;
}
