import assert from 'node:assert/strict';
import { after, describe } from 'node:test';
import { openBackend } from '@ropewalk/cli/internal';
import {
  bindRope,
  type FloatDtype,
  frequenciesOf,
  type HostArray,
  planRope,
  type Tensor,
  tensorFrom,
  zeros,
} from 'ropewalk';
import { newArray, storeNumber } from 'ropewalk/backend';
import { referenceRunner } from 'ropewalk/reference';
import { ortOrReason } from '../../../../test/support/ort.js';
import { f64Tensor, floats } from '../../../../test/support/tensors.js';
import { testOnce as test, testPeers } from '../../../../test/support/tier.js';
import { bindImported, groupAlike, type ImportedRope, importOnnx, runImported } from '../../src/import/index.js';
import { Graph } from './build.js';
import { FORMS, type Form, f32, i64, POSITIONS } from './forms.js';

const rw = referenceRunner();

/** Numbers without structure, the same at each run. */
function noise(shape: readonly number[], dtype: FloatDtype, seed = 1): Tensor<FloatDtype> {
  let state = seed >>> 0;
  const data = newArray(
    dtype,
    shape.reduce((product, dim) => product * dim, 1),
  );
  for (let n = 0; n < data.length; n++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    storeNumber(data, dtype, n, state / 2 ** 31 - 1);
  }
  return tensorFrom(data, { dtype, shape }) as Tensor<FloatDtype>;
}

const only = (form: Form): ImportedRope => {
  const { ropes, nearly } = importOnnx(form.bytes, form.name);
  assert.deepEqual(nearly, []);
  assert.equal(ropes.length, 1);
  return ropes[0]!;
};
const dtypeOf = (rope: ImportedRope): FloatDtype => (rope.dtype ?? 'f32') as FloatDtype;
const options = (form: Form) => ({
  ...(form.positions && { positionIds: form.positions.tensor }),
  ...(form.inputs && { inputs: form.inputs }),
});

/** The same rotation by our own operator, in float64 from the spec of the form. */
function wanted(form: Form, rope: ImportedRope, x: Tensor): Float64Array {
  const wide = f64Tensor(floats(x), x.shape);
  const seqLen = form.means.shape.at(-1)!;
  const plan = planRope({ ...form.spec, positions: form.means, seqLen, tableDtype: 'f64', direction: rope.direction! });
  const y = zeros('f64', x.shape);
  const four = (tensor: Tensor): Tensor =>
    form.layout === 'bs(nh)' ? tensor.view([tensor.shape[0]!, tensor.shape[1]!, -1, form.spec.headDim]) : tensor;
  const layout = { bnsh: 'bnsh', bsnh: 'bsnh', nsh: 'bnsh', 'bs(nh)': 'bsnh' } as const;
  rw.run(bindRope(plan, four(wide), four(y), layout[form.layout]));
  return floats(y);
}

/**
 * f32 angles of positions up to 40 have an error of 40 · 2^-23 radians, and |x| < 1 for both members. The result is
 * rounded once to its dtype.
 */
const bound = (dtype: FloatDtype): number => 2 * 40 * 2 ** -23 + (dtype === 'f16' ? 2 ** -10 : 2 ** -22);

function close(got: ArrayLike<number>, want: ArrayLike<number>, dtype: FloatDtype): void {
  assert.equal(got.length, want.length);
  let worst = 0;
  for (let n = 0; n < want.length; n++) worst = Math.max(worst, Math.abs(got[n]! - want[n]!));
  assert.ok(worst <= 1.5 * bound(dtype), `off by ${worst}`);
}

describe('every form that exporters write', () => {
  const backends = ['cpu', 'reference'].map((name) => ({ name, backend: openBackend(name) }));
  after(async () => {
    for (const { backend } of backends) (await backend).dispose();
  });
  for (const form of FORMS) {
    describe(form.name, () => {
      test('is found and described', () => {
        const rope = only(form);
        const { spec } = form;
        const rotaryDim = spec.rotaryDim ?? spec.headDim;
        assert.deepEqual(
          [
            rope.pairing,
            rope.headDim,
            rope.rotaryDim,
            rope.rotaryOffset,
            rope.layout,
            rope.x,
            rope.y,
            rope.tables.from,
            rope.whyNotRun,
          ],
          [spec.pairing, spec.headDim, rotaryDim, 0, form.layout, form.x, form.y, form.tables, undefined],
        );
        assert.equal(rope.direction, form.name === 'backward' ? 'backward' : 'forward');
        if (form.positions) {
          assert.equal(rope.positions.from, 'input');
          assert.equal('name' in rope.positions && rope.positions.name, form.positions.name);
        }
        if (form.tables === 'input') return;
        const { invFreq, attentionFactor } = frequenciesOf(spec);
        const found = rope.frequencies!;
        for (const [j, frequency] of invFreq.entries()) {
          assert.ok(
            Math.abs(found.invFreq[j]! / frequency - 1) <= found.within[j]! + 1e-7,
            `pair ${j}: ${found.invFreq[j]} for ${frequency}`,
          );
        }
        assert.equal(found.magnitude, attentionFactor);
        const factor = spec.scaling?.kind === 'linear' ? spec.scaling.factor : 1;
        assert.deepEqual(found.law, { kind: 'power', base: spec.base, factor });
        if (spec.axes) assert.deepEqual(rope.axisOfPair, [0, 1, 1, 2, 2, 2]);
        else assert.deepEqual(frequenciesOf(rope.spec!).invFreq, invFreq);
      });

      for (const { name, backend } of backends) {
        test(`runs on ${name} as our own operator does`, async () => {
          const rope = only(form);
          const runner = await backend;
          const dtype = dtypeOf(rope);
          const x = noise(form.shape, dtype);
          const y = runImported(rope, runner, { x: runner.upload(x), ...options(form) });
          close(await y.readNumbers(), wanted(form, rope, x), dtype);
          // This runs in place, and from strides.
          if (form.spec.pairing === 'interleaved-to-half') return;
          const order = x.shape.map((_, axis) => axis).reverse();
          const strided = x.permute(order).contiguous().permute(order);
          if (form.layout === 'bs(nh)') return;
          rw.run(bindImported(rope, { x: strided, out: strided, ...options(form) }));
          close(floats(strided), wanted(form, rope, x), dtype);
        });
      }
    });
  }
});

