import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { nmse } from '@ropewalk/oracle';
import fc from 'fast-check';
import { type Tensor, tensorFrom, zeros } from 'ropewalk';
import { referenceRunner } from 'ropewalk/reference';
import { drawn } from '../../../test/support/size.js';
import { VECTORS } from '../../../test/support/suites.js';
import { f64Tensor, floats } from '../../../test/support/tensors.js';
import * as cann from '../src/cann/index.js';
import * as ggml from '../src/ggml.js';

const rw = referenceRunner();
const f32 = (values: ArrayLike<number>, shape: readonly number[]): Tensor<'f32'> =>
  f64Tensor(values, shape, 'f32') as Tensor<'f32'>;
const i32 = (values: ArrayLike<number>): Tensor<'i32'> => tensorFrom(Int32Array.from(values));

/** The arguments of the plainest call, without its tensors. */
const plain = {
  n_dims: 4,
  mode: 2,
  n_ctx_orig: 4096,
  freq_base: 10000,
  freq_scale: 1,
  ext_factor: 0,
  attn_factor: 1,
  beta_fast: 32,
  beta_slow: 1,
  forward: true,
};

describe('golden', () => {
  /** The fields of a case in vectors/ggml/manifest.json that this test reads. The parameters are ggml's. */
  type GoldenCase = typeof plain & {
    readonly name: string;
    readonly type: 'f32' | 'f16';
    readonly ne: [number, number, number, number];
    readonly sections: number[];
    readonly n_offs: number;
    readonly direction: 'forward' | 'backward';
    readonly inplace: boolean;
    readonly view: { readonly offset_bytes: number; readonly nb: number[] };
    readonly files: Record<'x' | 'pos' | 'freq_factors' | 'out', string | null>;
    readonly check: { readonly nmse_vs_f64: number };
  };
  const bytesOf = (file: string): ArrayBuffer => Uint8Array.from(readFileSync(join(VECTORS, 'ggml', file))).buffer;

  test('ggml’s vectors, dimensions in the order [B, S, N, D], views by strides in elements', () => {
    const { cases } = JSON.parse(readFileSync(join(VECTORS, 'ggml/manifest.json'), 'utf8')) as { cases: GoldenCase[] };
    let count = 0;
    for (const c of cases) {
      if (c.n_offs !== 0) continue; // The operator has no window.
      count++;
      const unit = c.type === 'f32' ? 4 : 2;
      const open = (file: string) =>
        c.type === 'f32' ? new Float32Array(bytesOf(file)) : new Uint16Array(bytesOf(file));
      const [D, N, S, B] = c.ne;
      const src0 = tensorFrom(open(c.files.x!), {
        dtype: c.type,
        shape: [B, S, N, D],
        strides: c.view.nb.map((bytes) => bytes / unit).reverse(),
        offset: c.view.offset_bytes / unit,
      });
      const {
        n_dims,
        mode,
        n_ctx_orig,
        freq_base,
        freq_scale,
        ext_factor,
        attn_factor,
        beta_fast,
        beta_slow,
        sections,
      } = c;
      const dst = cann.rope(rw, {
        src0,
        pos: tensorFrom(new Int32Array(bytesOf(c.files.pos!))),
        freq_factors: c.files.freq_factors ? tensorFrom(new Float32Array(bytesOf(c.files.freq_factors))) : null,
        ...{ n_dims, mode, n_ctx_orig, freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow, sections },
        forward: c.direction === 'forward',
        ...(c.inplace ? { dst: src0 } : {}),
      });
      assert.equal(dst === src0, c.inplace, c.name);
      const want = tensorFrom(open(c.files.out!), { dtype: c.type });
      const error = nmse(floats(dst), floats(want));
      assert.ok(error <= 1e-7 + c.check.nmse_vs_f64, `${c.name}: NMSE ${error}`);
    }
    assert.ok(count >= 90, `${count} cases`);
  });
});

