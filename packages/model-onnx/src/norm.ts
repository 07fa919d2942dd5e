/** The norm of a decoder's graph. @module */
import type { DecoderOperators } from './operators.js';
import type { DecoderScope } from './scope.js';

/** Appends the norm of a place such as `3.attentionNorm` over the last dimension. */
export function normOf(s: DecoderScope, ops: DecoderOperators, x: string, place: string): string {
  const [weight, bias] = ['weight', 'bias'].map((part) => s.at(`${place}.${part}`));
  const gain = s.numbers([weight!]);
  return s.config.family.norm ? ops.layerNorm(x, gain, bias && s.numbers([bias])) : ops.rmsNorm(x, gain);
}
