import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { ropeFromConfig } from '@ropewalk/dialects/internal';
import { parseNpy, tensorFromNpy } from '@ropewalk/formats';
import { hostTensor } from '@ropewalk/oracle/internal';
import fc from 'fast-check';
import type { HeadNorm, TableRecipe } from 'ropewalk';
import { type FloatDtype, frequenciesOf, type RopeSpec, roundTo, type Tensor, tensorFrom } from 'ropewalk';
import { randomFrom } from 'ropewalk/internal';
import { runReference } from 'ropewalk/reference';
import { drawn, FUZZ, some } from '../../../test/support/size.js';
import { floats } from '../../../test/support/tensors.js';
import { diagnose } from '../src/diagnose.js';
import { identify, identifyHeads } from '../src/fit/identify.js';
import { type Mutant, runMutant } from '../src/kernel/mutant.js';
import { changed, RopeSteps } from '../src/kernel/steps.js';
import { BugSearch } from '../src/match/bug-search.js';
import { solveSlope } from '../src/measure/slope.js';
import { MUTANTS } from '../src/mutants/catalogue.js';
import { callOf, type Expected } from '../src/read/expected.js';
import { type Observation, readObservation } from '../src/read/observation.js';
import { frequencySvg } from '../src/say/picture.js';
import { describeDiagnosis } from '../src/say/words.js';

/** Positions of every size, and other ones in the second batch. */
const POSITIONS = [
  [0, 1, 40, 8191, 1048575],
  [2, 7, 100000, 65537, 12],
];
const DTYPES = ['f32', 'f16', 'bf16'] as const;
const HEADS = 4;

const llama31: RopeSpec = {
  headDim: 128,
  pairing: 'half',
  base: 500000,
  scaling: { kind: 'llama3', factor: 8, lowFreqFactor: 1, highFreqFactor: 4, originalContext: 8192 },
};
const phi2: RopeSpec = { headDim: 80, rotaryDim: 32, pairing: 'half', base: 10000 };
const SPECS: Readonly<Record<string, RopeSpec>> = {
  'Llama 3.1': llama31,
  'Qwen 2.5 with YaRN': {
    headDim: 128,
    pairing: 'half',
    base: 1000000,
    scaling: { kind: 'yarn', factor: 4, originalContext: 32768 },
  },
  'gpt-oss': {
    headDim: 64,
    pairing: 'half',
    base: 150000,
    scaling: { kind: 'yarn', factor: 32, originalContext: 4096, truncate: false },
  },
  'phi-2': phi2,
  'gpt-neox': { headDim: 96, rotaryDim: 24, pairing: 'half', base: 10000 },
  'gpt-j': { headDim: 64, rotaryDim: 32, pairing: 'interleaved', base: 10000 },
  'DeepSeek-V3': { headDim: 64, pairing: 'interleaved-to-half', base: 10000 },
  'linear by 4': { headDim: 64, pairing: 'interleaved', base: 10000, scaling: { kind: 'linear', factor: 4 } },
  'Gemma 4': { headDim: 64, pairing: 'half', base: 1000000, scaling: { kind: 'proportional', rotatedPairs: 8 } },
  'Qwen2-VL': { headDim: 128, pairing: 'half', base: 1000000, axes: { rule: 'sections', sections: [16, 24, 24] } },
  'ggml IMROPE': {
    headDim: 64,
    pairing: 'half',
    base: 1000000,
    axes: { rule: 'interleaved-ggml', sections: [11, 11, 7, 3] },
  },
  'ggml VISION': { headDim: 80, pairing: 'vision', base: 10000, axes: { rule: 'vision', sections: [20, 20, 0, 0] } },
  'ggml window': { headDim: 64, rotaryDim: 32, rotaryOffset: 32, pairing: 'half', base: 10000 },
  'ggml freq_factors': {
    headDim: 64,
    pairing: 'interleaved',
    base: 10000,
    freqFactors: Array.from({ length: 32 }, (_, j) => 1 + (j % 5) / 10),
  },
};
const EXTRA: Readonly<Record<string, RopeSpec>> = {
  'Phi-3 LongRoPE': {
    headDim: 96,
    pairing: 'half',
    base: 10000,
    scaling: {
      kind: 'longrope',
      shortFactor: Array.from({ length: 48 }, (_, j) => 1 + j / 100),
      longFactor: Array.from({ length: 48 }, (_, j) => 1 + j / 3),
      originalContext: 4096,
      context: 131072,
      factor: 32,
    },
  },
  'dynamic NTK': {
    headDim: 64,
    pairing: 'half',
    base: 10000,
    scaling: { kind: 'dynamicNtk', factor: 4, originalContext: 4096, context: 32768 },
  },
};

