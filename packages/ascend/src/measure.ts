/** Runs a kernel on random data, and measures how far its output is from the exact one. @module */
import { refuse } from 'ropewalk/backend';
import {
  checkInteger,
  checkShape,
  countElements,
  type OptionNames,
  optionNames,
  randomFrom,
  readName,
  readOptions,
} from 'ropewalk/internal';
import {
  KERNEL_DTYPES,
  type KernelDeclaration,
  type KernelOperator,
  ROLES,
  readKernel,
} from './kernels/declaration.js';
import { makeCall, numbersOf, OPERATOR_NAMES, type OperatorCall } from './kernels/operators.js';
import { launchDeclared, ropeKernel } from './kernels/run.js';
import type { KernelName, KernelPairing, KernelRun, MachineOptions, Tiling, WatchOptions } from './trace.js';

/** The RoPE of {@link measureRopeKernel}. */
export interface MeasuredCall extends Pick<OperatorCall, 'dtype' | 'tableDtype'> {
  readonly shape: readonly [batch: number, seq: number, heads: number, headDim: number];
  readonly pairing: KernelPairing;
  /** Leading dimensions of a head that are rotated, even. */
  readonly rotaryDim: number;
  /** The base of the frequencies. */
  readonly base: number;
  /** Whether batch b starts at position b; otherwise all batches start at 0. */
  readonly batchPositions: boolean;
  /** Rows of the tables, more than the largest position. */
  readonly tableLen: number;
}

const CALL_NAMES: OptionNames<MeasuredCall> = /* @__PURE__ */ optionNames(
  'shape dtype pairing rotaryDim base batchPositions tableLen tableDtype',
);

/** Options of {@link measureRopeKernel} and {@link measureKernel}. */
export interface MeasureOptions extends Pick<MachineOptions, 'chip' | 'cores'>, Pick<WatchOptions, 'onBlock'> {
  /** How the work is cut. Default: the kernel's own choice. */
  readonly tiling?: Tiling;
  /** Keep the instructions of block 0, for a timeline. */
  readonly record?: boolean;
}

const NAMES: OptionNames<MeasureOptions> = { chip: true, cores: true, tiling: true, record: true, onBlock: true };

/** A kernel's run, and how far its output is from the exact one. */
export interface MeasuredKernel {
  readonly run: KernelRun;
  /** Rows of the output; rope has one for each batch, token and head. */
  readonly rows: number;
  /** Rows that the kernel wrote and that are right: each element within what the roundings of its steps can do. */
  readonly right: number;
  /** The largest difference to the exact value among the elements that it wrote. */
  readonly worst: number;
  /** The first element that was written and is wrong: its value, the exact one, and the difference allowed. */
  readonly firstWrong?: {
    readonly row: number;
    readonly column: number;
    readonly got: number;
    readonly exact: number;
    readonly bound: number;
  };
}

/** The most elements of a tensor, and rows of the tables: more would take too much memory and time. */
const MAX_ELEMENTS = 2 ** 28;

/** An operator on seeded random data, with its exact result; its kernels are measured on it. */
export interface PreparedKernel {
  /**
   * Runs a kernel on the data, and compares its output with the exact one.
   *
   * Accesses past a tensor, elements that are never read or never written, and writes into an input are findings.
   *
   * @param kernel - a kernel of the operator
   * @param options - chip, cores, tiling, record, onBlock
   * @throws {RopewalkError} UNSUPPORTED for a kernel that does not take the call; and the errors of the kernel itself
   */
  measure(kernel: KernelDeclaration, options?: MeasureOptions): MeasuredKernel;
}

/** `PreparedKernel` of RoPE, for the kernels that come with the model. */
export interface PreparedRope {
  /** Heads of a token: the most rows of a tile. */
  readonly heads: number;
  /** Measures a kernel as `PreparedKernel` does, by its name. */
  measure(kernel: KernelName, options?: MeasureOptions): MeasuredKernel;
}

/**
 * Makes the data of a call once, for several kernels, and computes its result in float64. All tensors are dense.
 *
 * @param operator - the operator of the kernels
 * @param call - dtype and shape; for rope also its spec and positions
 * @throws {RopewalkError} SHAPE, RANGE or UNSUPPORTED, naming the argument
 * @example prepareKernel('softmax', { dtype: 'f16', shape: [64, 1024] }).measure(KERNELS.softmax);
 */
