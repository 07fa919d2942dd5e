/**
 * Padding of a batch's rows, for attention that reads each row from its first key on.
 *
 * Programs pad on the left (transformers) or on the right (onnxruntime-genai). GroupQueryAttention gets the number of
 * keys of a row and reads the first ones, so padding must come last. Inside the graph each row is turned until its
 * first token comes first, and logits are turned back:
 *
 *     given   [pad pad a b c]   mask 0 0 1 1 1
 *     inside  [a b c pad pad]
 *
 * @module
 */
import type { DecoderScope } from './scope.js';

/** Turns `[batch, seq, …]` from the order of the inputs until each row starts with its first token. */
export function tokensFirst(s: DecoderScope, x: string): string {
  return gathered(s, x, places(s, 'Add'));
}

/**
 * Turns `[batch, seq, …]` back to the order of the inputs.
 *
 * @param first - the first wanted row in that order, i64 `[1]`, negative from the end. Default: all rows.
 */
export function asGiven(s: DecoderScope, x: string, first?: string): string {
  const all = places(s, 'Sub');
  if (first === undefined) return gathered(s, x, all);
  const kept = s.once('places of kept rows', () =>
    s.b.add('Slice', [all, first, s.integers(Number.MAX_SAFE_INTEGER), s.integers(1)]),
  );
  return gathered(s, x, kept);
}

function gathered({ b }: DecoderScope, x: string, rows: string): string {
  return b.add('GatherND', [x, rows], { batch_dims: 1 });
}

/** Computes the place from which each token comes, i64 `[batch, seq, 1]`. */
function places(s: DecoderScope, way: 'Add' | 'Sub'): string {
  const { b } = s;
  return s.once(`places ${way}`, () => {
    const seq = s.sizeOf('input_ids');
    const padding = s.once('padding before each row', () => {
      const own = b.add('Slice', [
        b.cast('attention_mask', 'i32'),
        b.add('Unsqueeze', [b.add('Neg', [seq]), s.integers(0)]),
        s.integers(Number.MAX_SAFE_INTEGER),
        s.integers(1),
      ]);
      return b.add('ArgMax', [own], { axis: 1, keepdims: 1 });
    });
    const range = s.once('places in a row', () => b.add('Range', [s.integer(0), seq, s.integer(1)]));
    const turned = b.add('Mod', [b.add(way, [range, padding]), seq]);
    return b.add('Unsqueeze', [turned, s.integers(2)]);
  });
}
