import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import type { Dtype, HostArray } from 'ropewalk';
import { f16FromNumber, numberFromF16 } from 'ropewalk';
import { drawn } from '../../../test/support/size.js';
import { type AscendC, EVEN_LANES, firstLanes, type LaneType, type LocalTensor, ODD_LANES } from '../src/ascendc.js';
import { bankOf } from '../src/banks.js';
import {
  HEADS,
  loadCycles,
  MAX_BUFFERS,
  SCALAR_MISS,
  SCALAR_UB,
  storeCycles,
  UB_BYTES,
  vectorCycles,
} from '../src/costs.js';
import { GlobalTensor, type KernelRun, launchKernel, type MachineOptions } from '../src/index.js';
import { f16Table, toF16 } from '../src/lanes.js';
import { Allocation } from '../src/memory.js';
import type { FindingKind } from '../src/trace.js';

/** Makes a tensor in global memory over f32 data. */
function gm(data: Float32Array, { name = 'x', written = false, low = 0, high = data.length } = {}): GlobalTensor {
  return new GlobalTensor(name, new Allocation(name, [data], written), 'f32', 0, low, high);
}

interface Options extends MachineOptions {
  readonly blocks?: number;
  readonly record?: boolean;
}

/** Runs a kernel of the test, by default without automatic synchronisation. */
function run(body: (c: AscendC) => void, { blocks = 1, record = false, ...machine }: Options = {}): KernelRun {
  return launchKernel({ kernel: 'test', dtype: 'f32', blocks, autoSync: false, machine, record, body });
}

function kinds(of: KernelRun): string[] {
  return of.findings.map((f) => f.kind);
}

/** Asserts that a run has one finding of a kind, on a line, and no other. */
function only(of: KernelRun, kind: FindingKind, line: string, message: RegExp): void {
  assert.deepEqual(
    of.findings.map((f) => [f.kind, f.line]),
    [[kind, line]],
    JSON.stringify(of.findings),
  );
  assert.match(of.findings[0]!.message, message);
}

const row = (bytes: number) => ({ blockCount: 1, blockLen: bytes, srcStride: 0, dstStride: 0 });

/** Loads, adds and stores `count` f32 a step, through queues. */
function pipeline(c: AscendC, x: GlobalTensor, y: GlobalTensor, steps: number, count: number, num = 2): void {
  const inQue = c.pipe.InitBuffer('in', 'VECIN', num, count * 4);
  const outQue = c.pipe.InitBuffer('out', 'VECOUT', num, count * 4);
  for (let i = 0; i < steps; i++) {
    const a = inQue.AllocTensor('alloc in', 'f32');
    c.DataCopyPadIn('load', a, x, i * count, row(count * 4));
    inQue.EnQue('enque in', a);
    const b = inQue.DeQue('deque in', 'f32');
    const out = outQue.AllocTensor('alloc out', 'f32');
    c.Add('add', out, b, b, count);
    outQue.EnQue('enque out', out);
    inQue.FreeTensor('free in', b);
    const done = outQue.DeQue('deque out', 'f32');
    c.DataCopyPadOut('store', y, i * count, done, row(count * 4));
    outQue.FreeTensor('free out', done);
  }
}

