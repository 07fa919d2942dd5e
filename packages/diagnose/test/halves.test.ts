import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { hostTensor } from '@ropewalk/oracle/internal';
import { type FloatDtype, frequenciesOf, type RopeSpec, roundTo } from 'ropewalk';
import { randomFrom, yarnRampEdges } from 'ropewalk/internal';
import { diagnose } from '../src/diagnose.js';
import { describeDiagnosis } from '../src/say/words.js';

const SPECS = {
  plain: { headDim: 64, pairing: 'half', base: 10000 },
  wide: { headDim: 192, pairing: 'half', base: 10000 },
  'gpt-j': { headDim: 64, rotaryDim: 32, pairing: 'interleaved', base: 10000 },
  yarn: { headDim: 64, pairing: 'half', base: 1e6, scaling: { kind: 'yarn', factor: 16, originalContext: 4096 } },
  factors: {
    headDim: 64,
    pairing: 'half',
    base: 500000,
    freqFactors: Float64Array.from({ length: 32 }, (_, j) => 1 + Math.max(0, j - 9) / 3),
  },
} satisfies Record<string, RopeSpec>;
const POSITIONS = [0, 1, 2, 5, 17, 40, 511, 8191];
const HEADS = 2;

/** cos and sin of pair j at the position of a token. */
type Half = (token: number, j: number) => readonly [cos: number, sin: number];

/** The first line on a kernel that multiplies by such cos and sin. */
function saysOf(spec: RopeSpec, dtype: FloatDtype, half: Half): string {
  const { headDim, rotaryDim = headDim, pairing } = spec;
  const random = randomFrom(`${dtype} ${headDim} ${pairing}`);
  const x = Float64Array.from({ length: POSITIONS.length * HEADS * headDim }, () =>
    roundTo(dtype, random.uniform(-2, 2)),
  );
  const y = x.slice();
  for (let r = 0; r < POSITIONS.length * HEADS; r++) {
    for (let j = 0; j < rotaryDim / 2; j++) {
      const [cos, sin] = half(Math.floor(r / HEADS), j);
      const i = r * headDim + (pairing === 'half' ? j : 2 * j);
      const k = i + (pairing === 'half' ? rotaryDim / 2 : 1);
      y[i] = x[i]! * cos - x[k]! * sin;
      y[k] = x[i]! * sin + x[k]! * cos;
    }
  }
  const of = (values: Float64Array) => hostTensor(dtype, [POSITIONS.length, HEADS, headDim], (n) => values[n]!);
  const found = diagnose({ x: of(x), y: of(y), positions: POSITIONS }, { spec });
  return describeDiagnosis(found, 'model')
    .join(' ')
    .replace(/\s+/g, ' ')
    .replace(/ Different .*/, '');
}

/** cos and sin of a right kernel, at any position and of any pair. */
function rightOf(spec: RopeSpec) {
  const { invFreq, attentionFactor } = frequenciesOf(spec);
  const at = (wave: (angle: number) => number) => (position: number, j: number) =>
    j < invFreq.length ? wave(position * invFreq[j]!) * attentionFactor : 0;
  return { cos: at(Math.cos), sin: at(Math.sin), pairs: invFreq.length, attentionFactor };
}
type Right = ReturnType<typeof rightOf>;

