/**
 * Widens quantised blocks in the graph. The floats are exact for every scale that is a number.
 *
 * Before opset 26 ONNX has no operator that reads two bytes as an f16. So the high byte of an f16 chooses, from two
 * tables of 256 entries, its value and the step of its low byte. f32 holds both, and their sum, exactly.
 *
 * @module
 * @see ggml-org/ggml@d99724f src/ggml-quants.c, dequantize_row_q8_0 and dequantize_row_q4_0
 */
import { BLOCK_FORMATS, type BlockFormat, numberFromF16, tensorFrom } from 'ropewalk';
import type { GraphBuilder } from './builder.js';

const BYTES = 256;

export const GRAPH_FORMATS: readonly BlockFormat[] = ['q8_0', 'q4_0'];

/** Appends the widening of a matrix in {@link GRAPH_FORMATS}, from u8 bytes of any shape. Both dtypes are exact. */
export function dequantise(
  b: GraphBuilder,
  bytes: string,
  format: BlockFormat,
  [n, k]: readonly [n: number, k: number],
  to: 'f32' | 'f64',
): string {
  const unit = BLOCK_FORMATS[format].bytes;
  const blocks = k / BLOCK_FORMATS[format].weights;
  const byBlock = b.add('Reshape', [bytes, b.integers('by_block', [n, blocks, unit])], { allowzero: 1 });
  // Gather takes indices of i32 or i64 only.
  const indices = b.cast(byBlock, 'i32');
  const sizes = b.integers('block_parts', [1, 1, unit - 2]);
  const [low, high, quants] = b.addMany('Split', [indices, sizes], { axis: 2 }, 3) as [string, string, string];
  const table = (name: string, value: (byte: number) => number): string =>
    b.constant(name, tensorFrom(Float32Array.from({ length: BYTES }, (_, byte) => value(byte))));
  const look = (name: string, value: (byte: number) => number, index: string): string =>
    b.add('Gather', [table(name, value), index], { axis: 0 });
  const half = (name: string, at: number): string => look(name, (byte) => ((byte >> at) & 15) - 8, quants);
  const start = (byte: number): number => numberFromF16(byte << 8);
  const step = (byte: number): number => {
    const size = numberFromF16((byte << 8) | 1) - start(byte);
    // An infinite scale stays infinite. A NaN that only the low byte distinguishes from infinity becomes infinity.
    return Number.isNaN(size) ? 0 : size;
  };
  const scale = b.add('Add', [
    look('scale_high', start, high),
    b.add('Mul', [look('scale_step', step, high), b.cast(low, 'f32')]),
  ]);
  const weights =
    format === 'q8_0'
      ? look('signed', (byte) => (byte << 24) >> 24, quants)
      : b.add('Concat', [half('low_half', 0), half('high_half', 4)], { axis: 2 });
  const product = b.add('Mul', [scale, weights]);
  const matrix = b.add('Reshape', [product, b.integers('matrix', [n, k])], { allowzero: 1 });
  return to === 'f64' ? b.cast(matrix, 'f64') : matrix;
}
