/**
 * The complementary error function: up to 1 by the series of erf, whose terms all have one sign; beyond 1 by the
 * continued fraction of erfc. It is exact to a few units in the last place of float64, and beyond 1 to some more,
 * because e^(−x²) multiplies the error of x².
 *
 * @see NIST DLMF 7.6.2 and 7.9.1
 * @module
 */
export function erfc(x: number): number {
  if (x < 0) return 2 - erfc(-x);
  if (x < 1) {
    let term = (2 / Math.sqrt(Math.PI)) * x * Math.exp(-x * x);
    let sum = 0;
    for (let n = 0; sum + term !== sum; n++) {
      sum += term;
      term *= (2 * x * x) / (2 * n + 3);
    }
    return 1 - sum;
  }
  let fraction = x;
  for (let n = 200; n > 0; n--) fraction = x + n / 2 / fraction;
  return Math.exp(-x * x) / Math.sqrt(Math.PI) / fraction;
}
