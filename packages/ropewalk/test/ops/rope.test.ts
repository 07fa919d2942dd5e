import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { drawn } from '../../../../test/support/size.js';
import { f64Tensor, floats } from '../../../../test/support/tensors.js';
import type { FloatDtype } from '../../src/core/dtypes.js';
import { type Tensor, tensorFrom, zeros } from '../../src/core/tensor.js';
import { bindRope, type RopeLayout } from '../../src/ops/rope/call.js';
import { type RopeScaling, ropeFrequencies } from '../../src/ops/rope/frequencies.js';
import { type Pairing, type PlanRopeOptions, planRope, planRopeWithTable } from '../../src/ops/rope/plan.js';
import { ropeReference } from '../../src/reference/rope.js';

type Options = Omit<PlanRopeOptions, 'headDim'>;

/** Rotates a fresh copy with f64 tables, so that properties hold to the rounding of float64. */
function rotate(x: Tensor<FloatDtype>, options: Options, layout: RopeLayout = 'bsnh'): Tensor<FloatDtype> {
  const out = zeros(x.dtype, x.shape);
  ropeReference(bindRope(planRope({ tableDtype: 'f64', headDim: x.shape.at(-1)!, ...options }), x, out, layout));
  return out;
}

const PAIRINGS: readonly Pairing[] = ['interleaved', 'half', 'interleaved-to-half'];
const pairing = fc.constantFrom(...PAIRINGS);
const position = fc.integer({ min: -4096, max: 4096 });
const dot = (a: ArrayLike<number>, b: ArrayLike<number>): number =>
  Array.from(a).reduce((sum, v, i) => sum + v * b[i]!, 0);
const near = (got: ArrayLike<number>, want: ArrayLike<number>, tolerance: number): void => {
  assert.equal(got.length, want.length);
  for (let i = 0; i < want.length; i++)
    assert.ok(Math.abs(got[i]! - want[i]!) <= tolerance, `[${i}] got ${got[i]}, want ${want[i]}`);
};

describe('rope, by hand', () => {
  // One pair at position 1 and base anything: the angle is exactly 1 radian.
  const c = Math.cos(1);
  const s = Math.sin(1);
  test('the formula, one pair: y0 = x0·cos − x1·sin, y1 = x0·sin + x1·cos', () => {
    near(
      floats(rotate(f64Tensor([3, 5], [1, 1, 2]), { positions: [1], pairing: 'half', base: 10000 })),
      [3 * c - 5 * s, 3 * s + 5 * c],
      1e-15,
    );
  });

  test('where pairs are: window of 4 from 2 in a head of 8', () => {
    const x = f64Tensor([1, 2, 3, 4, 5, 6, 7, 8], [1, 1, 8]);
    const a1 = 1 / 100; // base 10000, second pair of rotary_dim 4
    const turn = (x0: number, x1: number, angle: number): [number, number] => [
      x0 * Math.cos(angle) - x1 * Math.sin(angle),
      x0 * Math.sin(angle) + x1 * Math.cos(angle),
    ];
    const window = { positions: [1], base: 10000, rotaryDim: 4, rotaryOffset: 2 };
    const [p0, p1] = turn(3, 4, 1);
    const [p2, p3] = turn(5, 6, a1);
    near(floats(rotate(x, { ...window, pairing: 'interleaved' })), [1, 2, p0, p1, p2, p3, 7, 8], 1e-14);
    near(floats(rotate(x, { ...window, pairing: 'interleaved-to-half' })), [1, 2, p0, p2, p1, p3, 7, 8], 1e-14);
    const [q0, q2] = turn(3, 5, 1);
    const [q1, q3] = turn(4, 6, a1);
    near(floats(rotate(x, { ...window, pairing: 'half' })), [1, 2, q0, q1, q2, q3, 7, 8], 1e-14);
  });

  test('vision: pair distance n_dims, exponents restart in each section', () => {
    const positions = Int32Array.of(1, 1, 0, 0); // t = h = 1, w = e = 0: [axes = 4, seq = 1]
    const y = floats(
      rotate(f64Tensor([1, 1, 1, 1, 0, 0, 0, 0], [1, 1, 8]), {
        positions,
        base: 10000,
        pairing: 'vision',
        axes: { rule: 'vision', sections: [2, 2, 0, 0] },
      }),
    );
    const slow = 10000 ** (-2 / 4);
    near(y, [1, slow, 1, slow].map(Math.cos).concat([1, slow, 1, slow].map(Math.sin)), 1e-15);
  });

  test('dimensions outside the window are copied bit for bit, NaN payloads too', () => {
    const bits = Uint32Array.of(0x7fa00001, 0x3f800000, 0x3f800000, 0xffc00123);
    const x = tensorFrom(new Float32Array(bits.buffer), { shape: [1, 1, 4] });
    const y = rotate(x as Tensor<'f32'>, {
      positions: [7],
      pairing: 'half',
      base: 10000,
      rotaryDim: 2,
      rotaryOffset: 1,
    });
    const got = new Uint32Array((y.storage.host as Float32Array).buffer);
    assert.deepEqual([got[0], got[3]], [bits[0], bits[3]]);
    assert.notEqual(got[1], bits[1]);
  });
});

