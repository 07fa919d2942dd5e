/**
 * Tests of the backend `onnxruntime`: memory, the queue, sessions and errors. onnxruntime-suites.peers.test.ts tests
 * its results. Here a stand-in for the package fails in the middle of a run, which the real one hardly does.
 */

import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { BACKENDS, check, openBackend } from '@ropewalk/cli/internal';
import fc from 'fast-check';
import {
  bindRope,
  bindRopeParts,
  type FloatDtype,
  planAdd,
  planArgmax,
  planEmbedding,
  planGelu,
  planRearrange,
  planRmsNorm,
  planRope,
  planScale,
  planSelfAttention,
  planSwiglu,
  Ropewalk,
  type Tensor,
  type TensorStorage,
  tensorFrom,
  zeros,
} from 'ropewalk';
import { bitsOf } from 'ropewalk/internal';
import { runReference } from 'ropewalk/reference';
import { ROOT } from '../../../test/support/build.js';
import { noOnnxruntime } from '../../../test/support/onnxruntime.js';
import {
  anyPlan,
  calls,
  compare,
  copyWith,
  DENSE,
  dtypes,
  emulate,
  exactOf,
  expertLinearTrial,
  fills,
  holds,
  hostCopy,
  indexOf,
  laid,
  laidBits,
  mixes,
  placements,
  roomFor,
  seeds,
  shapes,
  size,
  type Trial,
  tensorAt,
  U,
} from '../../../test/support/operators.js';
import { f64Tensor, floats } from '../../../test/support/tensors.js';
import { withoutOnnxruntime } from '../../../test/support/without-onnxruntime.js';
import { GraphBuilder } from '../src/export/builder.js';
import { writeOnnxModel } from '../src/format/onnx.js';
import { OnnxruntimeBackend, openOnnxruntime } from '../src/onnxruntime/host.js';
import {
  loadOnnxruntime,
  type Ort,
  type OrtSessionOptions,
  type OrtTensor,
  Sessions,
} from '../src/onnxruntime/package.js';

const skip = noOnnxruntime;
const open: OnnxruntimeBackend[] = [];
after(() => {
  for (const backend of open) backend.dispose();
});

async function opened(form: 'standard' | 'primitives' = 'standard'): Promise<OnnxruntimeBackend> {
  const backend = await openOnnxruntime({ form });
  open.push(backend);
  return backend;
}

const line = (values: readonly number[]): Tensor<'f32'> => tensorFrom<'f32'>(Float32Array.from(values));

/**
 * Runs a trial with some tensors on the backend. It compares written elements with the reference, and the others with
 * their old values.
 */
async function agree(trial: Trial, backend: OnnxruntimeBackend): Promise<void> {
  const { given, outs, plan, owned } = trial;
  const want = trial.error ? exactOf(given) : hostCopy(given);
  runReference(plan(want));
  const got = copyWith(given, (storage: TensorStorage, n) => {
    const whole = tensorFrom(storage.host!, { dtype: storage.dtype });
    return owned & (1 << n) ? backend.upload(whole).storage : (hostCopy([whole])[0] as Tensor).storage;
  });
  const call = plan(got);
  assert.equal(backend.whyNot(call), undefined);
  backend.run(call);
  await backend.finish();
  const written = new Set(outs.map((n) => tensorAt(given, n).storage));
  for (const [n, one] of got.entries()) {
    const tensor = one as Tensor;
    const back = tensorFrom(await tensor.storage.read(), tensor);
    const { storage } = tensorAt(given, n);
    if (outs.includes(n)) compare(trial, n, back, tensorAt(want, n));
    else if (!written.has(storage))
      assert.deepEqual(bitsOf(back.storage.host!), bitsOf(storage.host!), `given[${n}], which is only read`);
  }
}

