import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { frequenciesOf, type RopeSpec, tensorFrom } from 'ropewalk';
import { randomFrom } from 'ropewalk/internal';
import { diagnose } from '../src/diagnose.js';
import type { Diagnosis } from '../src/say/diagnosis.js';
import { diagnosisToJson } from '../src/say/json.js';
import { describeDiagnosis } from '../src/say/words.js';

const [BATCH, SEQ, HEADS, DIM] = [2, 12, 4, 32];
const HALF = DIM / 2;
const SPEC: RopeSpec = { headDim: DIM, pairing: 'half', base: 10000 };
const AXES: RopeSpec = { ...SPEC, axes: { rule: 'sections', sections: [6, 5, 5] } };
const { invFreq } = frequenciesOf(SPEC);

interface At {
  readonly batch: number;
  readonly seq: number;
  readonly head: number;
}

/** The x of a row, the x of its sin terms, and the turn of pair j in radians; or its values. */
interface Row {
  readonly x?: At;
  readonly sines?: At;
  readonly turn?: (j: number) => number;
  /** A factor of its sine. */
  readonly sine?: number;
  readonly values?: (i: number) => number;
}

type Positions = (axis: number, at: At) => number;

/** The report on a kernel, in one line. */
function reportOn(spec: RopeSpec, positions: Positions, row: (at: At) => Row): string {
  const found = diagnosed(spec, positions, row);
  return describeDiagnosis(found, 'model', { all: true }).join(' ').replace(/\s+/g, ' ');
}

function diagnosed(spec: RopeSpec, positions: Positions, row: (at: At) => Row): Diagnosis {
  const random = randomFrom('parts');
  const x = Float32Array.from({ length: BATCH * SEQ * HEADS * DIM }, () => random.uniform(-2, 2));
  const y = new Float32Array(x.length);
  const from = ({ batch, seq, head }: At): number => ((batch * SEQ + seq) * HEADS + head) * DIM;
  for (let batch = 0; batch < BATCH; batch++)
    for (let seq = 0; seq < SEQ; seq++)
      for (let head = 0; head < HEADS; head++) {
        const at = { batch, seq, head };
        const { x: own = at, sines = own, turn = () => 0, sine = 1, values } = row(at);
        for (let j = 0; j < HALF; j++) {
          const [c, s] = [Math.cos(turn(j)), sine * Math.sin(turn(j))];
          const [i, k] = [j, j + HALF];
          y[from(at) + i] = values?.(i) ?? x[from(own) + i]! * c - x[from(sines) + k]! * s;
          y[from(at) + k] = values?.(k) ?? x[from(own) + k]! * c + x[from(sines) + i]! * s;
        }
      }
  const axes = spec.axes ? 3 : 1;
  const given = Array.from({ length: axes * BATCH * SEQ }, (_, n) =>
    positions(Math.floor(n / (BATCH * SEQ)), { batch: Math.floor(n / SEQ) % BATCH, seq: n % SEQ, head: 0 }),
  );
  const tensor = (data: Float32Array) => tensorFrom(data, { shape: [BATCH, SEQ, HEADS, DIM] });
  return diagnose(
    {
      x: tensor(x),
      y: tensor(y),
      positions: tensorFrom(BigInt64Array.from(given, BigInt), {
        shape: axes > 1 ? [axes, BATCH, SEQ] : [BATCH, SEQ],
      }),
      numAxes: axes,
    },
    { spec },
  );
}

const near = (_axis: number, { batch, seq }: At): number => 40 * batch + seq;

test('beside a known bug of some heads, the short report says what the others hold', () => {
  const found = diagnosed(SPEC, near, ({ batch, seq, head }) =>
    head < 2 ? { turn: (j) => (40 * batch + seq + 1) * invFreq[j]! } : { values: () => 0 },
  );
  const lines = describeDiagnosis(found, 'model');
  assert.match(lines[0]!, /^KNOWN BUG: position-plus-one, in heads 0-1 of every token$/);
  assert.ok(lines.includes('  Heads 2-3 of every token: zeros.'), lines.join('\n'));
});

test('of a y that is right in part, nothing is said of how far the positions of that part reach', () => {
  const found = diagnosed(
    SPEC,
    (_axis, { batch, seq }) => (seq < 9 ? 0 : 1000) + 40 * batch + seq,
    ({ batch, seq }) => ({ turn: (j) => (40 * batch + seq + (seq < 9 ? 0 : 999)) * invFreq[j]! }),
  );
  const lines = describeDiagnosis(found, 'model', { all: true });
  assert.match(lines[0]!, /^PARTLY RIGHT/);
  assert.ok(!lines.some((line) => line.includes('positions reach')), lines.join('\n'));
});
const plain =
  (at: At, by = 0) =>
  (j: number): number =>
    (near(0, at) + by) * invFreq[j]!;

