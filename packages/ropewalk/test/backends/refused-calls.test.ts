/**
 * A refused call leaves nothing behind, on every backend: memory is as before, later results are right, and no two tensors
 * share memory.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openBackend } from '@ropewalk/cli/internal';
import { cann, ggml, onnx } from '@ropewalk/dialects';
import { noBackend } from '../../../../test/support/gpu.js';
import { BACKENDS_HERE, testOnce } from '../../../../test/support/tier.js';
import type { Backend } from '../../src/backends/backend.js';
import { openCpu } from '../../src/backends/wasm/host.js';
import { show } from '../../src/core/errors.js';
import { type Tensor, tensorFrom } from '../../src/core/tensor.js';
import { planAdd } from '../../src/ops/add.js';
import { Ropewalk } from '../../src/ropewalk.js';

const ROPE = { pairing: 'half', base: 10000 } as const;
const BAD_SHAPES: readonly unknown[] = [
  ...[
    [Number.NaN],
    [undefined],
    [null],
    [-1],
    [-64],
    [1.5],
    ['64'],
    [2n],
    [[2]],
    [Infinity],
    [-(2 ** 40)],
    [2 ** 53],
    [2 ** 45],
  ],
  ...[[2, -1], [0, 2 ** 40, 2 ** 40], new Array(3), null, undefined, 'x', 4, {}, Int32Array.of(2), { length: 1, 0: 2 }],
];
const BAD_DTYPES: readonly unknown[] = [
  'f33',
  '',
  'F32',
  'toString',
  '__proto__',
  null,
  undefined,
  4,
  ['f32'],
  Symbol('f32'),
];

/** Gives the bytes that tensors and tables hold, where the backend counts them. */
function heldBytes(backend: Backend): number {
  const { memory, pool } = backend as { memory?: { heldBytes: number }; pool?: { heldBytes: number } };
  return memory?.heldBytes ?? pool?.heldBytes ?? 0;
}

const counted = (n: number): Float32Array => Float32Array.from({ length: n }, (_, i) => Math.sin(i));

