/**
 * How far a backend that computes in f32 may be off: for the operators that compute a function of each element (SwiGLU,
 * GELU, GeGLU and scale), with their calls, and for layer norm.
 */
import type { FloatDtype, OpPlan, Tensor } from 'ropewalk';
import { planGeglu, planGelu, planLayerNorm, planScale, planSwiglu } from 'ropewalk';
import { type Float, type Shared, tensorAt, U } from './operators.js';
import { floats } from './tensors.js';

/** Roundings to f32 before the last; in f32 that one is the output's own. */
export const roundings = (all: number, dtype: FloatDtype): number => (dtype === 'f32' ? all - 1 : all) * U;

/** How far an element may be off before its last rounding. */
type ErrorOf = (dtype: FloatDtype, x: number, up: number, exact: number) => number;

/** One form of an operator. */
export interface Activation {
  readonly name: string;
  /** Takes x or the gate, up, and out; operators with one input leave up alone. */
  readonly plan: (x: Tensor, up: Tensor, out: Tensor) => OpPlan;
  readonly error: ErrorOf;
  /** What multiplies up: where it may be taken for zero, an infinite or NaN up gives anything. */
  readonly activated?: (x: number) => number;
}

const CLAMPS = { limit: 1.5, alpha: 1.702, offset: 1 };
const share = (w: number): number => 1 / (1 + Math.exp(-w));
const tanhGate = (x: number): number => 2 * Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3);

/**
 * All of them, with bounds.
 *
 * What goes through e^−|w|, good to 2 ulp (4 u): one sum, one quotient and two products; then e^w is as wrong as w,
 * which matters below 0 (above, w·e^−w <= 0.4).
 *
 * @param quotient - roundings of a quotient
 * @param below - what numbers too small for a normal f32 add: e^−|w|, its product with x, and that with up
 */
export function activations(quotient: number, below: (x: number, up: number) => number): readonly Activation[] {
  const sigmoid =
    (more: number, ofW: number, wOf: (x: number) => number): ErrorOf =>
    (dtype, x, up, exact) =>
      (roundings(7 + quotient + more, dtype) + ofW * U * Math.max(-wOf(x), 0.4)) * Math.abs(exact) + below(x, up);
  // Φ(−|x|) = e^(−x²/2)·t·P(t): t·P(t) within 5 u and the quotient t, e^x 4, two products and a difference 3; and
  // e^(−x²/2) is as wrong as its rounded exponent.
  const gelu =
    (more: number): ErrorOf =>
    (dtype, x, up, exact) =>
      (roundings(12 + quotient + more, dtype) + (U * x * x) / 2) * Math.abs(exact) + below(x, up);
  return [
    {
      name: 'swiglu',
      plan: (x, up, out) => planSwiglu(x, up, out),
      error: sigmoid(0, 0, (x) => x),
      activated: (x) => x * share(x),
    },
    {
      // limit, alpha and offset are rounded too; the sum with the offset may cancel
      name: 'swiglu, clamped',
      plan: (x, up, out) => planSwiglu(x, up, out, CLAMPS),
      error: (dtype, x, up, exact) => {
        const [g, u] = [Math.min(x, CLAMPS.limit), Math.max(-CLAMPS.limit, Math.min(up, CLAMPS.limit))];
        const w = CLAMPS.alpha * g;
        const size = Math.abs(u) + CLAMPS.offset;
        return sigmoid(1, 3, () => w)(dtype, g, size, exact) + 2 * U * size * Math.abs(g * share(w));
      },
    },
    {
      name: 'swiglu, only alpha',
      plan: (x, up, out) => planSwiglu(x, up, out, { alpha: -0.75 }),
      error: sigmoid(1, 1, (x) => -0.75 * x),
      activated: (x) => x * share(-0.75 * x),
    },
    {
      name: 'gelu',
      plan: (x, _, out) => planGelu(x, out),
      error: (dtype, x, _, exact) => gelu(0)(dtype, x, 1, exact),
    },
    {
      name: 'geglu',
      plan: (x, up, out) => planGeglu(x, up, out),
      error: gelu(1),
      activated: (x) => (x < -12 ? 0 : x),
    },
    {
      // w: two products, a sum and two rounded constants
      name: 'gelu, tanh',
      plan: (x, _, out) => planGelu(x, out, { approximate: 'tanh' }),
      error: (dtype, x, _, exact) => sigmoid(0, 5, tanhGate)(dtype, x, 1, exact),
    },
    {
      name: 'geglu, tanh',
      plan: (x, up, out) => planGeglu(x, up, out, { approximate: 'tanh' }),
      error: sigmoid(0, 5, tanhGate),
      activated: (x) => x * share(tanhGate(x)),
    },
    {
      name: 'scale',
      plan: (x, _, out) => planScale(x, -0.3, out),
      error: (dtype, _x, _up, exact) => roundings(2, dtype) * Math.abs(exact) + below(0, 0),
    },
    {
      name: 'scale, softcap',
      plan: (x, _, out) => planScale(x, 7.3, out, { softcap: 2.7 }),
      error: (dtype, _x, _up, exact) => softcapError(2, quotient, dtype) * Math.abs(exact) + 5 * below(0, 0),
    },
  ];
}

