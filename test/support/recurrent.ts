/** Random calls of the operators with a state, and their errors against the float64 reference. */
import assert from 'node:assert/strict';
import { boundAboutStored, planErrors } from '@ropewalk/oracle/internal';
import {
  type FloatDtype,
  type OpPlan,
  planCausalConv,
  planGatedDelta,
  planSsmScan,
  roundTo,
  type Tensor,
  tensorFrom,
} from 'ropewalk';
import { runReference } from 'ropewalk/reference';
import { type Fill, type Float, laid, type Placement, roomFor } from './operators.js';
import { floats } from './tensors.js';

/** A call that is planned over tensors with the same layouts as `given`. */
export interface StateTrial {
  readonly given: readonly Float[];
  /** The places of the output and of the state. */
  readonly outs: readonly [out: number, state: number];
  plan(tensors: readonly Float[]): OpPlan;
}

const DENSE_STATE: Placement = { dense: true, turn: 0, backwards: 0, step: 1, pad: 0, lead: 0, repeat: 0 };

/** The sizes and options of a convolution. */
export interface ConvDraw {
  readonly tokens: number;
  readonly channels: number;
  readonly width: number;
  /** Bits: bias, before, after, SiLU, fresh. */
  readonly options: number;
}

/** Makes a trial of the convolution. */
export function convTrial(
  dtype: FloatDtype,
  { tokens, channels, width, options }: ConvDraw,
  how: readonly Placement[],
  seed: number,
): StateTrial {
  const has = (bit: number): boolean => (options & (1 << bit)) !== 0;
  const [x, weight] = [
    laid(dtype, [tokens, channels], how[0]!, seed),
    laid(dtype, [channels, width], how[1]!, seed + 1),
  ];
  const state = laid(dtype === 'f64' ? 'f64' : 'f32', [width - 1, channels], DENSE_STATE, seed + 2);
  const out = roomFor(dtype, [tokens, channels], how[2]!);
  const more = [
    has(0) ? laid(dtype, [channels], how[3]!, seed + 3) : undefined,
    has(1) ? laid(dtype, [tokens, channels], how[4]!, seed + 4) : undefined,
    has(2) ? laid(dtype, [tokens, channels], how[5]!, seed + 5) : undefined,
  ];
  return {
    given: [x, weight, state, out, ...more.filter((one) => one !== undefined)],
    outs: [3, 2],
    plan(t) {
      const rest = t.slice(4);
      const [bias, before, after] = more.map((one) => one && rest.shift());
      const activation = has(3) ? 'silu' : undefined;
      return planCausalConv(t[0]!, t[1]!, t[2]!, t[3]!, { bias, before, after, activation, fresh: has(4) });
    },
  };
}

/** The sizes and options of a delta rule. */
export interface DeltaDraw {
  readonly tokens: number;
  readonly keyHeads: number;
  readonly group: number;
  readonly d: number;
  readonly dv: number;
  readonly tiled: boolean;
  readonly fresh: boolean;
}

/** Makes a trial of the gated delta rule. */
export function deltaTrial(
  dtype: FloatDtype,
  { tokens, keyHeads, group, d, dv, tiled, fresh }: DeltaDraw,
  how: readonly Placement[],
  seed: number,
  fill: Fill = 'even',
): StateTrial {
  const heads = keyHeads * group;
  const of = (n: number, shape: readonly number[]): Float => laid(dtype, shape, how[n % how.length]!, seed + n, fill);
  const rate = of(5, [heads]);
  const negative = tensorFrom(
    Float32Array.from(floats(rate), (one) => -Math.abs(one)),
    { shape: [heads] },
  );
  const rates = dtype === 'f32' ? (negative as Float) : laid(dtype, [heads], { ...DENSE_STATE }, seed + 5);
  const given = [
    of(0, [tokens, keyHeads, d]),
    of(1, [tokens, keyHeads, d]),
    of(2, [tokens, heads, dv]),
    of(3, [tokens, heads]),
    of(4, [tokens, heads]),
    rates,
    of(6, [heads]),
    laid(dtype === 'f64' ? 'f64' : 'f32', [heads, d, dv], DENSE_STATE, seed + 7),
    roomFor(dtype, [tokens, heads, dv], how[5]!),
  ];
  return {
    given,
    outs: [8, 7],
    plan: ([q, k, v, decay, beta, rate, bias, state, out]) =>
      planGatedDelta(q!, k!, v!, { decay: decay!, beta: beta!, rate: rate!, bias: bias! }, state!, out!, {
        eps: 1e-6,
        heads: tiled ? 'tiled' : 'grouped',
        fresh,
      }),
  };
}

