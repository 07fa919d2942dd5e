import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { readManifest, readNpy } from '@ropewalk/oracle/internal';
import { vectorFolder } from '@ropewalk/oracle/node';
import fc from 'fast-check';
import { type Dtype, type FloatDtype, type HostArray, roundTo } from 'ropewalk';
import { loadNumber, newArray, storeNumber } from 'ropewalk/backend';
import type { Fields } from 'ropewalk/internal';
import { sharePairs } from 'ropewalk/internal';
import { drawn } from '../../../test/support/size.js';
import { VECTORS } from '../../../test/support/suites.js';
import {
  type GlobalView,
  type KernelName,
  type KernelRun,
  type RopeKernelOptions,
  runRopeKernel,
} from '../src/index.js';
import type { KernelPairing } from '../src/trace.js';

const folder = vectorFolder(`${VECTORS}/infiniop`);
const manifest = readManifest(folder, 'manifest.json');
const load = (file: string, dtype: Dtype): HostArray => readNpy(folder, file, dtype).storage.host!.slice() as HostArray;

type Four = readonly [number, number, number, number];

/** Makes a view `[batch, seq, heads, dim]` of a 3-D or 4-D layout. */
function view(data: HostArray, shape: readonly number[], strides: readonly number[], offset = 0): GlobalView {
  const four = (list: readonly number[], first: number) =>
    (list.length === 3 ? [first, ...list] : [...list]) as unknown as Four;
  return { data, shape: four(shape, 1), strides: four(strides, 0), offset };
}

/**
 * Rotates with every product and sum rounded. It is written a second time, with the conversions of ropewalk's core, so
 * that the machine's arithmetic does not test itself. f16 rounds each step to f16. f32, bf16, and f16 beside f32 tables
 * round each step to f32; bf16 and f16 then round the result once more.
 */
function stepwise(o: Omit<RopeKernelOptions, 'kernel'>): void {
  const { dtype, x, y, tableDtype = dtype } = o;
  const [batch, seq, heads, dim] = x.shape;
  const rotary = o.rotaryDim ?? dim;
  const half = rotary / 2;
  const step = (v: number) => roundTo(dtype === 'bf16' ? 'f32' : tableDtype, v);
  for (let b = 0; b < batch; b++) {
    for (let s = 0; s < seq; s++) {
      const row = Number(o.positions[o.positions.length === seq ? s : b * seq + s]!) * half;
      for (let h = 0; h < heads; h++) {
        const at = (v: GlobalView) => (v.offset ?? 0) + b * v.strides[0] + s * v.strides[1] + h * v.strides[2];
        const [from, to] = [at(x), at(y)];
        for (let j = 0; j < half; j++) {
          const [i0, i1] = o.pairing === 'interleaved' ? [2 * j, 2 * j + 1] : [j, j + half];
          const [x0, x1] = [loadNumber(x.data, dtype, from + i0), loadNumber(x.data, dtype, from + i1)];
          const [cos, sin] = [loadNumber(o.cos, tableDtype, row + j), loadNumber(o.sin, tableDtype, row + j)];
          storeNumber(y.data, dtype, to + i0, step(step(x0 * cos) - step(x1 * sin)));
          storeNumber(y.data, dtype, to + i1, step(step(x0 * sin) + step(x1 * cos)));
        }
        for (let i = rotary; i < dim; i++) y.data[to + i] = x.data[from + i]!;
      }
    }
  }
}

/** Asserts equal bits, naming the first element that differs. */
function sameBits(got: HostArray, want: HostArray, label: string): void {
  const bits = (data: HostArray) =>
    data instanceof Float32Array ? new Uint32Array(data.buffer, data.byteOffset, data.length) : data;
  const [g, w] = [bits(got), bits(want)];
  assert.equal(g.length, w.length, label);
  for (let i = 0; i < w.length; i++)
    if (g[i] !== w[i]) assert.fail(`${label}: element ${i}: bits ${g[i]}, expected ${w[i]}`);
}

function clean(run: KernelRun, label: string): void {
  assert.deepEqual(run.findings, [], label);
  assert.equal(run.rows.written, run.rows.wanted, label);
}

function ropeCase(f: Fields): { options: Omit<RopeKernelOptions, 'kernel'>; expected: HostArray } {
  const dtype = f.text('dtype') as FloatDtype;
  const y = f.object('y');
  const initial = y.object.bind(y);
  const pos = f.object('pos');
  const table = f.object('table');
  const x = load(f.object('x').text('file'), dtype);
  let out: HostArray;
  if (f.flag('inplace')) out = x;
  else {
    out = newArray(dtype, y.integer('buffer_len'));
    const bits = Number.parseInt(initial('initial').text('fill_bits'), 16);
    (out instanceof Float32Array ? new Uint32Array(out.buffer) : (out as Uint16Array)).fill(bits);
  }
  const step = y.text('expected_stepwise');
  return {
    options: {
      dtype,
      pairing: f.text('algo_name') === 'GPT_J' ? 'interleaved' : 'half',
      x: view(x, f.integers('shape'), f.integers('x_strides')),
      y: view(out, f.integers('shape'), f.integers('y_strides')),
      positions: load(pos.text('file'), pos.text('dtype') as Dtype) as ArrayLike<number | bigint>,
      sin: load(table.text('sin'), dtype),
      cos: load(table.text('cos'), dtype),
    },
    expected: load(step === 'same as expected' ? y.text('expected') : step, dtype),
  };
}