export function prepareKernel(operator: KernelOperator, call: OperatorCall): PreparedKernel {
  readName(operator, Object.keys(ROLES) as KernelOperator[], 'aicore: operator');
  const given = readOptions(call, 'aicore: call', OPERATOR_NAMES);
  const dtype = readName(given.dtype, KERNEL_DTYPES, 'aicore: dtype');
  const shape = checkShape(given.shape, 'aicore: shape');
  checkInteger(countElements(shape), 'aicore: elements', 1, MAX_ELEMENTS);
  if (operator === 'rope' ? shape.length !== 4 : shape.length === 0)
    refuse('SHAPE', 'aicore: shape', operator === 'rope' ? 'batch, seq, heads and head_dim' : '[…, length]', shape);
  const { eps = 0, tableLen = 1 } = given;
  checkInteger(tableLen, 'aicore: tableLen', 1, MAX_ELEMENTS);
  if (!Number.isFinite(eps) || eps < 0) refuse('RANGE', 'aicore: eps', 'a finite number >= 0', eps);
  const made = makeCall(operator, { ...given, dtype, shape }, randomFrom(`aicore ${shape} ${dtype}`));
  return {
    measure(kernel, options = {}) {
      const declared = readKernel(kernel);
      const { chip, cores, tiling, record, onBlock } = readOptions(options, 'aicore: options', NAMES);
      if (declared.operator !== operator)
        refuse('UNSUPPORTED', 'aicore: kernel', `a kernel of ${operator}`, declared.operator);
      const { call: bound, out } = made.bind();
      const how = { machine: { chip, cores }, tiling, onBlock, record: record ? [0] : undefined };
      const run = launchDeclared(declared, bound, how);
      return { run, ...compare(numbersOf(out, dtype), made, shape.at(-1)!, bound.tensors.out!.coverage!) };
    },
  };
}

/**
 * Prepares and measures one kernel of any operator.
 *
 * @throws {RopewalkError} as `prepareKernel` and `PreparedKernel`
 */
export function measureKernel(kernel: KernelDeclaration, call: OperatorCall, options?: MeasureOptions): MeasuredKernel {
  const declared = readKernel(kernel);
  return prepareKernel(declared.operator, call).measure(declared, options);
}

/**
 * Prepares a RoPE for several of the kernels that come with the model, as `prepareKernel` does.
 *
 * @throws {RopewalkError} SHAPE or RANGE for other sizes than a call has; UNSUPPORTED for another dtype or pairing
 * @example const rope = prepareRope(call); const cycles = [rope.measure('correct'), rope.measure('fast')];
 */
export function prepareRope(call: MeasuredCall): PreparedRope {
  const { pairing: given, rotaryDim, base, ...own } = readOptions(call, 'aicore: call', CALL_NAMES);
  const shape = checkShape(own.shape, 'aicore: shape');
  const pairing = readName(given, ['interleaved', 'half'], 'aicore: pairing');
  const prepared = prepareKernel('rope', { ...own, shape, spec: { headDim: shape[3]!, rotaryDim, base, pairing } });
  return { heads: shape[2]!, measure: (kernel, options) => prepared.measure(ropeKernel(kernel), options) };
}

/**
 * Runs a RoPE kernel on the modelled AI Core with seeded random data, and compares its output with the float64
 * reference.
 *
 * @throws {RopewalkError} as `prepareRope` and `PreparedRope`
 */
export function measureRopeKernel(kernel: KernelName, call: MeasuredCall, options?: MeasureOptions): MeasuredKernel {
  return prepareRope(call).measure(kernel, options);
}

/** Compares an output with the exact one. A row is right if each element lies within its bound. */
function compare(
  got: Float64Array,
  { exact, bounds }: { readonly exact: Float64Array; readonly bounds: Float64Array },
  length: number,
  coverage: Uint8Array,
): Omit<MeasuredKernel, 'run'> {
  const rows = got.length / length;
  let right = 0;
  let worst = 0;
  let firstWrong: MeasuredKernel['firstWrong'];
  for (let row = 0; row < rows; row++) {
    let good = true;
    for (let n = row * length; n < (row + 1) * length; n++) {
      const difference = Math.abs(got[n]! - exact[n]!);
      if (difference > worst) worst = difference; // NaN, an element that was never written, does not count
      if (difference <= bounds[n]!) continue;
      good = false;
      if (coverage[n] === 2)
        firstWrong ??= { row, column: n - row * length, got: got[n]!, exact: exact[n]!, bound: bounds[n]! };
    }
    if (good) right++;
  }
  return { rows, right, worst, firstWrong };
}