describe('rope, properties', () => {
  const vector = (n: number) => fc.array(fc.double({ min: -2, max: 2, noNaN: true }), { minLength: n, maxLength: n });

  test('keeps the norm', () => {
    fc.assert(
      fc.property(vector(12), position, pairing, (x, p, kind) => {
        const y = floats(rotate(f64Tensor(x, [1, 1, 12]), { positions: [p], pairing: kind, base: 10000 }));
        near([dot(y, y)], [dot(x, x)], 1e-13 * (1 + dot(x, x)));
      }),
      drawn(),
    );
  });

  test('⟨R(m)q, R(n)k⟩ depends on m − n alone', () => {
    fc.assert(
      fc.property(vector(8), vector(8), position, position, position, pairing, (q, k, m, n, shift, kind) => {
        const score = (a: number, b: number): number =>
          dot(
            floats(rotate(f64Tensor(q, [1, 1, 8]), { positions: [a], pairing: kind, base: 500 })),
            floats(rotate(f64Tensor(k, [1, 1, 8]), { positions: [b], pairing: kind, base: 500 })),
          );
        // Angles reach 8192 radians, where float64 holds them to 9e-13.
        near([score(m + shift, n + shift)], [score(m, n)], 4e-11);
      }),
      drawn(),
    );
  });

  test('R(a)R(b) = R(a + b)', () => {
    fc.assert(
      fc.property(vector(8), position, position, fc.constantFrom<Pairing>('interleaved', 'half'), (x, a, b, kind) => {
        const options = { pairing: kind, base: 10000 };
        const once = rotate(f64Tensor(x, [1, 1, 8]), { positions: [a + b], ...options });
        const twice = rotate(rotate(f64Tensor(x, [1, 1, 8]), { positions: [a], ...options }), {
          positions: [b],
          ...options,
        });
        near(floats(twice), floats(once), 1e-11);
      }),
      drawn(),
    );
  });

  test('backward ∘ forward = identity at magnitude 1, and the transpose at any', () => {
    fc.assert(
      fc.property(
        vector(12),
        vector(12),
        position,
        pairing,
        fc.double({ min: 0.5, max: 2, noNaN: true }),
        (x, g, p, kind, attentionFactor) => {
          const options = { positions: [p], pairing: kind, base: 10000, rotaryDim: 8, rotaryOffset: 2 };
          const there = rotate(f64Tensor(x, [1, 1, 12]), options);
          near(floats(rotate(there, { ...options, direction: 'backward' })), x, 1e-14 * 4);
          // ⟨R x, g⟩ = ⟨x, Rᵀ g⟩
          const forward = floats(rotate(f64Tensor(x, [1, 1, 12]), { ...options, attentionFactor }));
          const backward = floats(
            rotate(f64Tensor(g, [1, 1, 12]), { ...options, attentionFactor, direction: 'backward' }),
          );
          near([dot(forward, g)], [dot(x, backward)], 1e-12);
        },
      ),
      drawn(),
    );
  });

  test('strided = contiguous, in every dimension, batch by batch', () => {
    const dtypes = fc.constantFrom<FloatDtype>('f64', 'f32', 'f16', 'bf16');
    fc.assert(
      fc.property(
        dtypes,
        fc.constantFrom<Pairing>('interleaved', 'half'),
        fc.integer({ min: 0, max: 3 }),
        fc.boolean(),
        (dtype, kind, pad, perBatch) => {
          const [batch, seq, heads, dim] = [2, 3, 2, 6];
          const rowStride = dim * 2 + pad;
          const room = batch * seq * heads * rowStride;
          const data = zeros(dtype, [room]);
          const values = Float64Array.from({ length: room }, (_, n) => Math.sin(n + pad));
          const filled = f64Tensor(values, [room], dtype);
          const strided = tensorFrom(filled.storage.host!, {
            dtype,
            shape: [batch, seq, heads, dim],
            strides: [seq * heads * rowStride, rowStride, seq * rowStride, 2],
          });
          const positions = perBatch
            ? tensorFrom(Int32Array.of(0, 5, 9, -3, 8191, 2), { shape: [2, 3] })
            : Int32Array.of(4, 77, 1);
          const plan = planRope({ positions, pairing: kind, base: 10000, rotaryDim: 4, headDim: dim });
          const dense = zeros(dtype, strided.shape);
          ropeReference(bindRope(plan, strided.contiguous(), dense));
          const out = tensorFrom(data.storage.host!, { dtype, shape: strided.shape, strides: strided.strides });
          ropeReference(bindRope(plan, strided, out));
          assert.deepEqual(out.read(), dense.read());
          // In place, by head-major layout, and bit-equal again.
          ropeReference(bindRope(plan, strided.permute([0, 2, 1, 3]), strided.permute([0, 2, 1, 3]), 'bnsh'));
          assert.deepEqual(strided.read(), dense.read());
          // The gaps between the elements of out were not touched.
          const touched = new Set<number>();
          for (let n = 0; n < room; n++) if (data.storage.host![n] !== 0) touched.add(n);
          assert.ok(touched.size <= out.size);
        },
      ),
      drawn(60),
    );
  });

  test('a scalar position counts up; 0 tokens and 1 token work', () => {
    const x = f64Tensor(
      Array.from({ length: 24 }, (_, n) => n),
      [3, 1, 8],
    );
    const options = { pairing: 'half', base: 10000 } as const;
    assert.deepEqual(
      floats(rotate(x, { positions: 40, seqLen: 3, ...options })),
      floats(rotate(x, { positions: [40, 41, 42], ...options })),
    );
    assert.equal(rotate(zeros('f32', [0, 4, 8]), { positions: [], ...options }).size, 0);
  });

  test('M-RoPE with one position on all axes is plain RoPE', () => {
    const x = f64Tensor(
      Array.from({ length: 16 }, (_, n) => Math.cos(n)),
      [1, 1, 16],
    );
    const plain = floats(rotate(x, { positions: [123], pairing: 'half', base: 10000 }));
    for (const rule of ['sections', 'interleaved', 'interleaved-ggml'] as const) {
      const axes = { rule, sections: [3, 3, 2, 0] };
      assert.deepEqual(floats(rotate(x, { positions: 123, seqLen: 1, pairing: 'half', base: 10000, axes })), plain);
    }
  });

  test('interleaved M-RoPE: what h and w leave goes to e in ggml, to t in HuggingFace', () => {
    // Sections 24+20+20 of 64 pairs: pairs 61 and 62 are the ones that differ.
    const positions = (e: number) => Int32Array.of(1000, 200, 30, e); // t, h, w, e
    const x = f64Tensor(
      Array.from({ length: 128 }, (_, i) => (i < 64 ? 1 : 0)),
      [1, 1, 128],
    );
    const run = (rule: 'interleaved' | 'interleaved-ggml', e: number) =>
      floats(
        rotate(x, { positions: positions(e), pairing: 'half', base: 5e6, axes: { rule, sections: [24, 20, 20, 0] } }),
      );
    const differ = (a: ArrayLike<number>, b: ArrayLike<number>) =>
      Array.from(a)
        .flatMap((v, i) => (v !== b[i] ? [i % 64] : []))
        .filter((v, n, all) => all.indexOf(v) === n);
    assert.deepEqual(differ(run('interleaved-ggml', 0), run('interleaved-ggml', 77)), [61, 62]);
    assert.deepEqual(differ(run('interleaved', 0), run('interleaved', 77)), []);
    assert.deepEqual(differ(run('interleaved', 0), run('interleaved-ggml', 0)), [61, 62]);
  });

  test('positions reach from -2^31 to 2^31 - 1', () => {
    const x = f64Tensor([1, 0], [1, 1, 2]);
    for (const p of [2 ** 31 - 1, -(2 ** 31)]) {
      near(floats(rotate(x, { positions: [p], pairing: 'half', base: 10000 })), [Math.cos(p), Math.sin(p)], 1e-15);
    }
  });
});

