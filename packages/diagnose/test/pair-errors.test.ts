import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { tensorFrom } from 'ropewalk';
import { randomFrom } from 'ropewalk/internal';
import { diagnose } from '../src/diagnose.js';
import { describeDiagnosis } from '../src/say/words.js';

const [SEQ, DIM] = [96, 32];
const HALF = DIM / 2;

type Table = (position: number, frequency: number) => readonly [cos: number, sin: number];

/** The sentence of the first line and those under "Different" of a kernel that takes cos and sin from `table`, rounds x by `narrow`, and counts positions from `start`. */
function differencesOf(table: Table, narrow: (value: number) => number = Number, start = 0): string[] {
  const random = randomFrom('pair errors');
  const x = Float64Array.from({ length: SEQ * DIM }, () => Math.fround(random.uniform(-1, 1)));
  const y = new Float64Array(x.length);
  for (let s = 0; s < SEQ; s++) {
    for (let j = 0; j < HALF; j++) {
      const [c, n] = table(start + s, 10000 ** (-j / HALF));
      const [x0, x1] = [narrow(x[s * DIM + j]!), narrow(x[s * DIM + j + HALF]!)];
      y[s * DIM + j] = x0 * c - x1 * n;
      y[s * DIM + j + HALF] = x0 * n + x1 * c;
    }
  }
  const tensor = (values: Float64Array) => tensorFrom(Float32Array.from(values), { shape: [SEQ, 1, DIM] });
  const positions = Array.from({ length: SEQ }, (_what, s) => start + s);
  const expected = { spec: { headDim: DIM, pairing: 'half', base: 10000 } } as const;
  const lines = describeDiagnosis(diagnose({ x: tensor(x), y: tensor(y), positions }, expected), 'model', {
    all: true,
  });
  const first = lines[0]!.replace(/^DIFFERENT .*?: /, '');
  const from = lines.indexOf('Different');
  const rest = from < 0 ? [] : lines.slice(from + 1);
  return [first, ...rest.slice(0, [...rest, ''].indexOf('')).map((line) => line.trim())];
}

const at = (angle: number): readonly [number, number] => [Math.cos(angle), Math.sin(angle)];

describe('pairs that rotate with errors', () => {
  test('every third pair holds x, at positions that show no whole turns', () => {
    const indexOf = (f: number): number => Math.round((-HALF * Math.log(f)) / Math.log(10000));
    const lines = differencesOf((p, f) => at(indexOf(f) % 3 === 1 ? 0 : p * f), Number, 50_000);
    assert.equal(
      lines[0],
      'Pairs 1, 4, 7, 10, 13 do not rotate: y is x in dimensions 1, 4, 7, 10, 13, 17, 20, 23, 26, 29.',
    );
  });
  test('a table of few sines', () => {
    const step = (2 * Math.PI) / 300;
    const lines = differencesOf((p, f) => at(Math.round((p * f) / step) * step));
    assert.match(
      lines[0]!,
      /^The lengths of pairs are right; the angles of pairs 0-\d+ are off by up to 0\.01\d* radians/,
    );
  });
  test('sines in fixed point', () => {
    const lines = differencesOf((p, f) => at(p * f).map((v) => Math.round(v * 4095) / 4095) as [number, number]);
    assert.match(lines[0]!, /^The results of pairs .* are off by up to 0\.00017 of their length/);
    assert.equal(lines[1], 'cos and sin are multiples of 1/4095.');
  });
  test('factors of a product with 10 bits', () => {
    const narrow = (value: number): number => {
      const unit = 2 ** (Math.floor(Math.log2(Math.abs(value) || 1)) - 10);
      return Math.round(value / unit) * unit;
    };
    const lines = differencesOf((p, f) => {
      return at(Math.fround(p * Math.fround(f))).map(narrow) as [number, number];
    }, narrow);
    assert.match(
      lines[1]!,
      /^With x, cos and sin rounded to 10 bits .*, (9\d|100) % of y is given to its last bits\.$/,
    );
  });
  test('large errors that cancel', () => {
    const random = randomFrom('many roundings');
    const lines = differencesOf((p, f) => at(p * f).map((v) => v + random.uniform(-0.2, 0.2)) as [number, number]);
    assert.match(
      lines[0]!,
      /^y is near the expected values: errors are 0\.1[67] of them .* cancel to 0\.0\d+, as those of many roundings do, or of few bits\.$/,
    );
    // Errors that turn a pair do not cancel, though those of all pairs nearly do.
    const turned = differencesOf((p, f) => at(p * f + (f === 1 ? 0.8 : random.uniform(-0.2, 0.2))));
    assert.ok(!turned.some((line) => line.startsWith('y is near')), turned.join('\n'));
    const late = differencesOf((p, f) => at((p + 0.1) * f * (1 + random.uniform(-0.05, 0.05))));
    assert.ok(!late.some((line) => line.startsWith('y is near')), late.join('\n'));
  });
  test('another number for 2π', () => {
    const reduced = (angle: number): number => angle - 6.28318 * Math.floor(angle / 6.28318);
    const random = randomFrom('turns');
    const lines = differencesOf((p, f) => at(reduced(p * f)), Number, 200_000);
    assert.match(lines[0]!, /^Angles of many turns are 1\.0000008 ± .*, as where 6\.28318 is taken for 2π\.$/);
    // With more noise than f32 has, no one factor of all frequencies is sure.
    const rough = differencesOf((p, f) => at(reduced(p * f) + random.uniform(-0.004, 0.004)), Number, 200_000);
    assert.match(rough[0]!, /^The lengths of pairs are right; the angles of pairs 0-\d+ are off by up to /);
    assert.match(rough[1]!, /^The angles are off by 8\.\de-7 of themselves, as where 6\.28318 is taken for 2π\.$/);
  });
  test('noise is no rotation with errors', () => {
    const random = randomFrom('noise');
    const lines = differencesOf(() => [random.uniform(-1, 1), random.uniform(-1, 1)]);
    assert.ok(!lines.some((line) => /of pairs/.test(line)), lines.join('\n'));
  });
});
