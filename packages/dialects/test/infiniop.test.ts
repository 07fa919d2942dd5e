import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { openAscendModel } from '@ropewalk/ascend';
import { runCases, vectorCases } from '@ropewalk/oracle';
import { readManifest, readNpy } from '@ropewalk/oracle/internal';
import { vectorFolder } from '@ropewalk/oracle/node';
import fc from 'fast-check';
import type { Runner } from 'ropewalk';
import { type Dtype, tensorFrom } from 'ropewalk';
import { newArray } from 'ropewalk/backend';
import { referenceRunner } from 'ropewalk/reference';
import { drawn } from '../../../test/support/size.js';
import { suitePasses, VECTORS } from '../../../test/support/suites.js';
import * as io from '../src/infiniop.js';

const rw = referenceRunner();
const { INFINI_DTYPE: T } = io;
const desc = (shape: number[], dtype: number = T.F32, strides: number[] | null = null) =>
  io.infiniopCreateTensorDescriptor(shape.length, shape, strides, dtype);

describe('devices', () => {
  test('a runner is of the CPU; ascend-model is of ASCEND too', async () => {
    const ascend = await openAscendModel();
    assert.equal(io.infiniopCreateHandle(rw).handle, rw);
    assert.equal(io.infiniopCreateHandle(rw, io.INFINI_DEVICE.CPU, 1.5).status, io.INFINI_STATUS_BAD_PARAM);
    assert.equal(io.infiniopDestroyHandle(rw).status, 0);
    const tensor = desc([2]);
    assert.equal(io.infiniopDestroyTensorDescriptor(tensor).status, 0);
    assert.equal(io.infiniopDestroyTensorDescriptor(tensor).status, io.INFINI_STATUS_BAD_PARAM);
    assert.equal(io.infiniopCreateHandle(ascend, io.INFINI_DEVICE.ASCEND).handle, ascend);
    assert.equal(io.infiniopCreateHandle(ascend, io.INFINI_DEVICE.CPU).handle, ascend);
    const { status, handle, error } = io.infiniopCreateHandle(rw, io.INFINI_DEVICE.ASCEND);
    assert.deepEqual(
      [status, handle, error?.code],
      [io.INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED, undefined, 'UNSUPPORTED'],
    );
    assert.equal(error!.message, 'infiniop: device: expected a device of reference, CPU (0), got "ASCEND (3)"');
    for (const device of [io.INFINI_DEVICE.NVIDIA, 99, -1])
      assert.equal(io.infiniopCreateHandle(ascend, device).status, 5);
  });

  test('vectors: the device of a descriptor comes before every other check', async () => {
    const to = mkdtempSync(join(tmpdir(), 'infiniop-'));
    try {
      cpSync(`${VECTORS}/infiniop`, to, { recursive: true });
      const path = join(to, 'invalid_descriptors.json');
      const file = JSON.parse(readFileSync(path, 'utf8'));
      const [nothing, right] = ['null_y', 'ok_base'].map((id) => file.cases.find((c: { id: string }) => c.id === id));
      const cases = [
        { ...nothing, id: 'ascend', device: 'ASCEND', expected_status: 5 },
        { ...right, id: 'unheard', device: 'ABACUS', expected_status: 5 },
        { ...right, id: 'cpu', device: 'CPU' },
      ];
      writeFileSync(path, JSON.stringify({ ...file, cases }));
      const statuses = async (runner: Runner): Promise<string[]> => {
        const found: string[] = [];
        const chosen = vectorCases(vectorFolder(to)).filter(({ label }) => label.startsWith('CREATE_ROPE'));
        for await (const { verdict } of runCases(chosen, runner)) found.push(verdict.status);
        return found;
      };
      assert.deepEqual(await statuses(rw), ['ok', 'ok', 'ok']);
      assert.deepEqual(await statuses(await openAscendModel()), ['not_supported', 'ok', 'ok']);
    } finally {
      rmSync(to, { recursive: true });
    }
  });
});

