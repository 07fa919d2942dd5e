/** Normalisation of rows. @module */
import { countElements } from '../../../core/shape.js';
import type { LayerNormPlan } from '../../../ops/layer-norm.js';
import type { RmsNormPlan } from '../../../ops/rms-norm.js';
import { rowsOf } from '../../walks.js';
import { Kernel, Norm } from '../abi.js';
import { writeF64, writeWalk } from '../arguments.js';
import { type Call, typeOf } from '../call.js';

/** Runs an RMS norm or a layer norm. */
export function runNorm(plan: RmsNormPlan | LayerNormPlan, call: Call): void {
  const { x, weight, eps, out } = plan;
  const bias = plan.op === 'layer_norm' ? plan.bias : undefined;
  call.bring(bias ? [x, weight, bias] : [x, weight], [out]);
  if (out.size === 0) return;
  const n = x.shape.at(-1)!;
  const rows = rowsOf([x, out]);
  const gains = call.denseF32(weight);
  const shifts = bias ? call.denseF32(bias) : 0;
  const args = call.launcher.prepare(n * 4);
  args[Norm.x] = call.address(x);
  args[Norm.y] = call.address(out);
  args[Norm.weight] = gains;
  args[Norm.centred] = plan.op === 'layer_norm' ? 1 : 0;
  args[Norm.bias] = shifts;
  args[Norm.type] = typeOf(x);
  args[Norm.n] = n;
  args[Norm.xStride] = x.strides.at(-1)!;
  args[Norm.yStride] = out.strides.at(-1)!;
  writeF64(args, Norm.eps, eps);
  writeWalk(args, Norm.walk, rows);
  call.launcher.run(Kernel.norm, countElements(rows.dims), 3 * n * 4);
}