const FAULTS: readonly [name: string, half: (of: Right) => Half, says: RegExp][] = [
  [
    'sine 0',
    ({ cos }) =>
      (t, j) => [cos(POSITIONS[t]!, j), 0],
    /cosine of every pair is right; the sine of every pair is 0\./,
  ],
  [
    'sine 0 in the second half of the pairs',
    ({ cos, sin, pairs }) =>
      (t, j) => [cos(POSITIONS[t]!, j), 2 * j < pairs ? sin(POSITIONS[t]!, j) : 0],
    /cosine of every pair is right; the sine of pairs \d+-\d+ is 0\./,
  ],
  [
    'sine of the token before',
    ({ cos, sin }) =>
      (t, j) => [cos(POSITIONS[t]!, j), sin(POSITIONS[Math.max(0, t - 1)]!, j)],
    /the sine of (every pair|pairs 0-\d+) is that of the token before\./,
  ],
  [
    'sine of the next position',
    ({ cos, sin }) =>
      (t, j) => [cos(POSITIONS[t]!, j), sin(POSITIONS[t]! + 1, j)],
    /the sine of (every pair|pairs 0-\d+) is that of position \+ 1\./,
  ],
  [
    'sine at one position',
    ({ cos, sin }) =>
      (t, j) => [cos(POSITIONS[t]!, j), sin(511, j)],
    /the sine of (every pair|pairs 0-\d+) is that of position 511 in every token\./,
  ],
  [
    'sine of pairs further on, masked past the end',
    ({ cos, sin, pairs }) =>
      (t, j) => [cos(POSITIONS[t]!, j), sin(POSITIONS[t]!, j + pairs / 4)],
    /the sine of (every pair|pairs 0-\d+) is that of pair j \+ \d+, and 0 where there is no such pair\./,
  ],
  [
    'cosine of the pairs in reverse',
    ({ cos, sin, pairs }) =>
      (t, j) => [cos(POSITIONS[t]!, pairs - 1 - j), sin(POSITIONS[t]!, j)],
    /sine of every pair is right; the cosine of .* is that of the pairs in reverse order\./,
  ],
  [
    'cosine left out',
    ({ sin, attentionFactor }) =>
      (t, j) => [attentionFactor, sin(POSITIONS[t]!, j)],
    /sine of every pair is right; the cosine of (every pair|pairs 0-\d+) is (1|the magnitude alone)\./,
  ],
];

describe('cos and sin apart', () => {
  for (const [n, [name, half, says]] of FAULTS.entries()) {
    const key = (['plain', 'gpt-j', 'yarn'] as const)[n % 3]!;
    const dtype = n % 2 === 0 ? 'f32' : 'bf16';
    test(`${name}, ${key}, ${dtype}`, () => assert.match(saysOf(SPECS[key], dtype, half(rightOf(SPECS[key]))), says));
  }

  for (const key of ['plain', 'gpt-j', 'yarn'] as const) {
    test(`a table in another layout, ${key}`, () => {
      const { cos, sin, pairs } = rightOf(SPECS[key]);
      // Lies as [token, pair, cos or sin]; is read as [token, cos or sin, pair].
      const [rows, planes] = [[], []] as number[][][];
      for (const p of POSITIONS) {
        const all = Array.from({ length: pairs }, (_, j) => [cos(p, j), sin(p, j)]);
        rows!.push(all.flat());
        planes!.push([...all.map(([c]) => c!), ...all.map(([, s]) => s!)]);
      }
      assert.match(
        saysOf(SPECS[key], 'bf16', (t, j) => [rows![t]![j]!, rows![t]![pairs + j]!]),
        /table of cos and sin is read as \[token, cos or sin, pair\], and it lies as \[token, pair, cos or sin\]\./,
      );
      assert.match(
        saysOf(SPECS[key], 'f32', (t, j) => [planes![t]![2 * j]!, planes![t]![2 * j + 1]!]),
        /table of cos and sin is read as \[token, pair, cos or sin\], and it lies as \[token, cos or sin, pair\]\./,
      );
    });
  }

  for (const [lie, read] of [
    [33, 32],
    [32, 40],
  ] as const)
    test(`rows of a table that lie ${lie} apart and are read ${read} apart`, () => {
      const { cos, sin } = rightOf(SPECS.plain);
      const half = (token: number, j: number) => {
        const place = POSITIONS[token]! * read + j;
        const [row, pair] = [Math.floor(place / lie), place % lie];
        return pair < 32 ? ([cos(row, pair), sin(row, pair)] as const) : ([0, 0] as const);
      };
      const words = new RegExp(
        `has the rows of its positions ${lie} elements apart, and is read as if they were ${read} apart\\.`,
      );
      assert.match(saysOf(SPECS.plain, 'f32', half), words);
      assert.doesNotMatch(
        saysOf(SPECS.plain, 'f32', (t, j) => (j === 3 ? [0.6, 0.8] : half(t, j))),
        words,
      );
    });

  test('a masked load past a row of 192 reads sin 32 pairs on', () => {
    const { cos, sin } = rightOf(SPECS.wide);
    const says = saysOf(SPECS.wide, 'f32', (t, j) => [cos(POSITIONS[t]!, j), sin(POSITIONS[t]!, j + 32)]);
    assert.match(says, /the sine of every pair is that of pair j \+ 32, and 0 where there is no such pair\./);
  });

  test('20 right kernels are not accused', () => {
    const ways: [FloatDtype, FloatDtype?][] = [['f32'], ['f16'], ['bf16'], ['f16', 'f16'], ['bf16', 'bf16']];
    for (const spec of [SPECS.plain, SPECS['gpt-j'], SPECS.yarn, SPECS.factors])
      for (const [dtype, table] of ways) {
        const { cos, sin } = rightOf(spec);
        const held = (value: number): number => (table ? roundTo(table, value) : value);
        const says = saysOf(spec, dtype, (t, j) => [held(cos(POSITIONS[t]!, j)), held(sin(POSITIONS[t]!, j))]);
        assert.match(says, /^(AS EXPECTED|LESS PRECISE)/, `${dtype} ${table}`);
      }
  });

  test('two wrong halves, and a half of noise, are not put into a rule', () => {
    const { cos, sin } = rightOf(SPECS.plain);
    const random = randomFrom('noise');
    const noise = POSITIONS.map(() => Array.from({ length: 32 }, () => random.uniform(-1, 1)));
    assert.doesNotMatch(
      saysOf(SPECS.plain, 'f32', (t, j) => [cos(POSITIONS[t]!, j), noise[t]![j]!]),
      /sine of/,
    );
    const both = saysOf(SPECS.plain, 'f32', (t, j) => [cos(POSITIONS[t]! + 2, j), sin(POSITIONS[t]! + 3, j)]);
    assert.doesNotMatch(both, /sine of/);
  });
});

