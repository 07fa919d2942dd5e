/**
 * The error model of RoPE: the errors that the angles' precision, position and pair allow, beside the rotation's
 * roundings.
 *
 * An angle that is off by δ rotates the right result by δ: each member of a pair changes by sin δ of the other member
 * and by 1 − cos δ of itself. With r = |(y0, y1)|, which no rotation changes,
 *
 * ```
 * |Δy0| ≤ δ·|y1| + δ²/2·|y0| + roundings·u32·r        δ = |position|·invFreq·k·u
 * ```
 *
 * where k counts roundings and u is 2^-24 for f32 angles and 2^-53 for float64. A pair whose frequency is 1 has no
 * rounding, as an integer times 1 is exact. For `f32`, k is 1 for the product, 1 for a position past 2^24, 2 for a pow
 * within one ulp, 1 each for the reciprocal and the base, and 2·ln(base)·e for the exponent e = 2j/dim and its product
 * with the logarithm, whose error pow multiplies by ln(base). The roundings of the scaling rule are added. For
 * `f32-recurrence`, each step from pair to pair costs 1 for the product and, for the factor base^(−2/dim), 3 and the
 * 2·ln(base)/dim of its exponent. Cosines of f32 angles are within two ulps, which are four roundings; the bound of
 * golden/bounds.ts has one of them.
 *
 * @module
 */
import { type FloatDtype, frequenciesOf, type RopePlan, type RopeSpec, ropeFrequencies } from 'ropewalk';
import { type RopePart, sharePairs, UNIT_ROUNDOFF, yarnRampEdges } from 'ropewalk/internal';
import { referenceRunner } from 'ropewalk/reference';
import { bindGolden, type GoldenCase } from '../golden/case.js';

/**
 * The precision in which a RoPE kernel computes its angles.
 *
 * - `float64`: in float64, with cos and sin rounded once to f32
 * - `f32`: the frequency by pow and its product with the position in f32, as transformers, vLLM and most GPU kernels do
 * - `f32-recurrence`: each pair's angle is that of the pair before, multiplied in f32, as in ggml
 */
export type TablePrecision = 'float64' | 'f32' | 'f32-recurrence';

/** The precisions from the tightest to the widest. */
export const TABLE_PRECISIONS: readonly TablePrecision[] = /* @__PURE__ */ Object.freeze([
  'float64',
  'f32',
  'f32-recurrence',
] as const);

/** The place of an element in a rotated tensor. */
export interface RopePlace {
  readonly batch: number;
  /** The token in its sequence; undefined in a row of a cache that no token is written to. */
  readonly token: number | undefined;
  /** batch · seq_len + token */
  readonly row: number | undefined;
  /** The token's position on each axis, one for text; none where there is no token. */
  readonly positions: readonly number[];
  readonly head: number;
  readonly dim: number;
  /** The pair of the element, and which of its two members it is; undefined for a dimension that is copied. */
  readonly pair?: number;
  readonly member?: 0 | 1;
}

/** The layout of one rotated tensor. */
export interface RopeGeometry {
  /** Returns the place of the element with this row-major index in the output. */
  place(n: number): RopePlace;
  /**
   * Computes what a precision of angles adds to the bounds of an output; Infinity where NaN, ∞ and −∞ are all possible.
   * `native` is the unit roundoff of 16-bit arithmetic, in which cos and sin are rounded too; 0 for f32.
   */
  tableError(table: TablePrecision, exact: Float64Array, dtype: FloatDtype, native: number): Float64Array;
}

/** Returns the geometry of each output of a RoPE case, and an empty map for other operators. */
export function ropeGeometries(golden: GoldenCase): Map<string, RopeGeometry> {
  const { plan, outputs } = bindGolden(golden, referenceRunner());
  const found = new Map<string, RopeGeometry>();
  if (plan.op !== 'rope') return found;
  const slack = angleSlack(plan.plan);
  for (const [name, { storage }] of outputs) {
    const part = plan.parts.find(({ out }) => out.storage === storage);
    if (!part) continue;
    found.set(name, {
      place: placer(plan.plan, part),
      tableError: (table, ...rest) => tableError(plan.plan, part, slack(table), table, ...rest),
    });
  }
  return found;
}

/** Returns the default precision of angles: f32, in which nearly every kernel computes them; float64 for f64 data. */
export function defaultTable(golden: GoldenCase): TablePrecision {
  return [...golden.outputs.values()].some(({ dtype }) => dtype === 'f64') ? 'float64' : 'f32';
}