/** The product, a quotient, tanh 16 (next to its series 1 − e^x cancels) with a quotient, and a product. */
export const softcapError = (product: number, quotient: number, dtype: FloatDtype): number =>
  roundings(product + 2 * quotient + 17, dtype);

/**
 * A call of one.
 *
 * @param vanishes - where what multiplies an infinite up may count as zero
 */
export function activationTrial(
  { plan, error, activated }: Activation,
  given: readonly [Float, Float, Float],
  vanishes: number,
): Shared {
  const [xs, ups] = [floats(given[0]), floats(given[1])];
  return {
    given,
    outs: [2],
    plan: (t) => plan(tensorAt(t, 0), tensorAt(t, 1), tensorAt(t, 2)),
    error: (exact, n) => error(given[0].dtype, xs[n]!, ups[n]!, exact),
    free: (n) => activated !== undefined && !Number.isFinite(ups[n]!) && Math.abs(activated(xs[n]!)) < vanishes,
  };
}

/** A call of layer norm, in place where x is out. */
export function layerNormTrial(
  x: Float,
  weight: Float,
  bias: Float | undefined,
  out: Float,
  eps: number,
  bound: (normed: Normed) => number,
): Shared {
  const [xs, ws, bs] = [floats(x), floats(weight), bias && floats(bias)];
  const d = x.shape.at(-1)!;
  const rows = Array.from({ length: d === 0 ? 0 : xs.length / d }, (_, r) => {
    const row = xs.subarray(r * d, (r + 1) * d);
    const mean = row.reduce((sum, v) => sum + v, 0) / d;
    const factor = 1 / Math.sqrt(row.reduce((sum, v) => sum + (v - mean) ** 2, 0) / d + eps);
    return { mean, factor, largest: row.reduce((most, v) => Math.max(most, Math.abs(v)), 0) };
  });
  const given = [weight, out, ...(bias ? [bias] : []), ...(x === out ? [] : [x])];
  return {
    given,
    outs: [1],
    plan: (t) => {
      const from = tensorAt(t, x === out ? 1 : t.length - 1);
      return planLayerNorm(from, tensorAt(t, 0), bias && tensorAt(t, 2), eps, tensorAt(t, 1));
    },
    error: (exact, n) => {
      const shift = bs?.[n % d] ?? 0;
      const { mean, factor, largest } = rows[Math.floor(n / d)]!;
      // Millions of calls: a spread of the row would take most of their time.
      return bound({
        mean,
        factor,
        largest,
        exact,
        normed: exact - shift,
        x: xs[n]!,
        weight: Math.abs(ws[n % d]!),
      });
    },
  };
}

/** What the bound of an element of layer norm is made of. */
export interface Normed {
  readonly exact: number;
  /** Before the bias. */
  readonly normed: number;
  readonly x: number;
  readonly weight: number;
  /** Of its row, and 1/√(var + eps). */
  readonly mean: number;
  readonly factor: number;
  /** The largest magnitude of its row. */
  readonly largest: number;
}
