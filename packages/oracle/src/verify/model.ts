/**
 * The error model of verify. It has the exact value of each element of a case's outputs, and how far a right kernel may
 * be from it.
 *
 * It starts from the formula that the case's tolerance names (golden/bounds.ts: arithmetic in f32, one rounding at the
 * store) and adds errors of three common practices:
 *
 * - RoPE may compute angles from f32 frequencies, by position and pair (rope-model.ts).
 * - Attention on 16-bit data may round probabilities to the data's dtype before they are multiplied with v, as matrix
 *   units need. This costs at most u · Σ p·|v|.
 * - In `native` arithmetic, which the caller asks for, every step rounds to the data's dtype, so that each error before
 *   the store grows by u_dtype / u_f32.
 *
 * @module
 */
import { type FloatDtype, isFloat, type Tensor, tensorFrom } from 'ropewalk';
import { UNIT_ROUNDOFF } from 'ropewalk/internal';
import { exactWithBounds, FORMULAS } from '../golden/bounds.js';
import { exactOutputs, floats, type GoldenCase } from '../golden/case.js';
import type { ExpectedOutput } from '../judge.js';
import { type RopeGeometry, ropeGeometries, type TablePrecision } from './rope-model.js';

/** The arithmetic that a kernel is allowed. */
export interface ModelOptions {
  /** The precision of RoPE's angles. Default: f32; float64 for f64 data. */
  readonly table?: TablePrecision;
  /** Default: `f32`, which rounds 16-bit data once. `native` may round every step to the data's dtype. */
  readonly arithmetic?: 'f32' | 'native';
  /** Multiplies every bound but those of copies. Default: 1. */
  readonly toleranceScale?: number;
}

/** The expectation of one output tensor. */
export interface Expectation {
  /** The bounds that the outputs stored in a case must keep. */
  readonly exact: ExpectedOutput;
  /** Tells where each element of a RoPE case is. */
  readonly rope: RopeGeometry | undefined;
  /** Has the bounds that a kernel is judged by. `table` is the precision of RoPE's angles. */
  allowed(table: TablePrecision): ExpectedOutput;
}

/** Computes the expectation of each output. The plan refuses inputs and attributes that do not fit. */
export function expectationsOf(golden: GoldenCase, options: Omit<ModelOptions, 'table'>): Map<string, Expectation> {
  const { toleranceScale: scale = 1, arithmetic } = options;
  const geometries = ropeGeometries(golden);
  const probabilities =
    golden.op === 'self_attention' ? exactOutputs({ ...golden, inputs: withAbsolute(golden.inputs, 'v') }) : undefined;
  const { formula, atol, rtol } = golden.tolerance;
  const found = new Map<string, Expectation>();
  for (const [name, output] of exactWithBounds(golden)) {
    const { dtype, bounds } = output;
    const rope = geometries.get(name);
    if (!bounds || !isFloat(dtype)) {
      found.set(name, { exact: output, rope, allowed: () => output });
      continue;
    }
    const exact = output.values as Float64Array;
    const native = arithmetic === 'native' ? UNIT_ROUNDOFF[dtype] : 0;
    const size = probabilities?.get(name);
    const sums = size && (dtype === 'f16' || dtype === 'bf16') ? floats(size) : undefined;
    const stated = Object.hasOwn(FORMULAS, formula)
      ? bounds.map(
          (bound, n) =>
            bound &&
            ((native ? grown(bound, exact[n]!, dtype) : bound) + (sums ? UNIT_ROUNDOFF[dtype] * sums[n]! : 0)) * scale,
        )
      : exact.map((value) => (Number.isFinite(value) ? (atol + rtol * Math.abs(value)) * scale : 0));
    const allowed = (table: TablePrecision): ExpectedOutput => {
      const extra = rope?.tableError(table, exact, dtype, native);
      if (!extra) return { ...output, bounds: stated };
      const unsettled = new Set(output.unsettled);
      extra.forEach((error, n) => {
        if (error === Number.POSITIVE_INFINITY) unsettled.add(n);
      });
      // Copied elements (bound 0) stay exact, and so do those that are not finite.
      return { ...output, bounds: stated.map((bound, n) => bound && bound + extra[n]! * scale), unsettled };
    };
    found.set(name, { exact: output, rope, allowed });
  }
  return found;
}

/** Computes a bound for native arithmetic, whose error before the store is proportional to its roundoff. */
function grown(bound: number, exact: number, dtype: FloatDtype): number {
  if (bound === 0 || dtype === 'f64' || dtype === 'f32') return bound;
  const before = Math.max(0, bound - UNIT_ROUNDOFF[dtype] * Math.abs(exact));
  return bound + before * (UNIT_ROUNDOFF[dtype] / UNIT_ROUNDOFF.f32);
}

function withAbsolute(inputs: ReadonlyMap<string, Tensor>, name: string): Map<string, Tensor> {
  const changed = new Map(inputs);
  const tensor = inputs.get(name);
  if (tensor) changed.set(name, tensorFrom(floats(tensor).map(Math.abs), { shape: tensor.shape }));
  return changed;
}
