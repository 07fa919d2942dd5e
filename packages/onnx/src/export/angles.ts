/**
 * RoPE's angles inside a graph: from integer positions to cos and sin, and the precision of each way to compute them.
 *
 * Scaling, frequency factors and the sign of the direction are in the constants. Only a magnitude other than 1 costs
 * operators.
 *
 * @module
 */
import { frequenciesOf, type RopeSpec, roundTo, tensorFrom } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { readList, readName, readOptions, sharePairs } from 'ropewalk/internal';
import type { GraphBuilder } from './builder.js';

/**
 * How a graph computes cos and sin.
 *
 * - `f64`: position × frequency, Sin and Cos in float64. It is as exact as the library's own tables, for targets with
 *   float64 (CPU, CUDA).
 * - `f32`: the same in float32, as most exporters write it. It is wrong by a radian where positions are large.
 * - `f32-reduced`: the angle modulo one turn, with every product exact in float32. It needs integer Div and Mod, and no
 *   float64.
 * - `f32-table`: rows of a float32 table that the exporter computes in float64.
 * - `f16-table`: rows of a float16 table. Data stays float16 throughout, for targets that have nothing else.
 */
export type AngleMode = 'f64' | 'f32' | 'f32-reduced' | 'f32-table' | 'f16-table';

/** All values of {@link AngleMode}. */
export const ANGLE_MODES: readonly AngleMode[] = /* @__PURE__ */ Object.freeze([
  'f64',
  'f32',
  'f32-reduced',
  'f32-table',
  'f16-table',
]);

export interface AngleConstants {
  /** Radians per position, one number per pair; negative for the backward direction. */
  readonly invFreq: Float64Array;
  /** The factor of cos and sin. */
  readonly magnitude: number;
  /** The position axis of each pair. */
  readonly axisOfPair: Uint8Array;
  readonly numAxes: number;
}

/** Computes the constants of a RoPE. Backward rotates by −angle. It refuses the same specs as {@link frequenciesOf}. */
export function angleConstants(spec: RopeSpec, direction: 'forward' | 'backward' = 'forward'): AngleConstants {
  const { invFreq, attentionFactor } = frequenciesOf(spec);
  const { axisOfPair, numAxes } = sharePairs(spec.axes, invFreq.length);
  const sign = direction === 'backward' ? -1 : 1;
  return { invFreq: invFreq.map((f) => sign * f), magnitude: attentionFactor, axisOfPair, numAxes };
}

/** A position has limbs of 8 bits. Their products with {@link FRACTION_BITS} bits of a turn are exact in f32. */
const LIMB = 256;
/** 255 · ½ · 4 limbs stay below 2^9, so that sums of multiples of 2^-15 fit the 24 bits of an f32, in any order. */
const FRACTION_BITS = 15;
/** The first nine bits of 2π, whose product with a 15-bit fraction is exact, and the rest of 2π. */
const TWO_PI_HEAD = 6.28125;
const TWO_PI_TAIL = 2 * Math.PI - TWO_PI_HEAD;

/** 2/π = 0.A2F9836E4E441529FC… in hexadecimal, 192 bits. @see FDLIBM e_rem_pio2.c, whose table begins with it */
const TWO_OVER_PI = 0xa2f9836e4e441529fc2757d1f534ddc0db6295993c439041n;
const TWO_OVER_PI_BITS = 192n;

/** Computes the fraction of a turn, in [−½, ½), of a float64 frequency after `steps` positions, rounded once. */
export function turnsOf(invFreq: number, steps: number): number {
  let bits = TWO_OVER_PI_BITS + 2n; // 1/(2π) is a quarter of 2/π
  let scaled = invFreq;
  for (; !Number.isInteger(scaled); scaled *= 2) bits++; // a power of two changes no digit
  const product = BigInt(scaled) * TWO_OVER_PI * BigInt(steps);
  const fraction = BigInt.asIntN(Number(bits), product); // modulo one turn, to nearest
  const kept = bits > 80n ? 80n : bits;
  return Number(fraction >> (bits - kept)) / 2 ** Number(kept);
}

/** Computes `[pairs, limbs]`: the fraction of a turn in 15 bits for each limb, and the rest in radians. */
function reducedConstants(invFreq: Float64Array, limbs: number) {
  const head = new Float32Array(invFreq.length * limbs);
  const tail = new Float32Array(invFreq.length * limbs);
  for (const [j, frequency] of invFreq.entries()) {
    for (let limb = 0; limb < limbs; limb++) {
      const turns = turnsOf(frequency, LIMB ** limb);
      const short = Math.round(turns * 2 ** FRACTION_BITS) / 2 ** FRACTION_BITS;
      head[j * limbs + limb] = short;
      tail[j * limbs + limb] = (turns - short) * 2 * Math.PI;
    }
  }
  return { head, tail };
}

