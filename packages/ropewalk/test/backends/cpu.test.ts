/**
 * The promises of the cpu backend besides correct results: bits, threads, memory, and a clean end. Its operators are
 * tested in cpu-operators.test.ts.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import threads from 'node:worker_threads';
import { buildSync } from 'esbuild';
import { ROOT } from '../../../../test/support/command.js';
import { FUZZ } from '../../../../test/support/size.js';
import { until, WAIT_MS } from '../../../../test/support/until.js';
import { type CpuBackend, openCpu } from '../../src/backends/wasm/host.js';
import { WasmMemory } from '../../src/backends/wasm/memory.js';
import { type FloatDtype, newArray, storeNumber } from '../../src/core/dtypes.js';
import type { RopewalkError } from '../../src/core/errors.js';
import { f16FromNumber, numberFromF16 } from '../../src/core/float16.js';
import { countElements } from '../../src/core/shape.js';
import { type Tensor, tensorFrom } from '../../src/core/tensor.js';
import { bindRope } from '../../src/ops/rope/call.js';
import { planRope, planRopeWithTable } from '../../src/ops/rope/plan.js';
import type { RopeTable } from '../../src/ops/rope/table.js';
import { Ropewalk, ropewalk } from '../../src/ropewalk.js';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

/** Generates the same numbers everywhere: the high bits of a linear congruential generator. */
function numbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state / 2 ** 32) * 2 - 1;
  };
}

function filled<D extends FloatDtype>(rw: Ropewalk, dtype: D, shape: readonly number[], seed: number): Tensor<D> {
  const next = numbers(seed);
  const data = newArray(dtype, countElements(shape));
  for (let i = 0; i < data.length; i++) storeNumber(data, dtype, i, next());
  return rw.upload(tensorFrom<D>(data, { dtype, shape }));
}