describe('golden', () => {
  suitePasses('infiniop');

  test('mrope equals its vectors to the bit: the tables are given, so nothing but one rounding is left', () => {
    const folder = vectorFolder(`${VECTORS}/infiniop`);
    const cases = readManifest(folder, 'manifest.json').objects('mrope');
    assert.equal(cases.length, 3);
    for (const c of cases) {
      const dtype = c.text('dtype') as Dtype;
      const load = (file: string, as: Dtype = dtype) => readNpy(folder, file, as).storage.host!;
      const code = T[dtype.toUpperCase() as keyof typeof T];
      const [q, k, positions] = [c.object('q'), c.object('k'), c.object('positions')];
      const posDtype = positions.text('dtype') as 'i32' | 'i64';
      const table = desc([c.integer('table_len'), c.integer('rotary_dim') / 2], code);
      const { descriptor } = io.infiniopCreateMRoPEDescriptor(
        rw,
        {
          q_out: desc(q.integers('shape'), code),
          k_out: desc(k.integers('shape'), code),
          q: desc(q.integers('shape'), code, q.integers('strides')),
          k: desc(k.integers('shape'), code, k.integers('strides')),
          cos: table,
          sin: table,
          positions: desc(positions.integers('shape'), posDtype === 'i32' ? T.I32 : T.I64),
        },
        {
          num_q_heads: c.integer('num_q_heads'),
          num_kv_heads: c.integer('num_kv_heads'),
          head_size: c.integer('head_size'),
          rotary_dim: c.integer('rotary_dim'),
          mrope_section: c.integers('sections') as [number, number, number],
          mrope_interleaved: c.flag('interleaved'),
        },
      );
      const [wantQ, wantK] = [load(q.text('expected')), load(k.text('expected'))];
      const memory = {
        q_out: newArray(dtype, wantQ.length),
        k_out: newArray(dtype, wantK.length),
        q: load(q.text('file')),
        k: load(k.text('file')),
        cos: load(c.text('cos')),
        sin: load(c.text('sin')),
        positions: load(positions.text('file'), posDtype),
      };
      assert.equal(io.infiniopMRoPE(descriptor!, memory).status, io.INFINI_STATUS_SUCCESS);
      assert.deepEqual([memory.q_out, memory.k_out], [wantQ, wantK], c.text('id'));
    }
  });
});

describe('properties', () => {
  const numbers = (count: number, of: () => number) => Float32Array.from({ length: count }, of);

  test('one token of any row = that row rotated by hand; strides of x and y do not matter; holes are untouched', () => {
    const anyCase = fc.record({
      seqlen: fc.integer({ min: 1, max: 4 }),
      nhead: fc.integer({ min: 1, max: 3 }),
      pairs: fc.integer({ min: 1, max: 5 }),
      tableLen: fc.integer({ min: 1, max: 40 }),
      algo: fc.constantFrom(io.INFINIOP_ROPE_ALGO_GPT_J, io.INFINIOP_ROPE_ALGO_GPT_NEOX),
      gap: fc.nat(3),
      random: fc.infiniteStream(fc.double({ min: -2, max: 2, noNaN: true })),
    });
    fc.assert(
      fc.property(anyCase, ({ seqlen, nhead, pairs, tableLen, algo, gap, random }) => {
        const next = (): number => random.next().value as number;
        const dhead = 2 * pairs;
        const head = dhead + gap;
        const strides = [nhead * head, head, 1];
        const shape = [seqlen, nhead, dhead];
        const [sin, cos] = [numbers(tableLen * pairs, next), numbers(tableLen * pairs, next)];
        const x = numbers(seqlen * nhead * head, next);
        const y = new Float32Array(x.length).fill(7);
        const pos = Uint16Array.from({ length: seqlen }, () => Math.floor(((next() + 2) / 4.001) * tableLen));
        const created = io.infiniopCreateRoPEDescriptor(
          rw,
          desc(shape, T.F32, strides),
          desc(shape, T.F32, strides),
          desc([seqlen], T.U16),
          desc([tableLen, pairs]),
          desc([tableLen, pairs]),
          algo,
        );
        assert.equal(
          io.infiniopRoPE(created.descriptor!, null, 0, y, x, pos, sin, cos).status,
          io.INFINI_STATUS_SUCCESS,
        );

        const want = new Float32Array(x.length).fill(7);
        for (let s = 0; s < seqlen; s++) {
          for (let h = 0; h < nhead; h++) {
            for (let j = 0; j < pairs; j++) {
              const at = s * strides[0]! + h * strides[1]!;
              const [i0, i1] =
                algo === io.INFINIOP_ROPE_ALGO_GPT_J ? [at + 2 * j, at + 2 * j + 1] : [at + j, at + j + pairs];
              const [c, sn] = [cos[pos[s]! * pairs + j]!, sin[pos[s]! * pairs + j]!];
              want[i0] = x[i0]! * c - x[i1]! * sn;
              want[i1] = x[i0]! * sn + x[i1]! * c;
            }
          }
        }
        assert.deepEqual(y, want);
        assert.equal(
          io.infiniopRoPE(created.descriptor!, null, 0, x, x, pos, sin, cos).status,
          io.INFINI_STATUS_SUCCESS,
        );
        for (let at = 0; at < x.length; at++)
          if (at % head < dhead) assert.ok(Object.is(x[at], y[at]), 'in place = out of place');
      }),
      drawn(80),
    );
  });
});