describe('InfiniOp vectors', () => {
  const cases = manifest.objects('rope');
  for (const kernel of ['correct', 'fast'] as const) {
    test(`every rope vector on ${kernel}: the stepwise bits, holes untouched, no findings`, () => {
      let ran = 0;
      for (const f of cases) {
        const label = `${kernel}: ${f.text('id')}`;
        if (f.text('dtype') === 'f64') {
          const dtype = 'f64' as const;
          const none = new Float64Array(8);
          const x = view(none, [1, 1, 8], [8, 8, 1]);
          assert.throws(
            () => runRopeKernel({ kernel, dtype, pairing: 'half', x, y: x, positions: [0], sin: none, cos: none }),
            {
              code: 'UNSUPPORTED',
              message: /dtype: f64 cannot be computed: the vector unit of architecture 2201 has no f64/,
            },
          );
          continue;
        }
        const { options, expected } = ropeCase(f);
        clean(runRopeKernel({ kernel, ...options }), label);
        sameBits(options.y.data, expected, label);
        ran++;
      }
      assert.ok(ran >= 20, `${ran} vectors`);
    });

    test(`every mrope vector on ${kernel}: gathered tables, rotary_dim below head_size, q and k`, () => {
      const list = manifest.objects('mrope');
      assert.ok(list.length >= 3, `${list.length} vectors`);
      for (const f of list) {
        const dtype = f.text('dtype') as FloatDtype;
        const [tokens, head, rotary] = [f.integer('num_tokens'), f.integer('head_size'), f.integer('rotary_dim')];
        const pairs = rotary / 2;
        const positions = load(f.object('positions').text('file'), f.object('positions').text('dtype') as Dtype);
        const { axisOfPair } = sharePairs(
          { rule: f.flag('interleaved') ? 'interleaved' : 'sections', sections: f.integers('sections') },
          pairs,
          'infiniop',
        );
        const gather = (file: string) => {
          const table = load(file, dtype) as Uint16Array;
          const rows = newArray(dtype, tokens * pairs) as Uint16Array;
          for (let t = 0; t < tokens; t++) {
            for (let j = 0; j < pairs; j++) {
              const row = Number(positions[positions.length === tokens ? t : axisOfPair[j]! * tokens + t]!);
              rows[t * pairs + j] = table[row * pairs + j]!;
            }
          }
          return rows;
        };
        const [sin, cos] = [gather(f.text('sin')), gather(f.text('cos'))];
        for (const part of ['q', 'k'] as const) {
          const g = f.object(part);
          const heads = f.integer(part === 'q' ? 'num_q_heads' : 'num_kv_heads');
          const shape = [tokens, heads, head];
          const label = `${kernel}: ${f.text('id')} ${part}`;
          const expected = load(g.text('expected'), dtype);
          const common = {
            dtype,
            pairing: 'half' as const,
            sin,
            cos,
            rotaryDim: rotary,
            positions: Array.from({ length: tokens }, (_, t) => t),
          };
          const x = view(load(g.text('file'), dtype), shape, [g.integers('strides')[0]!, head, 1]);
          const y = view(newArray(dtype, expected.length), shape, [heads * head, head, 1]);
          const want = view(newArray(dtype, expected.length), shape, [heads * head, head, 1]);
          clean(runRopeKernel({ kernel, ...common, x, y }), label);
          stepwise({ ...common, x, y: want });
          sameBits(y.data, want.data, label);
          const { atol, rtol } = {
            atol: f.object('tolerance').number('atol'),
            rtol: f.object('tolerance').number('rtol'),
          };
          for (let i = 0; i < expected.length; i++) {
            const [a, b] = [loadNumber(y.data, dtype, i), loadNumber(expected, dtype, i)];
            assert.ok(Math.abs(a - b) <= atol + rtol * Math.abs(b), `${label}: element ${i}: ${a}, expected ${b}`);
          }
        }
      }
    });
  }
});

/** Makes random numbers from a seed, the same on every machine. */
function numbers(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 31 - 1;
  };
}

interface Made {
  readonly dtype?: FloatDtype;
  readonly tableDtype?: FloatDtype;
  readonly tiling?: RopeKernelOptions['tiling'];
  readonly pairing?: KernelPairing;
  readonly seed?: number;
  readonly tableRows?: number;
  readonly rotaryDim?: number;
  readonly xStrides?: readonly number[];
  readonly yStrides?: readonly number[];
  readonly inPlace?: boolean;
  readonly positions?: readonly number[];
}

