/** Normalisation of rows. @module */
import { countElements } from '../../../core/shape.js';
import type { RmsNormPlan } from '../../../ops/rms-norm.js';
import { rowsOf } from '../../walks.js';
import { Kernel, RmsNorm } from '../abi.js';
import { writeF64, writeWalk } from '../arguments.js';
import { type Call, typeOf } from '../call.js';

/** Runs an RMS norm. */
export function runRmsNorm({ x, weight, eps, out }: RmsNormPlan, call: Call): void {
  call.bring([x, weight], [out]);
  if (out.size === 0) return;
  const n = x.shape.at(-1)!;
  const rows = rowsOf([x, out]);
  const dense = call.denseF32(weight);
  const args = call.launcher.prepare(n * 4);
  args[RmsNorm.x] = call.address(x);
  args[RmsNorm.y] = call.address(out);
  args[RmsNorm.weight] = dense;
  args[RmsNorm.type] = typeOf(x);
  args[RmsNorm.n] = n;
  args[RmsNorm.xStride] = x.strides.at(-1)!;
  args[RmsNorm.yStride] = out.strides.at(-1)!;
  writeF64(args, RmsNorm.eps, eps);
  writeWalk(args, RmsNorm.walk, rows);
  call.launcher.run(Kernel.rmsNorm, countElements(rows.dims), 3 * n * 4);
}
