/** q and k in one call, rows of a KV cache, and the fused norm: against the steps done one by one, on every backend. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { noBackend, openShared } from '../../../../test/support/gpu.js';
import { f64Tensor, floats } from '../../../../test/support/tensors.js';
import { describeOnce, GENERAL_HERE } from '../../../../test/support/tier.js';
import { loadNumber, storeNumber } from '../../src/core/dtypes.js';
import { type Tensor, tensorFrom, zeros } from '../../src/core/tensor.js';
import { bindRopeParts } from '../../src/ops/rope/call.js';
import { planRope, planRopeWithTable } from '../../src/ops/rope/plan.js';
import { ropewalk } from '../../src/ropewalk.js';

const SEQ = 3;
const HEAD_DIM = 12;
const plan = planRope({ headDim: HEAD_DIM, rotaryDim: 8, pairing: 'half', base: 10000, positions: [40, 8191, 131071] });
const wave = (n: number, phase: number): number[] => Array.from({ length: n }, (_, i) => Math.sin(i * 0.7 + phase) * 3);
const q = (): Tensor<'f32'> =>
  f64Tensor(wave(2 * SEQ * 4 * HEAD_DIM, 0), [2, SEQ, 4, HEAD_DIM], 'f32') as Tensor<'f32'>;
const k = (): Tensor<'f32'> =>
  f64Tensor(wave(2 * SEQ * 2 * HEAD_DIM, 1), [2, SEQ, 2, HEAD_DIM], 'f32') as Tensor<'f32'>;
const gain = f64Tensor(wave(HEAD_DIM, 2), [HEAD_DIM], 'f32') as Tensor<'f32'>;

/** Checks that tensors are equal within a few roundings of f32, and one of the output. */
function near(got: Tensor, want: Tensor, unit: number): void {
  const [a, b] = [floats(got), floats(want)];
  for (const [i, value] of a.entries()) {
    const bound = unit * Math.abs(b[i]!) + 8 * 2 ** -24 * 10;
    assert.ok(Math.abs(value - b[i]!) <= bound, `element ${i}: ${value}, expected ${b[i]}`);
  }
}

for (const name of GENERAL_HERE) {
  describe(`ropeParts on ${name}`, { skip: noBackend(name) }, () => {
    test('q and k together are q and k apart, to the bit, in place', async () => {
      const rw = await openShared(name);
      const [wantQ, wantK] = [rw.rope(q(), plan), rw.rope(k(), plan)];
      const [x, y] = [q(), k()];
      rw.ropeParts(plan, [
        { x, out: x },
        { x: y, out: y },
      ]);
      assert.deepEqual(await x.read(), await wantQ.read());
      assert.deepEqual(await y.read(), await wantK.read());
      rw.dispose();
    });

    test('rows: keys go to their rows of an f16 cache, rounded once; no other row changes', async () => {
      const rw = await openShared(name);
      const exact = (await ropewalk({ backend: 'reference' })).rope(k(), plan);
      const sentinel = 0x7bff;
      for (const rows of [5, [7, 0, 2], [7, 0, 2, 1, 2, 3]]) {
        const cache = tensorFrom<'f16'>(new Uint16Array(2 * 9 * 2 * HEAD_DIM).fill(sentinel), {
          dtype: 'f16',
          shape: [2, 9, 2, HEAD_DIM],
        });
        rw.ropeParts(plan, [{ x: k(), out: cache, rows }]);
        const list = typeof rows === 'number' ? [rows, rows + 1, rows + 2] : rows;
        const want = zeros('f16', [2, 9, 2, HEAD_DIM]).read() as Uint16Array;
        want.fill(sentinel);
        const source = floats(exact);
        for (let b = 0; b < 2; b++) {
          for (let s = 0; s < SEQ; s++) {
            const row = list[list.length === SEQ ? s : b * SEQ + s]!;
            for (let i = 0; i < 2 * HEAD_DIM; i++)
              storeNumber(want, 'f16', (b * 9 + row) * 2 * HEAD_DIM + i, source[(b * SEQ + s) * 2 * HEAD_DIM + i]!);
          }
        }
        const got = await cache.read();
        for (const [i, bits] of got.entries()) {
          if (want[i] === sentinel) assert.equal(bits, sentinel, `element ${i} was touched`);
          // f32 arithmetic before the rounding may land on the other side of a tie.
          else
            assert.ok(
              Math.abs(loadNumber(got, 'f16', i) - loadNumber(want, 'f16', i)) <=
                2 ** -10 * Math.abs(loadNumber(want, 'f16', i)),
            );
        }
      }
      rw.dispose();
    });

    test('a given f32 table keeps its precision beside f16 and bf16', async () => {
      const rw = await openShared(name);
      // In halves this cos is 1.
      const table = { rows: 1, pairs: 1, cos: Float32Array.of(1 + 2 ** -12), sin: Float32Array.of(1) };
      const given = planRopeWithTable({ headDim: 2, pairing: 'half', table, seqLen: 1, tableRows: [0] });
      for (const dtype of ['f16', 'bf16'] as const) {
        const x = f64Tensor([1, 1], [1, 1, 2], dtype) as Tensor<typeof dtype>;
        const y = rw.rope(x, given); // x0·cos − x1·sin = 2^-12: 0 with a table in halves
        assert.equal((await y.readNumbers())[0], 2 ** -12);
      }
      rw.dispose();
    });

    test('norm: RMS norm over head_dim comes first, one weight for q and one for k', async () => {
      const rw = await openShared(name);
      const exact = await ropewalk({ backend: 'reference' });
      const [outQ, outK] = [zeros('f32', q().shape), zeros('bf16', k().shape)];
      const ones = f64Tensor(new Float64Array(HEAD_DIM).fill(1), [HEAD_DIM], 'bf16') as Tensor<'bf16'>;
      rw.ropeParts(plan, [
        { x: q(), out: outQ, norm: { weight: gain, eps: 1e-6 } },
        { x: k(), out: outK, norm: { weight: ones, eps: 0.5 } },
      ]);
      await rw.finish();
      near(outQ, exact.rope(exact.rmsNorm(q(), gain, { eps: 1e-6 }), plan), 8 * 2 ** -24);
      const one32 = f64Tensor(new Float64Array(HEAD_DIM).fill(1), [HEAD_DIM], 'f32') as Tensor<'f32'>;
      near(outK, exact.rope(exact.rmsNorm(k(), one32, { eps: 0.5 }), plan), 2 ** -8);
      rw.dispose();
    });
  });
}

