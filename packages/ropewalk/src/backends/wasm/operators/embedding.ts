/** Rows of a table, bit for bit or widened to f32. @module */
import { isBlocks } from '../../../core/blocks.js';
import { sizeBytes } from '../../../core/dtypes.js';
import type { EmbeddingPlan } from '../../../ops/embedding.js';
import { Embedding, Kernel } from '../abi.js';
import type { Call } from '../call.js';

/** Runs a look-up. */
export function runEmbedding({ rows, weight, out }: EmbeddingPlan, call: Call): void {
  call.bring([isBlocks(weight) ? weight.bytes : weight], [out]);
  if (out.size === 0) return;
  const index = call.copyIn(rows);
  const from = call.matrix(weight);
  const width = weight.shape[1]!;
  const size = sizeBytes(out.dtype);
  const widens = isBlocks(weight) || weight.dtype !== out.dtype;
  const args = call.launcher.prepare(widens ? width * 4 : 0);
  args[Embedding.table] = from.address;
  args[Embedding.y] = call.address(out);
  args[Embedding.index] = index;
  args[Embedding.size] = size;
  args[Embedding.type] = from.type;
  args[Embedding.width] = width;
  args[Embedding.tableRow] = from.row;
  args[Embedding.tableStride] = from.stride;
  args[Embedding.yRow] = out.strides[0]!;
  args[Embedding.yStride] = out.strides[1]!;
  call.launcher.run(widens ? Kernel.embeddingWide : Kernel.embedding, rows.length, 2 * width * size);
}
