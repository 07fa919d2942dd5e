/**
 * Tests of the WebNN backend with a small WebNN in JavaScript, which checks every graph against Chromium's limits.
 * test/browser/webnn.browser.test.ts tests Chromium itself.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  bindRopeParts,
  blocksFrom,
  planAdd,
  planLinear,
  planRearrange,
  planRope,
  planSelfAttention,
  Ropewalk,
  type Tensor,
  tensorFrom,
} from 'ropewalk';
import { holdAgainstReference } from '../../../test/support/sweeps.js';
import { fakeWebnn } from '../../../test/support/webnn.js';
import { openWebnn, WebnnBackend } from '../src/webnn/host.js';
import { whyNotWebnn } from '../src/webnn/open.js';

const GIB = 2 ** 30;

function open(memoryLimit = GIB) {
  const { webnn, context } = fakeWebnn();
  const backend = new WebnnBackend(
    { webnn, context, limits: context.opSupportLimits(), devices: ['cpu'] },
    memoryLimit,
  );
  return { backend, context, rw: new Ropewalk(backend) };
}

/** 0, 1, 2, … as f32. */
function count(shape: readonly number[]): Tensor<'f32'> {
  return tensorFrom<'f32'>(
    Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, n) => n),
    { shape },
  );
}

test('every operator and mix of dtypes, strided, into rows, with weights in blocks', () =>
  holdAgainstReference(open().backend, 'webnn', ['f32', 'f16', 'bf16']));

describe('tensors in its memory', () => {
  test('a KV cache: rows are scattered into a copy that takes its place, and nothing goes through the host', async () => {
    const { rw, context } = open();
    const cache = rw.allocate('f32', [8, 2, 4]);
    const k = rw.upload(count([1, 2, 4]));
    const want = new Float32Array(64);
    const written: number[] = [];
    for (let row = 0; row < 8; row++) {
      const plan = planRope({ headDim: 4, pairing: 'half', base: 10000, positions: 0, seqLen: 1 });
      rw.run(bindRopeParts(plan, [{ x: k.view([1, 2, 4]), out: cache, rows: row }]));
      want.set([0, 1, 2, 3, 4, 5, 6, 7], row * 8);
      assert.deepEqual(await cache.read(), want);
      written.push(context.writtenBytes);
    }
    // After the first steps the host writes tables of cos and sin (2 · 8 bytes) and the row's number, but not the
    // cache.
    assert.ok(written[7]! - written[6]! <= 32, `${written}`);
    assert.ok(context.tensors.filter(({ shape }) => shape[0] === 64).length <= 2, 'two tensors for the cache');
  });

  test('a stretch of a larger tensor is a tensor of its own, until somebody reads across its borders', async () => {
    const { rw } = open();
    const scratch = rw.upload(count([4, 3]));
    const rows = scratch.slice(0, 1, 3);
    rw.run(planAdd(rows, rows, rows));
    rw.run(planAdd(rows, rows, rows));
    assert.deepEqual([...(await rows.read())], [12, 16, 20, 24, 28, 32]);
    assert.deepEqual([...(await scratch.read())], [0, 1, 2, 12, 16, 20, 24, 28, 32, 9, 10, 11]);
    rw.run(planAdd(scratch.slice(0, 0, 2), scratch.slice(0, 0, 2), scratch.slice(0, 0, 2)));
    assert.deepEqual([...(await scratch.read())], [0, 2, 4, 24, 32, 40, 24, 28, 32, 9, 10, 11]);
    rw.run(planRearrange(scratch.slice(1, 2, 3), scratch.slice(1, 0, 1)));
    assert.deepEqual([...(await scratch.read())], [4, 2, 4, 40, 32, 40, 32, 28, 32, 11, 10, 11]);
  });

  test('two outputs in one storage, as q and k of a packed row', async () => {
    const { rw } = open();
    const packed = rw.upload(count([1, 3, 4]));
    const plan = planRope({ headDim: 4, pairing: 'half', base: 10000, positions: 0, seqLen: 1 });
    const other = rw.upload(tensorFrom<'f32'>(new Float32Array(4).fill(7), { shape: [1, 1, 4] }));
    rw.run(
      bindRopeParts(plan, [
        { x: other, out: packed.slice(1, 0, 1) },
        { x: other, out: packed.slice(1, 2, 3) },
      ]),
    );
    assert.deepEqual([...(await packed.read())], [7, 7, 7, 7, 4, 5, 6, 7, 7, 7, 7, 7]);
  });

  test('f16 keeps every bit, NaN as well, and is rounded once', async () => {
    const { rw } = open();
    const bits = Uint16Array.of(0x7e8c, 0xfe01, 0x8000, 0x0001, 0x3c01, 0x7bff);
    const x = rw.upload(tensorFrom(bits, { dtype: 'f16', shape: [6] }));
    const y = rw.allocate('f16', [6]);
    rw.run(planRearrange(x, y));
    assert.deepEqual(await y.read(), bits);
    rw.run(planAdd(y, y, y));
    assert.deepEqual([...(await y.read())].slice(2), [0x8000, 0x0002, 0x4001, 0x7c00]);
  });

  test('weights in blocks are widened once, and again when their bytes change', async () => {
    const { rw } = open();
    const bytes = new Uint8Array(34).fill(1); // q8_0: 32 weights of 1
    bytes.set([0x00, 0x3c]); // their scale, 1 in f16
    const held = rw.upload(tensorFrom<'u8'>(bytes));
    const w = blocksFrom('q8_0', held, [1, 32]);
    const [x, y] = [rw.upload(count([1, 32])), rw.allocate('f32', [1, 1])];
    const run = async (): Promise<number> => {
      rw.run(planLinear(x, w, y));
      return (await y.read())[0]!;
    };
    for (let n = 0; n < 3; n++) assert.equal(await run(), 496);
    rw.run(planRearrange(tensorFrom(bytes.map((byte, n) => (n < 2 ? byte : 2))), held));
    assert.equal(await run(), 992);
  });

  test('no columns: a product is its bias, or 0', async () => {
    const { rw } = open();
    const [x, w, y] = [rw.upload(count([2, 0])), rw.upload(count([3, 0])), rw.upload(count([2, 3]))];
    rw.run(planLinear(x, w, y, { bias: rw.upload(count([3])) }));
    assert.deepEqual([...(await y.read())], [0, 1, 2, 0, 1, 2]);
    rw.run(planLinear(x, w, y));
    assert.deepEqual([...(await y.read())], [0, 0, 0, 0, 0, 0]);
  });

  test('other dtypes are moved by the host', async () => {
    const { rw, context } = open();
    const x = rw.upload(tensorFrom(BigInt64Array.of(1n, 2n, 2n ** 62n), { shape: [3, 1] }));
    const y = rw.allocate('i64', [2, 3, 1]);
    rw.run(planRearrange(x, y.slice(0, 1, 2).view([3, 1])));
    assert.deepEqual([...(await y.read())], [0n, 0n, 0n, 1n, 2n, 2n ** 62n]);
    assert.equal(context.dispatches, 0);
  });
});