function axesOf(spec: RopeSpec): number {
  return spec.axes ? spec.axes.sections.length : 1;
}

/** x and positions for a spec; x is exact in every dtype, so that one x serves them all. */
function inputFor(
  name: string,
  spec: RopeSpec,
  rows: readonly (readonly number[])[] = POSITIONS,
): Pick<Observation, 'x' | 'positions'> {
  const random = randomFrom(`diagnose ${name}`);
  const seq = rows[0]!.length;
  const x = hostTensor('f64', [rows.length, seq, HEADS, spec.headDim], () => roundTo('bf16', random.uniform(-1, 1)));
  const axes = axesOf(spec);
  const positions = Array.from({ length: axes }, (_, a) =>
    rows.flat().map((p) => (a === 0 ? p : random.integer(Math.abs(p) + 2))),
  ).flat();
  return {
    x,
    positions: tensorFrom(Int32Array.from(positions), {
      shape: axes > 1 ? [axes, rows.length, seq] : [rows.length, seq],
    }),
  };
}

/** The output of the correct kernel. */
function rightOutput(
  expected: Expected,
  input: Pick<Observation, 'x' | 'positions'>,
  dtype: FloatDtype,
  recipe: TableRecipe = 'float64',
): Tensor {
  const seen = readObservation({ ...input, y: input.x }, axesOf(expected.spec));
  const call = callOf(expected, { ...seen, dtype: 'f64' }, recipe); // rounded below, once
  runReference(call);
  return rounded(call.parts[0]!.out, dtype);
}

function rounded(tensor: Tensor, dtype: FloatDtype): Tensor {
  const values = floats(tensor);
  return hostTensor(dtype, tensor.shape, (n) => values[n]!);
}