describe('the same models in ONNX Runtime', async () => {
  const runtime = await ortOrReason();
  const skip = typeof runtime === 'string' && runtime;
  for (const form of FORMS.filter((one) => one.runtime !== false)) {
    testPeers(form.name, { skip }, async (t) => {
      const rope = only(form);
      const dtype = dtypeOf(rope);
      // From Node 24 on, the package's JavaScript wants a Float16Array and its binary does not read one, so only Node
      // 20 compares these.
      if (dtype === 'f16' && 'Float16Array' in globalThis) return t.diagnostic('ONNX Runtime reads no halves here');
      const x = noise(form.shape, dtype);
      const { InferenceSession, Tensor } = runtime as Exclude<typeof runtime, string>;
      const feed = (tensor: Tensor): unknown =>
        new Tensor(
          { f32: 'float32', f16: 'float16', i64: 'int64' }[tensor.dtype as string]!,
          tensor.read() as HostArray,
          tensor.shape,
        );
      const feeds: Record<string, unknown> = { [form.x]: feed(x) };
      if (form.positions) feeds[form.positions.name] = feed(form.positions.tensor);
      for (const [key, tensor] of Object.entries(form.inputs ?? {})) feeds[key] = feed(tensor);
      const session = await InferenceSession.create(form.bytes, {});
      const { [form.y]: y } = await session.run(feeds);
      const bits = y!.data as unknown as Uint16Array;
      const got = dtype === 'f16' && !(bits instanceof Uint16Array) ? Array.from(bits as ArrayLike<number>) : undefined;
      const theirs = got ?? floats(tensorFrom(y!.data as never, { dtype, shape: form.shape }));
      close(floats(runImported(rope, rw, { x, ...options(form) })), theirs, dtype);
      t.diagnostic('compared with ONNX Runtime');
    });
  }
});

/** A rotation whose sums can be changed. */
function halves(
  spoil: {
    signs?: readonly [boolean, boolean];
    swap?: boolean;
    members?: boolean;
    pairs?: boolean;
    third?: boolean;
  } = {},
): Uint8Array {
  const g = new Graph();
  const x = g.input('x', 'f32', [1, 2, 'seq', 8]);
  const position = g.input('position_ids', 'i64', [1, 'seq']);
  const inv = frequenciesOf({ headDim: 8, pairing: 'half', base: 10000 }).invFreq;
  const columns = spoil.members ? [...inv, ...inv.map((w) => w / 2)] : [...inv, ...inv];
  const angles = g.node('Mul', [
    g.node('Cast', [g.node('Unsqueeze', [position, g.constant(i64([2]))])], { to: 1 }),
    g.constant(f32(columns, [8])),
  ]);
  const [cos, sin] = (spoil.swap ? ['Sin', 'Cos'] : ['Cos', 'Sin']).map((op) => g.node(op, [angles]));
  const parts = g.nodeOf('Split', [x, g.constant(i64([4, 4]))], { axis: -1 }, { outputs: 2 });
  const [a, b] = spoil.pairs
    ? [parts[0]!, g.node('Slice', [parts[1]!, ...[3, -5, -1, -1].map((n) => g.constant(i64([n])))])]
    : (parts as [string, string]);
  const [first, second] = spoil.signs ?? [true, false];
  const rotated = g.node('Concat', [first ? g.node('Neg', [b]) : b, second ? g.node('Neg', [a]) : a], { axis: -1 });
  const whole = spoil.third
    ? g.node('Add', [x, g.node('Slice', [x, ...[0, 8, 3].map((n) => g.constant(i64([n])))])])
    : x;
  const y = g.node(
    'Add',
    [g.node('Mul', [whole, cos!]), g.node('Mul', [rotated, sin!])],
    {},
    { to: 'y', name: 'apply' },
  );
  g.output(y, 'f32');
  return g.model();
}

