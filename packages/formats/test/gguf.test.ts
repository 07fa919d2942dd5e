import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { STORIES } from '../../../test/support/fixtures.js';
import { damage, damaged, mustRefuseOrReturn } from '../../../test/support/fuzz.js';
import { drawn } from '../../../test/support/size.js';
import { parseGguf } from '../src/gguf.js';
import { readGgufHeader, readGgufModel } from '../src/read-header.node.js';

/** Builds GGUF bytes by hand, independently of the reader. */
class Builder {
  private readonly bytes: number[] = [];
  constructor(
    readonly bigEndian = false,
    readonly version = 3,
  ) {}
  raw(...values: number[]): this {
    this.bytes.push(...values);
    return this;
  }
  private int(value: bigint, size: number): this {
    const list = Array.from({ length: size }, (_, i) => Number((value >> BigInt(8 * i)) & 255n));
    return this.raw(...(this.bigEndian ? list.reverse() : list));
  }
  u32(value: number): this {
    return this.int(BigInt(value), 4);
  }
  u64(value: number | bigint): this {
    return this.int(BigInt.asUintN(64, BigInt(value)), 8);
  }
  count(value: number | bigint): this {
    return this.version === 1 ? this.u32(Number(value)) : this.u64(value);
  }
  text(value: string): this {
    const encoded = new TextEncoder().encode(value);
    return this.count(encoded.length).raw(...encoded);
  }
  f32(value: number): this {
    const view = new DataView(new ArrayBuffer(4));
    view.setFloat32(0, value, !this.bigEndian);
    return this.raw(...new Uint8Array(view.buffer));
  }
  pad(to: number): this {
    while (this.bytes.length % to) this.raw(0);
    return this;
  }
  start(tensors: number | bigint, values: number | bigint): this {
    return this.raw(71, 71, 85, 70).u32(this.version).count(tensors).count(values);
  }
  build(): Uint8Array {
    return Uint8Array.from(this.bytes);
  }
}

function sample(bigEndian = false, version = 3): Builder {
  const b = new Builder(bigEndian, version).start(2, 5);
  b.text('general.architecture').u32(8).text('llama');
  b.text('llama.block_count').u32(4).u32(7);
  b.text('llama.rope.freq_base').u32(6).f32(500000);
  b.text('big')
    .u32(10)
    .u64(2n ** 63n);
  b.text('list').u32(9).u32(8).count(2).text('a').text('bc');
  for (const [name, type, offset] of [
    ['rope_freqs.weight', 0, 0],
    ['w', 8, 32],
  ] as const) {
    b.text(name).u32(2);
    for (const dim of [type === 8 ? 64 : 4, 1]) b.count(dim);
    b.u32(type).u64(offset);
  }
  return b.pad(32);
}

