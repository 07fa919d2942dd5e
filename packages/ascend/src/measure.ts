/** Runs a kernel on random data, and measures how far its output is from the exact one. @module */
import { bindRope, type FloatDtype, type HostArray, planRope, planRopeWithTable, tensorFrom } from 'ropewalk';
import {
  checkInteger,
  checkShape,
  countElements,
  loadNumber,
  newArray,
  randomFrom,
  readName,
  readOptions,
  refuse,
  rowMajorStrides,
  storeNumber,
} from 'ropewalk/backend';
import { runReference } from 'ropewalk/reference';
import { runRopeKernel } from './kernels/run.js';
import { f16Table } from './lanes.js';
import type { ChipName, KernelName, KernelRun } from './trace.js';

/** The RoPE of {@link measureRopeKernel}. */
export interface MeasuredCall {
  /** batch, seq, heads, head_dim. */
  readonly shape: readonly [batch: number, seq: number, heads: number, headDim: number];
  readonly dtype: Exclude<FloatDtype, 'f64'>;
  readonly pairing: 'interleaved' | 'half';
  /** Leading dimensions of a head that are rotated, even. */
  readonly rotaryDim: number;
  /** Of the frequencies. */
  readonly base: number;
  /** Each batch has its own positions: batch b starts at b. Otherwise all start at 0. */
  readonly batchPositions: boolean;
  /** Rows of the tables, more than the largest position. */
  readonly tableLen: number;
}

/** Options of {@link measureRopeKernel}. */
export interface MeasureOptions {
  readonly chip?: ChipName;
  /** Keep the instructions of block 0, for a timeline. */
  readonly record?: boolean;
  /** Called after each block with the number of blocks done and of all blocks. */
  readonly onBlock?: (done: number, total: number) => void;
}

/** A kernel's run, and how far its y is from the exact one. */
export interface MeasuredKernel {
  readonly run: KernelRun;
  /** Rows of y, one for each batch, token and head. */
  readonly rows: number;
  /** Rows that the kernel wrote and that are right, within the dtype's rounding of each step. */
  readonly right: number;
  /** The largest difference to the exact value among the rows that it wrote. */
  readonly worst: number;
}

/** Of x, and rows of the tables: memory and minutes set it. */
const MAX_ELEMENTS = 2 ** 28;

/** Unit roundoff: half a unit in the last place. */
const ROUNDOFF = { f16: 2 ** -11, bf16: 2 ** -8, f32: 2 ** -24 } as const;

/** A RoPE on seeded random data, with its exact result: what kernels are measured on. */
export interface PreparedRope {
  /**
   * Runs a kernel on the data, and compares its output with the exact one.
   *
   * @param kernel - the kernel to run
   * @param options - chip, record, onBlock
   * @throws {RopewalkError} UNSUPPORTED for a call that the kernel does not take; as runRopeKernel otherwise
   */
  measure(kernel: KernelName, options?: MeasureOptions): MeasuredKernel;
}

/**
 * Makes the data of a call once, for several kernels, and computes the float64 reference of it.
 *
 * @param call - shape, dtype, pairing and tables
 * @throws {RopewalkError} SHAPE or RANGE for other sizes than a call has; DTYPE for another dtype
 * @example const rope = prepareRope(call); const cycles = [rope.measure('correct'), rope.measure('fast')];
 */