/** Makes a call on seeded data; by default it is dense and out of place. */
function made(shape: Four, o: Made = {}): Omit<RopeKernelOptions, 'kernel'> {
  const { dtype = 'f16', tableDtype = dtype, pairing = 'interleaved', inPlace = false } = o;
  const [, seq, heads, dim] = shape;
  const random = numbers(o.seed ?? 1);
  const fill = (length: number, scale = 1, type = dtype) => {
    const data = newArray(type, length);
    for (let i = 0; i < length; i++) storeNumber(data, type, i, random() * scale);
    return data;
  };
  const dense: Four = [seq * heads * dim, heads * dim, dim, 1];
  const reach = (strides: readonly number[]) => {
    const ends = shape.map((n, d) => (n - 1) * strides[d]!);
    const low = ends.reduce((sum, e) => sum + Math.min(0, e), 0);
    return { low, length: ends.reduce((sum, e) => sum + Math.max(0, e), 1) - low };
  };
  const rotaryDim = o.rotaryDim ?? dim;
  const tableRows = o.tableRows ?? seq;
  const tensor = (strides: readonly number[]) => {
    const { low, length } = reach(strides);
    return view(fill(length, 3), shape, strides, -low);
  };
  const y = tensor(o.yStrides ?? dense);
  return {
    dtype,
    pairing,
    rotaryDim,
    x: inPlace ? y : tensor(o.xStrides ?? dense),
    y,
    positions: o.positions ?? Array.from({ length: seq }, (_, s) => s % tableRows),
    tableDtype,
    tiling: o.tiling,
    sin: fill((tableRows * rotaryDim) / 2, 1, tableDtype),
    cos: fill((tableRows * rotaryDim) / 2, 1, tableDtype),
  };
}

/** Runs a kernel on a copy of the call, so that others see the same data. */
function onCopy(
  kernel: KernelName | 'stepwise',
  o: Omit<RopeKernelOptions, 'kernel'>,
): { y: HostArray; run: KernelRun | undefined } {
  const y = { ...o.y, data: o.y.data.slice() as HostArray };
  const x = o.x.data === o.y.data ? { ...o.x, data: y.data } : o.x;
  const call = { ...o, x, y };
  if (kernel === 'stepwise') stepwise(call);
  return { y: y.data, run: kernel === 'stepwise' ? undefined : runRopeKernel({ kernel, ...call }) };
}