describe('the catalogue, from data', () => {
  const counts = { all: 0, exact: 0 };
  const nameAll = (
    label: string,
    expected: Expected,
    input: Pick<Observation, 'x' | 'positions'> & { norm?: HeadNorm },
    turn: number,
  ): void => {
    const search = new BugSearch(expected, MUTANTS);
    const axes = axesOf(expected.spec);
    for (const [n, mutant] of some([...MUTANTS.entries()])) {
      const dtype = DTYPES[(n + turn) % DTYPES.length]!; // each in turn; all are run by scripts in the same way
      const seen = { ...readObservation({ ...input, y: input.x }, axes), dtype };
      const call = callOf(expected, seen);
      if (!runMutant(mutant, call)) continue;
      const { verdict, named, together } = search.judge({ ...seen, y: floats(call.parts[0]!.out) });
      const ids = [...new Set([...named, ...together].map(({ id }) => id))];
      counts.all++;
      // The one thing that must never happen: an answer without the truth in it.
      assert.ok(ids.includes(mutant.id), `${label} ${dtype}: ${mutant.id} was called ${verdict} ${ids.join(' | ')}`);
      if (ids.length === 1) counts.exact++;
    }
  };
  for (const [n, [name, spec]] of Object.entries({ ...SPECS, ...EXTRA }).entries()) {
    test(`${name}: each bug is named`, () => nameAll(name, { spec }, inputFor(name, spec), n));
  }
  test('backward, negative positions, and a norm: each bug is named', () => {
    nameAll('backward', { spec: phi2, direction: 'backward' }, inputFor('backward', phi2), 0);
    const yarn = SPECS['Qwen 2.5 with YaRN']!;
    nameAll('backward with YaRN', { spec: yarn, direction: 'backward' }, inputFor('backward', yarn), 1);
    const shifts = [[0, -1, -40, -8191, -131071, 3, 5]];
    nameAll('shift', { spec: llama31 }, inputFor('shift', llama31, shifts), 0);
    const random = randomFrom('norm');
    const norm: HeadNorm = {
      weight: hostTensor('f64', [80], () => roundTo('bf16', random.uniform(0.5, 2))),
      eps: 1e-5,
    };
    nameAll('norm', { spec: phi2 }, { ...inputFor('norm', phi2), norm }, 0);
  });
  test('at least 95 % of them exactly', () => {
    assert.ok(counts.all > 50 * FUZZ, `${counts.all} cases`);
    if (FUZZ === 10) assert.ok(counts.exact / counts.all >= 0.95, `${counts.exact} of ${counts.all}`);
  });

  const byId = (id: string): Mutant => MUTANTS.find((mutant) => mutant.id === id) ?? assert.fail(id);
  test('a bug in a kernel that computes angles in f32 is still named', () => {
    const input = inputFor('f32 angles', llama31);
    for (const id of [
      'pairs-interleaved-for-half',
      'llama3-ignored',
      'position-plus-one',
      'turned-the-other-way',
      'table-ends',
    ]) {
      const call = callOf({ spec: llama31 }, readObservation({ ...input, y: input.x }));
      const right = new RopeSteps(call.plan, call.parts[0]!);
      const wrong = changed(right, byId(id).change(right)!);
      const invFreq = wrong.frequencies().invFreq.map(Math.fround);
      const steps = changed(wrong, { angle: (p: number, j: number) => Math.fround(p * invFreq[j]!) });
      const y = rounded(tensorFrom(steps.all(floats(input.x)), { shape: input.x.shape }), 'f32');
      const { verdict, tier, named } = diagnose({ ...input, y }, { spec: llama31 });
      assert.deepEqual([verdict, tier, named.map((one) => one.id)], ['known bug', 'angles', [id]]);
    }
  });

  test('two bugs at once', () => {
    const input = inputFor('two', phi2);
    const call = callOf({ spec: phi2 }, readObservation({ ...input, y: input.x }));
    const right = new RopeSteps(call.plan, call.parts[0]!);
    const [a, b] = [byId('pairs-interleaved-for-half'), byId('frequencies-over-head-dim')];
    const y = changed(changed(right, a.change(right)!), b.change(right)!).all(floats(input.x));
    const { verdict, named } = diagnose(
      { ...input, y: rounded(tensorFrom(y, { shape: input.x.shape }), 'f32') },
      { spec: phi2 },
    );
    assert.equal(verdict, 'known bug');
    assert.ok(
      named.some(({ id }) => id === `${a.id}+${b.id}`),
      named.map(({ id }) => id).join(),
    );
  });

  test('a bug that is not in the catalogue is described, never called by another name', () => {
    const input = inputFor('leave one out', phi2);
    const over = (size: number) =>
      Array.from({ length: 15 }, (_, j) => Number((10000 ** ((-2 * (j + 1)) / size)).toFixed(4)));
    const cases: [string, RegExp, found: unknown, expected: unknown][] = [
      [
        'pairs-interleaved-for-half',
        /Pairs are interleaved, such as \(0, 1\); expected is half, such as \(0, 16\)/,
        'interleaved',
        'half',
      ],
      ['frequencies-over-head-dim', /base 10000 with exponents over head_dim=80 instead of 32/, over(80), over(32)],
      [
        'pair-distance-half-a-head',
        /Pairs are half, 40 apart \(head_dim \/ 2\), such as \(0, 40\); expected is half, such as \(0, 16\)/,
        'half',
        'half',
      ],
      ['turned-the-other-way', /It rotates backward; expected is forward/, 'backward', 'forward'],
    ];
    const short = (value: unknown): unknown =>
      Array.isArray(value) ? value.map((one: number) => Number(one.toFixed(4))) : value;
    for (const [id, words, found, expected] of cases) {
      const call = callOf({ spec: phi2 }, readObservation({ ...input, y: input.x }));
      runMutant(byId(id), call);
      const y = rounded(call.parts[0]!.out, 'f32');
      const { verdict, named, differences } = diagnose(
        { ...input, y },
        { spec: phi2 },
        { mutants: MUTANTS.filter((one) => one.id !== id) },
      );
      assert.deepEqual([verdict, named], ['different', []], id);
      assert.match(differences.map((one) => one.words).join(' '), words);
      const [first] = differences.filter((one) => words.test(one.words));
      assert.deepEqual([short(first!.found), short(first!.expected)], [found, expected], id);
      if (Array.isArray(found))
        assert.deepEqual(
          first!.pairs,
          Array.from({ length: 15 }, (_, j) => j + 1),
        );
    }
  });
});

