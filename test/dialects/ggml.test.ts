import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { nmse } from '../../src/conformance/compare.js';
import { type GgmlRopeParams, ropeByFormula } from '../../src/conformance/ggml-formula.js';
import * as cann from '../../src/dialects/cann.js';
import * as ggml from '../../src/dialects/ggml.js';
import { referenceRunner } from '../../src/reference/index.js';
import { suitePasses } from '../support/suites.js';
import { f64Tensor, floats, seeded } from '../support/tensors.js';

const rw = referenceRunner();

describe('golden', () => suitePasses('ggml'));

/** A random call: parameters, data and positions. */
const call = fc
  .record({
    mode: fc.constantFrom(0, 2, 8, 24, 40),
    heads: fc.integer({ min: 1, max: 3 }),
    tokens: fc.integer({ min: 0, max: 3 }),
    batch: fc.integer({ min: 1, max: 2 }),
    pairs: fc.integer({ min: 2, max: 7 }),
    tail: fc.integer({ min: 0, max: 3 }),
    offset: fc.integer({ min: 0, max: 3 }),
    ext_factor: fc.constantFrom(0, 1, 0.5),
    freq_scale: fc.constantFrom(1, 0.25, 1.4245),
    attn_factor: fc.constantFrom(1, 1.4245),
    freq_base: fc.constantFrom(10000, 500000),
    factors: fc.boolean(),
    forward: fc.boolean(),
    position: fc.infiniteStream(fc.integer({ min: -1000, max: 1048575 })),
    sections: fc.constantFrom([1, 1, 1, 0], [2, 1, 1, 1], [1, 2, 0, 0], [1, 1, 2, 2]),
  })
  .map((c) => {
    const vision = c.mode === 24;
    const n_dims = vision ? 2 * Math.ceil(c.pairs / 2) : 2 * c.pairs;
    const n_offs = vision ? 0 : c.offset;
    const ne0 = vision ? 2 * n_dims : n_offs + n_dims + c.tail;
    const params: GgmlRopeParams = {
      ne: [ne0, c.heads, c.tokens, c.batch],
      n_dims,
      mode: c.mode,
      sections: c.sections.reduce<number>((sum, n) => sum + n, 0) > ne0 ? [1, 1, 1, 0] : c.sections,
      n_ctx_orig: 4096,
      freq_base: c.freq_base,
      freq_scale: c.freq_scale,
      ext_factor: c.ext_factor,
      attn_factor: c.attn_factor,
      beta_fast: 32,
      beta_slow: 1,
      n_offs,
      forward: c.forward,
    };
    const pos = Int32Array.from({ length: c.tokens * (c.mode >= 8 ? 4 : 1) }, () => c.position.next().value!);
    const x = Float32Array.from({ length: ne0 * c.heads * c.tokens * c.batch }, (_, i) => Math.sin(i * 3 + 1));
    const factors = c.factors ? Float32Array.from({ length: ne0 }, (_, j) => 0.9 + (j % 5) / 20) : undefined;
    return { params, pos, x, factors };
  });

type Call = { params: GgmlRopeParams; pos: Int32Array; x: Float32Array; factors: Float32Array | undefined };

function runGgml({ params: p, pos, x, factors }: Call, inplace = false): Float64Array {
  const a = ggml.ggmlTensor('f32', x.slice(), { ne: p.ne });
  const b = ggml.ggmlTensor('i32', pos, { ne: [pos.length] });
  const c = factors ? ggml.ggmlTensor('f32', factors, { ne: [factors.length] }) : null;
  const tail = [
    p.n_ctx_orig,
    p.freq_base,
    p.freq_scale,
    p.ext_factor,
    p.attn_factor,
    p.beta_fast,
    p.beta_slow,
    { n_offs: p.n_offs },
  ] as const;
  if (p.mode >= 8) {
    const f = inplace ? ggml.ropeMultiInplace : p.forward ? ggml.ropeMulti : ggml.ropeMultiBack;
    return floats(f(rw, a, b, c, p.n_dims, p.sections, p.mode, ...tail).tensor);
  }
  const f = inplace ? ggml.ropeExtInplace : p.forward ? ggml.ropeExt : ggml.ropeExtBack;
  return floats(f(rw, a, b, c, p.n_dims, p.mode, ...tail).tensor);
}

