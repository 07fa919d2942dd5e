import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { nmse } from '@ropewalk/oracle';
import { type GgmlRopeParams, ropeByFormula } from '@ropewalk/oracle/internal';
import fc from 'fast-check';
import type { Tensor } from 'ropewalk';
import { walk } from 'ropewalk/backend';
import { referenceRunner } from 'ropewalk/reference';
import { drawn } from '../../../test/support/size.js';
import { suitePasses, VECTORS } from '../../../test/support/suites.js';
import { f64Tensor, floats } from '../../../test/support/tensors.js';
import * as ggml from '../src/ggml.js';

const rw = referenceRunner();

/** The fields of a case in vectors/ggml/manifest.json that these tests read. */
interface GoldenCase extends Omit<GgmlRopeParams, 'forward'> {
  readonly name: string;
  readonly type: 'f32' | 'f16';
  readonly direction: 'forward' | 'backward';
  readonly inplace: boolean;
  readonly view: { readonly offset_bytes: number; readonly nb: number[]; readonly base_ne: number[] };
  readonly files: Record<'x' | 'pos' | 'freq_factors' | 'out' | 'base_after', string | null>;
  readonly check: { readonly nmse_vs_f64: number; readonly nmse_vs_f32_recurrence: number };
}

function golden(): GoldenCase[] {
  return JSON.parse(readFileSync(join(VECTORS, 'ggml/manifest.json'), 'utf8')).cases;
}

/** Says whether the recipe must give ggml's bits, in either spelling of the manifest. */
function isForScoring(c: GoldenCase): boolean {
  const { scored, for_scoring, not_for_scoring, note, notes } = c as unknown as Record<string, unknown>;
  const words = JSON.stringify([note, notes]);
  return scored !== false && for_scoring !== false && not_for_scoring !== true && !/not for scoring/i.test(words);
}

function bytesOf(file: string): ArrayBuffer {
  return Uint8Array.from(readFileSync(join(VECTORS, 'ggml', file))).buffer;
}

function arrayOf(type: 'f32' | 'f16', file: string): Float32Array | Uint16Array {
  return type === 'f32' ? new Float32Array(bytesOf(file)) : new Uint16Array(bytesOf(file));
}

/** Calls the dialect's function for a case, by ggml's name. ggml has no backward call that works in place. */
function callGolden(c: GoldenCase, a: ggml.GgmlTensor<'f32' | 'f16'>, extras: ggml.GgmlRopeExtras): ggml.GgmlTensor {
  const pos = new Int32Array(bytesOf(c.files.pos!));
  const b = ggml.ggmlTensor('i32', pos, { ne: [pos.length] });
  const factors = c.files.freq_factors && new Float32Array(bytesOf(c.files.freq_factors));
  const f = factors ? ggml.ggmlTensor('f32', factors, { ne: [factors.length] }) : null;
  const { n_ctx_orig, freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow } = c;
  const tail = [
    n_ctx_orig,
    freq_base,
    freq_scale,
    ext_factor,
    attn_factor,
    beta_fast,
    beta_slow,
    { n_offs: c.n_offs, ...extras },
  ] as const;
  const which = c.direction === 'backward' ? 2 : c.inplace ? 1 : 0;
  if (c.mode >= 8) {
    const multi = [ggml.ropeMulti, ggml.ropeMultiInplace, ggml.ropeMultiBack][which]!;
    return multi(rw, a, b, f, c.n_dims, c.sections, c.mode, ...tail);
  }
  const ext = [ggml.ropeExt, ggml.ropeExtInplace, ggml.ropeExtBack][which]!;
  return ext(rw, a, b, f, c.n_dims, c.mode, ...tail);
}

/** Runs a case through {@link callGolden}. A call in place must return `a` itself. */
function runGolden(
  c: GoldenCase,
  extras: ggml.GgmlRopeExtras,
): { y: ggml.GgmlTensor; base: Float32Array | Uint16Array } {
  const base = arrayOf(c.type, c.files.x!);
  const a = ggml.ggmlTensor<'f32' | 'f16'>(c.type, base as never, {
    ne: c.ne,
    nb: c.view.nb,
    view_offs: c.view.offset_bytes,
  });
  const y = callGolden(c, a, extras);
  assert.equal(y === a, c.inplace, c.name);
  assert.deepEqual(y.ne, c.ne, c.name);
  return { y, base };
}

