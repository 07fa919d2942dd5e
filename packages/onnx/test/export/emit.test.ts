/**
 * Tests of plans as graphs: well-formed in both forms, and the results in ONNX Runtime of parts that are easily wrong.
 */
import assert from 'node:assert/strict';
import { describe } from 'node:test';
import { chooseBuiltIn } from '@ropewalk/oracle';
import { bindGolden, GOLDEN_OPS } from '@ropewalk/oracle/internal';
import fc from 'fast-check';
import type { OpPlan } from 'ropewalk';
import {
  bindRope,
  bindRopeParts,
  blocksFrom,
  type Dtype,
  type FloatDtype,
  isBlocks,
  planArgmax,
  planEmbedding,
  planGeglu,
  planGelu,
  planLayerNorm,
  planLinear,
  planRearrange,
  planRope,
  planRopeWithTable,
  planScale,
  planSwiglu,
  roundTo,
  Tensor,
  tensorFrom,
  zeros,
} from 'ropewalk';
import { referenceRunner, runReference } from 'ropewalk/reference';
import { noOnnxruntime as skip } from '../../../../test/support/onnxruntime.js';
import { runOnnx } from '../../../../test/support/ort.js';
import { drawn } from '../../../../test/support/size.js';
import { f64Tensor, floats } from '../../../../test/support/tensors.js';
import { testOnce as test, testPeers } from '../../../../test/support/tier.js';
import { GraphBuilder } from '../../src/export/builder.js';
import { emitPlan } from '../../src/export/emit.js';
import type { GraphForm } from '../../src/export/fragments.js';
import { narrowed } from '../../src/export/fragments.js';
import { valueTypes } from '../../src/export/shapes.js';
import { writeOnnxModel } from '../../src/format/onnx.js';

const FORMS: readonly GraphForm[] = ['standard', 'primitives'];

/** Returns the graph of a plan, after checking its structure. */
function graphOf(plan: OpPlan, form: GraphForm) {
  const b = new GraphBuilder();
  const emitted = emitPlan(b, plan, { form });
  assert.ok(!('whyNot' in emitted), 'whyNot' in emitted ? emitted.whyNot : '');
  const model = b.model(plan.op, 'test');
  valueTypes(model);
  for (const [declared, given] of [
    [model.inputs, emitted.inputs],
    [model.outputs, emitted.outputs],
  ] as const)
    assert.deepEqual(
      declared,
      given.map(({ name, tensor }) => ({ name, dtype: tensor.dtype, shape: tensor.shape })),
    );
  assert.ok(writeOnnxModel(model).length > 0);
  return { model, emitted };
}

/** Runs a plan's graph and returns dense outputs by name. */
async function run(plan: OpPlan, form: GraphForm): Promise<Map<string, Tensor>> {
  const { model, emitted } = graphOf(plan, form);
  return runOnnx(model, new Map(emitted.inputs.map(({ name, tensor }) => [name, tensor])));
}