describeOnce('refusals', () => {
  const cache = zeros('f32', [2, 4, 2, HEAD_DIM]);
  const packed = tensorFrom<'f32'>(new Float32Array(2 * SEQ * 6 * HEAD_DIM), { shape: [2, SEQ, 6, HEAD_DIM] });
  const refusals: [string, () => unknown, string, string | RegExp][] = [
    ['no part', () => bindRopeParts(plan, []), 'SHAPE', 'rope: parts: expected at least one tensor, got []'],
    [
      'a row that the cache does not have',
      () => bindRopeParts(plan, [{ x: k(), out: cache, rows: 2 }]),
      'RANGE',
      'rope: parts[0].rows[2]: expected a row of out, in [0, 3], got 4. Make the cache longer, or start again at row 0.',
    ],
    [
      'a row twice',
      () => bindRopeParts(plan, [{ x: k(), out: cache, rows: [1, 2, 1] }]),
      'RANGE',
      'rope: parts[0].rows[2]: row 1 is given twice',
    ],
    [
      'two rows for three tokens',
      () => bindRopeParts(plan, [{ x: k(), out: cache, rows: [1, 2] }]),
      'SHAPE',
      /^rope: parts\[0\]\.rows: expected/,
    ],
    [
      'a cache with other heads',
      () => bindRopeParts(plan, [{ x: q(), out: cache, rows: 0 }]),
      'SHAPE',
      /^rope: parts\[0\]\.out: expected shape \[2,4,4,12\]/,
    ],
    [
      'a cache without rows',
      () => bindRopeParts(plan, [{ x: k(), out: cache }]),
      'SHAPE',
      /^rope: parts\[0\]\.out: expected shape \[2,3,2,12\]/,
    ],
    [
      'a norm of another width',
      () => bindRopeParts(plan, [{ x: k(), out: k(), norm: { weight: zeros('f32', [8]), eps: 0 } }]),
      'SHAPE',
      'rope: parts[0].norm.weight: expected shape [12], got [8]',
    ],
    [
      'a negative eps',
      () => bindRopeParts(plan, [{ x: k(), out: k(), norm: { weight: gain, eps: -1 } }]),
      'RANGE',
      'rope: parts[0].norm.eps: expected a finite number >= 0, got -1',
    ],
    [
      'one part’s output over another’s input',
      () => {
        const a = packed.slice(2, 0, 4);
        const b = packed.slice(2, 3, 5);
        return bindRopeParts(plan, [
          { x: a, out: a },
          { x: b, out: zeros('f32', b.shape) },
        ]);
      },
      'ALIAS',
      'rope: parts[0].out: it shares memory with parts[1].x. Give it memory of its own.',
    ],
    [
      'another batch',
      () => {
        const one = zeros('f32', [1, SEQ, 2, HEAD_DIM]);
        return bindRopeParts(plan, [
          { x: q(), out: q() },
          { x: one, out: one },
        ]);
      },
      'SHAPE',
      'rope: parts[1].x: expected batch 2, as parts[0] has, got [1, 3, 2, 12]',
    ],
    [
      'integers',
      () => bindRopeParts(plan, [{ x: zeros('i32', k().shape) as never, out: k() }]),
      'DTYPE',
      /^rope: parts\[0\]\.x: expected f64/,
    ],
  ];
  for (const [name, run, code, message] of refusals) test(name, () => assert.throws(run, { code, message }));

  test('parts of one packed tensor do not overlap', () => {
    const [a, b] = [packed.slice(2, 0, 4), packed.slice(2, 4, 6)];
    assert.equal(
      bindRopeParts(plan, [
        { x: a, out: a },
        { x: b, out: b },
      ]).parts.length,
      2,
    );
  });
});