describe('bits', () => {
  test('f32 RoPE is a Math.fround emulation, to the bit, in both modules', async () => {
    const tokens = 37;
    const heads = 3;
    const headDim = 50; // 22 pairs turned: five vectors and a tail of two; 6 dimensions copied
    const shape = [tokens, heads, headDim];
    for (const simd of ['auto', 'simd128'] as const) {
      const backend = await openCpu({ simd, threads: 1 });
      for (const pairing of ['half', 'interleaved'] as const) {
        const plan = planRope({ headDim, rotaryDim: 44, pairing, base: 10000, positions: 131000, seqLen: tokens });
        const next = numbers(1);
        const x = Float32Array.from({ length: tokens * heads * headDim }, next);
        const out = new Float32Array(x.length);
        backend.run(bindRope(plan, tensorFrom(x, { shape }), tensorFrom(out, { shape })));
        const { fround } = Math;
        const want = x.slice();
        for (let row = 0; row < tokens * heads; row++) {
          const token = Math.floor(row / heads);
          for (let j = 0; j < 22; j++) {
            const i0 = row * headDim + j * plan.read.step;
            const i1 = i0 + plan.read.gap;
            const c = plan.table.cos[token * 22 + j]!;
            const s = plan.table.sin[token * 22 + j]!;
            want[i0] = fround(fround(x[i0]! * c) - fround(x[i1]! * s));
            want[i1] = fround(fround(x[i0]! * s) + fround(x[i1]! * c));
          }
        }
        assert.deepEqual(new Uint32Array(out.buffer), new Uint32Array(want.buffer), `${simd} ${pairing}`);
      }
      backend.dispose();
    }
  });

  test('f16 RoPE is that emulation, rounded once: every f16 in, and every tie of f16 and its neighbours out', async () => {
    const headDim = 128;
    const pairs = headDim / 2;
    // Every finite f16, the value halfway to the next one, and the f32 on both sides of that; each by 64 in a row.
    const word = new Uint32Array(1);
    const float = new Float32Array(word.buffer);
    const near = (value: number, by: number): number => {
      float[0] = value;
      word[0]! += by;
      return float[0]!;
    };
    const cos: number[] = [];
    for (let bits = 0; bits < 0x7c00; bits++) {
      const tie = bits === 0x7bff ? 65520 : (numberFromF16(bits) + numberFromF16(bits + 1)) / 2;
      cos.push(numberFromF16(bits), near(tie, -1), tie, near(tie, 1));
    }
    const rows = Math.ceil(cos.length / pairs);
    const given = { rows, pairs, cos: Float32Array.from({ length: rows * pairs }, (_, i) => cos[i] ?? 1) };
    const outputs = { ...given, sin: new Float32Array(rows * pairs) };
    const tokens = 65536 / headDim;
    const inputs = { rows: tokens, pairs, cos: new Float32Array(tokens * pairs).fill(0.75) };
    const { fround } = Math;
    for (const simd of ['auto', 'simd128'] as const)
      for (const pairing of ['half', 'interleaved'] as const) {
        const backend = await openCpu({ simd, threads: 1 });
        const check = (table: RopeTable, x: Uint16Array): void => {
          const seqLen = table.rows;
          const plan = planRopeWithTable({ headDim, pairing, table, seqLen, tableRows: [...Array(seqLen).keys()] });
          const shape = [seqLen, 1, headDim];
          const out = new Uint16Array(x.length);
          const dtype = 'f16';
          backend.run(bindRope(plan, tensorFrom(x, { shape, dtype }), tensorFrom(out, { shape, dtype })));
          const wrong: string[] = [];
          for (let i = 0; i < seqLen * pairs; i++) {
            const i0 = Math.floor(i / pairs) * headDim + (i % pairs) * plan.read.step;
            const [a, b, c, s] = [
              numberFromF16(x[i0]!),
              numberFromF16(x[i0 + plan.read.gap]!),
              table.cos[i]!,
              table.sin[i]!,
            ];
            const want = [fround(fround(a * c) - fround(b * s)), fround(fround(a * s) + fround(b * c))];
            want.forEach((value, k) => {
              const got = out[i0 + k * plan.read.gap]!;
              const right = Number.isNaN(value) ? Number.isNaN(numberFromF16(got)) : got === f16FromNumber(value);
              if (!right && wrong.length < 5) wrong.push(`${a} ${b} by ${c} ${s}: ${numberFromF16(got)}, not ${value}`);
            });
          }
          assert.deepEqual(wrong, [], `${simd} ${pairing}`);
        };
        const ones = new Uint16Array(rows * headDim).map((_, i) => (i % 3 === 0 ? 0xbc00 : 0x3c00)); // 1 and −1
        check(outputs, ones);
        const all = Uint16Array.from({ length: 65536 }, (_, i) => i);
        check({ ...inputs, sin: new Float32Array(tokens * pairs).fill(0.5) }, all);
        // The kernel multiplies the table by 2^112, which has no place for this one.
        check({ ...inputs, sin: new Float32Array(tokens * pairs).fill(2 ** 20) }, all);
        backend.dispose();
      }
  });

  test('one thread and four give the same bits, for sizes that are worth threads', async () => {
    const one = new Ropewalk(await openCpu({ threads: 1 }));
    const four = new Ropewalk(await openCpu({ threads: 4 }));
    assert.equal(four.capabilities().threads, 4);
    const plan = one.planRope({ headDim: 128, pairing: 'half', base: 10000, positions: 0, seqLen: 301 });
    const f32 = (rw: Ropewalk, shape: number[], seed: number): Tensor<'f32'> => filled(rw, 'f32', shape, seed);
    const runs: Record<string, (rw: Ropewalk) => Tensor> = {
      'rope f32': (rw) => rw.rope(f32(rw, [301, 8, 128], 2), plan),
      'rope f16': (rw) => rw.rope(filled(rw, 'f16', [301, 8, 128], 2), plan),
      'rope bf16': (rw) => rw.rope(filled(rw, 'bf16', [301, 8, 128], 2), plan),
      add: (rw) => rw.add(f32(rw, [301, 1025], 3), f32(rw, [301, 1025], 4)),
      swiglu: (rw) => rw.swiglu(filled(rw, 'bf16', [301, 1025], 3), filled(rw, 'bf16', [301, 1025], 4)),
      rms_norm: (rw) => rw.rmsNorm(f32(rw, [301, 1025], 5), f32(rw, [1025], 6), { eps: 1e-6 }),
      geglu: (rw) => rw.geglu(f32(rw, [301, 1025], 3), f32(rw, [301, 1025], 4)),
      scale: (rw) => rw.scale(f32(rw, [301, 1025], 3), f32(rw, [301], 4), { softcap: 2 }),
      layer_norm: (rw) => rw.layerNorm(filled(rw, 'f16', [301, 1025], 5), filled(rw, 'f16', [1025], 6), { eps: 1e-6 }),
      rearrange: (rw) => rw.rearrange(f32(rw, [301, 1025], 7).permute([1, 0])),
      'linear, many rows': (rw) => rw.linear(f32(rw, [101, 300], 8), f32(rw, [333, 300], 9)),
      'linear, one row': (rw) => rw.linear(f32(rw, [1, 1111], 8), f32(rw, [999, 1111], 9)),
      'attention, many queries': (rw) =>
        rw.selfAttention(f32(rw, [130, 8, 64], 10), f32(rw, [200, 2, 64], 11), f32(rw, [200, 2, 64], 12)),
      'attention, one query': (rw) =>
        rw.selfAttention(f32(rw, [1, 8, 64], 10), f32(rw, [3000, 4, 64], 11), f32(rw, [3000, 4, 64], 12)),
      argmax: (rw) => rw.argmax(f32(rw, [301, 1025], 13)).value,
    };
    for (const [name, run] of Object.entries(runs)) {
      const want = await run(one).read();
      // Twice: the second time the workers are awake.
      for (let n = 0; n < 2; n++) assert.deepEqual(await run(four).read(), want, name);
    }
    one.dispose();
    four.dispose();
  });
});