describe('computes', () => {
  test('a pipeline through queues: y = x + x, without findings, at any step', () => {
    const x = Float32Array.from({ length: 64 }, (_, i) => i / 3);
    const y = new Float32Array(64);
    const result = run((c) => pipeline(c, gm(x), gm(y, { name: 'y', written: true }), 4, 16));
    assert.deepEqual(result.findings, []);
    assert.deepEqual(
      y,
      x.map((v) => v + v),
    );
  });

  test('toF16 rounds as core does: every f16, and sums and products of any two', () => {
    for (let bits = 0; bits < 65536; bits++) {
      const value = numberFromF16(bits);
      assert.ok(Object.is(f16Table()[bits], value), `bits ${bits}`);
      if (value === value) assert.equal(toF16(value), bits);
      else assert.equal(toF16(value) & 0x7fff, 0x7e00);
    }
    const any = fc.nat(65535);
    fc.assert(
      fc.property(any, any, (a, b) => {
        const [x, y] = [numberFromF16(a), numberFromF16(b)];
        for (const exact of [x * y, x + y, x - y]) {
          if (exact !== exact) continue;
          assert.equal(toF16(exact), f16FromNumber(exact), `${x} and ${y}: ${exact}`);
        }
      }),
      drawn(20000),
    );
    // These are ties, the edge to infinity, and subnormals.
    for (const v of [
      65519.99,
      65520,
      2 ** -25,
      2 ** -25 * 1.0001,
      2 ** -24 * 1.5,
      2048.5 * 2,
      1 + 2 ** -11,
      1 + 3 * 2 ** -11,
      -0,
    ]) {
      assert.equal(toF16(v), f16FromNumber(Math.fround(v)), String(v));
    }
  });

  test('f16 rounds at every step: a product and a sum are two roundings', () => {
    const at = f16FromNumber;
    let got = 0;
    run((c) => {
      const t = (name: string) => c.pipe.InitTBuf(name, 32).Get('f16');
      const [a, b, d] = [t('a'), t('b'), t('d')];
      c.Duplicate('', a, 1 + 2 ** -10, 16);
      c.Duplicate('', b, 2 ** -11, 16);
      c.PipeBarrier('V');
      c.Mul('', d, a, a, 16); // 1 + 2^-9 + 2^-20, rounded
      c.PipeBarrier('V');
      c.Add('', d, d, b, 16);
      c.SetFlag('V', 'S', 0);
      c.WaitFlag('', 'V', 'S', 0);
      got = d.GetValue('', 3);
    });
    assert.equal(got, at(1 + 2 ** -9 + 2 ** -11));
    assert.notEqual(got, at(1 + 2 ** -9 + 2 ** -11 + 2 ** -20));
  });

  test('each block starts with a fresh unified buffer: nothing of the previous block is in it, nor in its shadow', () => {
    const seen: number[] = [];
    const result = run(
      (c) => {
        const t = c.pipe.InitTBuf('t', 64).Get('u32');
        if (c.GetBlockIdx() !== 1) seen.push(t.GetValue('get', 15));
        c.Duplicate('fill', t.as('f32'), 1, 16);
      },
      { blocks: 3 },
    );
    // V writes after S has read: this is a race in the blocks that read, and no race with the block before.
    assert.deepEqual(seen, [0xa5a5a5a5, 0xa5a5a5a5]);
    only(result, 'race', 'fill', /write after read in t.*after S of the same core/);
    assert.equal(result.findings[0]!.count, 2);
  });

  /** Fills a TBuf with 0, 1, 2 … and lets a kernel turn it into what `out` then holds. */
  function lanes(
    type: LaneType,
    count: number,
    turn: (c: AscendC, from: LocalTensor, to: LocalTensor) => void,
  ): number[] {
    const out: number[] = [];
    const result = run(
      (c) => {
        const from = c.pipe.InitTBuf('from', 1024).Get(type);
        const to = c.pipe.InitTBuf('to', 1024).Get(type);
        const number = (v: number) => (type === 'f16' ? f16FromNumber(v) : v);
        for (let i = 0; i < 512 / (type === 'f32' ? 2 : 1); i++) from.SetValue('fill', i, number(i));
        turn(c, from, to);
        for (let i = 0; i < count; i++)
          out.push(type === 'f16' ? numberFromF16(to.GetValue('look', i)) : to.GetValue('look', i));
      },
      { autoSync: true },
    );
    assert.deepEqual(result.findings, []);
    return out;
  }

  test('GatherMask: fixed patterns pack what they keep; custom patterns shift; the count says how many', () => {
    const params = { repeatTimes: 2, src0RepeatStride: 8 };
    let kept = 0;
    const fixed = (pattern: number) =>
      lanes('f32', 8, (c, from, to) => (kept = c.GatherMask('g', to, from, pattern, params)));
    assert.deepEqual(fixed(1), [0, 2, 4, 6, 8, 10, 12, 14]);
    assert.equal(kept, 64);
    assert.deepEqual(fixed(2), [1, 3, 5, 7, 9, 11, 13, 15]);
    assert.deepEqual(fixed(3), [0, 4, 8, 12, 16, 20, 24, 28]);
    assert.deepEqual(fixed(6), [3, 7, 11, 15, 19, 23, 27, 31]);
    assert.equal(kept, 32);
    assert.deepEqual(fixed(7), [0, 1, 2, 3, 4, 5, 6, 7]);
    const shifted = lanes('f16', 200, (c, from, to) => {
      const bits = c.pipe.InitTBuf('bits', 64).Get('u16');
      c.Duplicate('', bits, 0xffff, 32);
      bits.SetValue('', 0, 0xfffe);
      kept = c.GatherMask('g', to, from, bits, { ...params, src1RepeatStride: 1 });
    });
    assert.equal(kept, 255);
    assert.deepEqual(
      shifted,
      Array.from({ length: 200 }, (_, i) => i + 1),
    );
  });

  test('Gather takes byte offsets; masks choose lanes; a repeat stride of 0 repeats a source', () => {
    const gathered = lanes('f32', 8, (c, from, to) => {
      const offsets = c.pipe.InitTBuf('offsets', 32).Get('u32');
      for (let i = 0; i < 8; i++) offsets.SetValue('', i, (i >> 1) * 4);
      c.Gather('', to, from, offsets, 8);
    });
    assert.deepEqual(gathered, [0, 0, 1, 1, 2, 2, 3, 3]);
    const masked = lanes('f32', 72, (c, from, to) => {
      c.Duplicate('', to, 7, 128);
      const strides = { dst: 8, src0: 8, src1: 0 };
      c.Add('', to, from, from, { mask: firstLanes(EVEN_LANES, 4), repeats: 2, strides });
      c.Mul('', to, from, from, { mask: firstLanes(ODD_LANES, 2), repeats: 2, strides });
    });
    // In the second repeat dst and src0 are 64 elements on, and src1 starts over.
    assert.deepEqual(masked.slice(0, 5), [0, 1, 4, 7, 7]);
    assert.deepEqual(masked.slice(64, 68), [64 + 0, 65 * 1, 66 + 2, 7]);
  });

  test('GetValue of a global tensor reads any dtype', () => {
    const read = (dtype: Dtype, data: HostArray) => {
      let got = 0;
      run((c) => {
        got = c.GetGlobal(
          'get',
          new GlobalTensor('p', new Allocation('p', [data], false), dtype, 0, 0, data.length),
          1,
        );
      });
      return got;
    };
    assert.equal(read('i8', Int8Array.of(0, -3)), -3);
    assert.equal(read('u8', Uint8Array.of(0, 200)), 200);
    assert.equal(read('i16', Int16Array.of(0, -300)), -300);
    assert.equal(read('i32', Int32Array.of(0, -7)), -7);
    assert.equal(read('u32', Uint32Array.of(0, 2 ** 32 - 1)), 2 ** 32 - 1);
    assert.equal(read('i64', BigInt64Array.of(0n, -9n)), -9);
    assert.equal(read('f32', Float32Array.of(0, 1.5)), 1.5);
    assert.equal(read('f16', Uint16Array.of(0, 0x3c00)), 1);
  });

  test('DataCopyPad: rows with gaps on both sides, exact bytes out, padding in', () => {
    const x = Float32Array.from({ length: 40 }, (_, i) => i);
    const y = new Float32Array(40).fill(-1);
    const result = run(
      (c) => {
        const t = c.pipe.InitTBuf('t', 256).Get('f32');
        c.DataCopyPadIn('', t, gm(x), 1, { blockCount: 3, blockLen: 12, srcStride: 28, dstStride: 1 });
        c.PipeBarrier('ALL');
        c.DataCopyPadOut('', gm(y, { name: 'y', written: true }), 2, t, {
          blockCount: 3,
          blockLen: 12,
          srcStride: 1,
          dstStride: 8,
        });
      },
      { autoSync: true },
    );
    assert.deepEqual(result.findings, []);
    const want = new Float32Array(40).fill(-1);
    for (let r = 0; r < 3; r++) for (let i = 0; i < 3; i++) want[2 + r * 5 + i] = 1 + r * 10 + i;
    assert.deepEqual(y, want);
  });
});