describe('life of a descriptor', () => {
  const sin = Float32Array.of(0, 1);
  const cos = Float32Array.of(1, 0);
  const create = (pos = desc([2], T.I32), data = desc([2, 1, 2])) =>
    io.infiniopCreateRoPEDescriptor(rw, data, data, pos, desc([2, 1]), desc([2, 1]), 1).descriptor!;
  const run = (
    d: io.InfiniRoPEDescriptor,
    y: Float32Array,
    pos: Int32Array | BigInt64Array,
    x = Float32Array.of(1, 2, 3, 4),
  ) => io.infiniopRoPE(d, null, 0, y, x, pos, sin, cos);

  test('create, workspace, calculate, destroy; then it answers BAD_PARAM', () => {
    const d = create();
    assert.deepEqual(io.infiniopGetRoPEWorkspaceSize(d), { status: 0, size: 0 });
    const y = new Float32Array(4);
    assert.deepEqual(run(d, y, Int32Array.of(1, 0)), { status: io.INFINI_STATUS_SUCCESS });
    assert.deepEqual([...y], [-2, 1, 3, 4]);
    assert.equal(io.infiniopDestroyRoPEDescriptor(d).status, 0);
    assert.equal(run(d, y, Int32Array.of(1, 0)).status, io.INFINI_STATUS_BAD_PARAM);
    assert.equal(io.infiniopDestroyRoPEDescriptor(d).status, io.INFINI_STATUS_BAD_PARAM);
  });

  test('a position outside the tables: BAD_PARAM, the position named, nothing written', () => {
    for (const bad of [2, -1]) {
      const y = new Float32Array(4).fill(7);
      const result = run(create(), y, Int32Array.of(0, bad));
      assert.equal(result.status, io.INFINI_STATUS_BAD_PARAM);
      assert.match(
        result.error!.message,
        new RegExp(`infiniop: pos_ids\\[1\\]: expected a row of the tables, in \\[0, 1\\], got ${bad}`),
      );
      assert.deepEqual([...y], [7, 7, 7, 7]);
    }
  });

  test('null memory, memory too short, memory of another type, partial overlap', () => {
    const d = create();
    assert.equal(
      io.infiniopRoPE(d, null, 0, new Float32Array(4), null, Int32Array.of(0, 0), sin, cos).status,
      io.INFINI_STATUS_NULL_POINTER,
    );
    assert.equal(run(d, new Float32Array(3), Int32Array.of(0, 0)).status, io.INFINI_STATUS_BAD_PARAM);
    assert.equal(run(d, new Float32Array(4), BigInt64Array.of(0n, 0n)).status, io.INFINI_STATUS_BAD_TENSOR_DTYPE);
    const room = new Float32Array(5);
    const overlapping = run(d, room.subarray(1), Int32Array.of(0, 0), room.subarray(0, 4));
    assert.equal(overlapping.status, io.INFINI_STATUS_BAD_PARAM);
    assert.match(overlapping.error!.message, /infiniop: y: it shares some of its memory with x/);
    for (const lost of [null, undefined] as never[]) {
      assert.equal(io.infiniopRoPE(lost, null, 0, null, null, null, null, null).status, io.INFINI_STATUS_NULL_POINTER);
      assert.equal(io.infiniopGetRoPEWorkspaceSize(lost).status, io.INFINI_STATUS_NULL_POINTER);
      assert.equal(io.infiniopDestroyRoPEDescriptor(lost).status, io.INFINI_STATUS_NULL_POINTER);
    }
  });

  test('a tensor as memory points at its own first element', () => {
    const x = tensorFrom(Float32Array.of(9, 9, 1, 2, 3, 4)).slice(0, 2, 6);
    const room = new Float32Array(5);
    const ran = io.infiniopRoPE(create(), null, 0, tensorFrom(room, { offset: 1 }), x, Int32Array.of(1, 0), sin, cos);
    assert.equal(ran.status, io.INFINI_STATUS_SUCCESS);
    assert.deepEqual([...room], [0, -2, 1, 3, 4]);
  });

  test('0 tokens and 0 heads: SUCCESS, nothing written', () => {
    for (const shape of [
      [0, 1, 2],
      [2, 0, 2],
    ]) {
      const y = new Float32Array(4).fill(7);
      assert.equal(
        run(create(desc([shape[0]!], T.I32), desc(shape, T.F32, [2, 2, 1])), y, Int32Array.of(0, 0)).status,
        0,
      );
      assert.deepEqual([...y], [7, 7, 7, 7]);
    }
  });

  test('all eight integer types, and strides of the positions', () => {
    for (const [code, dtype] of [
      [T.I8, 'i8'],
      [T.I16, 'i16'],
      [T.I32, 'i32'],
      [T.I64, 'i64'],
      [T.U8, 'u8'],
      [T.U16, 'u16'],
      [T.U32, 'u32'],
      [T.U64, 'u64'],
    ] as const) {
      const pos = newArray(dtype, 3);
      pos[0] = (dtype.endsWith('64') ? 1n : 1) as never;
      const y = new Float32Array(4);
      assert.equal(
        io.infiniopRoPE(create(desc([2], code, [2])), null, 0, y, Float32Array.of(1, 2, 3, 4), pos, sin, cos).status,
        0,
      );
      assert.deepEqual([...y], [-2, 1, 3, 4]);
    }
  });

  test('each batch has its own positions when they are 2-D', () => {
    const d = create(desc([2, 1], T.I32), desc([2, 1, 1, 2]));
    const y = new Float32Array(4);
    assert.equal(run(d, y, Int32Array.of(1, 0)).status, 0);
    assert.deepEqual([...y], [-2, 1, 3, 4]);
  });
});