describe('any call', () => {
  test('correct and fast give the stepwise bits for any shape, strides, positions, pairing, dtype, rotary_dim; in place too; no findings', () => {
    const anyCall = fc
      .record({
        dtype: fc.constantFrom('f16', 'bf16', 'f32') as fc.Arbitrary<FloatDtype>,
        pairing: fc.constantFrom('interleaved', 'half') as fc.Arbitrary<KernelPairing>,
        batch: fc.integer({ min: 1, max: 3 }),
        seq: fc.integer({ min: 1, max: 5 }),
        heads: fc.integer({ min: 1, max: 6 }),
        half: fc.oneof(fc.integer({ min: 1, max: 40 }), fc.constantFrom(32, 64, 96, 128)),
        tail: fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 20 })),
        order: fc.shuffledSubarray([0, 1, 2], { minLength: 3, maxLength: 3 }),
        gaps: fc.array(fc.nat(9), { minLength: 8, maxLength: 8 }),
        signs: fc.array(fc.boolean(), { minLength: 6, maxLength: 6 }),
        inPlace: fc.boolean(),
        each: fc.boolean(),
        wideTables: fc.boolean(),
        buffers: fc.integer({ min: 1, max: 4 }),
        seed: fc.nat(),
      })
      .map((r) => {
        const dim = 2 * r.half + r.tail;
        const shape: Four = [r.batch, r.seq, r.heads, dim];
        const strides = (gap: number) => {
          const list = [0, 0, 0, 1];
          let next = dim + r.gaps[gap]!;
          for (const [i, d] of r.order.entries()) {
            list[d] = r.signs[gap + i < 6 ? gap + i : i] ? -next : next;
            next = next * shape[d]! + r.gaps[gap + i + 1]!;
          }
          return list;
        };
        const random = numbers(r.seed);
        const tableRows = 7;
        const count = r.each ? r.batch * r.seq : r.seq;
        const positions = Array.from({ length: count }, () => Math.floor(((random() + 1) / 2) * tableRows));
        return {
          shape,
          o: {
            ...r,
            tableDtype: r.wideTables ? ('f32' as const) : r.dtype,
            tiling: { buffers: r.buffers, blocks: 1 + (r.seed % (r.batch * r.seq * r.heads)) },
            positions,
            tableRows,
            rotaryDim: 2 * r.half,
            xStrides: strides(0),
            yStrides: strides(4),
          },
        };
      });
    fc.assert(
      fc.property(anyCall, ({ shape, o }) => {
        const call = made(shape, o);
        const want = onCopy('stepwise', call).y;
        for (const kernel of ['correct', 'fast'] as const) {
          const { y, run } = onCopy(kernel, call);
          clean(run!, kernel);
          sameBits(y, want, kernel);
        }
      }),
      drawn(80),
    );
  });

  test('special values: zeros of both signs, subnormals, infinities and the largest numbers turn as stepwise says', () => {
    for (const dtype of ['f16', 'f32', 'bf16'] as const) {
      for (const pairing of ['interleaved', 'half'] as const) {
        const call = made([1, 4, 2, 32], { dtype, pairing });
        const values = [0, -0, 1, -1, 6e-8, -6e-8, 65504, -65504, Number.POSITIVE_INFINITY, 1e-40];
        for (let i = 0; i < call.x.data.length; i++) storeNumber(call.x.data, dtype, i, values[i % 10]!);
        for (let i = 0; i < call.sin.length; i++) storeNumber(call.sin, dtype, i, values[(i * 3) % 8]!);
        const [b, c] = [onCopy('correct', call).y, onCopy('fast', call).y];
        const want = onCopy('stepwise', call).y;
        for (let i = 0; i < want.length; i++) {
          const [g, h, w] = [b, c, want].map((d) => loadNumber(d, dtype, i)) as [number, number, number];
          // Any NaN stands for every other NaN.
          assert.ok(Object.is(g, w) && Object.is(h, w), `${dtype} ${pairing} ${i}: ${g}, ${h}, expected ${w}`);
        }
      }
    }
  });

  test('a recorded run, which merges value by value, has the figures and bits of a quick one, for any shape', () => {
    const anyCall = fc.record({
      dtype: fc.constantFrom('f16', 'bf16', 'f32') as fc.Arbitrary<FloatDtype>,
      batch: fc.integer({ min: 1, max: 2 }),
      seq: fc.integer({ min: 1, max: 5 }),
      heads: fc.integer({ min: 1, max: 3 }),
      half: fc.integer({ min: 1, max: 70 }),
      inPlace: fc.boolean(),
      checkRaces: fc.boolean(),
      autoSync: fc.constantFrom(undefined, false),
      seed: fc.nat(),
    });
    fc.assert(
      fc.property(anyCall, ({ batch, seq, heads, half, checkRaces, autoSync, ...o }) => {
        const machine = { checkRaces, autoSync };
        const call = made([batch, seq, heads, 2 * half], { ...o, tableRows: seq + 1 });
        for (const kernel of o.dtype === 'bf16' ? (['correct'] as const) : (['baseline', 'correct'] as const)) {
          const quick = onCopy(kernel, { ...call, machine });
          const slow = onCopy(kernel, { ...call, machine, record: true });
          const blocks = slow.run!.blocks.map((block) => ({ ...block, instructions: undefined }));
          assert.deepEqual(quick.run, { ...slow.run, blocks });
          sameBits(quick.y, slow.y, kernel);
        }
      }),
      drawn(60),
    );
  });

  test("a whole core's worth: heads over several tiles, tokens over several blocks, and one block for all", () => {
    for (const dtype of ['f16', 'bf16', 'f32'] as const) {
      for (const pairing of ['interleaved', 'half'] as const) {
        for (const cores of [1, 7, 40]) {
          const call = made([2, 3, 70, 64], { dtype, pairing });
          const want = onCopy('stepwise', call).y;
          const { y, run } = onCopy('fast', { ...call, machine: { cores } });
          clean(run!, `${dtype} ${pairing} ${cores}`);
          sameBits(y, want, `${dtype} ${pairing} ${cores}`);
        }
      }
    }
  });

  test('a tiling cuts the work as it says; what does not fit is refused or found', () => {
    const call = made([2, 3, 8, 64]);
    const want = onCopy('stepwise', call).y;
    for (const tileRows of [1, 3, 8])
      for (const buffers of [1, 2, 5]) {
        const { y, run } = onCopy('fast', { ...call, tiling: { blocks: 5, tileRows, buffers } });
        clean(run!, `${tileRows} ${buffers}`);
        sameBits(y, want, `${tileRows} ${buffers}`);
        assert.equal(run!.blockCount, 5);
        assert.equal(run!.unifiedBuffer.buffers[0]!.num, buffers);
      }
    const refused = (kernel: KernelName, tiling: object, message: RegExp, code = 'RANGE') =>
      assert.throws(() => onCopy(kernel, { ...call, tiling }), { code, message });
    refused(
      'baseline',
      { blocks: 2 },
      /blocks: the baseline kernel has no such parameter. It takes none/,
      'UNSUPPORTED',
    );
    refused('correct', { tileRows: 2 }, /tile: the correct kernel has no such parameter/, 'UNSUPPORTED');
    refused('fast', { tileRows: 9 }, /tile: expected an integer in \[1, 8\], got 9/);
    refused('fast', { blocks: 49 }, /blocks: expected an integer in \[1, 48\], got 49/);
    refused('fast', { buffers: 0 }, /buffers: expected an integer in \[1, 16\], got 0/);
    const large = made([1, 1, 32, 2048], { tiling: { blocks: 1, tileRows: 32 } });
    const fatal = onCopy('fast', large).run!.findings.filter((finding) => finding.fatal);
    assert.deepEqual(
      fatal.map(({ kind }) => kind),
      ['ub-capacity'],
    );
  });

  test('no elements, and the largest head', () => {
    for (const kernel of ['correct', 'fast', 'baseline'] as const) {
      const none = onCopy(kernel, made([1, 0, 2, 8], { tableRows: 1 })).run!;
      assert.deepEqual(
        [none.findings, none.rows.wanted, none.blockCount === 0 || none.rows.written === 0],
        [[], 0, true],
      );
      assert.ok(none.bottleneck!.share <= 1, `${kernel}: share ${none.bottleneck!.share}`);
      assert.equal(
        onCopy(kernel, made([2 ** 40, 0, 2 ** 40, 8], { tableRows: 1, xStrides: [0, 0, 0, 1], yStrides: [0, 0, 0, 1] }))
          .run!.rows.wanted,
        0,
      );
    }
    for (const dtype of ['f16', 'bf16', 'f32'] as const) {
      for (const pairing of ['interleaved', 'half'] as const) {
        const call = made([1, 1, 2, 2048], { dtype, pairing });
        const want = onCopy('stepwise', call).y;
        for (const kernel of ['correct', 'fast'] as const) {
          const { y, run } = onCopy(kernel, call);
          clean(run!, `${kernel} ${dtype} ${pairing}`);
          sameBits(y, want, `${kernel} ${dtype} ${pairing}`);
        }
      }
    }
  });
});