describe('what is nearly RoPE', () => {
  test('without a change it is RoPE', () => assert.equal(importOnnx(halves()).ropes.length, 1));
  test('the other sign on both is the backward direction', () =>
    assert.equal(importOnnx(halves({ signs: [false, true] })).ropes[0]!.direction, 'backward'));
  const cases: [string, Parameters<typeof halves>[0], RegExp][] = [
    [
      'no minus at all',
      { signs: [false, false] },
      /^its signs are wrong: y0 = x0·c \+ x1·s, y1 = x0·s \+ x1·c; that is no rotation: it does not keep lengths/,
    ],
    ['minus twice', { signs: [true, true] }, /^its signs are wrong: y0 = x0·c − x1·s, y1 = −x0·s \+ x1·c/],
    ['cos for sin', { swap: true }, /^cos and sin are swapped: at position 0/],
    [
      'another angle for the second member',
      { members: true },
      /^the two members of pair \d are rotated by different numbers/,
    ],
    ['pairs from both ends', { pairs: true }, /^its pairs are none of ours: |^x\d and x\d are mixed into/],
  ];
  for (const [name, spoil, because] of cases) {
    test(name, () => {
      const { ropes, nearly } = importOnnx(halves(spoil));
      assert.deepEqual(ropes, []);
      assert.equal(nearly.length, 1, JSON.stringify(nearly));
      assert.equal(nearly[0]!.name, 'apply');
      assert.match(nearly[0]!.because, because);
    });
  }
  test('a gated MLP, a norm and a residual are not RoPE', () => {
    const g = new Graph();
    const x = g.input('x', 'f32', ['b', 's', 16]);
    const [gate, up] = [0, 1].map((n) => g.node('MatMul', [x, g.constant(f32(new Array(256).fill(n), [16, 16]))]));
    const mlp = g.node('Mul', [g.node('Mul', [gate!, g.node('Sigmoid', [gate!])]), up!]);
    const norm = g.node('Add', [
      g.node('Mul', [mlp, g.constant(f32(new Array(16).fill(0.5), [16]))]),
      g.constant(f32(new Array(16).fill(0.1), [16])),
    ]);
    g.output(g.node('Add', [x, norm]), 'f32');
    const { ropes, nearly } = importOnnx(g.model());
    assert.deepEqual([ropes, nearly], [[], []]);
  });
});

describe('where it is', () => {
  const node = (g: Graph, x: string, more = {}): string => {
    const caches = [0, 1].map((n) => g.constant(f32([1 - n, 1 - n], [1, 2])));
    return g.node('RotaryEmbedding', [x, ...caches], {}, { name: 'inner', ...more });
  };
  test('in the branch of an If and in a function: found and named, not run', () => {
    const branch = new Graph('b');
    const x = 'x';
    branch.output(node(branch, x), 'f32');
    const g = new Graph();
    g.input('x', 'f32', [1, 1, 1, 4]);
    const flag = g.input('flag', 'u8', []);
    g.output(
      g.node(
        'If',
        [flag],
        { then_branch: { graph: branch.graph }, else_branch: { graph: branch.graph } },
        { name: 'choose' },
      ),
      'f32',
    );
    const body = new Graph('f');
    body.node('RotaryEmbedding', ['a', 'c', 's'], {}, { to: 'out', name: 'rope' });
    const { ropes } = importOnnx(g.model({ functions: [body.function('Turn', 'local', ['a', 'c', 's'], ['out'])] }));
    assert.deepEqual(
      ropes.map((rope) => [rope.name, rope.scope, rope.headDim]),
      [
        ['inner', 'choose.then_branch', 4],
        ['inner', 'choose.else_branch', 4],
        ['rope', 'function local.Turn', undefined],
      ],
    );
    assert.throws(() => bindImported(ropes[0]!, { x: zeros('f32', [1, 1, 1, 4]), out: zeros('f32', [1, 1, 1, 4]) }), {
      code: 'UNSUPPORTED',
      message: /import: inner: this RoPE cannot be run: it lies in a function or inside a node/,
    });
  });

  test('GroupQueryAttention with do_rotary is described, with its caches', () => {
    const g = new Graph();
    const { invFreq } = frequenciesOf({ headDim: 8, pairing: 'half', base: 10000 });
    const rows = (f: (angle: number) => number): Tensor =>
      f32(
        Array.from({ length: 128 }, (_, n) => f((n >> 2) * invFreq[n % 4]!)),
        [32, 4],
      );
    const inputs = ['q', 'k', 'v', 'past_k', 'past_v'].map((name) =>
      g.input(name, 'f32', ['b', 's', name === 'q' ? 32 : 16]),
    );
    const lengths = ['seqlens_k', 'total'].map((name) => g.input(name, 'i32', ['b']));
    const caches = [g.constant(rows(Math.cos)), g.constant(rows(Math.sin))];
    g.output(
      g.node(
        'GroupQueryAttention',
        [...inputs, ...lengths, ...caches],
        { num_heads: 4, kv_num_heads: 2, do_rotary: 1, rotary_interleaved: 1 },
        { domain: 'com.microsoft', name: 'attn' },
      ),
      'f32',
    );
    g.node(
      'GroupQueryAttention',
      [...inputs, ...lengths],
      { num_heads: 4, kv_num_heads: 2 },
      { domain: 'com.microsoft', name: 'plain' },
    );
    const { ropes } = importOnnx(g.model());
    assert.equal(ropes.length, 1);
    const { form, pairing, headDim, rotaryDim, numHeads, tables, spec, whyNotRun } = ropes[0]!;
    assert.deepEqual(
      [form, pairing, headDim, rotaryDim, numHeads, tables.from, tables.rows],
      ['GroupQueryAttention (com.microsoft)', 'interleaved', 8, 8, 4, 'cache', 32],
    );
    assert.deepEqual(spec, { headDim: 8, pairing: 'interleaved', base: 10000 });
    assert.match(whyNotRun!, /part of attention/);
  });

  test('layers that are alike are one group', () => {
    const g = new Graph();
    const caches = [0, 1].map((n) => g.constant(f32([1 - n, 1 - n, 0.5, 0.5], [2, 2])));
    let x = g.input('x', 'f32', [1, 2, 's', 4]);
    const ids = g.input('position_ids', 'i64', [1, 's']);
    for (let layer = 0; layer < 5; layer++) {
      x = g.node('Relu', [
        g.node('RotaryEmbedding', [x, ...caches, ids], { interleaved: Number(layer === 2) }, { name: `rope.${layer}` }),
      ]);
    }
    g.output(x, 'f32');
    const groups = groupAlike(importOnnx(g.model()).ropes);
    assert.deepEqual(
      groups.map((group) => group.map((rope) => rope.name)),
      [['rope.0', 'rope.1', 'rope.3', 'rope.4'], ['rope.2']],
    );
  });
});