describe('refusals in upstream’s order', () => {
  const good = {
    y: desc([4, 2, 8]),
    x: desc([4, 2, 8]),
    pos: desc([4], T.I32),
    sin: desc([16, 4]),
    cos: desc([16, 4]),
    algo: 0,
  };
  const status = (change: Partial<{ [K in keyof typeof good]: unknown }>) => {
    const c = { ...good, ...change } as typeof good;
    const { status: code, error } = io.infiniopCreateRoPEDescriptor(rw, c.y, c.x, c.pos, c.sin, c.cos, c.algo);
    return `${code} ${error?.message ?? ''}`;
  };
  const cases: [string, Parameters<typeof status>[0], RegExp][] = [
    ['all is well', {}, /^0 $/],
    ['null x, which upstream forgets', { x: null }, /^4 infiniop: x_desc: expected a descriptor, got none/],
    ['a pointer left out', { y: undefined }, /^4 infiniop: y_desc: expected a descriptor, got none/],
    ['algo 2', { algo: 2 }, /^4 infiniop: algo: expected GPT_J \(0\) or GPT_NEOX \(1\), got 2/],
    ['null before dtype', { sin: null, cos: desc([1], T.F16) }, /^4 /],
    ['x of another dtype', { x: desc([4, 2, 8], T.F16) }, /^10 infiniop: x_desc/],
    ['positions BOOL', { pos: desc([4], T.BOOL) }, /^10 infiniop: pos_desc/],
    ['dtype before shape', { x: desc([4, 2], T.F16) }, /^10 /],
    ['3-D y, 4-D x', { x: desc([1, 4, 2, 8]) }, /^11 /],
    ['2-D both', { x: desc([4, 8]), y: desc([4, 8]) }, /^11 infiniop: y_desc: expected 3 or 4 dimensions, got 2/],
    ['3-D positions', { pos: desc([1, 1, 4], T.I32) }, /^11 infiniop: pos_desc: expected 1 or 2 dimensions/],
    [
      'odd dhead',
      { x: desc([4, 2, 7]), y: desc([4, 2, 7]) },
      /^11 infiniop: sin_desc: expected table_dim = dhead \/ 2 = 3\.5, got 4/,
    ],
    [
      'last stride 2',
      { x: desc([4, 2, 8], T.F32, [32, 16, 2]) },
      /^12 infiniop: y_desc, x_desc: expected last stride 1/,
    ],
    ['a broadcast table', { sin: desc([16, 4], T.F32, [0, 1]) }, /^12 /],
  ];
  for (const [name, change, expected] of cases) test(name, () => void assert.match(status(change), expected));

  test('a descriptor of the wrong length is refused', () => {
    assert.throws(() => io.infiniopCreateTensorDescriptor(3, [1, 2], null, T.F32), {
      code: 'SHAPE',
      message: 'infiniop: shape: expected 3 integers >= 0, got [1, 2]',
    });
  });
});

