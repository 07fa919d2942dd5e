/** Operators that go row by row: embedding, the norms, argmax. @module */
import { isBlocks } from '../../../core/blocks.js';
import { sizeBytes } from '../../../core/dtypes.js';
import { countElements } from '../../../core/shape.js';
import type { ArgmaxPlan } from '../../../ops/argmax.js';
import type { EmbeddingPlan } from '../../../ops/embedding.js';
import type { LayerNormPlan } from '../../../ops/layer-norm.js';
import type { RmsNormPlan } from '../../../ops/rms-norm.js';
import { rowsOf } from '../../walks.js';
import { Argmax, Embedding, Kernel, Norm } from '../abi.js';
import { type Call, typeOf, writeF64, writeWalk } from '../call.js';

/** Runs a look-up of rows: bit for bit, or widened to f32. */
export function runEmbedding({ rows, weight, out }: EmbeddingPlan, call: Call): void {
  call.stage([isBlocks(weight) ? weight.bytes : weight], [out]);
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

/** Runs an RMS norm or a layer norm. */
export function runNorm(plan: RmsNormPlan | LayerNormPlan, call: Call): void {
  const { x, weight, eps, out } = plan;
  const bias = plan.op === 'layer_norm' ? plan.bias : undefined;
  call.stage(bias ? [x, weight, bias] : [x, weight], [out]);
  if (out.size === 0) return;
  const n = x.shape.at(-1)!;
  const rows = rowsOf([x, out]);
  const gains = call.denseF32(weight);
  const shifts = bias ? call.denseF32(bias) : 0;
  const args = call.launcher.prepare(n * 4);
  args[Norm.x] = call.address(x);
  args[Norm.y] = call.address(out);
  args[Norm.weight] = gains;
  args[Norm.centered] = plan.op === 'layer_norm' ? 1 : 0;
  args[Norm.bias] = shifts;
  args[Norm.type] = typeOf(x);
  args[Norm.n] = n;
  args[Norm.xStride] = x.strides.at(-1)!;
  args[Norm.yStride] = out.strides.at(-1)!;
  writeF64(args, Norm.eps, eps);
  writeWalk(args, Norm.walk, rows);
  call.launcher.run(Kernel.norm, countElements(rows.dims), 3 * n * 4);
}

/** Runs an argmax. */
export function runArgmax({ values, outIndex, outValue }: ArgmaxPlan, call: Call): void {
  call.stage([values], [outIndex, outValue]);
  if (outIndex.size === 0) return;
  const rows = rowsOf([values, outIndex, outValue]);
  const n = values.shape.at(-1)!;
  const args = call.launcher.prepare();
  args[Argmax.values] = call.address(values);
  args[Argmax.index] = call.address(outIndex);
  args[Argmax.value] = call.address(outValue);
  args[Argmax.type] = typeOf(values);
  args[Argmax.n] = n;
  args[Argmax.stride] = values.strides.at(-1)!;
  args[Argmax.indexSize] = sizeBytes(outIndex.dtype);
  writeWalk(args, Argmax.walk, rows);
  call.launcher.run(Kernel.argmax, countElements(rows.dims), n * sizeBytes(values.dtype));
}
