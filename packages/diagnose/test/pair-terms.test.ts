import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { tensorFrom } from 'ropewalk';
import { randomFrom } from 'ropewalk/internal';
import { diagnose } from '../src/diagnose.js';
import { describeDiagnosis } from '../src/say/words.js';

const [SEQ, HEADS, DIM] = [12, 2, 16];
const HALF = DIM / 2;

type Line = (x: (i: number) => number, j: number, angle: (j: number) => number) => readonly [number, number];

/** The report on a kernel whose lines for one pair are `line`; `spoil` changes y afterwards. */
function reportOn(line: Line, spoil: (y: Float64Array) => void = () => {}): string[] {
  const random = randomFrom('members');
  const x = Float64Array.from({ length: SEQ * HEADS * DIM }, () => Math.fround(random.uniform(-1, 1)));
  const y = new Float64Array(x.length);
  for (let r = 0; r < SEQ * HEADS; r++) {
    const angle = (j: number): number => Math.floor(r / HEADS) * 10000 ** (-j / HALF);
    for (let j = 0; j < HALF; j++) {
      const [y0, y1] = line((i) => x[r * DIM + i]!, j, angle);
      y[r * DIM + j] = y0;
      y[r * DIM + j + HALF] = y1;
    }
  }
  spoil(y);
  const shape = [SEQ, HEADS, DIM];
  const tensor = (values: Float64Array) => tensorFrom(Float32Array.from(values), { shape });
  const positions = Array.from({ length: SEQ }, (_what, s) => s);
  const expected = { spec: { headDim: DIM, pairing: 'half', base: 10000 } } as const;
  return describeDiagnosis(diagnose({ x: tensor(x), y: tensor(y), positions }, expected), 'model', { all: true });
}

const second: Line = (x, j, angle) => [x(j), x(j) * Math.sin(angle(j)) + x(j + HALF) * Math.cos(angle(j))];