/** The calls that every backend refuses. */
function refusedCalls(rw: Ropewalk): Record<string, () => unknown> {
  const f32 = (...shape: number[]): Tensor<'f32'> =>
    tensorFrom(counted(shape.reduce((a, b) => a * b, 1)), { dtype: 'f32', shape });
  const forged = (...shape: unknown[]): Tensor<'f32'> => ({ ...f32(4), shape }) as never;
  const [a, b] = [f32(2, 64), f32(2, 63)];
  const one = tensorFrom(Int32Array.of(1), { dtype: 'i32' });
  const pairs = tensorFrom<'i32'>(Int32Array.of(0, 1), { shape: [2, 1] });
  const blocks = new Uint8Array(34);
  const plan = rw.planRope({ ...ROPE, headDim: 64, positions: 0, seqLen: 2 });
  const heads = f32(2, 1, 64);
  const calls: Record<string, () => unknown> = {
    'upload null': () => rw.upload(null as never),
    'upload Uint16Array without dtype': () => rw.upload(new Uint16Array(4) as never),
    'upload a shape that does not fit': () => rw.upload(counted(4), { shape: [5] }),
    'uploadBlocks of another format': () => rw.uploadBlocks('q9_9' as never, blocks, [1, 32]),
    'uploadBlocks of another size': () => rw.uploadBlocks('q8_0', blocks, [2, 32]),
    'uploadBlocks [NaN, 32]': () => rw.uploadBlocks('q8_0', blocks, [Number.NaN, 32]),
    'add of two shapes': () => rw.add(a, b),
    'add of a forged shape': () => rw.add(forged(Number.NaN), forged(Number.NaN)),
    'swiglu of two shapes': () => rw.swiglu(a, b),
    'swiglu with a limit of 0': () => rw.swiglu(a, a, { limit: 0 }),
    'gelu of another kind': () => rw.gelu(a, { approximate: 'erf' as never }),
    'geglu of two shapes': () => rw.geglu(a, b),
    'scale by NaN': () => rw.scale(a, Number.NaN),
    'scale by factors of other rows': () => rw.scale(a, f32(3)),
    'scale by forged factors': () => rw.scale(a, forged(Number.NaN)),
    'layerNorm of another width': () => rw.layerNorm(a, f32(63), { eps: 1e-6 }),
    'layerNorm with a bias of another width': () => rw.layerNorm(a, f32(64), { eps: 1e-6, bias: f32(63) }),
    'linear of two k': () => rw.linear(a, f32(3, 63)),
    'linear with a bias that does not fit': () => rw.linear(a, f32(3, 64), { bias: f32(2) }),
    'linear with a forged weight': () => rw.linear(a, forged(Number.NaN, 64)),
    'linear with a forged weight of -1 rows': () => rw.linear(a, forged(-1, 64)),
    'route to more experts than there are': () => rw.route(a, { gate: 'softmax', chosen: 65 }),
    'route of a forged router': () => rw.route(forged(Number.NaN, 4), { gate: 'softmax', chosen: 2 }),
    'expertLinear of two k': () => rw.expertLinear(a, f32(2, 3, 63), pairs),
    'expertLinear with a forged weight': () => rw.expertLinear(a, forged(2, Number.NaN, 64), pairs),
    'embedding of a row that is not there': () => rw.embedding(one, f32(1, 64)),
    'embedding of one dimension': () => rw.embedding(one, f32(64)),
    'embedding of a forged table': () => rw.embedding(one, forged(2, Number.NaN)),
    'rmsNorm without eps': () => rw.rmsNorm(a, f32(64), {} as never),
    'rmsNorm of another width': () => rw.rmsNorm(a, f32(63), { eps: 1e-6 }),
    'selfAttention of 3 heads over 2': () => rw.selfAttention(f32(2, 3, 8), f32(2, 2, 8), f32(2, 2, 8)),
    'selfAttention with too few sinks': () =>
      rw.selfAttention(f32(2, 3, 8), f32(2, 3, 8), f32(2, 3, 8), { sinks: f32(2) }),
    'selfAttention of forged values': () => rw.selfAttention(f32(2, 3, 8), f32(2, 3, 8), forged(2, 3, Number.NaN)),
    'argmax of nothing': () => rw.argmax(f32(2, 0)),
    'argmax into a value of another shape': () => rw.argmax(a, { value: f32(2, 2) }),
    'argmax into an index of another dtype': () => rw.argmax(a, { index: f32(2, 1) as never }),
    'rearrange into another shape': () => rw.rearrange(a, { out: b }),
    'rope of another head_dim': () => rw.rope(f32(2, 1, 32), plan),
    'rope without a pairing': () => rw.rope(heads, 0, { base: 10000 } as never),
    'ropeBackward without a pairing': () => rw.ropeBackward(heads, 0, { base: 10000 } as never),
    'ropeParts into a row that is not there': () => rw.ropeParts(plan, [{ x: heads, out: f32(4, 1, 64), rows: 3 }]),
  };
  calls['run a plan of no operator'] = () =>
    rw.run({ op: 'tenth', x: a, out: rw.tensor(new Float32Array(128)) } as never);
  for (const shape of BAD_SHAPES) calls[`allocate shape ${show(shape)}`] = () => rw.allocate('f32', shape as never);
  for (const dtype of BAD_DTYPES) calls[`allocate dtype ${show(dtype)}`] = () => rw.allocate(dtype as never, [4]);
  // A mistake in a peer's arguments shows only when the output exists.
  const X = tensorFrom(counted(128), { dtype: 'f32', shape: [1, 1, 2, 64] });
  calls['onnx with caches of another width'] = () =>
    onnx.rotaryEmbedding(rw, { X, cos_cache: f32(1, 2, 31), sin_cache: f32(1, 2, 31) });
  calls['aclnn with a table that is no rotation'] = () =>
    cann.aclnnRotaryPositionEmbedding(rw, X, X, X, cann.ACLNN_ROTARY_MODE.half);
  // A disposed tensor is refused late, in the middle of a call; where memory is the garbage collector's, disposing it
  // does nothing.
  const gone = rw.upload(counted(64));
  if (gone.storage.owner !== 'host') {
    gone.dispose();
    // every second element: widened in a copy
    const wide = rw.upload(counted(128)).view([64, 2]).permute([1, 0]).slice(0, 0, 1).view([64]);
    calls['rmsNorm of a disposed x by a strided weight'] = () => rw.rmsNorm(gone, wide, { eps: 1e-6 });
    calls['layerNorm with a strided weight and a disposed bias'] = () =>
      rw.layerNorm(f32(2, 64), f32(64, 2).permute([1, 0]).slice(0, 0, 1).view([64]), { eps: 1e-6, bias: gone });
    calls['scale by disposed factors'] = () => rw.scale(f32(64, 2), gone);
    calls['add of a disposed tensor to one in host memory'] = () => rw.add(f32(64), gone);
    calls['linear with a disposed bias'] = () => rw.linear(f32(9, 64).permute([1, 0]), f32(64, 9), { bias: gone });
    calls['expertLinear with disposed weights'] = () =>
      rw.expertLinear(f32(9, 64).permute([1, 0]), f32(2, 4, 9), tensorFrom(new Int32Array(64), { shape: [64, 1] }), {
        weights: gone.view([64, 1]),
      });
    calls['route with a disposed bias'] = () => rw.route(f32(2, 64), { gate: 'sigmoid', chosen: 2, bias: gone });
    calls['rope with a norm, a disposed weight and rows'] = () =>
      rw.ropeParts(plan, [{ x: heads, out: f32(4, 1, 64), rows: [3, 1], norm: { weight: gone, eps: 1e-6 } }]);
    calls['ropeParts into a disposed tensor'] = () => rw.ropeParts(plan, [{ x: heads, out: gone.view([1, 1, 64]) }]);
    const a = ggml.ggmlFromTensor(gone.view([1, 1, 64]));
    const b = ggml.ggmlFromTensor(tensorFrom(Int32Array.of(1), { dtype: 'i32' }));
    calls['ggml_rope of a disposed tensor'] = () => ggml.rope(rw, a, b, 64, 0);
    calls['upload a disposed tensor'] = () => rw.upload(gone);
  }
  return calls;
}