describe('layouts, places and aliases', { skip }, async () => {
  const backends = skip ? [] : [await opened('standard'), await opened('primitives')];
  for (const backend of backends) {
    const form = backend === backends[0] ? 'standard' : 'primitives';
    describe(form, () => {
      holds(
        'add: in place, strided, on either side: the reference to the bit',
        60,
        [dtypes, shapes, fills, placements, seeds, size(0, 7), size(0, 2)],
        (dtype, shape, fill, how, seed, owned, place) => {
          const out = place
            ? laid(dtype, shape, { ...how[2]!, repeat: 0 }, seed + 2, fill)
            : roomFor(dtype, shape, how[2]!);
          const a = place === 1 ? out : laid(dtype, shape, how[0]!, seed, fill);
          const b = place === 2 ? out : laid(dtype, shape, how[1]!, seed + 1, fill);
          return agree(
            {
              given: [a, b, out],
              outs: [2],
              anyNan: true,
              owned,
              plan: (t) => planAdd(tensorAt(t, 0), tensorAt(t, 1), tensorAt(t, 2)),
            },
            backend,
          );
        },
      );

      holds(
        'rearrange: any bits, any layout; what lies between keeps its bits',
        60,
        [fc.constantFrom('f16', 'bf16', 'f32', 'f64', 'i32', 'u8'), shapes, placements, seeds, size(0, 3)],
        (dtype, shape, how, seed, owned) =>
          agree(
            {
              given: [laidBits(dtype, shape, how[0]!, seed), roomFor(dtype, shape, how[1]!)],
              outs: [1],
              owned,
              plan: (t) => planRearrange(tensorAt(t, 0), tensorAt(t, 1)),
            },
            backend,
          ),
      );

      holds(
        'embedding: any bits, any layout',
        40,
        [
          fc.constantFrom('f16', 'bf16', 'f32', 'f64'),
          size(1, 9),
          size(1, 17),
          fc.array(size(0, 8), { maxLength: 5 }),
          placements,
          seeds,
          size(0, 3),
        ],
        (dtype, rows, width, picks, how, seed, owned) => {
          const index = tensorFrom(BigInt64Array.from(picks, (n) => BigInt(n % rows)));
          const given = [laidBits(dtype, [rows, width], how[0]!, seed), roomFor(dtype, [picks.length, width], how[1]!)];
          return agree(
            { given, outs: [1], owned, plan: (t) => planEmbedding(index, tensorAt(t, 0), tensorAt(t, 1)) },
            backend,
          );
        },
      );

      holds(
        'argmax: any layout, infinities and ties; NaN first',
        40,
        [dtypes, shapes, fills, placements, seeds, size(0, 7)],
        (dtype, shape, fill, how, seed, owned) => {
          if (shape.at(-1) === 0) return;
          const reduced = shape.with(-1, 1);
          const given = [
            laid(dtype, shape, how[0]!, seed, fill),
            roomFor('i64', reduced, how[1]!),
            roomFor(dtype, reduced, how[2]!),
          ];
          return agree(
            {
              given,
              outs: [1, 2],
              anyNan: true,
              owned,
              plan: (t) => planArgmax(tensorAt(t, 0), tensorAt(t, 1), tensorAt(t, 2)),
            },
            backend,
          );
        },
      );

      holds(
        'rope: any table, any layout, in place where pairs stay: two products and a sum in f32',
        60,
        [dtypes, calls, placements, seeds, size(0, 3), fc.boolean()],
        (dtype, call, how, seed, owned, together) => {
          const { batch, seq, heads, window } = call;
          const shape = [batch, seq, heads, window.headDim];
          const plan = anyPlan(call);
          const inPlace = together && plan.read.step === plan.write.step;
          const x = laid(dtype, shape, inPlace ? { ...how[0]!, repeat: 0 } : how[0]!, seed);
          const { magnitude } = emulate(plan, floats(x), shape, dtype);
          const given = inPlace ? [x] : [x, roomFor(dtype, shape, how[1]!)];
          const at = given.length - 1;
          const outs = [at];
          return agree(
            {
              given,
              outs,
              owned,
              error: (_, n) => 3 * U * magnitude[n]!,
              plan: (t) => bindRope(plan, tensorAt(t, 0), tensorAt(t, at)),
            },
            backend,
          );
        },
      );

      holds(
        'expert_linear: any sizes and layouts',
        40,
        [
          mixes,
          fc.tuple(size(0, 4), size(0, 3), size(1, 4)),
          fc.tuple(size(0, 5), size(0, 9)),
          placements,
          seeds,
          size(0, 63),
          fc.record({ bias: fc.boolean(), weighted: fc.boolean(), own: fc.boolean() }),
        ],
        ([dtype, stored], [tokens, chosen, experts], [n, k], how, seed, owned, { bias, weighted, own }) => {
          const x = laid(dtype, own ? [tokens, chosen, k] : [tokens, k], how[0]!, seed);
          const indices = indexOf(tokens * chosen, experts, seed).view([tokens, chosen]);
          const options = {
            bias: bias ? laid(stored, [experts, n], how[3]!, seed + 2) : undefined,
            weights: weighted ? laid(dtype, [tokens, chosen], how[4]!, seed + 3) : undefined,
          };
          const out = roomFor(dtype, weighted ? [tokens, n] : [tokens, chosen, n], how[2]!);
          const error = (depth: number, products: number): number => (depth + 2) * U * products + 2 ** -140;
          const weight = laid(stored, [experts, n, k], how[1]!, seed + 1);
          return agree({ ...expertLinearTrial(x, weight, indices, out, options, error), owned }, backend);
        },
      );

      test('expert_linear: where no expert is chosen, their sum is 0', () => {
        const given = ([...shape]: number[]) => laid('f32', shape, DENSE, 1);
        const options = { bias: given([1, 4]), weights: given([2, 0]) };
        const indices = indexOf(0, 1, 1).view([2, 0]);
        const out = roomFor('f32', [2, 4], DENSE);
        const trial = expertLinearTrial(given([2, 3]), given([1, 4, 3]), indices, out, options, () => 0);
        return agree({ ...trial, owned: 0 }, backend);
      });

      holds(
        'swiglu: any layout, in place',
        40,
        [dtypes, shapes, placements, seeds, size(0, 7), size(0, 2)],
        (dtype, shape, how, seed, owned, place) => {
          const out = place ? laid(dtype, shape, { ...how[2]!, repeat: 0 }, seed + 2) : roomFor(dtype, shape, how[2]!);
          const gate = place === 1 ? out : laid(dtype, shape, how[0]!, seed);
          const up = place === 2 ? out : laid(dtype, shape, how[1]!, seed + 1);
          const error = (exact: number): number => 8 * U * Math.abs(exact) + 2 ** -140;
          return agree(
            {
              given: [gate, up, out],
              outs: [2],
              owned,
              error,
              plan: (t) => planSwiglu(tensorAt(t, 0), tensorAt(t, 1), tensorAt(t, 2)),
            },
            backend,
          );
        },
      );
    });
  }
});