describe('what the members of pairs are made of', () => {
  test('only the second member is rotated', () => {
    const lines = reportOn(second);
    assert.match(lines[0]!, /^DIFFERENT .*: Dimensions 0-7, the first members of the pairs, are x, not rotated\.$/);
    assert.ok(lines.includes('  Dimensions 8-15, the second members of the pairs, are as expected.'), lines.join('\n'));
  });
  test('a minus in both lines', () => {
    const lines = reportOn((x, j, angle) => {
      const [c, s] = [Math.cos(angle(j)), Math.sin(angle(j))];
      return [x(j) * c - x(j + HALF) * s, x(j) * s - x(j + HALF) * c];
    });
    assert.match(lines[0]!, /Dimensions 8-15, .* are rotated with the opposite sign of x × cos\.$/);
  });
  test('partners some dimensions away from where they are', () => {
    const says = (line: Line) => reportOn(line)[0]!;
    const by = (partner: (i: number) => number) =>
      says((x, j, angle) => {
        const [c, s] = [Math.cos(angle(j)), Math.sin(angle(j))];
        return [x(j) * c - x(partner(j)) * s, x(j + HALF) * c + x(partner(j + HALF)) * s];
      });
    assert.match(
      by((i) => i ^ 4),
      /sin term of dimension i has x\[i XOR 4\]: dimension 0 that of x\[4\] instead of x\[8\]\.$/,
    );
    assert.match(
      by((i) => (i + 1) % DIM),
      /sin term of dimension i has x\[\(i \+ 1\) mod 16\]: dimension 0 that of x\[1\] instead of x\[8\]\.$/,
    );
  });
  test('each dimension by the angle of another pair', () => {
    const lines = reportOn((x, j, angle) => {
      const [a, b] = [j, (j + 1) % HALF];
      return [
        x(j) * Math.cos(angle(a)) - x(j + HALF) * Math.sin(angle(a)),
        x(j) * Math.sin(angle(b)) + x(j + HALF) * Math.cos(angle(b)),
      ];
    });
    assert.match(
      lines[0]!,
      /: The members of a pair rotate by different angles: dimension 8 by that of pair 1 instead of 0, /,
    );
  });
  const right: Line = (x, j, angle) => [
    x(j) * Math.cos(angle(j)) - x(j + HALF) * Math.sin(angle(j)),
    x(j) * Math.sin(angle(j)) + x(j + HALF) * Math.cos(angle(j)),
  ];
  /** The dimensions of y in another order. */
  const ordered = (from: (i: number) => number) => (y: Float64Array) => {
    y.set(y.map((_, n) => y[n - (n % DIM) + from(n % DIM)]!));
  };
  test('dimensions in another order', () => {
    const line = (from: (i: number) => number): string => reportOn(right, ordered(from))[0]!;
    const holds = ': In every head, dimension i holds the expected value of dimension';
    assert.ok(line((i) => i ^ 2).endsWith(`${holds} i XOR 2.`));
    assert.ok(
      line((i) => (i < 8 ? i : i ^ 3)).endsWith(`${holds} i XOR 3, for i of 8-15; all others are as expected.`),
    );
    const order = [3, 0, 9, 12, 1, 2, 15, 4, 5, 6, 7, 8, 10, 14, 11, 13];
    assert.match(
      line((i) => order[i]!),
      /are in another order: dimension 0 that of 3, 1 that of 0, 2 that of 9, /,
    );
    // A value that is no right one is enough to claim nothing.
    const spoilt = reportOn(right, (y) => {
      ordered((i) => i ^ 2)(y);
      y[5] = 7;
    });
    assert.ok(!spoilt.some((one) => /XOR|another order/.test(one)), spoilt.join('\n'));
  });
  test('results that are cut off at limits', () => {
    const cut = (low: number, high: number) =>
      reportOn(right, (y) => y.set(y.map((value) => Math.min(high, Math.max(low, value)))))[0]!;
    assert.match(
      cut(-0.5, 0.25),
      /: y is cut off below -0\.5 and above 0\.25: \d+ elements that should lie beyond are at the limit/,
    );
    assert.match(cut(0, 1e9), /: y is cut off below 0: \d+ elements/);
  });
  test('whole numbers that are read with the scale of another head', () => {
    /** int8 with the scale of each head; `from` gives the head whose scale reads them. */
    const int8 = (from: (r: number) => number) =>
      reportOn(right, (y) => {
        const scales = Array.from({ length: SEQ * HEADS }, (_, r) => {
          return y.subarray(r * DIM, (r + 1) * DIM).reduce((most, one) => Math.max(most, Math.abs(one)), 0) / 127;
        });
        y.set(
          y.map((value, n) => Math.round(value / scales[Math.floor(n / DIM)]!) * scales[from(Math.floor(n / DIM))]!),
        );
      })[0]!;
    const says =
      /: Each head of y has at most 255 values, as int8 does, rounded with its own scale and multiplied by that of/;
    assert.match(
      int8((r) => r ^ 1),
      new RegExp(`${says.source} head \\(h \\+ 1\\) mod 2\\.$`),
    );
    assert.match(
      int8((r) => r % HEADS),
      new RegExp(`${says.source} token 0\\.$`),
    );
    assert.doesNotMatch(
      int8((r) => r),
      says,
    );
  });
  test('rows that are written at one distance and read at another', () => {
    /** A buffer of `rows` rows, in an order of the rows; what nobody wrote is 9. */
    const through = (write: number, read: number, rows = 24, rowOf = (n: number) => n) =>
      reportOn(right, (y) => {
        const made = y.slice();
        for (let start = 0; start < 24; start += rows) {
          const buffer = new Float64Array(rows * Math.max(write, read)).fill(9);
          for (let n = 0; n < rows; n++) buffer.set(made.subarray(rowOf(start + n) * DIM).subarray(0, DIM), n * write);
          for (let n = 0; n < rows; n++) y.set(buffer.subarray(n * read).subarray(0, DIM), rowOf(start + n) * DIM);
        }
      })[0]!;
    const says = (line: string, words: RegExp) => assert.match(line, words);
    says(
      through(20, 16),
      /: Rows were written 20 elements apart and read 16 apart: where both meet, y is as expected\.$/,
    );
    says(through(16, 17), /: Rows were written 16 elements apart and read 17 apart: /);
    says(through(24, 16, 8), /: Rows were written 24 elements apart and read 16 apart, anew every 8 rows: /);
    const headAfterHead = (n: number) => (n % SEQ) * HEADS + Math.floor(n / SEQ);
    says(
      through(18, 16, 12, headAfterHead),
      /: Rows of each head were written 18 .* apart and read 16 .*, anew every 12 rows: /,
    );
  });
  test('all of y is one element too far', () => {
    const lines = reportOn(right, (y) => y.copyWithin(1, 0));
    assert.match(
      lines[0]!,
      /: Dimension i of every head holds the expected value of dimension i − 1, where there is one\.$/,
    );
  });
  test('a wrong element in a row is enough to claim nothing', () => {
    const lines = reportOn(second, (y) => {
      for (let r = 0; r < SEQ * HEADS; r++) y[r * DIM + (r % HALF)]! += 0.5;
    });
    assert.ok(!lines.some((line) => /members of the pairs/.test(line)), lines.join('\n'));
  });
});
