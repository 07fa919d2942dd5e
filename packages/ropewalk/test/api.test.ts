/** The library as a user calls it. Lines under @ts-expect-error are checked by tsc: wrong code must not compile. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { checkPlan, fail, hostMemory } from '../src/backend.js';
import {
  BACKENDS,
  type Backend,
  openBackend,
  openCpu,
  Ropewalk,
  ropewalk,
  type Tensor,
  tensorFrom,
} from '../src/index.js';
import { runReference } from '../src/reference/index.js';

const rw = await ropewalk({ backend: 'auto' });

describe('the operators return tensors', () => {
  const x = rw.tensor(Float32Array.of(1, 2, 3, 4), { shape: [1, 1, 4] });
  const row = rw.tensor(Float32Array.of(3, 4), { shape: [1, 2] });
  const read = (t: Tensor<'f32'>): number[] => [...(t.read() as Float32Array)];

  test('rope: one call, a plan, layouts, in place, back', async () => {
    const options = { pairing: 'half', base: 10000 } as const;
    const y = rw.rope(x, [5], options);
    assert.deepEqual(y.shape, [1, 1, 4]);
    const plan = rw.planRope({ ...options, headDim: 4, positions: [5] });
    assert.deepEqual(read(rw.rope(x, plan)), read(y));
    assert.deepEqual(read(rw.rope(x, 5, options)), read(y), 'a scalar is the first position');
    const heads = rw.tensor(
      Float32Array.from({ length: 24 }, (_, i) => i),
      { shape: [2, 3, 4] },
    );
    const bnsh = rw.rope(heads.permute([1, 0, 2]), [5, 6], { ...options, layout: 'bnsh' });
    assert.deepEqual(bnsh.permute([1, 0, 2]).read(), rw.rope(heads, [5, 6], options).read());
    const back = rw.ropeBackward(y, [5], options);
    for (const [i, v] of read(back).entries()) assert.ok(Math.abs(v - read(x)[i]!) < 1e-6);
    const copy = rw.tensor(Float32Array.from(read(x)), { shape: [1, 1, 4] });
    assert.equal(rw.rope(copy, [5], { ...options, out: copy }), copy);
    assert.deepEqual(read(copy), read(y));
    // f64 data gets float64 tables unless asked otherwise.
    const wide = rw.rope(rw.tensor(Float64Array.of(1, 0), { shape: [1, 1, 2] }), [1], { pairing: 'half', base: 10000 });
    assert.deepEqual([...((await wide.read()) as Float64Array)], [Math.cos(1), Math.sin(1)]);
  });

  test('each of them, by hand', () => {
    assert.deepEqual(read(rw.add(row, row)), [6, 8]);
    assert.deepEqual(
      read(
        rw.swiglu(rw.tensor(Float32Array.of(0), { shape: [1, 1] }), rw.tensor(Float32Array.of(5), { shape: [1, 1] })),
      ),
      [0],
    );
    assert.deepEqual(
      read(rw.rmsNorm(row, rw.tensor(Float32Array.of(1, 2)), { eps: 0 })),
      [3, 8].map((v) => Math.fround(v / Math.sqrt(12.5))),
    );
    assert.deepEqual(
      read(rw.layerNorm(row, rw.tensor(Float32Array.of(1, 2)), { eps: 0, bias: rw.tensor(Float32Array.of(5, 6)) })),
      [4, 8],
    );
    assert.deepEqual(read(rw.scale(row, 2)), [6, 8]);
    assert.deepEqual(read(rw.scale(row, rw.tensor(Float32Array.of(-1)))), [-3, -4]);
    const capped = read(rw.scale(row, 100, { softcap: 2 }));
    assert.deepEqual(capped, [2, 2]);
    const far = rw.tensor(Float32Array.of(20), { shape: [1, 1] });
    assert.deepEqual([read(rw.gelu(far)), read(rw.geglu(far, far, { approximate: 'tanh' }))], [[20], [400]]);
    // gate 7, up 7 + 1, and 1 + e^(−1.702·7) = 1.0000067
    const [clamped] = read(rw.swiglu(far, far, { limit: 7, alpha: 1.702, offset: 1 }));
    assert.ok(Math.abs(clamped! - 56 / (1 + Math.exp(-11.914))) < 1e-5);
    const w = rw.tensor(Float32Array.of(1, 0, 0, 1, 1, 1), { shape: [3, 2] });
    assert.deepEqual(read(rw.linear(row, w)), [3, 4, 7]);
    assert.deepEqual(read(rw.linear(row, w, { bias: rw.tensor(Float32Array.of(1, 1, 1)) })), [4, 5, 8]);
    const { index, value } = rw.argmax(rw.tensor(Float32Array.of(1, 9, 2)));
    assert.deepEqual([index.read(), read(value)], [BigInt64Array.of(1n), [9]]);
    assert.deepEqual(read(rw.embedding(rw.tensor(Int32Array.of(2, 0)), w)), [1, 1, 1, 0]);
    const kv = rw.tensor(Float32Array.of(1, 2, 3, 4), { shape: [2, 1, 2] });
    assert.deepEqual(read(rw.selfAttention(rw.tensor(Float32Array.of(0, 0), { shape: [1, 1, 2] }), kv, kv)), [2, 3]);
    const sinks = rw.tensor(Float32Array.of(Math.log(2)));
    const attended = rw.selfAttention(rw.tensor(Float32Array.of(0, 0), { shape: [1, 1, 2] }), kv, kv, { sinks });
    for (const [i, value] of read(attended).entries()) assert.ok(Math.abs(value - [1, 1.5][i]!) < 1e-6);
    const { indices, weights } = rw.route(rw.tensor(Float32Array.of(1, 3, 3), { shape: [1, 3] }), {
      gate: 'softmax-of-chosen',
      chosen: 2,
    });
    assert.deepEqual([indices.read(), read(weights)], [Int32Array.of(1, 2), [0.5, 0.5]]);
    const matrices = rw.tensor(Float32Array.of(9, 9, 1, 0, 0, 1), { shape: [3, 1, 2] });
    assert.deepEqual(read(rw.expertLinear(row, matrices, indices)), [3, 4]);
    assert.deepEqual(read(rw.expertLinear(row, matrices, indices, { weights })), [3.5]);
    assert.deepEqual(read(rw.rearrange(w.permute([1, 0]))), [1, 0, 1, 0, 1, 1]);
  });

  test('16-bit floats come and go as bits; Float16Array where the runtime has it', () => {
    const bf16 = rw.tensor(Uint16Array.of(0x3f80, 0x4000), { dtype: 'bf16' });
    assert.deepEqual(rw.add(bf16, bf16).read(), Uint16Array.of(0x4000, 0x4080));
    const Half = (globalThis as { Float16Array?: new (values: number[]) => never }).Float16Array;
    if (Half)
      assert.deepEqual((rw.tensor(new Half([1, 2]) as never) as Tensor<'f16'>).read(), Uint16Array.of(0x3c00, 0x4000));
  });

  test('memory is the user’s own, and reads are copies', () => {
    const data = Float32Array.of(1, 2);
    const t = rw.tensor(data);
    assert.equal(t.storage.host, data);
    (t.read() as Float32Array)[0] = 9;
    assert.equal(data[0], 1);
  });
});

test('wrong calls do not compile, and are refused at run time', () => {
  const f32 = rw.allocate('f32', [1, 1, 4]);
  const f16 = rw.allocate('f16', [1, 1, 4]);
  const i32 = rw.allocate('i32', [1, 1, 4]);
  const options = { pairing: 'half', base: 10000 } as const;
  // @ts-expect-error pairing has no default
  assert.throws(() => rw.rope(f32, [0], { base: 10000 }), { code: 'UNSUPPORTED' });
  // @ts-expect-error base has no default
  assert.throws(() => rw.rope(f32, [0], { pairing: 'half' }), { code: 'RANGE' });
  // @ts-expect-error no such pairing
  assert.throws(() => rw.rope(f32, [0], { pairing: 'neox', base: 10000 }), { code: 'UNSUPPORTED' });
  // @ts-expect-error integers do not rotate
  assert.throws(() => rw.rope(i32, [0], options), { code: 'DTYPE' });
  // @ts-expect-error out has another dtype
  assert.throws(() => rw.rope(f32, [0], { ...options, out: f16 }), { code: 'DTYPE' });
  // @ts-expect-error operands differ in dtype
  assert.throws(() => rw.add(f32, f16), { code: 'DTYPE' });
  // @ts-expect-error a weight may be narrower than x, not wider
  assert.throws(() => rw.linear(rw.allocate('f16', [1, 4]), rw.allocate('f32', [2, 4])), { code: 'DTYPE' });
  // @ts-expect-error a table of integers is not widened
  assert.throws(() => rw.embedding(rw.allocate('i32', [1]), i32, { out: f32 }), { code: 'SHAPE' });
  // @ts-expect-error an integer does not become a float
  assert.throws(() => rw.rearrange(i32, { out: f32 }), { code: 'DTYPE' });
  // @ts-expect-error eps has no default
  assert.throws(() => rw.rmsNorm(f32, rw.allocate('f32', [4]), {}), { code: 'RANGE' });
  // @ts-expect-error neither has it here
  assert.throws(() => rw.layerNorm(f32, rw.allocate('f32', [4]), {}), { code: 'RANGE' });
  // @ts-expect-error no such GELU
  assert.throws(() => rw.gelu(f32, { approximate: 'erf' }), { code: 'UNSUPPORTED' });
  // @ts-expect-error factors differ in dtype
  assert.throws(() => rw.scale(f32, rw.allocate('f16', [1, 1])), { code: 'DTYPE' });
  // @ts-expect-error a Uint16Array needs a dtype
  assert.throws(() => rw.tensor(Uint16Array.of(1)), { code: 'DTYPE' });
  // @ts-expect-error a Float32Array holds no f16
  assert.throws(() => rw.tensor(Float32Array.of(1), { dtype: 'f16' }), { code: 'DTYPE' });
  // @ts-expect-error an index is an integer
  assert.throws(() => rw.embedding(f32, rw.allocate('f32', [2, 2])), { code: 'SHAPE' });
});

test('a misspelt option is refused with the nearest name', async () => {
  const x = rw.allocate('f32', [1, 1, 4]);
  const options = { pairing: 'half', base: 10000 } as const;
  const refused = (
    wrong: object,
    message: string | RegExp,
    call = () => rw.rope(x, [0], { ...options, ...wrong }),
  ): void => assert.throws(call, { code: 'RANGE', message });
  refused({ rotary_dim: 2 }, 'rope: options: there is no "rotary_dim". Did you mean rotaryDim?');
  refused({ scalling: {} }, 'rope: options: there is no "scalling". Did you mean scaling?');
  refused({ direction: 'backward' }, /^rope: options: there is no "direction"\. It takes headDim, /);
  const scaling = { kind: 'linear', factr: 2 } as never;
  refused({ scaling }, 'rope: scaling: there is no "factr". Did you mean factor?');
  refused({}, 'linear: options: there is no "activation". Did you mean activations?', () =>
    rw.linear(rw.allocate('f32', [1, 4]), rw.allocate('f32', [2, 4]), { activation: 'q8' } as object),
  );
  await assert.rejects(ropewalk({ thread: 2 } as object), /there is no "thread"\. Did you mean threads\?/);
  // An undefined option counts as missing.
  rw.rope(x, [0], { ...options, scalling: undefined } as typeof options);
  // A model's RoPE may be passed unchanged, and must have this head_dim.
  rw.rope(x, [0], { ...options, headDim: 4 } as typeof options);
  assert.throws(() => rw.rope(x, [0], { ...options, headDim: 8 } as typeof options), { code: 'SHAPE' });
});

test('a layer in f32 over weights and a cache as they are stored', async () => {
  const rw = await ropewalk({ backend: 'cpu', threads: 1 });
  const half = (values: number[], shape: number[]): Tensor<'f16'> => {
    const x = rw.tensor(Float32Array.from(values), { shape });
    return rw.rearrange(x, { out: rw.allocate('f16', shape) });
  };
  const table = half([1, 2, 3, 4], [2, 2]);
  const x: Tensor<'f32'> = rw.embedding(rw.tensor(Int32Array.of(1)), table, { out: rw.allocate('f32', [1, 2]) });
  assert.deepEqual([...(x.read() as Float32Array)], [3, 4]);
  const normed: Tensor<'f32'> = rw.rmsNorm(x, half([2, 2], [2]), { eps: 0 });
  const y: Tensor<'f32'> = rw.linear(x, table, { bias: half([1, -1], [2]) });
  assert.deepEqual([...(y.read() as Float32Array)], [12, 24]);
  assert.deepEqual(
    [...(normed.read() as Float32Array)],
    [6, 8].map((v) => Math.fround(v * Math.fround(1 / Math.sqrt(12.5)))),
  );
  const [k, v] = [half([0, 0, 0, 0], [2, 1, 2]), half([1, 2, 3, 6], [2, 1, 2])];
  const attended: Tensor<'f32'> = rw.selfAttention(x.view([1, 1, 2]), k, v);
  assert.deepEqual([...(attended.read() as Float32Array)], [2, 4]);
  const blocks = rw.uploadBlocks(
    'q8_0',
    Uint8Array.from({ length: 34 }, (_, i) => [0, 0x3c][i] ?? i - 2),
    [1, 32],
  );
  const row: Tensor<'f32'> = rw.embedding(rw.tensor(Int32Array.of(0)), blocks);
  assert.deepEqual(
    [...(row.read() as Float32Array)],
    Array.from({ length: 32 }, (_, i) => i),
  );
  rw.dispose();
});

describe('backends', () => {
  test('auto opens the fastest; capabilities say what runs and why nothing faster does', async () => {
    const auto = await ropewalk();
    assert.equal(auto.name, 'cpu');
    const { description, dtypes, threads, notTaken } = auto.capabilities();
    assert.match(
      description,
      /^WebAssembly (relaxed SIMD|simd128), (one thread|\d+ threads over shared memory); f64 on the reference$/,
    );
    assert.deepEqual(dtypes, ['f64', 'f32', 'f16', 'bf16']);
    assert.equal(threads, description.includes('one thread') ? 1 : Number(/(\d+) threads/.exec(description)![1]));
    // A backend that is not the fastest says why.
    assert.equal(
      notTaken.some((reason) => reason.startsWith('relaxed SIMD: ')),
      description.includes('simd128'),
    );
    assert.equal(
      notTaken.some((reason) => reason.startsWith('threads: ')),
      threads === 1,
    );
    for (const entry of BACKENDS) {
      if ((await entry.whyNot()) !== undefined) continue; // This machine has no GPU.
      const backend = await entry.open();
      assert.equal(backend.name, entry.name);
      backend.dispose();
    }
  });
  test('an unknown one is refused', async () => {
    await assert.rejects(openBackend('tpu'), {
      code: 'UNSUPPORTED',
      message: 'ropewalk: backend: expected auto or one of cpu, webgpu, reference, got "tpu"',
    });
  });
  test('a backend of another author, passed in open, as docs of ropewalk/backend show', async () => {
    const whyNot: Backend['whyNot'] = (plan) => {
      checkPlan(plan);
      return plan.op === 'add' ? undefined : `it only adds: no ${plan.op}`;
    };
    const mine: Backend = {
      ...hostMemory(),
      name: 'mine',
      capabilities: () => ({ backend: 'mine', description: 'adds', dtypes: ['f32'], threads: 1, notTaken: [] }),
      whyNot,
      run(plan) {
        const why = whyNot(plan);
        if (why !== undefined) fail('UNSUPPORTED', 'mine', why);
        runReference(plan);
      },
      finish: async () => {},
    };
    const own = await ropewalk({ backend: mine });
    assert.equal(own.name, 'mine');
    const x = own.upload(own.tensor(Float32Array.of(1, 2)));
    assert.deepEqual(await own.add(x, x).read(), Float32Array.of(2, 4));
    assert.throws(() => own.swiglu(x, x), {
      code: 'UNSUPPORTED',
      message: 'mine: it only adds: no swiglu',
    });
    await assert.rejects(ropewalk({ backend: openBackend('cpu') as never }), {
      code: 'RANGE',
      message: 'ropewalk: backend: expected an open backend, got Promise. Await it first.',
    });
  });
  test('openCpu: without the reference, f64 is refused', async () => {
    const alone = new Ropewalk(await openCpu({ threads: 1 }));
    const x = alone.tensor(Float64Array.of(1));
    assert.throws(() => alone.add(x, x), { code: 'UNSUPPORTED' });
    alone.dispose();
    const exact = new Ropewalk(await openCpu({ threads: 1 }, runReference));
    assert.deepEqual(await exact.add(x, x).read(), Float64Array.of(2));
    exact.dispose();
  });
  test('a failed call writes nothing', () => {
    const out = tensorFrom<'f32'>(new Float32Array(8).fill(7), { shape: [2, 1, 4] });
    assert.throws(() => rw.rope(rw.allocate('f32', [2, 1, 4]), [0, 2 ** 40], { pairing: 'half', base: 10000, out }), {
      code: 'RANGE',
    });
    assert.ok((out.read() as Float32Array).every((v) => v === 7));
  });
});