describe('the queue', { skip }, () => {
  test('a chain without waits in between: each call sees what the last wrote, on the backend and in host memory', async () => {
    const backend = await opened();
    const host = tensorFrom<'f32'>(Float32Array.of(1, 2, 3));
    const one = line([1, 1, 1]);
    const kept = backend.upload(line([0, 0, 0]));
    const reads: Promise<Float32Array>[] = [];
    for (let n = 0; n < 5; n++) {
      backend.run(planAdd(host, one, host));
      backend.run(planAdd(kept, host, kept));
      reads.push(kept.read() as Promise<Float32Array>);
    }
    await backend.finish();
    assert.deepEqual([...host.storage.host!], [6, 7, 8]);
    const sum = zeros('f32', [3]);
    runReference(planAdd(host, host, sum)); // others may read it at once
    assert.deepEqual([...sum.storage.host!], [12, 14, 16]);
    // Each read gives the sums at the time of its call: 2, 2 + 3, 2 + 3 + 4, …
    assert.deepEqual(
      (await Promise.all(reads)).map((array) => array[0]),
      [2, 5, 9, 14, 20],
    );
  });

  test('host inputs are read when the call is made', async () => {
    const backend = await opened();
    const x = line([1, 2]);
    const y = backend.allocate('f32', [2]);
    backend.run(planAdd(x, x, y));
    x.storage.host!.fill(100);
    assert.deepEqual([...(await y.read())], [2, 4]);
  });

  test('two backends side by side, a hundred calls each, forms apart', async () => {
    const plans = [await opened('standard'), await opened('primitives')].map((backend) =>
      Array.from({ length: 100 }, (_, n) => {
        const y = backend.allocate('f32', [4, 8]);
        const x = f64Tensor(
          Array.from({ length: 32 }, (_, i) => i - n),
          [4, 8],
          'f32',
        );
        backend.run(
          n % 2 ? planRmsNorm(x, f64Tensor(new Array(8).fill(1 + n), [8], 'f32'), y, { eps: 1e-6 }) : planAdd(x, x, y),
        );
        return { x, y, n };
      }),
    );
    for (const list of plans) {
      for (const { x, y, n } of list) {
        const want = zeros('f32', [4, 8]);
        runReference(
          n % 2
            ? planRmsNorm(x, f64Tensor(new Array(8).fill(1 + n), [8], 'f32'), want, { eps: 1e-6 })
            : planAdd(x, x, want),
        );
        const [got, exact] = [(await y.readNumbers()) as Float64Array, floats(want)];
        for (const [i, value] of got.entries())
          assert.ok(Math.abs(value - exact[i]!) <= 8 * U * Math.abs(exact[i]!), `${n}[${i}] ${value} ${exact[i]}`);
      }
    }
  });

  test('while a call is queued, another backend refuses the array it writes', async () => {
    const backend = await opened();
    const y = tensorFrom<'f32'>(new Float32Array(2));
    backend.run(planAdd(line([1, 2]), line([1, 2]), y));
    assert.throws(() => runReference(planAdd(y, y, zeros('f32', [2]))), {
      code: 'DEVICE',
      message: /has yet to write.*await backend\.finish/,
    });
    assert.deepEqual([...((await y.read()) as Float32Array)], [2, 4]);
  });

  test('a disposed tensor is refused; one that was queued before still runs', async () => {
    const backend = await opened();
    const x = backend.upload(line([1, 2]));
    const y = backend.allocate('f32', [2]);
    backend.run(planAdd(x, x, y));
    x.dispose();
    x.dispose();
    assert.deepEqual([...(await y.read())], [2, 4]);
    assert.throws(() => backend.run(planAdd(x, x, y)), { code: 'DEVICE', message: /a disposed tensor/ });
    assert.throws(() => x.read(), { code: 'DEVICE' });
  });

  test('tensors of another backend are refused by name', async () => {
    const [backend, other] = [await opened(), await opened()];
    const x = other.upload(line([1, 2]));
    const message = /of (another )?onnxruntime/;
    assert.throws(() => backend.run(planAdd(x, x, backend.allocate('f32', [2]))), { code: 'DEVICE', message });
    assert.throws(() => backend.run(planAdd(line([1, 2]), line([1, 2]), other.allocate('f32', [2]))), {
      code: 'DEVICE',
      message,
    });
    assert.throws(() => backend.upload(x), { code: 'DEVICE', message });
  });

  test('after dispose everything is refused, what was queued too', async () => {
    const backend = await opened();
    const y = backend.allocate('f32', [2]);
    backend.run(planAdd(line([1, 2]), line([1, 2]), y));
    const read = y.read();
    backend.dispose();
    backend.dispose();
    await assert.rejects(async () => read, { code: 'DEVICE', message: /this backend was disposed/ });
    await assert.rejects(backend.finish(), { code: 'DEVICE' });
    assert.throws(() => backend.allocate('f32', [2]), { code: 'DEVICE' });
    assert.throws(() => backend.run(planAdd(line([1]), line([1]), line([1]))), { code: 'DEVICE' });
  });

  test('a KV cache of halves: only the rows of the call change, sentinels with NaN bits stay', async () => {
    for (const form of ['standard', 'primitives'] as const) {
      const backend = await opened(form);
      const plan = planRope({ headDim: 8, pairing: 'half', base: 10000, positions: [5, 6] });
      const x = f64Tensor(
        Array.from({ length: 32 }, (_, i) => i / 16 - 1),
        [2, 2, 8],
        'f32',
      );
      const cache = tensorFrom<'bf16'>(new Uint16Array(5 * 16).fill(0x7fa5), { dtype: 'bf16', shape: [5, 2, 8] });
      const want = tensorFrom<'bf16'>(new Uint16Array(5 * 16).fill(0x7fa5), { dtype: 'bf16', shape: [5, 2, 8] });
      runReference(bindRopeParts(plan, [{ x, out: want, rows: [3, 1] }]));
      backend.run(bindRopeParts(plan, [{ x, out: cache, rows: [3, 1] }]));
      await backend.finish();
      const [got, exact] = [cache.storage.host!, want.storage.host!];
      for (const [n, bits] of exact.entries()) {
        const written = [1, 3].includes(Math.floor(n / 16));
        assert.ok(written ? Math.abs(got[n]! - bits) <= 1 : got[n] === 0x7fa5, `[${n}] ${got[n]} ${bits}`);
      }
    }
  });
});

