/**
 * RoPE as one writes it in TypeScript without thinking about speed for long: the loop that a kernel has to beat.
 *
 * @module
 */

/**
 * Rotates f32 heads by tables of cosines and sines.
 *
 * @param y - `[tokens, heads, headDim]`, dense; written
 * @param x - same shape
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