describe('positions that are not those given', () => {
  const rules: [string, string][] = [
    ['position-plus-one', 'the position + 1'],
    ['position-minus-one', 'the position − 1'],
    ['table-ends', 'the position, but at most 4095'],
    ['table-wraps', 'the position modulo 4096'],
    ['position-in-int16', 'the position wrapped to int16'],
    ['position-in-bf16', 'the position rounded to bf16'],
    ['positions-ignored', 'the index of the token on the sequence axis'],
    ['position-plus-head', 'the position + the index of the head'],
    ['head-for-position', 'the index of the head'],
  ];
  for (const [id, words] of rules) {
    test(`${id} is read off the angles as: ${words}`, () => {
      const input = inputFor('positions', llama31);
      const call = callOf({ spec: llama31 }, readObservation({ ...input, y: input.x }));
      assert.ok(runMutant(MUTANTS.find((mutant) => mutant.id === id)!, call));
      const seen = readObservation({ ...input, y: rounded(call.parts[0]!.out, 'f32') });
      const found = identifyHeads(seen, frequenciesOf(llama31).invFreq);
      assert.ok(
        found.positions.some((rule) => rule.words === words),
        found.positions.map((rule) => rule.words).join(' | '),
      );
      assert.ok(!found.positions.some(({ asGiven }) => asGiven));
    });
  }
});

describe('the right kernel', () => {
  for (const [name, spec] of Object.entries({ ...SPECS, ...EXTRA })) {
    test(`${name} in every dtype and by every recipe is as expected`, () => {
      const input = inputFor(name, spec);
      const search = new BugSearch({ spec }, MUTANTS);
      for (const dtype of DTYPES) {
        for (const recipe of ['float64', 'hf-f32', 'ggml-f32'] as const) {
          let y: Tensor;
          try {
            y = rightOutput({ spec }, input, dtype, recipe);
          } catch {
            continue; // a peer without this scaling
          }
          const seen = readObservation({ ...input, y }, axesOf(spec));
          const { verdict, named } = search.judge(seen);
          if (recipe === 'float64') assert.equal(verdict, 'as expected', `${dtype} ${recipe}`);
          else
            assert.ok(
              verdict === 'as expected' || verdict === 'less precise',
              `${dtype} ${recipe}: ${verdict} ${named.map(({ id }) => id)}`,
            );
          assert.ok(named.every(({ mutants }) => mutants.every(({ cause }) => cause === 'I')));
        }
      }
    });

    test(`${name} is identified from data alone`, () => {
      const input = inputFor(name, spec);
      for (const dtype of DTYPES) {
        const found = identify({
          ...input,
          y: rightOutput({ spec }, input, dtype),
          ...(axesOf(spec) > 1 ? { numAxes: axesOf(spec) } : {}),
        });
        const rotaryDim = spec.rotaryDim ?? spec.headDim;
        assert.equal(found.outcome, 'rotation');
        assert.equal(found.layout!.name, spec.pairing === 'vision' ? 'half' : spec.pairing);
        assert.equal(found.layout!.first, spec.rotaryOffset ?? 0);
        assert.equal(2 * found.pairs.length, rotaryDim);
        assert.equal(found.sign, 1);
        assert.ok(found.positions.some(({ asGiven }) => asGiven));
        assert.ok(found.explains, dtype);
        // Frequencies that follow no rule of round numbers are known only as well as they were measured.
        if (spec.freqFactors || spec.scaling?.kind === 'longrope' || spec.scaling?.kind === 'dynamicNtk') continue;
        assert.equal(found.explains, 'stored', dtype);
        const dim = spec.pairing === 'vision' ? rotaryDim / 2 : rotaryDim;
        const reading = found.bases.find(({ denominator }) => denominator === dim)!;
        assert.ok(Math.abs(reading.base / spec.base - 1) < 1e-6, `${dtype}: ${reading.base}`);
        if (spec.axes)
          assert.ok(
            found.axes.some(
              ({ rule, sections }) => rule === spec.axes!.rule && sections.join() === spec.axes!.sections.join(),
            ),
          );
        const scaling = found.law!.scaling;
        const kind = spec.scaling?.kind ?? 'none';
        assert.equal(scaling.kind, kind === 'proportional' ? 'none' : kind);
        if (scaling.kind !== 'none')
          assert.ok(
            Math.abs(scaling.factor / (spec.scaling as { factor: number }).factor - 1) < 1e-3,
            `${scaling.factor}`,
          );
        if (scaling.kind === 'llama3')
          assert.ok(Math.abs(scaling.divideFrom / 8192 - 1) < 1e-4 && Math.abs(scaling.keepUpTo / 2048 - 1) < 1e-4);
      }
    });
  }

  test('HuggingFace’s own output is as expected, for each of its vectors', () => {
    const root = fileURLToPath(new URL('../../../vectors/huggingface', import.meta.url));
    const { cases } = JSON.parse(readFileSync(join(root, 'manifest.json'), 'utf8'));
    const read = (name: string): Tensor => tensorFromNpy(parseNpy(readFileSync(join(root, name))));
    assert.ok(cases.length >= 10);
    for (const { name, config, context, positions, x, y } of cases) {
      const spec = ropeFromConfig(config, context === undefined ? {} : { context }).layers[0]!.rope!;
      const { verdict } = new BugSearch({ spec }, MUTANTS).judge(
        readObservation({ x: read(x), y: read(y), positions }),
      );
      assert.ok(verdict === 'as expected' || verdict === 'less precise', `${name}: ${verdict}`);
    }
  });
});