describe('emitPlan', () => {
  test('activations rounded to 8 bits are refused by name', () => {
    const weight = blocksFrom('q8_0', new Uint8Array(34), [1, 32]);
    const [x, out] = [
      tensorFrom(new Float32Array(32), { shape: [1, 32] }),
      tensorFrom(new Float32Array(1), { shape: [1, 1] }),
    ];
    const plan = planLinear(x, weight, out, { activations: 'q8' });
    for (const form of FORMS)
      assert.match(
        (emitPlan(new GraphBuilder(), plan, { form }) as { whyNot: string }).whyNot,
        /^activations: 'q8' has kernels on cpu alone/,
      );
  });

  for (const form of FORMS) {
    test(`every golden case is well formed in form ${form}`, () => {
      const seen = new Set<string>();
      for (const chosen of chooseBuiltIn(GOLDEN_OPS).cases) {
        const c = chosen.make();
        const { plan } = bindGolden(c, referenceRunner());
        seen.add(c.op);
        if ('weight' in plan && isBlocks(plan.weight) && !['q8_0', 'q4_0'].includes(plan.weight.format))
          assert.match((emitPlan(new GraphBuilder(), plan, { form }) as { whyNot: string }).whyNot, /not yet in /);
        else if (c.op === 'gated_delta' || c.op === 'ssm_scan')
          assert.match(
            (emitPlan(new GraphBuilder(), plan, { form }) as { whyNot: string }).whyNot,
            /^it goes token by token/,
          );
        else graphOf(plan, form);
      }
      assert.equal(seen.size, GOLDEN_OPS.length);
    });
  }

  test('inputs of every operator are as documented', () => {
    const x = zeros('f32', [2, 4]);
    const positions = { positions: 0, seqLen: 3, pairing: 'half', base: 10000, headDim: 8 } as const;
    const q = zeros('f32', [3, 2, 8]);
    const cache = zeros('f32', [9, 2, 8]);
    const names = (plan: OpPlan, form: GraphForm): string[] =>
      graphOf(plan, form).emitted.inputs.map(({ name }) => name);
    const rope = bindRope(planRope(positions), q, zeros('f32', [3, 2, 8]));
    assert.deepEqual(names(rope, 'standard'), ['x', 'cos_cache', 'sin_cache']);
    assert.deepEqual(names(rope, 'primitives'), ['x', 'positions']);
    const parts = bindRopeParts(planRope(positions), [
      { x: q, out: zeros('f32', [3, 2, 8]) },
      { x: zeros('f32', [3, 2, 8]), out: cache, rows: 5, norm: { weight: zeros('f32', [8]), eps: 1e-6 } },
    ]);
    assert.deepEqual(names(parts, 'primitives'), ['x_0', 'positions', 'x_1', 'weight_1', 'cache_1', 'rows_1']);
    const out = zeros('f32', [2, 4]);
    assert.deepEqual(names(planSwiglu(x, x, out), 'standard'), ['gate', 'up']);
    assert.deepEqual(names(planGeglu(x, x, out), 'primitives'), ['gate', 'up']);
    assert.deepEqual(names(planGelu(x, out), 'standard'), ['x']);
    assert.deepEqual(names(planScale(x, zeros('f32', [2]), out), 'standard'), ['x', 'factor']);
    const w = zeros('f16', [4]);
    assert.deepEqual(names(planLayerNorm(x, w, out, { bias: w, eps: 1e-5 }), 'standard'), ['x', 'weight', 'bias']);
    // A table from outside is an input in both forms.
    const table = { rows: 1, pairs: 4, cos: new Float32Array(4), sin: new Float32Array(4) };
    const given = planRopeWithTable({ headDim: 8, pairing: 'half', table, seqLen: 3, tableRows: [0, 0, 0] });
    assert.deepEqual(names(bindRope(given, q, zeros('f32', [3, 2, 8])), 'primitives'), ['x', 'cos_cache', 'sin_cache']);
  });

  testPeers('backward, in pairs that are read and written differently, is the transpose', { skip }, async () => {
    for (const form of FORMS) {
      for (const rotaryOffset of [0, 2]) {
        const options = {
          positions: [
            [3, 70],
            [5, 6],
          ].flat(),
          headDim: 12,
          rotaryDim: 8,
          rotaryOffset,
          pairing: 'interleaved-to-half',
          base: 100,
        } as const;
        const x = f64Tensor(
          Array.from({ length: 4 * 3 * 12 }, (_, n) => Math.sin(n)),
          [4, 3, 12],
          'f32',
        );
        const there = await run(bindRope(planRope(options), x, zeros('f32', [4, 3, 12])), form);
        const turned = there.get('out')!.reshape([4, 3, 12]) as Tensor<'f32'>;
        const back = await run(
          bindRope(planRope({ ...options, direction: 'backward' }), turned, zeros('f32', [4, 3, 12])),
          form,
        );
        for (const [n, value] of floats(back.get('out')!).entries()) assert.ok(Math.abs(value - Math.sin(n)) < 1e-6);
        assert.ok(floats(turned).some((value, n) => Math.abs(value - Math.sin(n)) > 0.1));
      }
    }
  });

  testPeers('the first NaN wins, then the first maximum', { skip }, async () => {
    const rows = [
      [1, Number.NaN, Infinity, Number.NaN],
      [-Infinity, -Infinity, -Infinity, -Infinity],
      [Number.NaN, 1, 2, 3],
      [0, 5, 5, -1],
      [-0, 0, -1, -2],
      [-Infinity, Number.NaN, 1, 2],
    ];
    for (const dtype of ['f32', 'f64', 'f16', 'bf16'] as const) {
      const values = f64Tensor(rows.flat(), [6, 4], dtype);
      const plan = planArgmax(values, zeros('i64', [6, 1]), zeros(dtype, [6, 1]));
      for (const form of FORMS)
        assert.deepEqual([...floats((await run(plan, form)).get('index')!)], [1, 0, 0, 1, 0, 1], dtype);
    }
  });

  testPeers('blocks are widened exactly', { skip }, async () => {
    for (const [format, unit] of [
      ['q8_0', 34],
      ['q4_0', 18],
    ] as const) {
      // The scales have every exponent and both signs, subnormals too, and the blocks have all weights.
      const bytes = new Uint8Array(64 * unit);
      for (let block = 0; block < 64; block++) {
        const high = (block * 2 + (block >= 62 ? 0 : 1)) & 0xff;
        bytes[block * unit] = (block * 37) & 0xff;
        bytes[block * unit + 1] = (high & 0x7c) === 0x7c ? 0x7b : high | ((block & 1) << 7);
        for (let n = 2; n < unit; n++) bytes[block * unit + n] = (block * 31 + n * 7) & 0xff;
      }
      const blocks = blocksFrom(format, bytes, [32, 64]);
      const index = tensorFrom(Int32Array.of(3, 31, 0, 3));
      const plan = planEmbedding(index, blocks, zeros('f32', [4, 64]));
      for (const form of FORMS) {
        const got = (await run(plan, form)).get('out')!;
        runReference(plan);
        assert.deepEqual([...floats(got)], [...floats(plan.out)], format);
      }
      const x = f64Tensor(
        Array.from({ length: 64 }, (_, n) => (n === 5 ? 1 : 0)),
        [1, 64],
        'f64',
      );
      const linear = planLinear(x, blocks, zeros('f64', [1, 32]));
      const got = (await run(linear, 'standard')).get('out')!;
      runReference(linear);
      assert.deepEqual([...floats(got)], [...floats(linear.out)]);
    }
  });

  const layouts = () => {
    const x = tensorFrom(
      Int32Array.from({ length: 24 }, (_, n) => n),
      { shape: [2, 3, 4] },
    );
    const plan = (out: Tensor): OpPlan => planRearrange(x.permute([2, 0, 1]), out);
    const types = (p: OpPlan): string[] => graphOf(p, 'standard').model.nodes.map(({ opType }) => opType);
    const dense = plan(zeros('i32', [4, 2, 3]));
    const gaps = plan(new Tensor(zeros('i32', [100]).storage, { shape: [4, 2, 3], strides: [2, 8, 30], offset: 5 }));
    return { x, types, dense, gaps };
  };
  test('layouts: a Transpose where one is enough, else by indices', () => {
    const { x, types, dense, gaps } = layouts();
    assert.deepEqual(types(dense), ['Transpose']);
    assert.deepEqual(types(planRearrange(x, zeros('i32', [2, 3, 4]))), ['Identity']);
    assert.deepEqual(types(gaps), ['Gather', 'ScatterElements']);
  });

  testPeers('layouts: what ONNX Runtime computes', { skip }, async () => {
    const { dense, gaps } = layouts();
    for (const p of [dense, gaps]) {
      const got = (await run(p, 'standard')).get('out')!;
      runReference(p);
      const out = (p as Extract<OpPlan, { op: 'rearrange' }>).out;
      const want = got.size === out.size ? floats(out) : floats(new Tensor(out.storage, { shape: [100] }));
      assert.deepEqual([...floats(got)], [...want]);
    }
  });

  test('the operators of the standard where it has them, else primitives', () => {
    const [x, w, out] = [zeros('f32', [2, 4]), zeros('f32', [4]), zeros('f32', [2, 4])];
    const wide = { x: zeros('f64', [2, 4]), w: zeros('f64', [4]), out: zeros('f64', [2, 4]) };
    const types = (plan: OpPlan, form: GraphForm): string =>
      graphOf(plan, form)
        .model.nodes.map(({ opType }) => opType)
        .join(' ');
    assert.equal(types(planGelu(x, out), 'standard'), 'Gelu');
    assert.equal(types(planGeglu(x, x, out, { approximate: 'tanh' }), 'standard'), 'Gelu Mul');
    assert.equal(types(planGelu(x, out), 'primitives'), 'Mul Erf Mul Add Mul');
    assert.equal(types(planGelu(wide.x, wide.out), 'standard'), 'Mul Erf Mul Add Mul');
    assert.equal(types(planLayerNorm(x, w, out, { bias: w, eps: 1e-5 }), 'standard'), 'LayerNormalization');
    assert.equal(
      types(planLayerNorm(x, w, out, { bias: w, eps: 1e-5 }), 'primitives'),
      'ReduceMean Sub Mul ReduceMean Add Sqrt Div Mul Add',
    );
    assert.equal(
      types(planLayerNorm(wide.x, wide.w, wide.out, { eps: 1e-5 }), 'standard')
        .split(' ')
        .at(-1),
      'Mul',
    );
    assert.equal(types(planScale(x, 2, out), 'standard'), 'Mul');
    assert.equal(
      types(planScale(x, zeros('f32', [2]), out, { softcap: 3 }), 'primitives'),
      'Unsqueeze Mul Div Tanh Mul',
    );
  });

  for (const form of FORMS) {
    testPeers(`activations keep NaN and infinities, and clamp them, ${form}`, { skip }, async () => {
      const xs = [Number.NaN, Infinity, -Infinity, -200, -3, -1e-30, 0, 1e-30, 3, 200, 3e38];
      const x = f64Tensor(xs, [xs.length], 'f32');
      const ones = f64Tensor(new Array(xs.length).fill(1), [xs.length], 'f32');
      const out = (): Tensor<'f32'> => zeros('f32', [xs.length]);
      for (const plan of [
        planSwiglu(x, ones, out(), { limit: 7, alpha: 1.702, offset: 1 }),
        planSwiglu(ones, x, out(), { limit: 7, alpha: 1.702, offset: 1 }),
        planSwiglu(x, ones, out(), { alpha: -1 }),
        planGelu(x, out()),
        planGeglu(x, ones, out(), { approximate: 'tanh' }),
        planScale(x, 2, out(), { softcap: 30 }),
      ]) {
        const got = floats((await run(plan, form)).get('out')!);
        runReference(plan);
        for (const [n, want] of floats(plan.out).entries()) {
          const close = Math.abs(got[n]! - want) <= 2 ** -20 * (Math.abs(want) + Math.min(4, Math.abs(xs[n]!)));
          const same = String(got[n]) === String(want);
          assert.ok(same || close, `${plan.op} of ${xs[n]}: ${got[n]}, expected ${want}`);
        }
      }
    });
  }

  testPeers('swiglu neither overflows nor loses small gates', { skip }, async () => {
    const gates = [
      -200,
      -100,
      -88,
      -50,
      -17,
      -5,
      -1,
      -1e-30,
      0,
      1e-30,
      1,
      5,
      17,
      50,
      88,
      100,
      3e38,
      Infinity,
      -Infinity,
      Number.NaN,
    ];
    const gate = f64Tensor(gates, [gates.length], 'f32');
    const plan = planSwiglu(
      gate,
      f64Tensor(
        gates.map(() => 1),
        [gates.length],
        'f32',
      ),
      zeros('f32', [gates.length]),
    );
    const got = floats((await run(plan, 'standard')).get('out')!);
    runReference(plan);
    for (const [n, want] of floats(plan.out).entries()) {
      if (!Number.isFinite(want)) assert.equal(String(got[n]), String(want), `gate ${gates[n]}`);
      else
        assert.ok(
          Math.abs(got[n]! - want) <= 6 * 2 ** -24 * Math.abs(want) + 2 ** -126 * 100,
          `gate ${gates[n]}: ${got[n]}, expected ${want}`,
        );
    }
  });
});

