/**
 * ggml's RoPE by its published formula, element by element in float64.
 *
 * It shares no code with `ops/` or `reference/` of ropewalk, so that their frequencies, axes, tables and pairs are
 * checked against the formula as it is written. It computes sin and cos for every pair and token, which is slow.
 *
 * @module
 * @see ggml-org/ggml@d99724f src/ggml-cpu/ops.cpp
 */

/** The parameters of a ggml RoPE call, with ggml's names. Floats are taken as f32 values. */
export interface GgmlRopeParams {
  /** `[head_dim, heads, tokens, batch]` */
  readonly ne: readonly [number, number, number, number];
  readonly n_dims: number;
  /** 0 is normal, 2 neox, 8 mrope, 24 vision, and 40 imrope. */
  readonly mode: number;
  readonly sections: readonly number[];
  readonly n_ctx_orig: number;
  readonly freq_base: number;
  readonly freq_scale: number;
  readonly ext_factor: number;
  readonly attn_factor: number;
  readonly beta_fast: number;
  readonly beta_slow: number;
  readonly n_offs: number;
  readonly forward: boolean;
}

/**
 * Rotates by the formula.
 *
 * @param x - `[ne3, ne2, ne1, ne0]`, dense
 * @param pos - `[ne2]`, or `[4 · ne2]` axis by axis for modes with several axes
 * @param freqFactors - at least one for each pair, or undefined
 * @returns a new array of x's size
 */
export function ropeByFormula(
  p: GgmlRopeParams,
  x: Float64Array,
  pos: ArrayLike<number>,
  freqFactors?: ArrayLike<number>,
): Float64Array {
  const [ne0, ne1, ne2, ne3] = p.ne;
  const y = Float64Array.from(x);
  const f = Math.fround;
  const scale = f(p.freq_scale);
  const ext = f(p.ext_factor);
  const corr = (beta: number): number =>
    (p.n_dims * Math.log(p.n_ctx_orig / (f(beta) * 2 * Math.PI))) / (2 * Math.log(f(p.freq_base)));
  const low = Math.max(0, Math.floor(corr(p.beta_fast)));
  const high = Math.min(p.n_dims - 1, Math.ceil(corr(p.beta_slow)));
  const magnitude = f(p.attn_factor) * (ext === 0 ? 1 : 1 + 0.1 * Math.log(1 / scale));
  const vision = p.mode === 24;
  const pairs = vision ? ne0 / 2 : p.n_dims / 2;

  for (let i3 = 0; i3 < ne3; i3++) {
    for (let i2 = 0; i2 < ne2; i2++) {
      for (let j = 0; j < pairs; j++) {
        const [axis, power] = axisAndPower(p.mode, p.sections, j);
        const position = pos[axis * ne2 + i2]!;
        const extrapolated =
          (position * f(p.freq_base) ** ((-2 * power) / p.n_dims)) / (freqFactors ? freqFactors[j]! : 1);
        const interpolated = scale * extrapolated;
        let angle = interpolated;
        if (ext !== 0) {
          const ramp = 1 - Math.min(1, Math.max(0, (j - low) / Math.max(0.001, high - low)));
          angle = interpolated * (1 - ramp * ext) + extrapolated * ramp * ext;
        }
        const cos = Math.cos(angle) * magnitude;
        const sin = Math.sin(angle) * magnitude * (p.forward ? 1 : -1);
        const first = p.n_offs + (p.mode === 0 ? 2 * j : j);
        const second = first + (p.mode === 0 ? 1 : vision ? p.n_dims : p.n_dims / 2);
        for (let i1 = 0; i1 < ne1; i1++) {
          const row = ((i3 * ne2 + i2) * ne1 + i1) * ne0;
          y[row + first] = x[row + first]! * cos - x[row + second]! * sin;
          y[row + second] = x[row + first]! * sin + x[row + second]! * cos;
        }
      }
    }
  }
  return y;
}

/** Returns the axis of pair j (0 for text) and the power of θ_scale in its angle. */
function axisAndPower(mode: number, sections: readonly number[], j: number): [axis: number, power: number] {
  if (mode === 0 || mode === 2) return [0, j];
  const [t, h, w, e] = sections as [number, number, number, number];
  const sector = j % (t + h + w + e);
  if (mode === 40) {
    if (sector % 3 === 1 && sector < 3 * h) return [1, j];
    if (sector % 3 === 2 && sector < 3 * w) return [2, j];
    return [sector % 3 === 0 && sector < 3 * t ? 0 : 3, j];
  }
  const axis = sector < t ? 0 : sector < t + h ? 1 : sector < t + h + w ? 2 : 3;
  // Vision counts from the start of the axis' section.
  return [axis, mode === 24 ? sector - [0, t, t + h, t + h + w][axis]! : j];
}
