/** Looking up rows, bit for bit. @module */
import { copyElements } from '../core/tensor.js';
import type { EmbeddingPlan } from '../ops/embedding.js';

/**
 * Copies row `rows[n]` of the table to row n of out.
 *
 * @param plan - from planEmbedding
 */
export function embeddingReference({ rows, weight, out }: EmbeddingPlan): void {
  for (const [n, row] of rows.entries()) copyElements(weight.slice(0, row, row + 1), out.slice(0, n, n + 1));
}
