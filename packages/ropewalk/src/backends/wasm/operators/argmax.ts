/** The largest element of each row. @module */
import { sizeBytes } from '../../../core/dtypes.js';
import { countElements } from '../../../core/shape.js';
import type { ArgmaxPlan } from '../../../ops/argmax.js';
import { rowsOf } from '../../walks.js';
import { Argmax, Kernel } from '../abi.js';
import { writeWalk } from '../arguments.js';
import { type Call, typeOf } from '../call.js';

/** Runs an argmax. */
export function runArgmax({ values, outIndex, outValue }: ArgmaxPlan, call: Call): void {
  call.bring([values], [outIndex, outValue]);
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