describe('threads', () => {
  const large = (backend: CpuBackend): Tensor => {
    const rw = new Ropewalk(backend);
    return rw.add(filled(rw, 'f32', [1 << 18], 1), filled(rw, 'f32', [1 << 18], 2));
  };

  test('a worker that crashes in a job: the call says so, the next one works', async () => {
    const backend = await openCpu({ threads: 3 });
    const want = await large(backend).read();
    const { launcher } = backend;
    const message =
      'cpu: threads: a worker thread crashed. The output is incomplete: call again. ' +
      'The next call starts new threads.';
    await assert.rejects(
      async () => {
        // A strided RMS norm works in scratch memory, and that of the workers is outside the memory here. Sooner or
        // later one claims a chunk.
        const rw = new Ropewalk(backend);
        const x = filled(rw, 'f32', [64, 4096], 1).permute([1, 0]);
        const weight = filled(rw, 'f32', [64], 2);
        rw.rmsNorm(x, weight, { eps: 0 });
        launcher.pool.setScratch(launcher.memory.take(4096).address, 2 ** 31 - 1);
        for (let n = 0; n < 5000; n++) {
          rw.rmsNorm(x, weight, { eps: 0 }).dispose();
          await new Promise((resolve) => setImmediate(resolve));
        }
      },
      (error: RopewalkError) => {
        assert.deepEqual([error.code, error.message], ['DEVICE', message]);
        return true;
      },
    );
    assert.deepEqual(await large(backend).read(), want);
    backend.dispose();
  });

  const told = (backend: CpuBackend): Promise<void> =>
    until(
      () => backend.capabilities().notTaken.some((reason) => reason.startsWith('threads: a worker has ended')),
      'capabilities say that a worker has ended',
    );

  test('a worker that is killed between calls, again and again: the next call has two threads; capabilities say it', async () => {
    const workers: threads.Worker[] = [];
    const { Worker } = threads;
    threads.Worker = class extends Worker {
      constructor(...given: ConstructorParameters<typeof Worker>) {
        super(...given);
        workers.push(this);
      }
    };
    try {
      const backend = await openCpu({ threads: 2 });
      const want = await large(backend).read();
      for (let round = 0; round < 5; round++) {
        assert.equal(workers.length, round + 1);
        await workers[round]!.terminate();
        await told(backend);
        assert.deepEqual(await large(backend).read(), want);
        assert.equal(backend.capabilities().threads, 2);
        assert.deepEqual(
          backend.capabilities().notTaken.filter((reason) => reason.startsWith('threads')),
          [],
        );
      }
      backend.dispose();
    } finally {
      threads.Worker = Worker;
    }
  });

  test('workers that never begin are started three times, and no more', async () => {
    let started = 0;
    const { Worker } = threads;
    threads.Worker = class extends Worker {
      constructor(_url: unknown, options: object) {
        super('throw new Error("not today")', { ...options, eval: true });
        started++;
      }
    } as typeof Worker;
    try {
      const backend = await openCpu({ threads: 2 });
      const want = await large(backend).read();
      for (let n = 0; n < 5; n++) {
        await told(backend);
        assert.deepEqual(await large(backend).read(), want);
      }
      assert.equal(started, 3);
      const { threads: left, notTaken } = backend.capabilities();
      assert.equal(left, 1);
      assert.ok(notTaken.includes('threads: a worker has ended (not today); one thread computes'), notTaken.join('; '));
      backend.dispose();
    } finally {
      threads.Worker = Worker;
    }
  });

  test('the workers of a backend that is dropped without dispose() end, though a result of it is kept', async () => {
    let [started, running] = [0, 0];
    const { Worker } = threads;
    threads.Worker = class extends Worker {
      constructor(...given: ConstructorParameters<typeof Worker>) {
        super(...given);
        started++;
        running++;
        this.on('exit', () => running--);
      }
    };
    try {
      const results: Tensor[] = [];
      const dropped = async (): Promise<void> => {
        const backend = await openCpu({ threads: 2 });
        results.push(large(backend));
      };
      for (let n = 0; n < 4; n++) await dropped();
      assert.equal(started, 4);
      const first = await results[0]!.read();
      await until(() => {
        collect();
        return running === 0;
      }, 'no worker runs');
      assert.deepEqual(await results[0]!.read(), first);
    } finally {
      threads.Worker = Worker;
    }
  });

  test('where workers are not available, capabilities say one thread from the start, and why', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'bundle-'));
    try {
      const index = JSON.stringify(join(ROOT, 'packages/ropewalk/src/index.ts'));
      buildSync({
        stdin: {
          contents: `
            import { ropewalk } from ${index};
            const rw = await ropewalk({ backend: 'cpu', threads: 2 });
            const { threads, description, notTaken } = rw.capabilities();
            console.log(JSON.stringify({ threads, one: description.includes('one thread'), why: notTaken.filter((reason) => /^threads/.test(reason)) }));`,
          resolveDir: ROOT,
        },
        bundle: true,
        format: 'esm',
        platform: 'node',
        outfile: join(folder, 'app.mjs'),
        logLevel: 'error',
      });
      const run = (...options: string[]): { threads: number; one: boolean; why: string[] } => {
        const { stdout, stderr } = spawnSync(process.execPath, [...options, join(folder, 'app.mjs')], {
          encoding: 'utf8',
        });
        return JSON.parse(stdout || JSON.stringify(stderr));
      };
      const missing = run();
      assert.deepEqual([missing.threads, missing.one], [1, true]);
      assert.match(
        missing.why.join(),
        /^threads: file:.*\/worker\.js does not exist: copy worker\.js from the package's dist\/backends\/wasm/,
      );
      cpSync(join(ROOT, 'packages/ropewalk/src/backends/wasm/worker.js'), join(folder, 'worker.js'));
      assert.deepEqual(run(), { threads: 2, one: false, why: [] });
      const permission = process.allowedNodeEnvironmentFlags.has('--permission')
        ? '--permission'
        : '--experimental-permission';
      const why = ['threads: this process must not start workers: run node with --allow-worker'];
      assert.deepEqual(run(permission, '--allow-fs-read=*'), { threads: 1, one: true, why });
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  test('the process exits normally with a pool that was never disposed, asleep or awake', () => {
    const source = `
      import { ropewalk } from ${JSON.stringify(new URL('../../src/index.js', import.meta.url).href)};
      const rw = await ropewalk({ backend: 'cpu', threads: 3 });
      const x = rw.allocate('f32', [1 << 20]);
      for (let n = 0; n < 20; n++) rw.add(x, x, { out: x });
      if (process.argv[1] === 'asleep') await new Promise((resolve) => setTimeout(resolve, 200));
      console.log(rw.capabilities().threads);`;
    for (const how of ['awake', 'asleep']) {
      const { status, stdout, stderr } = spawnSync(
        process.execPath,
        ['--import', 'tsx', '--input-type=module', '-e', source, how],
        {
          cwd: ROOT,
          encoding: 'utf8',
          timeout: WAIT_MS,
        },
      );
      assert.deepEqual([status, stdout], [0, '3\n'], stderr);
    }
  });

  test('refusals: threads, simd, a disposed backend', async () => {
    await assert.rejects(openCpu({ threads: 0 }), {
      code: 'RANGE',
      message: 'cpu: threads: expected an integer >= 1, got 0',
    });
    await assert.rejects(openCpu({ simd: 'avx' as never }), {
      code: 'UNSUPPORTED',
      message: 'cpu: simd: expected auto or simd128, got "avx"',
    });
    const alone = await openCpu({ threads: 1 });
    assert.deepEqual(alone.capabilities().dtypes, ['f32', 'f16', 'bf16']);
    const x = alone.allocate('f64', [4]);
    assert.throws(() => new Ropewalk(alone).add(x, x), {
      code: 'UNSUPPORTED',
      message:
        'cpu: add: f64 runs on the reference: the kernels compute in f32. Give the reference: openCpu(options, runReference).',
    });
    alone.dispose();
    const rw = await ropewalk({ backend: 'cpu' });
    rw.dispose();
    rw.dispose();
    assert.throws(() => rw.allocate('f32', [1]), {
      code: 'DEVICE',
      message: 'cpu: this backend was disposed. Open another: await ropewalk({ backend: "cpu" }).',
    });
  });
});