describe('times', () => {
  const near = (got: number, want: number, by: number, what: string) =>
    assert.ok(Math.abs(got - want) <= by, `${what}: ${got}, expected ${want} ± ${by}`);

  test('the published figures of ascend.md, each from its formula', () => {
    for (const [op, dtype, n, want] of [
      ['GatherMask', 'f16', 128, 0.0156 * 128 + 14],
      ['GatherMask', 'f32', 128, 0.0313 * 128 + 14],
      ['Mul', 'f16', 64, 0.011 * 64 + 23.1],
      ['Mul', 'f32', 64, 0.0206 * 64 + 23.2],
      ['Add', 'f16', 64, 0.0103 * 64 + 22.2],
      ['Add', 'f32', 64, 0.0206 * 64 + 23.2],
      ['Sub', 'f16', 64, 0.0107 * 64 + 22.1],
      ['Sub', 'f32', 64, 0.0213 * 64 + 22.1],
      ['Cast', 'f16', 64, 0.0147 * 64 + 20.1],
      ['Cast', 'f32', 64, 0.0087 * 64 + 20.4],
    ] as const)
      near(vectorCycles(op, dtype, n, 1, 'published'), want, 0.1, `${op} ${dtype}`);
    near(loadCycles(256, 40), 256 / (7.905 + 7.31 / 40) + 27, 0.1, 'small load');
    near(loadCycles(40000, 40), 40000 / (9.907 + 15.9 / 40) + 27, 0.1, 'large load');
    near(storeCycles(256, 256, 1, 32), 256 / (9.96 + 3.79 / 32) + 12.1, 0.1, 'store');
    near(storeCycles(80, 80, 1, 32), 80 / 2 + 1.3, 0.1, 'unaligned store');
    near(storeCycles(4, 4, 1, 32), 32 / 2 + 1.3, 0.1, 'a store of less than a datablock is not cheaper than one');
    near(HEADS.mte2(40, false), 882 + 15.9 * 40, 1, 'head, small');
    near(HEADS.mte2(40, true), 1575 + 32.7 * 40, 1, 'head, large');
  });

  test('an Add of 64 repeats takes 86 cycles clean, 150 with read-read conflicts, 135 with read-write conflicts', () => {
    const add = (offsets: readonly [number, number, number]) => {
      const result = run(
        (c) => {
          const whole = c.pipe.InitTBuf('all', UB_BYTES).Get('f16');
          const [a, b, d] = offsets.map((o) => whole.at(o / 2)) as [LocalTensor, LocalTensor, LocalTensor];
          c.Add('add', d, a, b, 64 * 128);
        },
        { vectorTiming: 'repeats' },
      );
      const { readRead, readWrite } = result.bankConflicts;
      return { cycles: result.busy.V, readRead, readWrite };
    };
    // 64 repeats are 16 KB, and each uses 8 of 16 groups; the other 8 groups start 256 bytes further.
    const clean = add([0, 16384 + 256, 65536]);
    const readRead = add([0, 16384, 65536]);
    const readWrite = add([0, 65536 + 256, 16384]);
    near(clean.cycles, 86, 0.5, 'clean');
    near(readRead.cycles, 150, 0.5, 'read-read');
    near(readWrite.cycles, 135, 0.5, 'read-write');
    assert.deepEqual([clean.readRead, clean.readWrite, readRead.readRead, readWrite.readWrite], [0, 0, 64, 64]);
    assert.deepEqual([0x10000, 0x10020, 0x20020].map(bankOf), [16, 17, 33], "the guide's own examples");
  });

  test('the head of MTE2 is that of large loads as soon as there is one', () => {
    const heads = (bytes: number) =>
      run((c) =>
        c.DataCopyPadIn('load', c.pipe.InitTBuf('t', bytes).Get('f32'), gm(new Float32Array(bytes / 4)), 0, row(bytes)),
      );
    const [small, large] = [heads(24992), heads(25024)];
    assert.deepEqual([small.heads.MTE2, large.heads.MTE2], [HEADS.mte2(1, false), HEADS.mte2(1, true)]);
    near(small.cycles, HEADS.operator + HEADS.mte2(1, false) + loadCycles(24992, 1), 0.01, 'small');
    near(large.cycles, HEADS.operator + HEADS.mte2(1, true) + loadCycles(25024, 1), 0.01, 'large');
  });

  test('scalar accesses: the unified buffer each, global memory once a line of 64 bytes', () => {
    const p = new GlobalTensor('p', new Allocation('p', [new Int32Array(40)], false), 'i32', 0, 0, 40);
    const result = run((c) => {
      const t = c.pipe.InitTBuf('t', 64).Get('f32');
      for (let i = 0; i < 3; i++) t.SetValue('set', i, 1);
      for (let i = 0; i < 33; i++) c.GetGlobal('get', p, i);
    });
    near(result.busy.S, 36 * SCALAR_UB + 3 * SCALAR_MISS, 0.01, 'S');
    assert.equal(result.bytes.scalar, 3 * 64);
    near(3 * SCALAR_UB, 33.5, 0.01, 'GetValue, GetValue, SetValue');
  });

  test('two buffers overlap loads with vector work and stores; one buffer does not', () => {
    const x = new Float32Array(8 * 1024);
    const time = (num: number) =>
      run((c) => pipeline(c, gm(x), gm(new Float32Array(8 * 1024), { name: 'y', written: true }), 8, 1024, num), {
        record: true,
      });
    const [one, two] = [time(1), time(2)];
    assert.deepEqual([...one.findings, ...two.findings], []);
    const add1024 = vectorCycles('Add', 'f32', 1024, 16, 'published');
    assert.ok(
      two.cycles < one.cycles - 7 * add1024,
      `seven of eight Adds are hidden: ${two.cycles} against ${one.cycles}`,
    );
    assert.ok(two.overlap.share > one.overlap.share, 'overlap');
    const [load1] = one.blocks[0]!.instructions!.filter((i) => i.queue === 'MTE2').slice(1);
    const firstAdd = one.blocks[0]!.instructions!.find((i) => i.queue === 'V')!;
    assert.ok(load1!.start >= firstAdd.end, 'with one buffer the second load waits for the first Add');
    assert.match(load1!.waitsFor!.why, /V_MTE2 of in/);
    assert.equal(load1!.waitsFor!.index, firstAdd.index);
    const second = two.blocks[0]!.instructions!.filter((i) => i.queue === 'MTE2')[1]!;
    const add = two.blocks[0]!.instructions!.find((i) => i.queue === 'V')!;
    assert.ok(second.start < add.end, 'with two it does not');
  });

  test('queues run in order; records are within the block; more blocks than cores run in waves', () => {
    const x = new Float32Array(64);
    const one = (blocks: number) =>
      run((c) => pipeline(c, gm(x), gm(new Float32Array(64), { name: `y${c.GetBlockIdx()}`, written: true }), 4, 16), {
        blocks,
        record: true,
      });
    const single = one(40);
    for (const block of single.blocks) {
      for (const queue of ['S', 'V', 'MTE2', 'MTE3'] as const) {
        const list = block.instructions!.filter((i) => i.queue === queue);
        for (const [i, it] of list.entries()) {
          assert.ok(it.start >= it.issue && it.end >= it.start && it.end <= block.cycles + 1e-9, `times of ${it.name}`);
          if (i > 0) assert.ok(it.start >= list[i - 1]!.end - 1e-9, `order of ${it.name}`);
        }
      }
    }
    const waves = one(41);
    assert.deepEqual([single.waves, waves.waves], [1, 2]);
    assert.ok(waves.cycles > 1.8 * (single.cycles - HEADS.operator), `two waves: ${waves.cycles}`);
  });
});

