/** Reads the parts of a session on our kernels. */
import type { Session } from '@ropewalk/model';
import type { DecoderSession, KernelSequence } from '@ropewalk/model/internal';

export function kernelSequence(session: Session): KernelSequence {
  return (session as DecoderSession).sequence as KernelSequence;
}