describe('golden', () => {
  test('a real file', async () => {
    for (const [name, type] of [
      ['model-f32', 'F32'],
      ['model-f16', 'F16'],
      ['model-q8_0', 'Q8_0'],
    ] as const) {
      const path = `${STORIES}/${name}.gguf`;
      const file = await readGgufHeader(path);
      assert.deepEqual(file, parseGguf(new Uint8Array(readFileSync(path)), path, readFileSync(path).length));
      assert.equal(file.metadata.get('general.architecture'), 'llama');
      assert.ok(
        file.tensors.some((t) => t.name === 'blk.0.attn_q.weight' && t.type === type),
        `${name} has ${type} weights`,
      );
      const last = file.tensors.toSorted((a, b) => a.offset - b.offset).at(-1)!;
      assert.ok(file.dataOffset + last.offset + last.sizeBytes! <= readFileSync(path).length);
    }
  });

  for (const [label, bigEndian, version] of [
    ['version 3', false, 3],
    ['version 2', false, 2],
    ['version 1', false, 1],
    ['big-endian', true, 3],
  ] as const) {
    test(label, () => {
      const file = parseGguf(sample(bigEndian, version).build());
      assert.deepEqual([file.version, file.bigEndian, file.alignment], [version, bigEndian, 32]);
      assert.deepEqual(
        [...file.metadata],
        [
          ['general.architecture', 'llama'],
          ['llama.block_count', 7],
          ['llama.rope.freq_base', 500000],
          ['big', 2n ** 63n],
          ['list', ['a', 'bc']],
        ],
      );
      assert.deepEqual(file.tensors, [
        { name: 'rope_freqs.weight', shape: [4, 1], type: 'F32', offset: 0, sizeBytes: 16 },
        { name: 'w', shape: [64, 1], type: 'Q8_0', offset: 32, sizeBytes: 68 },
      ]);
      assert.equal(file.dataOffset, sample(bigEndian, version).build().length);
    });
  }

  test('all value types', () => {
    const b = new Builder().start(0, 7);
    b.text('u8')
      .u32(0)
      .raw(200)
      .text('i8')
      .u32(1)
      .raw(200)
      .text('u16')
      .u32(2)
      .raw(1, 2)
      .text('i16')
      .u32(3)
      .raw(255, 255);
    b.text('i32').u32(5).u32(0xffffffff).text('bool').u32(7).raw(1).text('i64').u32(11).u64(-5n);
    assert.deepEqual([...parseGguf(b.build()).metadata.values()], [200, -56, 513, -1, -1, true, -5n]);
  });

  test('block types by their bits a weight, and a number that nobody has', () => {
    // ggml-org/llama.cpp@0024aa7 gguf-py/gguf/constants.py: GGML_QUANT_SIZES
    for (const [code, type, elements, bytes] of [
      [12, 'Q4_K', 256, 144],
      [14, 'Q6_K', 256, 210],
      [16, 'IQ2_XXS', 256, 66],
      [20, 'IQ4_NL', 32, 18],
      [23, 'IQ4_XS', 256, 136],
      [29, 'IQ1_M', 256, 56],
      [30, 'BF16', 1, 2],
      [35, 'TQ2_0', 256, 66],
      [39, 'MXFP4', 32, 17],
      [40, 'NVFP4', 64, 36],
      [41, 'Q1_0', 128, 18],
      [42, 'Q2_0', 64, 18],
      [31, 'TYPE_31', 7, undefined],
    ] as const) {
      const bytesOfFile = new Builder().start(1, 0).text('t').u32(2).u64(elements).u64(3).u32(code).u64(0).build();
      const sizeBytes = bytes === undefined ? undefined : 3 * bytes;
      assert.deepEqual(parseGguf(bytesOfFile).tensors, [
        { name: 't', shape: [elements, 3], type, offset: 0, sizeBytes },
      ]);
    }
  });

  test('texts are kept whole: a byte order mark is a token of some vocabularies', () => {
    const b = new Builder().start(0, 1).text('k').u32(9).u32(8).count(3).text('\ufeff').text('').text('\ufeffé');
    assert.deepEqual(parseGguf(b.build()).metadata.get('k'), ['\ufeff', '', '\ufeffé']);
  });

  test('on disk: lengths that point far beyond are refused without reading or allocating that much', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'gguf-'));
    try {
      const path = join(folder, 'forged.gguf');
      const refused = (head: Builder, size: number, message: RegExp): Promise<void> => {
        writeFileSync(path, head.build());
        truncateSync(path, size); // sparse: it takes no room on disk
        return assert.rejects(readGgufHeader(path), { code: 'FORMAT', message });
      };
      const start = (): Builder => new Builder().start(0, 1).text('k');
      await refused(
        start()
          .u32(8)
          .u64(2 ** 36),
        2 ** 37,
        /expected a string of at most 268435456 bytes, got 68719476736/,
      );
      await refused(
        start()
          .u32(8)
          .u64(2 ** 28),
        2 ** 37,
        /expected a header of at most 268435456 bytes, got 2684\d+/,
      );
      await refused(
        start()
          .u32(9)
          .u32(0)
          .u64(2 ** 36),
        2 ** 37,
        /expected at most 16777216 elements in all arrays, got 68719476736/,
      );
      await refused(
        start()
          .u32(8)
          .u64(2 ** 27),
        2 ** 20,
        /the header takes at least \d+ bytes, but there are only 1048576\. The file is trunc/,
      );
      if (spawnSync('mkfifo', [join(folder, 'pipe.gguf')]).status === 0)
        await assert.rejects(readGgufHeader(join(folder, 'pipe.gguf')), {
          code: 'FORMAT',
          message: /pipe\.gguf: expected a regular file, got a pipe/,
        });
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  test('on disk: a header longer than the first read, factors, and files that are none', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'gguf-'));
    try {
      const path = join(folder, 'm.gguf');
      const long = 'x'.repeat(5 * 2 ** 20);
      const head = new Builder().start(1, 1).text('long').u32(8).count(long.length);
      const tail = new Builder().text('rope_freqs.weight').u32(1).count(2).u32(0).u64(0).build();
      const start = Buffer.concat([head.build(), Buffer.from(long), tail]);
      const data = new Builder().f32(1).f32(8).build();
      writeFileSync(path, Buffer.concat([start, Buffer.alloc((32 - (start.length % 32)) % 32), data]));
      const file = await readGgufHeader(path);
      assert.equal((file.metadata.get('long') as string).length, long.length);
      assert.deepEqual([...(await readGgufModel(path)).factors.get('rope_freqs.weight')!], [1, 8]);
      await assert.rejects(readGgufHeader(join(folder, 'none.gguf')), {
        code: 'FORMAT',
        message: /none\.gguf: there is no such file or folder/,
      });
      await assert.rejects(readGgufHeader(folder), {
        code: 'FORMAT',
        message: /expected a regular file, got a folder/,
      });
      writeFileSync(path, Buffer.concat([start, Buffer.alloc(1)]));
      await assert.rejects(readGgufHeader(path), {
        code: 'FORMAT',
        message: /tensor rope_freqs\.weight: expected its end <= file size/,
      });
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

test('fuzz: damaged headers are read or refused', () => {
  const good = sample().build();
  fc.assert(
    fc.property(damage, (steps) => mustRefuseOrReturn(() => parseGguf(damaged(good, steps), 'gguf', 1000))),
    drawn(4000),
  );
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 100 }), (tail) =>
      mustRefuseOrReturn(() => parseGguf(Uint8Array.from([71, 71, 85, 70, 3, 0, 0, 0, ...tail]))),
    ),
    drawn(2000),
  );
  for (let cut = 0; cut < good.length; cut++) mustRefuseOrReturn(() => parseGguf(good.slice(0, cut)));
});

