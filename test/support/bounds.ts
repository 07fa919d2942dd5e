/**
 * Error bounds of backends that compute in f32, for the elementwise operators (SwiGLU, GELU, GeGLU and scale) and for
 * layer norm, with calls of these operators.
 */
import type { FloatDtype, OpPlan, Tensor } from 'ropewalk';
import { planGeglu, planGelu, planLayerNorm, planScale, planSwiglu } from 'ropewalk';
import { type Float, type Shared, tensorAt, U } from './operators.js';
import { floats } from './tensors.js';

/** Returns the error of all roundings to f32. In f32 the last one does not count, because it rounds the output. */
export const roundings = (all: number, dtype: FloatDtype): number => (dtype === 'f32' ? all - 1 : all) * U;

/** Returns the allowed error of an element before its last rounding. */
type ErrorOf = (dtype: FloatDtype, x: number, up: number, exact: number) => number;

/** One form of an operator. */
export interface Activation {
  readonly name: string;
  /** Makes the plan from x or the gate, up, and out. Operators with one input ignore up. */
  readonly plan: (x: Tensor, up: Tensor, out: Tensor) => OpPlan;
  readonly error: ErrorOf;
  /** The factor of up. If it may count as zero, an infinite or NaN up may give any result. */
  readonly activated?: (x: number) => number;
}

const CLAMPS = { limit: 1.5, alpha: 1.702, offset: 1 };
const share = (w: number): number => 1 / (1 + Math.exp(-w));
const tanhGate = (x: number): number => 2 * Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3);

/**
 * Lists all forms with their bounds.
 *
 * Operators that use e^−|w|, which is accurate to 2 ulp (4 u), have one sum, one quotient and two products. The error
 * of w also changes e^w, which matters below 0 (above, w·e^−w <= 0.4).
 *
 * @param quotient - the roundings of a quotient
 * @param below - the error of numbers too small for a normal f32: e^−|w|, its product with x, and the product with up
 */
export function activations(quotient: number, below: (x: number, up: number) => number): readonly Activation[] {
  const sigmoid =
    (more: number, ofW: number, wOf: (x: number) => number): ErrorOf =>
    (dtype, x, up, exact) =>
      (roundings(7 + quotient + more, dtype) + ofW * U * Math.max(-wOf(x), 0.4)) * Math.abs(exact) + below(x, up);
  // Φ(−|x|) = e^(−x²/2)·t·P(t). t·P(t) is within 5 u and the quotient t; e^x adds 4, two products and a difference 3.
  // e^(−x²/2) also has the error of its rounded exponent.
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
      // limit, alpha and offset are rounded too, and the sum with the offset may cancel
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
      // w has two products, a sum and two rounded constants
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

/**
 * The error has the product, a quotient, tanh with 16 u (1 − e^x cancels near its series) and a quotient, and a
 * product.
 */
export const softcapError = (product: number, quotient: number, dtype: FloatDtype): number =>
  roundings(product + 2 * quotient + 17, dtype);

/**
 * Makes a call of one form.
 *
 * @param vanishes - says where the factor of an infinite up may count as zero
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

/** Makes a call of layer norm. If x is out, it runs in place. */
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
      return planLayerNorm(from, tensorAt(t, 0), tensorAt(t, 1), { bias: bias && tensorAt(t, 2), eps });
    },
    error: (exact, n) => {
      const shift = bs?.[n % d] ?? 0;
      const { mean, factor, largest } = rows[Math.floor(n / d)]!;
      // This runs millions of times, and a spread of the row would take most of the time.
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

/** The values that the bound of an element of layer norm depends on. */
export interface Normed {
  readonly exact: number;
  /** The normalised value before the bias. */
  readonly normed: number;
  readonly x: number;
  readonly weight: number;
  /** The mean of the row. The next field is 1/√(var + eps). */
  readonly mean: number;
  readonly factor: number;
  /** The largest magnitude in the row. */
  readonly largest: number;
}
