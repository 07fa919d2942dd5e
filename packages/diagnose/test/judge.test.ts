import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { hostTensor } from '@ropewalk/oracle/internal';
import { type FloatDtype, frequenciesOf, type RopeSpec, roundTo } from 'ropewalk';
import { randomFrom } from 'ropewalk/internal';
import { some } from '../../../test/support/size.js';
import { slackOf } from '../src/kernel/noise.js';
import { hypothesesOf, runRows } from '../src/kernel/trial.js';
import { BugSearch } from '../src/match/bug-search.js';
import { MUTANTS } from '../src/mutants/catalogue.js';
import { callsOf } from '../src/read/expected.js';
import { type Heads, readObservation } from '../src/read/observation.js';
import { type How, kernel } from './kernels.js';

const SPECS: Readonly<Record<string, RopeSpec>> = {
  'Llama 3.1': {
    headDim: 128,
    pairing: 'half',
    base: 500000,
    scaling: { kind: 'llama3', factor: 8, lowFreqFactor: 1, highFreqFactor: 4, originalContext: 8192 },
  },
  'Qwen 2.5 with YaRN': {
    headDim: 128,
    pairing: 'half',
    base: 1000000,
    scaling: { kind: 'yarn', factor: 4, originalContext: 32768 },
  },
  'phi-2': { headDim: 80, rotaryDim: 32, pairing: 'half', base: 10000 },
  'gpt-j': { headDim: 64, rotaryDim: 32, pairing: 'interleaved', base: 10000 },
};

const PLAIN: RopeSpec = { headDim: 64, pairing: 'half', base: 10000 };
const GPT_J: RopeSpec = { headDim: 64, rotaryDim: 32, pairing: 'interleaved', base: 10000 };
const LLAMA = SPECS['Llama 3.1']!;
const upTo = (end: number, step: number): number[] => Array.from({ length: 16 }, (_what, n) => Math.min(end, n * step));
const HEADS = 4;

/** Judges a kernel without known bugs: is it right, and if not, why? */
function judged(spec: RopeSpec, dtype: FloatDtype, positions: readonly number[], how: How, input = 'uniform') {
  const random = randomFrom(`${input} ${dtype} ${positions}`);
  const draw = (): number =>
    input === 'ones' ? 1 : input === 'integers' ? random.integer(9) - 4 : random.uniform(-1, 1);
  const x = Float64Array.from({ length: positions.length * HEADS * spec.headDim }, () => roundTo(dtype, draw()));
  const y = kernel(spec, x, positions, HEADS, dtype, how);
  const shape = [positions.length, HEADS, spec.headDim];
  const of = (values: Float64Array) => hostTensor(dtype, shape, (n) => values[n]!);
  return new BugSearch({ spec }, []).judge({ ...readObservation({ x: of(x), y: of(y), positions }), dtype });
}

describe('right kernels', () => {
  const places = { short: upTo(15, 1), middle: upTo(300, 20), far: upTo(131071, 8741) };
  for (const dtype of ['f32', 'f16', 'bf16'] as const) {
    for (const [place, positions] of Object.entries(places)) {
      test(`${dtype}, positions ${place}: 72 ways to compute are as expected`, () => {
        const ways: [RopeSpec, How, string][] = [];
        for (const angles of ['f64', 'f32', 'recurrence'] as const) {
          for (const sines of [0, 2 ** -21]) {
            for (const table of [undefined, dtype]) {
              for (const products of [undefined, dtype, 'fma'] as const) {
                const how = { angles, sines, table, products };
                ways.push([PLAIN, how, 'uniform'], [GPT_J, how, ways.length % 4 === 0 ? 'integers' : 'ones']);
              }
            }
          }
        }
        assert.equal(ways.length, 72);
        for (const [spec, how, input] of some(ways)) {
          const { verdict, measured } = judged(spec, dtype, positions, how, input);
          assert.ok(
            verdict === 'as expected' || verdict === 'less precise',
            `${JSON.stringify({ ...how, input })}: ${verdict} ${measured}`,
          );
        }
      });
    }
  }

  test('fast sines are named with their error, and larger ones are not accepted', () => {
    const { verdict, tier } = judged(PLAIN, 'f32', upTo(300, 20), { sines: 2 ** -21 });
    assert.deepEqual([verdict, tier], ['less precise', 'sines']);
    assert.equal(judged(PLAIN, 'f32', upTo(300, 20), { sines: 2 ** -18 }).verdict, undefined);
  });
});