export function prepareRope(call: MeasuredCall): PreparedRope {
  const { pairing, rotaryDim, base, batchPositions, ...own } = readOptions(call, 'aicore');
  const dtype = readName(own.dtype, ['f32', 'f16', 'bf16'], 'aicore: dtype');
  const tableLen = checkInteger(own.tableLen, 'aicore: tableLen', 1, MAX_ELEMENTS);
  const shape = checkShape(own.shape, 'aicore: shape') as MeasuredCall['shape'];
  const size = checkInteger(countElements(shape), 'aicore: elements', 1, MAX_ELEMENTS);
  if (shape.length !== 4) refuse('SHAPE', 'aicore: shape', 'batch, seq, heads and head_dim', shape);
  const [batch, seq, heads, headDim] = shape;
  const random = randomFrom(`aicore ${shape} ${dtype}`);
  const fill = (count: number, value: (n: number) => number): HostArray => {
    const data = newArray(dtype, count);
    for (let n = 0; n < count; n++) storeNumber(data, dtype, n, value(n));
    return data;
  };
  const x = fill(size, () => random.uniform(-1, 1));
  const { table } = planRope({ headDim, rotaryDim, pairing, base, positions: 0, seqLen: tableLen, tableDtype: 'f64' });
  const rounded = (exact: ArrayLike<number>) => fill(exact.length, (n) => exact[n]!);
  const [cos, sin] = [rounded(table.cos), rounded(table.sin)];
  const length = (batchPositions ? batch : 1) * seq;
  const positions = Int32Array.from({ length }, (_what, n) => (n % seq) + Math.floor(n / seq));
  const strides = rowMajorStrides(shape) as unknown as readonly [number, number, number, number];
  const plan = planRopeWithTable({
    headDim,
    rotaryDim,
    pairing,
    table: { rows: tableLen, pairs: rotaryDim / 2, cos: numbersOf(cos, dtype), sin: numbersOf(sin, dtype) },
    seqLen: seq,
    batch: batchPositions ? batch : undefined,
    tableRows: positions,
  });
  const exact = numbersOf(x, dtype);
  const inPlace = tensorFrom(exact, { shape });
  runReference(bindRope(plan, inPlace, inPlace));
  const rows = batch * seq * heads;
  return {
    measure(kernel, options = {}) {
      const { chip, record, onBlock } = readOptions(options, 'aicore: options');
      const y = newArray(dtype, size);
      storeNumber(y, dtype, 0, Number.NaN); // what no kernel writes stays NaN
      y.fill(y[0] as never);
      const run = runRopeKernel({
        kernel,
        dtype,
        pairing,
        rotaryDim,
        positions,
        sin,
        cos,
        x: { shape, strides, data: x },
        y: { shape, strides, data: y },
        machine: { chip },
        onBlock,
        record: record ? [0] : undefined,
      });
      return { run, rows, ...compare(numbersOf(y, dtype), exact, headDim, rows, dtype) };
    },
  };
}

/**
 * Runs a kernel on the modelled AI Core with seeded random data, and compares its output with the float64 reference.
 *
 * @param kernel - the kernel to run
 * @param call - shape, dtype, pairing and tables
 * @param options - chip, record, onBlock
 * @throws {RopewalkError} as {@link prepareRope} and {@link PreparedRope}
 */
export function measureRopeKernel(kernel: KernelName, call: MeasuredCall, options?: MeasureOptions): MeasuredKernel {
  return prepareRope(call).measure(kernel, options);
}

function numbersOf(data: HostArray, dtype: FloatDtype): Float64Array {
  const numbers = new Float64Array(data.length);
  const f16 = dtype === 'f16' ? f16Table() : undefined;
  for (let n = 0; n < numbers.length; n++) numbers[n] = f16 ? f16[data[n] as number]! : loadNumber(data, dtype, n);
  return numbers;
}

/** A row is right if each element lies within what three roundings of products and a sum of size <= 2 can do. */
function compare(
  got: Float64Array,
  exact: Float64Array,
  headDim: number,
  rows: number,
  dtype: MeasuredCall['dtype'],
): Pick<MeasuredKernel, 'right' | 'worst'> {
  const bound = 4 * 2 * ROUNDOFF[dtype];
  let right = 0;
  let worst = 0;
  for (let row = 0; row < rows; row++) {
    let most = 0;
    for (let n = row * headDim; n < (row + 1) * headDim; n++) {
      const difference = Math.abs(got[n]! - exact[n]!);
      if (!(difference <= most)) most = difference;
    }
    if (most <= bound) right++;
    if (most > worst) worst = most; // NaN, a row that was never written, does not count
  }
  return { right, worst };
}