describe('sessions', { skip }, () => {
  test('other numbers, positions and tables need no new session; another shape, dtype or attribute does', async () => {
    const backend = await opened();
    const turn = (positions: number[], base: number, dtype: FloatDtype = 'f32', heads = 2): Promise<unknown> => {
      const plan = planRope({ headDim: 8, pairing: 'half', base, positions });
      const x = f64Tensor(
        Array.from({ length: positions.length * heads * 8 }, (_, i) => i),
        [positions.length, heads, 8],
        dtype,
      );
      const y = backend.allocate(dtype, x.shape);
      backend.run(bindRope(plan, x, y));
      return Promise.resolve(y.read());
    };
    await turn([0, 1], 10000);
    assert.equal(backend.sessions.loaded, 1);
    await turn([7, 131071], 10000);
    await turn([2, 3], 500000);
    assert.equal(backend.sessions.loaded, 1);
    await turn([2, 3], 10000, 'f16');
    await turn([2, 3], 10000, 'f32', 3);
    await turn([2, 3, 4], 10000);
    assert.equal(backend.sessions.loaded, 4);
    const x = f64Tensor([1, 2, 3, 4], [4], 'f32');
    for (const eps of [1e-6, 1e-5, 1e-6]) backend.run(planRmsNorm(x, x, backend.allocate('f32', [4]), { eps }));
    await backend.finish();
    assert.equal(backend.sessions.loaded, 6);
  });

  test('no more are kept than allowed; the least lately used goes first', async () => {
    const released: number[] = [];
    let made = 0;
    const ort = await loadOnnxruntime();
    const counting: Ort = {
      ...standIn(ort),
      InferenceSession: {
        async create() {
          const id = made++;
          return {
            run: async () => ({}),
            release: async () => {
              released.push(id);
            },
          };
        },
      },
    };
    const sessions = new Sessions(counting, OPTIONS, 3);
    const model = (n: number): Uint8Array => Uint8Array.of(n);
    for (const n of [0, 1, 2, 0, 3, 1]) await sessions.get(model(n), 'test');
    assert.deepEqual([released, made, sessions.count], [[1, 2], 5, 3]);
    await sessions.clear();
    assert.deepEqual([released, sessions.count], [[1, 2, 0, 3, 4], 0]);
  });
});

