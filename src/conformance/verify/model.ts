/**
 * The error model: for each element of a case's outputs, the exact value and how far a right kernel may be from it.
 *
 * It starts from the formula that the case's tolerance names (golden/judge.ts: arithmetic in f32, one rounding at the store) and adds what
 * people's kernels do beyond it, where that is common practice and not a mistake:
 *
 * - RoPE: angles from f32 frequencies, by position and pair (rope-model.ts);
 * - attention on 16-bit data: probabilities rounded to the data's dtype before they meet v, as matrix units want them, which costs
 *   at most u · Σ p·|v|;
 * - `native` arithmetic, where it is asked for: every intermediate rounds to the data's dtype, so each error before the store grows by
 *   u_dtype / u_f32.
 *
 * @module
 */
import { bitsOf, type FloatDtype, isFloat } from '../../core/dtypes.js';
import { type Tensor, tensorFrom } from '../../core/tensor.js';
import { type ExactOutput, exactWithBounds } from '../golden/bounds.js';
import { exactOutputs, type GoldenCase } from '../golden/case.js';
import { UNIT_ROUNDOFF } from '../tolerance.js';
import { type RopeGeometry, ropeGeometries, type TablePrecision } from './rope-model.js';

/** What a kernel is allowed. */
export interface ModelOptions {
  /** f32 unless given; float64 for f64 data. */
  readonly table?: TablePrecision;
  /** `f32`: 16-bit data is computed in f32 and rounded once (the default). `native`: every step may round to the data's dtype. */
  readonly arithmetic?: 'f32' | 'native';
  /** Multiplies every bound but those of copies; 1 unless given. */
  readonly toleranceScale?: number;
}

/** What one output tensor should be. */
export interface Expectation {
  /** The exact result: float64 where the operator computes, the very elements where it copies. */
  readonly output: ExactOutput;
  /** As numbers, row-major, unrounded where the operator computes. */
  readonly exact: Float64Array;
  /** The elements as unsigned integers, where bits must be equal. */
  readonly bits: ReturnType<typeof bitsOf> | undefined;
  /** What the options allow. */
  readonly allowed: Allowed;
  /** RoPE alone: where elements lie. */
  readonly rope: RopeGeometry | undefined;
  /**
   * What another table precision would allow; of other operators the same.
   *
   * @param table - which
   */
  allowedFor(table: TablePrecision): Allowed;
}

/** What may come beside the exact value. */
export interface Allowed {
  /** How far from `exact` each element may be, >= 0 and finite. */
  readonly bound: Float64Array;
  /** Elements that are NaN or infinite, where anything else that is not finite may come: {@link ExactOutput.unsettled}. */
  readonly unsettled: ReadonlySet<number>;
}

/** The formulas that golden/judge.ts knows. A folder of somebody else's may name others. */
const FORMULAS = ['bits', 'rotation', 'sum', 'norm', 'dot', 'attention', 'gate'];

/**
 * What each output of a case should be.
 *
 * @param golden - the case
 * @param options - what the kernel is allowed; `table` is needed for RoPE
 * @returns by output
 * @throws {RopewalkError} what the plan says of inputs and attributes that do not fit
 */
export function expectationsOf(
  golden: GoldenCase,
  options: ModelOptions & { readonly table: TablePrecision },
): Map<string, Expectation> {
  const outputs = exactWithBounds(golden);
  const geometries = ropeGeometries(golden);
  const probabilities =
    golden.op === 'self_attention' ? exactOutputs({ ...golden, inputs: withAbsolute(golden.inputs, 'v') }) : undefined;
  const { formula, atol, rtol } = golden.tolerance;
  const scale = options.toleranceScale ?? 1;
  const found = new Map<string, Expectation>();
  for (const [name, output] of outputs) {
    const { dtype, values } = output;
    const exact = Float64Array.from(values as ArrayLike<number | bigint>, Number);
    const rope = geometries.get(name);
    if (!output.bounds || !isFloat(dtype)) {
      const numbers = isFloat(dtype) ? numbersOf(tensorFrom(values, { dtype, shape: output.shape })) : exact;
      const none = new Float64Array(exact.length);
      const allowed = { bound: none, unsettled: output.unsettled };
      found.set(name, { output, exact: numbers, bits: bitsOf(values), allowed, rope, allowedFor: () => allowed });
      continue;
    }
    const size = probabilities?.get(name);
    const sums = size && (dtype === 'f16' || dtype === 'bf16') ? numbersOf(size) : undefined;
    const stated = FORMULAS.includes(formula)
      ? output.bounds.map(
          (bound, n) =>
            bound &&
            (arithmetic(bound, exact[n]!, dtype, options) + (sums ? UNIT_ROUNDOFF[dtype] * sums[n]! : 0)) * scale,
        )
      : exact.map((value) => (Number.isFinite(value) ? (atol + rtol * Math.abs(value)) * scale : 0));
    const allowedFor = (table: TablePrecision): Allowed => {
      const extra = rope?.tableError(table, exact, dtype, options.arithmetic === 'native' ? UNIT_ROUNDOFF[dtype] : 0);
      if (!extra) return { bound: stated, unsettled: output.unsettled };
      const unsettled = new Set(output.unsettled);
      extra.forEach((error, n) => {
        if (error === Number.POSITIVE_INFINITY) unsettled.add(n);
      });
      // What is copied (bound 0) stays exact, and what is not finite is near to nothing.
      return { bound: stated.map((bound, n) => (bound === 0 ? 0 : bound + extra[n]! * scale)), unsettled };
    };
    found.set(name, { output, exact, bits: undefined, allowed: allowedFor(options.table), rope, allowedFor });
  }
  return found;
}

/** A stated bound is an error before the store, proportional to the arithmetic's roundoff, and the store's own rounding. */
function arithmetic(bound: number, exact: number, dtype: FloatDtype, options: ModelOptions): number {
  if (options.arithmetic !== 'native' || bound === 0 || dtype === 'f64' || dtype === 'f32') return bound;
  const before = Math.max(0, bound - UNIT_ROUNDOFF[dtype] * Math.abs(exact));
  return bound + before * (UNIT_ROUNDOFF[dtype] / UNIT_ROUNDOFF.f32);
}

function withAbsolute(inputs: ReadonlyMap<string, Tensor>, name: string): Map<string, Tensor> {
  const changed = new Map(inputs);
  const tensor = inputs.get(name);
  if (tensor) changed.set(name, tensorFrom(numbersOf(tensor).map(Math.abs), { shape: tensor.shape }));
  return changed;
}

/**
 * Reads a host tensor as float64, row-major.
 *
 * @param tensor - in host memory: of golden cases and of files they all are
 */
export function numbersOf(tensor: Tensor): Float64Array {
  return tensor.readNumbers() as Float64Array;
}