/** x · cos + rotate_half(x) · sin with angles [batch, seq, 4], in layout bsnh with one head. */
function finishRotation(g: Graph, angles: string, after?: number): Uint8Array {
  const x = g.input('x', 'f32', ['batch', 'seq', 1, 8]);
  const [cos, sin] = ['Cos', 'Sin'].map((op) => g.node('Unsqueeze', [g.node(op, [angles]), g.constant(i64([2]))]));
  const [a, b] = g.nodeOf('Split', [x], { axis: -1, num_outputs: 2 }, { outputs: 2 });
  const y0 = g.node('Sub', [g.node('Mul', [a!, cos!]), g.node('Mul', [b!, sin!])]);
  const y1 = g.node('Add', [g.node('Mul', [b!, cos!]), g.node('Mul', [a!, sin!])]);
  const y = g.node('Concat', [y0, y1], { axis: -1 });
  g.output(after === undefined ? y : g.node('Mul', [y, g.constant(f32([after], []))]), 'f32');
  return g.model();
}

describe('what is between positions and tables', () => {
  const spec = { headDim: 8, pairing: 'half', base: 10000 } as const;
  const inv = frequenciesOf(spec).invFreq;
  const column = (g: Graph, position: string): string =>
    g.node('Cast', [g.node('Unsqueeze', [position, g.constant(i64([2]))])], { to: 1 });
  const x = noise([2, 4, 1, 8], 'f32');
  const turned = (options: object, positions: Tensor = POSITIONS): Float64Array => {
    const out = zeros('f64', x.shape);
    rw.run(
      bindRope(planRope({ ...spec, positions, tableDtype: 'f64', ...options }), f64Tensor(floats(x), x.shape), out),
    );
    return floats(out);
  };

  test('an If that chooses the frequencies by length, as LongRoPE is traced', () => {
    const g = new Graph();
    const position = g.input('position_ids', 'i64', ['batch', 'seq']);
    const most = g.node('ReduceMax', [position], { keepdims: 0 });
    const branch = (name: string, factor: number): { graph: Graph['graph'] } => {
      const inner = new Graph(name);
      inner.output(
        inner.node('Identity', [
          inner.constant(
            f32(
              inv.map((w) => w / factor),
              [4],
            ),
            `${name}_inv`,
          ),
        ]),
        'f32',
      );
      return { graph: inner.graph };
    };
    const long = g.node('Greater', [most, g.constant(i64([30], []))]);
    const chosen = g.node('If', [long], { then_branch: branch('long', 4), else_branch: branch('short', 1) });
    const [rope] = importOnnx(finishRotation(g, g.node('Mul', [column(g, position), chosen]))).ropes;
    close(
      floats(runImported(rope!, rw, { x, positionIds: POSITIONS })),
      turned({ scaling: { kind: 'linear', factor: 4 } }),
      'f32',
    );
    const near = i64([0, 1, 2, 3, 4, 5, 6, 7], [2, 4]);
    close(floats(runImported(rope!, rw, { x, positionIds: near })), turned({}, near), 'f32');
  });

  test('positions counted from an attention mask: given, or the mask', () => {
    const g = new Graph();
    const mask = g.input('attention_mask', 'i64', ['batch', 'seq']);
    const counted = g.node('Sub', [g.node('CumSum', [mask, g.constant(i64([1], []))]), g.constant(i64([1], []))]);
    const held = g.node('Where', [
      g.node('Equal', [mask, g.constant(i64([0], []))]),
      g.constant(i64([1], [])),
      counted,
    ]);
    const [rope] = importOnnx(finishRotation(g, g.node('Mul', [column(g, held), g.constant(f32(inv, [4]))]))).ropes;
    assert.equal(rope!.positions.from, 'graph');
    assert.deepEqual('needs' in rope!.positions && rope!.positions.needs, ['attention_mask']);
    const means = i64([1, 1, 0, 1, 0, 1, 2, 3], [2, 4]);
    const want = turned({}, means);
    close(
      floats(runImported(rope!, rw, { x, inputs: { attention_mask: i64([0, 0, 1, 1, 1, 1, 1, 1], [2, 4]) } })),
      want,
      'f32',
    );
    close(floats(runImported(rope!, rw, { x, positionIds: means })), want, 'f32');
  });

  test('interleaved axes written by ScatterND, as Qwen3-VL is traced', () => {
    const g = new Graph();
    const position = g.input('position_ids', 'i64', [3, 'batch', 'seq']);
    const all = g.node('Mul', [
      g.node('Cast', [g.node('Unsqueeze', [position, g.constant(i64([3]))])], { to: 1 }),
      g.constant(f32(inv, [4])),
    ]);
    const of = (axis: number): string =>
      g.node('Transpose', [g.node('Gather', [all, g.constant(i64([axis], []))], { axis: 0 })], { perm: [2, 0, 1] });
    // The axes of the pairs are t, h, w, t.
    let rows = of(0);
    for (const axis of [1, 2]) {
      const update = g.node('Gather', [of(axis), g.constant(i64([axis]))], { axis: 0 });
      rows = g.node('ScatterND', [rows, g.constant(i64([axis], [1, 1])), update]);
    }
    const [rope] = importOnnx(finishRotation(g, g.node('Transpose', [rows], { perm: [1, 2, 0] }))).ropes;
    assert.deepEqual(rope!.axisOfPair, [0, 1, 2, 0]);
    const ids = i64(
      [...[0, 1, 2, 3, 4, 5, 6, 7], ...[0, 1, 1, 9, 9, 9, 2, 2], ...[5, 4, 3, 2, 1, 0, 30, 20]],
      [3, 2, 4],
    );
    close(
      floats(runImported(rope!, rw, { x, positionIds: ids })),
      turned({ axes: { rule: 'interleaved', sections: [2, 1, 1] } }, ids),
      'f32',
    );
  });

  test('a factor on the result is a factor on cos and sin', () => {
    const g = new Graph();
    const position = g.input('position_ids', 'i64', ['batch', 'seq']);
    const angles = g.node('Mul', [column(g, position), g.constant(f32(inv, [4]))]);
    const [rope] = importOnnx(finishRotation(g, angles, 0.75)).ropes;
    assert.equal(rope!.frequencies!.magnitude, 0.75);
    close(floats(runImported(rope!, rw, { x, positionIds: POSITIONS })), turned({ attentionFactor: 0.75 }), 'f32');
  });

  test('an operator that is not known is named, and positions behind it can be given', () => {
    const g = new Graph();
    const position = g.node('NonZero', [g.input('flags', 'i64', ['all'])]);
    const two = g.node('Reshape', [position, g.constant(i64([2, 4]))]);
    const [rope] = importOnnx(finishRotation(g, g.node('Mul', [column(g, two), g.constant(f32(inv, [4]))]))).ropes;
    assert.equal(rope!.positions.from, 'graph');
    const h = new Graph();
    const odd = h.node('Tan', [h.node('Cast', [h.input('position_ids', 'i64', ['batch', 'seq'])], { to: 1 })]);
    const wide = h.node('Mul', [h.node('Unsqueeze', [odd, h.constant(i64([2]))]), h.constant(f32(inv, [4]))]);
    const [other] = importOnnx(finishRotation(h, wide)).ropes;
    assert.match(other!.whyNotRun!, /its tables are made by operators that are not computed here: Tan/);
  });
});

