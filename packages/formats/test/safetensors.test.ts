import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { STORIES } from '../../../test/support/fixtures.js';
import { damage, damaged, mustRefuseOrReturn } from '../../../test/support/fuzz.js';
import { drawn } from '../../../test/support/size.js';
import { readSafetensorsHeader } from '../src/read-header.node.js';
import { parseSafetensors, tensorFromSafetensors } from '../src/safetensors.js';

function file(header: string | object, data: ArrayLike<number> = []): Uint8Array {
  const text = new TextEncoder().encode(typeof header === 'string' ? header : JSON.stringify(header));
  const bytes = new Uint8Array(8 + text.length + data.length);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(text.length), true);
  bytes.set(text, 8);
  bytes.set(Array.from(data), 8 + text.length);
  return bytes;
}
const entry = (dtype: string, shape: number[], begin: number, end: number) => ({
  dtype,
  shape,
  data_offsets: [begin, end],
});

describe('golden', () => {
  test('a real file', async () => {
    const path = `${STORIES}/model.safetensors`;
    const bytes = new Uint8Array(readFileSync(path));
    const parsed = parseSafetensors(bytes);
    assert.deepEqual(await readSafetensorsHeader(path), parsed);
    const q = tensorFromSafetensors(bytes, parsed, 'model.layers.0.self_attn.q_proj.weight');
    assert.deepEqual([q.dtype, q.shape], ['f32', [64, 64]]);
    assert.ok((q.readNumbers() as Float64Array).every(Number.isFinite));
  });

  test('tensors, metadata, an odd address, an empty tensor', () => {
    const bytes = file(
      {
        __metadata__: { format: 'pt' },
        b: entry('U8', [3], 4, 7),
        a: entry('F32', [1], 0, 4),
        none: entry('BF16', [0, 5], 7, 7),
      },
      [0, 0, 128, 63, 1, 2, 3],
    );
    const parsed = parseSafetensors(bytes);
    assert.equal(parsed.metadata.get('format'), 'pt');
    assert.deepEqual([...(tensorFromSafetensors(bytes, parsed, 'a').read() as Float32Array)], [1]);
    assert.deepEqual([...(tensorFromSafetensors(bytes, parsed, 'b').read() as Uint8Array)], [1, 2, 3]);
    assert.equal(tensorFromSafetensors(bytes, parsed, 'none').size, 0);
  });
});

test('fuzz: damaged files are read or refused', () => {
  const good = file({ a: entry('F16', [2, 3], 0, 12), b: entry('I64', [1], 12, 20) }, new Uint8Array(20));
  const read = (bytes: Uint8Array): void => {
    const parsed = parseSafetensors(bytes);
    for (const name of parsed.tensors.keys()) tensorFromSafetensors(bytes, parsed, name);
  };
  fc.assert(
    fc.property(damage, (steps) => mustRefuseOrReturn(() => read(damaged(good, steps)), ['FORMAT', 'UNSUPPORTED'])),
    drawn(4000),
  );
  // Headers that are JSON objects of the right form, of values that mean nothing.
  const number = fc.constantFrom(0, 1, 2, 4, 8, -1, 0.5, 2 ** 31, 2 ** 32 - 1, 2 ** 53 - 1, 2 ** 63, null, '1');
  const odd = fc.record({
    dtype: fc.constantFrom(
      'F32',
      'U8',
      'BOOL',
      'F8_E8M0',
      'constructor',
      'toString',
      '__proto__',
      'valueOf',
      '',
      null,
      3,
    ),
    shape: fc.oneof(fc.array(number, { maxLength: 4 }), fc.constant('x')),
    data_offsets: fc.array(number, { minLength: 1, maxLength: 3 }),
  });
  fc.assert(
    fc.property(
      fc.dictionary(fc.constantFrom('a', 'b', '__proto__', '__metadata__', 'constructor'), odd),
      fc.nat(16),
      (header, size) => mustRefuseOrReturn(() => read(file(header, new Uint8Array(size))), ['FORMAT', 'UNSUPPORTED']),
    ),
    drawn(4000),
  );
  fc.assert(
    fc.property(fc.json(), (json) => mustRefuseOrReturn(() => read(file(json)), ['FORMAT', 'UNSUPPORTED'])),
    drawn(1000),
  );
});