describe('refusals', () => {
  const cases: [string, Uint8Array, RegExp][] = [
    [
      'another magic',
      Uint8Array.from([1, 2, 3, 4, 5, 6, 7, 8]),
      /gguf: it is not a GGUF file: it does not start with GGUF/,
    ],
    ['version 4', new Builder(false, 4).start(0, 0).build(), /gguf: version: expected 1, 2 or 3, got 4/],
    [
      'cut',
      sample().build().slice(0, 50),
      /the header takes at least \d+ bytes, but there are only 50\. The file is truncated or forged\./,
    ],
    [
      'a count of 2^63',
      new Builder().start(2n ** 63n, 0).build(),
      /expected a count below 2\^53, got 9223372036854775808n/,
    ],
    [
      'an array of 2^40',
      new Builder()
        .start(0, 1)
        .text('k')
        .u32(9)
        .u32(4)
        .u64(2n ** 40n)
        .build(),
      /expected at most 16777216 elements in all arrays, got 1099511627776/,
    ],
    [
      'a text of 2^40 bytes',
      new Builder()
        .start(0, 1)
        .text('k')
        .u32(8)
        .u64(2n ** 40n)
        .build(),
      /expected a string of at most 268435456 bytes, got 1099511627776/,
    ],
    [
      'an array past the end',
      new Builder()
        .start(0, 1)
        .text('k')
        .u32(9)
        .u32(4)
        .u64(2 ** 20)
        .build(),
      /the header takes at least 4194353 bytes/,
    ],
    [
      'a text past the end',
      new Builder()
        .start(0, 1)
        .text('k')
        .u32(8)
        .u64(2 ** 20)
        .build(),
      /the header takes at least 1048621 bytes/,
    ],
    [
      'arrays that are together too long',
      new Builder()
        .start(0, 2)
        .text('k')
        .u32(9)
        .u32(0)
        .u64(2)
        .raw(1, 2)
        .text('l')
        .u32(9)
        .u32(0)
        .u64(2 ** 24 - 1)
        .build(),
      /at most 16777216 elements in all arrays, got 16777217/,
    ],
    [
      'a million and more tensors',
      new Builder().start(2 ** 20 + 1, 0).build(),
      /gguf: tensor count: expected at most 1048576, got 1048577/,
    ],
    [
      'a million and more keys',
      new Builder().start(0, 2 ** 20 + 1).build(),
      /gguf: metadata count: expected at most 1048576, got 1048577/,
    ],
    [
      'a big-endian file of version 2',
      new Builder(true, 2).start(0, 0).build(),
      /gguf: version: expected 3 in a big-endian file, got 2/,
    ],
    [
      'a version with its bytes in disorder',
      Uint8Array.of(71, 71, 85, 70, 0, 0, 127, 3, ...new Array(16).fill(0)),
      /gguf: version: expected 1, 2 or 3, got 32515/,
    ],
    [
      'an empty array of type 99',
      new Builder().start(0, 1).text('k').u32(9).u32(99).u64(0).build(),
      /value type: expected 0 … 12, got 99/,
    ],
    [
      'an alignment that is a text',
      new Builder().start(0, 1).text('general.alignment').u32(8).text('64').build(),
      /general\.alignment: expected a power of two up to 2\^20, got "64"/,
    ],
    [
      'the same tensor twice',
      new Builder().start(2, 0).text('t').u32(1).u64(1).u32(0).u64(0).text('t').build(),
      /gguf: two tensors are named "t"/,
    ],
    [
      'a scalar of a block type',
      new Builder().start(1, 0).text('t').u32(0).u32(8).u64(0).build(),
      /rows of a multiple of 32 elements for Q8_0/,
    ],
    [
      'absurd dimensions beside a 0',
      new Builder()
        .start(1, 0)
        .text('t')
        .u32(2)
        .u64(0)
        .u64(2 ** 52)
        .u32(0)
        .u64(0)
        .build(),
      /tensor t: expected fewer than 2\^50 elements, got \[0, 4503599627370496\]/,
    ],
    [
      'an end past 2^53',
      new Builder()
        .start(1, 0)
        .text('t')
        .u32(1)
        .u64(32)
        .u32(0)
        .u64(2n ** 53n - 32n)
        .build(),
      /tensor t: expected its end < 2\^53/,
    ],
    [
      'a name with control characters',
      new Builder().start(1, 0).text('\u001b[2J').u32(9).build(),
      /tensor "\\u001b\[2J": expected at most 4/,
    ],
    [
      'the same key twice',
      new Builder().start(0, 2).text('k').u32(0).raw(1).text('k').u32(0).raw(1).build(),
      /gguf: two values have the key "k"/,
    ],
    ['value type 13', new Builder().start(0, 1).text('k').u32(13).build(), /value type: expected 0 … 12, got 13/],
    ['a bool of 2', new Builder().start(0, 1).text('k').u32(7).raw(2).build(), /expected 0 or 1, got 2/],
    [
      'arrays in arrays in arrays',
      new Builder()
        .start(0, 1)
        .text('k')
        .u32(9)
        .u32(9)
        .u64(1)
        .u32(9)
        .u64(1)
        .u32(9)
        .u64(1)
        .u32(9)
        .u64(1)
        .u32(0)
        .u64(0)
        .raw(...new Array(99).fill(0))
        .build(),
      /nested more than 4 deep/,
    ],
    [
      'alignment 3',
      new Builder().start(0, 1).text('general.alignment').u32(4).u32(3).build(),
      /general\.alignment: expected a power of two up to 2\^20, got 3/,
    ],
    [
      'five dimensions',
      new Builder().start(1, 0).text('t').u32(5).build(),
      /tensor t: expected at most 4 dimensions, got 5/,
    ],
    [
      'dimensions past 2^53',
      new Builder()
        .start(1, 0)
        .text('t')
        .u32(2)
        .u64(2n ** 40n)
        .u64(2n ** 40n)
        .u32(0)
        .u64(0)
        .build(),
      /tensor t: expected fewer than 2\^50 elements/,
    ],
    [
      'an odd offset',
      new Builder().start(1, 0).text('t').u32(1).u64(1).u32(0).u64(5).build(),
      /tensor t: expected an offset that is a multiple of 32, got 5/,
    ],
    [
      'a row that is no whole number of blocks',
      new Builder().start(1, 0).text('t').u32(1).u64(33).u32(8).u64(0).build(),
      /rows of a multiple of 32 elements for Q8_0/,
    ],
    ['bytes that are no UTF-8', new Builder().start(0, 1).count(1).raw(255).build(), /not valid UTF-8/],
  ];
  for (const [name, bytes, message] of cases)
    test(name, () => void assert.throws(() => parseGguf(bytes), { code: 'FORMAT', message }));
  test('a tensor past the end of the file', () => {
    const bytes = sample().build();
    assert.throws(() => parseGguf(bytes, 'm.gguf', bytes.length + 50), {
      code: 'FORMAT',
      message:
        /m\.gguf: tensor w: expected its end <= file size \d+, got "offset \d+ \+ 68 bytes"\. The file is truncated or forged\./,
    });
  });
});