describe('rounding', () => {
  const narrow = async (values: readonly number[], to: FloatDtype): Promise<Float64Array> => {
    const b = new GraphBuilder();
    const shape = [values.length];
    b.output(narrowed(b, b.input('x', 'f64', shape), 'f64', to), 'y', to, shape);
    const model = b.model('narrow', 'test');
    valueTypes(model);
    return floats((await runOnnx(model, new Map([['x', tensorFrom(Float64Array.from(values))]]))).get('y')!);
  };

  testPeers('f64 to 16 bits rounds once', { skip }, async () => {
    const edges = [
      0,
      -0,
      1,
      65504,
      65519.999999,
      65520,
      -65519.99999999,
      1e300,
      -1e300,
      Infinity,
      -Infinity,
      2 ** -24,
      2 ** -25,
      2 ** -25 * (1 + 2 ** -40),
      1e-300,
    ];
    // The numbers are just beside the middle between two 16-bit values. Rounded to f32 first, they would be on it.
    for (const bits of [11, 8])
      for (const way of [1, -1])
        for (let e = -14; e < 15; e++)
          edges.push(2 ** e * (1 + 2 ** -bits * (1 + way * 2 ** -30)), 2 ** e * (1 + 3 * 2 ** -bits + way * 2 ** -45));
    const random = fc.sample(fc.double({ min: -70000, max: 70000, noNaN: true }), drawn(2000));
    for (const dtype of ['f16', 'bf16'] as const) {
      const values = [...edges, ...random, (2 - 2 ** -8) * 2 ** 127, (2 - 2 ** -8 - 2 ** -40) * 2 ** 127];
      const got = await narrow(values, dtype);
      for (const [n, value] of values.entries())
        assert.ok(
          Object.is(got[n], roundTo(dtype, value)),
          `${dtype}: ${value}: ${got[n]}, expected ${roundTo(dtype, value)}`,
        );
      assert.ok(Number.isNaN((await narrow([Number.NaN], dtype))[0]));
    }
  });
});