describe('laws', () => {
  const cases: [string, Parameters<typeof frequenciesOf>[0], (law: Record<string, unknown>) => void][] = [
    [
      'llama3: fast pairs plain, slow ones divided by 8',
      {
        headDim: 128,
        pairing: 'half',
        base: 500000,
        scaling: { kind: 'llama3', factor: 8, lowFreqFactor: 1, highFreqFactor: 4, originalContext: 8192 },
      },
      (law) => {
        assert.equal(law.kind, 'scaled');
        assert.ok(Math.abs((law.base as number) / 500000 - 1) < 1e-5);
        assert.ok(Math.abs((law.factors as number[]).at(-1)! - 8) < 1e-3);
        assert.equal(law.plainPairs, 29);
      },
    ],
    [
      'an odd base',
      { headDim: 64, pairing: 'half', base: 123456.7 },
      (law) => assert.deepEqual([law.kind, Math.abs((law.base as number) / 123456.7 - 1) < 1e-5], ['power', true]),
    ],
  ];
  for (const [name, spec, check] of cases) {
    test(name, () => {
      const g = new Graph();
      const pairs = spec.headDim / 2;
      const { invFreq } = frequenciesOf(spec);
      const rows = (f: (angle: number) => number): Tensor =>
        f32(
          Array.from({ length: 4096 * pairs }, (_, n) => f(Math.floor(n / pairs) * invFreq[n % pairs]!)),
          [4096, pairs],
        );
      const x = g.input('x', 'f32', [1, 2, 's', spec.headDim]);
      g.output(
        g.node('RotaryEmbedding', [
          x,
          g.constant(rows(Math.cos)),
          g.constant(rows(Math.sin)),
          g.input('p', 'i64', [1, 's']),
        ]),
        'f32',
      );
      check(importOnnx(g.model()).ropes[0]!.frequencies!.law as never);
    });
  }
  /** A cache of f32 for half pairing, from a rule for the angles. */
  const cached = (
    rows: number,
    invFreq: readonly number[],
    part: (row: number, frequency: number) => readonly [number, number],
  ) => {
    const g = new Graph();
    const pairs = invFreq.length;
    const x = g.input('x', 'f32', [1, 1, 's', 2 * pairs]);
    const table = (which: 0 | 1): string =>
      g.constant(
        f32(
          Array.from({ length: rows * pairs }, (_, n) => part(Math.floor(n / pairs), invFreq[n % pairs]!)[which]),
          [rows, pairs],
        ),
      );
    g.output(
      g.node('RotaryEmbedding', [x, table(0), table(1), g.input('p', 'i64', [1, 's'])], {}, { name: 'r' }),
      'f32',
    );
    return importOnnx(g.model()).ropes[0]!;
  };
  const unit = (angle: number): [number, number] => [Math.cos(angle), Math.sin(angle)];
  const plain = [...frequenciesOf({ headDim: 32, pairing: 'half', base: 10000 }).invFreq];

  test('where far rows differ, the near ones give the law, and the description says from which row on', () => {
    const far: [string, number, number, (row: number, frequency: number) => readonly [number, number]][] = [
      ['a table that repeats', 256, 16, (row, w) => unit((row % 256) * w)],
      ['long factors past 1024', 1024, 16, (row, w) => unit((row * w) / (row < 1024 ? 1 : 8))],
      ['rows of zeros that nobody filled', 512, 16, (row, w) => (row < 512 ? unit(row * w) : [0, 0])],
      ['NaN', 2048, 16, (row, w) => (row < 2048 ? unit(row * w) : [Number.NaN, Number.NaN])],
    ];
    for (const [name, position, pairs, part] of far) {
      const { frequencies, notes, spec } = cached(4096, plain, part);
      assert.deepEqual(
        [frequencies?.law, frequencies?.departs],
        [
          { kind: 'power', base: 10000, factor: 1 },
          { position, pairs },
        ],
        name,
      );
      for (const [j, w] of plain.entries())
        assert.ok(Math.abs(frequencies!.invFreq[j]! / w - 1) <= frequencies!.within[j]!, `${name}, pair ${j}`);
      assert.equal(spec?.base, 10000);
      assert.match(
        notes.join(),
        new RegExp(`from position ${position} on the angles of ${pairs} of 16 pairs are not position × frequency`),
      );
    }
    const whole = cached(4096, plain, (row, w) => unit(row * w));
    assert.deepEqual([whole.frequencies!.departs, whole.notes], [undefined, []]);
  });

  test('one pair that departs alone is counted alone, and keeps its near digits', () => {
    const { frequencies } = cached(4096, plain, (row, w) => unit(row * w + (row >= 64 && w === plain[2] ? 1e-3 : 0)));
    assert.deepEqual(frequencies!.departs, { position: 64, pairs: 1 });
    assert.ok(Math.abs(frequencies!.invFreq[2]! / plain[2]! - 1) <= frequencies!.within[2]!);
  });

  test('tables that rotate nothing do not rotate backward', () => {
    const still = cached(8, [0, 0], (row, w) => unit(row * w));
    assert.deepEqual([still.frequencies!.invFreq, still.notes], [[0, 0], []]);
    assert.match(cached(8, [1, 0.1], (row, w) => unit(-row * w)).notes.join(), /the tables rotate backward/);
  });

  test('caches whose pairs are not on a circle have none, and still run', () => {
    const g = new Graph();
    const x = g.input('x', 'f32', [1, 1, 's', 2]);
    g.output(
      g.node('RotaryEmbedding', [
        x,
        g.constant(f32([0, 0.5], [2, 1])),
        g.constant(f32([2, 0.25], [2, 1])),
        g.input('p', 'i64', [1, 's']),
      ]),
      'f32',
    );
    const [rope] = importOnnx(g.model()).ropes;
    assert.match(rope!.notes.join(), /cos and sin lie on no circle/);
    const y = runImported(rope!, rw, { x: f32([1, 2, 3, 4], [1, 1, 2, 2]), positionIds: i64([1, 0], [1, 2]) });
    assert.deepEqual([...floats(y)], [0, 1.25, -8, 6]);
  });
});

