/** Finds how a number of a call follows from the block, the loops' counters and the values that were read. @module */

/** A quantity that a number may follow from, in the order in which a formula prefers them. */
export interface Feature {
  /** In C++. */
  readonly text: string;
  readonly values: readonly number[];
}

/** One term of a formula: `factor` times `text`, or `factor` alone. */
export interface Term {
  readonly text: string;
  readonly factor: number;
}

/** A remainder that is smaller, relative to its row, is none. */
const NEAR = 1e-6;

/**
 * Finds whole factors of features, so that their sum is each of the numbers exactly.
 *
 * @param numbers - the number, each time that the call ran
 * @param features - as many values each; a feature that says nothing new gets no factor
 * @returns the terms with a factor that is not 0, or undefined when there are none such
 */
export function fit(numbers: readonly number[], features: readonly Feature[]): readonly Term[] | undefined {
  const one: Feature = { text: '', values: numbers.map(() => 1) };
  const used = [one, ...features.filter(({ values }) => values.every(Number.isFinite))];
  const width = used.length;
  /** The rows of the elimination, by the column in which each has its 1. */
  const rows = new Map<number, Float64Array>();
  for (let time = 0; time < numbers.length && rows.size < width; time++) {
    const row = Float64Array.from({ length: width + 1 }, (_, n) => used[n]?.values[time] ?? numbers[time]!);
    const scale = Math.max(1, ...row.map(Math.abs));
    for (const [column, known] of rows) {
      const factor = row[column]!;
      for (let n = column; n <= width; n++) row[n]! -= factor * known[n]!;
      row[column] = 0;
    }
    const pivot = row.findIndex((value, n) => n < width && Math.abs(value) > NEAR * scale);
    if (pivot < 0) continue;
    const by = row[pivot]!;
    for (let n = 0; n <= width; n++) row[n]! /= by;
    for (const [, known] of rows) {
      const factor = known[pivot]!;
      for (let n = 0; n <= width; n++) known[n]! -= factor * row[n]!;
    }
    rows.set(pivot, row);
  }
  const terms = used.map(({ text }, n) => ({ text, factor: Math.round(rows.get(n)?.[width] ?? 0) }));
  const right = numbers.every(
    (number, time) => used.reduce((sum, { values }, n) => sum + terms[n]!.factor * values[time]!, 0) === number,
  );
  return right ? terms.filter(({ factor }) => factor !== 0) : undefined;
}