describe('frequencies', () => {
  const dim = 64;
  const freq = (scaling: RopeScaling, base = 10000) => ropeFrequencies({ rotaryDim: dim, base, scaling });
  const plain = freq({ kind: 'none' }).invFreq;

  test('none: base^(−2j/dim); freqFactors divide; frequencyDim is the denominator', () => {
    near(
      plain,
      Array.from({ length: dim / 2 }, (_, j) => 10000 ** ((-2 * j) / dim)),
      0,
    );
    near(ropeFrequencies({ rotaryDim: 4, base: 100, freqFactors: [2, 4] }).invFreq, [1 / 2, 0.1 / 4], 1e-17);
    near(ropeFrequencies({ rotaryDim: 4, base: 100, frequencyDim: 8 }).invFreq, [1, 100 ** -0.25], 1e-16);
  });

  test('linear divides all; dynamic NTK leaves the original context alone', () => {
    near(
      freq({ kind: 'linear', factor: 4 }).invFreq,
      plain.map((f) => f / 4),
      0,
    );
    near(freq({ kind: 'dynamicNtk', factor: 2, originalContext: 4096, context: 4096 }).invFreq, plain, 0);
    const longer = freq({ kind: 'dynamicNtk', factor: 2, originalContext: 4096, context: 8192 }).invFreq;
    near([longer[0]!], [1], 0);
    // base · (2·2 − 1)^(64/62)
    near([longer[1]!], [(10000 * 3 ** (64 / 62)) ** (-2 / 64)], 1e-15);
  });

  test('llama3: fast pairs kept, slow pairs divided, monotone between', () => {
    const scaled = freq(
      { kind: 'llama3', factor: 8, lowFreqFactor: 1, highFreqFactor: 4, originalContext: 8192 },
      500000,
    ).invFreq;
    const base = freq({ kind: 'none' }, 500000).invFreq;
    const ratio = scaled.map((f, j) => f / base[j]!);
    assert.equal(ratio[0], 1);
    near([ratio.at(-1)!], [1 / 8], 1e-15);
    for (let j = 1; j < ratio.length; j++) assert.ok(ratio[j]! <= ratio[j - 1]! + 1e-15);
    assert.ok(
      ratio.some((r) => r > 0.2 && r < 0.9),
      'a step between',
    );
  });

  test('yarn: kept below the ramp, divided above; magnitude 0.1·ln f + 1; DeepSeek’s two mscales; attnFactor multiplies', () => {
    const yarn = { kind: 'yarn', factor: 4, originalContext: 4096 } as const;
    const scaled = ropeFrequencies({ rotaryDim: 128, base: 10000, scaling: yarn });
    const base = ropeFrequencies({ rotaryDim: 128, base: 10000 }).invFreq;
    const ratio = scaled.invFreq.map((f, j) => f / base[j]!);
    // Edges 20 and 46.
    near([ratio[20]!, ratio[46]!, ratio[63]!], [1, 0.25, 0.25], 1e-15);
    near([ratio[33]!], [0.25 * (1 - 0.5) + 0.5], 1e-15);
    near([scaled.attentionFactor], [0.1 * Math.log(4) + 1], 1e-15);
    const magnitude = (more: object) =>
      ropeFrequencies({ rotaryDim: 128, base: 10000, scaling: { ...yarn, ...more } }).attentionFactor;
    near([magnitude({ mscale: 0.7, mscaleAllDim: 1 })], [(0.07 * Math.log(4) + 1) / (0.1 * Math.log(4) + 1)], 1e-15);
    near([magnitude({ attnFactor: 2 })], [2 * (0.1 * Math.log(4) + 1)], 1e-15);
    assert.equal(magnitude({ extFactor: 0 }), 1);
    // truncate = false keeps fractional edges, so some pair differs (gpt-oss).
    const loose = ropeFrequencies({
      rotaryDim: 64,
      base: 150000,
      scaling: { ...yarn, factor: 32, truncate: false },
    }).invFreq;
    const tight = ropeFrequencies({ rotaryDim: 64, base: 150000, scaling: { ...yarn, factor: 32 } }).invFreq;
    assert.ok(loose.some((f, j) => f !== tight[j]));
  });

  test('longrope: short factors up to the original context, long ones beyond; magnitude √(1 + ln f / ln L)', () => {
    const half = dim / 2;
    const longrope = {
      kind: 'longrope',
      shortFactor: new Array(half).fill(1),
      longFactor: Array.from({ length: half }, (_, j) => 1 + j),
      originalContext: 4096,
      factor: 32,
    } as const;
    near(freq({ ...longrope, context: 4096 }).invFreq, plain, 0);
    near(
      freq({ ...longrope, context: 4097 }).invFreq,
      plain.map((f, j) => f / (1 + j)),
      1e-17,
    );
    near([freq({ ...longrope, context: 4097 }).attentionFactor], [Math.sqrt(1 + Math.log(32) / Math.log(4096))], 1e-15);
  });

  test('proportional: identity past the rotated pairs', () => {
    const scaled = freq({ kind: 'proportional', rotatedPairs: 8 }).invFreq;
    near(scaled.slice(0, 8), plain.slice(0, 8), 0);
    assert.ok(scaled.slice(8).every((f) => f === 0));
  });
});

