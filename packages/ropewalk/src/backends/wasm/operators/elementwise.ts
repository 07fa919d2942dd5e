/** Addition and the gated activation. @module */
import { sizeBytes } from '../../../core/dtypes.js';
import { countElements } from '../../../core/shape.js';
import type { AddPlan } from '../../../ops/add.js';
import type { SwigluPlan } from '../../../ops/swiglu.js';
import { joinDims } from '../../walks.js';
import { Elementwise, Kernel } from '../abi.js';
import { writeWalk } from '../arguments.js';
import { type Call, typeOf } from '../call.js';

/** Elements of a unit. */
const BLOCK = 1 << 14;
/** What an exponential is worth, in bytes moved. */
const EXPONENTIAL_BYTES = 20;

/** Runs `out = a + b`, or the gated activation. */
export function runElementwise(plan: AddPlan | SwigluPlan, call: Call): void {
  const { out } = plan;
  const [a, b] = plan.op === 'add' ? [plan.a, plan.b] : [plan.gate, plan.up];
  call.bring([a, b], [out]);
  if (out.size === 0) return;
  const rows = joinDims([out, a, b]);
  const n = rows.dims.pop()!;
  const block = Math.min(n, BLOCK);
  const args = call.launcher.prepare();
  args[Elementwise.a] = call.address(a);
  args[Elementwise.b] = call.address(b);
  args[Elementwise.y] = call.address(out);
  args[Elementwise.type] = typeOf(out);
  args[Elementwise.n] = n;
  args[Elementwise.block] = block;
  args[Elementwise.yStride] = rows.strides[0]!.pop()!;
  args[Elementwise.aStride] = rows.strides[1]!.pop()!;
  args[Elementwise.bStride] = rows.strides[2]!.pop()!;
  writeWalk(args, Elementwise.walk, rows);
  const elementBytes = 3 * sizeBytes(out.dtype) + (plan.op === 'swiglu' ? EXPONENTIAL_BYTES : 0);
  call.launcher.run(Kernel[plan.op], countElements(rows.dims) * Math.ceil(n / block), block * elementBytes);
}