describe('what data cannot tell', () => {
  test('the bugs that an input would not show are listed, with one that does', () => {
    const input = inputFor('small', llama31, [[0, 1, 2, 3]]);
    const { verdict, notRuledOut, next } = diagnose(
      { ...input, y: rightOutput({ spec: llama31 }, input, 'bf16') },
      { spec: llama31 },
    );
    assert.equal(verdict, 'as expected');
    assert.ok(notRuledOut.some(({ id }) => id === 'table-ends'));
    assert.ok(!notRuledOut.some(({ id }) => id === 'pairs-interleaved-for-half'));
    assert.ok(next!.groups.length > 5);
    assert.equal(
      next!.x.length,
      next!.shape.reduce((a, b) => a * b),
    );
  });

  test('the next input tells two bugs apart that this one does not', () => {
    const input = inputFor('one token', phi2, [[1], [1]]);
    const call = callOf({ spec: phi2 }, readObservation({ ...input, y: input.x }));
    const of = (id: string): Mutant => MUTANTS.find((mutant) => mutant.id === id)!;
    runMutant(of('position-plus-one'), call);
    const { verdict, named, next } = diagnose({ ...input, y: rounded(call.parts[0]!.out, 'f32') }, { spec: phi2 });
    const ids = named.map(({ id }) => id);
    assert.equal(verdict, 'known bug');
    assert.ok(ids.includes('position-plus-one') && ids.length > 1, ids.join());
    assert.ok(next!.groups.find((group) => group.includes('position-plus-one'))!.length < ids.length);
    const again: Observation = {
      x: tensorFrom(next!.x, { shape: next!.shape }),
      y: tensorFrom(next!.x, { shape: next!.shape }),
      positions: tensorFrom(BigInt64Array.from(next!.positions, BigInt), { shape: next!.shape.slice(0, 2) }),
    };
    const second = callOf({ spec: phi2 }, readObservation(again));
    runMutant(of('position-plus-one'), second);
    const named2 = diagnose({ ...again, y: rounded(second.parts[0]!.out, 'f32') }, { spec: phi2 }).named;
    assert.deepEqual(
      named2.map(({ id }) => id),
      ['position-plus-one'],
    );
  });

  test('one token, small positions, zeros in x: said to be open', () => {
    const one = inputFor('open', phi2, [[5]]);
    const found = identify({ ...one, y: rightOutput({ spec: phi2 }, one, 'f32') });
    assert.match(found.open.join(' '), /measured have one position/);
    const small = inputFor('open', llama31, [[0, 1, 2, 3]]);
    assert.match(
      identify({ ...small, y: rightOutput({ spec: llama31 }, small, 'bf16') }).open.join(' '),
      /pairs rotate too little to measure up to position 3/,
    );
    const dark = inputFor('dark', phi2);
    const values = floats(dark.x).map((value, n) => (n % 80 === 3 || n % 80 === 70 ? 0 : value));
    const x = tensorFrom(values, { shape: dark.x.shape });
    assert.match(
      identify({ x, positions: dark.positions, y: rightOutput({ spec: phi2 }, { ...dark, x }, 'f32') }).open.join(' '),
      /Dimensions 3, 70: x is 0/,
    );
  });

  test('rows in which x is not finite are left out, and the rest is diagnosed', () => {
    const input = inputFor('padding', phi2);
    const isPadding = (n: number): boolean => n >= 9 * HEADS * 80; // the last token of batch 1
    const values = floats(input.x).map((value, n) => (isPadding(n) ? Number.NaN : value));
    const one = { ...input, x: tensorFrom(values, { shape: input.x.shape }) };
    const y = rightOutput({ spec: phi2 }, input, 'f32');
    for (const [given, verdict] of [
      [y, 'as expected'],
      [rightOutput({ spec: { ...phi2, base: 500000 } }, input, 'f32'), 'known bug'],
    ] as const) {
      const filled = tensorFrom(
        floats(given).map((value, n) => (isPadding(n) ? Infinity : value)),
        { shape: y.shape },
      );
      const found = diagnose({ ...one, y: filled }, { spec: phi2 });
      assert.equal(found.verdict, verdict);
      assert.deepEqual(found.unread, {
        where: 'token 4 of batch 1',
        at: { batches: [1], tokens: [4], heads: [0, 1, 2, 3], dims: undefined },
      });
      assert.match(
        describeDiagnosis(found, 'phi-2').join('\n'),
        /Left out, because x is not finite there: token 4 of batch 1\./,
      );
    }
  });

  test('all positions 0: y = x is what was expected, and nothing else is claimed', () => {
    const input = inputFor('zero', phi2, [[0, 0, 0]]);
    const { verdict, notRuledOut } = diagnose({ ...input, y: input.x }, { spec: phi2 });
    assert.equal(verdict, 'as expected');
    assert.ok(notRuledOut.length > 10);
    assert.equal(identify({ ...input, y: input.x }).outcome, 'unchanged');
  });
});