describe('the faults of the baseline are caught', () => {
  const found = (run: KernelRun) => run.findings.map((f) => `${f.kind} @ ${f.line}`);

  test('batch 0 only, positions of other batches never read; batch 0 itself is right', () => {
    const call = made([2, 4, 3, 128], { positions: [0, 1, 2, 3, 3, 2, 1, 0], tableRows: 5 });
    const { y, run } = onCopy('baseline', call);
    assert.deepEqual(found(run!), ['coverage @ launch', 'coverage @ launch']);
    assert.match(run!.findings[0]!.message, /12 of 24 rows of y were never written/);
    assert.match(run!.findings[1]!.message, /4 of 8 elements of positions were never read/);
    assert.deepEqual(run!.rows, { written: 12, wanted: 24 });
    const want = onCopy('stepwise', call).y;
    const first = 4 * 3 * 128;
    sameBits(y.slice(0, first) as HostArray, want.slice(0, first) as HostArray, 'batch 0');
    sameBits(y.slice(first) as HostArray, call.y.data.slice(first) as HostArray, 'batch 1 is as it was');
  });

  test('twice the table traffic, and past the last row of both tables', () => {
    const { run } = onCopy('baseline', made([1, 4, 2, 128]));
    assert.deepEqual(found(run!), [
      'gm-over-read @ copyIn: DataCopy(sin_ub, _sin_gm[pos_idx * _tile_len / 2], _half_copy_len)',
      'gm-unallocated @ copyIn: DataCopy(sin_ub, _sin_gm[pos_idx * _tile_len / 2], _half_copy_len)',
      'gm-over-read @ copyIn: DataCopy(cos_ub, _cos_gm[pos_idx * _tile_len / 2], _half_copy_len)',
      'gm-unallocated @ copyIn: DataCopy(cos_ub, _cos_gm[pos_idx * _tile_len / 2], _half_copy_len)',
    ]);
    assert.match(run!.findings[0]!.message, /DataCopy reads 128 of 256 bytes past the end of sin/);
    assert.equal(run!.findings[0]!.count, 2, 'the last token of each head');
    const tables = run!.bytes.byTensor;
    assert.equal(tables.sin, 2 * onCopy('correct', made([1, 4, 2, 128])).run!.bytes.byTensor.sin!);
    // A table with one more row hides it.
    assert.deepEqual(onCopy('baseline', made([1, 4, 2, 128], { tableRows: 5 })).run!.findings, []);
  });

  test('rows that are not a multiple of 32 bytes: x is over-read, GatherMask reads and writes past its buffers', () => {
    const { run } = onCopy('baseline', made([1, 3, 2, 40], { tableRows: 5 }));
    assert.deepEqual(found(run!), [
      'overflow @ compute: GatherMask(tmp_odd, input_ub, 1)',
      'overflow @ compute: GatherMask(tmp_odd, input_ub, 1)',
      'overflow @ compute: GatherMask(tmp_even, input_ub, 2)',
      'overflow @ compute: GatherMask(tmp_even, input_ub, 2)',
      'gm-over-read @ copyIn: DataCopy(input_ub, _x_gm[idx], _copy_len)',
      'gm-unallocated @ copyIn: DataCopy(input_ub, _x_gm[idx], _copy_len)',
    ]);
    assert.match(
      run!.findings[0]!.message,
      /GatherMask reads 160 bytes past _in_que \(96 bytes at 0\), into the next buffer of _in_que/,
    );
    assert.match(
      run!.findings[1]!.message,
      /GatherMask writes 64 bytes past _tmp_odd_buf \(64 bytes at \d+\), into _tmp_even_buf/,
    );
    assert.match(run!.findings[4]!.message, /DataCopy reads 16 of 96 bytes past the end of x/);
  });

  test('in place, the over-read meets rows that other blocks write', () => {
    const { run } = onCopy('baseline', made([1, 3, 2, 40], { tableRows: 5, inPlace: true }));
    const race = run!.findings.find((f) => f.kind === 'race');
    assert.match(race?.message ?? '', /of block [01]/);
    assert.equal(onCopy('fast', made([1, 3, 2, 40], { tableRows: 5, inPlace: true })).run!.findings.length, 0);
  });

  test('without automatic synchronisation it races: V without barriers, and the merge against V and MTE3', () => {
    const { run } = onCopy('baseline', { ...made([1, 3, 1, 128], { tableRows: 5 }), machine: { autoSync: false } });
    const races = run!.findings.filter((f) => f.kind === 'race').map((f) => f.line);
    assert.ok(races.includes('compute: Mul(tmp_odd1, tmp_odd, cos_ub)'));
    assert.ok(races.includes('compute: Sub(tmp_odd1, tmp_odd1, tmp_odd2)'));
    assert.ok(races.some((line) => line.startsWith('compute: merge')));
    assert.ok(races.includes('copyOut: DataCopyPad(_y_gm[idy], output_ub, params)'));
    // The fast kernel sets its own flags. With those of the compiler added it has no findings and the same bits.
    const call = made([1, 3, 4, 128]);
    const both = [true, false].map((autoSync) => onCopy('fast', { ...call, machine: { autoSync } }));
    for (const { run } of both) clean(run!, 'fast');
    sameBits(both[0]!.y, both[1]!.y, 'fast');
  });

  test('what its source refuses is refused: bf16, GPT-NeoX; and part of a head', () => {
    const call = made([1, 2, 2, 32]);
    const refused = (o: Partial<RopeKernelOptions>, message: RegExp) =>
      assert.throws(() => runRopeKernel({ kernel: 'baseline', ...call, ...o }), { code: 'UNSUPPORTED', message });
    refused(made([1, 2, 2, 32], { dtype: 'bf16' }), /kernel: the baseline kernel takes f16 and f32 only$/);
    refused({ pairing: 'half' }, /kernel: the baseline kernel rotates interleaved pairs \(GPT-J\) only$/);
    refused(made([1, 2, 2, 32], { rotaryDim: 16 }), /kernel: the baseline kernel rotates whole heads only/);
  });
});