describe('recipes', () => {
  test('hf-f32 and ggml-f32 stay near float64 at small positions and leave it at large ones', () => {
    const table = (recipe: 'float64' | 'hf-f32' | 'ggml-f32', p: number) =>
      planRope({ positions: [p], headDim: 128, pairing: 'half', base: 10000, recipe }).table.cos;
    const worst = (recipe: 'hf-f32' | 'ggml-f32', p: number) =>
      Math.max(...table(recipe, p).map((c, j) => Math.abs(c - table('float64', p)[j]!)));
    // Measured on the published formulas in numpy: 511 → 1.1e-5 and 3.9e-5; 131071 → 3.2e-3 and 1.2e-2.
    for (const [recipe, near511, near131071] of [
      ['hf-f32', 1.1e-5, 3.2e-3],
      ['ggml-f32', 3.9e-5, 1.2e-2],
    ] as const) {
      assert.ok(
        worst(recipe, 511) > near511 / 4 && worst(recipe, 511) < near511 * 4,
        `${recipe} at 511: ${worst(recipe, 511)}`,
      );
      assert.ok(
        worst(recipe, 131071) > near131071 / 4 && worst(recipe, 131071) < near131071 * 4,
        `${recipe} at 131071: ${worst(recipe, 131071)}`,
      );
    }
  });

  test('a recipe refuses what its peer lacks', () => {
    const options = { positions: [1], headDim: 8, pairing: 'half', base: 10000 } as const;
    assert.throws(
      () =>
        planRope({
          ...options,
          recipe: 'ggml-f32',
          scaling: { kind: 'llama3', factor: 8, lowFreqFactor: 1, highFreqFactor: 4, originalContext: 8192 },
        }),
      {
        code: 'UNSUPPORTED',
        message:
          'rope: recipe: ggml-f32 cannot compute scaling llama3. llama.cpp expresses it as freq_factors: give those.',
      },
    );
    assert.throws(() => planRope({ ...options, recipe: 'hf-f32', freqFactors: [1, 1, 1, 1] }), { code: 'UNSUPPORTED' });
  });
});