describe('tables of frequencies from the model’s own parameters', () => {
  const turned = (spec: RopeSpec, frequency: (j: number) => number, magnitude = frequenciesOf(spec).attentionFactor) =>
    saysOf(spec, 'f32', (t, j) => {
      const angle = POSITIONS[t]! * frequency(j);
      return [Math.cos(angle) * magnitude, Math.sin(angle) * magnitude];
    });
  const { freqFactors } = SPECS.factors;
  test('factors as frequencies', () => {
    assert.match(
      turned(SPECS.factors, (j) => freqFactors[j]!),
      /frequency of pair j is freq_factors\[j\] itself, /,
    );
    assert.match(
      turned(SPECS.factors, (j) => 1 / freqFactors[j]!),
      /frequency of pair j is 1\/freq_factors\[j\], /,
    );
  });
  test('LongRoPE’s factors of the other kind, with another magnitude', () => {
    const factors = (by: number): number[] => Array.from({ length: 32 }, (_, j) => 1 + by * j);
    const scaling = {
      kind: 'longrope',
      shortFactor: factors(0.1),
      longFactor: factors(1),
      originalContext: 4096,
    } as const;
    const [short, long] = [4096, 4097].map(
      (context): RopeSpec => ({ ...SPECS.plain, scaling: { ...scaling, context } }),
    );
    const { invFreq } = frequenciesOf(long!);
    assert.match(
      turned(short!, (j) => invFreq[j]!, 1.25),
      /frequency of pair j is LongRoPE’s with its long factors; /,
    );
  });
  test('YaRN’s mix above one, and its ramp without limits', () => {
    const plain = frequenciesOf({ ...SPECS.yarn, scaling: { kind: 'none' } }).invFreq;
    const [low, high] = yarnRampEdges(SPECS.yarn.scaling, 1e6, 64);
    const by = (mix: (ramp: number) => number) =>
      turned(SPECS.yarn, (j) => plain[j]! * (mix((j - low) / (high - low)) * (15 / 16) + 1 / 16));
    const within = (ramp: number): number => Math.min(1, Math.max(0, ramp));
    assert.match(
      by((ramp) => 2 * (1 - within(ramp))),
      /YaRN’s with 2 times the expected mix \(ext_factor\);/,
    );
    assert.match(
      by((ramp) => 1 - ramp),
      /YaRN’s with a ramp that is not limited to 0 … 1;/,
    );
    assert.match(
      by((ramp) => 1 - Math.max(0, ramp)),
      /YaRN’s with a ramp that is not limited to 1 at its end;/,
    );
    assert.match(
      by((ramp) => 1 - within(ramp)),
      /^AS EXPECTED/,
    );
  });
  test('a magnitude in f16', () => {
    const { invFreq, attentionFactor } = frequenciesOf(SPECS.yarn);
    const says = turned(SPECS.yarn, (j) => invFreq[j]!, roundTo('f16', attentionFactor));
    assert.match(says, /times as long, which is the expected factor in f16; expected is 1\.277259\.$/);
  });
});