describe('outputs that are not a rotation', () => {
  const input = inputFor('none', phi2);
  const shape = input.x.shape;
  const random = randomFrom('noise');
  const outputs: [string, Tensor, RegExp][] = [
    ['y = x', input.x, /nothing was rotated/],
    ['y = 0', hostTensor('f32', shape, () => 0), /y is 0/],
    ['NaN in y', hostTensor('f32', shape, (n) => (n === 100 ? Number.NaN : 0.5)), /not finite/],
    ['infinity in y', hostTensor('f32', shape, (n) => (n === 7 ? Infinity : 0.5)), /not finite/],
    ['noise', hostTensor('f32', shape, () => random.uniform(-1, 1)), /no rotation/],
  ];
  for (const [name, y, words] of outputs) {
    test(`${name}: nothing is named`, () => {
      for (const expected of [undefined, { spec: phi2 }]) {
        const result = diagnose({ ...input, y }, expected);
        assert.notEqual(result.verdict, 'as expected');
        assert.notEqual(result.verdict, 'rotation');
        assert.deepEqual(result.named, []);
        assert.match(describeDiagnosis(result, expected && 'phi-2', { all: true }).join('\n'), words);
      }
    });
  }

  const good = { ...input, y: input.x };
  const wrong: [string, Observation, RegExp][] = [
    [
      'shapes that differ',
      { ...good, y: hostTensor('f32', [1, 7, 4, 80], () => 0) },
      /diagnose: y: expected the shape of x, \[2,5,4,80\], got \[1, 7, 4, 80\]/,
    ],
    [
      'positions of another length',
      { ...good, positions: [1, 2, 3] },
      /diagnose: positions: expected shape \[5\] or \[10\] or \[2, 5\]/,
    ],
    [
      'a position that is no integer',
      { ...good, positions: [0, 1, 2, 3, 4, 5, 1.5] },
      /diagnose: positions\[6\]: expected an integer, got 1.5/,
    ],
    [
      'a huge position',
      { ...good, positions: [0, 1, 2, 3, 2 ** 40] },
      /positions\[4\]: expected an integer in \[-2\^31, 2\^31\]/,
    ],
    [
      'NaN in x',
      { ...good, x: hostTensor('f32', shape, () => Number.NaN) },
      /diagnose: x\[0\]: expected finite numbers in half of its rows, or more, got NaN/,
    ],
    [
      'bits without a dtype',
      { ...good, x: tensorFrom(new Uint16Array(80), { dtype: 'u16', shape: [1, 1, 80] }) },
      /If these are the bits of bf16/,
    ],
    ['no elements', { ...good, x: hostTensor('f32', [0, 4, 80], () => 0) }, /at least one element/],
    [
      'an odd head',
      { ...good, x: hostTensor('f32', [1, 4, 7], () => 1), y: hostTensor('f32', [1, 4, 7], () => 1) },
      /an even head_dim/,
    ],
    ['two dimensions', { ...good, x: hostTensor('f32', [4, 80], () => 0) }, /three dimensions/],
    ['an unknown layout', { ...good, layout: 'sbnh' as 'bsnh' }, /expected bsnh or bnsh, got "sbnh"/],
  ];
  for (const [name, observation, message] of wrong) {
    test(`refusal: ${name}`, () =>
      assert.throws(() => diagnose(observation, { spec: phi2 }), { name: 'RopewalkError', message }));
  }
  test('refusal: an expectation of another head_dim', () => {
    assert.throws(() => diagnose(good, { spec: llama31 }), { message: /head_dim 128/ });
  });
});