describe('graphs that no exporter writes', () => {
  const inv = [1, 0.1, 0.01, 0.001];
  const angles = (g: Graph, position: string): string =>
    g.node('Mul', [
      g.node('Cast', [g.node('Unsqueeze', [position, g.constant(i64([2]))])], { to: 1 }),
      g.constant(f32(inv, [4])),
    ]);
  const only = (bytes: Uint8Array): ImportedRope => {
    const { ropes, nearly } = importOnnx(bytes);
    assert.deepEqual([ropes.length, nearly], [1, []]);
    return ropes[0]!;
  };

  test('operators that split scalars are refused with a clear message', () => {
    const scalar = i64([3], []);
    const makers: [string, (g: Graph) => string, RegExp][] = [
      [
        'Split',
        (g) => g.node('Split', [g.constant(scalar), g.constant(i64([3]))], { axis: 0 }),
        /Split has axis 0 of 0/,
      ],
      [
        'Concat',
        (g) => g.node('Concat', [g.constant(scalar), g.constant(scalar)], { axis: 0 }),
        /Concat has axis 0 of 0/,
      ],
      [
        'Gather',
        (g) => g.node('Gather', [g.constant(scalar), g.constant(i64([0], []))], { axis: 0 }),
        /Gather has axis 0 of 0/,
      ],
    ];
    for (const [name, make, because] of makers) {
      const g = new Graph();
      const position = g.node('Unsqueeze', [make(g), g.constant(i64([0, 1]))]);
      assert.match(only(finishRotation(g, angles(g, position))).notes.join(), because, name);
    }
  });

  test('an input with no positions', () => {
    const g = new Graph();
    const length = g.node('Gather', [g.node('Shape', [g.input('flags', 'i64', ['n'])]), g.constant(i64([0], []))]);
    const empty = g.node('Add', [length, g.constant(i64([], [1, 0]))]);
    assert.match(only(finishRotation(g, angles(g, empty))).notes.join(), /holds no positions/);
  });

  test('a value that is made from itself', () => {
    const g = new Graph();
    g.declare('loop', 'i64', [1, 'seq']);
    g.node('Slice', ['loop', ...[0, 9, 1].map((n) => g.constant(i64([n])))], {}, { to: 'loop' });
    assert.match(only(finishRotation(g, angles(g, 'loop'))).notes.join(), /more than 256 operators lead to it/);
  });

  test('an If whose branch reads its result', () => {
    const branch = new Graph('b');
    branch.output(branch.node('Identity', ['loop']), 'i64');
    const g = new Graph();
    const flag = g.constant(tensorFrom(Uint8Array.of(1), { shape: [] }));
    g.declare('loop', 'i64', [1, 'seq']);
    const body = { graph: branch.graph };
    const position = g.node('If', [flag], { then_branch: body, else_branch: body }, { to: 'loop' });
    assert.match(only(finishRotation(g, angles(g, position))).notes.join(), /If lies in 16 others/);
  });

  test('a rotary_embedding_dim that does not fit the tables', () => {
    for (const [dim, width] of [
      [2 ** 40, 'w'],
      [6, 2],
      [3, 2],
    ] as const) {
      const g = new Graph();
      const x = g.input('x', 'f32', [1, 1, 's', 8]);
      const [cos, sin] = ['c', 's'].map((name) => g.input(name, 'f32', [1, 's', width]));
      g.output(g.node('RotaryEmbedding', [x, cos!, sin!], { rotary_embedding_dim: dim }), 'f32');
      const { notes, frequencies } = only(g.model());
      assert.match(notes.join(), /tables of (unknown|2) columns do not fit a rotary_dim of (1099511627776|6|3)/);
      assert.equal(frequencies, undefined);
    }
  });

  test('the bounds of Clip as attributes, as before opset 11', () => {
    const g = new Graph();
    const position = g.input('position_ids', 'i64', [1, 'seq']);
    const clipped = g.node('Clip', [g.node('Cast', [position], { to: 1 })], { min: { f: 1 }, max: { f: 3 } });
    const wide = g.node('Mul', [g.node('Unsqueeze', [clipped, g.constant(i64([2]))]), g.constant(f32(inv, [4]))]);
    const x = f32(
      Array.from({ length: 24 }, (_, n) => (n % 8 === 0 ? 1 : 0)),
      [1, 3, 1, 8],
    );
    const y = floats(runImported(only(finishRotation(g, wide)), rw, { x, positionIds: i64([0, 2, 5], [1, 3]) }));
    close([y[0]!, y[8]!, y[16]!], [1, 2, 3].map(Math.cos), 'f32');
  });
});

