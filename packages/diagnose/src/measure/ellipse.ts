/** Pairs whose cos and sin are lengthened by different factors lie on an ellipse. @module */

/** y over x of a pair, as a complex number, and how far noise may have moved it. */
export type EllipsePoint = readonly [re: number, im: number, noise: number];

/** The half axes of an ellipse along the real and the imaginary axis; `error` is the larger error of both. */
export interface Ellipse {
  readonly cos: number;
  readonly sin: number;
  readonly error: number;
}

/** Finds the ellipse on which all points lie within their noise; undefined where there is none. An axis may be vague. */
export function ellipseThrough(points: readonly EllipsePoint[]): Ellipse | undefined {
  // Least squares of a·re² + b·im² = 1.
  let [aa, ab, bb, a1, b1] = [0, 0, 0, 0, 0];
  for (const [re, im, noise] of points) {
    const weight = 1 / Math.max(noise * Math.hypot(re, im), 1e-12) ** 2;
    aa += weight * re ** 4;
    ab += weight * re ** 2 * im ** 2;
    bb += weight * im ** 4;
    a1 += weight * re ** 2;
    b1 += weight * im ** 2;
  }
  const all = aa * bb - ab * ab;
  const [a, b] = [(a1 * bb - b1 * ab) / all, (b1 * aa - a1 * ab) / all];
  if (!(a > 0 && b > 0)) return undefined;
  for (const [re, im, noise] of points) {
    const slope = 2 * Math.hypot(a * re, b * im);
    if (Math.abs(a * re * re + b * im * im - 1) > 2 * noise * slope + 1e-6) return undefined;
  }
  const [cos, sin] = [1 / Math.sqrt(a), 1 / Math.sqrt(b)];
  return { cos, sin, error: Math.max(cos ** 3 * Math.sqrt(bb / all), sin ** 3 * Math.sqrt(aa / all)) };
}
