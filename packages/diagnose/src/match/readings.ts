/**
 * Faults before, after or beside the rotation: with each of them undone, y may be a rotation that can be diagnosed. @module
 */
import { type RopeSpec, roundTo } from 'ropewalk';
import { ranges } from 'ropewalk/internal';
import { compared } from '../fit/compared.js';
import { type Identification, isClear } from '../fit/identification.js';
import { storedNoise } from '../kernel/noise.js';
import type { RightRows } from '../kernel/right-rows.js';
import { short } from '../measure/residuals.js';
import { spread } from '../measure/sample.js';
import type { Expected } from '../read/expected.js';
import { type Heads, widened } from '../read/observation.js';

/** An observation as it is without a fault. */
export interface Reading {
  /** The fault: sentences. */
  readonly words: readonly string[];
  readonly heads: Heads;
  readonly expected: Expected;
  /**
   * The proof that it needs: that y is right then; or that whole heads are explained, as its dimensions have other numbers, or
   * its values are others. Default: that something explains y.
   */
  readonly needs?: 'right' | 'whole';
}

const [TRIED_ROWS, LEAST] = [64, 1 / 2];
/** Pairs that are rotated keep their lengths, but for rounding in 16 bits. */
const NEAR = 0.02;

/**
 * Undoes faults one by one: of the norm, of the dimensions that should be copied, of the size of a head.
 *
 * @param found - what was measured of all dimensions
 */
export function* readingsOf(expected: Expected, right: RightRows, found: Identification): Generator<Reading> {
  for (const reading of [
    ...normReadings(expected, right),
    ...sizeReadings(expected, right),
    residualReading(expected, right),
  ])
    if (keepsLengths(reading, right)) yield reading;
  for (const reading of [
    addedReading(expected, right),
    ...memberReadings(expected, right, found),
    windowReading(expected, right, found),
    lostReading(expected, right),
  ])
    if (reading) yield reading;
}

function* normReadings(expected: Expected, { heads, steps }: RightRows): Generator<Reading> {
  const { norm, x, y, headDim } = heads;
  if (!norm) return;
  const weight = norm.weight.readNumbers() as Float64Array;
  const plain = (squares: (row: Float64Array, i: number) => number, mean = false): Float64Array => {
    const made = new Float64Array(x.length);
    for (let from = 0; from < x.length; from += headDim) {
      const row = widened(x.subarray(from, from + headDim)).slice();
      const middle = mean ? row.reduce((sum, v) => sum + v, 0) / headDim : 0;
      for (let i = 0; i < headDim; i++) row[i]! -= middle;
      for (let i = 0; i < headDim; i++) made[from + i] = row[i]! / Math.sqrt(squares(row, i) / headDim + norm.eps);
    }
    return made;
  };
  const total = (row: Float64Array): number => row.reduce((sum, v) => sum + v * v, 0);
  const weighted = (values: Float64Array): Float64Array => values.map((v, n) => v * weight[n % headDim]!);
  const reading = (words: string, own: Pick<Heads, 'x' | 'y'>): Reading => {
    // The norm's result is finer than x, which says nothing of y.
    return { words: [words], expected, heads: { ...heads, ...own, norm: undefined, storage: heads.dtype } };
  };
  if (weight.every((w) => w !== 0) && new Set(weight).size > 1)
    yield reading('The norm’s weight is applied after the rotation, not before it.', {
      x: plain(total),
      y: Float64Array.from(y, (v, n) => v / weight[n % headDim]!),
    });
  yield reading('The norm multiplies by 1 + weight, where its weight alone is due.', {
    x: plain(total).map((v, n) => v * (1 + weight[n % headDim]!)),
    y,
  });
  yield reading('The norm subtracts the mean of each head first, as LayerNorm does.', {
    x: weighted(plain(total, true)),
    y,
  });
  const half = headDim / 2;
  if (steps.pairs > 1)
    for (const [of, startOf] of [
      ['each half of a head alone', (i: number) => (i < half ? 0 : half)],
      ['the first half of a head alone', () => 0],
    ] as const)
      for (const [times, words] of [
        [1, 'divided by head_dim'],
        [2, 'divided by half of head_dim'],
      ] as const)
        yield reading(`The norm takes the squares of ${of}, ${words}.`, {
          x: weighted(plain((row, i) => times * total(row.subarray(startOf(i), startOf(i) + half)))),
          y,
        });
}