describe('refusals', () => {
  const cached = FORMS[1]!;
  const rope = () => only(cached);
  const x = noise(cached.shape, 'f32');
  const bind = (given: object) =>
    bindImported(rope(), { x, out: zeros('f32', cached.shape), positionIds: POSITIONS, ...given });
  test('positions alone are enough where a cache is cut to the length in use', () => void bind({}));
  test('positions without their leading dimension', () =>
    void bind({ x: noise([1, 3, 4, 8], 'f32'), out: zeros('f32', [1, 3, 4, 8]), positionIds: i64([1, 2, 3, 4]) }));
  const cases: [string, () => unknown, string, RegExp][] = [
    [
      'no positions',
      () => bind({ positionIds: undefined }),
      'SHAPE',
      /import: Add_22: position_ids: give the tokens' positions, which the graph calls position_ids/,
    ],
    [
      'floats for positions',
      () => bind({ positionIds: zeros('f32', [2, 4]) }),
      'DTYPE',
      /position_ids: expected integers, got "f32"/,
    ],
    [
      'a position past the cache',
      () => bind({ positionIds: i64([0, 1, 2, 64, 0, 1, 2, 3], [2, 4]) }),
      'RANGE',
      /position_ids: position 64 lies outside the table of 64 rows/,
    ],
    [
      'fewer positions than tokens',
      () => bind({ positionIds: i64([0, 1, 2, 3, 4, 5], [2, 3]) }),
      'SHAPE',
      /position_ids: expected seq = 4 in dimension 1, got \[2, 3\]/,
    ],
    [
      'another head_dim',
      () => bind({ x: zeros('f32', [2, 3, 4, 6]), out: zeros('f32', [2, 3, 4, 6]) }),
      'SHAPE',
      /x: expected 8 in the last dimension, got \[2, 3, 4, 6\]/,
    ],
    [
      'another number of heads than the graph says',
      () => bind({ x: zeros('f32', [2, 5, 4, 8]) }),
      'SHAPE',
      /x: expected shape \[batch, 3, seq, 8\]/,
    ],
    [
      'an input that the graph has not',
      () => bind({ inputs: { nothing: x } }),
      'RANGE',
      /inputs\.nothing: the graph has no value of this name/,
    ],
    [
      'floats for positions among the inputs',
      () => bind({ positionIds: undefined, inputs: { position_ids: zeros('f32', [2, 4]) } }),
      'DTYPE',
      /inputs\.position_ids: expected integers, got "f32"/,
    ],
    [
      'tables that are not given',
      () => bindImported(only(FORMS[9]!), { x: noise([1, 3, 4, 8], 'f32'), out: zeros('f32', [1, 3, 4, 8]) }),
      'SHAPE',
      /inputs: give cos, from which the tables are computed: the graph's input cos is not given/,
    ],
    [
      'integers for x',
      () => bind({ x: zeros('i32', [2, 3, 4, 8]), out: zeros('i32', [2, 3, 4, 8]) }),
      'DTYPE',
      /rope: x: expected f64, f32, f16 or bf16/,
    ],
    [
      'out over a part of x',
      () =>
        bind({
          x: tensorFrom(new Float32Array(200), { shape: [2, 3, 4, 8] }),
          out: tensorFrom(new Float32Array(10), { shape: [2, 3] }),
        }),
      'SHAPE',
      /rope: out|out: expected/,
    ],
  ];
  for (const [name, call, code, message] of cases)
    test(name, () => void assert.throws(call, { name: 'RopewalkError', code, message }));
  test('NaN and 0 tokens go through', () => {
    const none = zeros('f32', [2, 3, 0, 8]);
    assert.equal(runImported(rope(), rw, { x: none, positionIds: i64([], [2, 0]) }).size, 0);
    const nan = f32(new Array(192).fill(Number.NaN), [2, 3, 4, 8]);
    assert.ok(floats(runImported(rope(), rw, { x: nan, positionIds: POSITIONS })).every(Number.isNaN));
  });
});