describe('golden', () => {
  suitePasses('ggml');

  for (const recipe of ['float64', 'ggml-f32'] as const) {
    test(`ggml's vectors through the dialect's own calls, ne and nb as in the manifest, recipe=${recipe}`, () => {
      let count = 0;
      for (const c of golden()) {
        if (recipe === 'ggml-f32' && !isForScoring(c)) continue;
        count++;
        const want = ggml.ggmlTensor<'f32' | 'f16'>(c.type, arrayOf(c.type, c.files.out!) as never, { ne: c.ne });
        const limit = recipe === 'ggml-f32' ? 1e-8 : 1e-7 + c.check.nmse_vs_f64;
        const error = nmse(floats(runGolden(c, { recipe }).y.tensor), floats(want.tensor));
        assert.ok(error <= limit, `${c.name}: NMSE ${error} > ${limit}`);
      }
      assert.ok(count >= 100, `${count} cases`);
    });
  }

  test('in place on a view: every byte outside the view is as ggml left it', () => {
    const cases = golden().filter((c) => c.files.base_after);
    assert.ok(cases.length >= 3, `${cases.length} cases`);
    for (const c of cases) {
      const { y, base } = runGolden(c, { recipe: 'ggml-f32' });
      const after = arrayOf(c.type, c.files.base_after!);
      const inside = new Uint8Array(base.length);
      walk(y.tensor, (at) => {
        inside[at] = 1;
      });
      const bits = (array: Float32Array | Uint16Array) =>
        array instanceof Uint16Array ? array : new Uint32Array(array.buffer);
      const [got, want] = [bits(base), bits(after)];
      assert.ok(inside.includes(0), `${c.name} has room outside its view`);
      for (const [at, value] of got.entries())
        if (!inside[at]) assert.equal(value, want[at], `${c.name}: element ${at}`);
    }
  });
});

/** Draws a random call: parameters, data and positions. */
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
    const ne0 = vision ? 2 * n_dims : 2 * Math.ceil((n_offs + n_dims + c.tail) / 2);
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
      drawn(400),
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

  test('our tensors with fewer dimensions are ggml tensors too, over the same memory', () => {
    const b = ggml.ggmlTensor('i32', Int32Array.of(3), { ne: [1] });
    const want = floats(
      ggml.rope(rw, ggml.ggmlTensor('f32', Float32Array.of(1, 2, 3, 4), { ne: [4] }), b, 4, 2).tensor,
    );
    for (const shape of [[4], [1, 4], [1, 1, 4], [1, 1, 1, 4]]) {
      const ours = f64Tensor([1, 2, 3, 4], shape, 'f32') as Tensor<'f32'>;
      const a = ggml.ggmlFromTensor(ours);
      assert.deepEqual(
        [a.ne, a.nb, a.tensor.shape],
        [
          [4, 1, 1, 1],
          [4, 16, 16, 16],
          [1, 1, 1, 4],
        ],
      );
      assert.deepEqual(floats(ggml.rope(rw, a, b, 4, 2).tensor), want);
      ggml.ropeInplace(rw, a, b, 4, 2);
      assert.deepEqual(floats(ours), want);
    }
  });

  test('extras carry n_offs, recipe and tableDtype and nothing else', () => {
    const a = ggml.ggmlTensor('f32', Float32Array.of(1, 2, 3, 4), { ne: [4] });
    const b = ggml.ggmlTensor('i32', Int32Array.of(3), { ne: [1] });
    const plain = floats(ggml.rope(rw, a, b, 4, 2).tensor);
    assert.deepEqual(floats(ggml.rope(rw, a, b, 4, 2, {}).tensor), plain);
    for (const other of [{ positions: Int32Array.of(0) }, { direction: 'backward' }, { ne: [2, 2, 1, 1] }])
      assert.throws(() => ggml.rope(rw, a, b, 4, 2, other as ggml.GgmlRopeExtras), { code: 'RANGE' });
    const params = { ne: a.ne, n_dims: 4, mode: 2, positions: Int32Array.of(3) };
    assert.ok(ggml.ropePlanFromGgml(params).table.cos instanceof Float32Array);
    assert.ok(ggml.ropePlanFromGgml({ ...params, tableDtype: 'f64' }).table.cos instanceof Float64Array);
    // With f64 tables only the store rounds. The f32 tables must differ somewhere, or this would prove nothing.
    let differ = 0;
    for (let position = 1; position <= 40; position++) {
      const at = ggml.ggmlTensor('i32', Int32Array.of(position), { ne: [1] });
      const [c, s] = [Math.cos(position), Math.sin(position)];
      const exact = floats(ggml.rope(rw, a, at, 2, 2, { tableDtype: 'f64' }).tensor);
      assert.deepEqual([...exact], [Math.fround(c - 2 * s), Math.fround(s + 2 * c), 3, 4], `position ${position}`);
      if (floats(ggml.rope(rw, a, at, 2, 2).tensor).some((value, i) => value !== exact[i])) differ++;
    }
    assert.ok(differ > 0);
  });

  test('f16 is rotated wide and rounded once', () => {
    const a = ggml.ggmlTensor('f16', Uint16Array.of(0x3c00, 0x4000), { ne: [2] });
    const y = ggml.rope(rw, a, ggml.ggmlTensor('i32', Int32Array.of(1), { ne: [1] }), 2, 0);
    const [c, s] = [Math.fround(Math.cos(1)), Math.fround(Math.sin(1))];
    const want = f64Tensor([c - 2 * s, s + 2 * c], [2], 'f16');
    assert.deepEqual(y.tensor.read(), want.read());
  });
});