describe('rows that are computed each in another way', () => {
  test('q heads by another base, k heads by another position', () => {
    const says = reportOn(SPEC, near, (at) =>
      at.head < 3 ? { turn: (j) => near(0, at) * 1e6 ** (-j / HALF) } : { turn: plain(at, 1) },
    );
    assert.match(says, /Heads 0-2 of every token: what the known bug base-of-other-layers gives\./);
    assert.match(says, /Head 3 of every token: It rotates by the position \+ 1(, or by [^;]*)?; /);
  });
  test('right heads beside others', () => {
    const says = reportOn(SPEC, near, (at) => (at.head < 2 ? { turn: plain(at) } : { turn: (j) => -plain(at)(j) / 3 }));
    assert.match(says, /[Hh]eads 2-3 of every token/);
    assert.match(says, /[Hh]eads 0-1 of every token/);
  });
  test('sin terms with the x of another head', () => {
    const says = reportOn(SPEC, near, (at) => ({
      sines: { ...at, head: Math.max(0, at.head - 1) },
      turn: plain(at),
    }));
    assert.match(
      says,
      /heads 1-3 of every token of batch 1: x × cos as expected, and a sin term with the x of the head before it;/,
    );
  });
  test('one value for every token of a head', () => {
    const says = reportOn(SPEC, near, (at) =>
      at.head === 1 ? { values: (i) => at.batch + i / 7 + 1 } : { turn: plain(at) },
    );
    assert.match(says, /head 1 of every token: the same values in every token of a head; all else is right/);
  });
  test('the places of wrong rows are numbers in JSON', () => {
    const found = diagnosed(SPEC, near, (at) =>
      at.head === 1 && at.seq > 9 ? { values: (i) => (i < 3 ? 0 : Number.NaN) } : { turn: plain(at) },
    );
    const { rowSummary } = diagnosisToJson(found) as { rowSummary: { wrong: { at: unknown }[] } };
    assert.deepEqual(
      rowSummary.wrong.map(({ at }) => at),
      [{ batches: [0, 1], tokens: [10, 11], heads: [1], dims: Array.from({ length: DIM }, (_, i) => i) }],
    );
  });
  test('a shift of all axes, and of one', () => {
    const given = (axis: number, { batch, seq }: At): number => 20 * batch + (axis === 0 ? 3 : seq) + axis;
    const turned = (at: At, by: (axis: number) => number) => (j: number) => {
      const axis = j < 6 ? 0 : j < 11 ? 1 : 2;
      return (given(axis, at) + by(axis)) * invFreq[j]!;
    };
    const inBatch = (by: (axis: number) => number) =>
      reportOn(AXES, given, (at) => ({ turn: turned(at, at.batch === 1 ? by : () => 0) }));
    assert.match(
      inBatch(() => 436),
      /batch 1: this row of x rotated by its position \+ 436 on every axis; all else is right/,
    );
    assert.match(
      inBatch((axis) => (axis === 0 ? 15 : 0)),
      /batch 1: this row of x rotated by its position \+ 15 on axis t; all else is right/,
    );
  });
  test('a factor of sin alone, with several axes', () => {
    const given = (axis: number, { batch, seq }: At): number => 20 * batch + [0, seq, seq * seq][axis]! + axis;
    const says = reportOn(AXES, given, (at) => ({
      turn: (j) => given(j < 6 ? 0 : j < 11 ? 1 : 2, at) * invFreq[j]!,
      sine: -0.5,
    }));
    assert.match(says, /It rotates backward; .* cos is multiplied by 1 and sin by 0\.5; expected is 1 for both\./);
  });
  test('positions times a number, and shifted', () => {
    assert.match(
      reportOn(SPEC, near, (at) => ({ turn: (j) => (3 * near(0, at) + 5) * invFreq[j]! })),
      /It rotates by 3 times the position \+ 5; expected is the position as given\./,
    );
  });
  test('positions shifted in each batch, and added over batches', () => {
    const shift = [3, 40];
    assert.match(
      reportOn(SPEC, near, (at) => ({ turn: (j) => (near(0, at) + shift[at.batch]!) * invFreq[j]! })),
      /It rotates by the position \+ 3 in batch 0, \+ 40 in batch 1; expected is the position as given\./,
    );
    const all = (seq: number): number => near(0, { batch: 0, seq, head: 0 }) + near(0, { batch: 1, seq, head: 0 });
    assert.match(
      reportOn(SPEC, near, (at) => ({ turn: (j) => all(at.seq) * invFreq[j]! })),
      /It rotates by the sum of the positions of the same token in all batches; /,
    );
    // With the same positions in both batches the sum is twice the position.
    const same = (_axis: number, { seq }: At): number => 3 + seq;
    const twice = reportOn(SPEC, same, (at) => ({ turn: (j) => 2 * same(0, at) * invFreq[j]! }));
    assert.doesNotMatch(twice, /in all batches|in batch 0/);
    assert.match(twice, /2 times/);
  });
  test('dimensions by the positions of another axis', () => {
    const given = (axis: number, { batch, seq }: At): number => 20 * batch + [0, seq, seq * seq][axis]! + axis;
    const says = reportOn(AXES, given, (at) => ({
      turn: (j) => given(j < 6 ? 0 : j < 11 ? 2 : 1, at) * invFreq[j]!,
    }));
    assert.match(says, /height-and-width-swapped|by w instead of h/);
  });
});