describe('parts', () => {
  test('layout bnsh, batch left out, and bf16 dumped as f32 give the same answer', () => {
    const input = inputFor('layout', phi2, [POSITIONS[0]!]);
    const y = rightOutput({ spec: phi2 }, input, 'bf16');
    const wide = tensorFrom(Float32Array.from(floats(y)), { shape: y.shape });
    assert.equal(readObservation({ ...input, y: wide }).dtype, 'bf16');
    const flip = (t: Tensor): Tensor => t.permute([0, 2, 1, 3]).contiguous();
    const drop = (t: Tensor): Tensor => t.reshape(t.shape.slice(1));
    const all: Observation[] = [
      { ...input, y: wide },
      { ...input, x: flip(input.x), y: flip(wide), layout: 'bnsh' },
      { x: drop(input.x), y: drop(wide), positions: POSITIONS[0]! },
    ];
    for (const observation of all) assert.equal(diagnose(observation, { spec: phi2 }).verdict, 'as expected');
  });

  describe('no layout given', () => {
    const flip = (t: Tensor): Tensor => t.permute([0, 2, 1, 3]).contiguous();
    const spec: RopeSpec = { ...phi2, rotaryDim: 32 };
    /** A kernel's dump in [batch, head, token, head_dim], with `tokens` tokens and four heads. */
    const swapped = (tokens: number, mutant?: Mutant): Observation => {
      const input = inputFor('swapped', spec, [[0, 1, 40, 8191, 511, 77].slice(0, tokens)]);
      const call = callOf({ spec }, readObservation({ ...input, y: input.x }));
      if (mutant) runMutant(mutant, call);
      const y = mutant ? rounded(call.parts[0]!.out, 'f32') : rightOutput({ spec }, input, 'f32');
      return { x: flip(input.x), y: flip(y), positions: input.positions };
    };
    const swap = MUTANTS.find(({ id }) => id === 'pairs-interleaved-for-half')!;
    for (const tokens of [6, HEADS])
      test(`[batch, head, token, head_dim] is tried: ${tokens} tokens, ${HEADS} heads`, () => {
        for (const expected of [{ spec }, undefined]) {
          const right = diagnose(swapped(tokens), expected);
          assert.equal(right.verdict, expected ? 'as expected' : 'rotation');
          assert.deepEqual(right.layout, { layout: 'bnsh', tried: true, otherwise: right.layout.otherwise });
          assert.match(
            describeDiagnosis(right, undefined, { all: true })[1]!,
            /^Read as \[batch, head, token, head_dim\]/,
          );
        }
        const wrong = diagnose(swapped(tokens, swap), { spec });
        assert.deepEqual(
          [wrong.verdict, wrong.named.map(({ id }) => id), wrong.layout.layout],
          ['known bug', ['pairs-interleaved-for-half'], 'bnsh'],
        );
      });

    test('the default layout stays where it fits, and a given one is the only one', () => {
      const { x, y, positions } = swapped(HEADS);
      const right = diagnose({ x: flip(x), y: flip(y), positions }, { spec });
      assert.deepEqual([right.verdict, right.layout.layout, right.layout.tried], ['as expected', 'bsnh', false]);
      assert.ok(!describeDiagnosis(right, undefined, { all: true }).some((line) => line.startsWith('Read as')));
      assert.notEqual(diagnose({ x, y, positions, layout: 'bsnh' }, { spec }).verdict, 'as expected');
      assert.throws(() => diagnose({ ...swapped(6), layout: 'bsnh' }, { spec }), { code: 'SHAPE' });
      assert.throws(() => diagnose({ ...swapped(6), positions: [0, 1, 2] }, { spec }), {
        message: /positions: expected shape \[4\]/,
      });
    });

    test('a bug that gives y in the default layout is told too', () => {
      // Four tokens, four heads: a kernel that takes the head for the token, or a right one with heads first.
      const found = diagnose(swapped(HEADS), { spec });
      assert.ok(found.layout.otherwise.some(({ id }) => id === 'heads-and-tokens-exchanged'));
      assert.match(
        describeDiagnosis(found, undefined, { all: true })[1]!,
        /As \[batch, token, head, head_dim\], heads-and-tokens-exchanged .*gives y too: give the layout, bsnh or bnsh\.$/,
      );
    });
  });

  test('a large observation is sampled, and one wrong head in it is found', () => {
    const rows = [Array.from({ length: 400 }, (_, s) => s)];
    const input = inputFor('large', phi2, rows);
    const y = rightOutput({ spec: phi2 }, input, 'f32');
    assert.equal(diagnose({ ...input, y }, { spec: phi2 }).verdict, 'as expected');
    const values = Float32Array.from(floats(y));
    values[(317 * HEADS + 2) * 80 + 5]! += 0.01;
    const { verdict, worst } = diagnose({ ...input, y: tensorFrom(values, { shape: y.shape }) }, { spec: phi2 });
    assert.equal(verdict, 'partly right');
    assert.deepEqual([worst!.seq, worst!.head, worst!.dim, worst!.positions], [317, 2, 5, [317]]);
  });

  test('a slope is among its intervals whatever the number of turns, and it is the only one when positions are good', () => {
    fc.assert(
      fc.property(fc.double({ min: -1, max: 1, noNaN: true }), fc.integer({ min: 1, max: 3 }), (slope, noise) => {
        const tolerance = 10 ** -(noise + 2);
        const samples = [1, 3, 40, 517, 8191, 131071].map((at, n) => ({
          at,
          angle: (slope * at + (n % 2 ? 0.9 : -0.9) * tolerance) % (2 * Math.PI),
          tolerance,
        }));
        const { intervals, against } = solveSlope(samples, [[-Math.PI, Math.PI]]);
        assert.deepEqual(against, []);
        assert.ok(intervals.some(([low, high]) => slope >= low - 1e-12 && slope <= high + 1e-12));
        if (noise === 3) assert.equal(intervals.length, 1);
      }),
      drawn(300, 5),
    );
  });

  test('the picture is a whole SVG without scripts, with a point for each pair', () => {
    const svg = frequencySvg([1, 0.1, 0, -0.01], [1, 0.2, 0.04, 0.008]);
    assert.match(svg, /^<svg xmlns="http:\/\/www\.w3\.org\/2000\/svg"[\s\S]*<\/svg>\n$/);
    assert.equal(svg.match(/<circle/g)!.length, 4);
    assert.doesNotMatch(svg, /NaN|Infinity|script|href/);
    assert.doesNotMatch(frequencySvg([], []), /NaN|Infinity/);
  });
});