describe('mrope', () => {
  const sizes = {
    num_q_heads: 1,
    num_kv_heads: 1,
    head_size: 6,
    rotary_dim: 4,
    mrope_section: [1, 1, 0] as [number, number, number],
    mrope_interleaved: false,
  };
  const tensors = {
    q_out: desc([1, 6]),
    k_out: desc([1, 6]),
    q: desc([1, 6]),
    k: desc([1, 6]),
    cos: desc([3, 2]),
    sin: desc([3, 2]),
    positions: desc([3, 1], T.I64),
  };
  const cos = Float32Array.of(1, 1, 0, 0, 1, 1);
  const sin = Float32Array.of(0, 0, 1, 1, 0, 0);

  test('pair 0 by t, pair 1 by h; the tail is copied', () => {
    const { descriptor } = io.infiniopCreateMRoPEDescriptor(rw, tensors, sizes);
    const [qOut, kOut] = [new Float32Array(6), new Float32Array(6)];
    const q = Float32Array.of(1, 2, 3, 4, 5, 6);
    const ran = io.infiniopMRoPE(descriptor!, {
      q_out: qOut,
      k_out: kOut,
      q,
      k: q,
      cos,
      sin,
      positions: BigInt64Array.of(1n, 0n, 2n),
    });
    assert.equal(ran.status, 0);
    assert.deepEqual([...qOut], [-3, 2, 1, 4, 5, 6]);
    assert.deepEqual(kOut, qOut);
    assert.equal(io.infiniopDestroyMRoPEDescriptor(descriptor!).status, 0);
  });

  test('positions outside take row 0 where that is asked for, as upstream has it', () => {
    const outside = { ...sizes, positions_outside: 'row_0' as const };
    const { descriptor } = io.infiniopCreateMRoPEDescriptor(rw, tensors, outside);
    const q = Float32Array.of(1, 2, 3, 4, 5, 6);
    // Row 0 does not rotate, and row 1 does. Pair 0 rotates by t, pair 1 by h.
    for (const [positions, expected] of [
      [
        [3n, 1n, 0n],
        [1, -4, 3, 2, 5, 6],
      ],
      [
        [1n, -1n, 99n],
        [-3, 2, 1, 4, 5, 6],
      ],
      [
        [2n ** 62n, -(2n ** 63n), 0n],
        [1, 2, 3, 4, 5, 6],
      ],
    ] as const) {
      const [q_out, k_out] = [new Float32Array(6), new Float32Array(6)];
      const ran = io.infiniopMRoPE(descriptor!, {
        q_out,
        k_out,
        q,
        k: q,
        cos,
        sin,
        positions: BigInt64Array.from(positions),
      });
      assert.deepEqual([ran.status, [...q_out]], [io.INFINI_STATUS_SUCCESS, expected]);
    }
    const empty = io.infiniopCreateMRoPEDescriptor(rw, { ...tensors, cos: desc([0, 2]), sin: desc([0, 2]) }, outside);
    const none = new Float32Array(0);
    const memory = {
      q_out: new Float32Array(6),
      k_out: new Float32Array(6),
      q,
      k: q,
      cos: none,
      sin: none,
      positions: BigInt64Array.of(0n, 0n, 0n),
    };
    assert.equal(io.infiniopMRoPE(empty.descriptor!, memory).status, io.INFINI_STATUS_BAD_PARAM);
    const wrong = io.infiniopCreateMRoPEDescriptor(rw, tensors, { ...sizes, positions_outside: 'clamp' as never });
    assert.deepEqual(
      [wrong.status, wrong.error?.message],
      [3, 'infiniop: positions_outside: expected refuse or row_0, got "clamp"'],
    );
    const misspelt = { ...sizes, rotaryDim: 2 };
    const { error } = io.infiniopCreateMRoPEDescriptor(rw, tensors, misspelt);
    assert.equal(error?.message, 'infiniop: sizes: there is no "rotaryDim". Did you mean rotary_dim?');
  });

  test('positions that are all past row 0', () => {
    const { descriptor } = io.infiniopCreateMRoPEDescriptor(rw, tensors, sizes);
    const [q_out, k_out, q] = [new Float32Array(6), new Float32Array(6), Float32Array.of(1, 2, 3, 4, 5, 6)];
    const positions = BigInt64Array.of(1n, 2n, 2n);
    assert.equal(
      io.infiniopMRoPE(descriptor!, { q_out, k_out, q, k: q, cos, sin, positions }).status,
      io.INFINI_STATUS_SUCCESS,
    );
    assert.deepEqual([...q_out], [-3, 2, 1, 4, 5, 6]);
  });

  test('a position outside: BAD_PARAM and neither q nor k written', () => {
    const { descriptor } = io.infiniopCreateMRoPEDescriptor(rw, tensors, sizes);
    const [qOut, kOut] = [new Float32Array(6), new Float32Array(6)];
    const q = Float32Array.of(1, 2, 3, 4, 5, 6);
    const ran = io.infiniopMRoPE(descriptor!, {
      q_out: qOut,
      k_out: kOut,
      q,
      k: q,
      cos,
      sin,
      positions: BigInt64Array.of(0n, 3n, 0n),
    });
    assert.equal(ran.status, io.INFINI_STATUS_BAD_PARAM);
    assert.ok([...qOut, ...kOut].every((v) => v === 0));
  });

  test('outputs that touch the other input or each other: BAD_PARAM, nothing written; in place is fine', () => {
    const { descriptor } = io.infiniopCreateMRoPEDescriptor(rw, tensors, sizes);
    const memory = () => ({
      q_out: new Float32Array(6),
      k_out: new Float32Array(6),
      q: Float32Array.of(1, 2, 3, 4, 5, 6),
      k: Float32Array.of(1, 2, 3, 4, 5, 6),
      cos,
      sin,
      positions: BigInt64Array.of(1n, 0n, 2n),
    });
    type Memory = ReturnType<typeof memory>;
    const cases: [(m: Memory) => Partial<Memory>, RegExp][] = [
      [(m) => ({ q_out: m.k }), /q_out: it shares all of its memory with k/],
      [(m) => ({ k_out: m.q }), /k_out: it shares all of its memory with q/],
      [(m) => ({ q_out: m.k_out }), /q_out: it shares all of its memory with k_out/],
    ];
    for (const [change, message] of cases) {
      const m = memory();
      const all = { ...m, ...change(m) };
      const before = structuredClone(all);
      const ran = io.infiniopMRoPE(descriptor!, all);
      assert.equal(ran.status, io.INFINI_STATUS_BAD_PARAM);
      assert.match(ran.error!.message, message);
      assert.deepEqual(all, before);
    }
    const m = memory();
    assert.equal(io.infiniopMRoPE(descriptor!, { ...m, q_out: m.q, k_out: m.k }).status, 0);
    assert.deepEqual([...m.q], [-3, 2, 1, 4, 5, 6]);
    assert.deepEqual(m.k, m.q);
    assert.equal(io.infiniopMRoPE(descriptor!, { q_out: m.q } as never).status, io.INFINI_STATUS_NULL_POINTER);
  });

  test('statuses in their order', () => {
    const status = (t: object, s: object = {}) =>
      io.infiniopCreateMRoPEDescriptor(rw, { ...tensors, ...t } as never, { ...sizes, ...s }).status;
    assert.equal(status({ q: null }, { head_size: 0 }), 4);
    assert.equal(status({ q: undefined }, { head_size: 0 }), 4);
    assert.equal(status({}, { mrope_section: [3, -1, 0] }), 3);
    assert.equal(status({}, { mrope_section: [0.5, 1.5, 0] }), 3);
    assert.equal(status({}, { num_q_heads: 0 }), 3);
    assert.equal(status({}, { rotary_dim: 8 }), 3);
    assert.equal(status({ k: desc([1, 6], T.F16) }, { mrope_section: [1, 0, 0] }), 3);
    assert.equal(status({ k: desc([9], T.F16) }), 10);
    assert.equal(status({ positions: desc([3, 1], T.I16) }), 10);
    assert.equal(status({ k: desc([1, 5]) }), 11);
    assert.equal(status({ q: desc([1, 6], T.F32, [12, 2]) }), 12);
    assert.equal(status({}), 0);
  });
});