for (const name of BACKENDS_HERE) {
  test(`refused calls leave ${name} as it was`, { skip: noBackend(name) }, async () => {
    const backend = await openBackend(name, { threads: 1 });
    const rw = new Ropewalk(backend);
    const x = rw.upload(counted(128), { shape: [2, 1, 64] });
    const plan = rw.planRope({ ...ROPE, headDim: 64, positions: 5, seqLen: 2 });
    const rotated = async (): Promise<Float32Array> => {
      using y = rw.rope(x, plan);
      return y.read();
    };
    const calls = refusedCalls(rw);
    const want = await rotated(); // the plan's tables are kept from here on
    const held = heldBytes(backend);
    for (const [refused, call] of Object.entries(calls)) {
      assert.throws(call, { name: 'RopewalkError' }, refused);
      assert.equal(heldBytes(backend), held, `${refused}: bytes held`);
    }
    const free = backend.capabilities().memory?.availableBytes;
    assert.ok(free === undefined || Number.isSafeInteger(free), `${free} bytes free`);
    const many = Array.from(
      { length: 40 },
      (_, n) => [rw.upload(new Float32Array(16).fill(n)), rw.allocate('f32', [16])] as const,
    );
    for (const [n, [filled, zeros]] of many.entries()) {
      assert.deepEqual(await filled.read(), new Float32Array(16).fill(n));
      assert.deepEqual(await zeros.read(), new Float32Array(16));
    }
    for (const tensor of many.flat()) tensor.dispose();
    assert.deepEqual(await rotated(), want);
    assert.equal(heldBytes(backend), held);
    backend.dispose();
  });
}

for (const name of BACKENDS_HERE) {
  test(`a plan that is none, given to the backend ${name} itself`, { skip: noBackend(name) }, async () => {
    const opened = await openBackend(name, { threads: 1 });
    const refusal = {
      code: 'UNSUPPORTED',
      message: /^run: plan: expected a plan of one of Ropewalk's operators, got /,
    };
    for (const plan of [null, undefined, 5, {}, { op: 'add' }]) {
      assert.throws(() => opened.run(plan as never), refusal);
      assert.throws(() => opened.whyNot(plan as never), refusal);
    }
    const two = tensorFrom(Float32Array.of(1, 1));
    const unknown = { ...planAdd(two, two, two), op: 'none' };
    assert.throws(() => opened.run(unknown as never), { code: 'UNSUPPORTED' });
    opened.dispose();
  });
}

testOnce('cpu: a call whose working memory does not fit leaves nothing behind, at any stage', async () => {
  const limit = 1 << 20;
  const f32 = (rw: Ropewalk, ...shape: number[]): Tensor<'f32'> => {
    const values = Float32Array.from({ length: shape.reduce((a, b) => a * b) }, (_, i) => (i % 7) - 3);
    return rw.upload(tensorFrom(values, { dtype: 'f32', shape }));
  };
  const [small, large] = [await openCpu({ threads: 1, memoryLimit: limit }), await openCpu({ threads: 1 })];
  const run = (rw: Ropewalk, rows: number): Tensor<'f32'> => {
    using x = f32(rw, rows, 64);
    using weight = f32(rw, 64, 64);
    return rw.linear(x, weight);
  };
  let [refused, done] = [0, 0];
  for (let rows = 8; rows <= 1600; rows += 40) {
    const rw = new Ropewalk(small);
    const held = small.launcher.memory.heldBytes;
    try {
      run(rw, rows).dispose();
      done++;
    } catch (error) {
      assert.match(String(error), /^RopewalkError: cpu: memory: \d+ bytes do not fit/);
      refused++;
      // Scratch memory may have gone back, to make room.
      assert.ok(
        small.launcher.memory.heldBytes <= held,
        `${rows} rows: ${small.launcher.memory.heldBytes} bytes held, ${held} before`,
      );
      assert.deepEqual(run(rw, 8).read(), run(new Ropewalk(large), 8).read(), `after ${rows} rows`);
    }
  }
  assert.ok(refused > 10 && done > 10, `${refused} refused, ${done} done`);
});
