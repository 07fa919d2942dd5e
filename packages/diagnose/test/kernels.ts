/** Kernels for the tests of the diagnosis: written anew, in the arithmetic that is asked for. @module */
import { type FloatDtype, frequenciesOf, type RopeSpec, roundTo } from 'ropewalk';

/** How a kernel computes. Default: exactly, and rounded once to nearest. */
export interface How {
  /** Angles: float64, f32 products, or ggml's f32 recurrence from pair to pair. */
  angles?: 'f64' | 'f32' | 'recurrence';
  /** Absolute error of cos and sin. */
  sines?: number;
  /** cos and sin are rounded to it. */
  table?: FloatDtype;
  /** Each product and sum is rounded to it; `fma`: the first product only, to f32. */
  products?: FloatDtype | 'fma';
  /** x is rounded to it first. */
  load?: FloatDtype;
  /** How a result is stored. Default: rounded to nearest. */
  store?: (dtype: FloatDtype, value: number) => number;
  /** Multiplies the magnitude. */
  gain?: number;
  /** Another RoPE than the spec. */
  inv?: ArrayLike<number>;
  /** Added to the position. */
  shift?: number;
}

/** x and y are `[token, head, head_dim]`. */
export function kernel(
  spec: RopeSpec,
  x: Float64Array,
  positions: readonly number[],
  heads: number,
  dtype: FloatDtype,
  how: How = {},
): Float64Array {
  const { headDim, rotaryDim = headDim, pairing, base } = spec;
  const { invFreq, attentionFactor } = frequenciesOf(spec);
  const inv = how.inv ?? invFreq;
  const m = attentionFactor * (how.gain ?? 1);
  const half = rotaryDim / 2;
  const wide = dtype === 'f64' ? (v: number) => v : Math.fround;
  const store = how.store ?? roundTo;
  const y = new Float64Array(x.length);
  const scale = Math.fround(base ** (-2 / rotaryDim));
  for (const [s, p] of positions.entries()) {
    const cs: [number, number][] = [];
    let running = Math.fround(p + (how.shift ?? 0));
    for (let j = 0; j < half; j++) {
      let angle = (p + (how.shift ?? 0)) * inv[j]!;
      if (how.angles === 'f32') angle = Math.fround(Math.fround(p) * Math.fround(inv[j]!));
      if (how.angles === 'recurrence') {
        angle = Math.fround(running * (inv[j]! / base ** ((-2 * j) / rotaryDim)));
        running = Math.fround(running * scale);
      }
      const off = (n: number): number => (how.sines ?? 0) * Math.sin(12.9898 * n + 78.233 * j + 37.719 * s);
      let [c, d] = [(Math.cos(angle) + off(1)) * m, (Math.sin(angle) + off(2)) * m];
      if (how.table) [c, d] = [roundTo(how.table, c), roundTo(how.table, d)];
      cs.push([wide(c), wide(d)]);
    }
    for (let h = 0; h < heads; h++) {
      const at = (s * heads + h) * headDim;
      const load = (i: number): number => (how.load ? roundTo(how.load, x[at + i]!) : x[at + i]!);
      for (let i = 0; i < headDim; i++) y[at + i] = store(dtype, load(i));
      for (let j = 0; j < half; j++) {
        const [i0, i1] = pairing === 'half' ? [j, j + half] : [2 * j, 2 * j + 1];
        const [c, d] = cs[j]!;
        const [u, v] = [load(i0), load(i1)];
        const { products } = how;
        if (products === 'fma') {
          y[at + i0] = store(dtype, wide(u * c - wide(v * d)));
          y[at + i1] = store(dtype, wide(u * d + wide(v * c)));
          continue;
        }
        const r = products ? (value: number) => roundTo(products, value) : wide;
        y[at + i0] = store(dtype, r(r(u * c) - r(v * d)));
        y[at + i1] = store(dtype, r(r(u * d) + r(v * c)));
      }
    }
  }
  return y;
}