test('an attribute that the operator does not have is no rotation, and names the nearest; of the other domain too', () => {
  const graphOf = (attributes: Record<string, number>, domain?: string) => {
    const g = new Graph();
    const x = g.input('x', 'f32', ['b', 2, 's', 8]);
    const angles = Array.from({ length: 64 }, (_, n) => (n >> 2) * 0.1 ** (n % 4));
    const caches = (['cos', 'sin'] as const).map((part) => g.constant(f32(angles.map(Math[part]), [16, 4])));
    const ids = g.input('ids', 'i64', ['b', 's']);
    const inputs = domain ? [x, ids, ...caches] : [x, ...caches, ids];
    g.output(g.node('RotaryEmbedding', inputs, attributes, { name: 'rope', ...(domain && { domain }) }), 'f32');
    return importOnnx(g.model(), 'm.onnx');
  };
  const because = (attributes: Record<string, number>, domain?: string) =>
    graphOf(attributes, domain).nearly[0]?.because;
  assert.equal(
    because({ rotary_embeding_dim: 4 }),
    'RotaryEmbedding has no attribute "rotary_embeding_dim". Did you mean rotary_embedding_dim?',
  );
  assert.match(because({ scale: 1 })!, /no attribute "scale"\. It has interleaved, rotary_embedding_dim, num_heads\.$/);
  assert.match(
    because({ is_packed: 1 }, 'com.microsoft')!,
    /no attribute "is_packed"\. It has .*, is_packed_batching\.$/,
  );
  assert.deepEqual(graphOf({ num_heads: 2 }).nearly, []);
});