describe('catches', () => {
  const filled = (length: number) => new Float32Array(length).fill(1);

  test('gm-over-read: past the tensor, and past the memory that holds it', () => {
    const load = (index: number, high: number) =>
      run((c) => c.DataCopyIn('load', c.pipe.InitTBuf('t', 128).Get('f32'), gm(filled(64), { high }), index, 32));
    assert.deepEqual(load(32, 64).findings, []);
    only(load(24, 48), 'gm-over-read', 'load', /32 of 128 bytes past the end of x/);
    assert.deepEqual(kinds(load(40, 64)), ['gm-over-read', 'gm-unallocated']);
    const scalar = (index: number) =>
      run((c) =>
        c.GetGlobal(
          'get',
          new GlobalTensor('p', new Allocation('p', [new Int32Array(8)], false), 'i32', 0, 0, 4),
          index,
        ),
      );
    assert.deepEqual(scalar(3).findings, []);
    only(scalar(4), 'gm-over-read', 'get', /past the end of p/);
  });

  test('gm-over-write: past the tensor, and into the gaps between its rows', () => {
    const store = (index: number, coverage?: Uint8Array) =>
      run((c) => {
        const y = gm(filled(32), { name: 'y', written: true, high: 24 });
        y.coverage = coverage;
        c.DataCopyPadOut('store', y, index, c.pipe.InitTBuf('t', 32).Get('f32'), row(32));
      });
    assert.deepEqual(store(16).findings, []);
    only(store(20), 'gm-over-write', 'store', /16 of 32 bytes past the end of y/);
    const holes = new Uint8Array(32).fill(1);
    assert.deepEqual(store(0, holes).findings, []);
    holes[6] = 0;
    only(store(0, holes), 'gm-over-write', 'store', /1 elements between the rows of y/);
  });

  test('unaligned: copies and vector operands', () => {
    const with_ = (at: number, count: number) =>
      run((c) => c.DataCopyIn('load', c.pipe.InitTBuf('t', 512).Get('f32').at(at), gm(filled(64)), 0, count));
    assert.deepEqual(with_(8, 16).findings, []);
    only(with_(8, 12), 'unaligned', 'load', /48 bytes moves only 32/);
    only(with_(4, 16), 'unaligned', 'load', /takes t at address 16: addresses must be multiples of 32/);
    const add = (at: number) =>
      run((c) => {
        const t = c.pipe.InitTBuf('t', 512).Get('f32');
        c.Add('add', t, t.at(at), t.at(at), 8);
      });
    assert.deepEqual(add(16).findings, []);
    only(add(17), 'unaligned', 'add', /takes t at address 68/);
  });

  test('before-dequeue: a buffer used before DeQue, after FreeTensor, or handed over out of order', () => {
    const use = (skip: 'nothing' | 'deque' | 'free') =>
      run((c) => {
        const que = c.pipe.InitBuffer('in', 'VECIN', 1, 64);
        const t = c.pipe.InitTBuf('t', 64).Get('f32');
        const a = que.AllocTensor('alloc', 'f32');
        c.DataCopyPadIn('load', a, gm(filled(16)), 0, row(64));
        if (skip === 'deque') {
          c.SetFlag('MTE2', 'V', 0); // ordered, but not handed over
          c.WaitFlag('wait', 'MTE2', 'V', 0);
          c.Add('add', t, a, a, 16);
          return;
        }
        que.EnQue('enque', a);
        const b = que.DeQue('deque', 'f32');
        if (skip === 'free') que.FreeTensor('free', b);
        c.Add('add', t, b, b, 16);
        if (skip === 'nothing') que.FreeTensor('free', b);
      });
    assert.deepEqual(use('nothing').findings, []);
    only(use('deque'), 'before-dequeue', 'add', /buffer of in that is OCCUPIED: it must be DEQUE/);
    only(use('free'), 'before-dequeue', 'add', /that is FREE/);
    const twice = run((c) => {
      const que = c.pipe.InitBuffer('in', 'VECIN', 1, 64);
      que.FreeTensor('free', que.AllocTensor('alloc', 'f32'));
    });
    only(twice, 'before-dequeue', 'free', /FreeTensor of a buffer of in that is OCCUPIED, not DEQUE/);
    const out = run((c) => {
      const que = c.pipe.InitBuffer('out', 'VECOUT', 1, 64);
      const a = que.AllocTensor('alloc', 'f32');
      c.DataCopyPadOut('store', gm(filled(16), { name: 'y', written: true }), 0, a, row(64));
    });
    only(out, 'before-dequeue', 'store', /after DeQue/);
  });

  test('no-free-buffer and deadlock: the kernel would hang; the run ends and says where', () => {
    const hang = (takes: number) =>
      run((c) => {
        const que = c.pipe.InitBuffer('in', 'VECIN', 2, 64);
        for (let i = 0; i < takes; i++) que.AllocTensor('alloc', 'f32');
      });
    assert.deepEqual(hang(2).findings, []);
    const hung = hang(3);
    only(hung, 'no-free-buffer', 'alloc', /its 2 buffers are OCCUPIED, OCCUPIED/);
    assert.ok(hung.findings[0]!.fatal && hung.blocks[0]!.stopped, 'fatal');
    only(
      run((c) => void c.pipe.InitBuffer('in', 'VECIN', 2, 64).DeQue('deque', 'f32')),
      'no-free-buffer',
      'deque',
      /nothing was put in/,
    );
    const flags = (set: boolean) =>
      run((c) => {
        if (set) c.SetFlag('MTE2', 'V', 3);
        c.WaitFlag('wait', 'MTE2', 'V', 3);
      });
    assert.deepEqual(flags(true).findings, []);
    only(flags(false), 'deadlock', 'wait', /MTE2_V\(3\)/);
  });

  test('overflow: GatherMask reads and writes whole repeats, past its buffer and into the neighbour', () => {
    const gather = (from: number, to: number) =>
      run((c) => {
        const a = c.pipe.InitTBuf('a', from).Get('f16');
        const b = c.pipe.InitTBuf('b', to).Get('f16');
        c.pipe.InitTBuf('after', 64);
        c.GatherMask('gather', b, a, 1, { repeatTimes: 1, src0RepeatStride: 8 });
      });
    assert.deepEqual(gather(256, 128).findings, []);
    only(gather(128, 128), 'overflow', 'gather', /reads 128 bytes past a \(128 bytes at 0\), into b/);
    only(gather(256, 96), 'overflow', 'gather', /writes 32 bytes past b \(96 bytes at 256\), into after/);
    assert.equal(gather(128, 96).findings.length, 2, 'reading and writing are told apart');
    const add = (count: number) =>
      run((c) => {
        const t = c.pipe.InitTBuf('t', 64).Get('f32');
        c.Add('add', t, t, t, count);
      });
    assert.deepEqual(add(16).findings, []);
    assert.match(add(17).findings[0]!.message, /past t \(64 bytes at 0\), into unallocated bytes/);
    const before = run((c) =>
      c.DataCopyPadIn('load', c.pipe.InitTBuf('t', 64).Get('f32').at(-8), gm(filled(8)), 0, row(32)),
    );
    only(before, 'overflow', 'load', /writes 32 bytes past t/);
  });

  test('race: within V without a barrier', () => {
    const chain = (barrier: boolean, options: Options = {}) =>
      run((c) => {
        const t = c.pipe.InitTBuf('t', 64).Get('f32');
        c.Duplicate('fill', t, 1, 16);
        if (barrier) c.PipeBarrier('V');
        c.Add('add', t, t, t, 16);
      }, options);
    assert.deepEqual(chain(true).findings, []);
    only(chain(false), 'race', 'add', /Add on V: read after write in t/);
    assert.deepEqual(chain(false, { autoSync: true }).findings, [], 'automatic synchronisation adds the barrier');
    assert.deepEqual(chain(false, { checkRaces: false }).findings, []);
  });

  test('race: a load that V reads, overwrites or is overtaken by, with and without flags', () => {
    const load = (flag: boolean, options: Options = {}) =>
      run((c) => {
        const [t, u] = [c.pipe.InitTBuf('t', 64).Get('f32'), c.pipe.InitTBuf('u', 64).Get('f32')];
        c.DataCopyPadIn('load', t, gm(filled(16)), 0, row(64));
        if (flag) {
          c.SetFlag('MTE2', 'V', 0);
          c.WaitFlag('wait', 'MTE2', 'V', 0);
        }
        c.Add('add', u, t, t, 16);
      }, options);
    assert.deepEqual(load(true).findings, []);
    only(load(false), 'race', 'add', /read after write in t/);
    // The compiler orders S and V, not MTE2 and V.
    only(load(false, { autoSync: true }), 'race', 'add', /read after write in t/);
    const reload = (flag: boolean) =>
      run((c) => {
        const [t, u] = [c.pipe.InitTBuf('t', 64).Get('f32'), c.pipe.InitTBuf('u', 64).Get('f32')];
        c.Add('add', u, t, t, 16);
        if (flag) {
          c.SetFlag('V', 'MTE2', 0);
          c.WaitFlag('wait', 'V', 'MTE2', 0);
        }
        c.DataCopyPadIn('load', t, gm(filled(16)), 0, row(64));
      });
    assert.deepEqual(reload(true).findings, []);
    only(reload(false), 'race', 'load', /write after read in t/);
  });

  test('race: the scalar unit against V, both ways; order is handed on through a third queue', () => {
    const scalar = (flag: boolean, options: Options = {}) =>
      run((c) => {
        const t = c.pipe.InitTBuf('t', 64).Get('f32');
        c.Duplicate('fill', t, 1, 16);
        if (flag) {
          c.SetFlag('V', 'S', 0);
          c.WaitFlag('wait', 'V', 'S', 0);
        }
        t.GetValue('get', 0);
      }, options);
    assert.deepEqual(scalar(true).findings, []);
    only(scalar(false), 'race', 'get', /GetValue on S: read after write in t/);
    const auto = scalar(false, { autoSync: true, record: true });
    assert.deepEqual(auto.findings, []);
    const [fill, get] = auto.blocks[0]!.instructions!;
    assert.ok(get!.start >= fill!.end, 'and waits');
    assert.deepEqual(get!.waitsFor, { why: 'automatic V → S', index: fill!.index });
    assert.ok(get!.issue < get!.start, 'from its issue on');
    // Here the order passes through a queue that does nothing itself.
    const relayed = run(
      (c) => {
        const t = c.pipe.InitTBuf('t', 64).Get('f32');
        c.Duplicate('fill', t, 1, 16);
        c.SetFlag('V', 'MTE2', 0);
        c.WaitFlag('wait', 'V', 'MTE2', 0);
        c.SetFlag('MTE2', 'S', 0);
        c.WaitFlag('wait', 'MTE2', 'S', 0);
        t.GetValue('get', 0);
      },
      { record: true },
    );
    assert.deepEqual(relayed.findings, []);
    const [first, last] = relayed.blocks[0]!.instructions!;
    assert.ok(last!.start >= first!.end, `${last!.start}, expected >= ${first!.end}`);
    const set = (flag: boolean) =>
      run((c) => {
        const t = c.pipe.InitTBuf('t', 64).Get('f32');
        t.SetValue('set', 0, 1);
        if (flag) {
          c.SetFlag('S', 'V', 0);
          c.WaitFlag('wait', 'S', 'V', 0);
        }
        c.Add('add', t.at(8), t, t, 8);
      });
    assert.deepEqual(set(true).findings, []);
    only(set(false), 'race', 'add', /after S of the same core/);
    // MTE2 → V → MTE3: the store knows of the load through V alone.
    const through = run((c) => {
      const [t, u] = [c.pipe.InitTBuf('t', 64).Get('f32'), c.pipe.InitTBuf('u', 64).Get('f32')];
      const both = gm(filled(16), { name: 'x and y', written: true });
      c.DataCopyPadIn('load', t, both, 0, row(64));
      c.SetFlag('MTE2', 'V', 0);
      c.WaitFlag('wait', 'MTE2', 'V', 0);
      c.Add('add', u, t, t, 16);
      c.SetFlag('V', 'MTE3', 0);
      c.WaitFlag('wait', 'V', 'MTE3', 0);
      c.DataCopyPadOut('store', both, 0, u, row(64));
    });
    assert.deepEqual(through.findings, []);
  });

  test('race: global memory, between queues of a core and between cores', () => {
    const inPlace = (barrier: boolean) =>
      run((c) => {
        const [t, u] = [c.pipe.InitTBuf('t', 64).Get('f32'), c.pipe.InitTBuf('u', 64).Get('f32')];
        const both = gm(filled(16), { name: 'x and y', written: true });
        c.DataCopyPadOut('store', both, 0, u, row(64));
        if (barrier) c.PipeBarrier('ALL');
        c.DataCopyPadIn('load', t, both, 0, row(64));
      });
    assert.deepEqual(inPlace(true).findings, []);
    only(inPlace(false), 'race', 'load', /read after write in x and y/);
    const overwrite = (flag: boolean) =>
      run((c) => {
        const [t, u] = [c.pipe.InitTBuf('t', 64).Get('f32'), c.pipe.InitTBuf('u', 64).Get('f32')];
        const both = gm(filled(16), { name: 'x and y', written: true });
        c.DataCopyPadIn('load', t, both, 0, row(64));
        if (flag) {
          c.SetFlag('MTE2', 'MTE3', 0);
          c.WaitFlag('wait', 'MTE2', 'MTE3', 0);
        }
        c.DataCopyPadOut('store', both, 0, u, row(64));
      });
    assert.deepEqual(overwrite(true).findings, []);
    only(overwrite(false), 'race', 'store', /write after read in x and y.*MTE2 of the same core/);
    // A block's waits order nothing in other blocks, however many instructions it has done.
    const shared = (first: 'load' | 'store', at: number) => {
      const y = gm(filled(64), { name: 'y', written: true });
      return run(
        (c) => {
          const t = c.pipe.InitTBuf('t', 64).Get('f32');
          if (first === 'load') c.DataCopyPadIn('load', t, y, c.GetBlockIdx() * 32, row(64));
          else c.DataCopyPadOut('store', y, c.GetBlockIdx() * 32, t, row(64));
          c.PipeBarrier('ALL');
          if (c.GetBlockIdx() === 1) c.DataCopyPadOut('again', y, at, t, row(64));
        },
        { blocks: 2 },
      );
    };
    assert.deepEqual([...shared('store', 16).findings, ...shared('load', 16).findings], []);
    only(shared('store', 15), 'race', 'again', /write after write in y.*MTE3 of block 0/);
    only(shared('load', 15), 'race', 'again', /write after read in y.*MTE2 of block 0/);
    // A block's own read of the same bytes does not hide that of another.
    const bothRead = (blocks: number) => {
      const y = gm(filled(16), { name: 'y', written: true });
      return run(
        (c) => {
          const t = c.pipe.InitTBuf('t', 64).Get('f32');
          c.DataCopyPadIn('load', t, y, 0, row(64));
          c.PipeBarrier('ALL');
          if (c.GetBlockIdx() === blocks - 1) c.DataCopyPadOut('store', y, 0, t, row(64));
        },
        { blocks },
      );
    };
    assert.deepEqual(bothRead(1).findings, []);
    only(bothRead(2), 'race', 'store', /write after read in y.*MTE2 of block 0/);
    // These are more blocks than 15 bits can count, each with its own bytes.
    const many = 2 ** 15 + 1;
    const y = gm(filled(many * 8), { name: 'y', written: true });
    const apart = run(
      (c) => {
        if (c.GetBlockIdx() < many - 3) return;
        const t = c.pipe.InitTBuf('t', 32).Get('f32');
        c.DataCopyPadIn('load', t, y, c.GetBlockIdx() * 8, row(32));
        c.PipeBarrier('ALL');
        c.DataCopyPadOut('store', y, c.GetBlockIdx() * 8, t, row(32));
      },
      { blocks: many },
    );
    assert.deepEqual(apart.findings, []);
  });

  test('too-many-buffers, ub-capacity, unsupported-dtype: each at its limit and one past it', () => {
    const buffers = (count: number) =>
      run((c) => {
        for (let i = 0; i < count; i += 2) c.pipe.InitBuffer(`q${i}`, 'VECIN', Math.min(2, count - i), 32);
      });
    assert.deepEqual(buffers(MAX_BUFFERS).findings, []);
    only(buffers(MAX_BUFFERS + 1), 'too-many-buffers', 'init: InitBuffer(q64)', /65 buffers/);
    const bytes = (size: number, machine: MachineOptions = {}) =>
      run((c) => void c.pipe.InitBuffer('big', 'VECIN', 2, size), machine);
    assert.deepEqual(bytes(UB_BYTES / 2).findings, []);
    only(bytes(UB_BYTES / 2 + 1), 'ub-capacity', 'init: InitBuffer(big)', /past the unified buffer's 196608/);
    only(bytes(64, { unifiedBufferBytes: 96 }), 'ub-capacity', 'init: InitBuffer(big)', /end at 128/);
    const mul = (type: LaneType) =>
      run((c) => {
        const t = c.pipe.InitTBuf('t', 64).Get(type);
        c.Mul('mul', t, t, t, 16);
      });
    assert.deepEqual(mul('f16').findings, []);
    only(mul('bf16'), 'unsupported-dtype', 'mul', /Mul does not do bf16/);
  });

  test('equal findings are counted, with the first block and cycle', () => {
    const x = gm(filled(8));
    const { findings } = run(
      (c) => {
        const t = c.pipe.InitTBuf('t', 128).Get('f32');
        for (let i = 0; i < 3; i++) {
          c.DataCopyPadIn('load', t, x, 4, row(32));
          c.PipeBarrier('MTE2');
        }
      },
      { blocks: 2 },
    );
    assert.deepEqual(
      findings.map((f) => [f.kind, f.count, f.first.block]),
      [
        ['gm-over-read', 6, 0],
        ['gm-unallocated', 6, 0],
      ],
    );
  });

  test('refusals name the option', () => {
    const refused = (options: Options, message: RegExp) =>
      assert.throws(() => run(() => {}, options), { name: 'RopewalkError', message });
    refused({ chip: '310P' as '910B3' }, /^aicore: chip: expected 910B1, .* or 910_9392, got "310P"/);
    const launch = { kernel: 'test', dtype: 'f32', blocks: 1, autoSync: false, body: () => {}, extra: 7 } as const;
    assert.throws(() => launchKernel(launch as never), { name: 'RopewalkError', message: /^aicore: extra: / });
    refused({ cores: 41 }, /^aicore: cores: expected an integer in \[1, 40\], got 41/);
    refused(
      { unifiedBufferBytes: 33 },
      /^aicore: unifiedBufferBytes: expected a multiple of 32 in \[32, 196608\], got 33/,
    );
    refused({ vectorTiming: 'fast' as 'repeats' }, /^aicore: vectorTiming/);
    assert.throws(() => run((c) => c.SetFlag('V', 'S', 8)), {
      code: 'RANGE',
      message: /event id: expected an integer in \[0, 7\], got 8/,
    });
    const pad = (blockCount: number, blockLen: number) => () =>
      run((c) =>
        c.DataCopyPadIn('', c.pipe.InitTBuf('t', 64).Get('f32'), gm(filled(8)), 0, { ...row(blockLen), blockCount }),
      );
    assert.throws(pad(4096, 4), { code: 'RANGE', message: /blockCount/ });
    assert.throws(pad(1, 2097152), { code: 'RANGE', message: /blockLen/ });
    const count = (body: (c: AscendC, t: LocalTensor) => void, message: RegExp) =>
      assert.throws(() => run((c) => body(c, c.pipe.InitTBuf('t', 512).Get('f32'))), { code: 'RANGE', message });
    for (const bad of [Number.NaN, -1, 1.5]) {
      count((c, t) => c.Add('', t, t, t, bad), /aicore: Add: count: expected an integer in \[0, 196608\], got/);
      count((c, t) => c.Cast('', t.as('f16'), t, bad), /Cast: count/);
      count((c, t) => c.Gather('', t, t, t.as('u32'), bad), /Gather: count/);
      count((c, t) => c.DataCopyIn('', t, gm(filled(8)), 0, bad), /DataCopyIn: count/);
      count(
        (c, t) => c.GatherMask('', t, t, 7, { repeatTimes: bad, src0RepeatStride: 8 }),
        /GatherMask: params: repeatTimes/,
      );
      count((c) => c.pipe.InitTBuf('u', bad), /InitTBuf: bytes: expected an integer in \[1, 2147483648\]/);
      refused({ blocks: bad }, /^aicore: blocks: expected an integer in \[0, 65535\]/);
    }
    const strides = { dst: 8, src0: 8, src1: 8 };
    count(
      (c, t) => c.Add('', t, t, t, { mask: 64, repeats: 256, strides }),
      /repeats: expected an integer in \[0, 255\], got 256/,
    );
    count(
      (c, t) => c.GatherMask('', t, t, 8, { repeatTimes: 1, src0RepeatStride: 8 }),
      /pattern: expected an integer in \[1, 7\], got 8/,
    );
  });
});