describe('refusals', () => {
  const b = ggml.ggmlTensor('i32', Int32Array.of(0, 1), { ne: [2] });
  const one = ggml.ggmlTensor('i32', Int32Array.of(1), { ne: [1] });
  const a = ggml.ggmlZeros('f32', [80, 1, 2]);
  const ext = (n_dims: number, mode: number, freq_scale = 1, extras = {}) =>
    ggml.ropeExt(rw, a, b, null, n_dims, mode, 0, 10000, freq_scale, 0, 1, 32, 1, extras);
  const cases: [string, () => unknown, string, RegExp][] = [
    ['odd n_dims', () => ext(21, 2), 'RANGE', /ggml_rope: n_dims: expected an even integer in \[2, ne0=80\], got 21/],
    [
      'odd ne0',
      () => ggml.ropePlanFromGgml({ ne: [81, 1, 1, 1], n_dims: 80, mode: 2, positions: new Int32Array(1) }),
      'SHAPE',
      /ggml_rope: ne0: expected an even number of dimensions, got 81/,
    ],
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
    [
      'a matrix of factors has its first row only',
      () => ggml.ropeExt(rw, a, b, ggml.ggmlZeros('f32', [10, 4]), 80, 2, 0, 10000, 1, 0, 1, 32, 1),
      'SHAPE',
      /c: expected at least 40 freq_factors, one for each pair, got 10/,
    ],
    [
      'factor 0',
      () => ggml.ropeExt(rw, a, b, ggml.ggmlZeros('f32', [40]), 80, 2, 0, 10000, 1, 0, 1, 32, 1),
      'RANGE',
      /ggml_rope: c\[0\]: expected a finite number other than 0, got 0/,
    ],
    [
      'no positions',
      () => ggml.rope(rw, a, null as never, 80, 2),
      'SHAPE',
      /b: expected a ggml tensor of positions from ggmlTensor/,
    ],
    [
      'a negative section',
      () => ggml.ropeMulti(rw, a, ggml.ggmlZeros('i32', [8]), null, 80, [-1, 20, 20, 1], 8, 0, 10000, 1, 0, 1, 32, 1),
      'SHAPE',
      /ggml_rope: sections: expected four integers >= 0: pairs of t, h, w, e, got \[-1, 20, 20, 1\]/,
    ],
    [
      'YaRN with a negative beta would be NaN',
      () => ggml.ropeExt(rw, a, b, null, 80, 2, 4096, 10000, 0.25, 1, 1, -32, 1),
      'RANGE',
      /beta_fast: expected a number > 0 where ext_factor is not 0, got -32/,
    ],
    [
      'YaRN with beta 0 and no context would be NaN',
      () => ggml.ropeExt(rw, a, b, null, 80, 2, 0, 10000, 0.25, 1, 1, 32, 0),
      'RANGE',
      /beta_slow: expected a number > 0 where ext_factor is not 0, got 0/,
    ],
    [
      'in place over its own positions',
      () => {
        const memory = new ArrayBuffer(16);
        const x = ggml.ggmlTensor('f32', new Float32Array(memory), { ne: [4] });
        ggml.ropeInplace(rw, x, ggml.ggmlTensor('i32', new Int32Array(memory, 0, 1), { ne: [1] }), 4, 2);
      },
      'ALIAS',
      /ggml_rope: a: it shares some of its memory with b/,
    ],
    [
      'in place where heads share elements',
      () =>
        ggml.ropeInplace(
          rw,
          ggml.ggmlTensor('f32', new Float32Array(8), { ne: [4, 2, 1], nb: [4, 8, 32, 32] }),
          one,
          4,
          2,
        ),
      'ALIAS',
      /ggml_rope: a: two indices name the same element/,
    ],
    [
      'five dimensions',
      () => ggml.ggmlFromTensor(f64Tensor([1, 2], [1, 1, 1, 1, 2], 'f32') as Tensor<'f32'>),
      'SHAPE',
      /ggml: ne: expected at most four dimensions/,
    ],
    [
      'zeros of a negative dimension',
      () => ggml.ggmlZeros('f32', [-1]),
      'SHAPE',
      /ggml: ne: expected one to four integers >= 0/,
    ],
    [
      'a matrix of positions',
      () => ggml.rope(rw, a, ggml.ggmlZeros('i32', [1, 2]), 80, 2),
      'SHAPE',
      /b: expected a vector/,
    ],
    [
      'nb that is no multiple',
      () => ggml.ggmlTensor('f32', new Float32Array(8), { ne: [2, 2], nb: [4, 6, 12, 12] }),
      'SHAPE',
      /nb: expected four multiples of 4 bytes/,
    ],
    [
      'head dims apart',
      () =>
        ggml.rope(rw, ggml.ggmlTensor('f32', new Float32Array(16), { ne: [4, 1, 2], nb: [8, 32, 32, 64] }), b, 4, 2),
      'SHAPE',
      /a: expected nb0 = 4/,
    ],
    [
      'bf16',
      () => ggml.ggmlTensor('bf16' as never, new Uint16Array(4) as never, { ne: [4] }),
      'DTYPE',
      /use planRope for bf16\./,
    ],
  ];
  for (const [name, run, code, message] of cases) test(name, () => void assert.throws(run, { code, message }));

  test('a beta that is not used is not refused', () => {
    for (const beta of [0, -1])
      assert.doesNotThrow(() => ggml.ropeExt(rw, a, b, null, 80, 2, 0, 10000, 0.25, 0, 1, beta, beta));
    assert.doesNotThrow(() => ggml.ropeExt(rw, a, b, null, 80, 2, 4096, 10000, 0.25, 1, 1, 32, 0));
  });

  test('nothing is written before a call is refused', () => {
    const x = ggml.ggmlTensor('f32', Float32Array.of(1, 2, 3, 4), { ne: [4] });
    assert.throws(() => ggml.ropeExtInplace(rw, x, one, ggml.ggmlZeros('f32', [2]), 4, 2, 0, 10000, 1, 0, 1, 32, 1), {
      code: 'RANGE',
    });
    assert.deepEqual([...floats(x.tensor)], [1, 2, 3, 4]);
  });
});

// The formula can check the engine only while it shares nothing with it.
test('the second formula imports nothing', () => {
  assert.doesNotMatch(readFileSync(new URL('../../oracle/src/ggml-formula.ts', import.meta.url), 'utf8'), /^import/m);
});