/** Heads that are rotated as heads of another size. */
function* sizeReadings({ spec, ...expected }: Expected, right: RightRows): Generator<Reading> {
  const heads = right.normalized();
  const { headDim } = heads;
  const isWhole = heads.rows.length * headDim === heads.x.length && (spec.rotaryDim ?? headDim) === headDim;
  if (!isWhole || spec.freqFactors || spec.axes) return;
  const sized = (size: number, words: string): Reading => {
    const { rotaryDim: _rotary, frequencyDim: _frequency, ...plain } = spec;
    const count = (heads.heads * headDim) / size;
    const rows = Array.from({ length: heads.x.length / size }, (_, r) => r);
    return {
      words: [words],
      needs: 'right',
      expected: { ...expected, spec: { ...plain, headDim: size } },
      heads: { ...heads, heads: count, headDim: size, rows },
    };
  };
  if (heads.heads % 2 === 0) yield sized(2 * headDim, `Two heads are rotated as one of ${2 * headDim} dimensions.`);
  if (headDim % 4 === 0) yield sized(headDim / 2, `Each head is rotated as two of ${headDim / 2} dimensions.`);
}

/** Without a constant of each head and dimension, perhaps in each batch, that was added after the rotation: a bias, or minus the mean. */
function addedReading(expected: Expected, right: RightRows): Reading | undefined {
  const heads = right.normalized();
  const { headDim, rows, y, seq, dtype } = heads;
  const [made, noise] = [new Float64Array(headDim), new Float64Array(headDim)];
  for (const inBatch of [false, true]) {
    const groupOf = (r: number): number =>
      (inBatch ? heads.heads * Math.floor(r / (seq * heads.heads)) : 0) + (r % heads.heads);
    const added = new Map<number, { bias: Float64Array; sum: Float64Array; slack: Float64Array; count: number }>();
    const isOne = rows.every((r) => {
      right.fill(r, made, noise);
      const group = added.get(groupOf(r)) ?? {
        bias: made.map((value, i) => y[r * headDim + i]! - value),
        ...{ sum: new Float64Array(headDim), slack: new Float64Array(headDim), count: 0 },
      };
      added.set(groupOf(r), group);
      group.count++;
      return made.every((value, i) => {
        const at = r * headDim + i;
        const slack = 4 * noise[i]! + storedNoise(dtype, 2 * y[at]!, 0);
        group.sum[i]! += value;
        group.slack[i] = Math.max(group.slack[i]!, slack);
        return Math.abs(y[at]! - value - group.bias[i]!) <= slack;
      });
    });
    const groups = [...added.values()];
    // In one row of a head anything is a constant.
    if (!isOne || groups.some(({ count }) => count < (inBatch ? 3 : 2))) continue;
    const isMean = groups.every(({ bias, sum, slack, count }) =>
      bias.every((value, i) => Math.abs(value + sum[i]! / count) <= slack[i]!),
    );
    const where = inBatch ? ' of a batch' : '';
    const words = isMean
      ? `From each head and dimension, its mean over the tokens${where} is taken away after the rotation.`
      : `A constant of each head and dimension${where} is added after the rotation, as a bias is.`;
    const own = Float64Array.from(y);
    for (const r of rows) right.fill(r, own.subarray(r * headDim, (r + 1) * headDim), noise);
    return { words: [words], needs: 'right', expected, heads: { ...heads, y: own } };
  }
  return undefined;
}