describe('refusals', () => {
  const base = { positions: [0, 1], headDim: 80, pairing: 'half', base: 10000 } as const;
  const x = zeros('f32', [2, 1, 80]);
  const plan = planRope(base);
  const table = { rows: 2, pairs: 4, cos: new Float32Array(8), sin: new Float32Array(8) };
  const cases: [string, () => unknown, string, string | RegExp][] = [
    [
      'odd rotaryDim',
      () => planRope({ ...base, rotaryDim: 21 }),
      'RANGE',
      'rope: rotary_dim: expected an even integer in [2, head_dim=80], got 21',
    ],
    [
      'window past the head',
      () => planRope({ ...base, rotaryDim: 40, rotaryOffset: 42 }),
      'RANGE',
      'rope: rotary_offset: expected an integer in [0, head_dim - rotary_dim = 40], got 42',
    ],
    [
      'no pairing',
      () => planRope({ ...base, pairing: undefined as never }),
      'UNSUPPORTED',
      'rope: pairing: expected interleaved, half, vision or interleaved-to-half, got none',
    ],
    ['base 0', () => planRope({ ...base, base: 0 }), 'RANGE', 'rope: base: expected a finite number > 0, got 0'],
    [
      'unknown scaling',
      () => planRope({ ...base, scaling: { kind: 'ntk' } as never }),
      'UNSUPPORTED',
      /rope: scaling\.kind: expected none, linear, .* got "ntk"/,
    ],
    [
      'dynamic NTK with exponents over 2',
      () =>
        planRope({
          ...base,
          frequencyDim: 2,
          scaling: { kind: 'dynamicNtk', factor: 2, originalContext: 64, context: 128 },
        }),
      'RANGE',
      'rope: frequency_dim: expected more than 2, as dynamic NTK divides by frequency_dim - 2, got 2',
    ],
    [
      'too few freqFactors',
      () => planRope({ ...base, freqFactors: [1] }),
      'SHAPE',
      'rope: freq_factors: expected at least rotary_dim / 2 = 40 values, got [1]',
    ],
    [
      'position past int32',
      () => planRope({ ...base, positions: [0, 2 ** 31] }),
      'RANGE',
      'rope: positions[1]: expected an integer in [-2^31, 2^31 - 1], got 2147483648',
    ],
    [
      'half a position',
      () => planRope({ ...base, positions: [0.5, 1] }),
      'RANGE',
      /positions\[0\]: expected an integer/,
    ],
    [
      'float positions',
      () => planRope({ ...base, positions: Float32Array.of(1, 2) }),
      'DTYPE',
      'rope: positions: expected an integer dtype, got "f32"',
    ],
    [
      'scalar position without seqLen',
      () => planRope({ ...base, positions: 3 }),
      'RANGE',
      'rope: seq_len: a scalar position needs seq_len, the number of tokens',
    ],
    [
      'axes without enough positions',
      () => planRope({ ...base, axes: { rule: 'sections', sections: [20, 10, 10] } }),
      'SHAPE',
      'rope: positions: expected a multiple of 3 integers, axis by axis, got 2',
    ],
    [
      'vision without axes',
      () => planRope({ ...base, pairing: 'vision' }),
      'UNSUPPORTED',
      'rope: axes: expected rule vision with sections, as pairing is vision, got none',
    ],
    [
      'wrong head_dim',
      () => bindRope(plan, zeros('f32', [2, 1, 64]), zeros('f32', [2, 1, 64])),
      'SHAPE',
      'rope: x: expected head_dim 80 in the last dimension, got [2, 1, 64]',
    ],
    [
      'wrong number of tokens',
      () => bindRope(plan, zeros('f32', [3, 1, 80]), zeros('f32', [3, 1, 80])),
      'SHAPE',
      "rope: x: expected 2 tokens, as the plan's positions have, got [3, 1, 80]",
    ],
    [
      'integers',
      () => bindRope(plan, zeros('i32', [2, 1, 80]), x),
      'DTYPE',
      'rope: x: expected f64, f32, f16 or bf16, got "i32"',
    ],
    [
      'another dtype out',
      () => bindRope(plan, x, zeros('f16', [2, 1, 80])),
      'DTYPE',
      'rope: out: expected dtype f32, got "f16"',
    ],
    [
      'two dimensions',
      () => bindRope(plan, zeros('f32', [2, 80]), zeros('f32', [2, 80])),
      'SHAPE',
      /three dimensions \[seq, head, head_dim\], or four with batch in front/,
    ],
    [
      'a shifted view of x as out',
      () => {
        const room = new Float32Array(161);
        bindRope(plan, tensorFrom(room, { shape: [2, 1, 80] }), tensorFrom(room, { shape: [2, 1, 80], offset: 1 }));
      },
      'ALIAS',
      'rope: out: it shares some of its memory with x. Give it memory of its own, or exactly x itself.',
    ],
    [
      'in place where pairs move',
      () => bindRope(planRope({ ...base, pairing: 'interleaved-to-half' }), x, x),
      'ALIAS',
      /it shares all of its memory with x/,
    ],
    [
      'table row outside',
      () => planRopeWithTable({ headDim: 8, pairing: 'half', table, seqLen: 2, tableRows: [0, 2] }),
      'RANGE',
      'rope: position 1: expected a row of the table, in [0, 1], got 2. Build a longer table, or check the positions.',
    ],
    [
      'table too narrow',
      () => planRopeWithTable({ headDim: 80, pairing: 'half', table, seqLen: 2, tableRows: [0, 1] }),
      'SHAPE',
      /rope: table: expected cos and sin of shape \[rows, rotary_dim \/ 2 = 40\], got \[2, 4\]/,
    ],
  ];
  for (const [name, call, code, message] of cases)
    test(name, () => void assert.throws(call, { name: 'RopewalkError', code, message }));
});
