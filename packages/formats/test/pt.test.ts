import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { type Zippable, zipSync } from 'fflate';
import { damage, damaged, mustRefuseOrReturn } from '../../../test/support/fuzz.js';
import { drawn } from '../../../test/support/size.js';
import { parsePt } from '../src/pt.js';

/**
 * Files of torch 1.13.0 (Debian 12's python3-torch), with x = torch.arange(24.).reshape(2, 3, 4) / 4: tensor.pt is
 * torch.save(x); dict.pt a dict of views of x in bf16, of a tensor of each integer dtype, and of plain values; state.pth
 * nn.Linear(2, 1).state_dict(); parameter.pt its weight; module.pt the Linear itself; sparse.pt and complex.pt what they
 * say; legacy.pt torch.save(x, file, _use_new_zipfile_serialization=False).
 */
const file = (name: string): Uint8Array => readFileSync(new URL(`./pt/${name}`, import.meta.url));
const values = (
  from: Map<string, ReturnType<typeof parsePt> extends Map<string, infer T> ? T : never>,
  name: string,
) => [...(from.get(name)!.readNumbers() as Float64Array)];
const counted = (count: number) => Array.from({ length: count }, (_item, n) => n / 4);

/** A pickle, opcode by opcode: what torch.save writes. */
const pickle = {
  start: '\x80\x02',
  global: (name: string) => `c${name.slice(0, name.lastIndexOf('.'))}\n${name.slice(name.lastIndexOf('.') + 1)}\n`,
  text: (text: string) => `X${String.fromCharCode(text.length)}\0\0\0${text}`,
  int: (n: number) => `J${String.fromCharCode(n & 255, (n >> 8) & 255, (n >> 16) & 255, (n >> 24) & 255)}`,
  tuple: (...items: string[]) => `(${items.join('')}t`,
};
const { global, text, int, tuple } = pickle;
const storage = (type: string, count: number, key = '0'): string =>
  `${tuple(text('storage'), global(type), text(key), text('cpu'), int(count))}Q`;
const v2 = (of: string, offset: number, shape: number[], strides: number[], more = ''): string =>
  `${global('torch._utils._rebuild_tensor_v2')}${tuple(of, int(offset), tuple(...shape.map(int)), tuple(...strides.map(int)), '\x89', `${global('collections.OrderedDict')})R`, more)}R`;
const v3 = (of: string, shape: number[], dtype: string): string =>
  `${global('torch._utils._rebuild_tensor_v3')}${tuple(of, int(0), tuple(...shape.map(int)), tuple(int(1)), '\x89', '}', global(dtype))}R`;
const latin = (program: string): Uint8Array => Uint8Array.from(program, (letter) => letter.charCodeAt(0));
const archive = (program: string, storages: Record<string, Uint8Array> = {}, more: Zippable = {}, level: 0 | 9 = 0) =>
  zipSync(
    {
      'x/data.pkl': latin(`${pickle.start}${program}.`),
      ...Object.fromEntries(Object.entries(storages).map(([key, bytes]) => [`x/data/${key}`, bytes])),
      ...more,
    },
    { level },
  );
const four = { '0': new Uint8Array(Float32Array.of(1, 2, 3, 4).buffer) };

describe('golden', () => {
  test('a tensor alone', () => {
    const found = parsePt(file('tensor.pt'));
    assert.deepEqual([...found.keys()], ['']);
    assert.deepEqual([found.get('')!.dtype, found.get('')!.shape], ['f32', [2, 3, 4]]);
    assert.deepEqual(values(found, ''), counted(24));
  });

  test('a dict: views of one storage, strides, offsets, all dtypes; plain values are left out', () => {
    const found = parsePt(file('dict.pt'));
    const dtypes = Object.fromEntries([...found].map(([name, { dtype }]) => [name, dtype]));
    assert.deepEqual(dtypes, {
      ...{ q: 'bf16', q_t: 'bf16', tail: 'bf16', half: 'f16', positions: 'i64', i32: 'i32', i16: 'i16', i8: 'i8' },
      ...{ u8: 'u8', bool: 'u8', f64: 'f64', 'layers.0.k': 'f16', 'layers.1.0': 'f16' },
    });
    assert.deepEqual(values(found, 'q'), counted(24));
    assert.deepEqual(found.get('q_t')!.shape, [2, 4, 3]);
    assert.deepEqual(values(found, 'q_t').slice(0, 6), [0, 1, 2, 0.25, 1.25, 2.25]);
    assert.deepEqual(values(found, 'tail'), counted(24).slice(16));
    assert.deepEqual(values(found, 'half'), [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]);
    assert.deepEqual(values(found, 'positions'), [0, -1, 2 ** 40]);
    assert.deepEqual([...values(found, 'i32'), ...values(found, 'i8'), ...values(found, 'u8')], [1, -2, -3, 255]);
    assert.deepEqual([...values(found, 'bool'), ...values(found, 'f64')], [1, 0, 2.5]);
    assert.deepEqual(found.get('f64')!.shape, []);
    assert.equal(found.get('q')!.storage.length, 24, 'views share their storage');
  });

  test('a state_dict, and a parameter', () => {
    for (const name of ['state.pth', 'parameter.pt']) {
      const found = parsePt(file(name));
      assert.deepEqual([...found.keys(), ...values(found, 'weight')], ['weight', 1, -2], name);
    }
  });
});