describe('properties', () => {
  const dims = fc.record({
    B: fc.integer({ min: 0, max: 2 }),
    S: fc.integer({ min: 0, max: 3 }),
    N: fc.integer({ min: 1, max: 3 }),
  });
  const call = fc
    .record({
      dims,
      pairs: fc.integer({ min: 1, max: 7 }),
      tail: fc.integer({ min: 0, max: 3 }),
      mode: fc.constantFrom(0, 2, 8, 24, 40),
      ext_factor: fc.constantFrom(0, 1),
      freq_scale: fc.constantFrom(1, 0.25),
      attn_factor: fc.constantFrom(1, 1.25),
      factors: fc.boolean(),
      forward: fc.boolean(),
      start: fc.integer({ min: -100, max: 1000000 }),
    })
    .map(({ dims: { B, S, N }, pairs, tail, mode, factors, start, ...rest }) => {
      const n_dims = 2 * pairs;
      const D = mode === 24 ? 2 * n_dims : n_dims + 2 * tail;
      return {
        ...plain,
        ...rest,
        n_dims,
        mode,
        // The sections 1, 1, 0, 0 are the shortest round that fits every D here.
        sections: [1, 1, 0, 0],
        src0: f32(
          Array.from({ length: B * S * N * D }, (_, i) => Math.sin(i * 3 + 1)),
          [B, S, N, D],
        ),
        pos: i32(Array.from({ length: mode >= 8 ? 4 * S : S }, (_, n) => start + n * 7)),
        freq_factors: factors
          ? f32(
              Array.from({ length: D }, (_, j) => 0.9 + (j % 5) / 20),
              [D],
            )
          : null,
      };
    });

  test('the same call by ggml, dimensions reversed, gives the same bits', () => {
    fc.assert(
      fc.property(call, (c) => {
        const [D, N, S, B] = [...c.src0.shape].reverse() as [number, number, number, number];
        const a = ggml.ggmlTensor('f32', c.src0.read() as Float32Array, { ne: [D, N, S, B] });
        const b = ggml.ggmlFromTensor(c.pos);
        const factors = c.freq_factors && ggml.ggmlFromTensor(c.freq_factors);
        const tail = [
          c.n_ctx_orig,
          c.freq_base,
          c.freq_scale,
          c.ext_factor,
          c.attn_factor,
          c.beta_fast,
          c.beta_slow,
        ] as const;
        const y =
          c.mode >= 8
            ? (c.forward ? ggml.ropeMulti : ggml.ropeMultiBack)(
                rw,
                a,
                b,
                factors,
                c.n_dims,
                c.sections,
                c.mode,
                ...tail,
              )
            : (c.forward ? ggml.ropeExt : ggml.ropeExtBack)(rw, a, b, factors, c.n_dims, c.mode, ...tail);
        assert.deepEqual(floats(cann.rope(rw, c)), floats(y.tensor));
      }),
      drawn(),
    );
  });

  test('into a dst with holes: the same bits, and the holes untouched; in place: the same bits', () => {
    fc.assert(
      fc.property(call, (c) => {
        const want = floats(cann.rope(rw, c));
        const [B, S, N, D] = c.src0.shape as [number, number, number, number];
        const room = f32(new Float32Array(B * S * N * (D + 3)).fill(9), [B, S, N, D + 3]);
        const dst = room.slice(3, 1, D + 1);
        assert.equal(cann.rope(rw, { ...c, dst }), dst);
        assert.deepEqual(floats(dst), want);
        for (const [n, value] of floats(room).entries()) if (n % (D + 3) < 1 || n % (D + 3) > D) assert.equal(value, 9);
        assert.deepEqual(floats(cann.rope(rw, { ...c, dst: c.src0 })), want);
      }),
      drawn(100),
    );
  });

  test('backward undoes forward at magnitude 1', () => {
    fc.assert(
      fc.property(call, (one) => {
        const c = { ...one, ext_factor: 0, attn_factor: 1 };
        const back = cann.rope(rw, { ...c, src0: cann.rope(rw, { ...c, forward: true }), forward: false });
        assert.ok(nmse(floats(back), floats(c.src0)) < 1e-13);
      }),
      drawn(100),
    );
  });
});

/**
 * Computes the operator as CANN states it, element by element: y = x·cos + rotate(x)·sin.
 * Mode 3 first brings the even and the odd dimensions together; the result stays in that order.
 */
function byElement(mode: number, x: ArrayLike<number>, cos: ArrayLike<number>, sin: ArrayLike<number>): number[] {
  const D = x.length;
  const at = mode === 3 ? Array.from({ length: D }, (_, i) => x[i < D / 2 ? 2 * i : 2 * i - D + 1]!) : Array.from(x);
  const distance = [D / 2, 1, D / 4, D / 2][mode]!;
  return at.map((value, i) => {
    const isFirst = Math.floor(i / distance) % 2 === 0;
    return value * cos[i]! + (isFirst ? -at[i + distance]! : at[i - distance]!) * sin[i]!;
  });
}