describe('graphs', () => {
  test('one for each shape; those not used are destroyed when there are too many', async () => {
    const { backend, rw, context } = open();
    const x = rw.upload(count([2, 600]));
    for (let n = 1; n <= 600; n++) {
      const part = x.slice(0, 0, 1).slice(1, 0, n);
      rw.run(planAdd(part, part, part));
      if (n % 100 === 0) await rw.finish();
    }
    assert.ok(backend.graphs.count <= 512, `${backend.graphs.count}`);
    const all = x.slice(0, 0, 1);
    rw.run(planAdd(all, all, all));
    const { written } = backend.graphs;
    rw.run(planAdd(all, all, all));
    await rw.finish();
    assert.equal(backend.graphs.written, written);
    assert.ok(context.graphs.some(({ destroyed }) => destroyed));
  });

  test('weights that are used again are a constant, until they are written or disposed', async () => {
    const { backend, rw, context } = open();
    const w = rw.upload(count([3, 4]));
    const x = rw.upload(count([1, 4]));
    const y = rw.allocate('f32', [1, 3]);
    const inputs = (): string[] => [...context.graphs.at(-1)!.inputs.keys()];
    const run = async (): Promise<number[]> => {
      rw.run(planLinear(x, w, y));
      return [...(await y.read())];
    };
    const want = [14, 38, 62];
    assert.deepEqual(await run(), want);
    assert.deepEqual(inputs(), ['x', 'weight']);
    const before = backend.memory.usedBytes;
    assert.deepEqual(await run(), want);
    assert.deepEqual(inputs(), ['x']);
    assert.equal(backend.memory.usedBytes, before + 2 * 48 + 12); // the constant twice, and the next y
    rw.run(planAdd(w, w, w));
    assert.deepEqual(await run(), [28, 76, 124]);
    assert.equal(context.graphs.filter(({ destroyed }) => destroyed).length, 1);
    w.dispose();
    assert.throws(() => rw.run(planLinear(x, w, y)), { code: 'DEVICE', message: /disposed/ });
  });
});

