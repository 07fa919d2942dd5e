/** Addition, the activations, scale, and copies between layouts and dtypes. @module */
import { sizeBytes } from '../../../core/dtypes.js';
import { countElements } from '../../../core/shape.js';
import type { RearrangePlan } from '../../../ops/rearrange.js';
import { type ElementwisePlan, elementwiseTerms } from '../../elementwise.js';
import { joinDims, type Walk } from '../../walks.js';
import { Activation, Convert, Elementwise, Kernel, Rearrange } from '../abi.js';
import { type Call, typeOf, writeF32, writeWalk } from '../call.js';
import { CHUNK_BYTES } from '../launcher.js';

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

/** The elements that are converted at a time: as f32 they stay in the first-level cache between load and store. */
const CONVERT_BLOCK = 4096;

/** Runs a copy: of bits, or of floats that become floats of another dtype. */
export function runRearrange(plan: RearrangePlan, call: Call): void {
  const { x, out } = plan;
  call.stage([x], [out]);
  if (out.size === 0) return;
  const { dims, strides } = joinDims([out, x]);
  const rows = { dims, strides: [strides[1]!, strides[0]!] };
  if (x.dtype === out.dtype) copy(plan, rows, call);
  else convert(plan, rows, call);
}

function convert({ x, out }: RearrangePlan, rows: Walk, call: Call): void {
  const n = rows.dims.pop()!;
  const block = Math.min(n, CONVERT_BLOCK);
  const args = call.launcher.prepare(block * 4);
  args[Convert.x] = call.address(x);
  args[Convert.y] = call.address(out);
  args[Convert.xType] = typeOf(x);
  args[Convert.yType] = typeOf(out);
  args[Convert.n] = n;
  args[Convert.block] = block;
  args[Convert.xStride] = rows.strides[0]!.pop()!;
  args[Convert.yStride] = rows.strides[1]!.pop()!;
  writeWalk(args, Convert.walk, rows);
  const cost = block * (sizeBytes(x.dtype) + sizeBytes(out.dtype));
  call.launcher.run(Kernel.convert, countElements(rows.dims) * Math.ceil(n / block), cost);
}

function copy({ x, out }: RearrangePlan, { dims, strides }: Walk, call: Call): void {
  const [xs, outs] = strides as [number[], number[]];
  const [n, xStride, outStride] = [dims.pop()!, xs.pop()!, outs.pop()!];
  // The rows of a plane go along the dimension in which x is densest, so that a tile reads whole cache lines.
  let [rows, xRow, outRow] = [1, 0, 0];
  if (dims.length > 0) {
    let row = 0;
    for (let d = 1; d < dims.length; d++) if (Math.abs(xs[d]!) < Math.abs(xs[row]!)) row = d;
    [rows, xRow, outRow] = [dims[row]!, xs[row]!, outs[row]!];
    for (const list of [dims, xs, outs]) list.splice(row, 1);
  }
  const unit = sizeBytes(out.dtype);
  // A plane that is too large for one unit is cut into bands of rows.
  const band = Math.max(1, Math.min(rows, Math.ceil(CHUNK_BYTES / (n * unit))));
  const whole = Math.floor(rows / band);
  const runBands = (firstRow: number, count: number, rowsEach: number): void => {
    const args = call.launcher.prepare();
    args[Rearrange.x] = call.address(x) + firstRow * xRow * unit;
    args[Rearrange.y] = call.address(out) + firstRow * outRow * unit;
    args[Rearrange.size] = unit;
    args[Rearrange.n] = n;
    args[Rearrange.xStride] = xStride;
    args[Rearrange.yStride] = outStride;
    args[Rearrange.rows] = rowsEach;
    args[Rearrange.xRow] = xRow;
    args[Rearrange.yRow] = outRow;
    writeWalk(args, Rearrange.walk, {
      dims: [...dims, count],
      strides: [
        [...xs, xRow * rowsEach],
        [...outs, outRow * rowsEach],
      ],
    });
    call.launcher.run(Kernel.rearrange, countElements(dims) * count, 2 * rowsEach * n * unit);
  };
  runBands(0, whole, band);
  if (whole * band < rows) runBands(whole * band, 1, rows - whole * band);
}