describe('refusals', () => {
  const cases: [string, Uint8Array, RegExp][] = [
    ['seven bytes', new Uint8Array(7), /safetensors: expected at least 8 bytes, got 7/],
    ['a header of 2^63', Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 128), /header length: expected at most 100000000 bytes/],
    [
      'cut in the header',
      file({ a: entry('F32', [1], 0, 4) }).slice(0, 20),
      /expected a header of \d+ bytes, got 20 bytes/,
    ],
    [
      'the same tensor twice',
      file(`{"a":${JSON.stringify(entry('U8', [1], 0, 1))},"a":${JSON.stringify(entry('I8', [1], 0, 1))}}`, [0]),
      /safetensors: expected JSON with each key once at line 1, column 54/,
    ],
    ['a header that starts with a space', file(' {}'), /a header that is a JSON object, which starts with \{, got 32/],
    ['no header', file(''), /a header that is a JSON object, which starts with \{, got none/],
    [
      'metadata that is a text',
      file('{"__metadata__":"abc"}'),
      /safetensors: __metadata__: expected an object, got "abc"/,
    ],
    [
      'metadata that is a number',
      file('{"__metadata__":{"a":1}}'),
      /safetensors: __metadata__\.a: expected a string, got 1/,
    ],
    [
      'an entry that is a list',
      file('{"a":[]}'),
      /safetensors: a: expected an object with dtype, shape and data_offsets, got \[\]/,
    ],
    [
      'absurd dimensions beside a 0',
      file({ a: entry('U8', [2 ** 53 - 1, 2 ** 53 - 1, 0], 0, 0) }),
      /a\.shape: expected fewer than 2\^50 elements, got \[9007199254740991, 9007199254740991, 0\]/,
    ],
    [
      'a name with control characters',
      file('{"\\u001b[31m\\n":1}'),
      /safetensors: "\\u001b\[31m\\n": expected an object/,
    ],
    ['no JSON', file('{'), /safetensors: expected JSON/],
    ['a list', file('[]'), /a header that is a JSON object/],
    [
      'an end past the file',
      file({ a: entry('F32', [1], 0, 4) }),
      /expected \d+ bytes, where the last tensor ends, got \d+\. The file is truncated or forged\./,
    ],
    [
      'overlap',
      file({ a: entry('F32', [1], 0, 4), b: entry('F32', [1], 0, 4) }, new Uint8Array(4)),
      /b\.data_offsets: it begins at 0, but the tensor before ends at 4/,
    ],
    [
      'a gap',
      file({ a: entry('F32', [1], 0, 4), b: entry('F32', [1], 8, 12) }, new Uint8Array(12)),
      /b\.data_offsets: it begins at 8, but the tensor before ends at 4/,
    ],
    [
      'the wrong size',
      file({ a: entry('F32', [2], 0, 4) }, new Uint8Array(4)),
      /a\.data_offsets: expected 8 bytes for shape \[2\] of F32, got 4/,
    ],
    [
      'offsets turned round',
      file({ a: entry('F32', [1], 4, 0) }, new Uint8Array(4)),
      /\[begin, end\] with begin <= end/,
    ],
    [
      'a shape of texts',
      file({ a: { dtype: 'F32', shape: ['1'], data_offsets: [0, 4] } }, new Uint8Array(4)),
      /a\.shape: expected integers >= 0/,
    ],
  ];
  for (const [name, bytes, message] of cases)
    test(name, () => void assert.throws(() => parseSafetensors(bytes), { code: 'FORMAT', message }));
  test('a type named as an object is', () => {
    const bytes = file({ a: entry('constructor', [1], 0, 4) }, new Uint8Array(4));
    assert.throws(() => tensorFromSafetensors(bytes, parseSafetensors(bytes), 'a'), {
      code: 'UNSUPPORTED',
      message: /got "constructor"$/,
    });
  });
  test('bytes that end before the tensor does, whatever follows them in memory', () => {
    for (const [type, shape] of [
      ['U8', [4]],
      ['F32', [1]],
    ] as const) {
      const whole = file({ a: entry(type, [...shape], 0, 4) }, [1, 2, 3, 4]);
      const parsed = parseSafetensors(whole);
      for (const cut of [whole.subarray(0, whole.length - 1), whole.slice(0, parsed.dataOffset)])
        assert.throws(() => tensorFromSafetensors(cut, parsed, 'a'), {
          code: 'FORMAT',
          message: `safetensors: a: expected the whole file, at least ${whole.length} bytes, got ${cut.length}. Pass the file, not only its header.`,
        });
    }
  });
  test('a type that we have no dtype for is located, and refused when read', () => {
    const bytes = file({ a: entry('F8_E8M0', [4], 0, 4) }, new Uint8Array(4));
    const parsed = parseSafetensors(bytes);
    assert.equal(parsed.tensors.get('a')!.type, 'F8_E8M0');
    assert.throws(() => tensorFromSafetensors(bytes, parsed, 'a'), {
      code: 'UNSUPPORTED',
      message: /safetensors: a: expected a type among F64, F32/,
    });
    assert.throws(() => tensorFromSafetensors(bytes, parsed, 'z'), {
      code: 'FORMAT',
      message: 'safetensors: expected one of 1 tensors, got "z"',
    });
  });
});