/** With the members of pairs as they should be, where they were exchanged or one has the opposite sign. */
function memberReadings(expected: Expected, right: RightRows, { outcome }: Identification): Reading[] {
  if (outcome !== 'mirrored') return [];
  const heads = right.normalized();
  const { headDim, y } = heads;
  const made = (of: (first: number, second: number) => readonly [number, number]): Float64Array => {
    const own = Float64Array.from(y);
    for (let from = 0; from < y.length; from += headDim)
      for (let j = 0; j < right.pairs; j++) {
        const [a, b] = right.membersOf(j).write;
        [own[from + a], own[from + b]] = of(y[from + a]!, y[from + b]!);
      }
    return own;
  };
  const readings: [words: string, y: Float64Array][] = [
    ['The two members of each pair are exchanged when they are written.', made((a, b) => [b, a])],
    ['The second member of each pair has the opposite sign.', made((a, b) => [a, -b])],
    ['The first member of each pair has the opposite sign.', made((a, b) => [-a, b])],
  ];
  return readings.map(([words, own]) => ({
    ...{ words: [words], needs: 'whole', expected },
    heads: { ...heads, y: own },
  }));
}

/** Without x, where it was added to what the rotation gave. */
function residualReading(expected: Expected, right: RightRows): Reading {
  const heads = right.normalized();
  const words = 'x is added after the rotation, as a residual is. Without it:';
  const y = heads.y.map((value, n) => value - heads.x[n]!);
  return { words: [words], needs: 'whole', expected, heads: { ...heads, y } };
}

/** The rotated window alone, where dimensions beside it are not copied. */
function windowReading({ spec, ...expected }: Expected, right: RightRows, found: Identification): Reading | undefined {
  const heads = right.normalized();
  const { headDim, x, y } = heads;
  const { rotaryDim = headDim, rotaryOffset = 0 } = spec;
  const { offByDim } = right.compare();
  const beside = Array.from({ length: headDim }, (_, i) => i).filter(
    (i) => i < rotaryOffset || i >= rotaryOffset + rotaryDim,
  );
  if (beside.every((i) => offByDim[i] === 0)) return undefined;
  const cut = (values: Heads['x']): Float64Array => {
    const made = new Float64Array((values.length / headDim) * rotaryDim);
    for (let r = 0; r < values.length / headDim; r++)
      made.set(values.subarray(r * headDim + rotaryOffset, r * headDim + rotaryOffset + rotaryDim), r * rotaryDim);
    return made;
  };
  const { rotaryDim: _rotary, rotaryOffset: _offset, ...plain } = spec;
  const own: RopeSpec = { ...plain, headDim: rotaryDim };
  const holds = besideWords(heads, beside);
  const rotates = holds === UNKNOWN ? turningWords(heads, beside, found) : undefined;
  return {
    words: [rotates ?? `Dimensions ${ranges(beside)}, which should be copied, ${holds}.`],
    expected: { ...expected, spec: own },
    heads: { ...heads, headDim: rotaryDim, x: cut(x), y: cut(y) },
  };
}

/** The pairs that were rotated, where others are 0, not finite or x in every row. */
function lostReading({ spec, direction }: Expected, right: RightRows): Reading | undefined {
  const heads = right.normalized();
  const { headDim, x, y, rows } = heads;
  if (spec.axes || !['half', 'interleaved'].includes(spec.pairing)) return undefined;
  const { offByDim } = right.compare();
  const lost = (is: (value: number, from: number) => boolean): number[] =>
    Array.from(offByDim.keys()).filter(
      (i) =>
        offByDim[i]! > 0 &&
        rows.every((r) => is(y[r * headDim + i]!, x[r * headDim + i]!)) &&
        rows.some((r) => x[r * headDim + i] !== 0),
    );
  const words = [
    [lost((value) => value === 0), 'are 0'],
    [lost((value) => !Number.isFinite(value)), 'are not finite'],
    [lost((value, from) => value === roundTo(heads.dtype, from)), 'are x, not rotated,'],
  ] as const;
  const { invFreq, attentionFactor } = right.steps.frequencies();
  const written = Array.from(invFreq.keys()).filter((j) =>
    right.membersOf(j).write.every((i) => words.every(([dims]) => !dims.includes(i))),
  );
  if (written.length === invFreq.length || written.length < 2) return undefined;
  const size = 2 * written.length;
  const [cutX, cutY] = (['read', 'write'] as const).map((side) => {
    const values = side === 'read' ? x : y;
    const places = [0, 1].flatMap((k) => written.map((j) => right.membersOf(j)[side][k]!));
    return Float64Array.from({ length: (values.length / headDim) * size }, (_, n) => {
      return values[Math.floor(n / size) * headDim + places[n % size]!]!;
    });
  }) as [Float64Array, Float64Array];
  const freqFactors = written.map((j) => 1 / invFreq[j]!);
  const own: RopeSpec = { headDim: size, pairing: 'half', base: 1, freqFactors, attentionFactor };
  return {
    words: words.flatMap(([dims, holds]) =>
      dims.length > 0 ? [`Dimensions ${ranges(dims)} ${holds} in every row.`] : [],
    ),
    expected: { spec: own, direction },
    heads: { ...heads, headDim: size, x: cutX, y: cutY },
    needs: 'whole',
  };
}