describe('properties', () => {
  test('every call agrees with the formula; in place and out of place are the same bits', () => {
    fc.assert(
      fc.property(call, (one) => {
        const want = ropeByFormula(one.params, Float64Array.from(one.x), one.pos, one.factors);
        const got = runGgml(one);
        assert.ok(nmse(got, want) < 1e-13, `NMSE ${nmse(got, want)}`);
        if (one.params.forward) assert.deepEqual(runGgml(one, true), got);
      }),
      { ...seeded, numRuns: 400 },
    );
  });

  test('cann: the same call in [B, S, N, D] gives the same bits', () => {
    fc.assert(
      fc.property(call, (one) => {
        const { params: p, pos, x, factors } = one;
        if (p.n_offs !== 0) return;
        const src0 = f64Tensor(x, [p.ne[3], p.ne[2], p.ne[1], p.ne[0]], 'f32') as ReturnType<typeof f64Tensor> & { dtype: 'f32' };
        const dst = cann.rope(rw, {
          ...p,
          src0: src0 as never,
          pos: ggml.ggmlTensor('i32', pos, { ne: [pos.length] }).tensor.view([pos.length]),
          ...(factors ? { freq_factors: f64Tensor(factors, [factors.length], 'f32') as never } : {}),
        });
        assert.deepEqual(floats(dst), runGgml(one));
      }),
      seeded,
    );
  });

  test('views by nb in bytes: rows apart, heads and tokens exchanged', () => {
    const room = Float32Array.from({ length: 200 }, (_, i) => i);
    const view = ggml.ggmlTensor('f32', room, { ne: [4, 2, 3], nb: [4, 96, 32, 4], view_offs: 16 });
    assert.deepEqual([...floats(view.tensor)].slice(0, 8), [4, 5, 6, 7, 28, 29, 30, 31]);
    const b = ggml.ggmlTensor('i32', Int32Array.of(3, 1, 2), { ne: [3] });
    const dense = ggml.ggmlTensor('f32', Float32Array.from(floats(view.tensor)), { ne: [4, 2, 3] });
    assert.deepEqual(floats(ggml.rope(rw, view, b, 4, 2).tensor), floats(ggml.rope(rw, dense, b, 4, 2).tensor));
    const before = room.slice();
    ggml.ropeInplace(rw, view, b, 4, 2);
    assert.deepEqual(room.filter((v, i) => v !== before[i]).length, 24, 'only the view changed');
    assert.deepEqual(
      [dense.nb, dense.ne],
      [
        [4, 16, 32, 96],
        [4, 2, 3, 1],
      ],
    );
  });

  test('f16 is rotated wide and rounded once', () => {
    const a = ggml.ggmlTensor('f16', Uint16Array.of(0x3c00, 0x4000), { ne: [2] });
    const y = ggml.rope(rw, a, ggml.ggmlTensor('i32', Int32Array.of(1), { ne: [1] }), 2, 0);
    const [c, s] = [Math.fround(Math.cos(1)), Math.fround(Math.sin(1))];
    const want = f64Tensor([c - 2 * s, s + 2 * c], [2], 'f16');
    assert.deepEqual(y.tensor.read(), want.read());
  });
});

describe('aclnnRotaryPositionEmbedding', () => {
  const x = f64Tensor([1, 2, 3, 4], [1, 1, 1, 4], 'f32') as never;
  const table = (...values: number[]) => f64Tensor(values, [1, 1, 1, 4], 'f32') as never;
  const run = (mode: number, cos: number[], sin: number[]) => [
    ...floats(cann.aclnnRotaryPositionEmbedding(rw, x, table(...cos), table(...sin), mode)),
  ];
  test('four modes, by hand', () => {
    // A quarter turn of pair 0 and none of pair 1: (x0, x1) → (−x1, x0).
    assert.deepEqual(run(0, [0, 1, 0, 1], [1, 0, 1, 0]), [-3, 2, 1, 4]);
    assert.deepEqual(run(1, [0, 0, 1, 1], [1, 1, 0, 0]), [-2, 1, 3, 4]);
    assert.deepEqual(run(2, [0, 0, 1, 1], [1, 1, 0, 0]), [-2, 1, 3, 4]);
    assert.deepEqual(run(3, [0, 1, 0, 1], [1, 0, 1, 0]), [-2, 3, 1, 4]);
  });
  test('refusals', () => {
    assert.throws(() => run(0, [0, 1, 0.5, 1], [1, 0, 1, 0]), {
      code: 'UNSUPPORTED',
      message: /cos: expected the same value at both places of a pair, got \[0, 0\.5\]\. A table like that scales and shears/,
    });
    assert.throws(() => run(4, [0, 1, 0, 1], [1, 0, 1, 0]), {
      code: 'UNSUPPORTED',
      message: /mode: expected 0 \(half\), 1 \(interleave\)/,
    });
  });
});

