/** A gated short convolution of a decoder's graph (LFM2), up to its output matrix. @module */
import type { DecoderOperators } from './operators.js';
import { asGiven, tokensFirst } from './padding.js';
import { BATCH, type DecoderScope } from './scope.js';

/**
 * Appends the convolution: `[batch, seq, h]` → `[batch, seq, h]`. It reads past_conv.N and writes present_conv.N.
 *
 * Padding counts as zeros, so that a row that is padded on the left starts as one without padding.
 */
export function shortConv(s: DecoderScope, ops: DecoderOperators, input: string, layer: number): string {
  const { b, config, settings } = s;
  const { hiddenSize: h } = config;
  const { width } = config.recurrent!;
  const slice = (x: string, axis: number, from: number, to: number): string =>
    b.add('Slice', [x, ...[from, to, axis].map((one) => s.integers(one))]);
  const turned = ops.tokensFirst && !settings.newRows;
  const projected = ops.linear(turned ? asGiven(s, input) : input, s.matrix(`${layer}.convIn`)!);
  const [before, after, x] = b.addMany('Split', [projected, s.integers(h, h, h)], { axis: 2 }, 3) as [
    string,
    string,
    string,
  ];
  let now = b.add('Mul', [before, x]);
  if (!settings.newRows) now = b.add('Mul', [now, tokensMask(s)]);
  const past = `past_conv.${layer}`;
  const channelsLast = { perm: [0, 2, 1] };
  const rows = width === 1 ? now : b.add('Concat', [b.add('Transpose', [past], channelsLast), now], { axis: 1 });
  const taps = b.add('Transpose', [s.numbers([s.at(`${layer}.conv.weight`)!])], { perm: [1, 0] }); // [width, h]
  const bias = s.at(`${layer}.conv.bias`);
  let sum = bias && s.numbers([bias]);
  for (let j = 0; j < width; j++) {
    const end = j === width - 1 ? Number.MAX_SAFE_INTEGER : j + 1 - width;
    const term = b.add('Mul', [slice(rows, 1, j, end), slice(taps, 0, j, j + 1)]);
    sum = sum === undefined ? term : b.add('Add', [sum, term]);
  }
  if (width > 1) {
    const last = b.add('Transpose', [slice(rows, 1, 1 - width, Number.MAX_SAFE_INTEGER)], channelsLast);
    b.output(last, `present_conv.${layer}`, 'f32', [BATCH, h, width - 1]);
  }
  const y = b.add('Mul', [after, sum!]);
  return turned ? tokensFirst(s, y) : y;
}

/** Makes 1 for the tokens of this call and 0 for padding, f32 `[batch, seq, 1]`. */
function tokensMask(s: DecoderScope): string {
  const { b } = s;
  return s.once('tokens of this call', () => {
    const first = b.add('Unsqueeze', [b.add('Neg', [s.sizeOf('input_ids')]), s.integers(0)]);
    const end = s.integers(Number.MAX_SAFE_INTEGER);
    const own = b.add('Slice', ['attention_mask', first, end, s.integers(1)]);
    return b.add('Unsqueeze', [b.cast(own, 'f32'), s.integers(2)]);
  });
}
