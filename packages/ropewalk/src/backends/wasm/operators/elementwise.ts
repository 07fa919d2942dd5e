/** Addition, the activations and scale. @module */
import { sizeBytes } from '../../../core/dtypes.js';
import { countElements } from '../../../core/shape.js';
import { type ElementwisePlan, elementwiseTerms } from '../../elementwise.js';
import { joinDims } from '../../walks.js';
import { Activation, Elementwise, Kernel } from '../abi.js';
import { writeF32, writeWalk } from '../arguments.js';
import { type Call, typeOf } from '../call.js';

/** The most elements of a unit. */
const BLOCK = 1 << 14;
/** The scratch memory of a thread: three times TILE of assembly/elementwise.ts. */
const SCRATCH_BYTES = 3 * 512 * 4;
/** The cost of an exponential, in bytes moved. */
const EXPONENTIAL_BYTES = 20;

/** Runs an operator that computes element by element. */
export function runElementwise(plan: ElementwisePlan, call: Call): void {
  const { out } = plan;
  const { activation, a, b, parameters } = elementwiseTerms(plan);
  const inputs = b ? [a, b] : [a];
  call.stage(inputs, [out]);
  if (out.size === 0) return;
  const rows = joinDims([out, ...inputs]);
  const n = rows.dims.pop()!;
  const block = Math.min(n, BLOCK);
  const args = call.launcher.prepare(SCRATCH_BYTES);
  args[Elementwise.a] = call.address(a);
  args[Elementwise.b] = b ? call.address(b) : 0;
  args[Elementwise.y] = call.address(out);
  args[Elementwise.type] = typeOf(out);
  args[Elementwise.activation] = Activation[activation];
  for (let i = 0; i < parameters.length; i++) writeF32(args, Elementwise.first + i, parameters[i]!);
  args[Elementwise.n] = n;
  args[Elementwise.block] = block;
  args[Elementwise.yStride] = rows.strides[0]!.pop()!;
  args[Elementwise.aStride] = rows.strides[1]!.pop()!;
  args[Elementwise.bStride] = rows.strides[2]?.pop() ?? 0;
  writeWalk(args, Elementwise.walk, rows);
  const moved = (1 + inputs.length) * sizeBytes(out.dtype);
  const elementBytes = moved + (activation === 'add' || activation === 'scale' ? 0 : EXPONENTIAL_BYTES);
  call.launcher.run(Kernel.elementwise, countElements(rows.dims) * Math.ceil(n / block), block * elementBytes);
}