describe('refusals', () => {
  test('what would end the GPU process is refused before WebNN sees it', () => {
    const { rw, context } = open(8 * GIB);
    assert.throws(() => rw.allocate('f32', [GIB / 4]), {
      code: 'DEVICE',
      message: /webnn: tensor: expected at most 1020 MiB.*got 1024 MiB/,
    });
    const { rw: small } = open(2 ** 20);
    small.allocate('f32', [2 ** 17]);
    assert.throws(() => small.allocate('f32', [2 ** 17 + 1]), {
      code: 'DEVICE',
      message: /webnn: memory: .* more would pass the limit of 1 MiB.*memoryLimit/,
    });
    // The scores of 2^15 queries by as many keys are 4 GiB inside the graph, although no input is large.
    const [q, out] = [rw.allocate('f32', [2 ** 15, 1, 1]), rw.allocate('f32', [2 ** 15, 1, 1])];
    assert.throws(() => rw.run(planSelfAttention(q, q, q, out, { causal: false })), {
      code: 'DEVICE',
      message: /webnn: MatMul: expected at most 1020 MiB.*got 4096 MiB/,
    });
    assert.equal(context.tensors.length, 0);
  });

  test('activations rounded to 8 bits by name', () => {
    const { backend } = open();
    const [x, out] = [tensorFrom(new Float32Array(32)).view([1, 32]), tensorFrom(new Float32Array(1)).view([1, 1])];
    const weight = blocksFrom('q8_0', new Uint8Array(34), [1, 32]);
    assert.throws(() => backend.run(planLinear(x, weight, out, { activations: 'q8' })), {
      code: 'UNSUPPORTED',
      message: /^webnn: linear: activations: 'q8' has kernels on cpu alone; .* Use cpu\.$/,
    });
  });

  test('f64 by name', () => {
    const { backend } = open();
    const x = tensorFrom(new Float64Array(2));
    assert.match(backend.whyNot(planAdd(x, x, tensorFrom(new Float64Array(2))))!, /f64/);
    assert.throws(() => backend.run(planAdd(x, x, tensorFrom(new Float64Array(2)))), { code: 'UNSUPPORTED' });
  });

  test('in Node, and options that make no sense', async () => {
    assert.equal(await whyNotWebnn(), 'WebNN runs in browsers, and this is Node.');
    await assert.rejects(openWebnn(), { code: 'DEVICE', message: 'webnn: WebNN runs in browsers, and this is Node.' });
    for (const memoryLimit of [-1, 0])
      await assert.rejects(openWebnn({ memoryLimit }), { code: 'RANGE', message: /webnn: memoryLimit/ });
    await assert.rejects(openWebnn({ deviceType: 'npu' } as object), {
      code: 'UNSUPPORTED',
      message: 'webnn: deviceType: WebNN has no deviceType any more. Give powerPreference.',
    });
    await assert.rejects(openWebnn({ powerPreference: 'fast' as 'low-power' }), { message: /webnn: powerPreference/ });
  });

  test('tensors of another webnn backend are named so', () => {
    const [one, other] = [open().rw, open().rw];
    const [mine, theirs] = [one.allocate('f32', [2]), other.allocate('f32', [2])];
    const message = /the memory of another webnn backend/;
    assert.throws(() => one.run(planAdd(mine, theirs, mine)), { code: 'DEVICE', message });
    assert.throws(() => one.run(planAdd(mine, mine, theirs)), { code: 'DEVICE', message });
  });

  test('a lost context: what waits is rejected, and later calls say why and what next', async () => {
    const { rw, context } = open();
    const y = rw.allocate('f32', [2]);
    const x = rw.upload(count([2]));
    context.lose({ message: 'WebNN context is lost due to connection error.' });
    rw.run(planAdd(x, x, y));
    await assert.rejects(async () => y.read(), {
      code: 'DEVICE',
      message: /the context was lost.*Open the backend again/,
    });
    assert.throws(() => rw.allocate('f32', [2]), { code: 'DEVICE', message: /the context was lost/ });
  });
});