describe('what newer versions write', () => {
  test('uint16, which has no storage class', () => {
    const bytes = new Uint8Array(Uint16Array.of(0x3f80, 0xffff).buffer);
    const found = parsePt(archive(v3(storage('torch.storage.UntypedStorage', 4), [2], 'torch.uint16'), { '0': bytes }));
    assert.deepEqual([found.get('')!.dtype, ...values(found, '')], ['u16', 0x3f80, 0xffff]);
  });

  test('big-endian storages', () => {
    const big = Uint8Array.of(0x3f, 0x80, 0, 0);
    const program = v2(storage('torch.FloatStorage', 1), 0, [1], [1]);
    const found = parsePt(archive(program, { '0': big }, { 'x/byteorder': latin('big') }));
    assert.deepEqual(values(found, ''), [1]);
  });

  test('compressed again', () => {
    const found = parsePt(archive(v2(storage('torch.FloatStorage', 4), 1, [3], [1]), four, {}, 9));
    assert.deepEqual(values(found, ''), [2, 3, 4]);
  });

  test('no elements, and nothing to read', () => {
    const none = parsePt(archive(v2(storage('torch.FloatStorage', 0), 0, [0, 4], [4, 1]), { '0': new Uint8Array() }));
    assert.deepEqual([none.get('')!.shape, none.get('')!.dtype], [[0, 4], 'f32']);
    assert.equal(parsePt(archive('}')).size, 0);
  });
});