describe('valueTypes', () => {
  /** A graph of one node. */
  const model = (opType: string, inputs: readonly [Dtype, number[]][], out: [Dtype, number[]], attributes = {}) => {
    const b = new GraphBuilder();
    const names = inputs.map(([dtype, shape], n) => b.input(`x${n}`, dtype, shape));
    b.output(b.add(opType, names, attributes), 'y', ...out);
    return b.model('one', 'test');
  };

  test('finds types that an operator does not take', () => {
    const wrong: [ReturnType<typeof model>, RegExp][] = [
      [
        model(
          'Add',
          [
            ['f32', [2]],
            ['f64', [2]],
          ],
          ['f32', [2]],
        ),
        /node 0, Add: dtypes: expected one of/,
      ],
      [
        model(
          'Add',
          [
            ['f32', [2]],
            ['f32', [3]],
          ],
          ['f32', [2]],
        ),
        /Add: shapes/,
      ],
      [model('Neg', [['f32', [2]]], ['f32', [3]]), /output y: expected f32 \[3\], got f32 \[2\]/],
      [model('Sin', [['i64', [2]]], ['i64', [2]]), /Sin: dtypes/],
      [
        model(
          'RotaryEmbedding',
          [
            ['f32', [1, 2, 3, 4]],
            ['f32', [1, 3, 4]],
            ['f32', [1, 3, 4]],
          ],
          ['f32', [1, 2, 3, 4]],
        ),
        /RotaryEmbedding: caches/,
      ],
      [
        model(
          'RotaryEmbedding',
          [
            ['f64', [1, 2, 3, 4]],
            ['f64', [1, 3, 2]],
            ['f64', [1, 3, 2]],
          ],
          ['f64', [1, 2, 3, 4]],
        ),
        /RotaryEmbedding: dtypes/,
      ],
      [model('Frobnicate', [['f32', [1]]], ['f32', [1]]), /Frobnicate: the table of operators does not have it/],
    ];
    for (const [bad, message] of wrong) assert.throws(() => valueTypes(bad), { code: 'FORMAT', message });
    const b = new GraphBuilder();
    b.nodes.push({ opType: 'Neg', inputs: ['nowhere'], outputs: ['y'] });
    assert.throws(() => valueTypes(b.model('m', 'test')), {
      message: /node 0, Neg: no value nowhere is made before this/,
    });
    b.input('x', 'f32', ['n']);
    assert.throws(() => valueTypes(b.model('m', 'test')), {
      code: 'RANGE',
      message: /graph: n: this dimension needs a size/,
    });
  });

  test('open dimensions are written by name', () => {
    const b = new GraphBuilder();
    b.output(b.add('Neg', [b.input('x', 'f32', ['batch', 3])]), 'y', 'f32', ['batch', 3]);
    const text = new TextDecoder('latin1').decode(writeOnnxModel(b.model('m', 'test')));
    assert.equal(text.split('batch').length - 1, 2);
  });
});
