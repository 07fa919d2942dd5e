/** The WebGPU backend on its device: memory, submissions, host memory, errors, loss; and what its kernels look like. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import {
  extendedCases,
  formatResult,
  goldenOperatorSuite,
  goldenRopeSuite,
  publishedCases,
  runCases,
  vectorCases,
} from '@ropewalk/oracle';
import { vectorFolder } from '@ropewalk/oracle/node';
import { noGpu, sharedWebgpu } from '../../../../test/support/gpu.js';
import { VECTORS, WITHOUT_KERNEL } from '../../../../test/support/suites.js';
import { openWebgpu, WebgpuBackend } from '../../src/backends/webgpu/host.js';
import type { GpuStorage } from '../../src/backends/webgpu/memory.js';
import { bindingsOf, type Operand, writeShader } from '../../src/backends/webgpu/shader.js';
import { ELEMENTWISE } from '../../src/backends/webgpu/shaders/elementwise.js';
import { type Tensor, type TensorOptions, tensorFrom } from '../../src/core/tensor.js';
import { planAdd } from '../../src/ops/add.js';
import { planLinear } from '../../src/ops/linear.js';
import { planRmsNorm } from '../../src/ops/rms-norm.js';
import { bindRope, bindRopeParts } from '../../src/ops/rope/call.js';
import { planRope } from '../../src/ops/rope/plan.js';
import { runReference } from '../../src/reference/index.js';
import { Ropewalk } from '../../src/ropewalk.js';

const counted = (n: number): Float32Array => Float32Array.from({ length: n }, (_, i) => (i % 97) / 7 - 6);
const host = (data: Float32Array, options: TensorOptions = {}): Tensor<'f32'> =>
  tensorFrom(data, { dtype: 'f32', ...options });
const ROPE = { pairing: 'half', base: 10000 } as const;

describe('the webgpu backend', { skip: noGpu }, () => {
  let backend: WebgpuBackend;
  let rw: Ropewalk;
  before(async () => {
    backend = await openWebgpu({}, runReference);
    rw = new Ropewalk(backend);
  });
  after(() => backend?.dispose());

  test('every suite passes', async () => {
    const cases = [
      ...publishedCases(),
      ...extendedCases(),
      ...goldenRopeSuite(),
      ...goldenOperatorSuite(),
      ...vectorCases(vectorFolder(VECTORS)),
    ];
    const failed: string[] = [];
    for await (const result of runCases(cases, await sharedWebgpu()))
      if (result.verdict.status !== 'ok') failed.push(formatResult(result));
    assert.deepEqual(
      failed.filter((line) => !WITHOUT_KERNEL.test(line)),
      [],
    );
  });

  test('its capabilities name the device and the path that runs', () => {
    const { backend: name, description, dtypes, threads, notTaken } = rw.capabilities();
    assert.equal(name, 'webgpu');
    assert.match(description, /^WebGPU on .+; f64 on the reference$/);
    assert.deepEqual(dtypes, ['f64', 'f32', 'f16', 'bf16']);
    assert.equal(threads, 0);
    assert.equal(notTaken.length === 0, backend.shared.device.features.has('shader-f16'));
  });

  describe('submissions', () => {
    test('a layer is one submission, and its second run makes nothing new', async () => {
      const x = rw.upload(counted(8 * 4 * 64), { shape: [8, 4, 64] });
      const weight = rw.upload(counted(64));
      const layer = (): Promise<Float32Array> | Float32Array => {
        const normed = rw.rmsNorm(x, weight, { eps: 1e-5 });
        const turned = rw.rope(normed, 7, ROPE);
        const sum = rw.add(turned, x);
        const y = rw.swiglu(sum, turned);
        const result = y.read();
        for (const t of [normed, turned, sum, y]) t.dispose();
        return result;
      };
      const first = await layer();
      const before = { ...backend.shared.commands.sent };
      const second = await layer();
      assert.deepEqual(second, first);
      const { kernels, submissions, pipelines } = backend.shared.commands.sent;
      assert.equal(kernels - before.kernels, 4);
      assert.equal(submissions - before.submissions, 1);
      assert.equal(pipelines, before.pipelines);
      x.dispose();
      weight.dispose();
    });

    test('bind groups are used again in a steady loop', async () => {
      const x = rw.upload(counted(4096));
      const y = rw.allocate('f32', [4096]);
      rw.add(x, x, { out: y });
      await rw.finish();
      const { groups } = backend.shared.commands.sent;
      for (let n = 0; n < 100; n++) rw.add(x, x, { out: y });
      await rw.finish();
      assert.equal(backend.shared.commands.sent.groups, groups);
      x.dispose();
      y.dispose();
    });

    test('more kernels than a submission takes, each with its own parameters', async () => {
      const x = rw.upload(new Float32Array(1100));
      const one = rw.upload(new Float32Array(1).fill(1));
      for (let n = 0; n < 1100; n++) {
        const at = x.slice(0, n, n + 1);
        rw.add(at, one, { out: at });
      }
      assert.deepEqual(await x.read(), new Float32Array(1100).fill(1));
      x.dispose();
      one.dispose();
    });
  });

  describe('memory', () => {
    test('10,000 dispatches leak nothing', async () => {
      // A separate backend, so that the collector finds no tensor of another test meanwhile.
      const backend = await openWebgpu();
      const rw = new Ropewalk(backend);
      const plan = planRope({ ...ROPE, headDim: 64, positions: [3, 4] });
      const onHost = host(counted(2 * 2 * 64), { shape: [2, 2, 64] });
      const x = rw.upload(onHost);
      const step = async (rounds: number): Promise<void> => {
        for (let n = 0; n < rounds; n++) {
          const y = rw.rope(x, plan); // a fresh tensor
          rw.add(y, onHost, { out: y }); // a host tensor comes in
          rw.rope(onHost, plan, { out: onHost }); // and one goes out
          y.dispose();
          if (n % 100 === 99) {
            await rw.finish();
            onHost.storage.host!.set(counted(256)); // it would grow to infinity
          }
        }
        await rw.finish();
      };
      await step(100);
      const before = { held: backend.shared.pool.heldBytes, free: backend.shared.pool.freeBytes };
      const { kernels, pipelines } = backend.shared.commands.sent;
      await step(3400);
      assert.equal(backend.shared.commands.sent.kernels - kernels, 10_200);
      assert.equal(backend.shared.commands.sent.pipelines, pipelines);
      assert.equal(backend.shared.pool.heldBytes, before.held);
      // The same blocks go round; now and then one more is under way.
      assert.ok(
        backend.shared.pool.freeBytes <= before.free + 16 * 1024,
        `${backend.shared.pool.freeBytes} bytes free, ${before.free} before`,
      );
      rw.dispose();
    });

    test('a fresh tensor is zeros, though its memory was used before', async () => {
      const used = rw.upload(counted(1000));
      await rw.finish();
      used.dispose();
      await rw.finish();
      assert.deepEqual(await rw.allocate('f32', [1000]).read(), new Float32Array(1000));
    });

    test('a tensor larger than the device binds is refused, with the limit', () => {
      const limit = backend.shared.device.limits.maxStorageBufferBindingSize;
      assert.throws(() => rw.allocate('f32', [limit / 4 + 1]), {
        code: 'DEVICE',
        message: new RegExp(`takes at most ${limit} bytes in one tensor .*, and this one has ${limit + 4}`),
      });
    });

    test('a buffer for which the device had no room is not taken again', async () => {
      const full = await openWebgpu();
      const { device } = full.shared;
      const pop = device.popErrorScope.bind(device);
      let pops = 0;
      // Scopes close in reverse: the third is that of memory.
      device.popErrorScope = async () => (await pop()) ?? (++pops === 3 ? { message: 'no room' } : null);
      const x = full.allocate('f32', [1000]);
      const blockOf = ({ storage }: Tensor): unknown => (storage as GpuStorage).block;
      const doubtful = blockOf(x);
      await assert.rejects(full.finish(), {
        code: 'DEVICE',
        message: /^webgpu: memory: the device has no room \(no room/,
      });
      x.dispose();
      await full.finish();
      const y = full.allocate('f32', [1000]);
      assert.notEqual(blockOf(y), doubtful);
      assert.deepEqual(await y.read(), new Float32Array(1000));
      full.dispose();
    });

    test('a read that fails gives its buffer back', async () => {
      const failing = await openWebgpu();
      const { device } = failing.shared;
      const create = device.createBuffer.bind(device);
      const x = failing.upload(host(counted(1000)));
      let destroyed = 0;
      device.createBuffer = (descriptor) => {
        const target = create(descriptor);
        target.mapAsync = () => Promise.reject(new Error('not today'));
        target.destroy = () => void destroyed++;
        return target;
      };
      await assert.rejects(async () => x.read(), { code: 'DEVICE', message: /^webgpu: read: .*not today/ });
      assert.equal(destroyed, 1);
      device.createBuffer = create;
      assert.deepEqual(await x.read(), counted(1000));
      failing.dispose();
    });

    test('a disposed tensor is refused', async () => {
      const x = rw.upload(counted(4));
      x.dispose();
      x.dispose();
      assert.throws(() => rw.add(x, x), { code: 'DEVICE', message: /this tensor was disposed/ });
      await assert.rejects(async () => x.read(), { code: 'DEVICE' });
    });

    test('a view reads its own part of a large tensor', async () => {
      const cache = rw.upload(
        Uint16Array.from({ length: 4096 }, (_, i) => i),
        { dtype: 'u16', shape: [64, 64] },
      );
      assert.deepEqual(await cache.slice(0, 7, 8).slice(1, 3, 6).read(), Uint16Array.of(451, 452, 453));
      assert.deepEqual(await cache.slice(0, 3, 3).read(), new Uint16Array(0));
      cache.dispose();
    });
  });

  describe('host memory', () => {
    test('an output in host memory is written by finish(); until then operators refuse it and reading waits', async () => {
      const out = host(new Float32Array(3));
      rw.add(host(counted(3)), host(counted(3)), { out });
      const reading = out.read();
      assert.ok(reading instanceof Promise);
      assert.throws(() => runReference(planAdd(out, out, host(new Float32Array(3)))), {
        code: 'DEVICE',
        message: /finish\(\)/,
      });
      await rw.finish();
      const sum = counted(3).map((v) => 2 * v);
      assert.deepEqual(out.storage.host, sum);
      assert.deepEqual(await reading, sum);
      assert.deepEqual(out.read(), sum);
    });

    test('queued calls on one host tensor see each other', async () => {
      const x = host(counted(6), { shape: [6] });
      const one = host(new Float32Array(6).fill(1));
      for (let n = 0; n < 5; n++) rw.add(x, one, { out: x });
      const tail = x.slice(0, 4, 6);
      rw.add(tail, one.slice(0, 0, 2), { out: tail });
      await rw.finish();
      assert.deepEqual(
        x.read(),
        counted(6).map((v, i) => v + (i < 4 ? 5 : 6)),
      );
    });

    test('the gaps of an output keep what the host wrote there meanwhile', async () => {
      const data = new Float32Array(8).fill(-1);
      const out = host(data, { shape: [4], strides: [2] });
      rw.add(host(counted(4)), host(new Float32Array(4)), { out });
      data[1] = 55;
      await rw.finish();
      assert.deepEqual(
        data,
        Float32Array.of(counted(4)[0]!, 55, counted(4)[1]!, -1, counted(4)[2]!, -1, counted(4)[3]!, -1),
      );
    });

    test('memory of which a part is still to be written is refused', async () => {
      const data = new Float32Array(64);
      const out = host(data, { shape: [8], offset: 16 });
      rw.add(host(counted(8)), host(counted(8)), { out });
      const wider = host(data, { shape: [32] });
      assert.throws(() => rw.add(wider, wider, { out: wider }), { code: 'DEVICE', message: /in part|a part/ });
      await rw.finish();
      rw.add(wider, wider, { out: wider });
      await rw.finish();
      assert.equal(data[16], 4 * counted(8)[0]!);
    });

    test('packed q and k in one array: two calls before finish()', async () => {
      const data = counted(3 * 4 * 64);
      const packed = host(data.slice(), { shape: [3, 4, 64] });
      const [q, k] = [packed.slice(1, 0, 3), packed.slice(1, 3, 4)];
      rw.rope(q, [1, 2, 3], { ...ROPE, out: q });
      rw.rope(k, [1, 2, 3], { ...ROPE, out: k });
      await rw.finish();
      const whole = await rw.rope(host(data, { shape: [3, 4, 64] }), [1, 2, 3], ROPE).read();
      assert.deepEqual(packed.read(), whole);
    });

    test('what the host writes beside elements that are being copied is seen', async () => {
      const data = new Float32Array(4);
      const one = rw.upload(new Float32Array(2).fill(1));
      rw.add(one, one, { out: host(data, { shape: [2] }) });
      data.fill(5, 2);
      const tail = host(data, { shape: [2], offset: 2 });
      assert.deepEqual(await rw.add(tail, tail).read(), Float32Array.of(10, 10));
      await rw.finish();
      assert.deepEqual(data, Float32Array.of(2, 2, 5, 5));
      one.dispose();
    });

    test('a refused call writes nothing, whatever comes after it', async () => {
      const data = new Float32Array(32);
      const one = host(new Float32Array(16).fill(1));
      rw.add(one, one, { out: host(data, { shape: [16] }) });
      const across = host(data, { shape: [16], offset: 8 });
      assert.throws(() => rw.add(one, one, { out: across }), { code: 'DEVICE' });
      data[24] = 77;
      const head = host(data, { shape: [4] });
      rw.add(head, head, { out: head });
      await rw.finish();
      assert.deepEqual(data.slice(0, 5), Float32Array.of(4, 4, 4, 4, 2));
      assert.deepEqual([data[16], data[24]], [0, 77]);
    });

    test('shared memory comes in and goes out', async () => {
      const data = new Float32Array(new SharedArrayBuffer(32)).fill(2);
      const x = host(data);
      rw.add(x, x, { out: x });
      await rw.finish();
      assert.deepEqual([...data], new Array(8).fill(4));
    });
  });

  describe('refusals', () => {
    test("another backend's tensor", async () => {
      const other = await openWebgpu();
      const theirs = other.upload(host(counted(4)));
      assert.throws(() => rw.add(theirs, theirs), {
        code: 'DEVICE',
        message: /webgpu: tensor: the tensor is in the memory of webgpu/,
      });
      other.dispose();
    });

    test('f64 with tensors on the device', () => {
      const x = rw.upload(counted(4 * 64), { shape: [1, 4, 64] });
      const plan = planRope({ ...ROPE, headDim: 64, positions: [1] });
      const mixed = bindRopeParts(plan, [{ x, out: rw.allocate('f64', [1, 4, 64]) }]);
      assert.match(
        rw.whyNot(mixed)!,
        /f64 runs on the reference: .*, and the reference takes no tensors on the device/,
      );
      assert.throws(() => rw.run(mixed), { code: 'UNSUPPORTED', message: /webgpu: rope/ });
      assert.equal(
        rw.whyNot(bindRope(plan, rw.allocate('f64', [1, 4, 64]), rw.allocate('f64', [1, 4, 64]))),
        undefined,
      );
      x.dispose();
    });

    test('f64 without a reference', async () => {
      const alone = await openWebgpu();
      const x = alone.allocate('f64', [4]);
      const plan = planAdd(x, x, alone.allocate('f64', [4]));
      assert.match(alone.whyNot(plan)!, /the kernels compute in f32/);
      assert.throws(() => alone.run(plan), {
        code: 'UNSUPPORTED',
        message:
          'webgpu: add: f64 runs on the reference: the kernels compute in f32. Give the reference: openWebgpu(options, runReference).',
      });
      alone.dispose();
    });

    test('a bad option', async () => {
      await assert.rejects(openWebgpu({ powerPreference: 'fastest' as 'low-power' }), {
        code: 'UNSUPPORTED',
        message: /powerPreference/,
      });
    });

    test('a kernel that the device does not accept is reported to the next wait, once', async () => {
      const broken = await openWebgpu();
      broken.shared.commands.watch();
      broken.shared.device.createBuffer({ size: 4, usage: 0xffff });
      await assert.rejects(broken.finish(), {
        code: 'DEVICE',
        message: /^webgpu: commands: the device does not accept them \(.*report it\.$/s,
      });
      await broken.finish();
      const x = broken.upload(host(counted(4)));
      assert.deepEqual(await x.read(), counted(4));
      broken.dispose();
    });

    test('a lack of device memory is reported to the next wait', async () => {
      const full = await openWebgpu();
      const held: Tensor[] = [];
      const bytes = full.shared.device.limits.maxStorageBufferBindingSize;
      // A device of the null kind or a very large one may hold them all: then there is nothing to report.
      for (let n = 0; n < 3; n++) held.push(full.allocate('u8', [bytes]));
      await full
        .finish()
        .catch((error) => assert.match(error.message, /^webgpu: memory: the device has no room \(.*Dispose tensors/s));
      for (const tensor of held) tensor.dispose();
      full.dispose();
    });
  });

  describe('the end', () => {
    test('a lost device: waits fail, later calls are refused, a new device works', async () => {
      const first = await openWebgpu();
      const x = first.upload(host(counted(8)));
      const out = host(new Float32Array(8));
      first.run(planAdd(x, x, out));
      first.shared.device.destroy();
      await assert.rejects(async () => out.read(), { code: 'DEVICE', message: /Open another/ });
      await first.shared.device.lost;
      assert.throws(() => first.run(planAdd(x, x, out)), {
        code: 'DEVICE',
        message: /^webgpu: the device was lost \(.*\)\. Open another: /,
      });
      assert.throws(() => first.allocate('f32', [1]), { code: 'DEVICE' });
      await assert.rejects(async () => x.read(), { code: 'DEVICE' });
      await assert.rejects(first.finish(), { code: 'DEVICE' });
      first.dispose();
      const second = await openWebgpu();
      const y = second.upload(host(counted(8)));
      second.run(planAdd(y, y, out));
      assert.deepEqual(
        await out.read(),
        counted(8).map((v) => 2 * v),
      );
      second.dispose();
    });

    test('a disposed backend refuses all', async () => {
      const gone = await openWebgpu();
      const x = gone.upload(host(counted(4)));
      const reading = x.read();
      gone.dispose();
      gone.dispose();
      await assert.rejects(async () => reading, { code: 'DEVICE' });
      assert.throws(() => gone.allocate('f32', [1]), {
        code: 'DEVICE',
        message: /^webgpu: this backend was disposed\. Open another: /,
      });
      await assert.rejects(async () => x.read(), { code: 'DEVICE' });
    });
  });
});

describe('the text of a kernel', () => {
  const operand = (name: string, buffer: number, rest: Partial<Operand> = {}): Operand => ({
    name,
    element: 'f32',
    lanes: 4,
    written: false,
    buffer,
    ...rest,
  });

  test('add of f32, four at a time, in place: as it goes to the device', () => {
    const operands = [operand('a', 0), operand('b', 1), operand('out', 0, { written: true })];
    const code = writeShader(
      ELEMENTWISE,
      { activation: 'add', second: true, lanes: 4 },
      operands,
      bindingsOf(operands, 2),
      false,
    );
    assert.equal(
      code,
      `struct Params {
  n: u32,
  rank: u32,
  a: u32,
  b: u32,
  out: u32,
  first: f32,
  second: f32,
  third: f32,
  @align(16) walk: array<vec4<u32>, 62>,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> b0: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> b1: array<vec4<u32>>;
const THREADS = 64u;

fn bits_a(at: u32) -> vec4<u32> { return b0[at >> 2u]; }
fn load_a(at: u32) -> vec4<f32> { return bitcast<vec4<f32>>(bits_a(at)); }

fn bits_b(at: u32) -> vec4<u32> { return b1[at >> 2u]; }
fn load_b(at: u32) -> vec4<f32> { return bitcast<vec4<f32>>(bits_b(at)); }

fn bits_out(at: u32) -> vec4<u32> { return b0[at >> 2u]; }
fn put_out(at: u32, v: vec4<u32>) { b0[at >> 2u] = v; }
fn load_out(at: u32) -> vec4<f32> { return bitcast<vec4<f32>>(bits_out(at)); }
fn store_out(at: u32, v: vec4<f32>) { put_out(at, bitcast<vec4<u32>>(v)); }

fn walk(t: u32, first: u32, count: u32) -> vec3<u32> {
  var rest = t;
  var at = vec3<u32>();
  for (var d = first; d < first + count; d++) {
    let dim = params.walk[d];
    at += (rest % dim.x) * dim.yzw;
    rest /= dim.x;
  }
  return at;
}

@compute @workgroup_size(THREADS)
fn main(
  @builtin(workgroup_id) id: vec3<u32>,
  @builtin(num_workgroups) grid: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let t = (id.y * grid.x + id.x) * THREADS + lane;
  if (t >= params.n) { return; }
  let at = walk(t, 0u, params.rank);
  let a = load_a(params.a + at.x);
  let b = load_b(params.b + at.z);
  let y = a + b;
  store_out(params.out + at.y, y);
}
`,
    );
  });

  test('how buffers are bound: vectors where all may, atomics where threads share a word', () => {
    const types = (...operands: Operand[]): string[] =>
      bindingsOf(operands, 1).map(({ type, written }) => `${type}${written ? ', written' : ''}`);
    assert.deepEqual(types(operand('a', 0), operand('b', 0)), ['vec4<u32>']);
    assert.deepEqual(types(operand('a', 0, { element: 'f16' })), ['vec2<u32>']);
    assert.deepEqual(types(operand('a', 0, { element: 'f16' }), operand('b', 0)), ['u32']);
    assert.deepEqual(types(operand('a', 0, { lanes: 1 }), operand('b', 0, { written: true })), ['u32, written']);
    assert.deepEqual(
      types(operand('a', 0, { element: 'bf16' }), operand('b', 0, { element: 'bf16', lanes: 1, written: true })),
      ['atomic<u32>, written'],
    );
  });

  test('with shader-f16 every kernel of the suites is accepted too', { skip: noGpu }, async () => {
    // Dawn's null adapter checks all and computes nothing; it has shader-f16, which the software driver lacks.
    const { create } = await import('webgpu');
    const gpu = create(['backend=null']); // held to the end: its devices do not outlive it
    const adapter = await gpu.requestAdapter();
    const device = await adapter!.requestDevice({ requiredFeatures: ['shader-f16'] });
    const backend = new WebgpuBackend(
      { device: device as unknown as GPUDevice, description: 'the null adapter' },
      runReference,
    );
    assert.match(backend.capabilities().description, /shader-f16/);
    const texts: string[] = [];
    const { createShaderModule } = device;
    device.createShaderModule = (descriptor) => {
      texts.push(descriptor.code);
      return createShaderModule.call(device, descriptor);
    };
    const rw = new Ropewalk(backend);
    for await (const _ of runCases(
      [...publishedCases(), ...extendedCases(), ...vectorCases(vectorFolder(VECTORS))],
      rw,
    ))
      await rw.finish();
    const half = (n: number): Tensor<'f16'> => rw.upload(new Uint16Array(n), { dtype: 'f16' });
    backend.run(
      planLinear(half(64).view([1, 64]), half(4096).view([64, 64]), half(64).view([1, 64]), { bias: half(64) }),
    );
    backend.run(planRmsNorm(half(64).view([1, 64]), half(64), half(64).view([1, 64]), { eps: 1e-5 }));
    await rw.finish();
    const native = texts.filter((code) => code.startsWith('enable f16;'));
    assert.ok(native.length >= 8, `${native.length} kernels with f16`);
    assert.ok(
      texts.every((code) => code.startsWith('enable f16;') === code.includes('_f16(')),
      'only those that take f16 need it',
    );
    backend.dispose();
  });
});