describe('cycles', () => {
  const near = (got: number, want: number, by: number, what: string) =>
    assert.ok(Math.abs(got - want) <= by, `${what}: ${got}, expected ${want} ± ${by}`);

  test('one row of the baseline at f16, dhead 128: MTE2 176, V 173, MTE3 38, merge 2100 to 2900', () => {
    const seq = 8;
    const { run } = onCopy('baseline', { ...made([1, seq, 32, 128]), record: [0] });
    const block = run!.blocks[0]!;
    near(block.busy.MTE2 / seq, 176, 2, 'MTE2');
    const conflicts = block.instructions!.reduce((sum, i) => sum + i.conflictCycles, 0);
    near((block.busy.V - conflicts) / seq, 173, 2, 'V');
    near(block.busy.MTE3 / seq, 38, 1, 'MTE3');
    const merges = block.instructions!.filter((i) => i.line.startsWith('compute: merge'));
    const merge = merges.reduce((sum, i) => sum + i.end - i.start, 0) / seq;
    assert.ok(merge >= 2100 && merge <= 2900, `merge: ${merge}`);
    assert.equal(run!.bottleneck!.what, 'S');
    assert.match(run!.bottleneck!.line, /^compute: merge/);
    // Double buffering overlaps no load with vector work, because the scalar merge is between them.
    const loads = block.instructions!.filter((i) => i.queue === 'MTE2' && i.name === 'DataCopy');
    const lastMerge = merges.filter((i) => i.end <= loads[3]!.start);
    assert.ok(lastMerge.length > 0, 'the second row is loaded after the first merge');
    assert.equal(block.instructions!.length > 0 && run!.blocks[1]!.instructions, undefined);
  });

  test('fast takes at most a fifth of the cycles of the baseline for each row at f16, dhead 128; a fiftieth where there is work for all cores', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 2 }),
        fc.integer({ min: 8, max: 16 }),
        fc.integer({ min: 1, max: 20 }),
        (batch, seq, heads) => {
          const call = made([batch, seq, heads, 128], { tableRows: seq + 1 });
          const [a, c] = [onCopy('baseline', call).run!, onCopy('fast', call).run!];
          // The baseline leaves out all batches but the first, so only the rows that it writes count.
          assert.ok(
            a.cyclesPerRow >= 5 * c.cyclesPerRow,
            `${batch}, ${seq}, ${heads}: ${a.cyclesPerRow} against ${c.cyclesPerRow}`,
          );
        },
      ),
      drawn(6),
    );
    const call = made([1, 128, 32, 128]);
    const [a, b, c] = (['baseline', 'correct', 'fast'] as const).map((kernel) => onCopy(kernel, call).run!);
    assert.ok(a!.cycles >= 50 * c!.cycles, `${a!.cycles} against ${c!.cycles}`);
    assert.ok(b!.cycles < a!.cycles, 'the correct kernel shares rows among 40 cores, the baseline has 32 blocks');
    assert.equal(c!.bottleneck!.what, 'MTE2', 'limited by memory');
    assert.ok(c!.overlap.share > 0.5 && a!.overlap.share < 0.1, `overlap ${c!.overlap.share}, ${a!.overlap.share}`);
    assert.ok(c!.bytes.load < 1.05 * c!.bytes.least.load, `loads ${c!.bytes.load} of ${c!.bytes.least.load}`);
    assert.equal(c!.bytes.store, c!.bytes.least.store);
  });

  test('the table of docs/aicore.md is what the model says', () => {
    const page = readFileSync(new URL('../../../docs/aicore.md', import.meta.url), 'utf8');
    const shape: Four = [8, 128, 32, 128];
    const strides: Four = [128 * 32 * 128, 32 * 128, 128, 1];
    const zeros = () => ({ data: new Uint16Array(shape[0] * strides[0]), shape, strides });
    const [sin, cos] = [new Uint16Array(128 * 64), new Uint16Array(128 * 64)];
    const positions = Array.from({ length: 128 }, (_, s) => s);
    const call = { dtype: 'f16', pairing: 'interleaved', positions, sin, cos } as const;
    const runs = (['baseline', 'correct', 'fast'] as const).map((kernel) =>
      runRopeKernel({ kernel, ...call, x: zeros(), y: zeros() }),
    );
    const whole = (n: number) => Math.round(n).toLocaleString('en');
    const rowOf = (what: string, cell: (run: KernelRun) => string) => `| ${what} | ${runs.map(cell).join(' | ')}`;
    const busiest = (run: KernelRun) => {
      const { what, share } = run.bottleneck!;
      return `${what} ${Math.round(share * 100)} %`;
    };
    for (const line of [
      rowOf('rows written, of 32768', ({ rows }) => String(rows.written)),
      rowOf('cycles', ({ cycles }) => whole(cycles)),
      rowOf('cycles a written row, over all cores', ({ cyclesPerRow }) => cyclesPerRow.toFixed(1)),
      rowOf('times faster a row than the baseline', ({ cyclesPerRow }) =>
        String(Number((runs[0]!.cyclesPerRow / cyclesPerRow).toFixed(1))),
      ),
      rowOf('busiest queue of the slowest block', busiest),
      `${rowOf('bytes loaded, of the fewest possible', ({ bytes }) => whole(bytes.load))} of ${whole(runs[2]!.bytes.least.load)} |`,
    ])
      assert.ok(page.includes(line), line);
  });

  test('the buffers of a run follow each other, rounded up, within the unified buffer', () => {
    for (const kernel of ['baseline', 'correct', 'fast'] as const) {
      const { unifiedBuffer } = onCopy(kernel, made([1, 4, 8, 128])).run!;
      let next = 0;
      for (const b of unifiedBuffer.buffers) {
        assert.equal(b.offset, next, `${kernel}: ${b.name}`);
        assert.equal(b.size % 32, 0);
        next += b.num * b.size;
      }
      assert.equal(unifiedBuffer.used, next);
      assert.ok(next <= unifiedBuffer.capacity, `${kernel}: ${next} bytes`);
    }
  });

  test('long tails of many heads fit the unified buffer', () => {
    for (const pairing of ['interleaved', 'half'] as const) {
      const call = made([1, 2, 64, 2048], { pairing, rotaryDim: 2 });
      const { y, run } = onCopy('fast', { ...call, machine: { cores: 1 } });
      clean(run!, pairing);
      sameBits(y, onCopy('stepwise', call).y, pairing);
    }
  });

  test('a unified buffer too small is a finding, nothing is written', () => {
    const call = made([1, 2, 2, 128]);
    const { y, run } = onCopy('fast', { ...call, machine: { unifiedBufferBytes: 1024 } });
    assert.deepEqual(
      run!.findings.map((f) => f.kind),
      ['ub-capacity', 'coverage', 'coverage'],
    );
    sameBits(y, call.y.data, 'y');
  });
});

