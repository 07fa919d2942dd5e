import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import fc from 'fast-check';
import { zipSync } from 'fflate';
import { DTYPES, tensorFrom } from 'ropewalk';
import { newArray } from 'ropewalk/backend';
import { bitsOf, countElements, isFloat8 } from 'ropewalk/internal';
import { damage, damaged, mustRefuseOrReturn } from '../../../test/support/fuzz.js';
import { drawn } from '../../../test/support/size.js';
import { writeNpy } from '../src/npy.js';
import { parseNpz, writeNpz } from '../src/npz.js';

const folder = mkdtempSync(join(tmpdir(), 'npz-'));
after(() => rmSync(folder, { recursive: true }));
const x = tensorFrom(Float32Array.of(1, 2, 3, 4, 5, 6), { shape: [2, 3] });
const ids = tensorFrom(BigInt64Array.of(0n, -1n, 1048575n));
const half = tensorFrom(Uint16Array.of(0x3c00, 0x7e00), { dtype: 'f16' });
const good = writeNpz(
  new Map<string, typeof x>([
    ['x', x],
    ['ids', ids as never],
    ['half', half as never],
  ]),
);
const npy = (values: number[]): Uint8Array =>
  writeNpy(Float32Array.from(values), { dtype: 'f32', shape: [values.length] });

/** numpy, where it is installed. */
function numpy(code: string): { stdout: string } | { why: string } {
  const ran = spawnSync('python3', ['-c', `import numpy as np\n${code}`], { encoding: 'utf8', cwd: folder });
  if (ran.error) return { why: `no python3: ${ran.error.message}` };
  if (/ModuleNotFoundError/.test(ran.stderr)) return { why: 'no numpy' };
  assert.equal(ran.status, 0, ran.stderr);
  return { stdout: ran.stdout };
}

describe('golden', () => {
  test('numpy reads what is written', (t) => {
    writeFileSync(join(folder, 'ours.npz'), good);
    const got = numpy(
      "z = np.load('ours.npz'); print(sorted(z.files), z['x'].tolist(), z['ids'].tolist(), z['ids'].dtype, z['half'].dtype)",
    );
    // A fresh machine has no numpy; the recorded files below are read everywhere.
    if ('why' in got) return t.diagnostic(got.why);
    assert.equal(
      got.stdout.trim(),
      "['half', 'ids', 'x'] [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]] [0, -1, 1048575] int64 float16",
    );
  });

  // numpy 2.4.6: savez and savez_compressed of a=np.arange(6, dtype=np.int32).reshape(2, 3), b=np.float64(2.5).
  const theirs = {
    savez: [
      'UEsDBC0AAAAAAAAAIQBQtE2E//////////8FABQAYS5ucHkBABAAmAAAAAAAAACYAAAAAAAAAJNOVU1QWQEAdgB7J2Rlc2NyJzogJzxpNCcsICdmb3J0cmFu',
      'X29yZGVyJzogRmFsc2UsICdzaGFwZSc6ICgyLCAzKSwgfSAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAg',
      'ICAKAAAAAAEAAAACAAAAAwAAAAQAAAAFAAAAUEsDBC0AAAAAAAAAIQA1tDqT//////////8FABQAYi5ucHkBABAAiAAAAAAAAACIAAAAAAAAAJNOVU1QWQEA',
      'dgB7J2Rlc2NyJzogJzxmOCcsICdmb3J0cmFuX29yZGVyJzogRmFsc2UsICdzaGFwZSc6ICgpLCB9ICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAg',
      'ICAgICAgICAgICAgICAgICAgICAgICAgICAgICAKAAAAAAAABEBQSwECLQMtAAAAAAAAACEAULRNhJgAAACYAAAABQAAAAAAAAAAAAAAgAEAAAAAYS5ucHlQ',
      'SwECLQMtAAAAAAAAACEANbQ6k4gAAACIAAAABQAAAAAAAAAAAAAAgAHPAAAAYi5ucHlQSwUGAAAAAAIAAgBmAAAAjgEAAAAA',
    ].join(''),
    savez_compressed: [
      'UEsDBC0AAAAIAAAAIQBQtE2E//////////8FABQAYS5ucHkBABAAmAAAAAAAAABVAAAAAAAAAJvsF+obEMnIUMZQrZ6SWpxcpG6loG6TaaKuo6Cell9UUpSY',
      'F59flJIKEndLzClOBYoXZyQWpAL5GkY6CsaaOgq1CmQDLgYgYARiJiBmBmIWIGYFYgBQSwMELQAAAAgAAAAhADW0OpP//////////wUAFABiLm5weQEAEACI',
      'AAAAAAAAAEcAAAAAAAAAm+wX6hsQychQxlCtnpJanFykbqWgbpNmoa6joJ6WX1RSlJgXn1+UkgoSd0vMKU4FihdnJBakAvkamjoKtQoUAS4GMGBxAABQSwEC',
      'LQMtAAAACAAAACEAULRNhFUAAACYAAAABQAAAAAAAAAAAAAAgAEAAAAAYS5ucHlQSwECLQMtAAAACAAAACEANbQ6k0cAAACIAAAABQAAAAAAAAAAAAAAgAGM',
      'AAAAYi5ucHlQSwUGAAAAAAIAAgBmAAAACgEAAAAA',
    ].join(''),
  };
  for (const [name, base64] of Object.entries(theirs)) {
    test(`what numpy's ${name} wrote is read`, () => {
      const read = parseNpz(new Uint8Array(Buffer.from(base64, 'base64')));
      assert.deepEqual([...read.keys()], ['a', 'b']);
      const [a, b] = [read.get('a')!, read.get('b')!];
      assert.deepEqual([a.shape, a.dtype, [...(a.data as Int32Array)]], [[2, 3], 'i32', [0, 1, 2, 3, 4, 5]]);
      assert.deepEqual([b.shape, b.dtype, b.data[0]], [[], 'f64', 2.5]);
    });
  }
});