/** The pairs of dimensions that should be copied and rotate, in words; undefined where none is measured. */
function turningWords(heads: Heads, dims: readonly number[], found: Identification): string | undefined {
  const { pairs, positions } = found;
  if (!positions[0]?.asGiven) return undefined; // the frequencies are those of other positions
  const isBeside = (j: number): boolean => [...pairs[j]!.read, ...pairs[j]!.write].every((i) => dims.includes(i));
  const measured = [...pairs.keys()].filter((j) => isBeside(j) && isClear(pairs[j]!) && pairs[j]!.axes.length === 1);
  const turning = measured.length > 0 ? compared(found, heads).turning(measured) : [];
  if (turning.length === 0) return undefined;
  const some = turning.slice(0, 3).map((j) => `(${pairs[j]!.write.join(', ')}) by ${short(pairs[j]!.frequency)}`);
  const written = turning.flatMap((j) => pairs[j]!.write).sort((a, b) => a - b);
  return `Dimensions ${ranges(written)}, which should be copied, rotate: ${turning.length > 1 ? 'pairs' : 'pair'} ${some.join(', ')}${turning.length > 3 ? ', …' : ''} radians a position.`;
}

const UNKNOWN = 'hold values whose origin is not known';

/** The contents of dimensions that should be copied, in words. */
function besideWords({ headDim, x, y, rows, dtype }: Heads, dims: readonly number[]): string {
  const isAll = (value: (r: number, i: number) => number): boolean =>
    rows.every((r) =>
      dims.every((i) => {
        const made = value(r, i);
        return Math.abs(y[r * headDim + i]! - made) <= 2 * storedNoise(dtype, made, Math.abs(made));
      }),
    );
  const [first] = dims as [number];
  if (isAll(() => 0)) return 'are 0';
  for (let from = 0; from + dims.length <= headDim; from++)
    if (from !== first && isAll((r, i) => x[r * headDim + from + i - first]!))
      return `hold x[${from}-${from + dims.length - 1}]`;
  const [row] = rows as [number];
  const largest = dims.reduce((a, b) => (Math.abs(x[row * headDim + b]!) > Math.abs(x[row * headDim + a]!) ? b : a));
  const factor = y[row * headDim + largest]! / x[row * headDim + largest]!;
  if (isAll((r, i) => factor * x[r * headDim + i]!)) return `are x × ${short(factor)}`;
  return UNKNOWN;
}

/** Whether the pairs of most rows have the lengths that those of x have in a reading, and they have not as it was. */
function keepsLengths({ heads, expected }: Reading, right: RightRows): boolean {
  const { spec } = expected;
  const { rotaryDim = heads.headDim, rotaryOffset = 0, pairing } = spec;
  const half = rotaryDim / 2;
  if (!['half', 'interleaved'].includes(pairing) || right.heads.numAxes > 1) return false;
  const rows = spread(heads.rows, TRIED_ROWS);
  const kept = rows.filter((r) => {
    let [off, all] = [0, 0];
    for (let j = 0; j < half; j++) {
      const [a, b] = pairing === 'half' ? [j, j + half] : [2 * j, 2 * j + 1];
      const [from, to] = [r * heads.headDim + rotaryOffset + a, r * heads.headDim + rotaryOffset + b];
      const long = Math.hypot(heads.x[from]!, heads.x[to]!);
      off += Math.abs(Math.hypot(heads.y[from]!, heads.y[to]!) - long);
      all += long;
    }
    return off <= NEAR * all;
  });
  return kept.length >= LEAST * rows.length;
}