const OPTIONS: OrtSessionOptions = {
  executionProviders: ['cpu'],
  intraOpNumThreads: 1,
  interOpNumThreads: 1,
  enableCpuMemArena: false,
  logSeverityLevel: 4,
  extra: { session: {} },
};

function standIn(ort: Ort): Ort {
  return {
    InferenceSession: ort.InferenceSession,
    Tensor: ort.Tensor,
    env: ort.env,
    listSupportedBackends: () => ort.listSupportedBackends(),
  };
}

const noCuda = await noProvider('cuda');

describe('errors', { skip }, () => {
  test('what ONNX Runtime does not load comes back with the node and the next step', async () => {
    const sessions = new Sessions(await loadOnnxruntime(), OPTIONS);
    const graph = (build: (g: GraphBuilder) => string): Uint8Array => {
      const g = new GraphBuilder();
      g.input('x', 'f32', [2]);
      g.output(build(g), 'y', 'f32', [2]);
      return writeOnnxModel(g.model('t', 'test'));
    };
    await assert.rejects(
      sessions.get(
        graph((g) => g.cast(g.add('Sin', [g.cast('x', 'bf16')]), 'f32')),
        'rope (primitives)',
      ),
      {
        code: 'DEVICE',
        message:
          /^onnxruntime: rope \(primitives\): the graph does not load: .*Sin.*'Sin_1'\. No provider given has a kernel for that node and type: try/,
      },
    );
    await assert.rejects(
      sessions.get(
        graph((g) => g.add('Nope', ['x'])),
        'add (standard)',
      ),
      { code: 'DEVICE', message: /Nope.*Try another provider/ },
    );
    await assert.rejects(sessions.get(Uint8Array.of(1, 2, 3), 'add (standard)'), { code: 'DEVICE' });
    assert.deepEqual([sessions.loaded, sessions.count], [0, 0]);
  });

  test('a run that fails: readers and finish throw, later steps that use it fail, and a later call repairs it', async () => {
    const ort = await loadOnnxruntime();
    let failing = true;
    const moody: Ort = {
      ...standIn(ort),
      InferenceSession: {
        async create(model, options) {
          const session = await ort.InferenceSession.create(model, options);
          return {
            run: async (feeds: Record<string, OrtTensor>) => {
              if (failing)
                throw new Error(
                  "Non-zero status code returned while running Add node. Name:'Add_0' Status Message: no",
                );
              return session.run(feeds);
            },
            release: () => session.release(),
          };
        },
      },
    };
    const backend = new OnnxruntimeBackend(moody, OPTIONS, { form: 'standard' });
    open.push(backend);
    const [x, y, z] = [line([1, 2]), backend.upload(line([0, 0])), backend.upload(line([0, 0]))];
    const host = line([5, 5]);
    const refusal = {
      code: 'DEVICE',
      message:
        /^onnxruntime: add \(standard\): the graph does not run: .*'Add_0'.*\. Try the other form or another provider\.$/,
    };
    backend.run(planAdd(x, x, y));
    backend.run(planAdd(y, y, z)); // queued after a job that fails
    await assert.rejects(async () => z.read(), refusal);
    await assert.rejects(async () => y.read(), refusal);
    await backend.finish(); // the caller has this error already
    backend.run(planAdd(x, x, host));
    const late = backend.upload(line([3, 3]));
    backend.run(planAdd(host, host, late));
    const read = host.read();
    await assert.rejects(async () => read, refusal);
    await assert.rejects(backend.finish(), refusal);
    await assert.rejects(async () => late.read(), refusal);
    assert.deepEqual([...host.storage.host!], [5, 5]);
    await backend.finish();
    failing = false;
    await assert.rejects(async () => z.read(), refusal, 'nothing wrote it since');
    backend.run(planAdd(x, x, y));
    backend.run(planAdd(y, y, z));
    assert.deepEqual([...(await z.read())], [4, 8]);
    await backend.finish();
  });

  test('bad options', async () => {
    await assert.rejects(openOnnxruntime({ providers: ['tpu'] }), {
      code: 'UNSUPPORTED',
      message:
        /^onnxruntime: providers: expected one that this build of onnxruntime-node has: cpu.*, got "tpu"\. .*ropewalk export/,
    });
    await assert.rejects(openOnnxruntime({ providers: [] }), { code: 'UNSUPPORTED', message: /at least one of cpu/ });
    await assert.rejects(openOnnxruntime({ providers: [''] }), { code: 'UNSUPPORTED' });
    for (const threads of [0, 1.5, 17, Number.NaN])
      await assert.rejects(openOnnxruntime({ threads }), {
        code: 'RANGE',
        message: /threads: expected an integer in \[1, 16\]/,
      });
    await assert.rejects(openOnnxruntime({ form: 'prose' as 'standard' }), {
      code: 'UNSUPPORTED',
      message: /form: expected standard or primitives, got "prose"/,
    });
  });

  test('what leaves the range of f32, or has no kernel there, is not supported, and says why', async () => {
    const backend = await opened();
    const [x, y] = [line([1, 2, 3, 4]), line([7, 7, 7, 7])];
    for (const [plan, why] of [
      [planRmsNorm(x, x, y, { eps: 1e38 }), /eps is outside the range of f32/],
      [
        planSelfAttention(x.view([1, 1, 4]), x.view([1, 1, 4]), x.view([1, 1, 4]), y.view([1, 1, 4]), { scale: 1e300 }),
        /scale.* outside the range of f32/,
      ],
      [planScale(x, 1e-50, y), /the factor or the softcap is outside the range of f32/],
      [planGelu(zeros('f64', [4]), zeros('f64', [4])), /ONNX Runtime has no Erf of f64/],
    ] as const) {
      assert.match(backend.whyNot(plan)!, why);
      assert.throws(() => backend.run(plan), { code: 'UNSUPPORTED', message: why });
    }
    await backend.finish();
    assert.deepEqual([...y.storage.host!], [7, 7, 7, 7]);
  });

  test('a provider whose libraries are not here says so when the backend opens', { skip: noCuda }, async () => {
    await assert.rejects(openOnnxruntime({ providers: ['cuda'] }), {
      code: 'DEVICE',
      message: /^onnxruntime: providers: cuda does not open: .*\. Install what the provider needs, or use cpu\.$/,
    });
  });
});