function tableError(
  plan: RopePlan,
  { x, out, rows }: RopePart,
  slack: Float64Array,
  ...[table, exact, dtype, native]: Parameters<RopeGeometry['tableError']>
): Float64Array {
  const { rotaryOffset, read, write } = plan;
  const { pairs, cos, sin } = plan.table;
  const [batch, seqLen, numHeads, headDim] = x.shape as [number, number, number, number];
  const values = x.readNumbers() as Float64Array;
  const errors = new Float64Array(exact.length);
  // A magnitude is one rounding more, of its product with cos and sin.
  const factor = frequenciesOf(plan.source!.spec).attentionFactor === 1 ? 0 : 1;
  // The bound of golden/bounds.ts has one rounding of cos and sin, to f64 for float64 data.
  const roundings =
    (table === 'float64'
      ? (dtype === 'f64' ? UNIT_ROUNDOFF.f64 : UNIT_ROUNDOFF.f32) * factor
      : UNIT_ROUNDOFF.f32 * (4 + factor)) + native;
  for (let b = 0; b < batch; b++) {
    for (let s = 0; s < seqLen; s++) {
      const tableRow = plan.tableRows[plan.batch === undefined ? s : b * seqLen + s]! * pairs;
      const outRow = rows ? rows[b * seqLen + s]! : s;
      for (let h = 0; h < numHeads; h++) {
        const head = b * out.strides[0]! + outRow * out.strides[1]! + h * out.strides[2]!;
        for (let j = 0; j < pairs; j++) {
          const o0 = head + (rotaryOffset + j * write.step) * out.strides[3]!;
          const o1 = o0 + write.gap * out.strides[3]!;
          const [y0, y1] = [Math.abs(exact[o0]!), Math.abs(exact[o1]!)];
          const delta = slack[tableRow + j]!;
          if (!Number.isFinite(y0) || !Number.isFinite(y1)) {
            const i0 = ((b * seqLen + s) * numHeads + h) * headDim + rotaryOffset + j * read.step;
            const turn = [cos[tableRow + j]!, sin[tableRow + j]!] as const;
            const open = infinitePair([values[i0]!, values[i0 + read.gap]!], turn, delta);
            for (const [m, o] of [o0, o1].entries()) if (!Number.isFinite(exact[o]!)) errors[o] = open[m]!;
            continue;
          }
          const [sine, versine] = [Math.min(1, delta), Math.min(2, (delta * delta) / 2)];
          // That bound has the roundings of the exact pair's products. Those of the rotated pair add 3·u32·√2·δ·r.
          const more = (roundings * (1 + 1.5 * sine) + 4.5 * UNIT_ROUNDOFF.f32 * sine) * Math.hypot(y0, y1);
          errors[o0] = (sine * y1 + versine * y0 + more) * (1 + UNIT_ROUNDOFF[dtype]);
          errors[o1] = (sine * y0 + versine * y1 + more) * (1 + UNIT_ROUNDOFF[dtype]);
        }
      }
    }
  }
  return errors;
}

/**
 * Returns Infinity for each member of a pair that may be NaN, ∞ or −∞, as ∞·cos is ∞ or −∞ where cos is nearer to 0
 * than the angle is precise. It returns 0 where every allowed angle gives the same value.
 */
function infinitePair(
  [x0, x1]: readonly [number, number],
  [cos, sin]: readonly [number, number],
  delta: number,
): [number, number] {
  const signs = (value: number): number[] =>
    Math.abs(value) > delta * Math.hypot(cos, sin) || delta === 0 ? [value] : [-1, 0, 1];
  const open = (member: (c: number, s: number) => number): number => {
    const outcomes = signs(cos).flatMap((c) => signs(sin).map((s) => member(c, s)));
    return outcomes.every((outcome) => Object.is(outcome, outcomes[0])) ? 0 : Number.POSITIVE_INFINITY;
  };
  return [open((c, s) => x0 * c - x1 * s), open((c, s) => x0 * s + x1 * c)];
}

/** Returns a function of the precision that computes by how many radians each angle may be off, `[rows, pairs]`. */
function angleSlack({ table, source }: RopePlan): (precision: TablePrecision) => Float64Array {
  const { spec, positions } = source!;
  const axes = sharePairs(spec.axes, table.pairs);
  const { invFreq } = frequenciesOf(spec);
  const far = positions.some((p) => Math.abs(p) > 2 ** 24) ? 1 : 0;
  return (precision) => {
    const u = precision === 'float64' ? UNIT_ROUNDOFF.f64 : UNIT_ROUNDOFF.f32;
    const roundings = angleRoundings(spec, precision);
    return Float64Array.from({ length: table.rows * table.pairs }, (_, at) => {
      const j = at % table.pairs;
      const position = positions[axes.axisOfPair[j]! * table.rows + Math.floor(at / table.pairs)]!;
      return Math.abs(position * invFreq[j]!) * (roundings[j]! + far) * u;
    });
  };
}

/** Counts the roundings in each pair's angle: the k of this file's first comment, without that of far positions. */
export function angleRoundings(spec: RopeSpec, precision: TablePrecision): Float64Array {
  const { invFreq } = frequenciesOf(spec);
  const rotaryDim = spec.rotaryDim ?? spec.headDim;
  const dim = spec.frequencyDim ?? (spec.pairing === 'vision' ? rotaryDim / 2 : rotaryDim);
  const { exponents } = sharePairs(spec.axes, rotaryDim / 2);
  const scaling = scalingRoundings(spec, invFreq, dim, exponents);
  const ln = Math.abs(Math.log(spec.base));
  return invFreq.map((_, j) => {
    // A frequency of 1 times an integer is exact.
    if (invFreq[j] === 1) return 0;
    const exponent = exponents[j]!;
    const product = 2 + 1 + 1 + (2 * ln * 2 * exponent) / dim;
    const power = precision === 'f32-recurrence' ? exponent * (4 + (2 * ln) / dim) : exponent === 0 ? 0 : product;
    return 1 + power + scaling[j]!;
  });
}

