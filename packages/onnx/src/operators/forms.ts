/**
 * Sums of products of channels, and arithmetic on them.
 *
 * @module
 */

/** One channel of a value that is not traced further. */
export interface Factor {
  readonly leaf: string;
  /** The flat index in the leaf's last dimensions. */
  readonly at: number;
}

export interface Term {
  readonly k: number;
  readonly factors: readonly Factor[];
}

/** The terms of each channel, in row-major order of the last dimensions. */
export type Forms = readonly (readonly Term[])[];

/** A rotation has two terms. A sign matrix has a few more on the way. */
export const MAX_TERMS = 6;

/** Thrown when a value is no such sum. */
export class NoForm extends Error {}

/** Converts a flat index to one index per dimension. */
export function spread(sizes: readonly number[], flat: number): number[] {
  const index = new Array<number>(sizes.length);
  for (let d = sizes.length - 1; d >= 0; d--) {
    index[d] = flat % sizes[d]!;
    flat = Math.floor(flat / sizes[d]!);
  }
  return index;
}

/** Converts one index per dimension to a flat index. */
export function flatten(sizes: readonly number[], index: readonly number[]): number {
  let flat = 0;
  for (const [d, size] of sizes.entries()) flat = flat * size + index[d]!;
  return flat;
}

export function scale(forms: Forms, k: number): Forms {
  return forms.map((terms) => terms.map((term) => ({ k: term.k * k, factors: term.factors })));
}

export function sum(a: Forms, b: Forms): Forms {
  return a.map((terms, n) => collect([...terms, ...b[n]!]));
}

export function product(a: Forms, b: Forms): Forms {
  return a.map((terms, n) => {
    if (terms.length * b[n]!.length > MAX_TERMS) throw new NoForm();
    return collect(terms.flatMap((x) => b[n]!.map((y) => ({ k: x.k * y.k, factors: [...x.factors, ...y.factors] }))));
  });
}

/** Joins terms with the same factors and drops those that cancel. */
export function collect(terms: readonly Term[]): readonly Term[] {
  if (terms.length < 2) return terms;
  const joined = new Map<string, Term>();
  for (const term of terms) {
    const key = term.factors
      .map(({ leaf, at }) => `${at} ${leaf}`)
      .sort()
      .join('\n');
    const known = joined.get(key);
    joined.set(key, known ? { k: known.k + term.k, factors: term.factors } : term);
  }
  return [...joined.values()].filter((term) => term.k !== 0);
}
