/** Modules that compute in 16 bits throughout: which steps they round is found, and short positions pass. @module */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type FloatDtype, frequenciesOf, roundTo } from 'ropewalk';
import { randomFrom } from 'ropewalk/internal';
import { f64Tensor } from '../../../test/support/tensors.js';
import { diagnose } from '../src/index.js';

const SPEC = { headDim: 64, pairing: 'half', base: 10000 } as const;
type Step = 'position' | 'frequencies' | 'angle' | 'table' | 'products';

/** Diagnoses a kernel that rounds some of its steps. */
function ofModule(dtype: FloatDtype, steps: readonly Step[], positions: readonly number[], yDtype = dtype) {
  const [heads, { headDim }] = [2, SPEC];
  const random = randomFrom(`module ${dtype} ${steps.join()}`);
  const shape = [1, positions.length, heads, headDim];
  const x = Float64Array.from({ length: positions.length * heads * headDim }, () =>
    roundTo(yDtype, random.uniform(-2, 2)),
  );
  const y = new Float64Array(x.length);
  const { invFreq } = frequenciesOf(SPEC);
  const at = (step: Step) => (value: number) => (steps.includes(step) ? roundTo(dtype, value) : Math.fround(value));
  const [ofPosition, ofFrequency, ofAngle, ofTable, ofProduct] = (
    ['position', 'frequencies', 'angle', 'table', 'products'] as const
  ).map(at) as ((value: number) => number)[];
  for (let n = 0; n < y.length; n += headDim) {
    const p = ofPosition!(positions[Math.floor(n / headDim / heads)]!);
    for (let j = 0; j < headDim / 2; j++) {
      const angle = ofAngle!(p * ofFrequency!(invFreq[j]!));
      const [cos, sin] = [ofTable!(Math.cos(angle)), ofTable!(Math.sin(angle))];
      const [x0, x1] = [x[n + j]!, x[n + j + headDim / 2]!];
      y[n + j] = roundTo(yDtype, ofProduct!(ofProduct!(x0 * cos) - ofProduct!(x1 * sin)));
      y[n + j + headDim / 2] = roundTo(yDtype, ofProduct!(ofProduct!(x1 * cos) + ofProduct!(x0 * sin)));
    }
  }
  const observation = { x: f64Tensor(x, shape, yDtype), y: f64Tensor(y, shape, yDtype), positions: [...positions] };
  const { verdict, named } = diagnose(observation, { spec: SPEC });
  return [verdict, ...named.map(({ id }) => id)].join(' ');
}

const PROMPT = Array.from({ length: 24 }, (_, s) => s);
const LONG = [0, 1, 2, 40, 255, 257, 511, 1000, 1003, 2049, 3001, 4093];
const ALL = ['position', 'frequencies', 'angle', 'table', 'products'] as const;

/** Diagnoses a kernel that stores what its norm gives in 16 bits: not at all, behind its weight, or before and behind it. */
function ofNorm(dtype: FloatDtype, stores: 0 | 1 | 2, off = 0) {
  const [heads, { headDim }] = [4, SPEC];
  const random = randomFrom(`norm ${dtype} ${stores}`);
  const positions = Array.from({ length: 40 }, (_, s) => 60 + s);
  const shape = [1, positions.length, heads, headDim];
  const x = Float64Array.from({ length: positions.length * heads * headDim }, () =>
    roundTo(dtype, random.uniform(-3, 3)),
  );
  const weight = Float64Array.from({ length: headDim }, () => roundTo(dtype, random.uniform(0.6, 1.6)));
  const y = new Float64Array(x.length);
  const { invFreq } = frequenciesOf(SPEC);
  const stored = (value: number, isSo: boolean): number => (isSo ? roundTo(dtype, value) : value);
  for (let n = 0; n < y.length; n += headDim) {
    const row = x.subarray(n, n + headDim);
    const rms = Math.sqrt(row.reduce((sum, v) => sum + v * v, 0) / headDim + 1e-6);
    const normed = row.map((v, i) => stored(stored(v / rms, stores === 2) * weight[i]!, stores > 0));
    for (let j = 0; j < headDim / 2; j++) {
      const angle = (positions[Math.floor(n / headDim / heads)]! + off) * invFreq[j]!;
      const [x0, x1] = [normed[j]!, normed[j + headDim / 2]!];
      y[n + j] = roundTo(dtype, x0 * Math.cos(angle) - x1 * Math.sin(angle));
      y[n + j + headDim / 2] = roundTo(dtype, x1 * Math.cos(angle) + x0 * Math.sin(angle));
    }
  }
  const norm = { weight: f64Tensor(weight, [headDim], 'f64'), eps: 1e-6 };
  const observation = { x: f64Tensor(x, shape, dtype), y: f64Tensor(y, shape, dtype), positions, norm };
  const { verdict, named, recipes } = diagnose(observation, { spec: SPEC });
  return [verdict, ...recipes, ...named.map(({ id }) => id)].join(' ');
}

describe('modules in 16 bits', () => {
  for (const dtype of ['bf16', 'f16'] as const) {
    test(`all in ${dtype}, positions to 4093`, () => {
      const all = ['position', 'frequencies', 'angle'].map((step) => `${step}-in-${dtype}`).join('+');
      assert.equal(ofModule(dtype, ALL, LONG), `known bug ${all}`);
    });
    test(`all but the products in ${dtype}, positions to 4093`, () => {
      const all = ['position', 'frequencies', 'angle'].map((step) => `${step}-in-${dtype}`).join('+');
      assert.equal(ofModule(dtype, ALL.slice(0, 4), LONG), `known bug ${all}`);
    });
    test(`frequencies in f32, all else in ${dtype}, positions to 4093`, () => {
      const steps = ALL.filter((step) => step !== 'frequencies');
      assert.equal(ofModule(dtype, steps, LONG), `known bug position-in-${dtype}+angle-in-${dtype}`);
    });
    test(`only positions and cos and sin in ${dtype}, positions to 4093`, () => {
      assert.equal(ofModule(dtype, ['position', 'table', 'products'], LONG), `known bug position-in-${dtype}`);
    });
    test(`all in ${dtype}, a prompt of 24 tokens`, () => {
      const found = ofModule(dtype, ALL, PROMPT);
      assert.match(found, new RegExp(`frequencies-in-${dtype}\\+angle-in-${dtype}$`));
    });
    test(`cos, sin and products in ${dtype}`, () => {
      assert.equal(ofModule(dtype, ['table', 'products'], LONG), 'less precise');
    });
  }
  test('all in bf16 for heads in f32', () => {
    assert.equal(
      ofModule('bf16', ALL.slice(0, 4), LONG, 'f32'),
      'known bug position-in-bf16+frequencies-in-bf16+angle-in-bf16+table-in-bf16',
    );
  });
});

describe('a norm whose result is stored in 16 bits', () => {
  for (const dtype of ['bf16', 'f16'] as const) {
    test(dtype, () => {
      assert.equal(ofNorm(dtype, 0), 'as expected');
      assert.equal(ofNorm(dtype, 1), 'less precise norm');
      assert.equal(ofNorm(dtype, 2), 'less precise norm-twice');
      for (const stores of [0, 1, 2] as const) assert.equal(ofNorm(dtype, stores, 1), 'known bug position-plus-one');
    });
  }
});