describe('systematic errors under 16-bit rounding', () => {
  const towardZero = (dtype: FloatDtype, value: number): number => {
    const near = roundTo(dtype, value);
    const unit = 2 ** (Math.floor(Math.log2(Math.abs(value) || 1)) - (dtype === 'f16' ? 10 : 7));
    return Math.abs(near) > Math.abs(value) ? Math.trunc(value / unit) * unit : near;
  };
  const withBase = (base: number): How => ({ inv: frequenciesOf({ ...PLAIN, base }).invFreq });
  const withFactor = (factor: number): How => ({
    inv: frequenciesOf({ ...LLAMA, scaling: { ...LLAMA.scaling, factor } as RopeSpec['scaling'] }).invFreq,
  });
  const cases: [string, RopeSpec, FloatDtype, number[], How, RegExp][] = [
    [
      'base + 0.2 %',
      PLAIN,
      'f16',
      upTo(15, 1),
      withBase(10020),
      /^The base is 100(1|2)\d(\.\d+)? ± \d+(\.\d+)?; expected is 10000\.$/,
    ],
    ['base + 1 %', PLAIN, 'bf16', upTo(60, 4), withBase(10100), /^The base is 10[01]\d\d ± \d+; expected is 10000\.$/],
    ['magnitude 1.002', PLAIN, 'bf16', upTo(60, 4), { gain: 1.002 }, /^The magnitude is 1\.00[12]\d* ± 0\.00/],
    ['magnitude 1.004', PLAIN, 'bf16', upTo(15, 1), { gain: 1.004 }, /^The magnitude is 1\.00(39|40|41)?\d* ± 0\.00/],
    ['magnitude 1.01', PLAIN, 'bf16', upTo(60, 4), { gain: 1.01 }, /^The magnitude is 1\.01\d* ± 0\.00/],
    [
      'truncation, bf16',
      PLAIN,
      'bf16',
      upTo(60, 4),
      { store: towardZero },
      /store truncates \(mean -0\.4\d of a last place/,
    ],
    [
      'truncation, f16',
      PLAIN,
      'f16',
      upTo(15, 1),
      { store: towardZero },
      /store truncates \(mean -0\.[45]\d of a last place/,
    ],
    ['llama3 factor 32 for 8', LLAMA, 'bf16', upTo(15, 1), withFactor(32), /pairs/],
    ['llama3 factor 16 for 8', LLAMA, 'f16', upTo(15, 1), withFactor(16), /pairs/],
  ];
  for (const [name, spec, dtype, positions, how, words] of cases) {
    test(`${name} is measured`, () => {
      const { verdict, measured } = judged(spec, dtype, positions, how);
      assert.equal(verdict, 'different');
      assert.match(measured[0]!, words);
    });
  }

  test('f16 that went through bf16 is not as expected; a widened bf16 dump is', () => {
    const positions = upTo(60, 4);
    const shape = [positions.length, HEADS, PLAIN.headDim];
    const random = randomFrom('through');
    const x = Float64Array.from({ length: shape.reduce((a, b) => a * b) }, () =>
      roundTo('bf16', random.uniform(-1, 1)),
    );
    const y = kernel(PLAIN, x, positions, HEADS, 'bf16');
    const tensor = (dtype: FloatDtype, values: Float64Array) => hostTensor(dtype, shape, (n) => values[n]!);
    const verdict = (dtype: FloatDtype) =>
      new BugSearch({ spec: PLAIN }, []).judge(
        readObservation({ x: tensor('f32', x), y: tensor(dtype, y), positions }),
      );
    assert.equal(verdict('f32').verdict, 'as expected');
    assert.match(verdict('f16').measured.join(), /went through bf16/);
    // Whatever arithmetic of angles it was.
    y.set(kernel(PLAIN, x, positions, HEADS, 'bf16', { angles: 'f32' }));
    assert.match(verdict('f16').measured.join(), /went through bf16/);
  });
});

describe('slack', () => {
  const largest = (values: Float64Array): number => values.reduce((a, b) => Math.max(a, Math.abs(b)), 0);

  /** For each hypothesis, the largest slack of an element over the largest element of its row. */
  function slacks(heads: Heads, spec: RopeSpec, move: 'angles' | 'products'): Map<string, number> {
    const { rows } = heads;
    const list = hypothesesOf(callsOf({ spec }, heads), some(MUTANTS)).map((hypothesis): [string, number] => {
      const made = runRows(hypothesis.steps, heads, rows);
      const slack = slackOf(hypothesis.control, made, heads.dtype, move, () => runRows(hypothesis.steps, heads, rows));
      const ratios = rows.map((_what, n) => {
        const row = (of: Float64Array) => largest(of.subarray(n * spec.headDim, (n + 1) * spec.headDim));
        return row(made) > 0 ? row(slack) / row(made) : 0;
      });
      return [hypothesis.id, Math.max(...ratios)];
    });
    return new Map(list);
  }

  for (const [name, spec] of Object.entries(SPECS)) {
    test(`${name}: no hypothesis fits more loosely than the right kernel`, () => {
      const random = randomFrom(`slack ${name}`);
      const x = hostTensor('f32', [2, 4, 3, spec.headDim], () => random.uniform(-1, 1));
      const norm = { weight: hostTensor('f32', [spec.headDim], () => random.uniform(0.5, 2)), eps: 1e-5 };
      for (const dtype of ['f32', 'f16', 'bf16'] satisfies FloatDtype[]) {
        for (const given of [{}, { norm }]) {
          const seen = readObservation({ x, y: x, positions: [0, 1, 40, 5000], ...given });
          for (const move of ['angles', 'products'] as const) {
            const all = slacks({ ...seen, dtype }, spec, move);
            for (const [id, slack] of all) {
              // Other pairs of the same row are longer by up to 2. Two rotations have the errors of two. A result that is rounded moves by whole last places.
              const rotations = id === 'rotated-twice' ? 2 : 1;
              const places = /-in-bf16$|^output-rounded-/.test(id) ? 2 ** -7 : 0;
              assert.ok(
                slack <= 2.5 * rotations * all.get('right')! + places,
                `${dtype} ${move} ${id}: ${slack}, right ${all.get('right')}`,
              );
            }
          }
        }
      }
    });
  }
});
