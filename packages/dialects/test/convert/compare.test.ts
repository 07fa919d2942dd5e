import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import type { RopeSpec, TableRecipe } from 'ropewalk';
import { planRope } from 'ropewalk';
import { drawn } from '../../../../test/support/size.js';
import { compareRope, type ReadingSource, type RopeReading } from '../../src/convert/compare.js';

const llama: RopeSpec = { headDim: 128, pairing: 'half', base: 500000 };
const llama31: RopeSpec = {
  ...llama,
  scaling: { kind: 'llama3', factor: 8, lowFreqFactor: 1, highFreqFactor: 4, originalContext: 8192 },
};
const side = (spec: RopeSpec, source: ReadingSource = 'record', recipe: TableRecipe = 'float64'): RopeReading => ({
  spec,
  source,
  recipe,
});
const AT = [1, 40, 8192, 131072];
const compare = (a: RopeSpec, b: RopeSpec) => compareRope(side(a), side(b), AT);

describe('golden: differences whose size is known', () => {
  test('one and the same: nothing would change', () => {
    const found = compare(llama31, llama31);
    assert.equal(found.same, true);
    assert.deepEqual(found.verdict, ['The same RoPE: both rotate every pair alike.']);
    assert.deepEqual(
      found.nmse.map(({ text }) => text),
      [0, 0, 0, 0],
    );
    assert.deepEqual(
      found.apart.map(({ position }) => position),
      [undefined, undefined, undefined],
    );
  });

  test('one verdict: same to the last bit, same but for rounding, or parts at a position because of a property', () => {
    const said = (a: RopeReading, b: RopeReading): string[] => {
      const { agreement, reason } = compareRope(a, b, AT);
      return [agreement, reason];
    };
    assert.deepEqual(said(side(llama31), side(llama31)), ['exact', 'The same RoPE to the last bit.']);
    assert.deepEqual(said(side(llama31), side(llama31, 'record', 'ggml-f32')), [
      'rounding',
      'The same RoPE but for rounding: A computes angles as float64, B as ggml-f32.',
    ]);
    assert.deepEqual(said(side(llama, 'huggingface'), side({ ...llama, pairing: 'interleaved' }, 'gguf')), [
      'exact',
      'The same RoPE to the last bit, in another order of dimensions.',
    ]);
    const parts = (b: Partial<RopeSpec>): string => {
      const [agreement, reason] = said(side(llama), side({ ...llama, ...b }));
      assert.equal(agreement, 'parts');
      return reason!;
    };
    assert.match(parts({ base: 10000 }), /^They part from position \d+ on \(0\.1 rad\) because of base: 500000 in A/);
    assert.equal(parts({ attentionFactor: 2 }), 'They part at every position because of magnitude: 1 in A, 2 in B.');
    assert.equal(
      parts({ pairing: 'interleaved' }),
      'They part from position 1 on because of pairing: half in A, interleaved in B.',
    );
    const heads = compareRope(side(llama), side({ ...llama, headDim: 64 }, 'record', 'ggml-f32'), AT);
    assert.equal(heads.reason, 'They part from position 1 on because of head_dim: 128 in A, 64 in B.');
    assert.deepEqual(heads.verdict, ['The head sizes differ: no weights fit both.'], 'rounding is not blamed');
  });

  test('another base: the angles part where base^(−2j/d) says', () => {
    const found = compare(llama, { ...llama, base: 1e6 });
    assert.equal(found.same, false);
    const steps = Array.from({ length: 64 }, (_, j) => Math.abs(500000 ** (-j / 64) - 1e6 ** (-j / 64)));
    const largest = Math.max(...steps);
    assert.deepEqual(
      found.apart.map(({ position, pair }) => [position, pair]),
      [0.01, 0.1, 1].map((rad) => [Math.floor(rad / largest) + 1, steps.indexOf(largest)]),
    );
    // The slowest pair's frequency differs most: 1 − 2^(−63/64).
    assert.ok(Math.abs(found.maxRelInvFreq - (1 - 2 ** (-63 / 64))) < 1e-12);
    assert.equal(found.worstPair, 63);
    assert.ok(found.rows.find(({ name }) => name === 'base')!.differs);
  });

  test('Llama 3.1 read without its scaling: short prompts work', () => {
    const found = compare(llama31, llama);
    const [, small, large] = found.apart;
    assert.ok(small!.position! > 16 && large!.position! > small!.position!);
    assert.match(
      found.verdict.join(' '),
      new RegExp(
        `0\\.1 rad apart from position ${small!.position} on and 1 rad apart from ${large!.position} on: .* prompts shorter than about ${small!.position} tokens work`,
      ),
    );
    assert.ok(found.nmse[0]!.text < 1e-6 && found.nmse[3]!.text > 0.1);
  });

  test('NMSE of a magnitude alone is (m − 1)², and the verdict names the factor on scores', () => {
    const found = compare(llama, { ...llama, attentionFactor: 1.1 });
    for (const { text } of found.nmse) assert.ok(Math.abs(text - 0.01) < 1e-12, String(text));
    assert.match(
      found.verdict.join(' '),
      /Attention scores of B are those of A times 1\.21 at every length: attention is sharper/,
    );
  });

  test('NMSE of one pair is 4 sin²(δ/2), whatever the vector: both sides rotate, in every pairing', () => {
    for (const pairing of ['half', 'interleaved', 'interleaved-to-half'] as const) {
      const one: RopeSpec = { headDim: 2, pairing, base: 10000 };
      const found = compare(one, { ...one, scaling: { kind: 'linear', factor: 2 } });
      for (const { position, text } of found.nmse) {
        const wanted = 4 * Math.sin(position / 4) ** 2;
        assert.ok(Math.abs(text - wanted) < 1e-9, `${pairing} at ${position}: ${text}, want ${wanted}`);
      }
    }
  });

  test('at position 0 nothing rotates, but writing halves still moves dimensions', () => {
    const at0 = (pairing: RopeSpec['pairing']) =>
      compareRope(side(llama), side({ ...llama, pairing }), [0]).nmse[0]!.text;
    assert.equal(at0('half'), 0);
    assert.equal(at0('interleaved'), 0);
    assert.ok(at0('interleaved-to-half') > 0.1);
  });

  test('pairings: HuggingFace and GGUF are expected to differ, two files of one kind are not', () => {
    const gguf = { ...llama, pairing: 'interleaved' as const };
    const expected = compareRope(side(llama, 'huggingface'), side(gguf, 'gguf'), AT);
    assert.deepEqual([expected.same, expected.layout], [true, 'permuted weights']);
    assert.deepEqual(expected.verdict, [
      'Same frequencies. Pairing half and interleaved is expected: q and k weights are permuted in GGUF.',
    ]);
    assert.ok(expected.nmse.every(({ text }) => text === 0));
    const swapped = compareRope(side(gguf, 'gguf'), side(llama, 'huggingface'), AT);
    assert.deepEqual([swapped.same, swapped.layout], [true, 'permuted weights']);
    const two = compareRope(side(llama, 'huggingface'), side(gguf, 'huggingface'), AT);
    assert.deepEqual([two.same, two.layout], [false, 'different']);
    assert.match(two.verdict.join(' '), /wrong from position 1 on, .* Permute q and k \(ropewalk permute\)/);
    assert.ok(two.nmse.every(({ text }) => text > 0.01));
    // No converter permutes the other way round.
    assert.equal(compareRope(side(gguf, 'huggingface'), side(llama, 'gguf'), AT).layout, 'different');
    const deepseek = compareRope(
      side({ ...llama, pairing: 'interleaved-to-half' }, 'huggingface'),
      side(gguf, 'gguf'),
      AT,
    );
    assert.deepEqual([deepseek.same, deepseek.layout], [true, 'same scores']);
  });

  test('factors stored in f32 are the same up to rounding, and a note says so', () => {
    const { frequenciesOf } = {
      frequenciesOf: (spec: RopeSpec) => Array.from({ length: 64 }, (_, j) => spec.base ** (-j / 64)),
    };
    const plain = frequenciesOf(llama);
    const factors = Float32Array.from(plain, (f, j) => (j > 40 ? 8 * (1 + 1e-7) : 1) * (f / f));
    const exact = Array.from(plain, (_, j) => (j > 40 ? 8 * (1 + 1e-7) : 1));
    const found = compare({ ...llama, freqFactors: exact }, { ...llama, freqFactors: factors });
    assert.equal(found.same, true);
    assert.match(found.verdict[0]!, /The same RoPE up to rounding/);
  });

  test("Qwen3-VL and ggml's IMROPE: two pairs rotate by another axis, which text tokens show too", () => {
    const hf: RopeSpec = { ...llama, base: 5e6, axes: { rule: 'interleaved', sections: [24, 20, 20] } };
    const found = compare(hf, { ...hf, axes: { rule: 'interleaved-ggml', sections: [24, 20, 20, 0] } });
    assert.equal(found.same, false);
    assert.match(
      found.verdict.join(' '),
      /Pairs 61, 62 rotate by another axis: .* text tokens differ too at pairs 61, 62/,
    );
    // A text token loses the whole angle, as the pairs' positions are 0 in llama.cpp.
    const largest = 5e6 ** (-61 / 64);
    assert.equal(found.apart[0]!.position, Math.floor(0.01 / largest) + 1);
    assert.ok(found.nmse[3]!.text > 0 && found.nmse[3]!.image! > 0);
    const sections = compare({ ...hf, axes: { rule: 'sections', sections: [24, 20, 20] } }, hf);
    assert.match(
      sections.verdict.join(' '),
      /text tokens do not show it, as their positions are the same on every axis/,
    );
    assert.equal(sections.nmse[2]!.text, 0);
    assert.ok(sections.nmse[2]!.image! > 0.01);
  });

  test('windows and heads', () => {
    const partial = compare(llama, { ...llama, rotaryDim: 64 });
    assert.match(partial.verdict.join(' '), /Different dimensions rotate/);
    assert.equal(partial.same, false);
    assert.match(compare(llama, { ...llama, headDim: 64 }).verdict.join(' '), /The head sizes differ/);
  });
});