describe('refusals', () => {
  const f32 = (count: number) => storage('torch.FloatStorage', count);
  const loop = `]q\x00${'h\x00a'}`;
  const rows: [string, Uint8Array, string, RegExp][] = [
    ['a form before 1.6', file('legacy.pt'), 'FORMAT', /PyTorch before 1\.6, which is not read\. Load it in a newer/],
    ['a module', file('module.pt'), 'UNSUPPORTED', /got "torch\.nn\.modules\.linear\.Linear"\. Save plain tensors: /],
    ['a sparse tensor', file('sparse.pt'), 'UNSUPPORTED', /got "torch\._utils\._rebuild_sparse_tensor"/],
    ['a complex tensor', file('complex.pt'), 'UNSUPPORTED', /got "torch\.ComplexFloatStorage"/],
    ['code', archive(`${global('os.system')}${tuple(text('true'))}R`), 'UNSUPPORTED', /got "os\.system"/],
    ['builtins', archive(`${global('builtins.eval')}${tuple(text('1'))}R`), 'UNSUPPORTED', /got "builtins\.eval"/],
    [
      'no zip',
      latin('hello'),
      'FORMAT',
      /expected a file of torch\.save, which is a zip since PyTorch 1\.6 \(save an older one again\), got "no end of a zip file"/,
    ],
    ['a zip of other files', zipSync({ 'a.npy': new Uint8Array(4) }), 'FORMAT', /the zip has no data\.pkl/],
    ['protocol 4', zipSync({ 'x/data.pkl': latin('\x80\x04.') }), 'FORMAT', /another protocol than 2/],
    ['a cut pickle', zipSync({ 'x/data.pkl': latin('\x80\x02X\xff\0\0\0ab') }), 'FORMAT', /ends inside a value/],
    ['no end', zipSync({ 'x/data.pkl': latin('\x80\x02N') }), 'FORMAT', /ends inside a value/],
    ['another opcode', archive('\x81'), 'FORMAT', /it has the opcode 0x81 at byte 2/],
    ['an empty stack', archive('R'), 'FORMAT', /its stack is empty at byte 2/],
    ['no mark', archive('t'), 'FORMAT', /it has no mark/],
    ['a value never kept', archive('h\x07'), 'FORMAT', /it takes the value 7/],
    ['a missing storage', archive(v2(f32(4), 0, [4], [1])), 'FORMAT', /storage 0: the zip does not have it/],
    [
      'a storage of another size',
      archive(v2(f32(5), 0, [5], [1]), four),
      'FORMAT',
      /storage 0: expected 20 bytes, got 16/,
    ],
    ['a huge storage', archive(v2(f32(2 ** 31 - 1), 0, [4], [1]), four), 'FORMAT', /expected 8589934588 bytes, got 16/],
    [
      'a negative storage',
      archive(v2(f32(-1), 0, [4], [1]), four),
      'FORMAT',
      /expected a number of elements >= 0, got -1/,
    ],
    ['a tensor past the end', archive(v2(f32(4), 1, [4], [1]), four), 'FORMAT', /offset 1 do not fit a storage of 4/],
    ['strides past the end', archive(v2(f32(4), 0, [2, 2], [3, 2]), four), 'FORMAT', /strides \[3, 2\] and offset 0/],
    ['a negative stride', archive(v2(f32(4), 3, [4], [-1]), four), 'FORMAT', /expected a size >= 0, got -1/],
    ['fewer strides', archive(v2(f32(4), 0, [2, 2], [2]), four), 'FORMAT', /do not fit a storage/],
    ['a shape past 2^50', archive(v2(f32(4), 0, [2 ** 30, 2 ** 30], [0, 0]), four), 'FORMAT', /do not fit/],
    [
      'a million repeats',
      archive(v2(f32(4), 0, [2 ** 22], [0]), four),
      'FORMAT',
      /many repeats\. Save x\.contiguous\(\)/,
    ],
    ['a negated view', archive(v2(f32(4), 0, [4], [1], `}${text('neg')}\x88s`), four), 'UNSUPPORTED', /resolve_neg/],
    ['a list that holds itself', archive(loop), 'FORMAT', /containers in containers, more than 64 deep/],
    ['other keys', archive(`}${tuple(int(1), int(2))}Ns`), 'UNSUPPORTED', /keys that are texts or integers/],
    [
      'a name twice',
      archive(`}(${text('a.b')}${v2(f32(4), 0, [4], [1])}${text('a')}}${text('b')}${v2(f32(4), 0, [4], [1])}su`, four),
      'FORMAT',
      /two tensors are named "a\.b"/,
    ],
  ];
  for (const [name, bytes, code, message] of rows)
    test(name, () => assert.throws(() => parsePt(bytes, 'x.pt'), { name: 'RopewalkError', code, message }));

  test('lists that name one list again and again', () => {
    // 60 bytes a level: 10 ^ 12 values in the end.
    const level = (n: number): string => `(${`h${String.fromCharCode(n)}`.repeat(10)}tq${String.fromCharCode(n + 1)}`;
    const program = `]q\x00${Array.from({ length: 12 }, (_item, n) => level(n)).join('')}`;
    assert.throws(() => parsePt(archive(program), 'x.pt'), { code: 'FORMAT', message: /more than 65536 values/ });
  });

  test('what the files take together is bounded', () => {
    const program = v2(storage('torch.FloatStorage', 2 ** 20), 0, [2 ** 20], [1]);
    const bomb = archive(program, { '0': new Uint8Array(2 ** 22) }, {}, 9);
    assert.ok(bomb.length < 10_000);
    assert.throws(() => parsePt(bomb, 'x.pt', 2 ** 20), { code: 'FORMAT', message: /at most 1048576 bytes together/ });
  });

  test('a damaged storage', () => {
    const bytes = file('tensor.pt').slice();
    const at = bytes.findIndex((_byte, n) => bytes[n] === 0x80 && bytes[n + 1] === 0x3e && bytes[n - 1] === 0);
    bytes[at] = 0x81;
    assert.throws(() => parsePt(bytes, 'x.pt'), { code: 'FORMAT', message: /The file is damaged/ });
  });

  test('damaged files are read or refused', () => {
    const names = ['tensor.pt', 'dict.pt', 'state.pth', 'module.pt'];
    fc.assert(
      fc.property(fc.constantFrom(...names), damage, (name, steps) =>
        mustRefuseOrReturn(() => parsePt(damaged(file(name), steps)), ['FORMAT', 'UNSUPPORTED']),
      ),
      drawn(400, 18),
    );
  });

  test('damaged pickles with good checksums are read or refused', () => {
    const program = latin(`${pickle.start}}${text('q')}${v2(storage('torch.FloatStorage', 4), 0, [2, 2], [2, 1])}s.`);
    fc.assert(
      fc.property(damage, (steps) =>
        mustRefuseOrReturn(
          () => parsePt(zipSync({ 'x/data.pkl': damaged(program, steps), 'x/data/0': four['0'] }, { level: 0 })),
          ['FORMAT', 'UNSUPPORTED'],
        ),
      ),
      drawn(2000, 18),
    );
  });
});
