/** What a session on our kernels consists of. */
import type { Session } from '@ropewalk/model';
import type { DecoderSession, KernelSequence } from '@ropewalk/model/internal';

export function kernelSequence(session: Session): KernelSequence {
  return (session as DecoderSession).sequence as KernelSequence;
}