/** cos and sin in a graph, `[batch or 1, seq, pairs]`. */
export interface CosSin {
  readonly cos: string;
  readonly sin: string;
  readonly dtype: 'f32' | 'f64' | 'f16';
}

interface AngleOptions {
  /** i64 `[batch, seq]`, or `[axes, batch, seq]` with several axes. */
  readonly positions: string;
  /** The largest absolute value of a position. Default: 2^31. */
  readonly maxPosition?: number;
}

/** Appends angles, cos and sin, multiplied by the magnitude: f64 for mode f64, else f32. */
export function anglesInGraph(
  b: GraphBuilder,
  c: AngleConstants,
  mode: 'f64' | 'f32' | 'f32-reduced',
  options: AngleOptions,
): CosSin {
  const dtype = mode === 'f64' ? 'f64' : 'f32';
  const angle = mode === 'f32-reduced' ? reducedAngle(b, c, options) : plainAngle(b, c, dtype, options.positions);
  const scaled = (value: string): string =>
    c.magnitude === 1 ? value : b.add('Mul', [value, b.scalar('magnitude', dtype, c.magnitude)]);
  return { cos: scaled(b.add('Cos', [angle])), sin: scaled(b.add('Sin', [angle])), dtype };
}

function plainAngle(b: GraphBuilder, c: AngleConstants, dtype: 'f32' | 'f64', positions: string): string {
  const column = perPair(b, c, b.cast(positions, dtype), []);
  const values = dtype === 'f64' ? c.invFreq : Float32Array.from(c.invFreq);
  return b.add('Mul', [column, b.constant('inv_freq', tensorFrom(values))]);
}

/**
 * Shapes positions as `[batch, seq, 1, …]` for one axis, or `[batch, seq, pairs, …]` for several, where each pair gets
 * the position of its axis.
 */
function perPair(b: GraphBuilder, c: AngleConstants, positions: string, behind: readonly number[]): string {
  if (c.numAxes === 1) return b.add('Unsqueeze', [positions, b.integers('pair_axis', [2])]);
  const last = b.add('Transpose', [positions], { perm: [1, 2, 0, ...behind] });
  return b.add('Gather', [last, b.integers('axis_of_pair', c.axisOfPair)], { axis: 2 });
}

function reducedAngle(b: GraphBuilder, c: AngleConstants, { positions, maxPosition = 2 ** 31 }: AngleOptions): string {
  const limbs = Math.max(1, Math.ceil(Math.log2(maxPosition + 1) / 8)); // bytes of a position
  const pairs = c.invFreq.length;
  const { head, tail } = reducedConstants(c.invFreq, limbs);
  const constant = (name: string, data: Float32Array): string =>
    b.constant(name, tensorFrom(data, { shape: [pairs, limbs] }));
  const integers = (name: string, values: readonly number[]): string => b.integers(name, values);
  // Limbs have the sign of the position: Div rounds towards 0, and so does the remainder with fmod.
  const apart = b.add('Unsqueeze', [positions, integers('limb_axis', [-1])]);
  const shifts = Array.from({ length: limbs }, (_, limb) => LIMB ** limb);
  const shifted = limbs === 1 ? apart : b.add('Div', [apart, integers('limb_steps', shifts)]);
  const limb = b.cast(b.add('Mod', [shifted, integers('limb_size', [LIMB])], { fmod: 1 }), 'f32');
  const spread = perPair(b, c, limb, [3]);
  const sum = (constants: string): string =>
    b.add('ReduceSum', [b.add('Mul', [spread, constants]), integers('limbs', [-1])], { keepdims: 0 });
  const turns = sum(constant('turn_heads', head));
  const part = b.add('Sub', [turns, b.add('Round', [turns])]);
  const number = (name: string, value: number): string => b.scalar(name, 'f32', value);
  const rest = b.add('Add', [
    b.add('Mul', [part, number('two_pi_tail', TWO_PI_TAIL)]),
    sum(constant('turn_tails', tail)),
  ]);
  return b.add('Add', [b.add('Mul', [part, number('two_pi_head', TWO_PI_HEAD)]), rest]);
}

/** The most rows × pairs of a table: half a gigabyte of f32. An ONNX file holds two gigabytes at most. */
export const MAX_TABLE = 2 ** 26;

/**
 * Computes cos and sin of positions 0 to context − 1, `[context, pairs]`, with magnitude and sign.
 *
 * @param pairsOf - the pairs of the table. Default: all.
 * @throws {RopewalkError} RANGE for more entries than {@link MAX_TABLE} and one row, which decoders have beyond their
 *   context
 */