describe('arithmetic', () => {
  test('the angles of a recipe are those of its table', () => {
    for (const recipe of ['ggml-f32', 'hf-f32'] as const) {
      const spec: RopeSpec = { ...llama, scaling: { kind: 'linear', factor: 2 } };
      const found = compareRope(side(spec), side(spec, 'record', recipe), [100000]);
      const rows = (['float64', recipe] as const).map(
        (name) => planRope({ ...spec, positions: [100000], recipe: name, tableDtype: 'f64' }).table,
      );
      // |Δcos| and |Δsin| of the table are at most the angle's difference, which crosses 0.01 rad at the position that
      // was found.
      const worst = Math.max(
        ...Array.from(rows[0]!.cos, (c, j) => Math.hypot(c - rows[1]!.cos[j]!, rows[0]!.sin[j]! - rows[1]!.sin[j]!)),
      );
      const first = found.apart[0]!.position!;
      assert.ok(
        first <= 100000 ? worst > 0.001 : worst <= 0.0101,
        `${recipe}: ${worst} at 100000, 0.01 rad from ${first}`,
      );
      assert.ok(found.nmse[0]!.text > 1e-12 && found.nmse[0]!.text < 1e-4);
    }
  });

  test("one model with two runtimes' arithmetic: the same near position 0, different far out", () => {
    const near = compareRope(side(llama31), side(llama31, 'record', 'hf-f32'), [1, 40]);
    assert.equal(near.same, true);
    assert.match(near.verdict.join(' '), /differ in rounding: NMSE is within ggml's limit/);
    const far = compareRope(side(llama31, 'huggingface'), side(llama31, 'huggingface', 'ggml-f32'), AT);
    assert.equal(far.same, false);
    assert.match(far.verdict.join(' '), /at position 131072 NMSE is above ggml's limit of 1e-7/);
  });

  test('two equal recipes give no difference', () => {
    const found = compareRope(side(llama, 'record', 'ggml-f32'), side(llama, 'record', 'ggml-f32'), AT);
    assert.equal(found.same, true);
    assert.deepEqual(found.verdict, ['The same RoPE: both rotate every pair alike.']);
  });
});

describe('properties', () => {
  const spec = fc
    .record({
      base: fc.double({ min: 100, max: 1e7, noNaN: true }),
      factor: fc.double({ min: 1, max: 16, noNaN: true }),
      pairs: fc.integer({ min: 2, max: 32 }),
    })
    .map(
      ({ base, factor, pairs }): RopeSpec => ({
        headDim: 2 * pairs,
        pairing: 'half',
        base,
        ...(factor > 8 ? {} : { scaling: { kind: 'linear', factor } }),
      }),
    );
  test('every record is the same as itself, and the comparison is symmetric in what differs', () => {
    fc.assert(
      fc.property(spec, spec, (a, b) => {
        assert.equal(compareRope(side(a), side(a), [7]).same, true);
        const [ab, ba] = [compareRope(side(a), side(b), [7, 7000]), compareRope(side(b), side(a), [7, 7000])];
        assert.equal(ab.same, ba.same);
        assert.deepEqual(ab.apart, ba.apart);
      }),
      drawn(60),
    );
  });

  test('the first position apart is the first: one before it no angle is', () => {
    fc.assert(
      fc.property(spec, fc.double({ min: 1.0001, max: 2, noNaN: true }), (a, stretch) => {
        const b = { ...a, base: a.base * stretch };
        const angle = (s: RopeSpec, p: number): Float64Array => {
          const factor = s.scaling?.kind === 'linear' ? s.scaling.factor : 1;
          return Float64Array.from(
            { length: s.headDim / 2 },
            (_, j) => (p * s.base ** ((-2 * j) / s.headDim)) / factor,
          );
        };
        const worst = (p: number): number => Math.max(...angle(a, p).map((x, j) => Math.abs(x - angle(b, p)[j]!)));
        for (const { rad, position } of compareRope(side(a), side(b), [1]).apart) {
          if (position === undefined) continue;
          assert.ok(
            worst(position) > rad * (1 - 1e-9) && worst(position - 1) <= rad * (1 + 1e-9),
            `${rad} rad at ${position}`,
          );
        }
      }),
      drawn(60),
    );
  });
});