describe('aclnnRotaryPositionEmbedding', () => {
  const x = f32([1, 2, 3, 4], [1, 1, 1, 4]);
  const table = (...values: number[]) => f32(values, [1, 1, 1, 4]);
  const run = (mode: number, cos: number[], sin: number[]) => [
    ...floats(cann.aclnnRotaryPositionEmbedding(rw, x, table(...cos), table(...sin), mode)),
  ];

  test('four modes, by hand', () => {
    // Pair 0 makes a quarter turn, (x0, x1) → (−x1, x0), and pair 1 none.
    assert.deepEqual(run(0, [0, 1, 0, 1], [1, 0, 1, 0]), [-3, 2, 1, 4]);
    assert.deepEqual(run(1, [0, 0, 1, 1], [1, 1, 0, 0]), [-2, 1, 3, 4]);
    assert.deepEqual(run(2, [0, 0, 1, 1], [1, 1, 0, 0]), [-2, 1, 3, 4]);
    assert.deepEqual(run(3, [0, 1, 0, 1], [1, 0, 1, 0]), [-2, 3, 1, 4]);
  });

  test('every mode and every broadcast of the tables agrees with the operator element by element', () => {
    const arbitrary = fc.record({
      mode: fc.constantFrom(0, 1, 2, 3),
      shape: fc.tuple(fc.integer({ min: 1, max: 3 }), fc.integer({ min: 1, max: 3 }), fc.integer({ min: 1, max: 3 })),
      kept: fc.tuple(fc.boolean(), fc.boolean(), fc.boolean()),
      quarters: fc.integer({ min: 1, max: 3 }),
    });
    fc.assert(
      fc.property(arbitrary, ({ mode, shape, kept, quarters }) => {
        const D = 4 * quarters;
        const tableShape = [...shape.map((size, d) => (kept[d] ? size : 1)), D];
        const values = (dims: readonly number[], f: (i: number) => number) =>
          f32(
            Float32Array.from({ length: dims.reduce((n, size) => n * size, 1) }, (_, i) => f(i)),
            dims,
          );
        const distance = [D / 2, 1, D / 4, D / 2][mode]!;
        // Both members of a pair get the value of the first one.
        const firstOf = (i: number) => (Math.floor((i % D) / distance) % 2 === 0 ? i : i - distance);
        const input = values([...shape, D], (i) => Math.sin(3 * i + 1));
        const cos = values(tableShape, (i) => Math.cos(firstOf(i) * 1.7));
        const sin = values(tableShape, (i) => Math.sin(firstOf(i) * 0.9) * 1.1);
        const got = floats(cann.aclnnRotaryPositionEmbedding(rw, input, cos, sin, mode));
        const [xs, cs, ss] = [floats(input), floats(cos), floats(sin)];
        const want = Float64Array.from(xs);
        for (let row = 0; row < xs.length / D; row++) {
          const index = [
            Math.floor(row / (shape[1] * shape[2])),
            Math.floor(row / shape[2]) % shape[1],
            row % shape[2],
          ];
          const from = index.reduce((at, n, d) => at * tableShape[d]! + (tableShape[d] === 1 ? 0 : n), 0) * D;
          const one = (array: Float64Array, start: number) => array.subarray(start, start + D);
          want.set(byElement(mode, one(xs, row * D), one(cs, from), one(ss, from)), row * D);
        }
        assert.deepEqual(got, Float64Array.from(Float32Array.from(want)));
      }),
      drawn(400),
    );
  });

  test('BNSD and SBND are BSND with its dimensions moved', () => {
    const [B, S, N, D] = [2, 3, 2, 8];
    const input = f32(
      Array.from({ length: B * S * N * D }, (_, i) => Math.sin(i + 1)),
      [B, S, N, D],
    );
    const angles = Array.from({ length: B * S * D }, (_, i) => (Math.floor(i / D) + 1) / (1 + (i % (D / 2))));
    const [cos, sin] = [f32(angles.map(Math.cos), [B, S, 1, D]), f32(angles.map(Math.sin), [B, S, 1, D])];
    const bsnd = cann.aclnnRotaryPositionEmbedding(rw, input, cos, sin, cann.ACLNN_ROTARY_MODE.half);
    for (const order of [
      [0, 2, 1, 3], // BNSD
      [1, 0, 2, 3], // SBND
    ]) {
      const moved = cann.aclnnRotaryPositionEmbedding(
        rw,
        input.permute(order),
        cos.permute(order),
        sin.permute(order),
        0,
      );
      assert.deepEqual(floats(moved), floats(bsnd.permute(order)));
    }
  });

  test('with ggml’s own angles in the tables, mode 0 is NEOX and mode 1 NORMAL, to the bit', () => {
    for (const [aclnn, mode] of [
      [0, 2],
      [1, 0],
    ] as const) {
      const input = f32([1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 1, 4]);
      const { table: t } = ggml.ropePlanFromGgml({
        ne: [4, 1, 2, 1],
        n_dims: 4,
        mode,
        positions: Int32Array.of(3, 40),
      });
      const wide = (rows: ArrayLike<number>) =>
        f32(
          Array.from(
            { length: 8 },
            (_, i) => rows[2 * Math.floor(i / 4) + (mode === 0 ? Math.floor((i % 4) / 2) : i % 2)]!,
          ),
          [1, 2, 1, 4],
        );
      const got = cann.aclnnRotaryPositionEmbedding(rw, input, wide(t.cos), wide(t.sin), aclnn);
      assert.deepEqual(floats(got), floats(cann.rope(rw, { ...plain, mode, src0: input, pos: i32([3, 40]) })));
    }
  });

  test('zeros of either sign are one value, and so are NaNs', () => {
    assert.deepEqual(run(0, [1, 1, 1, 1], [0, -0, -0, 0]), [1, 2, 3, 4]);
    assert.deepEqual(run(0, [Number.NaN, 1, Number.NaN, 1], [0, 0, 0, 0]), [Number.NaN, 2, Number.NaN, 4]);
  });

  const tables = (shape: number[]) =>
    cann.aclnnRotaryPositionEmbedding(rw, x, zeros('f32', shape), zeros('f32', shape), 0);
  const refusals: [string, () => unknown, string, RegExp][] = [
    [
      'a table that is no rotation',
      () => run(0, [0, 1, 0.5, 1], [1, 0, 1, 0]),
      'UNSUPPORTED',
      /cos: expected the same value at both dimensions of a pair, got \[0, 0\.5\]\. This table scales and shears/,
    ],
    [
      'sin in another mode’s order',
      () => run(0, [1, 1, 1, 1], [1, 1, 0, 0]),
      'UNSUPPORTED',
      /sin: expected the same value at both dimensions of a pair, got \[1, 0\]/,
    ],
    [
      'mode 4',
      () => run(4, [0, 1, 0, 1], [1, 0, 1, 0]),
      'UNSUPPORTED',
      /mode: expected 0 \(half\), 1 \(interleave\), 2 \(quarter\) or 3/,
    ],
    [
      'half-width tables',
      () => tables([1, 1, 1, 2]),
      'SHAPE',
      /cos: expected each dimension 1 or x's, of \[1,1,1,4\], and the last one D=4/,
    ],
    ['a table of two tokens', () => tables([1, 2, 1, 4]), 'SHAPE', /cos: expected each dimension 1 or x's/],
    ['three dimensions', () => tables([1, 1, 4]), 'SHAPE', /cos: expected each dimension 1 or x's/],
    [
      'D that has no quarters',
      () =>
        cann.aclnnRotaryPositionEmbedding(
          rw,
          zeros('f32', [1, 1, 1, 6]),
          zeros('f32', [1, 1, 1, 6]),
          zeros('f32', [1, 1, 1, 6]),
          2,
        ),
      'SHAPE',
      /x: expected a multiple of 4 as D in mode 2, got 6/,
    ],
    [
      'tables of another dtype',
      () => cann.aclnnRotaryPositionEmbedding(rw, x, zeros('f16', [1, 1, 1, 4]) as never, table(0, 0, 0, 0), 0),
      'DTYPE',
      /cos: expected dtype f32, got "f16"/,
    ],
    [
      'no sin',
      () => cann.aclnnRotaryPositionEmbedding(rw, x, table(1, 1, 1, 1), undefined as never, 0),
      'DTYPE',
      /sin: expected a tensor/,
    ],
  ];
  for (const [name, refused, code, message] of refusals)
    test(`refusal: ${name}`, () => void assert.throws(refused, { code, message }));
});

describe('refusals', () => {
  const room = f32(new Float32Array(32), [1, 2, 2, 8]);
  const good = { ...plain, src0: f32(new Float32Array(16), [1, 2, 2, 4]), pos: i32([3, 40]) };
  const run = (change: object) => () => cann.rope(rw, { ...good, ...change });
  const memory = new ArrayBuffer(64);
  const cases: [string, () => unknown, string, RegExp][] = [
    ['no src0', run({ src0: undefined }), 'DTYPE', /^cann_rope: src0: expected a tensor, got none/],
    [
      'three dimensions',
      run({ src0: f32([1, 2], [1, 1, 2]) }),
      'SHAPE',
      /^cann_rope: src0: expected \[B, S, N, D\], got \[1, 1, 2\]/,
    ],
    ['bf16', run({ src0: zeros('bf16', [1, 2, 2, 4]) }), 'DTYPE', /^cann_rope: src0: expected F32 or F16, got "bf16"/],
    ['i64 positions', run({ pos: zeros('i64', [2]) }), 'DTYPE', /^cann_rope: pos: expected dtype i32, got "i64"/],
    ['too few positions', run({ pos: i32([3]) }), 'SHAPE', /^cann_rope: pos: expected S = 2 positions, got 1/],
    [
      'one axis in a multi mode',
      run({ mode: 8, sections: [1, 1, 0, 0] }),
      'SHAPE',
      /^cann_rope: pos: expected 4 · S = 8 positions, axis by axis, got 2/,
    ],
    ['odd n_dims', run({ n_dims: 3 }), 'RANGE', /^cann_rope: n_dims: expected an even integer in \[2, D=4\], got 3/],
    ['mode 10', run({ mode: 10 }), 'UNSUPPORTED', /^cann_rope: mode: expected 0 \(NORMAL\), 2 \(NEOX\), 8 \(MROPE\)/],
    [
      'no sections',
      run({ mode: 8, pos: zeros('i32', [8]) }),
      'SHAPE',
      /^cann_rope: sections: expected four integers >= 0.*, got none/,
    ],
    ['a name left out', run({ freq_base: undefined }), 'RANGE', /^cann_rope: freq_base: expected a number, got none/],
    ['freq_scale 0', run({ freq_scale: 0 }), 'RANGE', /^cann_rope: freq_scale: expected a number > 0, got 0/],
    ['forward as a number', run({ forward: 1 }), 'RANGE', /^cann_rope: forward: expected true or false, got 1/],
    [
      'too few factors',
      run({ freq_factors: f32([1], [1]) }),
      'SHAPE',
      /^cann_rope: freq_factors: expected at least 2 freq_factors/,
    ],
    [
      'a NaN factor',
      run({ freq_factors: f32([1, Number.NaN], [2]) }),
      'RANGE',
      /^cann_rope: freq_factors\[1\]: expected a finite number/,
    ],
    [
      'beta 0 with no context',
      run({ ext_factor: 1, n_ctx_orig: 0, beta_slow: 0 }),
      'RANGE',
      /^cann_rope: beta_slow: expected a number > 0/,
    ],
    [
      'dst of another shape',
      run({ dst: f32([1, 2], [1, 1, 1, 2]) }),
      'SHAPE',
      /^cann_rope: dst: expected shape \[1,2,2,4\]/,
    ],
    [
      'dst of another dtype',
      run({ dst: zeros('f16', [1, 2, 2, 4]) }),
      'DTYPE',
      /^cann_rope: dst: expected dtype f32, got "f16"/,
    ],
    [
      'dst that overlaps src0 in part',
      run({ src0: room.slice(3, 0, 4), dst: room.slice(3, 2, 6) }),
      'ALIAS',
      /^cann_rope: dst: it shares some of its memory with src0/,
    ],
    [
      'dst over pos',
      run({
        pos: tensorFrom(new Int32Array(memory, 8, 2)),
        dst: tensorFrom(new Float32Array(memory), { shape: [1, 2, 2, 4] }),
      }),
      'ALIAS',
      /^cann_rope: dst: it shares (all|some) of its memory with pos/,
    ],
  ];
  for (const [name, refused, code, message] of cases) test(name, () => void assert.throws(refused, { code, message }));
});