/** A missing provider cannot be tested here: it has no name, or it is not missing. */
async function noProvider(name: string): Promise<string | false> {
  if (skip) return skip;
  if (!(await loadOnnxruntime()).listSupportedBackends().some((one) => one.name === name))
    return `this build of onnxruntime-node has no ${name}`;
  return (await openOnnxruntime({ providers: [name] }).then(
    (backend) => {
      backend.dispose();
      return `${name} works here`;
    },
    () => false,
  )) as string | false;
}

describe('by name only', () => {
  test('auto and all-backend commands pass it over', async () => {
    const entry = BACKENDS.find(({ name }) => name === 'onnxruntime')!;
    assert.deepEqual([entry.auto, entry.byName], [false, true]);
    const backend = await openBackend('auto');
    assert.notEqual(backend.name, 'onnxruntime');
    backend.dispose();
  });

  test('capabilities say the version, the provider, the form and how halves cross', { skip }, async () => {
    const backend = await opened('primitives');
    const { description, threads, dtypes: known, notTaken } = backend.capabilities();
    assert.match(description, /^ONNX Runtime \d+\.\d+\.\d+, provider cpu, graphs of primitives, angles in f64$/);
    assert.equal(threads, 1);
    assert.deepEqual(known, ['f64', 'f32', 'f16', 'bf16']);
    assert.match(notTaken.join('\n'), /f16 and bf16.*cross as f32/);
  });

  test('as a library: the same calls as on any backend', { skip }, async () => {
    const rw = new Ropewalk(await openBackend('onnxruntime', { threads: 2 }));
    const y = rw.swiglu(rw.upload(Float32Array.of(1, -2)), rw.upload(Float32Array.of(3, 4)));
    const got = await y.read();
    for (const [n, want] of [3 / (1 + Math.exp(-1)), -8 / (1 + Math.exp(2))].entries())
      assert.ok(Math.abs(got[n]! - want) < 1e-6);
    rw.dispose();
  });

  test('without the package: exit code 2, and how to install it', () => {
    const { status, stderr } = withoutOnnxruntime(ROOT, 'check', '--backend', 'onnxruntime');
    assert.equal(status, 2, stderr);
    assert.match(
      stderr,
      /cannot open onnxruntime: the package onnxruntime-node is not installed: npm install onnxruntime-node/,
    );
  });

  // The command line gives errors like this one exit code 2.
  test('its options make no sense with another backend', async () => {
    for (const options of [
      { form: 'primitives' },
      { backend: 'cpu', provider: 'cuda' },
      { backend: 'cpu', angles: 'f32' },
    ]) {
      await assert.rejects(check({ ...options, filter: 'llaisys' }), {
        code: 'UNSUPPORTED',
        message: /^(check: )?--(form|provider|angles): .*--backend onnxruntime\.?$/,
      });
    }
  });

  test('a form, a provider or angles that do not exist', { skip }, async () => {
    for (const [options, message] of [
      [{ form: 'prose' }, /^onnxruntime: form: expected standard or primitives, got "prose"$/],
      [{ provider: 'cpu,tpu' }, /^onnxruntime: providers: expected one that this build/],
      [{ provider: '' }, /^onnxruntime: providers: expected one that this build/],
      [{ form: 'primitives', angles: 'f8' }, /^onnxruntime: angles: expected f64, f32 or f32-reduced, got "f8"$/],
      [
        { angles: 'f32' },
        /^onnxruntime: angles: they apply to form primitives only: standard graphs take cos and sin$/,
      ],
    ] as const) {
      await assert.rejects(check({ backend: 'onnxruntime', ...options, filter: 'llaisys' }), {
        code: 'UNSUPPORTED',
        message,
      });
    }
  });
});