describe('refusals', () => {
  test('each names the argument, what was expected and what was given; nothing is written', () => {
    const call = made([1, 2, 3, 16]);
    const refused = (o: Partial<RopeKernelOptions>, code: string, message: RegExp) => {
      const y = { ...call.y, data: call.y.data.slice() as HostArray };
      assert.throws(() => runRopeKernel({ kernel: 'fast', ...call, y, ...o }), { code, message });
      sameBits(y.data, call.y.data, String(message));
    };
    refused(
      { kernel: 'faster' as 'fast' },
      'UNSUPPORTED',
      /kernel: expected baseline, correct, fast, infinicore-gptj or infinicore-neox, got "faster"/,
    );
    refused({ dtype: 'f64' }, 'UNSUPPORTED', /no f64 arithmetic/);
    refused({ dtype: 'i32' as 'f32' }, 'DTYPE', /aicore: dtype/);
    refused({ dtype: 'f32' }, 'DTYPE', /x: expected a Float32Array/);
    refused({ pairing: 'vision' as 'half' }, 'UNSUPPORTED', /pairing: expected interleaved or half, got "vision"/);
    refused({ rotaryDim: 15 }, 'RANGE', /rotaryDim: expected an even integer in \[2, head_dim=16\], got 15/);
    refused({ rotaryDim: 18 }, 'RANGE', /rotaryDim/);
    refused({ x: { ...call.x, shape: [1, 2, 3, 14] } }, 'SHAPE', /aicore: y: expected the shape of x/);
    refused({ x: { ...call.x, strides: [96, 48, 16, 2] } }, 'SHAPE', /last stride of 1/);
    refused(
      { x: { ...call.x, strides: [96, 49, 16, 1] } },
      'RANGE',
      /aicore: x: shape, strides and offset reach elements 0 to 96; its memory has only 96/,
    );
    refused({ y: { ...call.y, strides: [96, 8, 16, 1] } }, 'ALIAS', /with strides \[96, 8, 16, 1\], rows of y overlap/);
    refused({ x: { ...call.y, data: call.y.data, shape: [1, 1, 3, 16] } as GlobalView }, 'SHAPE', /aicore/);
    refused({ sin: newArray('f16', 9) }, 'SHAPE', /sin and cos: expected two dense tables \[rows, 8\], got \[9, 16\]/);
    refused({ positions: [0] }, 'SHAPE', /positions: expected 2 or 1 × 2 rows/);
    refused({ positions: [0, 2] }, 'RANGE', /positions\[1\]: expected a row of the tables, in \[0, 1\], got 2/);
    refused({ positions: [0, -1n] }, 'RANGE', /positions\[1\]/);
    const big = made([1, 1, 1, 2050]);
    assert.throws(() => runRopeKernel({ kernel: 'fast', ...big }), {
      code: 'UNSUPPORTED',
      message: /head_dim <= 2048/,
    });
  });

  test('y over a part of x, or over a table', () => {
    const memory = newArray('f16', 200);
    const x = view(memory, [2, 3, 16], [48, 16, 1]);
    const call = made([1, 2, 3, 16]);
    const over = (offset: number) =>
      runRopeKernel({ kernel: 'fast', ...call, x, y: view(memory, [2, 3, 16], [48, 16, 1], offset) });
    assert.throws(() => over(16), { code: 'ALIAS', message: /it overlaps x in part\. Give y its own memory/ });
    assert.deepEqual([...over(96).findings, ...over(0).findings], []);
    const y = { ...call.y, data: new Uint16Array(call.sin.buffer) };
    const small = {
      ...call,
      y: { ...y, shape: [1, 1, 1, 16] as const },
      x: { ...call.x, shape: [1, 1, 1, 16] as const },
      positions: [0],
    };
    assert.throws(() => runRopeKernel({ kernel: 'fast', ...small }), {
      code: 'ALIAS',
      message: /aicore: sin: it overlaps y in memory/,
    });
  });
});

test('onBlock is called for every block, in order', () => {
  const { options } = ropeCase(manifest.objects('rope').find((f) => f.text('dtype') === 'f16')!);
  const heard: [number, number][] = [];
  const { blockCount } = runRopeKernel({
    kernel: 'correct',
    ...options,
    onBlock: (done, total) => heard.push([done, total]),
  });
  assert.deepEqual(
    heard,
    Array.from({ length: blockCount }, (_, block) => [block + 1, blockCount]),
  );
});