describe('memory', () => {
  test('a million calls (FUZZ=10) that dispose their results take no memory', async () => {
    const backend = await openCpu({ threads: 1 });
    const rw = new Ropewalk(backend);
    const a = filled(rw, 'f32', [2, 1, 8], 1);
    rw.add(a, a).dispose(); // takes the scratch memory, which is kept
    const before = [backend.launcher.memory.heldBytes, backend.launcher.memory.buffer.byteLength];
    for (let n = 0; n < 100_000 * FUZZ; n++) rw.add(a, a).dispose();
    assert.deepEqual([backend.launcher.memory.heldBytes, backend.launcher.memory.buffer.byteLength], before);
    // RoPE with a new plan each time: its tables are kept for a while, and no longer.
    const options = { pairing: 'half', base: 10000 } as const;
    let most = 0;
    for (let n = 0; n < 20_000; n++) {
      rw.rope(a, n, options).dispose();
      if (n === 2000) most = backend.launcher.memory.buffer.byteLength;
    }
    assert.equal(backend.launcher.memory.buffer.byteLength, most);
    backend.dispose();
  });

  test('tensors that are dropped without dispose come back when the collector finds them', async () => {
    const backend = await openCpu({ threads: 1 });
    const drop = (): void => {
      for (let n = 0; n < 100; n++) backend.allocate('f32', [1000]);
    };
    drop();
    assert.ok(backend.launcher.memory.heldBytes >= 100 * 4000);
    await until(() => {
      collect();
      return backend.launcher.memory.heldBytes <= 50 * 4000;
    }, 'most of the memory comes back');
    backend.dispose();
  });

  test('a backend that is collected while its tensors wait for their memory does not stop the memory of others', async () => {
    const held: CpuBackend[] = [];
    const drop = async (): Promise<void> => {
      const backend = await openCpu({ threads: 1 });
      for (let n = 0; n < 100; n++) backend.allocate('f32', [1000]);
      held.push(backend);
    };
    const end = (): void => held.pop()!.dispose();
    await drop();
    await new Promise((resolve) => setTimeout(resolve));
    collect();
    end();
    for (let n = 0; n < 3; n++) collect(); // before the callbacks of the first have run
    await new Promise((resolve) => setTimeout(resolve, 20));
    await drop();
    await until(() => {
      collect();
      return held[0]!.launcher.memory.heldBytes <= 50 * 4000;
    }, 'most of the memory of another backend comes back');
    held[0]!.dispose();
  });

  test('what does not fit is refused with needed and available bytes, and nothing is lost', async () => {
    const rw = await ropewalk({ backend: 'cpu', threads: 2, memoryLimit: 2 ** 20 });
    const a = rw.allocate('f32', [100_000]);
    const asked = (): Tensor => rw.allocate('f32', [200_000]);
    const message =
      /^cpu: memory: 800000 bytes do not fit: \d+ of 983040 are available\. Dispose tensors that are no longer needed\.$/;
    assert.throws(asked, { code: 'DEVICE', message });
    a.dispose();
    const b = asked();
    assert.equal(b.size, 200_000);
    await assert.rejects(ropewalk({ backend: 'cpu', memoryLimit: 1000 }), {
      code: 'RANGE',
      message: /^cpu: memoryLimit: expected at least \d+ bytes, got 1000/,
    });
    rw.dispose();
  });

  test('memory grows between calls: tensors, tables and workers keep working', async () => {
    const rw = await ropewalk({ backend: 'cpu', threads: 2 });
    const plan = rw.planRope({ headDim: 64, pairing: 'half', base: 10000, positions: 0, seqLen: 600 });
    const x = filled(rw, 'f32', [600, 4, 64], 1);
    const first = await rw.rope(x, plan).read();
    const view = x.storage.host;
    const big = rw.allocate('f32', [8 << 20]);
    assert.notEqual(x.storage.host, view, 'the memory did grow');
    assert.deepEqual(await rw.rope(x, plan).read(), first);
    big.dispose();
    rw.dispose();
  });

  test("a view of the backend's own memory is refused when the memory moves in the call", async () => {
    const backend = await openCpu({ threads: 1 });
    const rw = new Ropewalk(backend);
    const x = rw.upload(new Float32Array(10_000).fill(1));
    const view = rw.tensor(x.storage.host!);
    const held = backend.launcher.memory.heldBytes;
    const message =
      /^cpu: tensor: this typed array is a view of the backend's own memory, which grew and moved\. Give the tensor/;
    // The staged copy does not fit.
    assert.throws(() => rw.add(view, view, { out: view }), { code: 'DEVICE', message });
    assert.equal(backend.launcher.memory.heldBytes, held);
    assert.deepEqual(rw.add(x, x, { out: x }).read(), new Float32Array(10_000).fill(2));
    backend.dispose();
  });

  test('blocks join: many small ones make room for a large one', () => {
    const home = new WasmMemory(false, 65536, 2 ** 21);
    const take = () => Array.from({ length: 15 }, () => home.take(2 ** 17 - 64));
    const small = take();
    assert.throws(() => home.take(2 ** 20), { code: 'DEVICE' });
    for (const block of small) home.free(block);
    const large = home.take(2 ** 20);
    home.free(large);
    assert.equal(home.heldBytes, 0);
    assert.ok(take().every((block) => block.address >= 65536));
  });

  test('a disposed tensor is refused with a clear message; disposing twice is harmless; using disposes', async () => {
    const backend = await openCpu({ threads: 1 });
    const rw = new Ropewalk(backend);
    const a = rw.allocate('f32', [4]);
    const view = a.view([2, 2]);
    a.dispose();
    a.dispose();
    const message = 'tensor: this tensor was disposed, so its elements are gone.';
    assert.throws(() => a.read(), { code: 'DEVICE', message });
    assert.throws(() => view.read(), { code: 'DEVICE', message });
    const held = backend.launcher.memory.heldBytes;
    {
      using b = rw.allocate('f32', [4]);
      assert.ok(b.size === 4 && backend.launcher.memory.heldBytes > held);
    }
    assert.equal(backend.launcher.memory.heldBytes, held);
    const host = rw.tensor(Float32Array.of(1));
    host.dispose(); // The garbage collector frees this memory.
    assert.deepEqual(host.read(), Float32Array.of(1));
    backend.dispose();
  });

  test('tensors of another cpu backend are host memory to this one', async () => {
    const [one, two] = [await ropewalk({ backend: 'cpu' }), await ropewalk({ backend: 'cpu' })];
    const a = one.upload(Float32Array.of(1, 2, 3));
    const b = two.upload(Float32Array.of(10, 20, 30));
    assert.deepEqual(await one.add(a, b).read(), Float32Array.of(11, 22, 33));
    one.dispose();
    two.dispose();
  });
});