describe('refusals', () => {
  const b = ggml.ggmlTensor('i32', Int32Array.of(0, 1), { ne: [2] });
  const a = ggml.ggmlZeros('f32', [80, 1, 2]);
  const ext = (n_dims: number, mode: number, freq_scale = 1, extras = {}) =>
    ggml.ropeExt(rw, a, b, null, n_dims, mode, 0, 10000, freq_scale, 0, 1, 32, 1, extras);
  const cases: [string, () => unknown, string, RegExp][] = [
    ['odd n_dims', () => ext(21, 2), 'RANGE', /ggml_rope: n_dims: expected an even integer in \[2, ne0=80\], got 21/],
    ['n_dims past ne0', () => ext(82, 2), 'RANGE', /n_dims: expected an even integer in \[2, ne0=80\], got 82/],
    [
      'mode 1',
      () => ext(80, 1),
      'UNSUPPORTED',
      /mode: expected 0 \(NORMAL\), 2 \(NEOX\), 8 \(MROPE\), 24 \(VISION\) or 40 \(IMROPE\), got 1/,
    ],
    [
      'a window past the head',
      () => ext(32, 2, 1, { n_offs: 64 }),
      'RANGE',
      /n_offs: expected an integer in \[0, ne0 - n_dims = 48\], got 64/,
    ],
    ['freq_scale 0', () => ext(80, 2, 0), 'RANGE', /freq_scale: expected a number > 0, got 0/],
    [
      'multi positions too few',
      () => ggml.ropeMulti(rw, a, b, null, 80, [20, 10, 10, 0], 8, 0, 10000, 1, 0, 1, 32, 1),
      'SHAPE',
      /b: expected 4 · ne2 = 8 positions, axis by axis, got 2/,
    ],
    [
      'multi by ropeExt’s modes',
      () => ggml.ropeMulti(rw, a, b, null, 80, [20, 10, 10, 0], 2, 0, 10000, 1, 0, 1, 32, 1),
      'UNSUPPORTED',
      /Use ropeExt for modes 0 and 2\./,
    ],
    [
      'no section',
      () => ggml.ropeMulti(rw, a, ggml.ggmlZeros('i32', [8]), null, 80, [0, 0, 0, 40], 8, 0, 10000, 1, 0, 1, 32, 1),
      'RANGE',
      /sections: expected at least one pair for t, h or w/,
    ],
    [
      'vision with n_dims = ne0',
      () => ggml.ropeMulti(rw, a, ggml.ggmlZeros('i32', [8]), null, 80, [20, 20, 0, 0], 24, 0, 10000, 1, 0, 1, 32, 1),
      'RANGE',
      /n_dims: expected ne0 \/ 2 = 40 in VISION mode, got 80/,
    ],
    [
      'too few factors',
      () => ggml.ropeExt(rw, a, b, ggml.ggmlZeros('f32', [39]), 80, 2, 0, 10000, 1, 0, 1, 32, 1),
      'SHAPE',
      /c: expected at least 40 freq_factors, one for each pair, got 39/,
    ],
    ['a matrix of positions', () => ggml.rope(rw, a, ggml.ggmlZeros('i32', [1, 2]), 80, 2), 'SHAPE', /b: expected a vector/],
    [
      'nb that is no multiple',
      () => ggml.ggmlTensor('f32', new Float32Array(8), { ne: [2, 2], nb: [4, 6, 12, 12] }),
      'SHAPE',
      /nb: expected four multiples of 4 bytes/,
    ],
    [
      'head dims apart',
      () => ggml.rope(rw, ggml.ggmlTensor('f32', new Float32Array(16), { ne: [4, 1, 2], nb: [8, 32, 32, 64] }), b, 4, 2),
      'SHAPE',
      /a: expected nb0 = 4/,
    ],
    [
      'bf16',
      () => ggml.ggmlTensor('bf16' as never, new Uint16Array(4) as never, { ne: [4] }),
      'DTYPE',
      /ggml rotates no other type; bf16 goes through ropewalk itself\./,
    ],
    [
      'cann: three dimensions',
      () => cann.rope(rw, { src0: f64Tensor([1, 2], [1, 1, 2], 'f32') } as never),
      'SHAPE',
      /cann_rope: src0: expected \[B, S, N, D\]/,
    ],
  ];
  for (const [name, run, code, message] of cases) test(name, () => void assert.throws(run, { code, message }));
});

// The formula itself is a witness only while it shares nothing with the engine.
test('the second witness imports nothing', async () => {
  const { readFileSync } = await import('node:fs');
  assert.doesNotMatch(readFileSync(new URL('../../src/conformance/ggml-formula.ts', import.meta.url), 'utf8'), /^import/m);
});
