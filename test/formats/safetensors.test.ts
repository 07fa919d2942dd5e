import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { readSafetensorsHeader } from '../../src/formats/read-header.node.js';
import { parseSafetensors, tensorFromSafetensors } from '../../src/formats/safetensors.js';
import { damage, damaged, mustRefuseOrReturn } from '../support/fuzz.js';
import { seeded } from '../support/tensors.js';

function file(header: string | object, data: ArrayLike<number> = []): Uint8Array {
  const text = new TextEncoder().encode(typeof header === 'string' ? header : JSON.stringify(header));
  const bytes = new Uint8Array(8 + text.length + data.length);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(text.length), true);
  bytes.set(text, 8);
  bytes.set(Array.from(data), 8 + text.length);
  return bytes;
}
const entry = (dtype: string, shape: number[], begin: number, end: number) => ({ dtype, shape, data_offsets: [begin, end] });

describe('golden', () => {
  const path = new URL('../../../shared/models/stories260K/model.safetensors', import.meta.url);
  test('a real file', { skip: existsSync(path) ? false : '../shared/models is not here' }, async () => {
    const bytes = new Uint8Array(readFileSync(path));
    const parsed = parseSafetensors(bytes);
    assert.deepEqual(await readSafetensorsHeader(path.pathname), parsed);
    const q = tensorFromSafetensors(bytes, parsed, 'model.layers.0.self_attn.q_proj.weight');
    assert.deepEqual([q.dtype, q.shape], ['f32', [64, 64]]);
    assert.ok((q.readNumbers() as Float64Array).every(Number.isFinite));
  });

  test('tensors, metadata, an odd address, an empty tensor', () => {
    const bytes = file(
      { __metadata__: { format: 'pt' }, b: entry('U8', [3], 4, 7), a: entry('F32', [1], 0, 4), none: entry('BF16', [0, 5], 7, 7) },
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
    { ...seeded, numRuns: 4000 },
  );
  fc.assert(
    fc.property(fc.json(), (json) => mustRefuseOrReturn(() => read(file(json)), ['FORMAT', 'UNSUPPORTED'])),
    { ...seeded, numRuns: 1000 },
  );
});

describe('refusals', () => {
  const cases: [string, Uint8Array, RegExp][] = [
    ['seven bytes', new Uint8Array(7), /safetensors: expected at least 8 bytes, got 7/],
    ['a header of 2^63', Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 128), /header length: expected at most 100000000 bytes/],
    ['cut in the header', file({ a: entry('F32', [1], 0, 4) }).slice(0, 20), /expected a header of \d+ bytes, got "20 bytes"/],
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
      /b\.data_offsets: expected to begin at 4, where the tensor before ends, got 0/,
    ],
    [
      'a gap',
      file({ a: entry('F32', [1], 0, 4), b: entry('F32', [1], 8, 12) }, new Uint8Array(12)),
      /b\.data_offsets: expected to begin at 4/,
    ],
    [
      'the wrong size',
      file({ a: entry('F32', [2], 0, 4) }, new Uint8Array(4)),
      /a\.data_offsets: expected 8 bytes for shape \[2\] of F32, got 4/,
    ],
    ['offsets turned round', file({ a: entry('F32', [1], 4, 0) }, new Uint8Array(4)), /\[begin, end\] with begin <= end/],
    [
      'a shape of texts',
      file({ a: { dtype: 'F32', shape: ['1'], data_offsets: [0, 4] } }, new Uint8Array(4)),
      /a\.shape: expected integers >= 0/,
    ],
  ];
  for (const [name, bytes, message] of cases)
    test(name, () => void assert.throws(() => parseSafetensors(bytes), { code: 'FORMAT', message }));
  test('a type that is no dtype of ours is located, and refused when read', () => {
    const bytes = file({ a: entry('F8_E4M3', [4], 0, 4) }, new Uint8Array(4));
    const parsed = parseSafetensors(bytes);
    assert.equal(parsed.tensors.get('a')!.type, 'F8_E4M3');
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