/**
 * Counts the roundings that the scaling rule adds, by pair. A mix of two frequencies whose weight is off by w is off by
 * w·(plain − mixed), which is w·plain/mixed of a slow mixed frequency. This is the largest part inside YaRN's ramp and
 * Llama 3's band.
 */
function scalingRoundings(spec: RopeSpec, invFreq: Float64Array, dim: number, exponents: Uint32Array): Float64Array {
  const rotaryDim = spec.rotaryDim ?? spec.headDim;
  const given = spec.freqFactors ? 2 : 0; // The factor is rounded to f32, and divides.
  const scaling = spec.scaling ?? { kind: 'none' };
  const unscaled = { ...spec, scaling: { kind: 'none' }, attentionFactor: 1 } as const;
  const plain = ropeFrequencies({ ...unscaled, rotaryDim, frequencyDim: dim, exponents }).invFreq;
  const ratio = (j: number): number => (invFreq[j] === 0 ? 0 : Math.abs(plain[j]! / invFreq[j]!));
  switch (scaling.kind) {
    case 'none':
      return invFreq.map(() => given);
    case 'linear':
    case 'proportional':
      return invFreq.map(() => given + 2);
    case 'longrope':
      return invFreq.map(() => given + 3);
    case 'dynamicNtk':
      // The new base is off by about eight roundings, which a frequency multiplies by e < 1. Its logarithm is larger by
      // that of the ratio.
      return invFreq.map((_, j) => given + 8 + 2 * Math.abs(Math.log(ratio(j))));
    case 'yarn': {
      const [low, high] = yarnRampEdges(scaling, spec.base, dim);
      const span = Math.max(0.001, high - low);
      return invFreq.map((_, j) => {
        const ramp = (j - low) / span;
        if (!(ramp > 0 && ramp < 1)) return given + 4;
        // Edges that are not rounded to whole pairs have errors of their logarithms.
        const edges = scaling.truncate === false ? (8 * (Math.abs(low) + Math.abs(high))) / span : 0;
        return given + 6 + (3 + edges) * ratio(j);
      });
    }
    case 'llama3': {
      const { lowFreqFactor: low, highFreqFactor: high, originalContext } = scaling;
      return invFreq.map((_, j) => {
        const turns = (originalContext * plain[j]!) / (2 * Math.PI); // turns in the original context
        if (turns > high * 1.001 || turns < low * 0.999) return given + 2;
        // smooth = (turns − low) / (high − low) has four roundings and the frequency's error, of a value up to `high`.
        return given + 6 + ((10 * high) / (high - low)) * ratio(j);
      });
    }
  }
}

/** Returns the function that finds the place of element n of a dense output. */
function placer(
  { source, table, rotaryOffset, rotaryDim, write, tableRows, batch: batches }: RopePlan,
  { x, out, rows }: RopePart,
) {
  const seqLen = x.shape[1]!;
  const order = [0, 1, 2, 3].filter((d) => out.shape[d]! > 1).sort((a, b) => out.strides[b]! - out.strides[a]!);
  // A row of a cache has the token that is written to it.
  const tokenOf = new Map<number, number>();
  rows?.forEach((row, t) => void tokenOf.set(Math.floor(t / seqLen) * out.shape[1]! + row, t % seqLen));
  const { positions: all } = source!;
  const numAxes = all.length / Math.max(1, table.rows);
  const positionsOf = Array.from({ length: table.rows }, (_, r) =>
    Array.from({ length: numAxes }, (_, a) => all[a * table.rows + r]!),
  );
  const at = [0, 0, 0, 0];
  return (n: number): RopePlace => {
    at.fill(0);
    let rest = n;
    for (const d of order) {
      at[d] = Math.floor(rest / out.strides[d]!);
      rest -= at[d]! * out.strides[d]!;
    }
    const [batch, outRow, head, dim] = at as [number, number, number, number];
    const token = rows ? tokenOf.get(batch * out.shape[1]! + outRow) : outRow;
    if (token === undefined) return { batch, token, row: undefined, positions: [], head, dim };
    const row = batch * seqLen + token;
    const positions = positionsOf[tableRows[batches === undefined ? token : row]!]!;
    const within = dim - rotaryOffset;
    if (within < 0 || within >= rotaryDim) return { batch, token, row, positions, head, dim };
    const member = write.step === 2 ? within % 2 : Number(within >= write.gap);
    const pair = (within - member * write.gap) / write.step;
    return { batch, token, row, positions, head, dim, pair, member: member as 0 | 1 };
  };
}