describe('properties', () => {
  test('what is written is read, names in order, and the bytes do not depend on the clock or its zone', () => {
    fc.assert(
      fc.property(
        fc.uniqueArray(fc.stringMatching(/^[A-Za-z_][\w.-]{0,8}$/), { maxLength: 4 }),
        fc.constantFrom(...DTYPES.filter((d) => !isFloat8(d))),
        fc.array(fc.integer({ min: 0, max: 4 }), { maxLength: 3 }),
        fc.infiniteStream(fc.nat(255)),
        (names, dtype, shape, noise) => {
          const tensors = new Map(
            names.map((name) => {
              const data = newArray(dtype, countElements(shape));
              const bytes = new Uint8Array(data.buffer);
              for (let i = 0; i < bytes.length; i++) bytes[i] = noise.next().value!;
              return [name, tensorFrom(data, { dtype, shape })];
            }),
          );
          const written = writeNpz(tensors);
          const back = parseNpz(written);
          assert.deepEqual([...back.keys()], names);
          for (const [name, tensor] of tensors)
            assert.deepEqual(bitsOf(back.get(name)!.data), bitsOf(tensor.read() as never));
          assert.deepEqual(writeNpz(tensors), written);
        },
      ),
      drawn(),
    );
  });

  test('the same bytes in every time zone', () => {
    const code = `import { writeNpz } from ${JSON.stringify(new URL('../src/npz.ts', import.meta.url).href)};
      import { tensorFrom } from ${JSON.stringify(new URL('../../ropewalk/src/core/tensor.js', import.meta.url).href)};
      process.stdout.write(Buffer.from(writeNpz(new Map([['x', tensorFrom(Float32Array.of(1, 2))]]))).toString('hex'));`;
    const run = (TZ: string): string => {
      const ran = spawnSync(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', code], {
        encoding: 'utf8',
        env: { ...process.env, TZ },
      });
      assert.equal(ran.status, 0, ran.stderr);
      return ran.stdout;
    };
    assert.equal(run('Pacific/Kiritimati'), run('America/Los_Angeles'));
  });

  test('fuzz: damaged files are read or refused', () => {
    const packed = zipSync({ 'a.npy': npy([1, 2, 3, 4, 5, 6, 7, 8]), 'b.npy': npy([]) });
    for (const file of [good, packed]) {
      fc.assert(
        fc.property(damage, (steps) => mustRefuseOrReturn(() => parseNpz(damaged(file, steps)))),
        drawn(1500),
      );
    }
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => mustRefuseOrReturn(() => parseNpz(bytes))),
      drawn(1000),
    );
  });
});

