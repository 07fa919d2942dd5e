/**
 * A straightforward loop of RoPE in TypeScript, to compare the kernels with.
 *
 * @module
 */

/**
 * Rotates f32 heads by tables of cosines and sines.
 *
 * @param y - the output, `[tokens, heads, headDim]`, dense
 * @param x - the input, in the same shape
 * @param cos - `[tokens, headDim / 2]`, dense
 * @param sin - same shape
 * @param heads - heads of one token
 * @param headDim - even
 * @param pairing - half: pair j is (j, j + headDim / 2); interleaved: (2j, 2j + 1)
 */
export function plainRope(
  y: Float32Array,
  x: Float32Array,
  cos: Float32Array,
  sin: Float32Array,
  heads: number,
  headDim: number,
  pairing: 'half' | 'interleaved',
): void {
  const pairs = headDim / 2;
  const step = pairing === 'half' ? 1 : 2;
  const gap = pairing === 'half' ? pairs : 1;
  const tokens = x.length / (heads * headDim);
  for (let token = 0; token < tokens; token++) {
    const row = token * pairs;
    for (let head = 0; head < heads; head++) {
      const first = (token * heads + head) * headDim;
      for (let j = 0; j < pairs; j++) {
        const i0 = first + j * step;
        const i1 = i0 + gap;
        const x0 = x[i0]!;
        const x1 = x[i1]!;
        const c = cos[row + j]!;
        const s = sin[row + j]!;
        y[i0] = x0 * c - x1 * s;
        y[i1] = x0 * s + x1 * c;
      }
    }
  }
}