/** The sizes and options of a selective scan. */
export interface ScanDraw {
  readonly tokens: number;
  readonly groups: number;
  readonly share: number;
  readonly d: number;
  readonly dv: number;
  /** Bits: skip, limits, fresh. */
  readonly options: number;
}

/** Makes a trial of the selective scan. */
export function scanTrial(
  dtype: FloatDtype,
  { tokens, groups, share, d, dv, options }: ScanDraw,
  how: readonly Placement[],
  seed: number,
): StateTrial {
  const heads = groups * share;
  const of = (n: number, shape: readonly number[]): Float => laid(dtype, shape, how[n % how.length]!, seed + n);
  const rate = tensorFrom(
    Float32Array.from(floats(of(5, [heads])), (one) => -Math.abs(one)),
    { shape: [heads] },
  );
  const given = [
    of(0, [tokens, heads, dv]),
    of(1, [tokens, groups, d]),
    of(2, [tokens, groups, d]),
    of(3, [tokens, heads]),
    dtype === 'f32' ? (rate as Float) : laid(dtype, [heads], DENSE_STATE, seed + 5),
    of(6, [heads]),
    laid(dtype === 'f64' ? 'f64' : 'f32', [heads, d, dv], DENSE_STATE, seed + 7),
    roomFor(dtype, [tokens, heads, dv], how[5]!),
    of(4, [heads]),
  ];
  return {
    given,
    outs: [7, 6],
    plan: ([x, b, c, dt, rate, bias, state, out, skip]) =>
      planSsmScan(x!, b!, c!, { dt: dt!, rate: rate!, bias: bias! }, state!, out!, {
        ...(options & 1 && { skip: skip! }),
        ...(options & 2 && { limits: [0.25, 1.5] }),
        fresh: (options & 4) !== 0,
      }),
  };
}

/** Makes float64 tensors of the same numbers. */
export const wide = (given: readonly Float[]): Float[] =>
  given.map((one) => tensorFrom(floats(one).slice(), { shape: one.shape }) as Float);

/** Compares results, in the trial's dtypes, with the reference's of the same numbers in float64. */
export function compareWithReference(trial: StateTrial, results: readonly Tensor[]): void {
  const exact = wide(trial.given);
  const plan = trial.plan(exact);
  const [ofOut, ofState] = planErrors(plan, 'f32').values();
  runReference(plan);
  for (const [n, errors] of [
    [trial.outs[0], ofOut!],
    [trial.outs[1], ofState!],
  ] as const) {
    const [got, want] = [floats(results[n]!), floats(exact[n]!)];
    const dtype = trial.given[n]!.dtype;
    for (const [i, value] of got.entries()) {
      const bound = boundAboutStored(Math.max(0, errors[i]!), want[i]!, dtype);
      // A number beyond the dtype's range is stored as an infinity.
      const beyond = value === roundTo(dtype, want[i]! + Math.sign(want[i]!) * bound) && !Number.isFinite(value);
      assert.ok(
        beyond || Math.abs(value - want[i]!) <= bound,
        `given[${n}] element ${i}: ${value}, not ${want[i]} ± ${bound}`,
      );
    }
  }
}