describe('refusals', () => {
  /** A zip whose directory claims another uncompressed size for its only file. */
  const claiming = (size: number, options: { level: 0 | 6 }): Uint8Array => {
    const file = zipSync({ 'a.npy': npy([1, 2]) }, options);
    const view = new DataView(file.buffer);
    for (let at = 0; at + 46 < file.length; at++)
      if (view.getUint32(at, true) === 0x02014b50) view.setUint32(at + 24, size, true);
    return file;
  };
  const cases: [string, () => unknown, RegExp][] = [
    ['no zip', () => parseNpz(Uint8Array.of(1, 2, 3), 'x.npz'), /^x\.npz: expected a zip file of \.npy files, got/],
    ['an empty file', () => parseNpz(new Uint8Array(0), 'x.npz'), /expected a zip file of \.npy files/],
    [
      'another file in it',
      () => parseNpz(zipSync({ 'a.txt': npy([1]) }), 'x.npz'),
      /expected files that end in \.npy, got "a\.txt"/,
    ],
    [
      'an array that is none',
      () => parseNpz(zipSync({ 'a.npy': Uint8Array.of(1) }), 'x.npz'),
      /^x\.npz: a\.npy: it is not a \.npy file/,
    ],
    [
      'a bomb',
      () => parseNpz(claiming(0x7fffff00, { level: 6 }), 'x.npz'),
      /a\.npy: expected a size that \d+ bytes can hold, got 2147483392\. The file is forged\./,
    ],
    [
      'a stored file larger than itself',
      () => parseNpz(claiming(100000, { level: 0 }), 'x.npz'),
      /expected a size that \d+ bytes can hold, got 100000/,
    ],
    [
      'more than 2 GiB',
      () => parseNpz(claiming(0xfffffff0, { level: 6 }), 'x.npz'),
      /arrays of at most 2147483648 bytes together/,
    ],
    [
      'a name with a slash',
      () => writeNpz(new Map([['a/b', x]])),
      /npz: name: expected a letter, then letters, digits, _, - or \., got "a\/b"/,
    ],
  ];
  for (const [name, run, message] of cases)
    test(name, () => void assert.throws(run, { name: 'RopewalkError', code: 'FORMAT', message }));

  /** Changes each directory entry of a zip. */
  const withEntries = (file: Uint8Array, change: (view: DataView, at: number, n: number) => void): Uint8Array => {
    const copy = file.slice();
    const view = new DataView(copy.buffer);
    for (let at = 0, n = 0; at + 46 < copy.length; at++)
      if (view.getUint32(at, true) === 0x02014b50) change(view, at, n++);
    return copy;
  };

  test('entries that share bytes: none is expanded twice', () => {
    // Every entry is the first one, of 16 kB.
    const zeros = npy(Array.from({ length: 4096 }, () => 0));
    const many = Object.fromEntries(
      Array.from({ length: 900 }, (_, n) => [`${1000 + n}.npy`, n === 0 ? zeros : npy([])]),
    );
    const packed = zipSync(many, { level: 9 });
    let first: number[] = [];
    const bomb = withEntries(packed, (view, at, n) => {
      const fields = [20, 24, 42];
      if (n === 0) first = fields.map((field) => view.getUint32(at + field, true));
      for (const [i, field] of fields.entries()) view.setUint32(at + field, first[i]!, true);
    });
    assert.equal(parseNpz(packed).size, 900);
    const message = /^x\.npz: 1001\.npy: it starts at byte 0, but the entry before ends at \d+$/;
    assert.throws(() => parseNpz(bomb, 'x.npz'), { code: 'FORMAT', message });
    // One that holds the next one's header in its own bytes.
    const stored = zipSync({ 'a.npy': npy([1]), 'b.npy': npy([2]) }, { level: 0 });
    const holding = withEntries(stored, (view, at, n) => {
      for (const field of n === 0 ? [20, 24] : [])
        view.setUint32(at + field, view.getUint32(at + field, true) + 1, true);
    });
    assert.throws(() => parseNpz(holding, 'x.npz'), { code: 'FORMAT', message: /b\.npy: it starts at byte/ });
  });

  test('damaged arrays: other bytes, another checksum, another size', () => {
    const values = Array.from({ length: 300 }, (_, n) => n % 7);
    const damaged =
      /^x\.npz: a\.npy: (expected .*, got .*|its bytes are not deflated data)\. The file is damaged\. Write or copy it again\.$/;
    for (const level of [0, 6] as const) {
      const file = zipSync({ 'a.npy': npy(values) }, { level });
      const refused = (bytes: Uint8Array, what: string): void =>
        assert.throws(
          () => parseNpz(bytes, 'x.npz'),
          { name: 'RopewalkError', code: 'FORMAT', message: damaged },
          `${what}, level ${level}`,
        );
      assert.equal(parseNpz(file).size, 1);
      const flipped = file.slice();
      flipped[30 + 5 + (level === 0 ? 900 : 60)]! ^= 1;
      refused(flipped, 'a flipped bit');
      refused(
        withEntries(file, (view, at) => view.setUint32(at + 16, 1, true)),
        'another checksum',
      );
      for (const off of level === 0 ? [-1] : [-1, 1])
        refused(
          withEntries(file, (view, at) => view.setUint32(at + 24, view.getUint32(at + 24, true) + off, true)),
          `a size off by ${off}`,
        );
    }
  });

  test('the arrays together are bounded by what the caller allows', () => {
    const file = zipSync({ 'a.npy': npy([1, 2]), 'b.npy': npy([3]) });
    const bytes = npy([1, 2]).length + npy([3]).length;
    assert.equal(parseNpz(file, 'x.npz', bytes).size, 2);
    assert.throws(() => parseNpz(file, 'x.npz', bytes - 1), {
      code: 'FORMAT',
      message: `x.npz: expected arrays of at most ${bytes - 1} bytes together, got ${bytes}. Write fewer or smaller arrays into it.`,
    });
  });

  test('encrypted files, other compressions and cut ones', () => {
    const file = zipSync({ 'a.npy': npy([1, 2]) });
    const refused = (bytes: Uint8Array, message: RegExp): void =>
      assert.throws(() => parseNpz(bytes, 'x.npz'), { name: 'RopewalkError', code: 'FORMAT', message });
    refused(
      withEntries(file, (view, at) => view.setUint16(at + 8, 1, true)),
      /a\.npy: it is encrypted/,
    );
    refused(
      withEntries(file, (view, at) => view.setUint16(at + 10, 93, true)),
      /expected compression 0 \(stored\) or 8 \(deflated\), got 93/,
    );
    refused(
      withEntries(file, (view, at) => view.setUint32(at + 42, 7, true)),
      /no file header at byte 7/,
    );
    refused(
      withEntries(file, (view, at) => view.setUint32(at + 20, 5000, true)),
      /a file past the end/,
    );
    refused(
      withEntries(file, (view, at) => view.setUint16(at + 28, 60000, true)),
      /a directory entry past the end/,
    );
    const more = file.slice();
    more[more.length - 12] = 2;
    refused(more, /no directory entry at byte/);
  });

  test('a name that comes twice', () => {
    const file = zipSync({ 'a.npy': npy([1]), 'b.npy': npy([2]) }, { level: 0 });
    // Both spellings of b become a: in the local header and in the directory.
    for (let at = 0; at < file.length; at++)
      if (file[at] === 0x62 && file[at + 1] === 0x2e && file[at + 2] === 0x6e) file[at] = 0x61;
    assert.throws(() => parseNpz(file, 'x.npz'), {
      code: 'FORMAT',
      message: 'x.npz: two files in it are named "a.npy"',
    });
  });
});