export function tableOver(
  c: AngleConstants,
  context: number,
  pairsOf: readonly number[] = [...c.invFreq.keys()],
): { readonly cos: Float64Array; readonly sin: Float64Array } {
  if ((context - 1) * c.invFreq.length > MAX_TABLE)
    fail(
      'RANGE',
      'export: context',
      `${context} positions of ${c.invFreq.length} pairs are more than the ${MAX_TABLE} entries of a table. ` +
        'Give a smaller --context, or --angles f32-reduced, which needs no table.',
    );
  const cos = new Float64Array(context * pairsOf.length);
  const sin = new Float64Array(context * pairsOf.length);
  for (let position = 0; position < context; position++) {
    for (const [column, j] of pairsOf.entries()) {
      const angle = position * c.invFreq[j]!;
      cos[position * pairsOf.length + column] = Math.cos(angle) * c.magnitude;
      sin[position * pairsOf.length + column] = Math.sin(angle) * c.magnitude;
    }
  }
  return { cos, sin };
}

/** The error of cos and sin at one position. */
export interface AnglePrecision {
  readonly position: number;
  /** The largest of |cos − exact| and |sin − exact| over all pairs, before the magnitude. */
  readonly maxError: number;
  /** The pair with the largest error. */
  readonly pair: number;
}

/** The default positions of {@link anglePrecision}. */
export const PRECISION_POSITIONS: readonly number[] = /* @__PURE__ */ Object.freeze([
  1, 1000, 4096, 32768, 131072, 1e6, 0x1000000, 0x7fffffff,
]);

/**
 * Measures how precise the cos and sin of a graph are. It computes as the graph does, rounds where the graph rounds,
 * and compares with the exact angle, modulo one turn, of the float64 frequency. The reference is float64 as well, so a
 * few 1e-16 of an error in f64 may be its own.
 *
 * @param spec - a model's RoPE
 * @param mode - the arithmetic
 * @param positions - integers in [−2^31, 2^31]
 * @param data - the dtype of the results of mode f64: f32, to which they are rounded for data of f32 and less, or f64
 * @returns one entry for each position
 * @throws {RopewalkError} RANGE for another position; UNSUPPORTED for another mode
 */
export function anglePrecision(
  spec: RopeSpec,
  mode: AngleMode,
  positions: readonly number[] = PRECISION_POSITIONS,
  data: 'f32' | 'f64' = 'f32',
): readonly AnglePrecision[] {
  const { invFreq } = angleConstants(readOptions(spec, 'anglePrecision: spec'));
  readName(data, ['f32', 'f64'], 'anglePrecision: data');
  const limbs = 4;
  const constants = mode === 'f32-reduced' ? reducedConstants(invFreq, limbs) : undefined;
  const given = readList(positions, 'anglePrecision: positions', 'a list of integers');
  return Array.from(given, (position) => {
    if (!Number.isInteger(position) || Math.abs(position) > 2 ** 31)
      refuse('RANGE', 'anglePrecision: positions', 'integers in [-2^31, 2^31]', position);
    let worst = { position, maxError: 0, pair: 0 };
    for (const [j, frequency] of invFreq.entries()) {
      const exact = turnsOf(frequency, position) * 2 * Math.PI;
      const [angle, round] =
        mode === 'f32-reduced'
          ? [reducedAt(position, constants!, j * limbs), Math.fround]
          : computed(mode, data, frequency, position);
      const [cos, sin] = [round(Math.cos(angle)), round(Math.sin(angle))];
      const maxError = Math.max(Math.abs(cos - Math.cos(exact)), Math.abs(sin - Math.sin(exact)));
      if (maxError > worst.maxError) worst = { position, maxError, pair: j };
    }
    return worst;
  });
}

/** Computes the angle of one pair as a graph does, and returns the rounding of its cos and sin. */
function computed(
  mode: Exclude<AngleMode, 'f32-reduced'>,
  data: 'f32' | 'f64',
  frequency: number,
  position: number,
): readonly [angle: number, round: (x: number) => number] {
  const f = Math.fround;
  switch (mode) {
    case 'f64':
      return [position * frequency, (x) => roundTo(data, x)];
    case 'f32-table':
      return [position * frequency, f];
    case 'f32':
      return [f(f(position) * f(frequency)), f];
    case 'f16-table':
      return [position * frequency, (x) => roundTo('f16', x)];
    default:
      return refuse('UNSUPPORTED', 'anglePrecision: mode', ANGLE_MODES.join(', '), mode);
  }
}

/** Computes the angle of mode f32-reduced, with the constants of a pair from index `first` on. */
function reducedAt(position: number, { head, tail }: ReturnType<typeof reducedConstants>, first: number): number {
  const f = Math.fround;
  let [turns, tails, left] = [0, 0, position];
  for (let limb = 0; limb < 4; limb++) {
    const digit = left % LIMB;
    left = Math.trunc(left / LIMB);
    turns = f(turns + f(digit * head[first + limb]!));
    tails = f(tails + f(digit * tail[first + limb]!));
  }
  const part = f(turns - Math.round(turns));
  return f(f(part * TWO_PI_HEAD) + f(f(part * f(TWO_PI_TAIL)) + tails));
}
